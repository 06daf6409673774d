/* Followers of a job: each reads its log at its own pace, on an I/O thread. */
#include <stdlib.h>
#include <string.h>

#include "server/jobs/internal.h"

struct fb_follower {
    fb_jobs *jobs;
    fb_live_job *job;
    fb_follower *next;
    fb_stream *stream; /* NULL until it was read from */
    int64_t position;  /* number of the event that was given last */
    char *rest;        /* of an event that did not fit, and what of it was given */
    size_t taken;
    bool is_greeted, has_beat;
};

/* One that the store alone knows: it has ended, or runs in another process. */
static fb_live_job *revive(const fb_store_job *stored) {
    fb_live_job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->has_ended = true;
    if (fb_job_log_read(&job->log, stored->events ? stored->events : "")) return job;
    fb_live_job_release(job);
    return NULL;
}

static fb_live_job *find(fb_jobs *jobs, const char *id) {
    fb_live_job *job = jobs->first;
    while (job && strcmp(job->stored.id, id) != 0) job = job->next;
    return job;
}

fb_status fb_jobs_follow(fb_jobs *jobs, const fb_store_job *stored, int64_t after, bool is_last_look, fb_follower **out,
                         fb_error *error) {
    fb_follower *follower = calloc(1, sizeof *follower);
    if (!follower) return fb_fail_memory(error);
    pthread_mutex_lock(&jobs->mutex);
    fb_live_job *job = stored->finished ? NULL : find(jobs, stored->id);
    bool is_elsewhere = !job && !stored->finished; /* its events come when it has ended there: the client comes back */
    if (is_elsewhere && !is_last_look) {           /* or it has ended since `stored` was read */
        pthread_mutex_unlock(&jobs->mutex);
        free(follower);
        return FB_OK;
    }
    if (!job) job = revive(stored);
    bool is_over = job && job->has_ended && !is_elsewhere && !fb_job_log_after(&job->log, after);
    if (job && !is_over) {
        job->references++;
        *follower = (fb_follower){.jobs = jobs, .job = job, .next = job->followers, .position = after};
        job->followers = follower;
    } else {
        free(follower);
        follower = NULL;
    }
    bool failed = !job;
    if (job && !job->references) fb_live_job_release(job); /* revived for no follower */
    pthread_mutex_unlock(&jobs->mutex);
    if (failed) return fb_fail_memory(error);
    *out = follower;
    return FB_OK;
}

/* The text to send next; NULL when none. */
static const char *next_text(fb_follower *follower) {
    static const char greeting[] = "retry: 2000\n\n", beat[] = ":\n\n";
    if (follower->rest) return follower->rest;
    const fb_job_event *event = fb_job_log_after(&follower->job->log, follower->position);
    const char *text = !follower->is_greeted ? greeting : event ? event->text : follower->has_beat ? beat : NULL;
    if (text) follower->has_beat = false;
    if (follower->is_greeted && event) follower->position = event->number;
    follower->is_greeted = true;
    return text;
}

static size_t read_events(void *state, fb_stream *stream, char *to, size_t size) {
    fb_follower *follower = state;
    fb_jobs *jobs = follower->jobs;
    size_t given = 0;
    pthread_mutex_lock(&jobs->mutex);
    follower->stream = stream;
    const char *text = next_text(follower);
    if (text) {
        size_t left = strlen(text) - follower->taken;
        given = left < size ? left : size;
        memcpy(to, text + follower->taken, given);
        if (given == left) {
            free(follower->rest);
            follower->rest = NULL;
            follower->taken = 0;
        } else {
            if (!follower->rest) follower->rest = strdup(text); /* the log may drop it */
            follower->taken += given;
            if (!follower->rest) given = FB_STREAM_END; /* no memory: the client asks again for what it has not got */
        }
    } else if (follower->job->has_ended) {
        given = FB_STREAM_END;
    }
    pthread_mutex_unlock(&jobs->mutex);
    return given;
}

static void leave(void *state) {
    fb_follower *follower = state;
    fb_jobs *jobs = follower->jobs;
    pthread_mutex_lock(&jobs->mutex);
    fb_follower **place = &follower->job->followers;
    while (*place != follower) place = &(*place)->next;
    *place = follower->next;
    fb_live_job_release(follower->job);
    pthread_mutex_unlock(&jobs->mutex);
    free(follower->rest);
    free(follower);
}

const fb_stream_source fb_follower_source = {.read = read_events, .release = leave};

void fb_followers_wake(fb_live_job *job) {
    for (fb_follower *follower = job->followers; follower; follower = follower->next)
        if (follower->stream) fb_stream_wake(follower->stream);
}

void fb_followers_beat(fb_live_job *job) {
    for (fb_follower *follower = job->followers; follower; follower = follower->next) follower->has_beat = true;
    fb_followers_wake(job);
}

void fb_live_job_free(fb_live_job *job) {
    fb_job_log_free(&job->log);
    FB_STORE_FREE(&job->stored);
    free(job);
}

void fb_live_job_release(fb_live_job *job) {
    if (job->references > 1) job->references--;
    else fb_live_job_free(job);
}
