/* FuseLinear: a product with a weight, and the addend behind it, become one Linear.
 *
 *     W ── t ──┐                              W ──┐
 *     x ── matmul ── + b ── y             x ── linear(·, W, b) ── y
 *
 * matmul and mm, in both dialects, with or without an addend. Where the weight is not transposed the two become addmm(b, x, W),
 * which takes two dimensions, and must have the addend: a Linear would need the weight in another order, and is slower then.
 *
 * The addend must be a vector of the Linear's outputs. All must have one dtype: under autocast the product has another. Nothing
 * else may read the product, or write what is read in between. Exactness: rounds. Reversible.
 */
#include "core/analysis/shape.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"

typedef struct found {
    fb_node product, transposition, sum; /* the last two: or none */
    fb_value input, weight, bias;        /* the weight as the call takes it; the bias: or none */
} found;

/* The product, and its weight: what a transposition reads, or else what the product reads. */
static bool may_be_product(fb_op op) {
    return op == FB_OP_MATMUL || op == FB_OP_MM;
}

static bool find_product(const fb_graph *g, fb_node n, found *f, fb_shape_result *weight) {
    fb_tensor tensor;
    fb_node read;
    if (!may_be_product(fb_node_op(g, n))) return false;
    f->input = fb_call_argument(g, n, "input");
    f->weight = fb_call_argument(g, n, fb_op_is(g, n, FB_OP_MM) ? "mat2" : "other");
    fb_node matrix = fb_value_node(g, f->weight);
    if (!f->input.id || !fb_value_node(g, f->input).id || !matrix.id) return false;
    if (fb_matrix_read_by_node(g, matrix, &read, &f->transposition, &tensor)) {
        f->weight = (fb_value){read.id | FB_VALUE_IS_NODE};
        matrix = read;
    } else if (!fb_tensor_read_by(g, f->weight, &read, &tensor)) {
        return false;
    }
    f->product = n;
    return fb_recorded_shape(g, matrix, weight) && weight->rank == 2;
}

/* The sum that alone reads the product, if what it adds is a vector of so many numbers. */
static void find_sum(const fb_graph *g, found *f, fb_dim outputs) {
    const fb_node_row *product = fb_node_at(g, f->product);
    fb_node sum = product->user_count == 1 ? fb_edge_user(g, fb_user_first(g, f->product)) : (fb_node){0};
    const fb_node_row *row = sum.id ? fb_node_at(g, sum) : NULL;
    if (!row || !fb_op_is(g, sum, FB_OP_ADD) || row->dtype != product->dtype || row->shape.id != product->shape.id) return;
    fb_value a, b;
    if (!fb_two_operands(g, sum, &a, &b)) return;
    fb_value bias = fb_value_node(g, a).id == f->product.id ? b : a;
    fb_node node = fb_value_node(g, bias);
    fb_shape_result shape;
    bool is_vector = node.id && node.id != f->product.id && fb_recorded_shape(g, node, &shape) && shape.rank == 1 &&
                     fb_dim_equal(shape.sizes[0], outputs) && shape.dtype == (fb_dtype)product->dtype;
    if (!is_vector) return;
    f->sum = sum;
    f->bias = bias;
}

static fb_obstacle obstacle_of(fb_matcher *m, const found *f, fb_dtype dtype) {
    const fb_graph *g = m->graph;
    fb_node calls[3];
    size_t count = 0;
    fb_obstacle spelling = fb_linear_obstacle(g, dtype);
    if (spelling.code) return spelling;
    if (f->transposition.id) calls[count++] = f->transposition;
    calls[count++] = f->product;
    if (f->sum.id) calls[count++] = f->sum;
    for (size_t i = 0; i < count; i++) {
        fb_obstacle obstacle = fb_effect_obstacle(g, calls[i]);
        if (obstacle.code) return obstacle;
    }
    if ((fb_dtype)fb_node_at(g, fb_value_node(g, f->input))->dtype != dtype ||
        (fb_dtype)fb_node_at(g, f->product)->dtype != dtype)
        return (fb_obstacle){"dtype", "what it reads or gives is not of the weight's dtype"};
    return fb_disturbance(m, calls, count);
}

static bool find(const fb_graph *g, fb_node n, found *f, fb_shape_result *weight) {
    fb_shape_result input;
    *f = (found){0};
    if (!find_product(g, n, f, weight)) return false;
    find_sum(g, f, weight->sizes[f->transposition.id ? 0 : 1]);
    if (!fb_recorded_shape(g, fb_value_node(g, f->input), &input)) return false;
    return f->transposition.id ? input.rank >= 2 : input.rank == 2 && f->sum.id;
}

static void match(fb_matcher *m, fb_node n) {
    found f;
    fb_shape_result weight;
    if (!find(m->graph, n, &f, &weight)) return;
    fb_node result = f.sum.id ? f.sum : f.product;
    if (fb_is_marked(m, result)) return;
    fb_obstacle obstacle = obstacle_of(m, &f, weight.dtype);
    if (obstacle.code) fb_refuse_for(m, obstacle, &result, 1);
    else fb_match_found_as(m, &f, sizeof f);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const found *f = match->data;
    fb_node result = f->sum.id ? f->sum : f->product;
    fb_new_linear linear = fb_linear_call(g, f->input, f->weight, f->bias, !f->transposition.id);
    if (f->transposition.id) fb_erase_unread(rw, f->transposition);
    if (f->sum.id) fb_erase_unread(rw, f->product);
    fb_build_over(rw, result, linear.made, linear.args, linear.kwargs);
    fb_infer_result_type(rw, result);
    fb_mark(rw, result);
}

const fb_pass fb_fuse_linear = {
    .name = "FuseLinear",
    .version = 1,
    .summary = "Replaces a product with a weight, and the addend behind it, with one Linear (or `addmm`).",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .begins_at = may_be_product,
    .match = match,
    .edit = edit,
};
