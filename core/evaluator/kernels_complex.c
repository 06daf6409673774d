/* Complex numbers: made of two real tensors, seen as real ones, and functions that have a formula of their own. */
#include <complex.h>
#include <math.h>

#include "core/evaluator/internal.h"
#include "core/evaluator/loops.h"

/* ---- views --------------------------------------------------------------------------------------------------------------- */

/* (…) of complex numbers as (…, 2) of their parts. */
static fb_status kernel_view_as_real(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *view;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (!fb_dtype_is_complex(input->dtype))
        return fb_kernel_fail(call, "it is not defined for %s", fb_dtype_name(input->dtype));
    if (input->rank == FB_MAX_RANK) return fb_kernel_unsupported(call, "its result has too many dimensions");
    call->status = fb_array_part(input, false, &view, call->error);
    if (call->status) return call->status;
    view->sizes[view->rank] = 2;
    view->strides[view->rank++] = 1;
    return fb_return_array(call, view, result);
}

static bool is_even(int64_t number) {
    return number % 2 == 0;
}

static fb_status kernel_view_as_complex(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    bool is_double = input->dtype == FB_FLOAT64;
    if (!is_double && input->dtype != FB_FLOAT32)
        return fb_kernel_unsupported(call, "it is evaluated for float32 and float64 alone");
    int last = input->rank - 1;
    bool are_pairs = input->rank && input->sizes[last] == 2 && input->strides[last] == 1 && is_even(input->offset);
    for (int i = 0; i < last && are_pairs; i++) are_pairs = input->sizes[i] < 2 || is_even(input->strides[i]);
    if (!are_pairs) return fb_kernel_fail(call, "the last dimension does not hold pairs of neighbours");
    fb_array *view = fb_make_view(call, input, last);
    if (!view) return call->status;
    view->dtype = is_double ? FB_COMPLEX128 : FB_COMPLEX64;
    view->held = input->held == FB_HELD_DOUBLE ? FB_HELD_COMPLEX_DOUBLE : FB_HELD_COMPLEX_FLOAT;
    view->offset /= 2;
    for (int i = 0; i < last; i++) view->strides[i] /= 2;
    return fb_return_array(call, view, result);
}

fb_status fb_return_part(fb_kernel_call *call, fb_array *input, bool is_imaginary, fb_object *result) {
    fb_array *view;
    bool is_complex = fb_dtype_is_complex(input->dtype);
    if (!is_complex && is_imaginary) return fb_kernel_fail(call, "real tensors have no imaginary part");
    if (!is_complex) return fb_return_array(call, fb_array_keep(input), result);
    call->status = fb_array_part(input, is_imaginary, &view, call->error);
    return call->status ? call->status : fb_return_array(call, view, result);
}

static fb_status kernel_part(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    return fb_return_part(call, input, call->op == FB_OP_IMAG, result);
}

FB_LOOP_1(conjugate_double, double _Complex, double _Complex, conj(x))
FB_LOOP_1(conjugate_float, float _Complex, float _Complex, conjf(x))

/* PyTorch's conj() is a view that is conjugated whenever it is read; here it is a copy, so that neither may be written. */
static fb_status kernel_conjugate(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    bool resolves = fb_call_is_spelled(call, "resolve_conj") || fb_call_is_spelled(call, "resolve_neg");
    if (resolves || !fb_dtype_is_complex(input->dtype)) return fb_return_array(call, fb_array_keep(input), result);
    fb_array *out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    if (!out) return call->status;
    (out->held == FB_HELD_COMPLEX_DOUBLE ? conjugate_double : conjugate_float)(out, input);
    out->storage->is_frozen = input->storage->is_frozen = true;
    return fb_return_array(call, out, result);
}

/* ---- of two real tensors ------------------------------------------------------------------------------------------------- */

FB_LOOP_2(complex_double, double _Complex, double, CMPLX(x, y))
FB_LOOP_2(complex_float, float _Complex, float, CMPLXF(x, y))
FB_LOOP_2(polar_double, double _Complex, double, CMPLX(x *cos(y), x *sin(y)))
FB_LOOP_2(polar_float, float _Complex, float, CMPLXF(x *cosf(y), x *sinf(y)))

static fb_status make_complex(fb_kernel_call *call, const char *first, const char *second, bool is_polar, fb_object *result) {
    fb_array *a, *b, *operands[2];
    const char *const names[] = {first, second, NULL};
    if (!fb_argument_array(call, first, &a) || !fb_argument_array(call, second, &b)) return call->status;
    fb_dtype dtype = a->dtype;
    if (a->dtype != b->dtype) return fb_kernel_fail(call, "its tensors have several dtypes");
    if (dtype != FB_FLOAT32 && dtype != FB_FLOAT64)
        return fb_kernel_unsupported(call, "it is evaluated for float32 and float64 alone");
    if (!fb_operands(call, names, &dtype, operands)) return call->status;
    fb_array *out =
        fb_make_array(call, dtype == FB_FLOAT64 ? FB_COMPLEX128 : FB_COMPLEX64, operands[0]->rank, operands[0]->sizes);
    bool is_double = operands[0]->held == FB_HELD_DOUBLE;
    if (out && is_polar) (is_double ? polar_double : polar_float)(out, operands[0], operands[1]);
    else if (out) (is_double ? complex_double : complex_float)(out, operands[0], operands[1]);
    fb_array_drop(operands[0]);
    fb_array_drop(operands[1]);
    return fb_return_array(call, out, result);
}

static fb_status kernel_complex(fb_kernel_call *call, fb_object *result) {
    return make_complex(call, "real", "imag", false, result);
}
static fb_status kernel_polar(fb_kernel_call *call, fb_object *result) {
    return make_complex(call, "abs", "angle", true, result);
}

/* ---- functions of one ---------------------------------------------------------------------------------------------------- */

FB_LOOP_1(neg_double, double _Complex, double _Complex, -x)
FB_LOOP_1(neg_float, float _Complex, float _Complex, -x)
FB_LOOP_1(exp_double, double _Complex, double _Complex, cexp(x))
FB_LOOP_1(exp_float, float _Complex, float _Complex, cexpf(x))
FB_LOOP_1(abs_double, double, double _Complex, cabs(x))
FB_LOOP_1(abs_float, float, float _Complex, cabsf(x))
FB_LOOP_1(angle_double, double, double _Complex, carg(x))
FB_LOOP_1(angle_float, float, float _Complex, cargf(x))

fb_status fb_complex_unary(fb_kernel_call *call, const fb_array *input, fb_object *result) {
    typedef void loop(const fb_array *out, const fb_array *a);
    static const struct {
        fb_op op;
        bool is_real; /* the result */
        loop *of_double, *of_float;
    } rows[] = {
        {FB_OP_NEG, false, neg_double, neg_float},
        {FB_OP_EXP, false, exp_double, exp_float},
        {FB_OP_ABS, true, abs_double, abs_float},
        {FB_OP_ANGLE, true, angle_double, angle_float},
    };
    size_t i = 0;
    while (rows[i].op != call->op) i++;
    fb_array *out =
        fb_make_array(call, rows[i].is_real ? fb_dtype_part(input->dtype) : input->dtype, input->rank, input->sizes);
    if (out) (input->held == FB_HELD_COMPLEX_DOUBLE ? rows[i].of_double : rows[i].of_float)(out, input);
    return fb_return_array(call, out, result);
}

FB_LOOP_1(angle_of_double, double, double, x != x ? x : x < 0 ? M_PI : 0)
FB_LOOP_1(angle_of_float, float, float, x != x ? x : x < 0 ? (float)M_PI : 0)

/* The angle of a complex number; of a real one 0 or pi. */
static fb_status kernel_angle(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (fb_dtype_is_complex(input->dtype)) return fb_complex_unary(call, input, result);
    fb_dtype dtype = fb_dtype_is_floating(input->dtype) ? input->dtype : FB_FLOAT32;
    fb_array *floats = fb_make_cast(call, input, dtype), *out = fb_make_array(call, dtype, input->rank, input->sizes);
    if (floats && out) (out->held == FB_HELD_DOUBLE ? angle_of_double : angle_of_float)(out, floats);
    fb_array_drop(floats);
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_complex[] = {
    FB_KERNEL_COMPLEX(VIEW_AS_REAL, view_as_real),
    FB_KERNEL_COMPLEX(VIEW_AS_COMPLEX, view_as_complex),
    FB_KERNEL_COMPLEX(REAL, part),
    FB_KERNEL_COMPLEX(IMAG, part),
    FB_KERNEL_COMPLEX(CONJUGATE, conjugate),
    FB_KERNEL_COMPLEX(COMPLEX, complex),
    FB_KERNEL_COMPLEX(POLAR, polar),
    FB_KERNEL_COMPLEX(ANGLE, angle),
    FB_KERNELS_END,
};
