/* MergeLinears: Linears that read the same value become one Linear, and slices of its result.
 *
 *          ┌─ q ── …                            ┌─ [..., 0:a] ── …
 *     x ───┼─ k ── …          x ── q-k-v-merged ┼─ [..., a:b] ── …
 *          └─ v ── …                            └─ [..., b:c] ── …
 *
 * Any number of branches, of any sizes, below any parents. Left out, while the others merge if two remain: a Linear that
 * differs from the largest group (see `meanings`), is called more than once, is not exactly torch's, or whose result must be
 * contiguous (layout.h). No bias anywhere: none; only here and there: zeros for the others. Exactness: moves. Reversible.
 */
#include <stdlib.h>

#include "core/ops/layout.h"
#include "core/ops/spelling.h"
#include "core/passes/group.h"
#include "core/weights/recipe.h"

enum { DTYPE, WEIGHT_GRAD, BIAS_GRAD, TRAINING, IN_FEATURES, EPOCH, MODE };

static const fb_group_key meanings[FB_GROUP_KEYS] = {
    [DTYPE] = {"dtype", "its dtype is not that of the Linears that are merged"},
    [WEIGHT_GRAD] = {"requires-grad", "its weight is trained and theirs are not, or the other way round"},
    [BIAS_GRAD] = {"requires-grad", "its bias is trained and theirs are not, or the other way round"},
    [TRAINING] = {"training-mode", "it is in training mode and they are not, or the other way round"},
    [IN_FEATURES] = {"shape-mismatch", "its in_features are not those of the Linears that are merged"},
    [EPOCH] = {"input-mutated", "what they all read is written in place between them"},
    [MODE] = {"mode-switched", "autocast, autograd or another mode is switched between them"},
};

/* A call of a Linear, or of what looks like one, on the shared value. */
static bool is_linear_call(const fb_graph *g, fb_node n, fb_node shared) {
    const fb_node_row *row = fb_node_at(g, n);
    fb_linear linear;
    if (row->opcode != FB_CALL_MODULE || !row->module.id) return false;
    if (fb_linear_at(g, n, &linear)) return linear.input.id == shared.id;
    return fb_module_is_linear_like(g, row->module) && fb_call_argument_node(g, n, "input").id == shared.id;
}

/* Why a Linear cannot be merged with any other, and the sentence for it; NULL when it can. */
static const char *obstacle(fb_matcher *m, const fb_linear *linear, const char **detail) {
    const fb_graph *g = m->graph;
    *detail = "its module is called more than once";
    if (fb_call_count(m->usage, linear->module) > 1) return "shared-module";
    *detail = "its weight and its bias have different dtypes";
    if (linear->bias.id && fb_tensor_at(g, linear->bias)->dtype != linear->dtype) return "dtype";
    const char *reason = fb_module_obstacle(m, linear->module);
    *detail = reason ? fb_obstacle_detail(reason) : NULL;
    if (reason) return reason;
    const fb_alias *alias = fb_matcher_alias(m);
    *detail = "a reader of its result may need it contiguous, which a slice of a wider result is not";
    return alias && fb_needs_contiguous(g, alias, linear->node, linear->out_features) ? "needs-contiguous" : NULL;
}

/* Reads one reader of the shared value. False when it cannot take part; then it has been refused, or is no candidate. */
static bool read_candidate(fb_matcher *m, fb_node n, fb_node shared, fb_candidate *out) {
    const fb_graph *g = m->graph;
    fb_linear linear;
    const char *detail, *reason;
    if (!is_linear_call(g, n, shared) || fb_is_marked(m, n)) return false;
    if (!fb_linear_at(g, n, &linear)) {
        const char *type = fb_text(g, fb_module_at(g, fb_node_at(g, n)->module)->type);
        fb_refuse_node(m, "unsupported-type", n, "%s is not exactly torch's Linear", type);
        return false;
    }
    if ((reason = obstacle(m, &linear, &detail))) {
        fb_refuse_node(m, reason, n, "%s", detail);
        return false;
    }
    bool weight_grad = fb_tensor_at(g, linear.weight)->requires_grad;
    bool bias_grad = linear.bias.id ? fb_tensor_at(g, linear.bias)->requires_grad : weight_grad;
    *out = (fb_candidate){.node = n};
    out->key[DTYPE] = linear.dtype;
    out->key[WEIGHT_GRAD] = weight_grad;
    out->key[BIAS_GRAD] = bias_grad;
    out->key[TRAINING] = linear.training;
    out->key[IN_FEATURES] = linear.in_features;
    return true;
}

static void match(fb_matcher *m, fb_node shared) {
    const fb_graph *g = m->graph;
    size_t user_count, linear_calls = 0, count = 0;
    if (fb_node_at(g, shared)->user_count < 2) return;
    for (uint32_t e = fb_user_first(g, shared); e; e = fb_user_next(g, e)) {
        linear_calls += is_linear_call(g, fb_edge_user(g, e), shared);
    }
    if (linear_calls < 2) return;
    fb_node *users = fb_users_in_order(g, shared, &user_count);
    fb_candidate *candidates = malloc(linear_calls * sizeof *candidates);
    m->failed |= !users || !candidates;
    for (size_t i = 0; users && candidates && i < user_count; i++) {
        count += read_candidate(m, users[i], shared, &candidates[count]);
    }
    fb_number_epochs(m, shared, candidates, count, EPOCH, MODE);
    fb_match_largest_group(m, candidates, count, meanings);
    free(users);
    free(candidates);
}

/* ---- edit -------------------------------------------------------------------------------------------------------------- */

/* The concatenated weights (or biases, zeros where there is none) as a recipe. */
static fb_value concatenated(fb_graph *g, const fb_linear *linears, size_t count, bool is_bias) {
    fb_value *parts = malloc(count * sizeof *parts), recipe = {0};
    if (!parts) return fb_graph_fail_memory(g);
    for (size_t i = 0; i < count; i++) {
        const fb_linear *linear = &linears[i];
        fb_tensor part = is_bias ? linear->bias : linear->weight;
        parts[i] = part.id ? fb_recipe_tensor(g, part) : fb_recipe_zeros(g, &linear->out_features, 1, linear->dtype);
    }
    recipe = fb_recipe_concat(g, 0, parts, count);
    free(parts);
    return recipe;
}

static fb_module put_merged(fb_rewrite *rw, const fb_match *match, const fb_linear *linears) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_linear *first = &linears[0];
    int64_t out_features = 0;
    fb_tensor bias = {0};
    for (size_t i = 0; i < match->count; i++) {
        out_features += linears[i].out_features;
        if (!bias.id) bias = linears[i].bias;
    }
    fb_value config = fb_module_at(g, first->module)->config;
    config = fb_sorted_map_with(g, config, "out_features", fb_make_int(g, out_features));
    config = fb_sorted_map_with(g, config, "bias", fb_make_bool(g, bias.id != 0));
    fb_buffer path = {0};
    fb_group_path(g, match, &path);
    fb_module merged = fb_put_module(rw, first->module, fb_buffer_text(&path), FB_TYPE_LINEAR, config, first->training);
    fb_buffer_free(&path);
    bool weight_grad = fb_tensor_at(g, first->weight)->requires_grad,
         bias_grad = bias.id && fb_tensor_at(g, bias)->requires_grad;
    fb_put_parameter(rw, merged, "weight", concatenated(g, linears, match->count, false), first->dtype, weight_grad);
    if (bias.id) fb_put_parameter(rw, merged, "bias", concatenated(g, linears, match->count, true), first->dtype, bias_grad);
    else fb_clear_parameter(rw, merged, "bias");
    return merged;
}

/* The Linear becomes a slice of the merged one's result. */
static void cut_out(fb_rewrite *rw, const fb_linear *linear, fb_node merged, int64_t start) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value stop = fb_make_int(g, start + linear->out_features);
    fb_value slice = fb_make_slice(g, fb_make_int(g, start), stop, fb_make_none(g));
    fb_value place = fb_make_tuple(g, (fb_value[]){FB_TEXT(g, FB_ELLIPSIS, ""), slice}, 2);
    fb_set_target(rw, linear->node, FB_CALL_FUNCTION, FB_TARGET_GETITEM);
    fb_set_args(rw, linear->node, FB_ARGS(g, fb_make_node(g, merged), place), FB_VALUE_EMPTY_MAP);
    fb_drop_module(rw, linear->module);
}

static void edit_linears(fb_rewrite *rw, const fb_match *match, const fb_linear *linears) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_module merged = put_merged(rw, match, linears);
    if (!merged.id) return;
    fb_value input = FB_ARGS(g, fb_make_node(g, linears[0].input)), no_kwargs = {0};
    const char *target = fb_text(g, fb_module_at(g, merged)->path);
    fb_node all = fb_insert_before(rw, match->nodes[0], FB_CALL_MODULE, target, input, no_kwargs);
    fb_mark(rw, all);
    int64_t start = 0;
    for (size_t i = 0; i < match->count; i++) {
        cut_out(rw, &linears[i], all, start);
        start += linears[i].out_features;
    }
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_linear *linears = malloc(match->count * sizeof *linears);
    bool ok = linears != NULL;
    if (!ok) fb_graph_fail_memory(g);
    for (size_t i = 0; ok && i < match->count; i++) ok = fb_linear_at(g, match->nodes[i], &linears[i]);
    if (ok) edit_linears(rw, match, linears);
    free(linears);
}

const fb_pass fb_merge_linears = {
    .name = "MergeLinears",
    .version = 1,
    .summary = "Linears that read the same value become one Linear, and slices of its result.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .match = match,
    .edit = edit,
};
