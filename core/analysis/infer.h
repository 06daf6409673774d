/* Shape and dtype of a node's result, from the meta of its inputs and the rules of ops.def. */
#ifndef FB_ANALYSIS_INFER_H
#define FB_ANALYSIS_INFER_H

#include "core/graph/graph.h"

/* How a refusal for want of a dtype or a shape ends: what to do. */
#define FB_RECORD_DTYPE ". Record it in meta.dtype, or send the option assume with the run"
#define FB_RECORD_SHAPE                                                                                                        \
    ". Record it in meta.shape, as foldback.fx.to_document does of example inputs, or send assume with a rank"

#define FB_MAX_RANK 32 /* of what is inferred; results of more dimensions are unknown */

/* One size: a number, or a symbolic one such as "s0" (then `size` is -1). */
typedef struct fb_dim {
    int64_t size;
    fb_symbol symbol;
} fb_dim;

typedef struct fb_shape_result {
    fb_dtype dtype;            /* FB_DTYPE_UNKNOWN = unknown */
    int rank;                  /* -1 = the shape is unknown */
    fb_dim sizes[FB_MAX_RANK]; /* long, and only the first `rank` mean anything: it is neither cleared nor copied for nothing */
} fb_shape_result;

/* Writes `result` in any case, and is true when the result is one tensor and its shape, its dtype or both are known. Never
 * looks at the node's own meta. Symbolic sizes pass through where equal; anything that would need arithmetic on them is
 * unknown. */
bool fb_infer(const fb_graph *graph, fb_node node, fb_shape_result *result);

/* Does it give its first argument another shape: x.t_(), x.unsqueeze_(0)? What is recorded for that one was true before. */
bool fb_reshapes_in_place(const fb_graph *graph, fb_node node);

/* Meta of a node or of a tensor as a result; false when neither is known. */
bool fb_recorded_shape(const fb_graph *graph, fb_node node, fb_shape_result *result);

/* The shape as a value for meta.shape; none when it is unknown (or memory is out). */
fb_value fb_make_result_shape(fb_graph *graph, const fb_shape_result *result);

#endif
