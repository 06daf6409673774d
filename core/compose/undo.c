#include "core/compose/undo.h"

#include <stdlib.h>
#include <string.h>

#include "core/compose/align.h"
#include "core/graph/document.h"
#include "core/passes/lint.h"

/* A replay under way. */
typedef struct replay {
    fb_graph *graph;
    fb_namespace *names;
    fb_conflicts *conflicts;
    fb_error *error;
} replay;

static bool adopt_names(fb_namespace *names, const fb_graph *graph) {
    bool ok = true;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); ok && n.id; n = fb_node_at(graph, n)->next) {
        const char *name = fb_node_name(graph, n);
        ok = fb_namespace_is_used(names, name) || fb_namespace_adopt(names, name);
    }
    return ok;
}

static fb_status is_same_graph(const fb_graph *a, const fb_graph *b, bool *is_same, fb_error *error) {
    char of_a[FB_ID_LENGTH + 1], of_b[FB_ID_LENGTH + 1];
    if (!fb_document_id(a, of_a) || !fb_document_id(b, of_b)) return fb_fail_memory(error);
    *is_same = strcmp(of_a, of_b) == 0;
    return FB_OK;
}

static fb_status take_step(replay *r, const fb_undo_step *step) {
    fb_status status;
    if (step->call) {
        fb_pass_report report = {0};
        fb_arena arena = {0};
        status = fb_pass_call_run(step->call, r->graph, r->names, &report, &arena, r->error);
        fb_arena_free(&arena);
        return status;
    }
    bool is_same = false;
    fb_graph *next = NULL;
    status = is_same_graph(r->graph, step->before, &is_same, r->error);
    if (!status && is_same && !(next = fb_graph_copy(step->after))) status = fb_fail_memory(r->error);
    if (!status && !is_same) status = fb_merge(step->before, step->after, r->graph, &next, r->conflicts, r->error);
    if (status) return status;
    fb_graph_free(r->graph);
    r->graph = next;
    return adopt_names(r->names, next) ? FB_OK : fb_fail_memory(r->error);
}

/* ---- names that the undone steps had created ---------------------------------------------------------------------------- */

/* The names that step i created, as one run of NUL-terminated texts. */
typedef struct created_names {
    fb_buffer texts;
} created_names;

static void note_created(const fb_graph *graph, uint32_t limit_before, created_names *created) {
    for (uint32_t id = limit_before; id < fb_node_limit(graph); id++) {
        const char *name = fb_node_name(graph, (fb_node){id});
        fb_buffer_append(&created->texts, name, strlen(name) + 1);
    }
}

static void note_added(const fb_graph *before, const fb_graph *after, created_names *created) {
    for (fb_node n = fb_first_node(after, FB_MAIN_PROGRAM); n.id; n = fb_node_at(after, n)->next) {
        const char *name = fb_node_name(after, n);
        if (!fb_node_find(before, FB_MAIN_PROGRAM, name).id) fb_buffer_append(&created->texts, name, strlen(name) + 1);
    }
}

static bool reserve_names(fb_namespace *names, const created_names *created) {
    for (const char *at = created->texts.data, *end = at + created->texts.size; at && at < end; at += strlen(at) + 1) {
        if (!fb_namespace_reserve(names, at)) return false;
    }
    return true;
}

/* ---- replays ------------------------------------------------------------------------------------------------------------ */

static fb_status begin(const fb_undo_plan *plan, replay *r) {
    r->graph = fb_graph_copy(plan->source);
    r->names = fb_run_names(plan->source);
    return r->graph && r->names ? FB_OK : fb_fail_memory(r->error);
}

static void end(replay *r) {
    fb_graph_free(r->graph);
    fb_namespace_free(r->names);
}

static fb_status begin_run(replay *r) {
    fb_namespace_free(r->names);
    r->names = fb_run_names(r->graph);
    return r->names ? FB_OK : fb_fail_memory(r->error);
}

/* All steps, to learn what each created. */
static fb_status find_created(const fb_undo_plan *plan, created_names *created, fb_conflicts *conflicts, fb_error *error) {
    replay r = {.conflicts = conflicts, .error = error};
    fb_status status = begin(plan, &r);
    for (size_t i = 0; i < plan->step_count && !status; i++) {
        const fb_undo_step *step = &plan->steps[i];
        uint32_t limit = fb_node_limit(r.graph);
        if (step->begins_run) status = begin_run(&r);
        if (!status) status = take_step(&r, step);
        if (status || !step->is_undone) continue;
        if (step->call) note_created(r.graph, limit, &created[i]);
        else note_added(step->before, step->after, &created[i]);
        if (created[i].texts.failed) status = fb_fail_memory(error);
    }
    end(&r);
    return status;
}

/* The steps that are not undone. `created` may be NULL: then names are given as in a fresh run. */
static fb_status replay_rest(const fb_undo_plan *plan, const created_names *created, fb_graph **out, fb_conflicts *conflicts,
                             fb_error *error) {
    replay r = {.conflicts = conflicts, .error = error};
    fb_status status = begin(plan, &r);
    for (size_t i = 0; i < plan->step_count && !status; i++) {
        if (plan->steps[i].begins_run) status = begin_run(&r);
        for (size_t j = 0; plan->steps[i].begins_run && created && j < i && !status; j++)
            if (!reserve_names(r.names, &created[j])) status = fb_fail_memory(error);
        if (status) break;
        if (!plan->steps[i].is_undone) status = take_step(&r, &plan->steps[i]);
        else if (created && !reserve_names(r.names, &created[i])) status = fb_fail_memory(error);
    }
    if (!status) status = fb_lint_graph(r.graph, error);
    if (!status) {
        *out = r.graph;
        r.graph = NULL;
    }
    end(&r);
    return status;
}

static fb_status merge_rest(const fb_undo_plan *plan, fb_graph **out, bool *is_exact, fb_conflicts *conflicts,
                            fb_error *error) {
    created_names *created = calloc(plan->step_count + 1, sizeof *created);
    fb_graph *theirs = NULL, *plain = NULL, *merged = NULL;
    fb_status status = created ? find_created(plan, created, conflicts, error) : fb_fail_memory(error);
    if (!status) status = replay_rest(plan, created, &theirs, conflicts, error);
    if (!status) status = fb_align_names(plan, theirs, error);
    if (!status) status = fb_merge(plan->result, theirs, plan->ours, &merged, conflicts, error);
    if (!status) status = replay_rest(plan, NULL, &plain, conflicts, error);
    if (!status) status = is_same_graph(merged, plain, is_exact, error);
    if (status) fb_graph_free(merged);
    else *out = merged;
    fb_graph_free(theirs);
    fb_graph_free(plain);
    for (size_t i = 0; created && i < plan->step_count; i++) fb_buffer_free(&created[i].texts);
    free(created);
    return status;
}

fb_status fb_undo(const fb_undo_plan *plan, fb_graph **out, bool *is_exact, fb_conflicts *conflicts, fb_error *error) {
    bool is_same = plan->ours == NULL;
    fb_status status = is_same ? FB_OK : is_same_graph(plan->ours, plan->result, &is_same, error);
    if (status) return status;
    if (!is_same) return merge_rest(plan, out, is_exact, conflicts, error);
    status = replay_rest(plan, NULL, out, conflicts, error);
    if (!status) *is_exact = true;
    return status;
}
