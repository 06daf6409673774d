/* Graphs and passes between the store and those that work on them. */
#ifndef FB_GRAPHS_GRAPHS_H
#define FB_GRAPHS_GRAPHS_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/buffer.h"
#include "core/base/work.h"
#include "core/compose/composition.h"
#include "core/graph/graph.h"
#include "core/weights/blobs.h"
#include "server/graphs/app.h"
#include "server/store/blobs.h"
#include "server/store/rules.h"

/* ---- Decoded graphs, shared by the requests that read them, and a bounded cache of them by id, so that work by id does not
 * parse. All functions are safe from any thread. -------------------------------------------------------------------------- */

/* A graph that does not change any more. It lives until its last holder lets go. */
typedef struct fb_shared_graph {
    const fb_graph *graph;
    char id[FB_ID_LENGTH + 1];
    size_t weight;                       /* bytes of memory, estimated */
    _Atomic(fb_buffer *) code, document; /* NULL until they are asked for */
    atomic_size_t holders;
    atomic_bool has_finite_weights; /* a file of all of them was begun, and none overflows */
} fb_shared_graph;

/* Steals the graph; the caller holds the result. `size` is the canonical document's. NULL when memory is out, and then the
 * graph has been freed. */
fb_shared_graph *fb_share_take(fb_graph *graph, const char *id, size_t size);
/* One more holder, and one less; letting go of NULL is fine. */
fb_shared_graph *fb_share_hold(fb_shared_graph *shared);
void fb_share_release(fb_shared_graph *shared);
/* Its code, which is written when it is first asked for, and lives as long as the graph. NULL: fb_work_failed says why. */
const fb_buffer *fb_share_code(fb_shared_graph *shared, fb_work *work);
/* The graph's canonical document, once a caller has brought it: its bytes are stolen, and live as long as the graph. NULL: none
 * was brought yet, or memory is out. */
const fb_buffer *fb_share_document(fb_shared_graph *shared);
const fb_buffer *fb_share_document_take(fb_shared_graph *shared, char *bytes, size_t size);

typedef struct fb_cache fb_cache;

/* Keeps graphs of `max_bytes` together at most, the least recently used go first. NULL when memory is out. */
fb_cache *fb_cache_new(size_t max_bytes);
void fb_cache_free(fb_cache *cache);

/* The graph with that id, held for the caller, or NULL. */
fb_shared_graph *fb_cache_get(fb_cache *cache, const char *id);

/* A graph goes into the cache only if nothing was dropped since the ticket was taken: take it before the graph is read from the
 * store, and a graph that is deleted meanwhile does not come back through here. */
uint64_t fb_cache_ticket(fb_cache *cache);
/* Holds the graph too, or leaves it when it does not fit or memory is out. */
void fb_cache_put(fb_cache *cache, fb_shared_graph *shared, uint64_t ticket);
void fb_cache_drop(fb_cache *cache, const char *id);

/* Appends hits, misses, entries and bytes in Prometheus' text format. */
void fb_cache_metrics(fb_cache *cache, fb_buffer *out);

/* ---- The blobs that a body is made of, checked while it is sent ---------------------------------------------------------- */

typedef struct fb_blob_check fb_blob_check;

typedef struct fb_body_part {
    uint64_t body; /* bytes of the whole */
    bool is_range; /* perhaps only some of them are sent */
    const fb_watch *watch;
} fb_body_part;

/* Where only a range is sent, or the blobs have over four times as many bytes as the body, they are checked at once, if they
 * are files of up to FB_BLOB_CHECKED_ONCE bytes. Blobs that are not here are left out. FB_IO "store-corrupt" for one that is
 * damaged. */
fb_status fb_blob_check_new(fb_store *store, const char *const *blobs, size_t count, const fb_body_part *part,
                            fb_blob_check **out, fb_error *error);
/* To be called with each part of the body, before it is sent. FB_IO "store-corrupt": a blob has other bytes than its digest
 * says; found with the last part at the latest. A body that does not begin at its beginning is not checked. */
fb_status fb_blob_check_go_on(fb_blob_check *check, uint64_t offset, size_t size, fb_error *error);
/* NULL does nothing. */
void fb_blob_check_free(fb_blob_check *check);

/* ---- Graphs between the store and the decoded form: loaded through the cache, and as the rows that the store takes ------- */

/* A large document on its way to the store, while something else is done with its graph: its frame and its structure are made
 * on a thread of their own, and its bytes go. */
typedef struct fb_packing {
    pthread_t thread;
    fb_buffer document, left_out;
    size_t size;
    int level;
    char structure[FB_ID_LENGTH + 1];
    void *frame;
    size_t frame_size;
    fb_status status;
    fb_error error;
    bool is_joined;
    atomic_bool is_left; /* by one of the two, thread and input: the other one frees it */
} fb_packing;

/* A decoded graph, with its canonical document when it is (or may be) not in the store yet. */
typedef struct fb_graph_input {
    fb_shared_graph *shared;
    fb_buffer document;  /* empty: it came from the store, or is packed */
    fb_buffer left_out;  /* what of it is not part of its structure */
    fb_packing *packing; /* or NULL */
} fb_graph_input;

/* Writes a graph's document and finds its id; steals the graph, also on failure. */
fb_status fb_graph_input_take(fb_graph *graph, const fb_watch *watch, fb_graph_input *out, fb_error *error);
void fb_graph_input_free(fb_graph_input *input);
/* Begins to pack a large document that is not known to be in the store. Where that cannot begin, it stays as it is. */
void fb_graph_input_pack(const fb_app *app, fb_graph_input *input);

/* The canonical document of the graph with that id, from the cache or the store, until release(owner). FB_NOT_FOUND
 * "unknown-graph". */
typedef struct fb_loaded_document {
    const char *bytes;
    size_t size;
    void (*release)(void *owner);
    void *owner;
} fb_loaded_document;
fb_status fb_load_document(const fb_app *app, const char *id, fb_loaded_document *out, fb_error *error);
/* The graph with that id, held for the caller, from the cache or the store. FB_NOT_FOUND "unknown-graph". */
fb_status fb_load_graph(const fb_app *app, const fb_watch *watch, const char *id, fb_shared_graph **out, fb_error *error);

/* A graph as the store takes it. Its texts are borrowed from the input. */
typedef struct fb_graph_row {
    fb_store_graph graph;
    char structure[FB_ID_LENGTH + 1];
    fb_store_mark *marks;
    const char **blobs;
} fb_graph_row;

/* `out` stays where it is while it is in use; free it with fb_graph_row_free. */
fb_status fb_graph_row_make(const fb_graph_input *input, const fb_watch *watch, fb_graph_row *out, fb_error *error);
void fb_graph_row_free(fb_graph_row *row);

/* ---- The store's blobs, as core sees them -------------------------------------------------------------------------------- */

/* Valid as long as the store is open. */
fb_blobs fb_blob_source(fb_store *store);

/* The same for what computes with the bytes: a blob's file is compared with its digest before, as by fb_blob_verify_once. */
typedef struct fb_checked_source {
    fb_store *store;
    const fb_watch *watch; /* may stop the comparison */
} fb_checked_source;
/* Valid as long as `source` is. */
fb_blobs fb_checked_blob_source(fb_checked_source *source);

/* ---- A run that was done, on its way to the store with its graphs -------------------------------------------------------- */

/* A run that has been done but not stored: everything in `run` but id and time is filled in. */
typedef struct fb_new_run {
    fb_store_run run;
    const fb_graph_input *source; /* one with a document is stored as well */
    fb_graph_input *result;       /* likewise; its document may become a part of the answer */
    const json_t *weights;        /* how the source was bound to them (fb_bind_weights), or NULL */
    const char *archive;          /* that the request had the source read from: its digest, or NULL */
    bool is_onnx;                 /* … a model of ONNX */
} fb_new_run;

/* The graphs that the store takes with a run, as they may be new. */
typedef struct fb_new_graphs {
    fb_store_graph graphs[2];
    size_t count;
    fb_graph_row rows[2];
    uint64_t ticket; /* of the cache */
} fb_new_graphs;

/* `out` stays where it is; free it also after a failure. With `trusts_cache` a graph in the cache counts as stored: when it has
 * been deleted in that moment the store refuses the run, FB_NOT_FOUND. */
fb_status fb_new_graphs_make(fb_app *app, const fb_watch *watch, const fb_new_run *made, bool trusts_cache, fb_new_graphs *out,
                             fb_error *error);
/* Graphs that have been stored go into the cache. */
void fb_new_graphs_free(fb_app *app, const fb_new_run *made, bool is_stored, fb_new_graphs *graphs);

/* Retention as the service does it: the store's of runs and of the audit, and the cache lets go of graphs that went. */

/* `by` NULL: the service itself; `watch` may be NULL. As fb_store_retain and
 * fb_store_trim_audit. */
fb_status fb_retain(const fb_app *app, const fb_retention *limits, bool is_dry, const fb_store_actor *by, const fb_watch *watch,
                    fb_removed *out, fb_error *error);

/* ---- Stored passes, rules and layouts, for compositions that name them --------------------------------------------------- */

/* Borrows the app. */
fb_pass_library fb_pass_library_of(const fb_app *app);
/* Stores the layout of that name, if it comes with this binary, unless it is there. `name` NULL: all that come with it. */
fb_status fb_keep_shipped_layouts(const fb_app *app, const char *name, fb_error *error);
/* One of the store, to be freed with fb_pass_free; FB_IO "store-corrupt" when it cannot be read. */
fb_status fb_stored_pass_read(const fb_store_rule *stored, const fb_pass **out, fb_error *error);

#endif
