#include "tests/unit/golden.h"

#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/compose/undo.h"
#include "core/graph/build.h"
#include "core/validation/validation.h"
#include "core/weights/evaluate.h"
#include "tests/unit/composition_part.h"
#include "tests/unit/documents.h"
#include "tests/unit/evaluated.h"

enum { TRAPS = 40 };

char *golden_path(const golden *g, const char *file) {
    fb_buffer path = {0};
    fb_buffer_printf(&path, "%s/%s/%s", GOLDEN_FOLDER, g->name, file);
    return fb_buffer_take(&path, NULL);
}

char *golden_file(const golden *g, const char *file, size_t *size) {
    char *path = golden_path(g, file), *text = NULL;
    *size = 0;
    if (access(path, R_OK) == 0) text = read_file(path, size);
    free(path);
    return text;
}

void ck_id(const golden *g, const fb_graph *graph, const char *expected, const char *what) {
    char id[FB_ID_LENGTH + 1];
    ck_assert(fb_document_id(graph, id));
    ck_assert_msg(strcmp(id, expected) == 0, "%s: %s", g->name, what);
}

/* ---- undoing ------------------------------------------------------------------------------------------------------------- */

static fb_graph *undone(const golden *g, const fb_run *run, const bool *is_undone, const fb_graph *ours, bool *is_exact) {
    fb_undo_step *steps = calloc(g->passes.count + 1, sizeof *steps);
    for (size_t i = 0; i < g->passes.count; i++) {
        steps[i] = (fb_undo_step){.call = &g->passes.calls[i], .is_undone = is_undone[i]};
    }
    const fb_undo_plan plan = {
        .source = g->before, .steps = steps, .step_count = g->passes.count, .result = run->result, .ours = ours};
    fb_graph *out = NULL;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    fb_status status = fb_undo(&plan, &out, is_exact, &conflicts, &error);
    const char *conflict = conflicts.count ? conflicts.items[0].code : "";
    ck_assert_msg(status == FB_OK, "%s: undoing: %s %s %s", g->name, error.code, error.message, conflict);
    fb_conflicts_free(&conflicts);
    free(steps);
    return out;
}

/* On the result as it is. */
static void ck_without(const golden *g, const fb_run *run, const bool *is_undone) {
    fb_composition part = composition_without(&g->passes, is_undone);
    fb_run without;
    fb_error error = {0};
    char id[FB_ID_LENGTH + 1];
    bool is_exact;
    ck_assert_int_eq(fb_composition_run(&part, g->before, FB_LINT_END, NULL, &without, &error), FB_OK);
    fb_graph *got = undone(g, run, is_undone, run->result, &is_exact);
    ck_assert(fb_document_id(without.result, id));
    ck_assert_msg(is_exact, "%s: undone on what nobody changed, it is not exact", g->name);
    ck_id(g, got, id, "undone, it is not what a run without the pass gives");
    fb_graph_free(got);
    fb_run_free(&without);
    composition_part_free(&part);
}

/* On the result under another name, which cannot be thrown away. */
static void ck_reversed(const golden *g, const fb_run *run, const bool *is_undone) {
    fb_graph *ours = fb_graph_copy(run->result, &(fb_work){0});
    bool is_exact;
    fb_graph_set_name(ours, fb_intern(ours, "changed since"));
    fb_graph *got = undone(g, run, is_undone, ours, &is_exact);
    ck_assert_str_eq(fb_graph_name(got), "changed since");
    fb_graph_set_name(got, fb_intern(got, fb_graph_name(g->before)));
    ck_id(g, got, g->before_id, "reversed on a graph that was changed, it is not the source");
    fb_graph_free(got);
    fb_graph_free(ours);
}

void ck_golden_undone(golden *g, const fb_run *run) {
    char result[FB_ID_LENGTH + 1];
    fb_error error = {0};
    ck_assert(fb_document_id(run->result, result));
    ck_assert_int_eq(fb_composition_settle(&g->passes, run, &error), FB_OK);
    bool *is_undone = calloc(g->passes.count + 1, sizeof *is_undone), reversible = true;
    for (size_t i = 0; i < g->passes.count; i++) {
        reversible &= run->passes[i].pass->reversible;
        is_undone[i] = true;
        ck_without(g, run, is_undone);
        is_undone[i] = false;
    }
    for (size_t i = 0; i < g->passes.count; i++) is_undone[i] = true;
    ck_without(g, run, is_undone);
    if (reversible) ck_reversed(g, run, is_undone);
    ck_id(g, g->before, g->before_id, "undoing changed the source");
    ck_id(g, run->result, result, "undoing changed the result");
    free(is_undone);
}

/* ---- some matches -------------------------------------------------------------------------------------------------------- */

/* By name: the others keep their names, and what is left computes the same. */

enum { MOST_NAMES = 4 }; /* of a pass that are tried one by one */

static bool is_listed(const fb_pass_report *report, const char *name) {
    for (size_t i = 0; i < report->match_count; i++)
        if (!strcmp(report->matches[i], name)) return true;
    return false;
}

/* The settled passes up to that one, which has all matches but one, or that one alone. */
static fb_status run_part(const golden *g, size_t position, const char *member, const char *name, fb_run *out) {
    fb_error error = {0};
    fb_buffer text = {0};
    fb_composition part = {.calls = calloc(position + 1, sizeof *part.calls), .count = position + 1};
    const fb_run_watcher watcher = {.names_matches = true};
    memcpy(part.calls, g->passes.calls, part.count * sizeof *part.calls);
    fb_buffer_printf(&text, "{\"%s\":[", member);
    fb_buffer_json_string(&text, name, strlen(name));
    fb_buffer_string(&text, "]}");
    part.calls[position].chosen = fb_buffer_take(&text, NULL);
    fb_status status = fb_composition_run(&part, g->before, FB_LINT_EACH, &watcher, out, &error);
    ck_assert_msg(!status || !strcmp(error.code, "matches-depend"), "%s: %s %s of %s: %s: %s", g->name, member, name,
                  part.calls[position].pass->name, error.code, error.message);
    free(part.calls[position].chosen);
    free(part.calls);
    return status;
}

static void ck_same(const golden *g, const fb_graph *after, const char *pass, const char *member, const char *name) {
    fb_eval_options options = {.seed = 7, .random_weights = true};
    fb_comparison_inputs inputs = {0};
    fb_comparison found;
    fb_error error = {0};
    if (fb_compare_graphs(g->before, after, &inputs, &options, NULL, &found, &error)) return; /* it cannot be evaluated */
    ck_assert_msg(found.passes, "%s: %s %s of %s: computes something else", g->name, member, name, pass);
    fb_comparison_free(&found);
}

static void ck_part(const golden *g, const fb_pass_report *all, size_t position, const char *name, bool is_only,
                    bool preserves) {
    const char *member = is_only ? "only" : "except", *pass = all->pass->name;
    fb_run run;
    if (run_part(g, position, member, name, &run)) return;
    const fb_pass_report *report = &run.passes[position];
    for (size_t i = 0; i < report->match_count; i++)
        ck_assert_msg(is_listed(all, report->matches[i]) && is_only == !strcmp(report->matches[i], name),
                      "%s: %s %s of %s: the match %s", g->name, member, name, pass, report->matches[i]);
    ck_assert_msg(report->match_count == report->applied && (!is_only || report->applied), "%s: %s %s of %s", g->name, member,
                  name, pass);
    if (preserves) ck_same(g, run.result, pass, member, name);
    fb_run_free(&run);
}

void ck_golden_matches(const golden *g, bool preserves) {
    const fb_run_watcher watcher = {.names_matches = true};
    fb_error error = {0};
    fb_run run;
    ck_assert_int_eq(fb_composition_run(&g->passes, g->before, FB_LINT_NONE, &watcher, &run, &error), FB_OK);
    for (size_t i = 0; i < run.count; i++) {
        const fb_pass_report *report = &run.passes[i];
        ck_assert_msg(report->match_count == report->applied || report->pass->inspect, "%s: names of %s", g->name,
                      report->pass->name);
        for (size_t k = 0; k < report->match_count && k < MOST_NAMES; k++) {
            if (!*report->matches[k]) continue; /* it drops weights that no node reads */
            ck_part(g, report, i, report->matches[k], true, preserves);
            ck_part(g, report, i, report->matches[k], false, preserves);
        }
    }
    fb_run_free(&run);
}

/* ---- signatures ---------------------------------------------------------------------------------------------------------- */

static json_t *object_in(const golden *g, const char *file) {
    size_t size;
    char *text = golden_file(g, file, &size);
    json_t *object = text ? json_loadb(text, size, 0, NULL) : NULL;
    ck_assert_msg(!text || json_is_object(object), "%s: %s is no JSON object", g->name, file);
    free(text);
    return object;
}

void ck_golden_signatures(const golden *g, const fb_run *run) {
    for (size_t i = 0; i < run->count; i++) {
        for (size_t k = 0; k < i; k++) {
            const fb_pass_call *one = &g->passes.calls[i], *other = &g->passes.calls[k];
            bool is_same = strcmp(one->pass->name, other->pass->name) == 0 && strcmp(one->params, other->params) == 0;
            ck_assert_msg(is_same == (strcmp(one->signature, other->signature) == 0), "%s: signatures of %s and %s", g->name,
                          one->params, other->params);
        }
    }
    json_t *expected = object_in(g, "signatures.json"), *of_passes = json_object_get(expected, "passes");
    for (size_t i = 0; i < json_array_size(of_passes); i++) {
        ck_assert_str_eq(run->passes[i].signature, json_string_value(json_array_get(of_passes, i)));
    }
    ck_assert_msg(!expected || json_array_size(of_passes) == run->count, "%s: other passes were run", g->name);
    if (expected) ck_assert_str_eq(g->passes.signature, json_string_value(json_object_get(expected, "composition")));
    json_decref(expected);
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static fb_tensor tensor_called(const fb_graph *graph, const char *name) {
    const char *dot = strrchr(name, '.');
    char *path = strndup(name, (size_t)(dot - name));
    fb_module module = fb_module_find(graph, path);
    free(path);
    return module.id ? fb_module_tensor(graph, module, dot + 1) : (fb_tensor){0};
}

void ck_golden_numbers(const golden *g, const fb_graph *result) {
    json_t *expected = object_in(g, "numbers.json"), *text;
    const char *name;
    json_object_foreach(expected, name, text) {
        fb_tensor tensor = tensor_called(result, name);
        ck_assert_msg(tensor.id != 0, "%s: the result has no %s", g->name, name);
        fb_evaluation *evaluation;
        fb_error error = {0};
        fb_buffer found = {0};
        unsigned char *bytes = NULL;
        size_t size = 0;
        fb_status status = fb_evaluation_new(result, tensor, NULL, &evaluation, &error);
        if (!status) status = evaluated_bytes(evaluation, &bytes, &size, &error);
        ck_assert_msg(status == FB_OK, "%s: %s: %s", g->name, name, error.message);
        for (size_t i = 0; i < size; i++) fb_buffer_printf(&found, "%02x", bytes[i]);
        ck_assert_msg(strcmp(fb_buffer_text(&found), json_string_value(text)) == 0, "%s: the numbers of %s are %s", g->name,
                      name, fb_buffer_text(&found));
        fb_evaluation_free(evaluation);
        fb_buffer_free(&found);
        free(bytes);
    }
    json_decref(expected);
}

/* ---- traps --------------------------------------------------------------------------------------------------------------- */

void ck_every_trap(const golden *cases, size_t count) {
    for (int trap = 1; trap <= TRAPS; trap++) {
        char part[24];
        snprintf(part, sizeof part, "/trap-%02d-", trap);
        bool found = false;
        for (size_t i = 0; i < count && !found; i++) found = strstr(cases[i].name, part) != NULL;
        ck_assert_msg(found, "trap %d has no golden case: none is called trap-%02d-…", trap, trap);
    }
}
