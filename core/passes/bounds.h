/* Bounds of the elements of a value, as far as the graph shows them. */
#ifndef FB_PASSES_BOUNDS_H
#define FB_PASSES_BOUNDS_H

#include "core/passes/pass.h"

typedef struct fb_bounds {
    double least, largest; /* perhaps infinite */
} fb_bounds;

/* As `reader` reads it. False when that is not known, or an element may be nan. */
bool fb_bounds_of(fb_matcher *matcher, fb_node value, fb_node reader, fb_bounds *out);

#endif
