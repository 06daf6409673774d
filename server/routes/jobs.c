/* /v1/jobs, and requests with Prefer: respond-async: what is answered later. */
#include "server/jobs/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "server/graphs/graphs.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

#define GRAPHS_MAX 10000

/* ---- as JSON ------------------------------------------------------------------------------------------------------------ */

static void write_job(const fb_app *app, const fb_store_job *job, fb_buffer *out) {
    fb_buffer progress = {0};
    if (app->jobs && !fb_job_is_finished(job->state)) fb_jobs_write_progress(app->jobs, job->id, &progress);
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "id", job->id);
    fb_put_text(out, "state", fb_job_state_name(job->state));
    fb_put_text(out, "method", job->method);
    fb_put_text(out, "target", job->target);
    fb_put_text(out, "principal", job->principal);
    fb_put_text(out, "request", job->request);
    fb_put_time(out, "created", job->created);
    if (job->started) fb_put_time(out, "started", job->started);
    if (job->finished) fb_put_time(out, "finished", job->finished);
    fb_put_int(out, "attempts", job->attempts);
    if (job->is_unwanted) fb_put_bool(out, "cancelling", !fb_job_is_finished(job->state));
    const char *text = progress.size ? fb_buffer_text(&progress) : job->progress;
    if (text) {
        fb_put_name(out, "progress");
        fb_buffer_string(out, text);
    }
    if (job->status) {
        fb_put_int(out, "status", job->status);
        fb_put_name(out, "result");
        fb_buffer_printf(out, "\"/v1/jobs/%s/result\"", job->id);
    }
    if (job->location) fb_put_text(out, "location", job->location);
    if (job->is_run_gone) fb_put_bool(out, "run_removed", true);
    fb_buffer_char(out, '}');
    out->failed |= progress.failed;
    fb_buffer_free(&progress);
}

static void respond_job(const fb_app *app, fb_response *response, int status, const fb_store_job *job) {
    fb_buffer answer = {0};
    write_job(app, job, &answer);
    fb_respond_json_buffer_take(response, status, &answer);
}

/* ---- a new one ---------------------------------------------------------------------------------------------------------- */

static void respond_added(fb_response *response, const fb_store_job *job, const char *location, fb_buffer *text) {
    fb_respond_json_buffer_take(response, 202, text);
    fb_response_header(response, "Location", location);
    fb_response_header_format(response, "Link", "</v1/jobs/%s/events>; rel=\"monitor\"", job->id);
}

/* A job that makes this request. */
static void add_job(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_store_job job = {.principal = request->principal,
                        .request = request->id,
                        .method = request->method,
                        .target = fb_request_target(request),
                        .content_type = request->content_type};
    fb_error error = {0};
    fb_repeat repeat;
    fb_buffer text = {0};
    char location[64];
    if (!fb_repeat_begin(request, response, &repeat)) return;
    fb_status status = fb_store_new_job(app->store, &job, &error);
    snprintf(location, sizeof location, "/v1/jobs/%s", job.id);
    write_job(app, &job, &text);
    if (!status && text.failed) status = fb_fail_memory(&error);
    const fb_store_answer *answer = fb_repeat_answer(&repeat, 202, location, text.data, text.size);
    if (!status) status = fb_jobs_add(app->jobs, &job, request->body, request->body_size, answer, &error);
    fb_repeat_end(&repeat);
    if (!status) {
        respond_added(response, &job, location, &text);
        return;
    }
    fb_respond_error(response, &error);
    if (!strcmp(error.code, "too-many-jobs")) fb_response_header(response, "Retry-After", "5");
    fb_buffer_free(&text);
}

bool fb_defer_request(const fb_request *request, fb_response *response, bool is_preferred) {
    const fb_app *app = request->context;
    if (!fb_repeat_check_key(request, response)) return true;
    if (!is_preferred || !app->jobs || fb_is_archive_request(request)) return false; /* a job keeps a body, not a file */
    add_job(request, response);
    if (fb_response_status(response) == 202) fb_response_header(response, "Preference-Applied", "respond-async");
    return true;
}

/* ---- POST /v1/jobs ------------------------------------------------------------------------------------------------------ */

static bool is_id(const char *text) {
    static const char prefix[] = "sha256:";
    return text && strlen(text) == FB_ID_LENGTH && !strncmp(text, prefix, strlen(prefix)) &&
           strspn(text + strlen(prefix), FB_ID_DIGITS) == FB_ID_LENGTH - strlen(prefix);
}

static bool check_graphs(fb_response *response, const json_t *graphs) {
    size_t count = json_array_size(graphs);
    if (!json_is_array(graphs) || !count || count > GRAPHS_MAX) {
        fb_respond_problem(response, 422, graphs ? "wrong-type" : "missing-member", "graphs is a list of 1 to %d ids of graphs",
                           GRAPHS_MAX);
        fb_problem_pointer(response, "/graphs");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_id(json_string_value(json_array_get(graphs, i)))) continue;
        char pointer[40];
        snprintf(pointer, sizeof pointer, "/graphs/%zu", i);
        return fb_refuse_member(response, "bad-id", pointer, "this is not the id of a graph, \"sha256:\" and 64 hex digits");
    }
    return true;
}

/* Checks the members that are sent for every graph, with the first graph, so that faults are known now. */
static bool check_rest(const fb_request *request, fb_response *response, const json_t *members) {
    json_t *body = json_copy((json_t *)(uintptr_t)members);
    const json_t *first = json_array_get(json_object_get(members, "graphs"), 0);
    bool ok = body && !json_object_del(body, "graphs") && !json_object_set_new(body, "graph", json_deep_copy(first));
    char *text = ok ? json_dumps(body, JSON_COMPACT) : NULL;
    fb_request one = *request;
    fb_error error = {0};
    fb_run_request asked = {0};
    fb_composition composition = {0};
    fb_pass_library library = fb_pass_library_of(request->context);
    fb_status status = text ? FB_OK : fb_fail_memory(&error);
    if (text) one.body = text, one.body_size = strlen(text);
    if (!status)
        status =
            fb_run_request_read(&one, FB_TAKES_GRAPH | FB_TAKES_LINT | FB_TAKES_WEIGHTS | FB_TAKES_VALIDATION, &asked, &error);
    if (!status && !asked.passes)
        status = fb_fail(&error, FB_INVALID, "missing-member", "/passes", "the request needs a list of passes");
    if (!status && asked.includes)
        status = fb_fail(&error, FB_INVALID, "unknown-option-value", "/options/include",
                         "a job over many graphs gives runs, from which the rest can be fetched");
    if (!status)
        status = fb_composition_read_request(asked.assume, asked.assume_pointer, asked.passes, asked.passes_pointer, &library,
                                             &composition, &error);
    if (status) fb_respond_request_error(response, &error);
    fb_composition_free(&composition);
    fb_run_request_free(&asked);
    free(text);
    json_decref(body);
    return !status;
}

static void post_job(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"graphs", "passes", "options", "note", "labels", NULL};
    const fb_app *app = request->context;
    fb_request_body body;
    if (!app->jobs) {
        fb_respond_problem(response, 503, "no-jobs", "only a service that runs does jobs");
        return;
    }
    if (!fb_body_read(request, response, known, &body)) return;
    bool ok = check_graphs(response, json_object_get(body.members, "graphs")) && check_rest(request, response, body.members);
    fb_request_body_free(&body);
    if (ok) add_job(request, response);
}

/* ---- GET ---------------------------------------------------------------------------------------------------------------- */

static bool read_state(const fb_request *request, fb_response *response, int *state) {
    const char *name = fb_request_query(request, "state");
    *state = -1;
    for (int i = 0; name && i < FB_JOB_STATES; i++)
        if (!strcmp(name, fb_job_state_name((fb_job_state)i))) *state = i;
    return !name || *state >= 0 ||
           fb_refuse_parameter(response, "state", "bad-parameter",
                               "a job's state is queued, running, succeeded, failed or cancelled");
}

static void get_jobs(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_jobs list;
    int state;
    if (!read_state(request, response, &state) || !fb_page_read(request, response, &page)) return;
    if (fb_store_list_jobs(app->store, state, &page, &list, &error)) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list.count; i++) write_job(app, &list.items[i], &answer);
    fb_respond_items_take(response, &answer, list.next_token);
    FB_STORE_FREE(&list);
}

/* The job of the path; false when this has responded. */
static bool find_job(const fb_request *request, fb_response *response, fb_store_job *job) {
    const fb_app *app = request->context;
    fb_error error = {0};
    if (!fb_store_get_job(app->store, fb_request_param(request, "job"), job, &error)) return true;
    fb_respond_error(response, &error);
    return false;
}

static void get_job(const fb_request *request, fb_response *response) {
    fb_store_job job;
    if (!find_job(request, response, &job)) return;
    respond_job(request->context, response, 200, &job);
    FB_STORE_FREE(&job);
}

/* The ids of the items' runs as a JSON array, with null for an item without one; NULL when memory is out. */
static char *list_runs(const json_t *items) {
    json_t *ids = json_array(), *item;
    size_t i;
    bool ok = ids != NULL;
    json_array_foreach(items, i, item) {
        json_t *run = json_object_get(item, "run");
        ok = ok && json_array_append_new(ids, run ? json_incref(run) : json_null()) == 0;
    }
    char *text = ok ? json_dumps(ids, JSON_COMPACT) : NULL;
    json_decref(ids);
    return text;
}

/* Says of each graph's run whether retention has removed it since. */
static fb_status mark_removed(const fb_app *app, json_t *result, fb_error *error) {
    json_t *items = json_object_get(result, "items");
    size_t count = json_array_size(items);
    char *ids = list_runs(items);
    bool *is_missing = calloc(count + 1, sizeof *is_missing), ok = ids && is_missing;
    fb_status status = ok ? fb_store_missing_runs(app->store, ids, count, is_missing, error) : fb_fail_memory(error);
    for (size_t i = 0; i < count && !status; i++) {
        bool is_told = !is_missing[i] || json_object_set_new(json_array_get(items, i), "removed", json_true()) == 0;
        if (!is_told) status = fb_fail_memory(error);
    }
    free(is_missing);
    free(ids);
    return status;
}

static void respond_batch(const fb_app *app, fb_response *response, const fb_store_job *job, const char *bytes, size_t size) {
    fb_error error = {0};
    json_t *result = json_loadb(bytes, size, 0, NULL);
    fb_status status = result ? mark_removed(app, result, &error) : fb_fail_memory(&error);
    if (!status) {
        fb_respond_json_take(response, job->status, result);
        return;
    }
    fb_respond_error(response, &error);
    json_decref(result);
}

static void respond_removed(fb_response *response, const fb_store_job *job) {
    fb_respond_problem(response, 410, "run-removed", "retention has removed the run that this job made: %s", job->location);
}

static void respond_result(const fb_app *app, fb_response *response, const fb_store_job *job) {
    char *bytes = NULL;
    size_t size = 0;
    fb_error error = {0};
    if (fb_store_get_job_result(app->store, job->id, &bytes, &size, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    if (!strcmp(job->target, FB_JOBS_TARGET) && job->status == 200) {
        respond_batch(app, response, job, bytes, size);
        free(bytes);
        return;
    }
    fb_respond_bytes(response, job->status, job->result_type, bytes, size, free, bytes);
    if (job->location) fb_response_header(response, "Location", job->location);
}

static void get_job_result(const fb_request *request, fb_response *response) {
    fb_store_job job;
    if (!find_job(request, response, &job)) return;
    if (job.is_run_gone) {
        respond_removed(response, &job);
    } else if (job.status) {
        respond_result(request->context, response, &job);
    } else if (job.state == FB_JOB_CANCELLED) {
        fb_respond_problem(response, 409, "job-cancelled", "the job was cancelled: it has no result");
    } else {
        fb_respond_problem(response, 409, "job-not-finished", "the job is %s: it has no result yet",
                           fb_job_state_name(job.state));
        fb_response_header(response, "Retry-After", "1");
    }
    FB_STORE_FREE(&job);
}

/* ---- DELETE ------------------------------------------------------------------------------------------------------------- */

static void delete_job(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const char *id = fb_request_param(request, "job");
    fb_store_job job;
    fb_error error = {0};
    fb_store_actor by = fb_actor_of(request);
    fb_status status =
        app->jobs ? fb_jobs_cancel(app->jobs, id, &by, &error) : fb_store_cancel_job(app->store, id, &by, &error);
    if (status && status != FB_CONFLICT) {
        fb_respond_error(response, &error);
        return;
    }
    if (!find_job(request, response, &job)) return;
    /* To cancel what is cancelled is not a fault. */
    if (status && job.state != FB_JOB_CANCELLED) fb_respond_error(response, &error);
    else respond_job(app, response, job.state == FB_JOB_CANCELLED ? 200 : 202, &job);
    FB_STORE_FREE(&job);
}

/* ---- GET …/events ------------------------------------------------------------------------------------------------------- */

static bool read_last_event(const fb_request *request, fb_response *response, int64_t *after) {
    const char *seen = fb_request_header(request, "Last-Event-ID");
    size_t digits = seen ? strspn(seen, "0123456789") : 0;
    *after = 0;
    if (!seen) return true;
    if (digits && digits < 19 && !seen[digits]) {
        *after = strtoll(seen, NULL, 10);
        return true;
    }
    fb_respond_problem(response, 422, "bad-last-event-id", "Last-Event-ID must be a number: the id of an event");
    return false;
}

static void get_job_events(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_store_job job;
    fb_error error = {0};
    fb_follower *follower = NULL;
    int64_t after;
    fb_status status = app->jobs ? FB_OK : fb_fail(&error, FB_BUSY, "no-jobs", NULL, "only a service that runs does jobs");
    if (!read_last_event(request, response, &after)) return;
    bool is_known_to_end = false, is_last_look = false; /* one that ended since it was looked up is looked up again */
    for (; !status && !follower && !is_known_to_end; is_last_look = true) {
        if (!find_job(request, response, &job)) return;
        is_known_to_end = fb_job_is_finished(job.state);
        status = fb_jobs_follow(app->jobs, &job, after, is_last_look, &follower, &error);
        FB_STORE_FREE(&job);
    }
    if (status) {
        fb_respond_error(response, &error);
    } else if (!follower) {
        fb_respond_empty(response, 204); /* so that it does not come back */
    } else {
        fb_response_header(response, "X-Accel-Buffering", "no"); /* nginx would hold events back */
        fb_respond_stream(request, response, "text/event-stream", &fb_follower_source, follower);
    }
}

const fb_route fb_job_routes[] = {
    {.method = "POST",
     .pattern = "/v1/jobs",
     .handler = post_job,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "GET", .pattern = "/v1/jobs", .handler = get_jobs, .scope = FB_SCOPE_READ, .query = "state,limit,page_token"},
    {.method = "GET", .pattern = "/v1/jobs/{job}", .handler = get_job, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "DELETE", .pattern = "/v1/jobs/{job}", .handler = delete_job, .scope = FB_SCOPE_WRITE, .query = ""},
    {.method = "GET",
     .pattern = "/v1/jobs/{job}/result",
     .handler = get_job_result,
     .scope = FB_SCOPE_READ,
     .produces = "application/json,application/octet-stream",
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/jobs/{job}/events",
     .handler = get_job_events,
     .scope = FB_SCOPE_READ,
     .produces = "text/event-stream",
     .query = ""},
    {0},
};
