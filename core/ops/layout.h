/* What a rewrite may do to a tensor's memory layout without a reader noticing. */
#ifndef FB_OPS_LAYOUT_H
#define FB_OPS_LAYOUT_H

#include "core/graph/graph.h"

/* True when a reader views the node's result (`view`, which never copies) in a shape that joins its last dimension with others.
 * That works on a contiguous tensor, and fails at run time on columns cut out of a wider one. By recorded shapes; false where
 * these do not tell. */
bool fb_is_viewed_across_rows(const fb_graph *graph, fb_node node);

#endif
