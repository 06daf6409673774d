/* ChangeTrueDivToMulByInverse: replaces a division by a constant with a multiplication by its inverse.
 *
 *     x / 4.0          x * 0.25
 *
 * Matches operator.truediv, torch.div, divide, true_divide, the methods of these names and their ATen operators, on
 * floating-point tensors. The constant must not be zero, inf or nan, and it and its inverse must be normal numbers of the
 * tensor's dtype.
 * Exactness: rounds. Exact for powers of two. Otherwise 1/c is rounded once, and results differ by up to one ULP. Reversible.
 */
#include <math.h>

#include "core/operators/spelling.h"
#include "core/ops/infer.h"
#include "core/passes/pass.h"
#include "core/weights/dtype.h"

static bool is_in_range(double number, const fb_dtype_range *range) {
    return fabs(number) >= range->smallest_normal && fabs(number) <= range->largest;
}

/* False when the numerator's dtype is not one that can be worked on, or too narrow; then it has been refused. */
static bool has_inverse_in_range(fb_matcher *m, const fb_division *division, double divisor) {
    const fb_graph *g = m->graph;
    fb_node n = division->node, x = fb_value_node(g, division->numerator);
    fb_dtype dtype = x.id ? (fb_dtype)fb_node_at(g, x)->dtype : FB_DTYPE_UNKNOWN;
    const char *name = x.id ? fb_node_name(g, x) : "";
    fb_dtype_range range;
    if (!x.id || fb_is_python_number(g, x)) {
        fb_refuse_node(m, "unknown-dtype", n, "what is divided is a Python number, not a tensor");
    } else if (!dtype) {
        fb_refuse_node(m, "unknown-dtype", n, "the dtype of %s is not recorded" FB_RECORD_DTYPE, name);
    } else if (fb_dtype_is_integer(dtype)) {
        fb_refuse_node(m, "integer-tensor", n, "%s is %s; true division makes it floating-point first", name,
                       fb_dtype_name(dtype));
    } else if (!fb_dtype_limits(dtype, &range)) {
        fb_refuse_node(m, "unsupported-dtype", n, "%s is %s", name, fb_dtype_name(dtype));
    } else if (!is_in_range(divisor, &range) || !is_in_range(1.0 / divisor, &range)) {
        fb_refuse_node(m, "inverse-out-of-range", n, "%g or its inverse %g is not a normal number in %s", divisor,
                       1.0 / divisor, fb_dtype_name(dtype));
    } else {
        return true;
    }
    return false;
}

/* Arguments besides numerator, divisor and rounding_mode (`out`, say). */
static bool has_more_arguments(const fb_graph *g, const fb_division *division) {
    const fb_node_row *row = fb_node_at(g, division->node);
    size_t known = division->rounding_mode.id ? 3 : 2;
    return fb_value_at(g, row->args)->count + fb_value_at(g, row->kwargs)->count / 2 != known;
}

static void match(fb_matcher *m, fb_node n) {
    const fb_graph *g = m->graph;
    fb_division division;
    double divisor;
    if (!fb_division_at(g, n, &division) || fb_is_marked(m, n)) return;
    if (!fb_value_is_number(g, division.divisor, &divisor)) {
        fb_kind kind = fb_value_kind(g, division.divisor);
        if (kind == FB_TRUE || kind == FB_FALSE || kind == FB_BIG_INT || kind == FB_COMPLEX) {
            fb_refuse_node(m, "unsupported-constant", n, "the divisor is neither a 64-bit int nor a float");
        }
    } else if (division.rounding_mode.id && fb_value_kind(g, division.rounding_mode) != FB_NONE) {
        fb_refuse_node(m, "rounding-mode", n, "a multiplication cannot replace a division that rounds");
    } else if (has_more_arguments(g, &division)) {
        fb_refuse_node(m, "unsupported-arguments", n, "it has arguments besides input, other and rounding_mode");
    } else if (divisor == 0) {
        fb_refuse_node(m, "division-by-zero", n, "zero has no inverse");
    } else if (!isfinite(divisor)) {
        fb_refuse_node(m, "non-finite-divisor", n, "inf and nan have no inverse");
    } else if (has_inverse_in_range(m, &division, divisor)) {
        fb_match_found(m, &n, 1);
    }
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node n = match->nodes[0];
    fb_division division;
    double divisor;
    if (!fb_division_at(g, n, &division) || !fb_value_is_number(g, division.divisor, &divisor)) return;
    fb_set_argument(rw, n, "other", fb_make_float(g, 1.0 / divisor));
    fb_remove_argument(rw, n, "rounding_mode");
    switch (division.form) {
    case FB_DIVISION_OPERATOR: fb_set_target(rw, n, FB_CALL_FUNCTION, FB_TARGET_MUL); break;
    case FB_DIVISION_FUNCTION: fb_set_target(rw, n, FB_CALL_FUNCTION, FB_TARGET_MUL_FUNCTION); break;
    case FB_DIVISION_ATEN: fb_set_target(rw, n, FB_CALL_FUNCTION, FB_TARGET_MUL_ATEN); break;
    case FB_DIVISION_ATEN_SCALAR: fb_set_target(rw, n, FB_CALL_FUNCTION, FB_TARGET_MUL_ATEN_SCALAR); break;
    case FB_DIVISION_METHOD: fb_set_target(rw, n, FB_CALL_METHOD, FB_TARGET_MUL_METHOD); break;
    }
    fb_mark(rw, n);
}

const fb_pass fb_change_true_div_to_mul_by_inverse = {
    .name = "ChangeTrueDivToMulByInverse",
    .version = 1,
    .summary = "Replaces a division of a floating-point tensor by a constant with a multiplication by its inverse.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .gain = FB_GAIN_SAME,
    .reversible = true,
    .preserves_computation = true,
    .match = match,
    .edit = edit,
};
