/* Python values computed from shapes: x.size(0), x.shape[:-1] + (4,), a * b, len(s). */
#include <string.h>

#include "core/analysis/number.h"
#include "core/analysis/shape.h"

/* Bounds the work for one value in any graph: a chain of sums doubles otherwise. */
typedef struct evaluator {
    const fb_graph *graph;
    int depth, steps;
} evaluator;

enum { MAX_DEPTH = 24, MAX_STEPS = 256 };

static bool evaluate(evaluator *e, fb_value value, fb_sizes *out);

static bool evaluate_scalar(evaluator *e, fb_value value, fb_dim *out) {
    fb_sizes sizes;
    if (!evaluate(e, value, &sizes) || sizes.is_sequence) return false;
    *out = sizes.items[0];
    return true;
}

static bool give(fb_sizes *out, fb_dim dim) {
    out->is_sequence = false;
    out->count = 1;
    out->items[0] = dim;
    return true;
}

static bool evaluate_sequence(evaluator *e, const fb_value_row *row, fb_sizes *out) {
    if (row->count > FB_MAX_RANK) return false;
    fb_sizes found = {.is_sequence = true, .count = (int)row->count};
    for (uint32_t i = 0; i < row->count; i++) {
        if (!evaluate_scalar(e, row->items[i], &found.items[i])) return false;
    }
    *out = found;
    return true;
}

static bool shape_of_argument(evaluator *e, fb_node node, fb_type *type) {
    fb_operand operand = fb_operand_of(e->graph, fb_first_argument(e->graph, node));
    *type = operand.type;
    return operand.kind == FB_OPERAND_TENSOR && type->rank >= 0;
}

static bool give_shape(const fb_type *type, fb_sizes *out) {
    out->is_sequence = true;
    out->count = type->rank;
    memcpy(out->items, type->sizes, (size_t)type->rank * sizeof *out->items);
    return true;
}

static bool evaluate_size_call(evaluator *e, fb_node node, fb_sizes *out) {
    fb_type type;
    if (!shape_of_argument(e, node, &type)) return false;
    fb_value dim = fb_call_argument(e->graph, node, "dim");
    if (fb_is_absent(e->graph, dim)) return give_shape(&type, out);
    int64_t axis;
    int index;
    if (!fb_value_is_int(e->graph, dim, &axis) || !fb_normalise_axis(axis, type.rank, &index)) return false;
    return give(out, type.sizes[index]);
}

static bool evaluate_getattr(evaluator *e, fb_node node, fb_sizes *out) {
    fb_value name = fb_node_arg(e->graph, node, 1);
    const char *text = name.id ? fb_value_text(e->graph, name) : NULL;
    fb_type type;
    if (!text || !shape_of_argument(e, node, &type)) return false;
    if (strcmp(text, "shape") == 0) return give_shape(&type, out);
    return strcmp(text, "ndim") == 0 && give(out, fb_dim_of(type.rank));
}

/* One end of a slice: None gives `fallback`; Python clips to 0 … count. */
static bool evaluate_end(evaluator *e, fb_value value, int fallback, int count, int *out) {
    *out = fallback;
    if (fb_is_absent(e->graph, value)) return true;
    fb_dim end;
    if (!evaluate_scalar(e, value, &end) || end.symbol.id) return false;
    int64_t at = end.size < 0 ? end.size + count : end.size;
    *out = at < 0 ? 0 : at > count ? count : (int)at;
    return true;
}

static bool evaluate_getitem(evaluator *e, fb_node node, fb_sizes *out) {
    fb_value index = fb_node_arg(e->graph, node, 1);
    fb_sizes from;
    if (!index.id || !evaluate(e, fb_node_arg(e->graph, node, 0), &from) || !from.is_sequence) return false;
    if (fb_value_kind(e->graph, index) == FB_SLICE) {
        int start, stop;
        int64_t step = 1;
        fb_value step_value = fb_value_item(e->graph, index, 2);
        if (fb_value_kind(e->graph, step_value) != FB_NONE && !fb_value_is_int(e->graph, step_value, &step)) return false;
        if (step != 1 || !evaluate_end(e, fb_value_item(e->graph, index, 0), 0, from.count, &start) ||
            !evaluate_end(e, fb_value_item(e->graph, index, 1), from.count, from.count, &stop)) {
            return false;
        }
        from.count = stop > start ? stop - start : 0;
        memmove(from.items, from.items + start, (size_t)from.count * sizeof *from.items);
        *out = from;
        return true;
    }
    fb_dim at;
    int position;
    if (!evaluate_scalar(e, index, &at) || at.symbol.id || !fb_normalise_axis(at.size, from.count, &position)) return false;
    return give(out, from.items[position]);
}

static bool concatenate(fb_sizes *a, const fb_sizes *b) {
    if (a->count + b->count > FB_MAX_RANK) return false;
    memcpy(a->items + a->count, b->items, (size_t)b->count * sizeof *b->items);
    a->count += b->count;
    return true;
}

/* Ints; what a division gives of negative ones no size needs. */
static bool compute(fb_arithmetic op, int64_t a, int64_t b, fb_sizes *out) {
    fb_number number;
    bool divides = op == FB_ARITHMETIC_FLOOR_DIVIDE || op == FB_ARITHMETIC_REMAINDER;
    if (divides && (b <= 0 || a < 0)) return false;
    return fb_number_calculate(op, fb_number_of_int(a), fb_number_of_int(b), &number) && give(out, fb_dim_of(number.integer));
}

static bool evaluate_arithmetic(evaluator *e, fb_node node, fb_arithmetic op, fb_sizes *out) {
    fb_sizes a, b;
    if (!evaluate(e, fb_node_arg(e->graph, node, 0), &a) || !evaluate(e, fb_node_arg(e->graph, node, 1), &b)) return false;
    if (a.is_sequence && b.is_sequence && op == FB_ARITHMETIC_ADD && concatenate(&a, &b)) {
        *out = a;
        return true;
    }
    if (a.is_sequence || b.is_sequence || a.items[0].symbol.id || b.items[0].symbol.id) return false;
    return compute(op, a.items[0].size, b.items[0].size, out);
}

static bool may_be_size(fb_arithmetic op) {
    return op && op <= FB_ARITHMETIC_REMAINDER && op != FB_ARITHMETIC_TRUE_DIVIDE;
}

static bool evaluate_product(const fb_type *type, fb_sizes *out) {
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++) {
        if (type->sizes[i].symbol.id || __builtin_mul_overflow(count, type->sizes[i].size, &count)) return false;
    }
    return give(out, fb_dim_of(count));
}

static bool evaluate_node(evaluator *e, fb_node node, fb_sizes *out) {
    const fb_node_row *row = fb_node_at(e->graph, node);
    if (row->opcode != FB_CALL_FUNCTION && row->opcode != FB_CALL_METHOD) return false;
    fb_op op = (fb_op)(row->op & ~FB_OP_IN_PLACE);
    fb_arithmetic arithmetic = fb_op_arithmetic_of_numbers(op);
    fb_type type;
    switch (op) {
    case FB_OP_SIZE:
    case FB_OP_SYM_SIZE: return evaluate_size_call(e, node, out);
    case FB_OP_GETATTR: return evaluate_getattr(e, node, out);
    case FB_OP_GETITEM: return evaluate_getitem(e, node, out);
    case FB_OP_DIM: return shape_of_argument(e, node, &type) && give(out, fb_dim_of(type.rank));
    case FB_OP_NUMEL: return shape_of_argument(e, node, &type) && evaluate_product(&type, out);
    case FB_OP_LEN: {
        fb_sizes from;
        if (!evaluate(e, fb_node_arg(e->graph, node, 0), &from) || !from.is_sequence) return false;
        return give(out, fb_dim_of(from.count));
    }
    default: return may_be_size(arithmetic) && evaluate_arithmetic(e, node, arithmetic, out);
    }
}

static bool evaluate(evaluator *e, fb_value value, fb_sizes *out) {
    if (!value.id || e->depth == MAX_DEPTH || ++e->steps > MAX_STEPS) return false;
    const fb_value_row *row = fb_value_at(e->graph, value);
    e->depth++;
    bool is_known = false;
    switch (row->kind) {
    case FB_INT: is_known = give(out, fb_dim_of(row->integer)); break;
    case FB_LIST:
    case FB_TUPLE:
    case FB_SIZE: is_known = evaluate_sequence(e, row, out); break;
    case FB_NODE: is_known = evaluate_node(e, fb_value_node(e->graph, value), out); break;
    default: break;
    }
    e->depth--;
    return is_known;
}

bool fb_evaluate_sizes(const fb_graph *graph, fb_value value, fb_sizes *sizes) {
    evaluator e = {.graph = graph};
    return evaluate(&e, value, sizes);
}

bool fb_evaluate_size(const fb_graph *graph, fb_value value, fb_dim *size) {
    evaluator e = {.graph = graph};
    return evaluate_scalar(&e, value, size);
}

bool fb_evaluate_int(const fb_graph *graph, fb_value value, int64_t *out) {
    fb_dim size;
    if (!fb_evaluate_size(graph, value, &size) || size.symbol.id) return false;
    *out = size.size;
    return true;
}

bool fb_sizes_named(const fb_shape_call *call, const char *parameter, fb_sizes *sizes) {
    fb_argument_place place;
    fb_sizes first;
    if (!fb_call_argument_place(call->graph, call->node, parameter, &place)) return false;
    fb_value value = fb_call_argument(call->graph, call->node, parameter);
    if (!fb_evaluate_sizes(call->graph, value, &first)) return false;
    const fb_value_row *args = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args);
    if (first.is_sequence || place.is_keyword) {
        first.is_sequence = true;
        *sizes = first;
        return true;
    }
    if (args->count - place.index > FB_MAX_RANK) return false;
    fb_sizes found = {.is_sequence = true};
    for (size_t i = place.index; i < args->count; i++) {
        if (!fb_evaluate_size(call->graph, args->items[i], &found.items[found.count++])) return false;
    }
    *sizes = found;
    return true;
}

/* ---- options that are sizes -------------------------------------------------------------------------------------------- */

bool fb_option_int(const fb_shape_call *call, const char *name, int64_t fallback, int64_t *out) {
    fb_value value = fb_option(call, name);
    if (value.id) return fb_evaluate_int(call->graph, value, out);
    *out = fallback;
    return true;
}

bool fb_option_axis(const fb_shape_call *call, const char *name, int64_t fallback, int rank, int *out) {
    int64_t axis;
    return fb_option_int(call, name, fallback, &axis) && fb_normalise_axis(axis, rank, out);
}

bool fb_option_ints(const fb_shape_call *call, const char *name, int64_t fallback, int count, int64_t *out) {
    fb_value value = fb_option(call, name);
    fb_sizes sizes = {.items = {fb_dim_of(fallback)}};
    if (value.id && !fb_evaluate_sizes(call->graph, value, &sizes)) return false;
    if (sizes.is_sequence && sizes.count != count && sizes.count != 1) return false;
    for (int i = 0; i < count; i++) {
        fb_dim dim = sizes.items[sizes.is_sequence && sizes.count > 1 ? i : 0];
        if (dim.symbol.id) return false;
        out[i] = dim.size;
    }
    return true;
}
