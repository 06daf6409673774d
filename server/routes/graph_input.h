/* Graphs on their way in: from a request or from the store to a decoded graph, and from there to what the store takes. */
#ifndef FB_ROUTES_GRAPH_INPUT_H
#define FB_ROUTES_GRAPH_INPUT_H

#include "server/app.h"
#include "server/http/http.h"
#include "server/routes/run_request.h"

/* A decoded graph, with its canonical document when it is (or may be) not in the store yet. */
typedef struct fb_graph_input {
    fb_shared_graph *shared;
    fb_buffer document;  /* empty: it came from the store */
    const json_t *files; /* digests of those that it was bound to, which must be here when it is stored; NULL for none */
} fb_graph_input;

/* Reads a document that stands at `pointer` of the request. When it is not valid this responds and returns false. */
bool fb_graph_input_read(const fb_request *request, fb_response *response, const char *document, size_t size,
                         const char *pointer, fb_graph_input *out);
/* The member `name` of a body, the first or second of its pair (request_body.h): a document, or the id of one. Likewise. */
bool fb_graph_input_pair(const fb_request *request, fb_response *response, const fb_request_body *body, int which,
                         const char *name, fb_graph_input *out);
/* The graph that a request gives, as a document or by its id; nothing when it gives none. Likewise. */
bool fb_graph_input_find(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_graph_input *out);
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
