/* Every pass on every fixture: it applies where it should, what it makes computes the same, and undoing gives the source back.
 * Whoever adds a pass adds a row. */
#include "tests/unit/checks.h"

#include "core/passes/passes.h"
#include <string.h>

#include "core/validation/validation.h"
#include "tests/unit/pass_trial.h"
#include "tests/unit/run_tests.h"

static const struct {
    const char *pass; /* as in a list of passes */
    bool only_moves;
    const char *applies; /* the fixtures in which it must find something */
} rows[] = {
    {"\"MergeLinears\"", true, "toy bert-tiny aten-toy aten-bert aten-llama"},
    {"\"MergeConsecutiveLinears\"", false, ""}, /* they have no two in a row that would be worth it */
    {"\"MergeConvolutions\"", true, ""},        /* they have no two of one kind on one value */
    {"\"MergeBranches\"", false, ""},           /* they add no two branches of one value */
    {"\"MergeAdapters\"", false, ""},           /* they have no adapters */
    {"\"FuseBiasInLinear\"", true, "toy bert-tiny aten-toy aten-bert"},
    {"\"ChangeTrueDivToMulByInverse\"", false, "toy aten-toy"},
    {"\"FuseBatchNorm\"", false, "toy resnet-tiny mobilenet aten-toy aten-resnet18"},
    {"\"FuseBatchNorm2dInConv2d\"", false, "toy resnet-tiny mobilenet aten-toy aten-resnet18"},
    {"\"FuseBatchNorm1dInLinear\"", false, "toy aten-toy"},
    {"\"FoldPad\"", true, ""}, /* they pad where they convolve */
    {"\"FoldShapes\"", true, "toy bert-tiny gpt2-tiny resnet-tiny"},
    {"\"FuseRepeat\"", true, ""},
    {"\"FuseRotation\"", true, "aten-llama"},
    {"\"InlinePrograms\"", true, ""}, /* they have no nested programs */
    {"\"InlineVmap\"", true, ""},     /* they have no vmap */
    {"\"EvaluateConstants\"", true, "aten-llama"},
    {"\"FoldConstants\"", false, "aten-bert"},
    {"\"FoldScaleIntoLinear\"", false, "toy bert-tiny aten-toy"},
    {"\"FoldNormIntoLinear\"", false, "aten-llama"},
    {"\"UnpackLinear\"", true, "gpt2-tiny"},
    {"\"FuseAttention\"", false, ""}, /* their masks are given, so a row might be masked as a whole */
    {"{\"name\":\"FuseAttention\",\"params\":{\"masked_rows\":true}}", false, "bert-tiny"},
    {"\"FuseLinear\"", false, ""}, /* their products with weights are Linears already */
    {"\"FuseNorm\"", false, "aten-llama"},
    {"\"FuseActivation\"", false, "gpt2-tiny"},
    {"\"ChannelsLast\"", false, "mobilenet"},
    {"\"FusePointwise\"", false, "resnet-tiny mobilenet aten-resnet18"},
    {"\"MergeViews\"", true, "bert-tiny aten-bert"},
    {"\"ChangeEinsumToMatMul\"", false, ""}, /* they are no ONNX models */
    {"\"MergeConsecutiveCalls\"", false, ""},
    {"\"MoveTransposes\"", false, ""},
    {"\"PackLinear\"", false, ""},
    {"\"ChangeMulByInverseToTrueDiv\"", false, ""},
    {"\"RaiseOpset\"", false, ""},
    {"\"RemoveNoOps\"", true, "toy bert-tiny gpt2-tiny resnet-tiny aten-toy aten-bert aten-llama"},
    {"{\"name\":\"RemoveNoOps\",\"params\":{\"asserts\":true,\"float_zeros\":true}}", true, "toy aten-bert aten-llama"},
    {"\"EliminateCommonSubexpressions\"", true, "toy bert-tiny gpt2-tiny aten-llama"},
    {"\"EliminateDeadCode\"", true, "toy aten-toy aten-resnet18"},
    {"\"RecordTypes\"", true, ""}, /* their tracers recorded it; tests/api/test_assume.py takes that away */
    {"\"cleanup\"", true, "toy bert-tiny gpt2-tiny resnet-tiny mobilenet aten-toy aten-bert aten-llama aten-resnet18"},
    {"\"inference\"", false, "toy bert-tiny gpt2-tiny resnet-tiny mobilenet aten-toy aten-bert aten-llama aten-resnet18"},
};

static void ck_computes_the_same(const trial *t, bool only_moves) {
    fb_eval_options options = {.seed = 7};
    fb_validation found;
    fb_error error = {0};
    trial_check(t, fb_validate_rewrite(t->before, t->run.result, &options, only_moves, NULL, &found, &error), &error);
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

START_TEST(every_pass) {
    const char *fixture = trial_fixtures[_i];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial t;
        trial_begin(&t, rows[i].pass, fixture, false);
        ck_assert_msg(t.applied > 0 || !trial_has_word(rows[i].applies, fixture), "%s finds nothing in %s", rows[i].pass,
                      fixture);
        ck_computes_the_same(&t, rows[i].only_moves);
        trial_check_undone(&t);
        trial_end(&t);
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
    tcase_set_timeout(fixtures_case, 600);
    tcase_add_loop_test(fixtures_case, every_pass, 0, TRIAL_FIXTURES);
    tcase_add_test(fixtures_case, every_pass_has_a_row);
    return run_tests("passes_validate", fixtures_case);
}
