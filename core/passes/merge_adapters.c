/* MergeAdapters: a Linear and a low-rank branch beside it, whose results are added, become one Linear.
 *
 *     x ──┬── Linear W ──────────────── + ── y          x ── Linear W' ── y
 *         └── Linear A ── Linear B ── * s ┘
 *
 *     W' = W + s · B A,   b' = b + s · (B a + c)       with the biases b of W, a of A and c of B
 *
 * An adapter as LoRA adds it (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1), not merged.
 * The branch is added or subtracted, in place or not. Numbers may scale it before, between and behind its two Linears: of
 * these s is the product, and a bias takes those behind it. Reshapes that keep the last dimension may be anywhere. Modules and
 * functions, packed ones too, in any combination; the result is spelled as the Linear of W. Of several adapters of one Linear,
 * each run of the pass merges one.
 *
 * Nothing else may read the values between x and y, or call one of the modules. All must have one dtype. Dropout in the branch
 * must be gone: RemoveNoOps removes it in eval mode. Where the numbers are known, no new weight or bias may overflow.
 *
 * W' is trained where W is, also if the adapter alone was trained: roll back to train that.
 * Exactness: rounds each weight once. Reversible until the new weight is trained: a sum cannot be taken apart. Rollback is
 * exact.
 */
#include <math.h>

#include "core/analysis/rearrange.h"
#include "core/pass/layer.h"
#include "core/pass/pass.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe.h"

enum { MAX_CALLS = 10 }; /* of a branch: its two Linears, a view, and scalings */

typedef struct adapter {
    fb_node sum, term; /* term: what the sum reads of W: its result, or a view of that */
    fb_linear base, down, up;
    fb_node calls[MAX_CALLS];     /* of the branch, last first */
    size_t inner, count;          /* those that only the branch needs, up to A; and all */
    double scale, of_down, of_up; /* the product of the factors; of those behind A; of those behind B. Below 0: subtracted */
} adapter;

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

/* x * c, c * x, x / c: a number that is written in the graph. */
static bool is_scaling(const fb_graph *g, fb_node n, fb_node *x, double *factor) {
    fb_division division;
    fb_value value, number;
    if (fb_argument_count(g, n) != 2) return false;
    bool is_division = fb_division_at(g, n, &division);
    if (!is_division && !fb_op_is(g, n, FB_OP_MUL)) return false;
    value = is_division ? division.numerator : fb_call_argument(g, n, "input");
    number = is_division ? division.divisor : fb_call_argument(g, n, "other");
    if (!is_division && value.id && !fb_value_node(g, value).id) {
        fb_value other = number;
        number = value;
        value = other;
    }
    *x = fb_value_node(g, value);
    if (!x->id || !number.id || !fb_value_is_number(g, number, factor)) return false;
    if (is_division) *factor = 1 / *factor;
    return true;
}

static bool add_call(adapter *a, fb_node call) {
    if (a->count == MAX_CALLS) return false;
    a->calls[a->count++] = call;
    return true;
}

/* A reshape that keeps the last dimension, and so the rows on which Linears work. */
static bool is_view_of_rows(const fb_graph *g, fb_node n, fb_node *of) {
    fb_rearrange view;
    fb_type from, to;
    if (!fb_rearrange_at(g, n, &view) || view.form != FB_REARRANGE_RESHAPE) return false;
    bool keeps_rows = fb_recorded_shape(g, view.input, &from) && fb_recorded_shape(g, n, &to) && from.rank > 0 && to.rank > 0 &&
                      fb_dim_equal(from.sizes[from.rank - 1], to.sizes[to.rank - 1]);
    if (keeps_rows) *of = view.input;
    return keeps_rows;
}

static fb_node before_views(const fb_graph *g, fb_node n) {
    for (int step = 0; step < MAX_CALLS && is_view_of_rows(g, n, &n); step++) continue;
    return n;
}

/* Skips scalings and views of the branch, back to `end`. */
static bool skip(const fb_graph *g, adapter *a, fb_node *at, fb_node end) {
    fb_node x;
    while (at->id != end.id) {
        double factor = 1;
        if (!is_scaling(g, *at, &x, &factor) && !is_view_of_rows(g, *at, &x)) return true;
        if (!add_call(a, *at)) return false;
        a->scale *= factor;
        *at = x;
    }
    return true;
}

/* The Linear that gives the value, which the branch goes through. */
static bool take_linear(const fb_graph *g, adapter *a, fb_node *at, fb_linear *linear) {
    if (!fb_linear_at(g, *at, linear) || !linear->input.id) return false;
    *at = linear->input;
    return add_call(a, linear->node);
}

static bool adapter_of(const fb_graph *g, fb_node term, fb_node branch, double sign, adapter *a) {
    const fb_node none = {0};
    if (!term.id || !branch.id || !fb_linear_at(g, before_views(g, term), &a->base) || !a->base.input.id) return false;
    fb_node end = before_views(g, a->base.input), at = branch;
    a->term = term;
    a->count = 0;
    a->scale = sign;
    if (!skip(g, a, &at, none)) return false;
    a->of_up = a->scale;
    if (!take_linear(g, a, &at, &a->up) || !skip(g, a, &at, none)) return false;
    a->of_down = a->scale;
    if (!take_linear(g, a, &at, &a->down)) return false;
    a->inner = a->count;
    return skip(g, a, &at, end) && at.id == end.id;
}

static bool adapter_at(const fb_graph *g, fb_node n, adapter *a) {
    fb_op op = fb_node_op(g, n);
    bool is_difference = fb_op_facts_of(op)->arithmetic == FB_ARITHMETIC_SUB;
    if (!fb_op_may_be_sum(op) || fb_argument_count(g, n) != 2) return false;
    fb_node first = fb_call_argument_node(g, n, "input"), second = fb_call_argument_node(g, n, "other");
    a->sum = n;
    return adapter_of(g, first, second, is_difference ? -1 : 1, a) || (!is_difference && adapter_of(g, second, first, 1, a));
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

static bool has_dtype(const fb_graph *g, const fb_linear *linear, fb_dtype dtype) {
    bool is_bias_alike = !linear->bias.id || (fb_dtype)fb_tensor_at(g, linear->bias)->dtype == dtype;
    return linear->dtype == dtype && is_bias_alike;
}

static bool has_one_dtype(const fb_graph *g, const adapter *a, fb_dtype dtype) {
    bool is_one = has_dtype(g, &a->base, dtype) && has_dtype(g, &a->down, dtype) && has_dtype(g, &a->up, dtype) &&
                  fb_node_at(g, a->sum)->dtype == dtype && fb_node_at(g, a->base.node)->dtype == dtype;
    for (size_t i = 0; i < a->count; i++) is_one &= fb_node_at(g, a->calls[i])->dtype == dtype;
    return is_one;
}

static fb_obstacle fit_obstacle(const fb_graph *g, const adapter *a) {
    fb_dtype dtype = a->base.dtype;
    fb_value shape = fb_node_at(g, a->term)->shape, other = fb_node_at(g, a->calls[0])->shape;
    if (!shape.id || !other.id)
        return (fb_obstacle){"unknown-shape", "the shapes of what is added are not recorded" FB_RECORD_SHAPE};
    if (shape.id != other.id) return (fb_obstacle){"shape-mismatch", "what is added has different shapes"};
    if (a->down.in_features != a->base.in_features || a->up.in_features != a->down.out_features ||
        a->up.out_features != a->base.out_features)
        return (fb_obstacle){"shape-mismatch", "the branch takes or gives other sizes than the Linear"};
    if (!isfinite(a->scale) || a->scale == 0)
        return (fb_obstacle){"unsupported-constant", "the branch is scaled by 0, or by what is not finite"};
    if (!has_one_dtype(g, a, dtype))
        return (fb_obstacle){"dtype", "their weights, biases and results are not of one dtype, or it is not recorded"};
    if (!fb_dtype_is_computed(dtype))
        return (fb_obstacle){"unsupported-dtype", "nothing is computed with weights of that dtype"};
    if (a->base.training || a->down.training || a->up.training)
        return (fb_obstacle){"training-mode", "one of the Linears is in training mode"};
    return FB_NO_OBSTACLE;
}

static bool is_read_elsewhere(const fb_graph *g, const adapter *a) {
    bool is = false;
    fb_node reader = a->sum, of;
    for (fb_node n = a->term; !is; n = of) {
        is |= !fb_is_read_by(g, n, reader);
        if (n.id == a->base.node.id || !is_view_of_rows(g, n, &of)) break;
        reader = n;
    }
    for (size_t i = 0; i < a->inner; i++) is |= !fb_is_read_by(g, a->calls[i], i ? a->calls[i - 1] : a->sum);
    return is;
}

static fb_obstacle range_obstacle(fb_matcher *m, const adapter *a) {
    const fb_layer base = fb_linear_layer(&a->base), down = fb_linear_layer(&a->down), up = fb_linear_layer(&a->up);
    fb_dtype dtype = a->base.dtype;
    double rank = (double)a->up.in_features, scale = fabs(a->scale), each = fb_layer_largest_weight(m, &up, dtype);
    double weight = fb_layer_largest_weight(m, &base, dtype) + scale * rank * each * fb_layer_largest_weight(m, &down, dtype);
    double bias = fb_layer_largest_bias(m, &base, dtype) + fabs(a->of_up) * fb_layer_largest_bias(m, &up, dtype) +
                  fabs(a->of_down) * rank * each * fb_layer_largest_bias(m, &down, dtype);
    return fb_range_obstacle(dtype, fmax(weight, bias));
}

static fb_obstacle obstacle_of(fb_matcher *m, const adapter *a) {
    const fb_layer layers[] = {fb_linear_layer(&a->base), fb_linear_layer(&a->down), fb_linear_layer(&a->up)};
    fb_node calls[MAX_CALLS + 2] = {a->base.node, a->sum};
    for (size_t i = 0; i < a->count; i++) calls[i + 2] = a->calls[i];
    if (is_read_elsewhere(m->graph, a))
        return (fb_obstacle){"shared-output", "something else reads a value between the input and the sum"};
    for (size_t i = 0; i < 3; i++) {
        if (fb_layer_call_count(m->usage, &layers[i]) > 1)
            return (fb_obstacle){"shared-module", "the module of one of the Linears is called more than once"};
        fb_obstacle obstacle = fb_layer_obstacle(m, &layers[i]);
        if (obstacle.code) return obstacle;
    }
    fb_obstacle obstacle = fit_obstacle(m->graph, a);
    if (!obstacle.code) obstacle = fb_disturbance(m, calls, a->count + 2);
    return obstacle.code ? obstacle : range_obstacle(m, a);
}

static void match(fb_matcher *m, fb_node n) {
    adapter a;
    if (!adapter_at(m->graph, n, &a)) return;
    fb_obstacle obstacle = obstacle_of(m, &a);
    const fb_node nodes[] = {a.base.node, a.down.node, a.up.node, n};
    if (obstacle.code) fb_refuse_for(m, obstacle, nodes, 4);
    else fb_match_found_as(m, &a, sizeof a);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static fb_value scaled(fb_graph *g, double scale, fb_value recipe) {
    return scale == 1 ? recipe : fb_recipe_mul(g, recipe, fb_recipe_full(g, NULL, 0, fb_make_float(g, scale)));
}

/* The weight as (inputs, outputs), or the other way round. */
static fb_value weight_of(fb_graph *g, const fb_linear *linear, bool is_packed) {
    static const int64_t exchanged[] = {1, 0};
    const fb_layer layer = fb_linear_layer(linear);
    fb_value weight = fb_layer_weight(g, &layer);
    return linear->is_packed == is_packed ? weight : fb_recipe_permute(g, weight, exchanged, 2);
}

/* B A as the Linear holds its weight. */
static fb_value product(fb_graph *g, const adapter *a) {
    bool is_packed = a->base.is_packed;
    fb_value down = weight_of(g, &a->down, is_packed), up = weight_of(g, &a->up, is_packed);
    return is_packed ? fb_recipe_matmul(g, down, up) : fb_recipe_matmul(g, up, down);
}

static fb_value added(fb_graph *g, fb_value a, fb_value b) {
    return a.id && b.id ? fb_recipe_add(g, a, b) : a.id ? a : b;
}

/* The sum that the branch's biases add; none without biases. */
static fb_value shift(fb_graph *g, const adapter *a) {
    const fb_layer down = fb_linear_layer(&a->down), up = fb_linear_layer(&a->up);
    fb_value of_down = {0}, of_up = {0};
    if (down.bias.id) of_down = scaled(g, a->of_down, fb_linear_times(g, &a->up, fb_layer_bias(g, &down)));
    if (up.bias.id) of_up = scaled(g, a->of_up, fb_layer_bias(g, &up));
    return added(g, of_down, of_up);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const adapter *a = match->data;
    const fb_layer base = fb_linear_layer(&a->base);
    fb_value weight = fb_recipe_add(g, fb_layer_weight(g, &base), scaled(g, a->scale, product(g, a))), moved = shift(g, a);
    if (moved.id && base.bias.id) moved = added(g, fb_layer_bias(g, &base), moved);
    fb_layer_set_weight(rw, &base, weight);
    if (moved.id) fb_layer_set_bias(rw, &base, moved);
    fb_node merged = fb_call_again(rw, a->base.node);
    for (size_t i = a->count; i-- > 0;) {
        if (i >= a->inner) {
            fb_erase_unread(rw, a->calls[i]);
            continue;
        }
        fb_release_reads(rw, a->calls[i]);
        fb_erase_call(rw, a->calls[i]);
    }
    fb_absorb(rw, a->sum, a->term.id == a->base.node.id ? merged : a->term);
    fb_mark(rw, merged);
}

const fb_pass fb_merge_adapters = {
    .name = "MergeAdapters",
    .version = 1,
    .summary = "Merges a low-rank branch beside a Linear, as LoRA adds it (`W x + s * B(A x)`), into that Linear.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = true,
    .preserves_computation = true,
    .begins_at = fb_op_may_be_sum,
    .match = match,
    .edit = edit,
};
