/* GET /v1/graphs/{id}/weights and POST /v1/graphs/{id}/materialize: one safetensors file of what a graph's modules own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/members.h"
#include "server/routes/actor.h"
#include "server/routes/body_members.h"
#include "server/routes/routes.h"
#include "server/routes/weights_open.h"

/* ---- GET …/weights ------------------------------------------------------------------------------------------------------ */

static fb_status read_file(void *state, uint64_t offset, void *to, size_t size, fb_error *error) {
    fb_open_weights *weights = state;
    return fb_weights_file_read(weights->file, offset, to, size, error);
}

static void release_file(void *state) {
    fb_open_weights_free(state);
}

static bool make_tag(const char *id, const fb_weights_wanted *wanted, char tag[FB_ID_LENGTH + 1]) {
    size_t count = 2 + wanted->count;
    const char **what = calloc(count, sizeof *what);
    if (!what) return false;
    what[0] = wanted->names ? "these" : "all";
    what[1] = wanted->with_tied ? "each" : "first";
    for (size_t i = 0; i < wanted->count; i++) what[2 + i] = wanted->names[i];
    bool ok = fb_bytes_tag(id, what, count, tag);
    free(what);
    return ok;
}

/* The graph's name as far as it can be a file's. */
static void name_attachment(fb_response *response, const char *name) {
    char safe[101];
    fb_copy_text(safe, sizeof safe, *name ? name : "weights");
    for (char *c = safe; *c; c++) {
        bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (!is_plain && !strchr("._-", *c)) *c = '_';
    }
    fb_response_header_format(response, "Content-Disposition", "attachment; filename=\"%s.safetensors\"", safe);
}

static void respond_file(const fb_request *request, fb_response *response, fb_shared_graph *shared, fb_weights_wanted *wanted) {
    static const fb_pull_source source = {.read = read_file, .release = release_file};
    char tag[FB_ID_LENGTH + 1];
    fb_error error = {0};
    bool is_tagged = make_tag(shared->id, wanted, tag);
    if (!is_tagged || fb_request_has_etag(request, tag)) {
        if (!is_tagged) fb_respond_error(response, (fb_fail_memory(&error), &error));
        else fb_respond_empty(response, 304);
        if (is_tagged) fb_response_etag(response, tag);
        fb_share_release(shared);
        fb_weights_wanted_free(wanted);
        return;
    }
    fb_open_weights *weights = fb_open_weights_take(request, response, shared, wanted);
    if (!weights) return;
    fb_response_etag(response, tag);
    name_attachment(response, fb_graph_name(weights->shared->graph));
    fb_respond_pulled(request, response, "application/octet-stream", fb_weights_file_size(weights->file), &source, weights);
}

void fb_get_weights(const fb_request *request, fb_response *response) {
    fb_weights_wanted wanted;
    fb_error error = {0};
    fb_shared_graph *shared;
    if (!fb_weights_wanted_query(request, response, &wanted)) return;
    if (fb_load_graph(request->context, fb_request_watch(request), fb_request_param(request, "id"), &shared, &error)) {
        fb_respond_error(response, &error);
        fb_weights_wanted_free(&wanted);
        return;
    }
    respond_file(request, response, shared, &wanted);
}

/* ---- POST …/materialize ------------------------------------------------------------------------------------------------- */

#define PART ((size_t)1 << 20)

/* Writes the file into an upload; a blob of it is durable afterwards. */
static fb_status write_blob(const fb_request *request, fb_weights_file *file, fb_upload *upload, char digest[FB_ID_LENGTH + 1],
                            bool *is_new, fb_error *error) {
    const fb_watch *watch = fb_request_watch(request);
    fb_store_actor by = fb_actor_of(request);
    uint64_t size = fb_weights_file_size(file);
    unsigned char *part = malloc(PART);
    fb_status status = part ? FB_OK : fb_fail_memory(error);
    for (uint64_t at = 0; at < size && !status;) {
        size_t now = size - at < PART ? (size_t)(size - at) : PART;
        status = fb_watch_check(watch, error);
        if (!status) status = fb_weights_file_read(file, at, part, now, error);
        if (!status) status = fb_upload_write(upload, part, now, error);
        at += now;
    }
    free(part);
    return status ? status : fb_upload_finish(upload, NULL, &by, digest, is_new, error);
}

static void materialize(const fb_request *request, fb_response *response, fb_open_weights *weights) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_upload *upload = NULL;
    char digest[FB_ID_LENGTH + 1];
    bool is_new = false;
    fb_status status = fb_upload_new(app->store, false, &upload, &error);
    if (!status) status = write_blob(request, weights->file, upload, digest, &is_new, &error);
    fb_upload_close(upload, status != FB_OK);
    if (status) {
        fb_respond_unreadable(response, &error, NULL);
        return;
    }
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "blob", digest);
    fb_put_int(&answer, "size", (int64_t)fb_weights_file_size(weights->file));
    fb_put_int(&answer, "tensors", (int64_t)fb_weights_file_count(weights->file));
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, is_new ? 201 : 200, &answer);
    fb_response_header_format(response, "Location", "/v1/blobs/%s", digest);
}

void fb_post_materialize(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"names", "tied", NULL};
    fb_request_body body;
    fb_weights_wanted wanted;
    fb_error error = {0};
    fb_shared_graph *shared;
    if (!fb_body_read(request, response, known, &body)) return;
    bool ok = fb_weights_wanted_body(response, body.members, &wanted);
    fb_request_body_free(&body);
    if (!ok) return;
    if (fb_load_graph(request->context, fb_request_watch(request), fb_request_param(request, "id"), &shared, &error)) {
        fb_respond_error(response, &error);
        fb_weights_wanted_free(&wanted);
        return;
    }
    fb_open_weights *weights = fb_open_weights_take(request, response, shared, &wanted);
    if (!weights) return;
    materialize(request, response, weights);
    fb_open_weights_free(weights);
}
