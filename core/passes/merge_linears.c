/* MergeLinears: Linears that read the same value become one Linear, and slices of its result.
 *
 *          ┌─ q ── …                            ┌─ [..., 0:a] ── …
 *     x ───┼─ k ── …          x ── q-k-v-merged ┼─ [..., a:b] ── …
 *          └─ v ── …                            └─ [..., b:c] ── …
 *
 * Any number of branches, of any sizes, below any parents. A Linear is left out, and the others merge if two remain, when its
 * dtype, its requires_grad, its training flag or its input features are not those of the largest group; when it is called more
 * than once; when its type is not exactly torch's Linear; when what it reads is written in place before its turn. Without any
 * bias the merged one has none; where only some have one, the others' part is zeros.
 * Exactness: moves. Reversible.
 */
#include <stdlib.h>

#include "core/base/map.h"
#include "core/ops/spelling.h"
#include "core/passes/pass.h"
#include "core/weights/recipe.h"

#define MAX_NAME 200 /* characters of a merged module's name, before it is shortened */
#define KEYS 6

typedef struct member {
    fb_linear linear;
    int64_t key[KEYS]; /* members merge when these are equal */
} member;

static const struct {
    const char *reason, *detail;
} keys[KEYS] = {
    {"dtype", "its dtype is not that of the Linears that are merged"},
    {"requires-grad", "its weight is trained and theirs are not, or the other way round"},
    {"requires-grad", "its bias is trained and theirs are not, or the other way round"},
    {"training-mode", "it is in training mode and they are not, or the other way round"},
    {"shape-mismatch", "its in_features are not those of the Linears that are merged"},
    {"input-mutated", "what they all read is written in place between them"},
};

/* Reads one reader of the shared value. False when it cannot take part; then it has been refused, or is no candidate. */
static bool read_member(fb_matcher *m, fb_node n, fb_node shared, member *out) {
    const fb_graph *g = m->graph;
    fb_module module = fb_node_at(g, n)->opcode == FB_CALL_MODULE ? fb_node_at(g, n)->module : (fb_module){0};
    if (!module.id || fb_is_marked(m, n)) return false;
    if (fb_module_is_linear_like(g, module)) {
        fb_refuse_node(m, "unsupported-type", n, "%s is not exactly torch's Linear", fb_text(g, fb_module_at(g, module)->type));
        return false;
    }
    if (!fb_linear_at(g, n, &out->linear) || out->linear.input.id != shared.id) return false;
    const fb_linear *linear = &out->linear;
    const fb_tensor_row *weight = fb_tensor_at(g, linear->weight),
                        *bias = linear->bias.id ? fb_tensor_at(g, linear->bias) : weight;
    if (!fb_call_has_only(g, n, "input")) {
        fb_refuse_node(m, "unsupported-arguments", n, "a Linear is called with one input and nothing else");
        return false;
    }
    if (fb_call_count(m->usage, module) > 1) {
        fb_refuse_node(m, "shared-module", n, "%s is called more than once", fb_text(g, fb_module_at(g, module)->path));
        return false;
    }
    const char *obstacle = fb_module_obstacle(m, module);
    if (obstacle) {
        fb_refuse_node(m, obstacle, n, "%s", fb_obstacle_detail(obstacle));
        return false;
    }
    if (bias->dtype != weight->dtype) {
        fb_refuse_node(m, "dtype", n, "its weight is %s and its bias %s", fb_dtype_name(weight->dtype),
                       fb_dtype_name(bias->dtype));
        return false;
    }
    int64_t key[KEYS] = {weight->dtype, weight->requires_grad, bias->requires_grad, linear->training, linear->in_features, 0};
    memcpy(out->key, key, sizeof key);
    return true;
}

static int by_ordinal(const void *a, const void *b, void *graph) {
    uint32_t x = fb_node_at(graph, *(const fb_node *)a)->ordinal, y = fb_node_at(graph, *(const fb_node *)b)->ordinal;
    return (x > y) - (x < y);
}

/* The readers of a value in document order; the caller frees. */
static fb_node *sorted_users(fb_matcher *m, fb_node value, size_t *count) {
    const fb_graph *g = m->graph;
    fb_node *users = malloc((fb_node_at(g, value)->user_count + 1) * sizeof *users);
    *count = 0;
    if (!users) m->failed = true;
    for (uint32_t e = fb_user_first(g, value); users && e; e = fb_user_next(g, e)) users[(*count)++] = fb_edge_user(g, e);
    if (users) qsort_r(users, *count, sizeof *users, by_ordinal, (void *)(uintptr_t)g);
    return users;
}

/* Members between which the shared value is written in place belong to different epochs. */
static void number_epochs(fb_matcher *m, fb_node shared, member *members, size_t count) {
    const fb_alias *alias = fb_matcher_alias(m);
    for (size_t i = 1; alias && i < count; i++) {
        uint32_t before = fb_node_at(m->graph, members[i - 1].linear.node)->ordinal;
        uint32_t now = fb_node_at(m->graph, members[i].linear.node)->ordinal;
        members[i].key[5] = members[i - 1].key[5] + fb_mutated_between(alias, shared, before, now);
    }
}

/* A member of the largest group of equal keys; of equally large ones, of the one that is complete first. */
static const member *in_largest_group(fb_matcher *m, const member *members, size_t count) {
    fb_map sizes = {0};
    const member *best = members;
    uint32_t best_size = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t key = fb_hash(members[i].key, sizeof members[i].key, 0);
        uint32_t size = fb_map_get(&sizes, key) + 1;
        m->failed |= !fb_map_put(&sizes, key, size);
        if (size <= best_size) continue;
        best = &members[i];
        best_size = size;
    }
    fb_map_free(&sizes);
    return best;
}

static void report(fb_matcher *m, const member *members, size_t count) {
    const member *model = in_largest_group(m, members, count);
    fb_buffer group = {0};
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < KEYS && members[i].key[k] == model->key[k]) k++;
        fb_node n = members[i].linear.node;
        if (k == KEYS) fb_buffer_append(&group, &n, sizeof n);
        else fb_refuse_node(m, keys[k].reason, n, "%s", keys[k].detail);
    }
    size_t size = group.size / sizeof(fb_node);
    m->failed |= group.failed;
    if (size >= 2) fb_match_found(m, (const fb_node *)(const void *)group.data, size);
    fb_buffer_free(&group);
}

static bool is_linear_call(const fb_graph *g, fb_node n, fb_node shared) {
    const fb_node_row *row = fb_node_at(g, n);
    if (row->opcode != FB_CALL_MODULE || !row->module.id) return false;
    fb_linear linear;
    return fb_module_is_linear_like(g, row->module) || (fb_linear_at(g, n, &linear) && linear.input.id == shared.id);
}

static void match(fb_matcher *m, fb_node shared) {
    if (fb_node_at(m->graph, shared)->user_count < 2) return;
    size_t user_count, linear_calls = 0, count = 0;
    fb_node *users = sorted_users(m, shared, &user_count);
    for (size_t i = 0; users && i < user_count; i++) linear_calls += is_linear_call(m->graph, users[i], shared);
    member *members = linear_calls >= 2 ? malloc(linear_calls * sizeof *members) : NULL;
    if (linear_calls >= 2 && !members) m->failed = true;
    for (size_t i = 0; members && i < user_count; i++) count += read_member(m, users[i], shared, &members[count]);
    if (count >= 2) {
        number_epochs(m, shared, members, count);
        report(m, members, count);
    }
    free(users);
    free(members);
}

/* ---- edit -------------------------------------------------------------------------------------------------------------- */

/* Parent of the first Linear's path, and the last parts of all paths: "encoder.0.query-key-value-merged". */
static void merged_path(const fb_graph *g, const fb_match *match, fb_buffer *out) {
    const char *first = fb_node_target(g, match->nodes[0]), *dot = strrchr(first, '.');
    fb_buffer_append(out, first, dot ? (size_t)(dot + 1 - first) : 0);
    size_t start = out->size;
    for (size_t i = 0; i < match->count && out->size - start <= MAX_NAME; i++) {
        const char *path = fb_node_target(g, match->nodes[i]);
        fb_buffer_printf(out, "%s-", strrchr(path, '.') ? strrchr(path, '.') + 1 : path);
    }
    fb_buffer_string(out, "merged");
    if (out->size - start <= MAX_NAME) return;
    const char *last = fb_node_target(g, match->nodes[match->count - 1]);
    out->size = start;
    fb_buffer_printf(out, "%s-%zu-more-%s-merged", dot ? dot + 1 : first, match->count - 2,
                     strrchr(last, '.') ? strrchr(last, '.') + 1 : last);
}

/* The concatenated weights (or biases, zeros where there is none) as a recipe. */
static fb_value concatenated(fb_graph *g, const fb_match *match, bool is_bias) {
    fb_value *parts = calloc(match->count, sizeof *parts), recipe = {0};
    for (size_t i = 0; parts && i < match->count; i++) {
        fb_linear linear;
        if (!fb_linear_at(g, match->nodes[i], &linear)) break;
        fb_tensor part = is_bias ? linear.bias : linear.weight;
        parts[i] = part.id ? fb_recipe_tensor(g, part) : fb_recipe_full(g, &linear.out_features, 1, fb_make_float(g, 0));
    }
    if (parts) recipe = fb_recipe_concat(g, 0, parts, match->count);
    free(parts);
    return recipe;
}

static fb_module put_merged(fb_rewrite *rw, const fb_match *match, const fb_linear *first) {
    fb_graph *g = fb_rewrite_graph(rw);
    int64_t out_features = 0;
    fb_tensor bias = {0};
    for (size_t i = 0; i < match->count; i++) {
        fb_linear linear;
        if (!fb_linear_at(g, match->nodes[i], &linear)) return (fb_module){0};
        out_features += linear.out_features;
        if (!bias.id) bias = linear.bias;
    }
    fb_value config = fb_map_with(g, fb_module_at(g, first->module)->config, "out_features", fb_make_int(g, out_features));
    config = fb_map_with(g, config, "bias", fb_make_bool(g, bias.id != 0));
    fb_buffer path = {0};
    merged_path(g, match, &path);
    const char *text = fb_buffer_text(&path);
    fb_module merged = fb_put_module(rw, first->module, text, FB_TYPE_LINEAR, config, first->training);
    fb_buffer_free(&path);
    fb_put_parameter(rw, merged, "weight", concatenated(g, match, false), first->dtype,
                     fb_tensor_at(g, first->weight)->requires_grad);
    if (bias.id)
        fb_put_parameter(rw, merged, "bias", concatenated(g, match, true), first->dtype, fb_tensor_at(g, bias)->requires_grad);
    else fb_clear_parameter(rw, merged, "bias");
    return merged;
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_linear linear;
    if (!fb_linear_at(g, match->nodes[0], &linear)) return;
    fb_module merged = put_merged(rw, match, &linear);
    if (!merged.id) return;
    fb_value input = FB_ARGS(g, fb_make_node(g, linear.input)), no_kwargs = {0};
    fb_node all =
        fb_insert_before(rw, match->nodes[0], FB_CALL_MODULE, fb_text(g, fb_module_at(g, merged)->path), input, no_kwargs);
    fb_mark(rw, all);
    int64_t start = 0;
    for (size_t i = 0; i < match->count; i++) {
        fb_node n = match->nodes[i];
        if (!fb_linear_at(g, n, &linear)) return;
        int64_t stop = start + linear.out_features;
        fb_value slice = fb_make_slice(g, fb_make_int(g, start), fb_make_int(g, stop), fb_make_none(g));
        fb_value place = fb_make_tuple(g, (fb_value[]){FB_TEXT(g, FB_ELLIPSIS, ""), slice}, 2);
        fb_set_target(rw, n, FB_CALL_FUNCTION, FB_TARGET_GETITEM);
        fb_set_args(rw, n, FB_ARGS(g, fb_make_node(g, all), place), fb_make_items(g, FB_MAP, (fb_symbol){0}, NULL, 0));
        fb_drop_module(rw, linear.module);
        start = stop;
    }
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
