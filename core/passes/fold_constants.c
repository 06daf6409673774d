/* FoldConstants: what depends on weights only becomes a weight.
 *
 *     A ── matmul ── * s ── + ── linear(x, ·)          W' = W + s·B·A ── linear(x, ·)
 *     B ──┘                W ┘
 *
 * Arithmetic, views, slices and joins of what get_attr nodes read are written down as the recipe of a new tensor, computed in
 * float64 and rounded once: in half precision, what overflows on the way and is scaled back (w * 1e4 * 1e-4) was infinite and
 * is finite now. It is owned by the module of the weight that it is made from (of the one with the same shape, where
 * there is one), and a get_attr node before the last folded node reads it. What only those nodes read is dropped.
 *
 * Not: what is random, has effects, is written in place, or is (memory of) an output of the graph; integer arithmetic, which
 * recipes do not have; numbers that a cast has rounded and something computes with; what would make the weights grow by more
 * than `maximum_growth` elements (a view of a weight that others keep, an expanded one); weights of a module that is called as
 * a whole, or that very many nodes read.
 * Exactness: rounds. Not reversible.
 */
#include <stdlib.h>

#include "core/passes/constant_search.h"
#include "core/passes/layer.h"

#define DEFAULT_GROWTH 1048576

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* Appends what is folded on the way to `node`, inputs first. No deeper than a recipe is long. */
static void claim(const fb_graph *g, fb_constant_finding *found, fb_node node, fb_buffer *nodes) {
    for (uint32_t e = fb_input_first(g, node); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        if (found[input.id].constancy != FB_INSIDE || found[input.id].is_claimed) continue;
        found[input.id].is_claimed = true;
        claim(g, found, input, nodes);
    }
    fb_buffer_append(nodes, &node, sizeof node);
}

static void report(fb_matcher *m, fb_constant_finding *found) {
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
    fb_constant_finding *found = fb_find_constants(m, growth ? json_integer_value(growth) : DEFAULT_GROWTH);
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
    .summary = "What depends on weights only, such as `W + s * B @ A`, becomes a weight.",
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
