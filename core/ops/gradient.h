/* Which values of the main program autograd may carry a gradient into, as far as the document tells. */
#ifndef FB_OPS_GRADIENT_H
#define FB_OPS_GRADIENT_H

#include "core/ops/alias.h"

typedef struct fb_gradients fb_gradients;

/* In O(nodes + edges). NULL: fb_work_failed says why. */
fb_gradients *fb_gradients_new(const fb_graph *graph, const fb_alias *alias, fb_work *work);
void fb_gradients_free(fb_gradients *gradients);

/* False only for what depends neither on an input of floating or complex numbers, nor on a tensor with requires_grad, nor on a
 * module or operator that may have such a tensor, unless detach stands in between. */
bool fb_may_carry_gradient(const fb_gradients *gradients, fb_node value);

#endif
