/* FoldNormIntoLinear: folds the scale and shift of a LayerNorm or RMSNorm into every Linear that follows.
 *
 *     x ── LayerNorm(g, b) ──┬── Linear(W, c) ── y        x ── LayerNorm ──┬── Linear(W g, c + W·b) ── y
 *                            └── Linear(V, d) ── z                         └── Linear(V g, d + V·b) ── z
 *
 * Afterwards the norm only normalises: a called module becomes elementwise_affine=False, and an RMSNorm that is spelled out
 * loses its last product. In ONNX only those that are spelled out are folded, as LayerNormalization must have a scale; they
 * lose the product and the sum behind it.
 *
 * Each reader of the norm's value must be one of these:
 *   - such a Linear
 *   - a view that keeps the features on the last axis and leads only to such Linears
 *   - a node that only asks for shape or dtype
 *
 * Where the numbers are known, no new weight or bias may overflow. The norm must work on the one dimension that the
 * Linears read. The norm and the Linears are called once, in eval mode, in one dtype, and nothing is written between them.
 * Exactness: rounds. Not reversible.
 */
#include <math.h>
#include <stdlib.h>

#include "core/analysis/infer.h"
#include "core/analysis/memory_layout.h"
#include "core/base/grow.h"
#include "core/base/map.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"
#include "core/pass/views.h"
#include "core/weights/recipe.h"

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* The norm, a view, or a Linear: a match is these, in the order in which they were found. */
typedef struct reader {
    fb_node node;
    bool is_linear;
    union {
        fb_linear linear;
        fb_norm norm;
    };
} reader;

typedef struct readers {
    reader *rows;
    size_t count, capacity;
} readers;

static void add(fb_matcher *m, readers *list, reader row) {
    m->failed |= !FB_GROW(list->rows, list->count, list->capacity);
    if (!m->failed) list->rows[list->count++] = row;
}

/* Appends the Linears and the views that read the value. NULL, or why one of the readers prevents the fold. */
static fb_obstacle list_readers_of(fb_matcher *m, fb_node value, readers *list) {
    const fb_graph *g = m->graph;
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    size_t count = 0;
    fb_node *users = fb_users_in_order(g, value, &count);
    m->failed |= !users;
    for (size_t i = 0; users && i < count && fb_matcher_goes_on(m); i++) {
        if (fb_reads_type_only_of(g, users[i], value)) continue;
        reader row = {.node = fb_with_bias(g, users[i])};
        row.is_linear = fb_linear_at(g, row.node, &row.linear);
        if ((row.is_linear && row.linear.input.id == value.id) || fb_view_input(g, users[i], NULL).id == value.id) {
            add(m, list, row);
            continue;
        }
        bool is_output = fb_node_at(g, users[i])->opcode == FB_OUTPUT;
        obstacle = is_output ? (fb_obstacle){"graph-output", "its value is an output of the graph"}
                             : (fb_obstacle){"other-readers", "its value is read by others than Linears, too"};
    }
    free(users);
    return obstacle;
}

/* The norm, and all that read its value, directly or through views: the views and the Linears. */
static fb_obstacle list_readers(fb_matcher *m, fb_node n, const fb_norm *norm, readers *list) {
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    add(m, list, (reader){.node = n, .norm = *norm});
    for (size_t i = 0; !m->failed && i < list->count; i++) {
        if (list->rows[i].is_linear) continue;
        fb_obstacle found = list_readers_of(m, list->rows[i].node, list);
        if (found.code) obstacle = found;
    }
    return obstacle;
}

/* Do the views between the norm and a Linear keep the features on the last axis, and the strides as they were? */
static fb_obstacle views_obstacle(const fb_graph *g, const fb_norm *norm, const fb_linear *linear) {
    int rank = fb_node_rank(g, linear->input), axis = rank - 1, steps = 0;
    bool minds = false;
    fb_node at = linear->input;
    for (; at.id && at.id != norm->node.id && steps < FB_VIEWS_MAX; steps++) {
        minds |= fb_view_minds_strides(g, at);
        at = fb_view_input(g, at, &axis);
    }
    if (at.id != norm->node.id)
        return (fb_obstacle){"views-between",
                             "too many views stand between the norm and the Linear; MergeViews makes them fewer"};
    if (steps && axis != fb_node_rank(g, at) - 1)
        return (fb_obstacle){"channels-moved",
                             "the views between them do not keep the features together, on the axis that the Linear takes in"};
    return minds && norm->unscaled.id && !fb_is_dense(g, norm->unscaled)
               ? (fb_obstacle){"needs-contiguous",
                               "a view between them may need the scaled value, which lies in memory in another way"}
               : FB_NO_OBSTACLE;
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

static fb_obstacle numbers_obstacle(fb_matcher *m, const fb_norm *norm, const fb_linear *linear) {
    fb_dtype dtype = linear->dtype;
    fb_layer layer = fb_linear_layer(linear);
    double weight = fb_layer_largest_weight(m, &layer, dtype);
    double scale = norm->weight.id ? fb_known_largest(m, norm->weight, dtype) : 1;
    double shift = (double)norm->features * weight * fb_known_largest(m, norm->bias, dtype);
    return fb_range_obstacle(dtype, fmax(weight * scale, norm->bias.id ? fb_layer_largest_bias(m, &layer, dtype) + shift : 0));
}

static fb_obstacle linear_obstacle(fb_matcher *m, const fb_norm *norm, const fb_linear *linear) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    fb_node call = linear->node;
    if (!alias) return FB_OUT_OF_MEMORY;
    fb_layer layer = fb_linear_layer(linear);
    uint32_t from = fb_node_at(g, norm->node)->ordinal, to = fb_node_at(g, call)->ordinal;
    fb_obstacle obstacle = views_obstacle(g, norm, linear);
    if (obstacle.code) return obstacle;
    if (norm->axes != 1 || norm->features != linear->in_features)
        return (fb_obstacle){"shape-mismatch", "the norm does not normalise over the one dimension that the Linear takes in"};
    if (norm->bias.id && linear->needs_sum)
        return (fb_obstacle){"unsupported-form", "a MatMul of more than two dimensions would need an Add for a bias"};
    if (linear->training) return (fb_obstacle){"training-mode", "in training mode weights are still to change"};
    if (!has_dtype(g, norm, linear->dtype)) return (fb_obstacle){"dtype", "norm and Linear do not compute in one dtype"};
    if (fb_layer_call_count(m->usage, &layer) != 1)
        return (fb_obstacle){"shared-module", "the Linear is called more than once"};
    if ((obstacle = fb_layer_obstacle(m, &layer)).code) return obstacle;
    if (m->report->pass->version > 1 && (obstacle = numbers_obstacle(m, norm, linear)).code) return obstacle;
    if (norm->unscaled.id && fb_mutated_between(alias, norm->unscaled, from, to))
        return (fb_obstacle){"input-mutated", "the normalised value is written in place before the Linear would read it"};
    if (norm->unscaled.id && (obstacle = fb_gradient_obstacle(m, norm->unscaled, call)).code) return obstacle;
    return fb_mode_switched_between(alias, from, to)
               ? (fb_obstacle){"mode-switched", "autocast, autograd or another mode is switched between the two"}
               : FB_NO_OBSTACLE;
}

/* The layer of a norm that is not spelled out. */
static fb_layer layer_of(const fb_norm *norm) {
    return (fb_layer){
        .call = norm->node,
        .origin = norm->call,
        .module = norm->module,
        .weight = norm->weight,
        .bias = norm->bias,
        .weight_read = norm->weight_read,
        .bias_read = norm->bias_read,
        .weight_parameter = "weight",
        .bias_parameter = "bias",
        .input_parameter = "input",
    };
}

static fb_obstacle norm_obstacle(fb_matcher *m, const fb_norm *norm) {
    fb_layer layer = layer_of(norm);
    const fb_node_row *normalised = norm->unscaled.id ? fb_node_at(m->graph, norm->unscaled) : NULL;
    if (normalised && fb_shape_size(m->graph, normalised->shape, -1) < 0)
        return (fb_obstacle){"unknown-shape", "the shape of what is scaled is not recorded" FB_RECORD_SHAPE};
    if (normalised && fb_shape_size(m->graph, normalised->shape, -1) != norm->features)
        return (fb_obstacle){"shape-mismatch", "the scale is wider than what is scaled"};
    if (norm->call.id != norm->node.id && fb_node_at(m->graph, norm->call)->user_count > 1)
        return (fb_obstacle){"other-readers", "others read the tuple that it is in"};
    if (norm->module.id && fb_module_at(m->graph, norm->module)->training)
        return (fb_obstacle){"training-mode", "in training mode weights are still to change"};
    if (fb_layer_call_count(m->usage, &layer) != 1) return (fb_obstacle){"shared-module", "the norm is called more than once"};
    return fb_layer_obstacle(m, &layer);
}

static void refuse_readers(fb_matcher *m, fb_obstacle obstacle, const readers *list) {
    fb_node *nodes = malloc(list->count * sizeof *nodes);
    m->failed |= !nodes;
    for (size_t i = 0; nodes && i < list->count; i++) nodes[i] = list->rows[i].node;
    if (nodes) fb_refuse_for(m, obstacle, nodes, list->count);
    free(nodes);
}

static void match(fb_matcher *m, fb_node n) {
    fb_norm norm;
    readers list = {0};
    bool is_read = fb_node_at(m->graph, n)->user_count > 0;
    if (!is_read || !fb_norm_at(m->graph, n, &norm) || (!norm.weight.id && !norm.bias.id)) return;
    fb_obstacle obstacle = list_readers(m, n, &norm, &list);
    bool is_marked = false, has_linear = false;
    if (!obstacle.code) obstacle = norm_obstacle(m, &norm);
    if (!obstacle.code) obstacle = fb_unscaled_obstacle(m->graph, &norm);
    for (size_t i = 1; i < list.count; i++) {
        is_marked |= fb_is_marked(m, list.rows[i].node);
        has_linear |= list.rows[i].is_linear;
        if (list.rows[i].is_linear && !obstacle.code) obstacle = linear_obstacle(m, &norm, &list.rows[i].linear);
    }
    bool is_it = !m->failed && has_linear && !is_marked;
    if (is_it && obstacle.code) refuse_readers(m, obstacle, &list);
    else if (is_it) fb_match_found_as(m, list.rows, list.count * sizeof *list.rows);
    free(list.rows);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static void fold_into(fb_rewrite *rw, const fb_norm *norm, const fb_linear *linear) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_linear now = *linear;
    fb_layer layer = fb_linear_layer(linear);
    if (norm->bias.id) {
        fb_value bias = fb_linear_times(g, linear, fb_recipe_tensor(g, norm->bias));
        if (linear->bias.id) bias = fb_recipe_add(g, fb_layer_bias(g, &layer), bias);
        fb_layer_set_bias(rw, &layer, bias);
        if (!linear->module.id) fb_linear_at(g, linear->node, &now); /* it may be spelled in another way to have a bias */
    }
    layer = fb_linear_layer(&now);
    if (norm->weight.id) fb_layer_set_weight(rw, &layer, fb_linear_scale_inputs(g, &now, fb_recipe_tensor(g, norm->weight)));
    fb_mark(rw, linear->node);
}

/* The view gives another value from now on, so it gets another name. Of what it views `now` has the new one. */
static fb_node renew_view(fb_rewrite *rw, fb_node view, fb_node input, fb_node now) {
    fb_node made = fb_put_again(rw, view, input, now);
    if (made.id) fb_note_new_value(rw, made);
    return made;
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_map renewed = {0}; /* 1 + place of a view among the nodes of the match: by node */
    const reader *rows = match->data;
    fb_norm norm = rows[0].norm;
    size_t count = match->count * sizeof *match->nodes / sizeof *rows;
    fb_node *made = calloc(count, sizeof *made);
    bool is_ok = made;
    if (!made) fb_graph_fail_memory(g);
    if (is_ok) made[0] = norm.unscaled.id ? norm.unscaled : norm.node;
    for (size_t i = 0; i < count && is_ok; i++) {
        fb_node n = rows[i].node, input = i > 0 && !rows[i].is_linear ? fb_view_input(g, n, NULL) : (fb_node){0};
        if (rows[i].is_linear) fold_into(rw, &norm, &rows[i].linear);
        else if (i > 0) made[i] = renew_view(rw, n, input, made[fb_map_get(&renewed, input.id) - 1]);
        if (!rows[i].is_linear && !fb_map_put(&renewed, n.id, (uint32_t)i + 1)) is_ok = false;
        if (!is_ok) fb_graph_fail_memory(g);
    }
    if (is_ok) fb_norm_clear_affine(rw, &norm);
    fb_map_free(&renewed);
    free(made);
}

/* Version 1 also folded where the new weight or bias overflows. */
#define FOLD_NORM(number, before)                                                                                              \
    {                                                                                                                          \
        .name = "FoldNormIntoLinear", .version = number, .earlier = before,                                                    \
        .summary = "Folds the scale and shift of a LayerNorm or RMSNorm into all Linears that read it.",                       \
        .parameters = FB_NO_PARAMETERS, .exactness = FB_ROUNDS, .gain = FB_GAIN_FEWER_NODES, .reversible = false,              \
        .preserves_computation = true, .reads_onnx = true, .begins_at = fb_op_may_be_norm, .match = match, .edit = edit,       \
    }

static const fb_pass version_1 = FOLD_NORM(1, NULL);
const fb_pass fb_fold_norm_into_linear = FOLD_NORM(2, &version_1);
