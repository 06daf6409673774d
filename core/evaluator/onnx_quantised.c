/* ONNX's quantised numbers. */
#include <math.h>
#include <string.h>

#include "core/evaluator/onnx.h"

/* ---- scales and zero points --------------------------------------------------------------------------------------------- */

/* Scale or zero point as wide as it is broadcast: one number, one for each place along the axis, or one for each block of it.
 */
static fb_array *along_axis(onnx_op *op, fb_array *given, const fb_array *x, int64_t axis, int64_t block) {
    int64_t sizes[FB_MAX_RANK];
    if (!given || !onnx_ok(op)) return NULL;
    if (fb_array_count(given) == 1 && given->rank <= 1 && !block) return onnx_reshape(op, given, 0, NULL);
    int at = onnx_axis_of(op, axis, x->rank);
    if (!onnx_ok(op)) return NULL;
    if (block) {
        bool fits = given->rank == x->rank && block > 0 && block <= INT32_MAX;
        for (int i = 0; i < x->rank && fits; i++)
            fits = given->sizes[i] == (i == at ? (x->sizes[i] + block - 1) / block : x->sizes[i]);
        if (!fits) return onnx_fail(op, "its scale is not one number for each block");
        fb_array *wide = ONNX_PART(REPEAT_INTERLEAVE, "repeat_interleave", ONNX_A("input", given), ONNX_I("repeats", block),
                                   ONNX_I("dim", at));
        return onnx_cut(op, wide, at, 0, onnx_size(x, at));
    }
    if (given->rank != 1 || given->sizes[0] != onnx_size(x, at))
        return onnx_refuse(op, "its scale is not one number for each place of the axis");
    for (int i = 0; i < x->rank; i++) sizes[i] = i == at ? given->sizes[0] : 1;
    return onnx_reshape(op, given, x->rank, sizes);
}

static bool range_of(fb_dtype dtype, double *low, double *high) {
    bool is_unsigned = dtype == FB_UINT8 || dtype == FB_UINT16;
    int bits = 8 * (int)fb_dtype_size(dtype);
    *low = is_unsigned ? 0 : -ldexp(1, bits - 1);
    *high = ldexp(1, is_unsigned ? bits : bits - 1) - 1;
    return is_unsigned || dtype == FB_INT8 || dtype == FB_INT16;
}

/* Rounds to the nearest, adds the zero point (which may be NULL), and takes what is beyond the range to its end. */
static fb_array *quantise(onnx_op *op, fb_array *x, fb_array *zero, fb_dtype dtype) {
    double low, high;
    if (!x || !onnx_ok(op)) return NULL;
    if (!range_of(dtype, &low, &high)) return onnx_refuse(op, "its dtype is not evaluated");
    fb_array *shifted = onnx_cast(op, ONNX_PART(ROUND, "round", ONNX_A("input", x)), FB_FLOAT64);
    if (zero) shifted = ONNX_ADD(shifted, onnx_cast(op, zero, FB_FLOAT64));
    shifted = onnx_rows(op, shifted);
    fb_array *made = shifted ? onnx_new(op, dtype, shifted->rank, shifted->sizes) : NULL;
    for (int64_t i = 0, count = made ? fb_array_count(made) : 0; i < count && fb_work_at(fb_call_work(op->call), i, count);
         i++) {
        double one = onnx_get(shifted, i);
        if (one != one) return onnx_undefined(op, "what nan becomes is not defined");
        onnx_put(made, i, one < low ? low : one > high ? high : one);
    }
    return made;
}

static fb_array *op_quantize_linear(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *scale = onnx_in(op, 1), *zero = onnx_maybe(op, 2);
    int64_t axis = onnx_int(op, "axis", 1), number = onnx_int(op, "output_dtype", 0), precision = onnx_int(op, "precision", 0),
            block = onnx_int(op, "block_size", 0);
    onnx_ignore(op, "saturate"); /* of float8 */
    if (!x || !scale || !onnx_ok(op)) return NULL;
    fb_dtype dtype = zero ? zero->dtype : number ? onnx_dtype(op, number) : FB_UINT8;
    if (number && zero && onnx_dtype(op, number) != dtype) return onnx_fail(op, "its zero point has another dtype");
    if (precision && onnx_dtype(op, precision) != x->dtype) return onnx_refuse(op, "its precision is not that of its input");
    if (x->dtype != scale->dtype || !fb_dtype_is_floating(x->dtype)) return onnx_refuse(op, "its scale has another dtype");
    return quantise(op, ONNX_DIV(x, along_axis(op, scale, x, axis, block)), along_axis(op, zero, x, axis, block), dtype);
}

static fb_array *op_dequantize_linear(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *scale = onnx_in(op, 1), *zero = onnx_maybe(op, 2);
    int64_t axis = onnx_int(op, "axis", 1), number = onnx_int(op, "output_dtype", 0), block = onnx_int(op, "block_size", 0);
    if (!x || !scale || !onnx_ok(op)) return NULL;
    fb_dtype dtype = number ? onnx_dtype(op, number) : scale->dtype;
    if (!dtype || x->held != FB_HELD_INT || (zero && zero->dtype != x->dtype))
        return onnx_ok(op) ? onnx_refuse(op, "its dtypes are not evaluated") : NULL;
    fb_array *number_of = onnx_cast(op, x, FB_INT64);
    if (zero) number_of = ONNX_SUB(number_of, onnx_cast(op, along_axis(op, zero, x, axis, block), FB_INT64));
    fb_array *wide = onnx_cast(op, along_axis(op, scale, x, axis, block), FB_FLOAT32);
    return onnx_cast(op, ONNX_MUL(onnx_cast(op, number_of, FB_FLOAT32), wide), dtype);
}

static fb_array *op_dynamic_quantize_linear(onnx_op *op) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0));
    float low = 0, high = 0;
    if (!x) return NULL;
    if (x->dtype != FB_FLOAT32 || x->held != FB_HELD_FLOAT) return onnx_refuse(op, "it is evaluated in float32 alone");
    int64_t count = fb_array_count(x);
    for (int64_t i = 0; i < count && fb_work_at(fb_call_work(op->call), i, count); i++) {
        float one = (float)onnx_get(x, i);
        if (!isfinite(one)) return onnx_undefined(op, "a number is not finite");
        low = fminf(low, one);
        high = fmaxf(high, one);
    }
    float scale = (high - low) / 255;
    if (scale == 0) return onnx_undefined(op, "all numbers are 0");
    float zero = rintf(fminf(255, fmaxf(0, -low / scale)));
    fb_array *made = onnx_new(op, FB_UINT8, x->rank, x->sizes);
    for (int64_t i = 0; made && i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
        onnx_put(made, i, (double)fminf(255, fmaxf(0, rintf((float)onnx_get(x, i) / scale) + zero)));
    op->results[0] = made;
    op->results[1] = onnx_scalar(op, (double)scale, FB_FLOAT32);
    op->results[2] = onnx_scalar(op, (double)zero, FB_UINT8);
    return made;
}

/* ---- products of integers ----------------------------------------------------------------------------------------------- */

/* One number, or one for each row or each column of a matrix, as wide as it is broadcast. */
static fb_array *by_line(onnx_op *op, fb_array *x, bool is_left) {
    if (!x || x->rank != 1 || !is_left || fb_array_count(x) == 1) return x;
    return onnx_reshape(op, x, 2, (const int64_t[]){x->sizes[0], 1});
}

/* Integers of 8 bits less their zero points. */
static fb_array *less_zero(onnx_op *op, fb_array *x, fb_array *zero, fb_dtype wide) {
    if (!x || !onnx_ok(op)) return NULL;
    if (x->dtype != FB_UINT8 && x->dtype != FB_INT8) return onnx_refuse(op, "its operands are not of 8 bits");
    if (zero && zero->dtype != x->dtype) return onnx_fail(op, "a zero point has another dtype");
    return zero ? ONNX_SUB(onnx_cast(op, x, wide), onnx_cast(op, zero, wide)) : onnx_cast(op, x, wide);
}

static fb_array *op_matmul_integer(onnx_op *op) {
    fb_array *a = onnx_in(op, 0), *b = onnx_in(op, 1), *a_zero = onnx_maybe(op, 2), *b_zero = onnx_maybe(op, 3);
    if ((a_zero && a_zero->rank > 1) || (b_zero && b_zero->rank > 1))
        return onnx_refuse(op, "its zero point is not one number, or one for each row or column");
    a = less_zero(op, a, by_line(op, a_zero, true), FB_INT32);
    return onnx_matmul(op, a, less_zero(op, b, b_zero, FB_INT32));
}

/* The scale of a product in the result's steps. */
static fb_array *step_of(onnx_op *op, fb_array *one, fb_array *other, fb_array *result) {
    if (!one || !other || !result) return NULL;
    if (fb_array_count(result) != 1) return onnx_refuse(op, "its result has several scales");
    return onnx_cast(op, ONNX_DIV(ONNX_MUL(one, other), result), FB_FLOAT64);
}

static fb_array *op_qlinear_matmul(onnx_op *op) {
    fb_array *in[8];
    for (size_t i = 0; i < 8; i++) in[i] = onnx_in(op, i);
    for (size_t i = 0; i < 8 && onnx_ok(op); i++)
        if (i % 3 && in[i]->rank > 1) onnx_refuse(op, "a scale or zero point is not one number, or one for each row or column");
    if (!onnx_ok(op)) return NULL;
    fb_array *a = less_zero(op, in[0], by_line(op, in[2], true), FB_INT32), *b = less_zero(op, in[3], in[5], FB_INT32);
    fb_array *product = onnx_cast(op, onnx_matmul(op, a, b), FB_FLOAT64);
    fb_array *step = step_of(op, by_line(op, in[1], true), in[4], in[6]);
    return quantise(op, ONNX_MUL(product, step), in[7], in[7]->dtype);
}

/* One number, or one for each channel of a weight (0) or of what a convolution gives (1). */
static fb_array *by_channel(onnx_op *op, fb_array *x, int rank, int axis) {
    int64_t sizes[FB_MAX_RANK];
    if (!x || !x->rank || fb_array_count(x) == 1) return x ? onnx_reshape(op, x, 0, NULL) : NULL;
    if (x->rank != 1) return onnx_fail(op, "a scale or zero point is not one number, or one for each channel");
    for (int i = 0; i < rank; i++) sizes[i] = i == axis ? x->sizes[0] : 1;
    return onnx_reshape(op, x, rank, sizes);
}

/* Exact in float64: products of 8 bits, fewer than 2^37 of them. Padding is the zero point. */
static fb_array *convolve(onnx_op *op, fb_array *x, fb_array *x_zero, fb_array *w, fb_array *w_zero) {
    if (!x || !w || !onnx_ok(op)) return NULL;
    if (x_zero && fb_array_count(x_zero) != 1) return onnx_refuse(op, "its input has several zero points");
    fb_array *one = less_zero(op, x, by_channel(op, x_zero, x->rank, 0), FB_FLOAT64);
    fb_array *other = less_zero(op, w, by_channel(op, w_zero, w->rank, 0), FB_FLOAT64);
    return one && other ? onnx_convolve(op, one, other, NULL) : NULL;
}

static fb_array *op_conv_integer(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *w = onnx_in(op, 1), *x_zero = onnx_maybe(op, 2);
    return onnx_convert(op, convolve(op, x, x_zero, w, onnx_maybe(op, 3)), FB_INT32);
}

static fb_array *op_qlinear_conv(onnx_op *op) {
    fb_array *in[8], *bias = onnx_maybe(op, 8);
    for (size_t i = 0; i < 8; i++) in[i] = onnx_in(op, i);
    fb_array *made = onnx_ok(op) ? convolve(op, in[0], in[2], in[3], in[5]) : NULL;
    if (!made) return NULL;
    if (bias && bias->dtype != FB_INT32) return onnx_fail(op, "its bias is not of int32");
    if (bias) made = ONNX_ADD(made, onnx_cast(op, by_channel(op, bias, made->rank, 1), FB_FLOAT64));
    fb_array *step = made ? step_of(op, by_channel(op, in[1], 0, 0), by_channel(op, in[4], made->rank, 1), in[6]) : NULL;
    return quantise(op, ONNX_MUL(made, step), by_channel(op, in[7], 0, 0), in[7]->dtype);
}

#define LAST 28
#define ROW(name, first, function)                                                                                             \
    { name, first, LAST, function, 0, NULL }
const onnx_row onnx_rows_quantised[] = {
    ROW("QuantizeLinear", 10, op_quantize_linear),
    ROW("DequantizeLinear", 10, op_dequantize_linear),
    ROW("DynamicQuantizeLinear", 11, op_dynamic_quantize_linear),
    ROW("MatMulInteger", 10, op_matmul_integer),
    ROW("QLinearMatMul", 10, op_qlinear_matmul),
    ROW("ConvInteger", 10, op_conv_integer),
    ROW("QLinearConv", 10, op_qlinear_conv),
    {0},
};
