/* BatchNorm folded into the layer before or after it: finding that layer, obstacles to the fold, and the arithmetic. */
#include "core/pass/batch_norm_fold.h"
#include "core/analysis/infer.h"

#include <math.h>

#include "core/analysis/memory_layout.h"
#include "core/weights/recipe.h"

/* A pair whose modules are called together has as many calls of one as of the other. Otherwise it is refused, and these are
 * enough to show why; without a bound, one module among 20,000 partners would take time and memory for each with each. */
#define MAX_LISTED 16

/* The BatchNorm as a layer: its calls. */
static fb_layer norm_calls_of(const fb_batch_norm *norm) {
    return (fb_layer){.call = norm->node, .origin = norm->call, .module = norm->module, .input_parameter = "input"};
}

/* Is this node a call of the layer? */
static bool is_call_of(const fb_graph *g, const fb_layer *layer, fb_node node) {
    if (!layer->module.id) return node.id == layer->call.id || node.id == layer->origin.id;
    const fb_node_row *row = fb_node_at(g, node);
    return row->opcode == FB_CALL_MODULE && row->module.id == layer->module.id;
}

/* The call of `first` whose value a call of `second` takes, through views; none when it takes another. Of `axis`, a dimension
 * of what `second` takes, see fb_view_input. */
static fb_node fold_source(const fb_graph *g, const fb_layer *first, const fb_layer *second, fb_node call, int *axis) {
    fb_node at = fb_layer_input(g, second, call);
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX && !is_call_of(g, first, at); steps++) at = fb_view_input(g, at, axis);
    return at.id && is_call_of(g, first, at) ? at : (fb_node){0};
}

/* ---- finding ----------------------------------------------------------------------------------------------------------- */

static bool is_host_before(const fb_graph *g, fb_node norm_call, fb_fold *fold, fb_fold_filter *is_wanted) {
    fb_layer norm = norm_calls_of(&fold->norm);
    fb_node at = fb_layer_input(g, &norm, norm_call);
    fold->is_before = true;
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX; steps++, at = fb_view_input(g, at, NULL)) {
        if (fb_host_at(g, at, &fold->host)) return is_wanted(fold);
    }
    return false;
}

static bool is_host_after(const fb_graph *g, fb_node norm_call, fb_fold *fold, fb_fold_filter *is_wanted) {
    fold->is_before = false;
    fb_node at = norm_call;
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX; steps++) {
        fb_node next = {0};
        for (uint32_t e = fb_user_first(g, at); e; e = fb_user_next(g, e)) {
            fb_node user = fb_with_bias(g, fb_edge_user(g, e));
            if (!next.id && fb_view_input(g, user, NULL).id == at.id) next = user;
            if (!fb_host_at(g, user, &fold->host) || !is_wanted(fold)) continue;
            if (fb_layer_input(g, &fold->host.layer, user).id == at.id) return true;
        }
        at = next;
    }
    return false;
}

/* At the first call, of a module; the host may be at another. */
static bool find_fold(fb_matcher *m, fb_node n, fb_fold *fold, fb_fold_filter *is_wanted) {
    if (!fb_batch_norm_at(m->graph, n, &fold->norm)) return false;
    fb_layer calls = norm_calls_of(&fold->norm);
    if (fb_layer_first_call(m->usage, &calls).id != n.id) return false;
    for (; n.id; n = fb_layer_next_call(m->usage, &calls, n)) {
        if (is_host_before(m->graph, n, fold, is_wanted) || is_host_after(m->graph, n, fold, is_wanted)) return true;
    }
    return false;
}

/* Is it a weight, or made of one alone, such as its expansion? */
static bool is_made_of_weight(const fb_graph *g, fb_node node) {
    for (int steps = 0; node.id && steps <= FB_VIEWS_MAX; steps++) {
        if (fb_node_at(g, node)->opcode == FB_GET_ATTR) return true;
        uint32_t e = fb_input_first(g, node);
        node = e && !fb_input_next(g, e) ? fb_edge_input(g, e) : (fb_node){0};
    }
    return false;
}

static bool is_product(const fb_graph *g, fb_node node) {
    return fb_op_is(g, node, FB_OP_BMM) || fb_op_is(g, node, FB_OP_ADDMM);
}

/* The bmm before a BatchNorm that a decomposition makes of a Linear on more than two dimensions: it repeats the weight for each
 * item of the batch, so there is no one weight to exchange. Or an addmm that is not a Linear: its beta or alpha is not 1. */
static fb_node product_before(const fb_graph *g, const fb_batch_norm *norm) {
    fb_layer calls = norm_calls_of(norm);
    fb_node at = fb_layer_input(g, &calls, norm->node);
    for (int steps = 0; at.id && steps < FB_VIEWS_MAX && !is_product(g, at); steps++) at = fb_view_input(g, at, NULL);
    bool is_linear = at.id && is_product(g, at) && is_made_of_weight(g, fb_call_argument_node(g, at, "mat2"));
    return is_linear ? at : (fb_node){0};
}

static void refuse_product(fb_matcher *m, fb_node n, fb_fold_filter *is_wanted) {
    fb_fold fold = {.is_before = true, .host = {.is_linear = true}};
    if (!fb_batch_norm_at(m->graph, n, &fold.norm) || !is_wanted(&fold)) return;
    fb_node product = product_before(m->graph, &fold.norm);
    if (!product.id) return;
    fb_refuse(m, "unsupported-form", (fb_node[]){product, n}, 2, "%s",
              fb_op_is(m->graph, product, FB_OP_BMM)
                  ? "the Linear before it is spelled as bmm, which repeats the weight for each item of the batch"
                  : "the addmm before it is not a plain Linear: beta or alpha is not 1, or it adds no bias of one dimension");
}

/* ---- pairs of calls ----------------------------------------------------------------------------------------------------- */

#define MAX_READERS 16 /* of the value between the two: more than one is too many */

static const fb_obstacle other_arguments = {"unsupported-arguments", "both are called with one input and nothing else"};
static const fb_obstacle other_calls = {"shared-module",
                                        "one of the modules is called elsewhere too, where the other does not follow"};
static const fb_obstacle other_readers = {"shared-output", "the value between the two has other readers"};

/* The two in the order in which they are called. */
static void order(const fb_fold *fold, fb_layer *first, fb_layer *second) {
    fb_layer norm = norm_calls_of(&fold->norm);
    *first = fold->is_before ? fold->host.layer : norm;
    *second = fold->is_before ? norm : fold->host.layer;
}

static bool has_only_input(const fb_graph *g, const fb_layer *layer, fb_node call) {
    return !layer->module.id || fb_call_has_only(g, call, "input"); /* of a function the view has seen to it */
}

/* Readers of a value on its way from one call to the other. */
typedef struct readers {
    bool is_taken, is_output, has_others, is_forked; /* the other call takes it, and so on */
} readers;

/* Notes who reads `at`, and gives the view of it through which it may come to the other call. */
static fb_node see_readers(const fb_graph *g, const fb_layer *second, fb_node at, readers *r) {
    fb_node next = {0};
    for (uint32_t e = fb_user_first(g, at); e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool is_second = is_call_of(g, second, user), is_view = !is_second && fb_view_input(g, user, NULL).id == at.id;
        r->is_output |= fb_node_at(g, user)->opcode == FB_OUTPUT;
        r->is_forked |= is_view && next.id;
        r->has_others |= (is_view ? next.id != 0 : !is_second || r->is_taken) && !fb_reads_type_only_of(g, user, at);
        if (is_view && !next.id) next = user;
        r->is_taken |= is_second;
    }
    r->has_others |= r->is_taken && next.id;
    return r->is_taken ? (fb_node){0} : next;
}

/* True if something reads a result of a call besides its value: that is not kept. */
static bool gives_more(const fb_graph *g, fb_node call) {
    fb_node origin = fb_call_of_value(g, call);
    return origin.id != call.id && fb_node_at(g, origin)->user_count > 1;
}

static fb_obstacle unpaired_first(const fb_graph *g, const fb_layer *first, const fb_layer *second, fb_node call) {
    readers r = {0};
    if (!has_only_input(g, first, call)) return other_arguments;
    fb_node at = call;
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX; steps++) {
        if (fb_node_at(g, at)->user_count > MAX_READERS) return other_readers;
        at = see_readers(g, second, at, &r);
    }
    if (!r.is_taken) return r.is_forked ? other_readers : other_calls;
    if (r.is_output) return (fb_obstacle){"graph-output", "the value between the two is an output of the graph"};
    return r.has_others || gives_more(g, call) ? other_readers : FB_NO_OBSTACLE;
}

/* Why the calls are not paired one to one. */
static fb_obstacle unpaired(const fb_matcher *m, const fb_layer *first, const fb_layer *second) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_layer_first_call(m->usage, second); n.id; n = fb_layer_next_call(m->usage, second, n)) {
        if (!has_only_input(g, second, n)) return other_arguments;
        if (!fold_source(g, first, second, n, NULL).id) return other_calls;
        if (gives_more(g, n)) return other_readers;
    }
    for (fb_node n = fb_layer_first_call(m->usage, first); n.id; n = fb_layer_next_call(m->usage, first, n)) {
        fb_obstacle obstacle = unpaired_first(g, first, second, n);
        if (obstacle.code) return obstacle;
    }
    return FB_NO_OBSTACLE;
}

/* Refuses a fold whose calls are not paired one to one; then true. */
static bool is_pairing_refused(fb_matcher *m, const fb_fold *fold, const fb_node *nodes, size_t count) {
    fb_layer first, second;
    order(fold, &first, &second);
    fb_obstacle obstacle = unpaired(m, &first, &second);
    if (obstacle.code) fb_refuse_for(m, obstacle, nodes, count);
    return obstacle.code != NULL;
}

/* Between the two calls of a pair autocast and autograd may not be switched: the work of one would be done in the mode of the
 * other. */
static bool is_mode_switched(fb_matcher *m, const fb_layer *first, const fb_layer *second) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    for (fb_node n = fb_layer_first_call(m->usage, second); alias && n.id; n = fb_layer_next_call(m->usage, second, n)) {
        fb_node source = fold_source(g, first, second, n, NULL);
        if (fb_mode_switched_between(alias, fb_node_at(g, source)->ordinal, fb_node_at(g, n)->ordinal)) return true;
    }
    return false;
}

/* Nor write to what the first reads: without the BatchNorm the second reads it later. */
static bool is_input_mutated(fb_matcher *m, const fb_layer *first, const fb_layer *second) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    for (fb_node n = fb_layer_first_call(m->usage, second); alias && n.id; n = fb_layer_next_call(m->usage, second, n)) {
        fb_node norm = fold_source(g, first, second, n, NULL), input = fb_layer_input(g, first, norm);
        if (!input.id) return true;
        uint32_t from = fb_node_at(g, fb_call_of_value(g, norm))->ordinal;
        if (fb_mutated_between(alias, input, from, fb_node_at(g, n)->ordinal)) return true;
    }
    return false;
}

/* A reshape of a contiguous value, such as a Linear or a convolution gives, is contiguous. */
static bool is_in_order(const fb_graph *g, fb_node view) {
    return fb_op_facts_of(fb_node_op(g, view))->shape == FB_SHAPE_VIEW;
}

/* Would a view fail, or a reader of the result find it in another layout? The BatchNorm gives its result in order. */
static bool is_layout_read(const fb_matcher *m, const fb_fold *fold, const fb_layer *first, const fb_layer *second) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_layer_first_call(m->usage, second); n.id; n = fb_layer_next_call(m->usage, second, n)) {
        bool minds = false;
        fb_node at = fb_layer_input(g, second, n);
        for (int steps = 0; steps <= FB_VIEWS_MAX && at.id && !is_call_of(g, first, at); steps++) {
            minds |= fb_view_minds_strides(g, at) && !(fold->is_before && is_in_order(g, at));
            at = fb_view_input(g, at, NULL);
        }
        if (!minds || !at.id) continue;
        if (fold->is_before ? fb_layout_is_read(g, n) : !fb_is_contiguous(g, fb_layer_input(g, first, at))) return true;
    }
    return false;
}

/* Refuses a fold between whose calls a mode is switched, or the input written; then true. */
static bool is_change_between_refused(fb_matcher *m, const fb_fold *fold, const fb_node *nodes, size_t count) {
    fb_layer first, second;
    order(fold, &first, &second);
    bool stays = fold->is_before; /* the host stays where it reads its input */
    if (!stays && is_input_mutated(m, &first, &second))
        fb_refuse(m, "input-mutated", nodes, count,
                  "the BatchNorm's input is written in place before the next module would read it");
    else if (is_mode_switched(m, &first, &second))
        fb_refuse(m, "mode-switched", nodes, count, "autocast, autograd or another mode is switched between them");
    else if (is_layout_read(m, fold, &first, &second))
        fb_refuse(m, "needs-contiguous", nodes, count,
                  "a view between or after them may need the BatchNorm's result, which is contiguous");
    else return false;
    return true;
}

/* The dimension of the channels in a value of that rank. */
static int channel_axis(const fb_fold *fold, bool is_norm, int rank) {
    if (is_norm) return 1;
    return fold->host.is_linear ? rank - 1 : rank - fold->host.conv.spatial - 1;
}

static bool refuse_unknown(fb_matcher *m, fb_node n, fb_node value) {
    fb_refuse_node(m, "unknown-shape", n, "the shape of %s is not recorded" FB_RECORD_SHAPE, fb_node_name(m->graph, value));
    return true;
}

/* The same axis at both ends of the views between a pair. */
static bool is_pair_refused(fb_matcher *m, const fb_fold *fold, const fb_layer *first, const fb_layer *second, fb_node n) {
    const fb_graph *g = m->graph;
    fb_node input = fb_layer_input(g, second, n);
    int rank = fb_node_rank(g, input);
    bool is_direct = is_call_of(g, first, input);
    /* BatchNorm2d takes 4 dimensions, and no others: right for a convolution, wrong for a Linear. */
    if (is_direct && !fold->host.is_linear && fold->norm.module.id && fold->norm.spatial > 1) return false;
    if (rank < 0) return refuse_unknown(m, n, input);
    int axis = channel_axis(fold, fold->is_before, rank);
    fb_node source = fold_source(g, first, second, n, &axis);
    int source_rank = fb_node_rank(g, source);
    if (source_rank < 0) return refuse_unknown(m, n, source);
    if (axis == channel_axis(fold, !fold->is_before, source_rank) && axis >= 0) return false;
    if (is_direct)
        fb_refuse_node(m, fold->host.is_linear ? "not-2d" : "not-batched", fold->is_before ? n : source,
                       "%s has %d dimensions; BatchNorm then normalises another axis",
                       fb_node_name(g, fold->is_before ? input : fb_layer_input(g, first, source)), rank);
    else
        fb_refuse(m, "channels-moved", (fb_node[]){source, n}, 2,
                  "the views between them do not keep the channels together, on the axis that the other works on");
    return true;
}

/* Refuses what can be refused by the ranks of what is normalised; then true. BatchNorm works on axis 1, a Linear on the last
 * one, and a convolution on axis 1 unless its input has no batch. */
static bool is_rank_refused(fb_matcher *m, const fb_fold *fold) {
    fb_layer first, second;
    order(fold, &first, &second);
    for (fb_node n = fb_layer_first_call(m->usage, &second); n.id; n = fb_layer_next_call(m->usage, &second, n)) {
        if (is_pair_refused(m, fold, &first, &second, n)) return true;
    }
    return false;
}

/* ---- refusing ---------------------------------------------------------------------------------------------------------- */

static bool list_calls(fb_matcher *m, const fb_layer *layer, uint32_t limit, fb_buffer *nodes) {
    fb_node n = fb_layer_first_call(m->usage, layer);
    for (; n.id && limit > 0; n = fb_layer_next_call(m->usage, layer, n), limit--) fb_buffer_append(nodes, &n, sizeof n);
    m->failed |= nodes->failed;
    return !nodes->failed;
}

fb_obstacle fb_batch_norm_obstacle(fb_matcher *m, const fb_batch_norm *norm) {
    if (norm->module.id) return fb_module_obstacle(m, norm->module);
    fb_obstacle obstacle = fb_named_obstacle(m->graph, norm->call);
    for (size_t i = 0; i < 4 && !obstacle.code; i++) obstacle = fb_read_obstacle(m, norm->reads[i]);
    return obstacle;
}

static fb_obstacle obstacle_of(fb_matcher *m, const fb_fold *fold) {
    fb_obstacle first = fold->is_before ? fb_layer_obstacle(m, &fold->host.layer) : fb_batch_norm_obstacle(m, &fold->norm);
    if (first.code) return first;
    return fold->is_before ? fb_batch_norm_obstacle(m, &fold->norm) : fb_layer_obstacle(m, &fold->host.layer);
}

static bool is_any_marked(const fb_matcher *m, const fb_node *nodes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (fb_is_marked(m, nodes[i])) return true;
    }
    return false;
}

/* A dtype among the fold's tensors that recipes do not compute with; FB_DTYPE_UNKNOWN when there is none. */
static fb_dtype uncomputed_dtype(const fb_matcher *m, const fb_fold *fold) {
    const fb_batch_norm *norm = &fold->norm;
    const fb_tensor tensors[] = {fold->host.layer.weight, fold->host.layer.bias, norm->weight, norm->bias,
                                 norm->running_mean,      norm->running_var};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (!tensors[i].id) continue;
        fb_dtype dtype = (fb_dtype)fb_tensor_at(m->graph, tensors[i])->dtype;
        if (!fb_dtype_is_computed(dtype)) return dtype;
    }
    return FB_DTYPE_UNKNOWN;
}

void fb_batch_norm_measure(fb_matcher *m, const fb_batch_norm *norm, fb_dtype dtype, double *scale, double *shift) {
    fb_extent variance;
    bool is_known = fb_known_extent(m, norm->running_var, dtype, &variance);
    double least = !is_known ? NAN : variance.has_zero ? 0 : variance.least;
    *scale = (norm->weight.id ? fb_known_largest(m, norm->weight, dtype) : 1) / sqrt(least + norm->eps_number);
    *shift = fb_known_largest(m, norm->bias, dtype) + fb_known_largest(m, norm->running_mean, dtype) * *scale;
}

fb_obstacle fb_batch_norm_numbers_obstacle(const fb_graph *g, const fb_batch_norm *norm) {
    fb_extent variance;
    if (!isfinite(norm->eps_number)) return (fb_obstacle){"unsupported-constant", "the BatchNorm's eps is not a finite number"};
    if (norm->eps_number > 0 || (fb_tensor_extent(g, norm->running_var, &variance) && !variance.has_zero))
        return FB_NO_OBSTACLE;
    return (fb_obstacle){"unsupported-constant",
                         "eps is 0, and a variance of 0, which there may be, makes a number infinite that the fold makes nan"};
}

static fb_obstacle numbers_obstacle(fb_matcher *m, const fb_fold *fold) {
    const fb_graph *g = m->graph;
    const fb_batch_norm *norm = &fold->norm;
    const fb_layer *layer = &fold->host.layer;
    fb_dtype dtype = (fb_dtype)fb_tensor_at(g, layer->weight)->dtype;
    fb_obstacle obstacle = fb_batch_norm_numbers_obstacle(g, norm);
    if (obstacle.code) return obstacle;
    double scale, shift, weight = fb_layer_largest_weight(m, layer, dtype), bias = fb_layer_largest_bias(m, layer, dtype);
    fb_batch_norm_measure(m, norm, dtype, &scale, &shift);
    double terms = 1; /* of each sum */
    fb_value shape = fb_tensor_at(g, layer->weight)->shape;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) terms *= (double)fb_shape_size(g, shape, i);
    terms /= (double)fold->host.outputs;
    double bound = fold->is_before ? bias * scale + shift : bias + terms * weight * shift;
    return fb_range_obstacle(dtype, fmax(weight * scale, bound));
}

static void decide(fb_matcher *m, const fb_fold *fold, const fb_node *nodes, size_t count, size_t host_count) {
    const fb_batch_norm *norm = &fold->norm;
    int64_t channels = fold->is_before ? fold->host.outputs : fold->host.inputs;
    fb_dtype dtype;
    fb_obstacle obstacle;
    if (is_any_marked(m, nodes, host_count)) return; /* refused already, as already-transformed */
    if (fold->host.training || norm->training)
        fb_refuse(m, "training-mode", nodes, count,
                  "in training mode BatchNorm normalises by the batch, not by running statistics");
    else if (!norm->running_mean.id || !norm->running_var.id)
        fb_refuse(m, "no-running-statistics", nodes, count, "without running statistics BatchNorm normalises by the batch");
    else if (is_pairing_refused(m, fold, nodes, count)) return;
    else if (channels != norm->num_features)
        fb_refuse(m, "channel-mismatch", nodes, count, "%lld channels meet a BatchNorm of %lld", (long long)channels,
                  (long long)norm->num_features);
    else if (!fold->host.is_linear && !fold->is_before && fold->host.conv.is_padded)
        fb_refuse(m, "padded", nodes, count, "padding adds zeros to what is normalised, which the BatchNorm does not shift");
    else if ((dtype = uncomputed_dtype(m, fold)))
        fb_refuse(m, "unsupported-dtype", nodes, count, "one of their tensors is %s, with which nothing is computed",
                  fb_dtype_name(dtype));
    else if (!isfinite(norm->eps_number))
        fb_refuse(m, "unsupported-constant", nodes, count, "the BatchNorm's eps is not a finite number");
    else if ((obstacle = obstacle_of(m, fold)).code) fb_refuse_for(m, obstacle, nodes, count);
    else if (m->report->pass->version > 1 && (obstacle = numbers_obstacle(m, fold)).code)
        fb_refuse_for(m, obstacle, nodes, count);
    else if (!is_change_between_refused(m, fold, nodes, count) && !is_rank_refused(m, fold)) fb_match_found(m, nodes, count);
}

void fb_match_fold(fb_matcher *m, fb_node n, fb_fold_filter *is_wanted) {
    fb_fold fold = {0};
    fb_buffer list = {0};
    if (!find_fold(m, n, &fold, is_wanted)) {
        refuse_product(m, n, is_wanted);
        return;
    }
    fb_layer norm = norm_calls_of(&fold.norm);
    uint32_t norm_calls = fb_layer_call_count(m->usage, &norm), host_calls = fb_layer_call_count(m->usage, &fold.host.layer);
    if (list_calls(m, &fold.host.layer, host_calls == norm_calls ? host_calls : MAX_LISTED, &list)) {
        size_t host_count = list.size / sizeof(fb_node);
        if (list_calls(m, &norm, norm_calls, &list))
            decide(m, &fold, (const fb_node *)(const void *)list.data, list.size / sizeof(fb_node), host_count);
    }
    fb_buffer_free(&list);
}

/* ---- edit --------------------------------------------------------------------------------------------------------------- */

fb_value fb_batch_norm_scale(fb_graph *g, const fb_batch_norm *norm) {
    bool is_as_written = norm->eps.id && fb_value_kind(g, norm->eps) != FB_BIG_INT; /* recipes have ints of 64 bits */
    fb_value eps = fb_recipe_full(g, NULL, 0, is_as_written ? norm->eps : fb_make_float(g, norm->eps_number));
    fb_value inverse = fb_recipe_rsqrt(g, fb_recipe_add(g, fb_recipe_tensor(g, norm->running_var), eps));
    return norm->weight.id ? fb_recipe_mul(g, fb_recipe_tensor(g, norm->weight), inverse) : inverse;
}

fb_value fb_batch_norm_shift(fb_graph *g, const fb_batch_norm *norm) {
    fb_value mean = fb_recipe_mul(g, fb_recipe_tensor(g, norm->running_mean), fb_batch_norm_scale(g, norm));
    return norm->bias.id ? fb_recipe_sub(g, fb_recipe_tensor(g, norm->bias), mean) : fb_recipe_neg(g, mean);
}

/* ---- into the host ----------------------------------------------------------------------------------------------------- */

/* The BatchNorm follows: weight := weight * scale per output, bias := (bias - running_mean) * scale + BatchNorm's bias. */
static void fold_into_outputs(fb_rewrite *rw, const fb_fold *fold) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_batch_norm *norm = &fold->norm;
    fb_value scale = fb_batch_norm_scale(g, norm), bias = {0};
    if (fold->host.layer.bias.id) {
        bias = fb_recipe_sub(g, fb_layer_bias(g, &fold->host.layer), fb_recipe_tensor(g, norm->running_mean));
        bias = fb_recipe_mul(g, bias, scale);
        if (norm->bias.id) bias = fb_recipe_add(g, bias, fb_recipe_tensor(g, norm->bias));
    } else {
        bias = fb_batch_norm_shift(g, norm);
    }
    fb_layer_set_weight(rw, &fold->host.layer, fb_host_scale_outputs(g, &fold->host, scale));
    fb_layer_set_bias(rw, &fold->host.layer, bias);
}

/* The BatchNorm comes first: weight := weight * scale per input, bias := bias + weight · shift. */
static void fold_into_inputs(fb_rewrite *rw, const fb_fold *fold) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value scale = fb_batch_norm_scale(g, &fold->norm), shift = fb_batch_norm_shift(g, &fold->norm);
    fb_value weight = fb_host_scale_inputs(g, &fold->host, scale), bias = fb_host_times(g, &fold->host, shift);
    if (fold->host.layer.bias.id) bias = fb_recipe_add(g, fb_layer_bias(g, &fold->host.layer), bias);
    fb_layer_set_weight(rw, &fold->host.layer, weight);
    fb_layer_set_bias(rw, &fold->host.layer, bias);
}

/* Inserts all views from `from` to `old` again, on `now` in the place of `from`. `old` may be `from` itself. Gives the node
 * that replaces `old`; the old views are gone at commit. */
static fb_node put_views_again(fb_rewrite *rw, fb_node old, fb_node from, fb_node now) {
    if (old.id == from.id) return now;
    fb_node input = fb_view_input(fb_rewrite_graph(rw), old, NULL);
    if (!input.id) return (fb_node){0};
    return fb_put_again(rw, old, input, put_views_again(rw, input, from, now)); /* no deeper than FB_VIEWS_MAX */
}

/* Takes the BatchNorm's calls out of the graph, and marks the calls of the host. */
static void remove_norm(fb_rewrite *rw, const fb_match *match, const fb_fold *fold) {
    const fb_graph *g = fb_rewrite_graph(rw);
    size_t calls = match->count / 2;
    fb_layer norm = norm_calls_of(&fold->norm);
    for (size_t i = 0; i < calls; i++) {
        fb_node host_call = match->nodes[i], norm_call = match->nodes[calls + i], origin = fb_call_of_value(g, norm_call);
        fb_node input = fb_layer_input(g, &norm, norm_call);
        fb_release_reads(rw, origin);
        if (fold->is_before) { /* what is erased reads what was erased before it */
            fb_node source = fold_source(g, &fold->host.layer, &norm, norm_call, NULL);
            fb_node last = put_views_again(rw, input, source, source);
            if (origin.id != norm_call.id) fb_erase(rw, origin);
            if (last.id) fb_absorb(rw, norm_call, last);
        } else {
            if (origin.id != norm_call.id) fb_erase(rw, origin);
            fb_replace_uses(rw, norm_call, input);
            fb_erase(rw, norm_call);
            fb_node source = fold_source(g, &norm, &fold->host.layer, host_call, NULL);
            put_views_again(rw, fb_layer_input(g, &fold->host.layer, host_call), source, fb_layer_input(g, &norm, source));
        }
        fb_mark(rw, host_call);
    }
    if (fold->norm.module.id) fb_drop_module(rw, fold->norm.module);
}

void fb_edit_fold(fb_rewrite *rw, const fb_match *match) {
    const fb_graph *g = fb_rewrite_graph(rw);
    fb_fold fold = {0};
    if (!fb_host_at(g, match->nodes[0], &fold.host)) return;
    if (!fb_batch_norm_at(g, match->nodes[match->count / 2], &fold.norm)) return;
    /* By module, not by node: the first call of the one need not be paired with the first call of the other. */
    fb_layer norm = norm_calls_of(&fold.norm);
    fold.is_before = fold_source(g, &fold.host.layer, &norm, fold.norm.node, NULL).id;
    if (fold.is_before) fold_into_outputs(rw, &fold);
    else fold_into_inputs(rw, &fold);
    remove_norm(rw, match, &fold);
}
