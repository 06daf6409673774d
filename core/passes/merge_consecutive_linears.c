/* MergeConsecutiveLinears: two Linears in a row become one.
 *
 *     x ── Linear ── Linear ── y          x ── Linear' ── y          W' = W₂ W₁,  b' = W₂ b₁ + b₂
 *
 * Only where this saves multiplications, or needs as many: in · out must not exceed in · mid + mid · out. A narrow middle, as
 * low-rank factors have it, stays. Modules and functions, packed ones too, in any combination; the result is spelled as the
 * second. In a longer chain, each run of the pass merges pairs.
 *
 * Nothing else may read the value between the two, or call either of their modules. All must have one dtype: float64, float32
 * or bfloat16. In float16 the product of two unknown weights may vanish.
 * Exactness: rounds. Not reversible.
 */
#include <stdlib.h>

#include "core/pass/layer.h"
#include "core/pass/pass.h"
#include "core/weights/recipe.h"

typedef struct pair {
    fb_linear first, second;
} pair;

static bool pair_at(const fb_graph *g, fb_node n, pair *p) {
    return fb_linear_at(g, n, &p->second) && p->second.input.id && fb_linear_at(g, p->second.input, &p->first) &&
           p->first.input.id;
}

static bool has_dtype(const fb_graph *g, const fb_linear *linear, fb_dtype dtype) {
    bool is_bias_alike = !linear->bias.id || (fb_dtype)fb_tensor_at(g, linear->bias)->dtype == dtype;
    return linear->dtype == dtype && (fb_dtype)fb_node_at(g, linear->node)->dtype == dtype && is_bias_alike;
}

/* Multiplications for each row of x. */
static bool saves(const pair *p) {
    double in = (double)p->first.in_features, mid = (double)p->first.out_features, out = (double)p->second.out_features;
    return in * out <= in * mid + mid * out;
}

static fb_obstacle fit_obstacle(const fb_graph *g, const pair *p) {
    fb_dtype dtype = p->second.dtype;
    if (p->first.out_features != p->second.in_features || p->first.in_features < 1 || p->first.out_features < 1 ||
        p->second.out_features < 1)
        return (fb_obstacle){"shape-mismatch", "one gives other sizes than the next takes, or they have no features"};
    if (!saves(p)) return (fb_obstacle){"more-work", "one Linear would take more multiplications than the two"};
    if (!has_dtype(g, &p->first, dtype) || !has_dtype(g, &p->second, dtype))
        return (fb_obstacle){"dtype", "their weights, biases and results are not of one dtype, or it is not recorded"};
    if (dtype != FB_FLOAT64 && dtype != FB_FLOAT32 && dtype != FB_BFLOAT16)
        return (fb_obstacle){"unsupported-dtype", "weights are only multiplied in float64, float32 and bfloat16"};
    if (p->first.training || p->second.training) return (fb_obstacle){"training-mode", "one of them is in training mode"};
    return FB_NO_OBSTACLE;
}

static fb_obstacle obstacle_of(fb_matcher *m, const pair *p) {
    const fb_graph *g = m->graph;
    const fb_node calls[] = {p->first.node, p->second.node};
    const fb_layer layers[] = {fb_linear_layer(&p->first), fb_linear_layer(&p->second)};
    if (fb_node_at(g, p->first.node)->user_count != 1)
        return (fb_obstacle){"shared-output", "something else reads the value between the two"};
    for (size_t i = 0; i < 2; i++) {
        if (fb_layer_call_count(m->usage, &layers[i]) > 1)
            return (fb_obstacle){"shared-module", "the module of one of them is called more than once"};
        fb_obstacle stands = fb_layer_obstacle(m, &layers[i]);
        if (stands.code) return stands;
    }
    fb_obstacle stands = fit_obstacle(g, p);
    if (!stands.code) stands = fb_disturbance(m, calls, 2);
    return stands.code ? stands : fb_gradient_obstacle(m, p->first.input, p->second.node);
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    bool *is_taken = calloc(fb_node_limit(g), sizeof *is_taken); /* the second of a pair, by node */
    m->failed |= !is_taken;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        pair p;
        if (!pair_at(g, n, &p) || is_taken[p.first.node.id] || fb_is_marked(m, n)) continue;
        const fb_node calls[] = {p.first.node, n};
        fb_obstacle stands = obstacle_of(m, &p);
        if (stands.code) fb_refuse_for(m, stands, calls, 2);
        else fb_match_found(m, &n, 1);
        is_taken[n.id] = !stands.code;
    }
    free(is_taken);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* W₂ W₁ as the second holds its weight: (out, in), or packed (in, out). */
static fb_value product(fb_graph *g, const pair *p) {
    static const int64_t exchanged[] = {1, 0};
    const fb_layer one = fb_linear_layer(&p->first), other = fb_linear_layer(&p->second);
    fb_value first = fb_layer_weight(g, &one), second = fb_layer_weight(g, &other);
    if (p->first.is_packed != p->second.is_packed) first = fb_recipe_permute(g, first, exchanged, 2);
    return p->second.is_packed ? fb_recipe_matmul(g, first, second) : fb_recipe_matmul(g, second, first);
}

static fb_value shift(fb_graph *g, const pair *p) {
    const fb_layer first = fb_linear_layer(&p->first), second = fb_linear_layer(&p->second);
    fb_value moved = fb_linear_times(g, &p->second, fb_layer_bias(g, &first));
    return p->second.bias.id ? fb_recipe_add(g, moved, fb_layer_bias(g, &second)) : moved;
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    pair p;
    if (!pair_at(g, match->nodes[0], &p)) return;
    fb_layer layer = fb_linear_layer(&p.second), first = fb_linear_layer(&p.first);
    fb_value weight = product(g, &p), bias = p.first.bias.id ? shift(g, &p) : (fb_value){0};
    fb_set_argument(rw, p.second.origin, layer.input_parameter, fb_make_node(g, p.first.input));
    fb_layer_set_weight(rw, &layer, weight);
    if (bias.id) fb_layer_set_bias(rw, &layer, bias);
    fb_layer_release(rw, &first);
    fb_erase_call(rw, p.first.node);
    fb_mark(rw, p.second.node);
}

const fb_pass fb_merge_consecutive_linears = {
    .name = "MergeConsecutiveLinears",
    .version = 1,
    .summary = "Merges two Linears in a row into one, where that saves multiplications.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = false,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .edit = edit,
};
