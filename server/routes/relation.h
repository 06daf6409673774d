/* What a graph has to do with runs: it is the result of one, or carries the marks that one left. */
#ifndef FB_ROUTES_RELATION_H
#define FB_ROUTES_RELATION_H

#include "server/app.h"

/* Whether a node of the graph that is among those which the run marked carries the mark still. `run` has its report. */
fb_status fb_graph_carries_marks(const fb_graph *graph, const fb_store_run *run, bool *carries, fb_error *error);

#define FB_RELATED_MAX 10

/* Ids of runs. */
typedef struct fb_related_runs {
    char ids[FB_RELATED_MAX][FB_RUN_ID_LENGTH + 1];
    size_t count;
} fb_related_runs;

/* The optimize runs that made the graph, newest first, one for each pair of source and composition; when `is_whole` (all of the
 * run is to be undone) one for each source. A run that changed nothing has made nothing. */
fb_status fb_find_runs_by_result(fb_store *store, const char *id, bool is_whole, fb_related_runs *out, fb_error *error);
/* The optimize runs whose marks the graph carries, newest first. */
fb_status fb_find_runs_by_marks(fb_store *store, const fb_graph *graph, fb_related_runs *out, fb_error *error);

#endif
