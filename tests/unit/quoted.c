#include "tests/unit/quoted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "tests/unit/documents.h"

static char *text_of(const char *nodes, const char *modules, const char *tensors) {
    char *text = document_of(nodes, modules, tensors);
    for (char *c = text; *c; c++) {
        if (*c == '\'') *c = '"';
    }
    return text;
}

fb_graph *quoted_graph(const char *nodes, const char *modules, const char *tensors) {
    char *text = text_of(nodes, modules, tensors);
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    return graph;
}

char *quoted_errors(const char *nodes, const char *modules, const char *tensors) {
    char *text = text_of(nodes, modules, tensors);
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    if (fb_document_read(text, strlen(text), NULL, "", &graph, &errors) == FB_OK) fb_graph_free(graph);
    free(text);
    char *found = errors_text(&errors);
    fb_errors_free(&errors);
    return found;
}

fb_node node_named(const fb_graph *graph, const char *name) {
    fb_node node = fb_node_find(graph, FB_MAIN_PROGRAM, name);
    if (!node.id) {
        fprintf(stderr, "no node %s\n", name);
        abort();
    }
    return node;
}
