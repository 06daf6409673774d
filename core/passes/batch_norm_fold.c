#include "core/passes/batch_norm_fold.h"

#include <math.h>

/* Of a pair whose modules are called together there are as many calls of one as of the other. Otherwise it is refused, and
 * these are enough to show why; without a bound, one module among 20,000 partners would take time and memory for each with
 * each. */
#define MAX_LISTED 16

static bool list_calls(fb_matcher *m, fb_module module, uint32_t limit, fb_buffer *nodes) {
    for (fb_node n = fb_first_call(m->usage, module); n.id && limit > 0; n = fb_next_call(m->usage, n), limit--)
        fb_buffer_append(nodes, &n, sizeof n);
    m->failed |= nodes->failed;
    return !nodes->failed;
}

/* Why the calls are not paired one to one, or NULL. */
static const char *unpaired(const fb_matcher *m, const fb_fold_pair *pair) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_first_call(m->usage, pair->second); n.id; n = fb_next_call(m->usage, n)) {
        fb_node input = fb_call_argument_node(g, n, "input");
        if (!fb_call_has_only(g, n, "input")) return "unsupported-arguments";
        if (!input.id || fb_node_at(g, input)->opcode != FB_CALL_MODULE) return "shared-module";
        if (fb_node_at(g, input)->module.id != pair->first.id) return "shared-module";
    }
    for (fb_node n = fb_first_call(m->usage, pair->first); n.id; n = fb_next_call(m->usage, n)) {
        if (!fb_call_has_only(g, n, "input")) return "unsupported-arguments";
        if (fb_node_at(g, n)->user_count > MAX_LISTED) return "shared-output";
        bool is_fed = false, is_output = false, has_other_users = false;
        for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e)) {
            const fb_node_row *user = fb_node_at(g, fb_edge_user(g, e));
            bool is_second = user->opcode == FB_CALL_MODULE && user->module.id == pair->second.id;
            is_output |= user->opcode == FB_OUTPUT;
            has_other_users |= !is_second || is_fed;
            is_fed |= is_second;
        }
        if (!is_fed) return "shared-module";
        if (is_output) return "graph-output";
        if (has_other_users) return "shared-output";
    }
    return NULL;
}

static const char *unpaired_detail(const char *reason) {
    if (strcmp(reason, "unsupported-arguments") == 0) return "both are called with one input and nothing else";
    if (strcmp(reason, "shared-module") == 0)
        return "one of the modules is called elsewhere too, where the other does not follow";
    if (strcmp(reason, "graph-output") == 0) return "the value between the two is an output of the graph";
    return "the value between the two has other readers";
}

static const char *obstacle_of(fb_matcher *m, const fb_fold_pair *pair) {
    const char *obstacle = fb_module_obstacle(m, pair->first);
    return obstacle ? obstacle : fb_module_obstacle(m, pair->second);
}

/* Between the two calls of a pair nobody may switch autocast or autograd: the work of one would be done in the mode of the
 * other.
 */
static bool is_mode_switched(fb_matcher *m, const fb_fold_pair *pair) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    for (fb_node n = fb_first_call(m->usage, pair->second); alias && n.id; n = fb_next_call(m->usage, n)) {
        fb_node input = fb_call_argument_node(g, n, "input");
        if (fb_mode_switched_between(alias, fb_node_at(g, input)->ordinal, fb_node_at(g, n)->ordinal)) return true;
    }
    return false;
}

/* Between the two calls nobody may write to what the first reads: without the BatchNorm the second reads it later. */
static bool is_input_mutated(fb_matcher *m, const fb_fold_pair *pair) {
    const fb_graph *g = m->graph;
    if (pair->host.id == pair->first.id) return false; /* the host stays where it reads its input */
    const fb_alias *alias = fb_matcher_alias(m);
    if (!alias) return false;
    for (fb_node n = fb_first_call(m->usage, pair->second); n.id; n = fb_next_call(m->usage, n)) {
        fb_node norm = fb_call_argument_node(g, n, "input"), input = fb_call_argument_node(g, norm, "input");
        if (!input.id || fb_mutated_between(alias, input, fb_node_at(g, norm)->ordinal, fb_node_at(g, n)->ordinal)) return true;
    }
    return false;
}

static bool is_any_marked(const fb_matcher *m, const fb_node *nodes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (fb_is_marked(m, nodes[i])) return true;
    }
    return false;
}

/* A dtype among the pair's tensors that recipes do not compute with; FB_DTYPE_UNKNOWN when there is none. */
static fb_dtype uncomputed_dtype(const fb_matcher *m, const fb_fold_pair *pair) {
    const fb_tensor tensors[] = {pair->weight,
                                 fb_module_tensor(m->graph, pair->host, "bias"),
                                 pair->norm.weight,
                                 pair->norm.bias,
                                 pair->norm.running_mean,
                                 pair->norm.running_var};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (!tensors[i].id) continue;
        fb_dtype dtype = (fb_dtype)fb_tensor_at(m->graph, tensors[i])->dtype;
        if (!fb_dtype_is_computed(dtype)) return dtype;
    }
    return FB_DTYPE_UNKNOWN;
}

void fb_match_fold(fb_matcher *m, const fb_fold_pair *pair, bool (*is_refused)(fb_matcher *, fb_node)) {
    const fb_graph *g = m->graph;
    fb_buffer list = {0};
    size_t host_count = 0;
    uint32_t norm_calls = fb_call_count(m->usage, pair->norm.module), host_calls = fb_call_count(m->usage, pair->host);
    if (list_calls(m, pair->host, host_calls == norm_calls ? host_calls : MAX_LISTED, &list)) {
        host_count = list.size / sizeof(fb_node);
        list_calls(m, pair->norm.module, norm_calls, &list);
    }
    const fb_node *nodes = (const fb_node *)(const void *)list.data;
    size_t count = list.size / sizeof *nodes;
    const fb_module_row *host = fb_module_at(g, pair->host);
    fb_dtype dtype;
    const char *reason;
    if (m->failed || is_any_marked(m, nodes, host_count)) (void)0; /* refused already, as already-transformed */
    else if (host->training || pair->norm.training)
        fb_refuse(m, "training-mode", nodes, count,
                  "in training mode BatchNorm normalises by the batch, not by running statistics");
    else if (!pair->norm.running_mean.id || !pair->norm.running_var.id)
        fb_refuse(m, "no-running-statistics", nodes, count, "without running statistics BatchNorm normalises by the batch");
    else if ((reason = unpaired(m, pair))) fb_refuse(m, reason, nodes, count, "%s", unpaired_detail(reason));
    else if (pair->channels != pair->norm.num_features)
        fb_refuse(m, "channel-mismatch", nodes, count, "%lld channels meet a BatchNorm of %lld", (long long)pair->channels,
                  (long long)pair->norm.num_features);
    else if ((dtype = uncomputed_dtype(m, pair)))
        fb_refuse(m, "unsupported-dtype", nodes, count, "one of their tensors is %s, with which nothing is computed",
                  fb_dtype_name(dtype));
    else if (!isfinite(pair->norm.eps_number))
        fb_refuse(m, "unsupported-constant", nodes, count, "the BatchNorm's eps is no finite number");
    else if ((reason = obstacle_of(m, pair))) fb_refuse(m, reason, nodes, count, "%s", fb_obstacle_detail(reason));
    else if (is_input_mutated(m, pair))
        fb_refuse(m, "input-mutated", nodes, count,
                  "the BatchNorm's input is written in place before the next module would read it");
    else if (is_mode_switched(m, pair))
        fb_refuse(m, "mode-switched", nodes, count, "autocast, autograd or another mode is switched between them");
    else if (is_refused && is_refused(m, nodes[host_count])) (void)0;
    else fb_match_found(m, nodes, count);
    fb_buffer_free(&list);
}
