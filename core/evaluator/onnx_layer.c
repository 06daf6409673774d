/* ONNX's layers: products, convolutions, pools, norms. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/onnx.h"

#define SPATIAL 3 /* dimensions that a window slides along, at most */

/* ---- products ----------------------------------------------------------------------------------------------------------- */

fb_array *onnx_matmul(onnx_op *op, fb_array *a, fb_array *b) {
    if (!a || !b || !onnx_ok(op)) return NULL;
    if (a->dtype != b->dtype) return onnx_fail(op, "its operands have two dtypes");
    return ONNX_PART(MATMUL, "matmul", ONNX_A("input", a), ONNX_A("other", b));
}

static fb_array *op_matmul(onnx_op *op) {
    return onnx_matmul(op, onnx_in(op, 0), onnx_in(op, 1));
}

static fb_array *turned(onnx_op *op, fb_array *x) {
    return x ? onnx_permute(op, x, (const int[]){1, 0}) : NULL;
}

static fb_array *op_gemm(onnx_op *op) {
    fb_array *a = onnx_in(op, 0), *b = onnx_in(op, 1), *c = onnx_maybe(op, 2);
    double alpha = onnx_float(op, "alpha", 1), beta = onnx_float(op, "beta", 1);
    bool turns_a = onnx_int(op, "transA", 0), turns_b = onnx_int(op, "transB", 0);
    if (!a || !b || !onnx_ok(op)) return NULL;
    if (a->rank != 2 || b->rank != 2) return onnx_fail(op, "its operands are not matrices");
    if (!fb_dtype_is_floating(a->dtype) && (alpha != 1 || beta != 1)) return onnx_refuse(op, "integers are not scaled");
    fb_array *made = onnx_matmul(op, turns_a ? turned(op, a) : a, turns_b ? turned(op, b) : b);
    if (made && alpha != 1) made = ONNX_MUL(made, onnx_scalar(op, alpha, made->dtype));
    if (!c || !made) return made;
    if (beta != 1) c = ONNX_MUL(c, onnx_scalar(op, beta, c->dtype));
    fb_array *sum = ONNX_ADD(made, c);
    bool fits = sum && sum->rank == 2 && sum->sizes[0] == made->sizes[0] && sum->sizes[1] == made->sizes[1];
    return fits || !sum ? sum : onnx_fail(op, "its addend is larger than the product");
}

static fb_array *op_einsum(onnx_op *op) {
    fb_array *items[ONNX_RESULTS];
    const char *equation = onnx_text(op, "equation", "");
    size_t count = onnx_in_count(op);
    if (!count || count > ONNX_RESULTS) return onnx_refuse(op, "it has too many inputs");
    for (size_t i = 0; i < count; i++) {
        items[i] = onnx_in(op, i);
        if (!items[i]) return NULL;
        if (items[i]->dtype != items[0]->dtype) return onnx_fail(op, "its inputs have several dtypes");
    }
    fb_object operands = onnx_arrays(op, items, count);
    return ONNX_PART(EINSUM, "einsum", ONNX_T("equation", equation), ONNX_O("operands", operands));
}

/* ---- windows ------------------------------------------------------------------------------------------------------------ */

typedef struct window {
    int spatial;
    int64_t kernel[SPATIAL], stride[SPATIAL], dilation[SPATIAL], before[SPATIAL], after[SPATIAL], in[SPATIAL], out[SPATIAL];
} window;

static bool read_each(onnx_op *op, const char *name, int spatial, int64_t fallback, int64_t *out) {
    int64_t found[FB_MAX_RANK];
    int count = onnx_ints(op, name, found);
    if (count >= 0 && count != spatial) return onnx_fail(op, "%s has another number of items", name) != NULL;
    for (int i = 0; i < spatial; i++) {
        out[i] = count < 0 ? fallback : found[i];
        if (out[i] < -INT32_MAX || out[i] > INT32_MAX) return onnx_refuse(op, "%s is beyond 32 bits", name) != NULL;
    }
    return onnx_ok(op);
}

/* Sizes, steps and paddings of what slides along x; `weight` has the kernel's sizes, or the attribute. */
static bool open_window(onnx_op *op, const fb_array *x, const fb_array *weight, bool rounds_up, window *w) {
    const char *automatic = onnx_text(op, "auto_pad", "NOTSET");
    int64_t pads[FB_MAX_RANK];
    *w = (window){.spatial = x->rank - 2};
    if (w->spatial < 1 || w->spatial > SPATIAL) return onnx_refuse(op, "it has %d dimensions", x->rank) != NULL;
    if (!read_each(op, "kernel_shape", w->spatial, 0, w->kernel) || !read_each(op, "strides", w->spatial, 1, w->stride) ||
        !read_each(op, "dilations", w->spatial, 1, w->dilation))
        return false;
    int count = onnx_ints(op, "pads", pads);
    if (count >= 0 && count != 2 * w->spatial) return onnx_fail(op, "pads has another number of items") != NULL;
    for (int i = 0; i < w->spatial && onnx_ok(op); i++) {
        w->in[i] = x->sizes[i + 2];
        if (weight && w->kernel[i] && w->kernel[i] != weight->sizes[i + 2])
            return onnx_fail(op, "kernel_shape is not the weight's") != NULL;
        if (weight) w->kernel[i] = weight->sizes[i + 2];
        bool fits =
            w->kernel[i] > 0 && w->stride[i] > 0 && w->dilation[i] > 0 && w->in[i] <= INT32_MAX && w->kernel[i] <= INT32_MAX;
        if (!fits) return onnx_fail(op, "a kernel, stride or dilation is not positive") != NULL;
        int64_t reach = w->dilation[i] * (w->kernel[i] - 1) + 1;
        bool is_lower = strcmp(automatic, "SAME_LOWER") == 0;
        if (is_lower || strcmp(automatic, "SAME_UPPER") == 0) {
            int64_t out = (w->in[i] + w->stride[i] - 1) / w->stride[i], all = (out - 1) * w->stride[i] + reach - w->in[i];
            if (all < 0) all = 0;
            w->before[i] = is_lower ? all - all / 2 : all / 2;
            w->after[i] = all - w->before[i];
        } else if (strcmp(automatic, "NOTSET") == 0 && count >= 0) {
            w->before[i] = pads[i];
            w->after[i] = pads[w->spatial + i];
            bool is_small = pads[i] >= 0 && pads[i] <= INT32_MAX && w->after[i] >= 0 && w->after[i] <= INT32_MAX;
            if (!is_small) return onnx_refuse(op, "a padding is negative, or beyond 32 bits") != NULL;
        } else if (strcmp(automatic, "NOTSET") != 0 && strcmp(automatic, "VALID") != 0) {
            return onnx_refuse(op, "auto_pad is %s", automatic) != NULL;
        }
        int64_t room = w->in[i] + w->before[i] + w->after[i] - reach;
        if (room < 0) return onnx_fail(op, "its kernel is larger than the padded input") != NULL;
        w->out[i] = room / w->stride[i] + 1;
        if (rounds_up && room % w->stride[i]) {
            /* no window begins in the padding behind */
            if (w->out[i] * w->stride[i] < w->in[i] + w->before[i]) w->out[i]++;
        }
    }
    return onnx_ok(op);
}

/* Zeros around, so that all paddings are even. */
static fb_array *padded(onnx_op *op, fb_array *x, const window *w) {
    int64_t pads[2 * SPATIAL], sum = 0;
    for (int i = 0; i < w->spatial; i++) {
        pads[2 * i] = w->before[w->spatial - 1 - i];
        pads[2 * i + 1] = w->after[w->spatial - 1 - i];
        sum += pads[2 * i] + pads[2 * i + 1];
    }
    if (!sum) return x;
    return ONNX_PART(CONSTANT_PAD, "constant_pad_nd", ONNX_A("input", x), ONNX_O("pad", onnx_list(op, pads, 2 * w->spatial)),
                     ONNX_F("value", 0));
}

fb_array *onnx_convolve(onnx_op *op, fb_array *x, fb_array *weight, fb_array *bias) {
    static const fb_op ops[] = {FB_OP_CONV1D, FB_OP_CONV2D, FB_OP_CONV3D};
    static const char *const spellings[] = {"conv1d", "conv2d", "conv3d"};
    int64_t groups = onnx_int(op, "group", 1);
    window w;
    if (!x || !weight || !onnx_ok(op)) return NULL;
    if (x->rank != weight->rank) return onnx_fail(op, "its weight does not fit its input");
    if (!open_window(op, x, weight, false, &w)) return NULL;
    x = padded(op, x, &w);
    return !x ? NULL
              : onnx_part(op, ops[w.spatial - 1], spellings[w.spatial - 1],
                          (const fb_part_argument[]){ONNX_A("input", x),
                                                     ONNX_A("weight", weight),
                                                     ONNX_A("bias", bias),
                                                     ONNX_O("stride", onnx_list(op, w.stride, w.spatial)),
                                                     ONNX_O("dilation", onnx_list(op, w.dilation, w.spatial)),
                                                     ONNX_I("groups", groups),
                                                     {NULL, {.kind = FB_OBJECT_NONE}}},
                          0);
}

static fb_array *op_conv(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *weight = onnx_in(op, 1);
    return onnx_convolve(op, x, weight, onnx_maybe(op, 2));
}

/* The whole result without padding, and then what the padding takes away, or adds. */
static fb_array *op_conv_transpose(onnx_op *op) {
    static const fb_op ops[] = {FB_OP_CONV_TRANSPOSE1D, FB_OP_CONV_TRANSPOSE2D, FB_OP_CONV_TRANSPOSE3D};
    static const char *const spellings[] = {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"};
    fb_array *x = onnx_in(op, 0), *weight = onnx_in(op, 1), *bias = onnx_maybe(op, 2);
    int64_t groups = onnx_int(op, "group", 1), kernel[SPATIAL], stride[SPATIAL], dilation[SPATIAL], extra[SPATIAL],
            shape[SPATIAL], pads[FB_MAX_RANK];
    const char *automatic = onnx_text(op, "auto_pad", "NOTSET");
    if (!x || !weight || !onnx_ok(op)) return NULL;
    int spatial = x->rank - 2, count = onnx_ints(op, "pads", pads);
    bool has_shape = onnx_has_attribute(op, "output_shape"), is_same = strncmp(automatic, "SAME_", 5) == 0;
    if (spatial < 1 || spatial > SPATIAL || x->rank != weight->rank) return onnx_refuse(op, "it has %d dimensions", x->rank);
    if (count >= 0 && count != 2 * spatial) return onnx_fail(op, "pads has another number of items");
    if (!read_each(op, "kernel_shape", spatial, 0, kernel) || !read_each(op, "strides", spatial, 1, stride) ||
        !read_each(op, "dilations", spatial, 1, dilation) || !read_each(op, "output_padding", spatial, 0, extra) ||
        !read_each(op, "output_shape", spatial, 0, shape))
        return NULL;
    fb_array *made = onnx_part(op, ops[spatial - 1], spellings[spatial - 1],
                               (const fb_part_argument[]){ONNX_A("input", x),
                                                          ONNX_A("weight", weight),
                                                          ONNX_O("stride", onnx_list(op, stride, spatial)),
                                                          ONNX_O("dilation", onnx_list(op, dilation, spatial)),
                                                          ONNX_I("groups", groups),
                                                          {NULL, {.kind = FB_OBJECT_NONE}}},
                               0);
    for (int i = 0; i < spatial && made; i++) {
        int64_t whole = made->sizes[i + 2] + extra[i], before = 0, after = 0;
        if (extra[i] < 0) return onnx_fail(op, "output_padding is negative");
        if (has_shape || is_same) {
            int64_t wanted = has_shape ? shape[i] : x->sizes[i + 2] * stride[i], all = whole - wanted;
            bool is_upper = strcmp(automatic, "SAME_UPPER") == 0;
            before = is_upper ? all / 2 : all - all / 2;
            after = all - before;
            if (all < 0) return onnx_refuse(op, "its result is larger than what is computed");
        } else if (strcmp(automatic, "NOTSET") == 0 && count >= 0) {
            before = pads[i];
            after = pads[spatial + i];
        } else if (strcmp(automatic, "NOTSET") != 0 && strcmp(automatic, "VALID") != 0) {
            return onnx_refuse(op, "auto_pad is %s", automatic);
        }
        if (before < 0 || after < 0 || before + after > whole)
            return onnx_refuse(op, "its padding is negative, or takes all away");
        if (extra[i]) { /* zeros behind */
            int64_t sizes[FB_MAX_RANK];
            memcpy(sizes, made->sizes, sizeof sizes);
            sizes[i + 2] = extra[i];
            fb_array *zeros = onnx_new(op, made->dtype, made->rank, sizes);
            if (zeros) fb_array_fill(zeros, 0, 0);
            made = onnx_join(op, (fb_array *[]){made, zeros}, 2, i + 2);
        }
        made = onnx_cut(op, made, i + 2, before, whole - after);
    }
    if (!bias || !made) return made;
    int64_t sizes[FB_MAX_RANK] = {1, bias->sizes[0]};
    if (bias->rank != 1 || bias->sizes[0] != made->sizes[1]) return onnx_fail(op, "its bias does not fit");
    for (int i = 0; i < spatial; i++) sizes[i + 2] = 1;
    return ONNX_ADD(made, onnx_reshape(op, bias, spatial + 2, sizes));
}

/* ---- pools -------------------------------------------------------------------------------------------------------------- */

typedef enum pool_kind { LARGEST, AVERAGE, POWER } pool_kind;

typedef struct pool {
    pool_kind kind;
    window w;
    bool counts_padding;
    bool is_column_major; /* indices are */
    double power;
    const fb_array *x, *made, *indices; /* indices may be NULL */
} pool;

/* One window: `out` is its place. */
static void pool_one(const pool *p, int64_t plane, int64_t planes_at, const int64_t *out, int64_t at) {
    const window *w = &p->w;
    int64_t index[SPATIAL] = {0}, found_at = -1, count = 0, within = 0, kernels = 1;
    double sum = 0, best = 0;
    for (int i = 0; i < w->spatial; i++) kernels *= w->kernel[i];
    for (int64_t k = 0; k < kernels; k++) {
        int64_t place = 0;
        bool is_inside = true, is_padded = true;
        for (int i = 0; i < w->spatial; i++) {
            int64_t one = out[i] * w->stride[i] - w->before[i] + index[i] * w->dilation[i];
            is_inside &= one >= 0 && one < w->in[i];
            is_padded &= one < w->in[i] + w->after[i];
            place = place * w->in[i] + one;
        }
        within += is_padded;
        if (is_inside) {
            double x = onnx_get(p->x, planes_at + place);
            bool is_better = found_at < 0 || x > best || (x != x && best == best);
            if (is_better) best = x, found_at = place;
            sum += p->kind == POWER ? pow(fabs(x), p->power) : x;
            count++;
        }
        for (int i = w->spatial - 1; i >= 0 && ++index[i] == w->kernel[i]; i--) index[i] = 0;
    }
    if (p->kind == LARGEST) {
        if (p->made->held == FB_HELD_INT)
            onnx_put_int(p->made, at, found_at < 0 ? 0 : onnx_get_int(p->x, planes_at + found_at));
        else onnx_put(p->made, at, found_at < 0 ? -INFINITY : best);
        if (p->is_column_major && found_at >= 0) { /* the last axis counts most */
            int64_t rest = found_at, sizes = 1, turned = 0, each[SPATIAL];
            for (int i = w->spatial - 1; i >= 0; i--) each[i] = rest % w->in[i], rest /= w->in[i];
            for (int i = 0; i < w->spatial; i++) turned += each[i] * sizes, sizes *= w->in[i];
            found_at = turned;
        }
        if (p->indices) onnx_put_int(p->indices, at, planes_at + (found_at < 0 ? 0 : found_at));
    } else if (p->kind == AVERAGE) {
        onnx_put(p->made, at, sum / (double)(p->counts_padding ? within : count));
    } else {
        onnx_put(p->made, at, pow(sum, 1 / p->power));
    }
    (void)plane;
}

static fb_array *run_pool(onnx_op *op, pool *p) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0));
    bool rounds_up = onnx_int(op, "ceil_mode", 0);
    int64_t sizes[FB_MAX_RANK], windows = 1, plane_size = 1, kernels = 1;
    if (!x || !onnx_ok(op) || !open_window(op, x, NULL, rounds_up, &p->w)) return NULL;
    sizes[0] = x->sizes[0];
    sizes[1] = x->sizes[1];
    for (int i = 0; i < p->w.spatial; i++) {
        if (p->w.before[i] >= p->w.kernel[i] * p->w.dilation[i] && p->w.before[i])
            return onnx_refuse(op, "its padding is larger than its kernel");
        sizes[i + 2] = p->w.out[i];
        windows *= p->w.out[i];
        plane_size *= p->w.in[i];
        kernels *= p->w.kernel[i];
    }
    fb_array *made = onnx_new(op, x->dtype, x->rank, sizes), *indices = NULL;
    if (p->kind == LARGEST && op->wanted > 1) indices = onnx_new(op, FB_INT64, x->rank, sizes);
    if (!made || !onnx_ok(op) || !onnx_takes(op, 10 * (double)fb_array_count(made) * (double)kernels)) return NULL;
    p->x = x, p->made = made, p->indices = indices;
    for (int64_t at = 0, count = fb_array_count(made); at < count && onnx_goes_on(op, 10 * kernels); at++) {
        int64_t out[SPATIAL], rest = at % windows;
        for (int i = p->w.spatial - 1; i >= 0; i--) out[i] = rest % p->w.out[i], rest /= p->w.out[i];
        pool_one(p, at / windows, at / windows * plane_size, out, at);
    }
    fb_array_round(made);
    op->results[0] = made;
    op->results[1] = indices;
    return made;
}

static fb_array *op_max_pool(onnx_op *op) {
    pool p = {.kind = LARGEST, .is_column_major = onnx_int(op, "storage_order", 0)};
    return run_pool(op, &p);
}

static fb_array *op_average_pool(onnx_op *op) {
    pool p = {.kind = AVERAGE, .counts_padding = onnx_int(op, "count_include_pad", 0)};
    return run_pool(op, &p);
}

static fb_array *op_lp_pool(onnx_op *op) {
    pool p = {.kind = POWER, .power = (double)onnx_int(op, "p", 2)};
    if (p.power < 1) return onnx_refuse(op, "its p is less than 1");
    return run_pool(op, &p);
}

/* All axes but the first two, which become 1. */
static fb_object inner_axes(onnx_op *op, const fb_array *x) {
    int64_t axes[FB_MAX_RANK];
    for (int i = 2; i < x->rank; i++) axes[i - 2] = i;
    return onnx_list(op, axes, x->rank - 2);
}

static fb_array *over_all(onnx_op *op, fb_op part, const char *spelling, fb_array *x) {
    if (!x || !onnx_ok(op)) return NULL;
    if (x->rank < 3) return onnx_refuse(op, "it has %d dimensions", x->rank);
    return onnx_part(
        op, part, spelling,
        (const fb_part_argument[]){
            ONNX_A("input", x), ONNX_O("dim", inner_axes(op, x)), ONNX_B("keepdim", true), {NULL, {.kind = FB_OBJECT_NONE}}},
        0);
}

static fb_array *op_global_average_pool(onnx_op *op) {
    return over_all(op, FB_OP_MEAN, "mean", onnx_in(op, 0));
}
static fb_array *op_global_max_pool(onnx_op *op) {
    return over_all(op, FB_OP_AMAX, "amax", onnx_in(op, 0));
}

/* ---- norms -------------------------------------------------------------------------------------------------------------- */

/* One row of numbers, as wide as it is broadcast: (1, C, 1 …). */
static fb_array *by_channel(onnx_op *op, fb_array *x, const fb_array *like) {
    int64_t sizes[FB_MAX_RANK];
    if (!x || !onnx_ok(op)) return NULL;
    if (x->rank != 1 || like->rank < 2 || x->sizes[0] != like->sizes[1])
        return onnx_fail(op, "an input is not one number for each channel");
    for (int i = 0; i < like->rank; i++) sizes[i] = i == 1 ? x->sizes[0] : 1;
    return onnx_reshape(op, x, like->rank, sizes);
}

static fb_array *root_of(onnx_op *op, fb_array *variance, double epsilon) {
    return variance ? ONNX_PART(SQRT, "sqrt", ONNX_A("input", ONNX_ADD(variance, onnx_scalar(op, epsilon, variance->dtype))))
                    : NULL;
}

/* x less the mean, by the deviation; scaled and moved. One number for each channel of each. */
static fb_array *scaled_by_channel(onnx_op *op, fb_array *x, fb_array *const in[4], double epsilon) {
    fb_array *scaled = ONNX_DIV(ONNX_SUB(x, in[2]), root_of(op, in[3], epsilon));
    return ONNX_ADD(ONNX_MUL(scaled, in[0]), in[1]);
}

/* By the input's own mean and variance, in float32 at least; gives the new running ones. */
static fb_array *train_batch(onnx_op *op, fb_array *x, fb_array *in[4], double epsilon, double momentum) {
    fb_dtype dtype = x->dtype, wide = dtype == FB_FLOAT64 ? dtype : FB_FLOAT32;
    int64_t axes[FB_MAX_RANK], count = 0, channels = x->sizes[1];
    for (int i = 0; i < x->rank; i++)
        if (i != 1) axes[count++] = i;
    fb_object dims = onnx_list(op, axes, (int)count);
    x = onnx_cast(op, x, wide);
    for (int i = 0; i < 4; i++) in[i] = onnx_cast(op, in[i], wide);
    if (!x || !onnx_ok(op)) return NULL;
    fb_array *now[2] = {ONNX_PART(MEAN, "mean", ONNX_A("input", x), ONNX_O("dim", dims), ONNX_B("keepdim", true))};
    fb_array *centred = ONNX_SUB(x, now[0]), *square = ONNX_MUL(centred, centred);
    if (square) now[1] = ONNX_PART(MEAN, "mean", ONNX_A("input", square), ONNX_O("dim", dims), ONNX_B("keepdim", true));
    for (int i = 0; i < 2 && now[1] && onnx_ok(op); i++) {
        fb_array *before = ONNX_MUL(in[i + 2], onnx_scalar(op, momentum, wide));
        fb_array *sum = ONNX_ADD(before, ONNX_MUL(now[i], onnx_scalar(op, 1 - momentum, wide)));
        op->results[i + 1] = onnx_cast(op, onnx_reshape(op, sum, 1, &channels), dtype);
        in[i + 2] = now[i];
    }
    return op->results[0] = onnx_cast(op, scaled_by_channel(op, x, in, epsilon), dtype);
}

static fb_array *op_batch_normalization(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *in[4];
    double epsilon = onnx_float(op, "epsilon", 1e-5f), momentum = onnx_float(op, "momentum", 0.9f);
    bool trains = onnx_int(op, "training_mode", 0);
    if (!onnx_int(op, "spatial", 1) || (op->wanted > 1 && !trains))
        return onnx_refuse(op, "it is evaluated by channel, and with one result unless training_mode says so");
    if (!x) return NULL;
    for (size_t i = 0; i < 4; i++) {
        in[i] = onnx_in(op, i + 1);
        if (!in[i] || !fb_dtype_is_floating(in[i]->dtype))
            return onnx_ok(op) ? onnx_fail(op, "an input is not of floats") : NULL;
        if (in[i]->dtype != x->dtype) return onnx_refuse(op, "its inputs are of several dtypes");
        in[i] = by_channel(op, in[i], x);
    }
    if (trains && onnx_ok(op)) return train_batch(op, x, in, epsilon, momentum);
    return scaled_by_channel(op, x, in, epsilon);
}

/* Over these axes; the mean and 1 / deviation are kept where they are asked for. In float32 at least. */
static fb_array *normalise(onnx_op *op, fb_array *x, const int64_t *axes, int count, double epsilon, bool centres,
                           fb_array **mean, fb_array **inverse) {
    if (!x || !onnx_ok(op)) return NULL;
    fb_object dims = onnx_list(op, axes, count);
    fb_array *middle =
        centres ? ONNX_PART(MEAN, "mean", ONNX_A("input", x), ONNX_O("dim", dims), ONNX_B("keepdim", true)) : NULL;
    fb_array *centred = centres ? ONNX_SUB(x, middle) : x, *square = ONNX_MUL(centred, centred);
    if (!square) return NULL;
    fb_array *variance = ONNX_PART(MEAN, "mean", ONNX_A("input", square), ONNX_O("dim", dims), ONNX_B("keepdim", true));
    fb_array *root = root_of(op, variance, epsilon);
    if (mean) *mean = middle;
    if (inverse && root) *inverse = ONNX_PART(RECIPROCAL, "reciprocal", ONNX_A("input", root));
    return ONNX_DIV(centred, root);
}

static fb_dtype stash_of(onnx_op *op, const fb_array *x) {
    int64_t stash = onnx_int(op, "stash_type", 1);
    fb_dtype dtype = onnx_dtype(op, stash);
    return x->dtype == FB_FLOAT64 && stash == 1 ? FB_FLOAT32 : dtype;
}

static fb_array *op_layer_normalization(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *scale = onnx_in(op, 1), *bias = onnx_maybe(op, 2), *mean = NULL, *inverse = NULL;
    int axis = onnx_axis(op, "axis", -1, x);
    double epsilon = onnx_float(op, "epsilon", 1e-5f);
    int64_t axes[FB_MAX_RANK];
    if (!x || !scale || !onnx_ok(op)) return NULL;
    if (!x->rank) return onnx_refuse(op, "it has no dimension");
    fb_dtype stash = stash_of(op, x);
    for (int i = axis; i < x->rank; i++) axes[i - axis] = i;
    fb_array *made = normalise(op, onnx_cast(op, x, stash), axes, x->rank - axis, epsilon, true, &mean, &inverse);
    made = ONNX_MUL(onnx_cast(op, made, x->dtype), scale);
    if (bias) made = ONNX_ADD(made, bias);
    op->results[0] = made;
    op->results[1] = mean;
    op->results[2] = inverse;
    return made;
}

static fb_array *op_rms_normalization(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *scale = onnx_in(op, 1);
    int axis = onnx_axis(op, "axis", -1, x);
    double epsilon = onnx_float(op, "epsilon", 1e-5f);
    int64_t axes[FB_MAX_RANK];
    if (!x || !scale || !onnx_ok(op)) return NULL;
    if (!x->rank) return onnx_refuse(op, "it has no dimension");
    fb_dtype stash = stash_of(op, x);
    for (int i = axis; i < x->rank; i++) axes[i - axis] = i;
    fb_array *made = normalise(op, onnx_cast(op, x, stash), axes, x->rank - axis, epsilon, false, NULL, NULL);
    return ONNX_MUL(onnx_cast(op, made, x->dtype), scale);
}

static fb_array *op_instance_normalization(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *scale = onnx_in(op, 1), *bias = onnx_in(op, 2);
    double epsilon = onnx_float(op, "epsilon", 1e-5f);
    int64_t axes[FB_MAX_RANK];
    if (!x || !scale || !bias || !onnx_ok(op)) return NULL;
    if (x->rank < 3) return onnx_refuse(op, "it has %d dimensions", x->rank);
    for (int i = 2; i < x->rank; i++) axes[i - 2] = i;
    fb_array *made = normalise(op, x, axes, x->rank - 2, epsilon, true, NULL, NULL);
    return ONNX_ADD(ONNX_MUL(made, by_channel(op, scale, x)), by_channel(op, bias, x));
}

/* Before version 21 scale and bias are one number for each group. */
static fb_array *op_group_normalization(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *scale = onnx_in(op, 1), *bias = onnx_in(op, 2);
    double epsilon = onnx_float(op, "epsilon", 1e-5f);
    int64_t groups = onnx_int(op, "num_groups", 0), sizes[FB_MAX_RANK + 1], axes[FB_MAX_RANK];
    if (!x || !scale || !bias || !onnx_ok(op)) return NULL;
    if (x->rank < 2 || x->rank >= FB_MAX_RANK || groups < 1 || x->sizes[1] % groups)
        return onnx_fail(op, "its groups do not fit");
    fb_dtype stash = op->version >= 21 ? stash_of(op, x) : x->dtype;
    sizes[0] = x->sizes[0];
    sizes[1] = groups;
    sizes[2] = x->sizes[1] / groups;
    for (int i = 2; i < x->rank; i++) sizes[i + 1] = x->sizes[i];
    for (int i = 2; i <= x->rank; i++) axes[i - 2] = i;
    fb_array *parts = onnx_reshape(op, onnx_cast(op, x, stash), x->rank + 1, sizes);
    fb_array *made = onnx_cast(op, normalise(op, parts, axes, x->rank - 1, epsilon, true, NULL, NULL), x->dtype);
    if (op->version < 21 && made) {
        fb_array *scaled = ONNX_MUL(made, by_channel(op, scale, made));
        return onnx_reshape(op, ONNX_ADD(scaled, by_channel(op, bias, made)), x->rank, x->sizes);
    }
    made = onnx_reshape(op, made, x->rank, x->sizes);
    return ONNX_ADD(ONNX_MUL(made, by_channel(op, scale, x)), by_channel(op, bias, x));
}

static fb_array *op_lp_normalization(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int axis = onnx_axis(op, "axis", -1, x);
    int64_t p = onnx_int(op, "p", 2);
    if (!x || !onnx_ok(op)) return NULL;
    if (p != 1 && p != 2) return onnx_refuse(op, "its p is %lld", (long long)p);
    fb_object dims = onnx_list(op, (const int64_t[]){axis}, 1);
    fb_array *each = p == 1 ? ONNX_PART(ABS, "abs", ONNX_A("input", x)) : ONNX_MUL(x, x);
    fb_array *norm = each ? ONNX_PART(SUM, "sum", ONNX_A("input", each), ONNX_O("dim", dims), ONNX_B("keepdim", true)) : NULL;
    if (p == 2 && norm) norm = ONNX_PART(SQRT, "sqrt", ONNX_A("input", norm));
    fb_array *rows = onnx_rows(op, norm);
    for (int64_t i = 0, count = rows ? fb_array_count(rows) : 0; i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
        if (onnx_get(rows, i) == 0) return onnx_undefined(op, "a norm is 0, and what then is given is not defined");
    return ONNX_DIV(x, norm);
}

static fb_array *op_mean_variance_normalization(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t axes[FB_MAX_RANK] = {0, 2, 3};
    int count = onnx_ints(op, "axes", axes);
    if (!x || !onnx_ok(op)) return NULL;
    if (count < 0) count = 3;
    for (int i = 0; i < count; i++) axes[i] = onnx_axis_of(op, axes[i], x->rank);
    if (!onnx_ok(op)) return NULL;
    fb_object dims = onnx_list(op, axes, count);
    fb_array *mean = ONNX_PART(MEAN, "mean", ONNX_A("input", x), ONNX_O("dim", dims), ONNX_B("keepdim", true));
    fb_array *centred = ONNX_SUB(x, mean), *square = ONNX_MUL(centred, centred);
    if (!square) return NULL;
    fb_array *variance = ONNX_PART(MEAN, "mean", ONNX_A("input", square), ONNX_O("dim", dims), ONNX_B("keepdim", true));
    fb_array *root = variance ? ONNX_PART(SQRT, "sqrt", ONNX_A("input", variance)) : NULL;
    return root ? ONNX_DIV(centred, ONNX_ADD(root, onnx_scalar(op, 1e-9, root->dtype))) : NULL;
}

static fb_array *op_lrn(onnx_op *op) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0));
    double alpha = onnx_float(op, "alpha", 1e-4f), beta = onnx_float(op, "beta", 0.75), bias = onnx_float(op, "bias", 1);
    int64_t size = onnx_int(op, "size", 0), inner = 1;
    if (!x || !onnx_ok(op)) return NULL;
    if (x->rank < 2 || size < 1 || size > INT32_MAX || !fb_dtype_is_floating(x->dtype))
        return onnx_fail(op, "its size does not fit");
    for (int i = 2; i < x->rank; i++) inner *= x->sizes[i];
    int64_t channels = x->sizes[1], before = (size - 1) / 2, after = size - 1 - before,
            most = size < channels ? size : channels;
    fb_array *made = onnx_new(op, x->dtype, x->rank, x->sizes);
    if (!made || !onnx_takes(op, (double)fb_array_count(made) * (10 + (double)most))) return NULL;
    for (int64_t at = 0, count = fb_array_count(made); at < count && onnx_goes_on(op, 10 + most); at++) {
        int64_t channel = at / inner % channels, base = at - channel * inner;
        int64_t from = channel > before ? channel - before : 0,
                to = channel + after < channels - 1 ? channel + after : channels - 1;
        double sum = 0;
        for (int64_t c = from; c <= to; c++) sum += onnx_get(x, base + c * inner) * onnx_get(x, base + c * inner);
        onnx_put(made, at, onnx_get(x, at) / pow(bias + alpha / (double)size * sum, beta));
    }
    fb_array_round(made);
    return made;
}

static fb_array *op_dropout(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    onnx_ignore(op, "seed");
    onnx_ignore(op, "ratio");
    if (op->version >= 12) {
        fb_array *ratio = onnx_maybe(op, 1), *training = onnx_maybe(op, 2);
        bool trains = training && fb_array_count(training) == 1 && fb_array_int(training, 0);
        if (trains && !(ratio && fb_array_count(ratio) == 1 && fb_array_number(ratio, 0) == 0))
            return onnx_refuse(op, "it draws random numbers");
    }
    if (!x || !onnx_ok(op)) return NULL;
    op->results[0] = x;
    if (op->wanted > 1) {
        op->results[1] = onnx_new(op, op->version < 10 ? x->dtype : FB_BOOL, x->rank, x->sizes);
        if (op->results[1]) fb_array_fill(op->results[1], 1, 1);
    }
    return x;
}

#define LAST 28
#define ROW(name, first, function)                                                                                             \
    { name, first, LAST, function, 0, NULL }
const onnx_row onnx_rows_layer[] = {
    ROW("MatMul", 1, op_matmul),
    ROW("Gemm", 7, op_gemm),
    ROW("Einsum", 12, op_einsum),
    ROW("Conv", 1, op_conv),
    ROW("ConvTranspose", 1, op_conv_transpose),
    ROW("MaxPool", 1, op_max_pool),
    ROW("AveragePool", 7, op_average_pool),
    ROW("LpPool", 2, op_lp_pool),
    ROW("GlobalAveragePool", 1, op_global_average_pool),
    ROW("GlobalMaxPool", 1, op_global_max_pool),
    ROW("BatchNormalization", 7, op_batch_normalization),
    ROW("LayerNormalization", 17, op_layer_normalization),
    ROW("RMSNormalization", 23, op_rms_normalization),
    ROW("InstanceNormalization", 6, op_instance_normalization),
    ROW("GroupNormalization", 18, op_group_normalization),
    ROW("LpNormalization", 1, op_lp_normalization),
    ROW("MeanVarianceNormalization", 9, op_mean_variance_normalization),
    ROW("LRN", 1, op_lrn),
    ROW("Dropout", 7, op_dropout),
    {0},
};
