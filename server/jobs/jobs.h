/* Jobs: requests that are answered later.
 *
 *     POST … Prefer: respond-async ──► fb_jobs_add ──► the store, and a queue ──► a job thread: the request's own handler
 *                                                                                   │ begins, ends
 *     GET …/events  ◄── an I/O thread ◄── the job's log ◄───────────────────────────┘
 *
 * The store has every job; in memory are those that are not finished, with what has happened since they were started last. A
 * job is done by making its request again within the process, with an Idempotency-Key of its own: so one that was interrupted,
 * however far it had come, is just started again, and what it changes is changed once. */
#ifndef FB_JOBS_JOBS_H
#define FB_JOBS_JOBS_H

#include "server/http/http.h"
#include "server/store/jobs.h"

typedef struct fb_jobs fb_jobs;

typedef struct fb_jobs_config {
    unsigned threads;      /* jobs at work at once */
    unsigned limit;        /* that wait; more are refused */
    unsigned timeout_ms;   /* of one job's work */
    uint64_t lifetime_ms;  /* of a finished job */
    unsigned heartbeat_ms; /* of event streams */
} fb_jobs_config;

/* Takes up the unfinished jobs of the store, even beyond the limit. */
fb_status fb_jobs_new(const fb_jobs_config *config, fb_store *store, fb_jobs **out, fb_error *error);
/* Starts the threads; requests are made through `http`. */
fb_status fb_jobs_start(fb_jobs *jobs, fb_http_server *http, fb_error *error);
/* Ends the threads: what they were at waits for the next start. Before `http` is stopped. NULL does nothing. */
void fb_jobs_stop(fb_jobs *jobs);
/* After `http` was stopped, so that no client follows a job any more. NULL does nothing. */
void fb_jobs_free(fb_jobs *jobs);

/* Stores the job (fb_store_new_job) with its body, and `answer` (may be NULL) with it. FB_BUSY "too-many-jobs". */
fb_status fb_jobs_add(fb_jobs *jobs, const fb_store_job *job, const char *body, size_t size, const fb_store_answer *answer,
                      fb_error *error);
/* A job that waits is cancelled when this returns; one that runs is soon, and cannot end otherwise. FB_CONFLICT
 * "job-finished", FB_NOT_FOUND. */
fb_status fb_jobs_cancel(fb_jobs *jobs, const char *id, const fb_store_actor *by, fb_error *error);
/* Appends what is known of the progress of a job that is not finished, as JSON; nothing of others. */
void fb_jobs_write_progress(fb_jobs *jobs, const char *id, fb_buffer *out);

/* The target of a job over many graphs: its body is {"graphs": [ids], …}, and each graph is optimised with the rest. */
#define FB_JOBS_TARGET "/v1/jobs"

/* Follows a job from event number `after` on: for fb_respond_stream, with fb_follower_source. `job` is as the store has it.
 * *out is NULL when it has ended and nothing more will come; or, unless `is_last_look`, when it is unfinished there and unknown
 * here: then it has just ended, or runs in another process, and `job` is to be read again. FB_NO_MEMORY. */
typedef struct fb_follower fb_follower;
fb_status fb_jobs_follow(fb_jobs *jobs, const fb_store_job *job, int64_t after, bool is_last_look, fb_follower **out,
                         fb_error *error);
extern const fb_stream_source fb_follower_source;

void fb_jobs_metrics(fb_jobs *jobs, fb_buffer *out);

#endif
