/* Every fixture: its id and structure are what an independent writer computed (ids.json), its code is PyTorch's, and the code
 * after some passes is what Optimum makes of it (code.txt). */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/graph/code.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

static const char *const lists[] = {
    "[\"MergeLinears\"]",
    "[\"FuseBiasInLinear\"]",
    "[\"ChangeTrueDivToMulByInverse\"]",
    "[\"FuseBatchNorm2dInConv2d\"]",
    "[\"FuseBatchNorm1dInLinear\"]",
    "[\"ChangeTrueDivToMulByInverse\", \"MergeLinears\", \"FuseBiasInLinear\"]",
};
enum { LIST_COUNT = sizeof lists / sizeof *lists };

static fb_graph *read_graph(const char *name) {
    size_t size;
    char *text = read_fixture(name, "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    free(text);
    return graph;
}

static fb_composition composition_of(const char *list) {
    fb_composition composition;
    fb_error error = {0};
    json_t *json = json_loads(list, 0, NULL);
    ck_assert_msg(fb_composition_read(json, "", NULL, &composition, &error) == FB_OK, "%s", error.message);
    json_decref(json);
    return composition;
}

static void run(const char *list, const fb_graph *graph, fb_run *out) {
    fb_error error = {0};
    fb_composition composition = composition_of(list);
    fb_status status = fb_composition_run(&composition, graph, FB_LINT_EACH, NULL, out, &error);
    ck_assert_msg(status == FB_OK, "%s: %s", list, error.message);
    fb_composition_free(&composition);
}

/* The line where two texts part. */
static void ck_text(const char *what, const char *list, const fb_buffer *got, const char *expected) {
    size_t at = 0, line = 1, size = strlen(expected);
    while (at < got->size && at < size && got->data[at] == expected[at]) line += expected[at++] == '\n';
    if (at == got->size && at == size) return;
    while (at > 0 && expected[at - 1] != '\n') at--;
    int left = (int)strcspn(expected + at, "\n"), right = at < got->size ? (int)strcspn(got->data + at, "\n") : 0;
    ck_abort_msg("%s: not the code after %s, line %zu:\n  %.*s\n  %.*s", what, list ? list : "[]", line, left, expected + at,
                 right, got->data + at);
}

/* False if the fixture has none. */
static bool ck_code(const char *name, const char *list, const fb_graph *graph) {
    char *expected = read_fixture_code(name, list);
    if (!expected) return false;
    fb_buffer code = {0};
    ck_assert(fb_code_write(graph, FB_MAIN_PROGRAM, &(fb_work){0}, &code));
    ck_assert_ptr_nonnull(fb_buffer_text(&code));
    ck_text(name, list, &code, expected);
    fb_buffer_free(&code);
    free(expected);
    return true;
}

START_TEST(test_identity) {
    const char *name = fixture_names[_i];
    char id[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1];
    fb_graph *graph = read_graph(name);
    const fixture_ids expected = read_fixture_ids(name);
    ck_assert(fb_document_id(graph, id));
    ck_assert(fb_document_structure(graph, structure));
    ck_assert_str_eq(expected.graph, id);
    ck_assert_str_eq(expected.structure, structure);
    ck_assert(ck_code(name, NULL, graph));
    fb_graph_free(graph);
}
END_TEST

/* Each pass that has an expectation gives it; ATen fixtures have none, but what was not applied to them changes nothing. */
START_TEST(test_passes) {
    const char *name = fixture_names[_i / LIST_COUNT], *list = lists[_i % LIST_COUNT];
    char before[FB_ID_LENGTH + 1], after[FB_ID_LENGTH + 1];
    fb_graph *graph = read_graph(name);
    fb_run done;
    run(list, graph, &done);
    ck_assert(fb_document_id(graph, before));
    ck_assert(fb_document_id(done.result, after));
    size_t applied = 0;
    for (size_t i = 0; i < done.count; i++) applied += done.passes[i].applied;
    ck_code(name, list, done.result);
    ck_assert_int_eq(applied == 0, strcmp(before, after) == 0);
    fb_run_free(&done);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_every_code_is_compared) {
    const char *name = fixture_names[_i];
    size_t size, left = 0;
    char *text = read_fixture(name, "code.txt", &size);
    for (const char *at = text; (at = strstr(at, FIXTURE_CODE_AFTER)); at++) left++;
    for (size_t i = 0; i < LIST_COUNT; i++) {
        char *code = read_fixture_code(name, lists[i]);
        left -= code != NULL;
        free(code);
    }
    ck_assert_msg(left == 0, "%s: code.txt has code after other passes", name);
    free(text);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("fixtures");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, test_identity, 0, fixture_count);
    tcase_add_loop_test(tests, test_passes, 0, fixture_count * LIST_COUNT);
    tcase_add_loop_test(tests, test_every_code_is_compared, 0, fixture_count);
    return run_tests("fixtures", tests);
}
