/* The operator table: what a spelling means. One row of ops.def is one fact sheet; this header is the question desk for
 * everything that needs only the name (not a graph). Views that look at a node's arguments are in view.h. */
#ifndef FB_OPERATORS_OP_H
#define FB_OPERATORS_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buffer.h"

typedef uint16_t fb_op; /* one of FB_OP_…, perhaps with FB_OP_IN_PLACE; 0 = FB_OP_UNKNOWN */

enum {
    FB_OP_UNKNOWN = 0,
#define FB_OP_ROW(id, ...) FB_OP_##id,
#include "core/operators/ops.def"
#undef FB_OP_ROW
    FB_OP_COUNT,
    /* Added to an operator that was spelled in place: `add_`, `aten.add_.Tensor`, `operator.iadd`. So FB_OP_ADD means the pure
     * addition only, and the in-place one is FB_OP_ADD | FB_OP_IN_PLACE with the same fact sheet. */
    FB_OP_IN_PLACE = 0x8000,
};

/* Facts that hold for every call of an operator, with any arguments. Effects of one call: fb_op_effects in view.h. */
enum {
    FB_FACT_ELEMENTWISE = 1 << 0,  /* element i of the result depends on element i of the (broadcast) inputs alone */
    FB_FACT_COMMUTATIVE = 1 << 1,  /* the first two arguments may be exchanged */
    FB_FACT_ALIASES = 1 << 2,      /* the result may share memory with the first argument */
    FB_FACT_ALIASES_ALL = 1 << 3,  /* … with any argument */
    FB_FACT_MUTATES = 1 << 4,      /* writes into the first argument */
    FB_FACT_HAS_IN_PLACE = 1 << 5, /* the names with a final underscore exist as well: write into the first and return it */
    FB_FACT_RANDOM = 1 << 6,       /* draws random numbers */
    FB_FACT_RANDOM_IN_TRAINING = 1 << 7,
    FB_FACT_MUTATES_IN_TRAINING = 1 << 8,      /* updates running statistics */
    FB_FACT_EFFECT = 1 << 9,                   /* any other effect: an assertion, a switch of mode */
    FB_FACT_NUMBER = 1 << 10,                  /* gives a Python value that is not a tensor: a size, a bool, a dtype, a shape */
    FB_FACT_MAYBE_NUMBER = 1 << 11,            /* Python arithmetic: gives a number when every input is one */
    FB_FACT_NUMBER_WITHOUT_ARGUMENT = 1 << 12, /* … when it has no argument but self: x.type() */
    FB_FACT_READS_LAYOUT = 1 << 13,            /* gives or needs what only the strides tell: stride, as_strided */
    FB_FACT_MAYBE_CONTAINER = 1 << 14,         /* takes lists and dicts as well: what they hold is then in the result */
    FB_FACT_CONTAINER = 1 << 15,               /* a module that has modules inside, which it calls out of sight */
    FB_FACT_TUPLE = 1 << 16,                   /* gives a tuple; RULES describe its first item: native_layer_norm */
    FB_FACT_UNSET = 1 << 17,                   /* gives memory as it was found: empty */
    /* PyTorch gives the same bits on every CPU: copies, comparisons, arithmetic on integers, and what IEEE 754 rounds
     * correctly. But not where a call has alpha or rounding_mode, nor where floating numbers become integers. */
    FB_FACT_EXACT = 1 << 18,
    FB_FACT_EXACT_INTEGERS = 1 << 19,    /* … where all that it reads and gives are integers or bools */
    FB_FACT_RUNS_PROGRAMS = 1 << 20,     /* calls nested programs, which are among its arguments */
    FB_FACT_VMAP_LEVEL = 1 << 21,        /* opens or closes a level of torch.vmap, where later calls compute batches */
    FB_FACT_SAVES_RESULT = 1 << 22,      /* autograd saves its result: a write into it ends the backward pass */
    FB_FACT_COMPLEX_ROWS = 1 << 23,      /* the result is row-major where the input is complex */
    FB_FACT_SECOND_LEADS = 1 << 24,      /* of two operands, the second is asked first which of two axes goes first */
    FB_FACT_ROWS_OF_NUMBER = 1 << 25,    /* the result is row-major where the first operand is a number: 2.0 ** x */
    FB_FACT_BATCHES = 1 << 26,           /* treats a batch of elements, as torch.vmap gives it, element by element: a copy */
    FB_FACT_PARTS = 1 << 27,             /* gives a tuple of the first input's parts along one dimension */
    FB_FACT_RESHAPES_IN_PLACE = 1 << 28, /* written in place, it gives its first input another shape: squeeze_ */
    FB_FACT_ASSERTS = 1 << 29,           /* gives nothing, and fails where what it is given is wrong */
    FB_FACT_MINDS_ZERO = 1 << 30,        /* a positive number that becomes 0 may make it, or what divides by it, nan */
};

typedef enum fb_shape_rule {
    FB_SHAPE_UNKNOWN = 0,
#define FB_SHAPE_RULE(id, function) FB_SHAPE_##id,
#include "core/operators/shapes.def"
#undef FB_SHAPE_RULE
} fb_shape_rule;

typedef enum fb_dtype_rule {
    FB_DTYPE_RULE_UNKNOWN = 0,
    FB_DTYPE_RULE_SAME,     /* the first argument's */
    FB_DTYPE_RULE_ALL,      /* the same, which all tensors have; unknown where one has another */
    FB_DTYPE_RULE_REAL,     /* the same, where that is a real number; unknown for bool and complex */
    FB_DTYPE_RULE_OTHER,    /* the second argument's */
    FB_DTYPE_RULE_WEIGHT,   /* the weight's */
    FB_DTYPE_RULE_PROMOTE,  /* torch's type promotion of all inputs */
    FB_DTYPE_RULE_FLOAT,    /* … and integers become float32 */
    FB_DTYPE_RULE_SUM,      /* the argument `dtype`, or the first argument's where integers become int64 */
    FB_DTYPE_RULE_LIKE,     /* the argument `dtype`, or the first argument's */
    FB_DTYPE_RULE_NORM,     /* the same, where that is a real number; unknown for bool and complex */
    FB_DTYPE_RULE_ARGUMENT, /* the argument `dtype`, or float32 */
    FB_DTYPE_RULE_FULL,     /* the argument `dtype`, or the fill value's */
    FB_DTYPE_RULE_CAST,     /* any argument that is a dtype, or the first argument's dtype when nothing else can be one */
    FB_DTYPE_RULE_OWN,      /* the shape rule gives it */
    FB_DTYPE_RULE_TRUTH,    /* bool, and unknown for uint8: all() and any() of it give uint8 */
    FB_DTYPE_RULE_BOOL,
    FB_DTYPE_RULE_INT32,
    FB_DTYPE_RULE_INT64,
    FB_DTYPE_RULE_FLOAT16,
    FB_DTYPE_RULE_BFLOAT16,
    FB_DTYPE_RULE_FLOAT32,
    FB_DTYPE_RULE_FLOAT64,
} fb_dtype_rule;

/* How PyTorch lays the result out in memory on a CPU. A new result has no gaps; unless it is UNKNOWN, its numbers do not depend
 * on the layout of the inputs. What one call's arguments change is in fb_layout_of (core/analysis/memory_layout.h). */
typedef enum fb_memory_layout {
    FB_LAYOUT_UNKNOWN = 0,
    FB_LAYOUT_NONE,         /* gives no tensor */
    FB_LAYOUT_ROWS,         /* row-major for any inputs */
    FB_LAYOUT_ROWS_OF_ROWS, /* row-major where the inputs are; fails for some that are not */
    FB_LAYOUT_AS_FIRST,     /* in the order of the first input's axes, as empty_like(first) has it; or the first input itself */
    FB_LAYOUT_AS_FIRST_WITH_GAPS, /* … with the gaps that the first input has */
    FB_LAYOUT_AS_ALL,             /* as TensorIterator orders the axes of all inputs, of which the first that knows decides */
    FB_LAYOUT_IMAGE, /* channels_last where all images given are, row-major or channels_last where some are; else row-major */
    FB_LAYOUT_FREE,  /* in any order of axes */
    FB_LAYOUT_FREE_IMAGE,   /* … but as a rule channels_last where the image given is */
    FB_LAYOUT_VIEW,         /* the first input's memory, with any strides */
    FB_LAYOUT_ORDERED_VIEW, /* … row-major where the input is */
    FB_LAYOUT_TURNED_VIEW,  /* … with its axes exchanged */
    FB_LAYOUT_FIXED_VIEW,   /* … row-major where the input is; fails where such a view does not exist */
    FB_LAYOUT_MAYBE_VIEW, /* … row-major where the input is; a copy, row-major unless asked for otherwise, where there is none
                           */
} fb_memory_layout;

/* The function of one or two numbers that the operator computes of each element, as Python's operator of that name. */
typedef enum fb_arithmetic {
    FB_NO_ARITHMETIC = 0,
    FB_ARITHMETIC_ADD,
    FB_ARITHMETIC_SUB,
    FB_ARITHMETIC_REVERSED_SUB, /* b - a */
    FB_ARITHMETIC_MUL,
    FB_ARITHMETIC_TRUE_DIVIDE,
    FB_ARITHMETIC_FLOOR_DIVIDE,
    FB_ARITHMETIC_REMAINDER,
    FB_ARITHMETIC_POW,
    FB_ARITHMETIC_EQ,
    FB_ARITHMETIC_NE,
    FB_ARITHMETIC_LT,
    FB_ARITHMETIC_LE,
    FB_ARITHMETIC_GT,
    FB_ARITHMETIC_GE,
    FB_ARITHMETIC_AND,
    FB_ARITHMETIC_OR,
    FB_ARITHMETIC_XOR,
    FB_ARITHMETIC_SHIFT_LEFT,
    FB_ARITHMETIC_SHIFT_RIGHT,
    FB_ARITHMETIC_NOT,
    FB_ARITHMETIC_NEG,
    FB_ARITHMETIC_POSITIVE,
    FB_ARITHMETIC_ABS,
    FB_ARITHMETIC_FLOOR,
    FB_ARITHMETIC_CEIL,
    FB_ARITHMETIC_ROUND,
} fb_arithmetic;

/* How a call gives the numbers of its input, where it does (core/analysis/identity.h judges one call). */
typedef enum fb_identity_rule {
    FB_IDENTITY_RULE_NEVER = 0,
    FB_IDENTITY_RULE_RETURNS,          /* always, the input itself */
    FB_IDENTITY_RULE_DROPS,            /* the input itself, outside training */
    FB_IDENTITY_RULE_DETACHES,         /* always, a view */
    FB_IDENTITY_RULE_RESHAPES,         /* a view, in the input's own shape */
    FB_IDENTITY_RULE_CASTS,            /* the input itself, in its own dtype, device and memory format */
    FB_IDENTITY_RULE_CASTS_COPY,       /* the same, copied */
    FB_IDENTITY_RULE_CASTS_LIKE,       /* the input itself, where `other` has its dtype and device */
    FB_IDENTITY_RULE_MAKES_CONTIGUOUS, /* the input itself, where it has the memory format */
    FB_IDENTITY_RULE_COPIES,           /* always, copied */
    FB_IDENTITY_RULE_ADDS,             /* copied: 0 is added or subtracted */
    FB_IDENTITY_RULE_SCALES,           /* copied: it is multiplied or divided by 1 */
    FB_IDENTITY_RULE_AVERAGES,         /* copied: a mean of each single element */
    FB_IDENTITY_RULE_OVERWRITES,       /* in place: all of the input is replaced by `src` */
    FB_IDENTITY_RULE_PADS,             /* copied: padded by nothing */
    FB_IDENTITY_RULE_TURNS,            /* a view: each dimension stays where it is */
    FB_IDENTITY_RULE_JOINS,            /* copied: nothing is joined to it */
    FB_IDENTITY_RULE_SUBTRACTS,        /* as ADDS, of a zero that is subtracted: ONNX */
    FB_IDENTITY_RULE_CUTS,             /* a part that is the whole: ONNX */
    FB_IDENTITY_RULE_REPEATS,          /* of a result of its own: Relu(Relu(x)) is Relu(x): ONNX */
    FB_IDENTITY_RULE_UNDOES,           /* gives what it was given twice: Neg(Neg(x)) is x: ONNX */
    FB_IDENTITY_RULE_CHOOSES,          /* one of its inputs, where the condition says so of all elements: ONNX */
    FB_IDENTITY_RULE_QUANTISES,        /* what DequantizeLinear was given, by the same scale and zero point: ONNX */
} fb_identity_rule;

typedef struct fb_op_facts {
    const char *id;           /* "LINEAR" */
    const char *names;        /* base names separated by spaces, see ops.def */
    const char *parameters;   /* "input,weight,bias=": names by position, see parameter.h; a method's self is the first */
    const char *native;       /* parameters of torch.x and torch.ops.aten.x where they differ, or NULL */
    const char *method;       /* parameters of the method where they differ, or NULL */
    const char *forward;      /* parameters of the module's forward(), or NULL for "input" */
    const char *aten;         /* ATen overloads, or NULL for "default" */
    const char *onnx;         /* operators of ONNX's default domain, or NULL */
    const char *functions;    /* further function targets, or NULL */
    const char *in_place;     /* further function targets that write into their first argument, or NULL */
    const char *kept;         /* ATen overloads that torch.export keeps though nothing reads them, see ops.def, or NULL */
    const char *homes;        /* where the first name of an activation exists, see ops.def, or NULL */
    const char *printed;      /* what torch.fx prints for the function in torch.nn.functional, or NULL: just that */
    const char *modules;      /* types in torch.nn, or NULL */
    uint32_t flags;           /* FB_FACT_… */
    uint8_t shape;            /* fb_shape_rule */
    uint8_t dtype;            /* fb_dtype_rule */
    uint8_t layout;           /* fb_memory_layout */
    uint8_t unbatched;        /* the same, of images without a batch, where it is another; or 0 */
    uint8_t spatial;          /* dimensions that a window slides along, in every call; or 0 */
    uint8_t arithmetic;       /* fb_arithmetic */
    uint8_t identity;         /* fb_identity_rule */
    bool renormalises_weight; /* writes into its weight, if it is given max_norm */
    const char *onednn;       /* oneDNN's word of an activation, see ops.def, or NULL */
    const char *type_of;      /* the tensor among the parameters of which only shape, dtype and device are read, or NULL */
} fb_op_facts;

extern const fb_op_facts fb_op_table[FB_OP_COUNT];
/* The fact sheet; FB_OP_UNKNOWN's has no flags, no parameters and no rules. FB_OP_IN_PLACE is ignored. */
static inline const fb_op_facts *fb_op_facts_of(fb_op op) {
    unsigned row = op & (unsigned)~FB_OP_IN_PLACE;
    return &fb_op_table[row < FB_OP_COUNT ? row : FB_OP_UNKNOWN];
}

/* Shows the first input's memory, at least where it can. */
static inline bool fb_is_layout_of_view(fb_memory_layout layout) {
    return layout >= FB_LAYOUT_VIEW;
}

/* Meaning of a call_function target ("torch.nn.functional.linear"), of a method name ("view") and of a module's type
 * ("torch.nn.Linear"); FB_OP_UNKNOWN when no row has that spelling. */
fb_op fb_op_of_function(const char *target, size_t length);
fb_op fb_op_of_method(const char *name, size_t length);
fb_op fb_op_of_module(const char *type, size_t length);
/* The first activation that oneDNN calls so ("swish"), or FB_OP_UNKNOWN. */
fb_op fb_op_of_onednn(const char *word);
/* Is `word` one of the words of `list`, which are separated by single spaces? NULL is an empty list. */
bool fb_has_word(const char *list, const char *word, size_t length);
/* Its arithmetic on Python's numbers; FB_NO_ARITHMETIC where it doesn't take them. */
fb_arithmetic fb_op_arithmetic_of_numbers(fb_op op);
/* Is each element of its result made of one element of each tensor that it reads? Casts and copies are such as well. */
bool fb_op_maps_elements(fb_op op);
/* a + b or a - b, perhaps in place. */
static inline bool fb_op_may_be_sum(fb_op op) {
    uint8_t arithmetic = fb_op_facts_of(op)->arithmetic;
    return arithmetic == FB_ARITHMETIC_ADD || arithmetic == FB_ARITHMETIC_SUB;
}
/* Does it make a new tensor that has the dtype and device of a tensor, and nothing else of it? */
bool fb_op_makes_anew(fb_op op);
/* Has PyTorch no kernel of it on a CPU for that dtype (its name: "float16"), though it has one for float32? */
bool fb_op_lacks_kernel(fb_op op, const char *dtype);
/* The same of calls with one of these values of a parameter: norm(x, p="nuc"). Values and dtypes are words. */
typedef struct fb_precision_case {
    fb_op op;
    const char *spelling, *parameter, *values, *dtypes;
} fb_precision_case;
const fb_precision_case *fb_op_precision_cases(size_t *count);
/* Is the operator called so: one of its names ("layer_norm"), or its id in lower case ("batch_norm2d")? */
bool fb_op_is_named(fb_op op, const char *name);

/* Appends the target of the operator's function in torch.nn.functional, as torch.fx prints it ("torch._C._nn.gelu"). */
void fb_op_functional_target(fb_op op, fb_buffer *out);

#endif
