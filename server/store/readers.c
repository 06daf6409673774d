#include "server/store/writer.h"

#include <stdlib.h>

#include "server/metrics/metrics.h"

fb_status fb_readers_open(fb_readers *readers, const char *path, fb_access access, size_t count, atomic_bool *is_damaged,
                          fb_error *error) {
    *readers = (fb_readers){.all = calloc(count, sizeof *readers->all), .idle = calloc(count, sizeof(fb_connection *))};
    pthread_mutex_init(&readers->mutex, NULL);
    pthread_cond_init(&readers->came_back, NULL);
    fb_status status = readers->all && readers->idle ? FB_OK : fb_fail_memory(error);
    while (!status && readers->count < count) {
        fb_connection *connection = &readers->all[readers->count];
        status = fb_connection_open(connection, path, access, error);
        if (status) break;
        connection->is_damaged = is_damaged;
        readers->count++;
        readers->idle[readers->idle_count++] = connection;
    }
    if (status) fb_readers_close(readers);
    return status;
}

void fb_readers_close(fb_readers *readers) {
    for (size_t i = 0; i < readers->count; i++) fb_connection_close(&readers->all[i]);
    free(readers->all);
    free(readers->idle);
    pthread_cond_destroy(&readers->came_back);
    pthread_mutex_destroy(&readers->mutex);
    *readers = (fb_readers){0};
}

fb_status fb_readers_take(fb_readers *readers, fb_connection **connection, fb_error *error) {
    fb_timing_enter(FB_TIMING_STORE);
    pthread_mutex_lock(&readers->mutex);
    while (readers->is_paused || readers->idle_count == 0) pthread_cond_wait(&readers->came_back, &readers->mutex);
    fb_connection *taken = readers->idle[--readers->idle_count];
    pthread_mutex_unlock(&readers->mutex);

    fb_status status = fb_begin(taken, false, error);
    if (status) fb_readers_give_back(readers, taken);
    else *connection = taken;
    return status;
}

void fb_readers_give_back(fb_readers *readers, fb_connection *connection) {
    fb_roll_back(connection);
    pthread_mutex_lock(&readers->mutex);
    readers->idle[readers->idle_count++] = connection;
    pthread_cond_broadcast(&readers->came_back);
    pthread_mutex_unlock(&readers->mutex);
    fb_timing_leave();
}

void fb_readers_pause(fb_readers *readers) {
    pthread_mutex_lock(&readers->mutex);
    readers->is_paused = true;
    while (readers->idle_count < readers->count) pthread_cond_wait(&readers->came_back, &readers->mutex);
    pthread_mutex_unlock(&readers->mutex);
}

void fb_readers_resume(fb_readers *readers) {
    pthread_mutex_lock(&readers->mutex);
    readers->is_paused = false;
    pthread_cond_broadcast(&readers->came_back);
    pthread_mutex_unlock(&readers->mutex);
}
