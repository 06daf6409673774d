#include "server/graphs/drawn.h"

#include <stdlib.h>
#include <string.h>

#define KEPT 2         /* pairs of graphs: of one who reads and one who compares */
#define LARGEST 500000 /* rows: larger ones are made again each time */

struct fb_drawn_cache {
    pthread_mutex_t mutex;
    fb_drawn_graphs *kept[KEPT]; /* the last one used comes first */
};

fb_drawn_cache *fb_drawn_cache_new(void) {
    fb_drawn_cache *cache = calloc(1, sizeof *cache);
    if (cache) pthread_mutex_init(&cache->mutex, NULL);
    return cache;
}

void fb_drawn_cache_free(fb_drawn_cache *cache) {
    if (!cache) return;
    for (size_t i = 0; i < KEPT; i++) fb_drawn_release(cache->kept[i]);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

void fb_drawn_release(fb_drawn_graphs *drawn) {
    if (!drawn || atomic_fetch_sub(&drawn->holders, 1) > 1) return;
    fb_drawn_rows_free(&drawn->rows);
    fb_arena_free(&drawn->arena);
    fb_buffer_free(&drawn->texts);
    free(drawn->text_ends);
    fb_share_release(drawn->base);
    fb_share_release(drawn->graph);
    free(drawn);
}

static bool is_of(const fb_drawn_graphs *drawn, const fb_shared_graph *base, const fb_shared_graph *graph) {
    return drawn && !strcmp(drawn->graph->id, graph->id) && !drawn->base == !base &&
           (!base || !strcmp(drawn->base->id, base->id));
}

/* Makes the entry the first one; gives what falls out at the end. The mutex is held. */
static fb_drawn_graphs *put_first(fb_drawn_cache *cache, fb_drawn_graphs *drawn) {
    fb_drawn_graphs *next = drawn;
    for (size_t i = 0; i < KEPT; i++) {
        fb_drawn_graphs *here = cache->kept[i];
        cache->kept[i] = next;
        next = here;
        if (here == drawn) return NULL;
    }
    return next;
}

static fb_drawn_graphs *find(fb_drawn_cache *cache, const fb_shared_graph *base, const fb_shared_graph *graph) {
    fb_drawn_graphs *found = NULL;
    pthread_mutex_lock(&cache->mutex);
    for (size_t i = 0; i < KEPT && !found; i++)
        if (is_of(cache->kept[i], base, graph)) found = cache->kept[i];
    if (found) {
        put_first(cache, found);
        atomic_fetch_add(&found->holders, 1);
    }
    pthread_mutex_unlock(&cache->mutex);
    return found;
}

static bool write_texts(fb_drawn_graphs *made) {
    made->text_ends = calloc(made->rows.count, sizeof *made->text_ends);
    for (uint32_t i = 1; made->text_ends && i < made->rows.count; i++) {
        fb_search_text_write(&made->rows, &made->rows.rows[i], &made->texts);
        made->text_ends[i] = made->texts.size;
    }
    return made->text_ends && !made->texts.failed;
}

bool fb_drawn_finds(const fb_drawn_graphs *drawn, const fb_search *search, uint32_t row, bool is_refused) {
    size_t start = drawn->text_ends[row - 1];
    return fb_search_finds(search, drawn->texts.data + start, drawn->text_ends[row] - start, is_refused);
}

fb_status fb_drawn_hold(const fb_app *app, const fb_watch *watch, fb_shared_graph *base, fb_shared_graph *graph,
                        fb_drawn_graphs **out, fb_error *error) {
    *out = find(app->drawn, base, graph);
    if (*out) return FB_OK;
    fb_drawn_graphs *made = calloc(1, sizeof *made), *dropped = NULL;
    if (!made) return fb_fail_memory(error);
    fb_work work = {.watch = watch};
    made->base = base ? fb_share_hold(base) : NULL;
    made->graph = fb_share_hold(graph);
    atomic_init(&made->holders, 1);
    if (!fb_drawn_rows_make(base ? base->graph : NULL, graph->graph, &made->arena, &work, &made->rows)) {
        fb_drawn_release(made);
        return fb_work_failed(&work, error);
    }
    if (!write_texts(made)) {
        fb_drawn_release(made);
        return fb_fail_memory(error);
    }
    made->rows.work = NULL; /* it ends with this call */
    *out = made;
    if (made->rows.count > LARGEST) return FB_OK;
    atomic_fetch_add(&made->holders, 1);
    pthread_mutex_lock(&app->drawn->mutex);
    dropped = put_first(app->drawn, made);
    pthread_mutex_unlock(&app->drawn->mutex);
    fb_drawn_release(dropped);
    return FB_OK;
}
