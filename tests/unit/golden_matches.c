/* Some matches of a pass, by name: the others keep their names, and what is left computes the same. */
#include "tests/unit/golden.h"

#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>

#include "core/validation/validation.h"

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
