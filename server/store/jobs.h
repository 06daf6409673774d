/* The store's jobs: requests that are answered later. As in store.h: safe from any thread, durable when they return, and the
 * same general errors. */
#ifndef FB_STORE_JOBS_H
#define FB_STORE_JOBS_H

#include "server/store/store.h"

#define FB_JOB_ID_LENGTH 30 /* "job_" and a ULID */

typedef enum fb_job_state { FB_JOB_QUEUED, FB_JOB_RUNNING, FB_JOB_SUCCEEDED, FB_JOB_FAILED, FB_JOB_CANCELLED } fb_job_state;
#define FB_JOB_STATES 5
/* "queued" … */
const char *fb_job_state_name(fb_job_state state);
static inline bool fb_job_is_finished(fb_job_state state) {
    return state >= FB_JOB_SUCCEEDED;
}

typedef struct fb_store_job {
    char id[FB_JOB_ID_LENGTH + 1];
    fb_job_state state;
    const char *principal, *request;
    const char *method, *target, *content_type;
    int64_t created, started, finished; /* 0 = not yet */
    uint32_t attempts, interruptions;
    bool is_unwanted;     /* it is to be cancelled */
    bool is_run_gone;     /* `location` is a run that retention has removed */
    const char *progress; /* JSON, or NULL */
    const char *events;   /* text, or NULL; not in lists */
    int status;           /* of the answer; 0 = none */
    const char *result_type, *location;
    uint64_t result_size;
    fb_store_memory *memory; /* NULL in one that the caller made */
} fb_store_job;

typedef struct fb_store_jobs {
    fb_store_job *items; /* each `memory` is NULL: the list owns everything */
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_store_jobs;

/* Gives `job` its id and time, so that an answer can be written before the job is stored. */
fb_status fb_store_new_job(fb_store *store, fb_store_job *job, fb_error *error);
/* Stores a queued job with the request's body, and `answer` (may be NULL) with it. FB_TOO_LARGE "job-too-large". */
fb_status fb_store_put_job(fb_store *store, const fb_store_job *job, const char *body, size_t size,
                           const fb_store_answer *answer, fb_error *error);

/* FB_NOT_FOUND "unknown-job". */
fb_status fb_store_get_job(fb_store *store, const char *id, fb_store_job *out, fb_error *error);
/* Newest first; of one state when that is not negative. `page` may be NULL. */
fb_status fb_store_list_jobs(fb_store *store, int state, const fb_store_page *page, fb_store_jobs *out, fb_error *error);
/* The request's body, and the answer's: malloc'ed (caller frees), with a NUL after them. Empty when there is none. */
fb_status fb_store_get_job_body(fb_store *store, const char *id, char **bytes, size_t *size, fb_error *error);
fb_status fb_store_get_job_result(fb_store *store, const char *id, char **bytes, size_t *size, fb_error *error);

/* The job runs in this process. FB_NOT_FOUND "unknown-job": it waits no more, perhaps another process runs it. `attempts` is
 * how often it was started, this time included. */
fb_status fb_store_start_job(fb_store *store, const char *id, uint32_t *attempts, bool *is_unwanted, fb_error *error);
/* It does not any more, and is to be started again. */
fb_status fb_store_requeue_job(fb_store *store, const char *id, fb_error *error);
/* Notes that the job is to be cancelled: from then on it stores no answer and ends as cancelled in any case. FB_CONFLICT
 * "job-finished" when it has ended, or when its request has stored its answer; FB_NOT_FOUND. */
fb_status fb_store_cancel_job(fb_store *store, const char *id, const fb_store_actor *by, fb_error *error);

/* How a job ended. */
typedef struct fb_store_job_end {
    fb_job_state state;
    const char *progress, *events; /* may be NULL */
    int status;                    /* 0: no answer */
    const char *result_type, *location;
    const char *result;
    size_t result_size;
} fb_store_job_end;
/* FB_TOO_LARGE "result-too-large". FB_CONFLICT "job-unwanted": it is to be cancelled, and may not end otherwise.
 * FB_NOT_FOUND "unknown-job": it is another process' by now. */
fb_status fb_store_finish_job(fb_store *store, const char *id, const fb_store_job_end *end, fb_error *error);

/* Once, after the store was opened: those that are not finished, oldest first, all queued. A job that was running then has one
 * interruption more. Each answer that a job's request stores sets the count back to 0. */
fb_status fb_store_unfinished_jobs(fb_store *store, fb_store_jobs *out, fb_error *error);
/* The jobs that wait, for any replica. */
fb_status fb_store_queued_jobs(fb_store *store, fb_store_jobs *out, fb_error *error);
/* Appends the ids, each with its NUL, of those that this process runs and that are to be cancelled. */
fb_status fb_store_unwanted_jobs(fb_store *store, fb_buffer *ids, fb_error *error);
/* Deletes jobs that ended at `before` or earlier, the oldest first, some of them; *count is how many. */
fb_status fb_store_collect_jobs(fb_store *store, int64_t before, size_t *count, fb_error *error);

#endif
