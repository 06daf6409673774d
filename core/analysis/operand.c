/* Operands and options of a call, for the shape rules. */
#include <string.h>

#include "core/analysis/shape.h"

/* ---- operands -------------------------------------------------------------------------------------------------------- */

static bool read_shape(const fb_graph *graph, fb_value shape, fb_type *type) {
    type->rank = -1;
    if (!shape.id) return false;
    const fb_value_row *row = fb_value_at(graph, shape);
    if (row->count > FB_MAX_RANK) return false;
    for (uint32_t i = 0; i < row->count; i++) {
        const fb_value_row *size = fb_value_at(graph, row->items[i]);
        type->sizes[i] = size->kind == FB_INT ? fb_dim_of(size->integer) : (fb_dim){-1, size->symbol};
    }
    type->rank = (int)row->count;
    return true;
}

static void read_tensor(const fb_graph *graph, fb_tensor tensor, fb_type *type) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    type->dtype = (fb_dtype)row->dtype;
    read_shape(graph, row->shape, type);
}

bool fb_recorded_shape(const fb_graph *graph, fb_node node, fb_shape_result *result) {
    const fb_node_row *row = fb_node_at(graph, node);
    result->dtype = (fb_dtype)row->dtype;
    read_shape(graph, row->shape, result);
    if (row->opcode == FB_GET_ATTR && row->module.id && row->attribute.id && result->rank < 0 && !result->dtype) {
        fb_tensor tensor = fb_module_tensor(graph, row->module, fb_text(graph, row->attribute));
        if (tensor.id) read_tensor(graph, tensor, result);
    }
    return result->rank >= 0 || result->dtype;
}

static void clear(fb_operand *operand, fb_operand_kind kind, fb_dtype number) {
    operand->kind = kind;
    operand->number = number;
    operand->type.dtype = FB_DTYPE_UNKNOWN;
    operand->type.rank = -1;
}

fb_operand fb_operand_of(const fb_graph *graph, fb_value value) {
    fb_operand operand;
    clear(&operand, FB_OPERAND_ABSENT, FB_DTYPE_UNKNOWN);
    switch (value.id ? fb_value_kind(graph, value) : FB_NONE) {
    case FB_NONE: break;
    case FB_NODE: {
        fb_node node = fb_value_node(graph, value);
        bool is_known = fb_recorded_shape(graph, node, &operand.type);
        bool is_number = !is_known && fb_is_python_number(graph, node);
        operand.kind = is_number ? FB_OPERAND_NUMBER : FB_OPERAND_TENSOR;
        break;
    }
    case FB_TRUE:
    case FB_FALSE: clear(&operand, FB_OPERAND_NUMBER, FB_BOOL); break;
    case FB_INT: clear(&operand, FB_OPERAND_NUMBER, FB_INT64); break;
    case FB_FLOAT: clear(&operand, FB_OPERAND_NUMBER, FB_FLOAT32); break;
    case FB_COMPLEX: clear(&operand, FB_OPERAND_NUMBER, FB_COMPLEX64); break;
    default: operand.kind = FB_OPERAND_OTHER; break;
    }
    return operand;
}

fb_operand fb_operand_named(const fb_shape_call *call, const char *parameter) {
    fb_value value = fb_call_argument(call->graph, call->node, parameter);
    if (value.id || !call->is_module) return fb_operand_of(call->graph, value);
    fb_operand operand;
    clear(&operand, FB_OPERAND_ABSENT, FB_DTYPE_UNKNOWN);
    fb_tensor tensor = fb_module_tensor(call->graph, fb_node_at(call->graph, call->node)->module, parameter);
    if (!tensor.id) return operand;
    operand.kind = FB_OPERAND_TENSOR;
    read_tensor(call->graph, tensor, &operand.type);
    return operand;
}

size_t fb_operand_limit(const fb_shape_call *call) {
    return call->is_module ? SIZE_MAX : fb_argument_count(call->graph, call->node);
}

/* ---- options --------------------------------------------------------------------------------------------------------- */

fb_value fb_option(const fb_shape_call *call, const char *name) {
    if (!call->is_module) return fb_call_argument(call->graph, call->node, name);
    return fb_module_config(call->graph, fb_node_at(call->graph, call->node)->module, name);
}

bool fb_option_is_set(const fb_shape_call *call, const char *name) {
    fb_value value = fb_option(call, name);
    fb_kind kind = value.id ? fb_value_kind(call->graph, value) : FB_NONE;
    return kind != FB_NONE && kind != FB_FALSE;
}

bool fb_normalise_axis(int64_t axis, int rank, int *out) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return false;
    *out = (int)axis;
    return true;
}

/* ---- dims ------------------------------------------------------------------------------------------------------------ */

fb_dim fb_dim_of(int64_t size) {
    return (fb_dim){.size = size};
}

bool fb_dim_equal(fb_dim a, fb_dim b) {
    return a.symbol.id == b.symbol.id && (a.symbol.id || a.size == b.size);
}

bool fb_dim_is(fb_dim a, int64_t size) {
    return !a.symbol.id && a.size == size;
}
