#include "core/weights/blas.h"

#include <stdlib.h>

#include "core/base/library.h"

/* OpenBLAS 0.3.21 (Debian 12) takes a processor that it does not know, such as Emerald Rapids, for one of 2004, and needs three
 * to seven times as long. So its kernels are named by what the processor can do, unless the environment names others. False
 * when memory ran out. */
static bool choose_kernels(void) {
    const char *core = NULL;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) core = "Haswell";
    if (core && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) core = "SkylakeX";
#endif
    return !core || !setenv("OPENBLAS_CORETYPE", core, false);
}

fb_status fb_blas_load(fb_blas *blas, fb_error *error) {
    static const char *const names[] = {"cblas_sgemm", "cblas_dgemm", "cblas_cgemm", "cblas_zgemm"}; /* as fb_blas has them */
    _Static_assert(sizeof *blas == sizeof names, "");
    if (blas->zgemm) return FB_OK;
    if (!choose_kernels()) return fb_fail_memory(error);
    return fb_library_load("libopenblas.so.0", true, names, sizeof names / sizeof *names, blas, error);
}
