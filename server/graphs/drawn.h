/* The rows of a picture (core/picture/rows.h), kept for who asks again: a search is typed letter by letter. */
#ifndef FB_GRAPHS_DRAWN_H
#define FB_GRAPHS_DRAWN_H

#include "core/picture/search.h"
#include "server/graphs/graphs.h"

typedef struct fb_drawn_graphs {
    fb_drawn_rows rows;
    fb_arena arena;
    fb_buffer texts;               /* what can be found of each row (core/picture/search.h), one behind the other */
    size_t *text_ends;             /* of row i: its text begins where that of the row before ends */
    fb_shared_graph *base, *graph; /* `base` may be NULL */
    atomic_size_t holders;
} fb_drawn_graphs;

typedef struct fb_drawn_cache fb_drawn_cache;

/* NULL when memory is out. */
fb_drawn_cache *fb_drawn_cache_new(void);
void fb_drawn_cache_free(fb_drawn_cache *cache);

/* The rows of two graphs, or of one (`base` is NULL), which do not change any more; the caller holds the result, from any
 * thread. */
fb_status fb_drawn_hold(const fb_app *app, const fb_watch *watch, fb_shared_graph *base, fb_shared_graph *graph,
                        fb_drawn_graphs **out, fb_error *error);
/* Does a search find the row? */
bool fb_drawn_finds(const fb_drawn_graphs *drawn, const fb_search *search, uint32_t row, bool is_refused);
/* Letting go of NULL is fine. */
void fb_drawn_release(fb_drawn_graphs *drawn);

#endif
