#include "core/analysis/rearrange.h"

#include "core/analysis/onnx.h"

#include "core/analysis/onnx_types.h"

static bool read_permutation(const fb_shape_call *call, int rank, int *dims) {
    fb_sizes given;
    if (!fb_sizes_named(call, "dims", &given) || given.count != rank) return false;
    for (int i = 0; i < rank; i++) {
        if (given.items[i].symbol.id || !fb_normalise_axis(given.items[i].size, rank, &dims[i])) return false;
    }
    return true;
}

static bool read_swap(const fb_shape_call *call, int rank, int *dims) {
    int a, b;
    bool is_given =
        fb_call_argument(call->graph, call->node, "dim0").id && fb_call_argument(call->graph, call->node, "dim1").id;
    if (!is_given || !fb_option_axis(call, "dim0", 0, rank, &a) || !fb_option_axis(call, "dim1", 0, rank, &b)) return false;
    for (int i = 0; i < rank; i++) dims[i] = i == a ? b : i == b ? a : i;
    return true;
}

/* False for operators that rearrange nothing. */
static bool form_of(fb_op op, fb_rearrange *found) {
    found->form = FB_REARRANGE_PERMUTE;
    switch ((fb_shape_rule)fb_op_facts_of(op)->shape) {
    case FB_SHAPE_VIEW:
    case FB_SHAPE_FLATTEN:
    case FB_SHAPE_UNFLATTEN:
    case FB_SHAPE_UNSQUEEZE:
    case FB_SHAPE_SQUEEZE: found->form = FB_REARRANGE_RESHAPE; return true;
    case FB_SHAPE_PERMUTE:
    case FB_SHAPE_TRANSPOSE:
    case FB_SHAPE_T: return true;
    default: found->form = FB_REARRANGE_CONTIGUOUS; return op == FB_OP_CONTIGUOUS;
    }
}

bool fb_op_reshapes(fb_op op) {
    fb_rearrange found;
    return form_of(op, &found) && found.form == FB_REARRANGE_RESHAPE;
}

static bool read_dims(const fb_shape_call *call, fb_rearrange *found) {
    if (found->form == FB_REARRANGE_RESHAPE) return true;
    switch ((fb_shape_rule)fb_op_facts_of(call->op)->shape) {
    case FB_SHAPE_PERMUTE: return read_permutation(call, found->rank, found->dims);
    case FB_SHAPE_TRANSPOSE: return read_swap(call, found->rank, found->dims);
    case FB_SHAPE_T:
        for (int i = 0; i < found->rank; i++) found->dims[i] = found->rank - 1 - i;
        return found->rank <= 2;
    default: return fb_call_has_only(call->graph, call->node, "input");
    }
}

bool fb_rearrange_at(const fb_graph *graph, fb_node node, fb_rearrange *found) {
    fb_op op = fb_node_op(graph, node);
    const fb_node_row *row = fb_node_at(graph, node);
    if (fb_graph_is_onnx(graph))
        return row->shape.id && fb_onnx_rearrange(graph, node, fb_shape_rank(graph, row->shape), found) &&
               fb_node_at(graph, found->input)->shape.id && !fb_op_effects(graph, node).is_named;
    if (op == FB_OP_UNKNOWN || (op & FB_OP_IN_PLACE) || !row->shape.id || !form_of(op, found)) return false;
    fb_shape_call call = {.graph = graph, .node = node, .op = op, .is_module = row->opcode == FB_CALL_MODULE};
    found->node = node;
    found->input = fb_value_node(graph, fb_first_argument(graph, node));
    found->rank = fb_shape_rank(graph, row->shape);
    if (!found->input.id || found->rank > FB_MAX_RANK) return false;
    const fb_node_row *input = fb_node_at(graph, found->input);
    return input->shape.id && row->dtype && row->dtype == input->dtype && read_dims(&call, found) &&
           (fb_surely_writes_nothing(graph, node) || !fb_op_effects(graph, node).is_unknown);
}

bool fb_permutation_at(const fb_graph *graph, fb_node node, fb_rearrange *found) {
    int64_t dims[FB_MAX_RANK];
    const fb_node_row *row = fb_node_at(graph, node);
    if (!fb_op_is(graph, node, FB_OP_ONNX_TRANSPOSE))
        return fb_rearrange_at(graph, node, found) && found->form == FB_REARRANGE_PERMUTE;
    *found = (fb_rearrange){.node = node, .input = fb_arg_node(graph, node, 0), .form = FB_REARRANGE_PERMUTE};
    found->rank = fb_shape_rank(graph, row->shape);
    if (found->rank < 0 || fb_onnx_ints_of(graph, node, "perm", 0, dims, FB_MAX_RANK) != found->rank) return false;
    for (int i = 0; i < found->rank; i++) found->dims[i] = (int)dims[i];
    return found->input.id;
}

/* Have both as many elements behind the one dimension as behind the other? Symbolic sizes must be in the same places. */
static bool has_same_rest(const fb_shape_result *a, int of_a, const fb_shape_result *b, int of_b) {
    int64_t products[2] = {1, 1};
    const fb_shape_result *shapes[2] = {a, b};
    const int axes[2] = {of_a, of_b};
    bool has_symbol = false;
    for (int k = 0; k < 2; k++) {
        for (int i = axes[k] + 1; i < shapes[k]->rank; i++) {
            fb_dim size = shapes[k]->sizes[i];
            has_symbol |= size.symbol.id != 0;
            if (!size.symbol.id && __builtin_mul_overflow(products[k], size.size, &products[k])) return false;
        }
    }
    if (!has_symbol) return products[0] == products[1];
    if (a->rank - of_a != b->rank - of_b) return false;
    for (int i = 1; of_a + i < a->rank; i++) {
        if (!fb_dim_equal(a->sizes[of_a + i], b->sizes[of_b + i])) return false;
    }
    return true;
}

bool fb_rearrange_axis(const fb_graph *graph, const fb_rearrange *rearrange, int axis, int *out) {
    fb_shape_result from, to;
    if (rearrange->form == FB_REARRANGE_CONTIGUOUS) *out = axis;
    else if (rearrange->form == FB_REARRANGE_PERMUTE) *out = rearrange->dims[axis];
    if (rearrange->form != FB_REARRANGE_RESHAPE) return true;
    if (!fb_recorded_shape(graph, rearrange->input, &from) || !fb_recorded_shape(graph, rearrange->node, &to)) return false;
    for (int i = 0; i < from.rank; i++) {
        bool is_it = fb_dim_equal(from.sizes[i], to.sizes[axis]) && has_same_rest(&from, i, &to, axis);
        if (!is_it) continue;
        *out = i;
        return true;
    }
    return false;
}
