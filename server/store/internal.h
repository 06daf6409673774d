/* What the files of the store share. */
#ifndef FB_STORE_INTERNAL_H
#define FB_STORE_INTERNAL_H

#include "server/store/blob_files.h"
#include "server/store/blobs.h"
#include "server/store/frame.h"
#include "server/store/memory.h"
#include "server/store/models.h"
#include "server/store/readers.h"
#include "server/store/sql.h"
#include "server/store/store.h"
#include "server/store/ulid.h"
#include "server/store/writer.h"

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
    fb_store_config config; /* with the defaults filled in */
    char *path;             /* of the database file */
    char *log_path;         /* of its write-ahead log */
    int lock;
    int folder; /* the data folder, for paths within it */
    fb_writer writer;
    fb_readers readers;
    fb_ulid_source ulids;
    fb_requests requests;
    fb_uploads uploads;
    atomic_bool is_damaged; /* a page of the database is; until the store is opened again */
};

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

/* On the writer: notes what a graph refers to. */
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

#endif
