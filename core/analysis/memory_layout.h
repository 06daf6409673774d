/* The strides of a value, as far as its operators determine them, and whether its readers depend on them. */
#ifndef FB_ANALYSIS_MEMORY_LAYOUT_H
#define FB_ANALYSIS_MEMORY_LAYOUT_H

#include "core/analysis/alias.h"
#include "core/graph/graph.h"
#include "core/operators/op.h"

/* The memory format that a call asks for by memory_format=. */
typedef enum fb_memory_format {
    FB_FORMAT_UNSAID,
    FB_FORMAT_CONTIGUOUS, /* these four in the order of their numbers in ATen */
    FB_FORMAT_PRESERVE,
    FB_FORMAT_CHANNELS_LAST,
    FB_FORMAT_CHANNELS_LAST_3D,
    FB_FORMAT_UNKNOWN,
} fb_memory_format;
static inline bool fb_format_is_channels_last(fb_memory_format format) {
    return format == FB_FORMAT_CHANNELS_LAST || format == FB_FORMAT_CHANNELS_LAST_3D;
}
/* By name in any place, as its position differs from overload to overload; by the number that ATen takes as well. */
fb_memory_format fb_memory_format_of(const fb_graph *graph, fb_node node);

/* The memory format of a tensor of the document, as its member "memory_format" says it: channels_last of four dimensions, or
 * channels_last_3d of five. UNSAID: row-major. */
fb_memory_format fb_tensor_format(const fb_graph *graph, fb_tensor tensor);
/* The weight of a call of a convolution that reads one as the document has it; else none. */
fb_tensor fb_convolution_weight(const fb_graph *graph, fb_node node);

/* The memory layout of what a call gives in PyTorch: of its operator, or of its operator with these arguments. */
fb_memory_layout fb_layout_of(const fb_graph *graph, fb_node node);
/* Of several inputs of an AS_ALL call, the one that decides before the others. None where it is a number. */
fb_node fb_leading_input(const fb_graph *graph, fb_node node);
/* Surely contiguous: row-major, without gaps. By the node that makes it and, through views, those that it reads; what an input
 * or a parameter looks like is its owner's business, and so not certain. Only for values that are never written in place: that
 * may change a layout as well. */
bool fb_is_contiguous(const fb_graph *graph, fb_node node);
/* Surely images that are either row-major or in channels_last: what convolutions and pools give, and what is computed of one of
 * those element by element, in place as well. */
bool fb_lies_as_image(const fb_graph *graph, fb_node node);
/* Surely without gaps or overlaps, in any order of axes: a result computed from it element by element has the same layout. */
bool fb_is_dense(const fb_graph *graph, fb_node node);
/* May some reader of the value, or of what shares its memory, fail or answer otherwise when it has another layout in memory?
 * True for what the graph returns. */
bool fb_strides_are_read(const fb_graph *graph, fb_node node);
/* The same for what is computed of it as well, which may have its layout. */
bool fb_layout_is_read(const fb_graph *graph, fb_node node);

/* Values of four dimensions, row-major or with the middle two exchanged in memory, as the heads and rows of an attention are:
 */

/* Surely in one of the two orders, perhaps with gaps. */
bool fb_middle_is_ordered(const fb_graph *graph, fb_node node);
/* May a reader of the value, or of what is computed of it, notice which of the two orders it has? So do two results of the
 * graph that would share its memory in one order and be copies in the other. */
bool fb_middle_order_is_read(const fb_graph *graph, fb_node node);

/* By recorded sizes: every dimension of `from` stays in `to` or is split, none are joined. That is a view of any layout. */
bool fb_view_only_splits(const fb_graph *graph, fb_node from, fb_node to);
/* May a call of `view` name a dtype in the place of sizes? The last dimension may have another size then. */
bool fb_is_view_of_dtype(const fb_graph *graph, fb_node view);

/* ---- Changes of a tensor's memory layout that no reader notices. -------------------------------------------------------- */

/* May some reader notice that the node's result, so far contiguous with `row` elements in its last dimension, is now cut out of
 * the columns of a wider tensor? Then one of these reads it, or a tensor that shares its memory:
 *   - a view that does not exist of such columns (`view` never copies, and fails at run time);
 *   - a reshape, flatten or contiguous, which would now copy, while one of the two tensors is written later;
 *   - a question about strides, detach_ (which PyTorch refuses for views), or an operator or module that is not known.
 * A row may cover the last dimensions together, as a convolution's channels with all behind them; channels_last has no other
 * views then. `row` -1: the layout of the result is not known. By recorded shapes, or by a view's own sizes; true where these
 * are not known. */
bool fb_needs_contiguous(const fb_graph *graph, const fb_alias *alias, fb_node node, int64_t row);

#endif
