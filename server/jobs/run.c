/* One job, from start to end. */
#include <stdlib.h>
#include <string.h>

#include "server/jobs/internal.h"

#define INTERRUPTIONS_MAX 2 /* by a process that ended: then the job may be why */
#define PAUSE_MS 1000

static bool starts(fb_jobs *jobs, fb_live_job *job) {
    uint32_t attempts = 0;
    bool is_unwanted = false;
    while (fb_store_start_job(jobs->store, job->stored.id, &attempts, &is_unwanted, NULL))
        if (!fb_jobs_pause(jobs, NULL, PAUSE_MS)) return false;
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

/* There is no answer, because it could not be asked for one. */
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
    fb_status status = fb_job_run_batch(jobs, job, body, size, &result, &error);
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
    if (fb_job_request(jobs, job, stored->id, stored->method, stored->target, body, size, &answer, &error)) {
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
