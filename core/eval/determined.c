#include "core/eval/determined.h"

#include <stdlib.h>

#include "core/base/map.h"
#include "core/ops/rearrange.h"
#include "core/ops/same_call.h"
#include "core/ops/view.h"

typedef struct search {
    const fb_graph *graph;
    unsigned char *determined, *is_constant; /* by node */
    fb_node *now;                            /* by node: the first of those equal to it */
    fb_map first;                            /* hash of a call -> the first of some equal ones */
    fb_same_call same;
    bool out_of_memory;
} search;

/* Does the call give the same whenever it is given the same? */
static bool is_function(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode < FB_CALL_MODULE || row->opcode > FB_CALL_METHOD) return false;
    fb_effects effects = fb_op_effects(graph, node);
    return !effects.is_unknown && !effects.is_random && !effects.mutates_input && !effects.mutates_module &&
           !effects.has_effect;
}

static bool reads_constants_only(const search *s, fb_node node) {
    for (uint32_t e = fb_input_first(s->graph, node); e; e = fb_input_next(s->graph, e)) {
        if (!s->is_constant[fb_edge_input(s->graph, e).id]) return false;
    }
    return true;
}

/* The same elements in another shape. */
static bool is_view(const fb_graph *graph, fb_node node) {
    fb_rearrange view;
    return fb_rearrange_at(graph, node, &view);
}

static void look_at(search *s, fb_node node) {
    if (fb_node_at(s->graph, node)->opcode == FB_GET_ATTR) s->is_constant[node.id] = true;
    if (!is_function(s->graph, node)) return;
    s->is_constant[node.id] = reads_constants_only(s, node);
    if (s->is_constant[node.id] || is_view(s->graph, node)) s->determined[node.id] = true;
    uint64_t hash = fb_call_hash(&s->same, node);
    uint32_t cursor = 0;
    for (uint32_t id; (id = fb_map_next(&s->first, hash, &cursor));) {
        if (!fb_calls_are_same(&s->same, (fb_node){id}, node)) continue;
        s->now[node.id] = (fb_node){id};
        s->determined[node.id] = s->determined[id] = true;
        return;
    }
    s->out_of_memory |= !fb_map_add(&s->first, hash, node.id);
}

bool fb_find_determined(const fb_graph *graph, unsigned char *determined, fb_work *work) {
    uint32_t limit = fb_node_limit(graph);
    search s = {.graph = graph, .determined = determined, .is_constant = calloc(limit, 1), .now = calloc(limit, sizeof *s.now)};
    s.same = (fb_same_call){.graph = graph, .now = s.now, .seed = fb_hash(&s.now, sizeof s.now, 0)};
    s.out_of_memory = !s.is_constant || !s.now;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && !s.out_of_memory && fb_work_goes_on(work, 16);
         n = fb_next_node(graph, n)) {
        look_at(&s, n);
    }
    fb_map_free(&s.first);
    free(s.is_constant);
    free(s.now);
    return !s.out_of_memory && !work->stopped.status;
}
