/* Which runs led to a graph: by the ids that the store has, and, of a graph that was changed since, by marks and nodes. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/diff/diff.h"
#include "core/json/json.h"
#include "core/rewrite/rewrite.h"
#include "server/graphs/graphs.h"
#include "server/history/history.h"
#include "server/history/same_run.h"

#define RUNS_MAX 1000       /* looked at on the way back */
#define DEPTH_MAX 100       /* runs that build on each other */
#define NEAREST_MAX 32      /* graphs compared with the one at hand */
#define MARKED_MAX 100      /* runs with a signature of the graph, the newest; of these the marks are compared */
#define SIGNATURES_MAX 1000 /* what one list of runs takes */

fb_status fb_each_run(const fb_app *app, const fb_store_run_filter *filter,
                      fb_status (*take)(void *, const fb_store_run *, bool *), void *context, fb_error *error) {
    char token[FB_PAGE_TOKEN_LENGTH + 1] = "";
    bool goes_on = true;
    fb_status status = FB_OK;
    do {
        fb_store_runs runs;
        fb_store_page page = {.limit = FB_PAGE_MAX, .token = *token ? token : NULL};
        status = fb_store_list_runs(app->store, filter, &page, false, &runs, error);
        if (status) return status;
        for (size_t i = 0; i < runs.count && goes_on && !status; i++) status = take(context, &runs.items[i], &goes_on);
        fb_copy_text(token, sizeof token, runs.next_token);
        FB_STORE_FREE(&runs);
    } while (*token && goes_on && !status);
    return status;
}

/* ---- the way back ------------------------------------------------------------------------------------------------------- */

/* A graph on the way back, and the run that leads from it to the one before. */
typedef struct place {
    char graph[FB_ID_LENGTH + 1];
    char run[FB_RUN_ID_LENGTH + 1]; /* "" for the graph where the way begins */
    size_t next, depth;
} place;

typedef struct way {
    place places[RUNS_MAX];
    size_t count;
    size_t seen; /* runs */
} way;

static bool is_on_way(const way *back, const char *graph) {
    for (size_t i = 0; i < back->count; i++) {
        if (!strcmp(back->places[i].graph, graph)) return true;
    }
    return false;
}

static void go_back(way *back, const char *origin, const char *run_id, size_t from) {
    place *added = &back->places[back->count++];
    memcpy(added->graph, origin, sizeof added->graph);
    memcpy(added->run, run_id, sizeof added->run);
    added->next = from;
    added->depth = back->places[from].depth + 1;
}

/* Looks for the run among those that made the graph of one place. */
typedef struct search {
    way *back;
    size_t from;
    const fb_store_run *run;
    bool is_found; /* a run that made it has steps of the one that is looked for: its place is the last one */
} search;

/* True if the run's steps are or contain steps of that run. */
static bool run_has_steps_of(const fb_store_run *run, const json_t *request, const char *run_id) {
    if (!strcmp(run->id, run_id)) return true;
    size_t i;
    json_t *step;
    json_array_foreach(json_object_get(request, "steps"), i, step) {
        const char *of = json_string_value(json_object_get(step, "run"));
        if (of && !strcmp(of, run_id)) return true;
    }
    return false;
}

static fb_status look_back(void *context, const fb_store_run *maker, bool *goes_on) {
    search *s = context;
    json_t *request = NULL;
    const char *origin = fb_run_origin(maker, &request);
    s->back->seen += origin != NULL;
    s->is_found = origin && run_has_steps_of(maker, request, s->run->id);
    if (s->is_found || (origin && !is_on_way(s->back, origin))) go_back(s->back, origin, maker->id, s->from);
    json_decref(request);
    *goes_on = !s->is_found && s->back->count < RUNS_MAX && s->back->seen < RUNS_MAX;
    return FB_OK;
}

static fb_status walk_back(const fb_app *app, const fb_store_run *run, way *back, bool *is_found, fb_error *error) {
    for (size_t i = 0; i < back->count && back->count < RUNS_MAX && back->seen < RUNS_MAX; i++) {
        if (back->places[i].depth == DEPTH_MAX) continue;
        if (!strcmp(back->places[i].graph, run->result)) { /* the run itself, however many repeat it */
            go_back(back, run->source, run->id, i);
            *is_found = true;
            return FB_OK;
        }
        search s = {.back = back, .from = i, .run = run};
        fb_status status = fb_each_run(app, &(fb_store_run_filter){.result = back->places[i].graph}, look_back, &s, error);
        *is_found = s.is_found;
        if (status || *is_found) return status;
    }
    return FB_OK;
}

fb_status fb_history_find(const fb_app *app, const fb_watch *watch, const char *graph_id, const fb_store_run *run,
                          fb_history *out, fb_error *error) {
    *out = (fb_history){0};
    way *back = calloc(1, sizeof *back);
    if (!back) return fb_fail_memory(error);
    back->count = 1;
    snprintf(back->places[0].graph, sizeof back->places[0].graph, "%s", graph_id);
    bool is_found = false;
    fb_status status = walk_back(app, run, back, &is_found, error);
    for (size_t i = back->count - 1; is_found && i && !status; i = back->places[i].next)
        status = fb_history_add(app, watch, out, back->places[i].run, false, error);
    free(back);
    if (status) fb_history_free(out);
    return status;
}

/* ---- where it began ------------------------------------------------------------------------------------------------------ */

static bool has_made_tensors(const fb_graph *graph) {
    bool has = false;
    for (fb_tensor t = fb_first_tensor(graph); t.id && !has; t = fb_tensor_at(graph, t)->next)
        has = fb_tensor_at(graph, t)->recipe.id != 0;
    return has;
}

typedef struct beginning {
    const fb_app *app;
    const fb_watch *watch;
    char original[FB_ID_LENGTH + 1]; /* where a run began; "" before one is known */
    bool is_elsewhere;               /* another run began at a graph that passes had made, or at an unknown one */
    fb_error *error;
} beginning;

static fb_status look_at_origin(void *context, const fb_store_run *run, bool *goes_on) {
    beginning *b = context;
    json_t *request = NULL;
    fb_shared_graph *shared = NULL;
    fb_status status = FB_OK;
    const char *origin = fb_run_origin(run, &request);
    bool has_no_steps = !strcmp(run->source, run->result) || (!fb_run_is_undoable(run) && run->is_exact); /* if no origin */
    bool is_new = origin && strcmp(origin, b->original) != 0;
    if (is_new) status = fb_load_graph(b->app, b->watch, origin, &shared, b->error);
    if (is_new && !status) fb_copy_text(b->original, sizeof b->original, origin);
    b->is_elsewhere = (!origin && !has_no_steps) || (shared && has_made_tensors(shared->graph));
    *goes_on = !b->is_elsewhere;
    fb_share_release(shared);
    json_decref(request);
    return status;
}

fb_status fb_history_begins_at_original(const fb_app *app, const fb_watch *watch, const char *graph_id, bool *does,
                                        fb_error *error) {
    beginning b = {.app = app, .watch = watch, .error = error};
    fb_status status = fb_each_run(app, &(fb_store_run_filter){.result = graph_id}, look_at_origin, &b, error);
    *does = *b.original && !b.is_elsewhere;
    return status;
}

/* ---- further back -------------------------------------------------------------------------------------------------------- */

static bool has_run(const fb_history *history, const char *run_id) {
    for (size_t i = 0; i < history->run_count; i++) {
        if (!strcmp(history->runs[i]->run.id, run_id)) return true;
    }
    return false;
}

typedef struct extension {
    const fb_app *app;
    const fb_watch *watch;
    fb_history *history;
    bool is_extended;
    fb_error *error;
} extension;

static fb_status extend(void *context, const fb_store_run *run, bool *goes_on) {
    extension *with = context;
    json_t *request = NULL;
    with->is_extended = fb_run_origin(run, &request) && !has_run(with->history, run->id);
    json_decref(request);
    *goes_on = !with->is_extended;
    return with->is_extended ? fb_history_add(with->app, with->watch, with->history, run->id, true, with->error) : FB_OK;
}

fb_status fb_history_extend(const fb_app *app, const fb_watch *watch, fb_history *history, bool *is_extended, fb_error *error) {
    extension with = {.app = app, .watch = watch, .history = history, .error = error};
    char source[FB_ID_LENGTH + 1]; /* adding to the history changes its own */
    memcpy(source, history->source, sizeof source);
    fb_status status = fb_each_run(app, &(fb_store_run_filter){.result = source}, extend, &with, error);
    *is_extended = with.is_extended;
    return status;
}

/* ---- the nearest -------------------------------------------------------------------------------------------------------- */

/* Each edit puts in or takes out one node at most, so that a graph of another size need not be read. */
static fb_status count_at_least(const fb_app *app, const char *id, const fb_graph *graph, size_t *count, fb_error *error) {
    fb_store_summary summary = {0};
    fb_status status = fb_store_get_graph(app->store, id, &summary, error);
    size_t there = summary.node_count, here = fb_node_count(graph);
    *count = here > there ? here - there : there - here;
    if (!status) FB_STORE_FREE(&summary);
    return status;
}

/* How many edits lead from a stored graph to another one; where there are `most` or more, some number that is as large. */
static fb_status count_edits(const fb_app *app, const fb_watch *watch, const char *id, const fb_graph *graph, size_t most,
                             size_t *count, fb_error *error) {
    fb_shared_graph *shared = NULL;
    fb_status status = most < SIZE_MAX ? count_at_least(app, id, graph, count, error) : FB_OK;
    if (status || (most < SIZE_MAX && *count >= most)) return status;
    status = fb_load_graph(app, watch, id, &shared, error);
    if (!status) status = fb_diff_count(shared->graph, graph, most, &(fb_work){.watch = watch}, count, error);
    fb_share_release(shared);
    return status;
}

/* Graphs that were compared with the one at hand. */
typedef struct comparison {
    const fb_app *app;
    const fb_watch *watch;
    const fb_graph *graph;
    char seen[NEAREST_MAX][FB_ID_LENGTH + 1];
    size_t count;
    char nearest[FB_ID_LENGTH + 1];
    size_t edits; /* from the nearest; not counted while it is the only one */
    fb_error *error;
} comparison;

static fb_status compare(comparison *with, const char *id) {
    if (with->count == NEAREST_MAX) return FB_OK;
    for (size_t i = 0; i < with->count; i++) {
        if (!strcmp(with->seen[i], id)) return FB_OK;
    }
    memcpy(with->seen[with->count++], id, sizeof with->seen[0]);
    fb_status status = FB_OK;
    if (with->count == 2)
        status = count_edits(with->app, with->watch, with->nearest, with->graph, SIZE_MAX, &with->edits, with->error);
    size_t edits = 0;
    if (with->count >= 2 && !status)
        status = count_edits(with->app, with->watch, id, with->graph, with->edits, &edits, with->error);
    if (status || (with->count >= 2 && edits >= with->edits)) return status;
    memcpy(with->nearest, id, sizeof with->nearest);
    with->edits = edits;
    return FB_OK;
}

/* The result of a run that started from a graph. */
static fb_status compare_result(void *context, const fb_store_run *run, bool *goes_on) {
    comparison *with = context;
    json_t *request = NULL;
    fb_status status = fb_run_origin(run, &request) ? compare(with, run->result) : FB_OK;
    json_decref(request);
    *goes_on = with->count < NEAREST_MAX;
    return status;
}

fb_status fb_history_nearest(const fb_app *app, const fb_watch *watch, const fb_store_run *run, const fb_graph *graph,
                             fb_history *out, fb_error *error) {
    comparison *candidates = calloc(1, sizeof *candidates);
    if (!candidates) return fb_fail_memory(error);
    candidates->app = app;
    candidates->watch = watch;
    candidates->graph = graph;
    candidates->error = error;
    char last[FB_ID_LENGTH + 1] = "";
    fb_status status = compare(candidates, run->result);
    while (!status && strcmp(last, candidates->nearest) != 0) {
        memcpy(last, candidates->nearest, sizeof last);
        status = fb_each_run(app, &(fb_store_run_filter){.source = last}, compare_result, candidates, error);
    }
    free(candidates);
    *out = (fb_history){0};
    if (!status) status = fb_history_find(app, watch, last, run, out, error);
    if (!status && !out->step_count) status = fb_history_add(app, watch, out, run->id, false, error);
    if (status) fb_history_free(out);
    return status;
}

/* ---- is it of that run? -------------------------------------------------------------------------------------------------- */

static bool is_anywhere(const fb_graph *graph, const char *signature, fb_work *work) {
    fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (; n.id && fb_work_goes_on(work, 8); n = fb_node_at(graph, n)->next) {
        if (fb_node_is_marked(graph, n, signature)) return true;
    }
    return false;
}

/* Finds out if one of the nodes that the run marked carries its mark; or, `anywhere`, any node. */
static fb_status find_mark(const fb_graph *graph, const fb_store_run *run, bool anywhere, fb_work *work, bool *is_found,
                           fb_error *error) {
    if (!fb_work_goes_on(work, FB_WORK_UNASKED)) return fb_work_status(work, error); /* a report may be long */
    json_t *report = fb_load_json(run->report);
    if (!report) return fb_fail_memory(error);
    size_t i, j;
    json_t *pass, *name;
    *is_found = false;
    json_array_foreach(report, i, pass) {
        const char *signature = json_string_value(json_object_get(pass, "signature"));
        if (!signature || *is_found) break;
        if (anywhere) *is_found = is_anywhere(graph, signature, work);
        json_array_foreach(json_object_get(pass, "nodes"), j, name) {
            if (*is_found || !fb_work_goes_on(work, 8)) break;
            fb_node node = fb_node_find(graph, FB_MAIN_PROGRAM, json_string_value(name));
            *is_found = node.id && fb_node_is_marked(graph, node, signature);
        }
    }
    json_decref(report);
    return fb_work_status(work, error);
}

/* Finds out if a node that the run marked still carries the mark in the graph. `run` has its report. */
static fb_status carries_marks(const fb_graph *graph, const fb_store_run *run, fb_work *work, bool *carries, fb_error *error) {
    return find_mark(graph, run, false, work, carries, error);
}

/* ---- by nodes ----------------------------------------------------------------------------------------------------------- */

static bool is_same_value(const fb_graph *a, fb_value of_a, const fb_graph *b, fb_value of_b, fb_buffer *scratch) {
    scratch->size = 0;
    fb_value_write(a, of_a, scratch);
    size_t middle = scratch->size;
    fb_value_write(b, of_b, scratch);
    return !scratch->failed && scratch->size == 2 * middle && !memcmp(scratch->data, scratch->data + middle, middle);
}

/* True if a node of `a` is in `b`: by name, opcode and target, and perhaps arguments (else `scratch` is NULL). */
static bool has_node(const fb_graph *a, fb_node node, const fb_graph *b, fb_buffer *scratch) {
    fb_node other = fb_node_find(b, FB_MAIN_PROGRAM, fb_node_name(a, node));
    if (!other.id || fb_node_at(a, node)->opcode != fb_node_at(b, other)->opcode) return false;
    if (strcmp(fb_node_target(a, node), fb_node_target(b, other)) != 0) return false;
    return !scratch || (is_same_value(a, fb_node_at(a, node)->args, b, fb_node_at(b, other)->args, scratch) &&
                        is_same_value(a, fb_node_at(a, node)->kwargs, b, fb_node_at(b, other)->kwargs, scratch));
}

static bool has_half(const fb_graph *result, const fb_graph *graph, fb_work *work) {
    size_t found = 0;
    fb_node n = fb_first_node(result, FB_MAIN_PROGRAM);
    for (; n.id && fb_work_goes_on(work, 8); n = fb_node_at(result, n)->next) found += has_node(result, n, graph, NULL);
    return 2 * found >= fb_node_count(result);
}

/* A node that the run put in or changed is there as the run left it. When the run put none in, or its marks are elsewhere, it
 * is enough that half of all nodes are there, and that not all that it changed is as it was before. */
static bool has_made_node(const fb_diff *diff, const fb_graph *source, const fb_graph *result, const fb_graph *graph,
                          bool is_marked, fb_work *work) {
    fb_buffer scratch = {0};
    size_t inserted = 0, changed = 0, as_before = 0;
    bool is_found = false;
    for (size_t i = 0; i < diff->count && !is_found && fb_work_goes_on(work, 32); i++) {
        const fb_edit *edit = &diff->edits[i];
        if (edit->table != FB_NODE_TABLE || (edit->kind != FB_EDIT_INSERT && edit->kind != FB_EDIT_SET)) continue;
        is_found = has_node(result, fb_node_find(result, FB_MAIN_PROGRAM, edit->name), graph, &scratch);
        inserted += edit->kind == FB_EDIT_INSERT;
        changed += edit->kind == FB_EDIT_SET;
        if (edit->kind == FB_EDIT_SET)
            as_before += has_node(source, fb_node_find(source, FB_MAIN_PROGRAM, edit->name), graph, &scratch);
    }
    fb_buffer_free(&scratch);
    bool is_undone = changed && as_before == changed;
    return is_found || (((!inserted && !is_undone) || is_marked) && has_half(result, graph, work));
}

fb_status fb_graph_is_related(const fb_app *app, const fb_watch *watch, const fb_graph *graph, const fb_store_run *run,
                              bool *is_related, fb_error *error) {
    fb_shared_graph *source = NULL, *result = NULL;
    fb_diff diff = {0};
    fb_work work = {.watch = watch};
    bool is_marked = false;
    fb_status status = carries_marks(graph, run, &work, is_related, error);
    if (status || *is_related) return status;
    status = find_mark(graph, run, true, &work, &is_marked, error);
    if (!status) status = fb_load_graph(app, watch, run->source, &source, error);
    if (!status) status = fb_load_graph(app, watch, run->result, &result, error);
    if (!status) status = fb_diff_make(source->graph, result->graph, &work, &diff, error);
    if (!status) {
        *is_related = has_made_node(&diff, source->graph, result->graph, graph, is_marked, &work);
        status = fb_work_status(&work, error);
        fb_diff_free(&diff);
    }
    fb_share_release(source);
    fb_share_release(result);
    return status;
}

static void add_related(fb_related_runs *runs, const char *id) {
    if (runs->count < FB_RELATED_MAX) memcpy(runs->ids[runs->count++], id, FB_RUN_ID_LENGTH + 1);
}

/* ---- by result ---------------------------------------------------------------------------------------------------------- */

/* Page by page: the only other run may be the oldest. Pages of which a run was kept are kept as well: it borrows their texts.
 */
fb_status fb_find_runs_by_result(const fb_app *app, const char *id, bool is_whole, fb_related_runs *out, fb_error *error) {
    fb_store_runs pages[FB_KEPT_RUNS_MAX];
    fb_store_run_filter filter = {.result = id};
    fb_kept_runs kept = {.is_whole = is_whole};
    size_t page_count = 0;
    char token[FB_PAGE_TOKEN_LENGTH + 1] = "";
    fb_status status = FB_OK;
    do {
        fb_store_runs *runs = &pages[page_count];
        fb_store_page page = {.limit = FB_PAGE_MAX, .token = *token ? token : NULL};
        size_t before = kept.count;
        status = fb_store_list_runs(app->store, &filter, &page, false, runs, error);
        if (status) break;
        for (size_t i = 0; i < runs->count; i++) fb_keep_run(&kept, &runs->items[i]);
        fb_copy_text(token, sizeof token, runs->next_token);
        if (kept.count > before) page_count++;
        else FB_STORE_FREE(runs);
    } while (*token && kept.count < FB_KEPT_RUNS_MAX);
    *out = (fb_related_runs){0};
    for (size_t i = 0; i < kept.count && !status; i++) add_related(out, kept.items[i].id);
    while (page_count) FB_STORE_FREE(&pages[--page_count]);
    return status;
}

/* ---- by marks ----------------------------------------------------------------------------------------------------------- */

typedef struct signature_list {
    const char *items[SIGNATURES_MAX];
    size_t count;
} signature_list;

static void add_signature(signature_list *list, const char *signature) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], signature) == 0) return;
    }
    if (list->count < SIGNATURES_MAX) list->items[list->count++] = signature;
}

static fb_status list_signatures(const fb_graph *graph, fb_work *work, signature_list *list, fb_error *error) {
    fb_value last = {0}; /* neighbours mostly have the same marks, and equal lists have one id */
    fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (; n.id && fb_work_goes_on(work, 8); n = fb_node_at(graph, n)->next) {
        fb_value marks = fb_node_at(graph, n)->transformations;
        if (!marks.id || marks.id == last.id) continue;
        last = marks;
        const fb_value_row *row = fb_value_at(graph, marks);
        for (uint32_t i = 0; i < row->count; i++) add_signature(list, fb_value_text(graph, row->items[i]));
    }
    return fb_work_status(work, error);
}

static fb_status keep_marked(const fb_graph *graph, const fb_store_runs *runs, fb_work *work, fb_kept_runs *kept,
                             fb_error *error) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < runs->count && !status; i++) {
        bool carries = false;
        if (fb_run_is_undoable(&runs->items[i])) status = carries_marks(graph, &runs->items[i], work, &carries, error);
        if (carries) fb_keep_run(kept, &runs->items[i]);
    }
    return status;
}

/* Finds the runs from whose result the fewest edits lead to the graph. */
static fb_status find_nearest(const fb_app *app, const fb_watch *watch, const fb_graph *graph, const fb_kept_runs *kept,
                              fb_related_runs *out, fb_error *error) {
    size_t least = SIZE_MAX;
    fb_status status = FB_OK;
    for (size_t i = 0; i < kept->count && !status; i++) {
        size_t edits = 0, most = least < SIZE_MAX ? least + 1 : least;
        if (kept->count > 1) status = count_edits(app, watch, kept->items[i].result, graph, most, &edits, error);
        if (status || edits > least) continue;
        if (edits < least) out->count = 0;
        least = edits;
        add_related(out, kept->items[i].id);
    }
    return status;
}

fb_status fb_find_runs_by_marks(const fb_app *app, const fb_watch *watch, const fb_graph *graph, bool is_whole,
                                fb_related_runs *out, fb_error *error) {
    *out = (fb_related_runs){0};
    fb_kept_runs kept = {.is_whole = is_whole};
    signature_list *signatures = calloc(1, sizeof *signatures);
    if (!signatures) return fb_fail_memory(error);
    fb_work work = {.watch = watch};
    fb_store_runs runs = {0};
    fb_store_run_filter filter = {.signatures = signatures->items};
    fb_status status = list_signatures(graph, &work, signatures, error);
    filter.signature_count = signatures->count;
    if (!status && signatures->count)
        status = fb_store_list_runs(app->store, &filter, &(fb_store_page){.limit = MARKED_MAX}, true, &runs, error);
    if (!status) status = keep_marked(graph, &runs, &work, &kept, error);
    if (!status) status = find_nearest(app, watch, graph, &kept, out, error);
    FB_STORE_FREE(&runs);
    free(signatures);
    return status;
}

/* ---- which pass made which node ------------------------------------------------------------------------------------------ */

typedef struct makers {
    const fb_graph *graph;
    const fb_history *history;
    const fb_past_run *of;
    json_t *names; /* by node: "MergeLinears 0123…" */
    bool failed;
} makers;

/* Names in the report of the pass: later passes have been looked at, and the last one that made a node of that name made it. */
static void note_maker(makers *m, size_t position, const json_t *report) {
    const fb_store_pass *pass = &m->of->run.passes[position];
    bool is_external = !m->of->composition.count;
    const json_t *name, *made = json_object_get(report, is_external ? "nodes" : "inserted");
    size_t i;
    json_array_foreach(made, i, name) {
        const char *node = json_string_value(name);
        if (!node || json_object_get(m->names, node) || !fb_node_find(m->graph, FB_MAIN_PROGRAM, node).id) continue;
        if (json_object_set_new(m->names, node, json_sprintf("%s %s", pass->name, pass->signature)) != 0) m->failed = true;
    }
}

/* From the last step to the first; the steps of one run are neighbours. */
static fb_status note_makers(makers *m, fb_error *error) {
    json_t *reports = NULL;
    for (size_t i = m->history->step_count; i-- > 0;) {
        const fb_past_step *step = &m->history->steps[i];
        if (step->of != m->of) {
            json_decref(reports);
            reports = fb_load_json(step->of->run.report);
            m->of = step->of;
        }
        if (!step->is_undone) note_maker(m, step->position, json_array_get(reports, step->position));
    }
    json_decref(reports);
    return m->failed ? fb_fail_memory(error) : FB_OK;
}

fb_status fb_find_makers(const fb_app *app, const fb_watch *watch, const char *graph_id, const fb_graph *graph, json_t **out,
                         fb_error *error) {
    fb_history history = {0};
    makers m = {.graph = graph, .history = &history, .names = json_object()};
    bool is_extended = true;
    memcpy(history.source, graph_id, sizeof history.source);
    memcpy(history.result, graph_id, sizeof history.result);
    fb_status status = m.names ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; is_extended && i < DEPTH_MAX && !status; i++)
        status = fb_history_extend(app, watch, &history, &is_extended, error);
    if (!status) status = note_makers(&m, error);
    fb_history_free(&history);
    if (status) json_decref(m.names);
    else *out = m.names;
    return status;
}
