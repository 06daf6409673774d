/* Arithmetic, comparison and logic of two operands, element by element. */
#include <complex.h>
#include <math.h>
#include <string.h>

#include "core/analysis/shape.h"
#include "core/evaluator/internal.h"
#include "core/evaluator/loops.h"

typedef void loop(const fb_array *out, const fb_array *a, const fb_array *b);

/* An operator's loops by held type; NULL = PyTorch has none. */
typedef struct binary {
    loop *of_double, *of_float, *of_int, *of_bool;
} binary;
static loop *complex_loop_of(const binary *loops, bool is_double);

static bool run_loop(fb_kernel_call *call, const binary *loops, const fb_array *out, const fb_array *a, const fb_array *b) {
    loop *const by_held[] = {[FB_HELD_DOUBLE] = loops->of_double,
                             [FB_HELD_FLOAT] = loops->of_float,
                             [FB_HELD_INT] = loops->of_int,
                             [FB_HELD_BOOL] = loops->of_bool,
                             [FB_HELD_COMPLEX_DOUBLE] = complex_loop_of(loops, true),
                             [FB_HELD_COMPLEX_FLOAT] = complex_loop_of(loops, false)};
    loop *chosen = by_held[a->held];
    if (!chosen) return fb_kernel_unsupported(call, "it is not defined for %s", fb_dtype_name(a->dtype)) == FB_OK;
    chosen(out, a, b);
    return true;
}

/* The operands in `dtype` (or what promotion gives), the result in `out_dtype` (or the same). */
static fb_status calculate(fb_kernel_call *call, const binary *loops, const char *second, fb_dtype dtype, fb_dtype out_dtype,
                           fb_object *result) {
    const char *const names[] = {"input", second, NULL};
    fb_array *operands[2];
    if (!fb_operands(call, names, &dtype, operands)) return call->status;
    fb_array *out = fb_make_array(call, out_dtype ? out_dtype : dtype, operands[0]->rank, operands[0]->sizes);
    if (out) run_loop(call, loops, out, operands[0], operands[1]);
    fb_array_drop(operands[0]);
    fb_array_drop(operands[1]);
    return fb_return_array(call, out, result);
}

#define FLOATING(name, expression)                                                                                             \
    FB_LOOP_2(name##_double, double, double, expression)                                                                       \
    FB_LOOP_2(name##_float, float, float, expression)
#define COMPARING(name, expression)                                                                                            \
    FB_LOOP_2(name##_double, unsigned char, double, expression)                                                                \
    FB_LOOP_2(name##_float, unsigned char, float, expression)                                                                  \
    FB_LOOP_2(name##_int, unsigned char, int64_t, expression)                                                                  \
    FB_LOOP_2(name##_bool, unsigned char, unsigned char, expression)

/* ---- addition and multiplication --------------------------------------------------------------------------------------- */

/* Integers wrap, as the hardware's do. */
#define WRAP(x, operator, y) (int64_t)((uint64_t)(x) operator(uint64_t)(y))
FLOATING(add, x + y)
FB_LOOP_2(add_int, int64_t, int64_t, WRAP(x, +, y))
FB_LOOP_2(add_bool, unsigned char, unsigned char, x | y)
FLOATING(sub, x - y)
FB_LOOP_2(sub_int, int64_t, int64_t, WRAP(x, -, y))
FLOATING(mul, x *y)
FB_LOOP_2(mul_int, int64_t, int64_t, WRAP(x, *, y))
FB_LOOP_2(mul_bool, unsigned char, unsigned char, x &y)

/* A quotient as c10::complex has it. */
#define COMPLEX_QUOTIENT(T, make, real, imaginary, absolute)                                                                   \
    static T _Complex divide_##T(T _Complex x, T _Complex y) {                                                                 \
        T a = real(x), b = imaginary(x), c = real(y), d = imaginary(y);                                                        \
        if (c == 0 && d == 0) return make(a / absolute(c), b / absolute(d));                                                   \
        if (absolute(c) >= absolute(d)) {                                                                                      \
            T ratio = d / c, scale = 1 / (c + d * ratio);                                                                      \
            return make((a + b * ratio) * scale, (b - a * ratio) * scale);                                                     \
        }                                                                                                                      \
        T ratio = c / d, scale = 1 / (c * ratio + d);                                                                          \
        return make((a * ratio + b) * scale, (b * ratio - a) * scale);                                                         \
    }
COMPLEX_QUOTIENT(double, CMPLX, creal, cimag, fabs)
COMPLEX_QUOTIENT(float, CMPLXF, crealf, cimagf, fabsf)
#define COMPLEX(name, of_double, of_float)                                                                                     \
    FB_LOOP_2(name##_complex_double, double _Complex, double _Complex, of_double)                                              \
    FB_LOOP_2(name##_complex_float, float _Complex, float _Complex, of_float)
COMPLEX(add, x + y, x + y)
COMPLEX(sub, x - y, x - y)
COMPLEX(mul, fb_complex_product(x, y), fb_complex_product_float(x, y))
COMPLEX(div, divide_double(x, y), divide_float(x, y))

static const binary add_loops = {add_double, add_float, add_int, add_bool}, sub_loops = {sub_double, sub_float, sub_int, NULL},
                    mul_loops = {mul_double, mul_float, mul_int, mul_bool};

/* other × alpha in the result's dtype. */
static fb_array *scale_other(fb_kernel_call *call, const fb_array *other, double alpha) {
    fb_array *factor = fb_make_array(call, other->dtype, 0, NULL), *wide = NULL, *out = NULL;
    if (!factor) return NULL;
    fb_array_fill(factor, alpha, (int64_t)alpha);
    call->status = fb_array_broadcast(factor, other->rank, other->sizes, &wide, call->error);
    if (!call->status) out = fb_make_array(call, other->dtype, other->rank, other->sizes);
    if (out) run_loop(call, &mul_loops, out, other, wide);
    fb_array_drop(factor);
    fb_array_drop(wide);
    return out;
}

/* torch takes a bool alpha for bools alone, a float for floats alone; and does not subtract bools. */
static bool may_add(fb_kernel_call *call, const binary *loops, fb_dtype dtype) {
    const fb_object *alpha = fb_argument(call, "alpha");
    bool is_integer = fb_dtype_is_integer(dtype);
    if (alpha && ((alpha->kind == FB_OBJECT_BOOL && dtype != FB_BOOL) || (alpha->kind == FB_OBJECT_FLOAT && is_integer)))
        return fb_kernel_fail(call, "alpha is of another kind than the result") == FB_OK;
    for (int i = 0; i < 2 && loops == &sub_loops; i++) {
        const fb_object *object = fb_argument(call, i ? "other" : "input");
        bool is_bool =
            object && (object->kind == FB_OBJECT_BOOL || (object->kind == FB_OBJECT_ARRAY && object->array->dtype == FB_BOOL));
        if (is_bool) return fb_kernel_fail(call, "bools are not subtracted") == FB_OK;
    }
    return !call->status;
}

static fb_status add_scaled(fb_kernel_call *call, const binary *loops, bool is_reversed, fb_object *result) {
    double alpha;
    const char *const names[] = {"input", "other", NULL};
    fb_array *operands[2];
    fb_dtype dtype = FB_DTYPE_UNKNOWN;
    if (!fb_argument_number(call, "alpha", 1, &alpha) || !fb_operands(call, names, &dtype, operands)) return call->status;
    if (!may_add(call, loops, dtype)) {
        fb_array_drop(operands[0]);
        fb_array_drop(operands[1]);
        return call->status;
    }
    int scaled = is_reversed ? 0 : 1; /* rsub(input, other, alpha) is other - alpha × input */
    if (alpha != 1) {
        fb_array *product = scale_other(call, operands[scaled], alpha);
        fb_array_drop(operands[scaled]);
        operands[scaled] = product;
    }
    fb_array *out = call->status ? NULL : fb_make_array(call, dtype, operands[0]->rank, operands[0]->sizes);
    if (out) run_loop(call, loops, out, operands[1 - scaled], operands[scaled]);
    fb_array_drop(operands[0]);
    fb_array_drop(operands[1]);
    return fb_return_array(call, out, result);
}

static fb_status kernel_add(fb_kernel_call *call, fb_object *result) {
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    return add_scaled(call, &add_loops, false, result);
}

static fb_status kernel_sub(fb_kernel_call *call, fb_object *result) {
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    return add_scaled(call, &sub_loops, false, result);
}

static fb_status kernel_rsub(fb_kernel_call *call, fb_object *result) {
    return add_scaled(call, &sub_loops, true, result);
}

static fb_status kernel_mul(fb_kernel_call *call, fb_object *result) {
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    return calculate(call, &mul_loops, "other", FB_DTYPE_UNKNOWN, FB_DTYPE_UNKNOWN, result);
}

/* ---- division ------------------------------------------------------------------------------------------------------------ */

FLOATING(div, x / y)
static const binary div_loops = {div_double, div_float, NULL, NULL};

static loop *complex_loop_of(const binary *loops, bool is_double) {
    if (loops == &add_loops) return is_double ? add_complex_double : add_complex_float;
    if (loops == &sub_loops) return is_double ? sub_complex_double : sub_complex_float;
    if (loops == &mul_loops) return is_double ? mul_complex_double : mul_complex_float;
    if (loops == &div_loops) return is_double ? div_complex_double : div_complex_float;
    return NULL;
}

/* The dtype that promotion gives, with float32 for integers. */
static fb_dtype floating_dtype(fb_kernel_call *call, const char *second) {
    const fb_object *objects[] = {fb_argument(call, "input"), fb_argument(call, second)};
    if (!objects[0] || !objects[1]) return FB_DTYPE_UNKNOWN;
    return fb_to_floating(fb_promote_objects(objects, 2));
}

FLOATING(reverse_div, 1 / y * x)

/* In small dtypes the reciprocal is rounded before it is multiplied. */
static fb_status divide_number(fb_kernel_call *call, fb_dtype dtype, fb_object *result) {
    static const char *const names[] = {"other", NULL};
    fb_array *other, *number = fb_make_number(call, "input", FB_FLOAT32), *one = NULL, *wide = NULL, *out = NULL;
    const fb_object unit = {.kind = FB_OBJECT_INT, .integer = 1};
    if (!number) return call->status;
    if (!fb_operands(call, names, &dtype, &other)) {
        fb_array_drop(number);
        return call->status;
    }
    one = fb_make_number_of(call, &unit, dtype);
    if (one) call->status = fb_array_broadcast(one, other->rank, other->sizes, &wide, call->error);
    if (wide) out = fb_make_array(call, dtype, other->rank, other->sizes);
    if (out) {
        run_loop(call, &div_loops, out, wide, other);
        fb_array_round(out);
        fb_array_drop(wide);
        wide = NULL;
        call->status = fb_array_broadcast(number, other->rank, other->sizes, &wide, call->error);
        if (wide) run_loop(call, &mul_loops, out, out, wide);
    }
    fb_array_drop(number);
    fb_array_drop(one);
    fb_array_drop(wide);
    fb_array_drop(other);
    return fb_return_array(call, out, result);
}

static fb_status kernel_true_divide(fb_kernel_call *call, fb_object *result) {
    static const binary reverse_loops = {reverse_div_double, reverse_div_float, NULL, NULL};
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    const fb_object *input = fb_argument(call, "input");
    fb_dtype dtype = floating_dtype(call, "other");
    /* Tensor.__rtruediv__ multiplies by the reciprocal. */
    if (!input || input->kind == FB_OBJECT_ARRAY) return calculate(call, &div_loops, "other", dtype, FB_DTYPE_UNKNOWN, result);
    if (fb_dtype_is_complex(dtype)) return fb_kernel_unsupported(call, "a number is not divided by complex ones");
    if (dtype == FB_FLOAT32 || dtype == FB_FLOAT64) return calculate(call, &reverse_loops, "other", dtype, dtype, result);
    return divide_number(call, dtype, result);
}

/* PyTorch's div_floor: the remainder decides, so that 1 // 0.1 is 9. c10/util/generic_math.h. */
#define FLOOR_QUOTIENT(T, fmod, floor, copysign)                                                                               \
    static T floor_quotient_##T(T a, T b) {                                                                                    \
        if (b == 0) return a / b;                                                                                              \
        T modulus = fmod(a, b), quotient = (a - modulus) / b;                                                                  \
        if (modulus != 0 && (b < 0) != (modulus < 0)) quotient -= 1;                                                           \
        if (quotient == 0) return copysign(0, a / b);                                                                          \
        T whole = floor(quotient);                                                                                             \
        return quotient - whole > (T)0.5 ? whole + 1 : whole;                                                                  \
    }
FLOOR_QUOTIENT(double, fmod, floor, copysign)
FLOOR_QUOTIENT(float, fmodf, floorf, copysignf)

static int64_t floor_quotient_int(int64_t a, int64_t b) {
    if (b == -1) return WRAP(0, -, a);
    int64_t quotient = a / b;
    return a % b && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

FB_LOOP_2(floor_divide_double, double, double, floor_quotient_double(x, y))
FB_LOOP_2(floor_divide_float, float, float, floor_quotient_float(x, y))
FB_LOOP_2(floor_divide_int, int64_t, int64_t, floor_quotient_int(x, y))
static const binary floor_divide_loops = {floor_divide_double, floor_divide_float, floor_divide_int, NULL};
FB_LOOP_2(trunc_divide_double, double, double, trunc(x / y))
FB_LOOP_2(trunc_divide_float, float, float, truncf(x / y))
FB_LOOP_2(trunc_divide_int, int64_t, int64_t, y == -1 ? WRAP(0, -, x) : x / y)
static const binary trunc_divide_loops = {trunc_divide_double, trunc_divide_float, trunc_divide_int, NULL};

/* Division of integers by zero raises in PyTorch. */
static bool has_integer_zero(fb_kernel_call *call, const char *name) {
    const fb_object *object = fb_argument(call, name);
    int64_t integer;
    if (!object) return false;
    if (object->kind != FB_OBJECT_ARRAY) return fb_object_int(object, &integer) && integer == 0;
    const fb_array *array = object->array;
    if (fb_dtype_is_floating(array->dtype)) return false;
    int64_t count = fb_array_count(array);
    if (!fb_kernel_takes(call, (double)count)) return false;
    for (int64_t i = 0; i < count && fb_work_at(fb_call_work(call), i, count); i++)
        if (fb_array_int(array, i) == 0) return true;
    return false;
}

static fb_status divide_whole(fb_kernel_call *call, const binary *loops, fb_object *result) {
    const fb_object *objects[] = {fb_argument(call, "input"), fb_argument(call, "other")};
    if (!objects[0] || !objects[1]) return fb_kernel_unsupported(call, "it needs two operands");
    fb_dtype dtype = fb_promote_objects(objects, 2);
    if (dtype == FB_BOOL) return fb_kernel_unsupported(call, "bools are not divided");
    if (fb_dtype_is_integer(dtype) && has_integer_zero(call, "other"))
        return fb_kernel_fail(call, "an integer is divided by zero");
    return calculate(call, loops, "other", dtype, FB_DTYPE_UNKNOWN, result);
}

static fb_status kernel_floor_divide(fb_kernel_call *call, fb_object *result) {
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    return divide_whole(call, &floor_divide_loops, result);
}

static fb_status kernel_div(fb_kernel_call *call, fb_object *result) {
    const char *mode;
    if (!fb_argument_text(call, "rounding_mode", &mode)) return call->status;
    if (!*mode) return calculate(call, &div_loops, "other", floating_dtype(call, "other"), FB_DTYPE_UNKNOWN, result);
    if (strcmp(mode, "floor") != 0 && strcmp(mode, "trunc") != 0)
        return fb_kernel_fail(call, "%s is not a rounding mode", mode);
    return divide_whole(call, mode[0] == 'f' ? &floor_divide_loops : &trunc_divide_loops, result);
}

static double remainder_double(double a, double b) {
    double modulus = fmod(a, b);
    return modulus != 0 && (b < 0) != (modulus < 0) ? modulus + b : modulus;
}
static float remainder_float(float a, float b) {
    float modulus = fmodf(a, b);
    return modulus != 0 && (b < 0) != (modulus < 0) ? modulus + b : modulus;
}
static int64_t remainder_int(int64_t a, int64_t b) {
    int64_t modulus = b == -1 ? 0 : a % b;
    return modulus && (b < 0) != (modulus < 0) ? modulus + b : modulus;
}
FB_LOOP_2(remainder_doubles, double, double, remainder_double(x, y))
FB_LOOP_2(remainder_floats, float, float, remainder_float(x, y))
FB_LOOP_2(remainder_ints, int64_t, int64_t, remainder_int(x, y))
static const binary remainder_loops = {remainder_doubles, remainder_floats, remainder_ints, NULL};
FB_LOOP_2(fmod_double, double, double, fmod(x, y))
FB_LOOP_2(fmod_float, float, float, fmodf(x, y))
FB_LOOP_2(fmod_int, int64_t, int64_t, y == -1 ? 0 : x % y)
static const binary fmod_loops = {fmod_double, fmod_float, fmod_int, NULL};

static fb_status kernel_remainder(fb_kernel_call *call, fb_object *result) {
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    return divide_whole(call, &remainder_loops, result);
}

static fb_status kernel_fmod(fb_kernel_call *call, fb_object *result) {
    return divide_whole(call, &fmod_loops, result);
}

/* ---- powers and other functions of two ----------------------------------------------------------------------------------- */

static int64_t power_int(int64_t base, int64_t exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    uint64_t all = 1, factor = (uint64_t)base;
    for (; exponent; exponent >>= 1, factor *= factor)
        if (exponent & 1) all *= factor;
    return (int64_t)all;
}

FB_LOOP_2(pow_double, double, double, pow(x, y))
FB_LOOP_2(pow_float, float, float, powf(x, y))
FB_LOOP_2(pow_int, int64_t, int64_t, power_int(x, y))
static const binary pow_loops = {pow_double, pow_float, pow_int, NULL};

/* Exponents for which PyTorch has another formula: pow_tensor_scalar_optimized_kernel. */
FLOATING(power_of_two, ((void)y, x *x))
FLOATING(power_of_three, ((void)y, x *x *x))
FLOATING(power_of_minus_one, ((void)y, 1 / x))
FLOATING(power_of_minus_two, ((void)y, 1 / (x * x)))
FB_LOOP_2(power_of_half_double, double, double, ((void)y, sqrt(x)))
FB_LOOP_2(power_of_half_float, float, float, ((void)y, sqrtf(x)))
FB_LOOP_2(power_of_minus_half_double, double, double, ((void)y, 1 / sqrt(x)))
FB_LOOP_2(power_of_minus_half_float, float, float, ((void)y, 1 / sqrtf(x)))
static const struct {
    double exponent;
    binary loops;
} powers[] = {
    {2, {power_of_two_double, power_of_two_float, pow_int, NULL}},
    {3, {power_of_three_double, power_of_three_float, pow_int, NULL}},
    {-1, {power_of_minus_one_double, power_of_minus_one_float, pow_int, NULL}},
    {-2, {power_of_minus_two_double, power_of_minus_two_float, pow_int, NULL}},
    {0.5, {power_of_half_double, power_of_half_float, pow_int, NULL}},
    {-0.5, {power_of_minus_half_double, power_of_minus_half_float, pow_int, NULL}},
};

static fb_status raise(fb_kernel_call *call, fb_dtype dtype, fb_object *result) {
    const fb_object *exponent = fb_argument(call, "exponent");
    double number;
    const binary *loops = &pow_loops;
    if (exponent && fb_object_number(exponent, &number)) {
        const fb_object *base = fb_argument(call, "input");
        bool is_half = base && base->kind == FB_OBJECT_ARRAY && base->array->dtype == FB_FLOAT16; /* has no roots */
        for (size_t i = 0; i < sizeof powers / sizeof *powers; i++)
            if (powers[i].exponent == number && (!is_half || number == floor(number))) loops = &powers[i].loops;
        bool is_integer = exponent->kind == FB_OBJECT_INT && base && base->kind == FB_OBJECT_ARRAY &&
                          fb_dtype_is_integer(base->array->dtype) && !fb_dtype_is_floating(dtype);
        if (is_integer && number < 0) return fb_kernel_fail(call, "integers have no negative powers");
    }
    return calculate(call, loops, "exponent", dtype, FB_DTYPE_UNKNOWN, result);
}

static fb_status kernel_pow(fb_kernel_call *call, fb_object *result) {
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    return raise(call, FB_DTYPE_UNKNOWN, result);
}

static fb_status kernel_float_power(fb_kernel_call *call, fb_object *result) {
    return raise(call, FB_FLOAT64, result);
}

FB_LOOP_2(atan2_double, double, double, atan2(x, y))
FB_LOOP_2(atan2_float, float, float, atan2f(x, y))
FB_LOOP_2(hypot_double, double, double, hypot(x, y))
FB_LOOP_2(hypot_float, float, float, hypotf(x, y))
FB_LOOP_2(copysign_double, double, double, copysign(x, y))
FB_LOOP_2(copysign_float, float, float, copysignf(x, y))

static fb_status kernel_atan2(fb_kernel_call *call, fb_object *result) {
    static const binary loops = {atan2_double, atan2_float, NULL, NULL};
    return calculate(call, &loops, "other", floating_dtype(call, "other"), FB_DTYPE_UNKNOWN, result);
}
static fb_status kernel_hypot(fb_kernel_call *call, fb_object *result) {
    static const binary loops = {hypot_double, hypot_float, NULL, NULL};
    return calculate(call, &loops, "other", FB_DTYPE_UNKNOWN, FB_DTYPE_UNKNOWN, result);
}
static fb_status kernel_copysign(fb_kernel_call *call, fb_object *result) {
    static const binary loops = {copysign_double, copysign_float, NULL, NULL};
    return calculate(call, &loops, "other", floating_dtype(call, "other"), FB_DTYPE_UNKNOWN, result);
}

/* maximum and minimum pass nan on; fmax and fmin the other operand. */
FLOATING(maximum, x != x ? x : y != y ? y : x > y ? x : y)
FLOATING(minimum, x != x ? x : y != y ? y : x < y ? x : y)
FLOATING(fmax_of, x != x ? y : y != y ? x : x > y ? x : y)
FLOATING(fmin_of, x != x ? y : y != y ? x : x < y ? x : y)
FB_LOOP_2(maximum_int, int64_t, int64_t, x > y ? x : y)
FB_LOOP_2(minimum_int, int64_t, int64_t, x < y ? x : y)
FB_LOOP_2(maximum_bool, unsigned char, unsigned char, x | y)
FB_LOOP_2(minimum_bool, unsigned char, unsigned char, x &y)

static fb_status kernel_maximum(fb_kernel_call *call, fb_object *result) {
    static const binary maximum = {maximum_double, maximum_float, maximum_int, maximum_bool},
                        fmax_loops = {fmax_of_double, fmax_of_float, maximum_int, maximum_bool};
    const binary *loops = fb_call_is_spelled(call, "fmax") ? &fmax_loops : &maximum;
    return calculate(call, loops, "other", FB_DTYPE_UNKNOWN, FB_DTYPE_UNKNOWN, result);
}
static fb_status kernel_minimum(fb_kernel_call *call, fb_object *result) {
    static const binary minimum = {minimum_double, minimum_float, minimum_int, minimum_bool},
                        fmin_loops = {fmin_of_double, fmin_of_float, minimum_int, minimum_bool};
    const binary *loops = fb_call_is_spelled(call, "fmin") ? &fmin_loops : &minimum;
    return calculate(call, loops, "other", FB_DTYPE_UNKNOWN, FB_DTYPE_UNKNOWN, result);
}

fb_status fb_largest_of_two(fb_kernel_call *call, const char *second, fb_object *result) {
    static const binary maximum = {maximum_double, maximum_float, maximum_int, maximum_bool},
                        minimum = {minimum_double, minimum_float, minimum_int, minimum_bool};
    return calculate(call, call->op == FB_OP_MAX ? &maximum : &minimum, second, FB_DTYPE_UNKNOWN, FB_DTYPE_UNKNOWN, result);
}

/* ---- comparison and logic ------------------------------------------------------------------------------------------------ */

COMPARING(eq, x == y)
COMPARING(ne, x != y)
COMPARING(lt, x < y)
COMPARING(le, x <= y)
COMPARING(gt, x > y)
COMPARING(ge, x >= y)
COMPARING(logical_and, x != 0 && y != 0)
COMPARING(logical_or, x != 0 || y != 0)
COMPARING(logical_xor, (x != 0) != (y != 0))

static fb_status kernel_compare(fb_kernel_call *call, fb_object *result) {
    static const binary loops[] = {
        {eq_double, eq_float, eq_int, eq_bool}, {ne_double, ne_float, ne_int, ne_bool}, {lt_double, lt_float, lt_int, lt_bool},
        {le_double, le_float, le_int, le_bool}, {gt_double, gt_float, gt_int, gt_bool}, {ge_double, ge_float, ge_int, ge_bool},
    };
    static const fb_op operators[] = {FB_OP_EQ, FB_OP_NE, FB_OP_LT, FB_OP_LE, FB_OP_GT, FB_OP_GE};
    size_t i = 0;
    while (operators[i] != call->op) i++;
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    return calculate(call, &loops[i], "other", FB_DTYPE_UNKNOWN, FB_BOOL, result);
}

static fb_status kernel_logic(fb_kernel_call *call, fb_object *result) {
    static const binary and_loops = {logical_and_double, logical_and_float, logical_and_int, logical_and_bool},
                        or_loops = {logical_or_double, logical_or_float, logical_or_int, logical_or_bool},
                        xor_loops = {logical_xor_double, logical_xor_float, logical_xor_int, logical_xor_bool};
    const binary *loops = call->op == FB_OP_LOGICAL_AND ? &and_loops : call->op == FB_OP_LOGICAL_OR ? &or_loops : &xor_loops;
    return calculate(call, loops, "other", FB_DTYPE_UNKNOWN, FB_BOOL, result);
}

FB_LOOP_2(and_int, int64_t, int64_t, x &y)
FB_LOOP_2(and_bool, unsigned char, unsigned char, x &y)
FB_LOOP_2(or_int, int64_t, int64_t, x | y)
FB_LOOP_2(or_bool, unsigned char, unsigned char, x | y)
FB_LOOP_2(xor_int, int64_t, int64_t, x ^ y)
FB_LOOP_2(xor_bool, unsigned char, unsigned char, x ^ y)

static fb_status kernel_bitwise(fb_kernel_call *call, fb_object *result) {
    static const binary and_loops = {NULL, NULL, and_int, and_bool}, or_loops = {NULL, NULL, or_int, or_bool},
                        xor_loops = {NULL, NULL, xor_int, xor_bool};
    const binary *loops = call->op == FB_OP_BITWISE_AND ? &and_loops : call->op == FB_OP_BITWISE_OR ? &or_loops : &xor_loops;
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    return calculate(call, loops, "other", FB_DTYPE_UNKNOWN, FB_DTYPE_UNKNOWN, result);
}

/* diff(input, n, dim): what is next less what is before, n times; of bools whether they differ. */
static fb_array *difference(fb_kernel_call *call, fb_array *input, int64_t dim) {
    static const binary xor_loops = {NULL, NULL, NULL, xor_bool};
    int64_t size = input->sizes[dim];
    fb_array *next = fb_make_view(call, input, input->rank), *before = fb_make_view(call, input, input->rank), *out = NULL;
    if (next && before) {
        fb_array_slice(next, (int)dim, 1, size, 1);
        fb_array_slice(before, (int)dim, 0, size ? size - 1 : 0, 1);
        out = fb_make_array(call, input->dtype, next->rank, next->sizes);
    }
    if (out) run_loop(call, input->dtype == FB_BOOL ? &xor_loops : &sub_loops, out, next, before);
    if (out) fb_array_round(out);
    fb_array_drop(next);
    fb_array_drop(before);
    return out;
}

/* The input joined with what is put before and after it; the input itself, kept, when that is nothing. */
static fb_array *extended(fb_kernel_call *call, fb_array *input, int64_t dim) {
    fb_array *parts[3] = {NULL, input, NULL};
    int64_t sizes[FB_MAX_RANK], start = 0;
    if (!fb_argument_optional(call, "prepend", &parts[0]) || !fb_argument_optional(call, "append", &parts[2])) return NULL;
    if (!parts[0] && !parts[2]) return fb_array_keep(input);
    memcpy(sizes, input->sizes, sizeof sizes);
    for (int i = 0; i < 3; i += 2) {
        bool fits = !parts[i] || (parts[i]->rank == input->rank && parts[i]->dtype == input->dtype);
        for (int d = 0; d < input->rank && parts[i] && fits; d++) fits = d == dim || parts[i]->sizes[d] == input->sizes[d];
        if (!fits) return fb_kernel_unsupported(call, "prepend or append is not like the input"), NULL;
        if (parts[i]) sizes[dim] += parts[i]->sizes[dim];
    }
    fb_array *out = fb_make_array(call, input->dtype, input->rank, sizes);
    for (int i = 0; i < 3 && out; i++) {
        fb_array *to = parts[i] ? fb_make_view(call, out, out->rank) : NULL;
        if (!to) continue;
        fb_array_slice(to, (int)dim, start, start + parts[i]->sizes[dim], 1);
        call->status = fb_array_assign(to, parts[i], call->error);
        start += parts[i]->sizes[dim];
        fb_array_drop(to);
    }
    return out;
}

static fb_status kernel_diff(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t times, dim;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_int(call, "n", 1, &times)) return call->status;
    if (!input->rank) return fb_kernel_fail(call, "a tensor without dimensions has no neighbours");
    dim = input->rank - 1;
    if (fb_argument_is_given(call, "dim") && !fb_argument_axis(call, "dim", input->rank, &dim)) return call->status;
    if (times < 0) return fb_kernel_fail(call, "n is negative");
    if (times == 0) return fb_return_array(call, fb_make_cast(call, input, input->dtype), result);
    fb_array *now = extended(call, input, dim);
    if (now && times > now->sizes[dim]) times = now->sizes[dim] ? now->sizes[dim] : 1;
    for (int64_t i = 0; i < times && now && fb_kernel_goes_on(call, 100); i++) {
        fb_array *made = difference(call, now, dim);
        fb_array_drop(now);
        now = made;
    }
    return fb_return_array(call, now, result);
}

/* Shifts by more bits than there are leave 0, or the sign. */
FB_LOOP_2(shift_left_int, int64_t, int64_t, y<0 || y> 63 ? 0 : (int64_t)((uint64_t)x << y))
FB_LOOP_2(shift_right_int, int64_t, int64_t, x >> (y < 0 || y > 63 ? 63 : y))

static fb_status kernel_shift(fb_kernel_call *call, fb_object *result) {
    static const binary left = {NULL, NULL, shift_left_int, NULL}, right = {NULL, NULL, shift_right_int, NULL};
    if (fb_python_arithmetic(call, result) || call->status) return call->status;
    const binary *loops = call->op == FB_OP_SHIFT_LEFT ? &left : &right;
    return calculate(call, loops, "other", FB_DTYPE_UNKNOWN, FB_DTYPE_UNKNOWN, result);
}

/* |x - y| <= atol + rtol × |y|, or both the same; in double, as its parameters are. */
static fb_status kernel_isclose(fb_kernel_call *call, fb_object *result) {
    static const char *const names[] = {"input", "other", NULL};
    double relative, absolute;
    bool nan_is_nan;
    fb_array *operands[2];
    fb_dtype dtype = FB_DTYPE_UNKNOWN;
    const fb_object *a = fb_argument(call, "input"), *b = fb_argument(call, "other");
    if (!fb_argument_number(call, "rtol", 1e-5, &relative) || !fb_argument_number(call, "atol", 1e-8, &absolute) ||
        !fb_argument_bool(call, "equal_nan", false, &nan_is_nan))
        return call->status;
    if (!a || !b || a->kind != FB_OBJECT_ARRAY || b->kind != FB_OBJECT_ARRAY || a->array->dtype != b->array->dtype)
        return fb_kernel_unsupported(call, "its operands are not tensors of one dtype");
    if (a->array->dtype != FB_FLOAT32 && a->array->dtype != FB_FLOAT64)
        return fb_kernel_unsupported(call, "%s is not compared", fb_dtype_name(a->array->dtype));
    if (!fb_operands(call, names, &dtype, operands)) return call->status;
    fb_array *out = fb_make_array(call, FB_BOOL, operands[0]->rank, operands[0]->sizes);
    fb_array *x = fb_make_cast(call, operands[0], FB_FLOAT64), *y = fb_make_cast(call, operands[1], FB_FLOAT64);
    for (int64_t i = 0, count = out && x && y ? fb_array_count(out) : 0; i < count && fb_work_at(fb_call_work(call), i, count);
         i++) {
        double one = fb_array_get(x, i), other = fb_array_get(y, i);
        bool both_nan = nan_is_nan && one != one && other != other;
        bool is_near = isfinite(one) && isfinite(other) && fabs(one - other) <= absolute + relative * fabs(other);
        ((unsigned char *)fb_array_data(out))[i] = one == other || both_nan || is_near;
    }
    fb_array_drop(x);
    fb_array_drop(y);
    fb_array_drop(operands[0]);
    fb_array_drop(operands[1]);
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_binary[] = {
    FB_KERNEL_COMPLEX(ADD, add),
    FB_KERNEL_COMPLEX(SUB, sub),
    FB_KERNEL_COMPLEX(RSUB, rsub),
    FB_KERNEL_COMPLEX(MUL, mul),
    FB_KERNEL_COMPLEX(TRUE_DIVIDE, true_divide),
    FB_KERNEL_COMPLEX(DIV, div),
    FB_KERNEL(FLOOR_DIVIDE, floor_divide),
    FB_KERNEL(REMAINDER, remainder),
    FB_KERNEL(FMOD, fmod),
    FB_KERNEL(POW, pow),
    FB_KERNEL(FLOAT_POWER, float_power),
    FB_KERNEL(ATAN2, atan2),
    FB_KERNEL(HYPOT, hypot),
    FB_KERNEL(COPYSIGN, copysign),
    FB_KERNEL(MAXIMUM, maximum),
    FB_KERNEL(MINIMUM, minimum),
    FB_KERNEL(EQ, compare),
    FB_KERNEL(NE, compare),
    FB_KERNEL(LT, compare),
    FB_KERNEL(LE, compare),
    FB_KERNEL(GT, compare),
    FB_KERNEL(GE, compare),
    FB_KERNEL(LOGICAL_AND, logic),
    FB_KERNEL(LOGICAL_OR, logic),
    FB_KERNEL(LOGICAL_XOR, logic),
    FB_KERNEL(BITWISE_AND, bitwise),
    FB_KERNEL(BITWISE_OR, bitwise),
    FB_KERNEL(BITWISE_XOR, bitwise),
    FB_KERNEL(SHIFT_LEFT, shift),
    FB_KERNEL(SHIFT_RIGHT, shift),
    FB_KERNEL(ISCLOSE, isclose),
    FB_KERNEL_COMPLEX(DIFF, diff),
    FB_KERNELS_END,
};
