/* One job, from start to end, and the requests that it makes. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/text.h"
#include "server/jobs/internal.h"

/* ---- the requests that a job makes --------------------------------------------------------------------------------------- */

#define TRIES 60
#define PAUSE_MS 1000

typedef struct watched {
    fb_jobs *jobs;
    fb_live_job *job;
} watched;

static fb_status check(void *context, fb_error *error) {
    const watched *w = context;
    if (atomic_load(&w->job->is_unwanted)) return fb_fail(error, FB_BUSY, "cancelled", NULL, "the job was cancelled");
    if (atomic_load(&w->jobs->is_stopping)) return fb_fail(error, FB_BUSY, "stopping", NULL, "the service is stopping");
    if (fb_jobs_now() < w->job->deadline) return FB_OK;
    return fb_fail(error, FB_BUSY, "deadline-exceeded", NULL,
                   "the work is too large to be done within %u s (--job-timeout) and has been stopped",
                   w->jobs->config.timeout_ms / 1000);
}

static void begins(void *context, const char *name, size_t done, size_t total) {
    const watched *w = context;
    pthread_mutex_lock(&w->jobs->mutex);
    fb_job_step *step = &w->job->pass;
    fb_copy_text(step->name, sizeof step->name, name);
    step->done = done;
    step->total = total;
    fb_live_job_tell(w->job, "progress", NULL);
    pthread_mutex_unlock(&w->jobs->mutex);
}

/* The service had no room for it at the moment; what it says of the job itself is final. */
static bool may_try_again(const fb_http_answer *answer) {
    static const char *const final[] = {"cancelled", "stopping", "deadline-exceeded"};
    bool is_busy = answer->status == 503 || answer->status == 507;
    for (size_t i = 0; i < sizeof final / sizeof *final; i++) is_busy &= strcmp(answer->code, final[i]) != 0;
    return is_busy;
}

/* Makes a request of the job's, again as long as the service is too busy for it. `part` is its key within the job. */
static fb_status job_request(fb_jobs *jobs, fb_live_job *job, const char *part, const char *method, const char *target,
                             const char *body, size_t size, fb_http_answer *out, fb_error *error) {
    watched context = {jobs, job};
    fb_watch watch = {.context = &context, .check = check, .begins = begins};
    fb_http_replayed request = {.method = method,
                                .target = target,
                                .content_type = job->stored.content_type,
                                .principal = job->stored.principal,
                                .id = job->stored.request,
                                .job = part,
                                .body = body,
                                .body_size = size,
                                .watch = &watch};
    for (int tries = 1;; tries++) {
        fb_status status = fb_http_replay(jobs->http, &request, out, error);
        if (status || !may_try_again(out) || tries == TRIES) return status;
        if (!fb_jobs_pause(jobs, job, PAUSE_MS)) tries = TRIES - 1; /* the last time: the watch says why */
        fb_http_answer_free(out);
    }
}

/* ---- many --------------------------------------------------------------------------------------------------------------- */

/* The request for one of the graphs: all members of the job's body but `graphs`. */
static char *body_for(const json_t *members, const char *graph) {
    json_t *body = json_copy((json_t *)(uintptr_t)members);
    bool ok = body && !json_object_del(body, "graphs") && !json_object_set_new(body, "graph", json_string(graph));
    char *text = ok ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

static void append_member(const char *name, fb_span answer, const char *pointer, fb_buffer *out) {
    fb_span value = fb_span_at(answer, pointer);
    if (!value.text || value.text[0] != '"') return; /* of a dry run the id is null */
    fb_buffer_printf(out, ",\"%s\":", name);
    fb_buffer_append(out, value.text, value.size);
}

/* Members, each with a comma before it. */
static void write_item(const char *graph, const fb_http_answer *answer, fb_buffer *out) {
    fb_span text = {answer->bytes, answer->size};
    fb_buffer_string(out, ",\"graph\":");
    fb_buffer_json_string(out, graph, strlen(graph));
    fb_buffer_printf(out, ",\"status\":%d", answer->status);
    if (*answer->code) {
        fb_buffer_string(out, ",\"problem\":");
        fb_buffer_append(out, answer->bytes, answer->size);
    } else {
        append_member("run", text, "/id", out);
        append_member("result", text, "/result", out);
    }
}

static void set_graph(fb_jobs *jobs, fb_live_job *job, const char *graph, size_t done, size_t total) {
    pthread_mutex_lock(&jobs->mutex);
    fb_copy_text(job->graph.name, sizeof job->graph.name, graph);
    job->graph.done = done;
    job->graph.total = total;
    job->pass = (fb_job_step){0};
    pthread_mutex_unlock(&jobs->mutex);
}

static void tell_graph(fb_jobs *jobs, fb_live_job *job, const char *item) {
    pthread_mutex_lock(&jobs->mutex);
    job->graph.done++;
    job->pass = (fb_job_step){0};
    fb_live_job_tell(job, "graph", item);
    pthread_mutex_unlock(&jobs->mutex);
}

/* One graph; *counter is that of its outcome. */
static fb_status run_one(fb_jobs *jobs, fb_live_job *job, const json_t *members, size_t index, fb_buffer *item,
                         size_t counters[2], fb_error *error) {
    const char *graph = json_string_value(json_array_get(json_object_get(members, "graphs"), index));
    char key[FB_JOB_ID_LENGTH + 24];
    snprintf(key, sizeof key, "%s/%zu", job->stored.id, index);
    char *body = body_for(members, graph);
    if (!body) return fb_fail_memory(error);
    fb_http_answer answer;
    fb_status status = job_request(jobs, job, key, "POST", "/v1/optimize", body, strlen(body), &answer, error);
    free(body);
    if (status) return status;
    bool is_over = !strcmp(answer.code, "stopping") || !strcmp(answer.code, "cancelled");
    if (is_over) status = fb_fail(error, FB_BUSY, answer.code, NULL, "the job goes no further");
    write_item(graph, &answer, item);
    if (!is_over) counters[answer.status < 400 ? 0 : 1]++;
    fb_http_answer_free(&answer);
    return !status && item->failed ? fb_fail_memory(error) : status;
}

/* All graphs of a job over many, one after the other. On success `result` is the answer's body; FB_BUSY "cancelled",
 * "stopping". */
static fb_status job_run_batch(fb_jobs *jobs, fb_live_job *job, const char *body, size_t size, fb_buffer *result,
                               fb_error *error) {
    json_t *members = json_loadb(body, size, 0, NULL);
    size_t total = json_array_size(json_object_get(members, "graphs")), counters[2] = {0};
    fb_status status = members ? FB_OK : fb_fail_memory(error);
    fb_buffer_string(result, "{\"items\":[");
    for (size_t i = 0; i < total && !status; i++) {
        fb_buffer item = {0};
        set_graph(jobs, job, json_string_value(json_array_get(json_object_get(members, "graphs"), i)), i, total);
        status = run_one(jobs, job, members, i, &item, counters, error);
        if (!status) {
            fb_buffer_string(result, i ? ",{" : "{");
            fb_buffer_append(result, item.data + 1, item.size - 1); /* without its first comma */
            fb_buffer_char(result, '}');
            const char *text = fb_buffer_text(&item);
            if (text) tell_graph(jobs, job, text);
        }
        fb_buffer_free(&item);
    }
    fb_buffer_printf(result, "],\"succeeded\":%zu,\"failed\":%zu}", counters[0], counters[1]);
    json_decref(members);
    return !status && result->failed ? fb_fail_memory(error) : status;
}

/* ---- one job ------------------------------------------------------------------------------------------------------------- */

#define INTERRUPTIONS_MAX 2 /* by a process that ended: then the job may be why */

static bool starts(fb_jobs *jobs, fb_live_job *job) {
    uint32_t attempts = 0;
    bool is_unwanted = false;
    fb_status status = fb_store_start_job(jobs->store, job->stored.id, &attempts, &is_unwanted, NULL);
    for (; status && status != FB_NOT_FOUND;
         status = fb_store_start_job(jobs->store, job->stored.id, &attempts, &is_unwanted, NULL))
        if (!fb_jobs_pause(jobs, NULL, PAUSE_MS)) return false;
    if (status) {
        pthread_mutex_lock(&jobs->mutex);
        jobs->running--;
        fb_job_forget(jobs, job);
        pthread_mutex_unlock(&jobs->mutex);
        return false;
    }
    if (is_unwanted) atomic_store(&job->is_unwanted, true);
    pthread_mutex_lock(&jobs->mutex);
    job->stored.attempts = attempts;
    fb_job_log_begin(&job->log, attempts);
    fb_live_job_tell(job, fb_job_state_name(FB_JOB_RUNNING), NULL);
    pthread_mutex_unlock(&jobs->mutex);
    job->deadline = fb_jobs_now() + jobs->config.timeout_ms;
    return true;
}

/* It is begun again with the next start of the service. */
static void give_back(fb_jobs *jobs, fb_live_job *job) {
    fb_store_requeue_job(jobs->store, job->stored.id, NULL);
    pthread_mutex_lock(&jobs->mutex);
    jobs->running--;
    pthread_mutex_unlock(&jobs->mutex);
}

/* There is no answer, because the request could not be made. */
static void end_with_error(fb_jobs *jobs, fb_live_job *job, int status, const char *code, const char *detail) {
    json_t *problem = json_pack("{s:s+, s:s, s:i, s:s, s:s}", "type", "/problems/", code, "title", "The job failed", "status",
                                status, "detail", detail, "code", code);
    char *text = problem ? json_dumps(problem, JSON_COMPACT) : NULL;
    fb_job_end(jobs, job,
               &(fb_store_job_end){.state = FB_JOB_FAILED,
                                   .status = status,
                                   .result_type = "application/problem+json",
                                   .result = text ? text : "{}",
                                   .result_size = text ? strlen(text) : 2},
               code);
    free(text);
    json_decref(problem);
}

static void end_with_answer(fb_jobs *jobs, fb_live_job *job, const fb_http_answer *answer) {
    fb_store_job_end end = {.state = answer->status < 400 ? FB_JOB_SUCCEEDED : FB_JOB_FAILED,
                            .status = answer->status,
                            .result_type = answer->content_type,
                            .location = answer->location,
                            .result = answer->bytes,
                            .result_size = answer->size};
    if (end.state == FB_JOB_SUCCEEDED) {
        pthread_mutex_lock(&jobs->mutex);
        job->pass.done = job->pass.total;
        pthread_mutex_unlock(&jobs->mutex);
    }
    bool is_cancelled = atomic_load(&job->is_unwanted) && !strcmp(answer->code, "cancelled");
    if (is_cancelled) end = (fb_store_job_end){.state = FB_JOB_CANCELLED};
    fb_job_end(jobs, job, &end, is_cancelled ? "" : answer->code);
}

static void run_batch(fb_jobs *jobs, fb_live_job *job, const char *body, size_t size) {
    fb_buffer result = {0};
    fb_error error = {0};
    fb_status status = job_run_batch(jobs, job, body, size, &result, &error);
    if (status == FB_BUSY && !strcmp(error.code, "stopping")) give_back(jobs, job);
    else if (status && status != FB_BUSY) end_with_error(jobs, job, 500, error.code, error.message);
    else /* one that is cancelled has the result of what was done by then */
        fb_job_end(jobs, job,
                   &(fb_store_job_end){.state = status ? FB_JOB_CANCELLED : FB_JOB_SUCCEEDED,
                                       .status = 200,
                                       .result_type = "application/json",
                                       .result = result.data,
                                       .result_size = result.size},
                   "");
    fb_buffer_free(&result);
}

static void run_request(fb_jobs *jobs, fb_live_job *job, const char *body, size_t size) {
    const fb_store_job *stored = &job->stored;
    fb_http_answer answer;
    fb_error error = {0};
    if (job_request(jobs, job, stored->id, stored->method, stored->target, body, size, &answer, &error)) {
        end_with_error(jobs, job, 503, error.code, error.message);
        return;
    }
    if (!strcmp(answer.code, "stopping")) give_back(jobs, job);
    else end_with_answer(jobs, job, &answer);
    fb_http_answer_free(&answer);
}

void fb_job_run(fb_jobs *jobs, fb_live_job *job) {
    char *body = NULL;
    size_t size = 0;
    fb_error error = {0};
    if (job->stored.interruptions >= INTERRUPTIONS_MAX) {
        end_with_error(jobs, job, 500, "job-interrupted",
                       "the service ended twice while it ran this job, so the job is not started again; "
                       "make it smaller, or ask again if the service ended for another reason");
        return;
    }
    if (!starts(jobs, job)) return;
    if (fb_store_get_job_body(jobs->store, job->stored.id, &body, &size, &error))
        end_with_error(jobs, job, 500, error.code, error.message);
    else if (!strcmp(job->stored.target, FB_JOBS_TARGET)) run_batch(jobs, job, body, size);
    else run_request(jobs, job, body, size);
    free(body);
}
