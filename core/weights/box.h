/* Boxes: parts of a tensor, given by a range in each dimension. */
#ifndef FB_WEIGHTS_BOX_H
#define FB_WEIGHTS_BOX_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fb_range {
    int64_t start, size;
} fb_range;

/* A tensor of shape `inner` is reshaped to `outer` (as many elements, none of the sizes 0). Which box of it holds the elements
 * of a box of the reshaped one, in the same row-major order? False when they are not a box. */
bool fb_box_through_reshape(const int64_t *outer, const fb_range *box, int rank, const int64_t *inner, fb_range *inner_box,
                            int inner_rank);

#endif
