/* Pictures of graphs: GET /v1/graphs/{id}/layout and /v1/runs/{run}/layout, POST /v1/picture, as JSON or SVG. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "core/picture/picture.h"
#include "server/history/history.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

#define OPEN_MOST 1000 /* names in one request */

typedef struct picture_request {
    fb_picture_options options;
    const char *open[OPEN_MOST];
} picture_request;

static bool read_options(const fb_request *request, fb_response *response, picture_request *out) {
    int64_t depth;
    size_t cursor = 0;
    out->options = (fb_picture_options){.open = out->open, .at = fb_request_query(request, "at")};
    for (const char *name; (name = fb_request_query_next(request, "open", &cursor));) {
        if (out->options.open_count == OPEN_MOST)
            return fb_refuse_parameter(response, "open", "bad-parameter", "too many boxes to open");
        out->open[out->options.open_count++] = name;
    }
    if (!fb_request_query_int(request, response, "depth", 0, 64, FB_PICTURE_DEPTH_USUAL, &depth)) return false;
    out->options.depth = (int)depth;
    return true;
}

/* A picture may hold nothing but text, and loads nothing. */
static void respond_svg(fb_response *response, const fb_picture *picture) {
    fb_buffer svg = {0};
    fb_picture_write_svg(picture, &svg);
    fb_respond_buffer_take(response, 200, "image/svg+xml", &svg);
    fb_response_header(response, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox");
}

/* Ends the object that `answer` begins, and responds; of an SVG it is not needed. */
static void respond_picture(const fb_request *request, fb_response *response, const fb_graph *base, const fb_graph *graph,
                            const picture_request *asked, fb_buffer *answer) {
    fb_work work = {.watch = fb_request_watch(request)};
    fb_error error = {0};
    fb_picture picture;
    fb_status status = fb_picture_make(base, graph, &asked->options, &work, &picture, &error);
    if (status) {
        fb_respond_error(response, &error);
        if (status == FB_NOT_FOUND) fb_problem_member_take(response, "parameter", json_string("at"));
    } else if (fb_request_accepts(request, "image/svg+xml") > fb_request_accepts(request, "application/json")) {
        respond_svg(response, &picture);
    } else {
        fb_picture_write(&picture, answer);
        fb_buffer_char(answer, '}');
        fb_respond_json_buffer_take(response, 200, answer);
    }
    fb_response_header(response, "Vary", "Accept");
    fb_picture_free(&picture);
    fb_buffer_free(answer);
}

static void get_layout(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const char *id = fb_request_param(request, "id"), *base = fb_request_query(request, "base");
    fb_error error = {0};
    fb_shared_graph *from = NULL, *to = NULL;
    picture_request asked;
    if (!read_options(request, response, &asked)) return;
    fb_status status = fb_load_graph(app, fb_request_watch(request), id, &to, &error);
    if (status) {
        fb_respond_error(response, &error);
    } else if (base && (status = fb_load_graph(app, fb_request_watch(request), base, &from, &error))) {
        fb_respond_error(response, &error);
        if (status == FB_NOT_FOUND) fb_problem_member_take(response, "parameter", json_string("base"));
    } else {
        fb_buffer answer = {0};
        fb_buffer_char(&answer, '{');
        if (base) fb_put_text(&answer, "base", from->id);
        fb_put_text(&answer, "graph", to->id);
        respond_picture(request, response, from ? from->graph : NULL, to->graph, &asked, &answer);
    }
    fb_share_release(from);
    fb_share_release(to);
}

/* Two graphs that need not be here. */
static void post_picture(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"a", "b", NULL};
    fb_request_body body = {0};
    fb_graph_input a = {0}, b = {0};
    picture_request asked;
    if (!read_options(request, response, &asked) || !fb_body_read(request, response, known, &body)) return;
    if (fb_graph_input_pair(request, response, &body, 0, "a", &a) &&
        fb_graph_input_pair(request, response, &body, 1, "b", &b)) {
        fb_buffer answer = {0};
        fb_buffer_char(&answer, '{');
        respond_picture(request, response, a.shared->graph, b.shared->graph, &asked, &answer);
    }
    fb_graph_input_free(&a);
    fb_graph_input_free(&b);
    fb_request_body_free(&body);
}

/* ---- a run --------------------------------------------------------------------------------------------------------------- */

/* Replays the first `count` passes of a run on its source. */
static fb_status replay(const fb_app *app, const fb_watch *watch, const char *run_id, size_t count, fb_graph **out,
                        fb_error *error) {
    fb_history history = {0};
    fb_conflicts conflicts = {0};
    bool is_exact;
    fb_status status = fb_history_add(app, watch, &history, run_id, false, error);
    for (size_t i = 0; !status && i < history.step_count; i++) history.steps[i].is_undone = i >= count;
    if (!status) status = fb_history_replay(app, watch, &history, NULL, out, &is_exact, &conflicts, error);
    fb_conflicts_free(&conflicts);
    fb_history_free(&history);
    return status;
}

/* The nodes that the first `pass_count` passes refused, in the run's report: how many, and into `out` unless it is NULL. */
static size_t list_refused(const json_t *report, size_t pass_count, fb_picture_mark *out) {
    const json_t *pass, *refusal, *node;
    size_t p, r, n, count = 0;
    uint32_t group = 0;
    json_array_foreach(report, p, pass) {
        if (p == pass_count) break;
        json_array_foreach(json_object_get(pass, "refused"), r, refusal) {
            group++;
            json_array_foreach(json_object_get(refusal, "nodes"), n, node) {
                if (out) out[count] = (fb_picture_mark){.node = json_string_value(node), .group = group};
                count++;
            }
        }
    }
    return count;
}

typedef struct run_graphs {
    fb_shared_graph *source, *result;
    fb_graph *part; /* instead of the result */
} run_graphs;

static fb_status load_run(const fb_app *app, const fb_watch *watch, const fb_store_run *run, int64_t passes, run_graphs *out,
                          fb_error *error) {
    bool is_part = passes >= 0 && passes < (int64_t)run->pass_count;
    fb_status status = fb_load_graph(app, watch, run->source, &out->source, error);
    if (!status && !is_part) status = fb_load_graph(app, watch, run->result, &out->result, error);
    if (!status && is_part) status = replay(app, watch, run->id, (size_t)passes, &out->part, error);
    return status;
}

/* The picture of a run whose graphs are loaded. */
static void respond_run_picture(const fb_request *request, fb_response *response, const fb_store_run *run, int64_t passes,
                                const run_graphs *graphs, picture_request *asked) {
    json_t *report = fb_load_json(run->report);
    size_t count = graphs->part ? (size_t)passes : run->pass_count;
    fb_picture_mark *marks = report ? calloc(list_refused(report, count, NULL) + 1, sizeof *marks) : NULL;
    if (!marks) {
        json_decref(report);
        fb_respond_no_memory(response);
        return;
    }
    asked->options.refused = marks;
    asked->options.refused_count = list_refused(report, count, marks);
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "run", run->id);
    fb_put_text(&answer, "base", run->source);
    if (graphs->part) fb_put_int(&answer, "passes", passes);
    else fb_put_text(&answer, "graph", run->result);
    respond_picture(request, response, graphs->source->graph, graphs->part ? graphs->part : graphs->result->graph, asked,
                    &answer);
    free(marks);
    json_decref(report);
}

static void get_run_layout(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_run run = {0};
    run_graphs graphs = {0};
    int64_t passes;
    picture_request asked;
    if (!read_options(request, response, &asked)) return;
    if (!fb_request_query_int(request, response, "passes", 0, INT_MAX, -1, &passes)) return;
    fb_status status = fb_store_get_run(app->store, fb_request_param(request, "run"), &run, &error);
    if (!status && passes >= 0 && !fb_run_is_undoable(&run)) {
        fb_refuse_parameter(response, "passes", "bad-parameter", "an undo is one step: it has no passes of its own");
    } else {
        if (!status) status = load_run(app, fb_request_watch(request), &run, passes, &graphs, &error);
        if (status) fb_respond_error(response, &error);
        else respond_run_picture(request, response, &run, passes, &graphs, &asked);
    }
    fb_graph_free(graphs.part);
    fb_share_release(graphs.source);
    fb_share_release(graphs.result);
    FB_STORE_FREE(&run);
}

const fb_route fb_picture_routes[] = {
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/layout",
     .handler = get_layout,
     .scope = FB_SCOPE_READ,
     .query = "base,open,at,depth",
     .produces = "application/json,image/svg+xml"},
    {.method = "GET",
     .pattern = "/v1/runs/{run}/layout",
     .handler = get_run_layout,
     .scope = FB_SCOPE_READ,
     .query = "passes,open,at,depth",
     .produces = "application/json,image/svg+xml"},
    {.method = "POST",
     .pattern = "/v1/picture",
     .handler = post_picture,
     .scope = FB_SCOPE_READ,
     .body = FB_BODY_REQUIRED,
     .query = "open,at,depth",
     .produces = "application/json,image/svg+xml"},
    {0},
};
