/* Weights that a request brings along for its graph: safetensors files that are here as blobs. */
#ifndef FB_ROUTES_WEIGHTS_INPUT_H
#define FB_ROUTES_WEIGHTS_INPUT_H

#include "server/routes/graph_input.h"

/* Which files. */
typedef struct fb_weights_asked {
    const json_t *files; /* an array of digests; NULL = none, the graph stays as it is */
    const char *pointer; /* where they stand in the request: "/weights", or "?weights=" */
    bool is_strict;      /* a tensor too many or too few is an error */
} fb_weights_asked;

/* Whether `files` is an array of digests: FB_INVALID wrong-type, bad-digest. */
fb_status fb_weights_check(const json_t *files, const char *pointer, fb_error *error);

/* Binds the graph's tensors to the files; then `graph` is the bound graph, with its document, and `*told` is {"bound": n,
 * "missing": […], "extra": […]} for the answer (NULL when no files are asked for). On failure this responds and returns false:
 * 409 blob-missing; 422 weights-mismatch, bad-safetensors. */
bool fb_bind_weights(const fb_request *request, fb_response *response, const fb_weights_asked *asked, fb_graph_input *graph,
                     json_t **told);

/* That the graph could not be stored: when it is for a file that it was bound to and that has gone since, as fb_bind_weights
 * does. */
void fb_respond_not_stored(const fb_request *request, fb_response *response, const fb_graph_input *graph,
                           const fb_error *error);

#endif
