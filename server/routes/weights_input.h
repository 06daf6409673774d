/* Weights that a request brings along for its graph: safetensors files that are here as blobs. */
#ifndef FB_ROUTES_WEIGHTS_INPUT_H
#define FB_ROUTES_WEIGHTS_INPUT_H

#include "core/bind/bind.h"
#include "server/routes/graph_input.h"

/* Which files, and how they are read. */
typedef struct fb_weights_asked {
    const json_t *files; /* an array of digests; NULL = none, the graph stays as it is */
    const char *pointer; /* where they stand in the request: "/weights", or "?weights=" */
    bool is_strict;      /* a tensor too many or too few is an error */
    fb_bind_options options;
} fb_weights_asked;

/* "source" or "finished": FB_INVALID wrong-type, unknown-option-value. */
fb_status fb_weights_reading_read(const json_t *as, const char *pointer, fb_weights_reading *out, fb_error *error);
/* A string, which `*out` borrows: FB_INVALID wrong-type. */
fb_status fb_weights_prefix_read(const json_t *prefix, const char *pointer, const char **out, fb_error *error);
/* Whether `files` is an array of digests: FB_INVALID wrong-type, bad-digest. */
fb_status fb_weights_check(const json_t *files, const char *pointer, fb_error *error);

/* Binds the graph's tensors to the files; then `graph` is the bound graph, with its document, and `*told` is {"bound": n,
 * "missing": […], "extra": […]} for the answer (NULL when no files are asked for). On failure this responds and returns false:
 * 409 blob-missing, ambiguous-weights; 422 weights-mismatch, bad-safetensors. */
bool fb_bind_weights(const fb_request *request, fb_response *response, const fb_weights_asked *asked, fb_graph_input *graph,
                     json_t **told);

/* That the graph could not be stored: when it is for a file that it was bound to and that has gone since, as fb_bind_weights
 * does. */
void fb_respond_not_stored(const fb_request *request, fb_response *response, const fb_graph_input *graph,
                           const fb_error *error);

#endif
