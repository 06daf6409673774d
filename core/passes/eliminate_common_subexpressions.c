/* EliminateCommonSubexpressions: keeps the first of several nodes that compute the same from the same inputs.
 *
 *         ┌─ exp ── a              ┌─ a
 *     x ──┤                x ── exp┤
 *         └─ exp ── b              └─ b
 *
 * Two nodes are the same if they have the same operator or module, arguments (int 1 differs from 1.0), recorded shape and
 * dtype, and read the same nodes after replacement.
 *
 * Kept, with the reason:
 *   - calls that write, draw random numbers, check something, or that foldback does not know
 *   - two calls where, between them, something writes what they read, or switches a mode (autocast)
 *   - two calls where one result is written later: the write would change the other
 *   - two results of the graph: the caller may write to one, and must not find the other changed
 *
 * Takes linear time: a hash of each node finds the others like it. Marks nothing, because the node that stays is unchanged.
 * Exactness: moves. Reversible.
 */
#include <stdlib.h>

#include "core/analysis/alias.h"
#include "core/analysis/onnx.h"
#include "core/analysis/same_call.h"
#include "core/analysis/shape.h"
#include "core/base/map.h"
#include "core/pass/pass.h"

/* A node, and the earlier one that computes the same. */
typedef struct repetition {
    fb_node node, before;
} repetition;

typedef struct search {
    fb_matcher *m;
    const fb_alias *alias; /* NULL: not asked for yet */
    fb_node *now;          /* by node: what is read in its place */
    fb_node *latest;       /* by the first of some equal nodes: the one that the next is compared with */
    fb_map first;          /* hash -> first of some equal nodes */
    fb_same_call same;
} search;

typedef struct watch {
    const fb_alias *alias;
    bool is_written;
} watch;

static void watch_tensor(void *context, fb_tensor tensor) {
    watch *w = context;
    w->is_written |= fb_tensor_is_mutated(w->alias, tensor);
}

/* Is something that the call reads written between the two? */
static bool reads_what_is_written(const search *s, fb_node a, uint32_t from, uint32_t to) {
    const fb_graph *g = s->m->graph;
    const fb_node_row *row = fb_node_at(g, a);
    watch w = {.alias = s->alias};
    for (uint32_t edge = fb_input_first(g, a); edge; edge = fb_input_next(g, edge)) {
        w.is_written |= fb_mutated_between(s->alias, fb_edge_input(g, edge), from, to);
    }
    if (row->opcode == FB_CALL_MODULE && row->module.id) {
        fb_value_visit_tensors(g, fb_module_at(g, row->module)->parameters, watch_tensor, &w);
        fb_value_visit_tensors(g, fb_module_at(g, row->module)->buffers, watch_tensor, &w);
    }
    return w.is_written;
}

static bool is_container(const fb_graph *g, fb_node n) {
    return fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_CONTAINER; /* it reads tensors of modules out of sight */
}

/* An item of a tuple is the very same object each time, and no view of it. */
static bool is_item_of_tuple(const fb_graph *g, fb_node n) {
    fb_node tuple = fb_op_is(g, n, FB_OP_GETITEM) ? fb_arg_node(g, n, 0) : (fb_node){0};
    return tuple.id && (fb_is_split(g, tuple) || fb_op_facts_of(fb_node_op(g, tuple))->flags & FB_FACT_TUPLE);
}

/* Why `b` must be computed although `a` was. */
static fb_obstacle obstacle(const search *s, fb_node a, fb_node b) {
    const fb_graph *g = s->m->graph;
    uint32_t from = fb_node_at(g, a)->ordinal, to = fb_node_at(g, b)->ordinal;
    if (fb_node_at(g, a)->opcode == FB_GET_ATTR) return FB_NO_OBSTACLE; /* the very same object */
    fb_obstacle obstacle = fb_effect_obstacle(g, b);
    if (obstacle.code) return obstacle;
    if (is_container(g, b))
        return (fb_obstacle){"unknown-operator", "it has modules inside, and reads what they own out of sight"};
    if (reads_what_is_written(s, a, from, to)) return (fb_obstacle){"input-mutated", "what they read is written between them"};
    if (fb_mode_switched_between(s->alias, from, to))
        return (fb_obstacle){"mode-switched", "autocast, autograd or another mode is switched between them"};
    if (fb_is_python_number(g, b) || is_item_of_tuple(g, a)) return FB_NO_OBSTACLE;
    fb_share_verdict verdict = fb_may_share(s->m->sharing, a, b, from);
    if (verdict == FB_SHARE_WRITTEN)
        return (fb_obstacle){"mutated", "one of the results is written later, and the other must not change with it"};
    return verdict == FB_SHARE_RETURNED
               ? (fb_obstacle){"graph-output", "both are results of the graph, which must not share their memory"}
               : FB_NO_OBSTACLE;
}

/* The first of the nodes that say the same; the node itself when it is that. */
static fb_node first_of(search *s, fb_node n) {
    uint64_t hash = fb_call_hash(&s->same, n);
    uint32_t cursor = 0;
    for (uint32_t id; (id = fb_map_next(&s->first, hash, &cursor));) {
        if (fb_calls_are_same(&s->same, (fb_node){id}, n)) return (fb_node){id};
    }
    s->m->failed |= !fb_map_add(&s->first, hash, n.id);
    s->latest[n.id] = n;
    return n;
}

static void match(search *s, fb_node n) {
    const fb_node_row *row = fb_node_at(s->m->graph, n);
    bool reads_tensor = row->opcode == FB_GET_ATTR && row->attribute.id;
    if (!reads_tensor && (row->opcode < FB_CALL_MODULE || row->opcode > FB_CALL_METHOD)) return;
    fb_node first = first_of(s, n), before = s->latest[first.id];
    if (first.id == n.id || !fb_matcher_sharing(s->m)) return;
    s->alias = fb_matcher_alias(s->m);
    fb_obstacle stands = obstacle(s, before, n);
    if (!stands.code) {
        fb_match_found_as(s->m, &(repetition){n, before}, sizeof(repetition));
        s->now[n.id] = before;
        fb_share(s->m->sharing, before, n);
        return;
    }
    fb_refuse_for(s->m, stands, (fb_node[]){before, n}, 2);
    if (fb_may_share(s->m->sharing, n, n, row->ordinal) != FB_SHARE_WRITTEN) s->latest[first.id] = n;
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    search s = {.m = m, .now = calloc(fb_node_limit(g), sizeof *s.now), .latest = calloc(fb_node_limit(g), sizeof *s.latest)};
    s.same = (fb_same_call){.graph = g, .now = s.now, .seed = fb_hash(&s.now, sizeof s.now, 0)};
    m->failed |= !s.now || !s.latest || !fb_map_reserve(&s.first, fb_node_count(g));
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_programs_to_clean(g); p++) {
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) match(&s, n);
        fb_map_free(&s.first);
    }
    free(s.now);
    free(s.latest);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const repetition *found = match->data;
    fb_replace_uses(rw, found->node, found->before);
    fb_erase(rw, found->node);
}

const fb_pass fb_eliminate_common_subexpressions = {
    .name = "EliminateCommonSubexpressions",
    .version = 1,
    .summary = "Keeps the first of several nodes that compute the same from the same inputs.",
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
