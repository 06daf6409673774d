#include "server/service/service.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/graphs/graphs.h"
#include "server/store/blobs.h"

#define JUMP_MS 3600000 /* of the clock: more than it is ever set right by */

struct fb_collector {
    const fb_app *app;
    uint64_t interval_ms;
    int64_t started_ms; /* what the clock said when the machine's uptime was 0 */
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    atomic_bool is_stopping;
};

/* With the mutex. False when it is to stop. */
static bool wait_for_next(fb_collector *collector) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t nanoseconds = (uint64_t)until.tv_nsec + collector->interval_ms % 1000 * 1000000;
    until.tv_sec += (time_t)(collector->interval_ms / 1000 + nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    int failure = 0;
    while (!collector->is_stopping && !failure)
        failure = pthread_cond_timedwait(&collector->stopped, &collector->mutex, &until);
    return !collector->is_stopping;
}

/* What the clock says, less the time that has passed since the machine was started: it changes when the clock is set. */
static int64_t clock_start_ms(void) {
    struct timespec clock, uptime;
    clock_gettime(CLOCK_REALTIME, &clock);
    clock_gettime(CLOCK_BOOTTIME, &uptime);
    return (int64_t)(clock.tv_sec - uptime.tv_sec) * 1000 + (clock.tv_nsec - uptime.tv_nsec) / 1000000;
}

static fb_status check(void *context, fb_error *error) {
    fb_collector *collector = context;
    return atomic_load(&collector->is_stopping) ? fb_fail(error, FB_BUSY, "stopping", NULL, "the service is stopping") : FB_OK;
}

static void complain(const char *what, const fb_error *error) {
    if (strcmp(error->code, "stopping") != 0) fprintf(stderr, "foldback: %s: %s\n", what, error->message);
}

static void collect(fb_collector *collector) {
    const fb_app *app = collector->app;
    fb_error error = {0};
    fb_garbage found;
    fb_removed removed;
    fb_retention limits = app->retention;
    const fb_watch watch = {.context = collector, .check = check};
    if (llabs(clock_start_ms() - collector->started_ms) > JUMP_MS) limits.age_ms = limits.audit_age_ms = 0;
    if (fb_retain(app, &limits, false, NULL, &watch, &removed, &error)) complain("retention", &error);
    error = (fb_error){0};
    if (fb_store_collect(app->store, app->gc_grace_ms, false, NULL, &watch, &found, &error)) complain("gc", &error);
}

static void *work(void *argument) {
    fb_collector *collector = argument;
    pthread_mutex_lock(&collector->mutex);
    while (wait_for_next(collector)) {
        pthread_mutex_unlock(&collector->mutex);
        if (fb_store_leads(collector->app->store)) collect(collector);
        pthread_mutex_lock(&collector->mutex);
    }
    pthread_mutex_unlock(&collector->mutex);
    return NULL;
}

static void free_collector(fb_collector *collector) {
    pthread_cond_destroy(&collector->stopped);
    pthread_mutex_destroy(&collector->mutex);
    free(collector);
}

fb_status fb_collector_start(const fb_app *app, uint64_t interval_ms, fb_collector **out, fb_error *error) {
    fb_collector *collector = calloc(1, sizeof *collector);
    if (!collector) return fb_fail_memory(error);
    collector->app = app;
    collector->started_ms = clock_start_ms();
    collector->interval_ms = interval_ms;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&collector->mutex, NULL);
    pthread_cond_init(&collector->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failure = pthread_create(&collector->thread, NULL, work, collector);
    if (failure) {
        free_collector(collector);
        return fb_fail(error, FB_IO, "no-thread", NULL, "cannot start a thread: %s", strerror(failure));
    }
    *out = collector;
    return FB_OK;
}

void fb_collector_stop(fb_collector *collector) {
    if (!collector) return;
    pthread_mutex_lock(&collector->mutex);
    collector->is_stopping = true;
    pthread_cond_signal(&collector->stopped);
    pthread_mutex_unlock(&collector->mutex);
    pthread_join(collector->thread, NULL);
    free_collector(collector);
}
