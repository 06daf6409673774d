/* The outermost object of a request's body, cut into its members without making a tree of a graph that is among them. */
#ifndef FB_ROUTES_REQUEST_BODY_H
#define FB_ROUTES_REQUEST_BODY_H

#include <jansson.h>

#include "server/http/http.h"

typedef struct fb_request_body {
    bool is_document;  /* the whole body is a graph document: it has a member "format" */
    const char *graph; /* the text of the document: the body, or its member "graph" where that is an object; else NULL */
    size_t graph_size;
    const char *pair[2]; /* likewise of the members source and result, or a and b */
    size_t pair_size[2];
    json_t *members; /* the others, and those of the above that are no objects; empty for a document */
} fb_request_body;

/* Reads the body, perhaps none (then there are no members). The document itself is not checked, everything else is, as strictly
 * as documents are. FB_SYNTAX; FB_INVALID wrong-type (no object), nesting-too-deep, unknown-member (not one of the
 * NULL-terminated `known`), unexpected-graph (a document, and "graph" is not among them); FB_TOO_LARGE member-too-large. `out`
 * is written on success only; free it with fb_request_body_free. */
fb_status fb_request_body_read(const fb_request *request, const char *const *known, fb_request_body *out, fb_error *error);
void fb_request_body_free(fb_request_body *body);

#endif
