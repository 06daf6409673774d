/* MergeLinears: merges Linears that read the same value into one, and slices its result.
 *
 *          ┌─ q ── …                            ┌─ [..., 0:a] ── …
 *     x ───┼─ k ── …          x ── q-k-v-merged ┼─ [..., a:b] ── …
 *          └─ v ── …                            └─ [..., b:c] ── …
 *
 * Merges any number of branches, of any sizes, below any parents. These are left out, while the others merge if two remain:
 *   - a Linear that differs from the largest group (see `meanings`)
 *   - one that is called more than once, or is not exactly torch's
 *   - one whose result must be contiguous (strides.h)
 *
 * Called modules form one group, and so do functions of one spelling (linear, ATen's, addmm with its packed weights). If no
 * Linear has a bias, neither does the merged one; if some have, the others get zeros. Linears that each read a separate but
 * equal view of one value merge on the first of these views; run_decompositions() makes such views. Exactness: moves.
 * Reversible.
 *
 * A slice has the strides of the whole. If one of the Linears gives a result of the graph, the caller gets the same numbers in
 * a tensor that is not contiguous: `view(-1)` of it fails, `reshape(-1)` works. Optimum merges there, too.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "core/operators/spelling.h"
#include "core/ops/strides.h"
#include "core/passes/layer.h"
#include "core/passes/pass.h"
#include "core/passes/views.h"
#include "core/weights/recipe.h"

/* Candidates that may be merged where they agree: the largest group of equals is the match, the others are refused. */

#define FB_GROUP_KEYS 7

typedef struct candidate {
    fb_node node;
    uint32_t ordinal;
    int64_t key[FB_GROUP_KEYS]; /* what must be equal */
} candidate;

#define MAX_NAME 200 /* characters of a merged module's name, before it is shortened */

/* Gives candidates between which `shared`, which they all read, is written in place different numbers in key[written]; and
 * those between which a mode is switched, in key[switched]. The candidates are in their order. */
static void number_epochs(fb_matcher *m, fb_node shared, candidate *candidates, size_t count, size_t written, size_t switched) {
    const fb_alias *alias = count ? fb_matcher_alias(m) : NULL;
    for (size_t i = 1; alias && i < count; i++) {
        uint32_t before = fb_node_at(m->graph, candidates[i - 1].node)->ordinal;
        uint32_t now = fb_node_at(m->graph, candidates[i].node)->ordinal;
        const int64_t *last = candidates[i - 1].key;
        candidates[i].key[written] = last[written] + fb_mutated_between(alias, shared, before, now);
        candidates[i].key[switched] = last[switched] + fb_mode_switched_between(alias, before, now);
    }
}

/* A member of the largest group. */
static const candidate *in_largest(fb_matcher *m, const candidate *candidates, size_t count) {
    fb_map sizes = {0};
    const candidate *best = candidates;
    uint32_t best_size = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t key = fb_hash(candidates[i].key, sizeof candidates[i].key, 0);
        uint32_t size = fb_map_get(&sizes, key) + 1;
        m->failed |= !fb_map_put(&sizes, key, size);
        if (size <= best_size) continue;
        best = &candidates[i];
        best_size = size;
    }
    fb_map_free(&sizes);
    return best;
}

/* Reports the largest group of candidates with equal keys as a match when it has two members or more, in the order given; of
 * equally large groups, the one that is complete first. Every other candidate is refused for the first key that differs. A
 * group of fewer than `least` members is refused ("minimum-gain"). */
static void match_largest_group(fb_matcher *m, const candidate *candidates, size_t count,
                                const fb_obstacle meanings[FB_GROUP_KEYS], size_t least) {
    if (count < 2) return;
    const candidate *model = in_largest(m, candidates, count);
    fb_buffer group = {0};
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < FB_GROUP_KEYS && candidates[i].key[k] == model->key[k]) k++;
        if (k == FB_GROUP_KEYS) fb_buffer_append(&group, &candidates[i].node, sizeof(fb_node));
        else fb_refuse_for(m, meanings[k], &candidates[i].node, 1); /* for the first key that differs */
    }
    size_t size = group.size / sizeof(fb_node);
    m->failed |= group.failed;
    const fb_node *nodes = (const fb_node *)(const void *)group.data;
    if (size >= 2 && size >= least && !m->failed) fb_match_found(m, nodes, size);
    else if (size >= 2 && !m->failed)
        fb_refuse(m, "minimum-gain", nodes, size, "merging %zu saves %zu calls, and %zu are asked for", size, size - 1,
                  least - 1);
    fb_buffer_free(&group);
}

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Appends a path for what modules of these paths become: the parent of the first, and the last parts of all:
 * "encoder.0.query-key-value-merged"; long ones are shortened. */
static void group_path(const char *const *paths, size_t count, fb_buffer *out) {
    const char *first = paths[0], *last = paths[count - 1];
    fb_buffer_append(out, first, (size_t)(last_part(first) - first));
    size_t start = out->size;
    for (size_t i = 0; i < count && out->size - start <= MAX_NAME; i++) {
        fb_buffer_string(out, last_part(paths[i]));
        fb_buffer_char(out, '-');
    }
    fb_buffer_string(out, "merged");
    if (out->size - start <= MAX_NAME) return;
    out->size = start;
    fb_buffer_printf(out, "%s-%zu-more-%s-merged", last_part(first), count - 2, last_part(last));
}

/* One Linear in the place of several, in both dialects. */

/* The concatenated weights (or biases, zeros where there is none) as a recipe. */
static fb_value concatenated(fb_graph *g, const fb_linear *linears, size_t count, bool is_bias) {
    fb_value *parts = malloc(count * sizeof *parts), recipe = {0};
    if (!parts) return fb_graph_fail_memory(g);
    for (size_t i = 0; i < count; i++) {
        const fb_linear *linear = &linears[i];
        fb_tensor part = is_bias ? linear->bias : linear->weight;
        parts[i] = part.id ? fb_recipe_tensor(g, part) : fb_recipe_zeros(g, &linear->out_features, 1, linear->dtype);
    }
    recipe = fb_recipe_concat(g, linears->is_packed && !is_bias ? 1 : 0, parts, count);
    free(parts);
    return recipe;
}

/* The module that owns a Linear's weight: the one that is called, or that get_attr reads from. */
static fb_module owner_of(const fb_graph *g, const fb_linear *linear) {
    return linear->module.id ? linear->module : fb_node_at(g, linear->weight_read)->module;
}

/* Its path; of the root, the attribute's. */
static const char *path_of(const fb_graph *g, const fb_linear *linear) {
    fb_symbol path = fb_module_at(g, owner_of(g, linear))->path;
    if (!fb_text_length(g, path)) path = fb_node_at(g, linear->weight_read)->attribute;
    return fb_text(g, path);
}

static void merged_path(fb_graph *g, const fb_linear *linears, size_t count, fb_buffer *out) {
    const char **paths = malloc(count * sizeof *paths);
    for (size_t i = 0; paths && i < count; i++) paths[i] = path_of(g, &linears[i]);
    if (paths) group_path(paths, count, out);
    else fb_graph_fail_memory(g);
    free(paths);
}

static fb_module put_merged(fb_rewrite *rw, const fb_linear *linears, size_t count) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_linear *first = &linears[0];
    fb_module owner = owner_of(g, first);
    int64_t out_features = 0;
    fb_tensor bias = {0};
    for (size_t i = 0; i < count; i++) {
        out_features += linears[i].out_features;
        if (!bias.id) bias = linears[i].bias;
    }
    fb_value config = FB_VALUE_EMPTY_MAP;
    if (first->module.id) {
        config = fb_sorted_map_with(g, fb_module_at(g, owner)->config, "out_features", fb_make_int(g, out_features));
        config = fb_sorted_map_with(g, config, "bias", fb_make_bool(g, bias.id != 0));
    }
    fb_buffer path = {0};
    merged_path(g, linears, count, &path);
    fb_module merged = fb_put_module(rw, owner, fb_buffer_text(&path), first->module.id ? FB_TYPE_LINEAR : FB_TYPE_MODULE,
                                     config, fb_module_at(g, owner)->training);
    fb_buffer_free(&path);
    bool weight_grad = fb_tensor_at(g, first->weight)->requires_grad,
         bias_grad = bias.id && fb_tensor_at(g, bias)->requires_grad;
    fb_put_parameter(rw, merged, "weight", concatenated(g, linears, count, false), first->dtype, weight_grad);
    if (bias.id) fb_put_parameter(rw, merged, "bias", concatenated(g, linears, count, true), first->dtype, bias_grad);
    else if (first->module.id) fb_clear_parameter(rw, merged, "bias");
    return merged;
}

/* What the first one calls; addmm in place of mm where there is a bias. */
static const char *target_of(const fb_graph *g, const fb_linear *first, bool has_bias) {
    if (first->form != FB_LINEAR_MM || !has_bias) return fb_node_target(g, first->node);
    return fb_is_aten(g, first->node) ? FB_TARGET_ADDMM_ATEN : FB_TARGET_ADDMM;
}

static fb_node insert_call(fb_rewrite *rw, const fb_linear *first, fb_module merged) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value input = fb_make_node(g, first->input), args;
    fb_layer layer = fb_linear_layer(first);
    fb_node read = fb_insert_read(rw, first->node, merged, "weight");
    fb_value weight = fb_make_node(g, read.id && layer.transposition.id ? fb_transpose_again(rw, &layer, read) : read);
    bool has_bias = fb_module_tensor(g, merged, "bias").id != 0;
    if (!has_bias) {
        args = FB_ARGS(g, input, weight);
    } else {
        fb_value bias = fb_make_node(g, fb_insert_read(rw, first->node, merged, "bias"));
        args = first->form >= FB_LINEAR_ADDMM ? FB_ARGS(g, bias, input, weight) : FB_ARGS(g, input, weight, bias);
    }
    return fb_insert_before(rw, first->node, FB_CALL_FUNCTION, target_of(g, first, has_bias), args, (fb_value){0});
}

/* Inserts, before the first, a Linear that gives the results of all side by side: weights and biases joined, zeros where one
 * has no bias. It is called as they are (they are spelled alike), and owned by a new module after that of the first:
 * "encoder.0.query-key-value-merged". None after a failure. */
static fb_node insert_merged_linear(fb_rewrite *rw, const fb_linear *linears, size_t count) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_linear *first = &linears[0];
    fb_module merged = put_merged(rw, linears, count);
    if (!merged.id) return (fb_node){0};
    if (!first->module.id) return insert_call(rw, first, merged);
    const char *path = fb_text(g, fb_module_at(g, merged)->path);
    return fb_insert_before(rw, first->node, FB_CALL_MODULE, path, FB_ARGS(g, fb_make_node(g, first->input)), (fb_value){0});
}

/* The Linear becomes the slice of `merged` from `start` on. What it called or read is dropped when nobody else needs it. */
static void cut_out_of_merged(fb_rewrite *rw, const fb_linear *linear, fb_node merged, int64_t start) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value from = fb_make_int(g, start), stop = fb_make_int(g, start + linear->out_features), all = fb_make_node(g, merged);
    fb_release_reads(rw, linear->node);
    if (fb_is_aten(g, linear->node)) {
        fb_set_target(rw, linear->node, FB_CALL_FUNCTION, FB_TARGET_SLICE_ATEN);
        fb_set_args(rw, linear->node, FB_ARGS(g, all, fb_make_int(g, -1), from, stop), FB_VALUE_EMPTY_MAP);
    } else {
        fb_value slice = fb_make_slice(g, from, stop, fb_make_none(g));
        fb_value place = fb_make_tuple(g, (fb_value[]){FB_TEXT(g, FB_ELLIPSIS, ""), slice}, 2);
        fb_set_target(rw, linear->node, FB_CALL_FUNCTION, FB_TARGET_GETITEM);
        fb_set_args(rw, linear->node, FB_ARGS(g, all, place), FB_VALUE_EMPTY_MAP);
    }
    if (linear->module.id) fb_drop_module(rw, linear->module);
}

enum { DTYPE, WEIGHT_GRAD, BIAS_GRAD, TRAINING, IN_FEATURES, EPOCH, MODE };

static const fb_obstacle meanings[FB_GROUP_KEYS] = {
    [DTYPE] = {"dtype", "its dtype is not that of the Linears that are merged"},
    [WEIGHT_GRAD] = {"requires-grad", "its weight is trained and theirs are not, or the other way round"},
    [BIAS_GRAD] = {"requires-grad", "its bias is trained and theirs are not, or the other way round"},
    [TRAINING] = {"training-mode", "one of them is in training mode, and another is not"},
    [IN_FEATURES] = {"shape-mismatch", "its in_features are not those of the Linears that are merged"},
    [EPOCH] = {"input-mutated", "what they all read is written in place between them"},
    [MODE] = {"mode-switched", "autocast, autograd or another mode is switched between them"},
};

/* A call of what looks like a Linear, on the shared value. */
static bool is_linear_like_call(const fb_graph *g, fb_node n, fb_node shared) {
    const fb_node_row *row = fb_node_at(g, n);
    if (row->opcode != FB_CALL_MODULE || !row->module.id) return false;
    return fb_module_is_linear_like(g, row->module) && fb_call_argument_node(g, n, "input").id == shared.id;
}

/* A call of a Linear, or of what looks like one, on the shared value. */
static bool is_linear_call(const fb_graph *g, fb_node n, fb_node shared) {
    fb_linear linear;
    return fb_linear_at(g, n, &linear) ? linear.input.id == shared.id : is_linear_like_call(g, n, shared);
}

/* Why a Linear cannot be merged with any other. */
static fb_obstacle obstacle(fb_matcher *m, const fb_linear *linear) {
    const fb_graph *g = m->graph;
    fb_layer layer = fb_linear_layer(linear);
    if (fb_layer_call_count(m->usage, &layer) > 1) return (fb_obstacle){"shared-module", "its module is called more than once"};
    if (linear->bias.id && fb_tensor_at(g, linear->bias)->dtype != linear->dtype)
        return (fb_obstacle){"dtype", "its weight and its bias have different dtypes"};
    fb_obstacle stands = fb_layer_obstacle(m, &layer);
    if (stands.code) return stands;
    const fb_alias *alias = fb_matcher_alias(m);
    return alias && fb_needs_contiguous(g, alias, linear->node, linear->out_features)
               ? (fb_obstacle){"needs-contiguous",
                               "a reader of its result may need it contiguous, which a slice of a wider result is not"}
               : FB_NO_OBSTACLE;
}

/* Reads one reader of the shared value. False when it cannot take part; then it has been refused, or is not a candidate. */
static bool read_candidate(fb_matcher *m, fb_node n, fb_node shared, candidate *out) {
    const fb_graph *g = m->graph;
    fb_linear linear;
    bool is_linear = fb_linear_at(g, n, &linear);
    if (is_linear ? linear.input.id != shared.id : !is_linear_like_call(g, n, shared)) return false;
    if (fb_is_marked(m, n)) return false;
    if (!is_linear) {
        const char *type = fb_text(g, fb_module_at(g, fb_node_at(g, n)->module)->type);
        fb_refuse_node(m, "unsupported-type", n, "%s is not exactly torch's Linear", type);
        return false;
    }
    fb_obstacle stands = obstacle(m, &linear);
    if (stands.code) {
        fb_refuse_for(m, stands, &n, 1);
        return false;
    }
    bool weight_grad = fb_tensor_at(g, linear.weight)->requires_grad;
    bool bias_grad = linear.bias.id ? fb_tensor_at(g, linear.bias)->requires_grad : weight_grad;
    *out = (candidate){.node = n, .ordinal = fb_node_at(g, n)->ordinal};
    out->key[DTYPE] = linear.dtype;
    out->key[WEIGHT_GRAD] = weight_grad;
    out->key[BIAS_GRAD] = bias_grad;
    out->key[TRAINING] = linear.training;
    out->key[IN_FEATURES] = linear.in_features;
    return true;
}

/* How a candidate is spelled: 0 for a module; for a function the target's symbol, and how it holds its weight. mm is addmm
 * without a bias. */
static uint64_t spelling_of(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    fb_linear linear;
    if (row->opcode == FB_CALL_MODULE || !fb_linear_at(g, n, &linear)) return 0;
    uint64_t held = (uint64_t)linear.is_packed << 1 | (linear.transposition.id != 0);
    return linear.form >= FB_LINEAR_ADDMM ? (uint64_t)fb_is_aten(g, n) << 2 | held : (uint64_t)row->target.id << 3 | 4 | held;
}

/* Merges those that are spelled like the first, and leaves the others in their order. Gives how many they are. */
static size_t match_spelled_alike(fb_matcher *m, fb_node shared, candidate *candidates, candidate *alike, size_t count) {
    size_t alike_count = 0, rest = 0;
    uint64_t spelling = spelling_of(m->graph, candidates[0].node);
    for (size_t i = 0; i < count; i++) {
        bool is_alike = spelling_of(m->graph, candidates[i].node) == spelling;
        if (is_alike) alike[alike_count++] = candidates[i];
        else candidates[rest++] = candidates[i];
    }
    size_t least = (size_t)json_integer_value(json_object_get(m->params, "minimum_gain")) + 1;
    number_epochs(m, shared, alike, alike_count, EPOCH, MODE);
    match_largest_group(m, alike, alike_count, meanings, least);
    return rest;
}

/* ---- twins: the same view of one value, made for each reader, as decompositions have it --------------------------------- */

enum { MAX_TWINS = 256 }; /* readers of the viewed value, among which twins are looked for */

typedef struct twins {
    fb_node input; /* what all of them view; none = the value is not a view, and `views` has only the value */
    fb_node views[MAX_TWINS];
    size_t count; /* at least 1; in document order */
} twins;

static bool is_same_call(const fb_node_row *a, const fb_node_row *b) {
    return a->opcode == b->opcode && a->target.id == b->target.id && a->args.id == b->args.id && a->kwargs.id == b->kwargs.id;
}

static void list_twins(const fb_graph *g, fb_node shared, twins *t) {
    *t = (twins){.input = fb_view_input(g, shared, NULL)};
    const fb_node_row *row = fb_node_at(g, shared);
    bool has_itself = false;
    int seen = 0;
    for (uint32_t e = t->input.id ? fb_user_first(g, t->input) : 0; e && seen < MAX_TWINS; e = fb_user_next(g, e), seen++) {
        fb_node user = fb_edge_user(g, e);
        if (!is_same_call(fb_node_at(g, user), row)) continue;
        size_t at = t->count++;
        for (; at > 0 && fb_node_at(g, t->views[at - 1])->ordinal > fb_node_at(g, user)->ordinal; at--)
            t->views[at] = t->views[at - 1];
        t->views[at] = user;
        has_itself |= user.id == shared.id;
    }
    if (has_itself) return;
    t->views[0] = shared;
    t->count = 1;
}

static int by_ordinal(const void *a, const void *b) {
    const candidate *one = a, *two = b;
    return (one->ordinal > two->ordinal) - (one->ordinal < two->ordinal);
}

static size_t count_linear_calls(const fb_graph *g, const twins *t) {
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++) {
        for (uint32_t e = fb_user_first(g, t->views[i]); e; e = fb_user_next(g, e))
            count += is_linear_call(g, fb_edge_user(g, e), t->views[i]);
    }
    return count;
}

/* Why a Linear that reads one of the views does not read what the others read. */
static fb_obstacle twin_obstacle(fb_matcher *m, const twins *t, fb_node view, fb_node linear) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    uint32_t first = fb_node_at(g, t->views[0])->ordinal, own = fb_node_at(g, view)->ordinal,
             at = fb_node_at(g, linear)->ordinal;
    if (!alias) return FB_NO_OBSTACLE;
    if (fb_mutated_between(alias, t->input, first, at) || fb_mutated_between(alias, view, own, at))
        return (fb_obstacle){"input-mutated", "what it reads a view of is written in place before it reads that"};
    return fb_mode_switched_between(alias, first, at) ? meanings[MODE] : FB_NO_OBSTACLE;
}

/* Keeps only the value itself of its twins where they do not all give the same; that is then said, once. */
static void separate_twins(fb_matcher *m, fb_node shared, twins *t) {
    const fb_graph *g = m->graph;
    fb_obstacle stands = FB_NO_OBSTACLE;
    fb_node at = {0};
    for (size_t i = 0; t->count > 1 && i < t->count && !stands.code; i++) {
        for (uint32_t e = fb_user_first(g, t->views[i]); e && !stands.code; e = fb_user_next(g, e)) {
            at = fb_edge_user(g, e);
            if (is_linear_call(g, at, t->views[i])) stands = twin_obstacle(m, t, t->views[i], at);
        }
    }
    if (!stands.code) return;
    if (t->views[0].id == shared.id && !fb_is_marked(m, at)) fb_refuse_for(m, stands, &at, 1);
    t->views[0] = shared;
    t->count = 1;
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* Linears that can be merged and read one of the views: in document order. */
static size_t read_candidates(fb_matcher *m, const twins *t, candidate *candidates) {
    const fb_graph *g = m->graph;
    size_t count = 0;
    for (size_t k = 0; k < t->count && !m->failed; k++) {
        size_t user_count = 0;
        fb_node *users = fb_users_in_order(g, t->views[k], &user_count);
        m->failed |= !users;
        for (size_t i = 0; !m->failed && i < user_count; i++)
            count += read_candidate(m, users[i], t->views[k], &candidates[count]);
        free(users);
    }
    if (t->count > 1) qsort(candidates, count, sizeof *candidates, by_ordinal);
    return count;
}

static void match(fb_matcher *m, fb_node shared) {
    const fb_graph *g = m->graph;
    twins t;
    if (!fb_node_at(g, shared)->user_count) return;
    list_twins(g, shared, &t);
    if (t.count == 1 && fb_node_at(g, shared)->user_count < 2) return;
    size_t linear_calls = count_linear_calls(g, &t);
    if (linear_calls < 2 || !fb_matcher_takes(m, (unsigned)t.count)) return;
    separate_twins(m, shared, &t);
    if (t.views[0].id != shared.id) return; /* seen with the first of them */
    candidate *candidates = malloc(linear_calls * sizeof *candidates), *alike = malloc(linear_calls * sizeof *alike);
    m->failed |= !candidates || !alike;
    size_t count = m->failed ? 0 : read_candidates(m, &t, candidates);
    while (!m->failed && count > 0) count = match_spelled_alike(m, shared, candidates, alike, count);
    free(candidates);
    free(alike);
}

/* ---- edit -------------------------------------------------------------------------------------------------------------- */

static void edit_linears(fb_rewrite *rw, const fb_linear *linears, size_t count) {
    fb_node all = insert_merged_linear(rw, linears, count);
    if (!all.id) return;
    fb_mark(rw, all);
    int64_t start = 0;
    for (size_t i = 0; i < count; i++) {
        cut_out_of_merged(rw, &linears[i], all, start);
        start += linears[i].out_features;
        if (linears[i].input.id != linears[0].input.id) fb_erase_unread(rw, linears[i].input);
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
    .summary = "Merges Linears that read the same value into one, and slices its result.",
    .parameters = "{\"additionalProperties\":false,\"properties\":{\"minimum_gain\":{\"default\":1,\"description\":\"How many "
                  "calls a merge must save at least.\",\"minimum\":1,\"type\":\"integer\"}},\"type\":\"object\"}",
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .match = match,
    .edit = edit,
};
