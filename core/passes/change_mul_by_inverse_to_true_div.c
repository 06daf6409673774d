/* ChangeMulByInverseToTrueDiv: replaces a multiplication by an inverse in an ONNX model with a division.
 *
 *     1 ── Div x ──┬── Mul y          y ── Div x
 *                                     also of Reciprocal x
 *
 * Norms without a mean are exported like this. Nothing else may read the inverse. The quotient is rounded once, and the product
 * was twice; where the inverse overflowed, as of a subnormal number, the quotient may be finite, as it would be if all was
 * computed in float64. So float64 itself stays; and integers, whose quotients are cut. Exactness: rounds. Reversible.
 */
#include "core/analysis/infer.h"
#include "core/analysis/onnx.h"
#include "core/analysis/onnx_types.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"

typedef struct quotient {
    fb_node inverse;
    fb_value numerator, divisor;
} quotient;

static int rank_of(const fb_graph *g, fb_value value) {
    fb_shape_result shape;
    fb_node node = fb_value_node(g, value);
    return node.id && fb_recorded_shape(g, node, &shape) ? shape.rank : -1;
}

/* 1 / x. The one has no dimension that x lacks. */
static bool is_inverse(const fb_graph *g, fb_node n, fb_value *divisor) {
    double one;
    *divisor = fb_node_arg(g, n, fb_op_is(g, n, FB_OP_RECIPROCAL) ? 0 : 1);
    if (fb_op_is(g, n, FB_OP_RECIPROCAL)) return divisor->id;
    fb_value numerator = fb_node_arg(g, n, 0);
    if (!fb_op_is(g, n, FB_OP_DIV) || !divisor->id || !fb_onnx_number(g, numerator, &one) || one != 1) return false;
    int rank = rank_of(g, numerator);
    return rank == 0 || (rank > 0 && rank <= rank_of(g, *divisor));
}

static bool find(const fb_graph *g, fb_node n, quotient *f) {
    fb_dtype dtype = (fb_dtype)fb_node_at(g, n)->dtype;
    if (!fb_op_is(g, n, FB_OP_MUL) || !fb_dtype_is_computed(dtype) || dtype == FB_FLOAT64) return false;
    for (size_t i = 0; i < 2; i++) {
        f->numerator = fb_node_arg(g, n, 1 - i);
        f->inverse = fb_arg_node(g, n, i);
        if (!f->inverse.id || !f->numerator.id || fb_node_at(g, f->inverse)->user_count != 1) continue;
        if (fb_value_node(g, f->numerator).id != f->inverse.id && is_inverse(g, f->inverse, &f->divisor)) return true;
    }
    return false;
}

static void match_onnx(fb_matcher *m) {
    const fb_graph *g = m->graph;
    quotient f;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        if (!find(g, n, &f) || fb_is_marked(m, n)) continue;
        fb_obstacle obstacle = fb_effect_obstacle(g, f.inverse);
        if (!obstacle.code) obstacle = fb_effect_obstacle(g, n);
        if (obstacle.code) fb_refuse_for(m, obstacle, &n, 1);
        else fb_match_found(m, &n, 1);
    }
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node n = match->nodes[0];
    quotient f;
    if (!find(g, n, &f)) return;
    fb_release_reads(rw, f.inverse);
    fb_erase_unread(rw, f.inverse);
    fb_build_over(rw, n, FB_MADE_DIV, FB_ARGS(g, f.numerator, f.divisor), FB_VALUE_EMPTY_MAP);
    fb_mark(rw, n);
}

const fb_pass fb_change_mul_by_inverse_to_true_div = {
    .name = "ChangeMulByInverseToTrueDiv",
    .version = 1,
    .summary = "Replaces a multiplication by the inverse of a value of an ONNX model with a division.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = fb_match_nothing,
    .match_onnx = match_onnx,
    .edit = edit,
};
