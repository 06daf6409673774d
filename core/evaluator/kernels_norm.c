/* Normalisation: over a batch, the last dimensions, groups of channels. Means and variances in double. */
#include <math.h>
#include <string.h>

#include "core/evaluator/internal.h"

static bool is_floating(fb_kernel_call *call, const fb_array *input) {
    if (fb_dtype_is_floating(input->dtype)) return true;
    return fb_kernel_unsupported(call, "it is not defined for %s", fb_dtype_name(input->dtype)) == FB_OK;
}

/* A vector of `count`, as a contiguous array to be dropped, or NULL when it is absent. Of the input's dtype, or float32 beside
 * the 16-bit ones. */
static bool vector(fb_kernel_call *call, const char *name, int64_t count, fb_dtype dtype, fb_array **out) {
    fb_array *found;
    *out = NULL;
    if (!fb_argument_optional(call, name, &found)) return false;
    if (!found) return true;
    bool is_wider = found->dtype == FB_FLOAT32 && (dtype == FB_FLOAT16 || dtype == FB_BFLOAT16);
    if (found->dtype != dtype && call->op == FB_OP_RMS_NORM) /* which promotes */
        return fb_kernel_unsupported(call, "its %s is %s and the input %s", name, fb_dtype_name(found->dtype),
                                     fb_dtype_name(dtype)) == FB_OK;
    if (found->dtype != dtype && !is_wider)
        return fb_kernel_fail(call, "%s is %s and the input %s", name, fb_dtype_name(found->dtype), fb_dtype_name(dtype)) ==
               FB_OK;
    bool has_one_dimension = found->rank == 1 || call->op == FB_OP_LAYER_NORM || call->op == FB_OP_NATIVE_LAYER_NORM ||
                             call->op == FB_OP_RMS_NORM; /* whose rows may have more */
    if (fb_array_count(found) != count || !has_one_dimension || !fb_dtype_is_floating(found->dtype))
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
    fb_work *work = fb_array_work(array);
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) sum += fb_array_get(array, from + i);
    *mean = sum / (double)count;
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++)
        squares += (fb_array_get(array, from + i) - *mean) * (fb_array_get(array, from + i) - *mean);
    *variance = squares / (double)count;
}

/* y = x × scale + shift over a part of a row. */
static void scale_part(const fb_array *from, const fb_array *to, int64_t at, int64_t count, double scale, double shift) {
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

static void scale_row(const fb_array *from, const fb_array *to, int64_t at, int64_t count, double scale, double shift) {
    for (int64_t start = 0, stop; (stop = fb_work_part(fb_array_work(to), start, count)) > start; start = stop)
        scale_part(from, to, at + start, stop - start, scale, shift);
}

/* ---- batch norm ---------------------------------------------------------------------------------------------------------- */

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

/* `spatial` 0: all that the input has after its batch and channels. A module of so many spatial dimensions may be given one
 * sample alone where `takes_sample`. */
static bool open_channels(fb_kernel_call *call, int spatial, bool takes_sample, channels *c) {
    fb_array *input;
    *c = (channels){0};
    if (!fb_argument_array(call, "input", &input) || !is_floating(call, input)) return false;
    bool is_sample = takes_sample && spatial && input->rank == spatial + 1;
    bool is_vector = spatial == 1 && !takes_sample && input->rank == 2; /* BatchNorm1d's other form */
    if (input->rank < 2 || (spatial && input->rank != spatial + 2 && !is_sample && !is_vector))
        return fb_kernel_fail(call, "its input has %d dimensions", input->rank) == FB_OK;
    c->batch = is_sample ? 1 : input->sizes[0];
    c->count = input->sizes[!is_sample];
    c->inner = 1;
    for (int i = 2 - is_sample; i < input->rank; i++) c->inner *= input->sizes[i];
    c->input = fb_make_contiguous(call, input);
    return c->input && vector(call, "weight", c->count, input->dtype, &c->weight) &&
           vector(call, "bias", c->count, input->dtype, &c->bias) &&
           vector(call, "running_mean", c->count, input->dtype, &c->mean) &&
           vector(call, "running_var", c->count, input->dtype, &c->variance);
}

/* y = (x - mean) / sqrt(variance + eps) × weight + bias for one channel of one sample. */
static void normalise_row(const channels *c, const fb_array *out, int64_t row, double mean, double variance, double eps) {
    int64_t channel = row % c->count;
    double scale = at_or(c->weight, channel, 1) / sqrt(variance + eps);
    scale_row(c->input, out, row * c->inner, c->inner, scale, at_or(c->bias, channel, 0) - mean * scale);
}

static void normalise_by_running(const channels *c, const fb_array *out, double eps) {
    for (int64_t row = 0; row < c->batch * c->count && fb_work_goes_on(fb_array_work(out), 10); row++)
        normalise_row(c, out, row, fb_array_get(c->mean, row % c->count), fb_array_get(c->variance, row % c->count), eps);
}

static void normalise_by_batch(const channels *c, const fb_array *out, double eps) {
    fb_work *work = fb_array_work(out);
    for (int64_t k = 0; k < c->count && fb_work_goes_on(work, 10); k++) {
        double sum = 0, squares = 0, count = (double)(c->batch * c->inner);
        for (int64_t n = 0; n < c->batch; n++)
            for (int64_t i = 0; i < c->inner && fb_work_at(work, i, c->inner); i++)
                sum += fb_array_get(c->input, (n * c->count + k) * c->inner + i);
        for (int64_t n = 0; n < c->batch; n++) {
            for (int64_t i = 0; i < c->inner && fb_work_at(work, i, c->inner); i++) {
                double apart = fb_array_get(c->input, (n * c->count + k) * c->inner + i) - sum / count;
                squares += apart * apart;
            }
        }
        for (int64_t n = 0; n < c->batch; n++) normalise_row(c, out, n * c->count + k, sum / count, squares / count, eps);
    }
}

static bool is_module(const fb_kernel_call *call) {
    return fb_node_at(call->graph, call->node)->opcode == FB_CALL_MODULE;
}

/* Normalises by the running statistics, or by the batch's where the call has no running ones. A call that would write the
 * running ones is refused. */
static fb_array *batch_norm(fb_kernel_call *call) {
    channels c;
    double eps;
    bool training;
    fb_array *out = NULL;
    int spatial = call->op == FB_OP_BATCH_NORM1D   ? 1
                  : call->op == FB_OP_BATCH_NORM2D ? 2
                  : call->op == FB_OP_BATCH_NORM3D ? 3
                                                   : 0;
    if (open_channels(call, spatial, false, &c) && fb_argument_number(call, "eps", 1e-5, &eps) &&
        fb_argument_bool(call, "training", false, &training)) {
        bool by_batch = !c.mean && !c.variance;
        if (eps <= 0 && fb_call_is_of_nn(call)) fb_kernel_fail(call, "eps must be greater than 0");
        if (!by_batch && training) fb_kernel_unsupported(call, "it updates its running statistics");
        else if (!c.mean != !c.variance || (by_batch && !training && !is_module(call)))
            fb_kernel_fail(call, "it has no running statistics");
        else if (by_batch && c.batch * c.inner <= 1) fb_kernel_fail(call, "a single value has no variance");
        else out = fb_make_array(call, c.input->dtype, c.input->rank, c.input->sizes);
        if (out) (by_batch ? normalise_by_batch : normalise_by_running)(&c, out, eps);
    }
    close_channels(&c);
    return out;
}

static fb_status kernel_batch_norm(fb_kernel_call *call, fb_object *result) {
    return fb_return_array(call, batch_norm(call), result);
}

/* The batch's own statistics, which come second and third, are empty where the running ones were used. */
static fb_status kernel_native_batch_norm(fb_kernel_call *call, fb_object *result) {
    fb_array *items[3] = {NULL, NULL, NULL};
    bool training;
    if (!fb_argument_bool(call, "training", false, &training)) return call->status;
    if (training) return fb_kernel_unsupported(call, "it gives the statistics of the batch");
    items[0] = batch_norm(call);
    for (int i = 1; i < 3 && items[i - 1]; i++) items[i] = fb_make_array(call, items[0]->dtype, 1, (int64_t[]){0});
    return fb_return_tuple(call, items, 3, result);
}

/* Each channel of each sample by its own statistics; or by running ones, where a module in eval mode has them. */
static fb_status kernel_instance_norm(fb_kernel_call *call, fb_object *result) {
    channels c;
    double eps;
    bool training, uses_input;
    fb_array *out = NULL;
    const char *digit = is_module(call) ? strpbrk(fb_call_spelling(call), "123") : NULL;
    if (open_channels(call, digit ? *digit - '0' : 0, true, &c) && fb_argument_number(call, "eps", 1e-5, &eps) &&
        fb_argument_bool(call, "training", false, &training) &&
        fb_argument_bool(call, "use_input_stats", !is_module(call) || training || !c.mean, &uses_input)) {
        if (!c.mean != !c.variance) fb_kernel_fail(call, "it has one of running_mean and running_var without the other");
        else if (uses_input && c.mean) fb_kernel_unsupported(call, "it updates its running statistics");
        else if (!uses_input && (!c.mean || !c.variance)) fb_kernel_fail(call, "it has no running statistics");
        else if (uses_input && c.inner == 1) fb_kernel_fail(call, "a single value has no variance");
        else out = fb_make_array(call, c.input->dtype, c.input->rank, c.input->sizes);
        if (out && !uses_input) normalise_by_running(&c, out, eps);
        for (int64_t row = 0; row < c.batch * c.count && out && uses_input && fb_kernel_goes_on(call, 10); row++) {
            double mean, variance;
            moments(c.input, row * c.inner, c.inner, &mean, &variance);
            normalise_row(&c, out, row, mean, variance, eps);
        }
    }
    close_channels(&c);
    return fb_return_array(call, out, result);
}

/* The mean and 1 / sqrt(variance + eps) of what was normalised, where the operator gives them: arrays of as many numbers. */
typedef struct statistics {
    fb_array *mean, *inverse;
} statistics;

static void note_statistics(const statistics *kept, int64_t at, double mean, double inverse) {
    if (!kept) return;
    fb_array_put(kept->mean, at, mean);
    fb_array_put(kept->inverse, at, inverse);
}

static void normalise_groups(fb_kernel_call *call, const channels *c, const fb_array *out, int64_t groups, double eps,
                             const statistics *kept) {
    int64_t each = c->count / groups;
    for (int64_t g = 0; g < c->batch * groups && fb_kernel_goes_on(call, 10); g++) {
        double mean, variance;
        moments(c->input, g * each * c->inner, each * c->inner, &mean, &variance);
        note_statistics(kept, g, mean, 1 / sqrt(variance + eps));
        for (int64_t k = 0; k < each && fb_kernel_goes_on(call, 10); k++) {
            int64_t channel = g % groups * each + k;
            double scale = at_or(c->weight, channel, 1) / sqrt(variance + eps);
            scale_row(c->input, out, (g * each + k) * c->inner, c->inner, scale, at_or(c->bias, channel, 0) - mean * scale);
        }
    }
}

static bool are_groups(fb_kernel_call *call, const channels *c, int64_t groups) {
    if (groups >= 1 && c->count % groups == 0) return true;
    return fb_kernel_fail(call, "%lld groups do not divide %lld channels", (long long)groups, (long long)c->count) == FB_OK;
}

static fb_status kernel_group_norm(fb_kernel_call *call, fb_object *result) {
    channels c;
    double eps;
    int64_t groups;
    fb_array *out = NULL;
    if (open_channels(call, 0, false, &c) && fb_argument_number(call, "eps", 1e-5, &eps) &&
        fb_argument_int(call, "num_groups", 0, &groups) && are_groups(call, &c, groups)) {
        bool is_single = fb_call_is_of_nn(call) && c.batch * c.count / groups * c.inner == 1;
        if (is_single) fb_kernel_fail(call, "a single value has no variance");
        else out = fb_make_array(call, c.input->dtype, c.input->rank, c.input->sizes);
        if (out) normalise_groups(call, &c, out, groups, eps, NULL);
    }
    close_channels(&c);
    return fb_return_array(call, out, result);
}

/* native_group_norm(input, weight, bias, N, C, HxW, group, eps): the sizes say again what the input's are. */
static fb_status kernel_native_group_norm(fb_kernel_call *call, fb_object *result) {
    channels c;
    double eps;
    int64_t groups, batch, count, inner;
    fb_array *items[3] = {NULL, NULL, NULL};
    if (open_channels(call, 0, false, &c) && fb_argument_number(call, "eps", 1e-5, &eps) &&
        fb_argument_int(call, "group", 0, &groups) && fb_argument_int(call, "N", 0, &batch) &&
        fb_argument_int(call, "C", 0, &count) && fb_argument_int(call, "HxW", 0, &inner) && are_groups(call, &c, groups)) {
        bool fits = batch == c.batch && count == c.count && inner == c.inner;
        if (!fits) fb_kernel_fail(call, "its sizes are not those of its input");
        items[0] = fits ? fb_make_array(call, c.input->dtype, c.input->rank, c.input->sizes) : NULL;
        for (int i = 1; i < 3 && items[i - 1]; i++)
            items[i] = fb_make_array(call, c.input->dtype, 2, (int64_t[]){batch, groups});
        if (items[2]) normalise_groups(call, &c, items[0], groups, eps, &(statistics){items[1], items[2]});
    }
    close_channels(&c);
    return fb_return_tuple(call, items, 3, result);
}

/* ---- over the last dimensions -------------------------------------------------------------------------------------------- */

/* layer_norm: (x - mean) / sqrt(var + eps) × weight + bias; rms_norm: x / sqrt(mean(x²) + eps) × weight. */
typedef struct rows {
    fb_array *input, *weight, *bias; /* contiguous */
    int64_t count, size;             /* so many rows, of so many elements */
    int rank;                        /* dimensions that a row has */
    bool is_rms;
    double eps;
} rows;

static void close_rows(rows *r) {
    fb_array_drop(r->input);
    fb_array_drop(r->weight);
    fb_array_drop(r->bias);
}

static bool has_shape(const fb_array *array, int rank, const int64_t *shape) {
    return !array || (array->rank == rank && memcmp(array->sizes, shape, (size_t)rank * sizeof *shape) == 0);
}

static bool open_rows(fb_kernel_call *call, rows *r) {
    fb_array *input;
    int64_t shape[FB_MAX_RANK];
    *r = (rows){.size = 1, .is_rms = call->op == FB_OP_RMS_NORM};
    if (!fb_argument_array(call, "input", &input) || !is_floating(call, input) ||
        !fb_argument_ints(call, "normalized_shape", shape, &r->rank))
        return false;
    bool fits = r->rank >= 1 && r->rank <= input->rank &&
                memcmp(shape, input->sizes + input->rank - r->rank, (size_t)r->rank * sizeof *shape) == 0;
    if (!fits) return fb_kernel_fail(call, "its last dimensions are not the normalized shape") == FB_OK;
    for (int i = 0; i < r->rank; i++) r->size *= shape[i];
    r->count = r->size ? fb_array_count(input) / r->size : 0;
    /* rms_norm's own default is the dtype's epsilon. */
    double fallback = !r->is_rms                   ? 1e-5
                      : input->dtype == FB_FLOAT64 ? 0x1p-52
                      : input->dtype == FB_FLOAT32 ? 0x1p-23
                      : input->dtype == FB_FLOAT16 ? 0x1p-10
                                                   : 0x1p-7;
    if (!fb_argument_number(call, "eps", fallback, &r->eps) || !vector(call, "weight", r->size, input->dtype, &r->weight) ||
        !vector(call, "bias", r->size, input->dtype, &r->bias))
        return false;
    if (!has_shape(r->weight, r->rank, shape) || !has_shape(r->bias, r->rank, shape))
        return fb_kernel_fail(call, "its weight or bias does not have the normalized shape") == FB_OK;
    r->input = fb_make_contiguous(call, input);
    return r->input != NULL;
}

static void normalise_rows(fb_kernel_call *call, const rows *r, fb_array *out, const statistics *kept) {
    fb_work *work = fb_call_work(call);
    for (int64_t at = 0; at < r->count && fb_kernel_goes_on(call, 10); at++) {
        double mean = 0, variance = 0;
        if (!r->is_rms) moments(r->input, at * r->size, r->size, &mean, &variance);
        for (int64_t i = 0; i < r->size && r->is_rms && fb_work_at(work, i, r->size); i++) /* the mean of the squares */
            variance += fb_array_get(r->input, at * r->size + i) * fb_array_get(r->input, at * r->size + i) / (double)r->size;
        double scale = 1 / sqrt(variance + r->eps);
        note_statistics(kept, at, mean, scale);
        for (int64_t i = 0; i < r->size && fb_work_at(work, i, r->size); i++)
            fb_array_put(out, at * r->size + i,
                         (fb_array_get(r->input, at * r->size + i) - mean) * scale * at_or(r->weight, i, 1) +
                             at_or(r->bias, i, 0));
    }
}

static fb_status kernel_layer_norm(fb_kernel_call *call, fb_object *result) {
    rows r;
    fb_array *out = NULL;
    if (open_rows(call, &r)) {
        out = fb_make_array(call, r.input->dtype, r.input->rank, r.input->sizes);
        if (out) normalise_rows(call, &r, out, NULL);
    }
    close_rows(&r);
    return fb_return_array(call, out, result);
}

/* And the mean and 1 / sqrt(var + eps) of each row, with 1 in the place of its sizes. */
static fb_status kernel_native_layer_norm(fb_kernel_call *call, fb_object *result) {
    rows r;
    fb_array *items[3] = {NULL, NULL, NULL};
    if (open_rows(call, &r)) {
        int64_t sizes[FB_MAX_RANK];
        memcpy(sizes, r.input->sizes, sizeof sizes);
        items[0] = fb_make_array(call, r.input->dtype, r.input->rank, sizes);
        for (int i = 0; i < r.rank; i++) sizes[r.input->rank - 1 - i] = 1;
        for (int i = 1; i < 3 && items[i - 1]; i++) items[i] = fb_make_array(call, r.input->dtype, r.input->rank, sizes);
        if (r.size == 0 && items[2]) fb_kernel_unsupported(call, "its rows are empty");
        else if (items[2]) normalise_rows(call, &r, items[0], &(statistics){items[1], items[2]});
    }
    close_rows(&r);
    return fb_return_tuple(call, items, 3, result);
}

/* ---- of a weight -------------------------------------------------------------------------------------------------------- */

fb_array *fb_make_weight_norm(fb_kernel_call *call, fb_array *given, fb_array *gain, int64_t dim) {
    fb_array *v = NULL, *g = NULL, *out = NULL;
    int64_t inner = 1;
    if (call->status || !is_floating(call, given)) return NULL;
    if (dim < -1 || dim >= given->rank) return fb_kernel_fail(call, "dimension %lld is out of range", (long long)dim), NULL;
    int64_t size = dim < 0 ? 1 : given->sizes[dim];
    for (int i = (int)dim + 1; i < given->rank; i++) inner *= given->sizes[i];
    if (gain->dtype != given->dtype || fb_array_count(gain) != size) return fb_kernel_fail(call, "its gains do not fit"), NULL;
    v = fb_make_contiguous(call, given);
    g = v ? fb_make_contiguous(call, gain) : NULL;
    out = g ? fb_make_array(call, v->dtype, v->rank, v->sizes) : NULL;
    int64_t outer = out && size && inner ? fb_array_count(v) / (size * inner) : 0;
    fb_work *work = fb_call_work(call);
    for (int64_t k = 0; k < size && outer && fb_kernel_goes_on(call, 10); k++) {
        double squares = 0;
        for (int64_t o = 0; o < outer; o++)
            for (int64_t i = 0, at = (o * size + k) * inner; i < inner && fb_work_at(work, i, inner); i++, at++)
                squares += fb_array_get(v, at) * fb_array_get(v, at);
        double scale = fb_array_get(g, k) / sqrt(squares);
        for (int64_t o = 0; o < outer; o++) scale_row(v, out, (o * size + k) * inner, inner, scale, 0);
    }
    fb_array_drop(v);
    fb_array_drop(g);
    return out;
}

static fb_status kernel_weight_norm(fb_kernel_call *call, fb_object *result) {
    fb_array *v, *g;
    int64_t dim;
    if (!fb_argument_array(call, "v", &v) || !fb_argument_array(call, "g", &g) || !fb_argument_int(call, "dim", 0, &dim))
        return call->status;
    return fb_return_array(call, fb_make_weight_norm(call, v, g, dim), result);
}

const fb_kernel_row fb_kernels_norm[] = {
    FB_KERNEL(BATCH_NORM, batch_norm),
    FB_KERNEL(BATCH_NORM1D, batch_norm),
    FB_KERNEL(BATCH_NORM2D, batch_norm),
    FB_KERNEL(BATCH_NORM3D, batch_norm),
    FB_KERNEL(SYNC_BATCH_NORM, batch_norm),
    FB_KERNEL(BATCH_NORM_INFERENCE, native_batch_norm),
    FB_KERNEL(NATIVE_BATCH_NORM, native_batch_norm),
    FB_KERNEL(INSTANCE_NORM, instance_norm),
    FB_KERNEL(GROUP_NORM, group_norm),
    FB_KERNEL(NATIVE_GROUP_NORM, native_group_norm),
    FB_KERNEL(LAYER_NORM, layer_norm),
    FB_KERNEL(NATIVE_LAYER_NORM, native_layer_norm),
    FB_KERNEL(RMS_NORM, layer_norm),
    FB_KERNEL(WEIGHT_NORM, weight_norm),
    FB_KERNELS_END,
};
