/* One Linear in the place of several, in both dialects. */
#ifndef FB_PASSES_MERGED_LINEAR_H
#define FB_PASSES_MERGED_LINEAR_H

#include "core/passes/layer.h"

/* Inserts, before the first, a Linear that gives the results of all side by side: weights and biases joined, zeros where one
 * has no bias. It is called as they are (they are spelled alike), and owned by a new module after that of the first:
 * "encoder.0.query-key-value-merged". None after a failure. */
fb_node fb_insert_merged_linear(fb_rewrite *rewrite, const fb_linear *linears, size_t count);

/* The Linear becomes the slice of `merged` from `start` on. What it called or read is dropped when nobody else needs it. */
void fb_cut_out_of_merged(fb_rewrite *rewrite, const fb_linear *linear, fb_node merged, int64_t start);

#endif
