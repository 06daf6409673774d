/* The state of one evaluation. For the interpreter's own files and the kernels that call programs. */
#ifndef FB_EVALUATOR_INTERNAL_H
#define FB_EVALUATOR_INTERNAL_H

#include "core/analysis/alias.h"
#include "core/analysis/memory_layout.h"
#include "core/base/buffer.h"
#include "core/evaluator/evaluator.h"
#include "core/evaluator/kernel.h"
#include "core/weights/blas.h"

#define FB_EVAL_MEMORY ((size_t)1 << 30)
#define FB_PROGRAM_DEPTH 100 /* of programs that call each other */
#define FB_CALL_ARGUMENTS 24 /* distinct arguments that one kernel may ask for */

typedef struct fb_onnx_scope {
    const fb_value_row *kwargs;
    fb_value defaults; /* the config of the function's module */
    const struct fb_onnx_scope *outer;
} fb_onnx_scope;

struct fb_evaluator {
    const fb_graph *graph;
    const fb_eval_options *options;
    const fb_eval_hooks *hooks;
    fb_array_memory *memory;
    fb_error *error;
    fb_program program;                        /* the main program, or the one of the hooks that is computed */
    const fb_kernel_row *kernels[FB_OP_COUNT]; /* by operator; NULL = none */
    fb_object *values;                         /* by node */
    unsigned char *is_known;                   /* by node: it has a value */
    unsigned char *is_failed;                  /* by node: it could not be computed, and hooks->failed let it pass */
    uint32_t *uses;                            /* by node: nodes that will still read it */
    fb_blobs sources;                          /* the options' blobs, and random weights in place of what is not known */
    fb_array **tensors;                        /* by tensor: loaded, and shared by all that read it */
    uint32_t *tensor_uses;                     /* by tensor: nodes that will still read it */
    fb_usage *usage;                           /* what is written, where something is; or NULL */
    fb_alias *alias;

    const struct fb_onnx_scope *scope; /* attributes of the ONNX function that is being evaluated, or NULL */
    int depth;                         /* of programs that call each other */
    int levels;                        /* of torch.vmap that are open */
    double steps;                      /* that calls have said they take */
    fb_blas blas;                      /* once something was multiplied */

    /* The arguments of the call at hand; those that kernels have asked for are kept until they return. */
    fb_object arguments[FB_CALL_ARGUMENTS];
    size_t argument_count;
};

/* Asks the hooks for the value of a node that is not computed; a placeholder has its default otherwise. */
fb_status fb_give_value(fb_evaluator *evaluator, fb_node node);
/* The value of an argument, nodes in it replaced by their values. */
fb_status fb_evaluate_value(fb_evaluator *evaluator, fb_value value, fb_object *out);
/* A tensor's array: kept for the caller. */
fb_status fb_evaluate_tensor(fb_evaluator *evaluator, fb_tensor tensor, fb_array **out);
/* Is it a matrix that nothing writes, and that so many readers would rather read in parts than have in memory? */
bool fb_weight_has_parts(const fb_evaluator *evaluator, fb_tensor tensor, uint32_t readers);
/* Such a matrix as an object; what its bytes are made of is found here, or what is missing named. */
fb_status fb_weight_open(fb_evaluator *evaluator, fb_tensor tensor, fb_object *out);
/* Says where bytes come from. */
void fb_weights_begin(fb_evaluator *evaluator);
/* Elements first … first + count of a weight that is not known, drawn from the seed and its name, by what it is (variances are
 * positive). A part of them alone when the work is stopped. */
void fb_random_weight(const fb_graph *graph, fb_tensor tensor, uint64_t seed, int64_t first, int64_t count,
                      unsigned char *bytes, fb_work *work);
/* A nested program over these inputs (borrowed). */
fb_status fb_evaluate_program(fb_evaluator *evaluator, fb_program program, const fb_object *inputs, size_t count,
                              fb_object *output);
/* While levels are open: may the operator be computed of batches as if they were dimensions? False: the call has failed.
 * *levels are its result's. */
bool fb_batches_allow(fb_kernel_call *call, unsigned *levels);
/* FB_INVALID "evaluation-failed" when PyTorch has no overload that takes arguments of these kinds. */
fb_status fb_check_signature(fb_kernel_call *call);
/* Tensor.is_contiguous(memory_format=...), for any format but channels_last row-major. */
bool fb_format_fits(const fb_array *array, fb_memory_format format);
/* Does PyTorch take the tensor for one of channels_last (Tensor.suggest_memory_format)? */
bool fb_strides_suggest_channels_last(const fb_array *array);
/* Moves the elements of a contiguous array of four or five dimensions into channels_last: *array is replaced by another. */
fb_status fb_lay_out_channels_last(fb_array **array, fb_error *error);
/* Gives a new result the strides that PyTorch gives it (see layout.c): what is computed element by element is laid out as its
 * operands are. */
fb_status fb_lay_out_result(fb_kernel_call *call, fb_object *result);
/* Is there an argument that the kernel did not ask for, and that may matter? Its keyword, or "positional". */
const char *fb_unread_argument(fb_kernel_call *call);
/* The operator of the class that a parametrised module was before, and the recipes, for a call whose module's config says how
 * its weights are computed. FB_OP_UNKNOWN for any other node. */
fb_op fb_parametrized_op(const fb_graph *graph, fb_node node, fb_value *recipes);
/* Is the tensor computed by one of the recipes? Then *out is it, unless the call has failed. */
bool fb_find_parametrized(fb_kernel_call *call, const char *name, fb_object *out);
/* The kernels of all operators; those without one are left as they are. */
void fb_find_kernels(const fb_kernel_row *by_op[FB_OP_COUNT]);
const fb_kernel_row *fb_kernel_of(const fb_evaluator *evaluator, fb_op op); /* NULL = none */
/* The call's operator as a part of the call's node: with these arguments, up to one without a name, and a spelling of it. */
fb_status fb_evaluate_part(fb_kernel_call *call, fb_op op, const char *spelling, const fb_part_argument *arguments,
                           fb_object *result);
/* Is it a call of an operator or a function of ONNX? Then it is evaluated in parts: onnx.c. */
bool fb_is_onnx_call(const fb_graph *graph, fb_node node);
fb_status fb_evaluate_onnx(fb_kernel_call *call, fb_object *result);
/* A call: its kernel, and what its spelling adds. */
fb_status fb_evaluate_call(fb_evaluator *evaluator, fb_node node, fb_object *out);

/* The last dimensions padded with the array's own elements: mode is "reflect", "replicate" or "circular". NULL: the call
 * failed. */
fb_array *fb_make_padded(fb_kernel_call *call, const fb_array *input, const char *mode, int spatial, const int64_t *before,
                         const int64_t *after);

#endif
