/* What a rewrite may do to a tensor's memory layout without a reader noticing. */
#ifndef FB_OPS_LAYOUT_H
#define FB_OPS_LAYOUT_H

#include "core/ops/alias.h"

/* May some reader notice that the node's result, so far contiguous with `row` elements in its last dimension, is now cut out of
 * the columns of a wider tensor? Then one of these reads it, or a tensor that shares its memory:
 *   - a view that does not exist of such columns (`view` never copies, and fails at run time);
 *   - a reshape, flatten or contiguous, which would now copy, while one of the two tensors is written later;
 *   - a question about strides, detach_ (which PyTorch refuses for views), or an operator or module that is not known.
 * By recorded shapes, or by a view's own sizes; true where these do not tell. */
bool fb_needs_contiguous(const fb_graph *graph, const fb_alias *alias, fb_node node, int64_t row);

#endif
