/* The shortest decimal spelling of a double, as Python's repr prints it: the fewest digits that read back to the same double,
 * and of those the closest. Exponent form below 1e-4 and from 1e16 on ("1e-05", "1e+16"); "inf", "-inf", "nan"; "-0.0". */
#ifndef FB_BASE_FLOAT_H
#define FB_BASE_FLOAT_H

#include <stddef.h>

#define FB_FLOAT_MAX 32

/* Writes the spelling and a NUL; returns its length. */
size_t fb_float_repr(double value, char out[FB_FLOAT_MAX]);

#endif
