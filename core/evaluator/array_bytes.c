/* Elements as their dtype has them: rounded and wrapped, and the bytes of files. */
#include <math.h>
#include <string.h>

#include "core/evaluator/array.h"
#include "core/weights/dtype.h"

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

/* To nearest even with that many bits of mantissa (the implicit one included) and that exponent of the smallest normal number.
 */
static float round_float(float value, int bits, int smallest_exponent, float largest) {
    if (!isfinite(value) || value == 0) return value;
    int exponent;
    frexpf(value, &exponent); /* value = m × 2^exponent, 0.5 <= |m| < 1 */
    if (exponent - 1 < smallest_exponent) exponent = smallest_exponent + 1;
    float unit = ldexpf(1, exponent - bits);
    float rounded = rintf(value / unit) * unit; /* exact: powers of two */
    return fabsf(rounded) > largest ? copysignf(INFINITY, value) : rounded;
}

static int64_t wrap_int(int64_t value, fb_dtype dtype) {
    switch (dtype) {
    case FB_INT8: return (int8_t)value;
    case FB_INT16: return (int16_t)value;
    case FB_INT32: return (int32_t)value;
    case FB_UINT8: return (uint8_t)value;
    default: return value;
    }
}

void fb_array_round(const fb_array *array) {
    bool is_half = array->held == FB_HELD_FLOAT && array->dtype != FB_FLOAT32;
    bool is_small = array->held == FB_HELD_INT && array->dtype != FB_INT64;
    if (!is_half && !is_small) return;
    fb_walk walk;
    for (fb_walk_begin(&walk, array, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            if (is_small) {
                int64_t *value = (int64_t *)walk.data[0] + i * walk.strides[0];
                *value = wrap_int(*value, array->dtype);
                continue;
            }
            float *value = (float *)walk.data[0] + i * walk.strides[0];
            *value =
                array->dtype == FB_FLOAT16 ? round_float(*value, 11, -14, 65504.0F) : round_float(*value, 8, -126, 0x1.FEp127F);
        }
    }
}

/* ---- bytes of files ------------------------------------------------------------------------------------------------------ */

static uint64_t read_little_endian(const unsigned char *bytes, size_t size) {
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++) bits |= (uint64_t)bytes[i] << (8 * i);
    return bits;
}

/* The float of 16 bits with `mantissa` explicit ones. */
static float decode_half(uint64_t bits, int mantissa) {
    int exponent = (int)(bits >> mantissa & ((1U << (15 - mantissa)) - 1)), bias = (1 << (14 - mantissa)) - 1;
    int64_t fraction = (int64_t)(bits & ((1U << mantissa) - 1));
    float magnitude;
    if (exponent == 2 * bias + 1) magnitude = fraction ? NAN : INFINITY;
    else if (exponent) magnitude = ldexpf((float)(fraction + (1 << mantissa)), exponent - bias - mantissa);
    else magnitude = ldexpf((float)fraction, 1 - bias - mantissa);
    return bits >> 15 ? -magnitude : magnitude;
}

static double decode(fb_dtype dtype, const unsigned char *bytes) {
    uint64_t bits = read_little_endian(bytes, fb_dtype_size(dtype));
    double wide;
    float narrow;
    switch (dtype) {
    case FB_FLOAT64: memcpy(&wide, &bits, 8); return wide;
    case FB_FLOAT32: {
        uint32_t low = (uint32_t)bits;
        memcpy(&narrow, &low, 4);
        return (double)narrow;
    }
    case FB_FLOAT16: return (double)decode_half(bits, 10);
    default: return (double)decode_half(bits, 7);
    }
}

/* A complex number is two of its parts, one after the other, in files as in memory. */
static fb_held held_of_parts(fb_held held) {
    return held == FB_HELD_COMPLEX_FLOAT ? FB_HELD_FLOAT : held == FB_HELD_COMPLEX_DOUBLE ? FB_HELD_DOUBLE : held;
}

/* The held type is the file's own, so elements are copied as they are (little-endian machines alone run us). */
static bool is_plain(fb_held held, fb_dtype dtype) {
    return (held == FB_HELD_DOUBLE && dtype == FB_FLOAT64) || (held == FB_HELD_FLOAT && dtype == FB_FLOAT32) ||
           (held == FB_HELD_INT && dtype == FB_INT64);
}

static void read_elements(fb_work *work, fb_held held, fb_dtype dtype, const unsigned char *bytes, int64_t count, void *data) {
    size_t element = fb_dtype_size(dtype);
    if (is_plain(held, dtype)) {
        fb_array_copy_bytes(work, data, bytes, (size_t)count * element);
        return;
    }
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++, bytes += element) {
        float number;
        switch (held) {
        case FB_HELD_DOUBLE:
            if (dtype == FB_FLOAT32) {
                memcpy(&number, bytes, sizeof number);
                ((double *)data)[i] = (double)number;
            } else {
                ((double *)data)[i] = decode(dtype, bytes);
            }
            break;
        case FB_HELD_FLOAT: ((float *)data)[i] = (float)decode(dtype, bytes); break;
        case FB_HELD_INT: ((int64_t *)data)[i] = wrap_int((int64_t)read_little_endian(bytes, element), dtype); break;
        default: ((unsigned char *)data)[i] = *bytes != 0; break;
        }
    }
}

fb_status fb_array_from_bytes(fb_array_memory *memory, fb_dtype dtype, int rank, const int64_t *sizes, const void *bytes,
                              size_t size, fb_array **out, fb_error *error) {
    fb_array *array;
    fb_status status = fb_array_new(memory, dtype, rank, sizes, &array, error);
    if (status) return status;
    size_t count = (size_t)fb_array_count(array);
    if (size != count * fb_dtype_size(dtype)) {
        fb_array_drop(array);
        return fb_fail(error, FB_INVALID, "shape-mismatch", NULL, "%zu bytes are not those of a tensor of %zu elements", size,
                       count);
    }
    fb_dtype parts = fb_dtype_part(dtype);
    read_elements(&memory->work, held_of_parts(array->held), parts, bytes, (int64_t)(size / fb_dtype_size(parts)),
                  fb_array_data(array));
    status = fb_work_status(&memory->work, error);
    if (status) fb_array_drop(array);
    else *out = array;
    return status;
}

void fb_array_to_bytes(const fb_array *array, void *bytes) {
    size_t element = fb_dtype_size(array->dtype), part = element / 2; /* of a complex number */
    fb_dtype parts = fb_dtype_part(array->dtype);
    unsigned char *to = bytes;
    fb_walk walk;
    for (fb_walk_begin(&walk, array, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++, to += element) {
            int64_t at = i * walk.strides[0];
            switch (array->held) {
            case FB_HELD_DOUBLE: fb_dtype_encode(array->dtype, ((double *)walk.data[0])[at], to); break;
            case FB_HELD_FLOAT: fb_dtype_encode(array->dtype, (double)((float *)walk.data[0])[at], to); break;
            case FB_HELD_INT:
                for (size_t k = 0; k < element; k++)
                    to[k] = (unsigned char)((uint64_t)((int64_t *)walk.data[0])[at] >> (8 * k));
                break;
            case FB_HELD_COMPLEX_DOUBLE:
                for (size_t k = 0; k < 2; k++)
                    fb_dtype_encode(parts, ((double *)walk.data[0])[2 * at + (int64_t)k], to + k * part);
                break;
            case FB_HELD_COMPLEX_FLOAT:
                for (size_t k = 0; k < 2; k++)
                    fb_dtype_encode(parts, (double)((float *)walk.data[0])[2 * at + (int64_t)k], to + k * part);
                break;
            default: *to = ((unsigned char *)walk.data[0])[at]; break;
            }
        }
    }
}

void fb_array_round_values(const fb_array *array) {
    fb_walk walk;
    for (fb_walk_begin(&walk, array, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            double *value = (double *)walk.data[0] + i * walk.strides[0];
            unsigned char bytes[8];
            fb_dtype_encode(array->dtype, *value, bytes);
            *value = decode(array->dtype, bytes);
        }
    }
}
