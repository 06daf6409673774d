/* Normalisation: over a batch, the last dimensions, groups of channels. Means and variances in double. */
#include <math.h>
#include <string.h>

#include "core/eval/evaluator.h"

static bool is_floating(fb_kernel_call *call, const fb_array *input) {
    if (fb_dtype_is_floating(input->dtype)) return true;
    return fb_kernel_unsupported(call, "it is not defined for %s", fb_dtype_name(input->dtype)) == FB_OK;
}

/* A vector of `count`, as a contiguous array to be dropped, or NULL when it is absent. */
static bool vector(fb_kernel_call *call, const char *name, int64_t count, fb_array **out) {
    fb_array *found;
    *out = NULL;
    if (!fb_argument_optional(call, name, &found)) return false;
    if (!found) return true;
    if (fb_array_count(found) != count || !fb_dtype_is_floating(found->dtype))
        return fb_kernel_fail(call, "%s has not one number for each of %lld", name, (long long)count) == FB_OK;
    *out = fb_make_contiguous(call, found);
    return *out != NULL;
}

static double at_or(const fb_array *array, int64_t at, double fallback) {
    return array ? fb_array_get(array, at) : fallback;
}

/* Mean and variance (of the population) of `count` elements in a row. */
static void moments(const fb_array *array, int64_t from, int64_t count, double *mean, double *variance) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) sum += fb_array_get(array, from + i);
    *mean = sum / (double)count;
    for (int64_t i = 0; i < count; i++)
        squares += (fb_array_get(array, from + i) - *mean) * (fb_array_get(array, from + i) - *mean);
    *variance = squares / (double)count;
}

/* y = x × scale + shift over a row. */
static void scale_row(const fb_array *from, const fb_array *to, int64_t at, int64_t count, double scale, double shift) {
    if (from->held == FB_HELD_FLOAT) {
        const float *restrict x = (const float *)fb_array_data(from) + at;
        float *restrict y = (float *)fb_array_data(to) + at;
        for (int64_t i = 0; i < count; i++) y[i] = (float)((double)x[i] * scale + shift);
    } else {
        const double *restrict x = (const double *)fb_array_data(from) + at;
        double *restrict y = (double *)fb_array_data(to) + at;
        for (int64_t i = 0; i < count; i++) y[i] = x[i] * scale + shift;
    }
}

/* ---- batch norm
 * -------------------------------------------------------------------------------------------------------------- */

typedef struct channels {
    fb_array *input; /* contiguous (N, C, *) */
    int64_t batch, count, inner;
    fb_array *weight, *bias, *mean, *variance;
} channels;

static void close_channels(channels *c) {
    fb_array_drop(c->input);
    fb_array_drop(c->weight);
    fb_array_drop(c->bias);
    fb_array_drop(c->mean);
    fb_array_drop(c->variance);
}

static bool open_channels(fb_kernel_call *call, channels *c) {
    fb_array *input;
    *c = (channels){0};
    if (!fb_argument_array(call, "input", &input) || !is_floating(call, input)) return false;
    if (input->rank < 2) return fb_kernel_fail(call, "it takes two dimensions at least") == FB_OK;
    c->batch = input->sizes[0];
    c->count = input->sizes[1];
    c->inner = 1;
    for (int i = 2; i < input->rank; i++) c->inner *= input->sizes[i];
    c->input = fb_make_contiguous(call, input);
    return c->input && vector(call, "weight", c->count, &c->weight) && vector(call, "bias", c->count, &c->bias) &&
           vector(call, "running_mean", c->count, &c->mean) && vector(call, "running_var", c->count, &c->variance);
}

/* (x - mean) / sqrt(var + eps) × weight + bias, with the running statistics. What uses those of the batch writes the running
 * ones, too, and is refused. */
fb_status fb_kernel_batch_norm(fb_kernel_call *call, fb_object *result) {
    channels c;
    double eps;
    bool training;
    fb_array *out = NULL;
    if (open_channels(call, &c) && fb_argument_number(call, "eps", 1e-5, &eps) &&
        fb_argument_bool(call, "training", false, &training)) {
        if (call->op == FB_OP_BATCH_NORM_INFERENCE) fb_kernel_unsupported(call, "it gives statistics, too");
        else if (training || !c.mean || !c.variance) fb_kernel_unsupported(call, "it uses the statistics of the batch");
        else out = fb_make_array(call, c.input->dtype, c.input->rank, c.input->sizes);
        for (int64_t n = 0; n < c.batch && out; n++) {
            for (int64_t k = 0; k < c.count; k++) {
                double scale = at_or(c.weight, k, 1) / sqrt(fb_array_get(c.variance, k) + eps);
                scale_row(c.input, out, (n * c.count + k) * c.inner, c.inner, scale,
                          at_or(c.bias, k, 0) - fb_array_get(c.mean, k) * scale);
            }
        }
    }
    close_channels(&c);
    return fb_return_array(call, out, result);
}

/* Each channel of each sample by its own statistics. */
fb_status fb_kernel_instance_norm(fb_kernel_call *call, fb_object *result) {
    channels c;
    double eps;
    bool uses_input;
    fb_array *out = NULL;
    if (open_channels(call, &c) && fb_argument_number(call, "eps", 1e-5, &eps) &&
        fb_argument_bool(call, "use_input_stats", true, &uses_input)) {
        if (!uses_input || c.mean) fb_kernel_unsupported(call, "it has running statistics");
        else out = fb_make_array(call, c.input->dtype, c.input->rank, c.input->sizes);
        for (int64_t row = 0; row < c.batch * c.count && out; row++) {
            double mean, variance;
            moments(c.input, row * c.inner, c.inner, &mean, &variance);
            double scale = at_or(c.weight, row % c.count, 1) / sqrt(variance + eps);
            scale_row(c.input, out, row * c.inner, c.inner, scale, at_or(c.bias, row % c.count, 0) - mean * scale);
        }
    }
    close_channels(&c);
    return fb_return_array(call, out, result);
}

fb_status fb_kernel_group_norm(fb_kernel_call *call, fb_object *result) {
    channels c;
    double eps;
    int64_t groups;
    fb_array *out = NULL;
    if (open_channels(call, &c) && fb_argument_number(call, "eps", 1e-5, &eps) &&
        fb_argument_int(call, "num_groups", 0, &groups)) {
        if (groups < 1 || c.count % groups)
            fb_kernel_fail(call, "%lld groups do not divide %lld channels", (long long)groups, (long long)c.count);
        else out = fb_make_array(call, c.input->dtype, c.input->rank, c.input->sizes);
        int64_t each = out ? c.count / groups : 1;
        for (int64_t g = 0; g < c.batch * groups && out; g++) {
            double mean, variance;
            moments(c.input, g * each * c.inner, each * c.inner, &mean, &variance);
            for (int64_t k = 0; k < each; k++) {
                int64_t channel = g % groups * each + k;
                double scale = at_or(c.weight, channel, 1) / sqrt(variance + eps);
                scale_row(c.input, out, (g * each + k) * c.inner, c.inner, scale, at_or(c.bias, channel, 0) - mean * scale);
            }
        }
    }
    close_channels(&c);
    return fb_return_array(call, out, result);
}

/* ---- over the last dimensions
 * -------------------------------------------------------------------------------------------------- */

/* layer_norm: (x - mean) / sqrt(var + eps) × weight + bias; rms_norm: x / sqrt(mean(x²) + eps) × weight. */
fb_status fb_kernel_layer_norm(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *from = NULL, *weight = NULL, *bias = NULL, *out = NULL;
    int64_t shape[FB_MAX_RANK], row = 1;
    int rank;
    double eps;
    bool is_rms = call->op == FB_OP_RMS_NORM;
    if (!fb_argument_array(call, "input", &input) || !is_floating(call, input) ||
        !fb_argument_ints(call, "normalized_shape", shape, &rank))
        return call->status;
    if (rank < 1 || rank > input->rank || memcmp(shape, input->sizes + input->rank - rank, (size_t)rank * sizeof *shape) != 0)
        return fb_kernel_fail(call, "its last dimensions are not the normalized shape");
    for (int i = 0; i < rank; i++) row *= shape[i];
    /* rms_norm's own default is the dtype's epsilon. */
    double fallback = !is_rms                      ? 1e-5
                      : input->dtype == FB_FLOAT64 ? 0x1p-52
                      : input->dtype == FB_FLOAT32 ? 0x1p-23
                      : input->dtype == FB_FLOAT16 ? 0x1p-10
                                                   : 0x1p-7;
    if (fb_argument_number(call, "eps", fallback, &eps) && vector(call, "weight", row, &weight) &&
        vector(call, "bias", row, &bias)) {
        from = fb_make_contiguous(call, input);
        out = from ? fb_make_array(call, input->dtype, input->rank, input->sizes) : NULL;
    }
    int64_t rows = out && row ? fb_array_count(input) / row : 0;
    for (int64_t r = 0; r < rows; r++) {
        double mean, variance;
        moments(from, r * row, row, &mean, &variance);
        if (is_rms) {
            variance += mean * mean; /* the mean of the squares */
            mean = 0;
        }
        double scale = 1 / sqrt(variance + eps);
        for (int64_t i = 0; i < row; i++)
            fb_array_put(out, r * row + i,
                         (fb_array_get(from, r * row + i) - mean) * scale * at_or(weight, i, 1) + at_or(bias, i, 0));
    }
    fb_array_drop(from);
    fb_array_drop(weight);
    fb_array_drop(bias);
    return fb_return_array(call, out, result);
}
