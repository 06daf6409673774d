/* Verifying a graph that passes made. */
#ifndef FB_PASSES_LINT_H
#define FB_PASSES_LINT_H

#include "core/base/work.h"
#include "core/graph/graph.h"

/* FB_IO "lint-failed" with the first fault when the graph is not valid: a pass has made it so, which is our fault. What `work`
 * is stopped with. */
fb_status fb_lint_graph(const fb_graph *graph, fb_work *work, fb_error *error);

#endif
