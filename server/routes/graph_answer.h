/* A stored graph as an answer. */
#ifndef FB_ROUTES_GRAPH_ANSWER_H
#define FB_ROUTES_GRAPH_ANSWER_H

#include "server/http/http.h"

/* Responds with the canonical document, the id as its ETag, or 304 when the client has it. False when there is no such graph,
 * or it cannot be read: then with that problem. */
bool fb_respond_graph(const fb_request *request, fb_response *response, const char *id);

#endif
