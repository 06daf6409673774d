/* LayerNorm and RMSNorm, in both dialects and spelled out. */
#include <math.h>

#include "core/ops/view_internal.h"

/* How many dimensions a normalized_shape names; 0 when that is not certain. */
static int axes_of(const fb_graph *graph, fb_value shape) {
    int64_t number;
    if (!shape.id) return 0;
    if (fb_value_is_int(graph, shape, &number)) return 1;
    fb_kind kind = fb_value_kind(graph, shape);
    return kind == FB_LIST || kind == FB_TUPLE || kind == FB_SIZE ? (int)fb_value_at(graph, shape)->count : 0;
}

/* The size of the last dimension; -1 when it is not certain. */
static int64_t last_size(const fb_graph *graph, fb_value shape) {
    int64_t size = -1;
    if (fb_value_is_int(graph, shape, &size)) return size;
    size_t count = fb_value_at(graph, shape)->count;
    return count && fb_value_is_int(graph, fb_value_item(graph, shape, count - 1), &size) ? size : -1;
}

static bool measure(const fb_graph *graph, fb_value shape, fb_norm *norm) {
    norm->axes = axes_of(graph, shape);
    if (norm->axes == 0 || (norm->features = last_size(graph, shape)) < 0) return false;
    bool fits = !norm->weight.id || fb_tensor_rank(graph, norm->weight) == norm->axes;
    return fits && (!norm->bias.id || fb_tensor_rank(graph, norm->bias) == norm->axes);
}

static bool norm_of_module_call(const fb_graph *graph, fb_node node, fb_norm *norm) {
    norm->node = norm->call = node;
    norm->module = fb_node_at(graph, node)->module;
    norm->weight = fb_module_tensor(graph, norm->module, "weight");
    norm->bias = fb_module_tensor(graph, norm->module, "bias");
    fb_value eps = fb_module_config(graph, norm->module, "eps");
    norm->eps = norm->is_centred ? 1e-5 : NAN;
    if (eps.id) fb_value_is_number(graph, eps, &norm->eps);
    return fb_sole_input(graph, node, &norm->input) &&
           measure(graph, fb_module_config(graph, norm->module, "normalized_shape"), norm);
}

static bool norm_of_function(const fb_graph *graph, fb_node node, fb_norm *norm) {
    norm->node = node;
    norm->call = fb_call_of_value(graph, node);
    fb_call_reader reader = {.graph = graph, .node = norm->call};
    norm->input = fb_next_input(&reader, "input");
    fb_value shape = fb_next_argument(&reader, "normalized_shape"), eps;
    norm->weight = fb_next_tensor(&reader, "weight", true, &norm->weight_read);
    if (norm->is_centred) {
        norm->bias = fb_next_tensor(&reader, "bias", true, &norm->bias_read);
        fb_next_argument(&reader, "cudnn_enable");
    }
    eps = fb_next_argument(&reader, "eps");
    norm->eps = norm->is_centred ? 1e-5 : NAN;
    if (eps.id) fb_value_is_number(graph, eps, &norm->eps);
    return fb_is_read_whole(&reader) && measure(graph, shape, norm);
}

/* ---- spelled out ------------------------------------------------------------------------------------------------------- */

static bool has_two_arguments(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    return fb_value_at(graph, row->args)->count == 2 && fb_value_at(graph, row->kwargs)->count == 0;
}

static fb_node argument(const fb_graph *graph, fb_node node, size_t index) {
    fb_value value = fb_node_arg(graph, node, index);
    return value.id ? fb_value_node(graph, value) : (fb_node){0};
}

/* The value before casts, to whatever dtype. */
static fb_node before_casts(const fb_graph *graph, fb_node node) {
    for (int i = 0; node.id && i < 4; i++) {
        fb_op op = fb_node_op(graph, node);
        if (fb_op_facts_of(op)->shape != FB_SHAPE_SAME || fb_op_facts_of(op)->dtype != FB_DTYPE_RULE_CAST) break;
        node = argument(graph, node, 0);
    }
    return node;
}

static bool is_square_of(const fb_graph *graph, fb_node node, fb_node x) {
    double exponent;
    if (!node.id || argument(graph, node, 0).id != x.id) return false;
    if (fb_op_is(graph, node, FB_OP_SQUARE)) return true;
    if (fb_op_is(graph, node, FB_OP_MUL)) return has_two_arguments(graph, node) && argument(graph, node, 1).id == x.id;
    fb_value power = fb_call_argument(graph, node, "exponent");
    return fb_op_is(graph, node, FB_OP_POW) && power.id && fb_value_is_number(graph, power, &exponent) && exponent == 2;
}

/* mean(…, -1, keepdim=True) */
static bool is_mean_of_last(const fb_graph *graph, fb_node node) {
    if (!node.id || !fb_op_is(graph, node, FB_OP_MEAN)) return false;
    fb_value dim = fb_call_argument(graph, node, "dim"), keep = fb_call_argument(graph, node, "keepdim");
    int64_t axis;
    if (dim.id && axes_of(graph, dim) == 1 && !fb_value_is_int(graph, dim, &axis)) dim = fb_value_item(graph, dim, 0);
    return dim.id && fb_value_is_int(graph, dim, &axis) && axis == -1 && keep.id && fb_value_kind(graph, keep) == FB_TRUE;
}

/* rsqrt(mean(x²) + eps) */
static bool is_inverse_root(const fb_graph *graph, fb_node node, fb_node x, double *eps) {
    if (!node.id || !fb_op_is(graph, node, FB_OP_RSQRT)) return false;
    fb_node sum = argument(graph, node, 0);
    if (!sum.id || !fb_op_is(graph, sum, FB_OP_ADD) || !has_two_arguments(graph, sum)) return false;
    fb_node mean = argument(graph, sum, 0);
    return fb_value_is_number(graph, fb_node_arg(graph, sum, 1), eps) && is_mean_of_last(graph, mean) &&
           is_square_of(graph, argument(graph, mean, 0), x);
}

/* x * rsqrt(mean(x²) + eps) */
static bool is_normalised(const fb_graph *graph, fb_node node, fb_norm *norm) {
    if (!node.id || !fb_op_is(graph, node, FB_OP_MUL) || !has_two_arguments(graph, node)) return false;
    for (size_t i = 0; i < 2; i++) {
        fb_node x = argument(graph, node, i);
        if (!x.id || !is_inverse_root(graph, argument(graph, node, 1 - i), x, &norm->eps)) continue;
        norm->input = x;
        return true;
    }
    return false;
}

static bool norm_spelled_out(const fb_graph *graph, fb_node node, fb_norm *norm) {
    if (!has_two_arguments(graph, node)) return false;
    for (size_t i = 0; i < 2; i++) {
        norm->unscaled = argument(graph, node, 1 - i);
        if (!norm->unscaled.id || !fb_tensor_read_by(graph, fb_node_arg(graph, node, i), &norm->weight_read, &norm->weight))
            continue;
        if (fb_tensor_rank(graph, norm->weight) != 1) return false;
        norm->node = norm->call = node;
        norm->axes = 1;
        norm->features = fb_tensor_size(graph, norm->weight, 0);
        return is_normalised(graph, before_casts(graph, norm->unscaled), norm);
    }
    return false;
}

bool fb_norm_at(const fb_graph *graph, fb_node node, fb_norm *norm) {
    fb_norm found = {0};
    fb_node call = fb_call_of_value(graph, node);
    fb_op op = fb_node_op(graph, call);
    bool is_function = fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION, is_norm = false;
    bool is_first_of_tuple = op == FB_OP_NATIVE_LAYER_NORM && call.id != node.id;
    found.is_centred = op == FB_OP_LAYER_NORM || is_first_of_tuple;
    if (op == FB_OP_MUL) is_norm = norm_spelled_out(graph, node, &found);
    else if (op == FB_OP_LAYER_NORM || op == FB_OP_RMS_NORM || is_first_of_tuple)
        is_norm = is_function ? norm_of_function(graph, node, &found) : norm_of_module_call(graph, node, &found);
    if (is_norm) *norm = found;
    return is_norm;
}
