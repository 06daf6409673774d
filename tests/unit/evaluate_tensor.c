#include "tests/unit/evaluate_tensor.h"

#include <math.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const value unusable = {0};

double sum_of(double a, double b) {
    return a + b;
}
double difference_of(double a, double b) {
    return a - b;
}
double product_of(double a, double b) {
    return a * b;
}
double quotient_of(double a, double b) {
    return a / b;
}
double negative_of(double a) {
    return -a;
}
double maximum_of(double a, double b) {
    return isnan(a) || isnan(b) ? NAN : a == b ? (signbit(a) ? b : a) : fmax(a, b);
}

double minimum_of(double a, double b) {
    return isnan(a) || isnan(b) ? NAN : a == b ? (signbit(a) ? a : b) : fmin(a, b);
}

double inverse_root_of(double a) {
    return 1 / sqrt(a);
}

void *take(fb_arena *arena, size_t size) {
    void *block = fb_arena_alloc(arena, size ? size : 1);
    if (!block) abort();
    memset(block, 0, size);
    return block;
}

value number_value(double number, bool is_int) {
    return (value){.kind = V_NUMBER, .number = number, .is_int = is_int};
}

value tuple_value(fb_arena *arena, size_t count) {
    return (value){.kind = V_TUPLE, .count = count, .items = take(arena, count * sizeof(value))};
}

static void set_strides(value *tensor) {
    int64_t stride = 1;
    for (int i = tensor->rank; i-- > 0;) {
        tensor->strides[i] = stride;
        stride *= tensor->sizes[i];
    }
}

value tensor_value(fb_arena *arena, int rank, const int64_t *sizes) {
    value result = {.kind = V_TENSOR, .rank = rank};
    if (rank > MAX_DIMS) return unusable;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] < 0) return unusable;
        result.sizes[i] = sizes[i];
    }
    set_strides(&result);
    result.data = take(arena, (size_t)element_count(&result) * sizeof(double));
    return result;
}

int64_t element_count(const value *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= tensor->sizes[i];
    return count;
}

double *element(const value *tensor, int64_t index) {
    double *at = tensor->data;
    for (int i = tensor->rank; i-- > 0;) {
        at += index % tensor->sizes[i] * tensor->strides[i];
        index /= tensor->sizes[i];
    }
    return at;
}

bool is_same_shape(const value *a, const value *b) {
    return a->rank == b->rank && memcmp(a->sizes, b->sizes, (size_t)a->rank * sizeof *a->sizes) == 0;
}

value copy_of(fb_arena *arena, const value *tensor) {
    value result = tensor_value(arena, tensor->rank, tensor->sizes);
    int64_t count = element_count(tensor);
    for (int64_t i = 0; i < count; i++) result.data[i] = *element(tensor, i);
    return result;
}

/* Are its elements one behind the other in memory, in whatever order of dimensions? */
static bool is_dense(const value *tensor) {
    int64_t wanted = 1, count = element_count(tensor);
    while (wanted < count) {
        int next = 0;
        while (next < tensor->rank && (tensor->sizes[next] == 1 || tensor->strides[next] != wanted)) next++;
        if (next == tensor->rank) return false;
        wanted *= tensor->sizes[next];
    }
    return true;
}

/* Where an elementwise operator puts its results: in the order in which an operand of their sizes lies in memory. */
static value tensor_like(fb_arena *arena, const value *operand, int rank, const int64_t *sizes) {
    value result = tensor_value(arena, rank, sizes);
    bool is_like = result.kind == V_TENSOR && operand->kind == V_TENSOR && is_same_shape(operand, &result) && is_dense(operand);
    if (is_like) memcpy(result.strides, operand->strides, sizeof result.strides);
    return result;
}

value clone_of(fb_arena *arena, const value *tensor) {
    value result = tensor_like(arena, tensor, tensor->rank, tensor->sizes);
    int64_t count = element_count(&result);
    for (int64_t i = 0; i < count; i++) *element(&result, i) = *element(tensor, i);
    return result;
}

value absmax(fb_arena *arena, const value *a, const int64_t *dims, int count) {
    int64_t sizes[MAX_DIMS];
    memcpy(sizes, a->sizes, sizeof sizes);
    for (int i = 0; i < count; i++) sizes[dims[i]] = 1;
    value result = tensor_value(arena, a->rank, sizes), seen = result;
    memcpy(seen.sizes, a->sizes, sizeof seen.sizes);
    for (int i = 0; i < count; i++) seen.strides[dims[i]] = 0;
    for (int64_t i = 0, all = element_count(a); i < all; i++) {
        double size = fabs(*element(a, i)), *largest = element(&seen, i);
        if (!(*largest >= size) && !isnan(*largest)) *largest = size;
    }
    return result;
}

value index_select(fb_arena *arena, const value *a, int axis, const value *index) {
    int64_t sizes[MAX_DIMS];
    memcpy(sizes, a->sizes, sizeof sizes);
    sizes[axis] = element_count(index);
    value result = tensor_value(arena, a->rank, sizes);
    for (int64_t i = 0; i < sizes[axis]; i++) {
        int64_t at = (int64_t)*element(index, i);
        if (at < 0) at += a->sizes[axis];
        value part = slice_of(a, axis, at, at + 1, 1), to = slice_of(&result, axis, i, i + 1, 1);
        write_into(&to, &part);
    }
    return result;
}

value map_unary(fb_arena *arena, const value *a, unary_function function) {
    if (a->kind == V_NUMBER) return number_value(function(a->number), false);
    if (a->kind != V_TENSOR) return unusable;
    value result = tensor_like(arena, a, a->rank, a->sizes);
    int64_t count = element_count(&result);
    for (int64_t i = 0; i < count; i++) *element(&result, i) = function(*element(a, i));
    return result;
}

/* The tensor, seen with the shape that it is broadcast to. */
static value broadcast(fb_arena *arena, const value *a, int rank, const int64_t *sizes) {
    value result = {.kind = V_TENSOR, .rank = rank};
    if (a->kind == V_NUMBER || a->kind == V_BOOL) {
        result.data = take(arena, sizeof(double));
        *result.data = a->number;
        memcpy(result.sizes, sizes, (size_t)rank * sizeof *sizes);
        return result;
    }
    if (a->kind != V_TENSOR || a->rank > rank) return unusable;
    result.data = a->data;
    for (int i = 0; i < rank; i++) {
        int from = i - (rank - a->rank);
        result.sizes[i] = sizes[i];
        if (from < 0) continue;
        if (a->sizes[from] != sizes[i] && a->sizes[from] != 1) return unusable;
        result.strides[i] = a->sizes[from] == 1 ? 0 : a->strides[from];
    }
    return result;
}

value map_binary(fb_arena *arena, const value *a, const value *b, binary_function function) {
    bool is_number_a = a->kind == V_NUMBER || a->kind == V_BOOL, is_number_b = b->kind == V_NUMBER || b->kind == V_BOOL;
    if (is_number_a && is_number_b) return number_value(function(a->number, b->number), a->is_int && b->is_int);
    int64_t sizes[MAX_DIMS];
    int rank_a = is_number_a ? 0 : a->rank, rank_b = is_number_b ? 0 : b->rank, rank = rank_a > rank_b ? rank_a : rank_b;
    for (int i = 0; i < rank; i++) {
        int64_t x = i - (rank - rank_a) < 0 ? 1 : a->sizes[i - (rank - rank_a)];
        int64_t y = i - (rank - rank_b) < 0 ? 1 : b->sizes[i - (rank - rank_b)];
        sizes[i] = x == 1 ? y : x;
    }
    value left = broadcast(arena, a, rank, sizes), right = broadcast(arena, b, rank, sizes);
    if (left.kind != V_TENSOR || right.kind != V_TENSOR) return unusable;
    value result = tensor_like(arena, is_number_a || rank_a < rank ? b : a, rank, sizes);
    int64_t count = element_count(&result);
    for (int64_t i = 0; i < count; i++) *element(&result, i) = function(*element(&left, i), *element(&right, i));
    return result;
}

bool write_into(const value *a, const value *b) {
    fb_arena arena = {0};
    value from = broadcast(&arena, b, a->rank, a->sizes);
    if (from.kind == V_TENSOR) from = copy_of(&arena, &from); /* they may overlap */
    int64_t count = from.kind == V_TENSOR ? element_count(a) : 0;
    for (int64_t i = 0; i < count; i++) *element(a, i) = from.data[i];
    fb_arena_free(&arena);
    return from.kind == V_TENSOR;
}

static value matmul_of_matrices(fb_arena *arena, const value *a, const value *b) {
    int64_t rows = a->rank == 2 ? a->sizes[0] : 1, inner = a->sizes[a->rank - 1];
    int64_t columns = b->rank == 2 ? b->sizes[1] : 1;
    if (b->sizes[0] != inner) return unusable;
    int64_t sizes[2];
    int rank = 0;
    if (a->rank == 2) sizes[rank++] = rows;
    if (b->rank == 2) sizes[rank++] = columns;
    value result = tensor_value(arena, rank, sizes);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < inner; k++) sum += *element(a, i * inner + k) * *element(b, k * columns + j);
            result.data[i * columns + j] = sum;
        }
    }
    return result;
}

/* The matrix at one place of the first axis. */
static value matrix_at(const value *batch, int64_t index) {
    value result = *batch;
    result.rank = 2;
    memcpy(result.sizes, batch->sizes + 1, 2 * sizeof *result.sizes);
    memcpy(result.strides, batch->strides + 1, 2 * sizeof *result.strides);
    result.data = batch->data + index * batch->strides[0];
    return result;
}

/* (a, b, …) as (a · b, …). */
static value joined(fb_arena *arena, const value *tensor) {
    value copy = copy_of(arena, tensor);
    return reshaped(arena, &copy, 3, (int64_t[]){copy.sizes[0] * copy.sizes[1], copy.sizes[2], copy.sizes[3]});
}

static value matmul_of_four(fb_arena *arena, const value *a, const value *b) {
    if (a->sizes[0] != b->sizes[0] || a->sizes[1] != b->sizes[1]) return unusable;
    value left = joined(arena, a), right = joined(arena, b), product = matmul(arena, &left, &right);
    if (product.kind != V_TENSOR) return unusable;
    return reshaped(arena, &product, 4, (int64_t[]){a->sizes[0], a->sizes[1], a->sizes[2], b->sizes[3]});
}

value matmul(fb_arena *arena, const value *a, const value *b) {
    if (a->kind != V_TENSOR || b->kind != V_TENSOR || a->rank < 1 || b->rank < 1) return unusable;
    if (a->rank == 4 && b->rank == 4) return matmul_of_four(arena, a, b);
    if (a->rank <= 2 && b->rank <= 2) return matmul_of_matrices(arena, a, b);
    if (a->rank != 3 || b->rank != 3 || a->sizes[0] != b->sizes[0]) return unusable;
    value result = tensor_value(arena, 3, (int64_t[]){a->sizes[0], a->sizes[1], b->sizes[2]});
    for (int64_t i = 0; i < a->sizes[0]; i++) {
        value left = matrix_at(a, i), right = matrix_at(b, i), place = matrix_at(&result, i);
        value product = matmul_of_matrices(arena, &left, &right);
        if (product.kind != V_TENSOR) return unusable;
        write_into(&place, &product);
    }
    return result;
}

value softmax(fb_arena *arena, const value *x) {
    if (x->kind != V_TENSOR || x->rank < 1) return unusable;
    value result = copy_of(arena, x);
    int64_t columns = x->sizes[x->rank - 1], count = element_count(x);
    for (int64_t row = 0; row < count; row += columns) {
        double top = -INFINITY, total = 0;
        for (int64_t i = row; i < row + columns; i++) top = fmax(top, result.data[i]);
        for (int64_t i = row; i < row + columns; i++) total += result.data[i] = exp(result.data[i] - top);
        for (int64_t i = row; i < row + columns; i++) result.data[i] /= total;
    }
    return result;
}

value slice_of(const value *tensor, int axis, int64_t start, int64_t stop, int64_t step) {
    value result = *tensor;
    int64_t size = tensor->sizes[axis];
    start = start < 0 ? start + size : start;
    stop = stop < 0 ? stop + size : stop;
    start = start < 0 ? 0 : start > size ? size : start;
    stop = stop < start ? start : stop > size ? size : stop;
    result.sizes[axis] = (stop - start + step - 1) / step;
    result.strides[axis] = tensor->strides[axis] * step;
    result.data = tensor->data + start * tensor->strides[axis];
    return result;
}

value concatenate(fb_arena *arena, const value *tensors, size_t count, int64_t axis) {
    if (count == 0 || tensors[0].kind != V_TENSOR) return unusable;
    int rank = tensors[0].rank, at = (int)(axis < 0 ? axis + rank : axis);
    int64_t sizes[MAX_DIMS];
    if (at < 0 || at >= rank) return unusable;
    memcpy(sizes, tensors[0].sizes, sizeof sizes);
    for (size_t i = 1; i < count; i++) {
        if (tensors[i].kind != V_TENSOR || tensors[i].rank != rank) return unusable;
        for (int k = 0; k < rank; k++) {
            if (k != at && tensors[i].sizes[k] != sizes[k]) return unusable;
        }
        sizes[at] += tensors[i].sizes[at];
    }
    value result = tensor_value(arena, rank, sizes);
    int64_t start = 0;
    for (size_t i = 0; i < count; i++) {
        value part = slice_of(&result, at, start, start + tensors[i].sizes[at], 1);
        write_into(&part, &tensors[i]);
        start += tensors[i].sizes[at];
    }
    return result;
}

value permuted(const value *tensor, const int64_t *dims) {
    value result = *tensor;
    for (int i = 0; i < tensor->rank; i++) {
        if (dims[i] < 0 || dims[i] >= tensor->rank) return unusable;
        result.sizes[i] = tensor->sizes[dims[i]];
        result.strides[i] = tensor->strides[dims[i]];
    }
    return result;
}

/* Strides of a view with these sizes, if there are any: runs of dimensions that lie without gaps may be cut anew. */
static bool view_strides(const value *tensor, int rank, const int64_t *sizes, int64_t *strides) {
    int to = rank - 1;
    int64_t run = 1, taken = 1, step = tensor->rank ? tensor->strides[tensor->rank - 1] : 1;
    for (int from = tensor->rank - 1; from >= 0; from--) {
        run *= tensor->sizes[from];
        bool is_end = from == 0 || (tensor->sizes[from - 1] != 1 && tensor->strides[from - 1] != run * step);
        if (!is_end) continue;
        while (to >= 0 && (taken < run || sizes[to] == 1)) {
            strides[to] = taken * step;
            taken *= sizes[to--];
        }
        if (taken != run) return false;
        if (from > 0) step = tensor->strides[from - 1];
        run = taken = 1;
    }
    while (to >= 0 && sizes[to] == 1) strides[to--] = 1;
    return to < 0;
}

value reshaped(fb_arena *arena, const value *tensor, int rank, const int64_t *sizes) {
    value result = {.kind = V_TENSOR, .rank = rank, .data = tensor->data};
    int64_t known = 1, count = element_count(tensor);
    int open = -1;
    if (tensor->kind != V_TENSOR || rank > MAX_DIMS) return unusable;
    for (int i = 0; i < rank; i++) {
        result.sizes[i] = sizes[i];
        if (sizes[i] == -1 && open >= 0) return unusable;
        if (sizes[i] == -1) open = i;
        else known *= sizes[i];
    }
    if (open >= 0 && known > 0) {
        result.sizes[open] = count / known;
        known *= result.sizes[open];
    }
    if (known != count) return unusable;
    if (view_strides(tensor, rank, result.sizes, result.strides)) return result;
    value copied = copy_of(arena, tensor);
    result.data = copied.data;
    set_strides(&result);
    return result;
}

static int64_t bound(const value *slice, size_t index, int64_t fallback) {
    const value *item = &slice->items[index];
    return item->kind == V_NUMBER ? (int64_t)item->number : fallback;
}

value indexed(fb_arena *arena, const value *tensor, const value *index) {
    value single = tuple_value(arena, 1);
    single.items[0] = *index;
    if (index->kind != V_TUPLE) index = &single;
    int used = 0, axis = 0;
    for (size_t i = 0; i < index->count; i++) used += index->items[i].kind == V_NUMBER || index->items[i].kind == V_SLICE;
    if (used > tensor->rank) return unusable;
    value result = *tensor;
    for (size_t i = 0; i < index->count; i++) {
        const value *item = &index->items[i];
        if (item->kind == V_ELLIPSIS) {
            axis += tensor->rank - used;
        } else if (item->kind == V_SLICE) {
            result = slice_of(&result, axis, bound(item, 0, 0), bound(item, 1, INT64_MAX), bound(item, 2, 1));
            axis++;
        } else if (item->kind == V_NUMBER) {
            int64_t at = (int64_t)item->number, size = result.sizes[axis];
            at = at < 0 ? at + size : at;
            if (at < 0 || at >= size) return unusable;
            result.data += at * result.strides[axis];
            result.rank--;
            for (int k = axis; k < result.rank; k++) {
                result.sizes[k] = result.sizes[k + 1];
                result.strides[k] = result.strides[k + 1];
            }
        } else {
            return unusable;
        }
    }
    return result;
}

value linear(fb_arena *arena, const value *x, const value *weight, const value *bias) {
    if (x->kind != V_TENSOR || weight->kind != V_TENSOR || x->rank < 1 || weight->rank != 2) return unusable;
    int64_t inputs = weight->sizes[1], outputs = weight->sizes[0], sizes[MAX_DIMS];
    if (x->sizes[x->rank - 1] != inputs) return unusable;
    memcpy(sizes, x->sizes, sizeof sizes);
    sizes[x->rank - 1] = outputs;
    value result = tensor_value(arena, x->rank, sizes);
    int64_t rows = outputs ? element_count(&result) / outputs : 0;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < outputs; j++) {
            double sum = bias->kind == V_TENSOR ? *element(bias, j) : 0;
            for (int64_t k = 0; k < inputs; k++) sum += *element(x, i * inputs + k) * *element(weight, j * inputs + k);
            result.data[i * outputs + j] = sum;
        }
    }
    return result;
}

/* Adds the products of one number of the weight, and of a line of the input, to a line of the result. */
static void add_products(double *to, int64_t count, double by, const double *line, int64_t step, int64_t length, int64_t left,
                         int64_t stride) {
    int64_t first = left < 0 ? (stride - 1 - left) / stride : 0, end = left < length ? (length - 1 - left) / stride + 1 : 0;
    if (end > count) end = count;
    for (int64_t i = first; i < end; i++) to[i] += line[(left + i * stride) * step] * by;
}

/* One line of the result, without the bias. */
static void convolve_line(const value *x, const value *weight, const convolution *o, int64_t n, int64_t channel, int64_t row,
                          double *to, int64_t count) {
    int64_t per_group = weight->sizes[1], first = channel / (weight->sizes[0] / o->groups) * per_group;
    for (int64_t i = 0; i < count; i++) to[i] = 0;
    for (int64_t c = 0; c < per_group; c++) {
        for (int64_t i = 0; i < weight->sizes[2]; i++) {
            int64_t y = row * o->stride[0] - o->padding[0] + i * o->dilation[0];
            if (y < 0 || y >= x->sizes[2]) continue;
            const double *read = x->data + n * x->strides[0] + (first + c) * x->strides[1] + y * x->strides[2];
            const double *by = weight->data + channel * weight->strides[0] + c * weight->strides[1] + i * weight->strides[2];
            for (int64_t j = 0; j < weight->sizes[3]; j++)
                add_products(to, count, by[j * weight->strides[3]], read, x->strides[3], x->sizes[3],
                             j * o->dilation[1] - o->padding[1], o->stride[1]);
        }
    }
}

value convolve(fb_arena *arena, const value *x, const value *weight, const value *bias, const convolution *options) {
    if (x->kind != V_TENSOR || weight->kind != V_TENSOR || x->rank != 4 || weight->rank != 4) return unusable;
    if (options->groups < 1 || x->sizes[1] != weight->sizes[1] * options->groups) return unusable;
    if (weight->sizes[0] % options->groups) return unusable;
    int64_t sizes[4] = {x->sizes[0], weight->sizes[0], 0, 0};
    for (int i = 0; i < 2; i++) {
        int64_t room = x->sizes[2 + i] + 2 * options->padding[i] - options->dilation[i] * (weight->sizes[2 + i] - 1) - 1;
        if (options->stride[i] < 1 || room < 0) return unusable;
        sizes[2 + i] = room / options->stride[i] + 1;
    }
    value result = tensor_value(arena, 4, sizes);
    double *to = result.data;
    for (int64_t n = 0; n < sizes[0]; n++) {
        for (int64_t c = 0; c < sizes[1]; c++) {
            double start = bias->kind == V_TENSOR ? *element(bias, c) : 0;
            for (int64_t i = 0; i < sizes[2]; i++, to += sizes[3]) {
                convolve_line(x, weight, options, n, c, i, to, sizes[3]);
                for (int64_t j = 0; j < sizes[3]; j++) to[j] += start;
            }
        }
    }
    return result;
}

static bool fits_last(const value *parameter, int64_t inner) {
    return parameter->kind != V_TENSOR || element_count(parameter) == inner;
}

value layer_normalised(fb_arena *arena, const value *x, int axes, const value *weight, const value *bias, double eps,
                       bool is_centred) {
    int64_t inner = 1;
    if (x->kind != V_TENSOR || axes < 1 || axes > x->rank) return (value){0};
    for (int i = x->rank - axes; i < x->rank; i++) inner *= x->sizes[i];
    if (!fits_last(weight, inner) || !fits_last(bias, inner)) return (value){0};
    value result = copy_of(arena, x);
    for (int64_t start = 0, count = element_count(x); start < count; start += inner) {
        double mean = 0, square = 0;
        for (int64_t i = 0; is_centred && i < inner; i++) mean += result.data[start + i] / (double)inner;
        for (int64_t i = 0; i < inner; i++) square += pow(result.data[start + i] - mean, 2) / (double)inner;
        for (int64_t i = 0; i < inner; i++) {
            double scale = weight->kind == V_TENSOR ? *element(weight, i) : 1,
                   shift = bias->kind == V_TENSOR ? *element(bias, i) : 0;
            result.data[start + i] = (result.data[start + i] - mean) / sqrt(square + eps) * scale + shift;
        }
    }
    return result;
}
