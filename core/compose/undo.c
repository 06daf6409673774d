#include "core/compose/undo.h"

#include <stdlib.h>
#include <string.h>

#include "core/compose/align.h"
#include "core/compose/meaning.h"
#include "core/document/document.h"
#include "core/passes/lint.h"

/* A replay under way. */
typedef struct replay {
    fb_graph *graph;
    fb_namespace *names;
    fb_meanings meanings;
    const fb_blobs *blobs;
    const fb_watch *watch;
    fb_work work; /* on the same watch */
    fb_conflicts *conflicts;
    fb_error *error;
} replay;

static bool adopt_names(fb_namespace *names, const fb_graph *graph, fb_work *work) {
    bool ok = true;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); ok && n.id; n = fb_next_node(graph, n)) {
        const char *name = fb_node_name(graph, n);
        ok = fb_work_goes_on(work, 8) && (fb_namespace_is_used(names, name) || fb_namespace_adopt(names, name));
    }
    return ok;
}

static fb_status is_same_graph(const fb_graph *a, const fb_graph *b, fb_work *work, bool *is_same, fb_error *error) {
    char of_a[FB_ID_LENGTH + 1], of_b[FB_ID_LENGTH + 1];
    if (!fb_document_id_metered(a, work, of_a) || !fb_document_id_metered(b, work, of_b)) return fb_work_failed(work, error);
    *is_same = strcmp(of_a, of_b) == 0;
    return FB_OK;
}

static fb_status take_step(replay *r, const fb_undo_step *step) {
    fb_status status;
    if (step->call) {
        fb_pass_report report = {0};
        fb_arena arena = {0};
        fb_workpiece work = {.graph = r->graph, .names = r->names};
        status = fb_pass_call_run(step->call, &work, r->watch, &report, &arena, r->error);
        fb_workpiece_forget(&work);
        if (!status && !fb_meanings_note(&r->meanings, &report)) status = fb_fail_memory(r->error);
        fb_arena_free(&arena);
        return status;
    }
    bool is_same = false;
    fb_graph *next = NULL;
    status = is_same_graph(r->graph, step->before, &r->work, &is_same, r->error);
    if (!status && is_same && !(next = fb_graph_copy_metered(step->after, &r->work)))
        status = fb_work_failed(&r->work, r->error);
    const fb_merge_facts facts = {.blobs = r->blobs, .watch = r->watch};
    if (!status && !is_same) status = fb_merge(step->before, step->after, r->graph, &facts, &next, r->conflicts, r->error);
    if (status) return status;
    fb_graph_free(r->graph);
    r->graph = next;
    return adopt_names(r->names, next, &r->work) ? FB_OK : fb_work_failed(&r->work, r->error);
}

/* ---- replays ------------------------------------------------------------------------------------------------------------ */

static fb_status begin(const fb_undo_plan *plan, replay *r) {
    r->work = (fb_work){.watch = r->watch};
    r->graph = fb_graph_copy_metered(plan->source, &r->work);
    r->names = fb_run_names(plan->source, &r->work);
    return r->graph && r->names ? FB_OK : fb_work_failed(&r->work, r->error);
}

static void end(replay *r) {
    fb_graph_free(r->graph);
    fb_namespace_free(r->names);
    fb_meanings_free(&r->meanings);
}

static fb_status begin_run(replay *r) {
    fb_namespace_free(r->names);
    r->names = fb_run_names(r->graph, &r->work);
    return r->names ? FB_OK : fb_work_failed(&r->work, r->error);
}

/* The steps that are not undone, or (`is_whole`) all of them. */
static fb_status run_steps(const fb_undo_plan *plan, bool is_whole, replay *r) {
    fb_status status = begin(plan, r);
    for (size_t i = 0; i < plan->step_count && !status; i++) {
        const fb_undo_step *step = &plan->steps[i];
        fb_watch_begins(plan->watch, step->call ? step->call->pass->name : "external", i, plan->step_count);
        status = fb_watch_check(plan->watch, r->error);
        if (!status && step->begins_run) status = begin_run(r);
        if (!status && (is_whole || !step->is_undone)) status = take_step(r, step);
    }
    return status;
}

static fb_status replay_rest(const fb_undo_plan *plan, replay *r, fb_graph **out) {
    fb_status status = run_steps(plan, false, r);
    if (!status) status = fb_lint_graph(r->graph, &r->work, r->error);
    if (!status) {
        *out = r->graph;
        r->graph = NULL;
    }
    return status;
}

/* What is known of the two replays; nothing when an external pass is among the steps. */
static fb_status merge_replay(const fb_undo_plan *plan, const replay *whole, const replay *rest, const fb_graph *theirs,
                              fb_graph **out, fb_conflicts *conflicts, fb_error *error) {
    fb_buffer parted = {0};
    fb_meanings_compare(&whole->meanings, &rest->meanings, &parted);
    bool is_known = true;
    for (size_t i = 0; i < plan->step_count; i++) is_known &= plan->steps[i].call != NULL;
    fb_merge_facts facts = {.source = is_known ? plan->source : NULL,
                            .blobs = plan->blobs,
                            .watch = plan->watch,
                            .parted = (const char *const *)(const void *)parted.data,
                            .parted_count = parted.size / sizeof(const char *)};
    fb_status status = parted.failed ? fb_fail_memory(error) : FB_OK;
    if (!status) status = fb_merge(plan->result, theirs, plan->ours, &facts, out, conflicts, error);
    fb_buffer_free(&parted);
    return status;
}

static fb_status merge_rest(const fb_undo_plan *plan, fb_graph **out, bool *is_exact, fb_conflicts *conflicts,
                            fb_error *error) {
    replay whole = {.blobs = plan->blobs, .watch = plan->watch, .conflicts = conflicts, .error = error}, rest = whole;
    fb_work work = {.watch = plan->watch};
    fb_graph *plain = NULL, *theirs = NULL, *merged = NULL;
    fb_status status = run_steps(plan, true, &whole);
    if (!status) status = replay_rest(plan, &rest, &plain);
    if (!status && !(theirs = fb_graph_copy_metered(plain, &work))) status = fb_work_failed(&work, error);
    if (!status) status = fb_watch_check(plan->watch, error);
    if (!status) status = fb_align_names(plan, theirs, error);
    if (!status) status = fb_watch_check(plan->watch, error);
    if (!status) status = merge_replay(plan, &whole, &rest, theirs, &merged, conflicts, error);
    if (!status) status = is_same_graph(merged, plain, &work, is_exact, error);
    if (status) fb_graph_free(merged);
    else *out = merged;
    fb_graph_free(theirs);
    fb_graph_free(plain);
    end(&whole);
    end(&rest);
    return status;
}

fb_status fb_undo(const fb_undo_plan *plan, fb_graph **out, bool *is_exact, fb_conflicts *conflicts, fb_error *error) {
    bool is_same = plan->ours == NULL;
    fb_work work = {.watch = plan->watch};
    fb_status status = is_same ? FB_OK : is_same_graph(plan->ours, plan->result, &work, &is_same, error);
    if (status) return status;
    if (!is_same) return merge_rest(plan, out, is_exact, conflicts, error);
    replay rest = {.blobs = plan->blobs, .watch = plan->watch, .conflicts = conflicts, .error = error};
    status = replay_rest(plan, &rest, out);
    end(&rest);
    if (!status) *is_exact = true;
    return status;
}
