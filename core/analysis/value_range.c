#include "core/analysis/value_range.h"

#include <math.h>

#include "core/analysis/constant.h"
#include "core/analysis/tensor_extent.h"
#include "core/analysis/view.h"
#include "core/base/base64.h"
#include "core/weights/dtype.h"

enum { NODES = 64 /* that are looked at for one value */, BYTES_OF_A_STEP = 256 };

typedef struct walk {
    const fb_graph *graph;
    const fb_alias *alias;
    fb_work *work;
    int left;
} walk;

static fb_bounds from_to(double a, double b) {
    return (fb_bounds){fmin(a, b), fmax(a, b)};
}

static fb_bounds hull(fb_bounds a, fb_bounds b) {
    return (fb_bounds){fmin(a.least, b.least), fmax(a.largest, b.largest)};
}

static double rounded(fb_dtype dtype, double number) {
    fb_round_numbers(dtype, &number, 1);
    return number;
}

/* Half the floats are computed in float32, and rounded once more. */
static double computed_in(fb_dtype dtype, double number) {
    return dtype == FB_FLOAT64 ? number : rounded(dtype, rounded(FB_FLOAT32, number));
}

/* A number that is written in the graph meets tensors as it is, as a float32, or as one of theirs. */
static fb_bounds of_number(fb_dtype dtype, double number) {
    fb_bounds exact = from_to(number, number);
    if (!fb_dtype_is_computed(dtype) || dtype == FB_FLOAT64) return exact;
    double single = rounded(FB_FLOAT32, number), narrow = rounded(dtype, number);
    return hull(exact, from_to(single, narrow));
}

static bool of_dtype(fb_dtype dtype, fb_bounds *out) {
    bool is_unsigned = dtype == FB_UINT8 || dtype == FB_UINT16 || dtype == FB_UINT32 || dtype == FB_UINT64;
    int bits = (int)fb_dtype_size(dtype) * 8;
    if (!fb_dtype_is_integer(dtype)) return false;
    if (dtype == FB_BOOL) *out = (fb_bounds){0, 1};
    else *out = is_unsigned ? (fb_bounds){0, ldexp(1, bits) - 1} : (fb_bounds){-ldexp(1, bits - 1), ldexp(1, bits - 1) - 1};
    return true;
}

/* ---- what is computed of two bounds, before it is rounded -------------------------------------------------------------- */

static bool are_finite(fb_bounds a) {
    return isfinite(a.least) && isfinite(a.largest);
}

static fb_bounds product(fb_bounds a, fb_bounds b) {
    return hull(from_to(a.least * b.least, a.largest * b.largest), from_to(a.least * b.largest, a.largest * b.least));
}

static bool quotient(fb_bounds a, fb_bounds b, fb_bounds *out) {
    if (b.least <= 0 && b.largest >= 0) return false;
    *out = hull(from_to(a.least / b.least, a.largest / b.largest), from_to(a.least / b.largest, a.largest / b.least));
    return true;
}

static bool difference(fb_bounds a, fb_bounds b, fb_bounds *out) {
    *out = (fb_bounds){a.least - b.largest, a.largest - b.least};
    return true;
}

/* ---- by operator --------------------------------------------------------------------------------------------------------- */

static bool of_value(walk *w, fb_node reader, fb_value value, fb_bounds *out);

static bool of_argument(walk *w, fb_node call, const char *parameter, fb_bounds *out) {
    fb_value value = fb_call_argument(w->graph, call, parameter);
    return value.id && of_value(w, call, value, out);
}

static bool of_both(walk *w, fb_node call, const char *first, const char *second, fb_bounds *a, fb_bounds *b) {
    return of_argument(w, call, first, a) && of_argument(w, call, second, b);
}

static bool of_arithmetic(walk *w, fb_node call, fb_arithmetic op, fb_bounds *out) {
    fb_bounds a, b;
    const char *const options[] = {"alpha", "rounding_mode"};
    for (size_t i = 0; i < 2; i++) {
        if (fb_call_argument(w->graph, call, options[i]).id) return false;
    }
    if (!of_both(w, call, "input", "other", &a, &b) || !are_finite(a) || !are_finite(b)) return false; /* inf - inf is nan */
    switch (op) {
    case FB_ARITHMETIC_ADD: *out = (fb_bounds){a.least + b.least, a.largest + b.largest}; return true;
    case FB_ARITHMETIC_SUB: return difference(a, b, out);
    case FB_ARITHMETIC_REVERSED_SUB: return difference(b, a, out);
    case FB_ARITHMETIC_MUL: *out = product(a, b); return true;
    default: return quotient(a, b, out);
    }
}

/* A constant of the document. */
static bool of_tensor(walk *w, fb_node read, fb_bounds *out) {
    fb_tensor tensor;
    fb_extent extent;
    if (!fb_reads_constant(w->graph, w->alias, read, &tensor)) return false;
    const fb_tensor_row *row = fb_tensor_at(w->graph, tensor);
    fb_dtype dtype = (fb_dtype)row->dtype;
    size_t size = fb_base64_size(fb_text(w->graph, row->data), fb_text_length(w->graph, row->data));
    if (!fb_dtype_is_computed(dtype) || !fb_work_goes_on(w->work, FB_WORK_NODE * (int64_t)(size / BYTES_OF_A_STEP + 1)))
        return false;
    if (size == fb_dtype_size(dtype)) {
        unsigned char bytes[8];
        double number;
        fb_base64_decode(fb_text(w->graph, row->data), 0, size, bytes);
        fb_decode_numbers(dtype, bytes, 1, &number);
        *out = from_to(number, number);
        return !isnan(number);
    }
    if (!fb_tensor_extent(w->graph, tensor, &extent) || !extent.is_finite) return false;
    *out = (fb_bounds){-extent.largest, extent.largest};
    return true;
}

/* The elements of what it is given, or some of them; also in another dtype. */
static bool passes_on(const fb_graph *g, fb_node node, fb_op op) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    bool casts =
        facts->shape == FB_SHAPE_SAME && (facts->dtype == FB_DTYPE_RULE_CAST ||
                                          (facts->dtype >= FB_DTYPE_RULE_FLOAT16 && facts->dtype <= FB_DTYPE_RULE_FLOAT64));
    if (casts || op == FB_OP_TO_COPY) return true;
    if (op == FB_OP_DETACH || op == FB_OP_CLONE || op == FB_OP_LIFT_FRESH_COPY) return true;
    if (op == FB_OP_AS_STRIDED || op == FB_OP_GETATTR) return false; /* what is around it in memory; x.grad */
    fb_effects effects = fb_op_effects(g, node);
    fb_node input = fb_value_node(g, fb_first_argument(g, node));
    return effects.may_alias_input && !effects.may_alias_all && !effects.is_unknown && !effects.mutates_input && input.id &&
           fb_node_at(g, input)->dtype == fb_node_at(g, node)->dtype;
}

static bool of_call(walk *w, fb_node node, fb_bounds *out) {
    fb_op op = (fb_op)(fb_node_op(w->graph, node) & ~FB_OP_IN_PLACE);
    fb_arithmetic arithmetic = (fb_arithmetic)fb_op_facts_of(op)->arithmetic;
    fb_bounds other;
    bool is_known;
    switch (op) {
    case FB_OP_UNKNOWN: return fb_node_at(w->graph, node)->opcode == FB_GET_ATTR && of_tensor(w, node, out);
    case FB_OP_ZEROS:
    case FB_OP_NEW_ZEROS:
    case FB_OP_ZEROS_LIKE: *out = (fb_bounds){0, 0}; return true;
    case FB_OP_ONES:
    case FB_OP_NEW_ONES:
    case FB_OP_ONES_LIKE: *out = (fb_bounds){1, 1}; return true;
    case FB_OP_FULL:
    case FB_OP_NEW_FULL: return of_argument(w, node, "fill_value", out);
    case FB_OP_FILL: return of_argument(w, node, "value", out);
    case FB_OP_COPY: return of_argument(w, node, "src", out);
    case FB_OP_WHERE:
    case FB_OP_MASKED_FILL:
        is_known = of_both(w, node, "input", op == FB_OP_WHERE ? "other" : "value", out, &other);
        *out = is_known ? hull(*out, other) : *out;
        return is_known;
    case FB_OP_TRIU:
    case FB_OP_TRIL:
        is_known = of_argument(w, node, "input", out);
        *out = is_known ? hull(*out, (fb_bounds){0, 0}) : *out;
        return is_known;
    case FB_OP_NEG:
        is_known = of_argument(w, node, "input", &other);
        *out = is_known ? (fb_bounds){-other.largest, -other.least} : *out;
        return is_known;
    default:
        if (arithmetic && arithmetic <= FB_ARITHMETIC_TRUE_DIVIDE) return of_arithmetic(w, node, arithmetic, out);
        return passes_on(w->graph, node, op) && of_value(w, node, fb_first_argument(w->graph, node), out);
    }
}

/* As its dtype has it: rounded outwards, as float64 has rounded as well; an integer that does not fit may be any. */
static bool fit(fb_dtype dtype, bool is_known, fb_bounds *bounds) {
    fb_bounds any;
    if (of_dtype(dtype, &any)) {
        if (is_known) *bounds = (fb_bounds){floor(bounds->least), ceil(bounds->largest)};
        if (!is_known || dtype == FB_BOOL || bounds->least < any.least || bounds->largest > any.largest) *bounds = any;
        return true;
    }
    if (!is_known || !fb_dtype_is_computed(dtype)) return false;
    if (dtype != FB_FLOAT64) *bounds = (fb_bounds){nextafter(bounds->least, -INFINITY), nextafter(bounds->largest, INFINITY)};
    *bounds = (fb_bounds){computed_in(dtype, bounds->least), computed_in(dtype, bounds->largest)};
    return true;
}

static bool of_node(walk *w, fb_node node, fb_node reader, fb_bounds *out) {
    const fb_graph *g = w->graph;
    if (w->left-- <= 0 || !fb_work_goes_on(w->work, FB_WORK_NODE)) return false;
    const fb_node_row *row = fb_node_at(g, node);
    fb_bounds found = {0, 0};
    bool is_written = fb_mutated_between(w->alias, node, row->ordinal, fb_node_at(g, reader)->ordinal);
    bool is_known = !is_written && of_call(w, node, &found);
    if (!fit((fb_dtype)row->dtype, is_known, &found)) return false;
    *out = found;
    return true;
}

static bool of_value(walk *w, fb_node reader, fb_value value, fb_bounds *out) {
    double number;
    fb_node node = fb_value_node(w->graph, value);
    if (node.id) return of_node(w, node, reader, out);
    if (!fb_value_is_number(w->graph, value, &number)) return false;
    *out = of_number((fb_dtype)fb_node_at(w->graph, reader)->dtype, number);
    return !isnan(number);
}

bool fb_bounds_of(const fb_graph *graph, const fb_alias *alias, fb_work *work, fb_node value, fb_node reader, fb_bounds *out) {
    walk w = {graph, alias, work, NODES};
    return w.alias && of_node(&w, value, reader, out);
}
