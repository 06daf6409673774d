/* Matrices: torch.matrix_exp, torch.linalg.householder_product and solve, and what torch.nn.utils.parametrizations.orthogonal
 * makes of them. Each matrix of a batch is computed in double; floats of 32 and 64 bits alone, as PyTorch's LAPACK has them. */
#include <math.h>
#include <string.h>

#include "core/evaluator/internal.h"

/* ---- matrices of doubles, row-major -------------------------------------------------------------------------------------- */

/* out += factor × row, both of `count` elements. */
static bool add_row(fb_kernel_call *call, double *out, double factor, const double *row, int64_t count) {
    if (!fb_kernel_goes_on(call, count)) return false;
    for (int64_t i = 0; i < count; i++) out[i] += factor * row[i];
    return true;
}

static void clear(fb_kernel_call *call, double *out, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows && fb_kernel_goes_on(call, columns); i++)
        memset(out + i * columns, 0, (size_t)columns * sizeof *out);
}

static void swap_rows(double *a, int64_t i, int64_t k, int64_t count) {
    for (int64_t j = 0; j < count; j++) {
        double kept = a[i * count + j];
        a[i * count + j] = a[k * count + j];
        a[k * count + j] = kept;
    }
}

static void swap(double **a, double **b) {
    double *kept = *a;
    *a = *b;
    *b = kept;
}

/* out = a · b, of m × k and k × n. */
static void multiply(fb_kernel_call *call, const double *a, const double *b, double *out, int64_t m, int64_t k, int64_t n) {
    clear(call, out, m, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++)
            if (!add_row(call, out + i * n, a[i * k + j], b + j * n, n)) return;
}

static void add_identity(double *a, int64_t n) {
    for (int64_t i = 0; i < n; i++) a[i * n + i] += 1;
}

/* The largest sum of absolute values of a row; nan where there is one. */
static double norm_of(fb_kernel_call *call, const double *a, int64_t n) {
    double norm = 0;
    for (int64_t i = 0; i < n && fb_kernel_goes_on(call, n); i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += fabs(a[i * n + j]);
        if (!(sum <= norm)) norm = sum;
    }
    return norm;
}

enum { TERMS = 13 };     /* of the series of exp where the norm is at most LEAST_NORM: what is left out is below 2^-75 */
#define LEAST_NORM 0.125 /* a is halved until then */

/* *a = exp(*a), by its series after halving, and squaring as often. *other is of the same size. The matrices may be exchanged;
 * *a has the result. Higham, Functions of Matrices, chapter 10. */
static void exponentiate(fb_kernel_call *call, double **a, double **sum, double **other, int64_t n) {
    double norm = norm_of(call, *a, n);
    int halvings = isfinite(norm) && norm > LEAST_NORM ? (int)ceil(log2(norm / LEAST_NORM)) : 0;
    if (!fb_kernel_takes(call, (TERMS + halvings) * pow((double)n, 3))) return;
    for (int64_t i = 0; i < n * n; i++) (*a)[i] = ldexp((*a)[i], -halvings);
    clear(call, *sum, n, n);
    add_identity(*sum, n);
    for (int term = TERMS; term && !call->status; term--) { /* sum = 1 + a / term · sum */
        multiply(call, *a, *sum, *other, n, n, n);
        for (int64_t i = 0; i < n * n; i++) (*sum)[i] = (*other)[i] / term;
        add_identity(*sum, n);
    }
    for (int i = 0; i < halvings && !call->status; i++) {
        multiply(call, *sum, *sum, *other, n, n, n);
        swap(sum, other);
    }
    swap(a, sum);
}

/* b = a⁻¹ · b, of n × n and n × columns; `a` is used up. Elimination, with the largest element of a column as pivot. False: `a`
 * is singular, or the call is to end. */
static bool solve(fb_kernel_call *call, double *a, double *b, int64_t n, int64_t columns) {
    if (!fb_kernel_takes(call, (double)n * (double)n * (double)(n + columns))) return false;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
        if (a[pivot * n + k] == 0) return fb_kernel_fail(call, "its matrix is singular") == FB_OK;
        if (!fb_kernel_goes_on(call, n + columns)) return false;
        if (pivot != k) swap_rows(a, k, pivot, n), swap_rows(b, k, pivot, columns);
        for (int64_t i = k + 1; i < n; i++) {
            double factor = -a[i * n + k] / a[k * n + k];
            if (!add_row(call, a + i * n, factor, a + k * n, n)) return false;
            if (!add_row(call, b + i * columns, factor, b + k * columns, columns)) return false;
        }
    }
    for (int64_t k = n - 1; k >= 0; k--) {
        for (int64_t i = k + 1; i < n; i++)
            if (!add_row(call, b + k * columns, -a[k * n + i], b + i * columns, columns)) return false;
        if (!fb_kernel_goes_on(call, columns)) return false;
        for (int64_t j = 0; j < columns; j++) b[k * columns + j] /= a[k * n + k];
    }
    return true;
}

/* out = the first n columns of H₁ … H_count, m × n, where H_i = 1 - tau_i v vᵀ, and v is column i of `a` below a one. `row` has
 * n elements. */
static void reflect(fb_kernel_call *call, const double *a, const double *tau, double *out, double *row, int64_t m, int64_t n,
                    int64_t count) {
    if (!fb_kernel_takes(call, 2 * (double)m * (double)n * (double)count)) return;
    clear(call, out, m, n);
    for (int64_t i = 0; i < n; i++) out[i * n + i] = 1;
    for (int64_t k = count - 1; k >= 0; k--) {
        memcpy(row, out + k * n, (size_t)n * sizeof *row);
        for (int64_t i = k + 1; i < m; i++)
            if (!add_row(call, row, a[i * n + k], out + i * n, n)) return;
        for (int64_t i = k; i < m; i++)
            if (!add_row(call, out + i * n, -tau[k] * (i == k ? 1 : a[i * n + k]), row, n)) return;
    }
}

/* ---- arrays of matrices -------------------------------------------------------------------------------------------------- */

static bool is_of_matrices(fb_kernel_call *call, const fb_array *array) {
    if (array->dtype != FB_FLOAT32 && array->dtype != FB_FLOAT64)
        return fb_kernel_unsupported(call, "it is not evaluated for %s", fb_dtype_name(array->dtype)) == FB_OK;
    return array->rank >= 2 || fb_kernel_fail(call, "it takes matrices") == FB_OK;
}

static int64_t batches_of(const fb_array *array) {
    int64_t count = 1;
    for (int i = 0; i < array->rank - 2; i++) count *= array->sizes[i];
    return count;
}

static bool have_same_batches(const fb_array *a, const fb_array *b, int behind) {
    return b->rank == a->rank - 2 + behind && memcmp(a->sizes, b->sizes, (size_t)(a->rank - 2) * sizeof *a->sizes) == 0;
}

/* Doubles of matrix `batch`, of rows × columns; as rows of a matrix with `stride` columns, or its transpose. */
static void load(fb_kernel_call *call, const fb_array *from, int64_t batch, int64_t rows, int64_t columns, bool transposes,
                 double *out, int64_t stride) {
    for (int64_t i = 0; i < rows && fb_kernel_goes_on(call, columns); i++)
        for (int64_t j = 0; j < columns; j++)
            out[transposes ? j * stride + i : i * stride + j] = fb_array_get(from, (batch * rows + i) * columns + j);
}

static void store(fb_kernel_call *call, const fb_array *to, int64_t batch, int64_t rows, int64_t columns, bool transposes,
                  const double *from, int64_t stride) {
    for (int64_t i = 0; i < rows && fb_kernel_goes_on(call, columns); i++)
        for (int64_t j = 0; j < columns; j++)
            fb_array_put(to, (batch * rows + i) * columns + j, from[transposes ? j * stride + i : i * stride + j]);
}

/* Like `like`, whose last two sizes are column-major matrices, as LAPACK leaves them. It is stored transposed. */
static fb_array *make_by_columns(fb_kernel_call *call, const fb_array *like) {
    int64_t sizes[FB_MAX_RANK];
    int last = like->rank - 1;
    memcpy(sizes, like->sizes, (size_t)like->rank * sizeof *sizes);
    sizes[last] = like->sizes[last - 1], sizes[last - 1] = like->sizes[last];
    fb_array *out = fb_make_array(call, like->dtype, like->rank, sizes);
    if (!out) return NULL;
    int64_t stride = out->strides[last];
    out->strides[last] = out->strides[last - 1], out->strides[last - 1] = stride;
    memcpy(out->sizes, like->sizes, (size_t)like->rank * sizeof *sizes);
    return out;
}

/* Matrices to work in, of rows × columns. */
enum { SCRATCH_MAX = 4 };
typedef struct scratch {
    double *of[SCRATCH_MAX];
    int64_t count; /* elements of each */
} scratch;

/* False on failure; free_scratch is due in either case. Sizes of an empty batch may be any: they are looked at as steps first.
 */
static bool make_scratch(fb_kernel_call *call, scratch *s, int matrices, int64_t rows, int64_t columns) {
    *s = (scratch){0};
    if (!fb_kernel_takes(call, (double)rows * (double)columns)) return false;
    s->count = rows * columns;
    for (int i = 0; i < matrices && !call->status; i++) s->of[i] = fb_make_workspace(call, s->count, sizeof(double));
    return !call->status;
}

static void free_scratch(fb_kernel_call *call, scratch *s) {
    for (int i = 0; i < SCRATCH_MAX; i++) fb_free_workspace(call, s->of[i], s->count, sizeof(double));
}

static fb_status kernel_matrix_exp(fb_kernel_call *call, fb_object *result) {
    fb_array *given, *input = NULL, *out = NULL;
    if (!fb_argument_array(call, "input", &given) || !is_of_matrices(call, given)) return call->status;
    int64_t n = given->sizes[given->rank - 1];
    if (n != given->sizes[given->rank - 2]) return fb_kernel_fail(call, "its matrices are not square");
    scratch s;
    if (make_scratch(call, &s, 3, n, n)) input = fb_make_contiguous(call, given);
    if (input) out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    for (int64_t i = 0; out && n && i < batches_of(out) && !call->status; i++) {
        load(call, input, i, n, n, false, s.of[0], n);
        exponentiate(call, &s.of[0], &s.of[1], &s.of[2], n);
        if (!call->status) store(call, out, i, n, n, false, s.of[0], n);
    }
    free_scratch(call, &s);
    fb_array_drop(input);
    return fb_return_array(call, out, result);
}

static fb_status kernel_householder_product(fb_kernel_call *call, fb_object *result) {
    fb_array *given, *factors, *input = NULL, *tau = NULL, *out = NULL;
    if (!fb_argument_array(call, "input", &given) || !fb_argument_array(call, "tau", &factors) || !is_of_matrices(call, given))
        return call->status;
    int64_t m = given->sizes[given->rank - 2], n = given->sizes[given->rank - 1];
    int64_t count = factors->rank ? factors->sizes[factors->rank - 1] : 0;
    if (m < n || count > n || factors->dtype != given->dtype || !have_same_batches(given, factors, 1))
        return fb_kernel_fail(call, "its matrices and factors do not fit");
    scratch s; /* a, and tau as a row below; the product; a row */
    if (make_scratch(call, &s, 3, m + 1, n)) input = fb_make_contiguous(call, given);
    if (input) tau = fb_make_contiguous(call, factors);
    if (tau) out = make_by_columns(call, input);
    for (int64_t i = 0; out && n && i < batches_of(out) && !call->status; i++) {
        load(call, input, i, m, n, false, s.of[0], n);
        load(call, tau, i, 1, count, false, s.of[0] + m * n, n);
        reflect(call, s.of[0], s.of[0] + m * n, s.of[1], s.of[2], m, n, count);
        if (!call->status) store(call, out, i, n, m, true, s.of[1], n);
    }
    free_scratch(call, &s);
    fb_array_drop(input);
    fb_array_drop(tau);
    return fb_return_array(call, out, result);
}

static fb_status kernel_linalg_solve(fb_kernel_call *call, fb_object *result) {
    fb_array *first, *second, *a = NULL, *b = NULL, *out = NULL;
    bool is_left;
    if (!fb_argument_array(call, "A", &first) || !fb_argument_array(call, "B", &second) ||
        !fb_argument_bool(call, "left", true, &is_left) || !is_of_matrices(call, first))
        return call->status;
    int64_t n = first->sizes[first->rank - 1];
    if (n != first->sizes[first->rank - 2] || second->dtype != first->dtype)
        return fb_kernel_fail(call, "its matrices do not fit");
    if (!is_left || !have_same_batches(first, second, 2))
        return fb_kernel_unsupported(call, "it is evaluated for A · X = B, with as many matrices in A as in B");
    int64_t columns = second->sizes[second->rank - 1];
    if (second->sizes[second->rank - 2] != n) return fb_kernel_fail(call, "its matrices do not fit");
    scratch s;
    if (make_scratch(call, &s, 2, n, n > columns ? n : columns)) a = fb_make_contiguous(call, first);
    if (a) b = fb_make_contiguous(call, second);
    if (b) out = make_by_columns(call, b);
    for (int64_t i = 0; out && n && i < batches_of(out) && !call->status; i++) {
        load(call, a, i, n, n, false, s.of[0], n);
        load(call, b, i, n, columns, false, s.of[1], columns);
        if (solve(call, s.of[0], s.of[1], n, columns)) store(call, out, i, columns, n, true, s.of[1], columns);
    }
    free_scratch(call, &s);
    fb_array_drop(a);
    fb_array_drop(b);
    return fb_return_array(call, out, result);
}

/* ---- orthogonal ---------------------------------------------------------------------------------------------------------- */

/* x, of which n × k are a tall matrix and the rest zeros, becomes an orthogonal matrix, whose first k columns count. */
static void map_by_skew(fb_kernel_call *call, double **x, double **first, double **second, int64_t n, bool is_cayley) {
    double *a = *first;
    for (int64_t i = 0; i < n && fb_kernel_goes_on(call, n); i++)
        for (int64_t j = 0; j < n; j++) a[i * n + j] = i > j ? (*x)[i * n + j] : i < j ? -(*x)[j * n + i] : 0;
    if (!is_cayley) {
        exponentiate(call, first, x, second, n);
        swap(first, x);
        return;
    }
    for (int64_t i = 0; i < n * n; i++) (*x)[i] = 0.5 * a[i], (*second)[i] = -0.5 * a[i];
    add_identity(*x, n);
    add_identity(*second, n);
    solve(call, *second, *x, n, n);
}

/* The same by reflections, for x of n × k. */
static void map_by_reflections(fb_kernel_call *call, double *x, double *out, double *row, double *tau, int64_t n, int64_t k) {
    for (int64_t j = 0; j < k && fb_kernel_goes_on(call, n); j++) {
        double squares = 0;
        for (int64_t i = j + 1; i < n; i++) squares += x[i * k + j] * x[i * k + j];
        tau[j] = 2 / (1 + squares);
    }
    reflect(call, x, tau, out, row, n, k, k);
    for (int64_t i = 0; i < n && fb_kernel_goes_on(call, k); i++)
        for (int64_t j = 0; j < k; j++) out[i * k + j] *= trunc(x[j * k + j]); /* signs: 1 and -1 */
}

/* One matrix of `w`, to `out`, and by the way of `base` (NULL: none), by matrices of n × n. */
static void make_one(fb_kernel_call *call, const fb_array *w, const fb_array *base, const fb_array *out, int64_t batch,
                     double *work[SCRATCH_MAX], const char *map) {
    int64_t rows = w->sizes[w->rank - 2], columns = w->sizes[w->rank - 1];
    bool is_wide = rows < columns, is_reflected = strcmp(map, "householder") == 0;
    int64_t n = is_wide ? columns : rows, k = is_wide ? rows : columns, width = is_reflected ? k : n;
    clear(call, work[0], n, n);
    load(call, w, batch, rows, columns, is_wide, work[0], width);
    if (is_reflected) {
        map_by_reflections(call, work[0], work[1], work[2], work[3], n, k);
        swap(&work[0], &work[1]);
    } else map_by_skew(call, &work[0], &work[1], &work[2], n, strcmp(map, "cayley") == 0);
    if (base && !call->status && fb_kernel_takes(call, (double)n * (double)n * (double)width)) {
        load(call, base, batch, n, n, false, work[1], n);
        multiply(call, work[1], work[0], work[2], n, n, width);
        swap(&work[0], &work[2]);
    }
    if (!call->status) store(call, out, batch, rows, columns, is_wide, work[0], width);
}

fb_array *fb_make_orthogonal(fb_kernel_call *call, const char *map, fb_array *original, fb_array *base) {
    static const char *const maps[] = {"matrix_exp", "cayley", "householder"};
    bool is_known = false;
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) is_known |= strcmp(map, maps[i]) == 0;
    if (!is_known) return fb_kernel_unsupported(call, "orthogonal by %s is not known", map), NULL;
    if (!is_of_matrices(call, original)) return NULL;
    int64_t rows = original->sizes[original->rank - 2], columns = original->sizes[original->rank - 1];
    int64_t n = rows > columns ? rows : columns;
    if (base && (base->dtype != original->dtype || !have_same_batches(original, base, 2) || base->sizes[base->rank - 1] != n ||
                 base->sizes[base->rank - 2] != n))
        return fb_kernel_fail(call, "the base of its orthogonal matrix does not fit"), NULL;
    scratch s;
    fb_array *w = NULL, *from = NULL, *out = NULL;
    if (make_scratch(call, &s, SCRATCH_MAX, n, n)) w = fb_make_contiguous(call, original);
    if (w && base) from = fb_make_contiguous(call, base);
    if (w && !call->status) out = fb_make_array(call, w->dtype, w->rank, w->sizes);
    for (int64_t i = 0; out && n && i < batches_of(out) && !call->status; i++) make_one(call, w, from, out, i, s.of, map);
    free_scratch(call, &s);
    fb_array_drop(w);
    fb_array_drop(from);
    return out;
}

const fb_kernel_row fb_kernels_linalg[] = {
    FB_KERNEL(MATRIX_EXP, matrix_exp),
    FB_KERNEL(HOUSEHOLDER_PRODUCT, householder_product),
    FB_KERNEL(LINALG_SOLVE, linalg_solve),
    FB_KERNELS_END,
};
