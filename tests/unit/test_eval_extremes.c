/* Sizes, axes and indices near the ends of int64: each integer of every recorded call (tests/python/kernels) is replaced by
 * each of them, and the evaluator computes or refuses. `make asan` runs it: no sum or product of sizes overflows. With
 * FOLDBACK_KERNEL_CASE set, cases whose names do not have that text in them are left out; with FOLDBACK_EXTREMES_STEP, all
 * integers but each nth. */
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "tests/unit/checks.h"
#include "tests/unit/kernel_cases.h"
#include "tests/unit/run_tests.h"

static const int64_t extremes[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2 + 1, (int64_t)1 << 32};
enum { EXTREMES = sizeof extremes / sizeof *extremes };

/* The integer number *left of what a call has, counted from 0 in the order of the document; NULL: it has fewer. */
static json_t *find_integer(json_t *value, size_t *left) {
    json_t *item, *found = NULL;
    const char *key;
    size_t i;
    if (json_is_integer(value) && !(*left)--) return value;
    json_object_foreach(value, key, item) {
        if (!found) found = find_integer(item, left);
    }
    json_array_foreach(value, i, item) {
        if (!found) found = find_integer(item, left);
    }
    return found;
}

static json_t *integer_of(json_t *graph, size_t index) {
    json_t *row, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(graph, "nodes"), i, row) {
        if (!found) found = find_integer(json_object_get(row, "args"), &index);
        if (!found) found = find_integer(json_object_get(row, "kwargs"), &index);
    }
    json_array_foreach(json_object_get(graph, "modules"), i, row) {
        if (!found) found = find_integer(json_object_get(row, "config"), &index);
    }
    return found;
}

/* Reads it and computes it, or refuses. */
static void compute(const json_t *item) {
    char *text = json_dumps(json_object_get(item, "graph"), JSON_COMPACT | JSON_REAL_PRECISION(17));
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_array_memory memory = {0};
    fb_object output = {.kind = FB_OBJECT_NONE};
    fb_error error = {0};
    const fb_eval_options options = {.memory_limit = 1 << 22, .step_limit = 1e6};
    fb_status status = fb_document_read(text, strlen(text), NULL, "", &graph, &errors);
    if (!status) status = fb_evaluate_graph(graph, &options, NULL, &memory, &output, &error);
    fb_object_drop(&output);
    ck_assert_msg(memory.used == 0, "%s: %zu bytes stay", kernel_case_name(item), memory.used);
    fb_errors_free(&errors);
    fb_graph_free(graph);
    free(text);
}

START_TEST(integers_near_the_ends_are_computed_or_refused) {
    const char *only = getenv("FOLDBACK_KERNEL_CASE"), *step = getenv("FOLDBACK_EXTREMES_STEP");
    size_t every = step && atoi(step) > 0 ? (size_t)atoi(step) : 1, seen = 0;
    json_t *cases = kernel_cases_open(kernel_families[_i]);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *item = json_array_get(cases, i), *graph = json_object_get(item, "graph"), *number;
        if (only && !strstr(kernel_case_name(item), only)) continue;
        for (size_t k = 0; (number = integer_of(graph, k)); k++) {
            if (seen++ % every) continue;
            json_int_t before = json_integer_value(number);
            for (size_t e = 0; e < EXTREMES; e++) {
                json_integer_set(number, extremes[e]);
                compute(item);
            }
            json_integer_set(number, before);
        }
    }
    json_decref(cases);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("extremes");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, integers_near_the_ends_are_computed_or_refused, 0, KERNEL_FAMILIES);
    return run_tests("eval-extremes", tests);
}
