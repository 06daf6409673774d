/* The connections that read. A lease is one connection for one thread, and one snapshot: what a reader sees does not change
 * until it gives the connection back. */
#ifndef FB_STORE_READERS_H
#define FB_STORE_READERS_H

#include <pthread.h>

#include "server/store/sql.h"

typedef struct fb_readers {
    pthread_mutex_t mutex;
    pthread_cond_t came_back; /* a connection, or the end of a pause */
    fb_connection *all;
    fb_connection **idle;
    size_t count, idle_count;
    bool is_paused;
} fb_readers;

/* The database must exist and, to be read beside others, be in use by the writer, whose recovery comes first. `is_damaged` is
 * for fb_connection's. */
fb_status fb_readers_open(fb_readers *readers, const char *path, fb_access access, size_t count, atomic_bool *is_damaged,
                          fb_error *error);
void fb_readers_close(fb_readers *readers);

/* Waits for an idle connection. */
fb_status fb_readers_take(fb_readers *readers, fb_connection **connection, fb_error *error);
void fb_readers_give_back(fb_readers *readers, fb_connection *connection);

/* Waits until nobody reads, and lets nobody begin until fb_readers_resume. */
void fb_readers_pause(fb_readers *readers);
void fb_readers_resume(fb_readers *readers);

#endif
