/* Memory runs out at every allocation in turn, for good or once, while a graph is evaluated: the answer is FB_NO_MEMORY (or the
 * right one, where the allocation was not needed), and nothing stays. Leaks of other memory show under make asan. */
#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "core/evaluator/evaluator.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/kernel_cases.h"
#include "tests/unit/run_tests.h"

typedef void (*failure)(long count);
static const failure failures[] = {chaos_fail_after, chaos_fail_once};

enum { SAMPLES = 60 }; /* of a family */

/* A case with every allocation failing in turn. */
static void ck_case(const json_t *item) {
    fb_graph *graph = kernel_case_graph(item);
    const char *name = kernel_case_name(item);
    for (size_t kind = 0; kind < 2; kind++) {
        bool has_failed = true;
        for (long k = 0; has_failed; k += fault_step()) {
            fb_array_memory memory;
            fb_object output = {.kind = FB_OBJECT_NONE};
            fb_error error = {0};
            char why[600];
            failures[kind](k);
            fb_status status = kernel_case_run(graph, FB_PRECISION_RECORDED, &memory, &output, &error);
            has_failed = chaos_off();
            bool is_wrong = status != FB_NO_MEMORY &&
                            kernel_case_is_wrong(item, FB_PRECISION_RECORDED, status, &output, &error, why, sizeof why);
            ck_assert_msg(!is_wrong, "%s: allocation %ld: %s", name, k, why);
            ck_assert_msg(status != FB_NO_MEMORY || has_failed, "%s: fails at allocation %ld without a cause", name, k);
            fb_object_drop(&output);
            ck_assert_msg(memory.used == 0, "%s: allocation %ld: %zu bytes stay", name, k, memory.used);
        }
    }
    fb_graph_free(graph);
}

/* Some cases of each family, spread over it. */
START_TEST(kernels_survive) {
    json_t *cases = kernel_cases_open(kernel_families[_i]);
    size_t count = json_array_size(cases), step = count > SAMPLES ? count / SAMPLES : 1;
    for (size_t i = 0; i < count; i += step) ck_case(json_array_get(cases, i));
    json_decref(cases);
}
END_TEST

static const char *const fixtures[] = {"toy", "aten-toy", "gpt2-tiny"};
enum { FIXTURES = sizeof fixtures / sizeof *fixtures };

START_TEST(graphs_survive) {
    size_t size;
    char *text = read_fixture(fixtures[_i], "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    free(text);
    for (size_t kind = 0; kind < 2; kind++) {
        bool has_failed = true;
        for (long k = 0; has_failed; k += 1 + k / 200) { /* all of the first ones, some of the later */
            fb_array_memory memory;
            fb_eval_inputs inputs = {.graph = graph, .memory = &memory, .is_drawn = true, .seed = 1};
            fb_eval_options options = {.random_weights = true};
            fb_eval_hooks hooks = {.context = &inputs, .given = fb_give_input};
            fb_object output = {.kind = FB_OBJECT_NONE};
            fb_error error = {0};
            failures[kind](k);
            fb_status status = fb_evaluate_graph(graph, &options, &hooks, &memory, &output, &error);
            has_failed = chaos_off();
            ck_assert_msg(status == FB_OK || (status == FB_NO_MEMORY && has_failed), "%s: status %d at allocation %ld: %s",
                          fixtures[_i], status, k, error.message);
            fb_object_drop(&output);
            ck_assert_uint_eq(memory.used, 0);
        }
    }
    fb_graph_free(graph);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("out of memory");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, kernels_survive, 0, KERNEL_FAMILIES);
    tcase_add_loop_test(tests, graphs_survive, 0, FIXTURES);
    return run_tests("eval-faults", tests);
}
