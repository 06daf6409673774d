/* Convolutions of one, two or three spatial dimensions, by patches and matrix products; transposed ones by the way back. */
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/internal.h"

enum { MAX_SPATIAL = 3 };

typedef struct convolution {
    int spatial;
    int64_t batch, groups, in_each, out_each; /* channels of a group */
    int64_t in[MAX_SPATIAL], out[MAX_SPATIAL], kernel[MAX_SPATIAL];
    int64_t stride[MAX_SPATIAL], before[MAX_SPATIAL], dilation[MAX_SPATIAL];
    int64_t in_size, out_size, kernel_size; /* products */
    fb_array *input, *weight, *bias, *result;
    const char *pads_first; /* a padding mode, or NULL: zeros, which need no place */
} convolution;

static void end_convolution(convolution *c) {
    fb_array_drop(c->input);
    fb_array_drop(c->weight);
    fb_array_drop(c->bias);
}

/* ---- patches ------------------------------------------------------------------------------------------------------------ */

/* Rows (channel, kernel position) × columns (output position): what each output position reads of one group of one sample. The
 * image is (channels, *image), the grid of positions *grid. With `adds` the columns are added back to the image instead. */
#define PATCHES(T, name)                                                                                                       \
    static void name(const convolution *c, T *restrict image, const int64_t *image_sizes, const int64_t *grid,                 \
                     T *restrict columns, int64_t channels, bool adds, fb_work *work) {                                        \
        int64_t depth = c->spatial > 2 ? grid[0] : 1, height = c->spatial > 1 ? grid[c->spatial - 2] : 1;                      \
        int64_t width = grid[c->spatial - 1], image_size = 1;                                                                  \
        int x = c->spatial - 1, y = c->spatial - 2, z = c->spatial - 3;                                                        \
        int64_t rows = y >= 0 ? image_sizes[y] : 1, planes = z >= 0 ? image_sizes[z] : 1, line = image_sizes[x];               \
        for (int i = 0; i < c->spatial; i++) image_size *= image_sizes[i];                                                     \
        for (int64_t row = 0; row < channels * c->kernel_size; row++) {                                                        \
            int64_t k = row % c->kernel_size, kx = k % c->kernel[x], ky = y >= 0 ? k / c->kernel[x] % c->kernel[y] : 0;        \
            int64_t kz = z >= 0 ? k / c->kernel[x] / c->kernel[y] : 0;                                                         \
            T *plane = image + row / c->kernel_size * image_size;                                                              \
            for (int64_t d = 0; d < depth; d++) {                                                                              \
                int64_t at_z = z >= 0 ? d * c->stride[z] - c->before[z] + kz * c->dilation[z] : 0;                             \
                for (int64_t h = 0; h < height; h++, columns += width) {                                                       \
                    int64_t at_y = y >= 0 ? h * c->stride[y] - c->before[y] + ky * c->dilation[y] : 0;                         \
                    bool is_inside = at_z >= 0 && at_z < planes && at_y >= 0 && at_y < rows;                                   \
                    T *from = plane + (at_z * rows + at_y) * line;                                                             \
                    int64_t at_x = kx * c->dilation[x] - c->before[x];                                                         \
                    for (int64_t start = 0, stop; (stop = fb_work_part(work, start, width)) > start; start = stop) {           \
                        for (int64_t w = start; w < stop; w++, at_x += c->stride[x]) {                                         \
                            bool is_there = is_inside && at_x >= 0 && at_x < line;                                             \
                            if (!adds) columns[w] = is_there ? from[at_x] : 0;                                                 \
                            else if (is_there) from[at_x] += columns[w];                                                       \
                        }                                                                                                      \
                    }                                                                                                          \
                }                                                                                                              \
            }                                                                                                                  \
        }                                                                                                                      \
    }
PATCHES(float, patches_float)
PATCHES(double, patches_double)

static void patches(const convolution *c, fb_held held, void *image, const int64_t *image_sizes, const int64_t *grid,
                    void *columns, int64_t channels, bool adds, fb_work *work) {
    if (held == FB_HELD_FLOAT) patches_float(c, image, image_sizes, grid, columns, channels, adds, work);
    else patches_double(c, image, image_sizes, grid, columns, channels, adds, work);
}

/* The kernel reads each input position once, in place: no patches are needed. */
static bool is_pointwise(const convolution *c) {
    for (int i = 0; i < c->spatial; i++)
        if (c->kernel[i] != 1 || c->stride[i] != 1 || c->before[i] != 0 || c->in[i] != c->out[i]) return false;
    return true;
}

static void *part(const fb_array *array, int64_t element) {
    return (char *)fb_array_data(array) + element * (int64_t)fb_held_size(array->held);
}

static void fill_bias(const convolution *c, fb_work *work) {
    const fb_array *out = c->result;
    int64_t channels = c->groups * c->out_each;
    for (int64_t row = 0; c->out_size && row < c->batch * channels; row++) {
        for (int64_t i = 0; i < c->out_size && fb_work_at(work, i, c->out_size); i++) {
            if (out->held == FB_HELD_FLOAT)
                ((float *)part(out, row * c->out_size))[i] = c->bias ? ((float *)fb_array_data(c->bias))[row % channels] : 0;
            else ((double *)part(out, row * c->out_size))[i] = c->bias ? ((double *)fb_array_data(c->bias))[row % channels] : 0;
        }
    }
}

/* result (out_each × positions) += weight (out_each × in_each·kernel) · columns, for each sample and group. */
static void convolve(fb_kernel_call *call, const convolution *c, void *columns) {
    fb_held held = c->result->held;
    int64_t inner = c->in_each * c->kernel_size;
    for (int64_t n = 0; n < c->batch && fb_kernel_goes_on(call, 1); n++) {
        for (int64_t g = 0; g < c->groups && fb_kernel_goes_on(call, 1); g++) {
            void *image = part(c->input, (n * c->groups + g) * c->in_each * c->in_size), *read = image;
            if (!is_pointwise(c)) {
                patches(c, held, image, c->in, c->out, columns, c->in_each, false, fb_call_work(call));
                read = columns;
            }
            fb_gemm(call, held, false, false, c->out_each, c->out_size, inner, part(c->weight, g * c->out_each * inner), inner,
                    read, c->out_size, part(c->result, (n * c->groups + g) * c->out_each * c->out_size), c->out_size, true);
        }
    }
}

/* columns (out_each·kernel × input positions) = weightᵀ · input, added to where they belong in the result. */
static void convolve_back(fb_kernel_call *call, const convolution *c, void *columns) {
    fb_held held = c->result->held;
    int64_t inner = c->out_each * c->kernel_size;
    for (int64_t n = 0; n < c->batch && fb_kernel_goes_on(call, 1); n++) {
        for (int64_t g = 0; g < c->groups && fb_kernel_goes_on(call, 1); g++) {
            fb_gemm(call, held, true, false, inner, c->in_size, c->in_each, part(c->weight, g * c->in_each * inner), inner,
                    part(c->input, (n * c->groups + g) * c->in_each * c->in_size), c->in_size, columns, c->in_size, false);
            patches(c, held, part(c->result, (n * c->groups + g) * c->out_each * c->out_size), c->out, c->in, columns,
                    c->out_each, true, fb_call_work(call));
        }
    }
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

/* "valid" and "same" are words of the functional form and the module. */
static bool read_padding(fb_kernel_call *call, convolution *c, int64_t after[MAX_SPATIAL]) {
    const fb_object *padding = fb_argument(call, "padding");
    if (padding && padding->kind == FB_OBJECT_STRING) {
        bool is_same = strcmp(padding->text, "same") == 0;
        if (!is_same && strcmp(padding->text, "valid") != 0)
            return fb_kernel_unsupported(call, "its padding is %s", padding->text) == FB_OK;
        for (int i = 0; i < c->spatial; i++) {
            int64_t all = is_same ? c->dilation[i] * (c->kernel[i] - 1) : 0;
            if (is_same && c->stride[i] != 1) return fb_kernel_fail(call, "the same size needs a stride of 1") == FB_OK;
            c->before[i] = all / 2;
            after[i] = all - all / 2;
        }
        return true;
    }
    if (!fb_argument_each(call, "padding", c->spatial, 0, c->before)) return false;
    for (int i = 0; i < c->spatial; i++)
        if (c->before[i] < 0) return fb_kernel_fail(call, "its padding is negative") == FB_OK;
    memcpy(after, c->before, sizeof c->before);
    return true;
}

/* Without a batch the input has one dimension less; *is_single says so. */
static bool open_convolution(fb_kernel_call *call, bool is_transposed, convolution *c, bool *is_single) {
    fb_array *input, *weight, *bias;
    const char *mode;
    *c = (convolution){0};
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "weight", &weight) ||
        !fb_argument_optional(call, "bias", &bias) || !fb_argument_int(call, "groups", 1, &c->groups) ||
        !fb_argument_text(call, "padding_mode", &mode))
        return false;
    int spatial = fb_op_facts_of(call->op)->spatial;
    c->spatial = spatial ? spatial : weight->rank - 2;
    if (c->spatial < 1 || c->spatial > MAX_SPATIAL || weight->rank != c->spatial + 2)
        return fb_kernel_fail(call, "its weight has %d dimensions", weight->rank) == FB_OK;
    *is_single = input->rank == c->spatial + 1 && call->op != FB_OP_CONVOLUTION;
    if (!*is_single && input->rank != c->spatial + 2)
        return fb_kernel_fail(call, "its input has %d dimensions", input->rank) == FB_OK;
    c->pads_first = *mode && strcmp(mode, "zeros") != 0 ? mode : NULL;
    if (c->pads_first && is_transposed) return fb_kernel_fail(call, "its padding mode is %s", mode) == FB_OK;
    if (input->dtype != weight->dtype || (bias && bias->dtype != weight->dtype) || !fb_dtype_is_floating(weight->dtype))
        return fb_kernel_fail(call, "input, weight and bias have several dtypes, or none that is floating") == FB_OK;
    const int64_t *sizes = input->sizes + !*is_single; /* (C, *) */
    c->batch = *is_single ? 1 : input->sizes[0];
    int64_t in_channels = sizes[0], out_channels = weight->sizes[0];
    bool fits = c->groups >= 1 && (!is_transposed || !__builtin_mul_overflow(weight->sizes[1], c->groups, &out_channels)) &&
                in_channels % c->groups == 0 && out_channels % c->groups == 0 &&
                (is_transposed ? weight->sizes[0] == in_channels : weight->sizes[1] == in_channels / c->groups) &&
                (!bias || (bias->rank == 1 && bias->sizes[0] == out_channels));
    if (!fits) return fb_kernel_fail(call, "its weight or bias does not fit its input") == FB_OK;
    c->in_each = in_channels / c->groups;
    c->out_each = out_channels / c->groups;
    c->in_size = c->kernel_size = 1;
    for (int i = 0; i < c->spatial; i++) {
        c->in[i] = sizes[i + 1];
        c->kernel[i] = weight->sizes[i + 2];
        if (c->in[i] > INT32_MAX || c->kernel[i] > INT32_MAX)
            return fb_kernel_unsupported(call, "a size of its input or weight is beyond 32 bits") == FB_OK;
        c->in_size *= c->in[i];
        c->kernel_size *= c->kernel[i];
    }
    if (!c->in_size && c->batch && in_channels) /* as PyTorch has it, though padding may make elements */
        return fb_kernel_fail(call, "its input has a dimension of size 0") == FB_OK;
    if (!fb_argument_each(call, "stride", c->spatial, 1, c->stride) ||
        !fb_argument_each(call, "dilation", c->spatial, 1, c->dilation))
        return false;
    for (int i = 0; i < c->spatial; i++)
        if (c->stride[i] < 1 || c->dilation[i] < 1)
            return fb_kernel_fail(call, "its stride or dilation is not positive") == FB_OK;
    c->input = fb_make_contiguous(call, input);
    c->weight = c->input ? fb_make_contiguous(call, weight) : NULL;
    c->bias = c->weight && bias ? fb_make_contiguous(call, bias) : NULL;
    return !call->status;
}

static fb_array *make_result(fb_kernel_call *call, convolution *c, bool is_single) {
    int64_t sizes[MAX_SPATIAL + 2] = {c->batch, c->groups * c->out_each};
    c->out_size = 1;
    for (int i = 0; i < c->spatial; i++) {
        if (c->out[i] < 0) {
            fb_kernel_fail(call, "its kernel is larger than the padded input");
            return NULL;
        }
        sizes[i + 2] = c->out[i];
    }
    fb_array *result = fb_make_array(call, c->weight->dtype, c->spatial + 2 - is_single, sizes + is_single);
    for (int i = 0; i < c->spatial && result; i++) c->out_size *= c->out[i];
    return result;
}

/* A module that pads with its input's own elements does so first, and convolves without padding. */
static bool pad_first(fb_kernel_call *call, convolution *c, int64_t after[MAX_SPATIAL]) {
    if (!c->pads_first) return true;
    fb_array *padded = fb_make_padded(call, c->input, c->pads_first, c->spatial, c->before, after);
    if (!padded || call->status) {
        fb_array_drop(padded);
        return false;
    }
    fb_array_drop(c->input);
    c->input = padded;
    c->in_size = 1;
    for (int i = 0; i < c->spatial; i++) {
        c->in[i] = padded->sizes[padded->rank - c->spatial + i];
        c->in_size *= c->in[i];
        c->before[i] = after[i] = 0;
    }
    return true;
}

static fb_status run(fb_kernel_call *call, bool is_transposed, fb_object *result) {
    convolution c;
    bool is_single = false;
    int64_t after[MAX_SPATIAL], extra[MAX_SPATIAL];
    bool is_open = open_convolution(call, is_transposed, &c, &is_single) && read_padding(call, &c, after) &&
                   pad_first(call, &c, after) && fb_argument_each(call, "output_padding", c.spatial, 0, extra);
    if (is_open && is_transposed && fb_argument_is_given(call, "output_size"))
        is_open = fb_kernel_unsupported(call, "it is given an output size") == FB_OK;
    for (int i = 0; i < c.spatial && is_open; i++) {
        int64_t reach = c.dilation[i] * (c.kernel[i] - 1);
        bool is_ambiguous = extra[i] < 0 || (extra[i] >= c.stride[i] && extra[i] >= c.dilation[i]);
        if (extra[i] < 0) is_open = fb_kernel_fail(call, "its output_padding is negative") == FB_OK;
        if (is_transposed && is_ambiguous)
            fb_kernel_fail(call, "its output padding is not smaller than its stride or dilation");
        if (is_transposed) c.out[i] = (c.in[i] - 1) * c.stride[i] - c.before[i] - after[i] + reach + extra[i] + 1;
        else
            c.out[i] = (c.in[i] + c.before[i] + after[i] - reach - 1) < 0
                           ? -1
                           : (c.in[i] + c.before[i] + after[i] - reach - 1) / c.stride[i] + 1;
    }
    c.result = is_open && !call->status ? make_result(call, &c, is_single) : NULL;
    if (c.result) {
        int64_t rows = (is_transposed ? c.out_each : c.in_each) * c.kernel_size,
                columns_count = is_transposed ? c.in_size : c.out_size;
        fb_array *columns = is_pointwise(&c) && !is_transposed
                                ? NULL
                                : fb_make_array(call, c.weight->dtype, 2, (const int64_t[]){rows, columns_count});
        double inner = (double)c.batch * (double)c.groups * (double)rows * (double)columns_count;
        fb_kernel_takes(call, inner + fb_gemm_steps(inner * (double)(is_transposed ? c.in_each : c.out_each)));
        if (!call->status) fill_bias(&c, fb_call_work(call));
        if (!call->status && c.out_size && c.batch && rows && columns_count)
            (is_transposed ? convolve_back : convolve)(call, &c, columns ? fb_array_data(columns) : NULL);
        fb_array_drop(columns);
    }
    end_convolution(&c);
    return fb_return_array(call, c.result, result);
}

static fb_status kernel_conv(fb_kernel_call *call, fb_object *result) {
    return run(call, false, result);
}

static fb_status kernel_conv_transpose(fb_kernel_call *call, fb_object *result) {
    return run(call, true, result);
}

static fb_status kernel_convolution(fb_kernel_call *call, fb_object *result) {
    bool is_transposed;
    if (!fb_argument_bool(call, "transposed", false, &is_transposed)) return call->status;
    return run(call, is_transposed, result);
}

const fb_kernel_row fb_kernels_conv[] = {
    FB_KERNEL(CONV1D, conv),
    FB_KERNEL(CONV2D, conv),
    FB_KERNEL(CONV3D, conv),
    FB_KERNEL(CONV_TRANSPOSE1D, conv_transpose),
    FB_KERNEL(CONV_TRANSPOSE2D, conv_transpose),
    FB_KERNEL(CONV_TRANSPOSE3D, conv_transpose),
    FB_KERNEL(CONVOLUTION, convolution),
    FB_KERNELS_END,
};
