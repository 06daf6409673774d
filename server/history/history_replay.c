/* Doing the steps of a history again. */
#include <stdlib.h>

#include "core/compose/undo.h"
#include "server/graphs/blob_source.h"
#include "server/graphs/stored_graph.h"
#include "server/history/history.h"

static fb_undo_step step_of(const fb_history *history, size_t i) {
    const fb_past_step *step = &history->steps[i];
    fb_undo_step out = {.call = fb_past_call(step), .is_undone = step->is_undone};
    out.begins_run = i && step->of != step[-1].of;
    if (!out.call) out.before = step->of->before->graph;
    if (!out.call) out.after = step->of->after->graph;
    return out;
}

fb_status fb_history_replay(const fb_app *app, const fb_watch *watch, const fb_history *history, const fb_graph *ours,
                            fb_graph **out, bool *is_exact, fb_conflicts *conflicts, fb_error *error) {
    fb_shared_graph *source = NULL, *result = NULL;
    fb_undo_step *steps = calloc(history->step_count + 1, sizeof *steps);
    fb_status status = steps ? fb_load_graph(app, watch, history->source, &source, error) : fb_fail_memory(error);
    if (!status && ours) status = fb_load_graph(app, watch, history->result, &result, error);
    for (size_t i = 0; i < history->step_count && !status; i++) steps[i] = step_of(history, i);
    if (!status) {
        fb_blobs blobs = fb_blob_source(app->store);
        fb_undo_plan plan = {.source = source->graph,
                             .steps = steps,
                             .step_count = history->step_count,
                             .result = result ? result->graph : NULL,
                             .ours = ours,
                             .watch = watch,
                             .blobs = &blobs};
        status = fb_undo(&plan, out, is_exact, conflicts, error);
    }
    free(steps);
    fb_share_release(source);
    fb_share_release(result);
    return status;
}
