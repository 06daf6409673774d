/* ONNX's arithmetic: element by element. */
#include <math.h>
#include <string.h>

#include "core/evaluator/onnx.h"

/* ---- one operand -------------------------------------------------------------------------------------------------------- */

static double acosh_of(double x, const double *with) {
    (void)with;
    return acosh(x);
}
static double asinh_of(double x, const double *with) {
    (void)with;
    return asinh(x);
}
static double atanh_of(double x, const double *with) {
    (void)with;
    return atanh(x);
}
static double leaky_relu(double x, const double *with) {
    return x < 0 ? with[0] * x : x;
}
static double elu(double x, const double *with) {
    return x < 0 ? with[0] * expm1(x) : x;
}
static double celu(double x, const double *with) {
    return x != x ? x : fmax(0, x) + fmin(0, with[0] * expm1(x / with[0]));
}
static double selu(double x, const double *with) {
    return with[1] * (x > 0 ? x : with[0] * expm1(x));
}
static double thresholded(double x, const double *with) {
    return x > with[0] ? x : 0;
}
static double hard_sigmoid(double x, const double *with) {
    return x != x ? x : fmax(0, fmin(1, with[0] * x + with[1]));
}
static double hard_swish(double x, const double *with) {
    (void)with;
    return x != x ? x : x * fmax(0, fmin(1, x / 6 + 0.5));
}
static double softplus(double x, const double *with) {
    (void)with;
    return x > 700 ? x : log1p(exp(x));
}
static double swish(double x, const double *with) {
    return x / (1 + exp(-with[0] * x));
}
static double mish(double x, const double *with) {
    return x * tanh(softplus(x, with));
}
static double gelu(double x, const double *with) {
    (void)with;
    return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
}
static double gelu_by_tanh(double x, const double *with) {
    (void)with;
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
/* PyTorch's sign of nan is 0. */
static double sign(double x, const double *with) {
    (void)with;
    return x != x ? x : (x > 0) - (x < 0);
}
static double shrink(double x, const double *with) {
    return x < -with[1] ? x + with[0] : x > with[1] ? x - with[0] : 0;
}

#define MAPPED(name, function, ...)                                                                                            \
    static fb_array *op_##name(onnx_op *op) {                                                                                  \
        const double with[] = {__VA_ARGS__};                                                                                   \
        return onnx_map(op, onnx_in(op, 0), function, with);                                                                   \
    }
MAPPED(acosh, acosh_of, 0)
MAPPED(asinh, asinh_of, 0)
MAPPED(atanh, atanh_of, 0)
MAPPED(leaky_relu, leaky_relu, onnx_float(op, "alpha", 0.01f))
MAPPED(elu, elu, onnx_float(op, "alpha", 1))
MAPPED(celu, celu, onnx_float(op, "alpha", 1))
MAPPED(selu, selu, onnx_float(op, "alpha", 1.67326319217681884765625), onnx_float(op, "gamma", 1.05070102214813232421875))
MAPPED(thresholded, thresholded, onnx_float(op, "alpha", 1))
MAPPED(hard_sigmoid, hard_sigmoid, onnx_float(op, "alpha", 0.2f), onnx_float(op, "beta", 0.5))
MAPPED(hard_swish, hard_swish, 0)
MAPPED(softplus, softplus, 0)
MAPPED(swish, swish, onnx_float(op, "alpha", 1))
MAPPED(mish, mish, 0)
MAPPED(shrink, shrink, onnx_float(op, "bias", 0), onnx_float(op, "lambd", 0.5))

static fb_array *op_gelu(onnx_op *op) {
    bool by_tanh = strcmp(onnx_text(op, "approximate", "none"), "tanh") == 0;
    return onnx_map(op, onnx_in(op, 0), by_tanh ? gelu_by_tanh : gelu, NULL);
}

static fb_array *op_sign(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    return x && fb_dtype_is_integer(x->dtype) ? ONNX_PART(SIGN, "sign", ONNX_A("input", x)) : onnx_map(op, x, sign, NULL);
}

/* Also where an integer is inf or nan, which it never is. */
static fb_array *classify(onnx_op *op, bool nan, bool negative, bool positive) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0)), *made = x ? onnx_new(op, FB_BOOL, x->rank, x->sizes) : NULL;
    if (!made) return NULL;
    for (int64_t i = 0, count = fb_array_count(made); i < count && fb_work_at(fb_call_work(op->call), i, count); i++) {
        double number = onnx_get(x, i);
        onnx_put_int(made, i, nan ? number != number : (positive && number == INFINITY) || (negative && number == -INFINITY));
    }
    return made;
}

static fb_array *op_is_nan(onnx_op *op) {
    return classify(op, true, false, false);
}

static fb_array *op_is_inf(onnx_op *op) {
    bool negative = onnx_int(op, "detect_negative", 1), positive = onnx_int(op, "detect_positive", 1);
    return classify(op, false, negative, positive);
}

/* ---- dtypes ------------------------------------------------------------------------------------------------------------- */

fb_array *onnx_convert(onnx_op *op, fb_array *x, fb_dtype dtype) {
    if (!x || !dtype || !onnx_ok(op)) return NULL;
    bool narrows = fb_dtype_is_floating(x->dtype) && fb_dtype_is_integer(dtype) && dtype != FB_BOOL;
    fb_array *rows = narrows ? onnx_rows(op, x) : NULL; /* what is beyond an integer's range is left open */
    static const struct {
        fb_dtype dtype;
        double low, high;
    } ranges[] = {{FB_INT8, -129, 128},
                  {FB_UINT8, -1, 256},
                  {FB_UINT16, -1, 65536},
                  {FB_UINT32, -1, 0x1p32},
                  {FB_UINT64, -1, 0x1p63}, /* beyond which none is evaluated */
                  {FB_INT16, -32769, 32768},
                  {FB_INT32, -0x1p31 - 1, 0x1p31},
                  {FB_INT64, -0x1.0000000000001p63, 0x1p63}};
    for (size_t r = 0; rows && r < sizeof ranges / sizeof *ranges; r++)
        for (int64_t i = 0, count = fb_array_count(rows);
             ranges[r].dtype == dtype && i < count && fb_work_at(fb_call_work(op->call), i, count); i++) {
            double number = onnx_get(rows, i);
            if (!(number > ranges[r].low && number < ranges[r].high))
                return onnx_undefined(op, "what a number beyond the range of %s becomes is not defined", fb_dtype_name(dtype));
        }
    return onnx_cast(op, x, dtype);
}

static fb_array *cast(onnx_op *op, fb_array *x, fb_dtype dtype) {
    onnx_ignore(op, "saturate"); /* of float8 alone, which is not evaluated */
    onnx_ignore(op, "round_mode");
    return onnx_convert(op, x, dtype);
}

static fb_array *op_cast(onnx_op *op) {
    return cast(op, onnx_in(op, 0), onnx_dtype(op, onnx_int(op, "to", 0)));
}

static fb_array *op_cast_like(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *like = onnx_in(op, 1);
    return like ? cast(op, x, like->dtype) : NULL;
}

/* ---- two operands ------------------------------------------------------------------------------------------------------- */

static bool has_zero(onnx_op *op, fb_array *b) {
    fb_array *rows = onnx_rows(op, b);
    for (int64_t i = 0, count = rows ? fb_array_count(rows) : 0; i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
        if (!onnx_get_int(rows, i)) return true;
    return !rows;
}

static fb_array *op_div(onnx_op *op) {
    fb_array *a = onnx_in(op, 0), *b = onnx_in(op, 1);
    if (!a || !b) return NULL;
    if (a->dtype != b->dtype) return onnx_fail(op, "its operands have two dtypes");
    if (fb_dtype_is_floating(a->dtype)) return ONNX_DIV(a, b);
    if (has_zero(op, b)) return onnx_undefined(op, "it divides an integer by 0");
    return ONNX_PART(DIV, "div", ONNX_A("input", a), ONNX_A("other", b), ONNX_T("rounding_mode", "trunc"));
}

/* The remainder has the divisor's sign, or the dividend's with fmod. */
static fb_array *op_mod(onnx_op *op) {
    fb_array *a = onnx_in(op, 0), *b = onnx_in(op, 1);
    bool is_fmod = onnx_int(op, "fmod", 0);
    if (!a || !b) return NULL;
    if (fb_dtype_is_integer(a->dtype) && has_zero(op, b)) return onnx_undefined(op, "it divides an integer by 0");
    if (fb_dtype_is_floating(a->dtype) && !is_fmod && op->version < 28)
        return onnx_refuse(op, "floats have the remainder of fmod alone");
    return is_fmod ? onnx_binary(op, FB_OP_FMOD, "fmod", a, b) : onnx_binary(op, FB_OP_REMAINDER, "remainder", a, b);
}

static fb_array *power_of(onnx_op *op, fb_array *base, fb_array *power) {
    return base && power ? ONNX_PART(POW, "pow", ONNX_A("input", base), ONNX_A("exponent", power)) : NULL;
}

/* Of the base's dtype. */
static fb_array *op_pow(onnx_op *op) {
    fb_array *base = onnx_in(op, 0), *power = onnx_in(op, 1);
    if (!base || !power) return NULL;
    if (base->dtype == power->dtype) return power_of(op, base, power);
    if (fb_dtype_is_integer(base->dtype) && fb_dtype_is_integer(power->dtype))
        return onnx_cast(op, power_of(op, onnx_cast(op, base, FB_INT64), onnx_cast(op, power, FB_INT64)), base->dtype);
    return onnx_convert(op, power_of(op, onnx_cast(op, base, FB_FLOAT64), onnx_cast(op, power, FB_FLOAT64)), base->dtype);
}

/* Bits that leave are lost; the sign stays when a signed number is shifted to the right. Version 28 says that a shift by too
 * many bits or by a negative number leaves nothing but the sign. */
static fb_array *op_bit_shift(onnx_op *op) {
    fb_array *a = onnx_in(op, 0), *b = onnx_in(op, 1);
    const char *direction = onnx_text(op, "direction", "");
    if (!a || !b) return NULL;
    bool is_left = strcmp(direction, "LEFT") == 0;
    if (!is_left && strcmp(direction, "RIGHT") != 0) return onnx_fail(op, "it has no direction");
    fb_array *rows = onnx_rows(op, b);
    int64_t bits = 8 * (int64_t)fb_dtype_size(a->dtype);
    for (int64_t i = 0, count = rows ? fb_array_count(rows) : 0; i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
        if (op->version < 28 && (onnx_get_int(rows, i) < 0 || onnx_get_int(rows, i) >= bits))
            return onnx_undefined(op, "it shifts by a negative number, or by more bits than there are");
    if (is_left) return onnx_binary(op, FB_OP_SHIFT_LEFT, "__lshift__", a, b);
    return onnx_binary(op, FB_OP_SHIFT_RIGHT, "__rshift__", a, b);
}

static fb_array *fold(onnx_op *op, fb_op part, const char *spelling) {
    fb_array *made = onnx_in(op, 0);
    for (size_t i = 1; i < onnx_in_count(op) && made; i++) made = onnx_binary(op, part, spelling, made, onnx_in(op, i));
    return made;
}

static fb_array *op_max(onnx_op *op) {
    return fold(op, FB_OP_MAXIMUM, "maximum");
}
static fb_array *op_min(onnx_op *op) {
    return fold(op, FB_OP_MINIMUM, "minimum");
}
static fb_array *op_sum(onnx_op *op) {
    return fold(op, FB_OP_ADD, "add");
}
static fb_array *op_mean(onnx_op *op) {
    fb_array *all = fold(op, FB_OP_ADD, "add");
    return all ? ONNX_DIV(all, onnx_scalar(op, (double)onnx_in_count(op), all->dtype)) : NULL;
}

static fb_array *op_clip(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *low = NULL, *high = NULL;
    if (!x) return NULL;
    if (op->version < 11) {
        if (onnx_has_attribute(op, "min")) low = onnx_scalar(op, onnx_float(op, "min", 0), x->dtype);
        if (onnx_has_attribute(op, "max")) high = onnx_scalar(op, onnx_float(op, "max", 0), x->dtype);
    } else {
        low = onnx_maybe(op, 1);
        high = onnx_maybe(op, 2);
    }
    if (low) x = onnx_binary(op, FB_OP_MAXIMUM, "maximum", x, low);
    if (high) x = onnx_binary(op, FB_OP_MINIMUM, "minimum", x, high);
    return x;
}

static fb_array *op_where(onnx_op *op) {
    fb_array *c = onnx_in(op, 0), *a = onnx_in(op, 1), *b = onnx_in(op, 2);
    if (!a || !b || !c) return NULL;
    if (a->dtype != b->dtype) return onnx_fail(op, "its operands have two dtypes");
    return ONNX_PART(WHERE, "where", ONNX_A("condition", c), ONNX_A("input", a), ONNX_A("other", b));
}

/* The slope broadcasts to the right, as any operand. */
static fb_array *op_prelu(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *slope = onnx_in(op, 1);
    if (!x || !slope) return NULL;
    fb_array *is_low = ONNX_PART(LT, "lt", ONNX_A("input", x), ONNX_A("other", onnx_scalar(op, 0, x->dtype)));
    fb_array *low = ONNX_MUL(x, slope);
    return is_low && low ? ONNX_PART(WHERE, "where", ONNX_A("condition", is_low), ONNX_A("input", low), ONNX_A("other", x))
                         : NULL;
}

static fb_array *op_identity(onnx_op *op) {
    return onnx_in(op, 0);
}

#define LAST 28
#define SAME(name, first, id, spelling)                                                                                        \
    { name, first, LAST, NULL, FB_OP_##id, spelling }
#define ROW(name, first, function)                                                                                             \
    { name, first, LAST, function, 0, NULL }
const onnx_row onnx_rows_math[] = {
    SAME("Abs", 6, ABS, "abs"),
    SAME("Acos", 7, ACOS, "acos"),
    SAME("Asin", 7, ASIN, "asin"),
    SAME("Atan", 7, ATAN, "atan"),
    SAME("Ceil", 6, CEIL, "ceil"),
    SAME("Cos", 7, COS, "cos"),
    SAME("Cosh", 9, COSH, "cosh"),
    SAME("Erf", 9, ERF, "erf"),
    SAME("Exp", 6, EXP, "exp"),
    SAME("Floor", 6, FLOOR, "floor"),
    SAME("Log", 6, LOG, "log"),
    SAME("Neg", 6, NEG, "neg"),
    SAME("Not", 1, LOGICAL_NOT, "logical_not"),
    SAME("BitwiseNot", 18, BITWISE_NOT, "bitwise_not"),
    SAME("Reciprocal", 6, RECIPROCAL, "reciprocal"),
    SAME("Relu", 6, RELU, "relu"),
    SAME("Round", 11, ROUND, "round"),
    SAME("Sigmoid", 6, SIGMOID, "sigmoid"),
    SAME("Sin", 7, SIN, "sin"),
    SAME("Sinh", 9, SINH, "sinh"),
    SAME("Softsign", 1, SOFTSIGN, "softsign"),
    SAME("Sqrt", 6, SQRT, "sqrt"),
    SAME("Tan", 7, TAN, "tan"),
    SAME("Tanh", 6, TANH, "tanh"),
    SAME("Add", 7, ADD, "add"),
    SAME("Sub", 7, SUB, "sub"),
    SAME("Mul", 7, MUL, "mul"),
    SAME("And", 7, LOGICAL_AND, "logical_and"),
    SAME("Or", 7, LOGICAL_OR, "logical_or"),
    SAME("Xor", 7, LOGICAL_XOR, "logical_xor"),
    SAME("BitwiseAnd", 18, BITWISE_AND, "bitwise_and"),
    SAME("BitwiseOr", 18, BITWISE_OR, "bitwise_or"),
    SAME("BitwiseXor", 18, BITWISE_XOR, "bitwise_xor"),
    SAME("Equal", 7, EQ, "eq"),
    SAME("Greater", 7, GT, "gt"),
    SAME("GreaterOrEqual", 12, GE, "ge"),
    SAME("Less", 7, LT, "lt"),
    SAME("LessOrEqual", 12, LE, "le"),
    ROW("Acosh", 9, op_acosh),
    ROW("Asinh", 9, op_asinh),
    ROW("Atanh", 9, op_atanh),
    ROW("LeakyRelu", 6, op_leaky_relu),
    ROW("Elu", 6, op_elu),
    ROW("Celu", 12, op_celu),
    ROW("Selu", 6, op_selu),
    ROW("ThresholdedRelu", 10, op_thresholded),
    ROW("HardSigmoid", 6, op_hard_sigmoid),
    ROW("HardSwish", 14, op_hard_swish),
    ROW("Softplus", 1, op_softplus),
    ROW("Swish", 24, op_swish),
    ROW("Mish", 18, op_mish),
    ROW("Gelu", 20, op_gelu),
    ROW("Sign", 9, op_sign),
    ROW("Shrink", 9, op_shrink),
    ROW("IsNaN", 9, op_is_nan),
    ROW("IsInf", 10, op_is_inf),
    ROW("Cast", 6, op_cast),
    ROW("CastLike", 15, op_cast_like),
    ROW("Div", 7, op_div),
    ROW("Mod", 10, op_mod),
    ROW("Pow", 7, op_pow),
    ROW("BitShift", 11, op_bit_shift),
    ROW("Max", 6, op_max),
    ROW("Min", 6, op_min),
    ROW("Sum", 6, op_sum),
    ROW("Mean", 6, op_mean),
    ROW("Clip", 6, op_clip),
    ROW("Where", 9, op_where),
    ROW("PRelu", 7, op_prelu),
    ROW("Identity", 1, op_identity),
    {0},
};
