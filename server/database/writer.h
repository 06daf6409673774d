/* The one thread, with the one connection, that writes and checkpoints.
 *
 * Writes wait in a queue; what waits is committed together (group commit). One that fails leaves the others alone: when it had
 * written something, all are performed again, each inside a savepoint of its own. SQLite 3.40.1 can damage a database in WAL
 * mode when two connections checkpoint, so no other connection ever does, and concurrent writers would only starve each other.
 */
#ifndef FB_DATABASE_WRITER_H
#define FB_DATABASE_WRITER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "server/database/query.h"

/* The connections that read. A lease is one connection for one thread, and one snapshot: what a reader sees does not change
 * until it gives the connection back. */

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

/* fb_query_begin and fb_query_end of a query that has a lease of its own. */
fb_query fb_read_begin(fb_readers *readers, const char *sql, fb_error *error);
fb_status fb_read_end(fb_readers *readers, fb_query *query);

/* Changes of what the store counts. */
typedef struct fb_totals {
    int64_t graphs, runs;
    int64_t blobs, blob_bytes;
    int64_t collected_blobs, collected_bytes; /* by gc, since the start */
} fb_totals;

/* A change of the database. Runs on the writer's thread; may run again when the group that it was in could not be committed, so
 * it begins by forgetting what it said before. It reports to `error` alone; when it fails, what it wrote is undone. */
typedef fb_status fb_write_function(fb_connection *connection, void *argument, fb_totals *added, fb_error *error);

/* The outcome of a write. A commit that broke off may have been done: then nothing that a row may need is taken away. */
typedef enum fb_write_outcome { FB_WRITE_UNDONE, FB_WRITE_UNKNOWN, FB_WRITE_DURABLE } fb_write_outcome;

/* For a write that also changes files. Runs on the writer's thread each time that the write ran; of one that was undone, before
 * another write runs (or itself runs again). */
typedef void fb_write_end_function(fb_connection *connection, void *argument, fb_write_outcome outcome);

typedef struct fb_write fb_write;

#define FB_GROUP_BUCKETS 9 /* the last: up to 256, which is the most that one transaction takes */

typedef struct fb_writer_figures {
    uint64_t commits, writes, failed_writes, largest_group, checkpoints, failed_checkpoints;
    uint64_t queued;                   /* now */
    uint64_t groups[FB_GROUP_BUCKETS]; /* groups of up to 1, 2, 4 … writes */
    fb_totals totals;
    fb_error last_failure; /* of a commit; status FB_OK when the last one went well */
} fb_writer_figures;

typedef struct fb_writer {
    fb_connection connection;
    fb_readers *readers;
    fb_write_function *clean_up; /* run now and then */
    void *clean_up_argument;
    int64_t clean_up_interval_ms;
    void (*cleaned_up)(void *argument); /* after each time; or NULL */
    pthread_t thread;
    bool has_thread;
    int reserve; /* the data folder, when it keeps room back for this writer; -1 */

    /* the thread's own */
    bool is_optimistic; /* writes have no savepoints */
    int64_t next_clean_up_ms;

    pthread_mutex_t mutex; /* over all that follows */
    pthread_cond_t changed;
    fb_write *first, **end;
    size_t queue_limit;
    bool is_stopping;
    fb_writer_figures figures;
} fb_writer;

/* Starts the thread. `connection` (opened for writing, migrated; the writer closes it) and `readers` go into `writer` before.
 */
fb_status fb_writer_start(fb_writer *writer, size_t queue_limit, fb_totals totals, fb_error *error);
/* Instead: refuses all writes. */
void fb_writer_refuse(fb_writer *writer);
/* Does what waits, refuses more, and ends the thread; the connection stays open for fb_writer_close. */
void fb_writer_stop(fb_writer *writer);
/* Puts the whole log into the database and closes. No reader may be open. */
void fb_writer_close(fb_writer *writer);

/* Queues the write and waits until it is durable or has failed. */
fb_status fb_writer_run(fb_writer *writer, fb_write_function *function, void *argument, fb_error *error);
/* The same with something to be done afterwards. */
fb_status fb_writer_run_to_end(fb_writer *writer, fb_write_function *function, fb_write_end_function *end, void *argument,
                               fb_error *error);

/* The same for a write that makes room, as every DELETE does, at once or in the end. It may use what is kept back when the disk
 * is full. */
fb_status fb_writer_make_room(fb_writer *writer, fb_write_function *function, fb_write_end_function *end, void *argument,
                              fb_error *error);

/* Queues the write and does not wait. The writer frees `argument`, also when it could not be queued. */
fb_status fb_writer_post_take(fb_writer *writer, fb_write_function *function, void *argument, fb_error *error);

fb_writer_figures fb_writer_read_figures(fb_writer *writer);

/* Keeps some room of the folder's disk back, if it is not yet and there is room; nothing for the folder -1. */
void fb_reserve_keep(int folder);
/* Gives it back; false when nothing is kept. */
bool fb_reserve_use(int folder);

#endif
