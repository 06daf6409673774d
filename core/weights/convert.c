/* Tight loops that a compiler makes vector instructions of: one loop for each dtype and operation, without branches inside.
 * The Makefile compiles this file with -O3. */
#include "core/weights/dtype.h"

#include <math.h>
#include <string.h>

#define BITS_OF_INFINITY UINT64_C(0x7ff0000000000000)
#define BITS_OF_NAN UINT64_C(0x7ff8000000000000)

static inline uint64_t bits_of(double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static inline double number_of(uint64_t bits) {
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* ---- decoding -------------------------------------------------------------------------------------------------------- */

static void decode_float32(const unsigned char *bytes, size_t count, double *numbers) {
    for (size_t i = 0; i < count; i++) {
        float single;
        memcpy(&single, bytes + 4 * i, 4);
        numbers[i] = (double)single;
    }
}

static void decode_bfloat16(const unsigned char *bytes, size_t count, double *numbers) {
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        float single;
        memcpy(&half, bytes + 2 * i, 2);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&single, &bits, 4);
        numbers[i] = (double)single;
    }
}

/* Exponent and mantissa move to float64's place, and the exponent to its bias; without an exponent (zero and subnormals) the
 * mantissa is a count of the smallest. */
static void decode_float16(const unsigned char *bytes, size_t count, double *numbers) {
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, bytes + 2 * i, 2);
        uint64_t magnitude = half & 0x7fff, shifted = magnitude << 42;
        uint64_t normal = shifted + ((uint64_t)(1023 - 15) << 52), small = bits_of((double)(int32_t)magnitude * 0x1p-24);
        uint64_t finite = magnitude < 0x400 ? small : normal;
        uint64_t bits = magnitude < 0x7c00 ? finite : shifted | BITS_OF_INFINITY;
        numbers[i] = number_of(bits | (uint64_t)(half & 0x8000) << 48);
    }
}

void fb_decode_numbers(fb_dtype dtype, const unsigned char *bytes, size_t count, double *numbers) {
    if (dtype == FB_FLOAT32) decode_float32(bytes, count, numbers);
    else if (dtype == FB_BFLOAT16) decode_bfloat16(bytes, count, numbers);
    else if (dtype == FB_FLOAT16) decode_float16(bytes, count, numbers);
    else memmove(numbers, bytes, count * sizeof *numbers);
}

/* ---- encoding -------------------------------------------------------------------------------------------------------- */

static void encode_float64(const double *numbers, size_t count, unsigned char *bytes) {
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = bits_of(numbers[i]);
        bits = (bits & ~(UINT64_C(1) << 63)) > BITS_OF_INFINITY ? BITS_OF_NAN : bits;
        memcpy(bytes + 8 * i, &bits, 8);
    }
}

static void encode_float32(const double *numbers, size_t count, unsigned char *bytes) {
    for (size_t i = 0; i < count; i++) {
        double number = numbers[i];
        float single = (float)(number == number ? number : (double)NAN);
        memcpy(bytes + 4 * i, &single, 4);
    }
}

/* The upper bits of float64, where half a unit is added before the rest is cut off (a carry goes into the exponent); below the
 * smallest normal number float64's own addition does the rounding, next to a number of which that quantum is the last bit. */
static inline uint16_t encode_short(double number, int mantissa_bits, int bias) {
    const int shift = 52 - mantissa_bits;
    const uint64_t infinity = (2 * (uint64_t)bias + 1) << mantissa_bits, rebias = (uint64_t)(1023 - bias) << mantissa_bits;
    const double anchor = number_of((uint64_t)(1023 + 1 - bias - mantissa_bits + 52) << 52);
    uint64_t bits = bits_of(number), sign = bits >> 63;
    bits &= ~(UINT64_C(1) << 63);
    uint64_t normal = ((bits + (UINT64_C(1) << (shift - 1)) - 1 + (bits >> shift & 1)) >> shift) - rebias;
    uint64_t subnormal = bits_of(number_of(bits) + anchor) - bits_of(anchor);
    uint64_t result = bits < (uint64_t)(1024 - bias) << 52 ? subnormal : normal;
    result = result > infinity ? infinity : result;
    result |= sign << 15;
    return (uint16_t)(bits > BITS_OF_INFINITY ? infinity | UINT64_C(1) << (mantissa_bits - 1) : result);
}

static void encode_float16(const double *numbers, size_t count, unsigned char *bytes) {
    for (size_t i = 0; i < count; i++) {
        uint16_t half = encode_short(numbers[i], 10, 15);
        memcpy(bytes + 2 * i, &half, 2);
    }
}

/* The upper half of float64, whose last bit summarises the lower half, is enough to round to bfloat16: integers of 32 bits, of
 * which a vector holds twice as many. False: a number is subnormal or beyond the largest, or nan. */
static bool encode_normal(const double *numbers, size_t count, uint16_t *halves) {
    const int32_t least = (1023 - 126) << 20, most = (1023 + 128) << 20;
    int32_t is_other = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = bits_of(numbers[i]);
        int32_t upper = (int32_t)(bits >> 32), lower = (int32_t)bits, magnitude = upper & INT32_MAX;
        int32_t sticky = magnitude | (lower != 0), is_zero = sticky == 0;
        int32_t rounded = ((sticky + 0xfff + (sticky >> 13 & 1)) >> 13) - ((1023 - 127) << 7);
        is_other |= (!is_zero & (magnitude < least)) | (magnitude >= most);
        halves[i] = (uint16_t)((is_zero ? 0 : rounded) | (upper >> 16 & 0x8000));
    }
    return !is_other;
}

static void encode_bfloat16(const double *numbers, size_t count, unsigned char *bytes) {
    enum { AT_ONCE = 512 };
    uint16_t halves[AT_ONCE];
    for (size_t from = 0; from < count; from += AT_ONCE) {
        size_t some = count - from < AT_ONCE ? count - from : AT_ONCE;
        bool is_done = encode_normal(numbers + from, some, halves);
        for (size_t i = 0; i < some && !is_done; i++) halves[i] = encode_short(numbers[from + i], 7, 127);
        memcpy(bytes + 2 * from, halves, 2 * some);
    }
}

static void encode_int8(const double *numbers, size_t count, unsigned char *bytes) {
    for (size_t i = 0; i < count; i++) {
        double number = numbers[i] == numbers[i] ? rint(numbers[i]) : 0;
        bytes[i] = (unsigned char)(int8_t)(number < INT8_MIN ? INT8_MIN : number > INT8_MAX ? INT8_MAX : number);
    }
}

void fb_encode_numbers(fb_dtype dtype, const double *numbers, size_t count, unsigned char *bytes) {
    if (dtype == FB_FLOAT32) encode_float32(numbers, count, bytes);
    else if (dtype == FB_BFLOAT16) encode_bfloat16(numbers, count, bytes);
    else if (dtype == FB_FLOAT16) encode_float16(numbers, count, bytes);
    else if (dtype == FB_INT8) encode_int8(numbers, count, bytes);
    else encode_float64(numbers, count, bytes);
}

void fb_round_numbers(fb_dtype dtype, double *numbers, size_t count) {
    enum { AT_ONCE = 512 };
    unsigned char bytes[AT_ONCE * sizeof(double)];
    for (size_t i = 0; i < count; i += AT_ONCE) {
        size_t some = count - i < AT_ONCE ? count - i : AT_ONCE;
        fb_encode_numbers(dtype, numbers + i, some, bytes);
        fb_decode_numbers(dtype, bytes, some, numbers + i);
    }
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------------ */

void fb_map_numbers(fb_recipe_op op, double *x, size_t count) {
    if (op == FB_RECIPE_NEG) {
        for (size_t i = 0; i < count; i++) x[i] = -x[i];
    } else if (op == FB_RECIPE_SQRT) {
        for (size_t i = 0; i < count; i++) x[i] = sqrt(x[i]);
    } else if (op == FB_RECIPE_EXP) {
        for (size_t i = 0; i < count; i++) x[i] = exp(x[i]);
    } else if (op == FB_RECIPE_SIN) {
        for (size_t i = 0; i < count; i++) x[i] = sin(x[i]);
    } else if (op == FB_RECIPE_COS) {
        for (size_t i = 0; i < count; i++) x[i] = cos(x[i]);
    } else if (op == FB_RECIPE_ROUND) {
        for (size_t i = 0; i < count; i++) x[i] = rint(x[i]);
    } else {
        for (size_t i = 0; i < count; i++) x[i] = 1 / sqrt(x[i]);
    }
}

#define COMBINE(expression)                                                                                                    \
    do {                                                                                                                       \
        if (is_one) {                                                                                                          \
            const double b = *y;                                                                                               \
            for (size_t i = 0; i < count; i++) {                                                                               \
                const double a = x[i];                                                                                         \
                x[i] = expression;                                                                                             \
            }                                                                                                                  \
        } else {                                                                                                               \
            for (size_t i = 0; i < count; i++) {                                                                               \
                const double a = x[i], b = y[i];                                                                               \
                x[i] = expression;                                                                                             \
            }                                                                                                                  \
        }                                                                                                                      \
    } while (0)

void fb_combine_numbers(fb_recipe_op op, bool is_reversed, double *restrict x, const double *restrict y, bool is_one,
                        size_t count) {
    if (op == FB_RECIPE_ADD) COMBINE(a + b);
    else if (op == FB_RECIPE_MUL) COMBINE(a * b);
    else if (op == FB_RECIPE_MAXIMUM) COMBINE(a > b || a != a || (a == b && signbit(b)) ? a : b); /* a nan stays */
    else if (op == FB_RECIPE_MINIMUM) COMBINE(a < b || a != a || (a == b && signbit(a)) ? a : b);
    else if (op == FB_RECIPE_SUB && is_reversed) COMBINE(b - a);
    else if (op == FB_RECIPE_SUB) COMBINE(a - b);
    else if (is_reversed) COMBINE(b / a);
    else COMBINE(a / b);
}
