#include "server/collector.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/store/blobs.h"

struct fb_collector {
    fb_store *store;
    uint64_t interval_ms;
    int64_t grace_ms;
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    bool is_stopping;
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

static void *work(void *argument) {
    fb_collector *collector = argument;
    pthread_mutex_lock(&collector->mutex);
    while (wait_for_next(collector)) {
        fb_error error = {0};
        fb_garbage found;
        pthread_mutex_unlock(&collector->mutex);
        if (fb_store_collect(collector->store, collector->grace_ms, false, NULL, &found, &error))
            fprintf(stderr, "foldback: gc: %s\n", error.message);
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

fb_status fb_collector_start(fb_store *store, uint64_t interval_ms, int64_t grace_ms, fb_collector **out, fb_error *error) {
    fb_collector *collector = calloc(1, sizeof *collector);
    if (!collector) return fb_fail_memory(error);
    collector->store = store;
    collector->interval_ms = interval_ms;
    collector->grace_ms = grace_ms;
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
