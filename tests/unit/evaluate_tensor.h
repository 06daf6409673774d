/* Values of the reference evaluator: strided tensors over shared storage, numbers, tuples. See evaluate.h. */
#ifndef FB_TESTS_EVALUATE_TENSOR_H
#define FB_TESTS_EVALUATE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"

#define MAX_DIMS 8

typedef enum value_kind { V_UNUSABLE, V_NONE, V_BOOL, V_NUMBER, V_TENSOR, V_TUPLE, V_SLICE, V_ELLIPSIS, V_TEXT } value_kind;

typedef struct value value;
struct value {
    value_kind kind;
    bool is_int;
    double number;
    double *data; /* of the tensor's first element */
    int rank;
    int64_t sizes[MAX_DIMS], strides[MAX_DIMS];
    value *items; /* of a tuple (or list); start, stop and step of a slice */
    size_t count;
    const char *text;
};

typedef double (*binary_function)(double, double);
typedef double (*unary_function)(double);
double sum_of(double a, double b), difference_of(double a, double b), product_of(double a, double b),
    quotient_of(double a, double b), maximum_of(double a, double b), minimum_of(double a, double b);
double negative_of(double a), inverse_root_of(double a);

void *take(fb_arena *arena, size_t size); /* aborts when memory is out */
value number_value(double number, bool is_int);
value tuple_value(fb_arena *arena, size_t count);
value tensor_value(fb_arena *arena, int rank, const int64_t *sizes); /* zeros */
int64_t element_count(const value *tensor);
/* Element `index` in row-major order. */
double *element(const value *tensor, int64_t index);

bool is_same_shape(const value *a, const value *b);
value copy_of(fb_arena *arena, const value *tensor);  /* contiguous */
value clone_of(fb_arena *arena, const value *tensor); /* in the order in which it lies in memory, where it has no gaps */
value absmax(fb_arena *arena, const value *a, const int64_t *dims, int count); /* these become 1 */
value index_select(fb_arena *arena, const value *a, int axis, const value *index);
value map_unary(fb_arena *arena, const value *a, unary_function function);
/* With broadcasting, of tensors and numbers. */
value map_binary(fb_arena *arena, const value *a, const value *b, binary_function function);
/* Writes b, broadcast, into a. False when it does not fit. */
bool write_into(const value *a, const value *b);
/* NumPy's. */
value matmul(fb_arena *arena, const value *a, const value *b);
value softmax(fb_arena *arena, const value *x); /* over the last dimension */
value concatenate(fb_arena *arena, const value *tensors, size_t count, int64_t axis);
value slice_of(const value *tensor, int axis, int64_t start, int64_t stop, int64_t step);
value permuted(const value *tensor, const int64_t *dims);
/* A view where the strides allow it, a copy elsewhere; one size may be -1. */
value reshaped(fb_arena *arena, const value *tensor, int rank, const int64_t *sizes);
/* Basic indexing: ints, slices, None, one ellipsis. */
value indexed(fb_arena *arena, const value *tensor, const value *index);
/* x (…, in) · weight (out, in) + bias. */
value linear(fb_arena *arena, const value *x, const value *weight, const value *bias);
/* One or two spatial dimensions. Padding is zeros. */
typedef struct convolution {
    int64_t stride[2], padding[2], dilation[2], groups;
} convolution;
value convolve(fb_arena *arena, const value *x, const value *weight, const value *bias, const convolution *options);

/* LayerNorm, or RMSNorm when not centred, over the last `axes` dimensions; weight and bias may be no tensors. */
value layer_normalised(fb_arena *arena, const value *x, int axes, const value *weight, const value *bias, double eps,
                       bool is_centred);

#endif
