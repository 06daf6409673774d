#include "core/weights/dtype.h"

#include <math.h>

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

/* The bits of a magnitude, rounded: with the exponent above the mantissa, a carry out of the one goes into the other. */
static uint64_t bits_of(const fb_dtype_range *range, double magnitude) {
    int exponent, smallest;
    frexp(range->smallest_normal, &smallest);
    frexp(magnitude, &exponent);
    if (magnitude < range->smallest_normal) exponent = smallest; /* subnormal: the same quantum, no implicit one */
    double quanta = nearbyint(ldexp(magnitude, range->mantissa_bits - exponent));
    return ((uint64_t)(exponent - smallest) << (range->mantissa_bits - 1)) + (uint64_t)quanta;
}

void fb_dtype_encode(fb_dtype dtype, double number, unsigned char *out) {
    const fb_dtype_range *range = &ranges[dtype];
    size_t size = fb_dtype_size(dtype);
    uint64_t infinite = bits_of(range, range->largest) + 1, bits = infinite;
    if (isnan(number)) bits = size == 1 ? 0x7f : infinite | (uint64_t)1 << (range->mantissa_bits - 2);
    else if (isfinite(number)) bits = bits_of(range, fabs(number));
    if (bits > infinite && !isnan(number)) bits = infinite;
    if (signbit(number) && !isnan(number)) bits |= (uint64_t)1 << (8 * size - 1);
    for (size_t i = 0; i < size; i++) out[i] = (unsigned char)(bits >> (8 * i));
}
