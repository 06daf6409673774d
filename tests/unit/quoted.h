/* Documents written with ' for ", for tests that hold many small ones. */
#ifndef FB_TESTS_QUOTED_H
#define FB_TESTS_QUOTED_H

#include "core/graph/graph.h"

/* The graph of document_of(nodes, modules, tensors), checked. NULL for modules is the root alone. */
fb_graph *quoted_graph(const char *nodes, const char *modules, const char *tensors);
/* The same unchecked: "code pointer\n" of what the reader found wrong, to be freed; "" when nothing. */
char *quoted_errors(const char *nodes, const char *modules, const char *tensors);
/* The node of that name in the main program; aborts when there is none. */
fb_node node_named(const fb_graph *graph, const char *name);

#endif
