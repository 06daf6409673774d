/* Whether the calls of a BatchNorm and its host are pairs that may become one call. */
#include "core/ops/strides.h"
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

/* Who reads a value on its way from one call to the other. */
typedef struct readers {
    bool is_taken, is_output, has_others, is_forked; /* the other call takes it, and so on */
} readers;

/* Notes who reads `at`, and gives the view of it through which it may come to the other call. */
static fb_node see_readers(const fb_graph *g, const fb_layer *second, fb_node at, readers *r) {
    fb_node next = {0};
    for (uint32_t e = fb_user_first(g, at); e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool is_second = fb_is_call_of(g, second, user), is_view = !is_second && fb_view_input(g, user, NULL).id == at.id;
        r->is_output |= fb_node_at(g, user)->opcode == FB_OUTPUT;
        r->is_forked |= is_view && next.id;
        r->has_others |= (is_view ? next.id != 0 : !is_second || r->is_taken) && !fb_reads_type_only_of(g, user, at);
        if (is_view && !next.id) next = user;
        r->is_taken |= is_second;
    }
    r->has_others |= r->is_taken && next.id;
    return r->is_taken ? (fb_node){0} : next;
}

/* What a call gives besides its value is not kept. */
static bool gives_more(const fb_graph *g, fb_node call) {
    fb_node origin = fb_call_of_value(g, call);
    return origin.id != call.id && fb_node_at(g, origin)->user_count > 1;
}

static const char *unpaired_first(const fb_graph *g, const fb_layer *first, const fb_layer *second, fb_node call) {
    readers r = {0};
    if (!has_only_input(g, first, call)) return "unsupported-arguments";
    fb_node at = call;
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX; steps++) {
        if (fb_node_at(g, at)->user_count > MAX_READERS) return "shared-output";
        at = see_readers(g, second, at, &r);
    }
    if (!r.is_taken) return r.is_forked ? "shared-output" : "shared-module";
    if (r.is_output) return "graph-output";
    return r.has_others || gives_more(g, call) ? "shared-output" : NULL;
}

/* Why the calls are not paired one to one, or NULL. */
static const char *unpaired(const fb_matcher *m, const fb_layer *first, const fb_layer *second) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_layer_first_call(m->usage, second); n.id; n = fb_layer_next_call(m->usage, second, n)) {
        if (!has_only_input(g, second, n)) return "unsupported-arguments";
        if (!fb_fold_source(g, first, second, n, NULL).id) return "shared-module";
        if (gives_more(g, n)) return "shared-output";
    }
    for (fb_node n = fb_layer_first_call(m->usage, first); n.id; n = fb_layer_next_call(m->usage, first, n)) {
        const char *reason = unpaired_first(g, first, second, n);
        if (reason) return reason;
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
static bool is_mode_switched(fb_matcher *m, const fb_layer *first, const fb_layer *second) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    for (fb_node n = fb_layer_first_call(m->usage, second); alias && n.id; n = fb_layer_next_call(m->usage, second, n)) {
        fb_node source = fb_fold_source(g, first, second, n, NULL);
        if (fb_mode_switched_between(alias, fb_node_at(g, source)->ordinal, fb_node_at(g, n)->ordinal)) return true;
    }
    return false;
}

/* Nor write to what the first reads: without the BatchNorm the second reads it later. */
static bool is_input_mutated(fb_matcher *m, const fb_layer *first, const fb_layer *second) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    for (fb_node n = fb_layer_first_call(m->usage, second); alias && n.id; n = fb_layer_next_call(m->usage, second, n)) {
        fb_node norm = fb_fold_source(g, first, second, n, NULL), input = fb_layer_input(g, first, norm);
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
        for (int steps = 0; steps <= FB_VIEWS_MAX && at.id && !fb_is_call_of(g, first, at); steps++) {
            minds |= fb_view_minds_strides(g, at) && !(fold->is_before && is_in_order(g, at));
            at = fb_view_input(g, at, NULL);
        }
        if (!minds || !at.id) continue;
        if (fold->is_before ? fb_strides_are_read(g, n) : !fb_is_contiguous(g, fb_layer_input(g, first, at))) return true;
    }
    return false;
}

bool fb_is_change_between_refused(fb_matcher *m, const fb_fold *fold, const fb_node *nodes, size_t count) {
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
    return fold->is_linear ? rank - 1 : rank - fold->conv.spatial - 1;
}

static bool refuse_unknown(fb_matcher *m, fb_node n, fb_node value) {
    fb_refuse_node(m, "unknown-shape", n, "the shape of %s is not recorded", fb_node_name(m->graph, value));
    return true;
}

/* The same axis at both ends of the views between a pair. */
static bool is_pair_refused(fb_matcher *m, const fb_fold *fold, const fb_layer *first, const fb_layer *second, fb_node n) {
    const fb_graph *g = m->graph;
    fb_node input = fb_layer_input(g, second, n);
    int rank = fb_shape_rank(g, fb_node_at(g, input)->shape);
    bool is_direct = fb_is_call_of(g, first, input);
    /* BatchNorm2d takes 4 dimensions, and no others: right for a convolution, wrong for a Linear. */
    if (is_direct && !fold->is_linear && fold->norm.module.id && fold->norm.spatial > 1) return false;
    if (rank < 0) return refuse_unknown(m, n, input);
    int axis = channel_axis(fold, fold->is_before, rank);
    fb_node source = fb_fold_source(g, first, second, n, &axis);
    int source_rank = fb_shape_rank(g, fb_node_at(g, source)->shape);
    if (source_rank < 0) return refuse_unknown(m, n, source);
    if (axis == channel_axis(fold, !fold->is_before, source_rank) && axis >= 0) return false;
    if (is_direct)
        fb_refuse_node(m, fold->is_linear ? "not-2d" : "not-batched", fold->is_before ? n : source,
                       "%s has %d dimensions; BatchNorm then normalises another axis",
                       fb_node_name(g, fold->is_before ? input : fb_layer_input(g, first, source)), rank);
    else
        fb_refuse(m, "channels-moved", (fb_node[]){source, n}, 2,
                  "the views between them do not keep the channels together, on the axis that the other works on");
    return true;
}

/* BatchNorm works on axis 1, a Linear on the last one, and a convolution on axis 1 unless its input has no batch. */
bool fb_is_rank_refused(fb_matcher *m, const fb_fold *fold) {
    fb_layer first, second;
    order(fold, &first, &second);
    for (fb_node n = fb_layer_first_call(m->usage, &second); n.id; n = fb_layer_next_call(m->usage, &second, n)) {
        if (is_pair_refused(m, fold, &first, &second, n)) return true;
    }
    return false;
}
