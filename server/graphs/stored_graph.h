/* Graphs between the store and the decoded form: loaded through the cache, and as the rows that the store takes. */
#ifndef FB_GRAPHS_STORED_GRAPH_H
#define FB_GRAPHS_STORED_GRAPH_H

#include "server/app.h"

/* A decoded graph, with its canonical document when it is (or may be) not in the store yet. */
typedef struct fb_graph_input {
    fb_shared_graph *shared;
    fb_buffer document;  /* empty: it came from the store */
    const json_t *files; /* digests of those that it was bound to, which must be here when it is stored; NULL for none */
} fb_graph_input;

/* Writes a graph's document and finds its id; steals the graph, also on failure. */
fb_status fb_graph_input_take(fb_graph *graph, const fb_watch *watch, fb_graph_input *out, fb_error *error);
void fb_graph_input_free(fb_graph_input *input);

/* The graph with that id, held for the caller, from the cache or the store. FB_NOT_FOUND "unknown-graph". */
fb_status fb_load_graph(const fb_app *app, const fb_watch *watch, const char *id, fb_shared_graph **out, fb_error *error);

/* What the store takes. Its texts are borrowed from the input. */
typedef struct fb_graph_row {
    fb_store_graph graph;
    char structure[FB_ID_LENGTH + 1];
    fb_store_mark *marks;
    const char **blobs, **needed;
} fb_graph_row;

/* `out` stays where it is while it is in use; free it with fb_graph_row_free. */
fb_status fb_graph_row_make(const fb_graph_input *input, const fb_watch *watch, fb_graph_row *out, fb_error *error);
void fb_graph_row_free(fb_graph_row *row);

#endif
