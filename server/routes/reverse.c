/* POST /v1/runs/{run}/reverse, /v1/runs/{run}/rollback and /v1/reverse. */
#include <string.h>

#include "core/bind/bind.h"
#include "core/json/json.h"
#include "server/history/undo.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* Undoes, stores the new run and responds. */
static void undo(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_undo_task *task,
                 fb_repeat *repeat) {
    fb_undone undone;
    fb_undo_refusal refusal = {0};
    fb_error error = {0};
    task->passes = asked->passes;
    task->passes_pointer = asked->passes_pointer;
    if (fb_undo_work_out(request->context, fb_request_watch(request), task, &undone, &refusal, &error)) {
        fb_respond_undo_refusal(response, &refusal, &error);
        return;
    }
    undone.made.run.note = asked->note;
    undone.made.run.labels = asked->labels;
    undone.made.run.label_count = asked->label_count;
    fb_respond_new_run(request, response, asked, &undone.made, repeat);
    fb_undone_free(&undone);
}

/* ---- of a run ----------------------------------------------------------------------------------------------------------- */

static bool check_undoable(const fb_store_run *run, fb_response *response) {
    if (fb_run_is_undoable(run)) return true;
    fb_respond_problem(response, 409, "not-an-optimize-run",
                       "%s is a %s; only what an optimize or an external run did can be undone%s%s", run->id, run->kind,
                       run->of_run ? ". To have those passes again, optimize again; the run that it undid is " : "",
                       run->of_run ? run->of_run : "");
    if (run->of_run) fb_problem_member_take(response, "of_run", json_string(run->of_run));
    return false;
}

/* A checkpoint whose files are what the run's result gives, unchanged, means that result: it takes the place of `given`. */
static fb_status take_untouched(const fb_app *app, const fb_watch *watch, const fb_store_run *run, fb_graph_input *given,
                                fb_undo_task *task, fb_error *error) {
    fb_shared_graph *result = NULL;
    fb_checked_source checked = {app->store, watch};
    fb_blobs blobs = fb_checked_blob_source(&checked);
    bool is_untouched = false;
    fb_status status = fb_load_graph(app, watch, run->result, &result, error);
    if (!status) status = fb_checkpoints_equal(given->shared->graph, result->graph, &blobs, watch, &is_untouched, error);
    if (status || !is_untouched) {
        fb_share_release(result);
        return status;
    }
    fb_graph_input_free(given);
    *given = (fb_graph_input){.shared = result};
    task->graph_id = result->id;
    return fb_history_find(app, watch, task->graph_id, run, &task->history, error);
}

/* Finds the history of the graph at hand: the run, and what was done to its result since. False when this has responded. */
static bool find_history_of_run(const fb_request *request, fb_response *response, const fb_store_run *run,
                                fb_graph_input *given, fb_undo_task *task) {
    const fb_app *app = request->context;
    fb_error error = {0};
    bool is_related = true;
    fb_status status = fb_history_find(app, fb_request_watch(request), task->graph_id, run, &task->history, &error);
    if (!status && !task->history.step_count) status = take_untouched(app, fb_request_watch(request), run, given, task, &error);
    if (!status && !task->history.step_count) {
        fb_error reason = {0}; /* none: it is the result's program */
        status = fb_archive_take_training(request, run->result, given, &reason, &error);
        task->graph_id = given->shared->id;
        if (!status && reason.status)
            status = fb_graph_is_related(app, fb_request_watch(request), given->shared->graph, run, &is_related, &error);
        if (!status && is_related)
            status = fb_history_nearest(app, fb_request_watch(request), run, given->shared->graph, &task->history, &error);
    }
    if (status) fb_respond_error(response, &error);
    else if (!is_related)
        fb_respond_problem(response, 409, "unrelated-graph",
                           "the graph is not made of the result of %s: nothing that this run did is in it", run->id);
    return !status && is_related;
}

static void undo_run(const fb_request *request, fb_response *response, const fb_run_request *asked, const fb_store_run *run,
                     fb_undo_kind kind, fb_repeat *repeat) {
    fb_graph_input given = {0};
    if (!check_undoable(run, response) || !fb_graph_input_find(request, response, asked, &given)) return;
    fb_undo_task task = {.kind = kind, .at_hand = &given, .graph_id = given.shared ? given.shared->id : run->result};
    memcpy(task.run_id, run->id, sizeof task.run_id);
    if (find_history_of_run(request, response, run, &given, &task)) undo(request, response, asked, &task, repeat);
    fb_history_free(&task.history);
    fb_graph_input_free(&given);
}

static void post_undo(const fb_request *request, fb_response *response, fb_undo_kind kind) {
    const fb_app *app = request->context;
    fb_repeat repeat;
    fb_error error = {0};
    fb_run_request asked = {0};
    fb_store_run run = {0};
    if (!fb_repeat_begin(request, response, &repeat)) return;
    unsigned takes = kind == FB_UNDO_REVERSE ? FB_TAKES_GRAPH : 0;
    fb_status status = fb_store_get_run(app->store, fb_request_param(request, "run"), &run, &error);
    if (!status) status = fb_run_request_read(request, takes, &asked, &error);
    if (status) fb_respond_request_error(response, &error);
    else undo_run(request, response, &asked, &run, kind, &repeat);
    fb_run_request_free(&asked);
    FB_STORE_FREE(&run);
    fb_repeat_end(&repeat);
}

static void post_reverse_run(const fb_request *request, fb_response *response) {
    post_undo(request, response, FB_UNDO_REVERSE);
}

static void post_rollback_run(const fb_request *request, fb_response *response) {
    post_undo(request, response, FB_UNDO_ROLLBACK);
}

/* ---- of a graph --------------------------------------------------------------------------------------------------------- */

static json_t *list_ids(const fb_related_runs *runs) {
    json_t *list = json_array();
    for (size_t i = 0; i < runs->count; i++) fb_list_add_take(&list, json_string(runs->ids[i]));
    return list;
}

static size_t count_marks(const fb_graph *graph) {
    size_t count = 0;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n)) {
        fb_value marks = fb_node_at(graph, n)->transformations;
        count += marks.id ? fb_value_at(graph, marks)->count : 0;
    }
    return count;
}

static void respond_unrelated(fb_response *response, const fb_graph *graph, const char *reason) {
    size_t marks = count_marks(graph);
    char carries[96] = "no node has the mark of one";
    if (marks == 1) fb_copy_text(carries, sizeof carries, "1 mark is of a run that is not in this store");
    else if (marks) snprintf(carries, sizeof carries, "%zu marks are of runs that are not in this store", marks);
    fb_respond_problem(response, 409, "unrelated-graph", "no run changed another graph into this one, and %s%s%s", carries,
                       *reason ? "; " : "", reason);
}

/* The one run that made the graph, or what it was before it was changed; otherwise this responds. */
static bool find_maker(const fb_request *request, fb_response *response, fb_graph_input *given, bool is_whole,
                       fb_related_runs *runs, bool *is_changed) {
    const fb_app *app = request->context;
    char trained[FB_ID_LENGTH + 1] = "";
    fb_error error = {0}, reason = {0};
    fb_status status = fb_find_runs_by_result(app, given->shared->id, is_whole, runs, &error);
    *is_changed = !status && !runs->count;
    if (*is_changed)
        status = fb_find_runs_by_marks(app, fb_request_watch(request), given->shared->graph, is_whole, runs, &error);
    if (!status && !runs->count) status = fb_archive_find_trained(request, given, trained, &reason, &error);
    if (!status && *trained) status = fb_find_runs_by_result(app, trained, is_whole, runs, &error);
    if (!status && runs->count == 1) return true;
    if (status) {
        fb_respond_error(response, &error);
    } else if (runs->count) {
        fb_respond_problem(response, 409, "ambiguous-run",
                           "different runs may have made the graph; POST it to the reverse link of the one that you mean");
        fb_problem_member_take(response, "runs", list_ids(runs));
    } else {
        respond_unrelated(response, given->shared->graph, reason.message);
    }
    return false;
}

/* Finds the history of the graph, as far back as one run; the last pass shows which run to undo. */
static fb_status find_steps(const fb_app *app, const fb_watch *watch, const char *maker, bool is_changed,
                            const fb_graph_input *given, fb_undo_task *task, fb_error *error) {
    fb_store_run run;
    if (!is_changed) {
        fb_status status = fb_history_add(app, watch, &task->history, maker, false, error);
        const fb_history *history = &task->history;
        if (!status && history->step_count)
            memcpy(task->run_id, history->steps[history->step_count - 1].of->run.id, sizeof task->run_id);
        return status;
    }
    memcpy(task->run_id, maker, sizeof task->run_id);
    fb_status status = fb_store_get_run(app->store, maker, &run, error);
    if (status) return status;
    status = fb_history_nearest(app, watch, &run, given->shared->graph, &task->history, error);
    FB_STORE_FREE(&run);
    return status;
}

static void reverse_graph(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_repeat *repeat) {
    const fb_app *app = request->context;
    fb_graph_input given = {0};
    fb_related_runs runs;
    fb_error error = {0};
    bool is_changed = false;
    if (!fb_graph_input_find(request, response, asked, &given)) return;
    if (find_maker(request, response, &given, !asked->passes, &runs, &is_changed)) {
        fb_undo_task task = {.kind = FB_UNDO_REVERSE, .reaches_back = true, .at_hand = &given, .graph_id = given.shared->id};
        if (find_steps(app, fb_request_watch(request), runs.ids[0], is_changed, &given, &task, &error))
            fb_respond_error(response, &error);
        else undo(request, response, asked, &task, repeat);
        fb_history_free(&task.history);
    }
    fb_graph_input_free(&given);
}

static void post_reverse(const fb_request *request, fb_response *response) {
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

const fb_route fb_reverse_routes[] = {
    {.method = "POST",
     .pattern = "/v1/reverse",
     .handler = post_reverse,
     .defer = fb_defer_request,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_REQUIRED,
     .query = FB_RUN_QUERY},
    {.method = "POST",
     .pattern = "/v1/runs/{run}/reverse",
     .handler = post_reverse_run,
     .defer = fb_defer_request,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .query = FB_RUN_QUERY},
    {.method = "POST",
     .pattern = "/v1/runs/{run}/rollback",
     .handler = post_rollback_run,
     .defer = fb_defer_request,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .query = FB_RUN_QUERY},
    {0},
};
