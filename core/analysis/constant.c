#include "core/analysis/constant.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/view.h"
#include "core/graph/slot.h"

bool fb_reads_bytes(const fb_graph *graph, fb_node read, fb_tensor *tensor) {
    const fb_node_row *row = fb_node_at(graph, read);
    if (row->opcode != FB_GET_ATTR || !row->module.id || !row->attribute.id) return false;
    fb_slot slot = {.module = row->module, .attribute = fb_text(graph, row->attribute)};
    slot.tensor = fb_module_tensor(graph, slot.module, slot.attribute);
    slot.is_buffer = fb_map_value(graph, fb_module_at(graph, slot.module)->buffers, slot.attribute).id != 0;
    *tensor = slot.tensor;
    bool is_kept = fb_graph_is_onnx(graph) || !fb_slot_is_persistent(graph, &slot); /* an ONNX model has no buffers */
    return slot.tensor.id && fb_tensor_at(graph, slot.tensor)->data.id && is_kept;
}

bool fb_reads_constant(const fb_graph *graph, const fb_alias *alias, fb_node read, fb_tensor *tensor) {
    return fb_reads_bytes(graph, read, tensor) && !fb_tensor_is_mutated(alias, *tensor);
}

/* ---- the lattice --------------------------------------------------------------------------------------------------------- */

bool fb_constants_begin(fb_constants *c, const fb_graph *graph, const fb_alias *alias, fb_work *work) {
    *c = (fb_constants){.graph = graph, .alias = alias, .work = work, .unjudged = fb_first_node(graph, FB_MAIN_PROGRAM)};
    size_t nodes = (size_t)fb_node_limit(graph) + 1, memories = alias ? (size_t)fb_memory_limit(alias) + 1 : 1;
    c->lattice = calloc(nodes, sizeof *c->lattice);
    c->refused = calloc(nodes, sizeof *c->refused);
    c->is_home = calloc(nodes, sizeof *c->is_home);
    c->seen = calloc(memories, sizeof *c->seen);
    c->is_open = calloc(memories, sizeof *c->is_open);
    return fb_scopes_find(graph, &c->scopes) && alias && c->lattice && c->refused && c->is_home && c->seen && c->is_open;
}

void fb_constants_end(fb_constants *c) {
    void *const tables[] = {c->lattice, c->refused, c->is_home, c->seen, c->is_open};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) free(tables[i]);
    fb_scopes_free(&c->scopes);
}

void fb_constants_refuse(fb_constants *c, fb_node node, const char *code, const char *detail) {
    c->lattice[node.id] = FB_VARIES;
    c->refused[node.id] = (fb_obstacle){code, detail};
    c->has_refused = true;
}

/* A device, or a text in the place of one, that is not the CPU. */
bool fb_names_another_device(const fb_graph *g, fb_node node) {
    const fb_value_row *args = fb_value_at(g, fb_node_at(g, node)->args), *kwargs = fb_value_at(g, fb_node_at(g, node)->kwargs);
    fb_value device = fb_node_kwarg(g, node, "device");
    bool is_named = device.id && fb_value_text(g, device) && strncmp(fb_value_text(g, device), "cpu", 3) != 0;
    for (uint32_t i = 0; i < args->count + kwargs->count; i++) {
        fb_value value = i < args->count ? args->items[i] : kwargs->items[i - args->count];
        is_named |= fb_value_kind(g, value) == FB_DEVICE && strncmp(fb_value_text(g, value), "cpu", 3) != 0;
    }
    return is_named;
}

/* A call whose inputs are all on the CPU gives a result there, unless it names another device. */
static bool judge_home(const fb_constants *c, fb_node node) {
    const fb_graph *g = c->graph;
    fb_opcode opcode = (fb_opcode)fb_node_at(g, node)->opcode;
    if (c->lattice[node.id] || strcmp(fb_recorded_device(g, node), "\"cpu\"") == 0) return true;
    if ((opcode != FB_CALL_FUNCTION && opcode != FB_CALL_METHOD) || fb_op_is(g, node, FB_OP_DEVICE_COPY)) return false;
    for (uint32_t e = fb_input_first(g, node); e; e = fb_input_next(g, e))
        if (!c->is_home[fb_edge_input(g, e).id]) return false;
    return fb_node_op(g, node) && !fb_op_effects(g, node).is_unknown && !fb_names_another_device(g, node);
}

/* For a node before the one that is looked at. Few graphs ask, so nodes are judged when the first does. */
static bool is_home(fb_constants *c, fb_node node) {
    const fb_graph *g = c->graph;
    for (; c->unjudged.id && fb_node_at(g, c->unjudged)->ordinal <= fb_node_at(g, node)->ordinal;
         c->unjudged = fb_next_node(g, c->unjudged))
        c->is_home[c->unjudged.id] = judge_home(c, c->unjudged);
    return c->is_home[node.id];
}

/* May a result that has the type of `input` differ from a buffer in nothing but its numbers? In torch.vmap it is batched as
 * the input is, which no type shows. */
static bool is_type_known(fb_constants *c, fb_node node, fb_node input) {
    const fb_graph *g = c->graph;
    const fb_node_row *row = fb_node_at(g, input);
    fb_op op = fb_node_op(g, node);
    bool is_known = row->shape.id && row->dtype && !fb_is_mutated(c->alias, input) && !c->open_levels;
    for (int i = 0; is_known && i < fb_shape_rank(g, row->shape); i++) is_known = fb_shape_size(g, row->shape, i) >= 0;
    return is_known && (fb_op_facts_of(op)->shape == FB_SHAPE_SECOND || is_home(c, input));
}

bool fb_reads_attribute_of_function(const fb_graph *g, fb_node node) {
    const fb_value_row *kwargs = fb_value_at(g, fb_node_at(g, node)->kwargs);
    bool is_found = false;
    for (uint32_t i = 1; i < kwargs->count && fb_is_nested(g, node); i += 2)
        is_found |= fb_value_kind(g, kwargs->items[i]) == FB_OPAQUE;
    return is_found;
}

bool fb_reads_constants_only(fb_constants *c, fb_node node) {
    if (fb_reads_attribute_of_function(c->graph, node)) return false;
    for (uint32_t e = fb_input_first(c->graph, node); e; e = fb_input_next(c->graph, e)) {
        fb_node input = fb_edge_input(c->graph, e);
        bool is_constant =
            c->lattice[input.id] || (fb_reads_type_only_of(c->graph, node, input) && is_type_known(c, node, input));
        if (!is_constant) return false;
    }
    return true;
}

static void see_inputs(fb_constants *c, fb_node node, fb_obstacle reason) {
    for (uint32_t e = fb_input_first(c->graph, node); e; e = fb_input_next(c->graph, e))
        c->seen[fb_memory_of(c->alias, fb_edge_input(c->graph, e))] = reason;
}

void fb_constants_find_seen(fb_constants *c, const char *what) {
    static const fb_obstacle returned = {"graph-output", "it is an output of the graph, which the caller may write into"};
    for (size_t i = 0; i < c->scopes.count; i++) {
        fb_node n = c->scopes.nodes[i];
        bool is_asked = fb_op_facts_of(fb_node_op(c->graph, n))->flags & FB_FACT_READS_LAYOUT;
        if (is_asked && c->lattice[n.id] != FB_CONSTANT) see_inputs(c, n, (fb_obstacle){"layout-read", what});
        if (fb_node_at(c->graph, n)->opcode == FB_OUTPUT) see_inputs(c, n, returned);
    }
}

/* ---- what stays constant ------------------------------------------------------------------------------------------------- */

bool fb_constant_is_read_outside(const fb_constants *c, fb_node node) {
    for (uint32_t e = fb_user_first(c->graph, node); e; e = fb_user_next(c->graph, e)) {
        if (c->lattice[fb_edge_user(c->graph, e).id] == FB_VARIES) return true;
    }
    return false;
}

/* Does something that varies read it before its memory is written for the last time? */
static bool is_read_early(const fb_constants *c, fb_node node) {
    uint32_t last = fb_last_write(c->alias, node);
    for (uint32_t e = fb_user_first(c->graph, node); e && last; e = fb_user_next(c->graph, e)) {
        fb_node user = fb_edge_user(c->graph, e);
        if (c->lattice[user.id] == FB_VARIES && fb_node_at(c->graph, user)->ordinal + 1 < last) return true;
    }
    return false;
}

/* Marks readers of a varying value as varying. True when there are new ones. */
static bool spread(fb_constants *c) {
    bool has_changed = false;
    for (size_t i = 0; i < c->scopes.count && fb_work_goes_on(c->work, FB_WORK_NODE); i++) {
        fb_node n = c->scopes.nodes[i];
        fb_node outer = c->scopes.outer ? c->scopes.outer[n.id] : (fb_node){0};
        bool stays = outer.id ? c->lattice[outer.id] || !c->lattice[n.id]
                              : c->lattice[n.id] != FB_CONSTANT || fb_reads_constants_only(c, n);
        if (stays) continue;
        c->lattice[n.id] = FB_VARIES;
        has_changed = true;
    }
    return has_changed;
}

/* Marks memories that varying calls may write, as far as is known, and those of inputs and weights, which the caller owns. */
static void open_memories(fb_constants *c, fb_node node) {
    fb_effects effects = fb_op_effects(c->graph, node);
    fb_opcode opcode = (fb_opcode)fb_node_at(c->graph, node)->opcode;
    bool is_call = opcode >= FB_CALL_MODULE && opcode <= FB_CALL_METHOD, is_varying = c->lattice[node.id] == FB_VARIES;
    if ((!is_call && opcode != FB_OUTPUT) || is_read_early(c, node)) c->is_open[fb_memory_of(c->alias, node)] = true;
    if (!is_call || !is_varying || !(effects.is_unknown || effects.mutates_input || effects.mutates_module)) return;
    for (uint32_t e = fb_input_first(c->graph, node); e; e = fb_input_next(c->graph, e))
        c->is_open[fb_memory_of(c->alias, fb_edge_input(c->graph, e))] = true;
}

/* All writes into a memory are constant, and come before it is read by what varies; or nothing in it is constant. True when
 * something is not any more. */
static bool close_memories(fb_constants *c) {
    bool has_changed = false;
    memset(c->is_open, 0, fb_memory_limit(c->alias) * sizeof *c->is_open);
    for (size_t i = 0; i < c->scopes.count && fb_work_goes_on(c->work, FB_WORK_NODE); i++) open_memories(c, c->scopes.nodes[i]);
    for (size_t i = 0; i < c->scopes.count && fb_work_goes_on(c->work, FB_WORK_NODE); i++) {
        fb_node n = c->scopes.nodes[i];
        if (c->lattice[n.id] != FB_CONSTANT || !c->is_open[fb_memory_of(c->alias, n)] || !fb_is_mutated(c->alias, n)) continue;
        fb_constants_refuse(c, n, "tensor-mutated",
                            "what it gives is written in place by what is not constant, or read before that");
        has_changed = true;
    }
    return has_changed;
}

void fb_constants_settle(fb_constants *c) {
    bool goes_on = true;
    while (goes_on && fb_work_goes_on(c->work, FB_WORK_NODE)) {
        goes_on = spread(c);
        goes_on |= close_memories(c);
    }
}
