/* FoldShapes: replaces Python values that are known without running the graph with numbers.
 *
 *     x ── size ── [0] ──┐
 *     x ──────────────── view(·, -1, 4, 8)          x ── view(2, -1, 4, 8)
 *
 * Replaces sizes that are recorded as ints, and what follows from them: shapes, their slices and sums, arithmetic on sizes,
 * x.dtype and torch.finfo(x.dtype).min. Also replaces a tensor without dimensions that is full of such a number, where
 * elementwise arithmetic reads it beside a tensor of the same dtype.
 *
 * Afterwards, a graph whose shapes are recorded as ints is valid only for these shapes. To keep an axis open, give it a
 * symbolic size ("s0"): the pass leaves it alone.
 *
 * In ONNX models what only sizes make becomes a constant where they are numbers, and from opset 15 on one Shape where they are
 * sizes in a row of one value; in branches, bodies and functions as well.
 *
 * Kept:
 *   - what the graph returns
 *   - what an unknown operator reads, or whose method or attribute is read (a torch.Size has more of them than a tuple)
 *   - a tensor where PyTorch takes only tensors (torch.maximum: core/analysis/calls.def)
 *   - what is asked of a tensor that is written in place, because the write may change its shape
 *
 * Exactness: moves. Reversible.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/calls.h"
#include "core/analysis/number.h"
#include "core/analysis/onnx.h"
#include "core/analysis/onnx_types.h"
#include "core/analysis/shape.h"
#include "core/pass/build.h"
#include "core/pass/constants.h"
#include "core/pass/pass.h"
#include "core/weights/dtype.h"

/* ---- values that are known without running anything: recorded sizes and dtypes, and arithmetic on them ------------------- */

typedef enum known_kind {
    KNOWN_SIZES, /* an int, or a torch.Size or tuple of ints */
    KNOWN_FLOAT,
    KNOWN_DTYPE,
} known_kind;

typedef struct known_value {
    known_kind kind;
    fb_sizes sizes;
    double real;
    fb_dtype dtype;
} known_value;

enum {
    MAX_DEPTH = 24, /* of arithmetic in arithmetic */
    MAX_NODES = 256 /* that one value is computed from */
};

/* The known value of a node, as far as others can be computed from it. */
typedef struct found {
    fb_node node;
    int depth; /* that was left when it was looked for: what was not found may be found with more */
    enum { FOUND_NOTHING, FOUND_INT, FOUND_FLOAT, FOUND_DTYPE, FOUND_SEQUENCE } kind;
    double real; /* of an int, too */
    int64_t integer;
    fb_dtype dtype;
} found;

/* One value under way. Each node is looked at once, however often it is read: f[i] = f[i - 1] + f[i - 1] doubles otherwise. */
typedef struct evaluator {
    const fb_graph *graph;
    int count;
    found seen[MAX_NODES];
} evaluator;

static bool evaluate(evaluator *e, fb_node node, int depth, known_value *known);

static found summary(fb_node node, int depth, bool is_known, const known_value *known) {
    found what = {.node = node, .depth = depth};
    if (!is_known) return what;
    what.kind = known->kind == KNOWN_FLOAT   ? FOUND_FLOAT
                : known->kind == KNOWN_DTYPE ? FOUND_DTYPE
                : known->sizes.is_sequence   ? FOUND_SEQUENCE
                                             : FOUND_INT;
    if (what.kind == FOUND_FLOAT) what.real = known->real;
    if (what.kind == FOUND_INT) what.integer = known->sizes.items[0].size, what.real = (double)what.integer;
    if (what.kind == FOUND_DTYPE) what.dtype = known->dtype;
    return what;
}

static found look_at(evaluator *e, fb_node node, int depth) {
    known_value known;
    int at = 0;
    while (at < e->count && e->seen[at].node.id != node.id) at++;
    if (at < e->count && (e->seen[at].kind != FOUND_NOTHING || e->seen[at].depth >= depth)) return e->seen[at];
    if (at == MAX_NODES) return (found){.node = node};
    if (at == e->count) e->seen[e->count++] = (found){.node = node};
    return e->seen[at] = summary(node, depth, evaluate(e, node, depth, &known), &known);
}

static bool is_static(const fb_sizes *sizes) {
    for (int i = 0; i < sizes->count; i++) {
        if (sizes->items[i].symbol.id) return false;
    }
    return true;
}

static bool give_real(known_value *known, double real) {
    known->kind = KNOWN_FLOAT;
    known->real = real;
    return isfinite(real);
}

static bool give_dtype(known_value *known, fb_dtype dtype) {
    known->kind = KNOWN_DTYPE;
    known->dtype = dtype;
    return dtype != FB_DTYPE_UNKNOWN;
}

/* ---- dtypes -------------------------------------------------------------------------------------------------------------- */

static fb_dtype dtype_of(evaluator *e, fb_value value, int depth) {
    const fb_graph *g = e->graph;
    fb_node node = fb_value_node(g, value);
    if (node.id) return look_at(e, node, depth).dtype;
    return value.id && fb_value_kind(g, value) == FB_DTYPE ? fb_dtype_find(fb_value_text(g, value)) : FB_DTYPE_UNKNOWN;
}

/* torch.finfo(dtype).min and the like. */
static bool evaluate_limit(evaluator *e, fb_node info, const char *name, int depth, known_value *known) {
    fb_dtype_range range;
    if (!fb_dtype_limits(dtype_of(e, fb_call_only_argument(e->graph, info, "type"), depth), &range)) return false;
    if (strcmp(name, "max") == 0) return give_real(known, range.largest);
    if (strcmp(name, "min") == 0) return give_real(known, -range.largest);
    return (strcmp(name, "tiny") == 0 || strcmp(name, "smallest_normal") == 0) && give_real(known, range.smallest_normal);
}

static bool evaluate_attribute(evaluator *e, fb_node node, int depth, known_value *known) {
    const fb_graph *g = e->graph;
    fb_value text = fb_node_arg(g, node, 1);
    const char *name = text.id && fb_value_kind(g, text) == FB_STRING ? fb_value_text(g, text) : NULL;
    fb_node of = fb_arg_node(g, node, 0);
    if (!name || !of.id) return false;
    if (fb_op_is(g, of, FB_OP_DTYPE_INFO)) return evaluate_limit(e, of, name, depth, known);
    return strcmp(name, "dtype") == 0 && give_dtype(known, (fb_dtype)fb_node_at(g, of)->dtype);
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static bool number_of(evaluator *e, fb_value value, int depth, fb_number *out) {
    const fb_graph *g = e->graph;
    fb_node node = fb_value_node(g, value);
    if (!node.id) {
        bool is_int = value.id && fb_value_kind(g, value) == FB_INT;
        *out = (fb_number){.is_int = is_int, .integer = is_int ? fb_value_at(g, value)->integer : 0};
        return value.id && fb_value_is_number(g, value, &out->real);
    }
    found what = look_at(e, node, depth);
    *out = (fb_number){.is_int = what.kind == FOUND_INT, .integer = what.integer, .real = what.real};
    return what.kind == FOUND_INT || what.kind == FOUND_FLOAT;
}

/* Evaluates arithmetic that gives a float; ints alone are core/analysis/sizes.c's. */
static bool evaluate_arithmetic(evaluator *e, fb_node node, fb_arithmetic op, int depth, known_value *known) {
    const fb_graph *g = e->graph;
    fb_number a, b, result;
    if (!number_of(e, fb_node_arg(g, node, 0), depth, &a) || !number_of(e, fb_node_arg(g, node, 1), depth, &b)) return false;
    if (op == FB_ARITHMETIC_FLOOR_DIVIDE || op == FB_ARITHMETIC_REMAINDER || (op == FB_ARITHMETIC_POW && a.real <= 0))
        return false;
    return fb_number_calculate(op, a, b, &result) && !result.is_int && give_real(known, result.real);
}

static bool evaluate(evaluator *e, fb_node node, int depth, known_value *known) {
    const fb_graph *g = e->graph;
    const fb_node_row *row = fb_node_at(g, node);
    if (!depth || (row->opcode != FB_CALL_FUNCTION && row->opcode != FB_CALL_METHOD) || (row->op & FB_OP_IN_PLACE))
        return false;
    known->sizes.is_sequence = false;
    if (row->op == FB_OP_GETATTR && evaluate_attribute(e, node, depth - 1, known)) return true;
    fb_arithmetic op = fb_op_arithmetic_of_numbers(row->op);
    if (op && fb_value_at(g, row->args)->count == 2 && evaluate_arithmetic(e, node, op, depth - 1, known)) return true;
    known->kind = KNOWN_SIZES;
    return fb_evaluate_sizes(g, (fb_value){node.id | FB_VALUE_IS_NODE}, &known->sizes) && is_static(&known->sizes);
}

/* The known value of a call: x.size(0), x.shape[:-1] + (4,), x.size(-1) ** -0.5, x.dtype, torch.finfo(x.dtype).min. False for
 * tensors, symbolic sizes, and what is not recorded. As recorded: whether the tensor is given another shape later is not looked
 * at. */
static bool known_at(const fb_graph *graph, fb_node node, known_value *known) {
    evaluator e;
    e.graph = graph; /* what was seen is not set: most nodes are not arithmetic */
    e.count = 0;
    return evaluate(&e, node, MAX_DEPTH, known);
}

/* The same as a literal; a torch.Size becomes a tuple. */
static fb_value make_known(fb_graph *g, const known_value *known) {
    fb_value items[FB_MAX_RANK];
    if (known->kind == KNOWN_FLOAT) return fb_make_float(g, known->real);
    if (known->kind == KNOWN_DTYPE) {
        const char *name = fb_dtype_name(known->dtype);
        return fb_make_text(g, FB_DTYPE, name, strlen(name));
    }
    for (int i = 0; i < known->sizes.count; i++) items[i] = fb_make_int(g, known->sizes.items[i].size);
    return known->sizes.is_sequence ? fb_make_tuple(g, items, (size_t)known->sizes.count) : items[0];
}

#define NODES_OF_A_VALUE 64 /* as many others may be looked at for one */
#define DEEPEST 4           /* slices of slices of a torch.Size */

/* full([], 2.8, dtype=float32): the number, rounded to the dtype. */
static bool number_in_tensor(const fb_graph *g, fb_node n, known_value *known) {
    const fb_node_row *row = fb_node_at(g, n);
    if (!fb_op_is(g, n, FB_OP_FULL) || fb_call_has_schema(g, n) || !row->shape.id || fb_shape_rank(g, row->shape)) return false;
    if (!fb_dtype_is_computed((fb_dtype)row->dtype)) return false;
    fb_value fill = fb_call_argument(g, n, "fill_value");
    fb_node computed = fb_value_node(g, fill);
    known->kind = KNOWN_FLOAT;
    if (!computed.id && !fb_value_is_number(g, fill, &known->real)) return false;
    if (computed.id && (!known_at(g, computed, known) || known->kind != KNOWN_FLOAT)) return false;
    fb_round_numbers((fb_dtype)row->dtype, &known->real, 1);
    return true;
}

static bool find(const fb_graph *g, fb_node n, known_value *known) {
    return known_at(g, n, known) || number_in_tensor(g, n, known);
}

/* Does the reader give the same with the number in the place of the tensor? It does where PyTorch takes one there, beside a
 * tensor with dimensions, whose dtype decides. */
static bool takes_number(const fb_graph *g, fb_node tensor, fb_node reader) {
    const fb_node_row *row = fb_node_at(g, reader), *now = fb_node_at(g, tensor);
    fb_op op = fb_node_op(g, reader);
    bool is_beside = false;
    if (!(fb_op_facts_of(op)->flags & FB_FACT_ELEMENTWISE) || (op & FB_OP_IN_PLACE)) return false;
    if (row->opcode == FB_CALL_MODULE || row->dtype != now->dtype || !fb_call_takes_number(g, reader, tensor)) return false;
    for (uint32_t e = fb_input_first(g, reader); e; e = fb_input_next(g, e)) {
        const fb_node_row *input = fb_node_at(g, fb_edge_input(g, e));
        is_beside |= input->dtype == now->dtype && input->shape.id && fb_shape_rank(g, input->shape) > 0;
    }
    return is_beside;
}

static fb_obstacle reader_obstacle(const fb_graph *g, fb_node n, fb_node reader, int depth);

static bool gives_size(const fb_graph *g, fb_node n) {
    known_value known;
    return known_at(g, n, &known) && known.kind == KNOWN_SIZES && known.sizes.is_sequence;
}

/* A slice or sum of a torch.Size is one, and a tuple's is a tuple: does the reader give one that stays? */
static bool keeps_size(const fb_graph *g, fb_node n, fb_node reader, int depth) {
    known_value known;
    bool may_be_one = fb_op_is(g, reader, FB_OP_GETITEM) || fb_op_is(g, reader, FB_OP_ADD) || fb_op_is(g, reader, FB_OP_MUL);
    if (!may_be_one || !gives_size(g, n)) return false;
    if (!known_at(g, reader, &known) || depth > DEEPEST) return true;
    bool stays = false;
    for (uint32_t e = gives_size(g, reader) ? fb_user_first(g, reader) : 0; e && !stays; e = fb_user_next(g, e))
        stays = reader_obstacle(g, reader, fb_edge_user(g, e), depth + 1).code != NULL;
    return stays;
}

static fb_obstacle reader_obstacle(const fb_graph *g, fb_node n, fb_node reader, int depth) {
    static const fb_obstacle unknown_reader = {"unknown-operator",
                                               "what reads it is not known, or asks for an attribute or a method of it"};
    const fb_node_row *row = fb_node_at(g, reader);
    if (row->opcode == FB_OUTPUT) return (fb_obstacle){"graph-output", "the graph returns it"};
    if (fb_op_is(g, reader, FB_OP_UNKNOWN) || fb_runs_inside(g, reader)) return unknown_reader;
    bool is_asked = row->opcode == FB_CALL_METHOD || fb_op_is(g, reader, FB_OP_GETATTR);
    if (is_asked && fb_value_node(g, fb_first_argument(g, reader)).id == n.id) return unknown_reader;
    if (keeps_size(g, n, reader, depth))
        return (fb_obstacle){"unsupported-reader",
                             "a slice or sum of it stays, which is a torch.Size, and would become a tuple"};
    return fb_op_is(g, n, FB_OP_FULL) && !takes_number(g, n, reader)
               ? (fb_obstacle){"unsupported-reader",
                               "what reads it takes no number in its place, or may give another dtype beside one"}
               : FB_NO_OBSTACLE;
}

/* Is everything that it is computed from known for good? `settled` is so far, by node. */
static bool is_settled(const fb_graph *g, const fb_alias *alias, fb_node n, const bool *settled, bool *is_written) {
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        if (fb_is_python_number(g, input)) {
            if (!settled[input.id] && !fb_op_is(g, n, FB_OP_FULL)) return false; /* a device may stay */
        } else if (fb_is_mutated(alias, input)) {
            *is_written = true;
            return false;
        }
    }
    return true;
}

static void match_known(fb_matcher *m, const fb_alias *alias, fb_node n, bool *settled) {
    const fb_graph *g = m->graph;
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    bool is_written = false;
    settled[n.id] = is_settled(g, alias, n, settled, &is_written);
    is_written |= fb_op_is(g, n, FB_OP_FULL) && fb_is_mutated(alias, n);
    if (is_written) fb_refuse_node(m, "mutated", n, "it, or what it is asked of, is written in place, and may become another");
    if (is_written || !settled[n.id] || !fb_node_at(g, n)->user_count) return;
    for (uint32_t e = fb_user_first(g, n); e && !obstacle.code && fb_matcher_goes_on(m); e = fb_user_next(g, e))
        obstacle = reader_obstacle(g, n, fb_edge_user(g, e), 0);
    if (obstacle.code) fb_refuse_for(m, obstacle, &n, 1);
    else fb_match_found(m, &n, 1);
}

/* ---- ONNX: values that only sizes make are tensors, and become constants ------------------------------------------------- */

enum { CHAIN = 256 /* calls that go with one value */, SHAPE_TAKES_A_RANGE = 15 /* opset */ };

/* Sizes of one value, from one dimension to before another. */
typedef struct sizes_range {
    fb_node of; /* none: it is no such range */
    int from, to;
} sizes_range;

typedef struct onnx_plan {
    fb_constant_plan made;
    const bool *is_shape;      /* by node: it gets the constant as its shape */
    const sizes_range *ranges; /* by node: it becomes a Shape */
} onnx_plan;

typedef struct onnx_search {
    fb_matcher *m;
    const fb_graph *graph;
    fb_onnx_types *types;
    bool *is_known;  /* by node: it is computed, and all its elements are numbers */
    uint32_t *is_in; /* by node: the last match that has it */
    fb_buffer chain; /* nodes of the match at hand, what one reads before it */
    fb_constant_list constants;
    bool *is_shape;
    sizes_range *ranges;
} onnx_search;

static bool is_computed_from_sizes(const onnx_search *s, fb_node n) {
    const fb_onnx_type *type = fb_onnx_type_of(s->types, n);
    fb_effects effects = fb_op_effects(s->graph, n);
    return fb_node_at(s->graph, n)->opcode == FB_CALL_FUNCTION && type->elements && !effects.is_unknown && !effects.is_random &&
           !effects.is_named;
}

/* The bytes of its elements; NULL where one is not a number, or the dtype is another. */
static unsigned char *bytes_of(const onnx_search *s, const fb_onnx_type *type, size_t *size) {
    size_t width = fb_dtype_size(type->dtype);
    bool is_single = type->dtype == FB_FLOAT32, is_real = is_single || type->dtype == FB_FLOAT64;
    unsigned char *bytes =
        type->dtype && (is_real || fb_dtype_is_integer(type->dtype)) ? malloc(type->count * width + 1) : NULL;
    *size = type->count * width;
    for (uint32_t i = 0; bytes && i < type->count; i++) {
        const fb_onnx_element *e = &type->elements[i];
        int64_t number = 0;
        bool is_right =
            is_real ? e->kind == FB_ONNX_REAL : fb_onnx_is_number(s->types, e->integer, &number) && e->kind == FB_ONNX_INT;
        uint64_t bits = (uint64_t)number;
        float single = (float)e->real;
        if (is_single) memcpy(&bits, &single, sizeof single);
        else if (is_real) memcpy(&bits, &e->real, sizeof bits);
        for (size_t k = 0; k < width; k++) bytes[i * width + k] = (unsigned char)(bits >> (8 * k));
        if (is_right) continue;
        free(bytes);
        return NULL;
    }
    return bytes;
}

static bool is_read_by_others(const onnx_search *s, fb_node n, bool *is_output) {
    bool is_read = false;
    *is_output = false;
    for (uint32_t e = fb_user_first(s->graph, n); e; e = fb_user_next(s->graph, e)) {
        fb_node reader = fb_edge_user(s->graph, e);
        is_read |= !s->is_known[reader.id];
        *is_output |= fb_node_at(s->graph, reader)->opcode == FB_OUTPUT;
    }
    return is_read;
}

/* Appends the nodes that it is computed from, inputs first: they may go with the value. */
static void gather_chain(onnx_search *s, fb_node n, uint32_t match, int depth) {
    if (s->is_in[n.id] == match || s->chain.size > CHAIN * sizeof n || depth > CHAIN) return;
    s->is_in[n.id] = match;
    for (uint32_t e = fb_input_first(s->graph, n); e; e = fb_input_next(s->graph, e))
        if (is_computed_from_sizes(s, fb_edge_input(s->graph, e)))
            gather_chain(s, fb_edge_input(s->graph, e), match, depth + 1);
    fb_buffer_append(&s->chain, &n, sizeof n);
}

/* The node, and before it in the chain what may go with its value. */
static bool report(onnx_search *s, fb_node n, fb_node from, onnx_plan *plan) {
    s->chain.size = 0;
    fb_buffer_append(&s->chain, &n, sizeof n);
    if (from.id) gather_chain(s, from, n.id, 0);
    if (s->chain.failed) return false;
    fb_match_found(s->m, (const fb_node *)(const void *)s->chain.data, s->chain.size / sizeof n);
    if (!plan->made.first.id) plan->made.first = n;
    return true;
}

static bool match_value(onnx_search *s, fb_node n, onnx_plan *plan) {
    const fb_onnx_type *type = fb_onnx_type_of(s->types, n);
    int64_t sizes[FB_ONNX_RANK];
    size_t size;
    bool is_output, ok = true;
    if (!is_read_by_others(s, n, &is_output)) return true;
    if (is_output) {
        fb_refuse_node(s->m, "graph-output", n, "the graph returns it");
        return true;
    }
    unsigned char *bytes = bytes_of(s, type, &size);
    for (int i = 0; i < type->rank; i++) ok &= fb_onnx_is_number(s->types, type->sizes[i], &sizes[i]);
    ok = ok && bytes && fb_constant_list_add(&s->constants, n, type->dtype, type->rank, sizes, bytes, size);
    free(bytes);
    return ok && report(s, n, n, plan);
}

/* A Reshape whose sizes are numbers, or those of its input. */
static bool match_shape(onnx_search *s, fb_node n, onnx_plan *plan) {
    int64_t sizes[FB_ONNX_RANK];
    unsigned char bytes[8 * FB_ONNX_RANK];
    int count = fb_onnx_sizes_to_give(s->types, n, sizes);
    if (count < 0) return true;
    fb_node from = fb_arg_node(s->graph, n, 1);
    if (s->is_known[from.id]) return true; /* it becomes a constant itself */
    for (int i = 0; i < 8 * count; i++) bytes[i] = (unsigned char)((uint64_t)sizes[i / 8] >> (i % 8 * 8));
    s->is_shape[n.id] = true;
    return fb_constant_list_add(&s->constants, n, FB_INT64, 1, (int64_t[]){count}, bytes, (size_t)count * 8) &&
           report(s, n, from, plan);
}

static bool has_sizes(const onnx_search *s, const fb_onnx_type *value, fb_node of, int from) {
    const fb_onnx_type *type = fb_onnx_type_of(s->types, of);
    if (from + (int)value->count > type->rank) return false;
    for (uint32_t i = 0; i < value->count; i++) {
        const fb_onnx_element *e = &value->elements[i];
        if (e->kind != FB_ONNX_INT || !e->integer || e->integer != type->sizes[from + (int)i]) return false;
    }
    return true;
}

/* Are the elements sizes in a row of something that a Shape before it is asked of? */
static sizes_range find_range(onnx_search *s, fb_node n) {
    const fb_onnx_type *type = fb_onnx_type_of(s->types, n);
    bool may_be = fb_graph_opset(s->graph) >= SHAPE_TAKES_A_RANGE && type->rank == 1 && type->dtype == FB_INT64 &&
                  type->count && !fb_op_is(s->graph, n, FB_OP_ONNX_SHAPE) && fb_onnx_results(s->graph, n) < 0;
    if (!may_be || !is_computed_from_sizes(s, n)) return (sizes_range){0};
    s->chain.size = 0;
    gather_chain(s, n, n.id, 0);
    const fb_node *chain = (const fb_node *)(const void *)s->chain.data;
    for (size_t i = 0; i < s->chain.size / sizeof n; i++) {
        fb_node of =
            fb_op_is(s->graph, chain[i], FB_OP_ONNX_SHAPE) ? fb_call_argument_node(s->graph, chain[i], "input") : (fb_node){0};
        for (int from = 0; of.id && from < fb_onnx_type_of(s->types, of)->rank; from++)
            if (has_sizes(s, type, of, from)) return (sizes_range){of, from, from + (int)type->count};
    }
    return (sizes_range){0};
}

/* One that others than such ranges read. */
static bool match_range(onnx_search *s, fb_node n, onnx_plan *plan) {
    bool is_read = false;
    for (uint32_t e = fb_user_first(s->graph, n); e; e = fb_user_next(s->graph, e))
        is_read |= !s->ranges[fb_edge_user(s->graph, e).id].of.id;
    s->is_in[n.id] = 0; /* the chain is gathered again */
    return !is_read || report(s, n, n, plan);
}

static void find_known(onnx_search *s, fb_program program) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, program); n.id && fb_matcher_goes_on(s->m); n = fb_next_node(g, n)) {
        size_t size;
        unsigned char *bytes = is_computed_from_sizes(s, n) ? bytes_of(s, fb_onnx_type_of(s->types, n), &size) : NULL;
        s->is_known[n.id] = bytes != NULL;
        free(bytes);
        if (!s->is_known[n.id]) s->ranges[n.id] = find_range(s, n);
    }
}

static bool match_program(onnx_search *s, fb_program program, onnx_plan *made) {
    bool ok = true;
    for (fb_node n = fb_first_node(s->graph, program); n.id && ok && fb_matcher_goes_on(s->m); n = fb_next_node(s->graph, n))
        ok = s->is_known[n.id]       ? match_value(s, n, made)
             : s->ranges[n.id].of.id ? match_range(s, n, made)
                                     : match_shape(s, n, made);
    return ok;
}

static void match_onnx(fb_matcher *m) {
    const fb_graph *g = m->graph;
    size_t limit = (size_t)fb_node_limit(g) + 1;
    onnx_search s = {.m = m,
                     .graph = g,
                     .types = fb_onnx_types_find(g, m->work),
                     .is_known = calloc(limit, sizeof *s.is_known),
                     .is_in = calloc(limit, sizeof *s.is_in)};
    onnx_plan *plan = fb_arena_alloc(m->arena, sizeof *plan), made = {0};
    s.is_shape = fb_arena_alloc(m->arena, limit * sizeof *s.is_shape);
    s.ranges = fb_arena_alloc(m->arena, limit * sizeof *s.ranges);
    bool ok = fb_constant_list_begin(&s.constants, m) && s.types && s.is_known && s.is_in && s.is_shape && s.ranges && plan;
    if (s.ranges) memset(s.ranges, 0, limit * sizeof *s.ranges);
    if (s.is_shape) memset(s.is_shape, 0, limit * sizeof *s.is_shape);
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_programs_to_clean(g) && ok; p++) find_known(&s, (fb_program){p});
    if (s.is_in) memset(s.is_in, 0, limit * sizeof *s.is_in);
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_programs_to_clean(g) && ok; p++)
        ok = match_program(&s, (fb_program){p}, &made);
    fb_node first = made.made.first;
    ok &= fb_constant_list_end(&s.constants, &made.made);
    made.made.first = first;
    made.is_shape = s.is_shape;
    made.ranges = s.ranges;
    if (ok) *plan = made;
    m->plan = plan;
    m->failed |= !ok;
    fb_buffer_free(&s.chain);
    fb_onnx_types_free(s.types);
    free(s.is_known);
    free(s.is_in);
}

static void edit_onnx(fb_rewrite *rw, const fb_match *match) {
    const onnx_plan *plan = match->plan;
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node n = match->nodes[0];
    fb_put_planned(rw, &plan->made, match);
    for (size_t i = 1; i < match->count; i++) /* what is read before what reads it: erasures take effect last first */
        if (match->nodes[i].id != n.id) fb_erase_unread(rw, match->nodes[i]);
    const sizes_range *range = &plan->ranges[n.id];
    if (range->of.id) {
        fb_value from = fb_make_int(g, range->from), to = fb_make_int(g, range->to), kwargs = FB_VALUE_EMPTY_MAP;
        if (range->from) kwargs = fb_map_with(g, kwargs, "start", from);
        if (range->to < fb_node_rank(g, range->of)) kwargs = fb_map_with(g, kwargs, "end", to);
        fb_build_over(rw, n, FB_MADE_SHAPE, FB_ARGS(g, fb_make_node(g, range->of)), kwargs);
        fb_mark(rw, n);
        return;
    }
    fb_node read = fb_read_planned(rw, &plan->made, n);
    if (!read.id) return;
    if (plan->is_shape[n.id]) {
        fb_set_args(rw, n, fb_list_with(g, fb_node_at(g, n)->args, 1, fb_make_node(g, read)), fb_node_at(g, n)->kwargs);
        fb_mark(rw, n);
        return;
    }
    fb_release_reads(rw, n);
    fb_absorb(rw, n, read);
    fb_mark(rw, read);
}

/* ---- the pass ------------------------------------------------------------------------------------------------------------ */

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    bool *settled = calloc(fb_node_limit(g), sizeof *settled);
    m->failed |= !settled;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_takes(m, NODES_OF_A_VALUE); n = fb_next_node(g, n)) {
        known_value known;
        bool ignored = false;
        if (find(g, n, &known)) match_known(m, alias, n, settled);
        else if (fb_op_is(g, n, FB_OP_DTYPE_INFO)) settled[n.id] = is_settled(g, alias, n, settled, &ignored);
    }
    free(settled);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    known_value known;
    if (find(fb_rewrite_graph(rw), match->nodes[0], &known))
        fb_write_literal(rw, match->nodes[0], make_known(fb_rewrite_graph(rw), &known));
}

const fb_pass fb_fold_shapes = {
    .name = "FoldShapes",
    .version = 1,
    .summary = "Replaces recorded sizes and dtypes, and arithmetic on them, with numbers.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .only_removes = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .edit = edit,
    .match_onnx = match_onnx,
    .edit_onnx = edit_onnx,
};
