/* OpenBLAS's products of matrices. Few need the library, so it is loaded by who first does: at every start it would cost
 * everybody milliseconds. */
#ifndef FB_WEIGHTS_BLAS_H
#define FB_WEIGHTS_BLAS_H

#include <cblas.h>

#include "core/base/error.h"

typedef struct fb_blas {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(cblas_dgemm) *dgemm;
    __typeof__(cblas_cgemm) *cgemm;
    __typeof__(cblas_zgemm) *zgemm;
} fb_blas;

/* Does nothing when `blas` has them. The library stays loaded. The environment says which kernels it takes: OPENBLAS_CORETYPE,
 * set here unless it is set. FB_IO "library-missing", FB_NO_MEMORY. */
fb_status fb_blas_load(fb_blas *blas, fb_error *error);

#endif
