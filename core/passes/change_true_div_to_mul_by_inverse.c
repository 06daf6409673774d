/* ChangeTrueDivToMulByInverse: replaces a division by a constant with a multiplication by its inverse.
 *
 *     x / 4.0          x * 0.25
 *
 * Matches operator.truediv, torch.div, divide, true_divide, the methods of these names and their ATen operators, and ONNX's
 * Div, on tensors. The constant must not be zero, inf or nan. It and its inverse must be normal numbers of the result's dtype,
 * or of float16 where that is not recorded.
 *
 * Exactness: rounds. Exact for powers of two. Otherwise 1/c is rounded once, and results differ by up to one ULP. Reversible.
 */
#include <math.h>

#include "core/analysis/infer.h"
#include "core/analysis/onnx.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/weights/dtype.h"

static bool is_in_range(double number, const fb_dtype_range *range) {
    return fabs(number) >= range->smallest_normal && fabs(number) <= range->largest;
}

/* The dtype in whose range the divisor and its inverse must be. PyTorch promotes a division and a multiplication by a float
 * alike to the result's dtype; where that is not known, float16 has the narrowest range. Version 1 asked for a floating
 * numerator. FB_DTYPE_UNKNOWN: it has been refused. */
static fb_dtype dtype_of_result(fb_matcher *m, const fb_division *division) {
    const fb_graph *g = m->graph;
    fb_node n = division->node, x = fb_value_node(g, division->numerator);
    fb_dtype dtype = x.id ? (fb_dtype)fb_node_at(g, x)->dtype : FB_DTYPE_UNKNOWN, result = (fb_dtype)fb_node_at(g, n)->dtype;
    bool is_integer = fb_dtype_is_integer(dtype), is_promoted = m->report->pass->version > 1;
    if (!x.id || fb_is_python_number(g, x)) {
        fb_refuse_node(m, "unknown-dtype", n, "what is divided is a Python number, not a tensor");
    } else if (!dtype && !(is_promoted && fb_is_surely_tensor(g, x))) {
        fb_refuse_node(m, "unknown-dtype", n, "the dtype of %s is not recorded" FB_RECORD_DTYPE, fb_node_name(g, x));
    } else if (is_integer && !is_promoted) {
        fb_refuse_node(m, "integer-tensor", n, "%s is %s; true division makes it floating-point first", fb_node_name(g, x),
                       fb_dtype_name(dtype));
    } else if (dtype && !is_integer) {
        return dtype;
    } else {
        return result && !fb_dtype_is_integer(result) ? result : FB_FLOAT16;
    }
    return FB_DTYPE_UNKNOWN;
}

typedef struct found {
    fb_division division;
    double divisor;
} found;

/* False when it has been refused. */
static bool has_inverse_in_range(fb_matcher *m, const found *f) {
    const fb_division *division = &f->division;
    double divisor = f->divisor;
    fb_dtype dtype = dtype_of_result(m, division);
    fb_dtype_range range;
    if (!dtype) return false;
    if (!fb_dtype_limits(dtype, &range)) {
        fb_refuse_node(m, "unsupported-dtype", division->node, "%s is %s",
                       fb_node_name(m->graph, fb_value_node(m->graph, division->numerator)), fb_dtype_name(dtype));
    } else if (!is_in_range(divisor, &range) || !is_in_range(1.0 / divisor, &range)) {
        fb_refuse_node(m, "inverse-out-of-range", division->node, "%g or its inverse %g is not a normal number in %s", divisor,
                       1.0 / divisor, fb_dtype_name(dtype));
    } else {
        return true;
    }
    return false;
}

/* Arguments besides numerator, divisor and rounding_mode (`out`, say). */
static bool has_more_arguments(const fb_graph *g, const fb_division *division) {
    size_t known = division->rounding_mode.id ? 3 : 2;
    return fb_argument_count(g, division->node) != known;
}

/* Of ONNX a constant of one element; not of integers, whose quotient is cut off. */
static bool read_divisor(const fb_graph *g, const fb_division *division, double *divisor) {
    if (division->form != FB_DIVISION_ONNX) return fb_value_is_number(g, division->divisor, divisor);
    fb_node read = fb_value_node(g, division->divisor);
    return read.id && fb_dtype_is_computed((fb_dtype)fb_node_at(g, read)->dtype) &&
           fb_onnx_number(g, division->divisor, divisor);
}

static void match(fb_matcher *m, fb_node n) {
    const fb_graph *g = m->graph;
    found f;
    const fb_division *division = &f.division;
    if (!fb_division_at(g, n, &f.division) || fb_is_marked(m, n)) return;
    if (!read_divisor(g, division, &f.divisor)) {
        fb_kind kind = fb_value_kind(g, division->divisor);
        if (kind == FB_TRUE || kind == FB_FALSE || kind == FB_BIG_INT || kind == FB_COMPLEX) {
            fb_refuse_node(m, "unsupported-constant", n, "the divisor is neither a 64-bit int nor a float");
        }
    } else if (division->rounding_mode.id && fb_value_kind(g, division->rounding_mode) != FB_NONE) {
        fb_refuse_node(m, "rounding-mode", n, "a multiplication cannot replace a division that rounds");
    } else if (has_more_arguments(g, division)) {
        fb_refuse_node(m, "unsupported-arguments", n, "it has arguments besides input, other and rounding_mode");
    } else if (f.divisor == 0) {
        fb_refuse_node(m, "division-by-zero", n, "zero has no inverse");
    } else if (!isfinite(f.divisor)) {
        fb_refuse_node(m, "non-finite-divisor", n, "inf and nan have no inverse");
    } else if (has_inverse_in_range(m, &f)) {
        fb_match_found_as(m, &f, sizeof f);
    }
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const found *f = match->data;
    const fb_division *division = &f->division;
    fb_node n = division->node;
    double inverse = 1.0 / f->divisor;
    if (division->form == FB_DIVISION_ONNX) {
        fb_value factor = fb_make_node(g, fb_build_constant(rw, n, fb_value_node(g, division->divisor), inverse));
        fb_release_reads(rw, n);
        fb_build_over(rw, n, FB_MADE_MUL, FB_ARGS(g, division->numerator, factor), FB_VALUE_EMPTY_MAP);
        fb_mark(rw, n);
        return;
    }
    fb_set_argument(rw, n, "other", fb_make_float(g, inverse));
    fb_remove_argument(rw, n, "rounding_mode");
    switch (division->form) {
    case FB_DIVISION_OPERATOR: fb_set_target(rw, n, FB_CALL_FUNCTION, FB_TARGET_MUL); break;
    case FB_DIVISION_FUNCTION: fb_set_target(rw, n, FB_CALL_FUNCTION, FB_TARGET_MUL_FUNCTION); break;
    case FB_DIVISION_ATEN: fb_set_target(rw, n, FB_CALL_FUNCTION, FB_TARGET_MUL_ATEN); break;
    case FB_DIVISION_ATEN_SCALAR: fb_set_target(rw, n, FB_CALL_FUNCTION, FB_TARGET_MUL_ATEN_SCALAR); break;
    case FB_DIVISION_ONNX: break;
    case FB_DIVISION_METHOD: fb_set_target(rw, n, FB_CALL_METHOD, FB_TARGET_MUL_METHOD); break;
    }
    fb_mark(rw, n);
}

#define CHANGE_TRUE_DIV(number, before)                                                                                        \
    {                                                                                                                          \
        .name = "ChangeTrueDivToMulByInverse", .version = number, .earlier = before,                                           \
        .summary = "Replaces a division of a tensor by a constant with a multiplication by its inverse.",                      \
        .parameters = FB_NO_PARAMETERS, .exactness = FB_ROUNDS, .gain = FB_GAIN_SAME, .reversible = true,                      \
        .preserves_computation = true, .reads_onnx = true, .begins_at = fb_op_may_be_division, .match = match, .edit = edit,   \
    }

static const fb_pass version_1 = CHANGE_TRUE_DIV(1, NULL);
const fb_pass fb_change_true_div_to_mul_by_inverse = CHANGE_TRUE_DIV(2, &version_1);
