/* What the views share; for core/ops/view*.c alone. */
#ifndef FB_OPS_VIEW_INTERNAL_H
#define FB_OPS_VIEW_INTERNAL_H

#include "core/ops/view.h"

static inline int64_t fb_tensor_size(const fb_graph *graph, fb_tensor tensor, int axis) {
    return fb_shape_size(graph, fb_tensor_at(graph, tensor)->shape, axis);
}
static inline int fb_tensor_rank(const fb_graph *graph, fb_tensor tensor) {
    return fb_shape_rank(graph, fb_tensor_at(graph, tensor)->shape);
}
/* None, or a vector of that many elements. */
bool fb_is_vector_or_none(const fb_graph *graph, fb_tensor tensor, int64_t size);

/* The one argument of a call_module, which must be a node. */
bool fb_sole_input(const fb_graph *graph, fb_node node, fb_node *input);

/* Reading the arguments of a call_function one by one: all that are given must have been asked for in the end. */
typedef struct fb_call_reader {
    const fb_graph *graph;
    fb_node node;
    size_t seen;   /* arguments that are given and were asked for */
    bool is_wrong; /* one is not what it must be */
} fb_call_reader;

fb_value fb_next_argument(fb_call_reader *reader, const char *parameter);
/* The input: a node. */
fb_node fb_next_input(fb_call_reader *reader, const char *parameter);
/* A tensor that a get_attr node reads. None when absent or None, which is wrong unless it is optional. */
fb_tensor fb_next_tensor(fb_call_reader *reader, const char *parameter, bool is_optional, fb_node *read);
/* The same for a matrix, which may be transposed on the way. */
fb_tensor fb_next_matrix(fb_call_reader *reader, const char *parameter, fb_node *read, fb_node *transposition);
/* A bool constant, a number. */
bool fb_next_bool(fb_call_reader *reader, const char *parameter, bool fallback);
double fb_next_number(fb_call_reader *reader, const char *parameter, double fallback);
/* Were all arguments asked for, and right? */
bool fb_is_read_whole(const fb_call_reader *reader);

#endif
