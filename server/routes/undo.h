/* Undoing passes, all or some: the graph without them is the source replayed with the others, or, on a graph that was changed
 * since, that merged onto it. */
#ifndef FB_ROUTES_UNDO_H
#define FB_ROUTES_UNDO_H

#include "server/routes/run_answer.h"

typedef enum fb_undo_kind {
    FB_UNDO_REVERSE,  /* by the rules of the composition: every pass must be reversible */
    FB_UNDO_ROLLBACK, /* from the store: any pass */
} fb_undo_kind;

/* False, and a problem, when the run is itself a reverse or rollback. */
bool fb_check_undoable(const fb_store_run *run, fb_response *response);

/* Undoes what was asked for of `run` (a whole one, with its report) on its unchanged result, stores the new run and responds.
 */
void fb_undo_run(const fb_request *request, fb_response *response, const fb_run_request *asked, const fb_store_run *run,
                 fb_undo_kind kind, fb_repeat *repeat);

/* A run of kind "reverse" or "rollback" that has been worked out and not been stored. It may be moved; it owns all that `made`
 * refers to, but for the note and the labels. */
typedef struct fb_undone {
    fb_new_run made; /* `made.result` has a document unless the result is known to be in the store; `made.run` lacks id and
                        time (fb_store_new_run) */
    struct fb_undoing *work;
} fb_undone;
void fb_undone_free(fb_undone *undone);

/* A rollback of passes of a graph that is deployed. `run_id` is the run that made it (of any kind), or NULL: the newest one
 * with that result. `passes` are names (every occurrence in the newest run that has it, whether the one that made the graph or
 * one that this one stands on) and positions (in the passes of that run, or of the run that it undid). On failure this responds
 * and returns false: 404 unknown-graph, unknown-run; 409 nothing-to-undo when no run made the graph; 422 unknown-pass,
 * bad-position, wrong-type, no-passes with a pointer that begins with `passes_pointer`. */
bool fb_undo_deployed(const fb_request *request, fb_response *response, const char *graph_id, const char *run_id,
                      const json_t *passes, const char *passes_pointer, fb_undone *out);

#endif
