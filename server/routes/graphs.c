/* /v1/graphs, /v1/graphs/{id} and its code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* ---- POST /v1/graphs ---------------------------------------------------------------------------------------------------- */

static void write_posted(const fb_graph_input *input, const fb_graph_row *row, const json_t *weights, const char *archive,
                         fb_buffer *out) {
    const fb_graph *graph = input->shared->graph;
    fb_buffer_char(out, '{');
    fb_put_text(out, "id", row->graph.id);
    fb_put_text(out, "structure", row->structure);
    fb_put_text(out, "name", row->graph.name);
    fb_put_int(out, "nodes", (int64_t)fb_node_count(graph));
    fb_put_int(out, "modules", (int64_t)fb_module_count(graph));
    fb_put_int(out, "tensors", (int64_t)fb_tensor_count(graph));
    fb_put_int(out, "bytes", (int64_t)row->graph.size);
    if (*archive) fb_put_text(out, "archive", archive);
    if (*archive && fb_graph_is_onnx(graph)) fb_put_text(out, "dialect", "onnx");
    if (weights) fb_put_json(out, "weights", weights);
    fb_buffer_char(out, '}');
}

/* 201, or 200 when the graph is known. Needed before it is stored, for the answer that is stored with it. */
static int expect_status(fb_app *app, const char *id) {
    fb_store_summary summary;
    if (fb_store_get_graph(app->store, id, &summary, NULL)) return 201;
    FB_STORE_FREE(&summary);
    return 200;
}

static void store_graph(const fb_request *request, fb_response *response, const fb_graph_input *input, const json_t *weights,
                        const char *archive, fb_repeat *repeat) {
    fb_app *app = request->context;
    fb_error error = {0};
    fb_graph_row row;
    fb_buffer answer = {0}, location = {0};
    bool is_new = false;
    fb_status status = fb_graph_row_make(input, fb_request_watch(request), &row, &error);
    if (!status) write_posted(input, &row, weights, archive, &answer);
    fb_buffer_printf(&location, "/v1/graphs/%s", input->shared->id);
    if (!status && (!fb_buffer_text(&answer) || !fb_buffer_text(&location))) status = fb_fail_memory(&error);
    uint64_t ticket = fb_cache_ticket(app->cache);
    row.graph.by = fb_actor_of(request);
    if (!status) {
        int expected = repeat->key ? expect_status(app, input->shared->id) : 0;
        const fb_store_answer *stored = fb_repeat_answer(repeat, expected, location.data, answer.data, answer.size);
        status = fb_store_put_graph(app->store, &row.graph, stored, &is_new, &error);
    }
    if (status) {
        fb_respond_not_stored(request, response, input, &error);
    } else {
        fb_cache_put(app->cache, input->shared, ticket);
        fb_respond_json_buffer_take(response, is_new ? 201 : 200, &answer);
        fb_response_header(response, "Location", location.data);
    }
    fb_buffer_free(&answer);
    fb_buffer_free(&location);
    fb_graph_row_free(&row);
}

static fb_status read_how(const fb_request *request, fb_bind_options *out, fb_error *error) {
    const char *as = fb_request_query(request, "as");
    out->prefix = fb_request_query(request, "prefix");
    json_t *text = as ? json_string(as) : NULL;
    fb_status status = text ? fb_weights_reading_read(text, "?as=", &out->as, error) : as ? fb_fail_memory(error) : FB_OK;
    json_decref(text);
    return status;
}

/* ?weights=…&weights=…&strict&as=…&prefix=… */
static bool read_weights(const fb_request *request, fb_response *response, fb_weights_asked *out) {
    static const char pointer[] = "?weights=";
    fb_error error = {0};
    json_t *files = NULL;
    size_t cursor = 0;
    fb_status status = FB_OK;
    *out = (fb_weights_asked){.pointer = pointer};
    if (!fb_request_query_bool(request, response, "strict", false, &out->is_strict)) return false;
    for (const char *file; !status && (file = fb_request_query_next(request, "weights", &cursor));) {
        if (!files) files = json_array();
        if (json_array_append_new(files, json_string(file))) status = fb_fail_memory(&error);
    }
    if (!status && files) status = fb_weights_check(files, pointer, &error);
    if (!status) status = read_how(request, &out->options, &error);
    out->files = files;
    if (status) fb_respond_request_error(response, &error);
    if (status) json_decref(files);
    return !status;
}

static bool read_posted(const fb_request *request, fb_response *response, fb_request_archive *archive, fb_graph_input *out) {
    if (*archive->digest) return fb_archive_read(request, response, archive, out);
    return fb_graph_input_read(request, response, request->body, request->body_size, "", out);
}

static void post_graph(const fb_request *request, fb_response *response) {
    fb_repeat repeat;
    fb_weights_asked weights;
    fb_request bare;
    fb_request_archive archive = {0};
    if (!read_weights(request, response, &weights)) {
        fb_archive_drop(request);
        return;
    }
    if (fb_archive_take(request, response, &bare, &archive) && fb_repeat_begin(&bare, response, &repeat)) {
        fb_graph_input input = {0};
        json_t *told = NULL;
        if (read_posted(&bare, response, &archive, &input) && fb_bind_weights(&bare, response, &weights, &input, &told))
            store_graph(&bare, response, &input, told, archive.digest, &repeat);
        fb_graph_input_free(&input);
        json_decref(told);
        fb_repeat_end(&repeat);
    }
    fb_archive_settle(request, response, &archive);
    json_decref((json_t *)(uintptr_t)weights.files);
}

/* ---- POST /v1/checkpoints ----------------------------------------------------------------------------------------------- */

static void post_checkpoint(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"weights", "name", NULL};
    const char *name = NULL;
    fb_request_body body;
    fb_repeat repeat;
    fb_graph_input input = {0};
    if (!fb_repeat_begin(request, response, &repeat)) return;
    if (fb_body_read(request, response, known, &body)) {
        if (fb_body_text(response, &body, "name", FB_REFERENCE_MAX, &name) &&
            fb_checkpoint_read(request, response, json_object_get(body.members, "weights"), name ? name : "checkpoint", &input))
            store_graph(request, response, &input, NULL, "", &repeat);
        fb_graph_input_free(&input);
        fb_request_body_free(&body);
    }
    fb_repeat_end(&repeat);
}

/* ---- GET /v1/graphs ----------------------------------------------------------------------------------------------------- */

static void write_summary(const fb_store_summary *summary, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "id", summary->id);
    fb_put_text(out, "structure", summary->structure);
    fb_put_text(out, "name", summary->name);
    fb_put_int(out, "nodes", summary->node_count);
    fb_put_int(out, "bytes", (int64_t)summary->size);
    fb_put_time(out, "created", summary->created);
    fb_buffer_char(out, '}');
}

static void get_graphs(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_summaries list;
    if (!fb_page_read(request, response, &page)) return;
    fb_status status = fb_store_list_graphs(app->store, fb_request_query(request, "structure"),
                                            fb_request_query(request, "name"), &page, &list, &error);
    if (status) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list.count; i++) write_summary(&list.items[i], &answer);
    fb_respond_items_take(response, &answer, list.next_token);
    FB_STORE_FREE(&list);
}

/* ---- /v1/graphs/{id} ---------------------------------------------------------------------------------------------------- */

static void get_graph(const fb_request *request, fb_response *response) {
    fb_respond_graph(request, response, fb_request_param(request, "id"));
}

static void delete_graph(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const char *id = fb_request_param(request, "id");
    fb_error error = {0};
    fb_store_users users = {0};
    fb_store_actor by = fb_actor_of(request);
    fb_status status = fb_store_delete_graph(app->store, id, &by, &users, &error);
    if (!status) {
        fb_cache_drop(app->cache, id);
        fb_respond_empty(response, 204);
        return;
    }
    fb_respond_error(response, &error);
    if (strcmp(error.code, "graph-in-use") != 0) return;
    json_t *runs = json_array(), *versions = json_array();
    for (size_t i = 0; i < users.count; i++) fb_list_add_take(&runs, json_string(users.runs[i]));
    for (size_t i = 0; i < users.version_count; i++) fb_list_add_take(&versions, json_string(users.versions[i]));
    fb_problem_member_take(response, "runs", runs);
    fb_problem_member_take(response, "versions", versions);
    fb_problem_member_take(response, "total", json_integer((json_int_t)(users.total + users.version_total + users.job_total)));
}

/* 304 to a client that has what the tag names, as long as the graph is stored. */
static fb_status respond_known(const fb_request *request, fb_response *response, const char *id, const char *content_type,
                               const char *tag, fb_error *error) {
    const fb_app *app = request->context;
    fb_store_summary summary = {0};
    fb_status status = fb_store_get_graph(app->store, id, &summary, error);
    if (!status) fb_respond_not_modified(response, content_type, tag);
    FB_STORE_FREE(&summary);
    return status;
}

static void release(void *shared) {
    fb_share_release(shared);
}

static fb_status respond_code(const fb_request *request, fb_response *response, const char *id, const char *content_type,
                              const char *tag, fb_error *error) {
    fb_shared_graph *shared;
    fb_work work = {.watch = fb_request_watch(request)};
    fb_status status = fb_load_graph(request->context, work.watch, id, &shared, error);
    if (status) return status;
    const fb_buffer *code = fb_share_code(shared, &work);
    if (code) {
        fb_response_etag(response, tag);
        fb_respond_bytes(response, 200, content_type, code->data, code->size, release, shared);
        return FB_OK;
    }
    fb_share_release(shared);
    return fb_work_failed(&work, error);
}

static void get_code(const fb_request *request, fb_response *response) {
    static const char type[] = "text/x-python; charset=utf-8";
    const char *id = fb_request_param(request, "id");
    char tag[FB_ID_LENGTH + 20]; /* a later version may write the code in another way */
    fb_error error = {0};
    snprintf(tag, sizeof tag, "%s-" FB_VERSION, id);
    bool is_at_client = fb_request_has_etag(request, tag);
    fb_status status = is_at_client ? respond_known(request, response, id, type, tag, &error)
                                    : respond_code(request, response, id, type, tag, &error);
    if (status) fb_respond_error(response, &error);
}

/* ---- a stored graph as an answer ----------------------------------------------------------------------------------------- */

bool fb_respond_graph(const fb_request *request, fb_response *response, const char *id) {
    static const char type[] = "application/json";
    fb_error error = {0};
    fb_loaded_document document;
    bool is_at_client = fb_request_has_etag(request, id);
    fb_status status = is_at_client ? respond_known(request, response, id, type, id, &error)
                                    : fb_load_document(request->context, id, &document, &error);
    if (status) {
        fb_respond_error(response, &error);
    } else if (!is_at_client) {
        fb_response_etag(response, id);
        fb_respond_bytes(response, 200, type, document.bytes, document.size, document.release, document.owner);
    }
    return !status;
}

const fb_route fb_graph_routes[] = {
    {.method = "POST",
     .pattern = "/v1/checkpoints",
     .handler = post_checkpoint,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "POST",
     .pattern = "/v1/graphs",
     .handler = post_graph,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .instead_of_body = "archive",
     .sink = &fb_archive_sink,
     .sink_types = FB_ARCHIVE_TYPES,
     .query = "weights,strict,as,prefix," FB_ARCHIVE_QUERY},
    {.method = "GET",
     .pattern = "/v1/graphs",
     .handler = get_graphs,
     .scope = FB_SCOPE_READ,
     .query = "structure,name,limit,page_token"},
    {.method = "GET", .pattern = "/v1/graphs/{id}", .handler = get_graph, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "DELETE", .pattern = "/v1/graphs/{id}", .handler = delete_graph, .scope = FB_SCOPE_WRITE, .query = ""},
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/code",
     .handler = get_code,
     .scope = FB_SCOPE_READ,
     .query = "",
     .produces = "text/x-python"},
    {0},
};
