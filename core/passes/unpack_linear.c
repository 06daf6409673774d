/* UnpackLinear: replaces a packed Linear between two reshapes with a Linear on any number of dimensions.
 *
 *     x ── view(-1, C) ── addmm(b, ·, W) ── view(…, N) ── y          x ── linear(·, Wᵀ, b) ── y
 *     of ONNX: x ── Reshape ── Gemm(·, W, b) ── Reshape ── y         x ── MatMul(·, W) ── Add b ── y
 *
 * GPT-2's Conv1D is traced like this. Also matches mm, without a bias, and a weight that is transposed before the call, as
 * decompositions make it; and MatMul. A Gemm must have no factors.
 *
 * The first reshape must keep the last dimension (in_features). The second must restore the other dimensions, as recorded.
 * Left alone where it would be slower: on fewer than four rows, unless the weight has more inputs than outputs. On more rows
 * neither is faster as a rule.
 *
 * Nothing else may read the result of addmm. The first reshape is removed if nothing else reads it. Nothing may write the
 * weight or bias, and nothing may write the input after the first reshape. Exactness: moves (the weight is transposed; the
 * product may sum in another order). Reversible.
 */
#include "core/analysis/dialect.h"
#include "core/analysis/rearrange.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"
#include "core/weights/recipe.h"

/* The two reshapes around the call. */
typedef struct surroundings {
    fb_linear linear;
    fb_rearrange before, after;
} surroundings;

static bool may_be_packed(fb_op op) {
    return fb_op_may_be_linear(op) && op != FB_OP_LINEAR;
}

static bool find(const fb_graph *g, fb_node n, surroundings *s) {
    if (!may_be_packed(fb_node_op(g, n)) || fb_node_at(g, n)->user_count != 1) return false;
    bool is_found = fb_linear_at(g, n, &s->linear) && s->linear.form >= FB_LINEAR_GEMM && s->linear.input.id &&
                    s->linear.weight_factor == 1 && s->linear.bias_factor == 1;
    if (!is_found) return false;
    fb_node reader = fb_edge_user(g, fb_user_first(g, n));
    if (!fb_rearrange_at(g, s->linear.input, &s->before) || s->before.form != FB_REARRANGE_RESHAPE) return false;
    return fb_rearrange_at(g, reader, &s->after) && s->after.form == FB_REARRANGE_RESHAPE && s->after.input.id == n.id;
}

/* (…, in_features) becomes (…, out_features), through (·, in_features). */
static bool keeps_leading_dimensions(const fb_graph *g, const surroundings *s) {
    fb_shape_result from, to;
    if (!fb_recorded_shape(g, s->before.input, &from) || !fb_recorded_shape(g, s->after.node, &to)) return false;
    if (from.rank < 1 || from.rank != to.rank || !fb_dim_is(from.sizes[from.rank - 1], s->linear.in_features)) return false;
    for (int i = 0; i + 1 < from.rank; i++) {
        if (!fb_dim_equal(from.sizes[i], to.sizes[i])) return false;
    }
    return fb_dim_is(to.sizes[to.rank - 1], s->linear.out_features) && s->before.rank == 2 &&
           fb_shape_size(g, fb_node_at(g, s->before.node)->shape, 1) == s->linear.in_features;
}

/* addmm and mm of PyTorch 2.13 multiply few rows on a CPU by a packed weight faster than Linear does by its transpose, and by a
 * tall one the other way round. docs/performance.md has the measurement. */
static bool is_slower(const fb_graph *g, const surroundings *s) {
    int64_t rows = fb_shape_size(g, fb_node_at(g, s->before.node)->shape, 0);
    bool has_few_rows = rows >= 0 && rows < 4;
    bool is_measured = fb_op_is(g, s->linear.origin, FB_OP_ADDMM) || fb_op_is(g, s->linear.origin, FB_OP_MM);
    return is_measured && has_few_rows && s->linear.is_packed && s->linear.in_features <= s->linear.out_features;
}

static void match(fb_matcher *m, fb_node n) {
    const fb_graph *g = m->graph;
    surroundings s;
    if (!find(g, n, &s)) return;
    fb_layer layer = fb_linear_layer(&s.linear);
    const fb_alias *alias = fb_matcher_writes(m);
    fb_obstacle obstacle = fb_layer_obstacle(m, &layer);
    uint32_t from = fb_node_at(g, s.before.node)->ordinal, to = fb_node_at(g, n)->ordinal;
    if (!alias || fb_is_marked(m, n)) return;
    if (!keeps_leading_dimensions(g, &s))
        fb_refuse_node(m, "shape-mismatch", n, "the reshapes around it do more than to make it two-dimensional");
    else if (fb_node_at(g, s.before.node)->dtype != s.linear.dtype || fb_node_at(g, n)->dtype != s.linear.dtype)
        fb_refuse_node(m, "dtype", n, "what it reads or gives is not of the weight's dtype");
    else if (obstacle.code) fb_refuse_for(m, obstacle, &n, 1);
    else if (fb_mutated_between(alias, s.before.node, from, to) || fb_mutated_between(alias, s.before.input, from, to))
        fb_refuse_node(m, "input-mutated", n, "what it reads is written in place after the reshape before it");
    else if (m->report->pass->version >= 2 && is_slower(g, &s))
        fb_refuse_node(m, "more-work", n,
                       "on fewer than four rows addmm is faster, as its weight has no more inputs than outputs");
    else fb_match_found(m, &n, 1);
}

/* The weight as (out_features, in_features), or the other way round for a MatMul: what the transposition before the call reads,
 * or else a transposed one. */
static fb_value take_weight(fb_rewrite *rw, const fb_linear *linear) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_layer layer = fb_linear_layer(linear);
    if (linear->transposition.id) {
        fb_erase_unread(rw, linear->transposition);
        return fb_make_node(g, linear->weight_read);
    }
    if (linear->is_packed != fb_dialect_facts_of(g)->has_matmul)
        fb_layer_set_weight(rw, &layer, fb_recipe_permute(g, fb_recipe_tensor(g, linear->weight), (int64_t[]){1, 0}, 2));
    return fb_call_argument(g, linear->origin, layer.weight_parameter);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    surroundings s;
    fb_node n = match->nodes[0];
    if (!find(g, n, &s)) return;
    fb_layer layer = fb_linear_layer(&s.linear);
    const fb_node_row *after = fb_node_at(g, s.after.node);
    fb_value weight = take_weight(rw, &s.linear), bias = {0};
    if (s.linear.bias.id) bias = fb_call_argument(g, n, layer.bias_parameter);
    fb_release_reads(rw, s.after.node);
    fb_build_wide_linear(rw, n, fb_make_node(g, s.before.input), weight, bias);
    fb_set_result_type(rw, n, after->shape, (fb_dtype)after->dtype);
    fb_absorb(rw, s.after.node, n);
    fb_release_call(rw, s.after.node);
    fb_erase_unread(rw, s.before.node);
    if (s.linear.origin.id != n.id) fb_erase_unread(rw, s.linear.origin);
    fb_mark(rw, n);
}

/* Version 1 knew nothing of time. */
#define UNPACK_LINEAR(number, before)                                                                                          \
    {                                                                                                                          \
        .name = "UnpackLinear", .version = number, .earlier = before,                                                          \
        .summary = "Replaces a packed Linear (`addmm`) between two reshapes with a Linear on any number of dimensions.",       \
        .parameters = FB_NO_PARAMETERS, .exactness = FB_MOVES, .gain = FB_GAIN_FEWER_NODES, .reversible = true,                \
        .preserves_computation = true, .reads_onnx = true, .begins_at = may_be_packed, .match = match, .edit = edit,           \
    }

static const fb_pass version_1 = UNPACK_LINEAR(1, NULL);
const fb_pass fb_unpack_linear = UNPACK_LINEAR(2, &version_1);
