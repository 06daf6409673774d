/* What ConvertPrecision decides before it changes anything: which nodes go on computing in float32. */
#ifndef FB_PASSES_PRECISION_H
#define FB_PASSES_PRECISION_H

#include "core/passes/pass.h"

/* The dtype of a node's value: as recorded; if not, of a get_attr node that of the tensor, and of a cast or a factory what it
 * says. Unknown for what is no tensor. */
fb_dtype fb_value_dtype(const fb_graph *graph, fb_node node);
/* A cast: takes any dtype, and what it gives does not depend on that. */
bool fb_takes_any_dtype(const fb_graph *graph, fb_node node);
/* Does the call look at the numbers or at the dtype of what it reads? A question about sizes does not. */
bool fb_reads_dtype(const fb_graph *graph, fb_node node);
/* Is the argument the dtype float32? Is one of the node's? */
bool fb_is_float32(const fb_graph *graph, fb_value value);
bool fb_names_float32(const fb_graph *graph, fb_node node);

/* A factory that is not told its dtype, but can be: torch.zeros. And the method .float(). */
bool fb_takes_dtype(const fb_graph *graph, fb_node node);
bool fb_is_float_method(const fb_graph *graph, fb_node node);
/* float32 comes out whatever it reads: of integers, or of nothing at all. */
bool fb_gives_float32(const fb_graph *graph, fb_node node);

/* The nearest module around this one that is called as a whole, or none. */
fb_module fb_called_around(const fb_graph *graph, const fb_usage *usage, fb_module module);
/* Whose call decides about a module's tensors: its own, or that of the nearest
 * one around it; or none. */
fb_module fb_deciding_module(const fb_graph *graph, const fb_usage *usage, fb_module module);

static inline bool fb_casts_outputs(const json_t *params) {
    return !json_is_false(json_object_get(params, "cast_outputs"));
}
/* `keep`: is the node called so, or does it use a module that is? Patterns that have matched are noted in `is_used`. */
bool fb_is_kept(const fb_graph *graph, fb_node node, const json_t *keep, bool *is_used);
/* Of a number in an argument: does it not fit `dtype`, and is `out` to stand there instead? What is a factor stays as it is. */
bool fb_literal_overflows(const fb_graph *graph, fb_node node, fb_value value, fb_dtype dtype, double *out);
/* The float32 tensor's bytes are in the document, and some number of it is beyond `largest`. */
bool fb_tensor_overflows(const fb_graph *graph, fb_tensor tensor, double largest);

/* The reason code for which a node that has to do with float32 cannot be converted; NULL when it can, or has nothing to do with
 * it. `*detail` is a sentence. `reads_untyped`: it reads tensors of unknown dtype, which may be float32. */
const char *fb_precision_obstacle(const fb_matcher *matcher, fb_node node, bool reads_untyped, bool is_in_autocast,
                                  const char **detail);

/* By node of the main program: does it stay as it is, reading and giving float32? So do
 *   - inputs of the graph, what `keep` names, what carries the pass's mark, unknown operators, what gives float32 whatever it
 *     reads, or float64, or complex numbers, or a dtype that cannot be told, or reads the other narrow dtype,
 *     or stands where autocast is on;
 *   - with a call, the other calls of its module, and what reads that module's tensors;
 *   - with a value that is written in place, all that share its memory, because a cast would be a copy;
 *   - with a value of unknown dtype, its readers and its source, because it cannot be cast;
 *   - weights that one of these reads by get_attr.
 * To be freed; NULL when memory is out. Refuses what stays though nobody asked for it. */
bool *fb_find_staying(fb_matcher *matcher, const fb_alias *alias);

#endif
