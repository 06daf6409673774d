/* ONNX's Resize and Upsample: one axis after the other. */
#include <math.h>
#include <string.h>

#include "core/evaluator/onnx.h"

#define TAPS 4

typedef struct resizing {
    const char *mode, *coordinates, *nearest;
    double cubic, outside; /* the coefficient; what is beyond the input, for tf_crop_and_resize */
    bool excludes, crops;
    double scale[FB_MAX_RANK], begin[FB_MAX_RANK], end[FB_MAX_RANK]; /* of each axis */
    int64_t out[FB_MAX_RANK];
} resizing;

static bool is_word(const char *text, const char *word) {
    return strcmp(text, word) == 0;
}

/* Where an element of the result is in the input. */
static double place_of(const resizing *r, int axis, int64_t in, int64_t x) {
    double scale = r->scale[axis], out = scale * (double)in, last = (double)in - 1;
    if (is_word(r->coordinates, "align_corners")) return r->out[axis] == 1 ? 0 : (double)x * last / ((double)r->out[axis] - 1);
    if (is_word(r->coordinates, "asymmetric")) return (double)x / scale;
    if (r->crops) {
        double span = (r->end[axis] - r->begin[axis]) * last;
        return (r->out[axis] == 1 ? span / 2 : (double)x * span / ((double)r->out[axis] - 1)) + r->begin[axis] * last;
    }
    if (is_word(r->coordinates, "pytorch_half_pixel") && r->out[axis] == 1) return -0.5;
    double shift = is_word(r->coordinates, "half_pixel_symmetric") ? (double)in / 2 * (1 - (double)r->out[axis] / out) : 0;
    return shift + ((double)x + 0.5) / scale - 0.5;
}

/* The elements that make it, from `*first` on, and how much of each. */
static int weights_of(const resizing *r, double x, int64_t in, int64_t *first, double weights[TAPS]) {
    double below = floor(x), t = x - below, a = r->cubic, sum = 0;
    int taps = 1;
    *first = (int64_t)below;
    weights[0] = 1;
    if (is_word(r->mode, "nearest")) {
        bool is_up = is_word(r->nearest, "ceil")                ? t > 0
                     : is_word(r->nearest, "floor")             ? false
                     : is_word(r->nearest, "round_prefer_ceil") ? t >= 0.5
                                                                : t > 0.5;
        *first += is_up;
    } else if (is_word(r->mode, "linear")) {
        weights[0] = 1 - t, weights[1] = t, taps = 2;
    } else {
        (*first)--, taps = 4;
        weights[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
        weights[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
        weights[2] = ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1;
        weights[3] = ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a;
    }
    for (int i = 0; i < taps && r->excludes; i++) {
        if (*first + i < 0 || *first + i >= in) weights[i] = 0;
        sum += weights[i];
    }
    for (int i = 0; i < taps && r->excludes && sum != 0; i++) weights[i] /= sum;
    return taps;
}

static fb_array *along(onnx_op *op, const resizing *r, fb_array *x, int axis) {
    int64_t sizes[FB_MAX_RANK], inner = 1, in = x->sizes[axis], out = r->out[axis];
    for (int i = 0; i < x->rank; i++) sizes[i] = i == axis ? out : x->sizes[i];
    for (int i = axis + 1; i < x->rank; i++) inner *= x->sizes[i];
    fb_array *made = onnx_new(op, x->dtype, x->rank, sizes);
    if (!made || !onnx_takes(op, 20 * (double)fb_array_count(made))) return NULL;
    bool is_moved = is_word(r->mode, "nearest") && x->held == FB_HELD_INT;
    for (int64_t k = 0, lines = inner && out ? fb_array_count(made) / inner : 0; k < lines && onnx_goes_on(op, 20 * inner);
         k++) {
        double weights[TAPS], place = place_of(r, axis, in, k % out);
        int64_t first, base = k / out * in * inner;
        int taps = weights_of(r, place, in, &first, weights);
        bool is_outside = r->crops && (place < 0 || place > (double)in - 1);
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0;
            for (int t = 0; t < taps; t++) {
                int64_t at = first + t < 0 ? 0 : first + t >= in ? in - 1 : first + t;
                if (weights[t] != 0) sum += weights[t] * onnx_get(x, base + at * inner + i);
                if (is_moved) onnx_put_int(made, k * inner + i, onnx_get_int(x, base + at * inner + i));
            }
            if (!is_moved || is_outside) onnx_put(made, k * inner + i, is_outside ? r->outside : sum);
        }
    }
    return onnx_ok(op) ? made : NULL;
}

/* Scales or sizes of the axes that are given, or of all. */
static bool read_sizes(onnx_op *op, const fb_array *x, fb_array *scales, const int64_t *sizes, int size_count,
                       const int64_t *axes, int axis_count, resizing *r) {
    const char *policy = onnx_text(op, "keep_aspect_ratio_policy", "stretch");
    int count = axis_count < 0 ? x->rank : axis_count;
    bool is_smaller = is_word(policy, "not_larger"), keeps = is_smaller || is_word(policy, "not_smaller");
    double common = 0;
    if (!keeps && !is_word(policy, "stretch")) return onnx_refuse(op, "its policy is %s", policy) != NULL;
    if ((scales != NULL) == (size_count >= 0)) return onnx_fail(op, "it has neither scales nor sizes, or both") != NULL;
    if ((scales && fb_array_count(scales) != count) || (!scales && size_count != count))
        return onnx_fail(op, "its scales or sizes are not one for each axis") != NULL;
    for (int i = 0; i < x->rank; i++) r->scale[i] = 1, r->out[i] = x->sizes[i];
    for (int i = 0; i < count && onnx_ok(op); i++) {
        int axis = onnx_axis_of(op, axis_count < 0 ? i : axes[i], x->rank);
        if (!onnx_ok(op)) return false;
        double in = (double)x->sizes[axis], scale = scales ? fb_array_number(scales, i) : (double)sizes[i] / in;
        if (!(scale > 0) || !(scale * in < 1e9) || !x->sizes[axis])
            return onnx_fail(op, "a scale or a size does not fit") != NULL;
        r->scale[axis] = scale;
        r->out[axis] = scales ? (int64_t)floor(in * scale) : sizes[i];
        bool is_first = common == 0;
        if (is_first || (is_smaller ? scale < common : scale > common)) common = scale;
    }
    for (int i = 0; i < count && keeps && !scales && onnx_ok(op); i++) {
        int axis = onnx_axis_of(op, axis_count < 0 ? i : axes[i], x->rank);
        r->scale[axis] = common;
        r->out[axis] = (int64_t)floor(common * (double)x->sizes[axis] + 0.5);
    }
    return onnx_ok(op);
}

static bool read_crop(onnx_op *op, const fb_array *x, const int64_t *axes, int axis_count, resizing *r) {
    fb_array *roi = onnx_maybe(op, 1);
    int count = axis_count < 0 ? x->rank : axis_count;
    for (int i = 0; i < x->rank; i++) r->end[i] = 1;
    if (!r->crops || !onnx_ok(op)) return onnx_ok(op); /* other modes do not look at it */
    if (!roi || fb_array_count(roi) != 2 * count) return onnx_fail(op, "its region does not fit") != NULL;
    for (int i = 0; i < count; i++) {
        int axis = onnx_axis_of(op, axis_count < 0 ? i : axes[i], x->rank);
        r->begin[axis] = fb_array_number(roi, i);
        r->end[axis] = fb_array_number(roi, count + i);
    }
    return onnx_ok(op);
}

static fb_array *resize(onnx_op *op, fb_array *given, resizing *r, bool is_antialiased) {
    bool is_nearest = is_word(r->mode, "nearest");
    if (!is_nearest && !fb_dtype_is_floating(given->dtype)) return onnx_refuse(op, "integers are not interpolated");
    fb_array *x = onnx_rows(op, is_nearest ? given : onnx_cast(op, given, FB_FLOAT64));
    for (int axis = 0; axis < given->rank && x; axis++) {
        double whole = r->scale[axis] * (double)given->sizes[axis];
        bool needs_whole =
            r->crops || is_word(r->coordinates, "align_corners") || is_word(r->coordinates, "pytorch_half_pixel");
        bool changes = r->scale[axis] != 1 || r->begin[axis] != 0 || r->end[axis] != 1;
        if (changes && is_antialiased && r->scale[axis] < 1) return onnx_refuse(op, "antialias is not evaluated");
        if (changes && needs_whole && fabs(whole - (double)r->out[axis]) > 1e-5 * whole)
            return onnx_refuse(op, "a size is no whole number, and what libraries then compute differs");
        if (changes) x = along(op, r, x, axis);
    }
    return onnx_cast(op, x, given->dtype);
}

static fb_array *op_resize(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *scales = NULL;
    int64_t sizes[FB_MAX_RANK], axes[FB_MAX_RANK];
    int size_count = -1, axis_count = -1;
    resizing r = {.mode = onnx_text(op, "mode", "nearest"),
                  .coordinates = onnx_text(op, "coordinate_transformation_mode", "half_pixel"),
                  .nearest = onnx_text(op, "nearest_mode", "round_prefer_floor"),
                  .cubic = onnx_float(op, "cubic_coeff_a", -0.75),
                  .outside = onnx_float(op, "extrapolation_value", 0),
                  .excludes = onnx_int(op, "exclude_outside", 0)};
    static const char *const known[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                        "align_corners", "asymmetric",           "tf_crop_and_resize"};
    bool is_known = false, is_antialiased = onnx_int(op, "antialias", 0);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known |= is_word(r.coordinates, known[i]);
    is_known &= is_word(r.mode, "nearest") || is_word(r.mode, "linear") || is_word(r.mode, "cubic");
    is_known &= is_word(r.nearest, "round_prefer_floor") || is_word(r.nearest, "round_prefer_ceil") ||
                is_word(r.nearest, "floor") || is_word(r.nearest, "ceil");
    if (!x || !onnx_ok(op)) return NULL;
    if (!is_known) return onnx_refuse(op, "its mode is not known");
    r.crops = is_word(r.coordinates, "tf_crop_and_resize");
    scales = onnx_maybe(op, 2);
    if (scales && !fb_array_count(scales)) scales = NULL; /* an empty one counts as none */
    size_count = onnx_in_ints(op, 3, sizes);
    if (op->version >= 18) axis_count = onnx_ints(op, "axes", axes);
    if (!onnx_ok(op) || !read_sizes(op, x, scales, sizes, size_count, axes, axis_count, &r) ||
        !read_crop(op, x, axes, axis_count, &r))
        return NULL;
    return resize(op, x, &r, is_antialiased);
}

/* Before version 11: from the upper left corner; the nearest is the one before, where there are more elements than were. */
static fb_array *op_upsample(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *scales = NULL;
    resizing r = {.mode = onnx_text(op, "mode", "nearest"), .coordinates = "asymmetric", .nearest = "floor"};
    double given[FB_MAX_RANK];
    if (!x || !onnx_ok(op)) return NULL;
    if (strcmp(op->name, "Upsample") == 0 && op->version < 9) {
        int64_t count = onnx_floats(op, "scales", given);
        scales = count < 0 ? NULL : onnx_new(op, FB_FLOAT64, 1, &count);
        for (int64_t i = 0; scales && i < count; i++) onnx_put(scales, i, given[i]);
    } else {
        scales = onnx_in(op, 1);
    }
    if (!is_word(r.mode, "nearest") && !is_word(r.mode, "linear")) return onnx_refuse(op, "its mode is %s", r.mode);
    if (!onnx_ok(op) || !read_sizes(op, x, scales, NULL, -1, NULL, -1, &r)) return NULL;
    for (int i = 0; i < x->rank; i++) {
        r.end[i] = 1;
        if (r.scale[i] < 1) return onnx_refuse(op, "a scale is less than 1, and what libraries then compute differs");
    }
    return resize(op, x, &r, false);
}

const onnx_row onnx_rows_resize[] = {
    {"Resize", 11, 28, op_resize, 0, NULL},
    {"Resize", 10, 10, op_upsample, 0, NULL},
    {"Upsample", 7, 9, op_upsample, 0, NULL}, /* 10 is gone */
    {0},
};
