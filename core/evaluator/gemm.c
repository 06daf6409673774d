/* Matrix products by BLAS. */
#include "core/evaluator/internal.h"

/* A call of BLAS multiplies so much that it takes a few milliseconds: in between it is asked whether to go on. A block that is
 * nearly a vector reads each number once, so it waits for memory, and takes longer. */
#define PRODUCTS_AT_ONCE ((int64_t)1 << 27)
#define INNER_AT_ONCE ((int64_t)4096)
#define RESULTS_AT_ONCE ((int64_t)1 << 20)
#define PRODUCTS_OF_THIN ((int64_t)1 << 24)
#define THIN 16
#define PRODUCTS_A_STEP 8

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

typedef struct block {
    int64_t m, n, k;
} block;

/* As square as the matrices allow. */
static block block_of(int64_t m, int64_t n, int64_t k) {
    bool is_thin = m < THIN || n < THIN;
    block b = {.k = least(k, INNER_AT_ONCE)};
    int64_t area = least((is_thin ? PRODUCTS_OF_THIN : PRODUCTS_AT_ONCE) / (b.k > 0 ? b.k : 1), RESULTS_AT_ONCE), side = 1;
    while (4 * side * side <= area) side *= 2;
    b.m = least(m, side);
    b.n = least(n, area / b.m);
    b.m = least(m, area / b.n);
    return b;
}

/* One block of A and B is multiplied. */
static void multiply(const fb_blas *blas, fb_held held, bool transpose_a, bool transpose_b, block b, const void *a, int64_t lda,
                     const void *from_b, int64_t ldb, void *c, int64_t ldc, bool is_added) {
    const double _Complex one = 1, zero = 0;
    const float _Complex one_float = 1, zero_float = 0;
    CBLAS_TRANSPOSE of_a = transpose_a ? CblasTrans : CblasNoTrans, of_b = transpose_b ? CblasTrans : CblasNoTrans;
    if (held == FB_HELD_DOUBLE)
        blas->dgemm(CblasRowMajor, of_a, of_b, (int)b.m, (int)b.n, (int)b.k, 1, a, (int)lda, from_b, (int)ldb, is_added, c,
                    (int)ldc);
    else if (held == FB_HELD_COMPLEX_DOUBLE)
        blas->zgemm(CblasRowMajor, of_a, of_b, (int)b.m, (int)b.n, (int)b.k, &one, a, (int)lda, from_b, (int)ldb,
                    is_added ? &one : &zero, c, (int)ldc);
    else if (held == FB_HELD_COMPLEX_FLOAT)
        blas->cgemm(CblasRowMajor, of_a, of_b, (int)b.m, (int)b.n, (int)b.k, &one_float, a, (int)lda, from_b, (int)ldb,
                    is_added ? &one_float : &zero_float, c, (int)ldc);
    else
        blas->sgemm(CblasRowMajor, of_a, of_b, (int)b.m, (int)b.n, (int)b.k, 1, a, (int)lda, from_b, (int)ldb,
                    is_added ? 1.0F : 0.0F, c, (int)ldc);
}

/* The element (row, column) of a matrix. */
static const char *at(const void *matrix, size_t element, bool is_transposed, int64_t stride, int64_t row, int64_t column) {
    return (const char *)matrix + (size_t)(is_transposed ? column * stride + row : row * stride + column) * element;
}

void fb_gemm(fb_kernel_call *call, fb_held held, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
             const void *a, int64_t lda, const void *b, int64_t ldb, void *c, int64_t ldc, bool is_added) {
    size_t element = fb_held_size(held);
    fb_blas *blas = &call->evaluator->blas;
    if (m < 1 || n < 1 || call->status || (call->status = fb_blas_load(blas, call->error))) return;
    block most = block_of(m, n, k), now;
    for (int64_t row = 0; row < m; row += now.m) {
        for (int64_t column = 0, inner; column < n; column += now.n) {
            now = (block){least(most.m, m - row), least(most.n, n - column), 0};
            char *to = (char *)c + (size_t)(row * ldc + column) * element;
            for (inner = 0; inner < k || !inner; inner += most.k) {
                now.k = least(most.k, k - inner);
                if (!fb_kernel_goes_on(call, now.m * now.n * now.k / PRODUCTS_A_STEP + now.m * now.n)) return;
                multiply(blas, held, transpose_a, transpose_b, now, at(a, element, transpose_a, lda, row, inner), lda,
                         at(b, element, transpose_b, ldb, inner, column), ldb, to, ldc, is_added || inner);
                if (!k) break;
            }
        }
    }
}

int64_t fb_gemm_columns(int64_t m, int64_t n, int64_t k) {
    return m < 1 || n < 1 ? 1 : block_of(m, n, k).n;
}

double fb_gemm_steps(double products) {
    return products / PRODUCTS_A_STEP;
}
