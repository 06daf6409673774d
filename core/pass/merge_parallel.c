/* Merging layers that read the same value: see merge_parallel.h. */
#include "core/pass/merge_parallel.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/dialect.h"
#include "core/analysis/memory_layout.h"
#include "core/base/grow.h"
#include "core/base/map.h"
#include "core/base/sort.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"
#include "core/pass/views.h"
#include "core/weights/recipe.h"

/* Candidates that may be merged where they agree: the largest group of equals is the match, the others are refused. */

enum {
    DTYPE,
    WEIGHT_GRAD,
    BIAS_GRAD,
    TRAINING,
    INPUTS,
    KERNEL, /* of a convolution: one for each axis; 0 behind the last */
    STRIDE = KERNEL + 3,
    PADDING,
    PADDING_MODE,
    DILATION,
    EPOCH,
    MODE,
    FB_GROUP_KEYS
};

#define OTHER_KERNEL                                                                                                           \
    { "kernel-differs", "its kernel has another size than those of the others that are merged" }

static const fb_obstacle meanings[FB_GROUP_KEYS] = {
    [DTYPE] = {"dtype", "its dtype is not that of the others that are merged"},
    [WEIGHT_GRAD] = {"requires-grad", "its weight is trained and theirs are not, or the other way round"},
    [BIAS_GRAD] = {"requires-grad", "its bias is trained and theirs are not, or the other way round"},
    [TRAINING] = {"training-mode", "one of them is in training mode, and another is not"},
    [INPUTS] = {"shape-mismatch", "it takes another number of features or channels than the others that are merged"},
    [KERNEL] = OTHER_KERNEL,
    [KERNEL + 1] = OTHER_KERNEL,
    [KERNEL + 2] = OTHER_KERNEL,
    [STRIDE] = {"options-differ", "its stride is not that of the others that are merged"},
    [PADDING] = {"options-differ", "its padding is not that of the others that are merged"},
    [PADDING_MODE] = {"options-differ", "its padding_mode is not that of the others that are merged"},
    [DILATION] = {"options-differ", "its dilation is not that of the others that are merged"},
    [EPOCH] = {"input-mutated", "what they all read is written in place between them"},
    [MODE] = {"mode-switched", "autocast, autograd or another mode is switched between them"},
};

/* A call that reads the shared value, or a view of it. */
typedef struct reader {
    fb_node node;
    uint32_t ordinal;
    size_t view;  /* its index among the twins */
    fb_host host; /* none: it only looks like a Linear */
} reader;

typedef struct candidate {
    const reader *reader;
    int64_t key[FB_GROUP_KEYS]; /* what must be equal */
} candidate;

static fb_node layer_of(const reader *r) {
    return r->host.layer.call.id ? r->host.layer.call : r->node;
}

#define MAX_NAME 200 /* characters of a merged module's name, before it is shortened */

/* Gives candidates between which `shared`, which they all read, is written in place different numbers in key[EPOCH]; and
 * those between which a mode is switched, in key[MODE]. The candidates are in their order. */
static void number_epochs(fb_matcher *m, fb_node shared, candidate *candidates, size_t count) {
    const fb_alias *alias = count ? fb_matcher_writes(m) : NULL;
    for (size_t i = 1; alias && i < count; i++) {
        uint32_t before = fb_node_at(m->graph, layer_of(candidates[i - 1].reader))->ordinal;
        uint32_t now = fb_node_at(m->graph, layer_of(candidates[i].reader))->ordinal;
        const int64_t *last = candidates[i - 1].key;
        candidates[i].key[EPOCH] = last[EPOCH] + fb_mutated_between(alias, shared, before, now);
        candidates[i].key[MODE] = last[MODE] + fb_mode_switched_between(alias, before, now);
    }
}

/* A member of the largest group. */
static const candidate *in_largest(fb_matcher *m, const candidate *candidates, size_t count) {
    fb_map sizes = {0};
    const candidate *best = candidates;
    uint32_t best_size = 0;
    size_t alike = 0;
    while (alike < count && !memcmp(candidates[alike].key, candidates->key, sizeof candidates->key)) alike++;
    if (2 * alike > count) return candidates; /* as most are */
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
 * group that saves fewer than `gain` calls is refused ("minimum-gain"); `cost`: of those that take the result apart. */
static void match_largest_group(fb_matcher *m, const candidate *candidates, size_t count, size_t gain, size_t cost) {
    if (count < 2) return;
    const candidate *model = in_largest(m, candidates, count);
    fb_buffer hosts = {0}, group = {0};
    fb_buffer_reserve(&hosts, count * sizeof(fb_host));
    size_t calls = 0, left = 1; /* of the group, and of the layer that it becomes */
    for (size_t i = 0; i < count; i++) {
        const fb_layer *layer = &candidates[i].reader->host.layer;
        size_t k = 0, own = 1 + (layer->origin.id != layer->call.id); /* with an Add behind it */
        while (k < FB_GROUP_KEYS && candidates[i].key[k] == model->key[k]) k++;
        if (k < FB_GROUP_KEYS) {
            fb_refuse_for(m, meanings[k], &layer->call, 1); /* for the first key that differs */
            continue;
        }
        fb_buffer_append(&hosts, &candidates[i].reader->host, sizeof(fb_host));
        fb_buffer_append(&group, &layer->call, sizeof(fb_node));
        calls += own;
        if (own > left) left = own;
    }
    left += cost;
    size_t size = group.size / sizeof(fb_node);
    m->failed |= group.failed || hosts.failed;
    const fb_node *nodes = (const fb_node *)(const void *)group.data;
    if (size >= 2 && calls >= gain + left && !m->failed) fb_match_found_as(m, hosts.data, hosts.size);
    else if (size >= 2 && !m->failed)
        fb_refuse(m, "minimum-gain", nodes, size, "merging %zu saves %zu, and minimum_gain asks for %zu", size, calls - left,
                  gain);
    fb_buffer_free(&group);
    fb_buffer_free(&hosts);
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

/* ---- one layer in the place of several, in both dialects ----------------------------------------------------------------- */

static fb_node input_of(const fb_host *host) {
    return host->is_linear ? host->linear.input : host->conv.input;
}

/* A recipe that joins the weights, or the biases: zeros for a layer without one. */
static fb_value concatenated(fb_graph *g, const fb_host *hosts, size_t count, bool is_bias) {
    fb_value *parts = malloc(count * sizeof *parts), recipe = {0};
    if (!parts) return fb_graph_fail_memory(g);
    for (size_t i = 0; i < count; i++) {
        const fb_host *host = &hosts[i];
        fb_tensor part = is_bias ? host->layer.bias : host->layer.weight;
        parts[i] = !part.id  ? fb_recipe_zeros(g, &host->outputs, 1, host->dtype)
                   : is_bias ? fb_layer_bias(g, &host->layer)
                             : fb_layer_weight(g, &host->layer);
    }
    recipe = fb_recipe_concat(g, hosts->linear.is_packed && !is_bias ? 1 : 0, parts, count);
    free(parts);
    return recipe;
}

/* The module that owns a layer's weight: the one that is called, or that get_attr reads from. */
static fb_module owner_of(const fb_graph *g, const fb_layer *layer) {
    return layer->module.id ? layer->module : fb_node_at(g, layer->weight_read)->module;
}

/* Its path; of the root, the attribute's. */
static const char *path_of(const fb_graph *g, const fb_layer *layer) {
    fb_symbol path = fb_module_at(g, owner_of(g, layer))->path;
    if (!fb_text_length(g, path)) path = fb_node_at(g, layer->weight_read)->attribute;
    return fb_text(g, path);
}

static void merged_path(fb_graph *g, const fb_host *hosts, size_t count, fb_buffer *out) {
    const char **paths = malloc(count * sizeof *paths);
    for (size_t i = 0; paths && i < count; i++) paths[i] = path_of(g, &hosts[i].layer);
    if (paths) group_path(paths, count, out);
    else fb_graph_fail_memory(g);
    free(paths);
}

/* The config of the first module, for so many outputs. */
static fb_value merged_config(fb_graph *g, const fb_host *first, int64_t outputs, bool has_bias) {
    const char *size = first->is_linear ? "out_features" : "out_channels";
    if (!first->layer.module.id) return FB_VALUE_EMPTY_MAP;
    fb_value config = fb_sorted_map_with(g, fb_module_at(g, first->layer.module)->config, size, fb_make_int(g, outputs));
    fb_value bias = fb_make_bool(g, has_bias);
    return fb_map_value(g, config, "bias").id == bias.id ? config : fb_sorted_map_with(g, config, "bias", bias);
}

static const char *merged_type(const fb_graph *g, const fb_host *first) {
    if (!first->layer.module.id) return FB_TYPE_MODULE;
    return first->is_linear ? FB_TYPE_LINEAR : fb_text(g, fb_module_at(g, first->layer.module)->type);
}

static fb_module put_merged(fb_rewrite *rw, const fb_host *hosts, size_t count) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_host *first = &hosts[0];
    fb_module owner = owner_of(g, &first->layer);
    int64_t outputs = 0;
    fb_tensor bias = {0};
    for (size_t i = 0; i < count; i++) {
        outputs += hosts[i].outputs;
        if (!bias.id) bias = hosts[i].layer.bias;
    }
    fb_value config = merged_config(g, first, outputs, bias.id);
    fb_buffer path = {0};
    merged_path(g, hosts, count, &path);
    fb_module merged =
        fb_put_module(rw, owner, fb_buffer_text(&path), merged_type(g, first), config, fb_module_at(g, owner)->training);
    fb_buffer_free(&path);
    bool weight_grad = fb_tensor_at(g, first->layer.weight)->requires_grad,
         bias_grad = bias.id && fb_tensor_at(g, bias)->requires_grad;
    fb_put_parameter(rw, merged, "weight", concatenated(g, hosts, count, false), first->dtype, weight_grad);
    if (bias.id) fb_put_parameter(rw, merged, "bias", concatenated(g, hosts, count, true), first->dtype, bias_grad);
    else if (first->layer.module.id) fb_clear_parameter(rw, merged, "bias");
    return merged;
}

/* Spelled as the first; addmm in place of mm where there is a bias, and an Add behind a MatMul. `bias_read` none = without. */
static fb_node insert_linear(fb_rewrite *rw, const fb_host *first, fb_node read, fb_node bias_read) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_linear *linear = &first->linear;
    fb_node at = linear->origin;
    fb_value input = fb_make_node(g, linear->input), args, bias = bias_read.id ? fb_make_node(g, bias_read) : (fb_value){0};
    fb_value weight = fb_make_node(g, read.id && linear->transposition.id ? fb_transpose_again(rw, &first->layer, read) : read);
    bool is_sum = bias.id && linear->form == FB_LINEAR_MATMUL, is_gemm = linear->form == FB_LINEAR_GEMM;
    if (!bias.id || is_sum) args = FB_ARGS(g, input, weight);
    else args = linear->form >= FB_LINEAR_ADDMM ? FB_ARGS(g, bias, input, weight) : FB_ARGS(g, input, weight, bias);
    if (linear->form == FB_LINEAR_MM && bias.id) return fb_build(rw, at, FB_MADE_ADDMM, args, (fb_value){0});
    fb_value kwargs = is_gemm ? fb_node_at(g, at)->kwargs : (fb_value){0};
    fb_node product = fb_insert_before(rw, at, FB_CALL_FUNCTION, fb_node_target(g, at), args, kwargs);
    if (linear->weight_factor != 1) fb_remove_argument(rw, product, "alpha");
    if (linear->bias_factor != 1) fb_remove_argument(rw, product, "beta");
    return is_sum ? fb_build(rw, at, FB_MADE_ADD, FB_ARGS(g, fb_make_node(g, product), bias), FB_VALUE_EMPTY_MAP) : product;
}

/* A copy of the first call, with weight and bias exchanged. */
static fb_node insert_conv(fb_rewrite *rw, const fb_host *first, fb_node read, fb_node bias_read) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node model = first->conv.node;
    const fb_node_row *row = fb_node_at(g, model);
    fb_node call = fb_insert_before(rw, model, FB_CALL_FUNCTION, fb_node_target(g, model), row->args, row->kwargs);
    if (!call.id) return call;
    fb_set_argument(rw, call, "weight", fb_make_node(g, read));
    if (bias_read.id) fb_give_argument(rw, call, "bias", fb_make_node(g, bias_read));
    fb_infer_result_type(rw, call); /* it has more channels */
    return call;
}

/* Inserts, before the first, a layer that gives the results of all side by side: weights and biases joined, zeros where one
 * has no bias. It is called as they are (they are spelled alike), and owned by a new module after the first's:
 * "encoder.0.query-key-value-merged". None after a failure. */
static fb_node insert_merged(fb_rewrite *rw, const fb_host *first, fb_module merged) {
    fb_graph *g = fb_rewrite_graph(rw);
    if (!merged.id) return (fb_node){0};
    if (first->layer.module.id) {
        const char *path = fb_text(g, fb_module_at(g, merged)->path);
        fb_value args = FB_ARGS(g, fb_make_node(g, input_of(first)));
        return fb_insert_before(rw, first->layer.call, FB_CALL_MODULE, path, args, (fb_value){0});
    }
    fb_node read = fb_insert_read(rw, first->layer.origin, merged, "weight"), bias_read = {0};
    if (fb_module_tensor(g, merged, "bias").id) bias_read = fb_insert_read(rw, first->layer.origin, merged, "bias");
    return first->is_linear ? insert_linear(rw, first, read, bias_read) : insert_conv(rw, first, read, bias_read);
}

/* The layer becomes the slice of `merged` from `start` on. The module or tensors that it called or read are dropped when
 * nothing else needs them. */
static void cut_out_of_merged(fb_rewrite *rw, const fb_host *host, fb_node merged, int64_t start) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node call = host->layer.call;
    int behind = host->is_linear ? 0 : host->conv.spatial; /* axes after the outputs' */
    fb_release_reads(rw, call);
    fb_build_over(rw, call, FB_MADE_PART,
                  fb_part_args(g, call, fb_make_node(g, merged), -1 - behind, behind, start, start + host->outputs),
                  FB_VALUE_EMPTY_MAP);
    if (host->layer.module.id) fb_drop_module(rw, host->layer.module);
}

/* The same of a call that gives the parts. */
static void cut_out_of_split(fb_rewrite *rw, const fb_host *host, fb_node split, size_t index) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_layer_release(rw, &host->layer);
    fb_set_target(rw, host->layer.call, FB_CALL_FUNCTION, FB_TARGET_GETITEM);
    fb_set_args(rw, host->layer.call, FB_ARGS(g, fb_make_node(g, split), fb_make_int(g, (int64_t)index)), FB_VALUE_EMPTY_MAP);
}

/* ---- candidates ---------------------------------------------------------------------------------------------------------- */

/* A call of what looks like a Linear, on the shared value. */
static bool is_linear_like_call(const fb_graph *g, fb_node n, fb_node shared) {
    const fb_node_row *row = fb_node_at(g, n);
    if (row->opcode != FB_CALL_MODULE || !row->module.id) return false;
    return fb_module_is_linear_like(g, row->module) && fb_call_argument_node(g, n, "input").id == shared.id;
}

/* Reads a layer of the kind, on the shared value, or what looks like a Linear. False: it is neither. */
static bool read_call(const fb_graph *g, fb_node n, fb_node shared, bool is_linear, fb_host *host) {
    *host = (fb_host){0};
    if (!fb_host_at(g, fb_with_bias(g, n), host)) return is_linear && is_linear_like_call(g, n, shared);
    return host->is_linear == is_linear && input_of(host).id == shared.id;
}

/* The elements of a result that form one row with the outputs: what becomes a part of a wider row. -1 when a row's strides may
 * not follow from its sizes: they are not known, or it has one channel, which is channels_last and contiguous alike. */
static int64_t row_of(const fb_graph *g, const fb_host *host) {
    if (host->is_linear) return host->outputs;
    fb_value shape = fb_node_at(g, host->layer.call)->shape;
    int rank = fb_shape_rank(g, shape);
    int64_t row = host->outputs;
    if (row < 2 || rank < host->conv.spatial + 1) return -1;
    for (int axis = rank - host->conv.spatial; axis < rank; axis++) {
        int64_t size = fb_shape_size(g, shape, axis);
        if (size < 1 || __builtin_mul_overflow(row, size, &row)) return -1;
    }
    return row;
}

/* Why a layer cannot be merged with any other. */
static fb_obstacle obstacle(fb_matcher *m, const fb_host *host) {
    const fb_graph *g = m->graph;
    const fb_layer *layer = &host->layer;
    if (fb_dialect_facts_of(g)->has_split && host->is_linear && fb_node_rank(g, layer->call) < 1)
        return (fb_obstacle){"unknown-shape", "the shape of its result is not recorded"};
    if (fb_layer_call_count(m->usage, layer) > 1) return (fb_obstacle){"shared-module", "its module is called more than once"};
    if (host->conv.is_transposed) return (fb_obstacle){"transposed", "it is a transposed convolution"};
    if (host->conv.groups > 1) return (fb_obstacle){"grouped", "its channels are in groups"};
    if (layer->bias.id && fb_tensor_at(g, layer->bias)->dtype != host->dtype)
        return (fb_obstacle){"dtype", "its weight and its bias have different dtypes"};
    fb_obstacle stands = fb_layer_obstacle(m, layer);
    if (stands.code) return stands;
    const fb_alias *alias = fb_matcher_writes(m);
    if (alias && fb_needs_contiguous(g, alias, layer->call, row_of(g, host)))
        return (fb_obstacle){"needs-contiguous",
                             "a reader of its result may need it contiguous, which a slice of a wider result is not"};
    return alias && fb_is_mutated(alias, layer->call)
               ? (fb_obstacle){"mutated",
                               "its result is written in place: as a slice, PyTorch would take all slices for written, "
                               "and raise in the backward pass"}
               : FB_NO_OBSTACLE;
}

/* An option of a convolution, as it is written: values are equal when their ids are. None when it is left out. */
static int64_t option(const fb_graph *g, const fb_layer *layer, const char *name, const char *onnx) {
    if (layer->module.id) return fb_module_config(g, layer->module, name).id;
    fb_value value = fb_call_argument(g, layer->call, name);
    return value.id ? value.id : fb_call_argument(g, layer->call, onnx).id;
}

static void fill_keys(const fb_graph *g, const fb_host *host, int64_t key[FB_GROUP_KEYS]) {
    const fb_layer *layer = &host->layer;
    bool weight_grad = fb_tensor_at(g, layer->weight)->requires_grad;
    key[DTYPE] = host->dtype;
    key[WEIGHT_GRAD] = weight_grad;
    key[BIAS_GRAD] = layer->bias.id ? fb_tensor_at(g, layer->bias)->requires_grad : weight_grad;
    key[TRAINING] = host->training;
    key[INPUTS] = host->inputs;
    if (host->is_linear) return;
    fb_value shape = fb_tensor_at(g, layer->weight)->shape;
    for (int i = 0; i < host->conv.spatial; i++) key[KERNEL + i] = fb_shape_size(g, shape, 2 + i);
    key[STRIDE] = option(g, layer, "stride", "strides");
    key[PADDING] = option(g, layer, "padding", "pads");
    key[DILATION] = option(g, layer, "dilation", "dilations");
    key[PADDING_MODE] = option(g, layer, "padding_mode", "auto_pad");
}

/* False when it cannot take part; then it has been refused. */
static bool make_candidate(fb_matcher *m, const reader *r, candidate *out) {
    const fb_graph *g = m->graph;
    fb_node layer = layer_of(r);
    if (fb_is_marked(m, layer)) return false;
    if (!r->host.layer.call.id) {
        const char *type = fb_text(g, fb_module_at(g, fb_node_at(g, layer)->module)->type);
        fb_refuse_node(m, "unsupported-type", layer, "%s is not exactly torch's Linear", type);
        return false;
    }
    fb_obstacle stands = obstacle(m, &r->host);
    if (stands.code) {
        fb_refuse_for(m, stands, &layer, 1);
        return false;
    }
    *out = (candidate){.reader = r};
    fill_keys(g, &r->host, out->key);
    return true;
}

/* How a candidate is spelled: 0 for a module; for a function the target's symbol, and how it holds its weight. mm is addmm
 * without a bias, and MatMul has one behind it or none. */
static uint64_t spelling_of(const fb_graph *g, const fb_host *host) {
    const fb_linear *linear = &host->linear;
    if (host->layer.module.id) return 0;
    uint64_t target = (uint64_t)fb_node_at(g, host->layer.origin)->target.id << 3 | 4;
    if (!host->is_linear) return target;
    uint64_t held = (uint64_t)linear->is_packed << 1 | (linear->transposition.id != 0);
    if (linear->form < FB_LINEAR_ADDMM) return target | held;
    return (uint64_t)(uintptr_t)fb_made_target(g, linear->node, FB_MADE_ADDMM) << 3 | held;
}

/* Merges those that are spelled like the first, and leaves the others in their order. Gives how many they are. */
static size_t match_spelled_alike(fb_matcher *m, fb_node shared, candidate *candidates, candidate *alike, size_t count) {
    size_t alike_count = 0, rest = 0;
    uint64_t spelling = spelling_of(m->graph, &candidates[0].reader->host);
    for (size_t i = 0; i < count; i++) {
        bool is_alike = spelling_of(m->graph, &candidates[i].reader->host) == spelling;
        if (is_alike) alike[alike_count++] = candidates[i];
        else candidates[rest++] = candidates[i];
    }
    const json_t *asked = json_object_get(m->params, "minimum_gain");
    size_t gain = asked ? (size_t)json_integer_value(asked) : 1;
    number_epochs(m, shared, alike, alike_count);
    match_largest_group(m, alike, alike_count, gain, fb_dialect_facts_of(m->graph)->has_split);
    return rest;
}

/* ---- twins: the same view of one value, made for each reader, as decompositions have it --------------------------------- */

enum { MAX_TWINS = 256 }; /* readers of the viewed value, among which twins are looked for */

typedef struct twins {
    fb_node input; /* what all of them view; none = the value is not a view, and `views` has only the value */
    fb_node views[MAX_TWINS];
    size_t count; /* at least 1; in document order */
} twins;

static bool is_same_call(const fb_graph *g, const fb_node_row *a, const fb_node_row *b) {
    return a->opcode == b->opcode && a->target.id == b->target.id && fb_values_equal(g, a->args, b->args) &&
           fb_values_equal(g, a->kwargs, b->kwargs);
}

static void list_twins(const fb_graph *g, fb_node shared, twins *t) {
    t->input = fb_view_input(g, shared, NULL);
    t->count = 0;
    const fb_node_row *row = fb_node_at(g, shared);
    bool has_itself = false;
    int seen = 0;
    for (uint32_t e = t->input.id ? fb_user_first(g, t->input) : 0; e && seen < MAX_TWINS; e = fb_user_next(g, e), seen++) {
        fb_node user = fb_edge_user(g, e);
        if (!is_same_call(g, fb_node_at(g, user), row)) continue;
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

/* The calls of layers of the kind that read the views. */
typedef struct readers {
    reader *rows;
    size_t count, capacity;
} readers;

static void list_readers(fb_matcher *m, const twins *t, bool is_linear, readers *list) {
    const fb_graph *g = m->graph;
    for (size_t i = 0; i < t->count; i++) {
        for (uint32_t e = fb_user_first(g, t->views[i]); e && !m->failed; e = fb_user_next(g, e)) {
            fb_node n = fb_edge_user(g, e);
            fb_host host;
            if (!read_call(g, n, t->views[i], is_linear, &host)) continue;
            m->failed |= !FB_GROW(list->rows, list->count, list->capacity);
            if (m->failed) return;
            list->rows[list->count++] = (reader){.node = n, .ordinal = fb_node_at(g, n)->ordinal, .view = i, .host = host};
        }
    }
}

static int by_view(const void *a, const void *b) {
    const reader *one = a, *two = b;
    if (one->view != two->view) return one->view < two->view ? -1 : 1;
    return (one->ordinal > two->ordinal) - (one->ordinal < two->ordinal);
}

static int by_ordinal(const void *a, const void *b) {
    const reader *one = ((const candidate *)a)->reader, *two = ((const candidate *)b)->reader;
    return (one->ordinal > two->ordinal) - (one->ordinal < two->ordinal);
}

/* Why a layer that reads one of the views does not read what the others read. */
static fb_obstacle twin_obstacle(fb_matcher *m, const twins *t, const reader *r) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    fb_node view = t->views[r->view];
    uint32_t first = fb_node_at(g, t->views[0])->ordinal, own = fb_node_at(g, view)->ordinal;
    if (!alias) return FB_NO_OBSTACLE;
    if (fb_mutated_between(alias, t->input, first, r->ordinal) || fb_mutated_between(alias, view, own, r->ordinal))
        return (fb_obstacle){"input-mutated", "its input is a view of a tensor, and something writes that tensor first"};
    return fb_mode_switched_between(alias, first, r->ordinal) ? meanings[MODE] : FB_NO_OBSTACLE;
}

/* Keeps only the readers of the value itself where its twins do not all give the same; that is then said, once. False when they
 * do, and were seen with the first of them. */
static bool separate_twins(fb_matcher *m, fb_node shared, const twins *t, readers *list) {
    fb_obstacle stands = FB_NO_OBSTACLE;
    size_t at = 0, kept = 0;
    for (; t->count > 1 && at < list->count; at++) {
        stands = twin_obstacle(m, t, &list->rows[at]);
        if (stands.code) break;
    }
    if (!stands.code) return t->views[0].id == shared.id;
    if (t->views[0].id == shared.id && !fb_is_marked(m, list->rows[at].node)) fb_refuse_for(m, stands, &list->rows[at].node, 1);
    for (size_t i = 0; i < list->count; i++)
        if (t->views[list->rows[i].view].id == shared.id) list->rows[kept++] = list->rows[i];
    list->count = kept;
    return true;
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* Layers that can be merged, in document order. */
static size_t make_candidates(fb_matcher *m, const readers *list, candidate *candidates) {
    size_t count = 0;
    fb_sort(list->rows, list->count, sizeof *list->rows, by_view);
    for (size_t i = 0; !m->failed && i < list->count; i++) count += make_candidate(m, &list->rows[i], &candidates[count]);
    if (list->count && list->rows[list->count - 1].view) fb_sort(candidates, count, sizeof *candidates, by_ordinal);
    return count;
}

static void match_readers(fb_matcher *m, fb_node shared, const readers *list) {
    candidate *candidates = malloc((list->count + 1) * sizeof *candidates), *alike = malloc((list->count + 1) * sizeof *alike);
    m->failed |= !candidates || !alike;
    size_t count = m->failed ? 0 : make_candidates(m, list, candidates);
    while (!m->failed && count > 0) count = match_spelled_alike(m, shared, candidates, alike, count);
    free(candidates);
    free(alike);
}

void fb_match_parallel(fb_matcher *m, fb_node shared, bool is_linear) {
    const fb_graph *g = m->graph;
    twins t;
    readers list = {0};
    if (!fb_node_at(g, shared)->user_count) return;
    list_twins(g, shared, &t);
    if (t.count == 1 && fb_node_at(g, shared)->user_count < 2) return;
    list_readers(m, &t, is_linear, &list);
    if (list.count >= 2 && fb_matcher_takes(m, (unsigned)t.count) && separate_twins(m, shared, &t, &list))
        match_readers(m, shared, &list);
    free(list.rows);
}

/* ---- edit -------------------------------------------------------------------------------------------------------------- */

/* The parts of what ONNX's merged layer gives, by one call. */
static fb_node split_merged(fb_rewrite *rw, const fb_host *hosts, size_t count, fb_module owner, fb_node merged) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node first = hosts->layer.origin;
    fb_value shape = fb_node_at(g, hosts->layer.call)->shape;
    int axis = hosts->is_linear ? fb_shape_rank(g, shape) - 1 : 1;
    int64_t *sizes = malloc(count * sizeof *sizes), outputs = 0;
    for (size_t i = 0; sizes && i < count; i++) outputs += sizes[i] = hosts[i].outputs;
    if (sizes && shape.id)
        fb_set_result_type(rw, merged, fb_list_with(g, shape, (size_t)axis, fb_make_int(g, outputs)), hosts->dtype);
    fb_node split = sizes ? fb_build_split(rw, first, owner, merged, axis, sizes, count) : (fb_node){0};
    if (!sizes) fb_graph_fail_memory(g);
    free(sizes);
    return split;
}

static void edit_hosts(fb_rewrite *rw, const fb_host *hosts, size_t count) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_module merged = put_merged(rw, hosts, count);
    fb_node all = insert_merged(rw, hosts, merged), split = {0};
    if (!all.id) return;
    fb_mark(rw, all);
    if (fb_dialect_facts_of(g)->has_split && !(split = split_merged(rw, hosts, count, merged, all)).id) return;
    int64_t start = 0;
    for (size_t i = 0; i < count; i++) {
        if (split.id) cut_out_of_split(rw, &hosts[i], split, i);
        else cut_out_of_merged(rw, &hosts[i], all, start);
        start += hosts[i].outputs;
        if (input_of(&hosts[i]).id != input_of(&hosts[0]).id) fb_erase_unread(rw, input_of(&hosts[i]));
    }
}

void fb_edit_parallel(fb_rewrite *rw, const fb_match *match) {
    edit_hosts(rw, match->data, match->count * sizeof *match->nodes / sizeof(fb_host));
}
