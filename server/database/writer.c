#include "server/database/writer.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

fb_query fb_read_begin(fb_readers *readers, const char *sql, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(readers, &connection, error);
    return status ? (fb_query){.error = error, .status = status} : fb_query_begin(connection, sql, error);
}

fb_status fb_read_end(fb_readers *readers, fb_query *query) {
    if (!query->connection) return query->status;
    fb_query_end(query);
    fb_readers_give_back(readers, query->connection);
    return query->status;
}

/* Waits until all readers have ended, and lets none begin until readers_resume. */
static void readers_pause(fb_readers *readers) {
    pthread_mutex_lock(&readers->mutex);
    readers->is_paused = true;
    while (readers->idle_count < readers->count) pthread_cond_wait(&readers->came_back, &readers->mutex);
    pthread_mutex_unlock(&readers->mutex);
}

static void readers_resume(fb_readers *readers) {
    pthread_mutex_lock(&readers->mutex);
    readers->is_paused = false;
    pthread_cond_broadcast(&readers->came_back);
    pthread_mutex_unlock(&readers->mutex);
}

#define GROUP_MAX (1u << (FB_GROUP_BUCKETS - 1)) /* writes in one transaction */
#define CHECKPOINT_PAGES 1000                    /* pages of log that are worth a checkpoint: 4 MB */
#define LOG_PAGES_MAX (16 * 1024)                /* with this much log, readers wait for a checkpoint: 64 MB */
#define IDLE_MS 1000                             /* idle for this long: empty the log */

struct fb_write {
    fb_write_function *function;
    fb_write_end_function *end; /* or NULL */
    void *argument;
    bool is_unended; /* it ran, and `end` is still to be called */
    bool makes_room;
    bool is_posted; /* it is not waited for: it and its argument are the writer's */
    fb_write *next;
    fb_status status;
    fb_error error;
    fb_totals added;
    sem_t done; /* a condition would need the writer's mutex, for which all that one commit wakes would queue */
};

static fb_status run_sql(fb_writer *writer, const char *sql, fb_error *error) {
    fb_query query = fb_query_begin(&writer->connection, sql, error);
    return fb_query_run(&query);
}

/* ---- checkpoints ---- */

static void checkpoint(fb_writer *writer, bool truncates) {
    bool ok = fb_checkpoint(&writer->connection, truncates);
    pthread_mutex_lock(&writer->mutex);
    writer->figures.checkpoints++;
    if (!ok) writer->figures.failed_checkpoints++;
    pthread_mutex_unlock(&writer->mutex);
}

/* A log that readers never let go of would grow for ever: then they wait once. */
static void checkpoint_when_large(fb_writer *writer) {
    if (writer->connection.log_pages - writer->connection.checkpointed_pages >= CHECKPOINT_PAGES) checkpoint(writer, false);
    if (writer->connection.log_pages < LOG_PAGES_MAX) return;
    readers_pause(writer->readers);
    checkpoint(writer, true);
    readers_resume(writer->readers);
}

/* ---- groups ---- */

static void end_write(fb_writer *writer, fb_write *write, fb_write_outcome outcome) {
    if (write->is_unended && write->end) write->end(&writer->connection, write->argument, outcome);
    write->is_unended = false;
}

static fb_status run_function(fb_writer *writer, fb_write *write) {
    write->is_unended = true;
    return write->function(&writer->connection, write->argument, &write->added, &write->error);
}

/* True if the whole transaction is lost. A full disk is not this write's fault: all are undone, and tried again one by one. */
static bool is_lost(const fb_writer *writer, const fb_write *write) {
    return write->status == FB_NO_SPACE || !fb_is_in_transaction(&writer->connection);
}

/* One write without a savepoint. When it failed and had written something, the writer stops being optimistic. */
static fb_status perform_optimistically(fb_writer *writer, fb_write *write) {
    int64_t changes = fb_changes(&writer->connection);
    write->status = run_function(writer, write);
    if (is_lost(writer, write)) return write->status ? write->status : FB_IO;
    if (!write->status) return FB_OK;
    writer->is_optimistic = fb_changes(&writer->connection) == changes;
    if (!writer->is_optimistic) return write->status;
    end_write(writer, write, FB_WRITE_UNDONE);
    return FB_OK;
}

/* One write. Not FB_OK only when the whole transaction is lost: some failures (a full disk, no memory) make SQLite roll back
 * everything. */
static fb_status perform(fb_writer *writer, fb_write *write) {
    write->error = (fb_error){0};
    write->added = (fb_totals){0};
    if (writer->is_optimistic) return perform_optimistically(writer, write);
    write->status = run_sql(writer, "SAVEPOINT one_write", &write->error);
    if (!write->status) write->status = run_function(writer, write);
    if (is_lost(writer, write)) return write->status ? write->status : FB_IO;
    fb_status undone = write->status ? run_sql(writer, "ROLLBACK TO one_write", &write->error) : FB_OK;
    fb_status released = run_sql(writer, "RELEASE one_write", &write->error);
    if (!write->status) write->status = released;
    if (write->status) end_write(writer, write, FB_WRITE_UNDONE);
    return undone ? undone : released;
}

static void add_totals(fb_totals *sum, const fb_totals *added) {
    sum->graphs += added->graphs;
    sum->runs += added->runs;
    sum->blobs += added->blobs;
    sum->blob_bytes += added->blob_bytes;
    sum->collected_blobs += added->collected_blobs;
    sum->collected_bytes += added->collected_bytes;
}

/* Performs and commits the writes from `first` to before `end`. When that fails as a whole, *error says why, and nothing of it
 * was written. */
static fb_status commit_group(fb_writer *writer, fb_write *first, const fb_write *end, fb_error *error) {
    bool was_optimistic = writer->is_optimistic;
    fb_status status = fb_begin(&writer->connection, true, error);
    for (fb_write *write = first; write != end && !status; write = write->next) {
        status = perform(writer, write);
        if (status) *error = write->error;
    }
    fb_write_outcome outcome = FB_WRITE_UNDONE;
    if (!status) {
        status = fb_commit(&writer->connection, error);
        outcome = !status ? FB_WRITE_DURABLE : status == FB_IO ? FB_WRITE_UNKNOWN : FB_WRITE_UNDONE;
    }
    if (status) fb_roll_back(&writer->connection);
    if (status && !error->status)
        fb_fail(error, status, "store-failed", NULL, "the store failed: a transaction was rolled back");

    fb_totals added = {0};
    for (fb_write *write = first; write != end; write = write->next) {
        end_write(writer, write, outcome);
        if (!status && !write->status) add_totals(&added, &write->added);
    }
    if (writer->is_optimistic != was_optimistic) return status; /* no failure of the store: it is tried again */
    pthread_mutex_lock(&writer->mutex);
    writer->figures.last_failure = *error;
    add_totals(&writer->figures.totals, &added);
    if (!status) writer->figures.commits++;
    pthread_mutex_unlock(&writer->mutex);
    return status;
}

static void tell_all(fb_write *first, const fb_error *error) {
    for (fb_write *write = first; write; write = write->next) {
        write->status = error->status;
        write->error = *error;
    }
}

/* The way to the database broke, and nothing was written. */
static bool is_broken_off(const fb_error *error) {
    return strcmp(error->code, "store-unavailable") == 0;
}

/* Savepoints cost as much as the writes in them, and hardly any write fails after it has written something. So they are left
 * out until one did. */
static fb_status commit_all(fb_writer *writer, fb_write *first, fb_error *error) {
    writer->is_optimistic = true;
    fb_status status = commit_group(writer, first, NULL, error);
    bool must_repeat = !writer->is_optimistic;
    writer->is_optimistic = false;
    if (!must_repeat) return status;
    *error = (fb_error){0};
    return commit_group(writer, first, NULL, error);
}

/* One write in a transaction of its own. */
static void commit_alone(fb_writer *writer, fb_write *write) {
    fb_error error = {0};
    fb_status status = commit_group(writer, write, write->next, &error);
    if (status == FB_NO_SPACE && write->makes_room && fb_reserve_use(writer->reserve)) {
        error = (fb_error){0};
        status = commit_group(writer, write, write->next, &error);
        fb_reserve_keep(writer->reserve);
    }
    if (status) write->status = status, write->error = error;
}

/* When the group fails as a whole, each write gets a transaction of its own, so that one write that is too large does not take
 * others with it. Not after an I/O error: what the disk holds is then better not guessed by trying again. */
static void commit_writes(fb_writer *writer, fb_write *first, size_t count) {
    fb_error error = {0};
    fb_status status = commit_all(writer, first, &error);
    if (status && is_broken_off(&error)) {
        error = (fb_error){0};
        status = commit_all(writer, first, &error);
    }
    if (!status) return;
    bool has_log = writer->connection.log_pages > 0;
    if (status == FB_NO_SPACE && has_log) checkpoint(writer, false); /* its room can be used again */
    bool may_succeed = count > 1 || (status == FB_NO_SPACE && (has_log || first->makes_room));
    if (status == FB_IO || !may_succeed) {
        tell_all(first, &error);
        return;
    }
    for (fb_write *write = first; write; write = write->next) commit_alone(writer, write);
}

static void free_posted(fb_write *write) {
    free(write->argument);
    free(write);
}

/* Wakes those who wait. After that their fb_write is gone. */
static void answer(fb_writer *writer, fb_write *first, size_t count) {
    pthread_mutex_lock(&writer->mutex);
    writer->figures.writes += count;
    if (count > writer->figures.largest_group) writer->figures.largest_group = count;
    size_t bucket = 0;
    while ((size_t)1 << bucket < count) bucket++;
    writer->figures.groups[bucket]++;
    for (const fb_write *write = first; write; write = write->next) writer->figures.failed_writes += write->status != FB_OK;
    pthread_mutex_unlock(&writer->mutex);
    for (fb_write *write = first, *next; write; write = next) {
        next = write->next;
        if (write->is_posted) free_posted(write);
        else sem_post(&write->done);
    }
}

/* ---- the thread ---- */

static void clean_up_when_due(fb_writer *writer) {
    int64_t now = fb_monotonic_ms();
    if (!writer->clean_up || now < writer->next_clean_up_ms) return;
    writer->next_clean_up_ms = now + writer->clean_up_interval_ms;
    fb_reserve_keep(writer->reserve);
    fb_write write = {.function = writer->clean_up, .argument = writer->clean_up_argument};
    fb_error error = {0};
    commit_group(writer, &write, NULL, &error); /* what fails now is done the next time */
    if (writer->cleaned_up) writer->cleaned_up(writer->clean_up_argument);
}

/* Waits for writes; false when there is time for other things. With the mutex held. */
static bool wait_for_writes(fb_writer *writer) {
    int64_t now = fb_monotonic_ms();
    int64_t until = writer->next_clean_up_ms;
    if (writer->connection.log_pages > 0 && now + IDLE_MS < until) until = now + IDLE_MS;
    struct timespec deadline = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
    while (!writer->first && !writer->is_stopping)
        if (pthread_cond_timedwait(&writer->changed, &writer->mutex, &deadline) == ETIMEDOUT) return writer->first != NULL;
    return true;
}

/* Takes what waits, GROUP_MAX at most. With the mutex held. */
static fb_write *take_group(fb_writer *writer, size_t *count) {
    fb_write *first = writer->first, *last = NULL;
    for (*count = 0; writer->first && *count < GROUP_MAX; ++*count) {
        last = writer->first;
        writer->first = last->next;
    }
    if (last) last->next = NULL;
    if (!writer->first) writer->end = &writer->first;
    writer->figures.queued -= *count;
    return first;
}

static void *work(void *argument) {
    fb_writer *writer = argument;
    for (;;) {
        size_t count = 0;
        pthread_mutex_lock(&writer->mutex);
        bool is_idle = !wait_for_writes(writer);
        fb_write *group = take_group(writer, &count);
        bool is_over = !group && writer->is_stopping;
        pthread_mutex_unlock(&writer->mutex);
        if (is_over) return NULL;
        if (group) {
            commit_writes(writer, group, count);
            answer(writer, group, count);
            checkpoint_when_large(writer);
        }
        if (is_idle && writer->connection.log_pages > 0) checkpoint(writer, true);
        clean_up_when_due(writer);
    }
}

static void make_locks(fb_writer *writer) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&writer->mutex, NULL);
    pthread_cond_init(&writer->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

void fb_writer_refuse(fb_writer *writer) {
    make_locks(writer);
    writer->is_stopping = true;
}

fb_status fb_writer_start(fb_writer *writer, size_t queue_limit, fb_totals totals, fb_error *error) {
    writer->queue_limit = queue_limit;
    writer->end = &writer->first;
    writer->figures.totals = totals;
    writer->next_clean_up_ms = fb_monotonic_ms() + writer->clean_up_interval_ms;
    make_locks(writer);
    int result = pthread_create(&writer->thread, NULL, work, writer);
    writer->has_thread = result == 0;
    if (result == 0) return FB_OK;
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->mutex);
    return fb_fail(error, result == EAGAIN ? FB_NO_MEMORY : FB_IO, "store-failed", NULL, "the store cannot start a thread");
}

void fb_writer_stop(fb_writer *writer) {
    if (!writer->has_thread) return; /* it refused all */
    pthread_mutex_lock(&writer->mutex);
    writer->is_stopping = true;
    pthread_cond_signal(&writer->changed);
    pthread_mutex_unlock(&writer->mutex);
    pthread_join(writer->thread, NULL);
}

void fb_writer_close(fb_writer *writer) {
    if (writer->has_thread) checkpoint(writer, true);
    fb_connection_close(&writer->connection);
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->mutex);
}

static fb_status enqueue(fb_writer *writer, fb_write *write, fb_error *error) {
    fb_status refused = FB_OK;
    pthread_mutex_lock(&writer->mutex);
    if (writer->is_stopping) {
        refused = fb_fail(error, FB_BUSY, "store-stopping", NULL, "the store is being closed");
    } else if (writer->figures.queued >= writer->queue_limit) {
        refused = fb_fail(error, FB_BUSY, "store-busy", NULL, "too many writes are waiting");
    } else {
        *writer->end = write;
        writer->end = &write->next;
        writer->figures.queued++;
    }
    pthread_mutex_unlock(&writer->mutex);
    if (!refused) pthread_cond_signal(&writer->changed);
    return refused;
}

fb_status fb_writer_run(fb_writer *writer, fb_write_function *function, void *argument, fb_error *error) {
    return fb_writer_run_to_end(writer, function, NULL, argument, error);
}

static fb_status run_write(fb_writer *writer, fb_write *write, fb_error *error) {
    sem_init(&write->done, 0, 0);
    fb_timing_enter(FB_TIMING_STORE);
    fb_status refused = enqueue(writer, write, &write->error);
    if (refused) write->status = refused;
    else
        while (sem_wait(&write->done)) continue; /* a signal */
    fb_timing_leave();
    sem_destroy(&write->done);
    if (write->status && error && error->status == FB_OK) *error = write->error;
    return write->status;
}

fb_status fb_writer_run_to_end(fb_writer *writer, fb_write_function *function, fb_write_end_function *end, void *argument,
                               fb_error *error) {
    return run_write(writer, &(fb_write){.function = function, .end = end, .argument = argument}, error);
}

fb_status fb_writer_make_room(fb_writer *writer, fb_write_function *function, fb_write_end_function *end, void *argument,
                              fb_error *error) {
    return run_write(writer, &(fb_write){.function = function, .end = end, .argument = argument, .makes_room = true}, error);
}

fb_status fb_writer_post_take(fb_writer *writer, fb_write_function *function, void *argument, fb_error *error) {
    fb_write *write = calloc(1, sizeof *write);
    if (!write) {
        free(argument);
        return fb_fail_memory(error);
    }
    *write = (fb_write){.function = function, .argument = argument, .is_posted = true};
    fb_status status = enqueue(writer, write, error);
    if (status) free_posted(write);
    return status;
}

fb_writer_figures fb_writer_read_figures(fb_writer *writer) {
    pthread_mutex_lock(&writer->mutex);
    fb_writer_figures figures = writer->figures;
    pthread_mutex_unlock(&writer->mutex);
    return figures;
}
