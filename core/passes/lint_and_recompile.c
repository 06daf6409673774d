/* LintAndRecompile: verifies the graph at this place in the list, and generates its forward(). Changes nothing. An invalid
 * graph fails the run. Exactness: moves. Reversible. */
#include "core/graph/code.h"
#include "core/pass/pass.h"

static fb_status inspect(const fb_graph *graph, fb_work *work, fb_buffer *detail, fb_error *error) {
    fb_status status = fb_lint_graph(graph, work, error);
    if (status) return status;
    fb_buffer code = {0};
    fb_code_write(graph, FB_MAIN_PROGRAM, work, &code);
    if (code.failed) status = fb_work_failed(work, error);
    else fb_buffer_printf(detail, "verified %zu nodes; generated %zu bytes of Python", fb_node_count(graph), code.size);
    fb_buffer_free(&code);
    return status;
}

const fb_pass fb_lint_and_recompile = {
    .name = "LintAndRecompile",
    .version = 1,
    .summary = "Verifies the graph and generates its code at this place in the list.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .inspect = inspect,
};
