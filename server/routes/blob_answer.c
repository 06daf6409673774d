#include "server/routes/blob_answer.h"

#include "core/json/members.h"
#include "server/routes/actor.h"
#include "server/routes/page.h"

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
