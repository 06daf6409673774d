/* Walking over the tensors that a tensor is made from, through recipes of any depth. */
#ifndef FB_WEIGHTS_INPUTS_H
#define FB_WEIGHTS_INPUTS_H

#include "core/base/buffer.h"
#include "core/graph/graph.h"

typedef struct fb_inputs_walk {
    const fb_graph *graph;
    fb_buffer stack;       /* fb_tensor */
    unsigned char *states; /* by tensor */
} fb_inputs_walk;

/* For the tensors that the graph has now. False when memory is out; fb_inputs_end must follow in either case. */
bool fb_inputs_begin(fb_inputs_walk *walk, const fb_graph *graph);
/* Calls `visit` for every tensor that `from` is made from, and for `from` at last: inputs before what reads them, and each once
 * in the whole walk. Recipes have no cycles. */
void fb_inputs_visit(fb_inputs_walk *walk, fb_tensor from, void (*visit)(void *, fb_tensor), void *context);
/* A visitor whose context is a bool for each tensor of the graph: sets the tensor's. */
void fb_mark_tensor(void *marks, fb_tensor tensor);
/* False when memory was out, and tensors may have been left out. */
bool fb_inputs_end(fb_inputs_walk *walk);

/* The blobs that hold bytes of these tensors or of what they are made from, each once. The array is malloc'ed (caller frees);
 * the texts are the graph's. */
fb_status fb_inputs_blobs(const fb_graph *graph, const fb_tensor *tensors, size_t count, const char ***blobs, size_t *found,
                          fb_error *error);

/* By tensor: a module owns it. The caller's; NULL when memory is out. */
bool *fb_owned_tensors(const fb_graph *graph);
/* True if the tensor has a recipe that does more than copy bytes. */
bool fb_tensor_is_computed(const fb_graph *graph, fb_tensor tensor);
/* True if passes made the tensor: it has a recipe, and is not a mere view of what modules own, as an exporter records two
 * parameters in one memory. */
bool fb_tensor_is_made(const fb_graph *graph, fb_tensor tensor, const bool *is_owned);

#endif
