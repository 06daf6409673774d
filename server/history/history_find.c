/* Finding out in the store what a graph was made of. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/diff.h"
#include "server/graphs/graphs.h"
#include "server/history/history.h"

#define RUNS_MAX 1000     /* looked at on the way back */
#define DEPTH_MAX 100     /* runs that stand on each other */
#define CANDIDATES_MAX 32 /* graphs compared with the one at hand */

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

/* Whether the run's steps are or contain steps of that run. */
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
    bool is_elsewhere;               /* another run began at a graph that passes had made, or nobody knows where */
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

fb_status fb_count_edits(const fb_app *app, const fb_watch *watch, const char *id, const fb_graph *graph, size_t most,
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
    char seen[CANDIDATES_MAX][FB_ID_LENGTH + 1];
    size_t count;
    char nearest[FB_ID_LENGTH + 1];
    size_t edits; /* from the nearest */
    fb_error *error;
} comparison;

static fb_status compare(comparison *with, const char *id) {
    if (with->count == CANDIDATES_MAX) return FB_OK;
    for (size_t i = 0; i < with->count; i++) {
        if (!strcmp(with->seen[i], id)) return FB_OK;
    }
    size_t most = *with->nearest ? with->edits : SIZE_MAX, edits = 0;
    memcpy(with->seen[with->count++], id, sizeof with->seen[0]);
    fb_status status = fb_count_edits(with->app, with->watch, id, with->graph, most, &edits, with->error);
    if (status || (*with->nearest && edits >= most)) return status;
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
    *goes_on = with->count < CANDIDATES_MAX;
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
