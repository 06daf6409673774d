/* Who needs a tensor, to know what memory a constant would make free. */
#ifndef FB_PASSES_CONSTANT_NEEDS_H
#define FB_PASSES_CONSTANT_NEEDS_H

#include "core/passes/pass.h"

typedef struct fb_tensor_needs {
    const fb_graph *graph;
    uint32_t *needs;    /* by tensor: who owns it or reads it */
    fb_tensor *counted; /* by tensor: the last node that counted it, as an id */
    fb_node node;       /* the one at hand, and the elements that it makes free */
    int64_t freed;
} fb_tensor_needs;

/* False when memory is out; freed in any case. */
bool fb_find_tensor_needs(fb_matcher *matcher, fb_tensor_needs *needs);
void fb_tensor_needs_free(fb_tensor_needs *needs);

/* Elements of the tensors in `recipe` (of the graph `trial`) that nobody but the node needs. */
int64_t fb_elements_freed(fb_tensor_needs *needs, const fb_graph *trial, fb_node node, fb_value recipe);
/* INT64_MAX when a size is not known, or they cannot be counted. */
int64_t fb_element_count(const fb_graph *graph, fb_value shape);

/* Nothing is made of the weights of a module that very many read; and to look each of them up takes as long as there are many.
 */
bool fb_is_crowded(fb_matcher *matcher, fb_node read);

#endif
