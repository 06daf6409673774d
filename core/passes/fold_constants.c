/* FoldConstants: replaces what depends on weights only with a weight.
 *
 *     A ── matmul ── * s ── + ── linear(x, ·)          W' = W + s·B·A ── linear(x, ·)
 *     B ──┘                W ┘
 *
 * Turns arithmetic, views, slices and joins of what get_attr nodes read into the recipe of a new tensor. The recipe is computed
 * in float64 and rounded once. In half precision, this changes what overflowed on the way and was scaled back (w * 1e4 * 1e-4):
 * it was infinite, and becomes finite.
 *
 * The new tensor belongs to the module of the weight that it is made from; of several, the one with the same shape. A get_attr
 * node before the last folded node reads it. What only the folded nodes read is removed.
 *
 * Kept:
 *   - what is random, has effects, is written in place, or is an output of the graph or shares memory with one
 *   - integer arithmetic, which recipes do not have
 *   - computations on numbers that a cast has rounded
 *   - what would make the weights grow by more than `maximum_growth` elements: a view of a weight that others keep, an expanded
 *     weight
 *   - weights of a module that is called as a whole, or that very many nodes read
 *
 * Exactness: rounds. Not reversible.
 */
#include <stdlib.h>

#include "core/passes/constant.h"
#include "core/passes/layer.h"
#include "core/passes/pass.h"
#include "core/weights/recipe.h"

/* Who needs a tensor, to know what memory a constant would make free. */

typedef struct tensor_needs {
    const fb_graph *graph;
    uint32_t *needs;    /* by tensor: who owns it or reads it */
    fb_tensor *counted; /* by tensor: the last node that counted it, as an id */
    fb_node node;       /* the one at hand, and the elements that it makes free */
    int64_t freed;
} tensor_needs;

typedef enum constness {
    FB_VARIES = 0, /* it depends on an input, or on what is no weight */
    FB_WEIGHT,     /* a get_attr node that reads a weight */
    FB_INSIDE,     /* a call on weights only, whose readers are all of this or the next kind */
    FB_FOLDED,     /* the last one: what it gives becomes a weight */
    FB_REFUSED,    /* it looks constant, and must stay; so its readers vary */
} constness;

typedef struct constant_finding {
    uint8_t constancy;           /* constness */
    bool is_claimed;             /* for the pass: it is part of a match */
    const char *reason, *detail; /* why it is refused */
} constant_finding;

/* Nothing is made of the weights of a module that very many read; and to look each of them up takes as long as there are many.
 */
static bool is_crowded(fb_matcher *m, fb_node read) {
    const char *obstacle = fb_read_obstacle(m, read);
    return obstacle && strcmp(obstacle, "crowded-module") == 0;
}

static void count_owners(const fb_matcher *m, uint32_t *needs, fb_module module) {
    const fb_module_row *row = fb_module_at(m->graph, module);
    const fb_value maps[] = {row->parameters, row->buffers};
    bool is_kept = fb_module_op(m->graph, module) != FB_OP_UNKNOWN || fb_call_count(m->usage, module) ||
                   fb_module_is_inside_call(m->usage, module);
    for (size_t i = 0; i < 2; i++) {
        const fb_value_row *map = fb_value_at(m->graph, maps[i]);
        for (uint32_t k = 1; k < map->count; k += 2) {
            const fb_value_row *value = fb_value_at(m->graph, map->items[k]);
            if (value->kind == FB_TENSOR) needs[value->tensor.id] += is_kept ? 2 : 1;
        }
    }
}

static void count_reads(fb_matcher *m, uint32_t *needs, fb_program program) {
    for (fb_node n = fb_first_node(m->graph, program); n.id; n = fb_next_node(m->graph, n)) {
        const fb_node_row *row = fb_node_at(m->graph, n);
        if (row->opcode != FB_GET_ATTR || !row->module.id || !row->attribute.id || is_crowded(m, n)) continue;
        fb_tensor tensor = fb_module_tensor(m->graph, row->module, fb_text(m->graph, row->attribute));
        needs[tensor.id] += row->user_count;
    }
}

/* False when memory is out; freed in any case. */
static bool find_tensor_needs(fb_matcher *m, tensor_needs *out) {
    const fb_graph *g = m->graph;
    size_t limit = (size_t)fb_tensor_limit(g) + 1;
    *out =
        (tensor_needs){.graph = g, .needs = calloc(limit, sizeof *out->needs), .counted = calloc(limit, sizeof *out->counted)};
    if (!out->needs || !out->counted) return false;
    for (fb_module module = fb_first_module(g); module.id; module = fb_module_at(g, module)->next)
        count_owners(m, out->needs, module);
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(g); p++) count_reads(m, out->needs, (fb_program){p});
    return true;
}

static void tensor_needs_free(tensor_needs *needs) {
    free(needs->needs);
    free(needs->counted);
}

/* INT64_MAX when a size is not known, or they cannot be counted. */
static int64_t element_count(const fb_graph *g, fb_value shape) {
    int64_t count = 1;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) {
        int64_t size = fb_shape_size(g, shape, i);
        if (size < 0 || __builtin_mul_overflow(count, size, &count)) return INT64_MAX;
    }
    return count;
}

/* A tensor that one attribute owns and one node reads is gone when that node is. */
static void count_freed(void *context, fb_tensor tensor) {
    tensor_needs *needs = context;
    if (needs->needs[tensor.id] != 2 || needs->counted[tensor.id].id == needs->node.id) return;
    needs->counted[tensor.id].id = needs->node.id;
    needs->freed += element_count(needs->graph, fb_tensor_at(needs->graph, tensor)->shape);
}

/* Elements of the tensors in `recipe` (of the graph `trial`) that nobody but the node needs. */
static int64_t elements_freed(tensor_needs *needs, const fb_graph *trial, fb_node node, fb_value recipe) {
    needs->node = node;
    needs->freed = 0;
    fb_value_visit_tensors(trial, recipe, count_freed, needs);
    return needs->freed;
}

/* The search for constants: forwards, what depends on weights only; backwards, where that ends. */

enum { RECIPE_SIZE_MAX = 200 }; /* operations and tensors in one recipe; as a tree, for so it is written */

typedef struct search {
    fb_matcher *m;
    const fb_graph *graph;
    const fb_alias *alias;
    constant_finding *found; /* by node */
    const char **seen;       /* by memory: why no constant may lie there, or NULL */
    tensor_needs needs;
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
    s->found[node.id] = (constant_finding){.constancy = FB_REFUSED, .reason = reason, .detail = detail};
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
        if (is_read && (is_crowded(s->m, n) || fb_constant_recipe(&s->constants, n, &recipe)))
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
    return element_count(trial, shape) - elements_freed(&s->needs, trial, node, recipe) > s->maximum_growth;
}

static void look_backwards(search *s) {
    for (fb_node n = fb_last_node(s->graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(s->graph, n)->previous) {
        constant_finding *finding = &s->found[n.id];
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
    bool ok = s->seen && find_tensor_needs(s->m, &s->needs) && run(s, s->m->signature);
    free(s->seen);
    tensor_needs_free(&s->needs);
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

/* Findings by node id, malloc'ed; NULL when memory is out. `maximum_growth`: by how many elements a node's weight may be larger
 * than those that it is made from and that nobody else needs. */
static constant_finding *find_constants(fb_matcher *m, int64_t maximum_growth) {
    search s = {.m = m, .graph = m->graph, .maximum_growth = maximum_growth};
    s.found = calloc((size_t)fb_node_limit(m->graph) + 1, sizeof *s.found);
    if (s.found && (!may_have_constants(m->graph) || search_whole(&s))) return s.found;
    free(s.found);
    m->failed = true;
    return NULL;
}

#define DEFAULT_GROWTH 1048576

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* Appends what is folded on the way to `node`, inputs first. No deeper than a recipe is long. */
static void claim(const fb_graph *g, constant_finding *found, fb_node node, fb_buffer *nodes) {
    for (uint32_t e = fb_input_first(g, node); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        if (found[input.id].constancy != FB_INSIDE || found[input.id].is_claimed) continue;
        found[input.id].is_claimed = true;
        claim(g, found, input, nodes);
    }
    fb_buffer_append(nodes, &node, sizeof node);
}

static void report(fb_matcher *m, constant_finding *found) {
    const fb_graph *g = m->graph;
    fb_buffer nodes = {0};
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        if (found[n.id].constancy == FB_REFUSED) fb_refuse_node(m, found[n.id].reason, n, "%s", found[n.id].detail);
        if (found[n.id].constancy != FB_FOLDED) continue;
        nodes.size = 0;
        claim(g, found, n, &nodes);
        m->failed |= nodes.failed;
        if (!nodes.failed) fb_match_found(m, (const fb_node *)(const void *)nodes.data, nodes.size / sizeof n);
    }
    fb_buffer_free(&nodes);
}

static void match_graph(fb_matcher *m) {
    const json_t *growth = json_object_get(m->params, "maximum_growth");
    constant_finding *found = find_constants(m, growth ? json_integer_value(growth) : DEFAULT_GROWTH);
    if (found) report(m, found);
    free(found);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* The first weight on the way to `node` that has its shape; otherwise the first of all. */
static void find_source(const fb_graph *g, fb_node node, fb_value shape, fb_node *source) {
    if (fb_node_at(g, node)->opcode == FB_GET_ATTR) {
        bool fits = fb_node_at(g, node)->shape.id == shape.id;
        if (!source->id || (fits && fb_node_at(g, *source)->shape.id != shape.id)) *source = node;
        return;
    }
    for (uint32_t e = fb_input_first(g, node); e; e = fb_input_next(g, e)) find_source(g, fb_edge_input(g, e), shape, source);
}

typedef struct training {
    const fb_graph *graph;
    bool requires_grad;
} training;

static void look_at_tensor(void *context, fb_tensor tensor) {
    training *t = context;
    t->requires_grad |= fb_tensor_at(t->graph, tensor)->requires_grad;
}

/* A get_attr node before `node` that reads the new weight. */
static fb_node put_weight(fb_rewrite *rw, fb_node node, fb_value recipe) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node source = {0}, read = {0};
    fb_buffer name = {0};
    training trained = {.graph = g};
    find_source(g, node, fb_node_at(g, node)->shape, &source);
    fb_value_visit_tensors(g, recipe, look_at_tensor, &trained);
    fb_module owner = fb_node_at(g, source)->module;
    const char *attribute = fb_free_attribute(rw, owner, fb_text(g, fb_node_at(g, source)->attribute), &name);
    if (attribute) {
        fb_put_parameter(rw, owner, attribute, recipe, (fb_dtype)fb_node_at(g, node)->dtype, trained.requires_grad);
        read = fb_insert_read(rw, node, owner, attribute);
    }
    fb_buffer_free(&name);
    return read;
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_constants constants = {.rewrite = rw};
    fb_node last = match->nodes[match->count - 1];
    fb_value recipe;
    if (fb_constant_recipe(&constants, last, &recipe)) {
        fb_node read = put_weight(rw, last, recipe);
        for (size_t i = 0; i < match->count; i++) fb_release_reads(rw, match->nodes[i]);
        for (size_t i = 0; i + 1 < match->count; i++) fb_erase(rw, match->nodes[i]);
        if (read.id) fb_take_in(rw, last, read);
        if (read.id) fb_mark(rw, read);
    }
    if (constants.is_out_of_memory) fb_graph_fail_memory(fb_rewrite_graph(rw));
    fb_map_free(&constants.recipes);
}

const fb_pass fb_fold_constants = {
    .name = "FoldConstants",
    .version = 1,
    .summary = "Replaces what depends on weights only, such as `W + s * B @ A`, with a weight.",
    .parameters = "{\"additionalProperties\":false,\"properties\":{\"maximum_growth\":{\"default\":1048576,\"description\":"
                  "\"By how many elements a new weight may be larger than those that it is made from and that nothing else "
                  "reads. A view of a weight that others keep, or an expanded one, grows by all of it.\",\"minimum\":0,"
                  "\"type\":\"integer\"}},\"type\":\"object\"}",
    .exactness = FB_ROUNDS,
    .reversible = false,
    .preserves_computation = true,
    .match_graph = match_graph,
    .edit = edit,
};
