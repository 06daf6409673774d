#include "core/weights/dtype.h"

/* IEEE 754 binary64, binary32, binary16; bfloat16 is the upper half of binary32; float8 as in the OCP 8-bit formats (E4M3 has
 * no infinities, its largest is 448). */
static const fb_dtype_range ranges[FB_DTYPE_COUNT] = {
    [FB_FLOAT64] = {0x1p-1022, 0x1p-1074, 0x1.fffffffffffffp+1023, 53},
    [FB_FLOAT32] = {0x1p-126, 0x1p-149, 0x1.fffffep+127, 24},
    [FB_FLOAT16] = {0x1p-14, 0x1p-24, 0x1.ffcp+15, 11},
    [FB_BFLOAT16] = {0x1p-126, 0x1p-133, 0x1.fep+127, 8},
    [FB_FLOAT8_E4M3FN] = {0x1p-6, 0x1p-9, 448, 4},
    [FB_FLOAT8_E5M2] = {0x1p-14, 0x1p-16, 57344, 3},
};

bool fb_dtype_limits(fb_dtype dtype, fb_dtype_range *range) {
    if (dtype >= FB_DTYPE_COUNT || ranges[dtype].mantissa_bits == 0) return false;
    *range = ranges[dtype];
    return true;
}
