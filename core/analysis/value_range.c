#include "core/analysis/value_range.h"

#include <math.h>

#include "core/analysis/constant.h"
#include "core/analysis/shape.h"
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
    bool knows_bools; /* comparisons and logic, and casts to bool */
    bool is_first;    /* of the first column alone */
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

static bool is_sure(fb_bounds a, double number) {
    return a.least == number && a.largest == number;
}

static const fb_bounds yes = {1, 1}, no = {0, 0}, perhaps = {0, 1};

static fb_bounds negation(fb_bounds a) {
    return (fb_bounds){1 - a.largest, 1 - a.least};
}

static fb_bounds is_less(fb_bounds a, fb_bounds b) {
    return a.largest < b.least ? yes : a.least >= b.largest ? no : perhaps;
}

static fb_bounds are_equal(fb_bounds a, fb_bounds b) {
    if (a.largest < b.least || b.largest < a.least) return no;
    return is_sure(a, b.least) && is_sure(b, a.least) ? yes : perhaps;
}

/* Compared as it is: an integer, or a small one that is written in the graph or that a tensor of floats is. Others may be
 * rounded to the dtype of both before. */
static bool is_compared_exactly(const walk *w, fb_node call, const char *parameter, fb_bounds bounds) {
    fb_node node = fb_call_argument_node(w->graph, call, parameter);
    fb_dtype dtype = node.id ? (fb_dtype)fb_node_at(w->graph, node)->dtype : FB_DTYPE_UNKNOWN;
    bool is_small =
        bounds.least == bounds.largest && bounds.least >= 0 && bounds.least <= INT8_MAX && bounds.least == floor(bounds.least);
    return is_small || (dtype && dtype != FB_UINT64 && fb_dtype_is_integer(dtype));
}

/* As bools: false where the operator compares nothing, or nothing is known of what it compares. */
static bool of_comparison(walk *w, fb_node call, fb_arithmetic op, fb_bounds *out) {
    fb_bounds a, b;
    if (op < FB_ARITHMETIC_EQ || op > FB_ARITHMETIC_GE || !of_both(w, call, "input", "other", &a, &b)) return false;
    if (!is_compared_exactly(w, call, "input", a) || !is_compared_exactly(w, call, "other", b)) return false;
    switch (op) {
    case FB_ARITHMETIC_EQ: *out = are_equal(a, b); return true;
    case FB_ARITHMETIC_NE: *out = negation(are_equal(a, b)); return true;
    case FB_ARITHMETIC_LT: *out = is_less(a, b); return true;
    case FB_ARITHMETIC_GE: *out = negation(is_less(a, b)); return true;
    case FB_ARITHMETIC_GT: *out = is_less(b, a); return true;
    default: *out = negation(is_less(b, a)); return true;
    }
}

static bool is_bool(const walk *w, fb_node node) {
    return fb_node_at(w->graph, node)->dtype == FB_BOOL;
}

/* A bool that an operator reads. */
static bool of_operand(walk *w, fb_node call, const char *parameter, fb_bounds *out) {
    fb_node node = fb_call_argument_node(w->graph, call, parameter);
    return node.id && is_bool(w, node) && of_argument(w, call, parameter, out);
}

static bool of_logic(walk *w, fb_node call, fb_op op, fb_bounds *out) {
    fb_bounds a, b;
    bool is_and = op == FB_OP_LOGICAL_AND || op == FB_OP_BITWISE_AND, is_or = op == FB_OP_LOGICAL_OR || op == FB_OP_BITWISE_OR;
    bool is_not = op == FB_OP_LOGICAL_NOT || op == FB_OP_BITWISE_NOT;
    if (!is_bool(w, call) || !(is_and || is_or || is_not) || !of_operand(w, call, "input", &a)) return false;
    if (is_not) *out = negation(a);
    if (is_not) return true;
    if (!of_operand(w, call, "other", &b)) return false;
    *out = is_and ? (fb_bounds){fmin(a.least, b.least), fmin(a.largest, b.largest)}
                  : (fb_bounds){fmax(a.least, b.least), fmax(a.largest, b.largest)};
    return true;
}

#define LARGEST_EXACT ((int64_t)1 << 53) /* of integers in a double */

/* start, start + 1 …; only without a step. */
static bool of_arange(walk *w, fb_node call, fb_bounds *out) {
    const fb_graph *g = w->graph;
    const fb_value_row *args = fb_value_at(g, fb_node_at(g, call)->args);
    fb_value given = fb_node_kwarg(g, call, "start"), end = fb_node_kwarg(g, call, "end");
    int64_t start = 0, stop = INT64_MAX;
    if (args->count > 2 || fb_node_kwarg(g, call, "step").id || (args->count == 1 && (given.id || end.id))) return false;
    if (args->count == 2) given = args->items[0];
    if (args->count) end = args->items[args->count - 1];
    if (given.id && !fb_value_is_int(g, given, &start)) return false;
    bool is_known = end.id && fb_value_is_int(g, end, &stop);
    if (!is_known && !fb_dtype_is_integer((fb_dtype)fb_node_at(g, call)->dtype)) return false;
    if (start < -LARGEST_EXACT || start > LARGEST_EXACT || (is_known && stop > LARGEST_EXACT)) return false;
    *out = (fb_bounds){(double)start, w->is_first ? (double)start : is_known ? (double)stop - 1 : ldexp(1, 62)};
    return out->least <= out->largest;
}

/* triu and tril: in the first column the diagonal and above, or below, has these rows. */
static bool of_triangle(walk *w, fb_node call, bool is_upper, fb_bounds *out) {
    int64_t diagonal = 0;
    fb_value given = fb_call_argument(w->graph, call, "diagonal");
    bool is_known = !given.id || fb_value_is_int(w->graph, given, &diagonal);
    bool keeps_none = w->is_first && is_known && is_upper && diagonal > 0;
    bool keeps_all = w->is_first && is_known && !is_upper && diagonal >= 0;
    *out = no;
    if (keeps_none) return true;
    if (!of_argument(w, call, "input", out)) return false;
    if (!keeps_all) *out = hull(*out, no);
    return true;
}

/* where and masked_fill: with a mask that is known, one of both. */
static bool of_choice(walk *w, fb_node call, bool is_where, fb_bounds *out) {
    const char *const second = is_where ? "other" : "value";
    fb_bounds other, mask;
    if (!w->knows_bools || !of_operand(w, call, is_where ? "condition" : "mask", &mask)) mask = perhaps;
    if (is_sure(mask, is_where)) return of_argument(w, call, "input", out);
    if (is_sure(mask, !is_where)) return of_argument(w, call, second, out);
    if (!of_both(w, call, "input", second, out, &other)) return false;
    *out = hull(*out, other);
    return true;
}

/* The first column of a constant, which is (…, columns). */
static bool of_first_elements(walk *w, fb_tensor tensor, fb_bounds *out) {
    const fb_tensor_row *row = fb_tensor_at(w->graph, tensor);
    fb_dtype dtype = (fb_dtype)row->dtype;
    const char *text = fb_text(w->graph, row->data);
    size_t width = fb_dtype_size(dtype), size = fb_base64_size(text, fb_text_length(w->graph, row->data));
    int64_t columns = fb_shape_rank(w->graph, row->shape) > 0 ? fb_shape_size(w->graph, row->shape, -1) : 1;
    if (columns < 1 || !size || (dtype != FB_BOOL && !fb_dtype_is_computed(dtype))) return false;
    if (!fb_work_goes_on(w->work, FB_WORK_NODE * (int64_t)(size / BYTES_OF_A_STEP + 1))) return false;
    *out = (fb_bounds){INFINITY, -INFINITY};
    for (size_t i = 0; i < size; i += width * (size_t)columns) {
        unsigned char bytes[8];
        double number;
        fb_base64_decode(text, i, width, bytes);
        if (dtype == FB_BOOL) number = bytes[0] != 0;
        else fb_decode_numbers(dtype, bytes, 1, &number);
        if (isnan(number)) return false;
        *out = hull(*out, from_to(number, number));
    }
    return true;
}

/* A constant of the document. */
static bool of_tensor(walk *w, fb_node read, fb_bounds *out) {
    fb_tensor tensor;
    fb_extent extent;
    if (!fb_reads_constant(w->graph, w->alias, read, &tensor)) return false;
    if (w->is_first) return of_first_elements(w, tensor, out);
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

/* Is the last index 0 in what a view is of, where it is 0 in the view? */
static bool keeps_first_column(const fb_graph *g, fb_node node, fb_op op) {
    fb_node input = fb_value_node(g, fb_first_argument(g, node));
    int rank = fb_node_rank(g, node), axis = 0;
    fb_shape_call call = {.graph = g, .node = node, .op = op};
    fb_value start = {0};
    int64_t first = 0;
    switch (op) {
    case FB_OP_EXPAND: return true;
    case FB_OP_UNSQUEEZE: return rank > 0 && fb_option_axis(&call, "dim", 0, rank, &axis) && axis != rank - 1;
    case FB_OP_SLICE:
        start = fb_call_argument(g, node, "start");
        if (rank < 1 || !fb_option_axis(&call, "dim", 0, rank, &axis)) return false;
        return axis != rank - 1 || fb_is_absent(g, start) || (fb_value_is_int(g, start, &first) && first == 0);
    default: return fb_op_facts_of(op)->shape == FB_SHAPE_SAME && rank == fb_node_rank(g, input);
    }
}

/* Otherwise all of its elements may be there. */
static bool of_passed_on(walk *w, fb_node node, fb_op op, fb_bounds *out) {
    bool is_first = w->is_first;
    w->is_first = is_first && keeps_first_column(w->graph, node, op);
    bool is_known = of_value(w, node, fb_first_argument(w->graph, node), out);
    w->is_first = is_first;
    return is_known;
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
    case FB_OP_MASKED_FILL: return of_choice(w, node, op == FB_OP_WHERE, out);
    case FB_OP_TRIU:
    case FB_OP_TRIL: return of_triangle(w, node, op == FB_OP_TRIU, out);
    case FB_OP_ARANGE: return w->knows_bools && of_arange(w, node, out);
    case FB_OP_NEG:
        is_known = of_argument(w, node, "input", &other);
        *out = is_known ? (fb_bounds){-other.largest, -other.least} : *out;
        return is_known;
    default:
        if (arithmetic && arithmetic <= FB_ARITHMETIC_TRUE_DIVIDE) return of_arithmetic(w, node, arithmetic, out);
        if (w->knows_bools && (of_comparison(w, node, arithmetic, out) || of_logic(w, node, op, out))) return true;
        return passes_on(w->graph, node, op) && of_passed_on(w, node, op, out);
    }
}

/* As its dtype has it: rounded outwards, as float64 has rounded as well; an integer that does not fit may be any. */
static bool fit(const walk *w, fb_dtype dtype, bool is_known, fb_bounds *bounds) {
    fb_bounds any;
    if (dtype == FB_BOOL && w->knows_bools && is_known) {
        *bounds = is_sure(*bounds, 0) ? no : bounds->least > 0 || bounds->largest < 0 ? yes : perhaps;
        return true;
    }
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
    if (!is_known && w->knows_bools) return false; /* what a dtype holds makes no row open */
    if (!fit(w, (fb_dtype)row->dtype, is_known, &found)) return false;
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
    walk w = {.graph = graph, .alias = alias, .work = work, .left = NODES};
    return w.alias && of_node(&w, value, reader, out);
}

bool fb_bounds_of_first_column(const fb_graph *graph, const fb_alias *alias, fb_work *work, fb_node value, fb_node reader,
                               fb_bounds *out) {
    walk w = {.graph = graph, .alias = alias, .work = work, .left = NODES, .knows_bools = true, .is_first = true};
    return w.alias && of_node(&w, value, reader, out);
}
