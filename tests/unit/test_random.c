/* Random graphs and random lists of passes. How many, and how one is run alone: random_case.h.
 *
 * Structure: the document reads, is written and reads again as the same graph; every pass leaves a valid graph; the source
 * stays as it was; a run without some passes is the run of the others; marks are those that the report names. Meaning: the
 * graph computes before and after the same numbers (evaluate.h), writes into its inputs included.
 *
 * At the end every pass must have matched, and every reason for which it can refuse must have been given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/composition.h"
#include "core/compose/run.h"
#include "core/graph/code.h"
#include "core/validation/run_validation.h"
#include "tests/unit/composition_part.h"
#include "tests/unit/evaluate.h"
#include "tests/unit/random_case.h"

/* ---- what passes do and refuse ------------------------------------------------------------------------------------------- */

enum { MAX_REASONS = 20 };

static struct tally {
    const char *pass;
    const char *reasons[MAX_REASONS]; /* after a question mark: seldom found, and the golden cases have it */
    uint64_t applied, refused[MAX_REASONS];
} tallies[] = {
    {.pass = "MergeLinears",
     .reasons = {"already-transformed", "dtype", "input-mutated", "mode-switched", "?mutated", "module-read",
                 "needs-contiguous", "requires-grad", "shape-mismatch", "shared-module", "tensor-mutated", "training-mode",
                 "unsupported-type"}},
    {.pass = "FuseBiasInLinear",
     .reasons = {"already-transformed", "dtype", "module-read", "nested-call", "requires-grad", "tensor-mutated",
                 "unsupported-arguments", "unsupported-type"}},
    {.pass = "ChangeTrueDivToMulByInverse",
     .reasons = {"already-transformed", "division-by-zero", "inverse-out-of-range", "non-finite-divisor", "rounding-mode",
                 "unknown-dtype", "unsupported-arguments", "unsupported-constant", "unsupported-dtype"}},
    {.pass = "FuseBatchNorm2dInConv2d",
     .reasons = {"already-transformed", "channel-mismatch", "graph-output", "mode-switched", "?module-read",
                 "no-running-statistics", "shared-module", "shared-output", "tensor-mutated", "training-mode",
                 "unsupported-arguments", "unsupported-dtype", "?channels-moved", "?needs-contiguous", "?unsupported-form"}},
    {.pass = "FuseBatchNorm1dInLinear",
     .reasons = {"already-transformed", "channel-mismatch", "graph-output", "?input-mutated", "mode-switched", "module-read",
                 "no-running-statistics", "not-2d", "shared-module", "shared-output", "tensor-mutated", "training-mode",
                 "unknown-shape", "unsupported-arguments", "unsupported-dtype", "?channels-moved", "?needs-contiguous",
                 "?unsupported-form"}},
    {.pass = "FuseBatchNorm",
     .reasons = {"already-transformed", "channel-mismatch", "graph-output", "input-mutated", "mode-switched", "module-read",
                 "no-running-statistics", "not-2d", "padded", "shared-module", "shared-output", "tensor-mutated",
                 "training-mode", "unknown-shape", "unsupported-arguments", "unsupported-dtype", "?channels-moved",
                 "?needs-contiguous", "?unsupported-form"}},
    {.pass = "EvaluateConstants",
     .reasons = {"graph-output", "inexact", "mode-switched", "?random", "tensor-mutated", "?needs-contiguous", "?layout-read",
                 "?unknown-operator", "?recorded-otherwise", "?unsupported-operator", "?not-a-number", "?device"}},
    {.pass = "FoldConstants",
     .reasons = {"graph-output", "mode-switched", "module-called", "mutates", "needs-contiguous", "random",
                 "recorded-otherwise", "tensor-mutated", "unknown-operator", "unsupported-arguments", "unsupported-dtype",
                 "unsupported-operator"}},
    {.pass = "FoldScaleIntoLinear",
     .reasons = {"already-transformed", "constant-out-of-range", "dtype", "graph-output", "input-mutated", "mode-switched",
                 "?mutated", "module-read", "padded", "shape-mismatch", "shared-module", "shared-output", "tensor-mutated",
                 "unsupported-constant", "unsupported-dtype", "zero-factor", "?views-between"}},
    {.pass = "FoldNormIntoLinear",
     .reasons = {"already-transformed", "dtype", "graph-output", "mode-switched", "?mutated", "module-read", "other-readers",
                 "shape-mismatch", "shared-module", "tensor-mutated", "training-mode", "?views-between", "?channels-moved",
                 "?needs-contiguous"}},
    {.pass = "FoldShapes", .reasons = {"graph-output", "mutated", "?unknown-operator", "?unsupported-reader"}},
    {.pass = "MergeViews", .reasons = {"graph-output", "mutated", "?needs-contiguous", "?unknown-shape"}},
    {.pass = "RemoveNoOps",
     .reasons = {"assertion", "float-zero", "gradient", "graph-output", "mutated", "needs-contiguous", "unknown-dtype",
                 "?unknown-device", "unknown-layout", "unknown-shape", "unsupported-arguments", "?unsupported-dtype",
                 "training-mode"}},
    {.pass = "EliminateCommonSubexpressions",
     .reasons = {"effect", "graph-output", "input-mutated", "mode-switched", "mutated", "mutates", "random",
                 "unknown-operator"}},
    {.pass = "EliminateDeadCode", .reasons = {"effect", "mutates", "random", "unknown-operator"}},
};
enum { TALLIES = sizeof tallies / sizeof *tallies };

static uint64_t nodes_seen, unchanged_runs, comparisons, unusable_values, regions_seen, incomplete;

static void count_report(uint64_t seed, const fb_pass_report *report) {
    for (size_t i = 0; i < TALLIES; i++) {
        struct tally *tally = &tallies[i];
        if (strcmp(tally->pass, report->pass->name)) continue;
        tally->applied += report->applied;
        for (const fb_refusal *refusal = report->refused; refusal; refusal = refusal->next) {
            size_t at = 0;
            while (at < MAX_REASONS && tally->reasons[at] &&
                   strcmp(tally->reasons[at] + (*tally->reasons[at] == '?'), refusal->reason))
                at++;
            ck_assert_msg(at < MAX_REASONS && tally->reasons[at],
                          "seed %" PRIu64 ": %s refuses for \"%s\", which is not listed", seed, tally->pass, refusal->reason);
            tally->refused[at]++;
        }
    }
}

static void ck_tallies(uint64_t cases) {
    bool is_complete = true;
    printf("%" PRIu64 " graphs, %" PRIu64 " nodes, %" PRIu64 " runs changed nothing, %" PRIu64 " evaluated before and after, "
           "%" PRIu64 " unusable values; %" PRIu64 " regions validated, some not in %" PRIu64 " graphs\n",
           cases, nodes_seen, unchanged_runs, comparisons, unusable_values, regions_seen, incomplete);
    for (size_t i = 0; i < TALLIES; i++) {
        printf("%-32s %-24s %10" PRIu64 "\n", tallies[i].pass, "applied", tallies[i].applied);
        is_complete &= tallies[i].applied > 0;
        for (size_t k = 0; tallies[i].reasons[k]; k++) {
            printf("%-32s %-24s %10" PRIu64 "\n", "", tallies[i].reasons[k], tallies[i].refused[k]);
            is_complete &= tallies[i].refused[k] > 0 || *tallies[i].reasons[k] == '?';
        }
    }
    fflush(stdout);
    ck_assert_msg(is_complete || cases < 10000, "a pass never matched, or a reason was never given");
}

/* ---- one case ------------------------------------------------------------------------------------------------------------ */

/* The same passes again, and a random part of them against a run that never had the others. */
static void check_replay(random_case *c, const char *result_id) {
    char id[FB_ID_LENGTH + 1], fresh_id[FB_ID_LENGTH + 1];
    fb_run again = run_passes(c, &c->composition, c->source);
    id_of(c, again.result, id);
    CK(c, strcmp(id, result_id) == 0, "a second run gives another graph");
    fb_run_free(&again);

    bool *selected = calloc(c->composition.count, sizeof *selected);
    random_source random = {c->seed ^ 0x1234567u};
    for (size_t i = 0; i < c->composition.count; i++) selected[i] = random_once_in(&random, 2);
    fb_composition rest = composition_without(&c->composition, selected);
    if (rest.count) {
        fb_buffer list = {0};
        fb_composition_write(&rest, &list);
        fb_composition fresh = read_passes(c, &list);
        fb_run part = run_passes(c, &rest, c->source), alone = run_passes(c, &fresh, c->source);
        id_of(c, part.result, id);
        id_of(c, alone.result, fresh_id);
        CK(c, strcmp(id, fresh_id) == 0, "without some passes it is not the run of the others");
        fb_run_free(&part);
        fb_run_free(&alone);
        fb_composition_free(&fresh);
        fb_buffer_free(&list);
    }
    composition_part_free(&rest);
    free(selected);
}

static bool is_named(const fb_run *run, const char *node, const char *signature) {
    for (size_t i = 0; i < run->count; i++) {
        const fb_pass_report *report = &run->passes[i];
        if (strcmp(report->signature, signature)) continue;
        for (size_t k = 0; k < report->node_count; k++) {
            if (strcmp(report->nodes[k], node) == 0) return true;
        }
    }
    return false;
}

/* Every mark was there before or is in the report, and every node in the report that is still there is marked. */
static void check_marks(random_case *c, const fb_run *run) {
    const fb_graph *g = run->result;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_node_at(g, n)->next) {
        const char *name = fb_node_name(g, n);
        fb_value marks = fb_node_at(g, n)->transformations;
        fb_node old = fb_node_find(c->source, FB_MAIN_PROGRAM, name);
        for (size_t i = 0; fb_value_item(g, marks, i).id; i++) {
            const char *signature = fb_value_text(g, fb_value_item(g, marks, i));
            CK(c, (old.id && fb_node_is_marked(c->source, old, signature)) || is_named(run, name, signature),
               "%s carries %s, and no report says so", name, signature);
        }
    }
    for (size_t i = 0; i < run->count; i++) {
        const fb_pass_report *report = &run->passes[i];
        for (size_t k = 0; k < report->node_count; k++) {
            fb_node n = fb_node_find(g, FB_MAIN_PROGRAM, report->nodes[k]);
            bool is_module = n.id && fb_node_at(g, n)->opcode == FB_CALL_MODULE;
            CK(c, !n.id || !is_module || fb_node_is_marked(g, n, report->signature),
               "%s is in the report of %s, but not marked", report->nodes[k], report->pass->name);
        }
    }
}

static void check_meaning(random_case *c, const fb_run *run) {
    evaluation before, after;
    fb_buffer why = {0};
    bool only_moves = true;
    for (size_t i = 0; i < run->count; i++)
        only_moves &= !run->passes[i].applied || fb_report_exactness(&run->passes[i]) == FB_MOVES;
    evaluate(c->source, c->seed, &before);
    evaluate(run->result, c->seed, &after);
    CK(c, evaluations_agree(&before, &after, only_moves ? 1e-11 : 1e-8, &why), "it computes something else: %s",
       fb_buffer_text(&why));
    comparisons++;
    unusable_values += before.unusable;
    evaluation_free(&before);
    evaluation_free(&after);
    fb_buffer_free(&why);
}

/* What evaluates regions on random values, after each pass, must agree: with what passes do right it finds no fault. */
static void check_validation(random_case *c) {
    fb_eval_options options = {.seed = c->seed};
    fb_run_validation validation = {.mode = FB_VALIDATE_REWRITES, .options = &options};
    fb_run_watcher watcher = fb_validation_watcher(&validation);
    fb_run run;
    fb_error error = {0};
    fb_status status = fb_composition_run(&c->composition, c->source, FB_LINT_NONE, &watcher, &run, &error);
    CK(c, status == FB_OK, "validation: %s: %s: %s", error.code, error.message, fb_buffer_text(&validation.failed_numbers));
    regions_seen += validation.compared;
    incomplete += validation.is_incomplete;
    fb_run_free(&run);
    fb_run_validation_free(&validation);
}

/* Passes that look at every node find what they find where begins_at leaves out most of them. */
static void check_begins(random_case *c, const fb_run *run, const char *result_id) {
    fb_composition all = {.calls = calloc(c->composition.count + 1, sizeof *all.calls), .count = c->composition.count};
    fb_pass *passes = calloc(all.count + 1, sizeof *passes);
    for (size_t i = 0; i < all.count; i++) {
        passes[i] = *c->composition.calls[i].pass;
        passes[i].begins_at = NULL;
        all.calls[i] = c->composition.calls[i];
        all.calls[i].pass = &passes[i];
    }
    fb_run other = run_passes(c, &all, c->source);
    fb_buffer report = {0}, other_report = {0};
    char id[FB_ID_LENGTH + 1];
    id_of(c, other.result, id);
    CK(c, strcmp(id, result_id) == 0, "begins_at leaves out what a pass would change");
    fb_run_report(run, &(fb_work){0}, &report);
    fb_run_report(&other, &(fb_work){0}, &other_report);
    CK(c, report.size == other_report.size && memcmp(report.data, other_report.data, report.size) == 0,
       "begins_at leaves out what a pass would report");
    fb_buffer_free(&report);
    fb_buffer_free(&other_report);
    fb_run_free(&other);
    free(passes);
    free(all.calls);
}

/* A random list, now and then behind a preset. */
static void choose_passes(random_case *c) {
    const fb_preset *preset = fb_preset_at(c->seed % 8); /* there are fewer */
    if (preset) fb_buffer_printf(&c->passes, "[\"%s\",", preset->name);
    generate_passes(c->seed, &c->passes);
    if (preset) fb_buffer_char(&c->passes, ']');
}

/* The calls that were run are the composition from now on: of a preset those of the rounds that it took. */
static fb_run run_settled(random_case *c) {
    fb_run run = run_passes(c, &c->composition, c->source);
    fb_error error = {0};
    CK(c, fb_composition_settle(&c->composition, &run, &error) == FB_OK, "%s", error.message);
    return run;
}

static void run_case(uint64_t seed) {
    random_case c = {.seed = seed};
    char id[FB_ID_LENGTH + 1], result_id[FB_ID_LENGTH + 1];
    generate_document(seed, &c.document);
    choose_passes(&c);
    read_case(&c);
    check_round_trip(&c, c.source, "the source");

    fb_run run = run_settled(&c);
    id_of(&c, c.source, id);
    CK(&c, strcmp(id, c.source_id) == 0, "the source changed");
    id_of(&c, run.result, result_id);
    size_t applied = 0;
    for (size_t i = 0; i < run.count; i++) {
        applied += run.passes[i].applied;
        count_report(seed, &run.passes[i]);
    }
    CK(&c, (applied == 0) == (strcmp(result_id, c.source_id) == 0), "%zu applied, and the graph is %s", applied,
       applied ? "the same" : "another");
    check_round_trip(&c, run.result, "the result");
    check_replay(&c, result_id);
    if (seed % 5 == 0) check_begins(&c, &run, result_id);
    check_marks(&c, &run);
    check_meaning(&c, &run);
    if (applied) check_validation(&c);
    fb_buffer code = {0};
    CK(&c, fb_code_write(run.result, FB_MAIN_PROGRAM, &(fb_work){0}, &code), "no code");
    nodes_seen += fb_node_count(c.source);
    unchanged_runs += applied == 0;

    fb_buffer_free(&code);
    fb_run_free(&run);
    free_case(&c);
}

START_TEST(test_random) {
    ck_tallies(run_random_cases(run_case));
}
END_TEST

int main(void) {
    return random_main("random", test_random);
}
