#include "server/graphs/graphs.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "core/graph/code.h"

#define BUCKETS 1024
/* Beside its rows and indexes: the first segments of its tables, however few rows they have; its canonical document, and its
 * code, which takes a third of that, once somebody has asked for them. */
#define BYTES_OF_EACH ((size_t)24 << 10)
#define BYTES_OF_TEXTS(document_size) ((document_size) + (document_size) / 2)

typedef struct entry {
    struct entry *next_in_bucket;
    struct entry *newer, *older;
    fb_shared_graph *shared;
} entry;

struct fb_cache {
    pthread_mutex_t mutex;
    entry *buckets[BUCKETS];
    entry *newest, *oldest;
    size_t max_bytes, bytes, count;
    uint64_t drops, hits, misses;
};

/* ---- shared graphs ---- */

fb_shared_graph *fb_share_take(fb_graph *graph, const char *id, size_t size) {
    fb_shared_graph *shared = calloc(1, sizeof *shared);
    if (!shared) {
        fb_graph_free(graph);
        return NULL;
    }
    shared->graph = graph;
    shared->weight = BYTES_OF_EACH + fb_graph_bytes(graph) + BYTES_OF_TEXTS(size);
    memcpy(shared->id, id, sizeof shared->id);
    atomic_init(&shared->code, NULL);
    atomic_init(&shared->document, NULL);
    atomic_init(&shared->holders, 1);
    return shared;
}

fb_shared_graph *fb_share_hold(fb_shared_graph *shared) {
    atomic_fetch_add(&shared->holders, 1);
    return shared;
}

static void free_text(fb_buffer *text) {
    if (text) fb_buffer_free(text);
    free(text);
}

void fb_share_release(fb_shared_graph *shared) {
    if (!shared || atomic_fetch_sub(&shared->holders, 1) > 1) return;
    fb_graph_free((fb_graph *)(uintptr_t)shared->graph); /* its last holder may */
    free_text(atomic_load(&shared->code));
    free_text(atomic_load(&shared->document));
    free(shared);
}

/* Steals the text, and gives it, or what another request has kept in its place meanwhile. NULL when memory is out. */
static const fb_buffer *keep(_Atomic(fb_buffer *) *place, fb_buffer text) {
    fb_buffer *kept = NULL, *own = malloc(sizeof *own);
    if (!own) {
        fb_buffer_free(&text);
        return NULL;
    }
    *own = text;
    if (atomic_compare_exchange_strong(place, &kept, own)) return own;
    free_text(own);
    return kept;
}

const fb_buffer *fb_share_code(fb_shared_graph *shared, fb_work *work) {
    const fb_buffer *code = atomic_load(&shared->code);
    fb_buffer written = {0};
    if (code) return code;
    if (fb_code_write(shared->graph, FB_MAIN_PROGRAM, work, &written)) return keep(&shared->code, written);
    fb_buffer_free(&written);
    return NULL;
}

const fb_buffer *fb_share_document(fb_shared_graph *shared) {
    return atomic_load(&shared->document);
}

const fb_buffer *fb_share_document_take(fb_shared_graph *shared, char *bytes, size_t size) {
    return keep(&shared->document, (fb_buffer){.data = bytes, .size = size});
}

/* ---- the cache; the functions below are called with the mutex held ---- */

/* The pointer in its bucket to the entry of that id, or to NULL. */
static entry **find(fb_cache *cache, const char *id) {
    entry **place = &cache->buckets[fb_hash(id, strlen(id), 0) % BUCKETS];
    while (*place && strcmp((*place)->shared->id, id) != 0) place = &(*place)->next_in_bucket;
    return place;
}

static void unlink_entry(fb_cache *cache, entry *e) {
    *(e->newer ? &e->newer->older : &cache->newest) = e->older;
    *(e->older ? &e->older->newer : &cache->oldest) = e->newer;
}

static void link_newest(fb_cache *cache, entry *e) {
    e->newer = NULL;
    e->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = e;
    cache->newest = e;
}

/* Takes an entry out; its graph is released by the caller, outside the mutex. */
static fb_shared_graph *take_out(fb_cache *cache, entry **place) {
    entry *e = *place;
    fb_shared_graph *shared = e->shared;
    *place = e->next_in_bucket;
    unlink_entry(cache, e);
    cache->bytes -= shared->weight;
    cache->count--;
    free(e);
    return shared;
}

static void add(fb_cache *cache, entry *e, fb_shared_graph *shared) {
    entry **place = find(cache, shared->id);
    e->shared = fb_share_hold(shared);
    e->next_in_bucket = *place;
    *place = e;
    link_newest(cache, e);
    cache->bytes += shared->weight;
    cache->count++;
}

/* ---- from outside ---- */

fb_cache *fb_cache_new(size_t max_bytes) {
    fb_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return NULL;
    cache->max_bytes = max_bytes;
    pthread_mutex_init(&cache->mutex, NULL);
    return cache;
}

void fb_cache_free(fb_cache *cache) {
    if (!cache) return;
    while (cache->oldest) fb_share_release(take_out(cache, find(cache, cache->oldest->shared->id)));
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

fb_shared_graph *fb_cache_get(fb_cache *cache, const char *id) {
    pthread_mutex_lock(&cache->mutex);
    entry *e = *find(cache, id);
    if (e) {
        unlink_entry(cache, e);
        link_newest(cache, e);
        cache->hits++;
    } else {
        cache->misses++;
    }
    fb_shared_graph *shared = e ? fb_share_hold(e->shared) : NULL;
    pthread_mutex_unlock(&cache->mutex);
    return shared;
}

uint64_t fb_cache_ticket(fb_cache *cache) {
    pthread_mutex_lock(&cache->mutex);
    uint64_t ticket = cache->drops;
    pthread_mutex_unlock(&cache->mutex);
    return ticket;
}

void fb_cache_put(fb_cache *cache, fb_shared_graph *shared, uint64_t ticket) {
    entry *e = shared->weight <= cache->max_bytes ? calloc(1, sizeof *e) : NULL;
    if (!e) return;
    pthread_mutex_lock(&cache->mutex);
    bool is_wanted = cache->drops == ticket && !*find(cache, shared->id);
    if (is_wanted) add(cache, e, shared);
    while (cache->bytes > cache->max_bytes) {
        fb_shared_graph *oldest = take_out(cache, find(cache, cache->oldest->shared->id));
        pthread_mutex_unlock(&cache->mutex);
        fb_share_release(oldest);
        pthread_mutex_lock(&cache->mutex);
    }
    pthread_mutex_unlock(&cache->mutex);
    if (!is_wanted) free(e);
}

void fb_cache_drop(fb_cache *cache, const char *id) {
    pthread_mutex_lock(&cache->mutex);
    cache->drops++;
    entry **place = find(cache, id);
    fb_shared_graph *shared = *place ? take_out(cache, place) : NULL;
    pthread_mutex_unlock(&cache->mutex);
    fb_share_release(shared);
}

void fb_cache_metrics(fb_cache *cache, fb_buffer *out) {
    pthread_mutex_lock(&cache->mutex);
    uint64_t hits = cache->hits, misses = cache->misses, count = cache->count, bytes = cache->bytes;
    pthread_mutex_unlock(&cache->mutex);
    fb_print_metric(out, "foldback_cache_hits_total", "counter", "Graphs found decoded in memory.", (double)hits);
    fb_print_metric(out, "foldback_cache_misses_total", "counter", "Graphs that had to be read from the store.",
                    (double)misses);
    fb_print_metric(out, "foldback_cache_graphs", "gauge", "Decoded graphs in memory.", (double)count);
    fb_print_metric(out, "foldback_cache_bytes", "gauge", "What they take, estimated.", (double)bytes);
}
