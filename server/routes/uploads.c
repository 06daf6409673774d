/* /v1/blobs/uploads: sessions that bring a blob's bytes in several requests, as the distribution specification of the Open
 * Container Initiative has them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

/* The specification's Range is "0-0" for nothing and for one byte; Upload-Offset distinguishes them. */
static void add_progress(fb_response *response, uint64_t size) {
    fb_response_header_format(response, "Range", "0-%" PRIu64, size ? size - 1 : 0);
    fb_response_header_format(response, "Upload-Offset", "%" PRIu64, size);
}

static void add_place(fb_response *response, const char *id, uint64_t size) {
    fb_response_header_format(response, "Location", "/v1/blobs/uploads/%s", id);
    add_progress(response, size);
}

static void respond_progress(fb_response *response, const fb_upload *upload) {
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "upload", fb_upload_id(upload));
    fb_put_int(&answer, "size", (int64_t)fb_upload_size(upload));
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, 202, &answer);
    add_place(response, fb_upload_id(upload), fb_upload_size(upload));
}

static fb_upload *open_upload(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_upload *upload = NULL;
    if (fb_upload_open(app->store, fb_request_param(request, "upload"), &upload, &error)) fb_respond_error(response, &error);
    return upload;
}

/* False when this has responded. */
static bool note(const fb_request *request, fb_response *response, const fb_upload *upload, const char *action) {
    fb_error error = {0};
    fb_store_actor by = fb_actor_of(request);
    fb_status status = fb_upload_audit(upload, action, &by, &error);
    if (status) fb_respond_error(response, &error);
    return !status;
}

/* ---- POST --------------------------------------------------------------------------------------------------------------- */

static bool begin_upload(const fb_request *request, fb_response *response, uint64_t size, void **state) {
    const fb_app *app = request->context;
    const char *digest = fb_request_query(request, "digest");
    fb_error error = {0};
    fb_upload *upload;
    (void)size;
    if (digest && !fb_check_digest(response, "digest", digest)) return false;
    fb_status status = fb_upload_new(app->store, !digest, &upload, &error);
    if (status) fb_respond_error(response, &error);
    else *state = upload;
    return !status;
}

static bool write_upload(void *upload, const char *bytes, size_t size, fb_response *response) {
    if (!*fb_upload_id(upload)) return fb_upload_sink_write(upload, bytes, size, response);
    return fb_refuse_parameter(response, "digest", "missing-parameter",
                               "say which blob the bytes are, ?digest=sha256:…; or send none, and PATCH them to the Location");
}

static const fb_sink new_upload_sink = {.begin = begin_upload, .write = write_upload, .abandon = fb_upload_sink_abandon};

static void post_upload(const fb_request *request, fb_response *response) {
    fb_upload *upload = request->body_state;
    const char *digest = fb_request_query(request, "digest");
    if (digest) {
        fb_respond_uploaded_take(request, response, upload, digest);
    } else {
        bool is_noted = note(request, response, upload, "upload-create");
        if (is_noted) respond_progress(response, upload);
        fb_upload_close(upload, !is_noted);
    }
}

/* ---- PATCH and PUT ------------------------------------------------------------------------------------------------------ */

/* The part of an upload that one request brings. */
typedef struct part {
    const fb_request *request;
    fb_upload *upload;
    uint64_t size; /* that Content-Range says; FB_SIZE_UNKNOWN without it */
    uint64_t received;
} part;

static bool refuse_range(fb_response *response) {
    fb_respond_problem(response, 400, "bad-content-range",
                       "Content-Range is START-END, the positions of the body's first and last byte in the upload");
    return false;
}

static bool read_position(const char **at, uint64_t *out) {
    if (**at < '0' || **at > '9') return false;
    char *end;
    *out = strtoull(*at, &end, 10);
    bool fits = end - *at <= 18;
    *at = end;
    return fits;
}

/* "0-99", and as HTTP spells it: "bytes 0-99/100". */
static bool read_range(const char *text, uint64_t *start, uint64_t *size) {
    uint64_t end, whole;
    if (strncmp(text, "bytes ", 6) == 0) text += 6;
    if (!read_position(&text, start) || *text++ != '-' || !read_position(&text, &end) || end < *start) return false;
    *size = end - *start + 1;
    if (strcmp(text, "/*") == 0) return true;
    return !*text || (*text++ == '/' && read_position(&text, &whole) && !*text && end < whole);
}

static bool refuse_start(fb_response *response, const fb_upload *upload) {
    fb_respond_problem(response, 416, "out-of-order", "the upload has %" PRIu64 " bytes: that is where the next part begins",
                       fb_upload_size(upload));
    add_progress(response, fb_upload_size(upload));
    return false;
}

static bool begin_part(const fb_request *request, fb_response *response, uint64_t size, void **state) {
    const char *range = fb_request_header(request, "Content-Range");
    uint64_t start = 0;
    part made = {.request = request, .size = FB_SIZE_UNKNOWN};
    if (range && !read_range(range, &start, &made.size)) return refuse_range(response);
    if (range && size != FB_SIZE_UNKNOWN && size != made.size) return refuse_range(response);
    made.upload = open_upload(request, response);
    if (!made.upload) return false;
    if (range && start != fb_upload_size(made.upload)) {
        refuse_start(response, made.upload);
        fb_upload_close(made.upload, false);
        return false;
    }
    part *kept = malloc(sizeof *kept);
    if (kept) {
        *kept = made;
        *state = kept;
    } else {
        fb_respond_no_memory(response);
        fb_upload_close(made.upload, false);
    }
    return kept != NULL;
}

static bool write_part(void *state, const char *bytes, size_t size, fb_response *response) {
    part *at = state;
    if (size > at->size - at->received) return refuse_range(response);
    at->received += size;
    return fb_upload_sink_write(at->upload, bytes, size, response);
}

static void abandon_part(void *state) {
    part *at = state; /* what has come stays */
    fb_store_actor by = fb_actor_of(at->request);
    if (at->received) fb_upload_audit(at->upload, "upload-part", &by, NULL);
    fb_upload_close(at->upload, false);
    free(at);
}

static const fb_sink part_sink = {.begin = begin_part, .write = write_part, .abandon = abandon_part};

/* The upload, with all of the part; NULL when it responded. */
static fb_upload *take_part(const fb_request *request, fb_response *response) {
    part *at = request->body_state;
    fb_upload *upload = at->upload;
    bool is_whole = at->size == FB_SIZE_UNKNOWN || at->received == at->size;
    bool is_noted = !at->received || note(request, response, upload, "upload-part");
    free(at);
    if (is_whole && is_noted) return upload;
    if (is_noted) refuse_range(response);
    fb_upload_close(upload, false);
    return NULL;
}

static void patch_upload(const fb_request *request, fb_response *response) {
    fb_upload *upload = take_part(request, response);
    fb_error error = {0};
    if (!upload) return;
    if (fb_upload_sync(upload, &error)) fb_respond_error(response, &error);
    else respond_progress(response, upload);
    fb_upload_close(upload, false);
}

static bool check_digest_given(const fb_request *request, fb_response *response) {
    const char *digest = fb_request_query(request, "digest");
    if (digest) return fb_check_digest(response, "digest", digest);
    return fb_refuse_parameter(response, "digest", "missing-parameter", "say which blob the bytes are: ?digest=sha256:…");
}

static bool begin_last_part(const fb_request *request, fb_response *response, uint64_t size, void **state) {
    return check_digest_given(request, response) && begin_part(request, response, size, state);
}

static const fb_sink last_part_sink = {.begin = begin_last_part, .write = write_part, .abandon = abandon_part};

static void put_upload(const fb_request *request, fb_response *response) {
    fb_upload *upload = take_part(request, response);
    if (upload) fb_respond_uploaded_take(request, response, upload, fb_request_query(request, "digest"));
}

/* ---- the others --------------------------------------------------------------------------------------------------------- */

static void get_upload(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const char *id = fb_request_param(request, "upload");
    fb_error error = {0};
    uint64_t size = 0;
    if (fb_upload_look(app->store, id, &size, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    fb_respond_empty(response, 204);
    add_place(response, id, size);
}

static void delete_upload(const fb_request *request, fb_response *response) {
    fb_upload *upload = open_upload(request, response);
    if (!upload) return;
    bool is_noted = note(request, response, upload, "upload-delete");
    fb_upload_close(upload, is_noted);
    if (is_noted) fb_respond_empty(response, 204);
}

const fb_route fb_upload_routes[] = {
    {.method = "POST",
     .pattern = "/v1/blobs/uploads",
     .handler = post_upload,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .consumes = "*",
     .sink = &new_upload_sink,
     .query = "digest"},
    {.method = "GET", .pattern = "/v1/blobs/uploads/{upload}", .handler = get_upload, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "PATCH",
     .pattern = "/v1/blobs/uploads/{upload}",
     .handler = patch_upload,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .consumes = "*",
     .sink = &part_sink,
     .query = ""},
    {.method = "PUT",
     .pattern = "/v1/blobs/uploads/{upload}",
     .handler = put_upload,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .consumes = "*",
     .sink = &last_part_sink,
     .query = "digest"},
    {.method = "DELETE",
     .pattern = "/v1/blobs/uploads/{upload}",
     .handler = delete_upload,
     .scope = FB_SCOPE_WRITE,
     .query = ""},
    {0},
};
