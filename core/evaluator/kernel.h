/* Kernels: what an operator computes; one file a family.
 *
 *     static fb_status kernel_softmax(fb_kernel_call *call, fb_object *result) {
 *         fb_array *input;
 *         int64_t dim;
 *         if (!fb_argument_array(call, "input", &input)) return call->status;
 *         if (!fb_argument_axis(call, "dim", input->rank, &dim)) return call->status;
 *         …
 *         return fb_return_array(call, made, result);
 *     }
 *
 * Arguments are asked for by the names of ops.def; where a module is called the same names find forward()'s arguments, then its
 * parameters and buffers, then its config; `training` finds the module's flag. So torch.nn.Linear, functional.linear and
 * aten.linear are one kernel.
 *
 * An in-place spelling (add_, iadd, inplace=True) is the same kernel: the interpreter assigns its result to the first argument
 * and gives that back. `out=` is refused.
 *
 * No kernel may work for long without being asked whether to go on, nor begin what takes too long, nor allocate beside the
 * limit. All of it is done by what loops go through anyway, as long as a kernel
 *
 *     - walks arrays by fb_walk (FB_LOOP_1 and FB_LOOP_2 do), fills, copies and casts them by fb_array_… and fb_make_…, and
 *       multiplies matrices by fb_gemm: these ask by themselves;
 *     - asks fb_work_at(fb_call_work(call), i, count) in any other loop over elements, or fb_kernel_goes_on(call, steps) before
 *       every few steps;
 *     - says fb_kernel_takes(call, steps) before it begins, where it takes more than a few steps for each element of the arrays
 *       that it makes (fb_make_… say it of these);
 *     - takes memory from fb_make_array or fb_make_workspace alone.
 *
 * When the work is stopped a loop ends early, and its result is garbage that is not looked at: the call fails. Elements that
 * are then used as addresses are to be checked in any case. tests/unit/test_time.c holds the worst call of each operator that
 * has a kernel, and fails for one that it lacks.
 *
 * A kernel whose row does not say so (FB_KERNEL_COMPLEX) never sees a complex tensor, and cannot make one.
 *
 * A kernel computes in the held type of its operands after PyTorch's promotion (fb_promote_arrays), in the order of operations
 * that PyTorch's documentation gives. Sums of many terms may be in another order. */
#ifndef FB_EVALUATOR_KERNEL_H
#define FB_EVALUATOR_KERNEL_H

#include "core/analysis/view.h"
#include "core/evaluator/object.h"

typedef struct fb_evaluator fb_evaluator;

typedef struct fb_kernel_call {
    fb_evaluator *evaluator;
    const fb_graph *graph;
    fb_node node;
    fb_op op;           /* without FB_OP_IN_PLACE: one kernel may serve several */
    bool takes_complex; /* its row says so: complex tensors may be asked for and made */
    fb_value recipes;   /* a parametrised module's config.parametrized: how its weights are computed; see parametrized.c */
    fb_array_memory *memory;
    fb_status status;                    /* FB_OK until something failed; then `error` says what */
    bool takes_weight;                   /* the argument that is being found may be a matrix of weights */
    uint64_t read_args, read_kwargs;     /* by position: arguments that were asked for */
    const char *spelling;                /* of a call that is a part of another one; NULL: the node's own */
    const struct fb_part_argument *part; /* its arguments, up to one without a name */
    fb_error *error;
} fb_kernel_call;

/* An operator that is computed as parts of another one gets its arguments by these. */
typedef struct fb_part_argument {
    const char *name;
    fb_object object; /* borrowed */
} fb_part_argument;

typedef fb_status fb_kernel(fb_kernel_call *call, fb_object *result);

/* The kernel of an operator. Each file of kernels ends with a table of these:
 *
 *     const fb_kernel_row fb_kernels_pad[] = {FB_KERNEL(PAD, pad), …, FB_KERNELS_END};
 *
 * A new row needs a case in tests/unit/test_time.c, the worst call that it can be asked for; the test fails without. */
typedef struct fb_kernel_row {
    fb_op op;
    fb_kernel *function;
    bool takes_complex;
    bool takes_parts; /* it reads its weight in parts where that is large */
    /* Its arguments have no names, and it knows what to do with batches: it runs a program, or is of vmap. A call with keyword
     * arguments is refused. */
    bool is_by_position;
} fb_kernel_row;
#define FB_KERNEL(id, name)                                                                                                    \
    { .op = FB_OP_##id, .function = kernel_##name }
#define FB_KERNEL_COMPLEX(id, name)                                                                                            \
    { .op = FB_OP_##id, .function = kernel_##name, .takes_complex = true }
#define FB_KERNEL_BY_POSITION(id, name)                                                                                        \
    { .op = FB_OP_##id, .function = kernel_##name, .takes_complex = true, .is_by_position = true }
#define FB_KERNEL_OF_PARTS(id, name, is_complex)                                                                               \
    { .op = FB_OP_##id, .function = kernel_##name, .takes_complex = is_complex, .takes_parts = true }
#define FB_KERNELS_END                                                                                                         \
    { .function = NULL }

/* clang-format off */
#define FB_KERNEL_FILES(FILE) \
    FILE(python) FILE(index) FILE(binary) FILE(unary) FILE(matmul) FILE(view) FILE(copy) FILE(reduce) \
    FILE(scan) FILE(sort) FILE(norm) FILE(conv) FILE(pool) FILE(select) FILE(create) FILE(upsample) \
    FILE(pad) FILE(gather) FILE(attention) FILE(patches) FILE(einsum) FILE(complex) FILE(fft) FILE(linalg) \
    FILE(programs) FILE(batched) FILE(pointwise)
/* clang-format on */
#define FB_KERNEL_FILE(name) extern const fb_kernel_row fb_kernels_##name[];
FB_KERNEL_FILES(FB_KERNEL_FILE)
#undef FB_KERNEL_FILE
extern const fb_kernel_row *const fb_kernel_tables[]; /* of all files; NULL is behind the last */

/* ---- arguments ----------------------------------------------------------------------------------------------------------
 *
 * Those that return bool are false when the argument is missing or of another kind; then call->status is set to FB_INVALID
 * "unsupported-operator", whose message names the node, its target and the argument. Borrowed: valid until the kernel returns.
 */

/* NULL when it is not given. None counts as given. */
const fb_object *fb_argument(fb_kernel_call *call, const char *name);
bool fb_argument_is_given(fb_kernel_call *call, const char *name); /* and not None */
/* A tensor; a Python number becomes a 0-d array of its default dtype (bool, int64, float32) only where fb_operands takes it. */
bool fb_argument_array(fb_kernel_call *call, const char *name, fb_array **out);
/* … whose elements are indices: int64 or int32. */
bool fb_argument_index(fb_kernel_call *call, const char *name, fb_array **out);
/* The same; *out = NULL when it is absent or None. */
bool fb_argument_optional(fb_kernel_call *call, const char *name, fb_array **out);
/* weight=, a tensor, in one of two forms: an array, or a matrix of weights (*array is NULL), of which fb_read_weight fills a
 * contiguous array with elements `first` and on. A kernel that asks for it so computes of parts exactly what it computes of the
 * whole. */
bool fb_argument_weight(fb_kernel_call *call, fb_array **array, const fb_weight **weight);
bool fb_read_weight(fb_kernel_call *call, const fb_weight *weight, int64_t first, const fb_array *to);
bool fb_argument_int(fb_kernel_call *call, const char *name, int64_t fallback, int64_t *out);
bool fb_argument_number(fb_kernel_call *call, const char *name, double fallback, double *out);
bool fb_argument_bool(fb_kernel_call *call, const char *name, bool fallback, bool *out);
/* "" when absent or None. */
bool fb_argument_text(fb_kernel_call *call, const char *name, const char **out);
/* dtype= */
bool fb_argument_dtype(fb_kernel_call *call, fb_dtype fallback, fb_dtype *out);
/* An axis, negative ones counted from the end: 0 … rank - 1 (0 for rank 0). It has no default. */
bool fb_argument_axis(fb_kernel_call *call, const char *name, int rank, int64_t *out);
/* An int, a sequence of ints, or the rest of the arguments where the parameter is variadic: at most FB_MAX_RANK. count -1 when
 * absent or None. */
bool fb_argument_ints(fb_kernel_call *call, const char *name, int64_t out[FB_MAX_RANK], int *count);
/* Exactly `count` ints; a single one is repeated; `fallback` for all when absent. */
bool fb_argument_each(fb_kernel_call *call, const char *name, int count, int64_t fallback, int64_t *out);
/* A sequence of tensors, or variadic ones. *items is the kernel's to free(), the arrays are borrowed. */
bool fb_argument_arrays(fb_kernel_call *call, const char *name, fb_array ***items, size_t *count);

/* Says that all arguments were looked at: for kernels that walk through them by themselves. A call with an argument that its
 * kernel did not ask for is refused, unless it is None or False, or changes no number (a device, a layout …). */
void fb_arguments_are_read(fb_kernel_call *call);

/* How the operator was spelled: the last part of the target without overload and underscores of in-place ("fmax" of torch.fmax,
 * "sym_size" of aten.sym_size.int), the method's name, or the module's class. Where one row of ops.def has several meanings. */
const char *fb_call_spelling(const fb_kernel_call *call);
/* A function of torch.nn.functional, or a module, which calls one: they check more than ATen does. */
bool fb_call_is_of_nn(const fb_kernel_call *call);
bool fb_call_is_spelled(const fb_kernel_call *call, const char *name);

/* ---- failing and returning ---------------------------------------------------------------------------------------------- */

/* FB_INVALID "unsupported-operator": this call cannot be evaluated; names node and target, and why. */
fb_status fb_kernel_unsupported(fb_kernel_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For results written where fb_array_may_overlap, or over elements that the call reads elsewhere; PyTorch writes in its own
 * order, or raises. */
#define FB_WRITES_OVERLAP "elements that it writes share memory with others that it writes or reads, so their order decides"
/* FB_INVALID "evaluation-failed": PyTorch would raise, too (sizes that do not fit). */
/* It could be evaluated, but on these elements its result is not defined, or not known. */
fb_status fb_kernel_undefined(fb_kernel_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
fb_status fb_kernel_fail(fb_kernel_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* *result = the array, whose reference is given up to it. NULL (after a failure) is passed on as call->status. */
fb_status fb_return_array(fb_kernel_call *call, fb_array *array, fb_object *result);
/* *result = a tuple of them, whose references are given up to it, also when the call has failed before. */
fb_status fb_return_tuple(fb_kernel_call *call, fb_array *const *items, size_t count, fb_object *result);
/* As fb_array_…, with the call's memory and error; NULL on failure, with call->status set. */
fb_array *fb_make_array(fb_kernel_call *call, fb_dtype dtype, int rank, const int64_t *sizes);
fb_array *fb_make_view(fb_kernel_call *call, const fb_array *of, int rank);
fb_array *fb_make_contiguous(fb_kernel_call *call, fb_array *array);
fb_array *fb_make_cast(fb_kernel_call *call, const fb_array *array, fb_dtype dtype);
/* A new row-major result takes the order of axes in memory of these operands, as torch.empty_like does. */
fb_status fb_lay_out_like(fb_kernel_call *call, fb_array *const *operands, size_t count, fb_object *result);
/* Memory of the evaluation for `count` elements, not set; NULL on failure. To be freed before the kernel returns. */
void *fb_make_workspace(fb_kernel_call *call, int64_t count, size_t element);
void fb_free_workspace(fb_kernel_call *call, void *workspace, int64_t count, size_t element);

/* The work takes about so many steps, of a nanosecond or so. False: that is more than is left to the evaluation,
 * and the call has failed. */
bool fb_kernel_takes(fb_kernel_call *call, double steps);
static inline fb_work *fb_call_work(fb_kernel_call *call) {
    return &call->memory->work;
}
/* So many steps are about to be taken. False: the evaluation is to end, and call->status is set. */
bool fb_kernel_goes_on(fb_kernel_call *call, int64_t steps);

/* ---- operands ----------------------------------------------------------------------------------------------------------- */

/* torch.result_type of two or three operands (tensors with dimensions, 0-d tensors and Python numbers rank differently). */
fb_dtype fb_promote_objects(const fb_object *const *objects, size_t count);
/* The operands `names` (NULL-terminated; tensors or numbers), promoted and broadcast to one dtype and common sizes, as arrays
 * to be dropped by the caller. `dtype` FB_DTYPE_UNKNOWN: found by promotion; it is written back. */
bool fb_operands(fb_kernel_call *call, const char *const *names, fb_dtype *dtype, fb_array **out);

/* A Python number, or a tensor without dimensions, as a new 0-d array of the dtype. Fails where torch does: when the number is
 * beyond the dtype's range. NULL on failure. */
fb_array *fb_make_number(fb_kernel_call *call, const char *name, fb_dtype dtype);
fb_array *fb_make_number_of(fb_kernel_call *call, const fb_object *object, fb_dtype dtype);
/* A number, or nested sequences of them, as torch.tensor makes an array of them. `dtype` FB_DTYPE_UNKNOWN: the numbers' dtype.
 */
fb_array *fb_make_array_of(fb_kernel_call *call, const fb_object *object, fb_dtype dtype);

/* v × g / norm of v over all dimensions but `dim` (-1: over all), which is checked; NULL on failure. */
fb_array *fb_make_weight_norm(fb_kernel_call *call, fb_array *v, fb_array *g, int64_t dim);

/* Computes torch.nn.utils.parametrizations.orthogonal of the original by its map ("matrix_exp", "cayley", "householder"), from
 * `base` on (NULL: none); NULL on failure. */
fb_array *fb_make_orthogonal(fb_kernel_call *call, const char *map, fb_array *original, fb_array *base);

/* real and imag: a view; a real tensor is its own real part, and has no imaginary one. */
fb_status fb_return_part(fb_kernel_call *call, fb_array *input, bool is_imaginary, fb_object *result);
/* Functions of one complex operand, for the kernel that has them of real ones: neg, abs, exp. */
fb_status fb_complex_unary(fb_kernel_call *call, const fb_array *input, fb_object *result);

/* max(a, b) and min(a, b), for the kernel of max and min. */
fb_status fb_largest_of_two(fb_kernel_call *call, const char *second, fb_object *result);

/* When none of these arguments is a tensor: Python's own arithmetic on numbers, sequences and strings. False: one is, or the
 * call failed; *result is written on true. For the kernels of FB_FACT_MAYBE_NUMBER operators. */
bool fb_python_arithmetic(fb_kernel_call *call, fb_object *result);

/* The BLAS that kernels use; C = A · B (+ C when `is_added`), row-major, in a held type of floats or of complex numbers.
 * A is m × k with row stride lda (transposed: k × m), B k × n, C m × n. When the evaluation is to stop, a part of C is not
 * written, and the call has failed. A kernel says before how many steps all its products of two numbers take. */
double fb_gemm_steps(double products);
/* How many columns of C it makes at once: so many, or a multiple of them, may be made by one call each, and are the same. */
int64_t fb_gemm_columns(int64_t m, int64_t n, int64_t k);
void fb_gemm(fb_kernel_call *call, fb_held held, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
             const void *a, int64_t lda, const void *b, int64_t ldb, void *c, int64_t ldc, bool is_added);

#endif
