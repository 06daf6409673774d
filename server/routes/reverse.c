/* POST /v1/runs/{run}/reverse, /v1/runs/{run}/rollback and /v1/reverse. */
#include <string.h>

#include "server/routes/graph_input.h"
#include "server/routes/relation.h"
#include "server/routes/routes.h"
#include "server/routes/undo.h"

static json_t *list_ids(const fb_related_runs *runs) {
    json_t *list = json_array();
    for (size_t i = 0; i < runs->count; i++) json_array_append_new(list, json_string(runs->ids[i]));
    return list;
}

static void respond_changed(fb_response *response, const fb_related_runs *runs) {
    fb_respond_problem(
        response, 409, "changed-graph",
        "the graph carries marks that these runs made, but is not their result: undoing passes of a graph that was "
        "changed since is not available yet. A rollback of the run returns its source");
    fb_problem_member_take(response, "runs", list_ids(runs));
}

/* ---- of a run ----------------------------------------------------------------------------------------------------------- */

/* Whether the graph is the run's unchanged result, or none was given. */
static bool check_graph(const fb_request *request, fb_response *response, const fb_run_request *asked,
                        const fb_store_run *run) {
    if (asked->graph_id && strcmp(asked->graph_id, run->result) == 0) return true;
    fb_graph_input given = {0};
    fb_error error = {0};
    bool carries = false;
    if (!fb_graph_input_find(request, response, asked, &given)) return false;
    bool is_result = !given.shared || strcmp(given.shared->id, run->result) == 0;
    fb_status status = is_result ? FB_OK : fb_graph_carries_marks(given.shared->graph, run, &carries, &error);
    fb_graph_input_free(&given);
    if (status) {
        fb_respond_error(response, &error);
    } else if (carries) {
        fb_related_runs runs = {.count = 1};
        memcpy(runs.ids[0], run->id, sizeof run->id);
        respond_changed(response, &runs);
    } else if (!is_result) {
        fb_respond_problem(response, 409, "unrelated-graph", "the graph is not the result of %s and carries none of its marks",
                           run->id);
    }
    return is_result;
}

static void undo_run(const fb_request *request, fb_response *response, fb_undo_kind kind, fb_repeat *repeat) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_run_request asked;
    fb_store_run run;
    unsigned takes = kind == FB_UNDO_REVERSE ? FB_TAKES_GRAPH : 0;
    fb_status status = fb_store_get_run(app->store, fb_request_param(request, "run"), &run, &error);
    if (status) {
        fb_respond_error(response, &error);
        return;
    }
    if (fb_run_request_read(request, takes, &asked, &error)) {
        fb_respond_request_error(response, &error);
    } else {
        if (fb_check_undoable(&run, response) && check_graph(request, response, &asked, &run))
            fb_undo_run(request, response, &asked, &run, kind, repeat);
        fb_run_request_free(&asked);
    }
    fb_store_run_free(&run);
}

void fb_post_reverse_run(const fb_request *request, fb_response *response) {
    fb_repeat repeat;
    if (!fb_repeat_begin(request, response, &repeat)) return;
    undo_run(request, response, FB_UNDO_REVERSE, &repeat);
    fb_repeat_end(&repeat);
}

void fb_post_rollback_run(const fb_request *request, fb_response *response) {
    fb_repeat repeat;
    if (!fb_repeat_begin(request, response, &repeat)) return;
    undo_run(request, response, FB_UNDO_ROLLBACK, &repeat);
    fb_repeat_end(&repeat);
}

/* ---- of a graph --------------------------------------------------------------------------------------------------------- */

/* The one run whose result the graph is; otherwise this responds. */
static bool find_run(fb_response *response, fb_store *store, const fb_shared_graph *shared, bool is_whole,
                     fb_related_runs *runs) {
    fb_error error = {0};
    fb_status status = fb_find_runs_by_result(store, shared->id, is_whole, runs, &error);
    if (!status && runs->count == 1) return true;
    if (!status && runs->count > 1) {
        fb_respond_problem(response, 409, "ambiguous-run",
                           "the graph is the result of different runs; POST to the reverse link of the one that you mean");
        fb_problem_member_take(response, "runs", list_ids(runs));
        return false;
    }
    if (!status) status = fb_find_runs_by_marks(store, shared->graph, runs, &error);
    if (status) fb_respond_error(response, &error);
    else if (runs->count) respond_changed(response, runs);
    else fb_respond_problem(response, 409, "unrelated-graph", "the graph is no run's result and carries no run's marks");
    return false;
}

static void reverse_graph(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_repeat *repeat) {
    fb_store *store = ((const fb_app *)request->context)->store;
    fb_graph_input given = {0};
    fb_related_runs runs;
    fb_store_run run;
    fb_error error = {0};
    if (!fb_graph_input_find(request, response, asked, &given)) return;
    if (find_run(response, store, given.shared, !asked->passes, &runs)) {
        if (fb_store_get_run(store, runs.ids[0], &run, &error)) {
            fb_respond_error(response, &error);
        } else {
            fb_undo_run(request, response, asked, &run, FB_UNDO_REVERSE, repeat);
            fb_store_run_free(&run);
        }
    }
    fb_graph_input_free(&given);
}

void fb_post_reverse(const fb_request *request, fb_response *response) {
    fb_repeat repeat;
    if (!fb_repeat_begin(request, response, &repeat)) return;
    fb_error error = {0};
    fb_run_request asked;
    fb_status status = fb_run_request_read(request, FB_TAKES_GRAPH, &asked, &error);
    if (status) {
        fb_respond_request_error(response, &error);
    } else if (!asked.body.graph && !asked.graph_id) {
        fb_respond_problem(response, 422, "missing-member", "the request needs a graph: a document or an id");
        fb_problem_pointer(response, "/graph");
    } else {
        reverse_graph(request, response, &asked, &repeat);
    }
    if (!status) fb_run_request_free(&asked);
    fb_repeat_end(&repeat);
}
