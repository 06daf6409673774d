/* What the files of the store share. */
#ifndef FB_STORE_INTERNAL_H
#define FB_STORE_INTERNAL_H

#include <pthread.h>
#include <stddef.h>
#include <sys/stat.h>

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "server/store/blobs.h"
#include "server/store/models.h"
#include "server/store/sql.h"
#include "server/store/store.h"
#include "server/store/ulid.h"

/* The one thread, with the one connection, that writes and checkpoints.
 *
 * Writes wait in a queue; what waits is committed together (group commit). One that fails leaves the others alone: when it had
 * written something, all are performed again, each inside a savepoint of its own. SQLite 3.40.1 can damage a database in WAL
 * mode when two connections checkpoint, so no other connection ever does, and concurrent writers would only starve each other.
 */

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

/* Changes of what the store counts. */
typedef struct fb_totals {
    int64_t graphs, runs;
    int64_t blobs, blob_bytes;
    int64_t collected_blobs, collected_bytes; /* by gc, since the start */
} fb_totals;

/* A change of the database. Runs on the writer's thread; may run again when the group that it was in could not be committed, so
 * it begins by forgetting what it said before. It reports to `error` alone; when it fails, what it wrote is undone. */
typedef fb_status fb_write_function(fb_connection *connection, void *argument, fb_totals *added, fb_error *error);

/* What became of a write. A commit that broke off may have been done: then nothing that a row may need is taken away. */
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

/* The same for a write that makes room. It may use what is kept back when the disk is full. */
fb_status fb_writer_make_room(fb_writer *writer, fb_write_function *function, fb_write_end_function *end, void *argument,
                              fb_error *error);

/* Queues the write and does not wait. The writer frees `argument`, also when it could not be queued. */
fb_status fb_writer_post_take(fb_writer *writer, fb_write_function *function, void *argument, fb_error *error);

fb_writer_figures fb_writer_read_figures(fb_writer *writer);

/* ---- Where the bytes of blobs and uploads are in the data folder, and how a file gets from uploads/ to blobs/ ------------ */

#define FB_UPLOADS_FOLDER "uploads"
#define FB_BLOBS_FOLDER "blobs"
#define FB_BLOB_HEX_LENGTH 64
#define FB_FILE_PATH_MAX 80

/* "blobs/ab/cd/<hex>" and "uploads/<id>", from the data folder. */
void fb_blob_path(const char *digest, char path[FB_FILE_PATH_MAX]);
void fb_upload_path(const char *id, char path[FB_FILE_PATH_MAX]);

/* Makes the two folders that are missing; durable. */
fb_status fb_blob_folders_make(fb_store *store, fb_error *error);

/* On the writer: true when the blob's file is there in its right size. */
bool fb_blob_file_is_there(const fb_store *store, const char *digest, uint64_t size);
/* On the writer: puts the upload's file, whose bytes are on disk, at the blob's place; durable. It keeps the upload's name,
 * too, so that the upload is there until the blob's row is; only where files have one name each it is moved. *is_put is set as
 * soon as the file is there, also when something failed afterwards. */
fb_status fb_blob_file_put(const fb_store *store, const char *upload, const char *digest, bool *is_put, fb_error *error);
/* On the writer: takes that back. */
void fb_blob_file_put_back(const fb_store *store, const char *upload, const char *digest);

/* Keeps some room of the folder's disk back, if it is not yet and there is room; nothing for the folder -1. */
void fb_reserve_keep(int folder);
/* Gives it back; false when there is none. */
bool fb_reserve_use(int folder);

/* Makes the entries of a folder within the data folder durable. */
fb_status fb_folder_sync(const fb_store *store, const char *path, fb_error *error);

/* When a file was last written, in milliseconds since 1970. */
int64_t fb_changed_ms(const struct stat *about);

/* Reports errno's `reason` for what could not be done: "write an upload". */
fb_status fb_fail_file(fb_error *error, const char *what, int reason);

/* ---- The bucket for large blobs (bucket.c), and which of them the data folder has as well (cache.c) --------------------- */

#define FB_CACHE_FOLDER "cache"
#define FB_BUCKET_FILE "blobs-at" /* in the data folder: which bucket the store uses */

typedef struct fb_bucket fb_bucket;

/* A digest whose bytes one thread puts, fetches or removes at a time. */
typedef struct fb_claim {
    char digest[FB_ID_LENGTH + 1];
    struct fb_claim *next;
} fb_claim;

/* store->bucket, which stays NULL when the store has none. Errors as fb_store_open. */
fb_status fb_bucket_open(fb_store *store, fb_error *error);
void fb_bucket_close(fb_bucket *bucket);
struct fb_s3 *fb_bucket_s3(const fb_bucket *bucket);
/* True when what is in it may be removed. */
bool fb_bucket_is_owned(const fb_bucket *bucket);

/* Waits until nobody else has the digest. `claim` stays where it is until it is released. */
void fb_bucket_claim(fb_bucket *bucket, const char *digest, fb_claim *claim);
/* False, at once, when somebody has it. */
bool fb_bucket_try_claim(fb_bucket *bucket, const char *digest, fb_claim *claim);
void fb_bucket_release(fb_bucket *bucket, fb_claim *claim);

/* Gives the digest of a blob by its object's key, which is its path in the data folder. False for any other key. */
bool fb_bucket_digest_of(const char *key, char digest[FB_ID_LENGTH + 1]);

/* With the claim: puts `size` bytes of a file there, unless an object of that size is there and not known to be damaged. */
fb_status fb_bucket_put(fb_bucket *bucket, const char *digest, int file, uint64_t size, bool is_damaged, fb_error *error);
/* With the claim: fetches the blob into `file`, of which nothing is kept when the bytes are not those that the digest says:
 * FB_IO "store-corrupt". */
fb_status fb_bucket_fetch(fb_bucket *bucket, const char *digest, int file, uint64_t size, fb_error *error);
/* Reads a part. FB_IO "store-corrupt" when the object is not there. */
fb_status fb_bucket_read(fb_bucket *bucket, const char *digest, uint64_t offset, void *to, size_t size, fb_error *error);
/* Whether the object is there. FB_IO "store-corrupt" when it has another size. */
fb_status fb_bucket_has(fb_bucket *bucket, const char *digest, uint64_t size, bool *is_there, fb_error *error);
/* With the claim. */
fb_status fb_bucket_remove(fb_bucket *bucket, const char *digest, fb_error *error);
/* FB_CONFLICT "blobs-taken" when the bucket is another store's by now: then nothing in it is to be removed. */
fb_status fb_bucket_check_owner(fb_bucket *bucket, fb_error *error);

/* A blob's file in the cache, open for reading; -1 when it is not there in that size. */
int fb_cache_open(const fb_store *store, const char *digest, uint64_t size);
/* Fetches the blob into the cache, unless it is there; the caller closes the file. Others go to make room; a blob larger than
 * the whole cache is there until it is closed. */
fb_status fb_cache_fetch(fb_store *store, const char *digest, uint64_t size, int *file, fb_error *error);
/* With the claim: moves the file of an upload, whose bytes are on disk, into the cache, or removes it. */
void fb_cache_take(fb_store *store, const char *upload, const char *digest, uint64_t size);
void fb_cache_remove(const fb_store *store, const char *digest);
/* Makes its folder, and removes what was being fetched when the process ended. */
fb_status fb_cache_make(fb_store *store, fb_error *error);

/* ---- Documents, reports and answers are stored as one zstd frame each, with a checksum ----------------------------------- */

/* The frame is malloc'ed (caller frees). `bytes` may be NULL when `size` is 0. */
fb_status fb_frame_pack(const void *bytes, size_t size, int level, void **frame, size_t *frame_size, fb_error *error);

/* Unpacks into malloc'ed bytes (caller frees), NUL-terminated. The frame must hold exactly `size` bytes: else FB_IO
 * "store-corrupt". */
fb_status fb_frame_unpack(const void *frame, size_t frame_size, size_t size, char **bytes, fb_error *error);

/* ---- What the texts and arrays of one result live in: freed together ----------------------------------------------------- */

/* `size` zeroed bytes, aligned for anything, or NULL. `*memory` starts as NULL. */
void *fb_memory_take(fb_store_memory **memory, size_t size);
/* A copy of `text`, or NULL when memory is out. */
const char *fb_memory_text(fb_store_memory **memory, const char *text);

/* ---- Small texts of the store as a whole, each under a name: files of the data folder, or rows in a database on a server - */

#define FB_STORE_FILE "store-at" /* in the data folder: in which database on a server the store is */

/* While the store is opened. *text is malloc'ed, and NULL when there is none. */
fb_status fb_note_read(fb_store *store, const char *name, char **text, fb_error *error);
fb_status fb_note_write(fb_store *store, const char *name, const char *text, fb_error *error);

/* True when the database is on a server. */
bool fb_store_is_on_server(const fb_store *store);
/* While a store on a server is opened: notes in the folder which one it is, and names the folder. FB_CONFLICT
 * "store-elsewhere": the folder is of another store. */
fb_status fb_store_identify(fb_store *store, fb_error *error);
/* Of one that is only read: reads the folder's name. */
fb_status fb_store_recognise(fb_store *store, fb_error *error);
/* The same, once it is known whether there is a bucket: FB_CONFLICT "blobs-elsewhere" when another data folder has the blobs.
 */
fb_status fb_store_claim_blobs(fb_store *store, fb_error *error);
/* Of a store on a server that is only read, without a bucket: FB_CONFLICT "blobs-elsewhere" as above. */
fb_status fb_store_find_blobs(fb_store *store, fb_error *error);
/* Before a store on a server gets a bucket: FB_CONFLICT "blobs-elsewhere" when it has blobs in a data folder. */
fb_status fb_store_check_no_files(fb_store *store, fb_error *error);

/* ---- A store that is a copy of another one, while it is made (copy.c): a row says so ------------------------------------- */

/* FB_CONFLICT "copy-unfinished". */
fb_status fb_store_check_filled(fb_connection *connection, fb_error *error);
/* Of which store it is an unfinished copy, malloc'ed; NULL = not a copy. */
fb_status fb_store_read_filling(fb_connection *connection, char **from, fb_error *error);
fb_status fb_store_begin_filling(fb_store *store, fb_error *error);
fb_status fb_store_end_filling(fb_store *store, fb_error *error);
/* Of a store that is being opened, before anything is changed: FB_CONFLICT "store-not-empty", "copy-unfinished" (of another
 * store); FB_BUSY "store-locked". */
fb_status fb_store_may_be_filled(fb_store *store, fb_error *error);

/* ---- This process among others that use the same database (replica.c) ---------------------------------------------------- */

typedef struct fb_replica {
    pthread_mutex_t mutex;
    char id[FB_ULID_LENGTH + 1]; /* of this process, or of its time since it was taken out last */
    bool is_shared;              /* others may be at work: the database is on a server, and the blobs in a bucket */
    atomic_bool leads;           /* of those at work now it is the one for what one does for all */
    fb_buffer others;            /* those that were seen; the writer's own */
} fb_replica;

void fb_replica_id(fb_store *store, char id[FB_ULID_LENGTH + 1]);
fb_status fb_replica_renew_id(fb_store *store, fb_error *error);
/* Of a store on a server, while it is opened: FB_BUSY "store-locked" when it cannot be beside others, and there are. */
fb_status fb_replica_join(fb_store *store, fb_error *error);
/* Without the writer's thread. */
void fb_replica_leave(fb_store *store);
/* A fb_write_function, about once a second; the argument is the store. */
fb_status fb_replica_keep(fb_connection *connection, void *store, fb_totals *added, fb_error *error);

/* Claims a blob's object among the threads of all replicas: as fb_bucket_claim, _try_claim and _release. */
fb_status fb_object_claim(fb_store *store, const char *digest, fb_claim *claim, fb_error *error);
fb_status fb_object_try_claim(fb_store *store, const char *digest, fb_claim *claim, bool *is_had, fb_error *error);
void fb_object_release(fb_store *store, fb_claim *claim);
/* On the writer: FB_BUSY when it is no longer this replica's. */
fb_status fb_check_claim(fb_connection *connection, fb_store *store, const char *digest, fb_error *error);

/* On the writer: jobs that ran on replicas that are no more wait again. */
fb_status fb_requeue_lost_jobs(fb_connection *connection, fb_error *error);

/* What the store counts: kept up by the writer, or counted where other replicas write as well. */
fb_status fb_store_totals(fb_store *store, fb_totals *out, fb_error *error);

#define FB_REQUEST_BUCKETS 256

/* The requests with an Idempotency-Key that are being answered. */
typedef struct fb_requests {
    pthread_mutex_t mutex;
    struct fb_request *buckets[FB_REQUEST_BUCKETS];
} fb_requests;

#define FB_UPLOAD_BUCKETS 256

/* The uploads that are not finished, open or not. */
typedef struct fb_uploads {
    pthread_mutex_t mutex;
    fb_upload *buckets[FB_UPLOAD_BUCKETS];
    size_t count;
} fb_uploads;

struct fb_store {
    fb_store_config config;             /* with the defaults filled in */
    char *path;                         /* of the database file, or the URL of a database on a server */
    char *log_path;                     /* of the file's write-ahead log; NULL on a server */
    char folder_id[FB_ULID_LENGTH + 1]; /* with a database on a server: of the data folder */
    int lock;
    int folder; /* the data folder, for paths within it */
    fb_writer writer;
    fb_readers readers;
    fb_ulid_source ulids;
    fb_replica replica;
    fb_requests requests;
    fb_uploads uploads;
    fb_bucket *bucket;           /* or NULL */
    pthread_mutex_t cache_mutex; /* while room is made in the cache */
    atomic_bool is_damaged;      /* a page of the database is; until the store is opened again */
};

/* Calls fb_store_config.happened. */
static inline void fb_store_tell(fb_store *store, unsigned what) {
    if (store->config.happened) store->config.happened(store->config.happened_context, what);
}

/* ---- graphs ---- */

/* A graph on its way to the writer. */
typedef struct fb_packed_graph {
    const fb_store_graph *graph;
    int level;
    int64_t created;
    void *frame; /* NULL when the graph was known */
    size_t frame_size;
    bool is_new;
} fb_packed_graph;

/* Compresses on the caller's thread, unless the graph is known. Freed also after a failure. */
fb_status fb_pack_graphs(fb_store *store, const fb_store_graph *graphs, size_t count, fb_packed_graph *packed, fb_error *error);
void fb_packed_graphs_free(fb_packed_graph *packed, size_t count);
/* On the writer: stores the graph if it is new. */
fb_status fb_write_graph(fb_connection *connection, fb_packed_graph *packed, fb_totals *added, fb_error *error);
/* The key of a graph, 0 = unknown. */
fb_status fb_find_graph(fb_connection *connection, const char *id, int64_t *key, fb_error *error);
fb_status fb_fail_unknown_graph(fb_error *error, const char *id);

/* On the writer: a request that stored the graph is done anew when it is repeated. */
fb_status fb_forget_graph_answers(fb_connection *connection, const char *id, fb_error *error);

fb_status fb_add_signature(fb_connection *connection, const char *text, int64_t *id, fb_error *error);

/* ---- runs ---- */

/* A run with its graphs on its way to the writer. */
typedef struct fb_packed_run {
    const fb_store_run *run;
    fb_packed_graph *graphs;
    size_t graph_count;
    void *report;
    size_t report_frame_size;
} fb_packed_run;

/* Freed also after a failure. */
fb_status fb_pack_run(fb_store *store, const fb_store_run *run, const fb_store_graph *graphs, size_t graph_count,
                      fb_packed_run *packed, fb_error *error);
void fb_packed_run_free(fb_packed_run *packed);
/* On the writer: stores the graphs that are new, and the run. */
fb_status fb_write_run(fb_connection *connection, fb_packed_run *packed, fb_totals *added, fb_error *error);
/* The key of a run, 0 = unknown. */
fb_status fb_find_run(fb_connection *connection, const char *id, int64_t *key, fb_error *error);
fb_status fb_fail_unknown_run(fb_error *error, const char *id);
fb_status fb_read_run(fb_connection *connection, int64_t key, bool with_report, fb_store_memory **memory, fb_store_run *out,
                      fb_error *error);

/* ---- models ---- */

/* The key of a model; FB_NOT_FOUND "unknown-model". */
fb_status fb_need_model(fb_connection *connection, const char *name, int64_t *key, fb_error *error);
/* The key of a model's version, 0 = unknown. */
fb_status fb_find_version(fb_connection *connection, int64_t model, const char *name, int64_t *key, fb_error *error);
fb_status fb_fail_unknown_version(fb_error *error, const char *model, const char *name);
/* On the writer; all but `out` are the columns of the new row, `run` 0 and `note` NULL for none. */
fb_status fb_insert_version(fb_connection *connection, int64_t model, const char *name, int64_t graph, int64_t run,
                            const char *note, int64_t created, int64_t *key, fb_error *error);
fb_status fb_read_version(fb_connection *connection, int64_t key, fb_store_memory **memory, fb_store_version *out,
                          fb_error *error);
fb_status fb_read_alias_entry(fb_connection *connection, int64_t number, fb_store_memory **memory, fb_store_alias_entry *out,
                              fb_error *error);

/* ---- blobs ---- */

/* On the writer: `insert` notes that the row (of a graph, a job) names a blob. It is the one way in which a blob is named, and
 * FB_UNLESS_COLLECTED is the end of each such statement: FB_CONFLICT "blob-missing" when the blob was here and has been
 * collected. While it is named nobody collects it. */
#define FB_UNLESS_COLLECTED " WHERE NOT EXISTS (SELECT 1 FROM collected WHERE digest = ?2)"
void fb_claim_named(fb_query *insert, int64_t row, const char *name);
/* On the writer, with the blob's row: it is new; it was removed. */
fb_status fb_blob_came(fb_connection *connection, const char *digest, fb_error *error);
fb_status fb_blob_went(fb_connection *connection, const char *digest, int64_t now, fb_error *error);
/* On the writer: forgets what went long ago. */
fb_status fb_forget_collected(fb_connection *connection, int64_t now, fb_error *error);
/* On the writer: notes what a graph refers to. FB_CONFLICT "blob-missing" as above. */
fb_status fb_write_graph_blobs(fb_connection *connection, int64_t graph, const char *const *blobs, size_t count,
                               fb_error *error);
/* On the writer: what a graph that is about to be deleted refers to was needed until now. */
fb_status fb_release_graph_blobs(fb_connection *connection, int64_t graph, int64_t now, fb_error *error);
/* While the store is opened: does the same for the graphs that were stored before schema 3. */
fb_status fb_read_unread_graphs(fb_connection *connection, fb_error *error);

/* The key of a blob, 0 = unknown. */
fb_status fb_find_blob(fb_connection *connection, const char *digest, int64_t *key, fb_error *error);

/* A new file in uploads/, open for reading and writing. */
fb_status fb_upload_file_make(fb_store *store, char id[FB_UPLOAD_ID_LENGTH + 1], int *file, fb_error *error);
/* Of an opened store: finds the uploads that are there. */
fb_status fb_uploads_load(fb_store *store, fb_error *error);
void fb_uploads_free(fb_uploads *uploads);
size_t fb_uploads_count(fb_uploads *uploads);
/* Removes (or, `is_dry`, counts) those that nobody has open or went on with since `before`; returns how many. */
uint64_t fb_uploads_collect(fb_store *store, int64_t before, bool is_dry);

/* ---- answers ---- */

typedef struct fb_packed_answer {
    fb_store *store;
    const fb_store_answer *answer; /* or NULL: then there is nothing to do */
    int64_t created;
    void *frame;
    size_t frame_size;
} fb_packed_answer;

fb_status fb_pack_answer(fb_store *store, const fb_store_answer *answer, fb_packed_answer *packed, fb_error *error);
void fb_packed_answer_free(fb_packed_answer *packed);
fb_status fb_write_answer(fb_connection *connection, const fb_packed_answer *packed, fb_error *error);
/* A fb_write_function; the argument is the store. Deletes some of the answers that are too old. */
fb_status fb_delete_old_answers(fb_connection *connection, void *store, fb_totals *added, fb_error *error);
void fb_requests_free(fb_requests *requests);

/* A fb_query_end for a SELECT of one key: the first row's first column, or 0. */
fb_status fb_read_key(fb_query *query, int64_t *key);

/* Binds a key, or NULL for 0. */
void fb_bind_key(fb_query *query, int64_t key);

/* A copy of column `column`; NULL, with the failure noted in *status, when memory is out. */
const char *fb_copy_column(fb_query *query, int column, fb_store_memory **memory, fb_status *status);
/* The same for a column that may be NULL. */
const char *fb_copy_optional(fb_query *query, int column, fb_store_memory **memory, fb_status *status);

/* ---- What the jobs that are not finished name: graphs, runs and blobs, which stay until the job has ended ---------------- */

/* Appends to `out` every id of a graph, run or blob that is in the request and in the store, each with its NUL in
 * FB_ID_LENGTH + 1 bytes; each once. */
fb_status fb_find_references(fb_connection *connection, const char *target, const char *body, size_t size, fb_buffer *out,
                             fb_error *error);
/* On the writer: notes what that found. */
fb_status fb_write_references(fb_connection *connection, int64_t job, const fb_buffer *found, fb_error *error);
/* On the writer: the job has ended. What it named was needed until now. */
fb_status fb_release_references(fb_connection *connection, const char *job, int64_t now, fb_error *error);
/* While the store is opened: notes what jobs name that were stored before schema 9. */
fb_status fb_read_unread_jobs(fb_connection *connection, fb_error *error);

/* ---- An upload, as the files that implement it see it -------------------------------------------------------------------- */

/* Its bytes are in the file uploads/<id>. While it is open, only its opener touches it and its file. */
struct fb_upload {
    fb_store *store;
    fb_upload *next; /* in its bucket */
    char id[FB_UPLOAD_ID_LENGTH + 1];
    bool is_kept, is_open;
    bool is_changed;  /* since it was opened */
    bool is_whole;    /* an earlier finish was interrupted: its file may be a blob's already, and is not written to */
    bool is_finished; /* it has become a blob, and its file is gone */
    int file;         /* while it is open */
    uint64_t size;
    int64_t changed; /* when */
    int64_t created; /* of the blob, once it is one */
    fb_sha256 *hash; /* of its bytes; NULL: it is to be computed from the file */
};

/* Lists: which rows meet all conditions, in descending order of their keys, page by page.
 *
 * A condition is one fixed statement that gives the greatest key, not above a given one, that meets it; each is one step in an
 * index. Conditions are combined by asking them in turn until they agree on a key. So any combination of filters needs no SQL
 * of its own, and costs as much as the rarest of them. */

/* ?1 is the highest key; the number, if any, and then the texts that are not NULL are the parameters after it. */
typedef struct fb_condition {
    const char *sql;
    bool has_number;
    int64_t number;
    const char *texts[2];
    size_t group; /* of neighbours in one group, any one suffices */
} fb_condition;

/* A list's filters in one number, to know a page token of another list. `text` may be NULL. */
uint64_t fb_filter_hash(uint64_t hash, const char *text);

/* Reads the row with that key into *item; its texts into `memory`. */
typedef fb_status fb_read_item(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error);

typedef struct fb_row_list {
    void *items; /* in `memory` */
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_row_list;

/* A list: which rows are on it, and how one is read. */
typedef struct fb_list_query {
    fb_condition *conditions; /* of which all hold */
    size_t count;
    /* Where it is given: looks up the number of the first condition, by names that `of` has; its failure is the list's. */
    fb_status (*find)(fb_connection *connection, const char *const *of, int64_t *number, fb_error *error);
    const char *of[2];
    const fb_store_page *page;
    uint64_t filter_hash;
    size_t item_size;
    fb_read_item *read;
} fb_list_query;

/* A page of the rows, read over a connection of the store's. FB_INVALID "bad-page-token". `list` is written on success only. */
fb_status fb_list_read(fb_store *store, const fb_list_query *query, fb_row_list *list, fb_error *error);

/* Gives what a list holds to `out`, which is one of the store's lists of whatever type. */
#define FB_LIST_GIVE(list, out)                                                                                                \
    do {                                                                                                                       \
        (out)->items = (list)->items;                                                                                          \
        (out)->count = (list)->count;                                                                                          \
        (out)->memory = (list)->memory;                                                                                        \
        fb_copy_text((out)->next_token, sizeof(out)->next_token, (list)->next_token);                                          \
    } while (0)

#endif
