/* The graphs that a request gives: as documents, or by the ids of stored ones. */
#ifndef FB_ROUTES_GRAPH_INPUT_H
#define FB_ROUTES_GRAPH_INPUT_H

#include "server/graphs/graphs.h"
#include "server/http/http.h"
#include "server/routes/run_request.h"

/* Reads a document that stands at `pointer` of the request. When it is not valid this responds and returns false. */
bool fb_graph_input_read(const fb_request *request, fb_response *response, const char *document, size_t size,
                         const char *pointer, fb_graph_input *out);
/* The member `name` of a body, the first or second of its pair (request_body.h): a document, or the id of one. Likewise. */
bool fb_graph_input_pair(const fb_request *request, fb_response *response, const fb_request_body *body, int which,
                         const char *name, fb_graph_input *out);
/* The graph that a request gives, as a document or by its id; nothing when it gives none. Likewise. */
bool fb_graph_input_find(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_graph_input *out);
#endif
