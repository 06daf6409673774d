/* Operator views: what a node computes, by meaning instead of by spelling. Passes ask here and hold no lists of names.
 *
 * A view is filled only when every member of it is certain; a node that is spelled in a way the view does not know (another
 * dialect, a weight computed in the graph, *args) gives false. All functions read only.
 */
#ifndef FB_ANALYSIS_VIEW_H
#define FB_ANALYSIS_VIEW_H

#include "core/graph/graph.h"
#include "core/operators/op.h"

/* The operator of a call_function, call_method or call_module (then the module type's); FB_OP_UNKNOWN for others. */
static inline fb_op fb_node_op(const fb_graph *graph, fb_node node);
static inline bool fb_op_is(const fb_graph *graph, fb_node node, fb_op op) {
    return fb_node_op(graph, node) == op;
}
static inline fb_op fb_module_op(const fb_graph *graph, fb_module module) {
    return module.id ? fb_module_at(graph, module)->op : (fb_op)FB_OP_UNKNOWN;
}
static inline fb_op fb_node_op(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode == FB_CALL_MODULE) return fb_module_op(graph, row->module);
    return row->opcode == FB_CALL_FUNCTION || row->opcode == FB_CALL_METHOD ? row->op : (fb_op)FB_OP_UNKNOWN;
}

/* A call of an ATen operator, which what is inserted around it is spelled like. */
bool fb_is_aten(const fb_graph *graph, fb_node node);

/* ---- arguments by name -------------------------------------------------------------------------------------------------- */

/* The place of an argument, so that a rewrite can exchange just that one. */
typedef struct fb_argument_place {
    bool is_keyword;
    size_t index;        /* args[index] when not a keyword */
    const char *keyword; /* the keyword as the node spells it; valid while the graph lives */
} fb_argument_place;

/* The argument of a parameter, by position or keyword, as ops.def names it; none when it is not given. For call_module the
 * names are forward()'s; for call_method self is the first parameter. "input" also finds the keyword `self`. */
fb_value fb_call_argument(const fb_graph *graph, fb_node node, const char *parameter);
/* The same for a call that is known to be one of `op`, in any spelling. *place is written when there is one. */
fb_value fb_call_argument_as(const fb_graph *graph, fb_node node, fb_op op, const char *parameter, fb_argument_place *place);
bool fb_call_argument_place(const fb_graph *graph, fb_node node, const char *parameter, fb_argument_place *place);
/* Does the parameter take all arguments from its position on: view(2, 3)? */
bool fb_call_parameter_is_variadic(const fb_graph *graph, fb_node node, const char *parameter);
/* The node that the argument is, or none. */
fb_node fb_call_argument_node(const fb_graph *graph, fb_node node, const char *parameter);
/* The node that args[index] is, or none. */
static inline fb_node fb_arg_node(const fb_graph *graph, fb_node node, size_t index) {
    return fb_value_node(graph, fb_node_arg(graph, node, index));
}
/* Is an argument left out, or None? */
static inline bool fb_is_absent(const fb_graph *graph, fb_value argument) {
    return !argument.id || fb_value_kind(graph, argument) == FB_NONE;
}
/* The number of arguments of a call, by position or keyword. */
static inline size_t fb_argument_count(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    return fb_value_at(graph, row->args)->count + fb_value_at(graph, row->kwargs)->count / 2;
}
/* `input` and `other` of a call that is given these alone: no alpha, no out. */
bool fb_two_operands(const fb_graph *graph, fb_node node, fb_value *input, fb_value *other);
/* The one argument in args and kwargs together when it is the parameter; otherwise none. */
fb_value fb_call_only_argument(const fb_graph *graph, fb_node node, const char *parameter);
bool fb_call_has_only(const fb_graph *graph, fb_node node, const char *parameter);

/* A number: as it is written, or, of an ONNX model, a constant of one element. */
bool fb_constant_number(const fb_graph *graph, fb_value value, double *number);

/* ---- effects ------------------------------------------------------------------------------------------------------------ */

typedef struct fb_effects {
    bool is_unknown;    /* no row in ops.def, an `out` argument, a nested program: everything below is true */
    bool mutates_input; /* writes into its first argument; an unknown one into any argument */
    bool is_random;
    bool may_alias_input; /* the result may share memory with the first argument */
    bool may_alias_all;   /* … with any; and the first, when it is written, may share memory with the others from then on */
    bool mutates_module;  /* call_module: writes into the module's own buffers (BatchNorm in training) */
    bool has_effect;      /* any other effect: assertions, switches of autograd mode; never removed or moved */
    bool is_named;        /* something beside the graph names its value: an ONNX model's training_info */
} fb_effects;

fb_effects fb_op_effects(const fb_graph *graph, fb_node node);
/* Does the call run nested programs, or a function that is its argument? Of what happens inside, fb_op_effects alone knows. */
static inline bool fb_runs_inside(const fb_graph *graph, fb_node node) {
    fb_op op = fb_node_op(graph, node);
    return (fb_op_facts_of(op)->flags & FB_FACT_RUNS_PROGRAMS) || op == FB_OP_FLAT_APPLY;
}
/* A quick look, which many calls pass: it writes nothing and has no other effect than to give a result. */
bool fb_surely_writes_nothing(const fb_graph *graph, fb_node node);
/* No effect at all and not random: the same inputs give the same result, now or later. (It may alias an input.) */
bool fb_op_is_pure(const fb_graph *graph, fb_node node);

/* The number of dimensions of a node's value; -1 where none is recorded, or without a node. */
static inline int fb_node_rank(const fb_graph *graph, fb_node node) {
    return node.id ? fb_shape_rank(graph, fb_node_at(graph, node)->shape) : -1;
}
/* Is the node in a nested program? */
static inline bool fb_is_nested(const fb_graph *graph, fb_node node) {
    return fb_node_at(graph, node)->program.id != FB_MAIN_PROGRAM.id;
}
/* Does only `reader` read the value, once? */
bool fb_is_read_by(const fb_graph *graph, fb_node value, fb_node reader);
/* Is the value a result of the graph? */
bool fb_is_result(const fb_graph *graph, fb_node node);
/* An assertion about dtype, device or layout of its first argument, which a rewrite that keeps these keeps true. */
bool fb_asserts_type_only(const fb_graph *graph, fb_node node);
/* Such an assertion, or a question to its inputs about shape, dtype or device: no element of them matters. */
bool fb_reads_type_only(const fb_graph *graph, fb_node node);
/* The same of one of its inputs: y in x.reshape_as(y), torch.zeros_like(y). */
bool fb_reads_type_only_of(const fb_graph *graph, fb_node node, fb_node input);
/* How often a call's arguments name an input. */
int fb_mentions_of(const fb_graph *graph, fb_node node, fb_node input);
/* A value's device, from meta.device: JSON, with quotation marks; "" when it is not recorded. */
const char *fb_recorded_device(const fb_graph *graph, fb_node node);

/* The kind of a node's result as far as it follows from the node alone: is it a Python value that is not a tensor? */
typedef enum fb_result_kind { FB_NOT_A_NUMBER, FB_A_NUMBER, FB_A_NUMBER_IF_INPUTS_ARE } fb_result_kind;
fb_result_kind fb_result_kind_of(const fb_graph *graph, fb_node node);

/* The first argument as called, by position or keyword: what an operator with FB_FACT_MUTATES or FB_FACT_ALIASES acts on. None
 * when it is not known. */
fb_value fb_first_argument(const fb_graph *graph, fb_node node);

/* The result is a Python number or another value that is not a tensor: a size, a dtype, arithmetic on sizes. False when that is
 * not certain. */
bool fb_is_python_number(const fb_graph *graph, fb_node node);
/* The opposite: the result is a tensor. False when that is not certain: an input of which nothing is recorded, the result of an
 * unknown function, and arithmetic on these alone. */
bool fb_is_surely_tensor(const fb_graph *graph, fb_node node);

/* ---- modules ------------------------------------------------------------------------------------------------------------ */

/* The type's last part begins or ends with "Linear" and it is not exactly torch.nn.Linear: a subclass or a look-alike, whose
 * forward() may compute anything. */
bool fb_module_is_linear_like(const fb_graph *graph, fb_module module);
/* Linear-like, and built like a Linear: in_features and out_features in the config, and a weight of that shape. Such a module
 * is taken for a subclass of Linear, which may compute anything from its input but does not write into it. */
bool fb_module_is_linear_subclass(const fb_graph *graph, fb_module module);
/* An int of the config, or the default when it is absent. False when it is there with another type. */
bool fb_config_int(const fb_graph *graph, fb_module module, const char *key, int64_t fallback, int64_t *out);

/* ---- views -------------------------------------------------------------------------------------------------------------- */

/* Layers come in two dialects. In the one, a module is called, and owns its weights; then `module` is given. In the other, a
 * function is called (of torch, torch.nn.functional or ATen), and get_attr nodes read its weights; then `module` is none, and
 * `weight_read` and the like are those nodes. Passes change both through core/pass/layer.h. */

/* The call that gives a node's value: of getitem(call, 0), where the call gives a tuple whose first item is the value proper
 * (native_layer_norm), that call; of every other node the node itself. */
fb_node fb_call_of_value(const fb_graph *graph, fb_node node);

/* The tensor that a get_attr node of the main program reads, as an argument. False when the argument is anything else. */
bool fb_tensor_read_by(const fb_graph *graph, fb_value argument, fb_node *read, fb_tensor *tensor);

/* torch.nn.Linear, linear, addmm and mm, ONNX's Gemm, and its MatMul with or without an Add behind it: input (…, in_features),
 * weight (out_features, in_features), bias (out_features) or none.
 */
typedef enum fb_linear_form {
    FB_LINEAR_MODULE,
    FB_LINEAR_FUNCTION, /* linear(input, weight, bias); those behind it are packed, or of two dimensions */
    FB_LINEAR_GEMM,     /* ONNX's, of two dimensions */
    FB_LINEAR_MATMUL,   /* ONNX's: a bias is added behind it */
    FB_LINEAR_ADDMM,    /* addmm(bias, input, weightᵀ): the input is 2-D, and there must be a bias */
    FB_LINEAR_MM,       /* mm(input, weightᵀ): the input is 2-D, without a bias */
} fb_linear_form;

typedef struct fb_linear {
    fb_node node;   /* gives the value */
    fb_node origin; /* reads the input and the weight: `node`, or the MatMul to which it adds the bias */
    fb_node input;  /* none: a Gemm transposes it (transA) */
    fb_module module;
    fb_tensor weight, bias; /* bias none = without */
    fb_node weight_read, bias_read;
    fb_node transposition; /* the t, transpose or permute between weight_read and the call; or none */
    fb_linear_form form;
    bool is_packed;                    /* the tensor `weight` is (in_features, out_features) */
    bool is_bias_first;                /* of an Add */
    bool needs_sum;                    /* a MatMul on more than two dimensions, without a bias: an Add would give it one */
    double weight_factor, bias_factor; /* a Gemm multiplies the two by these, others by 1 */
    int64_t in_features, out_features;
    fb_dtype dtype; /* of the weight */
    bool training;
} fb_linear;
bool fb_linear_at(const fb_graph *graph, fb_node node, fb_linear *linear);
bool fb_op_may_be_linear(fb_op op); /* at a node of such an operator; the same of the other views */
/* Of a MatMul the Add that gives it its bias; of any other node the node itself. */
fb_node fb_with_bias(const fb_graph *graph, fb_node node);
/* The matrix that a node other than a get_attr gives: the transposition of what one reads. */
bool fb_matrix_read_by_node(const fb_graph *graph, fb_node node, fb_node *read, fb_node *transposition, fb_tensor *tensor);
/* The same without a call: input none. */
bool fb_linear_of_module(const fb_graph *graph, fb_module module, fb_linear *linear);

/* Convolutions of 1 to 3 dimensions. weight (out_channels, in_channels / groups, *kernel), and of a transposed one
 * (in_channels, out_channels / groups, *kernel). */
typedef struct fb_conv {
    fb_node node, input;
    fb_module module;
    fb_tensor weight, bias;
    fb_node weight_read, bias_read;
    int spatial; /* 1, 2 or 3 */
    bool is_transposed;
    bool is_padded; /* or it is not certain that it is not */
    int64_t in_channels, out_channels, groups;
    fb_dtype dtype;
    bool training;
} fb_conv;
bool fb_conv_at(const fb_graph *graph, fb_node node, fb_conv *conv);
bool fb_op_may_be_conv(fb_op op);

/* Batch normalisation: (x - running_mean) / sqrt(running_var + eps) * weight + bias, per channel of axis 1. */
typedef struct fb_batch_norm {
    fb_node node, input;
    fb_node call; /* what computes it: `node`, or the call of which `node` takes the first result */
    fb_module module;
    fb_tensor weight, bias;              /* none = affine=False: 1 and 0 */
    fb_tensor running_mean, running_var; /* none = batch statistics are used */
    fb_node reads[4];                    /* of weight, bias, running_mean and running_var; none where there is none */
    int spatial; /* 1, 2 or 3; BatchNorm1d takes (N, C) as well as (N, C, L). Of a function, by the recorded shape of its
                  * input: 0 is (N, C), and -1 is unknown. */
    int64_t num_features;
    fb_value eps;      /* as it is spelled; none = PyTorch's default */
    double eps_number; /* 1e-5 when absent, nan when it is not a number */
    bool training;     /* the call's own argument, or else the module's mode */
} fb_batch_norm;
bool fb_batch_norm_at(const fb_graph *graph, fb_node node, fb_batch_norm *norm);
bool fb_op_may_be_batch_norm(fb_op op);

/* LayerNorm and RMSNorm over the last dimensions: normalised(x) * weight + bias; and RMSNorm spelled out, as traces of Llama
 * have it: x * rsqrt(mean(x², -1, keepdim) + eps) * weight. In ONNX what is divided by a square root, * weight, and + bias. */
typedef struct fb_norm {
    fb_node node; /* gives the scaled and shifted value; spelled out, it is the multiplication by the weight */
    fb_node call; /* as of fb_batch_norm; or the product to which `node` adds the bias */
    fb_node input;
    fb_module module;
    fb_tensor weight, bias; /* none = 1 and 0; they have the shape of the last `axes` dimensions */
    fb_node weight_read, bias_read;
    bool is_centred;  /* LayerNorm: the mean is subtracted */
    fb_node unscaled; /* spelled out: the value that is multiplied by the weight; otherwise none */
    int axes;         /* how many of the last dimensions are normalised together */
    int64_t features; /* size of the last one */
    double eps;       /* nan: the default of the dtype */
} fb_norm;
bool fb_norm_at(const fb_graph *graph, fb_node node, fb_norm *norm);
bool fb_op_may_be_norm(fb_op op);

/* operator.truediv, torch.div, divide and true_divide, the methods of these names, and ATen's: a division by anything. */
typedef enum fb_division_form {
    FB_DIVISION_OPERATOR,
    FB_DIVISION_FUNCTION,
    FB_DIVISION_METHOD,
    FB_DIVISION_ATEN,        /* by a tensor or a number */
    FB_DIVISION_ATEN_SCALAR, /* by a number */
    FB_DIVISION_ONNX,        /* by a tensor */
} fb_division_form;
typedef struct fb_division {
    fb_node node;
    fb_division_form form;
    fb_value numerator, divisor; /* always given */
    fb_value rounding_mode;      /* none = not given; may be FB_NONE */
} fb_division;
bool fb_division_at(const fb_graph *graph, fb_node node, fb_division *division);
bool fb_op_may_be_division(fb_op op);

/* A softmax along one axis of an input of that many dimensions, which is known. ONNX's before opset 13 only along the last. */
bool fb_softmax_axis(const fb_graph *graph, fb_node node, int rank, int *axis);
/* A call that replaces numbers by others: where, masked_fill. */
typedef struct fb_selection {
    fb_node values, mask;
    fb_value fill;
    bool fills; /* where the mask is true; else where it is false */
} fb_selection;
/* The ways to read it, of which there are `count` (0 to 2): ONNX's Where may fill on either side. */
size_t fb_selections_at(const fb_graph *graph, fb_node node, fb_selection found[2]);

/* A reduction along axes, as a mean or sum. */
bool fb_is_reduction(const fb_graph *graph, fb_node node);
/* Reads the axes of a reduction, as bits, for an input of `rank` dimensions. False: one is unknown, or there are none. */
bool fb_reduction_axes(const fb_graph *graph, fb_node node, int rank, uint32_t *axes, bool *keeps_them);

#endif
