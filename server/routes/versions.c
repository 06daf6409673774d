/* /v1/models/{model}/versions: immutable names for graphs. */
#include <inttypes.h>
#include <string.h>

#include "core/json/json.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"
#include "server/store/models.h"

static void write_version(const fb_store_version *version, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "model", version->model);
    fb_put_text(out, "version", version->name);
    fb_put_text(out, "graph", version->graph);
    fb_put_text_or_null(out, "run", version->run);
    if (version->note) fb_put_text(out, "note", version->note);
    fb_put_time(out, "created", version->created);
    if (version->validation) {
        fb_put_name(out, "validation");
        fb_buffer_string(out, version->validation);
    }
    fb_buffer_char(out, '}');
}

static void respond_version(fb_response *response, int status, const fb_store_version *version) {
    fb_buffer answer = {0};
    char tag[FB_ID_LENGTH + 24];
    write_version(version, &answer);
    fb_respond_json_buffer_take(response, status, &answer);
    snprintf(tag, sizeof tag, "%s-%" PRId64, version->graph, version->created); /* one that was deleted may come again */
    fb_response_etag(response, tag);
    fb_response_identity(response); /* as for an alias */
}

/* ---- PUT ---------------------------------------------------------------------------------------------------------------- */

/* Reads the members of the body; a document is not read yet. */
static bool read_version(fb_response *response, const fb_request_body *body, fb_store_new_version *out) {
    const json_t *graph = json_object_get(body->members, "graph");
    if (graph && !json_is_string(graph))
        return fb_refuse_member(response, "wrong-type", "/graph",
                                "graph is a document (an object) or the id of one (a string)");
    if (!fb_body_text(response, body, "graph", FB_REFERENCE_MAX, &out->graph) ||
        !fb_body_text(response, body, "run", FB_REFERENCE_MAX, &out->run) ||
        !fb_body_text(response, body, "note", FB_NOTE_MAX, &out->note))
        return false;
    bool has_graph = out->graph || body->graph;
    if (has_graph && out->run)
        return fb_refuse_member(response, "graph-and-run", "/run", "a version is a graph or a run's result: give one of them");
    if (!has_graph && !out->run)
        return fb_refuse_member(response, "missing-member", "/graph", "a version needs a graph (a document or an id) or a run");
    return true;
}

static void respond_put_error(fb_response *response, const fb_error *error) {
    const char *prefix = "";
    if (strcmp(error->code, "unknown-graph") == 0) prefix = "/graph";
    if (strcmp(error->code, "unknown-run") == 0) prefix = "/run";
    fb_respond_error_at(response, prefix, error);
}

static void store_version(const fb_request *request, fb_response *response, const fb_store_new_version *version) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_version stored;
    bool is_new = false;
    if (fb_store_put_version(app->store, version, &is_new, &stored, &error)) {
        respond_put_error(response, &error);
        return;
    }
    respond_version(response, is_new ? 201 : 200, &stored);
    if (!is_new && fb_request_header(request, "If-None-Match")) fb_respond_condition_failed(response); /* made just now */
    if (is_new) fb_response_header_format(response, "Location", "/v1/models/%s/versions/%s", stored.model, stored.name);
    FB_STORE_FREE(&stored);
}

static void store_document(const fb_request *request, fb_response *response, const fb_request_body *body,
                           fb_store_new_version *version) {
    fb_app *app = request->context;
    fb_graph_input input;
    fb_graph_row row;
    fb_error error = {0};
    if (!fb_graph_input_read(request, response, body->graph, body->graph_size, body->is_document ? "" : "/graph", &input))
        return;
    uint64_t ticket = fb_cache_ticket(app->cache);
    if (fb_graph_row_make(&input, fb_request_watch(request), &row, &error)) {
        fb_respond_error(response, &error);
    } else {
        version->document = &row.graph;
        store_version(request, response, version);
        if (fb_response_status(response) < 300) fb_cache_put(app->cache, input.shared, ticket);
    }
    fb_graph_row_free(&row);
    fb_graph_input_free(&input);
}

/* A run may be older than the service's demand. On failure it has responded. */
static bool may_publish(const fb_request *request, fb_response *response, const char *run_id) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_run run;
    if (!app->requires_validation || !run_id) return true;
    if (fb_store_get_run(app->store, run_id, &run, &error)) {
        respond_put_error(response, &error);
        return false;
    }
    bool is_judged = run.validation || strcmp(run.kind, "optimize") != 0;
    FB_STORE_FREE(&run);
    if (is_judged) return true;
    fb_fail(&error, FB_INVALID, FB_VALIDATION_REQUIRED, NULL,
            "this service takes no version made by a run that was not validated: "
            "run its passes again with validate=rewrites or graph, or with inputs and a metric");
    fb_respond_error_at(response, "/run", &error);
    return false;
}

static void put_version(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"graph", "run", "note", NULL};
    fb_request_body body;
    if (!fb_check_path_name(request, response, "model") || !fb_check_path_name(request, response, "version")) return;
    fb_store_new_version version = {
        .model = fb_request_param(request, "model"), .name = fb_request_param(request, "version"), .by = fb_actor_of(request)};
    if (!fb_body_read(request, response, known, &body)) return;
    char graph[FB_EXPANDED_SIZE], run[FB_EXPANDED_SIZE];
    if (read_version(response, &body, &version) &&
        fb_expand_member(request, response, "graph", "/graph", &version.graph, graph) &&
        fb_expand_member(request, response, "run", "/run", &version.run, run)) {
        if (!may_publish(request, response, version.run)) (void)0;
        else if (body.graph) store_document(request, response, &body, &version);
        else store_version(request, response, &version);
    }
    fb_request_body_free(&body);
}

/* ---- the others --------------------------------------------------------------------------------------------------------- */

static void get_versions(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_versions list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_list_versions(app->store, fb_request_param(request, "model"), &page, &list, &error)) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list.count; i++) write_version(&list.items[i], &answer);
    fb_respond_items_take(response, &answer, list.next_token);
    FB_STORE_FREE(&list);
}

static bool find_version(const fb_request *request, fb_response *response, fb_store_version *out) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_status status =
        fb_store_get_version(app->store, fb_request_param(request, "model"), fb_request_param(request, "version"), out, &error);
    if (status) fb_respond_error(response, &error);
    return !status;
}

static void get_version(const fb_request *request, fb_response *response) {
    fb_store_version version;
    if (!find_version(request, response, &version)) return;
    respond_version(response, 200, &version);
    FB_STORE_FREE(&version);
}

static void get_version_graph(const fb_request *request, fb_response *response) {
    fb_store_version version;
    if (!find_version(request, response, &version)) return;
    if (fb_respond_graph(request, response, version.graph))
        fb_response_header_format(response, "Content-Location", "/v1/graphs/%s", version.graph);
    FB_STORE_FREE(&version);
}

static void get_version_archive(const fb_request *request, fb_response *response) {
    fb_store_version version;
    if (!find_version(request, response, &version)) return;
    if (fb_respond_archive(request, response, version.graph))
        fb_response_header_format(response, "Content-Location", "/v1/graphs/%s/archive", version.graph);
    FB_STORE_FREE(&version);
}

static void delete_version(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_actor by = fb_actor_of(request);
    fb_status status = fb_store_delete_version(app->store, fb_request_param(request, "model"),
                                               fb_request_param(request, "version"), &by, &error);
    if (status) fb_respond_error(response, &error);
    else fb_respond_empty(response, 204);
}

const fb_route fb_version_routes[] = {
    {.method = "GET",
     .pattern = "/v1/models/{model}/versions",
     .handler = get_versions,
     .scope = FB_SCOPE_READ,
     .query = "limit,page_token"},
    {.method = "PUT",
     .pattern = "/v1/models/{model}/versions/{version}",
     .handler = put_version,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/models/{model}/versions/{version}",
     .handler = get_version,
     .scope = FB_SCOPE_READ,
     .query = ""},
    {.method = "DELETE",
     .pattern = "/v1/models/{model}/versions/{version}",
     .handler = delete_version,
     .scope = FB_SCOPE_WRITE,
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/models/{model}/versions/{version}/graph",
     .handler = get_version_graph,
     .scope = FB_SCOPE_READ,
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/models/{model}/versions/{version}/archive",
     .handler = get_version_archive,
     .scope = FB_SCOPE_READ,
     .produces = "application/octet-stream",
     .query = ""},
    {0},
};
