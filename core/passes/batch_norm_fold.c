/* Finding the layer that takes a BatchNorm in, and what stands against it. */
#include "core/passes/batch_norm_fold.h"

#include <math.h>

/* Of a pair whose modules are called together there are as many calls of one as of the other. Otherwise it is refused, and
 * these are enough to show why; without a bound, one module among 20,000 partners would take time and memory for each with
 * each. */
#define MAX_LISTED 16

fb_layer fb_norm_calls(const fb_batch_norm *norm) {
    return (fb_layer){.call = norm->node, .module = norm->module, .input_parameter = "input"};
}

bool fb_is_call_of(const fb_graph *g, const fb_layer *layer, fb_node node) {
    if (!layer->module.id) return node.id == layer->call.id || node.id == fb_call_of_value(g, layer->call).id;
    const fb_node_row *row = fb_node_at(g, node);
    return row->opcode == FB_CALL_MODULE && row->module.id == layer->module.id;
}

bool fb_fold_host_at(const fb_graph *g, fb_node node, fb_fold *fold) {
    fold->is_linear = fb_linear_at(g, node, &fold->linear);
    if (fold->is_linear) fold->host = fb_linear_layer(&fold->linear);
    else if (fb_conv_at(g, node, &fold->conv)) fold->host = fb_conv_layer(&fold->conv);
    else return false;
    return true;
}

fb_node fb_fold_source(const fb_graph *g, const fb_layer *first, const fb_layer *second, fb_node call, int *axis) {
    fb_node at = fb_layer_input(g, second, call);
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX && !fb_is_call_of(g, first, at); steps++)
        at = fb_view_input(g, at, axis);
    return at.id && fb_is_call_of(g, first, at) ? at : (fb_node){0};
}

/* ---- finding ----------------------------------------------------------------------------------------------------------- */

static bool is_host_before(const fb_graph *g, fb_node norm_call, fb_fold *fold, fb_fold_filter *is_wanted) {
    fb_layer norm = fb_norm_calls(&fold->norm);
    fb_node at = fb_layer_input(g, &norm, norm_call);
    fold->is_before = true;
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX; steps++, at = fb_view_input(g, at, NULL)) {
        if (fb_fold_host_at(g, at, fold)) return is_wanted(fold);
    }
    return false;
}

static bool is_host_after(const fb_graph *g, fb_node norm_call, fb_fold *fold, fb_fold_filter *is_wanted) {
    fold->is_before = false;
    fb_node at = norm_call;
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX; steps++) {
        fb_node next = {0};
        for (uint32_t e = fb_user_first(g, at); e; e = fb_user_next(g, e)) {
            fb_node user = fb_edge_user(g, e);
            if (!next.id && fb_view_input(g, user, NULL).id == at.id) next = user;
            if (!fb_fold_host_at(g, user, fold) || !is_wanted(fold)) continue;
            if (fb_layer_input(g, &fold->host, user).id == at.id) return true;
        }
        at = next;
    }
    return false;
}

/* At the first call, of a module; the host may be at another. */
static bool find_fold(fb_matcher *m, fb_node n, fb_fold *fold, fb_fold_filter *is_wanted) {
    if (!fb_batch_norm_at(m->graph, n, &fold->norm)) return false;
    fb_layer calls = fb_norm_calls(&fold->norm);
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

/* The bmm before a BatchNorm that a decomposition makes of a Linear on more than two dimensions: it repeats the weight for each
 * item of the batch, so there is no one weight to exchange. */
static fb_node batched_linear_before(const fb_graph *g, const fb_batch_norm *norm) {
    fb_layer calls = fb_norm_calls(norm);
    fb_node at = fb_layer_input(g, &calls, norm->node);
    for (int steps = 0; at.id && steps < FB_VIEWS_MAX && !fb_op_is(g, at, FB_OP_BMM); steps++) at = fb_view_input(g, at, NULL);
    bool is_linear = at.id && fb_op_is(g, at, FB_OP_BMM) && is_made_of_weight(g, fb_call_argument_node(g, at, "mat2"));
    return is_linear ? at : (fb_node){0};
}

static void refuse_batched_linear(fb_matcher *m, fb_node n, fb_fold_filter *is_wanted) {
    fb_fold fold = {.is_before = true, .is_linear = true};
    if (!fb_batch_norm_at(m->graph, n, &fold.norm) || !is_wanted(&fold)) return;
    fb_node product = batched_linear_before(m->graph, &fold.norm);
    if (product.id)
        fb_refuse(m, "unsupported-form", (fb_node[]){product, n}, 2,
                  "the Linear before it is spelled as bmm, which repeats the weight for each item of the batch");
}

/* ---- refusing ---------------------------------------------------------------------------------------------------------- */

static bool list_calls(fb_matcher *m, const fb_layer *layer, uint32_t limit, fb_buffer *nodes) {
    fb_node n = fb_layer_first_call(m->usage, layer);
    for (; n.id && limit > 0; n = fb_layer_next_call(m->usage, layer, n), limit--) fb_buffer_append(nodes, &n, sizeof n);
    m->failed |= nodes->failed;
    return !nodes->failed;
}

static const char *obstacle_of_norm(fb_matcher *m, const fb_batch_norm *norm) {
    if (norm->module.id) return fb_module_obstacle(m, norm->module);
    const char *obstacle = NULL;
    for (size_t i = 0; i < 4 && !obstacle; i++) obstacle = fb_read_obstacle(m, norm->reads[i]);
    return obstacle;
}

static const char *obstacle_of(fb_matcher *m, const fb_fold *fold) {
    const char *first = fold->is_before ? fb_layer_obstacle(m, &fold->host) : obstacle_of_norm(m, &fold->norm);
    if (first) return first;
    return fold->is_before ? obstacle_of_norm(m, &fold->norm) : fb_layer_obstacle(m, &fold->host);
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
    const fb_tensor tensors[] = {fold->host.weight, fold->host.bias,    norm->weight,
                                 norm->bias,        norm->running_mean, norm->running_var};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (!tensors[i].id) continue;
        fb_dtype dtype = (fb_dtype)fb_tensor_at(m->graph, tensors[i])->dtype;
        if (!fb_dtype_is_computed(dtype)) return dtype;
    }
    return FB_DTYPE_UNKNOWN;
}

/* Of the host, where it meets the BatchNorm. */
static int64_t channels_of(const fb_fold *fold) {
    if (fold->is_linear) return fold->is_before ? fold->linear.out_features : fold->linear.in_features;
    return fold->is_before ? fold->conv.out_channels : fold->conv.in_channels;
}

static void decide(fb_matcher *m, const fb_fold *fold, const fb_node *nodes, size_t count, size_t host_count) {
    const fb_batch_norm *norm = &fold->norm;
    bool is_host_training = fold->is_linear ? fold->linear.training : fold->conv.training;
    int64_t channels = channels_of(fold);
    fb_dtype dtype;
    const char *reason;
    if (is_any_marked(m, nodes, host_count)) return; /* refused already, as already-transformed */
    if (is_host_training || norm->training)
        fb_refuse(m, "training-mode", nodes, count,
                  "in training mode BatchNorm normalises by the batch, not by running statistics");
    else if (!norm->running_mean.id || !norm->running_var.id)
        fb_refuse(m, "no-running-statistics", nodes, count, "without running statistics BatchNorm normalises by the batch");
    else if (fb_is_pairing_refused(m, fold, nodes, count)) return;
    else if (channels != norm->num_features)
        fb_refuse(m, "channel-mismatch", nodes, count, "%lld channels meet a BatchNorm of %lld", (long long)channels,
                  (long long)norm->num_features);
    else if (!fold->is_linear && !fold->is_before && fold->conv.is_padded)
        fb_refuse(m, "padded", nodes, count, "padding adds zeros to what is normalised, which the BatchNorm does not shift");
    else if ((dtype = uncomputed_dtype(m, fold)))
        fb_refuse(m, "unsupported-dtype", nodes, count, "one of their tensors is %s, with which nothing is computed",
                  fb_dtype_name(dtype));
    else if (!isfinite(norm->eps_number))
        fb_refuse(m, "unsupported-constant", nodes, count, "the BatchNorm's eps is no finite number");
    else if ((reason = obstacle_of(m, fold))) fb_refuse(m, reason, nodes, count, "%s", fb_obstacle_detail(reason));
    else if (!fb_is_change_between_refused(m, fold, nodes, count) && !fb_is_rank_refused(m, fold))
        fb_match_found(m, nodes, count);
}

void fb_match_fold(fb_matcher *m, fb_node n, fb_fold_filter *is_wanted) {
    fb_fold fold = {0};
    fb_buffer list = {0};
    if (!find_fold(m, n, &fold, is_wanted)) {
        refuse_batched_linear(m, n, is_wanted);
        return;
    }
    fb_layer norm = fb_norm_calls(&fold.norm);
    uint32_t norm_calls = fb_layer_call_count(m->usage, &norm), host_calls = fb_layer_call_count(m->usage, &fold.host);
    if (list_calls(m, &fold.host, host_calls == norm_calls ? host_calls : MAX_LISTED, &list)) {
        size_t host_count = list.size / sizeof(fb_node);
        if (list_calls(m, &norm, norm_calls, &list))
            decide(m, &fold, (const fb_node *)(const void *)list.data, list.size / sizeof(fb_node), host_count);
    }
    fb_buffer_free(&list);
}
