/* The uses of modules: the calls of each module, the modules that are read by get_attr. Built once in O(graph) for the graph as
 * it is; does not follow later changes. */
#ifndef FB_ANALYSIS_USAGE_H
#define FB_ANALYSIS_USAGE_H

#include "core/graph/graph.h"
#include "core/operators/op.h"

typedef struct fb_usage fb_usage;

fb_usage *fb_usage_new(const fb_graph *graph); /* NULL when memory is out */
void fb_usage_free(fb_usage *usage);

/* The nodes of the main program in order, and the operator of each (fb_node_op): a search for a few operators reads less of
 * them than of the rows. */
typedef struct fb_node_list {
    const fb_node *nodes;
    const fb_op *ops;
    size_t count;
} fb_node_list;
fb_node_list fb_usage_nodes(const fb_usage *usage);

/* call_module nodes of the module in all programs, by document order, the main program's first. */
uint32_t fb_call_count(const fb_usage *usage, fb_module module);
fb_node fb_first_call(const fb_usage *usage, fb_module module);
fb_node fb_next_call(const fb_usage *usage, fb_node call);

/* A get_attr reads one of the module's parameters, buffers or attributes (or it is a nested program that is read). */
bool fb_module_is_read(const fb_usage *usage, fb_module module);
/* How many nodes read what get_attr nodes read of it. */
uint32_t fb_module_readers(const fb_usage *usage, fb_module module);
/* A module around this one (by path) is called as a whole by a call_module, so this one may be used out of sight. */
bool fb_module_is_inside_call(const fb_usage *usage, fb_module module);

/* The nearest module around this one that is called as a whole, or none. */
fb_module fb_called_around(const fb_graph *graph, const fb_usage *usage, fb_module module);
/* The module whose calls decide about a module's tensors: itself, or the nearest called one around it; or none. */
fb_module fb_deciding_module(const fb_graph *graph, const fb_usage *usage, fb_module module);

#endif
