/* The programs that a pass over values looks into: the main one, and of an ONNX model those within it and its functions, each
 * behind the one around it, whose values it may capture. */
#ifndef FB_ANALYSIS_SCOPES_H
#define FB_ANALYSIS_SCOPES_H

#include "core/graph/graph.h"

typedef struct fb_scopes {
    fb_node *nodes; /* of all these programs, in order */
    size_t count;
    size_t *place; /* by node: where among them */
    fb_program *programs;
    size_t program_count;
    fb_node *outer; /* by node: what a placeholder captures of the program around it; none for others. NULL: nothing is */
} fb_scopes;

/* False when memory is out; freed in any case. Linear in the graph. */
bool fb_scopes_find(const fb_graph *graph, fb_scopes *out);
void fb_scopes_free(fb_scopes *scopes);
/* Follows a placeholder to what it captures, and that again, to the node that made the value. */
static inline fb_node fb_captured_origin(const fb_node *outer, fb_node node) {
    while (outer && outer[node.id].id) node = outer[node.id];
    return node;
}

#endif
