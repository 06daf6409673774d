/* The search for constants: forwards, what depends on weights only; backwards, where that ends. */
#include "core/passes/constant_search.h"

#include <stdlib.h>

#include "core/passes/constant_needs.h"
#include "core/passes/effect.h"
#include "core/passes/layer.h"
#include "core/weights/recipe.h"

enum { RECIPE_SIZE_MAX = 200 }; /* operations and tensors in one recipe; as a tree, for so it is written */

typedef struct search {
    fb_matcher *m;
    const fb_graph *graph;
    const fb_alias *alias;
    fb_constant_finding *found; /* by node */
    const char **seen;          /* by memory: why no constant may lie there, or NULL */
    fb_tensor_needs needs;
    fb_constants constants; /* of a copy of the graph, in which recipes can be tried */
    int64_t maximum_growth;
} search;

/* ---- what is seen from outside ------------------------------------------------------------------------------------------- */

static void see_inputs(search *s, fb_node node, const char *reason) {
    for (uint32_t e = fb_input_first(s->graph, node); e; e = fb_input_next(s->graph, e))
        s->seen[fb_memory_of(s->alias, fb_edge_input(s->graph, e))] = reason;
}

static void find_seen(search *s) {
    for (fb_node n = fb_first_node(s->graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(s->graph, n)) {
        if (fb_op_facts_of(fb_node_op(s->graph, n))->flags & FB_FACT_READS_LAYOUT) see_inputs(s, n, "layout-read");
        if (fb_node_at(s->graph, n)->opcode == FB_OUTPUT) see_inputs(s, n, "graph-output");
    }
}

static const char *seen_detail(const char *reason) {
    return strcmp(reason, "graph-output") == 0 ? "it is an output of the graph, which the caller may write into"
                                               : "its strides are asked for, and a weight has others";
}

/* ---- forwards ------------------------------------------------------------------------------------------------------------ */

static void refuse(search *s, fb_node node, const char *reason, const char *detail) {
    s->found[node.id] = (fb_constant_finding){.constancy = FB_REFUSED, .reason = reason, .detail = detail};
}

static void measure(const fb_graph *g, fb_value recipe, int *left) {
    const fb_value_row *row = fb_value_at(g, recipe);
    (*left)--;
    if (row->kind != FB_EXPRESSION) return;
    const fb_value_row *args = fb_value_at(g, row->items[0]);
    for (uint32_t i = 0; i < args->count && *left >= 0; i++) measure(g, args->items[i], left);
}

static bool is_small(search *s, fb_value recipe) {
    int left = RECIPE_SIZE_MAX;
    measure(fb_rewrite_graph(s->constants.rewrite), recipe, &left);
    return left >= 0;
}

/* Does it read something, and nothing but what is constant? */
static bool reads_constants_only(search *s, fb_node node) {
    uint32_t edge = fb_input_first(s->graph, node);
    bool is_any = edge != 0;
    for (; edge; edge = fb_input_next(s->graph, edge)) {
        uint8_t input = s->found[fb_edge_input(s->graph, edge).id].constancy;
        if (input != FB_WEIGHT && input != FB_INSIDE) return false;
    }
    return is_any;
}

/* Why a weight that it reads must stay as it is. */
static const char *reads_obstacle(search *s, fb_node node) {
    const char *reason = NULL;
    for (uint32_t e = fb_input_first(s->graph, node); e && !reason; e = fb_input_next(s->graph, e)) {
        fb_node input = fb_edge_input(s->graph, e);
        if (s->found[input.id].constancy == FB_WEIGHT) reason = fb_read_obstacle(s->m, input);
    }
    return reason;
}

static void look_at_call(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    const char *detail, *obstacle, *seen = s->seen[fb_memory_of(s->alias, node)];
    fb_value recipe;
    if (!reads_constants_only(s, node) || fb_numberhood_of(g, node) == FB_A_NUMBER) return;
    fb_effects effects = fb_op_effects(g, node);
    if (effects.has_effect && !effects.is_unknown) return; /* an assertion */
    if ((obstacle = fb_effect_obstacle(g, node, &detail))) {
        refuse(s, node, obstacle, detail);
    } else if ((obstacle = reads_obstacle(s, node))) {
        refuse(s, node, obstacle, fb_obstacle_detail(obstacle));
    } else if (fb_is_mutated(s->alias, node)) {
        refuse(s, node, "tensor-mutated", "what it gives is written in place, or shares memory with what is");
    } else if (seen) {
        refuse(s, node, seen, seen_detail(seen));
    } else if (!fb_node_at(g, node)->dtype && fb_mode_switched_between(s->alias, 0, fb_node_at(g, node)->ordinal)) {
        refuse(s, node, "mode-switched", "a mode is switched before it, so its dtype, which is not recorded, is not certain");
    } else if (!fb_constant_recipe(&s->constants, node, &recipe)) {
        refuse(s, node, s->constants.reason, s->constants.detail);
    } else if (!is_small(s, recipe)) {
        refuse(s, node, "too-complex", "its recipe would be too long");
    } else {
        s->found[node.id].constancy = FB_INSIDE;
    }
}

static void look_forwards(search *s) {
    fb_value recipe;
    for (fb_node n = fb_first_node(s->graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(s->graph, n)) {
        const fb_node_row *row = fb_node_at(s->graph, n);
        bool is_read = row->opcode == FB_GET_ATTR && row->module.id && row->attribute.id;
        if (is_read && (fb_is_crowded(s->m, n) || fb_constant_recipe(&s->constants, n, &recipe)))
            s->found[n.id].constancy = FB_WEIGHT;
        if (row->opcode >= FB_CALL_MODULE && row->opcode <= FB_CALL_METHOD) look_at_call(s, n);
    }
}

/* ---- backwards ----------------------------------------------------------------------------------------------------------- */

static bool is_read_by_others(const search *s, fb_node node) {
    for (uint32_t e = fb_user_first(s->graph, node); e; e = fb_user_next(s->graph, e)) {
        uint8_t user = s->found[fb_edge_user(s->graph, e).id].constancy;
        if (user != FB_INSIDE && user != FB_FOLDED) return true;
    }
    return false;
}

static bool grows_too_much(search *s, fb_node node, fb_value recipe) {
    const fb_graph *trial = fb_rewrite_graph(s->constants.rewrite);
    fb_value shape = fb_node_at(trial, node)->shape;
    return fb_element_count(trial, shape) - fb_elements_freed(&s->needs, trial, node, recipe) > s->maximum_growth;
}

static void look_backwards(search *s) {
    for (fb_node n = fb_last_node(s->graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(s->graph, n)->previous) {
        fb_constant_finding *finding = &s->found[n.id];
        fb_value recipe = {fb_map_get(&s->constants.recipes, n.id)};
        if (finding->constancy != FB_INSIDE || (fb_node_at(s->graph, n)->user_count && !is_read_by_others(s, n))) continue;
        bool is_itself = fb_value_kind(fb_rewrite_graph(s->constants.rewrite), recipe) == FB_TENSOR; /* a weight as it is */
        if (!fb_node_at(s->graph, n)->user_count || is_itself) finding->constancy = FB_VARIES;
        else if (grows_too_much(s, n, recipe)) refuse(s, n, "too-large", "as a weight it would take more memory than allowed");
        else finding->constancy = FB_FOLDED;
    }
}

/* ---- all together -------------------------------------------------------------------------------------------------------- */

static bool run(search *s, const char *signature) {
    s->constants.rewrite = fb_rewrite_begin_trial(s->graph, signature);
    if (!s->constants.rewrite) return false;
    find_seen(s);
    look_forwards(s);
    look_backwards(s);
    bool ok = !fb_graph_out_of_memory(fb_rewrite_graph(s->constants.rewrite)) && !s->constants.is_out_of_memory;
    fb_rewrite_abort(s->constants.rewrite);
    fb_map_free(&s->constants.recipes);
    return ok;
}

static bool search_whole(search *s) {
    s->alias = fb_matcher_alias(s->m);
    s->seen = s->alias ? calloc(fb_memory_limit(s->alias), sizeof *s->seen) : NULL;
    bool ok = s->seen && fb_find_tensor_needs(s->m, &s->needs) && run(s, s->m->signature);
    free(s->seen);
    fb_tensor_needs_free(&s->needs);
    return ok;
}

static bool reads_attributes_only(const fb_graph *g, fb_node node) {
    uint32_t edge = fb_input_first(g, node);
    bool is_any = edge != 0;
    while (edge && fb_node_at(g, fb_edge_input(g, edge))->opcode == FB_GET_ATTR) edge = fb_input_next(g, edge);
    return is_any && !edge;
}

/* Every constant begins with a call that reads nothing but what get_attr nodes give. Most graphs have none, and need no copy.
 */
static bool may_have_constants(const fb_graph *g) {
    bool is_found = false;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && !is_found; n = fb_next_node(g, n)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
        is_found = opcode >= FB_CALL_MODULE && opcode <= FB_CALL_METHOD && reads_attributes_only(g, n);
    }
    return is_found;
}

fb_constant_finding *fb_find_constants(fb_matcher *m, int64_t maximum_growth) {
    search s = {.m = m, .graph = m->graph, .maximum_growth = maximum_growth};
    s.found = calloc((size_t)fb_node_limit(m->graph) + 1, sizeof *s.found);
    if (s.found && (!may_have_constants(m->graph) || search_whole(&s))) return s.found;
    free(s.found);
    m->failed = true;
    return NULL;
}
