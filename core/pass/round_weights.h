#ifndef FB_PASS_ROUND_WEIGHTS_H
#define FB_PASS_ROUND_WEIGHTS_H

#include "core/rewrite/rewrite.h"

/* Gives the modules that the nodes call, with all modules inside them, and the attributes that they read, tensors of that dtype
 * in the place of float32 ones. Tied tensors stay tied. */
void fb_round_weights(fb_rewrite *rewrite, const fb_node *nodes, size_t count, fb_dtype dtype);

#endif
