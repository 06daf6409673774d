/* The graph's own fields; for core/graph/{value,graph,build}.c alone. */
#ifndef FB_GRAPH_INTERNAL_H
#define FB_GRAPH_INTERNAL_H

#include "core/base/index.h"
#include "core/base/map.h"
#include "core/base/table.h"
#include "core/graph/build.h"

/* "user reads input", once per distinct pair. */
typedef struct fb_edge_row {
    fb_node user, input;
    uint32_t previous_use, next_use; /* among the input's readers */
    uint32_t next_input;             /* among the user's inputs; also links free edges */
} fb_edge_row;

/* A text that was interned last from this address, which a constant of the program keeps. */
typedef struct fb_known_text {
    const char *text;
    fb_symbol symbol;
} fb_known_text;
#define FB_KNOWN_TEXTS 256U

/* An int whose value was asked for last of those that share its place. */
typedef struct fb_known_int {
    int64_t integer;
    fb_value value;
} fb_known_int;
#define FB_KNOWN_INTS 64U

struct fb_graph {
    fb_graph_tables tables; /* first: graph.h reads them */
    fb_index symbol_index;  /* by text */
    fb_index value_index;   /* by kind, scalar and items */
    fb_index nested_index;  /* nodes of nested programs, by program and name; the symbol holds everything else that has a name
                             */
    uint32_t free_edge;
    fb_module first_module, last_module;
    fb_tensor first_tensor, last_tensor;
    uint32_t module_count, tensor_count;
    fb_symbol name;
    fb_value metadata;
    bool is_onnx;  /* as the metadata say; */
    int64_t opset; /* of ONNX's default domain, or 0 */
    uint64_t seed; /* of the hash tables */
    bool out_of_memory;
    fb_known_text known[FB_KNOWN_TEXTS]; /* by address */
    fb_known_int ints[FB_KNOWN_INTS];
};

static inline fb_symbol_row *symbol_row(const fb_graph *graph, fb_symbol symbol) {
    return fb_table_row(&graph->tables.symbols, symbol.id, FB_RECORD_UNIT);
}
static inline fb_edge_row *edge_row(const fb_graph *graph, uint32_t edge) {
    return fb_table_row(&graph->tables.edges, edge, sizeof(fb_edge_row));
}

/* The place of a name in an index: multiplied by a secret odd number, which spreads ids that follow each other, and which a
 * document cannot foresee. */
static inline uint32_t name_hash(const fb_graph *graph, fb_program program, fb_symbol name) {
    return (uint32_t)((((uint64_t)program.id << 32 | name.id) * (graph->seed | 1)) >> 32);
}
/* Finds the row of a name that several things have, or makes it; NULL when memory is out. */
fb_names_row *fb_graph_names_of(fb_graph *graph, fb_symbol name);
/* The thing of that kind and name, from here on; 0 = none. False when memory is out, which a thing that had the name before
 * does not need. */
bool fb_graph_set_named(fb_graph *graph, fb_symbol name, fb_named_kind kind, uint32_t id);
/* FB_VALUE_NONE and so on, in a graph without values; false when memory is out. */
bool fb_graph_make_first_values(fb_graph *graph);

#endif
