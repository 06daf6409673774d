/* Calls that give all elements of what they are given: in the same order (view, flatten, unsqueeze, contiguous), or with the
 * dimensions exchanged (permute, transpose). */
#ifndef FB_ANALYSIS_REARRANGE_H
#define FB_ANALYSIS_REARRANGE_H

#include "core/analysis/shape.h"

typedef enum fb_rearrange_form {
    FB_REARRANGE_RESHAPE,
    FB_REARRANGE_CONTIGUOUS, /* the same shape, row-major in memory */
    FB_REARRANGE_PERMUTE,
} fb_rearrange_form;

typedef struct fb_rearrange {
    fb_node node, input;
    fb_rearrange_form form;
    int rank;              /* of the result, whose sizes are recorded */
    int dims[FB_MAX_RANK]; /* of a permutation: where each of its dimensions is in the input */
} fb_rearrange;

/* The dimension of the input that has the elements of dimension `axis` of the result, one for one: the same size, with as many
 * elements behind it. False when no such axis exists or it is uncertain. */
bool fb_rearrange_axis(const fb_graph *graph, const fb_rearrange *rearrange, int axis, int *out);

/* Finds a rearrangement in a call whose result and input are recorded, in one dtype. */
/* Of PyTorch's: does it give its input another shape, with the same numbers in the same order? */
bool fb_op_reshapes(fb_op op);
bool fb_rearrange_at(const fb_graph *graph, fb_node node, fb_rearrange *found);

/* The same of what exchanges dimensions alone; also ONNX's Transpose. */
bool fb_permutation_at(const fb_graph *graph, fb_node node, fb_rearrange *found);

#endif
