/* Undoing passes: the source replayed without them, and merged onto what became of the result since. */
#ifndef FB_COMPOSE_UNDO_H
#define FB_COMPOSE_UNDO_H

#include "core/compose/run.h"
#include "core/diff/merge.h"

/* One step from a run's source to its result, or of a chain of runs. */
typedef struct fb_undo_step {
    const fb_pass_call *call;       /* a pass of ours; NULL: an external one, which is known by what it made of what */
    const fb_graph *before, *after; /* of an external pass; its replay is the merge of their difference */
    bool is_undone;
    bool knew_numbers; /* something was refused for the numbers of weights, so they are looked at again */
    bool
        begins_run; /* a run began here, in which names are free again that were erased before; of the first step it is known */
} fb_undo_step;

typedef struct fb_undo_plan {
    const fb_graph *source;
    const fb_undo_step *steps;
    size_t step_count;
    const fb_graph *result; /* what all steps made of the source; may be NULL when `ours` is */
    const fb_graph *ours;   /* what became of the result since; NULL: nothing, the answer is the plain replay */
    const fb_watch *watch;  /* may be NULL; its parts are the steps */
    const fb_blobs *blobs;  /* where tensors' bytes are, to know which changed; NULL: only inline data is known */
} fb_undo_plan;

/* A new graph. `is_exact`: it is the source replayed without the undone steps. FB_CONFLICT "conflict" fills `conflicts` (empty
 * before); otherwise the errors of fb_composition_run, and what the watch stops it with. `out` and `is_exact` are written on
 * success only.
 *
 * For a merge, the nodes that passes created in the replay get the names that they have in `result`. */
fb_status fb_undo(const fb_undo_plan *plan, fb_graph **out, bool *is_exact, fb_conflicts *conflicts, fb_error *error);

#endif
