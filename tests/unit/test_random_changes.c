/* Passes that change what is computed, on random graphs: the result is valid and the same again, can be computed where the
 * source can, has results of the same dtypes, and undoing gives the source back. */
#include "tests/unit/checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/infer.h"
#include "core/compose/undo.h"
#include "core/validation/validation.h"
#include "tests/unit/random_case.h"

static uint64_t applied, compared, converted;

static void write_change(random_source *random, fb_buffer *out) {
    static const char *const activations[] = {"relu", "gelu", "tanh", "sigmoid", "silu", "leaky_relu", "hardswish"};
    static const char *const kept[] = {"", "\"softmax\",\"linear\"", "\"*1\"", "\"relu\",\"batch_norm2d\",\"add\"",
                                       "\"getitem\""};
    enum { ACTIVATIONS = sizeof activations / sizeof *activations, KEPT = sizeof kept / sizeof *kept };
    if (random_once_in(random, 3)) {
        fb_buffer_printf(out, "{\"name\":\"ReplaceActivation\",\"params\":{\"from\":\"%s\",\"to\":\"%s\"}}",
                         activations[random_below(random, 4)], activations[random_below(random, ACTIVATIONS)]);
        return;
    }
    if (random_once_in(random, 3)) {
        fb_buffer_printf(out, "{\"name\":\"QuantizeWeights\",\"params\":{%s\"keep\":[%s]}}",
                         random_once_in(random, 3) ? "\"bits\":4,\"group_size\":32," : "", kept[random_below(random, KEPT)]);
        return;
    }
    fb_buffer_printf(out, "{\"name\":\"ConvertPrecision\",\"params\":{\"to\":\"%sfloat16\",\"keep\":[%s]}}",
                     random_once_in(random, 2) ? "b" : "", kept[random_below(random, KEPT)]);
}

static fb_status compare(const fb_graph *a, const fb_graph *b, fb_comparison *found, fb_error *error) {
    fb_eval_options options = {.seed = 3, .random_weights = true, .memory_limit = (size_t)64 << 20};
    fb_tolerance any = {.absolute = INFINITY};
    fb_comparison_inputs drawn = {0};
    *error = (fb_error){0};
    return fb_compare_graphs(a, b, &drawn, &options, &any, found, error);
}

/* Then less can be inferred, and lies of the generator are not noticed. */
static bool has_symbols(const fb_graph *graph, fb_node node) {
    fb_shape_result type;
    bool found = false;
    if (!fb_recorded_shape(graph, node, &type)) return false;
    for (int i = 0; i < type.rank; i++) found |= type.sizes[i].symbol.id != 0;
    return found;
}

/* Are the recorded dtypes those that come out? The generator lies now and then, as documents may. */
static bool is_recorded_truly(const fb_graph *graph) {
    fb_shape_result found;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(graph, n)->next) {
        fb_dtype dtype = (fb_dtype)fb_node_at(graph, n)->dtype;
        if (fb_node_at(graph, n)->opcode == FB_PLACEHOLDER && has_symbols(graph, n)) return false;
        if (dtype && fb_infer(graph, n, &found) && found.dtype && found.dtype != dtype) return false;
    }
    return true;
}

static void check_computes(const random_case *c, const fb_graph *result) {
    fb_comparison found;
    fb_error error, of_source;
    if (!is_recorded_truly(c->source)) return;
    if (compare(c->source, c->source, &found, &of_source)) return; /* the interpreter does not know it */
    fb_comparison_free(&found);
    fb_status status = compare(c->source, result, &found, &error);
    CK(c, !status, "%s: %s: %s", error.node, error.code, error.message);
    for (size_t i = 0; i < found.count; i++) {
        CK(c, found.outputs[i].passes, "%s is of another dtype", found.outputs[i].name);
        converted += found.outputs[i].between.absolute > 0;
    }
    fb_comparison_free(&found);
    compared++;
}

static void check_undone(const random_case *c, const fb_run *run) {
    char id[FB_ID_LENGTH + 1];
    fb_undo_step step = {.call = &c->composition.calls[0], .is_undone = true};
    fb_undo_plan plan = {.source = c->source, .steps = &step, .step_count = 1, .result = run->result, .ours = run->result};
    fb_graph *undone;
    bool is_exact;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    CK(c, !fb_undo(&plan, &undone, &is_exact, &conflicts, &error), "%s: %s", error.code, error.message);
    id_of(c, undone, id);
    CK(c, is_exact && strcmp(id, c->source_id) == 0, "undone, it is another graph");
    fb_graph_free(undone);
}

static void run_case(uint64_t seed) {
    random_case c = {.seed = seed};
    random_source random = {seed ^ 0x2545f4914f6cdd1du};
    char first[FB_ID_LENGTH + 1], second[FB_ID_LENGTH + 1];
    generate_document(seed, &c.document);
    fb_buffer_char(&c.passes, '[');
    write_change(&random, &c.passes);
    fb_buffer_char(&c.passes, ']');
    read_case(&c);
    fb_run run = run_passes(&c, &c.composition, c.source), again = run_passes(&c, &c.composition, c.source);
    id_of(&c, run.result, first);
    id_of(&c, again.result, second);
    CK(&c, strcmp(first, second) == 0, "a second run gives another graph");
    CK(&c, (strcmp(first, c.source_id) != 0) == (run.passes[0].applied > 0), "a change is not counted");
    check_round_trip(&c, run.result, "the result");
    if (run.passes[0].applied) {
        applied++;
        check_computes(&c, run.result);
        check_undone(&c, &run);
    }
    fb_run_free(&run);
    fb_run_free(&again);
    free_case(&c);
}

START_TEST(test_changes) {
    uint64_t cases = run_random_cases(run_case);
    printf("%" PRIu64 " graphs, %" PRIu64 " changed, %" PRIu64 " computed before and after, %" PRIu64 " other results\n", cases,
           applied, compared, converted);
    fflush(stdout);
    ck_assert(cases < 1000 || (applied > cases / 4 && compared > applied / 8 && converted > compared / 4));
}
END_TEST

int main(void) {
    return random_main("random changes", test_changes);
}
