#include "core/passes/known.h"

#include <math.h>
#include <string.h>

#include "core/weights/dtype.h"

enum {
    MAX_DEPTH = 24, /* of arithmetic in arithmetic */
    MAX_NODES = 256 /* that one value is computed from */
};

/* What was found of a node, as far as others can be computed from it. */
typedef struct found {
    fb_node node;
    int depth; /* that was left when it was looked for: what was not found may be found with more */
    enum { FOUND_NOTHING, FOUND_INT, FOUND_FLOAT, FOUND_DTYPE, FOUND_SEQUENCE } kind;
    double real; /* of an int, too */
    fb_dtype dtype;
} found;

/* One value under way. Each node is looked at once, however often it is read: f[i] = f[i - 1] + f[i - 1] doubles otherwise. */
typedef struct evaluator {
    const fb_graph *graph;
    int count;
    found seen[MAX_NODES];
} evaluator;

static bool evaluate(evaluator *e, fb_node node, int depth, fb_known *known);

static found summary(fb_node node, int depth, bool is_known, const fb_known *known) {
    found what = {.node = node, .depth = depth};
    if (!is_known) return what;
    what.kind = known->kind == FB_KNOWN_FLOAT   ? FOUND_FLOAT
                : known->kind == FB_KNOWN_DTYPE ? FOUND_DTYPE
                : known->sizes.is_sequence      ? FOUND_SEQUENCE
                                                : FOUND_INT;
    if (what.kind == FOUND_FLOAT) what.real = known->real;
    if (what.kind == FOUND_INT) what.real = (double)known->sizes.items[0].size;
    if (what.kind == FOUND_DTYPE) what.dtype = known->dtype;
    return what;
}

static found look_at(evaluator *e, fb_node node, int depth) {
    fb_known known;
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

static bool give_real(fb_known *known, double real) {
    known->kind = FB_KNOWN_FLOAT;
    known->real = real;
    return isfinite(real);
}

static bool give_dtype(fb_known *known, fb_dtype dtype) {
    known->kind = FB_KNOWN_DTYPE;
    known->dtype = dtype;
    return dtype != FB_DTYPE_UNKNOWN;
}

/* ---- dtypes -------------------------------------------------------------------------------------------------------------- */

static fb_dtype dtype_of(evaluator *e, fb_value value, int depth) {
    const fb_graph *g = e->graph;
    fb_node node = value.id ? fb_value_node(g, value) : (fb_node){0};
    if (node.id) return look_at(e, node, depth).dtype;
    return value.id && fb_value_kind(g, value) == FB_DTYPE ? fb_dtype_find(fb_value_text(g, value)) : FB_DTYPE_UNKNOWN;
}

/* torch.finfo(dtype).min and the like. */
static bool evaluate_limit(evaluator *e, fb_node info, const char *name, int depth, fb_known *known) {
    fb_dtype_range range;
    if (!fb_dtype_limits(dtype_of(e, fb_call_only_argument(e->graph, info, "type"), depth), &range)) return false;
    if (strcmp(name, "max") == 0) return give_real(known, range.largest);
    if (strcmp(name, "min") == 0) return give_real(known, -range.largest);
    return (strcmp(name, "tiny") == 0 || strcmp(name, "smallest_normal") == 0) && give_real(known, range.smallest_normal);
}

static bool evaluate_attribute(evaluator *e, fb_node node, int depth, fb_known *known) {
    const fb_graph *g = e->graph;
    fb_value text = fb_node_arg(g, node, 1);
    const char *name = text.id && fb_value_kind(g, text) == FB_STRING ? fb_value_text(g, text) : NULL;
    fb_node of = fb_value_node(g, fb_node_arg(g, node, 0));
    if (!name || !of.id) return false;
    if (fb_op_is(g, of, FB_OP_DTYPE_INFO)) return evaluate_limit(e, of, name, depth, known);
    return strcmp(name, "dtype") == 0 && give_dtype(known, (fb_dtype)fb_node_at(g, of)->dtype);
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

typedef struct number {
    double real;
    bool is_int;
} number;

static bool number_of(evaluator *e, fb_value value, int depth, number *out) {
    const fb_graph *g = e->graph;
    fb_node node = value.id ? fb_value_node(g, value) : (fb_node){0};
    if (!node.id) {
        out->is_int = value.id && fb_value_kind(g, value) == FB_INT;
        return value.id && fb_value_is_number(g, value, &out->real);
    }
    found what = look_at(e, node, depth);
    *out = (number){what.real, what.kind == FOUND_INT};
    return what.kind == FOUND_INT || what.kind == FOUND_FLOAT;
}

/* As Python does it on floats; ints alone are core/ops/sizes.c's, but for those that give a float. */
static bool evaluate_arithmetic(evaluator *e, fb_node node, fb_op op, int depth, fb_known *known) {
    const fb_graph *g = e->graph;
    number a, b;
    if (!number_of(e, fb_node_arg(g, node, 0), depth, &a) || !number_of(e, fb_node_arg(g, node, 1), depth, &b)) return false;
    bool is_int = a.is_int && b.is_int;
    switch (op) {
    case FB_OP_ADD: return !is_int && give_real(known, a.real + b.real);
    case FB_OP_SUB: return !is_int && give_real(known, a.real - b.real);
    case FB_OP_MUL: return !is_int && give_real(known, a.real * b.real);
    case FB_OP_TRUE_DIVIDE: return b.real != 0 && give_real(known, a.real / b.real);
    case FB_OP_POW: return !(is_int && b.real >= 0) && a.real > 0 && give_real(known, pow(a.real, b.real));
    default: return false;
    }
}

static bool evaluate(evaluator *e, fb_node node, int depth, fb_known *known) {
    const fb_graph *g = e->graph;
    const fb_node_row *row = fb_node_at(g, node);
    if (!depth || (row->opcode != FB_CALL_FUNCTION && row->opcode != FB_CALL_METHOD) || (row->op & FB_OP_IN_PLACE))
        return false;
    known->sizes.is_sequence = false;
    if (row->op == FB_OP_GETATTR && evaluate_attribute(e, node, depth - 1, known)) return true;
    if (fb_value_at(g, row->args)->count == 2 && evaluate_arithmetic(e, node, row->op, depth - 1, known)) return true;
    known->kind = FB_KNOWN_SIZES;
    return fb_evaluate_sizes(g, (fb_value){node.id | FB_VALUE_IS_NODE}, &known->sizes) && is_static(&known->sizes);
}

bool fb_known_at(const fb_graph *graph, fb_node node, fb_known *known) {
    evaluator e;
    e.graph = graph; /* what was seen is not set: most nodes are no arithmetic */
    e.count = 0;
    return evaluate(&e, node, MAX_DEPTH, known);
}

fb_value fb_make_known(fb_graph *g, const fb_known *known) {
    fb_value items[FB_MAX_RANK];
    if (known->kind == FB_KNOWN_FLOAT) return fb_make_float(g, known->real);
    if (known->kind == FB_KNOWN_DTYPE) {
        const char *name = fb_dtype_name(known->dtype);
        return fb_make_text(g, FB_DTYPE, name, strlen(name));
    }
    for (int i = 0; i < known->sizes.count; i++) items[i] = fb_make_int(g, known->sizes.items[i].size);
    return known->sizes.is_sequence ? fb_make_tuple(g, items, (size_t)known->sizes.count) : items[0];
}
