/* The difference of two graphs: GET /v1/graphs/{id}/diff and /v1/runs/{run}/edits. */
#include "core/diff/diff.h"
#include "core/json/json.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* Adds "edits" to the object that `answer` begins, ends it, and responds. */
static void respond_edits(const fb_request *request, fb_response *response, const fb_graph *from, const fb_graph *to,
                          fb_buffer *answer) {
    fb_work work = {.watch = fb_request_watch(request)};
    fb_error error = {0};
    fb_diff diff;
    fb_status status = fb_diff_make(from, to, &work, &diff, &error);
    if (!status) {
        fb_put_name(answer, "edits");
        if (!fb_diff_write(&diff, &work, answer)) status = fb_work_failed(&work, &error);
        fb_diff_free(&diff);
        fb_buffer_char(answer, '}');
    }
    if (!status) {
        fb_respond_json_buffer_take(response, 200, answer);
    } else {
        fb_respond_error(response, &error);
        fb_buffer_free(answer);
    }
}

static void get_diff(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const char *id = fb_request_param(request, "id"), *base = fb_request_query(request, "base");
    if (!base) {
        fb_refuse_parameter(response, "base", "missing-parameter", "from which graph? Its id is the query parameter base");
        return;
    }
    fb_error error = {0};
    fb_shared_graph *from = NULL, *to = NULL;
    fb_status status = fb_load_graph(app, fb_request_watch(request), id, &to, &error);
    if (status) {
        fb_respond_error(response, &error);
    } else if ((status = fb_load_graph(app, fb_request_watch(request), base, &from, &error))) {
        fb_respond_error(response, &error);
        if (status == FB_NOT_FOUND) fb_problem_member_take(response, "parameter", json_string("base"));
    } else {
        fb_buffer answer = {0};
        fb_buffer_char(&answer, '{');
        fb_put_text(&answer, "base", base);
        fb_put_text(&answer, "graph", id);
        respond_edits(request, response, from->graph, to->graph, &answer);
    }
    fb_share_release(from);
    fb_share_release(to);
}

static void get_run_edits(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_run run = {0};
    fb_shared_graph *from = NULL, *to = NULL;
    fb_status status = fb_store_get_run(app->store, fb_request_param(request, "run"), &run, &error);
    if (!status) status = fb_load_graph(app, fb_request_watch(request), run.source, &from, &error);
    if (!status) status = fb_load_graph(app, fb_request_watch(request), run.result, &to, &error);
    if (status) {
        fb_respond_error(response, &error);
    } else {
        fb_buffer answer = {0};
        fb_buffer_char(&answer, '{');
        fb_put_text(&answer, "run", run.id);
        fb_put_text(&answer, "base", run.source);
        fb_put_text(&answer, "graph", run.result);
        respond_edits(request, response, from->graph, to->graph, &answer);
    }
    fb_share_release(from);
    fb_share_release(to);
    FB_STORE_FREE(&run);
}

const fb_route fb_edits_routes[] = {
    {.method = "GET", .pattern = "/v1/graphs/{id}/diff", .handler = get_diff, .scope = FB_SCOPE_READ, .query = "base"},
    {.method = "GET", .pattern = "/v1/runs/{run}/edits", .handler = get_run_edits, .scope = FB_SCOPE_READ, .query = ""},
    {0},
};
