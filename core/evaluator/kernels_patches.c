/* Sliding windows of images as columns, and the way back: unfold (im2col) and fold (col2im). */
#include "core/evaluator/internal.h"

/* Height and width; columns are (channel, window row, window column) × positions. */
typedef struct patches {
    int64_t batch, channels, image[2], grid[2], kernel[2], dilation[2], padding[2], stride[2];
    bool has_batch;
} patches;

static bool read_window(fb_kernel_call *call, patches *p) {
    if (!fb_argument_each(call, "kernel_size", 2, 0, p->kernel) || !fb_argument_each(call, "dilation", 2, 1, p->dilation) ||
        !fb_argument_each(call, "padding", 2, 0, p->padding) || !fb_argument_each(call, "stride", 2, 1, p->stride))
        return false;
    for (int i = 0; i < 2; i++) {
        int64_t reach, room;
        if (p->kernel[i] < 1 || p->dilation[i] < 1 || p->stride[i] < 1 || p->padding[i] < 0)
            return fb_kernel_fail(
                       call, "its kernel_size, dilation and stride must be at least 1, and its padding at least 0") == FB_OK;
        bool is_too_large = __builtin_mul_overflow(p->dilation[i], p->kernel[i] - 1, &reach) ||
                            __builtin_mul_overflow(p->padding[i], 2, &room) ||
                            __builtin_add_overflow(room, p->image[i], &room) || reach >= room;
        if (is_too_large) return fb_kernel_fail(call, "its window is larger than the image") == FB_OK;
        p->grid[i] = (room - reach - 1) / p->stride[i] + 1;
    }
    return true;
}

/* `rank`: of an input without a batch. */
static bool read_input(fb_kernel_call *call, int rank, fb_array **input, patches *p) {
    if (!fb_argument_array(call, "input", input)) return false;
    if (!fb_dtype_is_floating((*input)->dtype)) return fb_kernel_unsupported(call, "it is evaluated for floats alone") == FB_OK;
    p->has_batch = (*input)->rank == rank + 1;
    if (!p->has_batch && (*input)->rank != rank)
        return fb_kernel_fail(call, "its input has %d dimensions", (*input)->rank) == FB_OK;
    p->batch = p->has_batch ? (*input)->sizes[0] : 1;
    for (int i = p->has_batch; i < (*input)->rank; i++) /* a batch alone may be empty */
        if (!(*input)->sizes[i]) return fb_kernel_fail(call, "its input is empty") == FB_OK;
    return true;
}

static fb_array *make_result(fb_kernel_call *call, const patches *p, fb_dtype dtype, int rank, const int64_t *sizes) {
    return p->has_batch ? fb_make_array(call, dtype, rank + 1, sizes) : fb_make_array(call, dtype, rank, sizes + 1);
}

/* One row of columns: a window's position, in a channel. */
static void put_row(fb_kernel_call *call, const patches *p, const fb_array *in, int64_t plane, int64_t ky, int64_t kx,
                    const fb_array *out, int64_t to) {
    for (int64_t y = 0; y < p->grid[0] && !call->status; y++)
        for (int64_t x = 0; x < p->grid[1] && fb_kernel_goes_on(call, 4); x++, to++) {
            int64_t at_y = y * p->stride[0] - p->padding[0] + ky * p->dilation[0];
            int64_t at_x = x * p->stride[1] - p->padding[1] + kx * p->dilation[1];
            bool is_inside = at_y >= 0 && at_y < p->image[0] && at_x >= 0 && at_x < p->image[1];
            fb_array_put(out, to, is_inside ? fb_array_get(in, plane + at_y * p->image[1] + at_x) : 0);
        }
}

static fb_status kernel_unfold_patches(fb_kernel_call *call, fb_object *result) {
    fb_array *given;
    patches p = {0};
    if (!read_input(call, 3, &given, &p)) return call->status;
    p.channels = given->sizes[given->rank - 3];
    for (int i = 0; i < 2; i++) p.image[i] = given->sizes[given->rank - 2 + i];
    if (!read_window(call, &p)) return call->status;
    int64_t rows, columns, window, image = p.image[0] * p.image[1];
    if (__builtin_mul_overflow(p.kernel[0], p.kernel[1], &window) || __builtin_mul_overflow(p.channels, window, &rows) ||
        __builtin_mul_overflow(p.grid[0], p.grid[1], &columns))
        return fb_kernel_fail(call, "its result would be too large");
    fb_array *out = make_result(call, &p, given->dtype, 2, (const int64_t[]){p.batch, rows, columns});
    fb_array *in = out ? fb_make_contiguous(call, given) : NULL;
    if (in && fb_kernel_takes(call, 4 * (double)fb_array_count(out))) {
        for (int64_t row = 0; row < p.batch * rows && fb_kernel_goes_on(call, 10); row++) {
            int64_t k = row % window;
            put_row(call, &p, in, row / window * image, k / p.kernel[1], k % p.kernel[1], out, row * columns);
        }
    }
    fb_array_drop(in);
    return fb_return_array(call, out, result);
}

/* The window that has its element k at a place of the image; -1 = none. */
static int64_t window_at(const patches *p, int i, int64_t at, int64_t k) {
    int64_t start = at + p->padding[i] - k * p->dilation[i];
    bool is_one = start >= 0 && start % p->stride[i] == 0 && start / p->stride[i] < p->grid[i];
    return is_one ? start / p->stride[i] : -1;
}

/* Sums one element of the image over all windows. */
static double sum_at(fb_kernel_call *call, const patches *p, const fb_array *in, int64_t channel, int64_t y, int64_t x) {
    int64_t columns = p->grid[0] * p->grid[1], window = p->kernel[0] * p->kernel[1];
    double sum = 0;
    for (int64_t ky = 0; ky < p->kernel[0] && fb_kernel_goes_on(call, 4); ky++) {
        int64_t at_y = window_at(p, 0, y, ky);
        for (int64_t kx = 0; at_y >= 0 && kx < p->kernel[1] && fb_kernel_goes_on(call, 4); kx++) {
            int64_t at_x = window_at(p, 1, x, kx);
            int64_t row = channel * window + ky * p->kernel[1] + kx;
            if (at_x >= 0) sum += fb_array_get(in, row * columns + at_y * p->grid[1] + at_x);
        }
    }
    return sum;
}

static fb_status kernel_fold_patches(fb_kernel_call *call, fb_object *result) {
    fb_array *given;
    patches p = {0};
    int64_t window, columns;
    if (!read_input(call, 2, &given, &p) || !fb_argument_each(call, "output_size", 2, 0, p.image)) return call->status;
    if (p.image[0] < 1 || p.image[1] < 1) return fb_kernel_fail(call, "its output would be empty");
    if (!read_window(call, &p)) return call->status;
    bool fits = !__builtin_mul_overflow(p.kernel[0], p.kernel[1], &window) &&
                !__builtin_mul_overflow(p.grid[0], p.grid[1], &columns) && given->sizes[given->rank - 1] == columns &&
                given->sizes[given->rank - 2] % window == 0;
    if (!fits) return fb_kernel_fail(call, "its columns are not those of such windows in an image of that size");
    p.channels = given->sizes[given->rank - 2] / window;
    fb_array *out = make_result(call, &p, given->dtype, 3, (const int64_t[]){p.batch, p.channels, p.image[0], p.image[1]});
    fb_array *in = out ? fb_make_contiguous(call, given) : NULL;
    if (in && fb_kernel_takes(call, (double)fb_array_count(out) * 8 * (double)window)) {
        int64_t to = 0;
        for (int64_t channel = 0; channel < p.batch * p.channels && !call->status; channel++)
            for (int64_t y = 0; y < p.image[0] && !call->status; y++)
                for (int64_t x = 0; x < p.image[1] && fb_kernel_goes_on(call, 4); x++)
                    fb_array_put(out, to++, sum_at(call, &p, in, channel, y, x));
    }
    fb_array_drop(in);
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_patches[] = {
    FB_KERNEL(UNFOLD_PATCHES, unfold_patches),
    FB_KERNEL(FOLD_PATCHES, fold_patches),
    FB_KERNELS_END,
};
