/* Along one dimension, line by line: softmax and cumulative sums. A line is taken apart into doubles (or integers), computed,
 * and put together again. */
#include <math.h>

#include "core/evaluator/internal.h"

#define STEPS_OF_AN_ELEMENT 10

typedef union line {
    double *numbers;
    int64_t *integers;
} line;

typedef void line_function(fb_work *work, line values, int64_t count);

/* Elements first … stop - 1 of a line that begins at `at`. */
static void take_part(const fb_array *from, int64_t at, int64_t step, line values, int64_t first, int64_t stop) {
    const void *data = from->storage->bytes;
    switch (from->held) {
    case FB_HELD_FLOAT:
        for (int64_t i = first; i < stop; i++) values.numbers[i] = (double)((const float *)data)[at + i * step];
        break;
    case FB_HELD_DOUBLE:
        for (int64_t i = first; i < stop; i++) values.numbers[i] = ((const double *)data)[at + i * step];
        break;
    case FB_HELD_INT:
        for (int64_t i = first; i < stop; i++) values.integers[i] = ((const int64_t *)data)[at + i * step];
        break;
    default:
        for (int64_t i = first; i < stop; i++) values.integers[i] = ((const unsigned char *)data)[at + i * step];
        break;
    }
}

static void put_part(const fb_array *to, int64_t at, int64_t step, line values, int64_t first, int64_t stop) {
    void *data = to->storage->bytes;
    switch (to->held) {
    case FB_HELD_FLOAT:
        for (int64_t i = first; i < stop; i++) ((float *)data)[at + i * step] = (float)values.numbers[i];
        break;
    case FB_HELD_DOUBLE:
        for (int64_t i = first; i < stop; i++) ((double *)data)[at + i * step] = values.numbers[i];
        break;
    case FB_HELD_INT:
        for (int64_t i = first; i < stop; i++) ((int64_t *)data)[at + i * step] = values.integers[i];
        break;
    default:
        for (int64_t i = first; i < stop; i++) ((unsigned char *)data)[at + i * step] = values.integers[i] != 0;
        break;
    }
}

typedef void move_part(const fb_array *array, int64_t at, int64_t step, line values, int64_t first, int64_t stop);

static void move_line(fb_work *work, move_part *move, const fb_array *array, int64_t at, int64_t step, line values,
                      int64_t count) {
    int64_t steps = fb_work_steps_at(step * (int64_t)fb_held_size(array->held)), most = FB_WORK_BLOCK / steps;
    for (int64_t from = 0, size; from < count; from += size) {
        size = count - from < most ? count - from : most;
        if (!fb_work_goes_on(work, size * steps)) return;
        move(array, at, step, values, from, from + size);
    }
}

/* `input` has the result's dtype. */
static fb_status along(fb_kernel_call *call, const fb_array *input, int64_t dim, line_function *function, fb_object *result) {
    int64_t index[FB_MAX_RANK] = {0}, count = input->rank ? input->sizes[dim] : 1, step = input->rank ? input->strides[dim] : 1;
    fb_kernel_takes(call, STEPS_OF_AN_ELEMENT * (double)fb_array_count(input));
    fb_array *out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    line values = {fb_make_workspace(call, count, sizeof(double))};
    fb_work *work = fb_call_work(call);
    int64_t out_step = out && input->rank ? out->strides[dim] : 1, at = input->offset, out_at = 0;
    bool more = !call->status && fb_array_count(input) > 0;
    while (more && fb_kernel_goes_on(call, 1)) {
        move_line(work, take_part, input, at, step, values, count);
        function(work, values, count);
        move_line(work, put_part, out, out_at, out_step, values, count);
        more = false;
        for (int i = input->rank - 1; i >= 0 && !more; i--) {
            if (i == dim) continue;
            at += input->strides[i];
            out_at += out->strides[i];
            more = ++index[i] < input->sizes[i];
            if (more) break;
            at -= input->strides[i] * input->sizes[i];
            out_at -= out->strides[i] * input->sizes[i];
            index[i] = 0;
        }
    }
    fb_free_workspace(call, values.numbers, count, sizeof(double));
    return fb_return_array(call, out, result);
}

/* ---- softmax ------------------------------------------------------------------------------------------------------------- */

static double largest_of(fb_work *work, const double *x, int64_t count) {
    double top = -INFINITY;
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++)
        if (x[i] > top || x[i] != x[i]) top = x[i];
    return top;
}

static void softmax_line(fb_work *work, line values, int64_t count) {
    double *x = values.numbers, top = largest_of(work, x, count), total = 0;
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) total += x[i] = exp(x[i] - top);
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) x[i] /= total;
}

static void softmin_line(fb_work *work, line values, int64_t count) {
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) values.numbers[i] = -values.numbers[i];
    softmax_line(work, values, count);
}

static void log_softmax_line(fb_work *work, line values, int64_t count) {
    double *x = values.numbers, top = largest_of(work, x, count), total = 0;
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) total += exp(x[i] - top);
    double logarithm = log(total);
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) x[i] = x[i] - top - logarithm;
}

/* softmax, log_softmax, softmin: without dim (old code) dimension 0 or 1 is taken, as torch does. */
static fb_status kernel_softmax(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim;
    fb_dtype dtype;
    bool to_float;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_dtype(call, input->dtype, &dtype) ||
        !fb_argument_bool(call, "half_to_float", false, &to_float))
        return call->status;
    if (to_float) return fb_kernel_unsupported(call, "it converts to float32, as on a GPU alone");
    if (fb_call_is_spelled(call, "Softmax2d")) {
        if (input->rank != 3 && input->rank != 4) return fb_kernel_fail(call, "it takes 3 or 4 dimensions");
        dim = input->rank - 3;
    } else if (fb_argument_is_given(call, "dim")) {
        if (!fb_argument_axis(call, "dim", input->rank, &dim)) return call->status;
    } else {
        dim = input->rank == 0 || input->rank == 1 || input->rank == 3 ? 0 : 1;
    }
    if (!fb_dtype_is_floating(dtype)) return fb_kernel_fail(call, "it is not defined for %s", fb_dtype_name(dtype));
    fb_array *converted = dtype == input->dtype ? fb_array_keep(input) : fb_make_cast(call, input, dtype);
    bool is_log = call->op == FB_OP_LOG_SOFTMAX || call->op == FB_OP_NATIVE_LOG_SOFTMAX;
    if (converted)
        along(call, converted, dim,
              is_log                      ? log_softmax_line
              : call->op == FB_OP_SOFTMIN ? softmin_line
                                          : softmax_line,
              result);
    fb_array_drop(converted);
    return call->status;
}

/* ---- cumulative ---------------------------------------------------------------------------------------------------------- */

static void sum_numbers(fb_work *work, line values, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) values.numbers[i] = total += values.numbers[i];
}
static void sum_integers(fb_work *work, line values, int64_t count) {
    uint64_t total = 0;
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++)
        values.integers[i] = (int64_t)(total += (uint64_t)values.integers[i]);
}
static void multiply_numbers(fb_work *work, line values, int64_t count) {
    double total = 1;
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) values.numbers[i] = total *= values.numbers[i];
}
static void multiply_integers(fb_work *work, line values, int64_t count) {
    uint64_t total = 1;
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++)
        values.integers[i] = (int64_t)(total *= (uint64_t)values.integers[i]);
}

/* cumsum, cumprod */
static fb_status kernel_cumulative(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim;
    fb_dtype dtype;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_axis(call, "dim", input->rank, &dim) ||
        !fb_argument_dtype(call, fb_dtype_is_floating(input->dtype) ? input->dtype : FB_INT64, &dtype))
        return call->status;
    if (dtype == FB_BOOL) return fb_kernel_unsupported(call, "it is not evaluated for bools");
    bool is_sum = call->op == FB_OP_CUMSUM, is_floating = fb_dtype_is_floating(dtype);
    fb_array *converted = dtype == input->dtype ? fb_array_keep(input) : fb_make_cast(call, input, dtype);
    if (converted) {
        line_function *function =
            is_floating ? (is_sum ? sum_numbers : multiply_numbers) : (is_sum ? sum_integers : multiply_integers);
        along(call, converted, dim, function, result);
    }
    fb_array_drop(converted);
    return call->status;
}

const fb_kernel_row fb_kernels_scan[] = {
    FB_KERNEL(SOFTMAX, softmax),     FB_KERNEL(NATIVE_SOFTMAX, softmax),
    FB_KERNEL(LOG_SOFTMAX, softmax), FB_KERNEL(NATIVE_LOG_SOFTMAX, softmax),
    FB_KERNEL(SOFTMIN, softmax),     FB_KERNEL(CUMSUM, cumulative),
    FB_KERNEL(CUMPROD, cumulative),  FB_KERNELS_END,
};
