/* EliminateDeadCode: removes nodes that no result and no effect depends on.
 *
 *     x ─┬─ relu ── output          x ─── relu ── output
 *        └─ exp ── sum
 *
 * Kept: inputs, the output, and each call that writes, draws random numbers, checks something, switches a mode, or whose
 * operator foldback does not know; also everything that these calls read. The call's own flags count: a BatchNorm writes in
 * training. If nothing reads such a call, the report says why it stays.
 *
 * A module is removed with its last call, unless something else uses the module or what it owns. The same holds for what a
 * get_attr node read, by the rules of core/rewrite. Marks nothing, because nothing is left to mark.
 * Exactness: moves. Reversible.
 */
#include <stdlib.h>

#include "core/pass/pass.h"

static bool may_go(const fb_graph *g, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
    if (opcode == FB_PLACEHOLDER || opcode == FB_OUTPUT) return false;
    return !fb_effect_obstacle(g, n).code;
}

/* The results that an ONNX node names are a part of it: all go with it, or stay. */
static void keep_results(const fb_graph *g, bool *is_alive) {
    if (!fb_graph_is_onnx(g)) return;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        fb_node call = fb_op_is(g, n, FB_OP_GETITEM) ? fb_value_node(g, fb_node_arg(g, n, 0)) : (fb_node){0};
        is_alive[n.id] |= call.id && is_alive[call.id];
    }
}

/* From the last node to the first, so that all readers of a node are known when it is its turn. */
static void mark_alive(const fb_graph *g, bool *is_alive) {
    for (fb_node n = fb_last_node(g, FB_MAIN_PROGRAM); n.id; n = fb_node_at(g, n)->previous) {
        is_alive[n.id] |= !may_go(g, n);
        for (uint32_t edge = is_alive[n.id] ? fb_input_first(g, n) : 0; edge; edge = fb_input_next(g, edge)) {
            is_alive[fb_edge_input(g, edge).id] = true;
        }
    }
}

static void explain(fb_matcher *m, fb_node n) {
    const fb_node_row *row = fb_node_at(m->graph, n);
    if (row->user_count || row->opcode == FB_PLACEHOLDER || row->opcode == FB_OUTPUT) return;
    fb_obstacle obstacle = fb_effect_obstacle(m->graph, n);
    if (obstacle.code) fb_refuse_node(m, obstacle.code, n, "nobody reads it, but %s", obstacle.detail);
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    bool *is_alive = calloc(fb_node_limit(g), sizeof *is_alive);
    m->failed |= !is_alive;
    if (is_alive) mark_alive(g, is_alive);
    if (is_alive) keep_results(g, is_alive);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        if (!is_alive[n.id]) fb_match_found(m, &n, 1);
        else explain(m, n);
    }
    free(is_alive);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_node n = match->nodes[0];
    if (fb_node_at(fb_rewrite_graph(rw), n)->opcode == FB_GET_ATTR) fb_release_read(rw, n);
    else fb_erase_call(rw, n);
}

const fb_pass fb_eliminate_dead_code = {
    .name = "EliminateDeadCode",
    .version = 1,
    .summary = "Removes nodes that no result and no effect depends on.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .gain = FB_GAIN_FEWER_NODES,
    .reversible = true,
    .preserves_computation = true,
    .only_removes = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .edit = edit,
};
