/* The owners and readers of each tensor: attributes, and nodes that read them. A tensor that one owns and one reads is freed
 * with its reader. */
#ifndef FB_ANALYSIS_TENSOR_NEEDS_H
#define FB_ANALYSIS_TENSOR_NEEDS_H

#include "core/analysis/scopes.h"
#include "core/analysis/usage.h"

typedef struct fb_tensor_needs {
    const fb_graph *graph;
    uint32_t *needs;    /* by tensor: who owns it or reads it */
    fb_tensor *counted; /* by tensor: the last node that counted it, as an id */
    fb_node node;       /* the one at hand, and the elements that it frees */
    int64_t freed;
} fb_tensor_needs;

/* `outer`: as fb_scopes has it. A read that is left out needs nothing. False when memory is out; ended in any case. */
bool fb_tensor_needs_begin(fb_tensor_needs *needs, const fb_graph *graph, const fb_usage *usage, const fb_node *outer,
                           void *context, bool (*is_left_out)(void *context, fb_node read));
void fb_tensor_needs_end(fb_tensor_needs *needs);

/* Elements by which the weights grow where the recipe takes the place of the node: the node's, less those of the tensors in the
 * recipe that only the node needs. Node and recipe are of `trial`, a copy of the graph. INT64_MAX where a size is not known. */
int64_t fb_growth_of(fb_tensor_needs *needs, const fb_graph *trial, fb_node node, fb_value recipe);

#endif
