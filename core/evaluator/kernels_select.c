/* Choosing between operands, limits, masks: where, masked_fill, clamp, tril; and what is made of three operands. */
#include <math.h>
#include <string.h>

#include "core/evaluator/internal.h"

/* ---- where and masks ---------------------------------------------------------------------------------------------------- */

#define CHOOSE(T)                                                                                                              \
    for (fb_walk_begin(&walk, out, condition, a, b, NULL); fb_walk_more(&walk); fb_walk_next(&walk))                           \
        for (int64_t i = 0; i < walk.count; i++)                                                                               \
            ((T *)walk.data[0])[i * walk.strides[0]] = ((unsigned char *)walk.data[1])[i * walk.strides[1]]                    \
                                                           ? ((T *)walk.data[2])[i * walk.strides[2]]                          \
                                                           : ((T *)walk.data[3])[i * walk.strides[3]];                         \
    break

static void choose(const fb_array *out, const fb_array *condition, const fb_array *a, const fb_array *b) {
    fb_walk walk;
    switch (out->held) {
    case FB_HELD_DOUBLE: CHOOSE(double);
    case FB_HELD_FLOAT: CHOOSE(float);
    case FB_HELD_INT: CHOOSE(int64_t);
    default: CHOOSE(unsigned char);
    }
}

static fb_array *choose_by(fb_kernel_call *call, fb_array *condition, fb_array *a, fb_array *b) {
    fb_array *arrays[3] = {condition, a, b}, *wide[3] = {NULL}, *out = NULL;
    int64_t sizes[FB_MAX_RANK];
    int rank = 0;
    if (condition->held != FB_HELD_BOOL) fb_kernel_unsupported(call, "its condition is not a bool tensor");
    for (int k = 0; k < 3 && !call->status; k++)
        if (!fb_array_join_sizes(arrays[k], &rank, sizes)) fb_kernel_fail(call, "its operands do not broadcast");
    if (!call->status) {
        for (int k = 0; k < 3 && !call->status; k++)
            call->status = fb_array_broadcast(arrays[k], rank, sizes, &wide[k], call->error);
        out = call->status ? NULL : fb_make_array(call, a->dtype, rank, sizes);
    }
    if (out) choose(out, wide[0], wide[1], wide[2]);
    for (int k = 0; k < 3; k++) fb_array_drop(wide[k]);
    return out;
}

static fb_status kernel_where(fb_kernel_call *call, fb_object *result) {
    static const char *const names[] = {"input", "other", NULL};
    fb_array *condition, *operands[2];
    fb_dtype dtype = FB_DTYPE_UNKNOWN;
    if (!fb_argument_is_given(call, "other")) return fb_kernel_unsupported(call, "it gives positions");
    const fb_object *a = fb_argument(call, "input"), *b = fb_argument(call, "other");
    if (a && b && a->kind <= FB_OBJECT_FLOAT && b->kind <= FB_OBJECT_FLOAT) /* of numbers alone: their default dtype */
        dtype = a->kind == FB_OBJECT_FLOAT || b->kind == FB_OBJECT_FLOAT ? FB_FLOAT32
                : a->kind == FB_OBJECT_INT || b->kind == FB_OBJECT_INT   ? FB_INT64
                                                                         : FB_BOOL;
    if (!fb_argument_array(call, "condition", &condition) || !fb_operands(call, names, &dtype, operands)) return call->status;
    fb_array *out = choose_by(call, condition, operands[0], operands[1]);
    fb_array_drop(operands[0]);
    fb_array_drop(operands[1]);
    return fb_return_array(call, out, result);
}

static fb_status kernel_masked_fill(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *mask;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "mask", &mask)) return call->status;
    fb_array *value = fb_make_number(call, "value", input->dtype);
    fb_array *out = value ? choose_by(call, mask, value, input) : NULL;
    fb_array_drop(value);
    return fb_return_array(call, out, result);
}

static void clear(fb_work *work, char *data, int64_t count, size_t element) {
    for (int64_t from = 0, to; (to = fb_work_part(work, from, count)) > from; from = to)
        memset(data + (size_t)from * element, 0, (size_t)(to - from) * element);
}

/* Elements above (triu) or below (tril) a diagonal of each matrix stay, the others become 0. */
static fb_status kernel_triangle(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t diagonal;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_int(call, "diagonal", 0, &diagonal)) return call->status;
    if (input->rank < 2) return fb_kernel_fail(call, "it takes matrices");
    fb_array *out = fb_make_cast(call, input, input->dtype);
    if (!out) return call->status;
    int64_t rows = out->sizes[out->rank - 2], columns = out->sizes[out->rank - 1], count = fb_array_count(out);
    size_t element = fb_held_size(out->held);
    diagonal = diagonal > columns ? columns : diagonal < -rows ? -rows : diagonal;
    for (int64_t row = 0; columns && row < count / columns && fb_kernel_goes_on(call, 10); row++) {
        int64_t first = row % rows + diagonal + (call->op == FB_OP_TRIL); /* column that triu keeps, and tril no more */
        int64_t kept = first < 0 ? 0 : first > columns ? columns : first;
        char *data = (char *)fb_array_data(out) + (size_t)(row * columns) * element;
        if (call->op == FB_OP_TRIU) clear(fb_call_work(call), data, kept, element);
        else clear(fb_call_work(call), data + (size_t)kept * element, columns - kept, element);
    }
    return fb_return_array(call, out, result);
}

/* ---- limits ------------------------------------------------------------------------------------------------------------- */

#define LIMIT(T, is_nan)                                                                                                       \
    for (fb_walk_begin(&walk, out, a, limit, NULL); fb_walk_more(&walk); fb_walk_next(&walk))                                  \
        for (int64_t i = 0; i < walk.count; i++) {                                                                             \
            T x = ((T *)walk.data[1])[i * walk.strides[1]], y = ((T *)walk.data[2])[i * walk.strides[2]];                      \
            ((T *)walk.data[0])[i * walk.strides[0]] = is_nan ? x != x ? x : y : is_low ? (x < y ? y : x) : x > y ? y : x;     \
        }                                                                                                                      \
    break

/* nan stays nan, on either side. */
static void limit_by(const fb_array *out, const fb_array *a, const fb_array *limit, bool is_low) {
    fb_walk walk;
    switch (out->held) {
    case FB_HELD_DOUBLE: LIMIT(double, x != x || y != y);
    case FB_HELD_FLOAT: LIMIT(float, x != x || y != y);
    case FB_HELD_INT: LIMIT(int64_t, false);
    default: LIMIT(unsigned char, false);
    }
}

/* The limits of clamp are two tensors, or two numbers: a tensor without dimensions beside a number counts as a number. */
static bool are_limits(fb_kernel_call *call, fb_dtype *dtype) {
    const fb_object *objects[] = {fb_argument(call, "input"), fb_argument(call, "min"), fb_argument(call, "max")};
    for (int i = 1; i < 3; i++) {
        const fb_object *limit = objects[i], *other = objects[3 - i];
        if (!objects[0] || !limit || !other || limit->kind != FB_OBJECT_ARRAY || other->kind == FB_OBJECT_ARRAY) continue;
        if (limit->array->rank) return fb_kernel_fail(call, "one of its limits is a number, the other a tensor") == FB_OK;
        fb_dtype held = limit->array->dtype;
        fb_object number = {.kind = held == FB_BOOL              ? FB_OBJECT_BOOL
                                    : fb_dtype_is_floating(held) ? FB_OBJECT_FLOAT
                                                                 : FB_OBJECT_INT};
        objects[i] = &number;
        *dtype = fb_promote_objects(objects, 3);
        return true;
    }
    return true;
}

/* clamp(min, max), clamp_min, clamp_max: first the lower limit, then the upper. */
static fb_status kernel_clamp(fb_kernel_call *call, fb_object *result) {
    const char *names[] = {"input", NULL, NULL, NULL};
    size_t count = 1;
    bool has_low = call->op != FB_OP_CLAMP_MAX && fb_argument_is_given(call, "min");
    bool has_high = call->op != FB_OP_CLAMP_MIN && fb_argument_is_given(call, "max");
    if (has_low) names[count++] = "min";
    if (has_high) names[count++] = "max";
    if (count == 1) return fb_kernel_fail(call, "it has no limits");
    fb_array *operands[3] = {NULL};
    fb_dtype dtype = FB_DTYPE_UNKNOWN;
    if ((count == 3 && !are_limits(call, &dtype)) || !fb_operands(call, names, &dtype, operands)) return call->status;
    const fb_object *limit = fb_argument(call, names[1]);
    bool is_defined = dtype != FB_BOOL || (count == 2 && limit->kind == FB_OBJECT_ARRAY);
    if (!is_defined) fb_kernel_fail(call, "it is not defined for bools");
    fb_array *out = is_defined ? fb_make_array(call, dtype, operands[0]->rank, operands[0]->sizes) : NULL;
    if (out) limit_by(out, operands[0], operands[1], has_low);
    if (out && count == 3) limit_by(out, out, operands[2], false);
    for (size_t i = 0; i < count; i++) fb_array_drop(operands[i]);
    return fb_return_array(call, out, result);
}

/* ---- three operands ----------------------------------------------------------------------------------------------------- */

#define COMBINE(T, expression)                                                                                                 \
    for (fb_walk_begin(&walk, out, a, b, c, NULL); fb_walk_more(&walk); fb_walk_next(&walk))                                   \
        for (int64_t i = 0; i < walk.count; i++) {                                                                             \
            T x = ((T *)walk.data[1])[i * walk.strides[1]], y = ((T *)walk.data[2])[i * walk.strides[2]],                      \
              z = ((T *)walk.data[3])[i * walk.strides[3]];                                                                    \
            ((T *)walk.data[0])[i * walk.strides[0]] = (T)(expression);                                                        \
        }

static void combine(fb_op op, const fb_array *out, const fb_array *a, const fb_array *b, const fb_array *c, double value) {
    fb_walk walk;
    bool is_double = out->held == FB_HELD_DOUBLE;
    float narrow = (float)value;
    if (op == FB_OP_ADDCMUL && is_double) COMBINE(double, x + value * y * z)
    else if (op == FB_OP_ADDCMUL) COMBINE(float, x + narrow * y * z)
    else if (op == FB_OP_ADDCDIV && is_double) COMBINE(double, x + value * y / z)
    else if (op == FB_OP_ADDCDIV) COMBINE(float, x + narrow * y / z)
    else if (is_double) COMBINE(double, fabs(z) < 0.5 ? x + z * (y - x) : y - (y - x) * (1 - z))
    else COMBINE(float, fabsf(z) < 0.5F ? x + z * (y - x) : y - (y - x) * (1 - z))
}

/* addcmul: input + value × tensor1 × tensor2; addcdiv; lerp: input + weight × (end - input). */
static fb_status kernel_combine(fb_kernel_call *call, fb_object *result) {
    static const char *const of_lerp[] = {"input", "end", "weight", NULL}, *const of_others[] = {"input", "tensor1", "tensor2",
                                                                                                 NULL};
    double value;
    fb_array *operands[3];
    fb_dtype dtype = FB_DTYPE_UNKNOWN;
    if (!fb_argument_number(call, "value", 1, &value) ||
        !fb_operands(call, call->op == FB_OP_LERP ? of_lerp : of_others, &dtype, operands))
        return call->status;
    fb_array *out = NULL;
    const fb_object *end = call->op == FB_OP_LERP ? fb_argument(call, "end") : NULL, *input = fb_argument(call, "input");
    const fb_object *weight = end ? fb_argument(call, "weight") : NULL;
    bool is_mixed = end && input && end->kind == FB_OBJECT_ARRAY && input->kind == FB_OBJECT_ARRAY &&
                    (end->array->dtype != input->array->dtype || input->array->dtype != dtype ||
                     (weight && weight->kind == FB_OBJECT_ARRAY && weight->array->rank && weight->array->dtype != dtype));
    if (is_mixed) fb_kernel_fail(call, "its operands' dtypes differ");
    else if (!fb_dtype_is_floating(dtype)) fb_kernel_unsupported(call, "it is evaluated for floats alone");
    else out = fb_make_array(call, dtype, operands[0]->rank, operands[0]->sizes);
    if (out) combine(call->op, out, operands[0], operands[1], operands[2], value);
    for (int i = 0; i < 3; i++) fb_array_drop(operands[i]);
    return fb_return_array(call, out, result);
}

/* prelu: one slope, or one for each channel (dimension 1). */
static fb_status kernel_prelu(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *weight, *wide = NULL, *out = NULL, *shaped;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "weight", &weight)) return call->status;
    int64_t slopes = fb_array_count(weight);
    if (weight->rank > 1) return fb_kernel_fail(call, "its slopes have %d dimensions", weight->rank);
    if (input->dtype != weight->dtype || !fb_dtype_is_floating(input->dtype) ||
        (slopes != 1 && (input->rank < 2 || input->sizes[1] != slopes)))
        return fb_kernel_fail(call, "its slopes do not fit its input");
    fb_array *flat = fb_make_contiguous(call, weight);
    shaped = flat ? fb_make_view(call, flat, input->rank) : NULL;
    for (int i = 0; i < input->rank && shaped; i++) {
        shaped->sizes[i] = i == 1 ? slopes : 1;
        shaped->strides[i] = i == 1 && slopes > 1;
    }
    if (shaped) call->status = fb_array_broadcast(shaped, input->rank, input->sizes, &wide, call->error);
    out = wide ? fb_make_array(call, input->dtype, input->rank, input->sizes) : NULL;
    fb_walk walk;
    if (out) {
        for (fb_walk_begin(&walk, out, input, wide, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
            for (int64_t i = 0; i < walk.count; i++) {
                int64_t r = i * walk.strides[0], x = i * walk.strides[1], y = i * walk.strides[2];
                if (out->held == FB_HELD_DOUBLE) {
                    double value = ((double *)walk.data[1])[x];
                    ((double *)walk.data[0])[r] = value > 0 ? value : value * ((double *)walk.data[2])[y];
                } else {
                    float value = ((float *)walk.data[1])[x];
                    ((float *)walk.data[0])[r] = value > 0 ? value : value * ((float *)walk.data[2])[y];
                }
            }
        }
    }
    fb_array_drop(flat);
    fb_array_drop(shaped);
    fb_array_drop(wide);
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_select[] = {
    FB_KERNEL(WHERE, where),     FB_KERNEL(MASKED_FILL, masked_fill),
    FB_KERNEL(TRIU, triangle),   FB_KERNEL(TRIL, triangle),
    FB_KERNEL(CLAMP, clamp),     FB_KERNEL(CLAMP_MIN, clamp),
    FB_KERNEL(CLAMP_MAX, clamp), FB_KERNEL(ADDCMUL, combine),
    FB_KERNEL(ADDCDIV, combine), FB_KERNEL(LERP, combine),
    FB_KERNEL(PRELU, prelu),     FB_KERNELS_END,
};
