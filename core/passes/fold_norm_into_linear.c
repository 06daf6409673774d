/* FoldNormIntoLinear: scale and shift of a LayerNorm or RMSNorm go into every Linear that follows.
 *
 *     x ── LayerNorm(g, b) ──┬── Linear(W, c) ── y        x ── LayerNorm ──┬── Linear(W g, c + W·b) ── y
 *                            └── Linear(V, d) ── z                         └── Linear(V g, d + V·b) ── z
 *
 * The norm normalises alone afterwards (a called one becomes elementwise_affine=False); an RMSNorm that is spelled out loses
 * its last product. Whoever reads the norm's value must be such a Linear, or ask for its shape and dtype alone. It normalises
 * over the one dimension that the Linears take in; it and they are called once, in eval mode, in one dtype; nothing is written
 * between them. Exactness: rounds. Not reversible.
 */
#include <stdlib.h>

#include "core/passes/layer.h"
#include "core/passes/views.h"
#include "core/weights/recipe.h"

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* A Linear that reads a view of the value; none when the node is not such a view. */
static fb_node linear_behind(const fb_graph *g, fb_node view, fb_node value) {
    fb_linear linear;
    if (fb_view_input(g, view, NULL).id != value.id || !fb_node_at(g, view)->user_count) return (fb_node){0};
    fb_node reader = fb_edge_user(g, fb_user_first(g, view));
    return fb_linear_at(g, reader, &linear) && linear.input.id == view.id ? reader : (fb_node){0};
}

/* Who reads the value: the Linears in order, after the norm itself. NULL, or why one of the readers stands against it. */
static const char *list_readers(fb_matcher *m, fb_node norm, fb_buffer *nodes, const char **detail) {
    const fb_graph *g = m->graph;
    const char *reason = NULL;
    size_t count = 0;
    fb_node *users = fb_users_in_order(g, norm, &count);
    m->failed |= !users;
    fb_buffer_append(nodes, &norm, sizeof norm);
    for (size_t i = 0; users && i < count; i++) {
        fb_linear linear;
        if (fb_reads_type_only_of(g, users[i], norm)) continue;
        if (fb_linear_at(g, users[i], &linear) && linear.input.id == norm.id) {
            fb_buffer_append(nodes, &users[i], sizeof norm);
            continue;
        }
        fb_node behind = linear_behind(g, users[i], norm);
        if (behind.id) {
            fb_buffer_append(nodes, &behind, sizeof norm);
            if (!reason) *detail = "a view stands between the norm and the Linear; UnpackLinear takes such views away";
            if (!reason) reason = "views-between";
            continue;
        }
        bool is_output = fb_node_at(g, users[i])->opcode == FB_OUTPUT;
        reason = is_output ? "graph-output" : "other-readers";
        *detail = is_output ? "its value is an output of the graph" : "its value is read by others than Linears, too";
    }
    free(users);
    m->failed |= nodes->failed;
    return reason;
}

static bool has_dtype(const fb_graph *g, const fb_norm *norm, fb_dtype dtype) {
    fb_dtype value = (fb_dtype)fb_node_at(g, norm->node)->dtype;
    fb_dtype normalised = (fb_dtype)fb_node_at(g, norm->unscaled.id ? norm->unscaled : norm->input)->dtype;
    const fb_tensor tensors[] = {norm->weight, norm->bias};
    for (size_t i = 0; i < 2; i++) {
        fb_dtype own = tensors[i].id ? (fb_dtype)fb_tensor_at(g, tensors[i])->dtype : dtype;
        if (!fb_dtype_is_computed(own) || (!normalised && own != dtype)) return false;
    }
    return fb_dtype_is_computed(dtype) && (!value || value == dtype) && (!normalised || normalised == dtype);
}

static const char *linear_obstacle(fb_matcher *m, const fb_norm *norm, fb_node call, const char **detail) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    fb_linear linear;
    if (!alias || !fb_linear_at(g, call, &linear)) return "out-of-memory";
    fb_layer layer = fb_linear_layer(&linear);
    uint32_t from = fb_node_at(g, norm->node)->ordinal, to = fb_node_at(g, call)->ordinal;
    const char *reason;
    *detail = "the norm does not normalise over the one dimension that the Linear takes in";
    if (norm->axes != 1 || norm->features != linear.in_features) return "shape-mismatch";
    *detail = "in training mode weights are still to change";
    if (linear.training) return "training-mode";
    *detail = "norm and Linear do not compute in one dtype";
    if (!has_dtype(g, norm, linear.dtype)) return "dtype";
    *detail = "the Linear is called more than once";
    if (fb_layer_call_count(m->usage, &layer) != 1) return "shared-module";
    if ((reason = fb_layer_obstacle(m, &layer))) {
        *detail = fb_obstacle_detail(reason);
        return reason;
    }
    *detail = "the normalised value is written in place before the Linear would read it";
    if (norm->unscaled.id && fb_mutated_between(alias, norm->unscaled, from, to)) return "input-mutated";
    *detail = "autocast, autograd or another mode is switched between the two";
    return fb_mode_switched_between(alias, from, to) ? "mode-switched" : NULL;
}

static const char *norm_obstacle(fb_matcher *m, const fb_norm *norm, const char **detail) {
    fb_layer layer = fb_norm_layer(norm);
    const fb_node_row *normalised = norm->unscaled.id ? fb_node_at(m->graph, norm->unscaled) : NULL;
    *detail = "the shape of what is scaled is not recorded";
    if (normalised && fb_shape_size(m->graph, normalised->shape, -1) < 0) return "unknown-shape";
    *detail = "the scale is wider than what is scaled";
    if (normalised && fb_shape_size(m->graph, normalised->shape, -1) != norm->features) return "shape-mismatch";
    *detail = "in training mode weights are still to change";
    if (norm->module.id && fb_module_at(m->graph, norm->module)->training) return "training-mode";
    *detail = "the norm is called more than once";
    if (fb_layer_call_count(m->usage, &layer) != 1) return "shared-module";
    const char *reason = fb_layer_obstacle(m, &layer);
    if (reason) *detail = fb_obstacle_detail(reason);
    return reason;
}

static void match(fb_matcher *m, fb_node n) {
    fb_norm norm;
    fb_buffer list = {0};
    const char *detail = NULL, *reason;
    bool is_read = fb_node_at(m->graph, n)->user_count > 0;
    if (!is_read || !fb_norm_at(m->graph, n, &norm) || (!norm.weight.id && !norm.bias.id)) return;
    reason = list_readers(m, n, &list, &detail);
    const fb_node *nodes = (const fb_node *)(const void *)list.data;
    size_t count = list.size / sizeof *nodes;
    bool is_marked = false;
    for (size_t i = 1; i < count; i++) is_marked |= fb_is_marked(m, nodes[i]);
    if (!reason) reason = norm_obstacle(m, &norm, &detail);
    for (size_t i = 1; i < count && !reason; i++) reason = linear_obstacle(m, &norm, nodes[i], &detail);
    if (!m->failed && count > 1 && !is_marked) {
        if (reason) fb_refuse(m, reason, nodes, count, "%s", detail);
        else fb_match_found(m, nodes, count);
    }
    fb_buffer_free(&list);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_norm norm;
    if (!fb_norm_at(g, match->nodes[0], &norm)) return;
    for (size_t i = 1; i < match->count; i++) {
        fb_linear linear;
        if (!fb_linear_at(g, match->nodes[i], &linear)) return;
        fb_layer layer = fb_linear_layer(&linear);
        if (norm.bias.id) {
            fb_value bias = fb_linear_times(g, &linear, fb_recipe_tensor(g, norm.bias));
            if (linear.bias.id) bias = fb_recipe_add(g, fb_recipe_tensor(g, linear.bias), bias);
            fb_layer_set_bias(rw, &layer, bias);
        }
        if (norm.weight.id)
            fb_layer_set_weight(rw, &layer, fb_linear_scale_inputs(g, &linear, fb_recipe_tensor(g, norm.weight)));
        fb_mark(rw, match->nodes[i]);
    }
    fb_norm_clear_affine(rw, &norm);
}

const fb_pass fb_fold_norm_into_linear = {
    .name = "FoldNormIntoLinear",
    .version = 1,
    .summary = "Scale and shift of a LayerNorm or RMSNorm go into every Linear that follows.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = false,
    .preserves_computation = true,
    .match = match,
    .edit = edit,
};
