/* Elements as their dtype has them: rounded and wrapped, and the bytes of files. */
#include <string.h>

#include "core/evaluator/array.h"
#include "core/weights/dtype.h"

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

#define AT_ONCE 512

/* `stride` apart. nan stays as it is. */
static void round_floats(fb_dtype dtype, float *values, int64_t count, int64_t stride) {
    double part[AT_ONCE];
    for (int64_t from = 0; from < count; from += AT_ONCE, values += AT_ONCE * stride) {
        int64_t some = count - from < AT_ONCE ? count - from : AT_ONCE;
        for (int64_t i = 0; i < some; i++) part[i] = (double)values[i * stride];
        fb_round_numbers(dtype, part, (size_t)some);
        for (int64_t i = 0; i < some; i++) {
            float value = values[i * stride];
            values[i * stride] = value == value ? (float)part[i] : value;
        }
    }
}

static int64_t wrap_int(int64_t value, fb_dtype dtype) {
    switch (dtype) {
    case FB_INT8: return (int8_t)value;
    case FB_INT16: return (int16_t)value;
    case FB_INT32: return (int32_t)value;
    case FB_UINT8: return (uint8_t)value;
    case FB_UINT16: return (uint16_t)value;
    case FB_UINT32: return (uint32_t)value;
    default: return value;
    }
}

void fb_array_round(const fb_array *array) {
    bool is_half = array->held == FB_HELD_FLOAT && array->dtype != FB_FLOAT32;
    bool is_small = array->held == FB_HELD_INT && array->dtype != FB_INT64;
    if (!is_half && !is_small) return;
    fb_walk walk;
    for (fb_walk_begin(&walk, array, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        if (is_half) round_floats(array->dtype, walk.data[0], walk.count, walk.strides[0]);
        for (int64_t i = 0; i < walk.count && is_small; i++) {
            int64_t *value = (int64_t *)walk.data[0] + i * walk.strides[0];
            *value = wrap_int(*value, array->dtype);
        }
    }
}

/* ---- bytes of files ------------------------------------------------------------------------------------------------------ */

static uint64_t read_little_endian(const unsigned char *bytes, size_t size) {
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++) bits |= (uint64_t)bytes[i] << (8 * i);
    return bits;
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

static void read_floats(fb_dtype dtype, const unsigned char *bytes, int64_t count, float *to) {
    double part[AT_ONCE];
    for (int64_t from = 0; from < count; from += AT_ONCE) {
        int64_t some = count - from < AT_ONCE ? count - from : AT_ONCE;
        fb_decode_numbers(dtype, bytes + (size_t)from * fb_dtype_size(dtype), (size_t)some, part);
        for (int64_t i = 0; i < some; i++) to[from + i] = (float)part[i];
    }
}

static void read_elements(fb_work *work, fb_held held, fb_dtype dtype, const unsigned char *bytes, int64_t count, void *data) {
    size_t element = fb_dtype_size(dtype);
    if (is_plain(held, dtype)) {
        fb_array_copy_bytes(work, data, bytes, (size_t)count * element);
        return;
    }
    for (int64_t from = 0, to; (to = fb_work_part(work, from, count)) > from; from = to) {
        const unsigned char *at = bytes + (size_t)from * element;
        if (held == FB_HELD_DOUBLE) fb_decode_numbers(dtype, at, (size_t)(to - from), (double *)data + from);
        if (held == FB_HELD_FLOAT) read_floats(dtype, at, to - from, (float *)data + from);
        for (int64_t i = from; i < to && held == FB_HELD_INT; i++, at += element)
            ((int64_t *)data)[i] = wrap_int((int64_t)read_little_endian(at, element), dtype);
        for (int64_t i = from; i < to && held == FB_HELD_BOOL; i++) ((unsigned char *)data)[i] = *at++ != 0;
    }
}

void fb_array_put_bytes(const fb_array *array, int64_t first, int64_t count, const void *bytes) {
    fb_dtype parts = fb_dtype_part(array->dtype);
    int64_t parts_of_one = (int64_t)(fb_dtype_size(array->dtype) / fb_dtype_size(parts));
    char *to = (char *)fb_array_data(array) + (size_t)first * fb_held_size(array->held);
    read_elements(fb_array_work(array), held_of_parts(array->held), parts, bytes, count * parts_of_one, to);
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
    fb_array_put_bytes(array, 0, (int64_t)count, bytes);
    status = fb_work_status(&memory->work, error);
    if (status) fb_array_drop(array);
    else *out = array;
    return status;
}

/* `count` numbers of a floating dtype, each `stride` behind the one before. */
static void write_numbers(fb_dtype dtype, fb_held held, const void *from, int64_t stride, int64_t count, unsigned char *to) {
    double part[AT_ONCE];
    for (int64_t at = 0; at < count; at += AT_ONCE, to += AT_ONCE * fb_dtype_size(dtype)) {
        int64_t some = count - at < AT_ONCE ? count - at : AT_ONCE;
        for (int64_t i = 0; i < some; i++) {
            int64_t place = (at + i) * stride;
            part[i] = held == FB_HELD_DOUBLE ? ((const double *)from)[place] : (double)((const float *)from)[place];
        }
        fb_encode_numbers(dtype, part, (size_t)some, to);
    }
}

void fb_array_to_bytes(const fb_array *array, void *bytes) {
    size_t size = fb_dtype_size(array->dtype);
    bool is_complex = fb_dtype_is_complex(array->dtype);
    fb_dtype parts = fb_dtype_part(array->dtype); /* of a complex number: two, side by side */
    fb_held held = held_of_parts(array->held);
    unsigned char *to = bytes;
    fb_walk walk;
    for (fb_walk_begin(&walk, array, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            int64_t at = i * walk.strides[0];
            unsigned char *element = to + (size_t)i * size;
            if (array->held == FB_HELD_BOOL) *element = ((unsigned char *)walk.data[0])[at];
            if (array->held == FB_HELD_INT) memcpy(element, (int64_t *)walk.data[0] + at, size); /* little-endian */
            if (is_complex)
                write_numbers(parts, held, (char *)walk.data[0] + (size_t)at * 2 * fb_held_size(held), 1, 2, element);
        }
        if (fb_dtype_is_floating(array->dtype)) write_numbers(parts, held, walk.data[0], walk.strides[0], walk.count, to);
        to += (size_t)walk.count * size;
    }
}

void fb_array_round_values(const fb_array *array) {
    double part[AT_ONCE];
    fb_walk walk;
    for (fb_walk_begin(&walk, array, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        double *values = walk.data[0];
        for (int64_t from = 0; from < walk.count; from += AT_ONCE) {
            int64_t some = walk.count - from < AT_ONCE ? walk.count - from : AT_ONCE, stride = walk.strides[0];
            for (int64_t i = 0; i < some; i++) part[i] = values[(from + i) * stride];
            fb_round_numbers(array->dtype, part, (size_t)some);
            for (int64_t i = 0; i < some; i++) values[(from + i) * stride] = part[i];
        }
    }
}
