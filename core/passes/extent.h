/* How large the numbers of a weight are, where the document has its bytes. */
#ifndef FB_PASSES_EXTENT_H
#define FB_PASSES_EXTENT_H

#include "core/graph/graph.h"

typedef struct fb_extent {
    double least, largest; /* absolute values; of those that are finite and not zero */
    bool has_zero, is_finite;
} fb_extent;

/* False when the bytes are not in the document, or are not of a floating dtype that recipes compute with. */
bool fb_tensor_extent(const fb_graph *graph, fb_tensor tensor, fb_extent *out);

#endif
