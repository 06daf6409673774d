#include "core/base/float.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct decimal {
    char digits[20]; /* without point or trailing zeros */
    int count;
    int exponent; /* value = 0.d1d2d3… * 10^exponent */
} decimal;

/* Decimal of `count` significant digits closest to `value` (> 0). */
static decimal decimal_closest(double value, int count) {
    char text[40];
    decimal d = {.count = count};
    snprintf(text, sizeof text, "%.*e", count - 1, value);
    d.digits[0] = text[0];
    if (count > 1) memcpy(d.digits + 1, text + 2, (size_t)count - 1);
    d.exponent = atoi(strchr(text, 'e') + 1) + 1;
    return d;
}

static bool decimal_reads_back(const decimal *d, double value) {
    char text[40];
    snprintf(text, sizeof text, "0.%.*se%d", d->count, d->digits, d->exponent);
    return strtod(text, NULL) == value;
}

/* The next decimal of as many digits above `d`. */
static decimal decimal_next(decimal d) {
    int i = d.count - 1;
    while (i >= 0 && d.digits[i] == '9') d.digits[i--] = '0';
    if (i >= 0) {
        d.digits[i]++;
    } else {
        d.digits[0] = '1';
        d.exponent++;
    }
    return d;
}

/* At a power of two the doubles below lie twice as close as those above: the closest decimal may fall short of the half gap
 * below while the next one up, though farther, still reads back. So both are tried before a digit is added. */
static decimal decimal_shortest(double value) {
    /* Every decimal of up to 15 digits survives the way through a normal double, so if one reads back, this is it. */
    int first = value >= 2.2250738585072014e-308 ? 15 : 1;
    for (int count = first; count < 17; count++) {
        decimal d = decimal_closest(value, count);
        if (decimal_reads_back(&d, value)) return d;
        d = decimal_next(d);
        if (decimal_reads_back(&d, value)) return d;
    }
    return decimal_closest(value, 17);
}

size_t fb_float_repr(double value, char out[FB_FLOAT_MAX]) {
    if (isnan(value)) return (size_t)snprintf(out, FB_FLOAT_MAX, "nan");
    const char *sign = signbit(value) ? "-" : "";
    value = fabs(value);
    if (isinf(value)) return (size_t)snprintf(out, FB_FLOAT_MAX, "%sinf", sign);
    if (value == 0) return (size_t)snprintf(out, FB_FLOAT_MAX, "%s0.0", sign);

    decimal d = decimal_shortest(value);
    while (d.count > 1 && d.digits[d.count - 1] == '0') d.count--;
    d.digits[d.count] = '\0';
    int point = d.exponent; /* digits before the point */
    if (point > 16 || point < -3) {
        return (size_t)snprintf(out, FB_FLOAT_MAX, "%s%c%s%se%+03d", sign, d.digits[0], d.count > 1 ? "." : "", d.digits + 1,
                                point - 1);
    }
    if (point <= 0) return (size_t)snprintf(out, FB_FLOAT_MAX, "%s0.%.*s%s", sign, -point, "0000", d.digits);
    if (d.count <= point)
        return (size_t)snprintf(out, FB_FLOAT_MAX, "%s%s%.*s.0", sign, d.digits, point - d.count, "0000000000000000");
    return (size_t)snprintf(out, FB_FLOAT_MAX, "%s%.*s.%s", sign, point, d.digits, d.digits + point);
}
