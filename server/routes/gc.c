/* POST /v1/gc: removes old runs that nothing needs, old entries of the audit, and the blobs that nothing refers to. */
#include <math.h>

#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/graphs/graphs.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"
#include "server/store/blobs.h"

#define GRACE_MAX 3.2e9  /* seconds: a hundred years */
#define DAYS_MAX 36500.0 /* likewise */
#define RUNS_MAX 4294967295.0
#define DAY_MS ((int64_t)86400000)

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

/* A whole number, or null for no limit; false when it is something else. */
static bool read_limit(const json_t *member, double most, double *out) {
    if (!member) return true;
    *out = json_is_null(member) ? 0 : json_is_number(member) ? json_number_value(member) : -1;
    return json_is_null(member) || (*out >= 1 && *out <= most && *out == floor(*out));
}

static bool read_retention(fb_response *response, const json_t *members, fb_retention *limits) {
    double days = (double)limits->age_ms / (double)DAY_MS, count = (double)limits->count;
    double audit_days = (double)limits->audit_age_ms / (double)DAY_MS;
    if (!read_limit(json_object_get(members, "keep_runs_days"), DAYS_MAX, &days))
        return fb_refuse_member(response, "wrong-type", "/keep_runs_days", "this is a number of days from 1 to 36500, or null");
    if (!read_limit(json_object_get(members, "keep_runs"), RUNS_MAX, &count))
        return fb_refuse_member(response, "wrong-type", "/keep_runs", "this is a number of runs from 1 on, or null");
    if (!read_limit(json_object_get(members, "keep_audit_days"), DAYS_MAX, &audit_days))
        return fb_refuse_member(response, "wrong-type", "/keep_audit_days",
                                "this is a number of days from 1 to 36500, or null");
    *limits = (fb_retention){
        .age_ms = (int64_t)days * DAY_MS, .count = (uint64_t)count, .audit_age_ms = (int64_t)audit_days * DAY_MS};
    return true;
}

typedef struct cleaning {
    int64_t grace_ms;
    fb_retention limits;
    bool is_dry;
    fb_removed removed;
    fb_garbage found;
} cleaning;

static void write_limit(fb_buffer *out, const char *name, int64_t limit) {
    if (limit) {
        fb_put_int(out, name, limit);
        return;
    }
    fb_put_name(out, name);
    fb_buffer_string(out, "null");
}

static void write_runs(const cleaning *work, fb_buffer *out) {
    const fb_removed *removed = &work->removed;
    write_limit(out, "keep_runs_days", work->limits.age_ms / DAY_MS);
    write_limit(out, "keep_runs", (int64_t)work->limits.count);
    fb_put_int(out, "runs", (int64_t)removed->runs);
    fb_put_int(out, "graphs", (int64_t)removed->graphs);
    fb_put_int(out, "kept_runs", (int64_t)removed->kept_runs);
    fb_put_name(out, "run_ids");
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < removed->id_count; i++) {
        fb_put_comma(out);
        fb_buffer_json_string(out, removed->ids[i], FB_RUN_ID_LENGTH);
    }
    fb_buffer_char(out, ']');
    write_limit(out, "keep_audit_days", work->limits.audit_age_ms / DAY_MS);
    fb_put_int(out, "audit_entries", (int64_t)removed->audit_entries);
}

static void respond(fb_response *response, const cleaning *work) {
    const fb_garbage *found = &work->found;
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_bool(&answer, "dry_run", work->is_dry);
    fb_put_int(&answer, "grace_seconds", work->grace_ms / 1000);
    fb_put_int(&answer, "blobs", (int64_t)found->blobs);
    fb_put_int(&answer, "bytes", (int64_t)found->bytes);
    fb_put_int(&answer, "uploads", (int64_t)found->uploads);
    fb_put_int(&answer, "files", (int64_t)found->files);
    fb_put_int(&answer, "kept", (int64_t)found->kept);
    fb_put_int(&answer, "kept_bytes", (int64_t)found->kept_bytes);
    write_runs(work, &answer);
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, 200, &answer);
}

static void collect(const fb_request *request, fb_response *response, cleaning *work) {
    fb_error error = {0};
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    const fb_watch *watch = fb_request_watch(request);
    fb_status status = fb_retain(app, &work->limits, work->is_dry, &by, watch, &work->removed, &error);
    if (!status) status = fb_store_collect(app->store, work->grace_ms, work->is_dry, &by, watch, &work->found, &error);
    if (status) fb_respond_error(response, &error);
    else respond(response, work);
}

static void post_gc(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"dry_run", "grace_seconds", "keep_runs_days", "keep_runs", "keep_audit_days", NULL};
    const fb_app *app = request->context;
    cleaning work = {.grace_ms = app->gc_grace_ms, .limits = app->retention};
    fb_request_body body;
    if (!fb_body_read(request, response, known, &body)) return;
    if (read_grace(response, json_object_get(body.members, "grace_seconds"), &work.grace_ms) &&
        read_retention(response, body.members, &work.limits) &&
        read_dry_run(response, json_object_get(body.members, "dry_run"), &work.is_dry))
        collect(request, response, &work);
    fb_request_body_free(&body);
}

const fb_route fb_gc_routes[] = {
    {.method = "POST",
     .pattern = "/v1/gc",
     .handler = post_gc,
     .defer = fb_defer_request,
     .scope = FB_SCOPE_ADMIN,
     .body = FB_BODY_OPTIONAL,
     .query = ""},
    {0},
};
