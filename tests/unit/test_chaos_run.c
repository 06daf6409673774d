/* Memory runs out at every allocation in turn, for good or once, while a document is read, transformed and written: each time
 * the answer is FB_NO_MEMORY (or the right result, where the allocation was not needed), and a pass that fails leaves its graph
 * as it was. Leaks show under make asan. */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/passes/passes.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/generator.h"
#include "tests/unit/run_tests.h"

typedef void (*failure)(long count);
static const failure failures[] = {chaos_fail_after, chaos_fail_once};

static const char *const documents[] = {
    "build/golden/MergeLinears/trap-19-mixed-bias/before.json",
    "build/golden/MergeLinears/trap-39-path-and-name-taken/before.json",
    "build/golden/MergeLinears/input-mutated-third-joins-second/before.json",
    "build/golden/MergeLinears/name-over-200-characters/before.json",
    "build/golden/MergeLinears/called-by-a-nested-program/before.json",
    "build/golden/MergeLinears/tensor-mutated/before.json",
    "build/golden/MergeLinears/reshape-joins-the-last-dimension/before.json",
    "build/golden/MergeConvolutions/mixed-bias/before.json",
    "build/golden/MergeConvolutions/aten-mixed-bias-first-without/before.json",
    "build/golden/FuseBiasInLinear/trap-25-called-three-times/before.json",
    "build/golden/FuseBiasInLinear/trap-24-float16/before.json",
    "build/golden/ChangeTrueDivToMulByInverse/trap-38-chain-and-output/before.json",
    "build/golden/FuseBatchNorm2dInConv2d/trap-02-pair-traced-twice/before.json",
    "build/golden/FuseBatchNorm2dInConv2d/marked-by-another-pass/before.json",
    "build/golden/FuseBatchNorm1dInLinear/norm-on-both-sides/before.json",
    "build/golden/FuseBatchNorm1dInLinear/input-mutated/before.json",
    "build/golden/MergeLinears/spelled-in-three-ways/before.json",
    "build/golden/FuseBiasInLinear/trap-25-aten-weights-read-twice/before.json",
    "build/golden/FuseBatchNorm/trap-02-aten-pair-twice/before.json",
    "build/golden/FuseBatchNorm/aten-norm-then-conv2d/before.json",
    "build/golden/FuseBatchNorm/norm-then-conv2d-groups/before.json",
    "build/golden/ReplaceActivation/parameters-of-functions/before.json",
    "build/golden/ConvertPrecision/in-place-between-casts/before.json",
    "build/golden/ConvertPrecision/weights-too-large/before.json",
    "build/golden/ConvertPrecision/aten-keep-a-path/before.json",
    "build/golden/QuantizeWeights/keep-patterns/before.json",
    "build/golden/QuantizeWeights/aten-transposed-addmm/before.json",
    "build/golden/QuantizeWeights/four-bits-aten-addmm/before.json",
    "build/golden/QuantizeWeights/four-bits-called-twice/before.json",
    "build/golden/FoldShapes/divided-by-a-full-tensor/before.json",
    "build/golden/MergeViews/module/before.json",
    "build/golden/MergeViews/permute-and-transpose/before.json",
    "build/golden/UnpackLinear/weight-with-another-reader/before.json",
    "build/golden/EvaluateConstants/written-in-place/before.json",
    "build/golden/EvaluateConstants/parts-of-a-tuple/before.json",
    "build/golden/FoldConstants/read-by-both/before.json",
    "build/golden/FoldConstants/stack-permute-reshape/before.json",
    "build/golden/FoldScaleIntoLinear/attention/before.json",
    "build/golden/FoldNormIntoLinear/aten-layer-norm/before.json",
    "build/golden/FuseActivation/tanh-gelu-float32/before.json",
    "build/golden/FuseNorm/layer-norm/before.json",
    "build/golden/FusePointwise/residual-in-place/before.json",
    "build/golden/FusePointwise/module-relu/before.json",
    "build/golden/MergeConsecutiveLinears/modules/before.json",
    "build/golden/FuseLinear/transposed/before.json",
    "build/golden/MergeBranches/modules-2d/before.json",
    "build/golden/MergeAdapters/biases/before.json",
    "build/golden/MergeAdapters/aten-packed-base/before.json",
    "build/golden/MergeBranches/aten-native-norm/before.json",
    "build/golden/FoldPad/called-twice/before.json",
    "build/golden/FoldPad/without-options/before.json",
    "build/golden/RaiseOpset/rows/before.json",
    "build/golden/RaiseOpset/attribute-becomes-an-input/before.json",
    "build/golden/MoveTransposes/between/before.json",
    "build/golden/MergeConsecutiveCalls/concat/before.json",
    "build/golden/ChangeEinsumToMatMul/gemm/before.json",
    "build/golden/PackLinear/two/before.json",
    "build/golden/ChangeMulByInverseToTrueDiv/reciprocal/before.json",
    "tests/fixtures/toy/graph.json",
};
enum { DOCUMENTS = sizeof documents / sizeof *documents, RANDOM = 10 };

/* The text of case i: a file, or a generated one. */
static char *document_at(int i, size_t *size, const char **name) {
    static char random_name[40];
    if (i < DOCUMENTS) {
        *name = documents[i];
        return read_file(documents[i], size);
    }
    fb_buffer text = {0};
    snprintf(random_name, sizeof random_name, "seed %d", i);
    *name = random_name;
    generate_document((uint64_t)i, &text);
    return fb_buffer_take(&text, size);
}

#define EVERY_PASS                                                                                                             \
    "[\"FuseBatchNorm2dInConv2d\", \"FuseBatchNorm1dInLinear\", [\"ChangeTrueDivToMulByInverse\", \"MergeLinears\"], "         \
    "\"FoldShapes\", {\"name\": \"InlinePrograms\", \"params\": {\"gradients\": true}}, \"InlineVmap\", "                      \
    "\"EvaluateConstants\", \"FoldConstants\", \"FoldNormIntoLinear\", \"FoldScaleIntoLinear\", {\"name\": "                   \
    "\"FuseBiasInLinear\", "                                                                                                   \
    "\"params\": {}}, \"MergeConvolutions\", \"MergeBranches\", \"MergeAdapters\", \"FoldPad\", "                              \
    "\"UnpackLinear\", \"FuseLinear\", \"MergeConsecutiveLinears\", \"FuseRotation\", \"FuseRepeat\", \"FuseNorm\", "          \
    "\"FuseActivation\", \"ChannelsLast\", "                                                                                   \
    "\"MergeViews\", \"MergeConsecutiveCalls\", \"ChangeEinsumToMatMul\", \"ChangeMulByInverseToTrueDiv\", "                   \
    "\"MoveTransposes\", \"PackLinear\", \"RaiseOpset\", "                                                                     \
    "\"cleanup\", \"DeepCopy\", "                                                                                              \
    "\"FusePointwise\", \"LintAndRecompile\"]"

/* Everything from text to text. FB_OK or FB_NO_MEMORY; the id of the result on FB_OK. */
static fb_status transform(const char *text, size_t size, const json_t *list, char id[FB_ID_LENGTH + 1]) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_error error = {0};
    fb_composition composition = {0};
    fb_run run = {0};
    fb_buffer report = {0}, bytes = {0};
    fb_status status = fb_document_read(text, size, NULL, "", &graph, &errors);
    if (!status) status = fb_composition_read(list, "", NULL, &composition, &error);
    if (!status) status = fb_composition_run(&composition, graph, FB_LINT_EACH, NULL, &run, &error);
    if (!status) {
        fb_run_report(&run, &(fb_work){0}, &report);
        bool is_written = fb_document_write_marked(run.result, &(fb_work){0}, &bytes, NULL, id);
        if (report.failed || !is_written || !fb_buffer_text(&report)) status = FB_NO_MEMORY;
        fb_run_free(&run);
    }
    fb_buffer_free(&report);
    fb_buffer_free(&bytes);
    fb_composition_free(&composition);
    fb_graph_free(graph);
    fb_errors_free(&errors);
    return status;
}

START_TEST(test_whole_run) {
    const char *name;
    size_t size;
    char *text = document_at(_i, &size, &name), expected[FB_ID_LENGTH + 1], id[FB_ID_LENGTH + 1];
    json_t *list = json_loads(EVERY_PASS, 0, NULL);
    ck_assert_int_eq(transform(text, size, list, expected), FB_OK);
    for (size_t kind = 0; kind < 2; kind++) {
        for (long k = 0;; k += fault_step()) {
            failures[kind](k);
            fb_status status = transform(text, size, list, id);
            bool has_failed = chaos_off();
            ck_assert_msg(status == FB_OK || status == FB_NO_MEMORY, "%s: status %d at allocation %ld", name, status, k);
            ck_assert_msg(status != FB_OK || strcmp(id, expected) == 0, "%s: another result at allocation %ld", name, k);
            ck_assert_msg(status == FB_OK || has_failed, "%s: failed at allocation %ld without a cause", name, k);
            if (!has_failed) break;
        }
    }
    json_decref(list);
    free(text);
}
END_TEST

static void ck_as_before(const fb_graph *graph, const fb_buffer *before, const char *pass, const char *name, long k) {
    fb_buffer after = {0};
    fb_errors errors = {0};
    fb_document_write(graph, &after);
    ck_assert(!after.failed);
    ck_assert_msg(after.size == before->size && memcmp(after.data, before->data, after.size) == 0,
                  "%s on %s: failing at allocation %ld changed the graph", pass, name, k);
    fb_verify(graph, &(fb_work){0}, &errors);
    ck_assert_msg(errors.total == 0, "%s on %s: after allocation %ld: %s", pass, name, k,
                  errors.items ? errors.items[0].message : "");
    fb_errors_free(&errors);
    fb_buffer_free(&after);
}

/* Of those passes that need some, or do more with them; NULL past the last. */
static const char *params_of(const fb_pass *pass, size_t index) {
    static const char *const params[][2] = {
        {"ReplaceActivation", "{\"from\":\"relu\",\"parameters\":{\"approximate\":\"tanh\"},\"to\":\"gelu\"}"},
        {"QuantizeWeights", "{\"keep\":[\"layers.?.up\",\"embedding\"]}"},
        {"QuantizeWeights", "{\"bits\":4,\"group_size\":32}"},
        {"ConvertPrecision", "{\"keep\":[\"softmax\",\"*.norm\"],\"to\":\"float16\"}"},
    };
    size_t found = 0;
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        if (strcmp(pass->name, params[i][0]) == 0 && found++ == index) return params[i][1];
    }
    return found || index ? NULL : "{}";
}

/* One pass: true when no allocation failed any more. */
static bool apply_failing(const fb_pass *pass, const char *params, const char *chosen, const fb_graph *source,
                          const fb_buffer *before, failure fail_from, long k, const char *name) {
    fb_graph *graph = fb_graph_copy(source, &(fb_work){0});
    fb_namespace *names = fb_namespace_of(source, &(fb_work){0});
    fb_arena arena = {0};
    fb_error error = {0};
    fb_graph_state work = {.graph = graph, .names = names, .names_matches = chosen, .may_lack_matches = true};
    fb_pass_report report = {.pass = pass, .params = params, .chosen = chosen};
    ck_assert(fb_pass_signature(pass->name, pass->version, NULL, report.params, NULL, report.signature));
    fail_from(k);
    fb_status status = fb_pass_apply(&work, NULL, &report, &arena, &error);
    bool has_failed = chaos_off();
    ck_assert_msg(status == FB_OK || (status == FB_NO_MEMORY && has_failed), "%s on %s: status %d at allocation %ld: %s",
                  pass->name, name, status, k, error.message);
    if (status == FB_NO_MEMORY) {
        ck_assert_str_eq(error.code, "out-of-memory");
        ck_as_before(graph, before, pass->name, name, k);
    }
    fb_graph_free(graph);
    fb_graph_state_forget(&work);
    fb_namespace_free(names);
    fb_arena_free(&arena);
    return !has_failed;
}

START_TEST(test_failed_pass_leaves_the_graph) {
    const char *name;
    size_t size;
    char *text = document_at(_i, &size, &name);
    fb_graph *source = graph_of(text, size);
    fb_buffer before = {0};
    fb_document_write(source, &before);
    for (size_t i = 0; fb_pass_at(i); i++) {
        if (strstr(fb_pass_at(i)->parameters, "\"required\"")) continue; /* not without parameters */
        const char *params;
        for (size_t way = 0; (params = params_of(fb_pass_at(i), way / 4)); way++) {
            const char *chosen = way % 4 < 2 ? NULL : "{\"except\":[\"no-such-node\"]}"; /* all, by their names */
            for (long k = 0; !apply_failing(fb_pass_at(i), params, chosen, source, &before, failures[way % 2], k, name);
                 k += fault_step())
                continue;
        }
    }
    fb_buffer_free(&before);
    fb_graph_free(source);
    free(text);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("chaos of runs");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, test_whole_run, 0, DOCUMENTS + RANDOM);
    tcase_add_loop_test(tests, test_failed_pass_leaves_the_graph, 0, DOCUMENTS + RANDOM);
    return run_tests("chaos of runs", tests);
}
