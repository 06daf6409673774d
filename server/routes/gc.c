/* POST /v1/gc: removes the blobs that nothing refers to. */
#include <math.h>

#include "server/app.h"
#include "server/routes/actor.h"
#include "server/routes/body_members.h"
#include "server/routes/json_members.h"
#include "server/routes/routes.h"
#include "server/store/blobs.h"

#define GRACE_MAX 3.2e9 /* seconds: a hundred years */

static bool read_grace(fb_response *response, const json_t *member, int64_t *grace_ms) {
    if (!member) return true;
    double seconds = json_is_number(member) ? json_number_value(member) : -1;
    if (!(seconds >= 0 && seconds <= GRACE_MAX && seconds == floor(seconds)))
        return fb_refuse_member(response, "wrong-type", "/grace_seconds", "grace_seconds is a whole number of seconds");
    *grace_ms = (int64_t)seconds * 1000;
    return true;
}

static bool read_dry_run(fb_response *response, const json_t *member, bool *is_dry) {
    *is_dry = json_is_true(member);
    return !member || json_is_boolean(member) || fb_refuse_member(response, "wrong-type", "/dry_run", "this is true or false");
}

static void collect(const fb_request *request, fb_response *response, int64_t grace_ms, bool is_dry) {
    fb_error error = {0};
    fb_garbage found;
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    if (fb_store_collect(app->store, grace_ms, is_dry, &by, &found, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_bool(&answer, "dry_run", is_dry);
    fb_put_int(&answer, "grace_seconds", grace_ms / 1000);
    fb_put_int(&answer, "blobs", (int64_t)found.blobs);
    fb_put_int(&answer, "bytes", (int64_t)found.bytes);
    fb_put_int(&answer, "uploads", (int64_t)found.uploads);
    fb_put_int(&answer, "files", (int64_t)found.files);
    fb_put_int(&answer, "kept", (int64_t)found.kept);
    fb_put_int(&answer, "kept_bytes", (int64_t)found.kept_bytes);
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, 200, &answer);
}

void fb_post_gc(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"dry_run", "grace_seconds", NULL};
    const fb_app *app = request->context;
    int64_t grace_ms = app->gc_grace_ms;
    bool is_dry = false;
    fb_request_body body;
    if (!fb_body_read(request, response, known, &body)) return;
    if (read_grace(response, json_object_get(body.members, "grace_seconds"), &grace_ms) &&
        read_dry_run(response, json_object_get(body.members, "dry_run"), &is_dry))
        collect(request, response, grace_ms, is_dry);
    fb_request_body_free(&body);
}
