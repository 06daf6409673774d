/* Numbers in a dtype: the range, precision and spelling in bytes of the floating ones; elements as float64 and back, many at a
 * time, and arithmetic on them. */
#ifndef FB_WEIGHTS_DTYPE_H
#define FB_WEIGHTS_DTYPE_H

#include "core/graph/graph.h"
#include "core/weights/recipe.h"

typedef struct fb_dtype_range {
    double smallest_normal;
    double smallest_subnormal;
    double largest;    /* largest finite */
    int mantissa_bits; /* with the implicit one: 53, 24, 11, 8 … */
} fb_dtype_range;

/* False for dtypes that are not floating. */
bool fb_dtype_limits(fb_dtype dtype, fb_dtype_range *range);

/* Writes the little-endian bytes of a number in a floating dtype, rounded to nearest even. What is too large becomes infinite,
 * which in float8_e4m3fn is nan. */
void fb_dtype_encode(fb_dtype dtype, double number, unsigned char *out);

/* ---- many at a time: convert.c ------------------------------------------------------------------------------------------- */

/* `dtype` is one that recipes compute with (fb_dtype_is_computed); bytes are little-endian and need not be aligned. Every
 * element of them is exact in float64. */
void fb_decode_numbers(fb_dtype dtype, const unsigned char *bytes, size_t count, double *numbers);
/* Rounded once, to nearest even, as fb_dtype_encode does; nan becomes the positive quiet one. Also to int8, as
 * fb_recipe_rounds_to says. `bytes` may be `numbers`. */
void fb_encode_numbers(fb_dtype dtype, const double *numbers, size_t count, unsigned char *bytes);
/* Rounds the numbers as encoding and decoding them does. */
void fb_round_numbers(fb_dtype dtype, double *numbers, size_t count);

/* x = op(x), for neg, sqrt, rsqrt, exp, sin, cos and round. */
void fb_map_numbers(fb_recipe_op op, double *x, size_t count);
/* x = x op y, or y op x when reversed, for add, sub, mul, div, maximum and minimum. `y` has `count` numbers, or one for all. */
void fb_combine_numbers(fb_recipe_op op, bool is_reversed, double *restrict x, const double *restrict y, bool is_one,
                        size_t count);

#endif
