/* The shape rules, and what they share: the call at hand, its operands and options by name. */
#ifndef FB_ANALYSIS_SHAPE_H
#define FB_ANALYSIS_SHAPE_H

#include "core/analysis/infer.h"
#include "core/analysis/view.h"

typedef struct fb_shape_call {
    const fb_graph *graph;
    fb_node node;
    fb_op op; /* without FB_OP_IN_PLACE */
    bool is_module;
} fb_shape_call;

static inline fb_shape_call fb_shape_call_of(const fb_graph *graph, fb_node node) {
    bool is_module = fb_node_at(graph, node)->opcode == FB_CALL_MODULE;
    return (fb_shape_call){.graph = graph, .node = node, .op = fb_node_op(graph, node), .is_module = is_module};
}

typedef fb_shape_result fb_type;

/* ---- operands --------------------------------------------------------------------------------------------------------- */

typedef enum fb_operand_kind {
    FB_OPERAND_ABSENT, /* not given, or None */
    FB_OPERAND_TENSOR, /* a node whose result is taken to be a tensor; its type may be unknown */
    FB_OPERAND_NUMBER, /* a Python number: `number` says of which kind */
    FB_OPERAND_OTHER,
} fb_operand_kind;

typedef struct fb_operand {
    fb_operand_kind kind;
    fb_type type;
    fb_dtype number; /* FB_BOOL, FB_INT64, FB_FLOAT32, FB_COMPLEX64; FB_DTYPE_UNKNOWN when a node computes it */
} fb_operand;

fb_operand fb_operand_of(const fb_graph *graph, fb_value value);
/* By parameter; of a module a parameter or buffer of that name as well. */
fb_operand fb_operand_named(const fb_shape_call *call, const char *parameter);
/* The most parameters that can have an operand: as many as there are arguments, or, of a module, any number. */
size_t fb_operand_limit(const fb_shape_call *call);

/* ---- options ---------------------------------------------------------------------------------------------------------- */

/* An argument, or of a module the config; none when absent. */
fb_value fb_option(const fb_shape_call *call, const char *name);
bool fb_option_int(const fb_shape_call *call, const char *name, int64_t fallback, int64_t *out);
/* False for false, None and absent; an option that is computed counts as true. */
bool fb_option_is_set(const fb_shape_call *call, const char *name);
/* An axis of a tensor of that rank, counted from 0. */
bool fb_option_axis(const fb_shape_call *call, const char *name, int64_t fallback, int rank, int *out);
bool fb_normalise_axis(int64_t axis, int rank, int *out);

/* ---- sizes that are computed ------------------------------------------------------------------------------------------ */

/* A size or a sequence of sizes, as literals or as nodes that compute them from shapes: x.size(0), x.shape[:-1] + (4,). */
typedef struct fb_sizes {
    bool is_sequence;
    int count;
    fb_dim items[FB_MAX_RANK];
} fb_sizes;

bool fb_evaluate_sizes(const fb_graph *graph, fb_value value, fb_sizes *sizes);
bool fb_evaluate_size(const fb_graph *graph, fb_value value, fb_dim *size);
bool fb_evaluate_int(const fb_graph *graph, fb_value value, int64_t *out);
/* The sizes at a parameter that is variadic in methods: view(2, 3), view((2, 3)), view(size=(2, 3)). */
bool fb_sizes_named(const fb_shape_call *call, const char *parameter, fb_sizes *sizes);

/* ---- arithmetic on sizes ---------------------------------------------------------------------------------------------- */

fb_dim fb_dim_of(int64_t size);
bool fb_dim_equal(fb_dim a, fb_dim b);
bool fb_dim_is(fb_dim a, int64_t size);

/* Is the node a split or chunk, whose pieces getitem takes? */
bool fb_is_split(const fb_graph *graph, fb_node node);

/* Fills rank and sizes (and dtype where ops.def says OWN) and returns true, or returns false when the shape is not known. */
typedef bool fb_shape_function(const fb_shape_call *call, fb_type *out);

extern fb_shape_function *const fb_shape_rules[]; /* by fb_shape_rule; none for FB_SHAPE_UNKNOWN */

/* ---- type promotion ----------------------------------------------------------------------------------------------------- */

/* The dtype of an operation on two tensors of these dtypes; FB_DTYPE_UNKNOWN when torch refuses or one is unknown. */
fb_dtype fb_promote(fb_dtype a, fb_dtype b);
/* The same of any operands, at most 64. */
fb_dtype fb_promote_all(const fb_operand *operands, int count);
/* The dtype of a Python number of the same kind. */
fb_dtype fb_default_dtype(fb_dtype dtype);
/* A tensor without dimensions where PyTorch wants a number: only its kind counts. */
fb_operand fb_as_number(fb_operand operand);
/* Integers and bool become float32, the default dtype. */
fb_dtype fb_to_floating(fb_dtype dtype);

/* An int (repeated) or a sequence of `count` ints. */
bool fb_option_ints(const fb_shape_call *call, const char *name, int64_t fallback, int count, int64_t *out);

#endif
