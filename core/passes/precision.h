/* What ConvertPrecision decides before it changes anything: which nodes go on computing in float32. */
#ifndef FB_PASSES_PRECISION_H
#define FB_PASSES_PRECISION_H

#include "core/passes/pass.h"

/* The dtype of a node's value: as recorded; if not, of a get_attr node that of the tensor, and of a cast or a factory what it
 * says. Unknown for what is no tensor. */
fb_dtype fb_value_dtype(const fb_graph *g, fb_node n);
/* A cast: takes any dtype, and what it gives does not depend on that. */
bool fb_takes_any_dtype(const fb_graph *g, fb_node n);
/* Does the call look at the numbers or at the dtype of what it reads? A question about sizes does not. */
bool fb_reads_dtype(const fb_graph *g, fb_node n);
/* Is the argument the dtype float32? Is one of the node's? */
bool fb_is_float32(const fb_graph *g, fb_value value);
bool fb_names_float32(const fb_graph *g, fb_node n);
/* A factory that is not told its dtype, but can be: torch.zeros. And the method .float(). */
bool fb_takes_dtype(const fb_graph *g, fb_node n);
bool fb_is_float_method(const fb_graph *g, fb_node n);
/* Does the node call a module that has a tensor of that dtype, or read one? */
bool fb_owns_dtype(const fb_graph *g, fb_node n, fb_dtype dtype);
static inline bool fb_owns_float32(const fb_graph *graph, fb_node node) {
    return fb_owns_dtype(graph, node, FB_FLOAT32);
}
/* Whose call decides about a module's tensors: its own, or that of the nearest one
 * around it; or none. */
fb_module fb_deciding_module(const fb_graph *g, const fb_usage *usage, fb_module module);
/* Of a number in an argument: does it not fit `dtype`, and is `out` to stand there instead? What is a factor stays as it is.
 *
 * The ends of float32's range stand for infinity (masks), and become the ends of the other range. Other numbers that are stored
 * as they are become the nearest one, too; those that are computed with are left to the computation, which is done wide. */
bool fb_literal_overflows(const fb_graph *g, fb_node n, fb_value value, fb_dtype dtype, double *out);
/* Weights whose bytes are in the document, with numbers beyond the range of the dtype. */
void fb_refuse_overflowing_weights(fb_matcher *m, const bool *is_converted, fb_dtype dtype);
/* By node of the main program: does it stay as it is, reading and giving float32? So do
 *   - inputs of the graph, what `keep` names, what carries the pass's mark, unknown operators, what gives float32 whatever it
 *     reads, or float64, or complex numbers, or a dtype that cannot be told, or reads the other narrow dtype,
 *     or stands where autocast is on;
 *   - with a call, the other calls of its module, and what reads that module's tensors;
 *   - with a value that is written in place, all that share its memory, because a cast would be a copy;
 *   - with a value of unknown dtype, its readers and its source, because it cannot be cast;
 *   - weights that one of these reads by get_attr.
 * To be freed; NULL when memory is out. Refuses what stays though nobody asked for it. */
bool *fb_find_staying(fb_matcher *m, const fb_alias *alias);
static inline bool fb_casts_outputs(const json_t *params) {
    return !json_is_false(json_object_get(params, "cast_outputs"));
}

#endif
