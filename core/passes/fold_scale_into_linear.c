/* FoldScaleIntoLinear: folds a constant factor or addend before or after a Linear or convolution into its weight
 * and bias.
 *
 *     x ── Linear ── * c ── y                          x ── Linear' ── y         W' = c W, b' = c b
 *     x ── Linear ── + c ── y                          x ── Linear' ── y         b' = b + c
 *     x ── * c ── Linear ── y                          x ── Linear' ── y         W' = c W
 *     x ── + c ── Linear ── y                          x ── Linear' ── y         b' = b + W·c
 *     x ── Linear ── view ── @ k ── / √d ── y          x ── Linear' ── view ── @ k ── y
 *
 * c is a number, or a weight with one number for each channel. The pass also finds a number after the layer behind views and
 * as a factor of a product's left side: this folds 1/√d into the query projection. The views and the product in between become
 * new nodes. Several constants after a layer (l(x) * 2 + 3) are folded together. Divisions, differences and packed Linears are
 * supported, too. A convolution with padding takes no addend before it.
 *
 * Conditions:
 *   - Nothing else reads the values between the two, except for their shape. None of these values is an output or has another
 *     dtype.
 *   - The layer is called once.
 *   - c is finite, never written, and not 0 as a factor. A weight as a divisor must have its bytes in the document, without a
 *     zero.
 *   - In float16, c must be a factor of 1/16 to 1 (a divisor of 1 to 16), or an addend below 16 after the layer: W is unknown,
 *     and c W must neither overflow nor vanish.
 *   - In other dtypes, c must be between the square roots of the least normal and the largest number (2^-63 to 2^64 in float32
 *     and bfloat16), unless it is an addend after the layer.
 *
 * Exactness: rounds. Not reversible.
 */
#include <math.h>

#include "core/analysis/infer.h"
#include "core/analysis/shape.h"
#include "core/analysis/view.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"
#include "core/pass/pass.h"
#include "core/pass/views.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe.h"

typedef struct constant_call {
    fb_node node, input;
    fb_arithmetic form;
    fb_value number; /* an int or a float; or none, */
    fb_node read;    /* and a get_attr node reads the constant */
    fb_tensor tensor;
} constant_call;

/* ---- scaling and shifting by constants: x * c, x / c, x + c, x - c ------------------------------------------------------- */

/* Neither in place nor b - a. */
static bool form_of(fb_op op, fb_arithmetic *form) {
    *form = (fb_arithmetic)fb_op_facts_of(op)->arithmetic;
    return *form && *form <= FB_ARITHMETIC_TRUE_DIVIDE && *form != FB_ARITHMETIC_REVERSED_SUB && !(op & FB_OP_IN_PLACE);
}

static bool read_constant(const fb_graph *graph, fb_value value, constant_call *affine) {
    double ignored;
    if (fb_value_is_number(graph, value, &ignored)) {
        affine->number = value;
        return true;
    }
    return fb_tensor_read_by(graph, value, &affine->read, &affine->tensor);
}

/* Not in place, and without alpha or rounding_mode. */
static bool affine_at(const fb_graph *graph, fb_node node, constant_call *affine) {
    constant_call found = {.node = node};
    if (!form_of(fb_node_op(graph, node), &found.form)) return false;
    fb_value a, b;
    if (!fb_two_operands(graph, node, &a, &b)) return false;
    bool commutes = found.form == FB_ARITHMETIC_MUL || found.form == FB_ARITHMETIC_ADD;
    for (int i = 0; i < (commutes ? 2 : 1); i++) {
        fb_value x = i ? b : a, constant = i ? a : b;
        found.input = fb_value_node(graph, x);
        if (!found.input.id || fb_node_at(graph, found.input)->opcode == FB_GET_ATTR) continue;
        if (!read_constant(graph, constant, &found)) continue;
        *affine = found;
        return true;
    }
    return false;
}

/* The input whose multiplication by a number multiplies the result by it: of a view, x; of x @ y, x. None for other calls. */
static fb_node scaled_input(const fb_graph *graph, fb_node node) {
    switch (fb_node_op(graph, node)) {
    case FB_OP_VIEW:
    case FB_OP_UNSAFE_VIEW:
    case FB_OP_RESHAPE:
    case FB_OP_FLATTEN:
    case FB_OP_UNFLATTEN:
    case FB_OP_PERMUTE:
    case FB_OP_TRANSPOSE:
    case FB_OP_T:
    case FB_OP_NUMPY_T:
    case FB_OP_UNSQUEEZE:
    case FB_OP_SQUEEZE:
    case FB_OP_EXPAND:
    case FB_OP_CONTIGUOUS:
    case FB_OP_CLONE:
    case FB_OP_MATMUL:
    case FB_OP_MM:
    case FB_OP_BMM: break;
    default: return fb_view_input(graph, node, NULL);
    }
    fb_node input = fb_call_argument_node(graph, node, "input");
    return input.id && fb_mentions_of(graph, node, input) == 1 ? input : (fb_node){0};
}

/* A fold of a constant factor or addend into a layer's weight and bias. */

typedef struct scale_fold {
    constant_call affine;
    fb_host host;
    bool is_after;  /* the constant comes after the host */
    bool is_direct; /* … without a view or product between */
} scale_fold;

#define ROW_MAX 16 /* constants that go into a layer at once */

/* A match: a call of a layer, and the constants that go into it, in their order. */
typedef struct scale_row {
    fb_node call, constants[ROW_MAX];
    size_t count;
} scale_row;

/* The constant without dimensions, or by channel. */
static fb_value constant_of(fb_graph *g, const constant_call *affine) {
    if (affine->number.id) return fb_recipe_full(g, NULL, 0, affine->number);
    fb_value shape = fb_tensor_at(g, affine->tensor)->shape;
    int64_t count = 1;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) count *= fb_shape_size(g, shape, i);
    return fb_recipe_reshape(g, fb_recipe_tensor(g, affine->tensor), &count, count == 1 ? 0 : 1);
}

static fb_value by_channel(fb_graph *g, fb_value constant, int64_t channels) {
    return fb_recipe_mul(g, fb_recipe_full(g, &channels, 1, fb_make_float(g, 1)), constant);
}

static void scale(fb_rewrite *rw, const scale_fold *fold, fb_value factor) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_layer_set_weight(rw, &fold->host.layer,
                        fold->is_after ? fb_host_scale_outputs(g, &fold->host, factor)
                                       : fb_host_scale_inputs(g, &fold->host, factor));
    if (fold->is_after && fold->host.layer.bias.id)
        fb_layer_set_bias(rw, &fold->host.layer, fb_recipe_mul(g, fb_layer_bias(g, &fold->host.layer), factor));
}

/* The host's channels, where it meets the constant. */
static int64_t channels_of(const scale_fold *fold) {
    return fold->is_after ? fold->host.outputs : fold->host.inputs;
}

static void shift(fb_rewrite *rw, const scale_fold *fold, fb_value addend) {
    fb_graph *g = fb_rewrite_graph(rw);
    addend = by_channel(g, addend, channels_of(fold));
    if (!fold->is_after) addend = fb_host_times(g, &fold->host, addend);
    if (fold->host.layer.bias.id) addend = fb_recipe_add(g, fb_layer_bias(g, &fold->host.layer), addend);
    fb_layer_set_bias(rw, &fold->host.layer, addend);
}

/* The layer's new weight and bias, as recipes set. */
static void scale_fold_edit(fb_rewrite *rw, const scale_fold *fold) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value constant = constant_of(g, &fold->affine), one = fb_recipe_full(g, NULL, 0, fb_make_float(g, 1));
    switch (fold->affine.form) {
    case FB_ARITHMETIC_MUL: scale(rw, fold, constant); break;
    case FB_ARITHMETIC_TRUE_DIVIDE: scale(rw, fold, fb_recipe_div(g, one, constant)); break;
    case FB_ARITHMETIC_ADD: shift(rw, fold, constant); break;
    default: shift(rw, fold, fb_recipe_neg(g, constant)); break; /* a subtraction */
    }
}

/* Finding a layer beside a constant factor or addend, and obstacles to folding it. */

enum { CHAIN_MAX = 64 }; /* views between a layer and its factor */

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

static bool is_factor(const constant_call *affine) {
    return affine->form == FB_ARITHMETIC_MUL || affine->form == FB_ARITHMETIC_TRUE_DIVIDE;
}

/* A number, or a tensor that is one. */
static bool is_number(const fb_graph *g, const constant_call *affine) {
    return affine->number.id || fb_shape_rank(g, fb_tensor_at(g, affine->tensor)->shape) == 0;
}

/* Is there a layer whose result is scaled or shifted by fold->affine (perhaps some views and a product later), or one that
 * reads what is? Then the fold is filled. */
static bool scale_after_at(const fb_graph *g, scale_fold *fold) {
    fold->is_after = true;
    bool may_climb = is_factor(&fold->affine) && is_number(g, &fold->affine);
    fb_node at = fold->affine.input;
    for (int steps = 0; at.id && steps < CHAIN_MAX; steps++) {
        fold->is_direct = steps == 0;
        if (fb_host_at(g, at, &fold->host)) return true;
        at = may_climb ? scaled_input(g, at) : (fb_node){0};
    }
    return false;
}

static bool scale_before_at(const fb_graph *g, scale_fold *fold) {
    fb_node node = fold->affine.node;
    fold->is_after = false;
    for (uint32_t e = fb_user_first(g, node); e; e = fb_user_next(g, e)) {
        fb_node user = fb_with_bias(g, fb_edge_user(g, e));
        if (fb_host_at(g, user, &fold->host) && fb_layer_input(g, &fold->host.layer, user).id == node.id) return true;
        if (!fb_reads_type_only(g, user)) return false; /* it has another reader, so the rest is not looked at */
    }
    return false;
}

/* Continues from a constant after the layer to the one that alone reads its result; false where there is none, or a layer
 * behind it takes it in. */
static bool scale_next(const fb_graph *g, scale_fold *fold) {
    scale_fold next = *fold, other;
    uint32_t e = fb_user_first(g, fold->affine.node);
    while (e && fb_reads_type_only(g, fb_edge_user(g, e))) e = fb_user_next(g, e);
    fb_node reader = e ? fb_edge_user(g, e) : (fb_node){0};
    if (!reader.id || !affine_at(g, reader, &next.affine)) return false;
    other.affine = next.affine;
    if (scale_before_at(g, &other)) return false;
    if (!fold->is_direct && !(is_factor(&next.affine) && is_number(g, &next.affine))) return false;
    *fold = next;
    return true;
}

/* The fold of these two nodes, which one of the above has found. */
static bool scale_fold_of(const fb_graph *g, fb_node affine, fb_node call, scale_fold *fold) {
    fold->is_after = fb_node_at(g, call)->ordinal < fb_node_at(g, affine)->ordinal;
    return affine_at(g, affine, &fold->affine) && fb_host_at(g, call, &fold->host);
}

/* ---- the constant -------------------------------------------------------------------------------------------------------- */

/* Its dimensions, counted from the last: all 1, but for the channels. And it must not add dimensions to the value. */
static bool fits(const fb_graph *g, const scale_fold *fold) {
    fb_value shape = fb_tensor_at(g, fold->affine.tensor)->shape, value = fb_node_at(g, fold->affine.input)->shape;
    int rank = fb_shape_rank(g, shape), least = fold->host.is_linear ? 1 : fold->host.conv.spatial + 1; /* that the value has */
    bool is_one = true;
    for (int i = 0; i < rank; i++) {
        int64_t size = fb_shape_size(g, shape, i);
        if (size != 1 && (i != rank - least || size != channels_of(fold))) return false;
        is_one &= size == 1;
    }
    if (rank > least && fb_shape_rank(g, value) < rank) return false;
    return is_one || fold->is_after || fb_shape_size(g, value, -least) == channels_of(fold);
}

/* In float16 the layer's weight times the constant can leave the narrow range though the layer's result never does: the
 * weight's numbers are not known here, or will be trained. So a factor is at most 1, and not so small that weights vanish; and
 * an addend is less than half the distance between the largest numbers, so that it cannot lift a bias over the end. */
static bool keeps_float16(const scale_fold *fold, double least, double largest) {
    if (fold->host.dtype != FB_FLOAT16) return true;
    switch (fold->affine.form) {
    case FB_ARITHMETIC_MUL: return largest <= 1 && least >= 1.0 / 16;
    case FB_ARITHMETIC_TRUE_DIVIDE: return least >= 1 && largest <= 16;
    default: return fold->is_after && largest < 16;
    }
}

/* The layer's numbers are not known. A constant between the square roots of the least and the largest number neither overflows
 * nor vanishes with any weight in the same range. An addend after the layer only meets its bias. */
static bool keeps_weights(const scale_fold *fold, const fb_dtype_range *range, double least, double largest) {
    if (!is_factor(&fold->affine)) return fold->is_after || largest <= sqrt(range->largest);
    return largest <= sqrt(range->largest) && (least == 0 || least >= sqrt(range->smallest_normal));
}

/* Why a constant with absolute values between these is refused: it, or its inverse where it divides, is not a normal number. */
static fb_obstacle range_obstacle(const scale_fold *fold, double least, double largest) {
    fb_dtype_range range = {0};
    bool divides = fold->affine.form == FB_ARITHMETIC_TRUE_DIVIDE;
    bool is_in_range =
        fb_dtype_limits(fold->host.dtype, &range) && largest <= range.largest && (least == 0 || least >= range.smallest_normal);
    if (divides) is_in_range &= 1 / least <= range.largest && 1 / largest >= range.smallest_normal;
    is_in_range &= fold->host.dtype == FB_FLOAT16 || keeps_weights(fold, &range, least, largest);
    if (is_in_range && keeps_float16(fold, least, largest)) return FB_NO_OBSTACLE;
    return (fb_obstacle){"constant-out-of-range",
                         "the constant, or what it makes of a weight, may be no normal number in the layer's dtype"};
}

static fb_obstacle number_obstacle(const fb_graph *g, const scale_fold *fold) {
    double number = 0;
    fb_value_is_number(g, fold->affine.number, &number);
    if (!isfinite(number)) return (fb_obstacle){"unsupported-constant", "it is not a finite number"};
    if (number == 0 && is_factor(&fold->affine))
        return (fb_obstacle){"zero-factor", "zero hides what is not finite, and has no inverse"};
    return range_obstacle(fold, fabs(number), fabs(number));
}

/* A weight can be anything unless its bytes are in the document; then it is judged by its numbers. */
static fb_obstacle numbers_obstacle(const fb_graph *g, const scale_fold *fold) {
    fb_extent extent;
    bool is_known = fb_tensor_extent(g, fold->affine.tensor, &extent), divides = fold->affine.form == FB_ARITHMETIC_TRUE_DIVIDE;
    if (divides && (!is_known || extent.has_zero))
        return (fb_obstacle){"zero-factor",
                             "it divides by a weight that has a zero, or may have one: its numbers are not in the document"};
    if (is_known && !extent.is_finite)
        return (fb_obstacle){"unsupported-constant", "the constant has numbers that are not finite"};
    if (!is_known && fold->host.dtype == FB_FLOAT16)
        return (fb_obstacle){"constant-out-of-range", "in float16 a weight times a constant that is not known may overflow"};
    return is_known && extent.largest > 0 ? range_obstacle(fold, extent.least, extent.largest) : FB_NO_OBSTACLE;
}

static fb_obstacle tensor_obstacle(fb_matcher *m, const scale_fold *fold) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    fb_dtype dtype = (fb_dtype)fb_tensor_at(g, fold->affine.tensor)->dtype;
    bool is_promoted = !is_number(g, &fold->affine) && fb_promote(dtype, fold->host.dtype) != fold->host.dtype;
    fb_obstacle obstacle = fb_bytes_obstacle(g, fold->affine.tensor);
    if (obstacle.code) return obstacle;
    if (!fb_dtype_is_computed(dtype))
        return (fb_obstacle){"unsupported-dtype", "the constant is not a floating-point tensor that recipes can compute with"};
    if (is_promoted) return (fb_obstacle){"dtype", "the constant makes the value wider than the layer"};
    if (!fits(g, fold)) return (fb_obstacle){"shape-mismatch", "the constant is neither one number nor one for each channel"};
    if (!alias || fb_is_mutated(alias, fold->affine.read))
        return (fb_obstacle){"tensor-mutated", "the constant is written in place, or may be"};
    return numbers_obstacle(g, fold);
}

/* ---- the value ----------------------------------------------------------------------------------------------------------- */

/* Finds readers of the value besides `reader` that depend on its numbers. */
static fb_obstacle other_readers(const fb_graph *g, fb_node value, fb_node reader) {
    fb_obstacle named = fb_named_obstacle(g, value);
    if (named.code) return named;
    for (uint32_t e = fb_user_first(g, value); e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool is_output = fb_node_at(g, user)->opcode == FB_OUTPUT;
        if (fb_with_bias(g, user).id == reader.id || fb_reads_type_only(g, user)) continue;
        return is_output ? (fb_obstacle){"graph-output", "a value on the way is an output of the graph"}
                         : (fb_obstacle){"shared-output", "a value on the way has other readers"};
    }
    return FB_NO_OBSTACLE;
}

/* The input of a view, a product, or a constant that goes in before. */
static fb_node came_from(const fb_graph *g, fb_node node) {
    constant_call affine;
    return affine_at(g, node, &affine) ? affine.input : scaled_input(g, node);
}

/* From the constant back to the layer. */
static fb_obstacle chain_obstacle(const fb_graph *g, const scale_fold *fold) {
    fb_node reader = fold->affine.node, at = fold->affine.input;
    for (;; reader = at, at = came_from(g, at)) {
        fb_obstacle obstacle = other_readers(g, at, reader);
        fb_dtype dtype = (fb_dtype)fb_node_at(g, at)->dtype;
        if (obstacle.code) return obstacle;
        if (dtype && dtype != fold->host.dtype)
            return (fb_obstacle){"dtype", "a value on the way has another dtype than the layer"};
        if (at.id == fold->host.layer.call.id) return FB_NO_OBSTACLE;
    }
}

/* Without the constant, the layer reads its input itself, later. */
static fb_obstacle input_obstacle(fb_matcher *m, const scale_fold *fold) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    const fb_node_row *input = fb_node_at(g, fold->affine.input);
    bool is_addend_of_conv = !fold->host.is_linear && !is_factor(&fold->affine);
    fb_obstacle obstacle = other_readers(g, fold->affine.node, fold->host.layer.call);
    if (obstacle.code) return obstacle;
    if (input->dtype != fold->host.dtype)
        return (fb_obstacle){"dtype", "the dtype of what is scaled is not recorded, or not the layer's" FB_RECORD_DTYPE};
    if (is_addend_of_conv && (fold->host.conv.is_padded || fold->host.conv.is_transposed))
        return (fb_obstacle){"padded", "padding adds zeros to what is shifted, which are not shifted"};
    bool is_written = !alias || fb_mutated_between(alias, fold->affine.input, fb_node_at(g, fold->affine.node)->ordinal,
                                                   fb_node_at(g, fold->host.layer.call)->ordinal);
    return is_written ? (fb_obstacle){"input-mutated", "what is scaled is written in place before the layer would read it"}
                      : fb_gradient_obstacle(m, fold->affine.input, fold->host.layer.call);
}

static fb_obstacle scale_obstacle(fb_matcher *m, const scale_fold *fold) {
    const fb_graph *g = m->graph;
    uint32_t a = fb_node_at(g, fold->affine.node)->ordinal, b = fb_node_at(g, fold->host.layer.call)->ordinal;
    fb_dtype dtype = (fb_dtype)fb_node_at(g, fold->affine.node)->dtype;
    fb_obstacle obstacle = fold->is_after ? chain_obstacle(g, fold) : input_obstacle(m, fold);
    if (!obstacle.code) obstacle = fb_named_obstacle(g, fold->affine.node);
    if (!obstacle.code && !is_factor(&fold->affine) && fold->host.layer.needs_sum)
        obstacle = (fb_obstacle){"unsupported-form", "a MatMul of more than two dimensions needs the Add for its bias"};
    if (!obstacle.code) obstacle = fold->affine.number.id ? number_obstacle(g, fold) : tensor_obstacle(m, fold);
    if (obstacle.code) return obstacle;
    if (!fb_dtype_is_computed(fold->host.dtype) || (dtype && dtype != fold->host.dtype))
        return (fb_obstacle){"dtype", "the layer computes in a dtype that recipes do not, or the scaled value has another one"};
    if (fb_layer_call_count(m->usage, &fold->host.layer) != 1)
        return (fb_obstacle){"shared-module", "the layer is called more than once"};
    if ((obstacle = fb_layer_obstacle(m, &fold->host.layer)).code) return obstacle;
    const fb_alias *alias = fb_matcher_writes(m);
    bool is_switched = !alias || fb_mode_switched_between(alias, a < b ? a : b, a < b ? b : a);
    return is_switched ? (fb_obstacle){"mode-switched", "autocast, autograd or another mode is switched between the two"}
                       : FB_NO_OBSTACLE;
}

/* The layer, the constant, and those that come after it in a row. */
static void take_row(fb_matcher *m, scale_fold *fold) {
    scale_row row = {.call = fold->host.layer.call, .constants = {fold->affine.node}, .count = 1};
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    while (row.count < ROW_MAX && scale_next(m->graph, fold) && !(obstacle = scale_obstacle(m, fold)).code)
        row.constants[row.count++] = fold->affine.node;
    fb_match_found_as(m, &row, sizeof row);
    if (obstacle.code) fb_refuse_for(m, obstacle, (fb_node[]){fold->host.layer.call, fold->affine.node}, 2);
}

/* A constant of one number a channel goes into a layer only where it is beside it: behind views it is refused. */
static void refuse_views(fb_matcher *m, const constant_call *affine) {
    const fb_graph *g = m->graph;
    fb_node at = affine->input, n = affine->node;
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX; steps++, at = fb_view_input(g, at, NULL)) {
        fb_linear linear;
        fb_conv conv;
        if (!fb_linear_at(g, at, &linear) && !fb_conv_at(g, at, &conv)) continue;
        if (!fb_is_marked(m, at))
            fb_refuse(m, "views-between", (fb_node[]){at, n}, 2, "a view stands between the layer and its constant");
        return;
    }
}

/* Adds a number to the erf or tanh of something. */
static bool is_gate(const fb_graph *g, fb_node n) {
    for (uint32_t e = n.id && fb_op_is(g, n, FB_OP_ADD) ? fb_input_first(g, n) : 0; e; e = fb_input_next(g, e))
        if (fb_op_is(g, fb_edge_input(g, e), FB_OP_ERF) || fb_op_is(g, fb_edge_input(g, e), FB_OP_TANH)) return true;
    return false;
}

/* Why an ONNX formula keeps its last factor, by which runtimes find it where the opset lacks the operator: that of a norm, or
 * the half of a GELU, x (1 + erf(…)) / 2. */
static fb_obstacle formula_obstacle(const fb_graph *g, fb_node factor, fb_node input) {
    fb_norm norm;
    if (fb_norm_at(g, factor, &norm)) return fb_unscaled_obstacle(g, &norm);
    bool is_product = input.id && fb_op_is(g, input, FB_OP_MUL) && fb_lacks_operator(g, factor, FB_MADE_GELU);
    for (uint32_t e = is_product ? fb_input_first(g, input) : 0; e; e = fb_input_next(g, e))
        if (is_gate(g, fb_edge_input(g, e))) return FB_TOO_OLD_FOR_A_FORMULA;
    return FB_NO_OBSTACLE;
}

static bool is_affine(fb_op op) {
    fb_arithmetic ignored;
    return form_of(op, &ignored);
}

static void match(fb_matcher *m, fb_node n) {
    scale_fold after, before;
    fb_obstacle obstacle = FB_NO_OBSTACLE, other = FB_NO_OBSTACLE;
    if (!affine_at(m->graph, n, &after.affine)) return;
    before.affine = after.affine;
    bool is_after = scale_after_at(m->graph, &after), is_before = scale_before_at(m->graph, &before);
    if (is_after && fb_is_marked(m, after.host.layer.call)) is_after = false; /* refused already, as already-transformed */
    if (is_before && fb_is_marked(m, before.host.layer.call)) is_before = false;
    if (is_after && !(obstacle = scale_obstacle(m, &after)).code) {
        take_row(m, &after);
    } else if (is_before && (other = formula_obstacle(m->graph, n, before.affine.input)).code) {
        fb_refuse_for(m, other, (fb_node[]){n, before.host.layer.call}, 2);
    } else if (is_before && !(other = scale_obstacle(m, &before)).code) {
        fb_match_found_as(m, &(scale_row){.call = before.host.layer.call, .constants = {n}, .count = 1}, sizeof(scale_row));
    } else if (is_after) {
        fb_refuse_for(m, obstacle, (fb_node[]){after.host.layer.call, n}, 2);
    } else if (is_before) {
        fb_refuse_for(m, other, (fb_node[]){n, before.host.layer.call}, 2);
    } else {
        refuse_views(m, &after.affine);
    }
}

/* The views and products between the layer and what it took in give other values from now on. So they are new nodes, with new
 * names: a comparison of the graphs must not take them for the old ones. */
static fb_node put_again(fb_rewrite *rw, fb_node old, fb_node call) {
    if (old.id == call.id) return call;
    fb_node input = scaled_input(fb_rewrite_graph(rw), old);
    return fb_put_again(rw, old, input, put_again(rw, input, call)); /* no deeper than a chain may be long */
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const scale_row *row = match->data;
    scale_fold fold = {0};
    fb_node last = {0};
    for (size_t i = 0; i < row->count; i++) {
        fb_node affine = row->constants[i];
        if (!scale_fold_of(fb_rewrite_graph(rw), affine, row->call, &fold)) return;
        scale_fold_edit(rw, &fold);
        fb_release_reads(rw, affine);
        if (fold.is_after) {
            if (!last.id) last = put_again(rw, fold.affine.input, row->call);
            if (last.id) fb_absorb(rw, affine, last);
        } else {
            fb_replace_uses(rw, affine, fold.affine.input);
            fb_erase(rw, affine);
        }
    }
    fb_mark(rw, row->call);
}

const fb_pass fb_fold_scale_into_linear = {
    .name = "FoldScaleIntoLinear",
    .version = 1,
    .summary = "Folds a constant factor or addend before or after a Linear or convolution into its weight and bias, such as "
               "1/√d into the query projection.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .gain = FB_GAIN_FEWER_NODES,
    .reversible = false,
    .preserves_computation = true,
    .reads_onnx = true,
    .begins_at = is_affine,
    .match = match,
    .edit = edit,
};
