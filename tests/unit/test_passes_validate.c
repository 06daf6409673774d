/* Every pass on every fixture: it applies where it should, what it makes computes the same, and undoing gives the source back.
 * Whoever adds a pass adds a row. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/compose/undo.h"
#include "core/eval/validate.h"
#include "core/graph/document.h"
#include "core/graph/verify.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

static const struct {
    const char *pass; /* as in a list of passes */
    bool only_moves;
    const char *applies; /* the fixtures in which it must find something */
} rows[] = {
    {"\"MergeLinears\"", true, "toy bert-tiny aten-toy aten-bert aten-llama"},
    {"\"FuseBiasInLinear\"", true, "toy bert-tiny aten-toy aten-bert"},
    {"\"ChangeTrueDivToMulByInverse\"", false, "toy aten-toy"},
    {"\"FuseBatchNorm\"", false, "toy resnet-tiny mobilenet aten-toy aten-resnet18"},
    {"\"FuseBatchNorm2dInConv2d\"", false, "toy resnet-tiny mobilenet aten-toy aten-resnet18"},
    {"\"FuseBatchNorm1dInLinear\"", false, "toy aten-toy"},
    {"\"FoldShapes\"", true, "toy bert-tiny gpt2-tiny resnet-tiny"},
    {"\"FoldConstants\"", false, "aten-bert"},
    {"\"FoldScaleIntoLinear\"", false, "toy bert-tiny aten-toy"},
    {"\"FoldNormIntoLinear\"", false, "aten-llama"},
    {"\"UnpackLinear\"", true, "gpt2-tiny"},
    {"\"MergeViews\"", true, "bert-tiny aten-bert"},
    {"\"RemoveNoOps\"", true, "toy bert-tiny gpt2-tiny resnet-tiny aten-toy aten-bert aten-llama"},
    {"{\"name\":\"RemoveNoOps\",\"params\":{\"asserts\":true,\"float_zeros\":true}}", true, "toy aten-bert aten-llama"},
    {"\"EliminateCommonSubexpressions\"", true, "toy bert-tiny gpt2-tiny aten-llama"},
    {"\"EliminateDeadCode\"", true, "toy aten-toy aten-resnet18"},
    {"\"cleanup\"", true, "toy bert-tiny gpt2-tiny resnet-tiny mobilenet aten-toy aten-bert aten-llama aten-resnet18"},
    {"\"inference\"", false, "toy bert-tiny gpt2-tiny resnet-tiny mobilenet aten-toy aten-bert aten-llama aten-resnet18"},
};

/* Those whose regions are evaluated in no time. */
static const char *const fixtures[] = {"toy",      "bert-tiny", "gpt2-tiny",  "resnet-tiny",  "mobilenet",
                                       "aten-toy", "aten-bert", "aten-llama", "aten-resnet18"};

typedef struct trial {
    const char *pass, *fixture;
    fb_composition composition;
    fb_graph *before;
    fb_run run;
    size_t applied;
} trial;

static void ck_status(const trial *t, fb_status status, const fb_error *error) {
    ck_assert_msg(status == FB_OK, "%s on %s: %s: %s", t->pass, t->fixture, error->code, error->message);
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
    for (size_t i = 0; i < t.run.count; i++) t.applied += t.run.passes[i].applied;
    return t;
}

static void end(trial *t) {
    fb_run_free(&t->run);
    fb_composition_free(&t->composition);
    fb_graph_free(t->before);
}

static void ck_computes_the_same(const trial *t, bool only_moves) {
    fb_eval_options options = {.seed = 7};
    fb_validation found;
    fb_error error = {0};
    ck_status(t, fb_validate_rewrite(t->before, t->run.result, &options, only_moves, NULL, &found, &error), &error);
    for (size_t i = 0; i < found.count; i++) {
        const fb_region_report *region = &found.regions[i];
        const char *node = region->node_count ? region->nodes[0] : "";
        ck_assert_msg(!region->unsupported, "%s on %s: %s: %s", t->pass, t->fixture, node, region->detail);
        ck_assert_msg(region->passes, "%s on %s: %s computes something else", t->pass, t->fixture, node);
    }
    /* Where nodes only went that nobody read, there is nothing. */
    ck_assert_msg(found.count > 0 || t->applied == 0 || t->run.passes[0].pass->only_removes, "%s on %s: nothing to compare",
                  t->pass, t->fixture);
    fb_validation_free(&found);
}

static void ck_undone(const trial *t) {
    char before[FB_ID_LENGTH + 1], after[FB_ID_LENGTH + 1];
    fb_undo_step *steps = calloc(t->composition.count, sizeof *steps);
    for (size_t i = 0; i < t->composition.count; i++) {
        steps[i] = (fb_undo_step){.call = &t->composition.calls[i], .is_undone = true};
    }
    fb_undo_plan plan = {.source = t->before,
                         .steps = steps,
                         .step_count = t->composition.count,
                         .result = t->run.result,
                         .ours = t->run.result};
    fb_graph *undone;
    bool is_exact;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    ck_status(t, fb_undo(&plan, &undone, &is_exact, &conflicts, &error), &error);
    ck_assert(fb_document_id(t->before, before) && fb_document_id(undone, after));
    ck_assert_msg(is_exact && strcmp(before, after) == 0, "%s on %s: undone, it is another graph", t->pass, t->fixture);
    fb_graph_free(undone);
    free(steps);
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
        ck_assert_msg(t.applied > 0 || !has_word(rows[i].applies, fixture), "%s finds nothing in %s", rows[i].pass, fixture);
        ck_computes_the_same(&t, rows[i].only_moves);
        ck_undone(&t);
        end(&t);
    }
}
END_TEST

/* Those that change what is computed are test_passes_change.c's. */
START_TEST(every_pass_has_a_row) {
    for (size_t i = 0; fb_pass_at(i); i++) {
        const fb_pass *pass = fb_pass_at(i);
        char quoted[100];
        bool found = !pass->preserves_computation || !pass->edit;
        snprintf(quoted, sizeof quoted, "\"%s\"", pass->name);
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) found |= strcmp(rows[k].pass, quoted) == 0;
        ck_assert_msg(found, "%s is held against no fixture", pass->name);
    }
}
END_TEST

int main(void) {
    TCase *fixtures_case = tcase_create("fixtures");
    tcase_set_timeout(fixtures_case, 300);
    tcase_add_loop_test(fixtures_case, every_pass, 0, (int)(sizeof fixtures / sizeof *fixtures));
    tcase_add_test(fixtures_case, every_pass_has_a_row);
    return run_tests("passes_validate", fixtures_case);
}
