/* Arrays: the values of tensors while a graph is evaluated. An array is a strided view of storage, as in PyTorch: views share
 * their storage, and what is written through one is seen through all.
 *
 * An array has the dtype that PyTorch would give it, and is held in one of six types, so that a kernel is written
 * once for each of them at most:
 *
 *     float64, and every floating dtype when precision is FB_PRECISION_DOUBLE        double
 *     float32, float16, bfloat16 (whose values are rounded to their dtype)           float
 *     int8 … int64, uint8 … uint64 (whose values are wrapped to their dtype)         int64_t
 *     bool                                                                           unsigned char, 0 or 1
 *     complex128, and complex64 when precision is FB_PRECISION_DOUBLE                double _Complex
 *     complex64                                                                      float _Complex
 *
 * Only the kernels that say so (FB_KERNEL_COMPLEX) see complex arrays. uint16, uint32 and uint64 are for ONNX's operators,
 * which refuse numbers from 2^63 on. Other dtypes are refused. Reference counts are not atomic: an evaluation belongs to one
 * thread. */
#ifndef FB_EVALUATOR_ARRAY_H
#define FB_EVALUATOR_ARRAY_H

#include "core/analysis/infer.h" /* FB_MAX_RANK */
#include "core/base/work.h"
#include "core/graph/graph.h"

typedef enum fb_held {
    FB_HELD_NONE,
    FB_HELD_DOUBLE,
    FB_HELD_FLOAT,
    FB_HELD_INT,
    FB_HELD_BOOL,
    FB_HELD_COMPLEX_DOUBLE,
    FB_HELD_COMPLEX_FLOAT,
} fb_held;
size_t fb_held_size(fb_held held); /* bytes of one element */

typedef enum fb_precision {
    FB_PRECISION_RECORDED, /* as the graph says */
    FB_PRECISION_DOUBLE,   /* all floating arithmetic in float64; dtypes are still the graph's */
} fb_precision;

/* The memory that all arrays of an evaluation share. */
typedef struct fb_array_memory {
    size_t used, peak, limit; /* bytes; limit 0 = none */
    fb_precision precision;
    bool has_wide_unsigned; /* uint16, uint32 and uint64, with which PyTorch hardly computes */
    fb_work work;           /* of all loops over these arrays */
} fb_array_memory;

static inline bool fb_dtype_is_wide_unsigned(fb_dtype dtype) {
    return dtype == FB_UINT16 || dtype == FB_UINT32 || dtype == FB_UINT64;
}

/* Bytes that are about to be allocated beside arrays: FB_TOO_LARGE "evaluation-too-large" beyond the limit. Give them back when
 * they are freed. */
fb_status fb_array_memory_take(fb_array_memory *memory, size_t size, fb_error *error);
void fb_array_memory_give(fb_array_memory *memory, size_t size);

typedef struct fb_storage {
    size_t references;
    size_t size; /* bytes */
    /* PyTorch's tensor shares its storage with another one, in a form that arrays lack (a conjugate); here both are copies, so
     * neither may be written: fb_array_assign refuses. */
    bool is_frozen;
    fb_array_memory *memory;
    void *bytes;
} fb_storage;

typedef struct fb_array {
    size_t references;
    fb_storage *storage;
    fb_dtype dtype;
    fb_held held;
    int rank;
    unsigned levels;              /* of batches: bit k - 1 for level k; see batched.c. 0 outside of torch.vmap */
    int64_t offset;               /* elements, of the first */
    int64_t sizes[FB_MAX_RANK];   /* only the first `rank` mean anything */
    int64_t strides[FB_MAX_RANK]; /* elements; 0 in expanded dimensions, never negative */
} fb_array;

/* FB_HELD_NONE: such a dtype is not evaluated. */
fb_held fb_held_of(fb_precision precision, fb_dtype dtype);

/* FB_TOO_LARGE "evaluation-too-large": the elements, counting a size of 0 as 1, cannot be counted in bytes. Every array and
 * every view that a kernel returns has been checked, so products of their sizes and strides do not overflow. */
fb_status fb_array_check_sizes(int rank, const int64_t *sizes, fb_error *error);

/* A new contiguous (row-major) array, its bytes not set. FB_NO_MEMORY; FB_TOO_LARGE "evaluation-too-large" beyond the limit or
 * when the sizes' product overflows; FB_INVALID "unsupported-operator" for a dtype that is not evaluated. */
fb_status fb_array_new(fb_array_memory *memory, fb_dtype dtype, int rank, const int64_t *sizes, fb_array **out,
                       fb_error *error);
/* Another view of the same storage; sizes and strides are to be set by the caller. */
fb_status fb_array_view(const fb_array *of, int rank, fb_array **out, fb_error *error);
fb_array *fb_array_keep(fb_array *array); /* one reference more; returns it */
void fb_array_drop(fb_array *array);      /* one less; NULL does nothing */

int64_t fb_array_count(const fb_array *array); /* elements */
/* The meter of loops over its elements. */
static inline fb_work *fb_array_work(const fb_array *array) {
    return &array->storage->memory->work;
}
/* The last dimensions of a batched array, which it does not say that it has. */
static inline int fb_array_hidden_rank(const fb_array *array) {
    return array->levels ? 32 - __builtin_clz(array->levels) : 0;
}
bool fb_array_is_contiguous(const fb_array *array);
/* The first element's address. */
void *fb_array_data(const fb_array *array);

/* The array itself, kept, when it is contiguous; otherwise a contiguous copy. */
fb_status fb_array_contiguous(fb_array *array, fb_array **out, fb_error *error);
/* A contiguous copy in another dtype (or the same), as Tensor.to converts: float -> int truncates, anything -> bool is != 0. */
fb_status fb_array_cast(const fb_array *array, fb_dtype dtype, fb_array **out, fb_error *error);
/* May two indexes of it name one element, as in x.expand(2, 3) or x.unfold(0, 2, 1)? */
bool fb_array_may_overlap(const fb_array *array);
/* Memory that two arrays share, as at::get_overlap_status says: none (or too hard to say: one of them has gaps or overlaps
 * itself), the same elements by the same strides, or anything else. */
typedef enum fb_overlap { FB_OVERLAP_NONE, FB_OVERLAP_FULL, FB_OVERLAP_PARTIAL } fb_overlap;
fb_overlap fb_arrays_overlap(const fb_array *a, const fb_array *b);
/* Writes `from`, broadcast and converted, to every element of the view `to`; they may overlap. FB_INVALID "shape-mismatch", or
 * "unsupported-operator" where the storage is frozen. */
fb_status fb_array_assign(const fb_array *to, const fb_array *from, fb_error *error);
/* Rounds the elements to the dtype: float16 and bfloat16 held as floats, small integers wrapped. Kernels need not call it for
 * what they return: the interpreter does. */
void fb_array_round(const fb_array *array);
/* The same for floating elements that are held as doubles for the sake of precision: weights and inputs have the values of
 * their dtype in every precision. */
void fb_array_round_values(const fb_array *array);
/* The real or the imaginary part of a complex array: a view of its storage with the same sizes. The first is borrowed: it is as
 * long as `array`. */
fb_array fb_array_part_of(const fb_array *array, bool is_imaginary);
fb_status fb_array_part(const fb_array *array, bool is_imaginary, fb_array **out, fb_error *error);
/* A view broadcast to those sizes (strides 0); FB_INVALID "shape-mismatch". */
fb_status fb_array_broadcast(const fb_array *array, int rank, const int64_t *sizes, fb_array **out, fb_error *error);

/* The strides that PyTorch's TensorIterator gives a new tensor of these sizes computed from `from`, each of which broadcasts to
 * them: dense, in the order of axes that the operands have, where the first that orders two axes decides. */
void fb_array_strides_like(int rank, const int64_t *sizes, fb_array *const *from, size_t count, int64_t strides[FB_MAX_RANK]);
/* Moves the elements of a contiguous array to those dense strides: *array is replaced by another. */
fb_status fb_array_lay_out(fb_array **array, const int64_t *strides, fb_error *error);

/* Sizes that this array broadcasts to together with those before it; *rank is 0 at first. False: it does not. */
bool fb_array_join_sizes(const fb_array *array, int *rank, int64_t sizes[FB_MAX_RANK]);

/* A view that is its caller's own loses a dimension, or gets one of size 1 before `dim` (false: it has too many). */
void fb_array_remove_dim(fb_array *view, int dim);
bool fb_array_insert_dim(fb_array *view, int dim);
/* … or keeps start, start + step … before stop of a dimension, as Python's slices with a positive step. */
void fb_array_slice(fb_array *view, int dim, int64_t start, int64_t stop, int64_t step);
/* A bound of a slice as 0 … size: negative ones count from the end. */
static inline int64_t fb_clip_index(int64_t index, int64_t size) {
    if (index < 0) index += size;
    return index < 0 ? 0 : index > size ? size : index;
}

/* memcpy, in parts. */
void fb_array_copy_bytes(fb_work *work, void *to, const void *from, size_t size);

/* Elements as numbers, by linear row-major index; slow, for scalars and tests. */
double fb_array_number(const fb_array *array, int64_t index);
int64_t fb_array_int(const fb_array *array, int64_t index);
/* One number for all elements; `integer` counts where integers are held. As all that returns nothing here, it may end early
 * where the work is stopped: look at fb_array_work(array). */
void fb_array_fill(const fb_array *array, double number, int64_t integer);

/* A floating element by its distance from the first, in elements. */
static inline double fb_array_get(const fb_array *array, int64_t at) {
    at += array->offset;
    return array->held == FB_HELD_FLOAT ? (double)((const float *)array->storage->bytes)[at]
                                        : ((const double *)array->storage->bytes)[at];
}
static inline void fb_array_put(const fb_array *array, int64_t at, double value) {
    at += array->offset;
    if (array->held == FB_HELD_FLOAT) ((float *)array->storage->bytes)[at] = (float)value;
    else ((double *)array->storage->bytes)[at] = value;
}

/* Little-endian row-major bytes of the dtype, as in files, to and from arrays. `size` must be what dtype and sizes say. */
fb_status fb_array_from_bytes(fb_array_memory *memory, fb_dtype dtype, int rank, const int64_t *sizes, const void *bytes,
                              size_t size, fb_array **out, fb_error *error);
/* Elements first … first + count of a contiguous array, from the bytes of as many. */
void fb_array_put_bytes(const fb_array *array, int64_t first, int64_t count, const void *bytes);
void fb_array_to_bytes(const fb_array *array, void *bytes); /* fb_array_count × fb_dtype_size */

/* ---- walking --------------------------------------------------------------------------------------------------------------
 *
 * The elements of up to four arrays of the same sizes, in row-major order of the first, as runs along one dimension:
 *
 *     fb_walk walk;
 *     for (fb_walk_begin(&walk, out, a, b, NULL); fb_walk_more(&walk); fb_walk_next(&walk))
 *         for (int64_t i = 0; i < walk.count; i++) … walk.data[k] + i × walk.strides[k] (elements) …
 *
 * Dimensions that can be joined are joined, so contiguous arrays are few runs. Runs are short, and the meter of the first
 * array's memory is asked before each: when the work is stopped the walk ends early, and what its caller has made is garbage.
 */
#define FB_WALK_ARRAYS 4
typedef struct fb_walk {
    void *data[FB_WALK_ARRAYS];      /* of the run's first element */
    int64_t strides[FB_WALK_ARRAYS]; /* elements, along the run */
    int64_t count;                   /* elements of this run */
    int arrays, rank;                /* outer dimensions */
    bool is_done;
    size_t element[FB_WALK_ARRAYS];
    int64_t line, at; /* elements along the run's dimension; those before this run */
    fb_work *work;
    int64_t sizes[FB_MAX_RANK], steps[FB_WALK_ARRAYS][FB_MAX_RANK], index[FB_MAX_RANK];
} fb_walk;
/* The list of arrays ends with NULL. All have the sizes of the first (broadcast them before). */
void fb_walk_begin(fb_walk *walk, const fb_array *first, ...);
static inline bool fb_walk_more(const fb_walk *walk) {
    return !walk->is_done;
}
void fb_walk_next(fb_walk *walk);

#endif
