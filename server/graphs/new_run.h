/* A run that was done, on its way to the store with its graphs. */
#ifndef FB_GRAPHS_NEW_RUN_H
#define FB_GRAPHS_NEW_RUN_H

#include "server/graphs/stored_graph.h"

/* A run that has been done but not stored: everything in `run` but id and time is filled in. */
typedef struct fb_new_run {
    fb_store_run run;
    const fb_graph_input *source, *result; /* those with a document are stored, too */
    const json_t *weights;                 /* how the source was bound to them (weights_input.h), or NULL */
} fb_new_run;

/* What the store takes with a run: those of its graphs that may be new. */
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

#endif
