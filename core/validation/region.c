#include "core/validation/region.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/alias.h"
#include "core/analysis/infer.h"
#include "core/analysis/rearrange.h"
#include "core/analysis/same_call.h"
#include "core/analysis/view.h"
#include "core/base/map.h"
#include "core/base/work.h"
#include "core/diff/diff.h"
#include "core/evaluator/evaluator.h"
#include "core/graph/graph.h"
#include "core/weights/inputs.h"

/* Values that cannot be given at will, because others say what they are.
 *
 *     w ── tanh ── a ── …     a depends on weights alone, which are fixed
 *
 *     x ──┬─ exp ── a         a and b are equal, so both are computed from x, or one value would get two numbers
 *         └─ exp ── b
 *
 *     x ── view ── a          a is x in another shape, and a rewrite may read either
 */

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

/* Sets determined[node] for the nodes of the main program with such values. A node that draws random numbers, writes, or is not
 * known is not one of them. False: fb_work_failed says why. Linear in the graph's size. */
static bool find_determined(const fb_graph *graph, unsigned char *determined, fb_work *work) {
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

/* ---- which hang together ------------------------------------------------------------------------------------------------ */

static uint32_t slot_before(fb_node node) {
    return node.id;
}
static uint32_t slot_after(const fb_regions *r, fb_node node) {
    return fb_node_limit(r->before) + node.id;
}

static uint32_t root_of(fb_regions *r, uint32_t slot) {
    while (r->parents[slot] != slot) slot = r->parents[slot] = r->parents[r->parents[slot]];
    return slot;
}
static void join(fb_regions *r, uint32_t a, uint32_t b) {
    r->parents[root_of(r, a)] = root_of(r, b);
}

uint32_t fb_region_of_before(fb_regions *regions, fb_node node) {
    return root_of(regions, slot_before(node));
}
uint32_t fb_region_of_after(fb_regions *regions, fb_node node) {
    return root_of(regions, slot_after(regions, node));
}
uint32_t fb_region_of(fb_regions *regions, const fb_region_pair *pair) {
    bool is_gone = regions->changed_before[pair->before.id];
    return is_gone ? fb_region_of_before(regions, pair->before) : fb_region_of_after(regions, pair->after);
}

/* ---- what changed -------------------------------------------------------------------------------------------------------- */

#define STEPS_OF_A_NODE 16

/* The main program's nodes, as long as the search goes on. */
static fb_node first(const fb_regions *r, const fb_graph *graph) {
    return fb_work_goes_on(r->work, STEPS_OF_A_NODE) ? fb_first_node(graph, FB_MAIN_PROGRAM) : (fb_node){0};
}
static fb_node next(const fb_regions *r, const fb_graph *graph, fb_node node) {
    return fb_work_goes_on(r->work, STEPS_OF_A_NODE) ? fb_next_node(graph, node) : (fb_node){0};
}

static void pair_nodes(fb_regions *r) {
    for (fb_node node = first(r, r->before); node.id; node = next(r, r->before, node)) {
        fb_node twin = fb_node_find(r->after, FB_MAIN_PROGRAM, fb_node_name(r->before, node));
        r->twin_of_before[node.id] = twin;
        if (twin.id) r->twin_of_after[twin.id] = node;
        else r->changed_before[node.id] = true;
    }
    for (fb_node node = first(r, r->after); node.id; node = next(r, r->after, node))
        if (!r->twin_of_after[node.id].id) r->changed_after[node.id] = true;
}

/* Two argument trees that differ in nothing but which nodes they read; calls `visit` for each pair of nodes. */
static bool match_values(const fb_regions *r, fb_value a, fb_value b, bool (*visit)(void *, fb_node, fb_node), void *context) {
    const fb_value_row *x = fb_value_at(r->before, a), *y = fb_value_at(r->after, b);
    if (x->kind != y->kind || x->count != y->count) return false;
    switch ((fb_kind)x->kind) {
    case FB_NODE: return !visit || visit(context, fb_value_node(r->before, a), fb_value_node(r->after, b));
    case FB_INT: return x->integer == y->integer;
    case FB_FLOAT: return memcmp(&x->real, &y->real, sizeof x->real) == 0;
    case FB_NONE:
    case FB_TRUE:
    case FB_FALSE: return true;
    default: break;
    }
    bool has_symbol = x->kind != FB_LIST && x->kind != FB_TUPLE && x->kind != FB_SIZE && x->kind != FB_DICT &&
                      x->kind != FB_MAP && x->kind != FB_SLICE && x->kind != FB_COMPLEX;
    if (has_symbol && strcmp(fb_text(r->before, x->symbol), fb_text(r->after, y->symbol)) != 0) return false;
    for (uint32_t i = 0; i < x->count && fb_work_goes_on(r->work, 1); i++)
        if (!match_values(r, x->items[i], y->items[i], visit, context)) return false;
    return true;
}

/* A pass that changed what a node computes, and not what it says, has marked it: a weight that it reads is another one, and
 * what comes behind it makes up for that. */
static bool same_marks(const fb_regions *r, fb_node a, fb_node b) {
    return match_values(r, fb_node_at(r->before, a)->transformations, fb_node_at(r->after, b)->transformations, NULL, NULL);
}

static bool same_call(const fb_regions *r, fb_node a, fb_node b) {
    const fb_node_row *x = fb_node_at(r->before, a), *y = fb_node_at(r->after, b);
    return x->opcode == y->opcode && strcmp(fb_text(r->before, x->target), fb_text(r->after, y->target)) == 0 &&
           match_values(r, x->args, y->args, NULL, NULL) && match_values(r, x->kwargs, y->kwargs, NULL, NULL);
}

/* Compares the weights that two calls read by get_attr: as with a module's weights, another weight makes another call. Nodes
 * come in order, so it is known whether the get_attr nodes changed. */
static bool same_weight(void *context, fb_node a, fb_node b) {
    const fb_regions *r = context;
    bool are_weights = fb_node_at(r->before, a)->opcode == FB_GET_ATTR && fb_node_at(r->after, b)->opcode == FB_GET_ATTR;
    return !are_weights || (r->twin_of_before[a.id].id == b.id && !r->changed_before[a.id]);
}

static bool same_weights(fb_regions *r, fb_node a, fb_node b) {
    const fb_node_row *x = fb_node_at(r->before, a), *y = fb_node_at(r->after, b);
    return match_values(r, x->args, y->args, same_weight, r) && match_values(r, x->kwargs, y->kwargs, same_weight, r);
}

static bool same_recorded_sizes(void *context, fb_node a, fb_node b) {
    const fb_regions *r = context;
    fb_value x = fb_node_at(r->before, a)->shape, y = fb_node_at(r->after, b)->shape;
    return !x.id || !y.id || match_values(r, x, y, NULL, NULL);
}

/* A view may read another one of the same memory now, and make the same of it: then it is what it makes that is compared. */
static bool same_sizes_viewed(fb_regions *r, fb_node a, fb_node b) {
    fb_rearrange view;
    const fb_node_row *x = fb_node_at(r->before, a), *y = fb_node_at(r->after, b);
    return !fb_rearrange_at(r->before, a, &view) || match_values(r, x->args, y->args, same_recorded_sizes, r);
}

/* A view of what changed hangs with it: a rewrite may move what it computes from one side of the view to the other. */
static bool views_changed(const fb_graph *graph, fb_node node, const unsigned char *changed) {
    fb_rearrange view;
    bool reads_it = false;
    for (uint32_t e = fb_input_first(graph, node); e && !reads_it; e = fb_input_next(graph, e))
        reads_it = changed[fb_edge_input(graph, e).id];
    return reads_it && fb_rearrange_at(graph, node, &view) && changed[view.input.id];
}

/* Modules and tensors by the diff: what computes otherwise with the same call. */
typedef struct changed_rows {
    unsigned char *modules_before, *modules_after; /* by module */
    unsigned char *tensors_before, *tensors_after; /* by tensor */
} changed_rows;

static void mark_rows(const fb_regions *r, const fb_diff *diff, changed_rows *rows) {
    for (size_t i = 0; i < diff->count && fb_work_goes_on(r->work, STEPS_OF_A_NODE); i++) {
        const fb_edit *edit = &diff->edits[i];
        if (edit->kind == FB_EDIT_MOVE) continue;
        if (edit->table == FB_MODULE_TABLE) {
            rows->modules_before[fb_module_find(r->before, edit->name).id] = true;
            rows->modules_after[fb_module_find(r->after, edit->name).id] = true;
        } else if (edit->table == FB_TENSOR_TABLE) {
            rows->tensors_before[fb_tensor_find(r->before, edit->name).id] = true;
            rows->tensors_after[fb_tensor_find(r->after, edit->name).id] = true;
        }
    }
}

/* A tensor made from one that changed has changed; recipes may be chained. */
typedef struct tensor_look {
    const unsigned char *tensors;
    bool found;
} tensor_look;

static void look_at_tensor(void *context, fb_tensor tensor) {
    tensor_look *look = context;
    look->found |= look->tensors[tensor.id] != 0;
}

typedef struct spreading {
    const fb_graph *graph;
    unsigned char *tensors;
    fb_work *work;
} spreading;

static void spread_to(void *context, fb_tensor tensor) {
    spreading *s = context;
    fb_value recipe = fb_tensor_at(s->graph, tensor)->recipe;
    tensor_look look = {s->tensors, false};
    if (recipe.id && fb_work_goes_on(s->work, STEPS_OF_A_NODE)) fb_value_visit_tensors(s->graph, recipe, look_at_tensor, &look);
    s->tensors[tensor.id] |= look.found;
}

static bool spread_over_recipes(const fb_graph *graph, unsigned char *tensors, fb_work *work) {
    fb_inputs_walk walk;
    spreading s = {graph, tensors, work};
    if (fb_inputs_begin(&walk, graph))
        for (fb_tensor tensor = fb_first_tensor(graph); tensor.id && fb_work_goes_on(work, STEPS_OF_A_NODE);
             tensor = fb_tensor_at(graph, tensor)->next)
            fb_inputs_visit(&walk, tensor, spread_to, &s);
    return fb_inputs_end(&walk);
}

static bool reads_changed(const fb_graph *graph, fb_node node, const unsigned char *modules, const unsigned char *tensors) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode != FB_CALL_MODULE && row->opcode != FB_GET_ATTR) return false;
    const fb_module_row *module = fb_module_at(graph, row->module);
    tensor_look look = {tensors, false};
    if (row->opcode == FB_GET_ATTR) {
        fb_tensor tensor =
            row->attribute.id ? fb_module_tensor(graph, row->module, fb_text(graph, row->attribute)) : (fb_tensor){0};
        return tensor.id ? tensors[tensor.id] : modules[row->module.id];
    }
    fb_value_visit_tensors(graph, module->parameters, look_at_tensor, &look);
    fb_value_visit_tensors(graph, module->buffers, look_at_tensor, &look);
    if (!fb_node_op(graph, node)) fb_visit_parametrized(graph, node, look_at_tensor, &look);
    return look.found || modules[row->module.id];
}

/* get_attr of a tensor by another name that is the same row changes nothing: the attribute's tensor is what is asked. */
static bool same_attribute(const fb_regions *r, fb_node a, fb_node b) {
    const fb_node_row *x = fb_node_at(r->before, a), *y = fb_node_at(r->after, b);
    if (x->opcode != FB_GET_ATTR || !x->attribute.id || !y->attribute.id) return true;
    fb_tensor of_a = fb_module_tensor(r->before, x->module, fb_text(r->before, x->attribute));
    fb_tensor of_b = fb_module_tensor(r->after, y->module, fb_text(r->after, y->attribute));
    return !of_a.id == !of_b.id && (!of_a.id || strcmp(fb_tensor_name(r->before, of_a), fb_tensor_name(r->after, of_b)) == 0);
}

static fb_status find_changed(fb_regions *r, fb_error *error) {
    fb_diff diff;
    fb_status status = fb_diff_make(r->before, r->after, r->work, &diff, error);
    if (status) return status;
    changed_rows rows = {calloc(fb_module_limit(r->before) + 1, 1), calloc(fb_module_limit(r->after) + 1, 1),
                         calloc(fb_tensor_limit(r->before) + 1, 1), calloc(fb_tensor_limit(r->after) + 1, 1)};
    if (!rows.modules_before || !rows.modules_after || !rows.tensors_before || !rows.tensors_after) {
        status = fb_fail_memory(error);
    } else {
        mark_rows(r, &diff, &rows);
        rows.modules_before[0] = rows.modules_after[0] = rows.tensors_before[0] = rows.tensors_after[0] = false;
        bool is_complete = spread_over_recipes(r->before, rows.tensors_before, r->work);
        is_complete &= spread_over_recipes(r->after, rows.tensors_after, r->work);
        if (!is_complete) status = fb_fail_memory(error);
        for (fb_node node = first(r, r->before); node.id; node = next(r, r->before, node)) {
            fb_node twin = r->twin_of_before[node.id];
            if (!twin.id) continue;
            bool is_same = same_call(r, node, twin) && same_marks(r, node, twin) && same_weights(r, node, twin) &&
                           same_sizes_viewed(r, node, twin) && same_attribute(r, node, twin) &&
                           !views_changed(r->before, node, r->changed_before) &&
                           !views_changed(r->after, twin, r->changed_after) &&
                           !r->changed_before[fb_call_of_value(r->before, node).id] &&
                           !reads_changed(r->before, node, rows.modules_before, rows.tensors_before) &&
                           !reads_changed(r->after, twin, rows.modules_after, rows.tensors_after);
            r->changed_before[node.id] = r->changed_after[twin.id] = !is_same;
        }
    }
    free(rows.modules_before);
    free(rows.modules_after);
    free(rows.tensors_before);
    free(rows.tensors_after);
    fb_diff_free(&diff);
    return status;
}

/* ---- equal calls --------------------------------------------------------------------------------------------------------- */

/* A node that reads another one than before, which is the same call: one of two that computed the same was left out. Then the
 * one that is left is computed as well, not given, and what both read in turn. Each pair of calls is looked at once. */
typedef struct equal_calls {
    fb_regions *regions;
    fb_map seen;
    fb_buffer to_do; /* fb_region_pair */
} equal_calls;

static bool note_equal(void *context, fb_node before, fb_node after) {
    equal_calls *e = context;
    uint64_t key = (uint64_t)before.id << 32 | after.id;
    if (e->regions->twin_of_before[before.id].id == after.id || fb_map_get(&e->seen, key)) return true;
    if (!fb_map_put(&e->seen, key, 1)) e->to_do.failed = true;
    if (same_call(e->regions, before, after))
        fb_buffer_append(&e->to_do, &(fb_region_pair){before, after, false}, sizeof(fb_region_pair));
    return true;
}

static void note_arguments(equal_calls *e, fb_node before, fb_node after) {
    const fb_node_row *x = fb_node_at(e->regions->before, before), *y = fb_node_at(e->regions->after, after);
    match_values(e->regions, x->args, y->args, note_equal, e);
    match_values(e->regions, x->kwargs, y->kwargs, note_equal, e);
}

static void draw_in(fb_regions *r, fb_node before, fb_node after) {
    r->changed_before[before.id] = r->changed_after[r->twin_of_before[before.id].id] = true;
    r->changed_after[after.id] = r->changed_before[r->twin_of_after[after.id].id] = true;
}

static bool draw_in_equal_calls(fb_regions *r) {
    equal_calls e = {.regions = r};
    for (fb_node node = first(r, r->before); node.id; node = next(r, r->before, node)) {
        fb_node twin = r->twin_of_before[node.id];
        if (twin.id && !r->changed_before[node.id]) note_arguments(&e, node, twin);
    }
    while (e.to_do.size && !e.to_do.failed && fb_work_goes_on(r->work, STEPS_OF_A_NODE)) {
        fb_region_pair pair;
        e.to_do.size -= sizeof pair;
        memcpy(&pair, e.to_do.data + e.to_do.size, sizeof pair);
        draw_in(r, pair.before, pair.after);
        note_arguments(&e, pair.before, pair.after);
    }
    bool is_complete = !e.to_do.failed;
    fb_map_free(&e.seen);
    fb_buffer_free(&e.to_do);
    return is_complete;
}

/* ---- pairs, and what they need ------------------------------------------------------------------------------------------- */

/* A node of both graphs, of which what it reads is looked at. */
typedef struct reading {
    fb_regions *regions;
    fb_node reader;
} reading;

static void note_reading(uint32_t *first, const fb_graph *graph, fb_node reader, fb_node of) {
    uint32_t ordinal = fb_node_at(graph, reader)->ordinal;
    if (!first[of.id] || ordinal < first[of.id]) first[of.id] = ordinal;
}

static bool note_pair(const reading *at, fb_region_pair pair) {
    fb_regions *r = at->regions;
    bool are_twins = r->twin_of_before[pair.before.id].id == pair.after.id;
    if (are_twins && !r->changed_before[pair.before.id]) return true;
    fb_buffer_append(&r->pairs, &pair, sizeof pair);
    note_reading(r->read_before, r->before, at->reader, pair.before);
    note_reading(r->read_after, r->after, r->twin_of_before[at->reader.id], pair.after);
    return true;
}

/* By shape and dtype alone, as they are recorded, where the reader asks for no more. */
static bool add_pair(void *context, fb_node before, fb_node after) {
    const reading *at = context;
    fb_regions *r = at->regions;
    if (!fb_reads_type_only_of(r->before, at->reader, before)) return note_pair(at, (fb_region_pair){before, after, false});
    const fb_node_row *x = fb_node_at(r->before, before), *y = fb_node_at(r->after, after);
    bool are_equal = !r->doubts_shapes && x->dtype && x->dtype == y->dtype && x->shape.id && y->shape.id &&
                     match_values(r, x->shape, y->shape, NULL, NULL);
    return are_equal || note_pair(at, (fb_region_pair){before, after, true});
}

static void find_pairs(fb_regions *r) {
    for (fb_node node = first(r, r->before); node.id; node = next(r, r->before, node)) {
        fb_node twin = r->twin_of_before[node.id];
        if (!twin.id || r->changed_before[node.id] || fb_asserts_type_only(r->before, node)) continue;
        const fb_node_row *x = fb_node_at(r->before, node), *y = fb_node_at(r->after, twin);
        reading at = {r, node};
        match_values(r, x->args, y->args, add_pair, &at);
        match_values(r, x->kwargs, y->kwargs, add_pair, &at);
    }
}

/* For each node of both graphs, what is true in one is true in the other. */
static void unite(const fb_regions *r, unsigned char *before, unsigned char *after) {
    for (fb_node node = first(r, r->before); node.id; node = next(r, r->before, node)) {
        fb_node twin = r->twin_of_before[node.id];
        if (twin.id) before[node.id] = after[twin.id] = before[node.id] | after[twin.id];
    }
}

/* Marks a value that is determined in one graph as determined in the other: a value is given in both, or in neither. */
static bool find_determined_in_both(fb_regions *r) {
    if (!find_determined(r->before, r->determined_before, r->work)) return false;
    if (!find_determined(r->after, r->determined_after, r->work)) return false;
    unite(r, r->determined_before, r->determined_after);
    return true;
}

typedef struct demand {
    fb_regions *regions;
    const fb_graph *graph;
    const unsigned char *changed, *determined;
    unsigned char *computed;
    uint32_t first_slot;  /* of this graph's nodes in the union-find */
    unsigned char *given; /* by node: needed, and given; or NULL */
    fb_buffer to_do;      /* fb_node */
} demand;

/* A value that both graphs have alike is given when its shape and dtype are recorded in both; what is not a tensor is computed,
 * and weights are fixed, however they are read: by get_attr here, by a module's call or through a recipe there. */
static bool is_given(const demand *d, fb_node node) {
    const fb_graph *graph = d->graph;
    fb_shape_result type;
    if (d->changed[node.id] || d->determined[node.id]) return false;
    if (fb_node_at(graph, node)->opcode == FB_PLACEHOLDER) return true;
    if (fb_node_at(graph, node)->opcode == FB_GET_ATTR) return false;
    return fb_recorded_shape(graph, node, &type) && type.rank >= 0 && type.dtype;
}

static void need(demand *d, fb_node node) {
    if (d->computed[node.id]) return;
    if (is_given(d, node)) {
        if (d->given) d->given[node.id] = true;
        return;
    }
    d->computed[node.id] = true;
    fb_buffer_append(&d->to_do, &node, sizeof node);
}

/* Backwards from the nodes that pairs name; nodes that are changed and hang together are one region. */
static bool spread_demand(demand *d) {
    fb_work *work = d->regions->work;
    while (d->to_do.size && !d->to_do.failed && fb_work_goes_on(work, STEPS_OF_A_NODE)) {
        fb_node node;
        d->to_do.size -= sizeof node;
        memcpy(&node, d->to_do.data + d->to_do.size, sizeof node);
        for (uint32_t e = fb_input_first(d->graph, node); e && fb_work_goes_on(work, 4); e = fb_input_next(d->graph, e)) {
            fb_node input = fb_edge_input(d->graph, e);
            need(d, input);
            if (d->changed[node.id] && d->changed[input.id])
                join(d->regions, d->first_slot + node.id, d->first_slot + input.id);
        }
    }
    bool is_complete = !d->to_do.failed;
    fb_buffer_free(&d->to_do);
    return is_complete;
}

/* Marks changed nodes that write into the memory of a computed value as computed: their result need not be read. */
static bool mark_memories(const demand *d, const fb_alias *alias, bool *is_computed) {
    bool is_any = false;
    for (fb_node node = first(d->regions, d->graph); node.id; node = next(d->regions, d->graph, node)) {
        is_computed[fb_memory_of(alias, node)] |= d->computed[node.id];
        is_any |= d->computed[node.id];
    }
    return is_any;
}

static bool is_writer(const demand *d, fb_node node) {
    return d->changed[node.id] && !d->computed[node.id] && fb_op_effects(d->graph, node).mutates_input;
}

static bool need_writers_of(demand *d, const fb_alias *alias, bool *is_computed) {
    bool is_any = true, is_complete = true;
    while (is_any && is_complete && mark_memories(d, alias, is_computed)) {
        is_any = false;
        for (fb_node node = first(d->regions, d->graph); node.id; node = next(d->regions, d->graph, node)) {
            fb_value written = is_writer(d, node) ? fb_first_argument(d->graph, node) : (fb_value){0};
            fb_node input = written.id ? fb_value_node(d->graph, written) : (fb_node){0};
            if (!input.id || !is_computed[fb_memory_of(alias, input)]) continue;
            need(d, node);
            is_any = true;
        }
        if (is_any) is_complete = spread_demand(d);
    }
    return is_complete;
}

static bool need_writers(demand *d) {
    bool is_any = false;
    for (fb_node node = first(d->regions, d->graph); node.id && !is_any; node = next(d->regions, d->graph, node))
        is_any = is_writer(d, node);
    if (!is_any) return true;
    fb_usage *usage = fb_usage_new(d->graph);
    fb_alias *alias = usage ? fb_alias_new(d->graph, usage, d->regions->work) : NULL;
    bool *is_computed = alias ? calloc(fb_memory_limit(alias), sizeof *is_computed) : NULL;
    bool is_complete = is_computed && need_writers_of(d, alias, is_computed);
    free(is_computed);
    fb_alias_free(alias);
    fb_usage_free(usage);
    return is_complete;
}

/* Marks the calls that open levels of torch.vmap where a batch's element is computed: the levels are a state, not a value that
 * is read. */
static bool need_levels(demand *d) {
    bool is_any = false;
    for (fb_node node = first(d->regions, d->graph); node.id && !is_any; node = next(d->regions, d->graph, node)) {
        fb_op op = fb_node_op(d->graph, node);
        is_any = d->computed[node.id] && (op == FB_OP_ADD_BATCH_DIM || op == FB_OP_REMOVE_BATCH_DIM);
    }
    if (!is_any) return true;
    for (fb_node node = first(d->regions, d->graph); node.id; node = next(d->regions, d->graph, node))
        if (fb_op_facts_of(fb_node_op(d->graph, node))->flags & FB_FACT_VMAP_LEVEL) need(d, node);
    return spread_demand(d);
}

/* Finds the nodes that the pairs with is_wanted (NULL: all) need. */
static bool find_computed(fb_regions *r, const bool *is_wanted) {
    const fb_region_pair *pairs = (const fb_region_pair *)(const void *)r->pairs.data;
    demand before = {r, r->before, r->changed_before, r->determined_before, r->computed_before, 0, NULL, {0}};
    demand after = {r, r->after, r->changed_after, r->determined_after, r->computed_after, fb_node_limit(r->before), NULL, {0}};
    for (size_t i = 0; i < r->pairs.size / sizeof *pairs && fb_work_goes_on(r->work, STEPS_OF_A_NODE); i++) {
        if (is_wanted && !is_wanted[i]) continue;
        need(&before, pairs[i].before);
        need(&after, pairs[i].after);
    }
    bool is_complete = spread_demand(&before);
    is_complete &= spread_demand(&after);
    return is_complete && need_writers(&before) && need_writers(&after) && need_levels(&before) && need_levels(&after);
}

static fb_status find_needed(fb_regions *r, fb_error *error) {
    const fb_region_pair *pairs = (const fb_region_pair *)(const void *)r->pairs.data;
    if (!find_computed(r, NULL)) return fb_work_failed(r->work, error);
    for (fb_node node = first(r, r->before); node.id; node = next(r, r->before, node))
        if (r->twin_of_before[node.id].id && r->changed_before[node.id])
            join(r, slot_before(node), slot_after(r, r->twin_of_before[node.id]));
    for (size_t i = 0; i < r->pairs.size / sizeof *pairs && fb_work_goes_on(r->work, STEPS_OF_A_NODE); i++)
        if (r->changed_before[pairs[i].before.id] && r->changed_after[pairs[i].after.id])
            join(r, slot_before(pairs[i].before), slot_after(r, pairs[i].after));
    return FB_OK;
}

static void compute_nothing(fb_regions *r) {
    memset(r->computed_before, 0, fb_node_limit(r->before));
    memset(r->computed_after, 0, fb_node_limit(r->after));
}

fb_status fb_regions_compute(fb_regions *r, const bool *is_wanted, fb_error *error) {
    compute_nothing(r);
    return find_computed(r, is_wanted) ? fb_work_status(r->work, error) : fb_work_failed(r->work, error);
}

fb_status fb_regions_find(const fb_graph *before, const fb_graph *after, fb_work *work, bool doubts_shapes, fb_regions *out,
                          fb_error *error) {
    uint32_t of_before = fb_node_limit(before), of_after = fb_node_limit(after);
    *out = (fb_regions){.before = before, .after = after, .work = work, .doubts_shapes = doubts_shapes};
    out->twin_of_before = calloc(of_before, sizeof(fb_node));
    out->twin_of_after = calloc(of_after, sizeof(fb_node));
    out->changed_before = calloc(of_before, 1);
    out->changed_after = calloc(of_after, 1);
    out->determined_before = calloc(of_before, 1);
    out->determined_after = calloc(of_after, 1);
    out->computed_before = calloc(of_before, 1);
    out->computed_after = calloc(of_after, 1);
    out->read_before = calloc(of_before, sizeof *out->read_before);
    out->read_after = calloc(of_after, sizeof *out->read_after);
    out->parents = calloc((size_t)of_before + of_after, sizeof *out->parents);
    if (!out->read_before || !out->read_after || !out->twin_of_before || !out->twin_of_after || !out->changed_before ||
        !out->changed_after || !out->determined_before || !out->determined_after || !out->computed_before ||
        !out->computed_after || !out->parents)
        return fb_fail_memory(error);
    for (uint32_t i = 0; i < of_before + of_after; i++) out->parents[i] = i;
    pair_nodes(out);
    fb_status status = find_changed(out, error);
    if (status) return status;
    if (!draw_in_equal_calls(out) || !find_determined_in_both(out)) return fb_work_failed(work, error);
    find_pairs(out);
    if (out->pairs.failed) return fb_fail_memory(error);
    status = find_needed(out, error);
    return status ? status : fb_work_status(work, error); /* stopped: what was found is not everything */
}

/* ---- given values that depend on each other ----------------------------------------------------------------------------- */

/* The given values that the doubted pairs need in one of the graphs, by node. NULL: no memory, or the work is stopped. */
static unsigned char *given_of(fb_regions *r, const bool *is_doubted, bool of_after) {
    const fb_region_pair *pairs = (const fb_region_pair *)(const void *)r->pairs.data;
    const fb_graph *graph = of_after ? r->after : r->before;
    demand d = {r,
                graph,
                of_after ? r->changed_after : r->changed_before,
                of_after ? r->determined_after : r->determined_before,
                calloc(fb_node_limit(graph), 1),
                of_after ? fb_node_limit(r->before) : 0,
                calloc(fb_node_limit(graph), 1),
                {0}};
    bool is_complete = d.computed && d.given;
    for (size_t i = 0; i < r->pairs.size / sizeof *pairs && is_complete && fb_work_goes_on(r->work, STEPS_OF_A_NODE); i++)
        if (is_doubted[i]) need(&d, of_after ? pairs[i].after : pairs[i].before);
    is_complete = is_complete && spread_demand(&d) && !r->work->stopped.status;
    free(d.computed);
    if (is_complete) return d.given;
    free(d.given);
    return NULL;
}

/* Marks as determined what is computed from a given value and leads to one, that one included. False: no memory. */
static bool determine_between(const fb_regions *r, const fb_graph *graph, const unsigned char *given, unsigned char *determined,
                              bool *has_changed) {
    unsigned char *follows = calloc(fb_node_limit(graph), 1), *leads = calloc(fb_node_limit(graph), 1);
    fb_node last = {0};
    for (fb_node node = first(r, graph); node.id && follows && leads; node = next(r, graph, node)) {
        for (uint32_t e = fb_input_first(graph, node); e; e = fb_input_next(graph, e)) {
            uint32_t input = fb_edge_input(graph, e).id;
            follows[node.id] |= given[input] | follows[input];
        }
        last = node;
    }
    for (fb_node node = last; node.id && fb_work_goes_on(r->work, STEPS_OF_A_NODE); node = fb_node_at(graph, node)->previous) {
        if (!follows[node.id] || !(given[node.id] | leads[node.id])) continue;
        *has_changed |= !determined[node.id];
        determined[node.id] = true;
        for (uint32_t e = fb_input_first(graph, node); e; e = fb_input_next(graph, e)) leads[fb_edge_input(graph, e).id] = true;
    }
    bool has_memory = follows && leads;
    free(follows);
    free(leads);
    return has_memory;
}

fb_status fb_regions_relate(fb_regions *r, const bool *is_doubted, bool *has_changed, fb_error *error) {
    *has_changed = false;
    unsigned char *before = given_of(r, is_doubted, false), *after = given_of(r, is_doubted, true);
    bool is_complete = before && after;
    if (is_complete) {
        unite(r, before, after);
        is_complete = determine_between(r, r->before, before, r->determined_before, has_changed) &&
                      determine_between(r, r->after, after, r->determined_after, has_changed);
        unite(r, r->determined_before, r->determined_after);
    }
    free(before);
    free(after);
    if (!is_complete) return fb_work_failed(r->work, error);
    compute_nothing(r);
    for (uint32_t i = 0; i < fb_node_limit(r->before) + fb_node_limit(r->after); i++) r->parents[i] = i;
    fb_status status = find_needed(r, error);
    return status ? status : fb_work_status(r->work, error);
}

void fb_regions_free(fb_regions *regions) {
    free(regions->twin_of_before);
    free(regions->twin_of_after);
    free(regions->changed_before);
    free(regions->changed_after);
    free(regions->determined_before);
    free(regions->determined_after);
    free(regions->computed_before);
    free(regions->computed_after);
    free(regions->read_before);
    free(regions->read_after);
    free(regions->parents);
    fb_buffer_free(&regions->pairs);
    *regions = (fb_regions){0};
}
