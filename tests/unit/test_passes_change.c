/* Passes that compute something else on purpose, on every fixture: what they make can be computed, gives results of the same
 * dtypes and shapes, about as far from the source as the pass says, and undoing gives the source back. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/compose/undo.h"
#include "core/eval/validate.h"
#include "core/graph/document.h"
#include "tests/unit/documents.h"

static const struct {
    const char *pass;
    double relative;   /* of the results' difference; infinite: any */
    const char *loose; /* where it is not held: random masks hide whole rows, and float16's least number is near their scores */
    const char *applies; /* the fixtures in which it must find something */
} rows[] = {
    {"{\"name\":\"ReplaceActivation\",\"params\":{\"from\":\"relu\",\"to\":\"gelu\"}}", INFINITY, "",
     "toy resnet-tiny aten-toy aten-resnet18"},
    {"{\"name\":\"ReplaceActivation\",\"params\":{\"from\":\"gelu\",\"to\":\"hardswish\"}}", INFINITY, "",
     "bert-tiny aten-bert"},
    {"{\"name\":\"ConvertPrecision\",\"params\":{\"to\":\"float16\"}}", 0.004, "aten-bert",
     "toy bert-tiny gpt2-tiny resnet-tiny mobilenet aten-toy aten-bert aten-llama aten-resnet18"},
    {"{\"name\":\"ConvertPrecision\",\"params\":{\"to\":\"bfloat16\"}}", 0.02, "",
     "toy bert-tiny gpt2-tiny resnet-tiny mobilenet aten-toy aten-bert aten-llama aten-resnet18"},
    {"{\"name\":\"ConvertPrecision\",\"params\":{\"to\":\"bfloat16\",\"keep\":[\"softmax\",\"layer_norm\",\"relu\"]}}", 0.02,
     "", "toy"},
};

static const char *const fixtures[] = {"toy",      "bert-tiny", "gpt2-tiny",  "resnet-tiny",  "mobilenet",
                                       "aten-toy", "aten-bert", "aten-llama", "aten-resnet18"};

typedef struct trial {
    const char *pass, *fixture;
    fb_composition composition;
    fb_graph *before;
    fb_run run;
} trial;

static void ck_status(const trial *t, fb_status status, const fb_error *error) {
    ck_assert_msg(status == FB_OK, "%s on %s: %s: %s (%s)", t->pass, t->fixture, error->code, error->message, error->node);
}

static trial begin(const char *pass, const char *fixture) {
    trial t = {.pass = pass, .fixture = fixture};
    char list[400];
    snprintf(list, sizeof list, "[%s]", pass);
    size_t size;
    char *text = read_fixture(fixture, "graph.json", &size);
    t.before = graph_of(text, size);
    free(text);
    json_t *json = json_loads(list, 0, NULL);
    fb_error error = {0};
    ck_status(&t, fb_composition_read(json, "", &t.composition, &error), &error);
    json_decref(json);
    ck_status(&t, fb_composition_run(&t.composition, t.before, FB_LINT_EACH, &t.run, &error), &error);
    return t;
}

static void end(trial *t) {
    fb_run_free(&t->run);
    fb_composition_free(&t->composition);
    fb_graph_free(t->before);
}

static void ck_computes(const trial *t, double relative) {
    fb_eval_options options = {.seed = 7, .random_weights = true};
    fb_tolerance tolerance = {.absolute = isinf(relative) ? INFINITY : 0, .relative = isinf(relative) ? 0 : relative};
    fb_comparison_inputs drawn = {0};
    fb_comparison found;
    fb_error error = {0};
    ck_status(t, fb_compare_graphs(t->before, t->run.result, &drawn, &options, &tolerance, &found, &error), &error);
    ck_assert_uint_gt(found.count, 0);
    for (size_t i = 0; i < found.count; i++) {
        const fb_output_comparison *output = &found.outputs[i];
        ck_assert_msg(output->passes, "%s on %s: %s is off by %g, or of another dtype", t->pass, t->fixture, output->name,
                      output->between.relative);
    }
    fb_comparison_free(&found);
}

/* Without the pass the run is the source, whatever the pass did. */
static void ck_undone(const trial *t) {
    char before[FB_ID_LENGTH + 1], after[FB_ID_LENGTH + 1];
    fb_undo_step step = {.call = &t->composition.calls[0], .is_undone = true};
    fb_undo_plan plan = {.source = t->before, .steps = &step, .step_count = 1, .result = t->run.result, .ours = t->run.result};
    fb_graph *undone;
    bool is_exact;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    ck_status(t, fb_undo(&plan, &undone, &is_exact, &conflicts, &error), &error);
    ck_assert(fb_document_id(t->before, before) && fb_document_id(undone, after));
    ck_assert_msg(is_exact && strcmp(before, after) == 0, "%s on %s: undone, it is another graph", t->pass, t->fixture);
    fb_graph_free(undone);
}

static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length) {
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
    }
    return false;
}

START_TEST(every_pass) {
    const char *fixture = fixtures[_i];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial t = begin(rows[i].pass, fixture);
        bool applied = t.run.passes[0].applied > 0;
        ck_assert_msg(applied || !has_word(rows[i].applies, fixture), "%s finds nothing in %s", rows[i].pass, fixture);
        ck_computes(&t, !applied ? 0 : has_word(rows[i].loose, fixture) ? INFINITY : rows[i].relative);
        ck_undone(&t);
        end(&t);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("passes_change");
    TCase *fixtures_case = tcase_create("fixtures");
    tcase_set_timeout(fixtures_case, 300);
    tcase_add_loop_test(fixtures_case, every_pass, 0, (int)(sizeof fixtures / sizeof *fixtures));
    suite_add_tcase(suite, fixtures_case);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
