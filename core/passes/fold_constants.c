/* FoldConstants: replaces what depends on weights only with a weight.
 *
 *     A ── matmul ── * s ── + ── linear(x, ·)          W' = W + s·B·A ── linear(x, ·)
 *     B ──┘                W ┘
 *
 * Turns what is computed of what get_attr nodes read into the recipe of a new tensor: arithmetic, exp, sigmoid, relu, clamp,
 * Linears, LayerNorms, norms and weight norms, views, slices, joins, and what an index of integers takes out of a table, as
 * tables of relative positions are read. The recipe is computed in float64 and rounded once. In half precision, this changes
 * what overflowed on the way and was scaled back (w * 1e4 * 1e-4): it was infinite, and becomes finite.
 *
 * The new tensor belongs to the module of the weight that it is made from; of several, the one with the same shape. A get_attr
 * node before the last folded node reads it. What only the folded nodes read is removed. It is a parameter, or a
 * buffer where its numbers are integers or bools. Of an ONNX model the programs of If, Loop and Scan and its functions are
 * looked at as well, with the weights that they capture; what is made of those is the program's own.
 *
 * Kept:
 *   - what is random, has effects, is written in place but by its only reader, or is an output of the graph or shares memory
 *     with one
 *   - a transposed weight where something asks for the strides of what is computed from it: a weight is row-major
 *   - integer arithmetic, which recipes do not have
 *   - computations on numbers that a cast has rounded
 *   - what would make the weights grow by more than `maximum_growth` elements: a view of a weight that others keep, an expanded
 *     weight
 *   - weights of a module that is called as a whole, or that very many nodes read; of an ONNX model, whose root owns all, only
 *     where very many are folded
 *
 * Exactness: rounds. Not reversible.
 */
#include <stdlib.h>

#include "core/analysis/dialect.h"
#include "core/analysis/memory_layout.h"
#include "core/analysis/onnx.h"
#include "core/analysis/tensor_needs.h"
#include "core/pass/build.h"
#include "core/pass/call_recipe.h"
#include "core/pass/layer.h"
#include "core/pass/pass.h"

/* The search for constants: forwards, what depends on weights only; backwards, where that ends. */

enum {
    RECIPE_SIZE_MAX = 200, /* operations and tensors in one recipe; as a tree, for so it is written */
    COPIES_MAX = 1 << 21   /* attributes that are copied in all: each new one copies the list of its module's */
};

/* Marks of a node beside its lattice value. */
typedef struct mark {
    bool is_folded;  /* a constant, and the last one: what it gives becomes a weight */
    bool is_claimed; /* it is part of a match */
    bool is_candidate;
    bool is_turned; /* its axes may be in another order in memory than a weight's, which is row-major */
} mark;

typedef struct search {
    fb_matcher *m;
    const fb_graph *graph;
    const fb_alias *alias;
    fb_constants constants; /* its sources are weights */
    mark *marks;            /* by node */
    bool *is_shared;        /* by memory: when it is written, more sees that than the one chain of values up to the writing */
    fb_tensor_needs needs;
    fb_call_recipes recipes; /* of the graph, or of a copy in which they can record types */
    bool is_in_copy;
    fb_node *candidates; /* nodes that may be constant, in order */
    size_t candidate_count;
    int64_t maximum_growth;
} search;

/* ---- what is written ----------------------------------------------------------------------------------------------------- */

/* y = x @ w; z = y.t(); z.relu_(): what is computed is written once, by what alone reads it. Then it is as good as z.relu(). */
static void find_shared(search *s) {
    const fb_graph *g = s->graph;
    fb_node n = fb_any_is_mutated(s->alias) ? fb_first_node(g, FB_MAIN_PROGRAM) : (fb_node){0};
    for (; n.id; n = fb_next_node(g, n)) {
        const fb_node_row *row = fb_node_at(g, n);
        bool is_call = row->opcode == FB_CALL_FUNCTION || row->opcode == FB_CALL_METHOD;
        uint32_t written = fb_last_write(s->alias, n);
        if (row->opcode == FB_OUTPUT || !written) continue;
        bool is_before = row->ordinal < written - 1;
        if (!is_call || (is_before && row->user_count != 1) || fb_mutated_between(s->alias, n, 0, written - 1))
            s->is_shared[fb_memory_of(s->alias, n)] = true;
    }
}

/* Nothing is made of the weights of a module that very many read. */
static bool is_crowded(void *matcher, fb_node read) {
    fb_obstacle obstacle = fb_read_obstacle(matcher, read);
    return obstacle.code && strcmp(obstacle.code, "crowded-module") == 0;
}

static const fb_obstacle written = {"tensor-mutated", "what it gives is written in place, or shares memory with what is"};

/* ---- forwards ------------------------------------------------------------------------------------------------------------ */

static void refuse(search *s, fb_node node, fb_obstacle obstacle) {
    fb_constants_refuse(&s->constants, node, obstacle.code, obstacle.detail);
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
    measure(fb_rewrite_graph(s->recipes.rewrite), recipe, &left);
    return left >= 0;
}

/* Why a weight that it reads must stay as it is. */
static fb_obstacle reads_obstacle(search *s, fb_node node) {
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    for (uint32_t e = fb_input_first(s->graph, node); e && !obstacle.code; e = fb_input_next(s->graph, e)) {
        fb_node input = fb_edge_input(s->graph, e);
        if (s->constants.lattice[input.id] == FB_SOURCE)
            obstacle = fb_read_obstacle(s->m, fb_captured_origin(s->constants.scopes.outer, input));
    }
    return obstacle;
}

/* After a permutation, until something is computed row by row. */
static bool is_turned(const search *s, fb_node node) {
    bool is = fb_layout_of(s->graph, node) == FB_LAYOUT_TURNED_VIEW;
    for (uint32_t e = fb_input_first(s->graph, node); e && !is; e = fb_input_next(s->graph, e))
        is = s->marks[fb_edge_input(s->graph, e).id].is_turned;
    return is && !fb_is_contiguous(s->graph, node);
}

/* Does it write, element by element, into what only it reads, and which is constant? */
static bool writes_own(const search *s, fb_node node) {
    const fb_graph *g = s->graph;
    fb_effects effects = fb_op_effects(g, node);
    bool is_plain = effects.mutates_input && !effects.is_unknown && !effects.is_random && !effects.has_effect;
    bool is_elementwise = fb_op_facts_of(fb_node_op(g, node))->flags & FB_FACT_ELEMENTWISE;
    fb_node into = fb_value_node(g, fb_first_argument(g, node));
    return is_plain && is_elementwise && into.id && s->constants.lattice[into.id] == FB_CONSTANT &&
           !s->is_shared[fb_memory_of(s->alias, node)];
}

/* Is its value written later on? */
static bool is_written_later(const search *s, fb_node node) {
    return fb_last_write(s->alias, node) > fb_node_at(s->graph, node)->ordinal + 1;
}

/* A weight of which only the type is read must stay all the same. */
static bool reads_weights_only(const search *s, fb_node node) {
    uint32_t edge = fb_input_first(s->graph, node);
    bool is_any = edge != 0 && !fb_reads_attribute_of_function(s->graph, node);
    while (edge && s->constants.lattice[fb_edge_input(s->graph, edge).id]) edge = fb_input_next(s->graph, edge);
    return is_any && !edge;
}

static void look_at_call(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    fb_obstacle obstacle, seen = s->constants.seen[fb_memory_of(s->alias, node)];
    fb_value recipe;
    if (!reads_weights_only(s, node) || fb_result_kind_of(g, node) == FB_A_NUMBER) return;
    fb_effects effects = fb_op_effects(g, node);
    if (effects.has_effect && !effects.is_unknown) return; /* an assertion */
    obstacle = writes_own(s, node) ? FB_NO_OBSTACLE : fb_effect_obstacle(g, node);
    if (obstacle.code || (obstacle = reads_obstacle(s, node)).code) {
        refuse(s, node, obstacle);
    } else if (fb_is_mutated(s->alias, node) && s->is_shared[fb_memory_of(s->alias, node)]) {
        refuse(s, node, written);
    } else if (seen.code) {
        refuse(s, node, seen);
    } else if (!fb_node_at(g, node)->dtype && fb_mode_switched_between(s->alias, 0, fb_node_at(g, node)->ordinal)) {
        refuse(s, node,
               (fb_obstacle){"mode-switched",
                             "a mode is switched before it, so its dtype, which is not recorded, is not certain"});
    } else if (!fb_recipe_of_call(&s->recipes, node, &recipe)) {
        refuse(s, node, s->recipes.obstacle);
    } else if (!is_small(s, recipe)) {
        refuse(s, node, (fb_obstacle){"too-complex", "its recipe would be too long"});
    } else {
        s->constants.lattice[node.id] = FB_CONSTANT;
        s->marks[node.id].is_turned = is_turned(s, node);
    }
}

static void look_forwards(search *s) {
    const fb_scopes *scopes = &s->constants.scopes;
    fb_value recipe;
    for (size_t i = 0; i < s->candidate_count; i++) {
        fb_node n = s->candidates[i], origin = fb_captured_origin(scopes->outer, n);
        const fb_node_row *row = fb_node_at(s->graph, n), *read = fb_node_at(s->graph, origin);
        bool is_read = read->opcode == FB_GET_ATTR && read->module.id && read->attribute.id;
        if (is_read && (is_crowded(s->m, origin) || fb_recipe_of_call(&s->recipes, n, &recipe)))
            s->constants.lattice[n.id] = FB_SOURCE;
        if (row->opcode >= FB_CALL_MODULE && row->opcode <= FB_CALL_METHOD) look_at_call(s, n);
    }
}

/* ---- backwards ----------------------------------------------------------------------------------------------------------- */

/* Where it owns all: elsewhere the readers of a module are few. */
static size_t owned_by_root(const fb_graph *g) {
    if (!fb_dialect_facts_of(g)->has_one_owner) return 0;
    const fb_module_row *root = fb_module_at(g, fb_module_find(g, ""));
    return fb_value_at(g, root->parameters)->count / 2 + fb_value_at(g, root->buffers)->count / 2;
}

static void look_backwards(search *s) {
    static const fb_obstacle crowded = {"crowded-module", "very many weights are folded, and each copies the list of all"};
    size_t owned = owned_by_root(s->graph), copied = 0;
    static const fb_obstacle needs_order = {"needs-contiguous", "it does not lie row by row, and a reader may notice"};
    for (size_t i = s->candidate_count; i-- > 0;) {
        fb_node n = s->candidates[i];
        uint8_t *lattice = &s->constants.lattice[n.id];
        fb_value recipe = {fb_map_get(&s->recipes.made, n.id)};
        bool is_read = fb_node_at(s->graph, n)->user_count;
        if (*lattice != FB_CONSTANT || (is_read && !fb_constant_is_read_outside(&s->constants, n))) continue;
        bool is_itself = fb_value_kind(fb_rewrite_graph(s->recipes.rewrite), recipe) == FB_TENSOR; /* a weight as it is */
        if (!is_read || is_itself) *lattice = FB_VARIES;
        else if (is_written_later(s, n)) refuse(s, n, written);
        else if (s->marks[n.id].is_turned && fb_layout_is_read(s->graph, n)) refuse(s, n, needs_order);
        else if (fb_growth_of(&s->needs, fb_rewrite_graph(s->recipes.rewrite), n, recipe) > s->maximum_growth)
            refuse(s, n, (fb_obstacle){"too-large", "as a weight it would take more memory than allowed"});
        else if ((copied += owned) > COPIES_MAX) refuse(s, n, crowded);
        else s->marks[n.id].is_folded = true;
    }
}

/* ---- all together -------------------------------------------------------------------------------------------------------- */

/* Get_attr nodes, and calls on nothing but such; and whether the type of one is not recorded, so that its recipe records it. */
static void find_candidates(search *s) {
    const fb_scopes *scopes = &s->constants.scopes;
    for (size_t i = 0; i < scopes->count; i++) {
        fb_node n = scopes->nodes[i];
        const fb_node_row *row = fb_node_at(s->graph, n);
        fb_opcode origin = (fb_opcode)fb_node_at(s->graph, fb_captured_origin(scopes->outer, n))->opcode;
        uint32_t e = origin == FB_GET_ATTR ? 0 : fb_input_first(s->graph, n);
        if (row->opcode == FB_OUTPUT || (origin != FB_GET_ATTR && !e)) continue;
        while (e && s->marks[fb_edge_input(s->graph, e).id].is_candidate) e = fb_input_next(s->graph, e);
        if (e) continue;
        s->marks[n.id].is_candidate = true;
        s->candidates[s->candidate_count++] = n;
        s->is_in_copy |= (!row->shape.id || !row->dtype) && fb_result_kind_of(s->graph, n) != FB_A_NUMBER;
    }
}

static bool run(search *s, const char *signature) {
    s->candidates = malloc((s->constants.scopes.count + 1) * sizeof *s->candidates);
    if (!s->candidates) return false;
    find_candidates(s);
    s->recipes.rewrite =
        s->is_in_copy ? fb_rewrite_begin_trial(s->graph, signature) : fb_rewrite_begin(s->m->workpiece, NULL, signature);
    s->recipes.has_norms = s->m->report->pass->version > 2;
    if (!s->recipes.rewrite) return false;
    fb_constants_find_seen(&s->constants, "its strides are asked for, and a weight has others");
    find_shared(s);
    look_forwards(s);
    look_backwards(s);
    bool ok = !fb_graph_out_of_memory(fb_rewrite_graph(s->recipes.rewrite)) && !s->recipes.is_out_of_memory;
    fb_rewrite_abort(s->recipes.rewrite);
    return ok;
}

/* A nested program may capture them. */
static bool may_read_attributes_only(const fb_graph *g, fb_node node) {
    bool is_main = !fb_is_nested(g, node);
    uint32_t edge = fb_input_first(g, node);
    bool is_any = edge != 0;
    for (; edge; edge = fb_input_next(g, edge)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(g, fb_edge_input(g, edge))->opcode;
        if (opcode != FB_GET_ATTR && (is_main || opcode != FB_PLACEHOLDER)) break;
    }
    return is_any && !edge;
}

/* Every constant begins with a call that reads nothing but what get_attr nodes give. Most graphs have none, and need no copy.
 */
static bool may_have_constants(const fb_graph *g) {
    bool is_found = false;
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_programs_to_clean(g) && !is_found; p++)
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id && !is_found; n = fb_next_node(g, n)) {
            fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
            is_found = opcode >= FB_CALL_MODULE && opcode <= FB_CALL_METHOD && may_read_attributes_only(g, n);
        }
    return is_found;
}

#define DEFAULT_GROWTH 1048576

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* Appends what is folded on the way to `node`, inputs first. No deeper than a recipe is long. */
static void claim(search *s, fb_node node, fb_buffer *nodes) {
    for (uint32_t e = fb_input_first(s->graph, node); e; e = fb_input_next(s->graph, e)) {
        fb_node input = fb_edge_input(s->graph, e);
        mark *of = &s->marks[input.id];
        if (s->constants.lattice[input.id] != FB_CONSTANT || of->is_folded || of->is_claimed) continue;
        of->is_claimed = true;
        claim(s, input, nodes);
    }
    fb_buffer_append(nodes, &node, sizeof node);
}

static void report(search *s) {
    fb_matcher *m = s->m;
    fb_buffer nodes = {0};
    for (size_t i = 0; i < s->candidate_count && fb_matcher_goes_on(m); i++) {
        fb_node n = s->candidates[i];
        if (s->constants.has_refused && s->constants.refused[n.id].code) fb_refuse_for(m, s->constants.refused[n.id], &n, 1);
        if (!s->marks[n.id].is_folded) continue;
        fb_value recipe = {s->is_in_copy ? 0 : fb_map_get(&s->recipes.made, n.id)};
        nodes.size = 0;
        fb_buffer_append(&nodes, &recipe, sizeof recipe);
        claim(s, n, &nodes);
        m->failed |= nodes.failed;
        if (!nodes.failed) fb_match_found_as(m, nodes.data, nodes.size);
    }
    fb_buffer_free(&nodes);
}

/* For edit. */
static bool keep_outer(fb_matcher *m, const fb_node *outer) {
    size_t size = (size_t)fb_node_limit(m->graph) * sizeof *outer;
    fb_node *kept = outer ? fb_arena_alloc(m->arena, size) : NULL;
    if (kept) memcpy(kept, outer, size);
    m->plan = kept;
    return kept || !outer;
}

/* `maximum_growth`: by how many elements a node's weight may be larger than the weights that it is made from and that nothing
 * else needs. */
static void match_graph(fb_matcher *m) {
    const json_t *growth = json_object_get(m->params, "maximum_growth");
    search s = {.m = m, .graph = m->graph, .maximum_growth = growth ? json_integer_value(growth) : DEFAULT_GROWTH};
    if (!may_have_constants(m->graph)) return;
    s.alias = fb_matcher_alias(m);
    bool ok = fb_constants_begin(&s.constants, m->graph, s.alias, m->work);
    const fb_node *outer = s.recipes.outer = s.constants.scopes.outer;
    s.marks = calloc((size_t)fb_node_limit(m->graph) + 1, sizeof *s.marks);
    s.is_shared = ok ? calloc(fb_memory_limit(s.alias), sizeof *s.is_shared) : NULL;
    ok = ok && keep_outer(m, outer) && s.marks && s.is_shared &&
         fb_tensor_needs_begin(&s.needs, m->graph, m->usage, outer, m, is_crowded) && run(&s, m->signature);
    m->failed |= !ok;
    if (ok) report(&s);
    fb_map_free(&s.recipes.made);
    free(s.candidates);
    free(s.marks);
    free(s.is_shared);
    fb_tensor_needs_end(&s.needs);
    fb_constants_end(&s.constants);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* The first weight on the way to `node` that has its shape; otherwise the first of all. */
static void find_source(const fb_graph *g, const fb_node *outer, fb_node node, fb_value shape, fb_node *source) {
    node = fb_captured_origin(outer, node);
    if (fb_node_at(g, node)->opcode == FB_GET_ATTR) {
        bool fits = fb_node_at(g, node)->shape.id == shape.id;
        if (!source->id || (fits && fb_node_at(g, *source)->shape.id != shape.id)) *source = node;
        return;
    }
    for (uint32_t e = fb_input_first(g, node); e; e = fb_input_next(g, e))
        find_source(g, outer, fb_edge_input(g, e), shape, source);
}

typedef struct training {
    const fb_graph *graph;
    bool requires_grad;
} training;

static void look_at_tensor(void *context, fb_tensor tensor) {
    training *t = context;
    t->requires_grad |= fb_tensor_at(t->graph, tensor)->requires_grad;
}

/* A get_attr node before `node` that reads the new weight. One that a program makes of what it captures is its own. */
static fb_node put_weight(fb_rewrite *rw, const fb_node *outer, fb_node node, fb_value recipe, int version) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node source = {0}, read = {0};
    fb_buffer name = {0};
    training trained = {.graph = g};
    find_source(g, outer, node, fb_node_at(g, node)->shape, &source);
    fb_value_visit_tensors(g, recipe, look_at_tensor, &trained);
    fb_module owner = fb_node_at(g, source)->module;
    bool is_captured = fb_node_at(g, source)->program.id != fb_node_at(g, node)->program.id;
    if (is_captured) owner = fb_put_owner(rw, owner, node);
    const char *attribute = fb_free_attribute(rw, owner, fb_text(g, fb_node_at(g, source)->attribute), &name);
    if (attribute) {
        fb_dtype dtype = (fb_dtype)fb_node_at(g, node)->dtype;
        if (version > 1) fb_put_weight(rw, owner, attribute, recipe, dtype, trained.requires_grad);
        else fb_put_parameter(rw, owner, attribute, recipe, dtype, trained.requires_grad);
        read = fb_insert_read(rw, node, owner, attribute);
    }
    fb_buffer_free(&name);
    return read;
}

/* A match has a recipe and then its nodes. The recipe is the last node's, or none if it was made in a copy of the graph. */
static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_call_recipes recipes = {.rewrite = rw, .outer = match->plan, .has_norms = match->pass->version > 2};
    fb_value recipe = *(const fb_value *)match->data;
    const fb_node *nodes = match->nodes + 1;
    size_t count = match->count - 1;
    fb_node last = nodes[count - 1];
    if (recipe.id || fb_recipe_of_call(&recipes, last, &recipe)) {
        fb_node read = put_weight(rw, match->plan, last, recipe, match->pass->version);
        for (size_t i = 0; i < count; i++) fb_release_reads(rw, nodes[i]);
        for (size_t i = 0; i + 1 < count; i++) fb_erase(rw, nodes[i]);
        if (read.id) fb_absorb(rw, last, read);
        if (read.id) fb_mark(rw, read);
    }
    if (recipes.is_out_of_memory) fb_graph_fail_memory(fb_rewrite_graph(rw));
    fb_map_free(&recipes.made);
}

/* Version 1 made parameters of integers and bools, and version 2 folded no norms. */
#define FOLD_CONSTANTS(number, before)                                                                                         \
    {                                                                                                                          \
        .name = "FoldConstants", .version = number, .earlier = before,                                                         \
        .summary = "Replaces what depends on weights only, such as `W + s * B @ A`, with a weight.",                           \
        .parameters =                                                                                                          \
            "{\"additionalProperties\":false,\"properties\":{\"maximum_growth\":{\"default\":1048576,\"description\":"         \
            "\"By how many elements a new weight may be larger than those that it is made from and that nothing else "         \
            "reads. A view of a weight that others keep, or an expanded one, grows by all of it.\",\"minimum\":0,"             \
            "\"type\":\"integer\"}},\"type\":\"object\"}",                                                                     \
        .exactness = FB_ROUNDS, .gain = FB_GAIN_FEWER_NODES, .reversible = false, .preserves_computation = true,               \
        .reads_onnx = true, .match_graph = match_graph, .edit = edit,                                                          \
    }

static const fb_pass version_1 = FOLD_CONSTANTS(1, NULL), version_2 = FOLD_CONSTANTS(2, &version_1);
const fb_pass fb_fold_constants = FOLD_CONSTANTS(3, &version_2);
