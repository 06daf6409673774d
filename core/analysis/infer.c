/* Inference of one node: its shape rule, its dtype rule. */
#include "core/analysis/infer.h"

#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/shape.h"

enum { MAX_OPERANDS = 64 };

/* ---- dtypes ---------------------------------------------------------------------------------------------------------- */

/* The node y of y.dtype, y.device …; none when the value is not such an attribute. */
static fb_value owner_of_attribute(const fb_graph *graph, fb_value value, const char *attribute) {
    fb_node node = fb_value_node(graph, value);
    if (!node.id || fb_node_op(graph, node) != FB_OP_GETATTR) return (fb_value){0};
    fb_value name = fb_node_arg(graph, node, 1);
    bool is_it = name.id && fb_value_kind(graph, name) == FB_STRING && strcmp(fb_value_text(graph, name), attribute) == 0;
    return is_it ? fb_node_arg(graph, node, 0) : (fb_value){0};
}

/* `dtype` as an argument: a literal, or y.dtype of a node y whose dtype is known. */
static fb_dtype dtype_of_value(const fb_graph *graph, fb_value value) {
    if (fb_value_kind(graph, value) == FB_DTYPE) return fb_dtype_find(fb_value_text(graph, value));
    return fb_operand_of(graph, owner_of_attribute(graph, value, "dtype")).type.dtype;
}

static fb_dtype dtype_argument(const fb_shape_call *call, fb_dtype fallback) {
    fb_value value = fb_call_argument(call->graph, call->node, "dtype");
    if (!value.id) value = fb_node_kwarg(call->graph, call->node, "dtype");
    if (fb_is_absent(call->graph, value)) return fallback;
    return dtype_of_value(call->graph, value);
}

static fb_dtype dtype_of_first(const fb_shape_call *call) {
    fb_value first = fb_first_argument(call->graph, call->node);
    fb_kind kind = fb_value_kind(call->graph, first);
    if (kind == FB_LIST || kind == FB_TUPLE) first = fb_value_item(call->graph, first, 0);
    fb_operand operand = fb_operand_of(call->graph, first);
    return operand.kind == FB_OPERAND_TENSOR ? operand.type.dtype : FB_DTYPE_UNKNOWN;
}

/* PyTorch computes a layer in one dtype. Where two differ it fails, or autocast decides: unknown. */
static fb_dtype dtype_of_weight(const fb_shape_call *call) {
    fb_dtype input = fb_operand_named(call, "input").type.dtype;
    fb_operand weight = fb_operand_named(call, "weight");
    if (call->op == FB_OP_EMBEDDING) return weight.type.dtype;
    if (weight.kind == FB_OPERAND_ABSENT) return input;
    return input && weight.type.dtype && input != weight.type.dtype ? FB_DTYPE_UNKNOWN : weight.type.dtype;
}

/* Products and others as well. Of tensors without elements they are computed, in the dtype of the one or the other. */
static fb_dtype dtype_of_all(const fb_shape_call *call) {
    const fb_graph *graph = call->graph;
    fb_dtype dtype = dtype_of_first(call);
    for (uint32_t e = fb_input_first(graph, call->node); e; e = fb_input_next(graph, e)) {
        fb_type type;
        bool is_known = fb_recorded_shape(graph, fb_edge_input(graph, e), &type);
        if (is_known && type.dtype && type.dtype != dtype) return FB_DTYPE_UNKNOWN;
    }
    return dtype;
}

/* x.to(…), x.type(…), aten.to.*: one of the arguments after self is a dtype, or another tensor, or only a device. */
static fb_dtype dtype_of_cast(const fb_shape_call *call) {
    const fb_graph *graph = call->graph;
    const fb_node_row *row = fb_node_at(graph, call->node);
    int64_t number;
    fb_value to = fb_node_kwarg(graph, call->node, "to");
    if (fb_graph_is_onnx(graph)) return to.id && fb_value_is_int(graph, to, &number) ? fb_onnx_dtype(number) : FB_DTYPE_UNKNOWN;
    fb_dtype keyword = dtype_argument(call, FB_DTYPE_COUNT);
    if (keyword != FB_DTYPE_COUNT && keyword != FB_DTYPE_UNKNOWN) return keyword;
    const fb_value_row *args = fb_value_at(graph, row->args);
    for (uint32_t i = 1; i < args->count; i++) {
        fb_kind kind = fb_value_kind(graph, args->items[i]);
        if (kind == FB_DTYPE) return dtype_of_value(graph, args->items[i]);
        if (kind == FB_NODE && owner_of_attribute(graph, args->items[i], "device").id) continue;
        if (kind == FB_NODE) {
            fb_operand other = fb_operand_of(graph, args->items[i]);
            return other.kind == FB_OPERAND_TENSOR ? other.type.dtype : dtype_of_value(graph, args->items[i]);
        }
        /* A string is a device for to() and a dtype ("torch.FloatTensor") for type(). */
        if (kind == FB_REF || kind == FB_OPAQUE || (kind == FB_STRING && call->op == FB_OP_TYPE)) return FB_DTYPE_UNKNOWN;
        if (kind == FB_INT && fb_is_aten(graph, call->node)) return FB_DTYPE_UNKNOWN; /* one, by PyTorch's own numbers */
    }
    bool has_other = fb_node_kwarg(graph, call->node, "other").id;
    bool is_plain = keyword == FB_DTYPE_COUNT || args->count > 1;
    return has_other || !is_plain ? FB_DTYPE_UNKNOWN : dtype_of_first(call);
}

static fb_dtype dtype_of_fill(const fb_shape_call *call) {
    fb_operand fill = fb_operand_named(call, "fill_value");
    return fill.kind == FB_OPERAND_NUMBER ? fill.number : FB_DTYPE_UNKNOWN;
}

static fb_dtype real_dtype(fb_dtype dtype) {
    return dtype == FB_BOOL || fb_dtype_is_complex(dtype) ? FB_DTYPE_UNKNOWN : dtype;
}

static fb_dtype widen_sum(fb_dtype dtype) {
    return fb_dtype_is_integer(dtype) ? FB_INT64 : dtype;
}

/* torch.result_type of the operands of a call (the parameters that take part in arithmetic). */
static fb_dtype promote_operands(const fb_shape_call *call) {
    static const char *const names[] = {"input", "other", "exponent", "tensor1", "tensor2", "min", "max"};
    fb_operand operands[MAX_OPERANDS];
    int count = 0;
    fb_value tensors = fb_call_argument(call->graph, call->node, "tensors");
    if (tensors.id) {
        const fb_value_row *row = fb_value_at(call->graph, tensors);
        if ((row->kind != FB_LIST && row->kind != FB_TUPLE) || row->count > MAX_OPERANDS) return FB_DTYPE_UNKNOWN;
        for (uint32_t i = 0; i < row->count; i++) operands[count++] = fb_operand_of(call->graph, row->items[i]);
        return fb_promote_all(operands, count);
    }
    size_t left = fb_operand_limit(call);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        operands[count].kind = FB_OPERAND_ABSENT;
        if (left) operands[count] = fb_operand_named(call, names[i]);
        left -= operands[count++].kind != FB_OPERAND_ABSENT;
    }
    fb_operand *min = &operands[count - 2], *max = &operands[count - 1]; /* limits of clamp: two tensors, or two numbers */
    if (min->kind == FB_OPERAND_NUMBER && max->kind == FB_OPERAND_TENSOR) *max = fb_as_number(*max);
    if (max->kind == FB_OPERAND_NUMBER && min->kind == FB_OPERAND_TENSOR) *min = fb_as_number(*min);
    return fb_promote_all(operands, count);
}

static fb_dtype infer_dtype(const fb_shape_call *call, fb_dtype_rule rule, fb_dtype own) {
    switch (rule) {
    case FB_DTYPE_RULE_UNKNOWN: return FB_DTYPE_UNKNOWN;
    case FB_DTYPE_RULE_OWN: return own;
    case FB_DTYPE_RULE_SAME: return dtype_of_first(call);
    case FB_DTYPE_RULE_ALL: return dtype_of_all(call);
    case FB_DTYPE_RULE_REAL: return real_dtype(dtype_of_first(call));
    case FB_DTYPE_RULE_OTHER: return fb_operand_named(call, "other").type.dtype;
    case FB_DTYPE_RULE_WEIGHT: return dtype_of_weight(call);
    case FB_DTYPE_RULE_PROMOTE: return promote_operands(call);
    case FB_DTYPE_RULE_FLOAT: return fb_to_floating(promote_operands(call));
    case FB_DTYPE_RULE_SUM: return dtype_argument(call, widen_sum(dtype_of_first(call)));
    case FB_DTYPE_RULE_LIKE: return dtype_argument(call, dtype_of_first(call));
    case FB_DTYPE_RULE_NORM: return real_dtype(dtype_argument(call, dtype_of_first(call)));
    case FB_DTYPE_RULE_ARGUMENT: return dtype_argument(call, FB_FLOAT32);
    case FB_DTYPE_RULE_FULL: return dtype_argument(call, dtype_of_fill(call));
    case FB_DTYPE_RULE_CAST: return dtype_of_cast(call);
    case FB_DTYPE_RULE_TRUTH: return dtype_of_first(call) == FB_UINT8 ? FB_DTYPE_UNKNOWN : FB_BOOL;
    case FB_DTYPE_RULE_BOOL: return FB_BOOL;
    case FB_DTYPE_RULE_INT32: return FB_INT32;
    case FB_DTYPE_RULE_INT64: return FB_INT64;
    case FB_DTYPE_RULE_FLOAT16: return FB_FLOAT16;
    case FB_DTYPE_RULE_BFLOAT16: return FB_BFLOAT16;
    case FB_DTYPE_RULE_FLOAT32: return FB_FLOAT32;
    case FB_DTYPE_RULE_FLOAT64: return FB_FLOAT64;
    }
    return FB_DTYPE_UNKNOWN;
}

/* With out=y the result is y, whose dtype stays as it is; only its shape follows from the call. */
static fb_dtype dtype_of_out(const fb_shape_call *call, fb_dtype otherwise) {
    fb_value out = fb_node_kwarg(call->graph, call->node, "out");
    if (fb_is_absent(call->graph, out)) return otherwise;
    return fb_operand_of(call->graph, out).type.dtype;
}

/* ---- the node -------------------------------------------------------------------------------------------------------- */

static bool reads_known_tensor(const fb_graph *graph, fb_node node) {
    fb_type ignored;
    for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
        if (fb_recorded_shape(graph, fb_edge_input(graph, edge), &ignored)) return true;
    }
    return false;
}

static bool first_is_known_tensor(const fb_graph *graph, fb_node node) {
    fb_type ignored;
    fb_node first = fb_arg_node(graph, node, 0);
    return first.id && fb_recorded_shape(graph, first, &ignored);
}

/* Operators that give a tuple, or a number, for some arguments. */
static bool gives_one_tensor(const fb_shape_call *call, fb_shape_rule rule) {
    const fb_graph *graph = call->graph;
    unsigned flags = fb_op_facts_of(call->op)->flags;
    if (rule == FB_SHAPE_GETITEM && fb_is_split(graph, fb_arg_node(graph, call->node, 0))) return true;
    if (flags & FB_FACT_MAYBE_NUMBER && !reads_known_tensor(graph, call->node)) return false;
    if (fb_result_kind_of(graph, call->node) == FB_A_NUMBER || flags & FB_FACT_TUPLE) return false;
    switch (rule) {
    case FB_SHAPE_GETITEM: return first_is_known_tensor(graph, call->node);
    case FB_SHAPE_REDUCE_ALL: return fb_call_has_only(graph, call->node, "input");
    case FB_SHAPE_MAX_POOL: return !fb_option_is_set(call, "return_indices");
    case FB_SHAPE_WHERE: return fb_call_argument(graph, call->node, "other").id;
    default: return true;
    }
}

/* PyTorch's names of what writes in place end so: x.set_(y), torch.ops.mine.grow_.default. */
static bool is_named_in_place(const char *target) {
    size_t length = strlen(target);
    const char *overload = strrchr(target, '.');
    bool ends = length > 1 && target[length - 1] == '_' && target[length - 2] != '_';
    return ends || (overload && overload > target + 1 && overload[-1] == '_' && overload[-2] != '_');
}

bool fb_reshapes_in_place(const fb_graph *graph, fb_node node) {
    fb_op op = fb_node_op(graph, node);
    if (op == FB_OP_UNKNOWN) return is_named_in_place(fb_node_target(graph, node));
    return op & FB_OP_IN_PLACE && fb_op_facts_of(op)->flags & FB_FACT_RESHAPES_IN_PLACE;
}

/* In place the result is the first argument, except where the operator gives that one another shape. */
static void rules_of(fb_op op, fb_shape_rule *shape, fb_dtype_rule *dtype) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    *shape = (fb_shape_rule)facts->shape;
    *dtype = (fb_dtype_rule)facts->dtype;
    if (!(op & FB_OP_IN_PLACE) || *shape == FB_SHAPE_UNKNOWN) return;
    if (!(facts->flags & FB_FACT_RESHAPES_IN_PLACE)) *shape = FB_SHAPE_SAME;
    *dtype = FB_DTYPE_RULE_SAME;
}

/* Infers by the operator's rules alone, apart from other arguments of the call. */
static bool infer_by_rules(const fb_graph *graph, fb_node node, bool is_item, fb_shape_result *result) {
    const fb_node_row *row = fb_node_at(graph, node);
    fb_op op = fb_node_op(graph, node);
    fb_shape_call call = {graph, node, (fb_op)(op & ~FB_OP_IN_PLACE), row->opcode == FB_CALL_MODULE};
    fb_shape_rule shape;
    fb_dtype_rule dtype;
    rules_of(op, &shape, &dtype);
    if (shape == FB_SHAPE_UNKNOWN || (!is_item && !gives_one_tensor(&call, shape))) return false;
    result->dtype = FB_DTYPE_UNKNOWN;
    result->rank = -1;
    if (!fb_shape_rules[shape](&call, result)) result->rank = -1;
    result->dtype = dtype_of_out(&call, infer_dtype(&call, dtype, result->dtype));
    return result->rank >= 0 || result->dtype;
}

bool fb_infer(const fb_graph *graph, fb_node node, fb_shape_result *result) {
    fb_node tuple = fb_call_of_value(graph, node);
    return infer_by_rules(graph, tuple, tuple.id != node.id, result);
}

fb_value fb_make_result_shape(fb_graph *graph, const fb_shape_result *result) {
    fb_value items[FB_MAX_RANK];
    if (result->rank < 0) return (fb_value){0};
    for (int i = 0; i < result->rank; i++) {
        fb_dim dim = result->sizes[i];
        if (dim.symbol.id) {
            items[i] = fb_make_text(graph, FB_STRING, fb_text(graph, dim.symbol), fb_text_length(graph, dim.symbol));
        } else {
            items[i] = fb_make_int(graph, dim.size);
        }
    }
    return fb_make_list(graph, items, (size_t)result->rank);
}
