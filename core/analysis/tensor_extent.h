/* The range of the numbers in a tensor. */
#ifndef FB_ANALYSIS_TENSOR_EXTENT_H
#define FB_ANALYSIS_TENSOR_EXTENT_H

#include "core/weights/evaluate.h"

/* Reads the bytes that the document has: what a pass allows depends on these alone, as a document is the same everywhere. False
 * when they are not in it, or are not of a floating dtype that recipes compute with. */
bool fb_tensor_extent(const fb_graph *graph, fb_tensor tensor, fb_extent *out);
/* The same also of what `blobs`, which may be NULL, has, and of what recipes make: reads all of it. */
bool fb_tensor_extent_of(const fb_graph *graph, fb_tensor tensor, const fb_blobs *blobs, fb_extent *out);

#endif
