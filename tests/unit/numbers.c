#include "tests/unit/numbers.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"

bool has_numbers(fb_dtype dtype) {
    return fb_dtype_is_computed(dtype) || fb_dtype_is_integer(dtype);
}

/* ---- floats of 16 bits --------------------------------------------------------------------------------------------------- */

static uint64_t encode_short(double number, int exponent_bits, int mantissa_bits) {
    uint64_t sign = signbit(number) ? UINT64_C(1) << (exponent_bits + mantissa_bits) : 0;
    uint64_t infinity = ((UINT64_C(1) << exponent_bits) - 1) << mantissa_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    if (isnan(number)) return sign | infinity | 1;
    if (isinf(number)) return sign | infinity;
    int exponent = number == 0 ? 1 - bias : ilogb(number); /* NOLINT: exact */
    if (exponent < 1 - bias) exponent = 1 - bias;
    if (exponent > bias) return sign | infinity;
    uint64_t scaled = (uint64_t)rint(ldexp(fabs(number), mantissa_bits - exponent));
    uint64_t bits = ((uint64_t)(exponent + bias - 1) << mantissa_bits) + scaled; /* a carry goes into the exponent */
    return sign | (bits < infinity ? bits : infinity);
}

static double decode_short(uint64_t bits, int exponent_bits, int mantissa_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1, largest = (1 << exponent_bits) - 1;
    int exponent = (int)(bits >> mantissa_bits) & largest;
    uint64_t mantissa = bits & ((UINT64_C(1) << mantissa_bits) - 1);
    bool is_negative = bits >> (exponent_bits + mantissa_bits) & 1;
    double size = exponent == largest ? (mantissa ? NAN : INFINITY)
                  : exponent ? ldexp((double)(mantissa | UINT64_C(1) << mantissa_bits), exponent - bias - mantissa_bits)
                             : ldexp((double)mantissa, 1 - bias - mantissa_bits);
    return is_negative ? -size : size;
}

/* ---- elements ------------------------------------------------------------------------------------------------------------ */

static uint64_t encode_number(fb_dtype dtype, double number) {
    uint64_t bits = 0;
    float single = (float)number;
    switch (dtype) {
    case FB_FLOAT64: memcpy(&bits, &number, sizeof number); return bits;
    case FB_FLOAT32: memcpy(&bits, &single, sizeof single); return bits; /* little-endian machines, as the service's */
    case FB_FLOAT16: return encode_short(number, 5, 10);
    case FB_BFLOAT16: return encode_short(number, 8, 7);
    case FB_BOOL: return number != 0;
    case FB_INT8: return isnan(number) ? 0 : (uint64_t)(int64_t)rint(fmin(fmax(number, -128), 127));
    default: return fabs(number) < 0x1p62 ? (uint64_t)(int64_t)rint(number) : 0;
    }
}

static double decode_number(fb_dtype dtype, uint64_t bits) {
    double number;
    float single;
    switch (dtype) {
    case FB_FLOAT64: memcpy(&number, &bits, sizeof number); return number;
    case FB_FLOAT32: memcpy(&single, &bits, sizeof single); return (double)single;
    case FB_FLOAT16: return decode_short(bits, 5, 10);
    case FB_BFLOAT16: return decode_short(bits, 8, 7);
    case FB_INT64: return (double)(int64_t)bits;
    case FB_INT32: return (double)(int32_t)bits;
    case FB_INT16: return (double)(int16_t)bits;
    case FB_INT8: return (double)(int8_t)bits;
    default: return (double)bits;
    }
}

void encode_numbers(fb_dtype dtype, const double *numbers, size_t count, fb_buffer *bytes) {
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = encode_number(dtype, numbers[i]);
        fb_buffer_append(bytes, &bits, fb_dtype_size(dtype));
    }
}

void decode_numbers(fb_dtype dtype, const unsigned char *bytes, size_t count, double *numbers) {
    size_t width = fb_dtype_size(dtype);
    for (size_t i = 0; i < count; i++, bytes += width) {
        uint64_t bits = 0;
        if (has_numbers(dtype)) memcpy(&bits, bytes, width);
        numbers[i] = has_numbers(dtype) ? decode_number(dtype, bits) : (double)(fb_hash(bytes, width, 1) >> 40) * 0x1p-24;
    }
}

/* ---- base64 -------------------------------------------------------------------------------------------------------------- */

void encode_base64(const void *bytes, size_t size, fb_buffer *out) {
    size_t length = (size + 2) / 3 * 4;
    char *to = fb_buffer_reserve(out, length + 1);
    if (!to) abort();
    out->size += (size_t)EVP_EncodeBlock((unsigned char *)to, bytes, (int)size);
}

void decode_base64(const char *text, fb_buffer *out) {
    size_t length = strlen(text), padding = 0;
    unsigned char *to = (unsigned char *)fb_buffer_reserve(out, length + 1);
    if (!to) abort();
    while (padding < length && text[length - 1 - padding] == '=') padding++;
    out->size += (size_t)EVP_DecodeBlock(to, (const unsigned char *)text, (int)length) - padding;
}
