/* PackLinear: Linears of ONNX models that read one value of more than two dimensions, with a Reshape behind each, read its
 * rows.
 *
 *     x ──┬── MatMul Wq ── Add bq ── Reshape          x ── Reshape ──┬── Gemm(Wq, bq) ── Reshape
 *         └── MatMul Wk ── Add bk ── Reshape                         └── Gemm(Wk, bk) ── Reshape
 *
 * Queries, keys and values are made so, and then cut into heads. The rows are made once, and each Linear is one node less.
 * Takes two Linears or more: what adds a vector to a product with a weight of two dimensions, and is read by a Reshape alone.
 * Of the sizes that this gives, one at most may be a symbol, and none zero. A Reshape that only brings the first sizes of x
 * back stays, for UnpackLinear makes that. Exactness: rounds (the product may sum in another order). Reversible.
 */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx_types.h"
#include "core/analysis/shape.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"

/* A Linear of rows to be: the MatMul is `linear.origin`, the Add `linear.node`. */
typedef struct member {
    fb_linear linear;
    fb_node reshape;
    int64_t sizes[FB_MAX_RANK];
    int rank;
} member;

/* The sizes of a shape, with -1 for a symbol. */
static bool sizes_of(const fb_shape_result *shape, int64_t *sizes) {
    int symbols = 0;
    for (int i = 0; i < shape->rank; i++) {
        bool is_symbol = shape->sizes[i].symbol.id != 0;
        sizes[i] = is_symbol ? -1 : shape->sizes[i].size;
        symbols += is_symbol;
        if (!is_symbol && sizes[i] <= 0) return false;
    }
    return symbols <= 1;
}

static bool brings_sizes_back(const fb_shape_result *x, const fb_shape_result *made) {
    bool is_it = x->rank == made->rank;
    for (int i = 0; i + 1 < x->rank && is_it; i++) is_it = fb_dim_equal(x->sizes[i], made->sizes[i]);
    return is_it;
}

static bool find(const fb_graph *g, fb_node product, member *f) {
    fb_shape_result x, made;
    fb_node sum = fb_op_is(g, product, FB_OP_MATMUL) ? fb_with_bias(g, product) : product;
    if (sum.id == product.id || fb_node_at(g, sum)->user_count != 1 || !fb_linear_at(g, sum, &f->linear)) return false;
    const fb_linear *linear = &f->linear;
    bool is_plain = linear->origin.id == product.id && linear->input.id && linear->is_packed && !linear->transposition.id &&
                    linear->bias.id && linear->in_features > 0;
    f->reshape = fb_edge_user(g, fb_user_first(g, sum));
    const char *reader = fb_onnx_operator_name(g, f->reshape);
    if (!is_plain || !reader || strcmp(reader, "Reshape") != 0 || fb_arg_node(g, f->reshape, 0).id != sum.id) return false;
    if (!fb_recorded_shape(g, linear->input, &x) || !fb_recorded_shape(g, f->reshape, &made)) return false;
    bool is_wide = x.rank > 2 && fb_dim_is(x.sizes[x.rank - 1], linear->in_features) && x.dtype == linear->dtype;
    f->rank = made.rank;
    return is_wide && !brings_sizes_back(&x, &made) && sizes_of(&made, f->sizes);
}

static fb_obstacle obstacle_of(const fb_graph *g, const member *f) {
    const fb_node calls[] = {f->linear.origin, f->linear.node, f->reshape};
    fb_obstacle obstacle = fb_linear_obstacle(g, f->linear.dtype);
    for (size_t i = 0; i < 3 && !obstacle.code; i++) obstacle = fb_effect_obstacle(g, calls[i]);
    return obstacle;
}

/* A match is the products that read one value, in order. */
static void match_onnx(fb_matcher *m) {
    const fb_graph *g = m->graph;
    size_t limit = (size_t)fb_node_limit(g) + 1;
    fb_node *first = calloc(limit, sizeof *first), *last = calloc(limit, sizeof *last), *next = calloc(limit, sizeof *next);
    fb_buffer products = {0};
    m->failed |= !first || !last || !next;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && !m->failed && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        member f;
        if (!find(g, n, &f) || fb_is_marked(m, f.linear.node)) continue;
        fb_obstacle obstacle = obstacle_of(g, &f);
        if (obstacle.code) {
            fb_refuse_for(m, obstacle, &n, 1);
            continue;
        }
        uint32_t x = f.linear.input.id;
        if (first[x].id) next[last[x].id] = n;
        else first[x] = n;
        last[x] = n;
    }
    for (fb_node x = fb_first_node(g, FB_MAIN_PROGRAM); x.id && !m->failed && fb_matcher_goes_on(m); x = fb_next_node(g, x)) {
        products.size = 0;
        for (fb_node n = first[x.id]; n.id; n = next[n.id]) fb_buffer_append(&products, &n, sizeof n);
        m->failed |= products.failed;
        if (products.size > sizeof(fb_node) && !products.failed)
            fb_match_found(m, (const fb_node *)(const void *)products.data, products.size / sizeof(fb_node));
    }
    fb_buffer_free(&products);
    free(first);
    free(last);
    free(next);
}

/* (rows, columns); none where a size is a symbol. */
static fb_value shape_of_rows(fb_graph *g, fb_node x, int64_t columns) {
    fb_shape_result shape;
    int64_t rows = 1;
    if (!fb_recorded_shape(g, x, &shape)) return (fb_value){0};
    for (int i = 0; i + 1 < shape.rank; i++)
        if (shape.sizes[i].symbol.id || __builtin_mul_overflow(rows, shape.sizes[i].size, &rows)) return (fb_value){0};
    return fb_make_shape(g, (int64_t[]){rows, columns}, 2);
}

static void pack(fb_rewrite *rw, const member *f, fb_node rows) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_linear *linear = &f->linear;
    fb_value weight = fb_call_argument(g, linear->origin, "other"), bias = fb_make_node(g, linear->bias_read);
    fb_new_linear made = fb_linear_call(g, fb_make_node(g, rows), weight, bias, true);
    fb_node sizes = fb_build_ints(rw, f->reshape, f->sizes, (size_t)f->rank);
    fb_value shape = shape_of_rows(g, linear->input, linear->out_features);
    if (!sizes.id) return;
    fb_erase_unread(rw, linear->origin);
    fb_build_over(rw, linear->node, made.made, made.args, made.kwargs);
    fb_set_result_type(rw, linear->node, shape, linear->dtype);
    fb_release_reads(rw, f->reshape);
    fb_set_args(rw, f->reshape, FB_ARGS(g, fb_make_node(g, linear->node), fb_make_node(g, sizes)),
                fb_node_at(g, f->reshape)->kwargs);
    fb_mark(rw, linear->node);
    fb_mark(rw, f->reshape);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node rows = {0};
    member f;
    for (size_t i = 0; i < match->count; i++) {
        if (!find(g, match->nodes[i], &f)) return;
        if (!i) {
            rows = fb_build_reshape(rw, match->nodes[i], f.linear.input, (int64_t[]){-1, f.linear.in_features}, 2);
            if (!rows.id) return;
            fb_set_result_type(rw, rows, shape_of_rows(g, f.linear.input, f.linear.in_features), f.linear.dtype);
            fb_mark(rw, rows);
        }
        pack(rw, &f, rows);
    }
}

const fb_pass fb_pack_linear = {
    .name = "PackLinear",
    .version = 1,
    .summary = "Makes the rows of an ONNX value once, for all Linears that read it and whose results are reshaped.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = fb_match_nothing, /* PyTorch's Linears take any number of dimensions */
    .match_onnx = match_onnx,
    .edit = edit,
};
