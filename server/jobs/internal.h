/* Declarations that the files of the jobs share. */
#ifndef FB_JOBS_INTERNAL_H
#define FB_JOBS_INTERNAL_H

#include <pthread.h>

#include "server/jobs/jobs.h"

/* ---- log.c: what has happened to a job, as it is sent ---- */

typedef struct fb_job_event {
    int64_t number; /* ascending, also over the job's starts */
    char *text;
} fb_job_event;

typedef struct fb_job_log {
    fb_job_event *items; /* the newest */
    size_t count, capacity;
    int64_t last; /* number of the newest, also when that did not fit into memory */
} fb_job_log;

/* The numbers of the events of one start are greater than all numbers before. */
void fb_job_log_begin(fb_job_log *log, uint32_t attempts);
/* `data` is JSON. An event that finds no memory is left out. */
void fb_job_log_add(fb_job_log *log, const char *event, const char *data);
/* The first one after that number, or NULL. */
const fb_job_event *fb_job_log_after(const fb_job_log *log, int64_t number);
/* All of them, and one more that is not in it yet; check out->failed. */
void fb_job_log_write(const fb_job_log *log, const char *event, const char *data, fb_buffer *out);
/* From what that wrote. False when memory is out. */
bool fb_job_log_read(fb_job_log *log, const char *text);
void fb_job_log_free(fb_job_log *log);

/* ---- jobs.c ---- */

#define FB_JOB_THREAD "foldback-job" /* the name of the threads that do jobs, as in top -H */
#define FB_JOB_STEP_MAX 160

/* How far it is: so many of so many parts, and the one at hand. */
typedef struct fb_job_step {
    char name[FB_JOB_STEP_MAX];
    size_t done, total; /* 0: nothing is known */
} fb_job_step;

typedef struct fb_live_job {
    struct fb_live_job *next; /* of all that are not finished, in order */
    fb_store_job stored;      /* with texts of its own */
    atomic_bool is_unwanted;  /* it should be cancelled */
    int64_t deadline;         /* CLOCK_MONOTONIC, of the work at hand */

    /* under the mutex */
    fb_job_state state;
    bool has_ended;          /* everything has been said */
    uint64_t look;           /* the last that had begun when it became known here */
    fb_job_step graph, pass; /* of many graphs, or without a total; and of passes */
    fb_job_log log;
    fb_follower *followers;
    unsigned references; /* the list's, and one for each follower */
} fb_live_job;

struct fb_jobs {
    fb_jobs_config config;
    fb_store *store;
    fb_http_server *http;
    pthread_t *threads;
    unsigned thread_count;
    pthread_t keeper; /* beats, and collects */
    bool has_keeper;
    atomic_bool is_stopping;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    fb_live_job *first, **end;
    unsigned queued, running;
    uint64_t looks; /* at what other processes do, that have begun */
    unsigned long long ended[FB_JOB_STATES];
};

/* With the mutex. */
void fb_live_job_release(fb_live_job *job);
void fb_live_job_free(fb_live_job *job); /* at once */
/* With the mutex: followers get a comment. */
void fb_followers_beat(fb_live_job *job);
void fb_followers_wake(fb_live_job *job);

#endif
