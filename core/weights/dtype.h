/* Range and precision of the floating dtypes. */
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

#endif
