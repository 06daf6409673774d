/* One call in a small graph, whose inputs are x, y and z, a float32. Texts have ' for ". */
#ifndef FB_TESTS_CALL_GRAPH_H
#define FB_TESTS_CALL_GRAPH_H

#include "core/graph/graph.h"

#define NODE(name) "{'$node':'" name "'}"
#define FUNCTION(target, rest) "'op':'call_function','target':'" target "'," rest
#define METHOD(target, rest) "'op':'call_method','target':'" target "'," rest
#define MODULE(rest) "'op':'call_module','target':'m'," rest
#define ARGS(args) "'args':[" args "]"
#define KWARGS(kwargs) "'kwargs':{" kwargs "}"
#define X ARGS(NODE("x"))
#define TYPE(type, config, training) "{'path':'m','type':'" type "','config':{" config "},'training':" training "}"

/* The node f: `call` is the rest of it after its name. `modules` are those beside the root. */
fb_graph *call_graph(const char *call, const char *modules, const char *tensors);
/* The same with nodes before it. */
fb_graph *call_graph_reading(const char *reads, const char *call, const char *modules, const char *tensors);

#endif
