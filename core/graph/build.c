/* Building and changing rows: lists, indexes, edges. */
#include "core/graph/build.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/internal.h"
#include "core/operators/op.h"

static fb_program_row *program_row(fb_graph *graph, fb_program program) {
    return fb_table_row(&graph->tables.programs, program.id, sizeof(fb_program_row));
}

/* A new row's id, or 0. */
static uint32_t add_row(fb_graph *graph, fb_table *table) {
    uint32_t id = fb_table_add(table);
    if (!id) graph->out_of_memory = true;
    return id;
}

/* The same of a row that is found by its name from here on. */
static uint32_t add_named(fb_graph *graph, fb_table *table, fb_symbol name, fb_named_kind kind) {
    uint32_t id = add_row(graph, table);
    if (!id || fb_graph_set_named(graph, name, kind, id)) return id;
    fb_table_truncate(table, id);
    return 0;
}

/* The node of a nested program is found by its name from here on. There must be room in the index. */
static void name_nested(fb_graph *graph, fb_node node, const fb_node_row *row) {
    fb_index_add(&graph->nested_index, name_hash(graph, row->program, row->name), node.id);
}

static void unname_node(fb_graph *graph, fb_node node, const fb_node_row *row) {
    if (row->program.id != FB_MAIN_PROGRAM.id)
        fb_index_remove(&graph->nested_index, name_hash(graph, row->program, row->name), node.id);
    else if (fb_named(graph, row->name, FB_NAMED_NODE) == node.id) fb_graph_set_named(graph, row->name, FB_NAMED_NODE, 0);
}

fb_program fb_graph_add_program(fb_graph *graph, fb_module owner) {
    fb_program program = {add_row(graph, &graph->tables.programs)};
    if (program.id) *program_row(graph, program) = (fb_program_row){.owner = owner};
    return program;
}

fb_node fb_graph_add_node(fb_graph *graph, fb_program program, fb_symbol name, fb_node before) {
    bool is_main = program.id == FB_MAIN_PROGRAM.id;
    fb_node node = {0};
    if (is_main) node.id = add_named(graph, &graph->tables.nodes, name, FB_NAMED_NODE);
    else if (fb_index_reserve(&graph->nested_index, 1)) node.id = add_row(graph, &graph->tables.nodes);
    else graph->out_of_memory = true;
    if (!node.id) return node;
    fb_program_row *list = program_row(graph, program);
    fb_node_row *row = fb_node_row_at(graph, node);
    *row = (fb_node_row){
        .name = name,
        .program = program,
        .args = FB_VALUE_EMPTY_LIST,
        .kwargs = FB_VALUE_EMPTY_MAP,
        .next = before,
        .previous = before.id ? fb_node_at(graph, before)->previous : list->last,
    };
    if (row->previous.id) fb_node_row_at(graph, row->previous)->next = node;
    else list->first = node;
    if (before.id) fb_node_row_at(graph, before)->previous = node;
    else list->last = node;
    list->node_count++;
    if (!is_main) name_nested(graph, node, row);
    return node;
}

/* Modules and tensors share one shape of list; their rows differ. */
#define LINK_AFTER(row, self, row_at, first, last)                                                                             \
    do {                                                                                                                       \
        (row)->previous = after.id ? after : (last);                                                                           \
        if ((row)->previous.id) {                                                                                              \
            (row)->next = row_at(graph, (row)->previous)->next;                                                                \
            row_at(graph, (row)->previous)->next = (self);                                                                     \
        } else {                                                                                                               \
            (first) = (self);                                                                                                  \
        }                                                                                                                      \
        if ((row)->next.id) row_at(graph, (row)->next)->previous = (self);                                                     \
        else (last) = (self);                                                                                                  \
    } while (0)

#define UNLINK(row, row_at, first, last)                                                                                       \
    do {                                                                                                                       \
        if ((row)->previous.id) row_at(graph, (row)->previous)->next = (row)->next;                                            \
        else (first) = (row)->next;                                                                                            \
        if ((row)->next.id) row_at(graph, (row)->next)->previous = (row)->previous;                                            \
        else (last) = (row)->previous;                                                                                         \
    } while (0)

fb_module fb_graph_add_module(fb_graph *graph, fb_symbol path, fb_module after) {
    fb_module module = {add_named(graph, &graph->tables.modules, path, FB_NAMED_MODULE)};
    if (!module.id) return module;
    fb_module_row *row = fb_module_row_at(graph, module);
    *row = (fb_module_row){
        .path = path, .config = FB_VALUE_EMPTY_MAP, .parameters = FB_VALUE_EMPTY_MAP, .buffers = FB_VALUE_EMPTY_MAP};
    LINK_AFTER(row, module, fb_module_row_at, graph->first_module, graph->last_module);
    graph->module_count++;
    return module;
}

fb_tensor fb_graph_add_tensor(fb_graph *graph, fb_symbol name, fb_tensor after) {
    fb_tensor tensor = {add_named(graph, &graph->tables.tensors, name, FB_NAMED_TENSOR)};
    if (!tensor.id) return tensor;
    fb_tensor_row *row = fb_tensor_row_at(graph, tensor);
    *row = (fb_tensor_row){
        .name = name,
        .shape = FB_VALUE_EMPTY_LIST,
    };
    LINK_AFTER(row, tensor, fb_tensor_row_at, graph->first_tensor, graph->last_tensor);
    graph->tensor_count++;
    return tensor;
}

/* ---- edges ------------------------------------------------------------------------------------------------------------- */

static uint32_t take_edge(fb_graph *graph) {
    uint32_t edge = graph->free_edge;
    if (edge) {
        graph->free_edge = edge_row(graph, edge)->next_input;
        return edge;
    }
    edge = fb_table_add(&graph->tables.edges);
    if (!edge) graph->out_of_memory = true;
    return edge;
}

static void unlink_inputs(fb_graph *graph, fb_node node) {
    fb_node_row *row = fb_node_row_at(graph, node);
    uint32_t edge = row->first_input;
    while (edge) {
        fb_edge_row *e = edge_row(graph, edge);
        uint32_t next = e->next_input;
        fb_node_row *input = fb_node_row_at(graph, e->input);
        if (e->previous_use) edge_row(graph, e->previous_use)->next_use = e->next_use;
        else input->first_use = e->next_use;
        if (e->next_use) edge_row(graph, e->next_use)->previous_use = e->previous_use;
        else input->last_use = e->previous_use;
        input->user_count--;
        input->seen_by = 0;
        *e = (fb_edge_row){.next_input = graph->free_edge};
        graph->free_edge = edge;
        edge = next;
    }
    row->first_input = 0;
}

typedef struct linker {
    fb_graph *graph;
    fb_node user;
    uint32_t last_edge;
    bool failed;
} linker;

static void link_input(linker *l, fb_node input) {
    fb_node_row *row = fb_node_row_at(l->graph, input);
    if (row->seen_by == l->user.id || l->failed) return;
    uint32_t edge = take_edge(l->graph);
    if (!edge) {
        l->failed = true;
        return;
    }
    row->seen_by = l->user.id;
    *edge_row(l->graph, edge) = (fb_edge_row){.user = l->user, .input = input, .previous_use = row->last_use};
    if (row->last_use) edge_row(l->graph, row->last_use)->next_use = edge;
    else row->first_use = edge;
    row->last_use = edge;
    row->user_count++;
    if (l->last_edge) edge_row(l->graph, l->last_edge)->next_input = edge;
    else fb_node_row_at(l->graph, l->user)->first_input = edge;
    l->last_edge = edge;
}

static void link_nodes(linker *l, fb_value value) {
    fb_node input = fb_value_node(l->graph, value);
    if (input.id) {
        link_input(l, input);
        return;
    }
    const fb_value_row *row = fb_value_at(l->graph, value);
    for (uint32_t i = 0; row->has_nodes && i < row->count; i++) link_nodes(l, row->items[i]);
}

static bool link_inputs(fb_graph *graph, fb_node node) {
    linker l = {.graph = graph, .user = node};
    const fb_node_row *row = fb_node_at(graph, node);
    link_nodes(&l, row->args);
    link_nodes(&l, row->kwargs);
    return !l.failed;
}

bool fb_graph_set_args(fb_graph *graph, fb_node node, fb_value args, fb_value kwargs) {
    if (!args.id || !kwargs.id) return false;
    fb_node_row *row = fb_node_row_at(graph, node);
    fb_value old_args = row->args, old_kwargs = row->kwargs;
    unlink_inputs(graph, node);
    row->args = args;
    row->kwargs = kwargs;
    if (link_inputs(graph, node)) return true;
    /* Edges that unlink freed are enough to link the old arguments again. */
    unlink_inputs(graph, node);
    row->args = old_args;
    row->kwargs = old_kwargs;
    link_inputs(graph, node);
    return false;
}

/* ---- erasing ----------------------------------------------------------------------------------------------------------- */

void fb_graph_erase_node(fb_graph *graph, fb_node node) {
    fb_node_row *row = fb_node_row_at(graph, node);
    if (row->is_erased) return;
    fb_program_row *list = program_row(graph, row->program);
    unlink_inputs(graph, node);
    UNLINK(row, fb_node_row_at, list->first, list->last);
    list->node_count--;
    row->is_erased = true;
    unname_node(graph, node, row);
}

void fb_graph_erase_module(fb_graph *graph, fb_module module) {
    fb_module_row *row = fb_module_row_at(graph, module);
    if (row->is_erased) return;
    UNLINK(row, fb_module_row_at, graph->first_module, graph->last_module);
    graph->module_count--;
    row->is_erased = true;
    fb_graph_set_named(graph, row->path, FB_NAMED_MODULE, 0);
}

void fb_graph_erase_tensor(fb_graph *graph, fb_tensor tensor) {
    fb_tensor_row *row = fb_tensor_row_at(graph, tensor);
    if (row->is_erased) return;
    UNLINK(row, fb_tensor_row_at, graph->first_tensor, graph->last_tensor);
    graph->tensor_count--;
    row->is_erased = true;
    fb_graph_set_named(graph, row->name, FB_NAMED_TENSOR, 0);
}

/* ---- what a target means ----------------------------------------------------------------------------------------------- */

enum { OF_FUNCTION, OF_METHOD, OF_MODULE };

/* The operator that a text names, which is asked for once for each text. */
static uint16_t op_of(fb_graph *graph, fb_symbol text, unsigned kind) {
    static fb_op (*const find[])(const char *, size_t) = {fb_op_of_function, fb_op_of_method, fb_op_of_module};
    fb_names_row *row = fb_graph_names_of(graph, text);
    uint16_t unknown = 0, *op = row ? &row->ops[kind] : &unknown;
    if (!*op) *op = (uint16_t)(1 + find[kind](fb_text(graph, text), fb_text_length(graph, text)));
    return (uint16_t)(*op - 1);
}

/* The module at `length` bytes of the target relative to the program's owner. */
static fb_module find_relative(fb_graph *graph, fb_program program, fb_symbol target, size_t length) {
    const char *path = fb_text(graph, target);
    fb_module owner = fb_program_at(graph, program)->owner;
    size_t prefix = owner.id ? fb_text_length(graph, fb_module_at(graph, owner)->path) : 0;
    fb_symbol symbol = {0};
    if (prefix == 0) {
        symbol = length == fb_text_length(graph, target) ? target : fb_symbol_find(graph, path, length);
    } else if (length == 0) {
        return owner;
    } else {
        char *full = malloc(prefix + 1 + length);
        if (!full) {
            graph->out_of_memory = true;
            return (fb_module){0};
        }
        memcpy(full, fb_text(graph, fb_module_at(graph, owner)->path), prefix);
        full[prefix] = '.';
        memcpy(full + prefix + 1, path, length);
        symbol = fb_symbol_find(graph, full, prefix + 1 + length);
        free(full);
    }
    return symbol.id ? fb_graph_module_named(graph, symbol) : (fb_module){0};
}

void fb_graph_set_target(fb_graph *graph, fb_node node, fb_opcode opcode, fb_symbol target) {
    fb_node_row *row = fb_node_row_at(graph, node);
    row->opcode = (uint8_t)opcode;
    row->target = target;
    row->op = 0;
    row->module = (fb_module){0};
    row->attribute = (fb_symbol){0};
    const char *text = fb_text(graph, target);
    size_t length = fb_text_length(graph, target);
    if (opcode == FB_CALL_FUNCTION) row->op = op_of(graph, target, OF_FUNCTION);
    if (opcode == FB_CALL_METHOD) row->op = op_of(graph, target, OF_METHOD);
    if (opcode == FB_CALL_MODULE) row->module = find_relative(graph, row->program, target, length);
    if (opcode != FB_GET_ATTR) return;

    fb_module whole = find_relative(graph, row->program, target, length);
    if (whole.id && fb_module_at(graph, whole)->program.id) {
        row->module = whole;
        return;
    }
    const char *dot = strrchr(text, '.');
    size_t owner_length = dot ? (size_t)(dot - text) : 0;
    row->module = find_relative(graph, row->program, target, owner_length);
    row->attribute = fb_intern(graph, dot ? dot + 1 : text);
}

void fb_graph_set_module_type(fb_graph *graph, fb_module module, fb_symbol type) {
    fb_module_row *row = fb_module_row_at(graph, module);
    row->type = type;
    row->op = op_of(graph, type, OF_MODULE);
}

void fb_graph_resolve(fb_graph *graph, fb_work *work) {
    for (uint32_t id = 1; id < fb_node_limit(graph) && fb_work_goes_on(work, 8); id++) {
        fb_node_row *row = fb_node_row_at(graph, (fb_node){id});
        if (!row->is_erased && row->target.id) fb_graph_set_target(graph, (fb_node){id}, (fb_opcode)row->opcode, row->target);
    }
}

void fb_graph_number(fb_graph *graph) {
    for (uint32_t id = 1; id < fb_program_limit(graph); id++) {
        uint32_t ordinal = 0;
        for (fb_node n = fb_first_node(graph, (fb_program){id}); n.id; n = fb_next_node(graph, n)) {
            fb_node_row_at(graph, n)->ordinal = ordinal++;
        }
    }
}

void fb_graph_reserve(fb_graph *graph, size_t symbols) {
    if (!fb_index_reserve(&graph->symbol_index, symbols)) graph->out_of_memory = true;
}

void fb_graph_set_name(fb_graph *graph, fb_symbol name) {
    graph->name = name;
}

/* Quotes within a text have a backslash, and members are sorted. */
static const char opset_said[] = "\"opsets\":{\"\":";

const char *fb_opset_said(const char *onnx) {
    const char *found = onnx ? strstr(onnx, opset_said) : NULL;
    return found ? found + strlen(opset_said) : NULL;
}

void fb_graph_set_metadata(fb_graph *graph, fb_value metadata) {
    const char *dialect = metadata.id ? fb_value_text(graph, fb_map_value(graph, metadata, "dialect")) : NULL;
    graph->metadata = metadata;
    graph->is_onnx = dialect && strcmp(dialect, "\"onnx\"") == 0;
    const char *said = graph->is_onnx ? fb_value_text(graph, fb_map_value(graph, metadata, "onnx")) : NULL;
    const char *opset = fb_opset_said(said);
    graph->opset = opset ? atoll(opset) : 0;
}

fb_value fb_make_tensor_named(fb_symbol name) {
    return (fb_value){name.id ? name.id | FB_VALUE_IS_TENSOR : 0};
}

bool fb_graph_find_tensors(fb_graph *graph, fb_work *work) {
    for (fb_module m = graph->first_module; m.id; m = fb_module_at(graph, m)->next) {
        const fb_value maps[] = {fb_module_at(graph, m)->parameters, fb_module_at(graph, m)->buffers};
        for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
            fb_value_row *map = fb_table_row(&graph->tables.values, maps[i].id, FB_RECORD_UNIT);
            for (uint32_t j = 1; j < map->count && fb_work_goes_on(work, 4); j += 2) {
                fb_symbol name = {fb_value_tensor(graph, map->items[j]).id};
                if (!name.id) continue;
                map->items[j] = fb_make_tensor(graph, fb_graph_tensor_named(graph, name));
                if (!map->items[j].id) return false;
            }
        }
    }
    return true;
}

/* ---- undoing ----------------------------------------------------------------------------------------------------------- */

void fb_graph_rename_tensors(fb_graph *graph, const fb_symbol *names) {
    for (fb_tensor t = graph->first_tensor; t.id; t = fb_tensor_at(graph, t)->next)
        fb_graph_set_named(graph, fb_tensor_at(graph, t)->name, FB_NAMED_TENSOR, 0);
    for (fb_tensor t = graph->first_tensor; t.id; t = fb_tensor_at(graph, t)->next) {
        fb_tensor_row *row = fb_tensor_row_at(graph, t);
        if (names[t.id].id) row->name = names[t.id];
        fb_graph_set_named(graph, row->name, FB_NAMED_TENSOR, t.id);
    }
}

fb_graph_mark fb_graph_mark_now(const fb_graph *graph) {
    return (fb_graph_mark){graph->tables.nodes.count, graph->tables.modules.count, graph->tables.tensors.count,
                           graph->tables.programs.count};
}

/* Nothing is found by its name any more. */
static void forget_names(fb_graph *graph) {
    fb_index_clear(&graph->nested_index);
    for (uint32_t id = 1; id < fb_node_limit(graph); id++)
        fb_graph_set_named(graph, fb_node_at(graph, (fb_node){id})->name, FB_NAMED_NODE, 0);
    for (uint32_t id = 1; id < fb_module_limit(graph); id++)
        fb_graph_set_named(graph, fb_module_at(graph, (fb_module){id})->path, FB_NAMED_MODULE, 0);
    for (uint32_t id = 1; id < fb_tensor_limit(graph); id++)
        fb_graph_set_named(graph, fb_tensor_at(graph, (fb_tensor){id})->name, FB_NAMED_TENSOR, 0);
}

static void restore_nodes(fb_graph *graph) {
    fb_table_truncate(&graph->tables.edges, graph->tables.edges.count ? 1 : 0);
    graph->free_edge = 0;
    for (uint32_t id = 1; id < fb_program_limit(graph); id++) {
        fb_program_row *list = program_row(graph, (fb_program){id});
        *list = (fb_program_row){.owner = list->owner};
    }
    for (uint32_t id = 1; id < fb_node_limit(graph); id++) {
        fb_node_row *row = fb_node_row_at(graph, (fb_node){id});
        row->first_use = row->last_use = row->first_input = row->user_count = row->seen_by = 0;
        if (row->is_erased) continue;
        fb_program_row *list = program_row(graph, row->program);
        if (!row->previous.id) list->first = (fb_node){id};
        if (!row->next.id) list->last = (fb_node){id};
        list->node_count++;
        if (row->program.id != FB_MAIN_PROGRAM.id) name_nested(graph, (fb_node){id}, row);
        else fb_graph_set_named(graph, row->name, FB_NAMED_NODE, id);
    }
    for (uint32_t id = 1; id < fb_program_limit(graph); id++) {
        for (fb_node n = fb_first_node(graph, (fb_program){id}); n.id; n = fb_next_node(graph, n)) link_inputs(graph, n);
    }
}

void fb_graph_restore(fb_graph *graph, fb_graph_mark mark) {
    forget_names(graph);
    fb_table_truncate(&graph->tables.nodes, mark.nodes);
    fb_table_truncate(&graph->tables.modules, mark.modules);
    fb_table_truncate(&graph->tables.tensors, mark.tensors);
    fb_table_truncate(&graph->tables.programs, mark.programs);
    restore_nodes(graph);

    graph->first_module = graph->last_module = (fb_module){0};
    graph->module_count = 0;
    for (uint32_t id = 1; id < fb_module_limit(graph); id++) {
        const fb_module_row *row = fb_module_at(graph, (fb_module){id});
        if (row->is_erased) continue;
        if (!row->previous.id) graph->first_module = (fb_module){id};
        if (!row->next.id) graph->last_module = (fb_module){id};
        graph->module_count++;
        fb_graph_set_named(graph, row->path, FB_NAMED_MODULE, id);
    }

    graph->first_tensor = graph->last_tensor = (fb_tensor){0};
    graph->tensor_count = 0;
    for (uint32_t id = 1; id < fb_tensor_limit(graph); id++) {
        const fb_tensor_row *row = fb_tensor_at(graph, (fb_tensor){id});
        if (row->is_erased) continue;
        if (!row->previous.id) graph->first_tensor = (fb_tensor){id};
        if (!row->next.id) graph->last_tensor = (fb_tensor){id};
        graph->tensor_count++;
        fb_graph_set_named(graph, row->name, FB_NAMED_TENSOR, id);
    }
    graph->out_of_memory = false;
}

fb_graph *fb_graph_new(void) {
    fb_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return NULL;
    graph->seed = fb_hash(&graph, sizeof graph, 0);
    graph->tables.symbols.row_size = graph->tables.values.row_size = FB_RECORD_UNIT;
    graph->tables.names.row_size = sizeof(fb_names_row);
    graph->tables.nodes.row_size = sizeof(fb_node_row);
    graph->tables.modules.row_size = sizeof(fb_module_row);
    graph->tables.tensors.row_size = sizeof(fb_tensor_row);
    graph->tables.programs.row_size = sizeof(fb_program_row);
    graph->tables.edges.row_size = sizeof(fb_edge_row);
    graph->name = fb_intern(graph, "");
    if (!graph->name.id || !fb_graph_make_first_values(graph) || !fb_graph_add_program(graph, (fb_module){0}).id) {
        fb_graph_free(graph);
        return NULL;
    }
    return graph;
}
