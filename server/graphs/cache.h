/* Decoded graphs, shared by the requests that read them, and a bounded cache of them by id, so that work by id does not parse.
 * All functions are safe from any thread. */
#ifndef FB_GRAPHS_CACHE_H
#define FB_GRAPHS_CACHE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buffer.h"
#include "core/base/sha256.h"
#include "core/graph/graph.h"

/* A graph that nobody changes any more. It lives until its last holder lets go. */
typedef struct fb_shared_graph {
    const fb_graph *graph;
    char id[FB_ID_LENGTH + 1];
    size_t weight;                       /* bytes of memory, estimated */
    _Atomic(fb_buffer *) code, document; /* NULL until somebody asks */
    atomic_size_t holders;
} fb_shared_graph;

/* Steals the graph; the caller holds the result. `size` is that of the canonical document. NULL when memory is out, and then
 * the graph has been freed. */
fb_shared_graph *fb_share_take(fb_graph *graph, const char *id, size_t size);
/* One more holder, and one less; letting go of NULL is fine. */
fb_shared_graph *fb_share_hold(fb_shared_graph *shared);
void fb_share_release(fb_shared_graph *shared);
/* Its code, which is written when somebody first asks for it, and lives as long as the graph. NULL: fb_work_failed says why. */
const fb_buffer *fb_share_code(fb_shared_graph *shared, fb_work *work);
/* Its canonical document, once somebody has brought it: the bytes are stolen, and live as long as the graph. NULL: nobody has,
 * or memory is out. */
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

#endif
