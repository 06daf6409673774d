/* FuseBatchNorm1dInLinear: a BatchNorm1d in eval mode disappears into the Linear before it, or else into the one after it.
 *
 *     x ── Linear ── BatchNorm1d ── y          x ── Linear ── y
 *     x ── BatchNorm1d ── Linear ── y          x ── Linear ── y
 *
 *     before: weight := weight * scale per row,     bias := (bias - running_mean) * scale + BatchNorm's bias
 *     after:  weight := weight * scale per column,  bias := bias + weight · shift
 *
 * On 2-D input only: on (N, C, L) BatchNorm1d normalises another axis than the one that Linear works on. So the shape must be
 * recorded. Otherwise the conditions are those of FuseBatchNorm2dInConv2d.
 * Exactness: rounds. Not reversible from new weights; rollback is exact.
 */
#include "core/passes/batch_norm_fold.h"
#include "core/weights/recipe.h"

static bool linear_before(const fb_graph *g, fb_node norm_call, fb_linear *linear) {
    fb_node input = fb_call_argument_node(g, norm_call, "input");
    return input.id && fb_linear_at(g, input, linear) && linear->module.id;
}

static bool linear_after(const fb_graph *g, fb_node norm_call, fb_linear *linear) {
    for (uint32_t e = fb_user_first(g, norm_call); e; e = fb_user_next(g, e)) {
        if (fb_linear_at(g, fb_edge_user(g, e), linear) && linear->module.id && linear->input.id == norm_call.id) return true;
    }
    return false;
}

static bool is_not_2d(fb_matcher *m, fb_node norm_call) {
    const fb_graph *g = m->graph;
    for (fb_node n = norm_call; n.id; n = fb_next_call(m->usage, n)) {
        fb_node input = fb_call_argument_node(g, n, "input");
        int rank = fb_shape_rank(g, fb_node_at(g, input)->shape);
        if (rank == 2) continue;
        if (rank < 0) fb_refuse_node(m, "unknown-shape", n, "the shape of %s is not recorded", fb_node_name(g, input));
        else
            fb_refuse_node(m, "not-2d", n, "%s has %d dimensions; BatchNorm1d then normalises another axis",
                           fb_node_name(g, input), rank);
        return true;
    }
    return false;
}

static void match(fb_matcher *m, fb_node n) {
    fb_fold_pair pair = {0};
    fb_linear linear;
    if (!fb_batch_norm_at(m->graph, n, &pair.norm) || pair.norm.spatial != 1 || !pair.norm.module.id) return;
    if (fb_first_call(m->usage, pair.norm.module).id != n.id) return; /* a module is matched once, at its first call */
    bool is_before = false, is_after = false;
    for (; n.id && !is_before && !is_after; n = fb_next_call(m->usage, n)) {
        is_before = linear_before(m->graph, n, &linear);
        is_after = !is_before && linear_after(m->graph, n, &linear);
    }
    if (!is_before && !is_after) return;
    pair.host = linear.module;
    pair.first = is_before ? linear.module : pair.norm.module;
    pair.second = is_before ? pair.norm.module : linear.module;
    pair.weight = linear.weight;
    pair.channels = is_before ? linear.out_features : linear.in_features;
    fb_match_fold(m, &pair, is_not_2d);
}

static void fold_after(fb_rewrite *rw, const fb_linear *linear, const fb_batch_norm *norm) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value weight = fb_recipe_mul(g, fb_recipe_tensor(g, linear->weight), fb_norm_scale(g, norm)); /* scales the columns */
    fb_value bias = fb_recipe_matmul(g, fb_recipe_tensor(g, linear->weight), fb_norm_shift(g, norm));
    if (linear->bias.id) bias = fb_recipe_add(g, fb_recipe_tensor(g, linear->bias), bias);
    fb_put_parameter(rw, linear->module, "weight", weight, linear->dtype, fb_tensor_at(g, linear->weight)->requires_grad);
    fb_put_bias(rw, linear->module, linear->weight, linear->bias, bias);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_linear linear;
    fb_batch_norm norm;
    if (!fb_linear_at(g, match->nodes[0], &linear) || !fb_batch_norm_at(g, fb_first_norm_call(match), &norm)) return;
    /* By module, not by node: the first call of the one need not be paired with the first call of the other. */
    const fb_node_row *input = fb_node_at(g, linear.input);
    bool is_after = input->opcode == FB_CALL_MODULE && input->module.id == norm.module.id;
    if (is_after) fold_after(rw, &linear, &norm);
    else fb_fold_into_outputs(rw, linear.module, linear.weight, linear.bias, &norm);
    fb_remove_norm(rw, match, &norm);
}

const fb_pass fb_fuse_batch_norm_1d_in_linear = {
    .name = "FuseBatchNorm1dInLinear",
    .version = 1,
    .summary = "A BatchNorm1d in eval mode on 2-D input disappears into the Linear before or after it.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = false,
    .preserves_computation = true,
    .match = match,
    .edit = edit,
};
