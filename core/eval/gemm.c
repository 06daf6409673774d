/* Matrix products by BLAS. */
#include <cblas.h>

#include "core/eval/kernel.h"

/* A call of BLAS does so many rows that it takes a fraction of a second: in between it is asked whether to go on. */
#define PRODUCTS_AT_ONCE ((int64_t)1 << 30)
#define ROWS_AT_ONCE 16 /* at least */

static int64_t rows_at_once(int64_t n, int64_t k) {
    int64_t rows = PRODUCTS_AT_ONCE / (n > 0 ? n : 1) / (k > 0 ? k : 1);
    return rows > ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
}

void fb_gemm(fb_kernel_call *call, fb_held held, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
             const void *a, int64_t lda, const void *b, int64_t ldb, void *c, int64_t ldc, bool is_added) {
    CBLAS_TRANSPOSE of_a = transpose_a ? CblasTrans : CblasNoTrans, of_b = transpose_b ? CblasTrans : CblasNoTrans;
    int64_t most = rows_at_once(n, k);
    for (int64_t row = 0; row < m && (!row || fb_kernel_may_go_on(call)); row += most) {
        int rows = (int)(m - row < most ? m - row : most);
        size_t from = (size_t)(transpose_a ? row : row * lda), to = (size_t)(row * ldc);
        if (held == FB_HELD_DOUBLE) {
            cblas_dgemm(CblasRowMajor, of_a, of_b, rows, (int)n, (int)k, 1, (const double *)a + from, (int)lda, b, (int)ldb,
                        is_added, (double *)c + to, (int)ldc);
        } else {
            cblas_sgemm(CblasRowMajor, of_a, of_b, rows, (int)n, (int)k, 1, (const float *)a + from, (int)lda, b, (int)ldb,
                        is_added ? 1.0F : 0.0F, (float *)c + to, (int)ldc);
        }
    }
}
