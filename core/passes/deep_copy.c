/* DeepCopy: does nothing. Optimum's users put it first in a list to protect their model. foldback never modifies a source
 * graph, so it accepts the pass and reports that there was nothing to copy. Exactness: moves. Reversible. */
#include "core/pass/pass.h"

static fb_status inspect(const fb_graph *graph, fb_work *work, fb_buffer *detail, fb_error *error) {
    (void)graph;
    (void)work;
    (void)error;
    fb_buffer_string(detail, "nothing to copy: a source graph is never modified");
    return FB_OK;
}

const fb_pass fb_deep_copy = {
    .name = "DeepCopy",
    .version = 1,
    .summary = "Does nothing: foldback never modifies a source graph.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .inspect = inspect,
};
