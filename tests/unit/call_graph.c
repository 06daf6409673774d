#include "tests/unit/call_graph.h"

#include <stdio.h>

#include "tests/unit/quoted.h"

#define INPUT(name) "{'name':'" name "','op':'placeholder','target':'" name "'},"
#define TENSOR_INPUT(name) "{'name':'" name "','op':'placeholder','target':'" name "','meta':{'dtype':'float32'}},"
#define END ",{'name':'output','op':'output','target':'output','args':[null]}"
#define ROOT "{'path':'','type':'M'}"

fb_graph *call_graph_reading(const char *reads, const char *call, const char *modules, const char *tensors) {
    char nodes[4096];
    snprintf(nodes, sizeof nodes, INPUT("x") INPUT("y") TENSOR_INPUT("z") "%s{'name':'f',%s}" END, reads, call);
    char all[4096];
    snprintf(all, sizeof all, ROOT "%s%s", *modules ? "," : "", modules);
    return quoted_graph(nodes, all, tensors);
}

fb_graph *call_graph(const char *call, const char *modules, const char *tensors) {
    return call_graph_reading("", call, modules, tensors);
}
