/* Tensors out of nothing, and writes of one value. */
#include <math.h>
#include <string.h>

#include "core/analysis/shape.h"
#include "core/evaluator/internal.h"

/* torch's dtype of a number. */
static fb_dtype dtype_of_number(const fb_object *object) {
    switch (object->kind) {
    case FB_OBJECT_ARRAY: return object->array->dtype;
    case FB_OBJECT_BOOL: return FB_BOOL;
    case FB_OBJECT_INT: return FB_INT64;
    default: return FB_FLOAT32;
    }
}

/* A Python number or a tensor without dimensions, both ways. */
static bool number_of(fb_kernel_call *call, const char *name, double *number, int64_t *integer, fb_dtype *dtype) {
    const fb_object *object = fb_argument(call, name);
    if (!object || (object->kind == FB_OBJECT_ARRAY && object->array->rank))
        return fb_kernel_unsupported(call, "its argument %s is not a number", name) == FB_OK;
    *dtype = dtype_of_number(object);
    *integer = 0;
    if (object->kind == FB_OBJECT_ARRAY) {
        *number = fb_array_number(object->array, 0);
        *integer = fb_array_int(object->array, 0);
        return true;
    }
    if (!fb_object_number(object, number)) return fb_kernel_unsupported(call, "its argument %s is not a number", name) == FB_OK;
    if (object->kind != FB_OBJECT_FLOAT) return fb_object_int(object, integer);
    if (fabs(*number) < 0x1p63) *integer = (int64_t)*number;
    return true;
}

/* A new array of one value. */
static fb_status return_filled(fb_kernel_call *call, const fb_object *value, fb_dtype dtype, int rank, const int64_t *sizes,
                               fb_object *result) {
    fb_array *one = fb_make_number_of(call, value, dtype);
    fb_array *out = one ? fb_make_array(call, dtype, rank, sizes) : NULL;
    if (out) call->status = fb_array_assign(out, one, call->error);
    fb_array_drop(one);
    return fb_return_array(call, out, result);
}

/* zeros, ones, full and what they are called like another tensor (…_like, new_…). */
static fb_status kernel_filled(fb_kernel_call *call, fb_object *result) {
    static const struct {
        fb_op op;
        const char *size, *value; /* NULL = of `input`; NULL = `constant` */
        int constant;
    } rows[] = {
        {FB_OP_ZEROS, "size", NULL, 0},     {FB_OP_ONES, "size", NULL, 1},     {FB_OP_FULL, "size", "fill_value", 0},
        {FB_OP_ZEROS_LIKE, NULL, NULL, 0},  {FB_OP_ONES_LIKE, NULL, NULL, 1},  {FB_OP_FULL_LIKE, NULL, "fill_value", 0},
        {FB_OP_NEW_ZEROS, "size", NULL, 0}, {FB_OP_NEW_ONES, "size", NULL, 1}, {FB_OP_NEW_FULL, "size", "fill_value", 0},
    };
    size_t i = 0;
    while (rows[i].op != call->op) i++;
    bool is_like = i >= 3;
    fb_array *input = NULL;
    const fb_object constant = {.kind = FB_OBJECT_INT, .integer = rows[i].constant};
    const fb_object *value = rows[i].value ? fb_argument(call, rows[i].value) : &constant;
    int64_t sizes[FB_MAX_RANK];
    int rank;
    fb_dtype dtype = FB_FLOAT32;
    if (!value) return fb_kernel_unsupported(call, "it has no value");
    if (is_like && !fb_argument_array(call, "input", &input)) return call->status;
    if (is_like) dtype = input->dtype;
    else if (rows[i].value) dtype = fb_default_dtype(dtype_of_number(value));
    if (!fb_argument_dtype(call, dtype, &dtype)) return call->status;
    if (rows[i].size) {
        if (!fb_argument_ints(call, rows[i].size, sizes, &rank)) return call->status;
        if (rank < 0) return fb_kernel_unsupported(call, "it has no size");
        for (int k = 0; k < rank; k++)
            if (sizes[k] < 0) return fb_kernel_fail(call, "%lld is not a size", (long long)sizes[k]);
    } else {
        rank = input->rank;
        memcpy(sizes, input->sizes, sizeof sizes);
    }
    return return_filled(call, value, dtype, rank, sizes, result);
}

/* arange(end), arange(start, end), arange(start, end, step): counted in double, as torch does for floats. */
static fb_status kernel_arange(fb_kernel_call *call, fb_object *result) {
    double start = 0, end, step = 1;
    int64_t whole_start = 0, whole_end, whole_step = 1;
    fb_dtype dtypes[3] = {FB_INT64, FB_INT64, FB_INT64}, dtype = FB_INT64;
    const fb_value_row *args = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args);
    bool is_alone = args->count == 1 && !fb_argument_is_given(call, "end"); /* its only argument is where it ends */
    if (!number_of(call, is_alone ? "start" : "end", &end, &whole_end, &dtypes[1])) return call->status;
    if (!is_alone && fb_argument_is_given(call, "start") && !number_of(call, "start", &start, &whole_start, &dtypes[0]))
        return call->status;
    if (fb_argument_is_given(call, "step") && !number_of(call, "step", &step, &whole_step, &dtypes[2])) return call->status;
    for (int i = 0; i < 3; i++)
        if (fb_dtype_is_floating(dtypes[i])) dtype = FB_FLOAT32;
    bool counts_whole = dtype == FB_INT64;
    if (!fb_argument_dtype(call, dtype, &dtype)) return call->status;
    if (!counts_whole && !fb_dtype_is_floating(dtype)) return fb_kernel_unsupported(call, "it counts floats as integers");
    if (fabs(start) > 0x1p61 || fabs(end) > 0x1p61 || fabs(step) > 0x1p61)
        return fb_kernel_unsupported(call, "its numbers are too large");
    double length = ceil((end - start) / step);
    if (step == 0 || !(length < 0x1p40)) return fb_kernel_fail(call, "its step does not lead to its end");
    if (step > 0 ? end < start : end > start) return fb_kernel_fail(call, "its step leads away from its end");
    int64_t count = (int64_t)length;
    if (counts_whole)
        count = whole_step > 0 ? (whole_end - whole_start + whole_step - 1) / whole_step
                               : (whole_start - whole_end - whole_step - 1) / -whole_step;
    fb_array *out = fb_make_array(call, dtype, 1, &count);
    for (int64_t i = 0; i < count && out && fb_work_at(fb_call_work(call), i, count); i++) {
        double value = counts_whole ? (double)(whole_start + i * whole_step) : start + (double)i * step;
        void *data = fb_array_data(out);
        if (out->held == FB_HELD_DOUBLE) ((double *)data)[i] = value;
        else if (out->held == FB_HELD_FLOAT) ((float *)data)[i] = (float)value;
        else if (out->held == FB_HELD_INT) ((int64_t *)data)[i] = counts_whole ? whole_start + i * whole_step : (int64_t)value;
        else ((unsigned char *)data)[i] = value != 0;
    }
    return fb_return_array(call, out, result);
}

/* linspace(start, end, steps): from both ends towards the middle, as torch does. */
static fb_status kernel_linspace(fb_kernel_call *call, fb_object *result) {
    double start, end;
    int64_t ignored, count;
    fb_dtype of_start, of_end, dtype;
    if (!fb_call_is_spelled(call, "linspace")) return fb_kernel_unsupported(call, "it is not evaluated");
    if (!number_of(call, "start", &start, &ignored, &of_start) || !number_of(call, "end", &end, &ignored, &of_end) ||
        !fb_argument_int(call, "steps", -1, &count) || !fb_argument_dtype(call, FB_FLOAT32, &dtype))
        return call->status;
    if (count < 0) return fb_kernel_fail(call, "it has no steps");
    if (!fb_dtype_is_floating(dtype)) return fb_kernel_unsupported(call, "it is evaluated for floats alone");
    double step = count > 1 ? (end - start) / (double)(count - 1) : 0;
    fb_array *out = fb_make_array(call, dtype, 1, &count);
    for (int64_t i = 0; i < count && out && fb_work_at(fb_call_work(call), i, count); i++)
        fb_array_put(out, i, i < count / 2 || count == 1 ? start + step * (double)i : end - step * (double)(count - 1 - i));
    return fb_return_array(call, out, result);
}

/* tensor, scalar_tensor, as_tensor, new_tensor: of numbers and sequences of them. */
static fb_status kernel_tensor(fb_kernel_call *call, fb_object *result) {
    fb_array *input = NULL;
    fb_dtype dtype = FB_DTYPE_UNKNOWN;
    const fb_object *data = fb_argument(call, "data");
    if (!data) data = fb_argument(call, "s");
    if (!data) return fb_kernel_unsupported(call, "it has no data");
    if (call->op == FB_OP_NEW_TENSOR) {
        if (!fb_argument_array(call, "input", &input)) return call->status;
        dtype = input->dtype;
    }
    if (data->kind == FB_OBJECT_ARRAY) dtype = data->array->dtype;
    if (call->op == FB_OP_SCALAR_TENSOR) dtype = FB_FLOAT32;
    if (call->op == FB_OP_SCALAR_TENSOR && data->kind == FB_OBJECT_ARRAY && data->array->rank)
        return fb_kernel_unsupported(call, "its number has dimensions");
    if (!fb_argument_dtype(call, dtype, &dtype)) return call->status;
    if (data->kind != FB_OBJECT_ARRAY) return fb_return_array(call, fb_make_array_of(call, data, dtype), result);
    bool is_same = call->op == FB_OP_AS_TENSOR && dtype == data->array->dtype;
    return fb_return_array(call, is_same ? fb_array_keep(data->array) : fb_make_cast(call, data->array, dtype), result);
}

/* fill, zero: what in-place spellings then write. */
static fb_status kernel_fill(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    const fb_object zero = {.kind = FB_OBJECT_INT}, *value = call->op == FB_OP_FILL ? fb_argument(call, "value") : &zero;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (!value) return fb_kernel_unsupported(call, "it has no value");
    return return_filled(call, value, input->dtype, input->rank, input->sizes, result);
}

/* copy(input, src): src broadcast to the input, in its dtype. */
static fb_status kernel_copy(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *source;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "src", &source)) return call->status;
    fb_array *out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    if (out) call->status = fb_array_assign(out, source, call->error);
    return fb_return_array(call, out, result);
}

static fb_status kernel_eye(fb_kernel_call *call, fb_object *result) {
    int64_t sizes[2];
    fb_dtype dtype;
    if (!fb_argument_int(call, "n", 0, &sizes[0]) || !fb_argument_int(call, "m", sizes[0], &sizes[1]) ||
        !fb_argument_dtype(call, FB_FLOAT32, &dtype))
        return call->status;
    fb_array *out = fb_make_array(call, dtype, 2, sizes), *diagonal;
    if (out) fb_array_fill(out, 0, 0);
    diagonal = out ? fb_make_view(call, out, 1) : NULL;
    if (diagonal) {
        fb_array *one = fb_make_array(call, dtype, 0, NULL);
        diagonal->sizes[0] = sizes[0] < sizes[1] ? sizes[0] : sizes[1];
        diagonal->strides[0] = sizes[1] + 1;
        if (one) fb_array_fill(one, 1, 1);
        if (one) call->status = fb_array_assign(diagonal, one, call->error);
        fb_array_drop(one);
    }
    fb_array_drop(diagonal);
    return fb_return_array(call, out, result);
}

/* The first column of a row that triu_indices keeps; of tril_indices the first that it does not keep. */
static int64_t first_of_row(int64_t row, int64_t offset, int64_t columns, bool is_lower) {
    int64_t first = row + offset + is_lower;
    return fb_clip_index(first < 0 ? 0 : first, columns);
}

/* tril_indices, triu_indices (row, col, offset): two rows of the positions that tril and triu keep, in row-major order. */
static fb_status kernel_triangle_indices(fb_kernel_call *call, fb_object *result) {
    int64_t rows, columns, offset, sizes[2] = {2, 0}, found = 0;
    fb_dtype dtype;
    bool is_lower = fb_call_is_spelled(call, "tril_indices");
    if (!fb_argument_int(call, "row", -1, &rows) || !fb_argument_int(call, "col", -1, &columns) ||
        !fb_argument_int(call, "offset", 0, &offset) || !fb_argument_dtype(call, FB_INT64, &dtype))
        return call->status;
    if (rows < 0 || columns < 0 || dtype != FB_INT64) return fb_kernel_unsupported(call, "its arguments are not known");
    if (rows >= INT32_MAX || columns >= INT32_MAX || offset > INT32_MAX || offset < -INT32_MAX)
        return fb_kernel_unsupported(call, "it is too large");
    if (!fb_kernel_takes(call, 2 * (double)rows)) return call->status;
    for (int64_t i = 0; i < rows && fb_kernel_goes_on(call, 2); i++) {
        int64_t first = first_of_row(i, offset, columns, is_lower);
        sizes[1] += is_lower ? first : columns - first;
    }
    fb_array *out = fb_make_array(call, dtype, 2, sizes);
    int64_t *data = out ? fb_array_data(out) : NULL;
    for (int64_t i = 0; i < rows && out && fb_kernel_goes_on(call, 2); i++) {
        int64_t first = first_of_row(i, offset, columns, is_lower), end = is_lower ? first : columns;
        for (int64_t k = is_lower ? 0 : first; k < end && fb_kernel_goes_on(call, 1); k++) {
            data[found] = i;
            data[sizes[1] + found++] = k;
        }
    }
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_create[] = {
    FB_KERNEL_COMPLEX(ZEROS, filled),
    FB_KERNEL_COMPLEX(ONES, filled),
    FB_KERNEL_COMPLEX(FULL, filled),
    FB_KERNEL_COMPLEX(ZEROS_LIKE, filled),
    FB_KERNEL_COMPLEX(ONES_LIKE, filled),
    FB_KERNEL_COMPLEX(FULL_LIKE, filled),
    FB_KERNEL_COMPLEX(NEW_ZEROS, filled),
    FB_KERNEL_COMPLEX(NEW_ONES, filled),
    FB_KERNEL_COMPLEX(NEW_FULL, filled),
    FB_KERNEL(ARANGE, arange),
    FB_KERNEL(TENSOR, tensor),
    FB_KERNEL(SCALAR_TENSOR, tensor),
    FB_KERNEL(AS_TENSOR, tensor),
    FB_KERNEL(NEW_TENSOR, tensor),
    FB_KERNEL(LINSPACE, linspace),
    FB_KERNEL(TRIL_INDICES, triangle_indices),
    FB_KERNEL_COMPLEX(FILL, fill),
    FB_KERNEL_COMPLEX(ZERO, fill),
    FB_KERNEL_COMPLEX(COPY, copy),
    FB_KERNEL(EYE, eye),
    FB_KERNELS_END,
};
