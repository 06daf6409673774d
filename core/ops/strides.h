/* How a value lies in memory, as far as its operators tell, and whether its readers mind. */
#ifndef FB_OPS_STRIDES_H
#define FB_OPS_STRIDES_H

#include "core/graph/graph.h"

/* Surely contiguous: row-major, without gaps. By the node that makes it and, through views, those that it reads; what an input
 * or a parameter looks like is its owner's business, and so not certain. Only for values that are never written in place: that
 * may change a layout, too. */
bool fb_is_contiguous(const fb_graph *graph, fb_node node);
/* Surely without gaps or overlaps, in whatever order of axes: a result computed from it element by element lies in memory as
 * it does. */
bool fb_is_dense(const fb_graph *graph, fb_node node);
/* May some reader of the value, or of what shares its memory, fail or answer otherwise when it lies in memory in another way?
 * True for what the graph returns. */
bool fb_strides_are_read(const fb_graph *graph, fb_node node);

#endif
