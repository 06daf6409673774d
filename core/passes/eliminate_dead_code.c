/* EliminateDeadCode: removes nodes that no result and no effect depends on.
 *
 *     x ─┬─ relu ── output          x ─── relu ── output
 *        └─ exp ── sum
 *
 * Kept: inputs, the output, and each call that writes, draws random numbers, checks something, switches a mode, or whose
 * operator foldback does not know; also everything that these calls read. The call's own flags count: a BatchNorm writes in
 * training. If nothing reads such a call, the report says why it stays.
 *
 * Of an ONNX model, the programs of If, Loop and Scan and its functions are looked at as well; what nothing in such a program
 * reads is not given to it any more.
 *
 * A module is removed with its last call, unless something else uses the module or what it owns. The same holds for what a
 * get_attr node read, by the rules of core/rewrite. Marks nothing, because nothing is left to mark.
 * Exactness: moves. Reversible.
 */
#include <stdlib.h>

#include "core/analysis/onnx.h"
#include "core/pass/pass.h"

/* Programs of the calls of an ONNX model are read at each place where a call runs them, and by that call alone. */
typedef struct liveness {
    const fb_graph *graph;
    bool is_onnx;
    bool *is_alive;  /* by node */
    bool *is_seen;   /* by program: its nodes are marked */
    fb_node *caller; /* by program: the call that runs it; none for the main program and functions */
} liveness;

/* A value that a nested program captures; it goes with its last reader. */
static bool is_captured(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->opcode == FB_PLACEHOLDER && fb_onnx_is_captured(g, n);
}

static bool may_go(const fb_graph *g, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
    if (opcode == FB_PLACEHOLDER) return is_captured(g, n);
    return opcode != FB_OUTPUT && !fb_effect_obstacle(g, n).code;
}

/* The results that an ONNX node names are a part of it: all go with it, or stay. */
static void keep_results(const liveness *l, fb_program program) {
    const fb_graph *g = l->graph;
    for (fb_node n = fb_first_node(g, program); n.id && l->is_onnx; n = fb_next_node(g, n)) {
        fb_node call = fb_op_is(g, n, FB_OP_GETITEM) ? fb_arg_node(g, n, 0) : (fb_node){0};
        l->is_alive[n.id] |= call.id && l->is_alive[call.id];
    }
}

static void mark(void *context, fb_node node) {
    ((bool *)context)[node.id] = true;
}

static void mark_program(liveness *l, fb_program program);

/* Of a call that runs programs: what these need of what they capture. */
static void mark_captured(liveness *l, fb_program program, fb_value list) {
    size_t at = 0;
    mark_program(l, program);
    for (fb_node n = fb_first_node(l->graph, program); n.id && list.id; n = fb_next_node(l->graph, n)) {
        fb_value item = is_captured(l->graph, n) ? fb_value_item(l->graph, list, at++) : (fb_value){0};
        if (item.id && l->is_alive[n.id]) fb_value_visit_nodes(l->graph, item, mark, l->is_alive);
    }
}

static void mark_inputs(liveness *l, fb_node n) {
    const fb_graph *g = l->graph;
    fb_value captures = l->is_onnx ? fb_node_kwarg(g, n, "captures") : (fb_value){0};
    size_t place = 0;
    if (!captures.id) {
        for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) l->is_alive[fb_edge_input(g, e).id] = true;
        return;
    }
    fb_value_visit_nodes(g, fb_node_at(g, n)->args, mark, l->is_alive);
    const fb_value_row *kwargs = fb_value_at(g, fb_node_at(g, n)->kwargs);
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2) {
        if (kwargs->items[i + 1].id == captures.id) continue;
        fb_program program = fb_onnx_program_read_by(g, fb_value_node(g, kwargs->items[i + 1]));
        fb_value_visit_nodes(g, kwargs->items[i + 1], mark, l->is_alive);
        if (program.id) mark_captured(l, program, fb_value_item(g, captures, place++));
    }
}

/* From the last node to the first, so that all readers of a node are known when it is its turn. */
static void mark_program(liveness *l, fb_program program) {
    l->is_seen[program.id] = true;
    for (fb_node n = fb_last_node(l->graph, program); n.id; n = fb_node_at(l->graph, n)->previous) {
        l->is_alive[n.id] = l->is_alive[n.id] || !may_go(l->graph, n);
        if (l->is_alive[n.id]) mark_inputs(l, n);
    }
    keep_results(l, program);
}

static void explain(fb_matcher *m, fb_node n) {
    const fb_node_row *row = fb_node_at(m->graph, n);
    if (row->user_count || row->opcode == FB_PLACEHOLDER || row->opcode == FB_OUTPUT) return;
    fb_obstacle obstacle = fb_effect_obstacle(m->graph, n);
    if (obstacle.code) fb_refuse_node(m, obstacle.code, n, "nobody reads it, but %s", obstacle.detail);
}

static void find_callers(const liveness *l) {
    const fb_graph *g = l->graph;
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_programs_to_clean(g); p++)
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id; n = fb_next_node(g, n)) {
            fb_program program = fb_onnx_program_read_by(g, n);
            if (program.id && fb_user_first(g, n)) l->caller[program.id] = fb_edge_user(g, fb_user_first(g, n));
        }
}

/* All that the program need not capture is one match, before the nodes that read it. */
static void report_captured(fb_matcher *m, const liveness *l, fb_program program) {
    fb_buffer nodes = {0};
    bool is_run = l->is_onnx && l->caller[program.id].id; /* else its call is gone */
    for (fb_node n = fb_first_node(m->graph, program); n.id && is_run; n = fb_next_node(m->graph, n))
        if (!l->is_alive[n.id] && is_captured(m->graph, n)) fb_buffer_append(&nodes, &n, sizeof n);
    m->failed |= nodes.failed;
    if (nodes.size && !nodes.failed) fb_match_found(m, (const fb_node *)(const void *)nodes.data, nodes.size / sizeof(fb_node));
    fb_buffer_free(&nodes);
}

static void report(fb_matcher *m, const liveness *l, fb_program program) {
    report_captured(m, l, program);
    for (fb_node n = fb_first_node(m->graph, program); n.id && fb_matcher_goes_on(m); n = fb_next_node(m->graph, n)) {
        if (l->is_alive[n.id]) explain(m, n);
        else if (!is_captured(m->graph, n)) fb_match_found(m, &n, 1);
    }
}

static void match_in(fb_matcher *m, bool is_onnx) {
    const fb_graph *g = m->graph;
    uint32_t end = fb_programs_to_clean(g);
    liveness l = {.graph = g,
                  .is_onnx = is_onnx,
                  .is_alive = calloc(fb_node_limit(g), sizeof *l.is_alive),
                  .is_seen = calloc(fb_program_limit(g), sizeof *l.is_seen),
                  .caller = fb_arena_alloc(m->arena, fb_program_limit(g) * sizeof *l.caller)};
    m->failed |= !l.is_alive || !l.is_seen || !l.caller;
    if (l.caller) memset(l.caller, 0, fb_program_limit(g) * sizeof *l.caller);
    if (!m->failed && l.is_onnx) find_callers(&l);
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < end && !m->failed; p++)
        if (!l.caller[p].id) mark_program(&l, (fb_program){p});
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < end && !m->failed; p++)
        if (l.is_seen[p]) report(m, &l, (fb_program){p});
    m->plan = l.caller;
    free(l.is_alive);
    free(l.is_seen);
}

static void match_graph(fb_matcher *m) {
    match_in(m, false);
}

static void match_onnx(fb_matcher *m) {
    match_in(m, true);
}

/* Of the programs that the call runs, its place. */
static size_t place_of(const fb_graph *g, fb_node call, fb_program program) {
    const fb_value_row *kwargs = fb_value_at(g, fb_node_at(g, call)->kwargs);
    size_t place = 0;
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2) {
        fb_program other = fb_onnx_program_read_by(g, fb_value_node(g, kwargs->items[i + 1]));
        if (other.id == program.id) break;
        place += other.id != 0;
    }
    return place;
}

/* The call stops giving the program what this does not read any more. */
static void drop_captured(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_program program = fb_node_at(g, match->nodes[0])->program;
    fb_node call = ((const fb_node *)match->plan)[program.id];
    size_t place = place_of(g, call, program), next = 0, at = 0;
    fb_value all = fb_node_kwarg(g, call, "captures"), list = fb_value_item(g, all, place);
    fb_buffer kept = {0};
    for (fb_node n = fb_first_node(g, program); n.id; n = fb_next_node(g, n)) {
        if (!is_captured(g, n)) continue;
        fb_value item = fb_value_item(g, list, at++);
        bool goes = next < match->count && match->nodes[next].id == n.id;
        if (goes) fb_erase(rw, match->nodes[next++]);
        else fb_buffer_append(&kept, &item, sizeof item);
    }
    fb_value left = fb_make_list(g, (const fb_value *)(const void *)kept.data, kept.size / sizeof left);
    fb_value now = fb_map_with(g, fb_node_at(g, call)->kwargs, "captures", fb_list_with(g, all, place, left));
    if (kept.failed) fb_graph_fail_memory(g);
    else fb_set_args(rw, call, fb_node_at(g, call)->args, now);
    fb_buffer_free(&kept);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_node n = match->nodes[0];
    if (fb_node_at(fb_rewrite_graph(rw), n)->opcode == FB_PLACEHOLDER) drop_captured(rw, match);
    else if (fb_node_at(fb_rewrite_graph(rw), n)->opcode == FB_GET_ATTR) fb_release_read(rw, n);
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
    .match_onnx = match_onnx,
    .edit = edit,
};
