/* Walking over elements that lie with gaps in two places: parts of tensors, permuted ones. */
#ifndef FB_WEIGHTS_STRIDED_H
#define FB_WEIGHTS_STRIDED_H

#include "core/weights/recipe.h"

typedef struct fb_strided {
    int rank;
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int64_t from[FB_RECIPE_MAX_RANK], to[FB_RECIPE_MAX_RANK]; /* bytes from one element to the next */
} fb_strided;

/* A run of `count` elements; `from` and `to` are the offsets of the first. */
typedef void fb_strided_run(void *context, int64_t from, int64_t to, int64_t count, int64_t from_stride, int64_t to_stride);

/* Adds an inner dimension; one that goes on where the one before ends becomes part of it. */
void fb_strided_add(fb_strided *s, int64_t size, int64_t from, int64_t to);
/* Calls `run` until all elements have been run over; none of the sizes is 0. */
void fb_strided_each(const fb_strided *s, fb_strided_run *run, void *context);
/* Copies elements of 1, 2, 4, 8 or 16 bytes. */
void fb_strided_copy(const fb_strided *s, const unsigned char *from, unsigned char *to, int64_t element);

/* Bytes from one element to the next in each dimension, where they lie without gaps; the sizes are not 0. */
void fb_packed_strides(int rank, const int64_t *sizes, int64_t element, int64_t *strides);

#endif
