/* The queue and its threads, what a job does, and who asks about it. */
#include "server/jobs/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/diff/text.h"
#include "server/database/memory.h"
#include "server/jobs/internal.h"
#include "server/metrics/metrics.h"
#include "server/store/state.h"
#include "server/store/store.h"

#define COLLECT_EVERY_MS 60000
#define PAUSE_MS 1000
#define LOOK_EVERY_MS 500 /* at what other processes do with jobs */

/* ---- jobs in memory ----------------------------------------------------------------------------------------------------- */

static fb_live_job *new_live(const fb_store_job *stored) {
    fb_live_job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    fb_store_memory **memory = &job->stored.memory;
    fb_store_job *copy = &job->stored;
    memcpy(copy->id, stored->id, sizeof copy->id);
    copy->principal = fb_memory_text(memory, stored->principal);
    copy->request = fb_memory_text(memory, stored->request);
    copy->method = fb_memory_text(memory, stored->method);
    copy->target = fb_memory_text(memory, stored->target);
    copy->content_type = fb_memory_text(memory, stored->content_type);
    copy->attempts = stored->attempts;
    copy->interruptions = stored->interruptions;
    atomic_init(&job->is_unwanted, stored->is_unwanted);
    job->references = 1;
    if (copy->principal && copy->request && copy->method && copy->target && copy->content_type) return job;
    fb_live_job_free(job);
    return NULL;
}

static void write_step(const fb_job_step *step, fb_buffer *out) {
    fb_buffer_printf(out, "{\"done\":%zu,\"total\":%zu,\"name\":", step->done, step->total);
    fb_buffer_json_string(out, step->name, strlen(step->name));
}

/* With the mutex: {"done": …, "total": …, "name": …}, or nothing. */
static void write_progress(const fb_live_job *job, fb_buffer *out) {
    const fb_job_step *whole = job->graph.total ? &job->graph : &job->pass;
    if (!whole->total) return;
    write_step(whole, out);
    if (job->graph.total && job->pass.total) {
        fb_buffer_string(out, ",\"part\":");
        write_step(&job->pass, out);
        fb_buffer_char(out, '}');
    }
    fb_buffer_char(out, '}');
}

/* The event's data. */
static void write_job(const fb_live_job *job, fb_job_state state, const char *more, fb_buffer *out) {
    fb_buffer progress = {0};
    write_progress(job, &progress);
    fb_buffer_printf(out, "{\"id\":\"%s\",\"state\":\"%s\"", job->stored.id, fb_job_state_name(state));
    if (progress.size) {
        fb_buffer_string(out, ",\"progress\":");
        fb_buffer_append(out, progress.data, progress.size);
    }
    out->failed |= progress.failed;
    fb_buffer_free(&progress);
    if (more) fb_buffer_string(out, more);
    fb_buffer_char(out, '}');
}

/* With the mutex: `more` are members for the event's data, each with a comma before it, or NULL. */
static void live_job_tell(fb_live_job *job, const char *event, const char *more) {
    fb_buffer data = {0};
    write_job(job, job->state, more, &data);
    const char *text = fb_buffer_text(&data);
    if (text) fb_job_log_add(&job->log, event, text);
    fb_buffer_free(&data);
    fb_followers_wake(job);
}

/* With the mutex. */
static fb_live_job *find(fb_jobs *jobs, const char *id) {
    fb_live_job *job = jobs->first;
    while (job && strcmp(job->stored.id, id) != 0) job = job->next;
    return job;
}

/* With the mutex. */
static void append(fb_jobs *jobs, fb_live_job *job) {
    *jobs->end = job;
    jobs->end = &job->next;
    job->look = jobs->looks;
    fb_job_log_begin(&job->log, job->stored.attempts);
    live_job_tell(job, fb_job_state_name(FB_JOB_QUEUED), NULL);
    pthread_cond_broadcast(&jobs->changed);
}

/* With the mutex. */
static void take_out(fb_jobs *jobs, fb_live_job *job) {
    fb_live_job **place = &jobs->first;
    while (*place != job) place = &(*place)->next;
    *place = job->next;
    if (!job->next) jobs->end = place;
    job->next = NULL;
    fb_live_job_release(job);
}

/* It waits or runs in another process: those who follow it here come back and read what the store has. With the mutex. */
static void job_forget(fb_jobs *jobs, fb_live_job *job) {
    job->has_ended = true;
    fb_followers_wake(job);
    take_out(jobs, job);
}

/* ---- for requests ------------------------------------------------------------------------------------------------------- */

fb_status fb_jobs_add(fb_jobs *jobs, const fb_store_job *stored, const char *body, size_t size, const fb_store_answer *answer,
                      fb_error *error) {
    fb_live_job *job = new_live(stored);
    if (!job) return fb_fail_memory(error);
    pthread_mutex_lock(&jobs->mutex);
    bool has_room = jobs->queued < jobs->config.limit;
    if (has_room) jobs->queued++;
    pthread_mutex_unlock(&jobs->mutex);
    fb_status status = FB_OK;
    if (!has_room)
        status = fb_fail(error, FB_BUSY, "too-many-jobs", NULL, "%u jobs are waiting, and more may not", jobs->config.limit);
    else status = fb_store_put_job(jobs->store, stored, body, size, answer, error);
    pthread_mutex_lock(&jobs->mutex);
    bool is_new = !status && !find(jobs, stored->id); /* else it was found in the store in between */
    if (is_new) append(jobs, job);
    else if (has_room) jobs->queued--;
    pthread_mutex_unlock(&jobs->mutex);
    if (!is_new) fb_live_job_free(job);
    return status;
}

void fb_jobs_write_progress(fb_jobs *jobs, const char *id, fb_buffer *out) {
    pthread_mutex_lock(&jobs->mutex);
    const fb_live_job *job = find(jobs, id);
    if (job) write_progress(job, out);
    pthread_mutex_unlock(&jobs->mutex);
}

void fb_jobs_metrics(fb_jobs *jobs, fb_buffer *out) {
    pthread_mutex_lock(&jobs->mutex);
    fb_print_metric_head(out, "foldback_jobs", "gauge", "Jobs that are not finished.");
    fb_buffer_printf(out, "foldback_jobs{state=\"queued\"} %u\nfoldback_jobs{state=\"running\"} %u\n", jobs->queued,
                     jobs->running);
    fb_print_metric_head(out, "foldback_jobs_finished_total", "counter", "Jobs that have ended, by how.");
    for (int state = FB_JOB_SUCCEEDED; state < FB_JOB_STATES; state++)
        fb_buffer_printf(out, "foldback_jobs_finished_total{state=\"%s\"} %llu\n", fb_job_state_name((fb_job_state)state),
                         jobs->ended[state]);
    pthread_mutex_unlock(&jobs->mutex);
}

/* ---- ends --------------------------------------------------------------------------------------------------------------- */

/* Waits, but not when the job is not wanted any more or all are to stop; false then. */
static bool jobs_pause(fb_jobs *jobs, const fb_live_job *job, unsigned milliseconds) {
    int64_t until = fb_monotonic_ms() + milliseconds;
    struct timespec deadline = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
    pthread_mutex_lock(&jobs->mutex);
    while (!atomic_load(&jobs->is_stopping) && !(job && atomic_load(&job->is_unwanted)) && fb_monotonic_ms() < until)
        pthread_cond_timedwait(&jobs->changed, &jobs->mutex, &deadline);
    pthread_mutex_unlock(&jobs->mutex);
    return !atomic_load(&jobs->is_stopping) && !(job && atomic_load(&job->is_unwanted));
}

static void write_end(const fb_store_job_end *end, const char *code, fb_buffer *out) {
    if (end->status) fb_buffer_printf(out, ",\"status\":%d", end->status);
    if (end->location) {
        fb_buffer_string(out, ",\"location\":");
        fb_buffer_json_string(out, end->location, strlen(end->location));
    }
    if (*code) fb_buffer_printf(out, ",\"code\":\"%s\"", code);
}

/* Stores what is known of the job with its end. */
static fb_status store_end(fb_jobs *jobs, fb_live_job *job, fb_store_job_end end, const char *more, fb_error *error) {
    fb_buffer progress = {0}, data = {0}, events = {0};
    pthread_mutex_lock(&jobs->mutex);
    write_progress(job, &progress);
    write_job(job, end.state, more, &data);
    const char *text = fb_buffer_text(&data);
    if (text) fb_job_log_write(&job->log, fb_job_state_name(end.state), text, &events);
    pthread_mutex_unlock(&jobs->mutex);
    bool ok = text && !progress.failed && fb_buffer_text(&events);
    end.progress = progress.size ? fb_buffer_text(&progress) : NULL;
    end.events = events.data;
    fb_status status = ok ? fb_store_finish_job(jobs->store, job->stored.id, &end, error) : fb_fail_memory(error);
    fb_buffer_free(&progress);
    fb_buffer_free(&data);
    fb_buffer_free(&events);
    return status;
}

/* With the mutex. */
static void settle(fb_jobs *jobs, fb_live_job *job, fb_job_state state, const char *more) {
    job->state = state;
    live_job_tell(job, fb_job_state_name(state), more);
    job->has_ended = true;
    fb_followers_wake(job);
    jobs->running--;
    jobs->ended[state]++;
    take_out(jobs, job);
}

static fb_status try_end(fb_jobs *jobs, fb_live_job *job, const fb_store_job_end *end, const char *code) {
    fb_error error = {0};
    fb_buffer more = {0};
    write_end(end, code, &more);
    const char *text = more.size ? fb_buffer_text(&more) : NULL;
    fb_status status = more.failed ? FB_NO_MEMORY : store_end(jobs, job, *end, text, &error);
    if (!status) {
        pthread_mutex_lock(&jobs->mutex);
        settle(jobs, job, end->state, text);
        pthread_mutex_unlock(&jobs->mutex);
    }
    fb_buffer_free(&more);
    return status;
}

static void lose(fb_jobs *jobs, fb_live_job *job) {
    pthread_mutex_lock(&jobs->mutex);
    jobs->running--;
    job_forget(jobs, job);
    pthread_mutex_unlock(&jobs->mutex);
}

/* A job over many graphs says what it had done by then. */
static fb_store_job_end cancelled_with(const fb_live_job *job, const fb_store_job_end *end) {
    fb_store_job_end cancelled = {0};
    if (end->state == FB_JOB_SUCCEEDED && !strcmp(job->stored.target, FB_JOBS_TARGET)) cancelled = *end;
    cancelled.state = FB_JOB_CANCELLED;
    return cancelled;
}

/* With the state that it ended in; notifies all followers. */
static void job_end(fb_jobs *jobs, fb_live_job *job, const fb_store_job_end *end, const char *code) {
    static const char too_large[] = "{\"type\":\"/problems/result-too-large\",\"title\":\"Result too large\",\"status\":413,"
                                    "\"detail\":\"the answer is too large to be kept\",\"code\":\"result-too-large\"}";
    static const fb_store_job_end without = {.state = FB_JOB_FAILED,
                                             .status = 413,
                                             .result_type = "application/problem+json",
                                             .result = too_large,
                                             .result_size = sizeof too_large - 1};
    const fb_store_job_end cancelled = cancelled_with(job, end);
    fb_status status = try_end(jobs, job, end, code);
    while (status && status != FB_NOT_FOUND &&
           (status == FB_TOO_LARGE || status == FB_CONFLICT || jobs_pause(jobs, NULL, PAUSE_MS))) {
        if (status == FB_TOO_LARGE) end = &without, code = "result-too-large";
        if (status == FB_CONFLICT) end = &cancelled, code = "";
        status = try_end(jobs, job, end, code);
    }
    if (status == FB_NOT_FOUND) lose(jobs, job);
}

/* Takes a job that waits away from the threads, and ends it. */
static void cancel_queued(fb_jobs *jobs, fb_live_job *job) {
    fb_status status = try_end(jobs, job, &(fb_store_job_end){.state = FB_JOB_CANCELLED}, "");
    if (status == FB_NOT_FOUND) lose(jobs, job);
    if (!status || status == FB_NOT_FOUND) return;
    pthread_mutex_lock(&jobs->mutex); /* a thread will have more luck */
    job->state = FB_JOB_QUEUED;
    jobs->queued++;
    jobs->running--;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
}

fb_status fb_jobs_cancel(fb_jobs *jobs, const char *id, const fb_store_actor *by, fb_error *error) {
    fb_status status = fb_store_cancel_job(jobs->store, id, by, error); /* so that it is not begun again after a crash */
    if (status) return status;
    pthread_mutex_lock(&jobs->mutex);
    fb_live_job *job = find(jobs, id);
    bool is_queued = job && job->state == FB_JOB_QUEUED;
    if (job) atomic_store(&job->is_unwanted, true);
    if (is_queued) {
        job->state = FB_JOB_RUNNING;
        jobs->queued--;
        jobs->running++;
    }
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    if (is_queued) cancel_queued(jobs, job);
    return FB_OK;
}

/* ---- the requests that a job makes --------------------------------------------------------------------------------------- */

#define TRIES 60

typedef struct watched {
    fb_jobs *jobs;
    fb_live_job *job;
} watched;

static fb_status check(void *context, fb_error *error) {
    const watched *w = context;
    if (atomic_load(&w->job->is_unwanted)) return fb_fail(error, FB_BUSY, "cancelled", NULL, "the job was cancelled");
    if (atomic_load(&w->jobs->is_stopping)) return fb_fail(error, FB_BUSY, "stopping", NULL, "the service is stopping");
    if (fb_monotonic_ms() < w->job->deadline) return FB_OK;
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
    live_job_tell(w->job, "progress", NULL);
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
        if (!jobs_pause(jobs, job, PAUSE_MS)) tries = TRIES - 1; /* the last time: the watch says why */
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
    live_job_tell(job, "graph", item);
    pthread_mutex_unlock(&jobs->mutex);
}

/* One graph; *counter is its outcome's. */
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
        if (!jobs_pause(jobs, NULL, PAUSE_MS)) return false;
    if (status) {
        pthread_mutex_lock(&jobs->mutex);
        jobs->running--;
        job_forget(jobs, job);
        pthread_mutex_unlock(&jobs->mutex);
        return false;
    }
    if (is_unwanted) atomic_store(&job->is_unwanted, true);
    pthread_mutex_lock(&jobs->mutex);
    job->stored.attempts = attempts;
    fb_job_log_begin(&job->log, attempts);
    live_job_tell(job, fb_job_state_name(FB_JOB_RUNNING), NULL);
    pthread_mutex_unlock(&jobs->mutex);
    job->deadline = fb_monotonic_ms() + jobs->config.timeout_ms;
    return true;
}

/* It is begun again with the next start of the service. */
static void give_back(fb_jobs *jobs, fb_live_job *job) {
    fb_store_requeue_job(jobs->store, job->stored.id, NULL);
    pthread_mutex_lock(&jobs->mutex);
    jobs->running--;
    pthread_mutex_unlock(&jobs->mutex);
}

/* The request could not be made, so nothing answered it. */
static void end_with_error(fb_jobs *jobs, fb_live_job *job, int status, const char *code, const char *detail) {
    json_t *problem = json_pack("{s:s+, s:s, s:i, s:s, s:s}", "type", "/problems/", code, "title", "The job failed", "status",
                                status, "detail", detail, "code", code);
    char *text = problem ? json_dumps(problem, JSON_COMPACT) : NULL;
    job_end(jobs, job,
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
    job_end(jobs, job, &end, is_cancelled ? "" : answer->code);
}

static void run_batch(fb_jobs *jobs, fb_live_job *job, const char *body, size_t size) {
    fb_buffer result = {0};
    fb_error error = {0};
    fb_status status = job_run_batch(jobs, job, body, size, &result, &error);
    if (status == FB_BUSY && !strcmp(error.code, "stopping")) give_back(jobs, job);
    else if (status && status != FB_BUSY) end_with_error(jobs, job, 500, error.code, error.message);
    else /* one that is cancelled has the result of what was done by then */
        job_end(jobs, job,
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

/* From its start to its end, or until all are to stop. */
static void job_run(fb_jobs *jobs, fb_live_job *job) {
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

/* ---- threads ------------------------------------------------------------------------------------------------------------ */

/* With the mutex: the oldest that waits. */
static fb_live_job *next_queued(fb_jobs *jobs) {
    fb_live_job *job = jobs->first;
    while (job && job->state != FB_JOB_QUEUED) job = job->next;
    return job;
}

static void *work(void *argument) {
    fb_jobs *jobs = argument;
    pthread_setname_np(pthread_self(), FB_JOB_THREAD);
    for (;;) {
        fb_live_job *job = NULL;
        pthread_mutex_lock(&jobs->mutex);
        while (!atomic_load(&jobs->is_stopping) && !(job = next_queued(jobs))) pthread_cond_wait(&jobs->changed, &jobs->mutex);
        bool is_stopping = atomic_load(&jobs->is_stopping);
        if (!is_stopping) {
            job->state = FB_JOB_RUNNING;
            jobs->queued--;
            jobs->running++;
        }
        pthread_mutex_unlock(&jobs->mutex);
        if (is_stopping) return NULL;
        job_run(jobs, job);
    }
}

static void collect(fb_jobs *jobs) {
    int64_t before = fb_wall_ms() - (int64_t)jobs->config.lifetime_ms;
    size_t count = 1;
    while (count && !atomic_load(&jobs->is_stopping) && !fb_store_collect_jobs(jobs->store, before, &count, NULL)) continue;
}

static void beat(fb_jobs *jobs) {
    pthread_mutex_lock(&jobs->mutex);
    for (fb_live_job *job = jobs->first; job; job = job->next) fb_followers_beat(job);
    pthread_mutex_unlock(&jobs->mutex);
}

/* ---- what other processes do with jobs ---- */

static bool is_listed(const fb_store_jobs *list, const char *id) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].id, id) == 0) return true;
    return false;
}

/* With the mutex: waiting jobs are known in every process, and taken by one that is free. A job that became known here since
 * this look began may be missing from the list that was read. */
static void take_in(fb_jobs *jobs, const fb_store_jobs *queued) {
    for (fb_live_job *job = jobs->first, *next; job; job = next) {
        next = job->next;
        if (job->state != FB_JOB_QUEUED || job->look == jobs->looks || is_listed(queued, job->stored.id)) continue;
        jobs->queued--;
        job_forget(jobs, job);
    }
    for (size_t i = 0; i < queued->count; i++) {
        fb_live_job *job = find(jobs, queued->items[i].id) ? NULL : new_live(&queued->items[i]);
        if (job) append(jobs, job), jobs->queued++;
    }
}

/* Looks for queued jobs, and for jobs that were cancelled in another process. */
static void look(fb_jobs *jobs) {
    fb_store_jobs queued;
    fb_buffer unwanted = {0};
    pthread_mutex_lock(&jobs->mutex);
    jobs->looks++;
    pthread_mutex_unlock(&jobs->mutex);
    fb_status status = fb_store_queued_jobs(jobs->store, &queued, NULL);
    if (status) return;
    status = fb_store_unwanted_jobs(jobs->store, &unwanted, NULL);
    pthread_mutex_lock(&jobs->mutex);
    take_in(jobs, &queued);
    for (size_t at = 0; !status && at < unwanted.size; at += FB_JOB_ID_LENGTH + 1) {
        fb_live_job *job = find(jobs, unwanted.data + at);
        if (job) atomic_store(&job->is_unwanted, true);
    }
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    fb_buffer_free(&unwanted);
    FB_STORE_FREE(&queued);
}

static void *keep(void *argument) {
    fb_jobs *jobs = argument;
    unsigned collect_ms = jobs->config.lifetime_ms < COLLECT_EVERY_MS ? (unsigned)jobs->config.lifetime_ms : COLLECT_EVERY_MS;
    if (collect_ms < 500) collect_ms = 500;
    int64_t next_beat = fb_monotonic_ms() + jobs->config.heartbeat_ms, next_collection = fb_monotonic_ms();
    bool goes_on = true, is_shared = fb_store_is_shared(jobs->store);
    while (goes_on) {
        int64_t now = fb_monotonic_ms();
        if (now >= next_collection) {
            collect(jobs);
            next_collection = now + collect_ms;
        }
        if (now >= next_beat) {
            beat(jobs);
            next_beat = now + jobs->config.heartbeat_ms;
        }
        int64_t next = next_beat < next_collection ? next_beat : next_collection;
        if (is_shared) look(jobs);
        if (is_shared && next > now + LOOK_EVERY_MS) next = now + LOOK_EVERY_MS;
        now = fb_monotonic_ms();
        goes_on = jobs_pause(jobs, NULL, next > now ? (unsigned)(next - now) : 0);
    }
    return NULL;
}

/* ---- begin and end ------------------------------------------------------------------------------------------------------ */

static fb_status take_up(fb_jobs *jobs, fb_error *error) {
    fb_store_jobs unfinished;
    fb_status status = fb_store_unfinished_jobs(jobs->store, &unfinished, error);
    if (status) return status;
    for (size_t i = 0; i < unfinished.count && !status; i++) {
        fb_live_job *job = new_live(&unfinished.items[i]);
        if (!job) status = fb_fail_memory(error);
        else append(jobs, job), jobs->queued++;
    }
    FB_STORE_FREE(&unfinished);
    return status;
}

fb_status fb_jobs_new(const fb_jobs_config *config, fb_store *store, fb_jobs **out, fb_error *error) {
    fb_jobs *jobs = calloc(1, sizeof *jobs);
    if (!jobs) return fb_fail_memory(error);
    jobs->config = *config;
    jobs->store = store;
    jobs->end = &jobs->first;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&jobs->mutex, NULL);
    pthread_cond_init(&jobs->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    jobs->threads = calloc(config->threads, sizeof *jobs->threads);
    fb_status status = jobs->threads ? take_up(jobs, error) : fb_fail_memory(error);
    if (status) fb_jobs_free(jobs);
    else *out = jobs;
    return status;
}

fb_status fb_jobs_start(fb_jobs *jobs, fb_http_server *http, fb_error *error) {
    int failure = 0;
    jobs->http = http;
    while (!failure && jobs->thread_count < jobs->config.threads) {
        failure = pthread_create(&jobs->threads[jobs->thread_count], NULL, work, jobs);
        jobs->thread_count += !failure;
    }
    if (!failure) failure = pthread_create(&jobs->keeper, NULL, keep, jobs);
    jobs->has_keeper = !failure;
    if (!failure) return FB_OK;
    return fb_fail(error, FB_IO, "no-thread", NULL, "cannot start a thread: %s", strerror(failure));
}

void fb_jobs_stop(fb_jobs *jobs) {
    if (!jobs) return;
    pthread_mutex_lock(&jobs->mutex);
    atomic_store(&jobs->is_stopping, true);
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    while (jobs->thread_count) pthread_join(jobs->threads[--jobs->thread_count], NULL);
    if (jobs->has_keeper) pthread_join(jobs->keeper, NULL);
    jobs->has_keeper = false;
}

void fb_jobs_free(fb_jobs *jobs) {
    if (!jobs) return;
    while (jobs->first) take_out(jobs, jobs->first);
    pthread_cond_destroy(&jobs->changed);
    pthread_mutex_destroy(&jobs->mutex);
    free(jobs->threads);
    free(jobs);
}
