/* Why a call that nobody reads, or that is there twice, must stay. */
#ifndef FB_PASSES_EFFECT_H
#define FB_PASSES_EFFECT_H

#include "core/ops/view.h"

/* "unknown-operator", "mutates", "random" or "effect", and the sentence that goes with it; NULL when the call only computes. */
const char *fb_effect_obstacle(const fb_graph *graph, fb_node node, const char **detail);

#endif
