/* Range, precision and spelling in bytes of the floating dtypes. */
#ifndef FB_WEIGHTS_DTYPE_H
#define FB_WEIGHTS_DTYPE_H

#include "core/graph/graph.h"

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

#endif
