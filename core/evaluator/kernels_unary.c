/* Functions of one operand, element by element: arithmetic, elementary functions, activations without parameters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/shape.h"
#include "core/evaluator/internal.h"
#include "core/evaluator/loops.h"
#include "core/weights/dtype.h"

typedef void loop(const fb_array *out, const fb_array *a);

/* An operator and its loops by held type; NULL = integers (or bools) go another way: see run. */
typedef struct unary {
    fb_op op;
    loop *of_double, *of_float, *of_int;
} unary;

#define BOTH(name, expression, expression_f)                                                                                   \
    FB_LOOP_1(name##_double, double, double, expression)                                                                       \
    FB_LOOP_1(name##_float, float, float, expression_f)

static double gelu(double x) {
    return x * 0.5 * (1 + erf(x * 0.70710678118654752440));
}
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double softplus(double x) {
    return x > 20 ? x : log1p(exp(x));
}
static double selu(double x) {
    const double alpha = 1.6732632423543772848170429916717, scale = 1.0507009873554804934193349852946;
    return scale * (x > 0 ? x : alpha * expm1(x));
}

/* Rational approximations and two steps of Newton's method: calc_erfinv in aten/src/ATen/native/Math.h. */
static double inverse_erf(double y) {
    static const double a[] = {0.886226899, -1.645349621, 0.914624893, -0.140543331},
                        b[] = {-2.118377725, 1.442710462, -0.329097515, 0.012229801},
                        c[] = {-1.970840454, -1.624906493, 3.429567803, 1.641345311}, d[] = {3.543889200, 1.637067800};
    double x, magnitude = fabs(y);
    if (!(magnitude <= 1)) return NAN;
    if (magnitude == 1) return copysign(INFINITY, y);
    if (magnitude <= 0.7) {
        double z = y * y;
        x = y * (((a[3] * z + a[2]) * z + a[1]) * z + a[0]) / ((((b[3] * z + b[2]) * z + b[1]) * z + b[0]) * z + 1);
    } else {
        double z = sqrt(-log((1 - magnitude) / 2));
        x = copysign(((c[3] * z + c[2]) * z + c[1]) * z + c[0], y) / ((d[1] * z + d[0]) * z + 1);
    }
    for (int i = 0; i < 2; i++) x -= (erf(x) - y) / (M_2_SQRTPI * exp(-x * x));
    return x;
}

BOTH(neg, -x, -x)
BOTH(abs, fabs(x), fabsf(x))
BOTH(sign, (x > 0) - (x < 0), (x > 0) - (x < 0))
BOTH(reciprocal, 1 / x, 1 / x)
BOTH(sqrt, sqrt(x), sqrtf(x))
BOTH(rsqrt, 1 / sqrt(x), 1 / sqrtf(x))
BOTH(square, x *x, x *x)
BOTH(exp, exp(x), expf(x))
BOTH(exp2, exp2(x), exp2f(x))
BOTH(expm1, expm1(x), expm1f(x))
BOTH(log, log(x), logf(x))
BOTH(log2, log2(x), log2f(x))
BOTH(log10, log10(x), log10f(x))
BOTH(log1p, log1p(x), log1pf(x))
BOTH(sin, sin(x), sinf(x))
BOTH(cos, cos(x), cosf(x))
BOTH(tan, tan(x), tanf(x))
BOTH(asin, asin(x), asinf(x))
BOTH(acos, acos(x), acosf(x))
BOTH(atan, atan(x), atanf(x))
BOTH(sinh, sinh(x), sinhf(x))
BOTH(cosh, cosh(x), coshf(x))
BOTH(tanh, tanh(x), tanhf(x))
BOTH(erf, erf(x), erff(x))
BOTH(erfc, erfc(x), erfcf(x))
BOTH(erfinv, inverse_erf(x), inverse_erf((double)x))
BOTH(lgamma, lgamma(x), lgammaf(x))
BOTH(floor, floor(x), floorf(x))
BOTH(ceil, ceil(x), ceilf(x))
BOTH(round, nearbyint(x), nearbyintf(x))
BOTH(trunc, trunc(x), truncf(x))
BOTH(frac, x - trunc(x), x - truncf(x))
BOTH(relu, x < 0 ? 0 : x, x < 0 ? 0 : x) /* nan and -0 stay */
BOTH(relu6, x<0 ? 0 : x> 6 ? 6 : x, x<0 ? 0 : x> 6 ? 6 : x)
BOTH(silu, x / (1 + exp(-x)), (double)x / (1 + exp(-(double)x)))
BOTH(mish, x *tanh(softplus(x)), (double)x *tanh(softplus((double)x)))
BOTH(sigmoid_of, sigmoid(x), sigmoid((double)x))
BOTH(log_sigmoid, x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)),
     x < 0 ? (double)x - log1p(exp((double)x)) : -log1p(exp(-(double)x)))
BOTH(hard_sigmoid, x != x ? x : fmin(fmax(x + 3, 0), 6) / 6, x != x ? x : fminf(fmaxf(x + 3, 0), 6) / 6)
BOTH(hard_swish, x *(x != x ? x : fmin(fmax(x + 3, 0), 6)) / 6, x *(x != x ? x : fminf(fmaxf(x + 3, 0), 6)) / 6)
BOTH(selu_of, selu(x), selu((double)x))
BOTH(softsign, x / (1 + fabs(x)), x / (1 + fabsf(x)))
BOTH(tanh_shrink, x - tanh(x), (double)x - tanh((double)x))
BOTH(gelu_of, gelu(x), gelu((double)x))
FB_LOOP_1(neg_int, int64_t, int64_t, (int64_t)(0 - (uint64_t)x))
FB_LOOP_1(abs_int, int64_t, int64_t, x < 0 ? (int64_t)(0 - (uint64_t)x) : x)
FB_LOOP_1(sign_int, int64_t, int64_t, (x > 0) - (x < 0))
FB_LOOP_1(square_int, int64_t, int64_t, (int64_t)((uint64_t)x *(uint64_t)x))
FB_LOOP_1(same_int, int64_t, int64_t, x)
FB_LOOP_1(relu_int, int64_t, int64_t, x < 0 ? 0 : x)
FB_LOOP_1(relu6_int, int64_t, int64_t, x<0 ? 0 : x> 6 ? 6 : x)

#define ROW(id, name)                                                                                                          \
    { FB_OP_##id, name##_double, name##_float, NULL }
#define ROW_INT(id, name, of_int)                                                                                              \
    { FB_OP_##id, name##_double, name##_float, of_int }
static const unary table[] = {
    ROW_INT(NEG, neg, neg_int),
    ROW_INT(ABS, abs, abs_int),
    ROW_INT(SIGN, sign, sign_int),
    ROW_INT(SGN, sign, sign_int),
    ROW_INT(SQUARE, square, square_int),
    ROW_INT(FLOOR, floor, same_int),
    ROW_INT(CEIL, ceil, same_int),
    ROW_INT(ROUND, round, same_int),
    ROW_INT(TRUNC, trunc, same_int),
    ROW_INT(RELU, relu, relu_int),
    ROW_INT(RELU6, relu6, relu6_int),
    ROW(RECIPROCAL, reciprocal),
    ROW(SQRT, sqrt),
    ROW(RSQRT, rsqrt),
    ROW(EXP, exp),
    ROW(EXP2, exp2),
    ROW(EXPM1, expm1),
    ROW(LOG, log),
    ROW(LOG2, log2),
    ROW(LOG10, log10),
    ROW(LOG1P, log1p),
    ROW(SIN, sin),
    ROW(COS, cos),
    ROW(TAN, tan),
    ROW(ASIN, asin),
    ROW(ACOS, acos),
    ROW(ATAN, atan),
    ROW(SINH, sinh),
    ROW(COSH, cosh),
    ROW(TANH, tanh),
    ROW(ERF, erf),
    ROW(ERFC, erfc),
    ROW(ERFINV, erfinv),
    ROW(LGAMMA, lgamma),
    ROW(FRAC, frac),
    ROW(SILU, silu),
    ROW(MISH, mish),
    ROW(SIGMOID, sigmoid_of),
    ROW(LOG_SIGMOID, log_sigmoid),
    ROW(HARD_SIGMOID, hard_sigmoid),
    ROW(HARD_SWISH, hard_swish),
    ROW(SELU, selu_of),
    ROW(SOFTSIGN, softsign),
    ROW(TANH_SHRINK, tanh_shrink),
    ROW(GELU, gelu_of),
};

/* Integers: their own loop; as float32 where PyTorch makes floats of them; otherwise refused. */
static fb_status run(fb_kernel_call *call, const unary *row, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    bool is_integer = input->held == FB_HELD_INT, becomes_float = fb_op_facts_of(call->op)->dtype == FB_DTYPE_RULE_FLOAT;
    bool is_bool = input->held == FB_HELD_BOOL;
    fb_array *floats = NULL;
    if (is_bool && (call->op == FB_OP_SIGN || call->op == FB_OP_SGN))
        return fb_return_array(call, fb_make_cast(call, input, FB_BOOL), result);
    if (is_bool && (call->op == FB_OP_SOFTSIGN || call->op == FB_OP_TANH_SHRINK))
        return fb_kernel_fail(call, "it is not defined for bools");
    if ((is_integer || is_bool) && becomes_float) {
        floats = fb_make_cast(call, input, fb_to_floating(input->dtype));
        if (!floats) return call->status;
        input = floats;
    } else if (is_bool || (is_integer && !row->of_int)) {
        return fb_kernel_unsupported(call, "it is not defined for %s", fb_dtype_name(input->dtype));
    }
    fb_array *out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    if (out)
        (input->held == FB_HELD_DOUBLE  ? row->of_double
         : input->held == FB_HELD_FLOAT ? row->of_float
                                        : row->of_int)(out, input);
    fb_array_drop(floats);
    return fb_return_array(call, out, result);
}

static fb_status kernel_unary(fb_kernel_call *call, fb_object *result) {
    const fb_object *input = fb_argument(call, "input");
    if (input && input->kind == FB_OBJECT_ARRAY && fb_dtype_is_complex(input->array->dtype))
        return fb_complex_unary(call, input->array, result);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].op == call->op) return run(call, &table[i], result);
    return fb_kernel_unsupported(call, "there is no kernel for it");
}

/* Operators that Python's numbers have, too. */
static fb_status kernel_unary_number(fb_kernel_call *call, fb_object *result) {
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    return kernel_unary(call, result);
}

/* +x: the tensor itself. */
static fb_status kernel_positive(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (fb_python_arithmetic(call, result) || call->status || !fb_argument_array(call, "input", &input)) return call->status;
    if (input->dtype == FB_BOOL) return fb_kernel_fail(call, "it is not defined for bools");
    return fb_return_array(call, fb_array_keep(input), result);
}

/* Rounds x × 10^decimals, in the dtype itself. */
static fb_status round_decimals(fb_kernel_call *call, fb_array *input, int64_t decimals, fb_object *result) {
    if (input->dtype != FB_FLOAT32 && input->dtype != FB_FLOAT64)
        return fb_kernel_unsupported(call, "decimals of %s are not rounded", fb_dtype_name(input->dtype));
    fb_array *out = fb_make_array(call, input->dtype, input->rank, input->sizes), *from = fb_make_contiguous(call, input);
    double ten = pow(10, fabs((double)decimals));
    bool is_float = input->held == FB_HELD_FLOAT;
    for (int64_t i = 0, count = out && from ? fb_array_count(out) : 0; i < count && fb_work_at(fb_call_work(call), i, count);
         i++) {
        double x = fb_array_get(from, i), y;
        if (is_float && decimals > 0) y = (double)(nearbyintf((float)x * (float)ten) / (float)ten);
        else if (is_float) y = (double)(nearbyintf((float)x / (float)ten) * (float)ten);
        else y = decimals > 0 ? nearbyint(x * ten) / ten : nearbyint(x / ten) * ten;
        fb_array_put(out, i, y);
    }
    fb_array_drop(from);
    return fb_return_array(call, out, result);
}

static fb_status kernel_round(fb_kernel_call *call, fb_object *result) {
    const fb_object *input = fb_argument(call, "input");
    int64_t decimals;
    if (!fb_argument_int(call, "decimals", 0, &decimals)) return call->status;
    bool is_given = fb_argument_is_given(call, "decimals"), is_array = input && input->kind == FB_OBJECT_ARRAY;
    if (is_given && is_array && !fb_dtype_is_floating(input->array->dtype))
        return fb_kernel_fail(call, "integers have no decimals");
    if (decimals && is_array) return round_decimals(call, input->array, decimals, result);
    if (is_given && !is_array) return fb_kernel_unsupported(call, "it rounds to decimals");
    return kernel_unary_number(call, result);
}

/* The limits that replace infinities are the dtype's unless they are given. */
static fb_status kernel_nan_to_num(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    double for_nan, for_high, for_low;
    fb_dtype_range range = {0};
    if (!fb_argument_array(call, "input", &input)) return call->status;
    fb_dtype_limits(input->dtype, &range);
    if (!fb_argument_number(call, "nan", 0, &for_nan) || !fb_argument_number(call, "posinf", range.largest, &for_high) ||
        !fb_argument_number(call, "neginf", -range.largest, &for_low))
        return call->status;
    fb_array *out = fb_make_cast(call, input, input->dtype);
    for (int64_t i = 0, count = out && fb_dtype_is_floating(out->dtype) ? fb_array_count(out) : 0;
         i < count && fb_work_at(fb_call_work(call), i, count); i++) {
        double x = fb_array_get(out, i);
        if (!isfinite(x)) fb_array_put(out, i, x != x ? for_nan : x > 0 ? for_high : for_low);
    }
    return fb_return_array(call, out, result);
}

FB_LOOP_2(gate_double, double, double, x *sigmoid(y))
FB_LOOP_2(gate_float, float, float, (double)x *sigmoid((double)y))

/* glu: the first half of a dimension times the sigmoid of the second. */
static fb_status kernel_glu(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    dim = input->rank - 1;
    if (fb_argument_is_given(call, "dim") && !fb_argument_axis(call, "dim", input->rank, &dim)) return call->status;
    if (!input->rank || input->sizes[dim] % 2) return fb_kernel_fail(call, "its dimension has no two halves");
    if (!fb_dtype_is_floating(input->dtype)) return fb_kernel_unsupported(call, "it is evaluated for floats alone");
    int64_t half = input->sizes[dim] / 2;
    fb_array *first = fb_make_view(call, input, input->rank), *second = fb_make_view(call, input, input->rank), *out = NULL;
    if (first && second) {
        fb_array_slice(first, (int)dim, 0, half, 1);
        fb_array_slice(second, (int)dim, half, 2 * half, 1);
        out = fb_make_array(call, input->dtype, first->rank, first->sizes);
    }
    if (out) (out->held == FB_HELD_DOUBLE ? gate_double : gate_float)(out, first, second);
    fb_array_drop(first);
    fb_array_drop(second);
    return fb_return_array(call, out, result);
}

static double gelu_tanh(double x) {
    /* M_SQRT2 × M_2_SQRTPI × 0.5 and 0.044715: aten/src/ATen/native/cpu/Gelu.h */
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
BOTH(gelu_tanh_of, gelu_tanh(x), gelu_tanh((double)x))

static fb_status kernel_gelu(fb_kernel_call *call, fb_object *result) {
    static const unary with_tanh = {FB_OP_GELU, gelu_tanh_of_double, gelu_tanh_of_float, NULL};
    const char *approximate;
    if (!fb_argument_text(call, "approximate", &approximate)) return call->status;
    bool is_tanh = strcmp(approximate, "tanh") == 0;
    if (!is_tanh && *approximate && strcmp(approximate, "none") != 0)
        return fb_kernel_fail(call, "approximate must be \"none\" or \"tanh\", not %s", approximate);
    return is_tanh ? run(call, &with_tanh, result) : kernel_unary(call, result);
}

FB_LOOP_1(not_int, int64_t, int64_t, ~x)
FB_LOOP_1(not_bool, unsigned char, unsigned char, !x)

static fb_status kernel_bitwise_not(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (fb_python_arithmetic(call, result) || call->status || !fb_argument_array(call, "input", &input)) return call->status;
    if (fb_dtype_is_floating(input->dtype)) return fb_kernel_unsupported(call, "floats have no bits to invert");
    fb_array *out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    if (out) (input->held == FB_HELD_BOOL ? not_bool : not_int)(out, input);
    return fb_return_array(call, out, result);
}

/* ---- questions: bool for each element ------------------------------------------------------------------------------------ */

FB_LOOP_1(is_zero_double, unsigned char, double, x == 0)
FB_LOOP_1(is_nan_double, unsigned char, double, x != x)
FB_LOOP_1(is_inf_double, unsigned char, double, isinf(x) != 0)
FB_LOOP_1(is_finite_double, unsigned char, double, isfinite(x) != 0)

static fb_status kernel_classify(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    fb_array *wide = fb_make_cast(call, input, FB_FLOAT64); /* exact where it matters: zero stays zero, nan nan */
    fb_array *out = wide ? fb_make_array(call, FB_BOOL, input->rank, input->sizes) : NULL;
    if (out) {
        switch (call->op) {
        case FB_OP_LOGICAL_NOT: is_zero_double(out, wide); break;
        case FB_OP_ISNAN: is_nan_double(out, wide); break;
        case FB_OP_ISINF: is_inf_double(out, wide); break;
        default: is_finite_double(out, wide); break;
        }
    }
    fb_array_drop(wide);
    return fb_return_array(call, out, result);
}

/* ---- activations with parameters ----------------------------------------------------------------------------------------- */

/* y = f(x, a, b) in double: the parameters are Python floats. */
typedef void activation(const fb_array *out, const fb_array *in, double a, double b);

#define RUNS(T, expression)                                                                                                    \
    for (fb_walk_begin(&walk, out, in, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {                                      \
        T *restrict to = walk.data[0];                                                                                         \
        const T *restrict from = walk.data[1];                                                                                 \
        const bool is_plain = walk.strides[0] == 1 && walk.strides[1] == 1;                                                    \
        for (int64_t i = 0; i < walk.count && is_plain; i++) {                                                                 \
            const double x = (double)from[i];                                                                                  \
            to[i] = (T)(expression);                                                                                           \
        }                                                                                                                      \
        for (int64_t i = 0; i < walk.count && !is_plain; i++) {                                                                \
            const double x = (double)from[i * walk.strides[1]];                                                                \
            to[i * walk.strides[0]] = (T)(expression);                                                                         \
        }                                                                                                                      \
    }

#define ACTIVATION(name, expression)                                                                                           \
    static void name(const fb_array *out, const fb_array *in, double a, double b) {                                            \
        fb_walk walk;                                                                                                          \
        (void)b;                                                                                                               \
        if (out->held == FB_HELD_DOUBLE) RUNS(double, expression) else RUNS(float, expression)                                 \
    }

ACTIVATION(leaky_relu, x > 0 ? x : x * a)
ACTIVATION(elu, x > 0 ? x : a * expm1(x))
ACTIVATION(celu, x > 0 ? x : a * expm1(x / a))
ACTIVATION(hard_tanh, x > b || a > b ? b : x < a ? a : x)
ACTIVATION(hard_shrink, x >= -a && x <= a ? 0 : x)
ACTIVATION(soft_shrink, x > a ? x - a : x < -a ? x + a : x * 0)
ACTIVATION(softplus_of, x *a > b ? x : log1p(exp(x * a)) / a)
ACTIVATION(threshold_of, x <= a ? b : x)

static fb_status activate(fb_kernel_call *call, activation *function, double a, double b, fb_object *result) {
    fb_array *input;
    if (call->status || !fb_argument_array(call, "input", &input)) return call->status;
    if (!fb_dtype_is_floating(input->dtype)) return fb_kernel_unsupported(call, "it is evaluated for floats alone");
    fb_array *out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    if (out) function(out, input, a, b);
    return fb_return_array(call, out, result);
}

static fb_status kernel_activation(fb_kernel_call *call, fb_object *result) {
    static const struct {
        fb_op op;
        activation *function;
        const char *a, *b;
        double default_a, default_b;
    } rows[] = {
        {FB_OP_LEAKY_RELU, leaky_relu, "negative_slope", NULL, 0.01, 0},
        {FB_OP_ELU, elu, "alpha", NULL, 1, 0},
        {FB_OP_CELU, celu, "alpha", NULL, 1, 0},
        {FB_OP_HARD_TANH, hard_tanh, "min_val", "max_val", -1, 1},
        {FB_OP_HARD_SHRINK, hard_shrink, "lambd", NULL, 0.5, 0},
        {FB_OP_SOFT_SHRINK, soft_shrink, "lambd", NULL, 0.5, 0},
        {FB_OP_SOFTPLUS, softplus_of, "beta", "threshold", 1, 20},
        {FB_OP_THRESHOLD, threshold_of, "threshold", "value", 0, 0},
    };
    size_t i = 0;
    while (rows[i].op != call->op) i++;
    double a, b = 0, scale;
    if (!fb_argument_number(call, rows[i].a, rows[i].default_a, &a)) return call->status;
    if (rows[i].b && !fb_argument_number(call, rows[i].b, rows[i].default_b, &b)) return call->status;
    if (call->op == FB_OP_ELU && (!fb_argument_number(call, "scale", 1, &scale) ||
                                  !fb_argument_number(call, "input_scale", 1, &b) || scale != 1 || b != 1))
        return fb_kernel_unsupported(call, "it has a scale");
    if (call->op == FB_OP_HARD_TANH && a > b && fb_call_is_of_nn(call))
        return fb_kernel_fail(call, "min_val is greater than max_val");
    return activate(call, rows[i].function, a, b, result);
}

const fb_kernel_row fb_kernels_unary[] = {
    FB_KERNEL_COMPLEX(NEG, unary_number),
    FB_KERNEL_COMPLEX(ABS, unary_number),
    FB_KERNEL(FLOOR, unary_number),
    FB_KERNEL(CEIL, unary_number),
    FB_KERNEL(ROUND, round),
    FB_KERNEL_COMPLEX(POSITIVE, positive),
    FB_KERNEL(NAN_TO_NUM, nan_to_num),
    FB_KERNEL(GLU, glu),
    FB_KERNEL(SIGN, unary),
    FB_KERNEL(SGN, unary),
    FB_KERNEL(SQUARE, unary),
    FB_KERNEL(TRUNC, unary),
    FB_KERNEL(RELU, unary),
    FB_KERNEL(RELU6, unary),
    FB_KERNEL(RECIPROCAL, unary),
    FB_KERNEL(SQRT, unary),
    FB_KERNEL(RSQRT, unary),
    FB_KERNEL_COMPLEX(EXP, unary),
    FB_KERNEL(EXP2, unary),
    FB_KERNEL(EXPM1, unary),
    FB_KERNEL(LOG, unary),
    FB_KERNEL(LOG2, unary),
    FB_KERNEL(LOG10, unary),
    FB_KERNEL(LOG1P, unary),
    FB_KERNEL(SIN, unary),
    FB_KERNEL(COS, unary),
    FB_KERNEL(TAN, unary),
    FB_KERNEL(ASIN, unary),
    FB_KERNEL(ACOS, unary),
    FB_KERNEL(ATAN, unary),
    FB_KERNEL(SINH, unary),
    FB_KERNEL(COSH, unary),
    FB_KERNEL(TANH, unary),
    FB_KERNEL(ERF, unary),
    FB_KERNEL(ERFC, unary),
    FB_KERNEL(ERFINV, unary),
    FB_KERNEL(LGAMMA, unary),
    FB_KERNEL(FRAC, unary),
    FB_KERNEL(SILU, unary),
    FB_KERNEL(MISH, unary),
    FB_KERNEL(SIGMOID, unary),
    FB_KERNEL(LOG_SIGMOID, unary),
    FB_KERNEL(HARD_SIGMOID, unary),
    FB_KERNEL(HARD_SWISH, unary),
    FB_KERNEL(SELU, unary),
    FB_KERNEL(SOFTSIGN, unary),
    FB_KERNEL(TANH_SHRINK, unary),
    FB_KERNEL(GELU, gelu),
    FB_KERNEL(BITWISE_NOT, bitwise_not),
    FB_KERNEL(LOGICAL_NOT, classify),
    FB_KERNEL(ISNAN, classify),
    FB_KERNEL(ISINF, classify),
    FB_KERNEL(ISFINITE, classify),
    FB_KERNEL(LEAKY_RELU, activation),
    FB_KERNEL(ELU, activation),
    FB_KERNEL(CELU, activation),
    FB_KERNEL(HARD_TANH, activation),
    FB_KERNEL(HARD_SHRINK, activation),
    FB_KERNEL(SOFT_SHRINK, activation),
    FB_KERNEL(SOFTPLUS, activation),
    FB_KERNEL(THRESHOLD, activation),
    FB_KERNELS_END,
};
