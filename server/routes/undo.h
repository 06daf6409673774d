/* Undoing the passes of a run, all or some: the run's source comes back, or the source replayed without those passes. */
#ifndef FB_ROUTES_UNDO_H
#define FB_ROUTES_UNDO_H

#include "server/routes/repeated_request.h"
#include "server/routes/run_request.h"

typedef enum fb_undo_kind {
    FB_UNDO_REVERSE,  /* by the rules of the composition: every pass must be reversible */
    FB_UNDO_ROLLBACK, /* from the store: any pass */
} fb_undo_kind;

/* False, and a problem, when the run is itself a reverse or rollback. */
bool fb_check_undoable(const fb_store_run *run, fb_response *response);

/* Undoes what was asked for of `run` (a whole one, with its report) on its unchanged result, stores the new run and responds.
 */
void fb_undo(const fb_request *request, fb_response *response, const fb_run_request *asked, const fb_store_run *run,
             fb_undo_kind kind, fb_repeat *repeat);

#endif
