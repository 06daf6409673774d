/* /v1/blobs: immutable bytes by their digest. */
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

#define MISSING_MAX 10000 /* digests asked for at once */

/* ---- PUT ---------------------------------------------------------------------------------------------------------------- */

static bool begin_blob(const fb_request *request, fb_response *response, uint64_t size, void **state) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_upload *upload;
    (void)size;
    if (!fb_check_digest(response, "digest", fb_request_param(request, "digest"))) return false;
    fb_status status = fb_upload_new(app->store, false, &upload, &error);
    if (status) fb_respond_error(response, &error);
    else *state = upload;
    return !status;
}

static const fb_sink blob_sink = {.begin = begin_blob, .write = fb_upload_sink_write, .abandon = fb_upload_sink_abandon};

static void put_blob(const fb_request *request, fb_response *response) {
    fb_respond_uploaded_take(request, response, request->body_state, fb_request_param(request, "digest"));
}

/* ---- GET ---------------------------------------------------------------------------------------------------------------- */

static fb_status read_blob(void *state, uint64_t offset, void *to, size_t size, fb_error *error) {
    return fb_blob_read(state, offset, to, size, error);
}

static void release_blob(void *state) {
    fb_blob_close(state);
}

bool fb_respond_blob_bytes(const fb_request *request, fb_response *response, const char *digest) {
    static const fb_pull_source source = {.read = read_blob, .release = release_blob};
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_blob *blob;
    fb_status status = fb_blob_open(app->store, digest, &blob, &error);
    if (!status && fb_request_header(request, "Range")) {
        status = fb_blob_verify_once(blob, fb_request_watch(request), &error);
        if (status) fb_blob_close(blob);
    }
    if (status) {
        fb_respond_error(response, &error);
        return false;
    }
    fb_response_etag(response, digest);
    fb_respond_pulled(request, response, "application/octet-stream", fb_blob_size(blob), &source, blob);
    return true;
}

/* A client that has the blob, or a part of it, names our ETag, which the bucket does not know. HEAD is answered here: the URL
 * is signed for GET. "Prefer: no-redirect" is for clients that cannot reach the bucket. */
static bool stays_here(const fb_request *request) {
    const char *preference = fb_request_header(request, "Prefer");
    return request->is_head || fb_request_header(request, "If-None-Match") || fb_request_header(request, "If-Range") ||
           fb_request_header(request, "If-Match") || fb_request_header(request, "If-Unmodified-Since") ||
           (preference && strstr(preference, "no-redirect"));
}

/* The bytes come from the bucket, past the service. True when this has responded. */
static bool send_elsewhere(const fb_request *request, fb_response *response, const char *digest) {
    const fb_app *app = request->context;
    fb_error error = {0};
    char *url = NULL;
    if (stays_here(request)) return false;
    if (fb_blob_url(app->store, digest, &url, &error)) {
        fb_respond_error(response, &error);
        return true;
    }
    if (!url) return false;
    fb_respond_empty(response, 307);
    fb_response_header(response, "Location", url);
    fb_response_header(response, "Cache-Control", "no-store");
    free(url);
    return true;
}

static void get_blob(const fb_request *request, fb_response *response) {
    const char *digest = fb_request_param(request, "digest");
    if (fb_check_digest(response, "digest", digest) && !send_elsewhere(request, response, digest) &&
        fb_respond_blob_bytes(request, response, digest))
        fb_response_header(response, "Cache-Control", "public, max-age=31536000, immutable");
}

/* ---- lists -------------------------------------------------------------------------------------------------------------- */

static void write_row(const fb_blob_row *row, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "digest", row->digest);
    fb_put_int(out, "size", (int64_t)row->size);
    fb_put_time(out, "created", row->created);
    fb_put_time(out, "used", row->used);
    fb_put_int(out, "graphs", (int64_t)row->graphs);
    fb_buffer_char(out, '}');
}

static void get_blobs(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_blob_rows list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_blobs_list(app->store, &page, &list, &error)) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list.count; i++) write_row(&list.items[i], &answer);
    fb_respond_items_take(response, &answer, list.next_token);
    FB_STORE_FREE(&list);
}

/* ---- which are missing -------------------------------------------------------------------------------------------------- */

/* Each digest that was asked for, once, in that order. */
typedef struct question {
    const char **digests; /* borrowed from the body */
    bool *is_missing;
    size_t count;
} question;

static void free_question(question *asked) {
    free(asked->digests);
    free(asked->is_missing);
}

static bool refuse_digest(fb_response *response, size_t index, bool is_text) {
    char pointer[40];
    snprintf(pointer, sizeof pointer, "/digests/%zu", index);
    return fb_refuse_member(response, is_text ? "bad-digest" : "wrong-type", pointer,
                            "a digest is \"sha256:\" and 64 lower-case hex digits");
}

/* Into room that has been made. */
static bool add_digests(fb_response *response, const json_t *list, json_t *seen, question *out) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *digest = json_string_value(item);
        if (!digest || !fb_is_sha256_id(digest)) return refuse_digest(response, i, digest != NULL);
        if (json_object_get(seen, digest)) continue;
        if (json_object_set_new(seen, digest, json_true())) return fb_respond_no_memory(response);
        out->digests[out->count++] = digest;
    }
    return true;
}

static bool read_question(fb_response *response, const json_t *list, question *out) {
    if (!list) return fb_refuse_member(response, "missing-member", "/digests", "the request needs digests");
    if (!json_is_array(list)) return fb_refuse_member(response, "wrong-type", "/digests", "digests is an array");
    size_t count = json_array_size(list);
    if (count > MISSING_MAX) {
        fb_respond_problem(response, 413, "too-many-digests", "%zu digests; ask for %d at most at once", count, MISSING_MAX);
        fb_problem_pointer(response, "/digests");
        return false;
    }
    json_t *seen = json_object();
    out->digests = calloc(count + 1, sizeof *out->digests);
    out->is_missing = calloc(count + 1, sizeof *out->is_missing);
    bool has_room = seen && out->digests && out->is_missing;
    bool is_read = has_room ? add_digests(response, list, seen, out) : fb_respond_no_memory(response);
    json_decref(seen);
    return is_read;
}

static void answer_question(const fb_request *request, fb_response *response, const question *asked) {
    const fb_app *app = request->context;
    fb_error error = {0};
    if (fb_blobs_missing(app->store, asked->digests, asked->count, asked->is_missing, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    fb_buffer answer = {0};
    fb_buffer_string(&answer, "{\"missing\":[");
    for (size_t i = 0; i < asked->count; i++) {
        if (!asked->is_missing[i]) continue;
        fb_put_comma(&answer);
        fb_buffer_json_string(&answer, asked->digests[i], FB_ID_LENGTH);
    }
    fb_buffer_string(&answer, "]}");
    fb_respond_json_buffer_take(response, 200, &answer);
}

static void post_missing_blobs(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"digests", NULL};
    fb_request_body body;
    question asked = {0};
    if (!fb_body_read(request, response, known, &body)) return;
    if (read_question(response, json_object_get(body.members, "digests"), &asked)) answer_question(request, response, &asked);
    free_question(&asked);
    fb_request_body_free(&body);
}

/* ---- what uploads answer, too -------------------------------------------------------------------------------------------- */

bool fb_check_digest(fb_response *response, const char *name, const char *digest) {
    return fb_is_sha256_id(digest) ||
           fb_refuse_parameter(response, name, "bad-digest", "a digest is \"sha256:\" and 64 lower-case hex digits");
}

static void respond_blob(fb_response *response, const fb_upload *upload, const char *digest, bool is_new) {
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "digest", digest);
    fb_put_int(&answer, "size", (int64_t)fb_upload_size(upload));
    fb_put_time(&answer, "created", fb_upload_created(upload));
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, is_new ? 201 : 200, &answer);
    fb_response_header_format(response, "Location", "/v1/blobs/%s", digest);
}

void fb_respond_uploaded_take(const fb_request *request, fb_response *response, fb_upload *upload, const char *digest) {
    fb_error error = {0};
    fb_store_actor by = fb_actor_of(request);
    char found[FB_ID_LENGTH + 1];
    bool is_new = false;
    fb_status status = fb_upload_finish(upload, digest, &by, found, &is_new, &error);
    if (status) fb_respond_error(response, &error);
    else respond_blob(response, upload, found, is_new);
    fb_upload_close(upload, false);
}

bool fb_upload_sink_write(void *upload, const char *bytes, size_t size, fb_response *response) {
    fb_error error = {0};
    fb_status status = fb_upload_write(upload, bytes, size, &error);
    if (status) fb_respond_error(response, &error);
    return !status;
}

void fb_upload_sink_abandon(void *upload) {
    fb_upload_close(upload, true);
}

const fb_route fb_blob_routes[] = {
    {.method = "GET", .pattern = "/v1/blobs", .handler = get_blobs, .scope = FB_SCOPE_READ, .query = "limit,page_token"},
    {.method = "POST",
     .pattern = "/v1/blobs/missing",
     .handler = post_missing_blobs,
     .scope = FB_SCOPE_READ,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "PUT",
     .pattern = "/v1/blobs/{digest}",
     .handler = put_blob,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .consumes = "*",
     .sink = &blob_sink,
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/blobs/{digest}",
     .handler = get_blob,
     .scope = FB_SCOPE_READ,
     .produces = "application/octet-stream",
     .query = ""},
    {0},
};
