/* Matrix products by BLAS. */
#include <cblas.h>

#include "core/eval/kernel.h"

void fb_gemm(fb_held held, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
             const void *b, int64_t ldb, void *c, int64_t ldc, bool is_added) {
    CBLAS_TRANSPOSE of_a = transpose_a ? CblasTrans : CblasNoTrans, of_b = transpose_b ? CblasTrans : CblasNoTrans;
    if (held == FB_HELD_DOUBLE) {
        cblas_dgemm(CblasRowMajor, of_a, of_b, (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb, is_added, c, (int)ldc);
    } else {
        cblas_sgemm(CblasRowMajor, of_a, of_b, (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb, is_added ? 1.0F : 0.0F, c,
                    (int)ldc);
    }
}
