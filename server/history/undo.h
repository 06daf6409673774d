/* Undoing passes, all or some: the graph without them is the source replayed with the others, or, on a graph that was changed
 * since, that merged onto it. */
#ifndef FB_HISTORY_UNDO_H
#define FB_HISTORY_UNDO_H

#include "server/graphs/app.h"
#include "server/graphs/graphs.h"
#include "server/history/history.h"

typedef enum fb_undo_kind {
    FB_UNDO_REVERSE,  /* by the rules of the composition: every pass must be reversible */
    FB_UNDO_ROLLBACK, /* from the store: any pass */
} fb_undo_kind;

/* A run of kind "reverse" or "rollback" that has been worked out and not been stored. It may be moved; it owns all that `made`
 * refers to, but for the graph at hand, the note and the labels. */
typedef struct fb_undone {
    fb_new_run made; /* `made.result` has a document unless the result is known to be in the store; `made.run` lacks id and
                        time (fb_store_new_run) */
    struct fb_undoing *work;
} fb_undone;
void fb_undone_free(fb_undone *undone);

/* A request to undo passes of a graph. */
typedef struct fb_undo_task {
    fb_undo_kind kind;
    fb_history history;                /* what the graph at hand is made of, or was before it was changed */
    char run_id[FB_RUN_ID_LENGTH + 1]; /* the run whose passes are meant: positions are positions in it */
    bool reaches_back;                 /* names that this run lacks are looked for in the runs before it, newest first
                                        */
    const json_t *passes;              /* names and positions; NULL: all of that run */
    const char *passes_pointer;
    const fb_graph_input *at_hand; /* may be empty: the graph is in the store */
    const char *graph_id;          /* of the graph at hand */
} fb_undo_task;

/* Why nothing was undone, beside the error. Free it. */
typedef struct fb_undo_refusal {
    fb_conflicts conflicts;    /* of the code "conflict" */
    const char **irreversible; /* names of passes, of the code "irreversible" */
    size_t irreversible_count;
    json_t *names;                     /* that could have been given, of the code "unknown-pass"; or NULL */
    char run_id[FB_RUN_ID_LENGTH + 1]; /* … and the run that a rollback of them is asked of */
    struct fb_undoing *work;           /* which the names live in */
} fb_undo_refusal;
void fb_undo_refusal_free(fb_undo_refusal *refusal);

/* Works it out, and steals the history. FB_INVALID "unknown-pass", "bad-position", "wrong-type", "no-passes"; FB_CONFLICT
 * "nothing-to-undo", "irreversible", "conflict".
 * `*refusal` is empty before; free it after a failure. */
fb_status fb_undo_work_out(const fb_app *app, const fb_watch *watch, fb_undo_task *task, fb_undone *out,
                           fb_undo_refusal *refusal, fb_error *error);

/* A rollback of passes of a graph that is deployed. `run_id` is the run that made it (of any kind), or NULL: the newest one
 * with that result. `passes` are names (every occurrence in the newest run that has it, whether the one that made the graph or
 * one that this one builds on) and positions (in the passes of that run, or of the run that it undid). FB_NOT_FOUND
 * "unknown-graph", "unknown-run"; FB_CONFLICT "nothing-to-undo" when no run made the graph, "conflict" when an external pass
 * does not fit what is left; FB_INVALID "unknown-pass", "bad-position", "wrong-type", "no-passes" with a pointer that begins
 * with `passes_pointer`. */
fb_status fb_undo_deployed(const fb_app *app, const fb_watch *watch, const char *graph_id, const char *run_id,
                           const json_t *passes, const char *passes_pointer, fb_undone *out, fb_undo_refusal *refusal,
                           fb_error *error);

#endif
