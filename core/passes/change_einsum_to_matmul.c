/* ChangeEinsumToMatMul: an Einsum of two values that is a product of matrices becomes one.
 *
 *     Einsum("bij,bjk->bik", x, y)                 MatMul(x, y)
 *     Einsum("ij,kj->ik", x, w)                    Gemm(x, w, transB = 1)
 *     Einsum("bij,kj->bik", x, w)                  MatMul(x, Transpose(w)), of a weight w, which FoldConstants transposes
 *
 * Of ONNX models. Each label must have one size in both values, and occur once in each. Labels of both values and the result
 * are batches; one label is summed over. A product that needs more transpositions than there are around the Einsum stays as it
 * is written. Runtimes compute a MatMul as fast or faster, and find formulas with it. Exactness: rounds. Reversible.
 */
#include <ctype.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/shape.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"

enum { MOST_LABELS = 8 };

/* A letter for each dimension. */
typedef struct labels {
    int count;
    char of[MOST_LABELS];
} labels;

/* The way to exchange axes that puts `from` in the order `to`. */
typedef struct order {
    int count, dims[MOST_LABELS];
    bool is_needed;
} order;

typedef struct product {
    fb_node node;
    size_t first; /* the operand that is the left factor: 0 or 1 */
    order left, right, back;
    bool is_gemm;
    int cost; /* transpositions that nothing takes away; -1: it is no product */
} product;

static int place_of(const labels *in, char label) {
    for (int i = 0; i < in->count; i++)
        if (in->of[i] == label) return i;
    return -1;
}

static bool has(const labels *in, char label) {
    return place_of(in, label) >= 0;
}

static bool add(labels *to, char label) {
    if (to->count == MOST_LABELS || has(to, label)) return false;
    to->of[to->count++] = label;
    return true;
}

/* Reads up to `end`; false: there is an ellipsis, a label twice, or too many. */
static bool read_labels(const char *text, const char *end, labels *out) {
    *out = (labels){0};
    for (; text < end; text++) {
        if (isspace((unsigned char)*text)) continue;
        if (!isalpha((unsigned char)*text) || !add(out, *text)) return false;
    }
    return true;
}

/* Without an arrow the labels of one value alone are the result's, in the order of the alphabet. */
static bool imply_result(const labels *in, labels *out) {
    *out = (labels){0};
    for (int letter = 'A'; letter <= 'z'; letter++)
        if (has(&in[0], (char)letter) != has(&in[1], (char)letter) && !add(out, (char)letter)) return false;
    return true;
}

static bool read_equation(const char *text, labels in[2], labels *out) {
    const char *comma = strchr(text, ','), *arrow = strstr(text, "->");
    const char *end = arrow ? arrow : text + strlen(text);
    if (!comma || comma > end || !read_labels(text, comma, &in[0]) || !read_labels(comma + 1, end, &in[1])) return false;
    return arrow ? read_labels(arrow + 2, arrow + strlen(arrow), out) : imply_result(in, out);
}

static order order_between(const labels *from, const labels *to) {
    order made = {.count = to->count};
    for (int i = 0; i < to->count; i++) {
        made.dims[i] = place_of(from, to->of[i]);
        made.is_needed |= made.dims[i] != i;
    }
    return made;
}

/* As MatMul takes and gives them: [more, batch, row, summed] x [batch, summed, column] = [more, batch, row, column]. False: it
 * is no such product. */
static bool arrange(const labels *left, const labels *right, const labels *out, labels *a, labels *b, labels *c) {
    labels rows = {0}, batch = {0}, columns = {0}, summed = {0};
    for (int i = 0; i < out->count; i++) {
        char one = out->of[i];
        bool in_left = has(left, one), in_right = has(right, one);
        if (!in_left && !in_right) return false;
        add(in_left && in_right ? &batch : in_left ? &rows : &columns, one);
    }
    for (int i = 0; i < left->count; i++)
        if (!has(out, left->of[i]) && (!has(right, left->of[i]) || !add(&summed, left->of[i]))) return false;
    for (int i = 0; i < right->count; i++)
        if (!has(out, right->of[i]) && !has(&summed, right->of[i])) return false;
    if (summed.count != 1 || columns.count != 1 || !rows.count) return false;
    *a = *b = (labels){0};
    for (int i = 0; i + 1 < rows.count; i++) add(a, rows.of[i]);
    for (int i = 0; i < batch.count; i++) add(a, batch.of[i]), add(b, batch.of[i]);
    add(a, rows.of[rows.count - 1]);
    *c = *a;
    add(a, summed.of[0]);
    add(b, summed.of[0]);
    add(b, columns.of[0]);
    return add(c, columns.of[0]) && a->count == left->count && b->count == right->count;
}

/* ---- match ----------------------------------------------------------------------------------------------------------------
 */

static bool is_alone(const fb_graph *g, fb_node n) {
    uint32_t e = fb_user_first(g, n);
    return e && !fb_user_next(g, e) && fb_mentions_of(g, fb_edge_user(g, e), n) == 1;
}

/* A transposition of a weight is computed once, and one behind another is merged with it. */
static int cost_before(const fb_graph *g, fb_node value, const order *by) {
    bool merges = fb_op_is(g, value, FB_OP_ONNX_TRANSPOSE) && is_alone(g, value);
    return by->is_needed && fb_node_at(g, value)->opcode != FB_GET_ATTR && !merges;
}

static int cost_behind(const fb_graph *g, fb_node n, const order *by) {
    bool merges = is_alone(g, n) && fb_op_is(g, fb_edge_user(g, fb_user_first(g, n)), FB_OP_ONNX_TRANSPOSE);
    return by->is_needed && !merges;
}

static bool have_one_size(const fb_graph *g, fb_node n, const labels in[2]) {
    fb_shape_result shapes[2];
    for (size_t i = 0; i < 2; i++) {
        fb_node value = fb_arg_node(g, n, i);
        if (!value.id || !fb_recorded_shape(g, value, &shapes[i]) || shapes[i].rank != in[i].count) return false;
    }
    for (int i = 0; i < in[0].count; i++) {
        int other = place_of(&in[1], in[0].of[i]);
        if (other >= 0 && !fb_dim_equal(shapes[0].sizes[i], shapes[1].sizes[other])) return false;
    }
    return true;
}

static product product_of(const fb_graph *g, fb_node n, const labels in[2], const labels *out, size_t first) {
    labels a, b, c;
    product made = {.node = n, .first = first, .cost = -1};
    if (!arrange(&in[first], &in[1 - first], out, &a, &b, &c)) return made;
    made.left = order_between(&in[first], &a);
    made.right = order_between(&in[1 - first], &b);
    made.back = order_between(&c, out);
    made.is_gemm = a.count == 2 && b.count == 2 && !made.back.is_needed && (made.left.is_needed || made.right.is_needed) &&
                   fb_dtype_is_floating((fb_dtype)fb_node_at(g, n)->dtype);
    made.cost = made.is_gemm ? 0
                             : cost_before(g, fb_arg_node(g, n, first), &made.left) +
                                   cost_before(g, fb_arg_node(g, n, 1 - first), &made.right) + cost_behind(g, n, &made.back);
    return made;
}

/* Einsum takes numbers of all kinds. */
static bool takes_dtype(const fb_graph *g, fb_dtype dtype) {
    if (dtype == FB_BFLOAT16) return fb_graph_opset(g) >= 13;
    return fb_dtype_is_computed(dtype) || dtype == FB_INT32 || dtype == FB_INT64 || dtype == FB_UINT32 || dtype == FB_UINT64;
}

static void match(fb_matcher *m, fb_node n) {
    const fb_graph *g = m->graph;
    labels in[2], out;
    bool is_einsum = fb_is_spelled(fb_node_target(g, n), FB_ONNX_DEFAULT "Einsum.");
    if (!is_einsum || fb_value_at(g, fb_node_at(g, n)->args)->count != 2 || !fb_op_is_pure(g, n) ||
        !takes_dtype(g, (fb_dtype)fb_node_at(g, n)->dtype))
        return;
    fb_value equation = fb_node_kwarg(g, n, "equation");
    const char *text = equation.id ? fb_value_text(g, equation) : NULL;
    if (!text || !read_equation(text, in, &out) || !have_one_size(g, n, in)) return;
    product one = product_of(g, n, in, &out, 0), other = product_of(g, n, in, &out, 1);
    product *best = other.cost >= 0 && (one.cost < 0 || other.cost < one.cost) ? &other : &one;
    if (best->cost > 0)
        fb_refuse_node(m, "more-work", n, "as a product of matrices it needs transpositions that nothing takes away again");
    else if (best->cost == 0) fb_match_found_as(m, best, sizeof *best);
}

static void match_onnx(fb_matcher *m) {
    for (fb_node n = fb_first_node(m->graph, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(m->graph, n))
        if (fb_node_at(m->graph, n)->opcode == FB_CALL_FUNCTION) match(m, n);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static fb_value perm_of(fb_graph *g, const order *by) {
    int64_t dims[MOST_LABELS];
    for (int i = 0; i < by->count; i++) dims[i] = by->dims[i];
    return fb_map_with(g, FB_VALUE_EMPTY_MAP, "perm", fb_make_shape(g, dims, (size_t)by->count));
}

/* An operand in the order that MatMul wants. */
static fb_value factor(fb_rewrite *rw, fb_node n, size_t index, const order *by) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value x = fb_node_arg(g, n, index), sizes[MOST_LABELS];
    if (!by->is_needed) return x;
    fb_value shape = fb_node_at(g, fb_value_node(g, x))->shape;
    fb_dtype dtype = (fb_dtype)fb_node_at(g, fb_value_node(g, x))->dtype;
    for (int i = 0; i < by->count; i++) sizes[i] = fb_value_item(g, shape, (size_t)by->dims[i]);
    fb_node made = fb_build(rw, n, FB_MADE_PERMUTE, FB_ARGS(g, x), perm_of(g, by));
    if (made.id) fb_set_result_type(rw, made, fb_make_list(g, sizes, (size_t)by->count), dtype);
    return fb_make_node(g, made);
}

static void build_gemm(fb_rewrite *rw, fb_node n, const product *by) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value kwargs = FB_VALUE_EMPTY_MAP;
    if (by->left.is_needed) kwargs = fb_map_with(g, kwargs, "transA", fb_make_int(g, 1));
    if (by->right.is_needed) kwargs = fb_map_with(g, kwargs, "transB", fb_make_int(g, 1));
    fb_build_over(rw, n, FB_MADE_LINEAR, FB_ARGS(g, fb_node_arg(g, n, by->first), fb_node_arg(g, n, 1 - by->first)), kwargs);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const product *by = match->data;
    fb_node n = by->node;
    fb_mark(rw, n);
    if (by->is_gemm) {
        build_gemm(rw, n, by);
        return;
    }
    fb_value left = factor(rw, n, by->first, &by->left), right = factor(rw, n, 1 - by->first, &by->right);
    fb_value args = FB_ARGS(g, left, right);
    if (!by->back.is_needed) {
        fb_build_over(rw, n, FB_MADE_MATMUL, args, FB_VALUE_EMPTY_MAP);
        return;
    }
    fb_value shape = fb_node_at(g, n)->shape, sizes[MOST_LABELS];
    for (int i = 0; i < by->back.count && shape.id; i++) sizes[by->back.dims[i]] = fb_value_item(g, shape, (size_t)i);
    fb_node made = fb_build(rw, n, FB_MADE_MATMUL, args, FB_VALUE_EMPTY_MAP);
    if (!made.id) return;
    if (shape.id)
        fb_set_result_type(rw, made, fb_make_list(g, sizes, (size_t)by->back.count), (fb_dtype)fb_node_at(g, n)->dtype);
    fb_mark(rw, made);
    fb_build_over(rw, n, FB_MADE_PERMUTE, FB_ARGS(g, fb_make_node(g, made)), perm_of(g, &by->back));
}

const fb_pass fb_change_einsum_to_matmul = {
    .name = "ChangeEinsumToMatMul",
    .version = 1,
    .summary = "Changes an `Einsum` of ONNX models that is a product of matrices to `MatMul` or `Gemm`.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = fb_match_nothing, /* in PyTorch einsum is one call, which multiplies matrices by itself */
    .match_onnx = match_onnx,
    .edit = edit,
};
