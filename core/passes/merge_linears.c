/* MergeLinears: Linears that read the same value become one Linear, and slices of its result.
 *
 *          ┌─ q ── …                            ┌─ [..., 0:a] ── …
 *     x ───┼─ k ── …          x ── q-k-v-merged ┼─ [..., a:b] ── …
 *          └─ v ── …                            └─ [..., b:c] ── …
 *
 * Any number of branches, of any sizes, below any parents. Left out, while the others merge if two remain: a Linear that
 * differs from the largest group (see `meanings`), is called more than once, is not exactly torch's, or whose result must be
 * contiguous (layout.h). Called modules, and functions of one spelling (linear, ATen's, addmm with its packed weights), are
 * groups of their own. No bias anywhere: none; only here and there: zeros for the others. Exactness: moves. Reversible.
 *
 * Strides: a slice has those of the whole. So where one of the Linears gives a result of the graph, the caller gets the same
 * numbers, but not contiguous: `view(-1)` of that result fails, `reshape(-1)` does not. Optimum merges there as well.
 */
#include <stdlib.h>

#include "core/ops/layout.h"
#include "core/passes/group.h"
#include "core/passes/merged_linear.h"
#include "core/passes/views.h"

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
    if (fb_linear_at(g, n, &linear)) return linear.input.id == shared.id;
    if (row->opcode != FB_CALL_MODULE || !row->module.id) return false;
    return fb_module_is_linear_like(g, row->module) && fb_call_argument_node(g, n, "input").id == shared.id;
}

/* Why a Linear cannot be merged with any other, and the sentence for it; NULL when it can. */
static const char *obstacle(fb_matcher *m, const fb_linear *linear, const char **detail) {
    const fb_graph *g = m->graph;
    *detail = "its module is called more than once";
    fb_layer layer = fb_linear_layer(linear);
    if (fb_layer_call_count(m->usage, &layer) > 1) return "shared-module";
    *detail = "its weight and its bias have different dtypes";
    if (linear->bias.id && fb_tensor_at(g, linear->bias)->dtype != linear->dtype) return "dtype";
    const char *reason = fb_layer_obstacle(m, &layer);
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

/* How a candidate is spelled: 0 for a module; for a function the target's symbol, and how it holds its weight. */
static uint64_t spelling_of(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    fb_linear linear;
    if (row->opcode == FB_CALL_MODULE || !fb_linear_at(g, n, &linear)) return 0;
    return (uint64_t)row->target.id << 2 | (uint64_t)linear.is_packed << 1 | (linear.transposition.id != 0);
}

/* Merges those that are spelled like the first, and leaves the others in their order. Gives how many they are. */
static size_t match_spelled_alike(fb_matcher *m, fb_node shared, fb_candidate *candidates, fb_candidate *alike, size_t count) {
    size_t alike_count = 0, rest = 0;
    uint64_t spelling = spelling_of(m->graph, candidates[0].node);
    for (size_t i = 0; i < count; i++) {
        bool is_alike = spelling_of(m->graph, candidates[i].node) == spelling;
        if (is_alike) alike[alike_count++] = candidates[i];
        else candidates[rest++] = candidates[i];
    }
    size_t least = (size_t)json_integer_value(json_object_get(m->params, "minimum_gain")) + 1;
    fb_number_epochs(m, shared, alike, alike_count, EPOCH, MODE);
    fb_match_largest_group(m, alike, alike_count, meanings, least);
    return rest;
}

enum { MAX_VIEWS = 64 }; /* of one value, and as many readers of each, among which Linears are looked for */

/* A Linear that reads the view, or none. */
static fb_node linear_of_view(const fb_graph *g, fb_node view) {
    fb_linear linear;
    int seen = 0;
    for (uint32_t e = fb_user_first(g, view); e && seen < MAX_VIEWS; e = fb_user_next(g, e), seen++) {
        fb_node user = fb_edge_user(g, e);
        if (fb_linear_at(g, user, &linear) && linear.input.id == view.id) return user;
    }
    return (fb_node){0};
}

/* Linears that read the same view of one value, made for each of them: as decompositions have it. They could be one. */
static void refuse_views(fb_matcher *m, fb_node shared) {
    const fb_graph *g = m->graph;
    const fb_node_row *first = NULL;
    fb_node found[MAX_VIEWS];
    size_t count = 0;
    int seen = 0;
    for (uint32_t e = fb_user_first(g, shared); e && seen < MAX_VIEWS; e = fb_user_next(g, e), seen++) {
        fb_node view = fb_edge_user(g, e);
        if (fb_view_input(g, view, NULL).id != shared.id) continue;
        const fb_node_row *row = fb_node_at(g, view);
        bool is_same = !first || (row->target.id == first->target.id && row->args.id == first->args.id &&
                                  row->kwargs.id == first->kwargs.id && row->opcode == first->opcode);
        fb_node linear = is_same ? linear_of_view(g, view) : (fb_node){0};
        if (!linear.id || fb_is_marked(m, linear)) continue;
        first = row;
        found[count++] = linear;
    }
    if (count > 1)
        fb_refuse(m, "views-between", found, count,
                  "each reads a view of its own of one value; EliminateCommonSubexpressions makes these views one");
}

static void match(fb_matcher *m, fb_node shared) {
    const fb_graph *g = m->graph;
    size_t user_count, linear_calls = 0, count = 0;
    if (fb_node_at(g, shared)->user_count < 2) return;
    refuse_views(m, shared);
    for (uint32_t e = fb_user_first(g, shared); e; e = fb_user_next(g, e)) {
        linear_calls += is_linear_call(g, fb_edge_user(g, e), shared);
    }
    if (linear_calls < 2) return;
    fb_node *users = fb_users_in_order(g, shared, &user_count);
    fb_candidate *candidates = malloc(linear_calls * sizeof *candidates), *alike = malloc(linear_calls * sizeof *alike);
    m->failed |= !users || !candidates || !alike;
    for (size_t i = 0; !m->failed && i < user_count; i++) {
        count += read_candidate(m, users[i], shared, &candidates[count]);
    }
    while (!m->failed && count > 0) count = match_spelled_alike(m, shared, candidates, alike, count);
    free(users);
    free(candidates);
    free(alike);
}

/* ---- edit -------------------------------------------------------------------------------------------------------------- */

static void edit_linears(fb_rewrite *rw, const fb_linear *linears, size_t count) {
    fb_node all = fb_insert_merged_linear(rw, linears, count);
    if (!all.id) return;
    fb_mark(rw, all);
    int64_t start = 0;
    for (size_t i = 0; i < count; i++) {
        fb_cut_out_of_merged(rw, &linears[i], all, start);
        start += linears[i].out_features;
    }
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_linear *linears = malloc(match->count * sizeof *linears);
    bool ok = linears != NULL;
    if (!ok) fb_graph_fail_memory(g);
    for (size_t i = 0; ok && i < match->count; i++) ok = fb_linear_at(g, match->nodes[i], &linears[i]);
    if (ok) edit_linears(rw, linears, match->count);
    free(linears);
}

const fb_pass fb_merge_linears = {
    .name = "MergeLinears",
    .version = 1,
    .summary = "Linears that read the same value become one Linear, and slices of its result.",
    .parameters = "{\"additionalProperties\":false,\"properties\":{\"minimum_gain\":{\"default\":1,\"description\":\"How many "
                  "calls a merge must save at least.\",\"minimum\":1,\"type\":\"integer\"}},\"type\":\"object\"}",
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .match = match,
    .edit = edit,
};
