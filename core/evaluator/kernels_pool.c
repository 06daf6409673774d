/* Pooling over one, two or three spatial dimensions. */
#include <math.h>
#include <string.h>

#include "core/evaluator/internal.h"

enum { MAX_SPATIAL = 3 };

typedef struct pooling {
    int spatial;
    int64_t planes; /* batch × channels */
    int64_t in[MAX_SPATIAL], out[MAX_SPATIAL], kernel[MAX_SPATIAL], stride[MAX_SPATIAL], padding[MAX_SPATIAL],
        dilation[MAX_SPATIAL];
    bool counts_padding;
    int64_t divisor; /* 0 = as many as there are */
} pooling;

/* The window of one output position: in each dimension the first element, the end (exclusive) and the step. */
typedef struct window {
    int64_t start[MAX_SPATIAL], stop[MAX_SPATIAL], step[MAX_SPATIAL];
    double with_padding; /* elements, with the padding's */
} window;

typedef double pool(fb_work *work, const fb_array *input, int64_t plane, const int64_t strides[MAX_SPATIAL], const window *w,
                    const pooling *p);

static double max_of(fb_work *work, const fb_array *input, int64_t plane, const int64_t strides[MAX_SPATIAL], const window *w,
                     const pooling *p) {
    double best = -INFINITY;
    (void)p;
    for (int64_t z = w->start[0]; z < w->stop[0] && fb_work_goes_on(work, 1); z += w->step[0])
        for (int64_t y = w->start[1]; y < w->stop[1] && fb_work_goes_on(work, 1); y += w->step[1])
            for (int64_t x = w->start[2]; x < w->stop[2] && fb_work_goes_on(work, 2); x += w->step[2]) {
                double value = fb_array_get(input, plane + z * strides[0] + y * strides[1] + x * strides[2]);
                if (value > best || value != value) best = value;
            }
    return best;
}

/* Where in its plane max_of's element is: the first of equal ones, and the last nan, as PyTorch has it. */
static double index_of_max(fb_work *work, const fb_array *input, int64_t plane, const int64_t strides[MAX_SPATIAL],
                           const window *w, const pooling *p) {
    double best = -INFINITY;
    int64_t found = w->start[0] * strides[0] + w->start[1] * strides[1] + w->start[2] * strides[2];
    (void)p;
    for (int64_t z = w->start[0]; z < w->stop[0] && fb_work_goes_on(work, 1); z += w->step[0])
        for (int64_t y = w->start[1]; y < w->stop[1] && fb_work_goes_on(work, 1); y += w->step[1])
            for (int64_t x = w->start[2]; x < w->stop[2] && fb_work_goes_on(work, 2); x += w->step[2]) {
                int64_t at = z * strides[0] + y * strides[1] + x * strides[2];
                double value = fb_array_get(input, plane + at);
                if (!(value > best || value != value)) continue;
                best = value;
                found = at;
            }
    return (double)found;
}

static double mean_of(fb_work *work, const fb_array *input, int64_t plane, const int64_t strides[MAX_SPATIAL], const window *w,
                      const pooling *p) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t z = w->start[0]; z < w->stop[0] && fb_work_goes_on(work, 1); z++)
        for (int64_t y = w->start[1]; y < w->stop[1] && fb_work_goes_on(work, 1); y++)
            for (int64_t x = w->start[2]; x < w->stop[2] && fb_work_goes_on(work, 2); x++, count++)
                sum += fb_array_get(input, plane + z * strides[0] + y * strides[1] + x * strides[2]);
    return sum / (p->divisor ? (double)p->divisor : p->counts_padding ? w->with_padding : (double)count);
}

/* Positions are counted in three dimensions, of which those in front have size 1. */
static void spread(const pooling *p, const int64_t *sizes, int64_t wide[MAX_SPATIAL], int64_t fallback) {
    for (int i = 0; i < MAX_SPATIAL; i++) {
        int at = i - (MAX_SPATIAL - p->spatial);
        wide[i] = at >= 0 ? sizes[at] : fallback;
    }
}

static window window_at(const pooling *p, const int64_t at[MAX_SPATIAL], bool is_adaptive) {
    window w = {.with_padding = 1};
    int64_t in[MAX_SPATIAL], out[MAX_SPATIAL], kernel[MAX_SPATIAL], stride[MAX_SPATIAL], padding[MAX_SPATIAL],
        dilation[MAX_SPATIAL];
    spread(p, p->in, in, 1);
    spread(p, p->out, out, 1);
    spread(p, p->kernel, kernel, 1);
    spread(p, p->stride, stride, 1);
    spread(p, p->padding, padding, 0);
    spread(p, p->dilation, dilation, 1);
    for (int i = 0; i < MAX_SPATIAL; i++) {
        w.step[i] = dilation[i];
        if (is_adaptive) { /* from floor(i × in / out) to ceil((i + 1) × in / out) */
            w.start[i] = at[i] * in[i] / out[i];
            w.stop[i] = ((at[i] + 1) * in[i] + out[i] - 1) / out[i];
            continue;
        }
        int64_t start = at[i] * stride[i] - padding[i], stop = start + dilation[i] * (kernel[i] - 1) + 1;
        int64_t padded_stop = stop < in[i] + padding[i] ? stop : in[i] + padding[i];
        w.with_padding *= (double)(padded_stop - start);
        if (start < 0) start += (-start + dilation[i] - 1) / dilation[i] * dilation[i];
        w.start[i] = start;
        w.stop[i] = stop < in[i] ? stop : in[i];
    }
    return w;
}

#define STEPS_OF_A_WINDOW 20

/* An element of a window takes two. */
static double steps_of(const pooling *p, bool is_adaptive) {
    double windows = (double)p->planes, size = 1;
    for (int i = 0; i < p->spatial; i++) {
        int64_t most = is_adaptive ? (p->in[i] + p->out[i] - 1) / (p->out[i] ? p->out[i] : 1) + 1 : p->kernel[i];
        windows *= (double)p->out[i];
        size *= (double)(most < p->in[i] ? most : p->in[i]);
    }
    return windows * (STEPS_OF_A_WINDOW + 2 * size);
}

static fb_array *run_as(fb_kernel_call *call, fb_array *given, const pooling *p, pool *function, bool is_adaptive,
                        fb_dtype dtype) {
    int64_t sizes[FB_MAX_RANK], in[MAX_SPATIAL], out_sizes[MAX_SPATIAL], at[MAX_SPATIAL];
    memcpy(sizes, given->sizes, sizeof sizes);
    for (int i = 0; i < p->spatial; i++) sizes[given->rank - p->spatial + i] = p->out[i];
    fb_array *input = fb_make_contiguous(call, given);
    fb_array *out = input ? fb_make_array(call, dtype, input->rank, sizes) : NULL;
    spread(p, p->in, in, 1);
    spread(p, p->out, out_sizes, 1);
    const int64_t strides[MAX_SPATIAL] = {in[1] * in[2], in[2], 1};
    int64_t next = 0;
    fb_work *work = fb_call_work(call);
    if (out) fb_kernel_takes(call, steps_of(p, is_adaptive));
    for (int64_t plane = 0; plane < p->planes && out && fb_kernel_goes_on(call, 1); plane++) {
        for (at[0] = 0; at[0] < out_sizes[0]; at[0]++)
            for (at[1] = 0; at[1] < out_sizes[1]; at[1]++)
                for (at[2] = 0; at[2] < out_sizes[2] && fb_work_goes_on(work, STEPS_OF_A_WINDOW); at[2]++) {
                    window w = window_at(p, at, is_adaptive);
                    double value = function(work, input, plane * in[0] * in[1] * in[2], strides, &w, p);
                    if (dtype == FB_INT64) ((int64_t *)fb_array_data(out))[next++] = (int64_t)value;
                    else fb_array_put(out, next++, value);
                }
    }
    fb_array_drop(input);
    return out;
}

static fb_array *run(fb_kernel_call *call, fb_array *given, const pooling *p, pool *function, bool is_adaptive) {
    return run_as(call, given, p, function, is_adaptive, given->dtype);
}

/* `any_rank`: with more dimensions than batch and channels in front, or fewer. */
static bool open_pooling_of(fb_kernel_call *call, int spatial, bool any_rank, fb_array **input, pooling *p) {
    *p = (pooling){.spatial = spatial, .planes = 1};
    if (!fb_argument_array(call, "input", input)) return false;
    bool fits = any_rank ? (*input)->rank >= spatial : (*input)->rank == spatial + 1 || (*input)->rank == spatial + 2;
    if (!fits) return fb_kernel_fail(call, "its input has %d dimensions", (*input)->rank) == FB_OK;
    if (!fb_dtype_is_floating((*input)->dtype)) return fb_kernel_unsupported(call, "it is evaluated for floats alone") == FB_OK;
    if (any_rank && !fb_array_count(*input)) return fb_kernel_unsupported(call, "its input is empty") == FB_OK;
    for (int i = (*input)->rank - spatial - !any_rank; i < (*input)->rank; i++) /* a batch alone may be empty */
        if (!(*input)->sizes[i]) return fb_kernel_fail(call, "its input is empty") == FB_OK;
    for (int i = (*input)->rank - spatial; i < (*input)->rank; i++)
        if ((*input)->sizes[i] > INT32_MAX)
            return fb_kernel_unsupported(call, "a size of its input is beyond 32 bits") == FB_OK;
    for (int i = 0; i < (*input)->rank - spatial; i++) p->planes *= (*input)->sizes[i];
    memcpy(p->in, (*input)->sizes + (*input)->rank - spatial, (size_t)spatial * sizeof *p->in);
    return true;
}

static bool open_pooling(fb_kernel_call *call, int spatial, fb_array **input, pooling *p) {
    return open_pooling_of(call, spatial, false, input, p);
}

/* Positions of windows along one dimension; with ceil_mode the last may begin inside the input or the padding before it. */
static int64_t positions(const pooling *p, int i, bool ceil_mode) {
    int64_t room = p->in[i] + 2 * p->padding[i] - p->dilation[i] * (p->kernel[i] - 1) - 1;
    if (room < 0 && !ceil_mode) return -1;
    int64_t count = (room + (ceil_mode ? p->stride[i] - 1 : 0)) / p->stride[i] + 1;
    if (ceil_mode && (count - 1) * p->stride[i] >= p->in[i] + p->padding[i]) count--;
    return count;
}

static fb_status run_windows(fb_kernel_call *call, int spatial, bool is_max, fb_object *result) {
    fb_array *input;
    pooling p;
    bool ceil_mode, wants_indices;
    if (!open_pooling(call, spatial, &input, &p)) return call->status;
    if (!fb_argument_each(call, "kernel_size", spatial, 0, p.kernel)) return call->status;
    const fb_object *stride = fb_argument(call, "stride");
    bool has_stride = stride && stride->kind != FB_OBJECT_NONE && !(fb_object_is_sequence(stride) && !stride->items->count);
    if (has_stride && !fb_argument_each(call, "stride", spatial, 1, p.stride)) return call->status;
    if (!has_stride) memcpy(p.stride, p.kernel, sizeof p.stride);
    if (!fb_argument_each(call, "padding", spatial, 0, p.padding) ||
        !fb_argument_each(call, "dilation", spatial, 1, p.dilation) ||
        !fb_argument_bool(call, "ceil_mode", false, &ceil_mode) ||
        !fb_argument_bool(call, "return_indices", false, &wants_indices) ||
        !fb_argument_bool(call, "count_include_pad", true, &p.counts_padding) ||
        !fb_argument_int(call, "divisor_override", 0, &p.divisor))
        return call->status;
    if (!is_max && wants_indices) return fb_kernel_fail(call, "a mean has no index");
    if (!p.divisor && fb_argument_is_given(call, "divisor_override")) return fb_kernel_fail(call, "its divisor is 0");
    for (int i = 0; i < spatial; i++) {
        if (p.kernel[i] < 1 || p.stride[i] < 1 || p.dilation[i] < 1 || p.padding[i] < 0 || p.padding[i] > p.kernel[i] / 2)
            return fb_kernel_fail(call, "its window is smaller than 1, or its padding larger than half of it");
        if (!is_max && spatial == 3 && p.kernel[i] > p.in[i]) /* for any padding */
            return fb_kernel_fail(call, "its window is larger than the input");
        p.out[i] = positions(&p, i, ceil_mode);
        if (p.out[i] < 1) return fb_kernel_fail(call, "its window is larger than the input");
    }
    fb_array *out = run(call, input, &p, is_max ? max_of : mean_of, false);
    if (!wants_indices && call->op != FB_OP_MAX_POOL_WITH_INDICES) return fb_return_array(call, out, result);
    fb_array *indices = out ? run_as(call, input, &p, index_of_max, false, FB_INT64) : NULL;
    return fb_return_tuple(call, (fb_array *const[]){out, indices}, 2, result);
}

static fb_status kernel_max_pool(fb_kernel_call *call, fb_object *result) {
    return run_windows(call, call->op == FB_OP_MAX_POOL1D ? 1 : call->op == FB_OP_MAX_POOL2D ? 2 : 3, true, result);
}

static fb_status kernel_max_pool_with_indices(fb_kernel_call *call, fb_object *result) {
    return run_windows(call, fb_call_is_spelled(call, "max_pool2d_with_indices") ? 2 : 3, true, result);
}

static fb_status kernel_avg_pool(fb_kernel_call *call, fb_object *result) {
    return run_windows(call, call->op == FB_OP_AVG_POOL1D ? 1 : call->op == FB_OP_AVG_POOL2D ? 2 : 3, false, result);
}

/* Averages of two or three dimensions, all of one element: PyTorch takes the mean, with any dimensions before them. */
static bool is_mean(int spatial, pool *function, const fb_object *size) {
    bool is_one = function == mean_of && spatial > 1;
    size_t count = fb_object_is_sequence(size) ? size->items->count : 1;
    int64_t number;
    for (size_t i = 0; i < count && is_one; i++)
        is_one = fb_object_int(fb_object_is_sequence(size) ? &size->items->objects[i] : size, &number) && number == 1;
    return is_one;
}

static fb_status run_adaptive(fb_kernel_call *call, int spatial, pool *function, fb_object *result) {
    fb_array *input;
    pooling p;
    bool wants_indices;
    const fb_object *size = fb_argument(call, "output_size");
    if (!size) return fb_kernel_unsupported(call, "it has no output size");
    if (!open_pooling_of(call, spatial, is_mean(spatial, function, size), &input, &p) ||
        !fb_argument_bool(call, "return_indices", false, &wants_indices))
        return call->status;
    if (wants_indices) return fb_kernel_unsupported(call, "its indices are not evaluated");
    for (int i = 0; i < spatial; i++) {
        const fb_object *item = size;
        if (fb_object_is_sequence(size)) {
            if (size->items->count != (size_t)spatial) return fb_kernel_fail(call, "its output size does not fit");
            item = &size->items->objects[i];
        }
        if (item->kind == FB_OBJECT_NONE) p.out[i] = p.in[i];
        else if (!fb_object_int(item, &p.out[i]) || p.out[i] < 0 || p.out[i] > INT32_MAX)
            return fb_kernel_unsupported(call, "its output size is not a size");
        p.dilation[i] = 1;
    }
    return fb_return_array(call, run(call, input, &p, function, true), result);
}

static fb_status kernel_adaptive_avg_pool(fb_kernel_call *call, fb_object *result) {
    int spatial = call->op == FB_OP_ADAPTIVE_AVG_POOL1D ? 1 : call->op == FB_OP_ADAPTIVE_AVG_POOL2D ? 2 : 3;
    return run_adaptive(call, spatial, mean_of, result);
}

static fb_status kernel_adaptive_max_pool(fb_kernel_call *call, fb_object *result) {
    const char *spelling = fb_call_spelling(call); /* adaptive_max_pool2d, AdaptiveMaxPool2d */
    const char *digit = strpbrk(spelling, "123");
    int spatial = digit ? *digit - '0' : 0;
    if (!spatial) return fb_kernel_unsupported(call, "its dimensions are not known");
    return run_adaptive(call, spatial, max_of, result);
}

const fb_kernel_row fb_kernels_pool[] = {
    FB_KERNEL(MAX_POOL1D, max_pool),
    FB_KERNEL(MAX_POOL2D, max_pool),
    FB_KERNEL(MAX_POOL3D, max_pool),
    FB_KERNEL(MAX_POOL_WITH_INDICES, max_pool_with_indices),
    FB_KERNEL(AVG_POOL1D, avg_pool),
    FB_KERNEL(AVG_POOL2D, avg_pool),
    FB_KERNEL(AVG_POOL3D, avg_pool),
    FB_KERNEL(ADAPTIVE_AVG_POOL1D, adaptive_avg_pool),
    FB_KERNEL(ADAPTIVE_AVG_POOL2D, adaptive_avg_pool),
    FB_KERNEL(ADAPTIVE_AVG_POOL3D, adaptive_avg_pool),
    FB_KERNEL(ADAPTIVE_MAX_POOL, adaptive_max_pool),
    FB_KERNELS_END,
};
