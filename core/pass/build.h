/* The builder: what a pass puts into a graph, in the dialect of the call beside it: torch.fx, ATen or ONNX. So a pass is
 * written once for all three. */
#ifndef FB_PASS_BUILD_H
#define FB_PASS_BUILD_H

#include "core/analysis/infer.h"
#include "core/pass/pass.h"

typedef enum fb_made {
#define FB_MADE(id, ...) FB_MADE_##id,
#include "core/operators/made.def"
#undef FB_MADE
} fb_made;

/* The target of such a call beside this one; of ONNX the operator's name. */
const char *fb_made_target(const fb_graph *graph, fb_node like, fb_made made);
/* A new call before `before`; and `node` becomes such a call. */
fb_node fb_build(fb_rewrite *rewrite, fb_node before, fb_made made, fb_value args, fb_value kwargs);
void fb_build_over(fb_rewrite *rewrite, fb_node node, fb_made made, fb_value args, fb_value kwargs);

/* The padding argument of a window like this one; PyTorch's has one number for both sides. */
fb_value fb_build_padding(fb_graph *graph, fb_node like, const int64_t *before, const int64_t *after, int count);
/* One number, where ATen takes a list of them. */
fb_value fb_build_number(fb_graph *graph, fb_node like, fb_value number);
/* x and ints behind it, each by itself or all in a list. */
fb_value fb_spread_args(fb_graph *graph, fb_node like, fb_value x, const fb_value *ints, size_t count);
/* Arguments of FB_MADE_PART: from `from` to `to` of the dimension `dim`, behind which are so many more. */
fb_value fb_part_args(fb_graph *graph, fb_node like, fb_value x, int64_t dim, int behind, int64_t from, int64_t to);

/* A new module for constants of a call, behind `after`; of one in a nested program, below the module of that. */
fb_module fb_put_owner(fb_rewrite *rewrite, fb_module after, fb_node call);
/* A read of a new constant, of the dtype and shape of this one, whose elements are all the number. */
fb_node fb_build_constant(fb_rewrite *rewrite, fb_node before, fb_node like, double number);

/* ONNX's: a read of new integers, as int64; and x, of numbers for sizes, in another shape. */
fb_node fb_build_ints(fb_rewrite *rewrite, fb_node before, const int64_t *ints, size_t count);
fb_node fb_build_int(fb_rewrite *rewrite, fb_node before, int64_t number); /* without dimensions */
fb_node fb_build_reshape(fb_rewrite *rewrite, fb_node before, fb_node x, const int64_t *sizes, int rank);

/* ONNX's Split of x along an axis, whose items are parts of these sizes. `owner` gets the sizes, where they are an input. */
fb_node fb_build_split(fb_rewrite *rewrite, fb_node before, fb_module owner, fb_node x, int axis, const int64_t *sizes,
                       size_t count);

/* x Wᵀ + bias, or, of a packed weight, x W + bias, with two dimensions in ONNX, and for a packed one; `bias` may be none. */
typedef struct fb_new_linear {
    fb_made made;
    fb_value args, kwargs;
} fb_new_linear;
/* Why there cannot be one of that dtype: "opset-too-old" (the model's opset has no such operator), "dtype". */
fb_obstacle fb_linear_obstacle(const fb_graph *graph, fb_dtype dtype);
fb_new_linear fb_linear_call(fb_graph *graph, fb_value x, fb_value weight, fb_value bias, bool is_packed);

/* `node` becomes a Linear on any number of dimensions; `bias` may be none. In ONNX the weight is packed. */
void fb_build_wide_linear(fb_rewrite *rewrite, fb_node node, fb_value x, fb_value weight, fb_value bias);

/* The weight that integers and one scale for each index of `axis` make, before `before`: `scale` has one dimension where
 * fb_dequantize_takes_vector. There it may as well have one for each block of so many indices, beside all of other axes; 0: no
 * blocks. */
fb_value fb_build_dequantized(fb_rewrite *rewrite, fb_node before, fb_value integers, fb_value scale, int axis, int64_t block,
                              fb_value shape);
bool fb_dequantize_takes_vector(const fb_graph *graph);
/* Why a weight of that dtype can't be kept so: "opset-too-old", "unsupported-dtype". */
fb_obstacle fb_dequantize_obstacle(const fb_graph *graph, fb_dtype dtype, int64_t block);

/* Does the dialect have the operator, and the model's opset not? */
bool fb_lacks_operator(const fb_graph *graph, fb_node like, fb_made made);
/* Runtimes compute an ONNX formula that they know as one call. They know it by all of its parts, so a model is slower without
 * one of them, unless the opset has the operator: then a pass makes that. */
#define FB_TOO_OLD_FOR_A_FORMULA                                                                                               \
    ((fb_obstacle){"opset-too-old",                                                                                            \
                   "runtimes find what is spelled out here by this part of it; RaiseOpset brings the operator"})
/* Why the scale and shift of this norm must stay with it: that. */
fb_obstacle fb_unscaled_obstacle(const fb_graph *graph, const fb_norm *norm);

/* x, a node or number, cast before `before`; like its reader, or like what gives it. */
fb_node fb_build_cast(fb_rewrite *rewrite, fb_node before, fb_node reader, fb_node x, fb_dtype dtype);
/* x with a column of ones behind its last, before `call`, a Linear that reads it; "no-features", "unsupported-form", "dtype" or
 * "opset-too-old" where there cannot be one, or the Linear could not do without its bias then. */
fb_obstacle fb_ones_obstacle(const fb_graph *graph, const fb_linear *linear);
fb_node fb_build_ones(fb_rewrite *rewrite, fb_node call, fb_value x, fb_dtype dtype);

/* Arguments of FB_MADE_UNFLATTEN before `call`, which gives `rows` the first dimensions of x again; false: they are not known.
 */
bool fb_can_build_unflatten(fb_graph *graph, fb_node call);
fb_value fb_unflatten_args(fb_rewrite *rewrite, fb_node call, fb_value rows, fb_value x);

/* Has the dialect such a call? */
bool fb_can_build(const fb_graph *graph, fb_node like, fb_made made);
/* torch.fx's target of a function. */
const char *fb_made_function(fb_made made);
/* Refuses "opset-too-old" of a node where the model's opset does not have the call's operator yet. True: it did. */
bool fb_refuse_too_old(fb_matcher *matcher, fb_node node, fb_made made);

/* Attention of four dimensions: mask, added or true where a score counts, or none. */
void fb_build_attention(fb_rewrite *rewrite, fb_node node, fb_value query, fb_value key, fb_value value, fb_value mask,
                        double scale);
/* Why ONNX's cannot be: "shape-mismatch" (the mask has one row for all queries, which ONNX Runtime refuses),
 * "unsupported-constant" (it takes the root of the scale). */
fb_obstacle fb_attention_obstacle(const fb_graph *graph, fb_dim rows, fb_dim queries, double scale);
/* x of four dimensions with the last two exchanged. */
fb_node fb_build_swapped(fb_rewrite *rewrite, fb_node before, fb_value x);
/* 0 where a mask of bools says so, or does not where `is_kept`, and `fill` elsewhere. */
fb_node fb_build_filled(fb_rewrite *rewrite, fb_node before, fb_value mask, fb_dtype dtype, bool is_kept, double fill);

/* An operator's call on one value, as may take a formula's place. */
typedef struct fb_substitute {
    fb_op op;
    fb_made made;
    const char *option, *word;  /* a keyword argument and its text: approximate="tanh"; or NULL */
    int64_t shape[FB_MAX_RANK]; /* the last sizes, which are normalised together; */
    int shape_rank;             /* 0: it takes none */
    bool has_axis, has_eps;
    int64_t axis; /* from the last on: -1 */
    double eps;
} fb_substitute;
#define FB_SUBSTITUTE(name) .op = FB_OP_##name, .made = FB_MADE_##name
/* Its arguments in the dialect of a call; `weight` and `bias`, of its last sizes, or none. */
void fb_substitute_args(fb_graph *graph, fb_node like, const fb_substitute *call, fb_value x, fb_value weight, fb_value bias,
                        fb_value *args, fb_value *kwargs);
/* Refuses of a node what ONNX does not have: "opset-too-old", "dtype", "unsupported-constant". True: it did. */
bool fb_substitute_is_refused(fb_matcher *matcher, fb_node node, const fb_substitute *call);
/* `node` becomes the call. */
void fb_build_substitute(fb_rewrite *rewrite, fb_node node, const fb_substitute *call, fb_value x, fb_value weight,
                         fb_value bias);

typedef struct fb_activation_spelling {
    fb_opcode opcode;
    bool is_in_place; /* it writes into its input … */
    bool has_flag;    /* … because it is given inplace=True */
} fb_activation_spelling;
/* Spells the activation in the place of a call of another: beside it, where its name exists there (torch.relu becomes
 * torch.tanh), and otherwise in torch.nn.functional. Appends the target, or of a module the type, to `target`. In place when
 * that is asked for and there is such a form. False when the dialect does not have it; why, fb_unspelled says: "no-spelling",
 * "opset-too-old". */
fb_obstacle fb_unspelled(const fb_graph *graph, fb_op activation);
bool fb_spell_activation(const fb_graph *graph, fb_node call, fb_op activation, bool in_place, fb_buffer *target,
                         fb_activation_spelling *out);

#endif
