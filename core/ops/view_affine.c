/* Scaling and shifting by constants. */
#include "core/ops/affine.h"
#include "core/ops/view_internal.h"

static bool form_of(fb_op op, fb_affine_form *form) {
    switch (op) {
    case FB_OP_MUL: *form = FB_AFFINE_MUL; return true;
    case FB_OP_DIV:
    case FB_OP_TRUE_DIVIDE: *form = FB_AFFINE_DIV; return true;
    case FB_OP_ADD: *form = FB_AFFINE_ADD; return true;
    case FB_OP_SUB: *form = FB_AFFINE_SUB; return true;
    default: return false;
    }
}

static bool read_constant(const fb_graph *graph, fb_value value, fb_affine *affine) {
    double ignored;
    if (fb_value_is_number(graph, value, &ignored)) {
        affine->number = value;
        return true;
    }
    return fb_tensor_read_by(graph, value, &affine->read, &affine->tensor);
}

bool fb_affine_at(const fb_graph *graph, fb_node node, fb_affine *affine) {
    fb_affine found = {.node = node};
    if (!form_of(fb_node_op(graph, node), &found.form)) return false;
    const fb_node_row *row = fb_node_at(graph, node);
    if (fb_value_at(graph, row->args)->count + fb_value_at(graph, row->kwargs)->count / 2 != 2) return false;
    fb_value a = fb_call_argument(graph, node, "input"), b = fb_call_argument(graph, node, "other");
    if (!a.id || !b.id) return false;
    bool commutes = found.form == FB_AFFINE_MUL || found.form == FB_AFFINE_ADD;
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

/* How often the node's arguments name `input`. */
typedef struct count {
    fb_node input;
    int times;
} count;

static void count_input(void *context, fb_node input) {
    count *c = context;
    c->times += input.id == c->input.id;
}

fb_node fb_scaled_input(const fb_graph *graph, fb_node node) {
    switch (fb_node_op(graph, node)) {
    case FB_OP_VIEW:
    case FB_OP_UNSAFE_VIEW:
    case FB_OP_RESHAPE:
    case FB_OP_FLATTEN:
    case FB_OP_UNFLATTEN:
    case FB_OP_PERMUTE:
    case FB_OP_TRANSPOSE:
    case FB_OP_T:
    case FB_OP_UNSQUEEZE:
    case FB_OP_SQUEEZE:
    case FB_OP_EXPAND:
    case FB_OP_CONTIGUOUS:
    case FB_OP_CLONE:
    case FB_OP_MATMUL:
    case FB_OP_MM:
    case FB_OP_BMM: break;
    default: return (fb_node){0};
    }
    fb_value first = fb_call_argument(graph, node, "input");
    count c = {.input = first.id ? fb_value_node(graph, first) : (fb_node){0}};
    fb_value_visit_nodes(graph, fb_node_at(graph, node)->args, count_input, &c);
    fb_value_visit_nodes(graph, fb_node_at(graph, node)->kwargs, count_input, &c);
    return c.times == 1 ? c.input : (fb_node){0};
}
