/* The queue, its threads, and who asks about a job. */
#include "server/jobs/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/jobs/internal.h"
#include "server/store/internal.h"

#define COLLECT_EVERY_MS 60000
#define PAUSE_MS 1000
#define LOOK_EVERY_MS 500 /* at what other processes do with jobs */

int64_t fb_jobs_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- jobs in memory ----------------------------------------------------------------------------------------------------- */

static void free_live(fb_live_job *job) {
    fb_job_log_free(&job->log);
    fb_store_job_free(&job->stored);
    free(job);
}

void fb_live_job_release(fb_live_job *job) {
    if (job->references > 1) job->references--;
    else free_live(job);
}

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
    free_live(job);
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

void fb_live_job_tell(fb_live_job *job, const char *event, const char *more) {
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
    fb_live_job_tell(job, fb_job_state_name(FB_JOB_QUEUED), NULL);
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

void fb_job_forget(fb_jobs *jobs, fb_live_job *job) {
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
    if (!is_new) free_live(job);
    return status;
}

void fb_jobs_write_progress(fb_jobs *jobs, const char *id, fb_buffer *out) {
    pthread_mutex_lock(&jobs->mutex);
    const fb_live_job *job = find(jobs, id);
    if (job) write_progress(job, out);
    pthread_mutex_unlock(&jobs->mutex);
}

static void print(fb_buffer *out, const char *name, const char *type, const char *help) {
    fb_buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void fb_jobs_metrics(fb_jobs *jobs, fb_buffer *out) {
    pthread_mutex_lock(&jobs->mutex);
    print(out, "foldback_jobs", "gauge", "Jobs that are not finished.");
    fb_buffer_printf(out, "foldback_jobs{state=\"queued\"} %u\nfoldback_jobs{state=\"running\"} %u\n", jobs->queued,
                     jobs->running);
    print(out, "foldback_jobs_finished_total", "counter", "Jobs that have ended, by how.");
    for (int state = FB_JOB_SUCCEEDED; state < FB_JOB_STATES; state++)
        fb_buffer_printf(out, "foldback_jobs_finished_total{state=\"%s\"} %llu\n", fb_job_state_name((fb_job_state)state),
                         jobs->ended[state]);
    pthread_mutex_unlock(&jobs->mutex);
}

/* ---- ends --------------------------------------------------------------------------------------------------------------- */

bool fb_jobs_pause(fb_jobs *jobs, const fb_live_job *job, unsigned milliseconds) {
    int64_t until = fb_jobs_now() + milliseconds;
    struct timespec deadline = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
    pthread_mutex_lock(&jobs->mutex);
    while (!atomic_load(&jobs->is_stopping) && !(job && atomic_load(&job->is_unwanted)) && fb_jobs_now() < until)
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

/* What is known of the job goes to the store with the end. */
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
    fb_live_job_tell(job, fb_job_state_name(state), more);
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
    fb_job_forget(jobs, job);
    pthread_mutex_unlock(&jobs->mutex);
}

/* A job over many graphs says what it had done by then. */
static fb_store_job_end cancelled_with(const fb_live_job *job, const fb_store_job_end *end) {
    fb_store_job_end cancelled = {0};
    if (end->state == FB_JOB_SUCCEEDED && !strcmp(job->stored.target, FB_JOBS_TARGET)) cancelled = *end;
    cancelled.state = FB_JOB_CANCELLED;
    return cancelled;
}

void fb_job_end(fb_jobs *jobs, fb_live_job *job, const fb_store_job_end *end, const char *code) {
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
           (status == FB_TOO_LARGE || status == FB_CONFLICT || fb_jobs_pause(jobs, NULL, PAUSE_MS))) {
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
        fb_job_run(jobs, job);
    }
}

static void collect(fb_jobs *jobs) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t before = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - (int64_t)jobs->config.lifetime_ms;
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

/* With the mutex: those that wait are known in every process, and taken by whoever is free. One that became known here since
 * this look began may not be among those that were read. */
static void take_in(fb_jobs *jobs, const fb_store_jobs *queued) {
    for (fb_live_job *job = jobs->first, *next; job; job = next) {
        next = job->next;
        if (job->state != FB_JOB_QUEUED || job->look == jobs->looks || is_listed(queued, job->stored.id)) continue;
        jobs->queued--;
        fb_job_forget(jobs, job);
    }
    for (size_t i = 0; i < queued->count; i++) {
        fb_live_job *job = find(jobs, queued->items[i].id) ? NULL : new_live(&queued->items[i]);
        if (job) append(jobs, job), jobs->queued++;
    }
}

/* Those that are to be cancelled may have been told so elsewhere. */
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
    fb_store_jobs_free(&queued);
}

static void *keep(void *argument) {
    fb_jobs *jobs = argument;
    unsigned collect_ms = jobs->config.lifetime_ms < COLLECT_EVERY_MS ? (unsigned)jobs->config.lifetime_ms : COLLECT_EVERY_MS;
    if (collect_ms < 500) collect_ms = 500;
    int64_t next_beat = fb_jobs_now() + jobs->config.heartbeat_ms, next_collection = fb_jobs_now();
    bool goes_on = true, is_shared = fb_store_is_shared(jobs->store);
    while (goes_on) {
        int64_t now = fb_jobs_now();
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
        now = fb_jobs_now();
        goes_on = fb_jobs_pause(jobs, NULL, next > now ? (unsigned)(next - now) : 0);
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
    fb_store_jobs_free(&unfinished);
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
