/* The graph's own fields; for core/graph/{value,graph,build}.c alone. */
#ifndef FB_GRAPH_INTERNAL_H
#define FB_GRAPH_INTERNAL_H

#include "core/base/arena.h"
#include "core/base/map.h"
#include "core/base/table.h"
#include "core/graph/build.h"

typedef struct fb_symbol_row {
    const char *text;
    uint32_t length;
    uint16_t op_of_function, op_of_method, op_of_module; /* cached answers of core/ops/op.h */
    bool function_known, method_known, module_known;
} fb_symbol_row;

/* "user reads input", once per distinct pair. */
typedef struct fb_edge_row {
    fb_node user, input;
    uint32_t previous_use, next_use; /* among the input's readers */
    uint32_t next_input;             /* among the user's inputs; also links free edges */
} fb_edge_row;

struct fb_graph {
    fb_arena arena; /* texts and item arrays */
    fb_table symbols, values, nodes, modules, tensors, programs, edges;
    fb_map symbol_index; /* hash of the text -> symbol */
    fb_map value_index;  /* hash of the row -> value */
    fb_map node_index;   /* program << 32 | symbol -> node */
    fb_map module_index; /* symbol -> module */
    fb_map tensor_index; /* symbol -> tensor */
    uint32_t free_edge;
    fb_module first_module, last_module;
    fb_tensor first_tensor, last_tensor;
    uint32_t module_count, tensor_count;
    fb_symbol name;
    fb_value metadata;
    uint64_t seed; /* of the hash tables */
    bool out_of_memory;
};

static inline fb_symbol_row *symbol_row(const fb_graph *graph, fb_symbol symbol) {
    return fb_table_at(&graph->symbols, symbol.id);
}
static inline fb_edge_row *edge_row(const fb_graph *graph, uint32_t edge) {
    return fb_table_at(&graph->edges, edge);
}

#endif
