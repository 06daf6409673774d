/* A stored graph's weights as a file: which tensors a request asks for, and the file of them, opened. */
#ifndef FB_ROUTES_WEIGHTS_OPEN_H
#define FB_ROUTES_WEIGHTS_OPEN_H

#include "core/weights/weights_file.h"
#include "server/graphs/graphs.h"
#include "server/routes/graph_input.h"

/* Which tensors. */
typedef struct fb_weights_wanted {
    char **names; /* sorted, each once; NULL = all that modules own */
    size_t count;
    bool with_tied;
} fb_weights_wanted;

/* From the query (?names=a&names=b&tied=each), or the members `names` and `tied` of a body. On failure these respond and return
 * false: 422 wrong-type, bad-parameter. */
bool fb_weights_wanted_query(const fb_request *request, fb_response *response, fb_weights_wanted *out);
bool fb_weights_wanted_body(fb_response *response, const json_t *members, fb_weights_wanted *out);
void fb_weights_wanted_free(fb_weights_wanted *wanted);

/* The tensor that a module owns at that path ("encoder.0.query.weight"), or else the one of that name; none when there is
 * neither. */
fb_tensor fb_tensor_called(const fb_graph *graph, const char *name);

/* All that a file being read refers to. It stays where it is. */
typedef struct fb_open_weights {
    fb_shared_graph *shared;
    fb_blobs blobs;
    fb_weights_wanted wanted;
    fb_weights_file *file;
} fb_open_weights;

/* Steals `shared` and `wanted`, also on failure; then this responds and returns NULL: 409 bytes-missing, which lists the
 * tensors (before the first byte is made), 422 unknown-tensor. */
fb_open_weights *fb_open_weights_take(const fb_request *request, fb_response *response, fb_shared_graph *shared,
                                      fb_weights_wanted *wanted);
void fb_open_weights_free(fb_open_weights *weights);

/* 409 for what cannot be read of a stored graph. `missing` (stolen, perhaps NULL) is [{"name", "code", "blob"?}, …]. */
void fb_respond_unreadable(fb_response *response, const fb_error *error, json_t *missing);

/* The bytes' strong entity tag, known without making them: for the same graph, what of it, and version of the service they are
 * the same. `what` are texts. False when memory is out. */
bool fb_bytes_tag(const char *graph_id, const char *const *what, size_t count, char tag[FB_ID_LENGTH + 1]);

#endif
