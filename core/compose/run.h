/* Running a composition on a graph. The source is never modified. */
#ifndef FB_COMPOSE_RUN_H
#define FB_COMPOSE_RUN_H

#include "core/compose/bisect.h"
#include "core/compose/composition.h"

/* When the graph is verified: once at the end, after each pass, or never. */
typedef enum fb_lint { FB_LINT_END, FB_LINT_EACH, FB_LINT_NONE } fb_lint;

typedef struct fb_run {
    fb_graph *result;
    fb_pass_report *passes; /* one for each call that was run. A round of a preset that applied nothing counts as not run,
                               unless it is its first. */
    size_t count;
    fb_arena arena; /* of the reports */
} fb_run;

/* FB_NO_MEMORY, or FB_IO "lint-failed" when a pass made an invalid graph (our fault). `out` is written on success only; free it
 * with fb_run_free. `watcher` may be NULL. */
fb_status fb_composition_run(const fb_composition *composition, const fb_graph *source, fb_lint lint,
                             const fb_run_watcher *watcher, fb_run *out, fb_error *error);
void fb_run_free(fb_run *run);
/* Makes of the composition what was run: the list that describes the run, and gives it when it is run on the same source. */
fb_status fb_composition_settle(fb_composition *composition, const fb_run *run, fb_error *error);

/* The same of a part of a composition that is settled. */
fb_status fb_composition_run_part(const fb_composition *composition, const fb_run_part *part, const fb_graph *source,
                                  const fb_run_watcher *watcher, fb_run *out, fb_error *error);

/* One call: what fb_composition_run does for each of its composition. `watch` may be NULL. */
fb_status fb_pass_call_run(const fb_pass_call *call, fb_graph_state *work, const fb_watch *watch, fb_pass_report *report,
                           fb_arena *arena, fb_error *error);

/* The JSON array `passes` of an answer: what every pass did and refused. False: fb_work_failed says why. */
bool fb_run_report(const fb_run *run, fb_work *work, fb_buffer *out);

#endif
