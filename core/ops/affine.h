/* Scaling and shifting by constants: x * c, x / c, x + c, x - c. */
#ifndef FB_OPS_AFFINE_H
#define FB_OPS_AFFINE_H

#include "core/ops/view.h"

typedef enum fb_affine_form { FB_AFFINE_MUL, FB_AFFINE_DIV, FB_AFFINE_ADD, FB_AFFINE_SUB } fb_affine_form;

typedef struct fb_affine {
    fb_node node, input;
    fb_affine_form form;
    fb_value number; /* an int or a float; or none, */
    fb_node read;    /* and a get_attr node reads the constant */
    fb_tensor tensor;
} fb_affine;
/* Not in place, and without alpha or rounding_mode. */
bool fb_affine_at(const fb_graph *graph, fb_node node, fb_affine *affine);

/* The input whose multiplication by a number multiplies the result by it: of a view, x; of x @ y, x. None for other calls. */
fb_node fb_scaled_input(const fb_graph *graph, fb_node node);

#endif
