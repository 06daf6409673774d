/* Arrays of Python's numbers. */
#include <math.h>

#include "core/evaluator/kernel.h"
#include "core/weights/dtype.h"

#define STEPS_OF_A_NUMBER 100

/* c10::overflows: infinities and nan are floats' own; anything is a bool; negative ints wrap in uint8. */
static bool fits(const fb_object *object, double number, int64_t integer, fb_dtype dtype) {
    if (dtype == FB_BOOL) return true;
    fb_dtype_range range;
    if (fb_dtype_limits(fb_dtype_part(dtype), &range)) return !isfinite(number) || fabs(number) <= range.largest;
    int bits = (int)fb_dtype_size(dtype) * 8;
    bool is_unsigned = dtype == FB_UINT8 || fb_dtype_is_wide_unsigned(dtype);
    double largest = ldexp(1, is_unsigned ? bits : bits - 1) - 1, smallest = is_unsigned ? 0 : -ldexp(1, bits - 1);
    if (object->kind == FB_OBJECT_FLOAT) return number >= smallest && number <= largest && number < 0x1p63;
    if (dtype == FB_UINT8) smallest = -255;
    return bits == 64 || ((double)integer >= smallest && (double)integer <= largest);
}

fb_array *fb_make_number_of(fb_kernel_call *call, const fb_object *object, fb_dtype dtype) {
    double number;
    int64_t integer = 0;
    if (call->status) return NULL;
    if (object->kind == FB_OBJECT_ARRAY && object->array->rank == 0) return fb_make_cast(call, object->array, dtype);
    if (!fb_object_number(object, &number)) {
        fb_kernel_unsupported(call, "what it takes is neither a number nor a tensor without dimensions");
        return NULL;
    }
    if (object->kind != FB_OBJECT_FLOAT) fb_object_int(object, &integer);
    if (!fits(object, number, integer, dtype)) {
        fb_kernel_fail(call, "the number %.17g is beyond %s", number, fb_dtype_name(dtype));
        return NULL;
    }
    if (object->kind == FB_OBJECT_FLOAT && fb_held_of(call->memory->precision, dtype) == FB_HELD_INT) integer = (int64_t)number;
    fb_array *array = fb_make_array(call, dtype, 0, NULL);
    if (array) fb_array_fill(array, number, integer);
    if (array) fb_array_round(array);
    return array;
}

fb_array *fb_make_number(fb_kernel_call *call, const char *name, fb_dtype dtype) {
    const fb_object *object = fb_argument(call, name);
    if (!object) {
        fb_kernel_unsupported(call, "its argument %s is not a number", name);
        return NULL;
    }
    return fb_make_number_of(call, object, dtype);
}

/* ---- nested sequences ---------------------------------------------------------------------------------------------------- */

/* All of one level are alike, down to the numbers. Finds sizes by the first items, and the dtype of all. */
static bool measure(fb_kernel_call *call, const fb_object *object, int depth, int *rank, int64_t sizes[FB_MAX_RANK],
                    fb_dtype *dtype) {
    static const fb_dtype dtypes[] = {[FB_OBJECT_BOOL] = FB_BOOL, [FB_OBJECT_INT] = FB_INT64, [FB_OBJECT_FLOAT] = FB_FLOAT32};
    if (!fb_kernel_goes_on(call, 10)) return false;
    if (fb_object_is_sequence(object)) {
        size_t count = object->items->count;
        if (depth == FB_MAX_RANK) return fb_kernel_unsupported(call, "sequences are nested too deep") == FB_OK;
        if (*rank < 0 || depth < *rank) {
            if (sizes[depth] < 0) sizes[depth] = (int64_t)count;
            if (sizes[depth] != (int64_t)count) return fb_kernel_fail(call, "its sequences are not equally long") == FB_OK;
        } else {
            return fb_kernel_fail(call, "a sequence stands where a number should") == FB_OK;
        }
        if (count == 0 && *rank < 0) *rank = depth + 1;
        for (size_t i = 0; i < count; i++)
            if (!measure(call, &object->items->objects[i], depth + 1, rank, sizes, dtype)) return false;
        return true;
    }
    double number;
    if (*rank < 0) *rank = depth;
    if (depth != *rank) return fb_kernel_fail(call, "a number stands where a sequence should") == FB_OK;
    if (!fb_object_number(object, &number))
        return fb_kernel_unsupported(call, "it is made of something else than numbers") == FB_OK;
    if (dtypes[object->kind] == FB_FLOAT32 || !*dtype || *dtype == FB_BOOL) *dtype = dtypes[object->kind];
    return true;
}

static void put_numbers(fb_kernel_call *call, const fb_object *object, fb_array *out, int64_t *at) {
    if (!fb_kernel_goes_on(call, STEPS_OF_A_NUMBER)) return;
    if (fb_object_is_sequence(object)) {
        for (size_t i = 0; i < object->items->count && !call->status; i++)
            put_numbers(call, &object->items->objects[i], out, at);
        return;
    }
    if (fb_dtype_is_floating(out->dtype)) { /* too large a number is infinite here */
        double number = 0;
        fb_object_number(object, &number);
        fb_array_put(out, (*at)++, number);
        return;
    }
    fb_array *one = fb_make_number_of(call, object, out->dtype);
    if (!one) return;
    fb_array *element = fb_make_view(call, out, 0);
    if (element) {
        element->offset += (*at)++;
        call->status = fb_array_assign(element, one, call->error);
    }
    fb_array_drop(element);
    fb_array_drop(one);
}

fb_array *fb_make_array_of(fb_kernel_call *call, const fb_object *object, fb_dtype dtype) {
    int64_t sizes[FB_MAX_RANK], at = 0;
    int rank = -1;
    fb_dtype own = FB_DTYPE_UNKNOWN;
    for (int i = 0; i < FB_MAX_RANK; i++) sizes[i] = -1;
    if (call->status || !measure(call, object, 0, &rank, sizes, &own)) return NULL;
    if (!own) own = FB_FLOAT32; /* nothing */
    fb_array *out = fb_make_array(call, dtype ? dtype : own, rank, sizes);
    if (out && fb_kernel_takes(call, STEPS_OF_A_NUMBER * (double)fb_array_count(out))) put_numbers(call, object, out, &at);
    if (!call->status) return out;
    fb_array_drop(out);
    return NULL;
}
