#include "core/analysis/number.h"

#include <math.h>
#include <stdlib.h>

static bool give_int(int64_t integer, fb_number *out) {
    *out = fb_number_of_int(integer);
    return true;
}

static bool give_real(double real, fb_number *out) {
    *out = fb_number_of_real(real);
    return true;
}

/* Quotient and remainder towards minus infinity, as Python's // and %. */
static bool floor_divide_ints(int64_t a, int64_t b, bool wants_remainder, fb_number *out) {
    if (b == 0 || (b == -1 && a == INT64_MIN)) return false;
    int64_t quotient = a / b, remainder = a % b;
    if (remainder && (remainder < 0) != (b < 0)) {
        quotient--;
        remainder += b;
    }
    return give_int(wants_remainder ? remainder : quotient, out);
}

/* float_divmod of CPython's floatobject.c: the quotient follows from the remainder. */
static bool floor_divide_reals(double a, double b, bool wants_remainder, fb_number *out) {
    if (b == 0) return false;
    double remainder = fmod(a, b), quotient = (a - remainder) / b;
    if (remainder == 0) remainder = copysign(0, b);
    else if ((remainder < 0) != (b < 0)) {
        remainder += b;
        quotient -= 1;
    }
    if (wants_remainder) return give_real(remainder, out);
    if (quotient == 0) return give_real(copysign(0, a / b), out);
    double whole = floor(quotient);
    return give_real(quotient - whole > 0.5 ? whole + 1 : whole, out);
}

static bool power(fb_number a, fb_number b, bool are_ints, fb_number *out) {
    if (!are_ints || b.integer < 0) {
        if (a.real < 0 && b.real != floor(b.real)) return false; /* complex */
        if (a.real == 0 && b.real < 0) return false;
        return give_real(pow(a.real, b.real), out);
    }
    int64_t all = 1, exponent = b.integer;
    if (a.integer >= -1 && a.integer <= 1) exponent = exponent < 2 ? exponent : 2 + exponent % 2; /* as for -1, 0 and 1 */
    for (int64_t i = 0; i < exponent; i++)                                                        /* ends by its overflow */
        if (__builtin_mul_overflow(all, a.integer, &all)) return false;
    return give_int(all, out);
}

bool fb_number_calculate(fb_arithmetic op, fb_number a, fb_number b, fb_number *out) {
    bool are_ints = a.is_int && b.is_int, wants_remainder = op == FB_ARITHMETIC_REMAINDER;
    int64_t integer;
    switch (op) {
    case FB_ARITHMETIC_ADD:
        if (!are_ints) return give_real(a.real + b.real, out);
        return !__builtin_add_overflow(a.integer, b.integer, &integer) && give_int(integer, out);
    case FB_ARITHMETIC_SUB:
        if (!are_ints) return give_real(a.real - b.real, out);
        return !__builtin_sub_overflow(a.integer, b.integer, &integer) && give_int(integer, out);
    case FB_ARITHMETIC_MUL:
        if (!are_ints) return give_real(a.real * b.real, out);
        return !__builtin_mul_overflow(a.integer, b.integer, &integer) && give_int(integer, out);
    case FB_ARITHMETIC_TRUE_DIVIDE: return b.real != 0 && give_real(a.real / b.real, out);
    case FB_ARITHMETIC_FLOOR_DIVIDE:
    case FB_ARITHMETIC_REMAINDER:
        return are_ints ? floor_divide_ints(a.integer, b.integer, wants_remainder, out)
                        : floor_divide_reals(a.real, b.real, wants_remainder, out);
    case FB_ARITHMETIC_POW: return power(a, b, are_ints, out);
    default: return false;
    }
}

bool fb_number_calculate_one(fb_arithmetic op, fb_number a, fb_number *out) {
    bool fits = !a.is_int || a.integer != INT64_MIN;
    switch (op) {
    case FB_ARITHMETIC_NEG: return fits && (a.is_int ? give_int(-a.integer, out) : give_real(-a.real, out));
    case FB_ARITHMETIC_POSITIVE: *out = a; return true;
    case FB_ARITHMETIC_ABS: return fits && (a.is_int ? give_int(llabs(a.integer), out) : give_real(fabs(a.real), out));
    default: return false;
    }
}
