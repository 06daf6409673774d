/* The steps that led from one stored graph to another: of one run, or of several that build on each other. */
#ifndef FB_HISTORY_HISTORY_H
#define FB_HISTORY_HISTORY_H

#include "core/compose/composition.h"
#include "core/diff/merge.h"
#include "server/graphs/graphs.h"

#define FB_HISTORY_MAX 1000 /* steps of several runs */

/* A run with what it takes to do its steps again. */
typedef struct fb_past_run {
    fb_store_run run;                /* with its report */
    fb_composition composition;      /* of an optimize run */
    fb_shared_graph *before, *after; /* of an external run, which has one step */
} fb_past_run;

typedef struct fb_past_step {
    const fb_past_run *of;
    size_t position; /* in the run's passes */
    bool is_undone;  /* for the caller to set */
} fb_past_step;

typedef struct fb_history {
    char source[FB_ID_LENGTH + 1], result[FB_ID_LENGTH + 1];
    fb_past_step *steps;
    size_t step_count;
    fb_past_run **runs; /* those that the steps are of, and perhaps others */
    size_t run_count;
} fb_history;

void fb_history_free(fb_history *history);

/* "optimize" or "external": what can be undone. The others undo. */
bool fb_run_is_undoable(const fb_store_run *run);
/* True if a pass of the run refused something for the numbers of weights: a repetition depends on their bytes. It has its
 * report.
 */
bool fb_run_knew_numbers(const fb_store_run *run);

/* The graph from which the run's steps lead to its result; the steps of an undo are those that it left over. NULL when that is
 * not known (an undo that merged), and when the run changed nothing. `*request`, perhaps NULL, is the caller's: the text lives
 * in it. */
const char *fb_run_origin(const fb_store_run *run, json_t **request);

/* Adds a run's steps: behind the others, and then its origin must be the history's result; or, `at_front`, before them, and
 * then its result must be the history's source. FB_CONFLICT "history-too-long". */
fb_status fb_history_add(const fb_app *app, const fb_watch *watch, fb_history *history, const char *run_id, bool at_front,
                         fb_error *error);

/* A pass of ours; NULL for an external one. */
const fb_pass_call *fb_past_call(const fb_past_step *step);

/* The history that a stored undo was made from, as far as the run records it: of one that was exact the steps that it left
 * over; of one that merged all of them, those marked that it undid. `is_known` false: the run does not say (it merged, and was
 * stored by an earlier version). Free it in either case. */
fb_status fb_history_of_undo(const fb_app *app, const fb_watch *watch, const fb_store_run *run, fb_history *out, bool *is_known,
                             fb_error *error);

/* ---- doing the steps again ---- */

/* The source with the steps that are not undone; `ours` is what became of the result since, onto which that is merged, or NULL.
 * Otherwise as fb_undo. */
fb_status fb_history_replay(const fb_app *app, const fb_watch *watch, const fb_history *history, const fb_graph *ours,
                            fb_graph **out, bool *is_exact, fb_conflicts *conflicts, fb_error *error);

/* ---- history_find.c: which runs led to a graph ---- */

/* Calls `take` for each run, the newest first, through all pages, until it fails or clears `*goes_on`. Runs have no report. */
fb_status fb_each_run(const fb_app *app, const fb_store_run_filter *filter,
                      fb_status (*take)(void *context, const fb_store_run *run, bool *goes_on), void *context, fb_error *error);

/* Finds the steps that lead to the graph, as far back as the run's; an empty history when there are none. */
fb_status fb_history_find(const fb_app *app, const fb_watch *watch, const char *graph_id, const fb_store_run *run,
                          fb_history *out, fb_error *error);
/* Finds the history of the graph that differs least from `graph`, among the run's result and the graphs that are known to be
 * made of it by further runs or by undoing some of its passes. */
fb_status fb_history_nearest(const fb_app *app, const fb_watch *watch, const fb_store_run *run, const fb_graph *graph,
                             fb_history *out, fb_error *error);
/* Adds the newest run that made the history's source and is not in it; false when there is none. */
fb_status fb_history_extend(const fb_app *app, const fb_watch *watch, fb_history *history, bool *is_extended, fb_error *error);

/* Finds out if every run that made the graph began at one whose tensors no pass had made: then no graph is between that
 * original and this one. False where no run is known. */
fb_status fb_history_begins_at_original(const fb_app *app, const fb_watch *watch, const char *graph_id, bool *does,
                                        fb_error *error);

/* Finds out if the graph may have come from the run's result: it carries one of the run's marks, or a node that the run
 * inserted or changed is there with the same opcode, target and arguments. For a run that inserted and changed none, and where
 * one of its marks is elsewhere in the graph, it is enough that half of the result's nodes are there with the same opcode and
 * target. `run` has its report. */
fb_status fb_graph_is_related(const fb_app *app, const fb_watch *watch, const fb_graph *graph, const fb_store_run *run,
                              bool *is_related, fb_error *error);

#define FB_RELATED_MAX 10

/* Ids of runs. */
typedef struct fb_related_runs {
    char ids[FB_RELATED_MAX][FB_RUN_ID_LENGTH + 1];
    size_t count;
} fb_related_runs;

/* The runs that made the graph, newest first, one for each pair of source and passes; when `is_whole` (all that the last of
 * them did is undone) one for each source. An undo that is exact counts by what it left over; a run that changed nothing
 * has made nothing. */
fb_status fb_find_runs_by_result(const fb_app *app, const char *id, bool is_whole, fb_related_runs *out, fb_error *error);
/* The undoable runs whose marks the graph carries and from whose result it differs least; likewise one for each pair of source
 * and passes, or for each source. Only the newest ones that left marks are looked at. */
fb_status fb_find_runs_by_marks(const fb_app *app, const fb_watch *watch, const fb_graph *graph, bool is_whole,
                                fb_related_runs *out, fb_error *error);

/* Finds the passes that made the graph's nodes, as their runs report it: {"linear_default": "MergeLinears 0123…"}, the name and
 * the signature. Without the nodes of which no run says so. */
fb_status fb_find_makers(const fb_app *app, const fb_watch *watch, const char *graph_id, const fb_graph *graph, json_t **out,
                         fb_error *error);

#endif
