/* Every fixture: its id and structure are what an independent writer computed (id.txt), its code is PyTorch's (code.txt), and
 * the code after each pass is what Optimum makes of it (expected/<pass>.code.txt). */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/graph/code.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

static const char *const passes[] = {
    "MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse", "FuseBatchNorm2dInConv2d", "FuseBatchNorm1dInLinear",
    "composed",
};
enum { PASS_COUNT = sizeof passes / sizeof *passes };

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
static void ck_text(const char *what, const char *file, const fb_buffer *got, const char *expected, size_t size) {
    size_t at = 0, line = 1;
    while (at < got->size && at < size && got->data[at] == expected[at]) line += expected[at++] == '\n';
    if (at == got->size && at == size) return;
    while (at > 0 && expected[at - 1] != '\n') at--;
    int left = (int)strcspn(expected + at, "\n"), right = at < got->size ? (int)strcspn(got->data + at, "\n") : 0;
    ck_abort_msg("%s: not %s, line %zu:\n  %.*s\n  %.*s", what, file, line, left, expected + at, right, got->data + at);
}

static void ck_code(const char *name, const char *file, const fb_graph *graph) {
    size_t size;
    char *expected = read_fixture(name, file, &size);
    fb_buffer code = {0};
    ck_assert(fb_code_write(graph, FB_MAIN_PROGRAM, &(fb_work){0}, &code));
    ck_assert_ptr_nonnull(fb_buffer_text(&code));
    ck_text(name, file, &code, expected, size);
    fb_buffer_free(&code);
    free(expected);
}

START_TEST(test_identity) {
    const char *name = fixture_names[_i];
    char id[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1];
    fb_graph *graph = read_graph(name);
    size_t size;
    char *expected = read_fixture(name, "id.txt", &size);
    ck_assert(fb_document_id(graph, id));
    ck_assert(fb_document_structure(graph, structure));
    ck_assert_str_eq(strtok(expected, "\n"), id);
    ck_assert_str_eq(strtok(NULL, "\n"), structure);
    ck_code(name, "code.txt", graph);
    free(expected);
    fb_graph_free(graph);
}
END_TEST

/* Each pass that has an expectation gives it; ATen fixtures have none, but what was not applied to them changes nothing. */
START_TEST(test_passes) {
    const char *name = fixture_names[_i / PASS_COUNT], *pass = passes[_i % PASS_COUNT];
    char list[128], file[128], path[256], before[FB_ID_LENGTH + 1], after[FB_ID_LENGTH + 1];
    bool is_composed = strcmp(pass, "composed") == 0;
    snprintf(list, sizeof list, is_composed ? "[\"%s\",\"%s\",\"%s\"]" : "[\"%s\"]", is_composed ? passes[2] : pass, passes[0],
             passes[1]);
    snprintf(file, sizeof file, "expected/%s.code.txt", pass);
    snprintf(path, sizeof path, "tests/fixtures/%s/%s", name, file);
    fb_graph *graph = read_graph(name);
    fb_run done;
    run(list, graph, &done);
    ck_assert(fb_document_id(graph, before));
    ck_assert(fb_document_id(done.result, after));
    size_t applied = 0;
    for (size_t i = 0; i < done.count; i++) applied += done.passes[i].applied;
    if (access(path, R_OK) == 0) ck_code(name, file, done.result);
    ck_assert_int_eq(applied == 0, strcmp(before, after) == 0);
    fb_run_free(&done);
    fb_graph_free(graph);
}
END_TEST

int main(void) {
    int count = 0;
    while (fixture_names[count]) count++;
    TCase *tests = tcase_create("fixtures");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, test_identity, 0, count);
    tcase_add_loop_test(tests, test_passes, 0, count * PASS_COUNT);
    return run_tests("fixtures", tests);
}
