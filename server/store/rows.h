/* The store's rows: how rows of one table are written and read for the other tables, and how lists of them are read. */
#ifndef FB_STORE_ROWS_H
#define FB_STORE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/models.h"
#include "server/store/store.h"

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
fb_status fb_read_run_by_id(fb_connection *connection, const char *id, fb_store_run *out, fb_error *error);
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
 * collected. While it is named it is not collected. */
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

/* A fb_query_end for a SELECT of one key: the first row's first column, or 0. */
fb_status fb_read_key(fb_query *query, int64_t *key);

/* Binds a key, or NULL for 0. */
void fb_bind_key(fb_query *query, int64_t key);

/* A copy of column `column`; NULL, with the failure noted in *status, when memory is out. */
const char *fb_copy_column(fb_query *query, int column, fb_store_memory **memory, fb_status *status);
/* The same for a column that may be NULL. */
const char *fb_copy_optional(fb_query *query, int column, fb_store_memory **memory, fb_status *status);

/* ---- References of unfinished jobs: graphs, runs and blobs, which stay until the job has ended --------------------------- */

/* Appends to `out` every id of a graph, run or blob that is in the request and in the store, each with its NUL in
 * FB_ID_LENGTH + 1 bytes; each once. */
fb_status fb_find_references(fb_connection *connection, const char *target, const char *body, size_t size, fb_buffer *out,
                             fb_error *error);
/* On the writer: notes what that found. */
fb_status fb_write_references(fb_connection *connection, int64_t job, const fb_buffer *found, fb_error *error);
/* On the writer: the job has ended. Blobs and others that it named were needed until now. */
fb_status fb_release_references(fb_connection *connection, const char *job, int64_t now, fb_error *error);
/* While the store is opened: notes what jobs name that were stored before schema 9. */
fb_status fb_read_unread_jobs(fb_connection *connection, fb_error *error);

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

/* Gives what a list holds to `out`, one of the store's lists of any type. */
#define FB_LIST_GIVE(list, out)                                                                                                \
    do {                                                                                                                       \
        (out)->items = (list)->items;                                                                                          \
        (out)->count = (list)->count;                                                                                          \
        (out)->memory = (list)->memory;                                                                                        \
        fb_copy_text((out)->next_token, sizeof(out)->next_token, (list)->next_token);                                          \
    } while (0)

#endif
