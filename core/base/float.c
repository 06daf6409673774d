#include "core/base/float.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
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

/* Decimals of few digits, such as 0.1 and 1e-05, without printing and reading numbers. Powers of ten up to 10^22 are doubles,
 * and so are whole numbers below 10^15: their quotient is rounded once, as a reader rounds m * 10^-k. Two decimals of up to 15
 * digits never read as one double, so the m that is found is the only one with so many digits after the point, and the first k
 * has the fewest. */
static bool decimal_of_few_digits(double value, decimal *d) {
    double power = 1;
    for (int k = 0; k <= 22; k++, power *= 10) {
        double whole = rint(value * power);
        if (whole >= 1e15) return false;
        if (whole / power != value) continue;
        char digits[sizeof d->digits];
        int at = sizeof digits;
        for (int64_t rest = (int64_t)whole; rest; rest /= 10) digits[--at] = (char)('0' + rest % 10);
        d->count = (int)sizeof digits - at;
        d->exponent = d->count - k;
        memcpy(d->digits, digits + at, (size_t)d->count);
        return true;
    }
    return false;
}

/* At a power of two the doubles below are twice as close as the ones above: the closest decimal may fall short of the half gap
 * below while the next one up, though farther, still reads back. So both are tried before a digit is added. */
static decimal decimal_shortest(double value) {
    decimal few;
    if (decimal_of_few_digits(value, &few)) return few;
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

static size_t put(char *out, size_t at, const char *text, int size) {
    memcpy(out + at, text, (size_t)size);
    return at + (size_t)size;
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
    size_t at = put(out, 0, sign, *sign ? 1 : 0);
    if (point > 16 || point < -3) {
        int power = point - 1, size = abs(power);
        at = put(out, at, d.digits, 1);
        if (d.count > 1) at = put(out, put(out, at, ".", 1), d.digits + 1, d.count - 1);
        at = put(out, at, power < 0 ? "e-" : "e+", 2);
        if (size > 99) out[at++] = (char)('0' + size / 100);
        out[at++] = (char)('0' + size / 10 % 10);
        out[at++] = (char)('0' + size % 10);
        out[at] = '\0';
        return at;
    }
    int before = point < 0 ? 0 : point < d.count ? point : d.count; /* of its digits */
    if (point <= 0) at = put(out, at, "0", 1);
    at = put(out, at, d.digits, before);
    if (point > d.count) at = put(out, at, "0000000000000000", point - d.count);
    at = put(out, at, ".", 1);
    if (point < 0) at = put(out, at, "0000", -point);
    at = before < d.count ? put(out, at, d.digits + before, d.count - before) : put(out, at, "0", 1);
    out[at] = '\0';
    return at;
}
