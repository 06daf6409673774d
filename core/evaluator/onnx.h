/* ONNX's operators, each computed in parts of those that have kernels, or by a loop of its own. For onnx*.c.
 *
 *     static fb_array *reciprocal_softmax(onnx_op *op) {
 *         fb_array *x = onnx_in(op, 0);
 *         int64_t axis = onnx_axis(op, "axis", -1, x);
 *         fb_array *made = ONNX_PART(SOFTMAX, "softmax", ONNX_A("input", x), ONNX_I("dim", axis));
 *         return ONNX_PART(RECIPROCAL, "reciprocal", ONNX_A("input", made));
 *     }
 *
 * Arrays that these functions give are kept until the operator has ended. After a failure they give NULL, or zeros, and take
 * NULL: so an operator is written without asking, and fails at its end. What an operator does not ask for of a call's
 * attributes and inputs makes the call fail. */
#ifndef FB_EVALUATOR_ONNX_H
#define FB_EVALUATOR_ONNX_H

#include "core/evaluator/internal.h"

#define ONNX_KEPT 256 /* arrays and lists of one operator */
#define ONNX_RESULTS 64

typedef struct onnx_op {
    fb_kernel_call *call;
    const fb_value_row *args, *kwargs;
    const char *name; /* of the operator */
    int64_t version;
    fb_object kept[ONNX_KEPT];
    size_t kept_count;
    fb_array *results[ONNX_RESULTS]; /* of an operator that has several; those that are not wanted may be NULL */
    size_t wanted;                   /* results that the node has: at least 1 */
    bool has_several;                /* the node gives a tuple */
} onnx_op;

typedef fb_array *onnx_function(onnx_op *op);

/* A row of the operators: its versions first … last are computed. */
typedef struct onnx_row {
    const char *name;
    int first, last;
    onnx_function *function;
    fb_op same; /* an operator of ours that it is, or 0 */
    const char *spelling;
} onnx_row;
extern const onnx_row onnx_rows_math[], onnx_rows_shape[], onnx_rows_layer[], onnx_rows_reduce[], onnx_rows_attention[],
    onnx_rows_resize[], onnx_rows_program[], onnx_rows_state[], onnx_rows_sample[], onnx_rows_quantised[];

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

size_t onnx_in_count(const onnx_op *op);
/* A tensor; NULL and a failure where it is missing. */
fb_array *onnx_in(onnx_op *op, size_t index);
/* The same without failure. */
fb_array *onnx_maybe(onnx_op *op, size_t index);
/* Integers that an input of at most one dimension has; the count, or -1 where it is omitted. */
int onnx_in_ints(onnx_op *op, size_t index, int64_t out[FB_MAX_RANK]);
int64_t onnx_in_int(onnx_op *op, size_t index, int64_t fallback);
bool onnx_has_attribute(onnx_op *op, const char *name);
int64_t onnx_int(onnx_op *op, const char *name, int64_t fallback);
double onnx_float(onnx_op *op, const char *name, double fallback);
const char *onnx_text(onnx_op *op, const char *name, const char *fallback);
fb_array *onnx_tensor(onnx_op *op, const char *name); /* or NULL */
/* The count, or -1. */
int onnx_ints(onnx_op *op, const char *name, int64_t out[FB_MAX_RANK]);
int onnx_floats(onnx_op *op, const char *name, double out[FB_MAX_RANK]);
/* The attribute may have any value. */
void onnx_ignore(onnx_op *op, const char *name);
/* An axis of the array, counted from 0. */
int onnx_axis_of(onnx_op *op, int64_t axis, int rank);
int onnx_axis(onnx_op *op, const char *name, int64_t fallback, const fb_array *array);
/* A dtype by its number in ONNX; fails where it is not evaluated. */
fb_dtype onnx_dtype(onnx_op *op, int64_t number);
fb_value onnx_attribute(onnx_op *op, const char *name);

/* Runs the program of an attribute over these inputs, and what it captures. `out` is its tuple, the caller's to drop. */
bool onnx_run(onnx_op *op, const char *name, const fb_object *inputs, size_t count, fb_object *out);
/* The arrays that a program gave, each kept; they are so many. Drops what was given. */
bool onnx_take(onnx_op *op, fb_object *given, size_t count, fb_array **out);

/* ---- making ------------------------------------------------------------------------------------------------------------- */

fb_array *onnx_keep(onnx_op *op, fb_array *array); /* takes the reference */
fb_object onnx_list(onnx_op *op, const int64_t *items, int count);
fb_object onnx_arrays(onnx_op *op, fb_array *const *items, size_t count);
#define ONNX_A(name, a)                                                                                                        \
    {                                                                                                                          \
        name, {                                                                                                                \
            .kind = (a) ? FB_OBJECT_ARRAY : FB_OBJECT_NONE, .array = (a)                                                       \
        }                                                                                                                      \
    }
#define ONNX_I(name, i)                                                                                                        \
    {                                                                                                                          \
        name, {                                                                                                                \
            .kind = FB_OBJECT_INT, .integer = (i)                                                                              \
        }                                                                                                                      \
    }
#define ONNX_F(name, f)                                                                                                        \
    {                                                                                                                          \
        name, {                                                                                                                \
            .kind = FB_OBJECT_FLOAT, .number = (f)                                                                             \
        }                                                                                                                      \
    }
#define ONNX_B(name, b)                                                                                                        \
    {                                                                                                                          \
        name, {                                                                                                                \
            .kind = FB_OBJECT_BOOL, .boolean = (b)                                                                             \
        }                                                                                                                      \
    }
#define ONNX_T(name, t)                                                                                                        \
    {                                                                                                                          \
        name, {                                                                                                                \
            .kind = FB_OBJECT_STRING, .text = (t)                                                                              \
        }                                                                                                                      \
    }
#define ONNX_O(name, o)                                                                                                        \
    { name, (o) }
#define ONNX_PART(OP, spelling, ...)                                                                                           \
    onnx_part(op, FB_OP_##OP, spelling, (const fb_part_argument[]){__VA_ARGS__, {NULL, {.kind = FB_OBJECT_NONE}}}, 0)
/* Of an operator that gives a tuple. */
#define ONNX_PART_OF(OP, spelling, item, ...)                                                                                  \
    onnx_part(op, FB_OP_##OP, spelling, (const fb_part_argument[]){__VA_ARGS__, {NULL, {.kind = FB_OBJECT_NONE}}}, item)
fb_array *onnx_part(onnx_op *op, fb_op part, const char *spelling, const fb_part_argument *arguments, size_t item);

fb_array *onnx_new(onnx_op *op, fb_dtype dtype, int rank, const int64_t *sizes);
fb_array *onnx_rows(onnx_op *op, fb_array *array); /* row by row */
fb_array *onnx_cast(onnx_op *op, fb_array *array, fb_dtype dtype);
fb_array *onnx_reshape(onnx_op *op, fb_array *array, int rank, const int64_t *sizes);
fb_array *onnx_permute(onnx_op *op, fb_array *array, const int *axes);
fb_array *onnx_scalar(onnx_op *op, double number, fb_dtype dtype);
fb_array *onnx_of_ints(onnx_op *op, const int64_t *items, int count); /* one dimension of int64 */
/* A part of one axis. */
fb_array *onnx_cut(onnx_op *op, fb_array *array, int axis, int64_t start, int64_t stop);
fb_array *onnx_join(onnx_op *op, fb_array *const *items, size_t count, int axis);
/* Two operands of the one dtype, broadcast. */
fb_array *onnx_binary(onnx_op *op, fb_op part, const char *spelling, fb_array *a, fb_array *b);
#define ONNX_ADD(a, b) onnx_binary(op, FB_OP_ADD, "add", a, b)
#define ONNX_SUB(a, b) onnx_binary(op, FB_OP_SUB, "sub", a, b)
#define ONNX_MUL(a, b) onnx_binary(op, FB_OP_MUL, "mul", a, b)
#define ONNX_DIV(a, b) onnx_binary(op, FB_OP_TRUE_DIVIDE, "true_divide", a, b)
/* A function of each element of a floating array. */
fb_array *onnx_map(onnx_op *op, fb_array *array, double (*function)(double x, const double *with), const double *with);

fb_array *onnx_matmul(onnx_op *op, fb_array *a, fb_array *b);
/* Reads the call's attributes of a Conv; `bias` may be NULL. */
fb_array *onnx_convolve(onnx_op *op, fb_array *x, fb_array *weight, fb_array *bias);
/* Cast: refuses a number beyond the range of an integer. */
fb_array *onnx_convert(onnx_op *op, fb_array *x, fb_dtype dtype);

/* Fails: it is not evaluated, though it is right; what it gives for these elements is not defined; it is wrong. */
fb_array *onnx_refuse(onnx_op *op, const char *format, ...) __attribute__((format(printf, 2, 3)));
fb_array *onnx_undefined(onnx_op *op, const char *format, ...) __attribute__((format(printf, 2, 3)));
fb_array *onnx_fail(onnx_op *op, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool onnx_ok(const onnx_op *op) {
    return !op->call->status;
}
static inline int64_t onnx_size(const fb_array *array, int axis) {
    return array ? array->sizes[axis] : 0;
}
/* So many steps are taken: false where that is too many, or the operator has failed. */
static inline bool onnx_takes(onnx_op *op, double steps) {
    return onnx_ok(op) && fb_kernel_takes(op->call, steps);
}
static inline bool onnx_goes_on(onnx_op *op, int64_t steps) {
    return fb_kernel_goes_on(op->call, steps);
}

/* Elements of a row-major array: as doubles, or as ints where it has these. */
static inline double onnx_get(const fb_array *array, int64_t at) {
    const char *data = fb_array_data(array);
    switch (array->held) {
    case FB_HELD_DOUBLE: return ((const double *)(const void *)data)[at];
    case FB_HELD_FLOAT: return (double)((const float *)(const void *)data)[at];
    case FB_HELD_INT: return (double)((const int64_t *)(const void *)data)[at];
    default: return ((const unsigned char *)data)[at];
    }
}
static inline int64_t onnx_get_int(const fb_array *array, int64_t at) {
    const char *data = fb_array_data(array);
    return array->held == FB_HELD_INT ? ((const int64_t *)(const void *)data)[at] : ((const unsigned char *)data)[at];
}
static inline void onnx_put(const fb_array *array, int64_t at, double number) {
    char *data = fb_array_data(array);
    switch (array->held) {
    case FB_HELD_DOUBLE: ((double *)(void *)data)[at] = number; break;
    case FB_HELD_FLOAT: ((float *)(void *)data)[at] = (float)number; break;
    case FB_HELD_INT: ((int64_t *)(void *)data)[at] = (int64_t)number; break;
    default: ((unsigned char *)data)[at] = number != 0;
    }
}
static inline void onnx_put_int(const fb_array *array, int64_t at, int64_t number) {
    char *data = fb_array_data(array);
    if (array->held == FB_HELD_INT) ((int64_t *)(void *)data)[at] = number;
    else ((unsigned char *)data)[at] = number != 0;
}

#endif
