/* Elements as float64 and back, many at a time; and float64 arithmetic on runs of numbers. */
#ifndef FB_WEIGHTS_CONVERT_H
#define FB_WEIGHTS_CONVERT_H

#include "core/graph/graph.h"
#include "core/weights/recipe.h"

/* `dtype` is one that recipes compute with (fb_dtype_is_computed); bytes are little-endian and need not be aligned. Every
 * element of them is exact in float64. */
void fb_decode_numbers(fb_dtype dtype, const unsigned char *bytes, size_t count, double *numbers);
/* Rounded once, to nearest even, as fb_dtype_encode does; nan becomes the positive quiet one. Also to int8, as
 * fb_recipe_rounds_to says. `bytes` may be `numbers`. */
void fb_encode_numbers(fb_dtype dtype, const double *numbers, size_t count, unsigned char *bytes);
/* What is left of the numbers when they are encoded and decoded again. */
void fb_round_numbers(fb_dtype dtype, double *numbers, size_t count);

/* x = op(x), for neg, sqrt, rsqrt and round. */
void fb_map_numbers(fb_recipe_op op, double *x, size_t count);
/* x = x op y, or y op x when reversed, for add, sub, mul and div. `y` has `count` numbers, or one for all. */
void fb_combine_numbers(fb_recipe_op op, bool is_reversed, double *restrict x, const double *restrict y, bool is_one,
                        size_t count);

#endif
