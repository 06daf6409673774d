/* Whether a graph came from a run, and which run. */
#ifndef FB_HISTORY_RELATION_H
#define FB_HISTORY_RELATION_H

#include "server/app.h"

/* Whether the graph may have come from the run's result: it carries one of the run's marks, or a node that the run inserted or
 * changed is there with the same opcode, target and arguments. For a run that inserted and changed none, and where one of its
 * marks is elsewhere in the graph, it is enough that half of the result's nodes are there with the same opcode and target.
 * `run` has its report. */
fb_status fb_graph_is_related(const fb_app *app, const fb_watch *watch, const fb_graph *graph, const fb_store_run *run,
                              bool *is_related, fb_error *error);

#define FB_RELATED_MAX 10

/* Ids of runs. */
typedef struct fb_related_runs {
    char ids[FB_RELATED_MAX][FB_RUN_ID_LENGTH + 1];
    size_t count;
} fb_related_runs;

/* The runs that made the graph, newest first, one for each pair of source and passes; when `is_whole` (all that the last of
 * them did is to be undone) one for each source. An undo that is exact counts by what it left over; a run that changed nothing
 * has made nothing. */
fb_status fb_find_runs_by_result(const fb_app *app, const char *id, bool is_whole, fb_related_runs *out, fb_error *error);
/* The undoable runs whose marks the graph carries and from whose result it differs least; likewise one for each pair of source
 * and passes, or for each source. Only the newest ones that left marks are looked at. */
fb_status fb_find_runs_by_marks(const fb_app *app, const fb_watch *watch, const fb_graph *graph, bool is_whole,
                                fb_related_runs *out, fb_error *error);

#endif
