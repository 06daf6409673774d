/* A model that was written, read again, must say what the graph says. Nodes are paired in their order, for they were written in
 * the order of the graph's; only what was added for outputs, Identities at the end, has no partner. */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/scopes.h"
#include "core/graph/write.h"
#include "core/onnx/rewrite.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"

typedef struct pairing {
    onnx_writer *w;
    const fb_graph *graph, *again;
    fb_node *partner; /* by node of the graph */
    bool *is_read;    /* by node of the graph, otherwise than to be captured for nothing, which no model says */
} pairing;

static bool is_of_tensor(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    return row->opcode == FB_GET_ATTR && row->attribute.id;
}

static bool differs(pairing *p, fb_node node) {
    return onnx_refuse_change(p->w, "the model written for it reads back as another graph, at %s",
                              fb_node_name(p->graph, node));
}

/* ---- what is read ---------------------------------------------------------------------------------------------------------
 */

static void mark(void *context, fb_node node) {
    ((bool *)context)[node.id] = true;
}

static bool find_read(pairing *p) {
    const fb_graph *g = p->graph;
    fb_scopes scopes;
    bool ok = fb_scopes_find(g, &scopes) && p->is_read;
    for (size_t i = ok ? scopes.count : 0; i-- > 0;) { /* readers first, also those within */
        fb_node n = scopes.nodes[i], outer = scopes.outer ? scopes.outer[n.id] : (fb_node){0};
        const fb_value_row *kwargs = fb_value_at(g, fb_node_at(g, n)->kwargs);
        if (outer.id) p->is_read[outer.id] |= p->is_read[n.id];
        fb_value_visit_nodes(g, fb_node_at(g, n)->args, mark, p->is_read);
        for (uint32_t k = 0; k + 1 < kwargs->count; k += 2)
            if (strcmp(fb_value_text(g, kwargs->items[k]), "captures") != 0)
                fb_value_visit_nodes(g, kwargs->items[k + 1], mark, p->is_read);
    }
    fb_scopes_free(&scopes);
    return ok || onnx_writer_no_memory(p->w);
}

static bool is_captured_for_nothing(pairing *p, fb_node node) {
    return fb_node_at(p->graph, node)->opcode == FB_PLACEHOLDER && !p->is_read[node.id] &&
           onnx_note_of(p->w, p->graph, node).is_captured;
}

/* ---- pairs --------------------------------------------------------------------------------------------------------------- */

/* Names of initializers of the program that was read again, and of what it captures, each once. */
static bool list_values(pairing *p, fb_program program, fb_map *out) {
    for (fb_node n = fb_first_node(p->again, program); n.id; n = fb_next_node(p->again, n)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(p->again, n)->opcode;
        if (opcode != FB_GET_ATTR && !(opcode == FB_PLACEHOLDER && onnx_note_of(p->w, p->again, n).is_captured)) continue;
        onnx_note note = onnx_note_of(p->w, p->again, n);
        if (note.has_name && note.node < 0 && !fb_map_get(out, fb_hash(note.value.text, note.value.size, 0)) &&
            !fb_map_put(out, fb_hash(note.value.text, note.value.size, 0), n.id))
            return onnx_writer_no_memory(p->w);
    }
    return !p->w->status;
}

static bool is_call(const fb_graph *graph, fb_node node, bool is_constant) {
    const fb_node_row *row = fb_node_at(graph, node);
    return (row->opcode == FB_CALL_FUNCTION && !onnx_is_item(graph, node)) || (is_constant && row->opcode == FB_GET_ATTR);
}

static bool is_constant(pairing *p, const fb_graph *graph, fb_node node) {
    return is_of_tensor(graph, node) && onnx_note_of(p->w, graph, node).node >= 0;
}

/* The next one of a kind from `node` on, or none. */
static fb_node next_placeholder(pairing *p, const fb_graph *graph, fb_node node, bool is_captured) {
    while (node.id &&
           (fb_node_at(graph, node)->opcode != FB_PLACEHOLDER || onnx_note_of(p->w, graph, node).is_captured != is_captured))
        node = fb_next_node(graph, node);
    return node;
}

static fb_node next_call(pairing *p, fb_node node) {
    while (node.id && !is_call(p->again, node, is_constant(p, p->again, node))) node = fb_next_node(p->again, node);
    return node;
}

static fb_node item_of(const fb_graph *graph, fb_node call, int64_t index) {
    int64_t found;
    for (uint32_t e = fb_user_first(graph, call); e; e = fb_user_next(graph, e)) {
        fb_node user = fb_edge_user(graph, e);
        if (onnx_is_item(graph, user) && fb_value_is_int(graph, fb_node_arg(graph, user, 1), &found) && found == index)
            return user;
    }
    return (fb_node){0};
}

static bool is_written_as_constant(pairing *p, fb_node node) {
    return is_of_tensor(p->graph, node) && p->w->names[node.id].size && onnx_is_constant(p->w, node);
}

static bool pair_program(pairing *p, fb_program is, fb_program again) {
    fb_map values = {0};
    bool ok = list_values(p, again, &values);
    fb_node placeholder = next_placeholder(p, p->again, fb_first_node(p->again, again), false);
    fb_node call = next_call(p, fb_first_node(p->again, again));
    for (fb_node n = fb_first_node(p->graph, is); n.id && ok; n = fb_next_node(p->graph, n)) {
        const fb_node_row *row = fb_node_at(p->graph, n);
        onnx_bytes name = p->w->names[n.id];
        fb_node *partner = &p->partner[n.id];
        int64_t index = 0;
        if (row->opcode == FB_OUTPUT || (row->opcode == FB_GET_ATTR && !name.size) || is_captured_for_nothing(p, n)) continue;
        if (row->opcode == FB_PLACEHOLDER && !onnx_note_of(p->w, p->graph, n).is_captured) {
            *partner = placeholder;
            if (placeholder.id) placeholder = next_placeholder(p, p->again, fb_next_node(p->again, placeholder), false);
        } else if (onnx_is_item(p->graph, n)) {
            fb_node of = p->partner[fb_value_node(p->graph, fb_node_arg(p->graph, n, 0)).id];
            if (of.id && fb_value_is_int(p->graph, fb_node_arg(p->graph, n, 1), &index))
                *partner = item_of(p->again, of, index);
        } else if (is_call(p->graph, n, is_written_as_constant(p, n))) {
            *partner = call;
            if (call.id) call = next_call(p, fb_next_node(p->again, call));
        } else {
            partner->id = fb_map_get(&values, fb_hash(name.text, name.size, 0));
        }
        if (!partner->id) ok = differs(p, n);
        onnx_note note = ok && !is_call(p->again, *partner, false) ? onnx_note_of(p->w, p->again, *partner) : (onnx_note){0};
        if (ok && note.has_name && !onnx_same(note.value, name)) ok = differs(p, n);
    }
    if (ok && placeholder.id) ok = differs(p, fb_first_node(p->graph, is));
    fb_map_free(&values);
    return ok && !p->w->status;
}

/* ---- comparison ---------------------------------------------------------------------------------------------------------- */

static bool same_program(pairing *p, fb_program is, fb_program again);

static bool same_tensor(const pairing *p, fb_node a, fb_node b) {
    if (!is_of_tensor(p->graph, a) || !is_of_tensor(p->again, b)) return false;
    const fb_node_row *one = fb_node_at(p->graph, a), *other = fb_node_at(p->again, b);
    fb_tensor x = fb_module_tensor(p->graph, one->module, fb_text(p->graph, one->attribute));
    fb_tensor y = fb_module_tensor(p->again, other->module, fb_text(p->again, other->attribute));
    if (!x.id || !y.id) return false;
    fb_value shape = fb_tensor_at(p->graph, x)->shape, its = fb_tensor_at(p->again, y)->shape;
    int rank = fb_shape_rank(p->graph, shape);
    bool is_same = rank == fb_shape_rank(p->again, its) &&
                   strcmp(fb_tensor_dtype_name(p->graph, x), fb_tensor_dtype_name(p->again, y)) == 0;
    for (int i = 0; i < rank && is_same; i++) is_same = fb_shape_size(p->graph, shape, i) == fb_shape_size(p->again, its, i);
    return is_same;
}

static bool same_node(pairing *p, fb_node a, fb_node b) {
    if (p->partner[a.id].id) return p->partner[a.id].id == b.id;
    fb_program one = fb_onnx_program_read_by(p->graph, a), other = fb_onnx_program_read_by(p->again, b);
    if (one.id || other.id) return one.id && other.id && same_program(p, one, other);
    return same_tensor(p, a, b);
}

static bool same_value(pairing *p, fb_value a, fb_value b) {
    const fb_value_row *one = fb_value_at(p->graph, a), *other = fb_value_at(p->again, b);
    if (one->kind != other->kind || one->count != other->count) return false;
    if (one->kind == FB_NODE) return same_node(p, fb_value_node(p->graph, a), fb_value_node(p->again, b));
    if (one->has_nodes) {
        for (uint32_t i = 0; i < one->count; i++)
            if (!same_value(p, one->items[i], other->items[i])) return false;
        return true;
    }
    fb_buffer x = {0}, y = {0};
    fb_value_write(p->graph, a, &x);
    fb_value_write(p->again, b, &y);
    bool is_same = x.size == y.size && (!x.size || memcmp(x.data, y.data, x.size) == 0);
    if (x.failed || y.failed) is_same = onnx_writer_no_memory(p->w);
    fb_buffer_free(&x);
    fb_buffer_free(&y);
    return is_same;
}

/* The captures of a nested program: that of a value which is captured twice, as it took the place of another one, is read as
 * one.
 */
static bool same_captures(pairing *p, fb_program is, fb_program again, const fb_value_row *a, const fb_value_row *b) {
    fb_map places = {0};
    uint32_t count = 0, at = 0;
    bool is_same = true;
    for (fb_node q = next_placeholder(p, p->again, fb_first_node(p->again, again), true); q.id;
         q = next_placeholder(p, p->again, fb_next_node(p->again, q), true))
        if (!fb_map_put(&places, q.id, ++count)) is_same = onnx_writer_no_memory(p->w);
    is_same = is_same && count == b->count;
    for (fb_node n = next_placeholder(p, p->graph, fb_first_node(p->graph, is), true); n.id && is_same;
         n = next_placeholder(p, p->graph, fb_next_node(p->graph, n), true)) {
        uint32_t place = fb_map_get(&places, p->partner[n.id].id);
        bool is_for_nothing = is_captured_for_nothing(p, n);
        fb_node outer = at < a->count ? fb_value_node(p->graph, a->items[at++]) : (fb_node){0};
        is_same = is_for_nothing || (place && outer.id && p->partner[outer.id].id &&
                                     fb_value_node(p->again, b->items[place - 1]).id == p->partner[outer.id].id);
    }
    fb_map_free(&places);
    return is_same && at == a->count;
}

typedef struct programs {
    pairing *p;
    const fb_graph *graph;
    fb_program *items; /* of a call, in order */
    size_t count;
} programs;

static void add_program(void *context, fb_node node) {
    programs *list = context;
    fb_program program = fb_onnx_program_read_by(list->graph, node);
    if (program.id && list->items) list->items[list->count] = program;
    list->count += program.id != 0;
}

static programs programs_of(pairing *p, const fb_graph *graph, fb_node call) {
    programs list = {.p = p, .graph = graph};
    fb_value kwargs = fb_node_at(graph, call)->kwargs;
    fb_value_visit_nodes(graph, kwargs, add_program, &list);
    list.items = calloc(list.count + 1, sizeof *list.items);
    if (!list.items) onnx_writer_no_memory(p->w);
    list.count = 0;
    if (list.items) fb_value_visit_nodes(graph, kwargs, add_program, &list);
    return list;
}

static bool same_lists(pairing *p, fb_node a, fb_node b, fb_value one, fb_value other) {
    programs is = programs_of(p, p->graph, a), again = programs_of(p, p->again, b);
    const fb_value_row *x = fb_value_at(p->graph, one), *y = fb_value_at(p->again, other);
    bool is_same = is.items && again.items && is.count == again.count && x->count == is.count && y->count == again.count;
    for (size_t i = 0; i < is.count && is_same; i++)
        is_same = same_captures(p, is.items[i], again.items[i], fb_value_at(p->graph, x->items[i]),
                                fb_value_at(p->again, y->items[i]));
    free(is.items);
    free(again.items);
    return is_same;
}

static bool same_attributes(pairing *p, fb_node a, fb_node b) {
    const fb_value_row *one = fb_value_at(p->graph, fb_node_at(p->graph, a)->kwargs),
                       *other = fb_value_at(p->again, fb_node_at(p->again, b)->kwargs);
    bool is_same = one->count == other->count;
    for (uint32_t i = 0; i + 1 < one->count && is_same; i += 2) {
        const char *key = fb_value_text(p->graph, one->items[i]);
        bool is_list = strcmp(key, "captures") == 0 && i + 2 == one->count && i &&
                       fb_value_kind(p->graph, one->items[i + 1]) == FB_LIST &&
                       fb_value_kind(p->again, other->items[i + 1]) == FB_LIST;
        is_same = strcmp(key, fb_value_text(p->again, other->items[i])) == 0;
        if (is_same && is_list) is_same = same_lists(p, a, b, one->items[i + 1], other->items[i + 1]);
        else if (is_same) is_same = same_value(p, one->items[i + 1], other->items[i + 1]);
    }
    return is_same;
}

/* An output may be an Identity of what the graph has there. */
static bool same_output(pairing *p, fb_value a, fb_value b) {
    fb_node value = fb_value_node(p->graph, a), other = fb_value_node(p->again, b);
    if (!value.id || !other.id) return false;
    if (p->partner[value.id].id == other.id) return true;
    bool is_copy = fb_is_spelled(fb_node_target(p->again, other), FB_ONNX_IDENTITY);
    fb_value input = is_copy ? fb_node_arg(p->again, other, 0) : (fb_value){0};
    return input.id && fb_value_node(p->again, input).id == p->partner[value.id].id;
}

static bool same_outputs(pairing *p, fb_node a, fb_node b) {
    const fb_value_row *one = fb_value_at(p->graph, fb_node_arg(p->graph, a, 0)),
                       *other = fb_value_at(p->again, fb_node_arg(p->again, b, 0));
    bool is_same = one->count == other->count;
    for (uint32_t i = 0; i < one->count && is_same; i++) is_same = same_output(p, one->items[i], other->items[i]);
    return is_same;
}

static bool same_call(pairing *p, fb_node a, fb_node b) {
    const fb_node_row *one = fb_node_at(p->graph, a), *other = fb_node_at(p->again, b);
    if (one->opcode != other->opcode) return false;
    if (one->opcode == FB_GET_ATTR) return same_tensor(p, a, b);
    if (one->opcode == FB_PLACEHOLDER) return true;
    return strcmp(fb_node_target(p->graph, a), fb_node_target(p->again, b)) == 0 && same_value(p, one->args, other->args) &&
           same_attributes(p, a, b);
}

static bool same_program(pairing *p, fb_program is, fb_program again) {
    if (!pair_program(p, is, again)) return false;
    for (fb_node n = fb_first_node(p->graph, is); n.id && !p->w->status; n = fb_next_node(p->graph, n)) {
        bool is_output = fb_node_at(p->graph, n)->opcode == FB_OUTPUT;
        if (!fb_work_goes_on(p->w->work, FB_WORK_NODE)) p->w->status = fb_work_status(p->w->work, p->w->error);
        if (is_output && !same_outputs(p, n, fb_last_node(p->again, again))) return differs(p, n);
        if (is_output || !p->partner[n.id].id) continue;
        if (!same_call(p, n, p->partner[n.id])) return differs(p, n);
    }
    return !p->w->status;
}

static bool same_functions(pairing *p) {
    for (fb_module m = fb_first_module(p->graph); m.id; m = fb_module_at(p->graph, m)->next) {
        const char *path = fb_text(p->graph, fb_module_at(p->graph, m)->path);
        fb_program is = fb_module_at(p->graph, m)->program;
        if (!is.id || !fb_is_spelled(path, FB_ONNX_FUNCTION) || strchr(path, '/')) continue;
        fb_module again = fb_module_find(p->again, path);
        if (!p->partner[fb_first_node(p->graph, is).id].id && strstr(path, FB_ONNX_FUNCTION) == path) {
            if (!again.id) return onnx_refuse_change(p->w, "the function %s is gone", path);
            if (fb_module_at(p->again, again)->program.id && !same_program(p, is, fb_module_at(p->again, again)->program))
                return false;
        }
    }
    return true;
}

bool onnx_is_written(onnx_writer *w, const fb_graph *again) {
    pairing p = {.w = w, .graph = w->graph, .again = again};
    p.partner = calloc(fb_node_limit(w->graph) + 1, sizeof *p.partner);
    if (!p.partner) return onnx_writer_no_memory(w);
    p.is_read = calloc(fb_node_limit(w->graph) + 1, sizeof *p.is_read);
    bool ok = find_read(&p) && same_program(&p, FB_MAIN_PROGRAM, FB_MAIN_PROGRAM) && same_functions(&p);
    free(p.is_read);
    free(p.partner);
    return ok && !w->status;
}
