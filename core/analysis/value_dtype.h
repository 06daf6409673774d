/* The dtype of a node's value, where it comes from, and which nodes depend on it. */
#ifndef FB_ANALYSIS_VALUE_DTYPE_H
#define FB_ANALYSIS_VALUE_DTYPE_H

#include "core/analysis/view.h"

/* As recorded; if not, a get_attr node has its tensor's, and a cast or a factory the one that it names. Unknown for other
 * values. */
fb_dtype fb_value_dtype(const fb_graph *graph, fb_node node);
/* Is the argument the dtype float32? Is one of the node's? */
bool fb_is_literal_float32(const fb_graph *graph, fb_value value);
bool fb_names_float32(const fb_graph *graph, fb_node node);
/* A cast: takes any dtype, and what it gives does not depend on that. */
bool fb_takes_any_dtype(const fb_graph *graph, fb_node node);
/* Does the call look at the numbers or at the dtype of what it reads? A question about sizes does not. */
bool fb_reads_dtype(const fb_graph *graph, fb_node node);
/* A factory of float32 that is given no dtype, but can be: torch.zeros. And the method .float(). */
bool fb_takes_dtype(const fb_graph *graph, fb_node node);
bool fb_is_float_method(const fb_graph *graph, fb_node node);
/* Is the result float32 for any input: of integers, or of nothing at all? */
bool fb_gives_float32(const fb_graph *graph, fb_node node);

/* Visits the tensors of the module that the node calls, or the one that it reads. */
void fb_visit_owned(const fb_graph *graph, fb_node node, void (*visit)(void *context, fb_tensor tensor), void *context);
/* Is one of them of that dtype? */
bool fb_owns_dtype(const fb_graph *graph, fb_node node, fb_dtype dtype);

#endif
