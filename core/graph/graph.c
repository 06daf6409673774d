/* Reading a graph: rows, lists, edges; creation, copy, release. */
#include "core/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/internal.h"

static const char *const opcode_names[] = {
    [FB_PLACEHOLDER] = "placeholder",     [FB_GET_ATTR] = "get_attr",       [FB_CALL_MODULE] = "call_module",
    [FB_CALL_FUNCTION] = "call_function", [FB_CALL_METHOD] = "call_method", [FB_OUTPUT] = "output",
};

const char *fb_opcode_name(fb_opcode opcode) {
    return opcode_names[opcode];
}

fb_opcode fb_opcode_find(const char *name) {
    for (int i = FB_PLACEHOLDER; i <= FB_OUTPUT; i++) {
        if (strcmp(opcode_names[i], name) == 0) return (fb_opcode)i;
    }
    return 0;
}

static fb_table *table_at(fb_graph *graph, size_t index) {
    fb_graph_tables *t = &graph->tables;
    fb_table *tables[] = {&t->symbols, &t->names, &t->values, &t->nodes, &t->modules, &t->tensors, &t->programs, &t->edges};
    return index < sizeof tables / sizeof *tables ? tables[index] : NULL;
}

static fb_index *index_at(fb_graph *graph, size_t index) {
    fb_index *indexes[] = {&graph->symbol_index, &graph->value_index, &graph->nested_index};
    return index < sizeof indexes / sizeof *indexes ? indexes[index] : NULL;
}

size_t fb_graph_bytes(const fb_graph *graph) {
    fb_graph *read = (fb_graph *)(uintptr_t)graph;
    size_t bytes = sizeof *graph;
    for (size_t i = 0; table_at(read, i); i++) bytes += (size_t)table_at(read, i)->count * table_at(read, i)->row_size;
    for (size_t i = 0; index_at(read, i); i++)
        bytes += (size_t)index_at(read, i)->capacity * (sizeof(fb_index_slot) + sizeof(uint8_t));
    return bytes;
}

void fb_graph_free(fb_graph *graph) {
    if (!graph) return;
    for (size_t i = 0; table_at(graph, i); i++) fb_table_free(table_at(graph, i));
    for (size_t i = 0; index_at(graph, i); i++) fb_index_free(index_at(graph, i));
    free(graph);
}

fb_graph *fb_graph_copy(const fb_graph *from, fb_work *work) {
    fb_graph *to = malloc(sizeof *to), *source = (fb_graph *)(uintptr_t)from;
    if (!to) return NULL;
    *to = *from;
    for (size_t i = 0; table_at(to, i); i++) *table_at(to, i) = (fb_table){0};
    for (size_t i = 0; index_at(to, i); i++) *index_at(to, i) = (fb_index){0};
    bool ok = true;
    for (size_t i = 0; ok && table_at(to, i); i++) ok = fb_table_copy(table_at(to, i), table_at(source, i), work);
    for (size_t i = 0; ok && index_at(to, i); i++)
        ok = fb_work_ask(work) && fb_index_copy(index_at(to, i), index_at(source, i));
    if (ok) return to;
    fb_graph_free(to);
    return NULL;
}

const char *fb_graph_name(const fb_graph *graph) {
    return fb_text(graph, graph->name);
}

fb_value fb_graph_metadata(const fb_graph *graph) {
    return graph->metadata;
}

bool fb_graph_is_onnx(const fb_graph *graph) {
    return graph->is_onnx;
}

int64_t fb_graph_opset(const fb_graph *graph) {
    return graph->opset;
}

bool fb_graph_out_of_memory(const fb_graph *graph) {
    return graph->out_of_memory;
}

fb_node fb_first_node(const fb_graph *graph, fb_program program) {
    return fb_program_at(graph, program)->first;
}

fb_node fb_last_node(const fb_graph *graph, fb_program program) {
    return fb_program_at(graph, program)->last;
}

fb_module fb_first_module(const fb_graph *graph) {
    return graph->first_module;
}

fb_tensor fb_first_tensor(const fb_graph *graph) {
    return graph->first_tensor;
}

fb_tensor fb_last_tensor(const fb_graph *graph) {
    return graph->last_tensor;
}

size_t fb_node_count(const fb_graph *graph) {
    return fb_program_at(graph, FB_MAIN_PROGRAM)->node_count;
}

size_t fb_module_count(const fb_graph *graph) {
    return graph->module_count;
}

size_t fb_tensor_count(const fb_graph *graph) {
    return graph->tensor_count;
}

static uint32_t limit(const fb_table *table) {
    return table->count ? table->count : 1;
}

uint32_t fb_node_limit(const fb_graph *graph) {
    return limit(&graph->tables.nodes);
}

uint32_t fb_module_limit(const fb_graph *graph) {
    return limit(&graph->tables.modules);
}

uint32_t fb_tensor_limit(const fb_graph *graph) {
    return limit(&graph->tables.tensors);
}

uint32_t fb_program_limit(const fb_graph *graph) {
    return limit(&graph->tables.programs);
}

uint32_t fb_symbol_limit(const fb_graph *graph) {
    return limit(&graph->tables.symbols);
}

fb_node fb_graph_node_named(const fb_graph *graph, fb_program program, fb_symbol name) {
    if (program.id == FB_MAIN_PROGRAM.id) return (fb_node){fb_named(graph, name, FB_NAMED_NODE)};
    uint32_t hash = name_hash(graph, program, name), step = 0, id;
    while ((id = fb_index_next(&graph->nested_index, hash, &step))) {
        const fb_node_row *row = fb_node_at(graph, (fb_node){id});
        if (row->name.id == name.id && row->program.id == program.id) break;
    }
    return (fb_node){id};
}

fb_module fb_graph_module_named(const fb_graph *graph, fb_symbol path) {
    return (fb_module){fb_named(graph, path, FB_NAMED_MODULE)};
}

fb_tensor fb_graph_tensor_named(const fb_graph *graph, fb_symbol name) {
    return (fb_tensor){fb_named(graph, name, FB_NAMED_TENSOR)};
}

fb_node fb_node_find(const fb_graph *graph, fb_program program, const char *name) {
    fb_symbol symbol = fb_symbol_find(graph, name, strlen(name));
    return symbol.id ? fb_graph_node_named(graph, program, symbol) : (fb_node){0};
}

fb_module fb_module_find(const fb_graph *graph, const char *path) {
    fb_symbol symbol = fb_symbol_find(graph, path, strlen(path));
    return symbol.id ? fb_graph_module_named(graph, symbol) : (fb_module){0};
}

fb_tensor fb_tensor_find(const fb_graph *graph, const char *name) {
    fb_symbol symbol = fb_symbol_find(graph, name, strlen(name));
    return symbol.id ? fb_graph_tensor_named(graph, symbol) : (fb_tensor){0};
}

fb_node fb_node_follow(const fb_graph *graph, const char *name, fb_node *last) {
    fb_node next = last->id ? fb_node_at(graph, *last)->next : fb_first_node(graph, FB_MAIN_PROGRAM);
    if (!next.id || strcmp(fb_node_name(graph, next), name) != 0) next = fb_node_find(graph, FB_MAIN_PROGRAM, name);
    if (next.id) *last = next;
    return next;
}

fb_tensor fb_tensor_follow(const fb_graph *graph, const char *name, fb_tensor *last) {
    fb_tensor next = last->id ? fb_tensor_at(graph, *last)->next : fb_first_tensor(graph);
    if (!next.id || strcmp(fb_tensor_name(graph, next), name) != 0) next = fb_tensor_find(graph, name);
    if (next.id) *last = next;
    return next;
}

uint32_t fb_user_first(const fb_graph *graph, fb_node node) {
    return fb_node_at(graph, node)->first_use;
}

uint32_t fb_user_next(const fb_graph *graph, uint32_t edge) {
    return edge_row(graph, edge)->next_use;
}

fb_node fb_edge_user(const fb_graph *graph, uint32_t edge) {
    return edge_row(graph, edge)->user;
}

static int by_ordinal(const void *a, const void *b, void *graph) {
    uint32_t x = fb_node_at(graph, *(const fb_node *)a)->ordinal, y = fb_node_at(graph, *(const fb_node *)b)->ordinal;
    return (x > y) - (x < y);
}

fb_node *fb_users_in_order(const fb_graph *graph, fb_node node, size_t *count) {
    fb_node *users = malloc((fb_node_at(graph, node)->user_count + 1) * sizeof *users);
    *count = 0;
    if (!users) return NULL;
    for (uint32_t e = fb_user_first(graph, node); e; e = fb_user_next(graph, e)) users[(*count)++] = fb_edge_user(graph, e);
    qsort_r(users, *count, sizeof *users, by_ordinal, (void *)(uintptr_t)graph);
    return users;
}

uint32_t fb_input_first(const fb_graph *graph, fb_node node) {
    return fb_node_at(graph, node)->first_input;
}

uint32_t fb_input_next(const fb_graph *graph, uint32_t edge) {
    return edge_row(graph, edge)->next_input;
}

fb_node fb_edge_input(const fb_graph *graph, uint32_t edge) {
    return edge_row(graph, edge)->input;
}

const char *fb_node_name(const fb_graph *graph, fb_node node) {
    return fb_text(graph, fb_node_at(graph, node)->name);
}

const char *fb_node_target(const fb_graph *graph, fb_node node) {
    return fb_text(graph, fb_node_at(graph, node)->target);
}

const char *fb_tensor_dtype_name(const fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    return row->other_dtype.id ? fb_text(graph, row->other_dtype) : fb_dtype_name((fb_dtype)row->dtype);
}

bool fb_tensor_is_carried(const fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    if (row->dtype == FB_DTYPE_OTHER) return true;
    const char *overlaps = row->rest.id ? fb_value_text(graph, fb_map_value(graph, row->rest, "overlaps")) : NULL;
    return overlaps && strcmp(overlaps, "true") == 0;
}

const char *fb_tensor_name(const fb_graph *graph, fb_tensor tensor) {
    return fb_text(graph, fb_tensor_at(graph, tensor)->name);
}

fb_value fb_node_arg(const fb_graph *graph, fb_node node, size_t index) {
    return fb_value_item(graph, fb_node_at(graph, node)->args, index);
}

fb_value fb_node_kwarg(const fb_graph *graph, fb_node node, const char *name) {
    return fb_map_value(graph, fb_node_at(graph, node)->kwargs, name);
}

fb_tensor fb_module_tensor(const fb_graph *graph, fb_module module, const char *attribute) {
    const fb_module_row *row = fb_module_at(graph, module);
    fb_value value = fb_map_value(graph, row->parameters, attribute);
    if (!value.id) value = fb_map_value(graph, row->buffers, attribute);
    return fb_value_tensor(graph, value);
}

fb_value fb_module_config(const fb_graph *graph, fb_module module, const char *key) {
    return fb_map_value(graph, fb_module_at(graph, module)->config, key);
}

int fb_shape_rank(const fb_graph *graph, fb_value shape) {
    return shape.id ? (int)fb_value_at(graph, shape)->count : -1;
}

int64_t fb_shape_size(const fb_graph *graph, fb_value shape, int axis) {
    int rank = fb_shape_rank(graph, shape);
    if (axis < 0) axis += rank;
    int64_t size;
    if (axis < 0 || axis >= rank || !fb_value_is_int(graph, fb_value_item(graph, shape, (size_t)axis), &size)) return -1;
    return size;
}
