/* What ConvertPrecision changes once it is decided: weights, then nodes. */
#ifndef FB_PASSES_PRECISION_CHANGE_H
#define FB_PASSES_PRECISION_CHANGE_H

#include "core/passes/pass.h"

typedef struct fb_precision_change {
    fb_dtype dtype; /* float16 or bfloat16 */
    bool casts_outputs;
    const fb_node *nodes; /* those which are converted, in order */
    size_t count;
    const fb_node *written; /* whose values are written in place */
    size_t written_count;
} fb_precision_change;

/* Does the node call a module that has a tensor of that dtype, or read one? */
bool fb_owns_dtype(const fb_graph *graph, fb_node node, fb_dtype dtype);
static inline bool fb_owns_float32(const fb_graph *graph, fb_node node) {
    return fb_owns_dtype(graph, node, FB_FLOAT32);
}
/* Weights whose bytes are in the document, with numbers beyond the range of the dtype. */
void fb_refuse_overflowing_weights(fb_matcher *matcher, const bool *is_converted, fb_dtype dtype);

/* Gives the modules that the nodes call, with all modules inside them, and the attributes that they read, tensors of that dtype
 * in the place of float32 ones. What was tied stays tied. */
void fb_convert_weights(fb_rewrite *rewrite, const fb_precision_change *change);
/* Puts casts between these nodes and the others, converts literals, and records the dtypes that come out. */
void fb_convert_nodes(fb_rewrite *rewrite, const fb_precision_change *change);

#endif
