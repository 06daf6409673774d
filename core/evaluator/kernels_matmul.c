/* Matrix products: matmul and its relatives, linear, addmm. */
#include <complex.h>
#include <limits.h>
#include <string.h>

#include "core/evaluator/internal.h"

/* ---- one product for each index of the batch ----------------------------------------------------------------------------- */

/* The last two dimensions of an array as BLAS takes them. */
typedef struct matrix {
    fb_array *array; /* owned: the array, or a copy of regular strides */
    bool is_transposed;
    int64_t stride; /* between rows, or between columns when transposed */
} matrix;

static bool is_regular(int64_t inner_stride, int64_t inner_size, int64_t outer_stride, int64_t outer_size) {
    return (inner_stride == 1 || inner_size <= 1) && (outer_stride >= (inner_size > 1 ? inner_size : 1) || outer_size <= 1);
}

static bool open_matrix(fb_kernel_call *call, fb_array *array, matrix *out) {
    int row = array->rank - 2, column = array->rank - 1;
    const int64_t *sizes = array->sizes, *strides = array->strides;
    *out = (matrix){0};
    if (is_regular(strides[column], sizes[column], strides[row], sizes[row])) {
        out->array = fb_array_keep(array);
        out->stride = sizes[row] > 1 ? strides[row] : sizes[column];
    } else if (is_regular(strides[row], sizes[row], strides[column], sizes[column])) {
        out->array = fb_array_keep(array);
        out->is_transposed = true;
        out->stride = sizes[column] > 1 ? strides[column] : sizes[row];
    } else {
        out->array = fb_make_cast(call, array, array->dtype);
        out->stride = sizes[column];
    }
    if (out->stride < 1) out->stride = 1;
    return out->array != NULL;
}

/* c (…, m, n) = a (…, m, k) · b (…, k, n), batches broadcast to c's; c is contiguous. Integers in plain loops. */
static void multiply_ints(fb_kernel_call *call, const fb_array *c, const fb_array *a, const fb_array *b, int64_t at_a,
                          int64_t at_b, int64_t *to) {
    int64_t m = c->sizes[c->rank - 2], n = c->sizes[c->rank - 1], k = a->sizes[a->rank - 1];
    const int64_t *x = (const int64_t *)fb_array_data(a) + at_a, *y = (const int64_t *)fb_array_data(b) + at_b;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n && fb_kernel_goes_on(call, 1); j++) {
            uint64_t sum = 0;
            for (int64_t l = 0; l < k && fb_work_at(fb_call_work(call), l, k); l++)
                sum += (uint64_t)x[i * a->strides[a->rank - 2] + l * a->strides[a->rank - 1]] *
                       (uint64_t)y[l * b->strides[b->rank - 2] + j * b->strides[b->rank - 1]];
            to[i * n + j] = (int64_t)sum;
        }
    }
}

static bool multiply(fb_kernel_call *call, fb_array *a, fb_array *b, fb_array *c, bool is_added) {
    int64_t m = c->sizes[c->rank - 2], n = c->sizes[c->rank - 1], k = a->sizes[a->rank - 1], index[FB_MAX_RANK] = {0};
    int batch = c->rank - 2;
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX) return fb_kernel_unsupported(call, "a matrix is too large") == FB_OK;
    if (fb_array_count(c) == 0) return true;
    if (!k && !is_added) fb_array_fill(c, 0, 0);
    double products = (double)fb_array_count(c) * (double)k;
    if (!fb_kernel_takes(call, c->held == FB_HELD_INT ? products : fb_gemm_steps(products))) return false;
    matrix of_a, of_b = {0};
    if (!open_matrix(call, a, &of_a) || !open_matrix(call, b, &of_b)) {
        fb_array_drop(of_a.array);
        return false;
    }
    size_t element = fb_held_size(c->held);
    for (char *to = fb_array_data(c); fb_kernel_goes_on(call, 1); to += (size_t)(m * n) * element) {
        int64_t at_a = 0, at_b = 0;
        for (int i = 0; i < batch; i++) {
            at_a += index[i] * of_a.array->strides[i];
            at_b += index[i] * of_b.array->strides[i];
        }
        if (c->held == FB_HELD_INT) multiply_ints(call, c, of_a.array, of_b.array, at_a, at_b, (int64_t *)(void *)to);
        else if (k)
            fb_gemm(call, c->held, of_a.is_transposed, of_b.is_transposed, m, n, k,
                    (char *)fb_array_data(of_a.array) + at_a * (int64_t)element, of_a.stride,
                    (char *)fb_array_data(of_b.array) + at_b * (int64_t)element, of_b.stride, to, n, is_added);
        int i = batch - 1;
        for (; i >= 0 && ++index[i] == c->sizes[i]; i--) index[i] = 0;
        if (i < 0) break;
    }
    fb_array_drop(of_a.array);
    fb_array_drop(of_b.array);
    return !call->status;
}

/* ---- matmul ------------------------------------------------------------------------------------------------------------- */

static bool same_dtype(fb_kernel_call *call, const fb_array *a, const fb_array *b) {
    if (a->dtype == b->dtype && a->held != FB_HELD_BOOL) return true;
    return fb_kernel_fail(call, "it multiplies %s by %s", fb_dtype_name(a->dtype), fb_dtype_name(b->dtype)) == FB_OK;
}

/* With one dimension more, of size 1, in front or behind. */
static fb_array *with_dim(fb_kernel_call *call, const fb_array *array, bool in_front) {
    fb_array *view = fb_make_view(call, array, array->rank);
    if (!view || fb_array_insert_dim(view, in_front ? 0 : array->rank)) return view;
    fb_kernel_unsupported(call, "it has too many dimensions");
    fb_array_drop(view);
    return NULL;
}

static bool join_batch(fb_kernel_call *call, const fb_array *a, const fb_array *b, int *rank, int64_t sizes[FB_MAX_RANK]) {
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < *rank - 2; i++) {
        int at_a = i - (*rank - a->rank), at_b = i - (*rank - b->rank);
        int64_t of_a = at_a >= 0 ? a->sizes[at_a] : 1, of_b = at_b >= 0 ? b->sizes[at_b] : 1;
        if (of_a != of_b && of_a != 1 && of_b != 1)
            return fb_kernel_fail(call, "batches of %lld and %lld do not broadcast", (long long)of_a, (long long)of_b) == FB_OK;
        sizes[i] = of_a == 1 ? of_b : of_a;
    }
    sizes[*rank - 2] = a->sizes[a->rank - 2];
    sizes[*rank - 1] = b->sizes[b->rank - 1];
    return true;
}

/* The matrices of `array` for every index of the batch `sizes`. */
static fb_array *spread(fb_kernel_call *call, const fb_array *array, int rank, const int64_t *sizes) {
    int64_t wanted[FB_MAX_RANK];
    memcpy(wanted, sizes, (size_t)rank * sizeof *wanted);
    wanted[rank - 2] = array->sizes[array->rank - 2];
    wanted[rank - 1] = array->sizes[array->rank - 1];
    fb_array *view = NULL;
    if (!call->status) call->status = fb_array_broadcast(array, rank, wanted, &view, call->error);
    return view;
}

/* Both have two dimensions at least. */
static fb_array *product(fb_kernel_call *call, fb_array *a, fb_array *b) {
    int rank;
    int64_t sizes[FB_MAX_RANK];
    if (a->sizes[a->rank - 1] != b->sizes[b->rank - 2]) {
        fb_kernel_fail(call, "inner sizes %lld and %lld differ", (long long)a->sizes[a->rank - 1],
                       (long long)b->sizes[b->rank - 2]);
        return NULL;
    }
    if (!join_batch(call, a, b, &rank, sizes)) return NULL;
    fb_array *c = fb_make_array(call, a->dtype, rank, sizes);
    if (c && b->rank == 2 && rank > 2 && fb_array_is_contiguous(a)) { /* one product over all rows of the batch */
        fb_array *rows = fb_make_view(call, a, 2), *all = fb_make_view(call, c, 2);
        if (rows && all) {
            rows->sizes[1] = rows->strides[0] = a->sizes[a->rank - 1];
            all->sizes[1] = all->strides[0] = sizes[rank - 1];
            rows->sizes[0] = all->sizes[0] = sizes[rank - 2];
            for (int i = 0; i < rank - 2; i++) rows->sizes[0] = all->sizes[0] *= sizes[i];
            rows->strides[1] = all->strides[1] = 1;
            multiply(call, rows, b, all, false);
        }
        fb_array_drop(rows);
        fb_array_drop(all);
    } else if (c) {
        fb_array *wide_a = spread(call, a, rank, sizes), *wide_b = spread(call, b, rank, sizes);
        if (wide_a && wide_b) multiply(call, wide_a, wide_b, c, false);
        fb_array_drop(wide_a);
        fb_array_drop(wide_b);
    }
    if (!call->status) return c;
    fb_array_drop(c);
    return NULL;
}

static fb_array *matmul(fb_kernel_call *call, fb_array *a, fb_array *b) {
    if (!a->rank || !b->rank) {
        fb_kernel_fail(call, "a tensor without dimensions is not a matrix");
        return NULL;
    }
    if (!same_dtype(call, a, b)) return NULL;
    bool is_row = a->rank == 1, is_column = b->rank == 1;
    fb_array *left = is_row ? with_dim(call, a, true) : fb_array_keep(a);
    fb_array *right = is_column ? with_dim(call, b, false) : fb_array_keep(b);
    fb_array *c = left && right ? product(call, left, right) : NULL;
    if (c && is_column) fb_array_remove_dim(c, c->rank - 1);
    if (c && is_row) fb_array_remove_dim(c, is_column ? c->rank - 1 : c->rank - 2);
    fb_array_drop(left);
    fb_array_drop(right);
    return c;
}

static fb_status kernel_matmul(fb_kernel_call *call, fb_object *result) {
    static const struct {
        fb_op op;
        const char *second;
        int rank_a, rank_b; /* 0 = any */
    } rows[] = {{FB_OP_MATMUL, "other", 0, 0},
                {FB_OP_MM, "mat2", 2, 2},
                {FB_OP_BMM, "mat2", 3, 3},
                {FB_OP_MV, "vec", 2, 1},
                {FB_OP_DOT, "tensor", 1, 1}};
    size_t i = 0;
    while (rows[i].op != call->op) i++;
    fb_array *a, *b;
    if (!fb_argument_array(call, "input", &a) || !fb_argument_array(call, rows[i].second, &b)) return call->status;
    if (rows[i].rank_a && (a->rank != rows[i].rank_a || b->rank != rows[i].rank_b))
        return fb_kernel_fail(call, "it takes tensors of %d and %d dimensions", rows[i].rank_a, rows[i].rank_b);
    return fb_return_array(call, matmul(call, a, b), result);
}

/* ---- with something added ------------------------------------------------------------------------------------------------ */

static void scale(const fb_array *array, double factor) {
    int64_t count = fb_array_count(array); /* contiguous */
    for (int64_t i = 0; i < count && fb_work_at(fb_array_work(array), i, count); i++) {
        if (array->held == FB_HELD_DOUBLE) ((double *)fb_array_data(array))[i] *= factor;
        else ((float *)fb_array_data(array))[i] *= (float)factor;
    }
}

/* beta × input + alpha × a · b. */
static fb_array *add_product(fb_kernel_call *call, const fb_array *input, fb_array *a, fb_array *b, double beta, double alpha) {
    if (fb_dtype_is_integer(a->dtype)) {
        fb_kernel_unsupported(call, "it is evaluated for floats alone");
        return NULL;
    }
    fb_array *c = matmul(call, a, b), *sum = NULL;
    if (!c) return NULL;
    if (alpha != 1) scale(c, alpha);
    sum = fb_make_array(call, c->dtype, c->rank, c->sizes);
    if (sum) call->status = fb_array_assign(sum, input, call->error); /* beta 0: what it holds does not count, its sizes do */
    if (sum && beta != 1 && beta != 0) scale(sum, beta);
    int64_t count = sum ? fb_array_count(sum) : 0;
    for (int64_t i = 0; i < count && !call->status && fb_work_at(fb_call_work(call), i, count); i++) {
        if (c->held == FB_HELD_DOUBLE) ((double *)fb_array_data(c))[i] += beta != 0 ? ((double *)fb_array_data(sum))[i] : 0;
        else ((float *)fb_array_data(c))[i] += beta != 0 ? ((float *)fb_array_data(sum))[i] : 0;
    }
    fb_array_drop(sum);
    return c;
}

static fb_status kernel_addmm(fb_kernel_call *call, fb_object *result) {
    bool is_batch = call->op == FB_OP_BADDBMM, is_vector = call->op == FB_OP_ADDMV;
    fb_array *input, *a, *b;
    double beta, alpha;
    if (!fb_argument_array(call, "input", &input) ||
        !fb_argument_array(call,
                           is_batch    ? "batch1"
                           : is_vector ? "mat"
                                       : "mat1",
                           &a) ||
        !fb_argument_array(call,
                           is_batch    ? "batch2"
                           : is_vector ? "vec"
                                       : "mat2",
                           &b) ||
        !fb_argument_number(call, "beta", 1, &beta) || !fb_argument_number(call, "alpha", 1, &alpha))
        return call->status;
    if (input->dtype != a->dtype || a->dtype != b->dtype) return fb_kernel_fail(call, "its tensors have several dtypes");
    if (is_batch && a->rank == 3 && b->rank == 3 && a->sizes[0] != b->sizes[0])
        return fb_kernel_fail(call, "its batches are of several sizes");
    if (a->rank != (is_batch ? 3 : 2) || b->rank != (is_batch ? 3 : is_vector ? 1 : 2))
        return fb_kernel_fail(call, "its matrices have other numbers of dimensions");
    return fb_return_array(call, add_product(call, input, a, b, beta, alpha), result);
}

/* input · weightᵀ. */
static fb_array *multiply_by_rows(fb_kernel_call *call, fb_array *input, const fb_array *weight) {
    fb_array *transposed = fb_make_view(call, weight, weight->rank);
    if (!transposed) return NULL;
    for (int i = 0; i < weight->rank; i++) {
        transposed->sizes[i] = weight->sizes[weight->rank - 1 - i];
        transposed->strides[i] = weight->strides[weight->rank - 1 - i];
    }
    fb_array *out = matmul(call, input, transposed);
    fb_array_drop(transposed);
    return out;
}

#define PART ((int64_t)1 << 20) /* bytes of a weight, at least */
#define LAST 16                 /* rows that are left over, and go with those before them: fb_gemm handles few in another way */

/* Rows of a weight that are read and multiplied at once: fb_gemm's own blocks, so that it multiplies the same ones as if it had
 * the whole. */
static int64_t rows_at_once(const fb_array *input, const fb_weight *weight) {
    int64_t inputs = weight->sizes[1], rows = input->rank > 1 ? input->sizes[input->rank - 2] : 1;
    if (fb_array_is_contiguous(input)) rows = inputs ? fb_array_count(input) / inputs : 0;
    int64_t block = fb_gemm_columns(rows, weight->sizes[0], inputs);
    int64_t part = PART / (int64_t)fb_held_size(input->held) / (inputs ? inputs : 1);
    return part > block ? part / block * block : block;
}

/* The same, of a weight that is not in memory. */
static fb_array *multiply_by_parts(fb_kernel_call *call, fb_array *input, const fb_weight *weight) {
    int64_t total = weight->sizes[0], inputs = weight->sizes[1], sizes[FB_MAX_RANK], at_once = rows_at_once(input, weight);
    int64_t most[2] = {total < at_once + LAST ? total : at_once + LAST, inputs};
    memcpy(sizes, input->sizes, sizeof sizes);
    sizes[input->rank - 1] = total;
    fb_array *part = fb_make_array(call, weight->dtype, 2, most);
    fb_array *out = part ? fb_make_array(call, weight->dtype, input->rank, sizes) : NULL;
    if (out && same_dtype(call, input, part)) {
        for (int64_t row = 0, rows; row < total && !call->status; row += rows) {
            rows = part->sizes[0] = total - row < at_once + LAST ? total - row : at_once;
            fb_array *columns = NULL, *place = fb_make_view(call, out, out->rank);
            if (place && fb_read_weight(call, weight, row * inputs, part)) columns = multiply_by_rows(call, input, part);
            if (columns) {
                fb_array_slice(place, place->rank - 1, row, row + rows, 1);
                call->status = fb_array_assign(place, columns, call->error);
            }
            fb_array_drop(columns);
            fb_array_drop(place);
        }
    }
    fb_array_drop(part);
    return out;
}

/* One number of another dtype is added as it is, unless the input has two dimensions: then all is one call of addmm. */
static fb_array *bias_for(fb_kernel_call *call, const fb_array *input, const fb_array *out, fb_array *bias) {
    fb_array *cast = NULL, *wide = NULL;
    bool is_added = !bias->rank && input->rank != 2 && fb_dtype_is_floating(out->dtype) && !fb_dtype_is_complex(bias->dtype);
    if (is_added) call->status = fb_array_cast(bias, out->dtype, &cast, call->error);
    if (!call->status) call->status = fb_array_broadcast(is_added ? cast : bias, out->rank, out->sizes, &wide, call->error);
    fb_array_drop(cast);
    if (wide && !same_dtype(call, out, wide)) fb_array_drop(wide), wide = NULL;
    return wide;
}

static fb_status kernel_linear(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *whole, *bias;
    const fb_weight *weight;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_weight(call, &whole, &weight) ||
        !fb_argument_optional(call, "bias", &bias))
        return call->status;
    int rank = whole ? whole->rank : 2;
    const int64_t *sizes = whole ? whole->sizes : weight->sizes;
    if (!input->rank || rank > 2 || !rank || input->sizes[input->rank - 1] != sizes[rank - 1])
        return fb_kernel_fail(call, "the input's last size is not the weight's");
    fb_array *out = whole ? multiply_by_rows(call, input, whole) : multiply_by_parts(call, input, weight);
    if (out && call->status) fb_array_drop(out), out = NULL;
    fb_array *wide = out && bias ? bias_for(call, input, out, bias) : NULL;
    if (wide) {
        fb_walk walk;
        for (fb_walk_begin(&walk, out, wide, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
            for (int64_t i = 0; i < walk.count; i++) {
                int64_t to = i * walk.strides[0], from = i * walk.strides[1];
                if (out->held == FB_HELD_DOUBLE) ((double *)walk.data[0])[to] += ((double *)walk.data[1])[from];
                else if (out->held == FB_HELD_FLOAT) ((float *)walk.data[0])[to] += ((float *)walk.data[1])[from];
                else if (out->held == FB_HELD_INT) ((int64_t *)walk.data[0])[to] += ((int64_t *)walk.data[1])[from];
                else if (out->held == FB_HELD_COMPLEX_DOUBLE)
                    ((double complex *)walk.data[0])[to] += ((double complex *)walk.data[1])[from];
                else ((float complex *)walk.data[0])[to] += ((float complex *)walk.data[1])[from];
            }
        }
    }
    fb_array_drop(wide);
    return fb_return_array(call, out, result);
}

#define INT8_INPUTS 16 /* PyTorch 2.13 reads as many at once, and behind the end of its input where they are not a multiple */

#define INT4_OUTPUTS 16 /* PyTorch 2.13 takes a multiple of as many */

/* (input · weightᵀ) * scales, of a weight of int8: summed up and scaled in float32, and rounded once. */
static fb_status kernel_int8pack_mm(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *weight, *scales;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "weight", &weight) ||
        !fb_argument_array(call, "scales", &scales))
        return call->status;
    bool is_narrow = input->dtype == FB_FLOAT32 || input->dtype == FB_BFLOAT16 || input->dtype == FB_FLOAT16;
    if (!is_narrow || scales->dtype != input->dtype || weight->dtype != FB_INT8)
        return fb_kernel_fail(call, "it takes float32 or narrower, a weight of int8, and scales of the input's dtype");
    if (input->rank != 2 || weight->rank != 2 || scales->rank != 1 || input->sizes[1] != weight->sizes[1] ||
        scales->sizes[0] != weight->sizes[0])
        return fb_kernel_fail(call, "the sizes of input, weight and scales do not fit together");
    if (input->sizes[1] % INT8_INPUTS)
        return fb_kernel_fail(call, "PyTorch reads beyond an input whose last size is not a multiple of %d", INT8_INPUTS);
    fb_array *x = fb_make_cast(call, input, FB_FLOAT32), *w = x ? fb_make_cast(call, weight, FB_FLOAT32) : NULL;
    fb_array *s = w ? fb_make_cast(call, scales, FB_FLOAT32) : NULL, *factors = s ? fb_make_contiguous(call, s) : NULL;
    fb_array *wide = factors ? multiply_by_rows(call, x, w) : NULL, *out = NULL;
    if (wide) {
        void *to = fb_array_data(wide), *by = fb_array_data(factors);
        int64_t count = fb_array_count(wide), outputs = wide->sizes[1];
        for (int64_t i = 0; i < count; i++) {
            if (wide->held == FB_HELD_DOUBLE) ((double *)to)[i] *= ((double *)by)[i % outputs];
            else ((float *)to)[i] *= ((float *)by)[i % outputs];
        }
        out = fb_make_cast(call, wide, input->dtype);
    }
    fb_array_drop(x);
    fb_array_drop(w);
    fb_array_drop(s);
    fb_array_drop(factors);
    fb_array_drop(wide);
    return fb_return_array(call, out, result);
}

/* Two numbers of 0 to 15 in a byte. PyTorch's order of them is its machine's own, and kernel_int4pack_mm alone reads this one.
 */
static fb_status kernel_int4pack(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *out = NULL;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    fb_argument(call, "inner_k_tiles"); /* which PyTorch's CPU does not read */
    if (input->dtype != FB_INT32 || input->rank != 2 || input->sizes[0] % INT4_OUTPUTS || input->sizes[1] % 2)
        return fb_kernel_fail(call, "it takes a matrix of int32, of a multiple of %d rows and an even number of columns",
                              INT4_OUTPUTS);
    fb_array *rows = fb_make_contiguous(call, input);
    if (rows) out = fb_make_array(call, FB_UINT8, 2, (int64_t[]){rows->sizes[0], rows->sizes[1] / 2});
    if (out) {
        const int64_t *from = fb_array_data(rows);
        int64_t *to = fb_array_data(out), count = fb_array_count(out);
        for (int64_t i = 0; i < count && fb_work_at(fb_call_work(call), i, count); i++)
            to[i] = (from[2 * i] & 15) | (from[2 * i + 1] & 15) << 4;
    }
    fb_array_drop(rows);
    return fb_return_array(call, out, result);
}

static bool fits_int4pack_mm(const fb_array *input, const fb_array *weight, const fb_array *scales, int64_t group_size) {
    bool is_group = group_size == 32 || group_size == 64 || group_size == 128 || group_size == 256;
    return is_group && input->rank == 2 && weight->rank == 2 && scales->rank == 3 && weight->sizes[0] % INT4_OUTPUTS == 0 &&
           input->sizes[1] == 2 * weight->sizes[1] && input->sizes[1] % group_size == 0 &&
           scales->sizes[0] == input->sizes[1] / group_size && scales->sizes[1] == weight->sizes[0] && scales->sizes[2] == 2;
}

/* input · (scale * (number - 8) + zero)ᵀ, of a weight that kernel_int4pack made: in float32, and rounded once. */
static fb_status kernel_int4pack_mm(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *weight, *scales;
    int64_t group_size;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "weight", &weight) ||
        !fb_argument_array(call, "scales_and_zeros", &scales) || !fb_argument_int(call, "group_size", 0, &group_size))
        return call->status;
    bool is_narrow = input->dtype == FB_FLOAT32 || input->dtype == FB_BFLOAT16 || input->dtype == FB_FLOAT16;
    if (!is_narrow || scales->dtype != input->dtype || weight->dtype != FB_UINT8)
        return fb_kernel_fail(call, "it takes float32 or narrower, a weight of uint8, and scales of the input's dtype");
    if (!fits_int4pack_mm(input, weight, scales, group_size))
        return fb_kernel_fail(call, "the sizes of input, weight, groups and scales do not fit together");
    if (!fb_array_is_contiguous(scales))
        return fb_kernel_fail(call, "PyTorch reads scales as if they were row-major, and these are not");
    int64_t outputs = weight->sizes[0], inputs = input->sizes[1];
    fb_array *x = fb_make_cast(call, input, FB_FLOAT32), *bytes = x ? fb_make_contiguous(call, weight) : NULL;
    fb_array *factors = bytes ? fb_make_cast(call, scales, FB_FLOAT32) : NULL;
    fb_array *w = factors ? fb_make_array(call, FB_FLOAT32, 2, (int64_t[]){outputs, inputs}) : NULL, *wide = NULL, *out = NULL;
    if (w) {
        const int64_t *pairs = fb_array_data(bytes);
        int64_t count = fb_array_count(w);
        for (int64_t i = 0; i < count && fb_work_at(fb_call_work(call), i, count); i++) {
            int64_t place = 2 * (i % inputs / group_size * outputs + i / inputs), number = (pairs[i / 2] >> i % 2 * 4 & 15) - 8;
            fb_array_put(w, i, fb_array_get(factors, place) * (double)number + fb_array_get(factors, place + 1));
        }
        wide = multiply_by_rows(call, x, w);
    }
    if (wide) out = fb_make_cast(call, wide, input->dtype);
    fb_array_drop(x);
    fb_array_drop(bytes);
    fb_array_drop(factors);
    fb_array_drop(w);
    fb_array_drop(wide);
    return fb_return_array(call, out, result);
}

static fb_status kernel_outer(fb_kernel_call *call, fb_object *result) {
    fb_array *a, *b;
    if (!fb_argument_array(call, "input", &a) || !fb_argument_array(call, "vec2", &b)) return call->status;
    if (a->rank != 1 || b->rank != 1) return fb_kernel_fail(call, "it takes two vectors");
    const fb_object objects[] = {{.kind = FB_OBJECT_ARRAY, .array = a}, {.kind = FB_OBJECT_ARRAY, .array = b}};
    fb_dtype dtype = fb_promote_objects((const fb_object *const[]){&objects[0], &objects[1]}, 2);
    fb_array *left = fb_make_cast(call, a, dtype), *right = left ? fb_make_cast(call, b, dtype) : NULL;
    fb_array *column = right ? with_dim(call, left, false) : NULL, *row = column ? with_dim(call, right, true) : NULL;
    fb_array *c = row ? product(call, column, row) : NULL;
    fb_array_drop(left);
    fb_array_drop(right);
    fb_array_drop(column);
    fb_array_drop(row);
    return fb_return_array(call, c, result);
}

const fb_kernel_row fb_kernels_matmul[] = {
    FB_KERNEL_COMPLEX(MATMUL, matmul),
    FB_KERNEL_COMPLEX(MM, matmul),
    FB_KERNEL_COMPLEX(BMM, matmul),
    FB_KERNEL_COMPLEX(MV, matmul),
    FB_KERNEL_COMPLEX(DOT, matmul),
    FB_KERNEL(ADDMM, addmm),
    FB_KERNEL(BADDBMM, addmm),
    FB_KERNEL(ADDMV, addmm),
    FB_KERNEL_OF_PARTS(LINEAR, linear, true),
    FB_KERNEL(INT8PACK_MM, int8pack_mm),
    FB_KERNEL(INT4PACK, int4pack),
    FB_KERNEL(INT4PACK_MM, int4pack_mm),
    FB_KERNEL(OUTER, outer),
    FB_KERNELS_END,
};
