/* Changing layers in any dialect (view.h).
 *
 * A called module is one layer with all its calls. A function that reads its weights by get_attr is a layer by itself: what it
 * reads may be read by others too, which keep what they have.
 *
 * What is set is a recipe (core/weights/recipe.h) for the tensor as the layer holds it: with `is_packed` or `is_transposed`,
 * axes 0 and 1 are exchanged. The module dialect gives the module's parameter another tensor, and keeps its config in step. In
 * the get_attr dialect the attribute gets another tensor when nothing else reads it; otherwise the module that owns it gets one
 * more attribute ("weight_1"), read by a get_attr node of its own before the call. Everything that nothing reads any more is
 * dropped at commit: get_attr node, attribute, and a module that owned nothing else.
 */
#ifndef FB_PASS_LAYER_H
#define FB_PASS_LAYER_H

#include "core/pass/pass.h"

typedef struct fb_layer {
    fb_node call;                                  /* one call of it, which gives the value */
    fb_node origin;                                /* of a function: reads input and weight; `call`, or what that reads */
    fb_module module;                              /* none: a function */
    fb_tensor weight, bias;                        /* as the view gives them */
    fb_node weight_read, bias_read;                /* get_attr nodes of a function */
    fb_node transposition;                         /* between weight_read and the call, or none */
    bool is_mm;                                    /* it becomes addmm, or Gemm, when it gets a bias; */
    bool needs_sum;                                /* or an Add behind it */
    double weight_factor, bias_factor;             /* as of fb_linear: what is set takes them in */
    const char *weight_parameter, *bias_parameter; /* of a function: the parameters' names */
    const char *input_parameter;
} fb_layer;

fb_layer fb_linear_layer(const fb_linear *linear);

/* A Linear or a convolution, with which a constant per channel can be folded into weight and bias. */
typedef struct fb_host {
    fb_layer layer;
    bool is_linear; /* which of the two views is filled */
    fb_linear linear;
    fb_conv conv;
    int64_t inputs, outputs; /* channels */
    fb_dtype dtype;
    bool training;
} fb_host;

/* False when there is none. */
bool fb_host_at(const fb_graph *graph, fb_node node, fb_host *out);

/* ---- for `match` ------------------------------------------------------------------------------------------------------- */

/* Why the layer's weights must stay as they are: fb_module_obstacle's reasons, and of a function "module-called" (the module
 * that owns a weight is called, or one around it), "crowded-module" (too many nodes read what that owns), "unknown-bytes" and
 * "tensor-mutated".
 */
fb_obstacle fb_layer_obstacle(fb_matcher *matcher, const fb_layer *layer);
/* The same for one get_attr node, or none. */
fb_obstacle fb_read_obstacle(fb_matcher *matcher, fb_node read);
/* "unknown-bytes": of an ONNX model a sparse weight, or one whose file is not here. What is made of it could not be written. */
fb_obstacle fb_bytes_obstacle(const fb_graph *graph, fb_tensor tensor);
/* "named-elsewhere": something beside an ONNX graph names the call's value, which must stay then. */
fb_obstacle fb_named_obstacle(const fb_graph *graph, fb_node call);

/* The calls of the layer, in order: all of the module's, or the one. */
fb_node fb_layer_first_call(const fb_usage *usage, const fb_layer *layer);
fb_node fb_layer_next_call(const fb_usage *usage, const fb_layer *layer, fb_node call);
uint32_t fb_layer_call_count(const fb_usage *usage, const fb_layer *layer);
/* The node that one of the layer's calls reads as its input, or none. */
fb_node fb_layer_input(const fb_graph *graph, const fb_layer *layer, fb_node call);
/* fb_known_largest of the weight or the bias, of dtype `dtype`, as it is multiplied. */
double fb_layer_largest_weight(fb_matcher *matcher, const fb_layer *layer, fb_dtype dtype);
double fb_layer_largest_bias(fb_matcher *matcher, const fb_layer *layer, fb_dtype dtype);
/* ---- for `edit` -------------------------------------------------------------------------------------------------------- */

/* In the weight's dtype. A bias keeps the old one's requires_grad, a new one has the weight's. */
void fb_layer_set_weight(fb_rewrite *rewrite, const fb_layer *layer, fb_value recipe);
void fb_layer_set_bias(fb_rewrite *rewrite, const fb_layer *layer, fb_value recipe);
/* The transposition between a function and its weight, of what `read` reads, before the call. */
fb_node fb_transpose_again(fb_rewrite *rewrite, const fb_layer *layer, fb_node read);
/* Gives a call of a layer its weight or bias, which it may not have yet. Weights come before everything but the input. */
void fb_give_argument(fb_rewrite *rewrite, fb_node call, const char *parameter, fb_value value);
/* The call again, in its place, under a new name: it gives other values, which nothing has folded yet. */
fb_node fb_call_again(fb_rewrite *rewrite, fb_node call);
/* Before a function's call gives or reads something else: releases what it reads, and the product behind an Add. */
void fb_layer_release(fb_rewrite *rewrite, const fb_layer *layer);
/* Afterwards it has none. Not for addmm. */
void fb_layer_clear_bias(fb_rewrite *rewrite, const fb_layer *layer);

/* A call loses its weight and bias: it gives the normalised value alone. Spelled out, the value before the scaling takes its
 * place. Of a called module, all calls do. */
void fb_norm_clear_affine(fb_rewrite *rewrite, const fb_norm *norm);

/* A name that the module has not: `base`, or base_1, base_2 … A module of a known type has the attributes that its type has, so
 * `base` is taken there. In `out`; NULL when memory is out. */
const char *fb_free_attribute(fb_rewrite *rewrite, fb_module owner, const char *base, fb_buffer *out);

/* ---- arithmetic on a layer's weight, as recipes ------------------------------------------------------------------------- */

/* Weight and bias as they are multiplied, in the shapes in which the layer holds them. */
fb_value fb_layer_weight(fb_graph *graph, const fb_layer *layer);
fb_value fb_layer_bias(fb_graph *graph, const fb_layer *layer);

/* The weight as the layer holds it, with each output or input channel multiplied by its number of `factor`, which has the shape
 * (channels), or no dimension at all. */
fb_value fb_host_scale_outputs(fb_graph *graph, const fb_host *host, fb_value factor);
fb_value fb_host_scale_inputs(fb_graph *graph, const fb_host *host, fb_value factor);
fb_value fb_linear_scale_inputs(fb_graph *graph, const fb_linear *linear, fb_value factor);
/* The layer's result for x, of shape (inputs), without padding and bias: W·x, of shape (outputs). A convolution takes x[c] all
 * over channel c, and is not transposed. */
fb_value fb_host_times(fb_graph *graph, const fb_host *host, fb_value x);
fb_value fb_linear_times(fb_graph *graph, const fb_linear *linear, fb_value x);

#endif
