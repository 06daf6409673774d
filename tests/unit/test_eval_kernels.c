/* Every kernel computes what PyTorch computed: the cases that tests/python/kernels recorded. With FOLDBACK_KERNEL_CASE set,
 * cases whose names do not have that text in them are left out. */
#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernel_cases.h"
#include "tests/unit/run_tests.h"

/* How many cases fail, each told. */
static size_t replay(const json_t *cases, fb_precision precision) {
    const char *only = getenv("FOLDBACK_KERNEL_CASE");
    size_t wrong = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i);
        if (only && !strstr(kernel_case_name(item), only)) continue;
        fb_graph *graph = kernel_case_graph(item);
        fb_array_memory memory;
        fb_object output = {.kind = FB_OBJECT_NONE};
        fb_error error = {0};
        char why[600];
        fb_status status = kernel_case_run(graph, precision, &memory, &output, &error);
        if (kernel_case_is_wrong(item, precision, status, &output, &error, why, sizeof why)) {
            fprintf(stderr, "%s%s: %s\n", kernel_case_name(item), precision ? " (in float64)" : "", why);
            wrong++;
        }
        fb_object_drop(&output);
        ck_assert_msg(memory.used == 0, "%s: %zu bytes stay", kernel_case_name(item), memory.used);
        fb_graph_free(graph);
    }
    return wrong;
}

START_TEST(kernels_compute_what_pytorch_recorded) {
    json_t *cases = kernel_cases_open(kernel_families[_i]);
    size_t wrong = replay(cases, FB_PRECISION_RECORDED) + replay(cases, FB_PRECISION_DOUBLE);
    ck_assert_msg(wrong == 0, "%s: %zu cases are wrong", kernel_families[_i], wrong);
    json_decref(cases);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("recorded");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, kernels_compute_what_pytorch_recorded, 0, KERNEL_FAMILIES);
    return run_tests("eval-kernels", tests);
}
