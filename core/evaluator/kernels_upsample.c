/* Resizing by interpolation over one, two or three spatial dimensions: interpolate and the upsample_… of ATen. */
#include <math.h>
#include <string.h>

#include "core/evaluator/internal.h"

enum { MAX_SPATIAL = 3 };
static const int64_t MAX_SIZE = (int64_t)1 << 53; /* of a dimension: a double holds it */

typedef enum upsampling { NEAREST, NEAREST_EXACT, LINEAR, CUBIC } upsampling;
static const int taps_of[] = {[NEAREST] = 1, [NEAREST_EXACT] = 1, [LINEAR] = 2, [CUBIC] = 4};

/* One dimension: which elements make an element of the result, and with which weights. */
typedef struct axis {
    int64_t in, out;
    double scale; /* that was given; 0 = none, it follows from the sizes */
    int taps;
    int64_t *from;  /* out × taps */
    double *weight; /* out × taps */
} axis;

typedef struct resizing {
    int spatial;
    upsampling mode;
    bool align_corners, is_double; /* positions are counted in float32, except for tensors of float64 */
    axis axes[MAX_SPATIAL];        /* those in front, which the tensor lacks, have size 1 */
} resizing;

/* ---- positions and weights, as PyTorch's UpSample.h has them ------------------------------------------------- */

static double rounded(const resizing *r, double number) {
    return r->is_double ? number : (double)(float)number;
}

static double step_of(const resizing *r, const axis *a) {
    if (r->align_corners && r->mode >= LINEAR)
        return a->out > 1 ? rounded(r, rounded(r, (double)(a->in - 1)) / (double)(a->out - 1)) : 0;
    return rounded(r, a->scale > 0 ? 1 / a->scale : (double)a->in / (double)a->out);
}

/* The input's position of the result's element `at`. */
static double position_of(const resizing *r, double step, int64_t at) {
    if (r->mode == NEAREST || (r->align_corners && r->mode >= LINEAR)) return rounded(r, step * (double)at);
    double position = rounded(r, rounded(r, step * ((double)at + 0.5)) - 0.5);
    if (r->mode == NEAREST_EXACT) return rounded(r, position + 0.5);
    return r->mode == LINEAR && position < 0 ? 0 : position;
}

static double near_weight(double x) {
    return ((-0.75 + 2) * x - (-0.75 + 3)) * x * x + 1;
}

static double far_weight(double x) {
    return ((-0.75 * x + 5 * 0.75) * x - 8 * 0.75) * x + 4 * 0.75;
}

static int64_t clip(int64_t index, int64_t size) {
    return index < 0 ? 0 : index < size ? index : size - 1;
}

static void set_taps(const resizing *r, const axis *a, double step, int64_t at, int64_t *from, double *weight) {
    double position = position_of(r, step, at);
    int64_t first = position >= (double)a->in ? a->in - 1 : (int64_t)floor(position);
    double part = fmin(fmax(position - (double)first, 0), 1);
    if (a->taps == 1) {
        from[0] = clip(first, a->in);
        weight[0] = 1;
    } else if (r->mode == LINEAR) {
        if (a->in == a->out) first = at, part = 0;
        from[0] = first;
        from[1] = a->in == a->out ? first : clip(first + 1, a->in);
        weight[0] = 1 - part;
        weight[1] = part;
    } else {
        for (int i = 0; i < 4; i++) from[i] = clip(first + i - 1, a->in);
        weight[0] = far_weight(part + 1);
        weight[1] = near_weight(part);
        weight[2] = near_weight(1 - part);
        weight[3] = far_weight(2 - part);
    }
}

/* Memory and numbers of one dimension. */
static bool open_axis(fb_kernel_call *call, const resizing *r, axis *a) {
    double step = step_of(r, a);
    a->from = fb_make_workspace(call, a->out * a->taps, sizeof *a->from);
    a->weight = fb_make_workspace(call, a->out * a->taps, sizeof *a->weight);
    for (int64_t i = 0; i < a->out && !call->status && fb_kernel_goes_on(call, 10); i++)
        set_taps(r, a, step, i, a->from + i * a->taps, a->weight + i * a->taps);
    return !call->status;
}

static void close_axes(fb_kernel_call *call, const resizing *r) {
    for (int i = 0; i < MAX_SPATIAL; i++) {
        fb_free_workspace(call, r->axes[i].from, r->axes[i].out * r->axes[i].taps, sizeof(int64_t));
        fb_free_workspace(call, r->axes[i].weight, r->axes[i].out * r->axes[i].taps, sizeof(double));
    }
}

/* ---- the result ------------------------------------------------------------------------------------------------- */

/* Along the last dimension, of one line. */
static double along_line(const fb_array *input, int64_t line, const axis *a, int64_t at) {
    double sum = -0.0; /* which is nothing, also to -0.0 */
    for (int k = 0; k < a->taps; k++)
        sum += fb_array_get(input, line + a->from[at * a->taps + k]) * a->weight[at * a->taps + k];
    return sum;
}

static double value_at(const fb_array *input, int64_t plane, const resizing *r, const int64_t at[MAX_SPATIAL]) {
    const axis *z = &r->axes[0], *y = &r->axes[1], *x = &r->axes[2];
    double sum = -0.0;
    for (int i = 0; i < z->taps; i++) {
        double of_plane = -0.0;
        for (int j = 0; j < y->taps; j++) {
            int64_t line = plane + (z->from[at[0] * z->taps + i] * y->in + y->from[at[1] * y->taps + j]) * x->in;
            of_plane += along_line(input, line, x, at[2]) * y->weight[at[1] * y->taps + j];
        }
        sum += of_plane * z->weight[at[0] * z->taps + i];
    }
    return sum;
}

static void fill(fb_kernel_call *call, const fb_array *input, const resizing *r, const fb_array *out) {
    const axis *axes = r->axes;
    int64_t next = 0, count = fb_array_count(out), at[MAX_SPATIAL];
    int64_t steps = 10 + 4 * axes[0].taps * axes[1].taps * axes[2].taps;
    if (!fb_kernel_takes(call, (double)steps * (double)count)) return;
    for (int64_t plane = 0; next < count && !call->status; plane += axes[0].in * axes[1].in * axes[2].in)
        for (at[0] = 0; at[0] < axes[0].out && !call->status; at[0]++)
            for (at[1] = 0; at[1] < axes[1].out && !call->status; at[1]++)
                for (at[2] = 0; at[2] < axes[2].out && fb_kernel_goes_on(call, steps); at[2]++)
                    fb_array_put(out, next++, value_at(input, plane, r, at));
}

static fb_status resize(fb_kernel_call *call, fb_array *given, resizing *r, fb_object *result) {
    int64_t sizes[FB_MAX_RANK];
    memcpy(sizes, given->sizes, sizeof sizes);
    for (int i = 0; i < r->spatial; i++) sizes[2 + i] = r->axes[MAX_SPATIAL - r->spatial + i].out;
    r->is_double = given->dtype == FB_FLOAT64 || (given->held == FB_HELD_DOUBLE && r->mode >= LINEAR);
    fb_array *out = fb_make_array(call, given->dtype, given->rank, sizes);
    fb_array *input = out ? fb_make_contiguous(call, given) : NULL;
    for (int i = 0; i < MAX_SPATIAL && input; i++) open_axis(call, r, &r->axes[i]);
    if (input && !call->status) fill(call, input, r, out);
    close_axes(call, r);
    fb_array_drop(input);
    return fb_return_array(call, out, result);
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static bool open_input(fb_kernel_call *call, int spatial, upsampling mode, fb_array **input, resizing *r) {
    *r = (resizing){.spatial = spatial, .mode = mode};
    if (!fb_argument_array(call, "input", input)) return false;
    if (!r->spatial) r->spatial = (*input)->rank - 2;
    if ((*input)->rank != r->spatial + 2 || r->spatial < 1 || r->spatial > MAX_SPATIAL)
        return fb_kernel_fail(call, "its input has %d dimensions", (*input)->rank) == FB_OK;
    if (!fb_dtype_is_floating((*input)->dtype)) return fb_kernel_unsupported(call, "it is evaluated for floats alone") == FB_OK;
    for (int i = 1; i < (*input)->rank; i++)
        if (!(*input)->sizes[i]) return fb_kernel_fail(call, "its input is empty") == FB_OK;
    for (int i = 0; i < MAX_SPATIAL; i++) {
        int dim = i - (MAX_SPATIAL - r->spatial);
        int64_t size = dim < 0 ? 1 : (*input)->sizes[2 + dim];
        r->axes[i] = (axis){.in = size, .out = size, .taps = dim < 0 ? 1 : taps_of[mode]};
    }
    return true;
}

/* The mode needs a dimension that the tensor has; one in front of it has one element, which is copied. */
static axis *first_axis(resizing *r) {
    return &r->axes[MAX_SPATIAL - r->spatial];
}

static bool read_sizes(fb_kernel_call *call, const char *name, resizing *r) {
    int64_t sizes[MAX_SPATIAL];
    const fb_object *given = fb_argument(call, name);
    if (given && fb_object_is_sequence(given) && given->items->count != (size_t)r->spatial)
        return fb_kernel_fail(call, "%s has %zu items in place of %d", name, given->items->count, r->spatial) == FB_OK;
    if (!fb_argument_each(call, name, r->spatial, 0, sizes)) return false;
    for (int i = 0; i < r->spatial; i++) {
        if (sizes[i] < 1) return fb_kernel_fail(call, "its output would be empty") == FB_OK;
        if (sizes[i] >= MAX_SIZE) return fb_kernel_fail(call, "its output would be too large") == FB_OK;
        first_axis(r)[i].out = sizes[i];
    }
    return true;
}

static bool read_scales(fb_kernel_call *call, const char *name, resizing *r) {
    const fb_object *scales = fb_argument(call, name);
    if (!scales) return false;
    bool is_list = fb_object_is_sequence(scales);
    if (is_list && scales->items->count != (size_t)r->spatial)
        return fb_kernel_fail(call, "%s has %zu items in place of %d", name, scales->items->count, r->spatial) == FB_OK;
    for (int i = 0; i < r->spatial; i++) {
        axis *a = &first_axis(r)[i];
        if (!fb_object_number(is_list ? &scales->items->objects[i] : scales, &a->scale))
            return fb_kernel_unsupported(call, "its argument %s is not a number", name) == FB_OK;
        double out = (double)a->in * a->scale;
        if (!(out >= 1)) return fb_kernel_fail(call, "its output would be empty") == FB_OK;
        if (out >= (double)MAX_SIZE) return fb_kernel_fail(call, "its output would be too large") == FB_OK;
        a->out = (int64_t)out;
    }
    return true;
}

static bool read_extent(fb_kernel_call *call, const char *size, const char *scale, resizing *r) {
    bool has_size = fb_argument_is_given(call, size), has_scale = fb_argument_is_given(call, scale);
    if (has_size == has_scale) return fb_kernel_fail(call, "it takes either %s or %s", size, scale) == FB_OK;
    return has_size ? read_sizes(call, size, r) : read_scales(call, scale, r);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

/* interpolate's modes; linear ones belong to a number of dimensions. */
static bool read_mode(fb_kernel_call *call, int spatial, upsampling *mode) {
    static const char *const linear[] = {"linear", "bilinear", "trilinear"};
    const char *name;
    if (!fb_argument_text(call, "mode", &name)) return false;
    bool is_layer = fb_call_is_spelled(call, "UpsamplingBilinear2d");
    if (fb_call_is_spelled(call, "UpsamplingNearest2d") || (!*name && !is_layer)) name = "nearest";
    if (is_layer) name = "bilinear";
    if (strcmp(name, "nearest") == 0) *mode = NEAREST;
    else if (strcmp(name, "nearest-exact") == 0) *mode = NEAREST_EXACT;
    else if (spatial >= 1 && spatial <= MAX_SPATIAL && strcmp(name, linear[spatial - 1]) == 0) *mode = LINEAR;
    else if (strcmp(name, "bicubic") == 0 && spatial == 2) *mode = CUBIC;
    else return fb_kernel_unsupported(call, "the mode %s of %d dimensions is not evaluated", name, spatial) == FB_OK;
    return true;
}

static fb_status kernel_interpolate(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    resizing r;
    upsampling mode = NEAREST;
    bool recomputes, is_smooth;
    if (!fb_argument_array(call, "input", &input) || !read_mode(call, input->rank - 2, &mode) ||
        !open_input(call, 0, mode, &input, &r))
        return call->status;
    bool aligns_always = fb_call_is_spelled(call, "UpsamplingBilinear2d");
    if (mode < LINEAR && fb_argument_is_given(call, "align_corners"))
        return fb_kernel_fail(call, "align_corners means nothing where the nearest element is taken");
    if (!fb_argument_bool(call, "align_corners", aligns_always, &r.align_corners) ||
        !fb_argument_bool(call, "recompute_scale_factor", false, &recomputes) ||
        !fb_argument_bool(call, "antialias", false, &is_smooth) || !read_extent(call, "size", "scale_factor", &r))
        return call->status;
    if (is_smooth) return fb_kernel_unsupported(call, "antialias is not evaluated");
    if (recomputes && fb_argument_is_given(call, "size"))
        return fb_kernel_fail(call, "recompute_scale_factor means nothing where the size is given");
    for (int i = 0; i < MAX_SPATIAL && recomputes; i++) r.axes[i].scale = 0;
    return resize(call, input, &r, result);
}

/* upsample_nearest2d, _upsample_nearest_exact1d, upsample_trilinear3d …: the mode and the dimensions are in the name. */
static bool open_named(fb_kernel_call *call, fb_array **input, resizing *r) {
    const char *name = fb_call_spelling(call), *digit = strpbrk(name, "123");
    upsampling mode = strstr(name, "exact")     ? NEAREST_EXACT
                      : strstr(name, "nearest") ? NEAREST
                      : strstr(name, "linear")  ? LINEAR
                                                : CUBIC;
    if (!digit) return fb_kernel_unsupported(call, "its dimensions are not known") == FB_OK;
    if (!open_input(call, *digit - '0', mode, input, r)) return false;
    return mode < LINEAR || fb_argument_bool(call, "align_corners", false, &r->align_corners);
}

/* The overload `vec`, or a layer. */
static fb_status kernel_upsample(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    resizing r;
    if (fb_node_at(call->graph, call->node)->opcode == FB_CALL_MODULE) return kernel_interpolate(call, result);
    if (!open_named(call, &input, &r) || !read_extent(call, "output_size", "scale_factors", &r)) return call->status;
    return resize(call, input, &r, result);
}

/* The overload `default`: the size, and scales beside it that may be others than the sizes' ratios. */
static fb_status kernel_upsample_to(fb_kernel_call *call, fb_object *result) {
    static const char *const names[] = {"scales_d", "scales_h", "scales_w"};
    fb_array *input;
    resizing r;
    if (!open_named(call, &input, &r) || !read_sizes(call, "output_size", &r)) return call->status;
    for (int i = MAX_SPATIAL - r.spatial; i < MAX_SPATIAL; i++)
        if (!fb_argument_number(call, r.spatial == 1 ? "scales" : names[i], 0, &r.axes[i].scale)) return call->status;
    return resize(call, input, &r, result);
}

const fb_kernel_row fb_kernels_upsample[] = {
    FB_KERNEL(INTERPOLATE, interpolate),           FB_KERNEL(UPSAMPLE_NEAREST, upsample),
    FB_KERNEL(UPSAMPLE_BILINEAR, upsample),        FB_KERNEL(UPSAMPLE_NEAREST1D_TO, upsample_to),
    FB_KERNEL(UPSAMPLE_NEAREST2D_TO, upsample_to), FB_KERNEL(UPSAMPLE_NEAREST3D_TO, upsample_to),
    FB_KERNEL(UPSAMPLE_LINEAR1D_TO, upsample_to),  FB_KERNEL(UPSAMPLE_LINEAR2D_TO, upsample_to),
    FB_KERNEL(UPSAMPLE_LINEAR3D_TO, upsample_to),  FB_KERNELS_END,
};
