/* Tensors out of nothing, and writes of one value. */
#include <math.h>
#include <string.h>

#include "core/eval/evaluator.h"

/* A Python number or a 0-d tensor as both. *dtype is the one that torch gives a tensor of it. */
static bool number_of(fb_kernel_call *call, const char *name, double *number, int64_t *integer, fb_dtype *dtype) {
    const fb_object *object = fb_argument(call, name);
    if (object && object->kind == FB_OBJECT_ARRAY && fb_array_count(object->array) == 1) {
        *number = fb_array_number(object->array, 0);
        *integer = fb_array_int(object->array, 0);
        *dtype = object->array->dtype;
        return true;
    }
    if (!object || !fb_object_number(object, number))
        return fb_kernel_unsupported(call, "its argument %s is no number", name) == FB_OK;
    *dtype = object->kind == FB_OBJECT_BOOL ? FB_BOOL : object->kind == FB_OBJECT_INT ? FB_INT64 : FB_FLOAT32;
    if (!fb_object_int(object, integer)) *integer = fabs(*number) < 0x1p63 ? (int64_t)*number : INT64_MIN;
    return true;
}

/* zeros, ones, full and what they are called like another tensor (…_like, new_…). */
fb_status fb_kernel_filled(fb_kernel_call *call, fb_object *result) {
    static const struct {
        fb_op op;
        const char *size, *value; /* NULL = of `input`; NULL = `constant` */
        double constant;
    } rows[] = {
        {FB_OP_ZEROS, "size", NULL, 0},     {FB_OP_ONES, "size", NULL, 1},     {FB_OP_FULL, "size", "fill_value", 0},
        {FB_OP_ZEROS_LIKE, NULL, NULL, 0},  {FB_OP_ONES_LIKE, NULL, NULL, 1},  {FB_OP_FULL_LIKE, NULL, "fill_value", 0},
        {FB_OP_NEW_ZEROS, "size", NULL, 0}, {FB_OP_NEW_ONES, "size", NULL, 1}, {FB_OP_NEW_FULL, "size", "fill_value", 0},
    };
    size_t i = 0;
    while (rows[i].op != call->op) i++;
    bool is_like = i >= 3;
    fb_array *input = NULL;
    double number = rows[i].constant;
    int64_t integer = (int64_t)number, sizes[FB_MAX_RANK];
    int rank;
    fb_dtype of_value, dtype = FB_FLOAT32;
    if (is_like && !fb_argument_array(call, "input", &input)) return call->status;
    if (rows[i].value && !number_of(call, rows[i].value, &number, &integer, &of_value)) return call->status;
    if (is_like) dtype = input->dtype;
    else if (rows[i].value) dtype = of_value;
    if (!fb_argument_dtype(call, "dtype", dtype, &dtype)) return call->status;
    if (rows[i].size) {
        if (!fb_argument_ints(call, rows[i].size, sizes, &rank)) return call->status;
        if (rank < 0) return fb_kernel_unsupported(call, "it has no size");
    } else {
        rank = input->rank;
        memcpy(sizes, input->sizes, sizeof sizes);
    }
    fb_array *out = fb_make_array(call, dtype, rank, sizes);
    if (out) fb_array_fill(out, number, integer);
    return fb_return_array(call, out, result);
}

/* arange(end), arange(start, end), arange(start, end, step): counted in double, as torch does for floats. */
fb_status fb_kernel_arange(fb_kernel_call *call, fb_object *result) {
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
    if (!fb_argument_dtype(call, "dtype", dtype, &dtype)) return call->status;
    double length = ceil((end - start) / step);
    if (step == 0 || !(length < 0x1p40)) return fb_kernel_fail(call, "its step does not lead to its end");
    if (length < 0) return fb_kernel_fail(call, "its step leads away from its end");
    int64_t count = (int64_t)length;
    if (counts_whole)
        count = whole_step > 0 ? (whole_end - whole_start + whole_step - 1) / whole_step
                               : (whole_start - whole_end - whole_step - 1) / -whole_step;
    fb_array *out = fb_make_array(call, dtype, 1, &count);
    for (int64_t i = 0; i < count && out; i++) {
        double value = counts_whole ? (double)(whole_start + i * whole_step) : start + (double)i * step;
        void *data = fb_array_data(out);
        if (out->held == FB_HELD_DOUBLE) ((double *)data)[i] = value;
        else if (out->held == FB_HELD_FLOAT) ((float *)data)[i] = (float)value;
        else if (out->held == FB_HELD_INT) ((int64_t *)data)[i] = counts_whole ? whole_start + i * whole_step : (int64_t)value;
        else ((unsigned char *)data)[i] = value != 0;
    }
    return fb_return_array(call, out, result);
}

/* torch.tensor(number): lists are not evaluated. */
fb_status fb_kernel_tensor(fb_kernel_call *call, fb_object *result) {
    double number;
    int64_t integer;
    fb_dtype dtype;
    const char *name = "data";
    const fb_object *data = fb_argument(call, name);
    if (!data) data = fb_argument(call, name = "s"); /* aten.scalar_tensor */
    if (data && data->kind == FB_OBJECT_ARRAY && call->op == FB_OP_AS_TENSOR) {
        if (!fb_argument_dtype(call, "dtype", data->array->dtype, &dtype)) return call->status;
        if (dtype == data->array->dtype) return fb_return_array(call, fb_array_keep(data->array), result);
        return fb_return_array(call, fb_make_cast(call, data->array, dtype), result);
    }
    if (!number_of(call, name, &number, &integer, &dtype)) return call->status;
    if (fb_call_is_spelled(call, "scalar_tensor")) dtype = FB_FLOAT32;
    if (!fb_argument_dtype(call, "dtype", dtype, &dtype)) return call->status;
    fb_array *out = fb_make_array(call, dtype, 0, NULL);
    if (out) fb_array_fill(out, number, integer);
    return fb_return_array(call, out, result);
}

/* fill, zero: what in-place spellings then write. */
fb_status fb_kernel_fill(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    double number = 0;
    int64_t integer = 0;
    fb_dtype dtype;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (call->op == FB_OP_FILL && !number_of(call, "value", &number, &integer, &dtype)) return call->status;
    fb_array *out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    if (out) fb_array_fill(out, number, integer);
    return fb_return_array(call, out, result);
}

/* copy(input, src): src broadcast to the input, in its dtype. */
fb_status fb_kernel_copy(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *source;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "src", &source)) return call->status;
    fb_array *out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    if (out) call->status = fb_array_assign(out, source, call->error);
    return fb_return_array(call, out, result);
}

fb_status fb_kernel_eye(fb_kernel_call *call, fb_object *result) {
    int64_t sizes[2];
    fb_dtype dtype;
    if (!fb_argument_int(call, "n", 0, &sizes[0]) || !fb_argument_int(call, "m", sizes[0], &sizes[1]) ||
        !fb_argument_dtype(call, "dtype", FB_FLOAT32, &dtype))
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
