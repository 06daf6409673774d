#include "server/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/metrics/metrics.h"
#include "server/store/backup.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/uploads.h"

#define DATABASE "foldback.sqlite"
#define HEALTHY_FREE_BYTES (1024 * 1024)
#define CLEAN_UP_MS 60000
#define BEAT_MS 1000

static fb_store_config with_defaults(const fb_store_config *given) {
    fb_store_config config = given ? *given : (fb_store_config){0};
    if (!config.readers) config.readers = 8;
    if (!config.queue_limit) config.queue_limit = 4096;
    if (!config.compression_level) config.compression_level = 3;
    if (!config.answer_lifetime_ms) config.answer_lifetime_ms = 24 * 3600 * (int64_t)1000;
    if (!config.now_ms) config.now_ms = fb_wall_ms;
    if (!config.bucket.cache_bytes) config.bucket.cache_bytes = (uint64_t)16 << 30;
    return config;
}

/* ---- the folder ---- */

static fb_status fail_folder(fb_error *error, const char *what, const char *path, int reason) {
    if (reason == ENOSPC || reason == EDQUOT) return fb_fail_full(error);
    return fb_fail(error, FB_IO, "store-not-writable", NULL, "cannot %s %s: %s", what, path, strerror(reason));
}

/* Makes the new folder's entry in its parent durable: SQLite does so only for the files inside. */
static void sync_parent(const char *folder) {
    char *parent = malloc(strlen(folder) + 4);
    if (!parent) return;
    strcpy(parent, folder);
    strcat(parent, "/..");
    int descriptor = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(parent);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
}

fb_status fb_store_make_folder(const char *folder, fb_error *error) {
    struct stat about;
    if (mkdir(folder, 0700) == 0) sync_parent(folder);
    else if (errno != EEXIST) return fail_folder(error, "create the data folder", folder, errno);
    if (stat(folder, &about) != 0) return fail_folder(error, "use the data folder", folder, errno);
    if (!S_ISDIR(about.st_mode)) return fail_folder(error, "use the data folder", folder, ENOTDIR);
    return FB_OK;
}

/* A folder that has files and no store belongs to another program: a slip of the hand, or a volume that is mounted elsewhere.
 */
static fb_status check_folder(const char *folder, fb_error *error) {
    static const char *const ours[] = {DATABASE, DATABASE "-wal", FB_BLOBS_FOLDER, FB_STORE_FILE,
                                       FB_STORE_FILE ".part" /* of a first start that was killed */};
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return fail_folder(error, "open", folder, errno);
    bool is_ours = fb_folder_is_empty(folder);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) is_ours |= faccessat(descriptor, ours[i], F_OK, 0) == 0;
    close(descriptor);
    if (is_ours) return FB_OK;
    return fb_fail(error, FB_INVALID, "not-a-store", NULL,
                   "the folder %s has files, but no store: name an empty folder, or a new one", folder);
}

/* One process holds the folder, as long as the file `lock` in it is open here. */
static fb_status hold_folder(fb_store *store, const char *folder, fb_error *error) {
    fb_status made = fb_store_make_folder(folder, error);
    if (!made) made = check_folder(folder, error);
    if (made) return made;
    fb_buffer path = {0};
    fb_buffer_printf(&path, "%s/lock", folder);
    const char *text = fb_buffer_text(&path);
    fb_status status = FB_OK;
    if (!text) {
        status = fb_fail_memory(error);
    } else if ((store->lock = open(text, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0) {
        status = fail_folder(error, "open", text, errno);
    } else if (flock(store->lock, LOCK_EX | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK ? fb_fail(error, FB_BUSY, "store-locked", NULL,
                                                "the data folder %s is held by another process of foldback", folder)
                                      : fail_folder(error, "lock", text, errno);
    }
    fb_buffer_free(&path);
    return status;
}

/* True if the folder has files that are made only after a database: then a missing or empty database was lost, and is not made
 * anew. */
static bool held_a_store(const fb_store *store) {
    struct stat about;
    return fstatat(store->files.folder, FB_BLOBS_FOLDER, &about, 0) == 0 ||
           (stat(store->log_path, &about) == 0 && about.st_size > 0);
}

static fb_status open_folder(fb_store *store, const char *folder, fb_error *error) {
    store->files.folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return store->files.folder < 0 ? fail_folder(error, "open", folder, errno) : FB_OK;
}

static fb_status name_files(fb_store *store, const char *folder, fb_error *error) {
    fb_buffer path = {0};
    fb_buffer_printf(&path, "%s/" DATABASE, folder);
    store->path = fb_buffer_take(&path, NULL);
    fb_buffer_printf(&path, "%s/" DATABASE "-wal", folder);
    store->log_path = fb_buffer_take(&path, NULL);
    if (!store->path || !store->log_path) return fb_fail_memory(error);
    return open_folder(store, folder, error);
}

/* The URL of the database, if it is on a server: the one that is given, or that the folder's note has. */
static fb_status find_server(fb_store *store, const char *folder, fb_error *error) {
    const char *given = store->config.database;
    if (given && !fb_is_database_url(given))
        return fb_fail(error, FB_INVALID, "bad-store", NULL, "--store is a URL, as postgresql://USER@HOST:PORT/DATABASE");
    store->path = given ? strdup(given) : fb_store_url(folder);
    if (!store->path) return given ? fb_fail_memory(error) : FB_OK;
    char *file = fb_path_with(folder, "/" DATABASE);
    bool has_file = !file || access(file, F_OK) == 0;
    free(file);
    if (!has_file) return FB_OK;
    return fb_fail(error, FB_CONFLICT, "store-elsewhere", NULL,
                   "the data folder %s has a store of its own, in foldback.sqlite: name another folder, or leave out --store",
                   folder);
}

static fb_status make_files(fb_store *store, const char *folder, fb_error *error) {
    if (store->path) return open_folder(store, folder, error);
    struct stat about = {0};
    fb_status status = name_files(store, folder, error);
    if (status) return status;
    bool is_there = stat(store->path, &about) == 0;
    if ((is_there ? about.st_size == 0 : errno == ENOENT) && held_a_store(store))
        return fb_fail_corrupt(error, is_there ? "its database is empty" : "its database is missing");
    /* SQLite would make it readable for everybody, and gives its other files the same mode. */
    int descriptor = open(store->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0) return fail_folder(error, "open", store->path, errno);
    close(descriptor);
    /* A link, perhaps to another disk, stays one: SQLite runs the statements of the schema where it leads. */
    if (about.st_size || lstat(store->path, &about) || !S_ISREG(about.st_mode)) return FB_OK;
    size_t size;
    const void *bytes = fb_schema_file(&size);
    return fb_folder_write(store->files.folder, DATABASE, bytes, size, error);
}

/* Adds what to do to the error of a damaged store. */
static void tell_cure(const char *folder, const fb_error *met, fb_error *error) {
    bool is_damaged = strcmp(met->code, "store-corrupt") == 0;
    fb_fail(error, met->status, met->code, NULL, "%s%s%s%s", met->message, is_damaged ? ", in the data folder " : "",
            is_damaged ? folder : "",
            is_damaged ? ": foldback db check tells what is wrong, foldback db restore puts a backup in its place" : "");
}

/* ---- open and close ---- */

static fb_status count(fb_connection *connection, const char *sql, int64_t *number, fb_error *error) {
    fb_query query = fb_query_begin(connection, sql, error);
    return fb_read_key(&query, number);
}

static fb_status count_all(fb_connection *connection, fb_totals *totals, fb_error *error) {
    fb_status status = count(connection, "SELECT count(*) FROM graphs", &totals->graphs, error);
    if (!status) status = count(connection, "SELECT count(*) FROM runs", &totals->runs, error);
    if (!status) status = count(connection, "SELECT count(*) FROM blobs", &totals->blobs, error);
    if (status) return status;
    return count(connection, "SELECT CAST(sum(size) AS BIGINT) FROM blobs", &totals->blob_bytes, error);
}

fb_status fb_store_totals(fb_store *store, fb_totals *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_totals totals = fb_writer_read_figures(&store->writer).totals;
    fb_status status = store->replica.is_shared ? fb_readers_take(&store->readers, &connection, error) : FB_OK;
    if (!status && connection) status = count_all(connection, &totals, error);
    if (connection) fb_readers_give_back(&store->readers, connection);
    if (!status) *out = totals;
    return status;
}

static fb_status resume_ulids(fb_store *store, fb_error *error) {
    fb_query query = fb_query_begin(&store->writer.connection, "SELECT max(id) FROM runs", error);
    if (fb_query_row(&query) && strncmp(fb_column_text(&query, 0), "run_", 4) == 0)
        fb_ulid_resume(&store->ulids, fb_column_text(&query, 0) + 4);
    return fb_query_end(&query);
}

static fb_status open_database(fb_store *store, fb_totals *totals, fb_error *error) {
    fb_connection *connection = &store->writer.connection;
    const char *filled_from = store->config.filled_from;
    fb_status status = fb_connection_open(connection, store->path, FB_READS_AND_WRITES, error);
    if (!status && filled_from) status = fb_store_may_be_filled(store, error);
    if (!status) status = fb_migrate(connection, store->config.max_bytes, error);
    if (!status) status = filled_from ? fb_store_begin_filling(store, error) : fb_store_check_filled(connection, error);
    if (!status && fb_store_is_on_server(store)) status = fb_store_identify(store, error);
    if (!status) status = fb_read_unread_graphs(connection, error);
    if (!status) status = fb_read_unread_jobs(connection, error);
    if (!status) status = count_all(connection, totals, error);
    if (!status) status = resume_ulids(store, error);
    if (!status && fb_store_is_on_server(store)) status = fb_ulid_part(&store->ulids, error);
    return status;
}

/* Frees a store whose threads do not run, as far as it was made. */
static void free_store(fb_store *store) {
    fb_connection_close(&store->writer.connection);
    if (store->lock >= 0) close(store->lock);
    if (store->files.folder >= 0) close(store->files.folder);
    fb_bucket_close(store->files.bucket);
    fb_uploads_free(&store->uploads);
    fb_requests_free(&store->requests);
    pthread_mutex_destroy(&store->requests.mutex);
    pthread_mutex_destroy(&store->uploads.mutex);
    pthread_mutex_destroy(&store->files.cache_mutex);
    fb_checked_free(&store->files.checked);
    pthread_mutex_destroy(&store->ulids.mutex);
    pthread_mutex_destroy(&store->replica.mutex);
    fb_buffer_free(&store->replica.others);
    free(store->log_path);
    free(store->path);
    free(store);
}

static fb_status open_readers(fb_store *store, fb_access access, fb_error *error) {
    return fb_readers_open(&store->readers, store->path, access, store->config.readers, &store->is_damaged, error);
}

/* Without a writer: what writes would have to wait for. */
static fb_status start_reading(fb_store *store, const char *folder, fb_access access, fb_error *error) {
    fb_connection *connection = NULL;
    if (store->lock < 0) {
        fb_status held = fb_folder_lock(folder, false, &store->lock, error);
        if (held) return held;
    }
    fb_status status = name_files(store, folder, error);
    if (!status) status = fb_bucket_open(store, error);
    if (!status) status = open_readers(store, access, error);
    if (status) return status;
    status = fb_readers_take(&store->readers, &connection, error);
    if (!status) status = fb_schema_is_newest(connection, error);
    if (!status) status = fb_store_check_filled(connection, error);
    if (connection) fb_readers_give_back(&store->readers, connection);
    if (status) fb_readers_close(&store->readers);
    else fb_writer_refuse(&store->writer);
    return status;
}

/* ---- a store that is copied ---- */

static fb_status migrate_copy(const fb_store *store, fb_error *error) {
    fb_connection connection = {0};
    fb_status status = fb_connection_open(&connection, store->path, FB_READS_AND_WRITES, error);
    if (!status) status = fb_migrate(&connection, 0, error);
    if (!status) status = fb_read_unread_graphs(&connection, error);
    if (!status) status = fb_read_unread_jobs(&connection, error);
    fb_connection_close(&connection);
    return status;
}

/* A file of an earlier schema stays as it is. */
static fb_status use_newest(fb_store *store, fb_access *access, fb_error *error) {
    fb_connection connection = {0};
    int64_t version = 0;
    fb_status status = fb_connection_open(&connection, store->path, *access, error);
    if (!status) status = fb_schema_read(&connection, &version, error);
    if (!status && !version) status = fb_fail(error, FB_NOT_FOUND, "no-store", NULL, "there is no store in %s", store->path);
    bool is_newest = !status && !fb_schema_is_newest(&connection, NULL);
    fb_connection_close(&connection);
    if (status || is_newest) return status;
    status = fb_database_copy(store->path, *access, store->config.migrated, error);
    if (status) return status;
    free(store->path);
    store->path = fb_path_with(store->config.migrated, "");
    *access = FB_READS;
    return store->path ? migrate_copy(store, error) : fb_fail_memory(error);
}

static fb_status open_copied_server(fb_store *store, const char *folder, fb_error *error) {
    fb_connection *connection = &store->writer.connection; /* it holds the store; nothing is written */
    bool is_alone = false;
    fb_status status = open_folder(store, folder, error);
    if (!status) status = fb_connection_open(connection, store->path, FB_READS, error);
    if (!status) status = fb_hold(connection, false, &is_alone, error);
    if (status) return status;
    status = fb_schema_is_newest(connection, NULL);
    if (status)
        return fb_fail(error, FB_CONFLICT, "old-schema", NULL,
                       "the database of the store lacks the newest schema: start a service of this version on it once");
    return fb_store_recognise(store, error);
}

static fb_status open_copied_file(fb_store *store, const char *folder, fb_access *access, fb_error *error) {
    struct stat about;
    fb_status status = fb_folder_look(folder, access, &store->lock, error);
    if (!status && store->lock < 0) status = fb_folder_lock(folder, false, &store->lock, error);
    if (!status) status = name_files(store, folder, error);
    if (!status && stat(store->path, &about) != 0)
        status = fb_fail(error, FB_NOT_FOUND, "no-store", NULL, "there is no store in %s", folder);
    if (!status && *access == FB_READS_AND_WRITES) *access = FB_READS;
    return status ? status : use_newest(store, access, error);
}

/* Held as if it were served, and only read. */
static fb_status start_copied(fb_store *store, const char *folder, fb_error *error) {
    fb_access access = FB_READS_AND_WRITES;
    fb_connection *connection = NULL;
    fb_status status = store->path ? open_copied_server(store, folder, error) : open_copied_file(store, folder, &access, error);
    if (!status) status = fb_bucket_open(store, error);
    if (!status && fb_store_is_on_server(store)) status = fb_store_find_blobs(store, error);
    if (!status) status = open_readers(store, access, error);
    if (status) return status;
    status = fb_readers_take(&store->readers, &connection, error);
    if (!status) status = fb_store_check_filled(connection, error);
    if (connection) fb_readers_give_back(&store->readers, connection);
    if (status) fb_readers_close(&store->readers);
    else fb_writer_refuse(&store->writer);
    return status;
}

bool fb_store_is_shared(const fb_store *store) {
    return store->replica.is_shared;
}

static void tell_others_changed(void *argument) {
    const fb_store *store = argument;
    if (store->config.others_changed) store->config.others_changed(store->config.others_context);
}

static fb_status start(fb_store *store, const char *folder, fb_error *error) {
    fb_access access = FB_READS_AND_WRITES;
    fb_status looked = find_server(store, folder, error);
    if (!looked && store->config.may_only_read && !store->path) looked = fb_folder_look(folder, &access, &store->lock, error);
    if (looked) return looked;
    if (store->config.migrated) return start_copied(store, folder, error);
    if (access != FB_READS_AND_WRITES) return start_reading(store, folder, access, error);
    fb_totals totals = {0};
    fb_status status = hold_folder(store, folder, error);
    if (!status) status = make_files(store, folder, error);
    bool is_on_server = fb_store_is_on_server(store);
    fb_error met = {0};
    if (!status) status = open_database(store, &totals, &met);
    if (status == FB_NO_SPACE && !is_on_server && fb_reserve_use(store->files.folder)) {
        fb_connection_close(&store->writer.connection);
        met = (fb_error){0};
        status = open_database(store, &totals, &met);
    }
    if (met.status) *error = met;
    if (!status) status = fb_blob_folders_make(store->files.folder, error);
    if (!status) status = fb_uploads_load(store, error);
    if (!status) status = fb_bucket_open(store, error);
    if (!status && store->files.bucket) status = fb_cache_make(&store->files, error);
    if (!status && fb_store_is_on_server(store)) status = fb_store_claim_blobs(store, error);
    if (!status && fb_store_is_on_server(store)) status = fb_replica_join(store, error);
    if (!status) status = open_readers(store, FB_READS, error);
    if (status) return status;
    store->writer.connection.is_damaged = &store->is_damaged;
    store->writer.readers = &store->readers;
    store->writer.clean_up = is_on_server ? fb_replica_keep : fb_delete_old_answers;
    store->writer.clean_up_argument = store;
    store->writer.clean_up_interval_ms = is_on_server ? BEAT_MS : CLEAN_UP_MS;
    store->writer.cleaned_up = store->replica.is_shared ? tell_others_changed : NULL;
    if (store->config.filled_from) { /* nothing in it changes but by that */
        store->writer.clean_up = NULL;
        store->writer.clean_up_interval_ms = INT32_MAX;
    }
    store->writer.reserve = is_on_server ? -1 : store->files.folder;
    fb_reserve_keep(store->writer.reserve);
    status = fb_writer_start(&store->writer, store->config.queue_limit, totals, error);
    if (status) fb_readers_close(&store->readers);
    return status;
}

fb_status fb_store_open(const char *folder, const fb_store_config *config, fb_store **out, fb_error *error) {
    fb_store *store = calloc(1, sizeof *store);
    if (!store) return fb_fail_memory(error);
    store->lock = -1;
    store->files.folder = store->writer.reserve = -1;
    store->config = with_defaults(config);
    pthread_mutex_init(&store->uploads.mutex, NULL);
    pthread_mutex_init(&store->files.cache_mutex, NULL);
    fb_checked_init(&store->files.checked);
    store->files.cache_bytes = store->config.bucket.cache_bytes;
    pthread_mutex_init(&store->requests.mutex, NULL);
    pthread_mutex_init(&store->ulids.mutex, NULL);
    pthread_mutex_init(&store->replica.mutex, NULL);
    fb_error met = {0};
    fb_status status = fb_replica_renew_id(store, &met);
    if (!status) status = start(store, folder, &met);
    if (status) tell_cure(folder, &met, error);
    if (status) free_store(store);
    else *out = store;
    return status;
}

void fb_store_close(fb_store *store) {
    if (!store) return;
    fb_writer_stop(&store->writer);
    fb_readers_close(&store->readers);
    if (fb_store_is_on_server(store) && store->writer.has_thread) fb_replica_leave(store);
    fb_writer_close(&store->writer);
    fb_reserve_keep(store->writer.reserve);
    free_store(store);
}

/* ---- health and metrics ---- */

static fb_status can_read(fb_store *store, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    int64_t key = 0;
    fb_query query = fb_query_begin(connection, "SELECT max(key) FROM graphs", error);
    status = fb_read_key(&query, &key);
    fb_readers_give_back(&store->readers, connection);
    return status;
}

/* Takes room and gives it back. */
static fb_status try_to_write(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)argument, (void)added;
    static const char room[65536];
    fb_query insert = fb_query_begin(connection,
                                     "INSERT INTO answers (principal, scope, idempotency_key, request_digest, status, "
                                     "body_size, body, created) "
                                     "VALUES ('', 'health', '', '', 0, 65536, ?, 0)",
                                     error);
    fb_bind_bytes(&insert, room, sizeof room);
    fb_status status = fb_query_run(&insert);
    if (status) return status;
    fb_query delete = fb_query_begin(connection, "DELETE FROM answers WHERE scope = 'health' AND idempotency_key = ''", error);
    return fb_query_run(&delete);
}

fb_status fb_store_health(fb_store *store, fb_error *error) {
    fb_status status = can_read(store, error);
    if (status) return status;
    if (atomic_load(&store->is_damaged))
        return fb_fail(error, FB_IO, "store-corrupt", NULL,
                       "a damaged page of the database was met: foldback db check tells what is wrong, foldback db restore "
                       "puts a backup in its place");
    struct statvfs disk;
    if (fstatvfs(store->files.folder, &disk) == 0 && (uint64_t)disk.f_bavail * disk.f_frsize < HEALTHY_FREE_BYTES)
        return fb_fail(error, FB_NO_SPACE, "disk-full", NULL, "the disk of the store is full");
    fb_writer_figures figures = fb_writer_read_figures(&store->writer);
    return figures.last_failure.status ? fb_writer_run(&store->writer, try_to_write, NULL, error) : FB_OK;
}

static uint64_t file_size(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 ? (uint64_t)about.st_size : 0;
}

static void print_groups(fb_buffer *out, const fb_writer_figures *figures) {
    static const char name[] = "foldback_store_group_size";
    fb_buffer_printf(out, "# HELP %s Writes committed together.\n# TYPE %s histogram\n", name, name);
    uint64_t below = 0;
    for (size_t i = 0; i < FB_GROUP_BUCKETS; i++)
        fb_buffer_printf(out, "%s_bucket{le=\"%u\"} %" PRIu64 "\n", name, 1u << i, below += figures->groups[i]);
    fb_buffer_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %" PRIu64 "\n%s_count %" PRIu64 "\n", name, below, name,
                     figures->writes, name, below);
}

fb_status fb_store_metrics(fb_store *store, fb_buffer *out, fb_error *error) {
    fb_writer_figures figures = fb_writer_read_figures(&store->writer);
    fb_store_totals(store, &figures.totals, NULL); /* while the database is away they are what this process knows */
    fb_print_metric(out, "foldback_store_commits_total", "counter", "Transactions committed.", (double)figures.commits);
    fb_print_metric(out, "foldback_store_writes_total", "counter",
                    "Writes done or failed; divided by the commits: the mean group.", (double)figures.writes);
    fb_print_metric(out, "foldback_store_failed_writes_total", "counter", "Writes that failed.", (double)figures.failed_writes);
    fb_print_metric(out, "foldback_store_largest_group", "gauge", "Most writes committed together since the start.",
                    (double)figures.largest_group);
    print_groups(out, &figures);
    fb_print_metric(out, "foldback_store_queue_depth", "gauge", "Writes that wait.", (double)figures.queued);
    fb_print_metric(out, "foldback_store_checkpoints_total", "counter", "Checkpoints of the write-ahead log.",
                    (double)figures.checkpoints);
    fb_print_metric(out, "foldback_store_failed_checkpoints_total", "counter", "Checkpoints that failed.",
                    (double)figures.failed_checkpoints);
    if (!fb_store_is_on_server(store)) {
        fb_print_metric(out, "foldback_store_wal_bytes", "gauge", "Size of the write-ahead log.",
                        (double)file_size(store->log_path));
        fb_print_metric(out, "foldback_store_database_bytes", "gauge", "Size of the database.", (double)file_size(store->path));
    }
    fb_print_metric(out, "foldback_store_graphs", "gauge", "Graphs stored.", (double)figures.totals.graphs);
    fb_print_metric(out, "foldback_store_runs", "gauge", "Runs stored.", (double)figures.totals.runs);
    fb_print_metric(out, "foldback_store_blobs", "gauge", "Blobs stored.", (double)figures.totals.blobs);
    fb_print_metric(out, "foldback_store_blob_bytes", "gauge", "Size of the blobs together.",
                    (double)figures.totals.blob_bytes);
    fb_print_metric(out, "foldback_store_uploads", "gauge", "Uploads that are not finished.",
                    (double)fb_uploads_count(&store->uploads));
    fb_print_metric(out, "foldback_store_collected_blobs_total", "counter", "Blobs that gc removed.",
                    (double)figures.totals.collected_blobs);
    fb_print_metric(out, "foldback_store_collected_bytes_total", "counter", "Size of the blobs that gc removed.",
                    (double)figures.totals.collected_bytes);
    return out->failed ? fb_fail_memory(error) : FB_OK;
}
