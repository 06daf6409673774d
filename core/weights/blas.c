#include "core/weights/blas.h"

#include "core/base/library.h"

fb_status fb_blas_load(fb_blas *blas, fb_error *error) {
    static const char *const names[] = {"cblas_sgemm", "cblas_dgemm", "cblas_cgemm", "cblas_zgemm", NULL};
    return blas->zgemm ? FB_OK : fb_library_load("libopenblas.so.0", names, blas, error);
}
