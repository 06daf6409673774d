/* Building and changing the rows of a graph. For those who own it: the document reader, core/rewrite, which
 * keeps a journal, and what makes a graph of its own, as a merge, a replay and a region do. Others only read.
 *
 * The functions that add return none and set fb_graph_out_of_memory when memory is out. Names and paths must be free: the
 * caller checks. Rows may be written through the _row pointers, except the members that these functions keep: name and path
 * (indexed), previous/next, the edges, args and kwargs (fb_graph_set_args), target and module (fb_graph_set_target).
 */
#ifndef FB_GRAPH_BUILD_H
#define FB_GRAPH_BUILD_H

#include "core/graph/graph.h"

/* Rows to be written. */
static inline fb_node_row *fb_node_row_at(fb_graph *graph, fb_node node) {
    return (fb_node_row *)(uintptr_t)fb_node_at(graph, node);
}
static inline fb_module_row *fb_module_row_at(fb_graph *graph, fb_module module) {
    return (fb_module_row *)(uintptr_t)fb_module_at(graph, module);
}
static inline fb_tensor_row *fb_tensor_row_at(fb_graph *graph, fb_tensor tensor) {
    return (fb_tensor_row *)(uintptr_t)fb_tensor_at(graph, tensor);
}

/* The row of that name, or none. */
fb_node fb_graph_node_named(const fb_graph *graph, fb_program program, fb_symbol name);
fb_module fb_graph_module_named(const fb_graph *graph, fb_symbol path);
fb_tensor fb_graph_tensor_named(const fb_graph *graph, fb_symbol name);

/* Adds a row to the end of its list, or before `before` (nodes) or after `after` (modules, tensors) when that is not none. The
 * node starts without target, with args [] and kwargs {}; the module with empty maps; the tensor with shape []. */
fb_node fb_graph_add_node(fb_graph *graph, fb_program program, fb_symbol name, fb_node before);
fb_module fb_graph_add_module(fb_graph *graph, fb_symbol path, fb_module after);
fb_tensor fb_graph_add_tensor(fb_graph *graph, fb_symbol name, fb_tensor after);
fb_program fb_graph_add_program(fb_graph *graph, fb_module owner);

/* Takes a row out of its list and its name out of the index; the row itself stays, marked as erased. One that was erased
 * before stays as it is: several matches may ask for it. */
void fb_graph_erase_node(fb_graph *graph, fb_node node);
void fb_graph_erase_module(fb_graph *graph, fb_module module);
void fb_graph_erase_tensor(fb_graph *graph, fb_tensor tensor);

/* Sets opcode and target and resolves `op`, `module` and `attribute` (relative to the program's owner). Whether a module exists
 * is for the verifier: an unknown path leaves `module` none. Modules must be there before their callers are resolved;
 * fb_graph_resolve resolves every node again. */
void fb_graph_set_target(fb_graph *graph, fb_node node, fb_opcode opcode, fb_symbol target);
void fb_graph_set_module_type(fb_graph *graph, fb_module module, fb_symbol type);
void fb_graph_resolve(fb_graph *graph, fb_work *work);

/* Sets args (FB_LIST) and kwargs (FB_MAP) and keeps the edges. False when memory is out (args then unchanged). */
bool fb_graph_set_args(fb_graph *graph, fb_node node, fb_value args, fb_value kwargs);

/* A module can own tensors that will be added later: their values, of which only maps are made, hold their names until
 * fb_graph_find_tensors finds them. False: one of them is missing. */
fb_value fb_make_tensor_named(fb_symbol name);
bool fb_graph_find_tensors(fb_graph *graph, fb_work *work);

/* Renames tensors, all at once: `names` has a symbol for each tensor's id, none = it keeps its name. The caller sees to it that
 * no two have one name afterwards. */
void fb_graph_rename_tensors(fb_graph *graph, const fb_symbol *names);

/* Gives every node its ordinal. */
void fb_graph_number(fb_graph *graph);

/* Makes room for so many symbols. */
void fb_graph_reserve(fb_graph *graph, size_t symbols);

void fb_graph_set_name(fb_graph *graph, fb_symbol name);
void fb_graph_set_metadata(fb_graph *graph, fb_value metadata);
/* Where the text of the metadata's `onnx` has the number of the default domain's opset; NULL: it has none. */
const char *fb_opset_said(const char *onnx);

/* For undoing a failed rewrite: how many rows there are, and back to that many. Restoring forgets later rows, and then rebuilds
 * lists' ends, indexes and edges from the rows, which the caller has put back as they were. Allocates nothing. */
typedef struct fb_graph_mark {
    uint32_t nodes, modules, tensors, programs;
} fb_graph_mark;
fb_graph_mark fb_graph_mark_now(const fb_graph *graph);
void fb_graph_restore(fb_graph *graph, fb_graph_mark mark);

#endif
