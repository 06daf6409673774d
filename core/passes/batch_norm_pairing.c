/* Whether the calls of a BatchNorm and its host are pairs that may become one call. */
#include "core/passes/batch_norm_fold.h"

#define MAX_READERS 16 /* of the value between the two: more than one is too many */

/* The two in the order in which they are called. */
static void order(const fb_fold *fold, fb_layer *first, fb_layer *second) {
    fb_layer norm = fb_norm_calls(&fold->norm);
    *first = fold->is_before ? fold->host : norm;
    *second = fold->is_before ? norm : fold->host;
}

static bool has_only_input(const fb_graph *g, const fb_layer *layer, fb_node call) {
    return !layer->module.id || fb_call_has_only(g, call, "input"); /* of a function the view has seen to it */
}

/* Why the calls are not paired one to one, or NULL. */
static const char *unpaired(const fb_matcher *m, const fb_layer *first, const fb_layer *second) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_layer_first_call(m->usage, second); n.id; n = fb_layer_next_call(m->usage, second, n)) {
        if (!has_only_input(g, second, n)) return "unsupported-arguments";
        fb_node input = fb_layer_input(g, second, n);
        if (!input.id || !fb_is_call_of(g, first, input)) return "shared-module";
    }
    for (fb_node n = fb_layer_first_call(m->usage, first); n.id; n = fb_layer_next_call(m->usage, first, n)) {
        if (!has_only_input(g, first, n)) return "unsupported-arguments";
        if (fb_node_at(g, n)->user_count > MAX_READERS) return "shared-output";
        bool is_fed = false, is_output = false, has_other_users = false;
        for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e)) {
            fb_node user = fb_edge_user(g, e);
            bool is_second = fb_is_call_of(g, second, user);
            is_output |= fb_node_at(g, user)->opcode == FB_OUTPUT;
            has_other_users |= (!is_second || is_fed) && !fb_asserts_type_only(g, user);
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

bool fb_is_pairing_refused(fb_matcher *m, const fb_fold *fold, const fb_node *nodes, size_t count) {
    fb_layer first, second;
    order(fold, &first, &second);
    const char *reason = unpaired(m, &first, &second);
    if (reason) fb_refuse(m, reason, nodes, count, "%s", unpaired_detail(reason));
    return reason != NULL;
}

/* Between the two calls of a pair nobody may switch autocast or autograd: the work of one would be done in the mode of the
 * other. */
static bool is_mode_switched(fb_matcher *m, const fb_layer *second) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    for (fb_node n = fb_layer_first_call(m->usage, second); alias && n.id; n = fb_layer_next_call(m->usage, second, n)) {
        fb_node input = fb_layer_input(g, second, n);
        if (fb_mode_switched_between(alias, fb_node_at(g, input)->ordinal, fb_node_at(g, n)->ordinal)) return true;
    }
    return false;
}

/* Nor write to what the first reads: without the BatchNorm the second reads it later. */
static bool is_input_mutated(fb_matcher *m, const fb_layer *second) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    for (fb_node n = fb_layer_first_call(m->usage, second); alias && n.id; n = fb_layer_next_call(m->usage, second, n)) {
        fb_node norm = fb_layer_input(g, second, n), input = fb_call_argument_node(g, norm, "input");
        if (!input.id || fb_mutated_between(alias, input, fb_node_at(g, norm)->ordinal, fb_node_at(g, n)->ordinal)) return true;
    }
    return false;
}

bool fb_is_change_between_refused(fb_matcher *m, const fb_fold *fold, const fb_node *nodes, size_t count) {
    fb_layer first, second;
    order(fold, &first, &second);
    bool stays = fold->is_before; /* the host stays where it reads its input */
    if (!stays && is_input_mutated(m, &second))
        fb_refuse(m, "input-mutated", nodes, count,
                  "the BatchNorm's input is written in place before the next module would read it");
    else if (is_mode_switched(m, &second))
        fb_refuse(m, "mode-switched", nodes, count, "autocast, autograd or another mode is switched between them");
    else return false;
    return true;
}

/* BatchNorm works on axis 1, a Linear on the last one, and a convolution on axis 1 unless its input has no batch. */
bool fb_is_rank_refused(fb_matcher *m, const fb_fold *fold) {
    const fb_graph *g = m->graph;
    /* BatchNorm2d takes 4 dimensions, and no others: right for a convolution, wrong for a Linear. */
    bool is_certain = !fold->is_linear && fold->norm.module.id && fold->norm.spatial > 1;
    if (is_certain) return false;
    fb_layer norm = fb_norm_calls(&fold->norm);
    int wanted = fold->is_linear ? 2 : fold->conv.spatial + 2;
    for (fb_node n = fb_layer_first_call(m->usage, &norm); n.id; n = fb_layer_next_call(m->usage, &norm, n)) {
        fb_node input = fb_call_argument_node(g, n, "input");
        int rank = fb_shape_rank(g, fb_node_at(g, input)->shape);
        if (rank == wanted) continue;
        if (rank < 0) fb_refuse_node(m, "unknown-shape", n, "the shape of %s is not recorded", fb_node_name(g, input));
        else
            fb_refuse_node(m, fold->is_linear ? "not-2d" : "not-batched", n,
                           "%s has %d dimensions; BatchNorm then normalises another axis", fb_node_name(g, input), rank);
        return true;
    }
    return false;
}
