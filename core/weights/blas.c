#include "core/weights/blas.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

fb_status fb_blas_load(fb_blas *blas, fb_error *error) {
    static const char *const names[] = {"cblas_sgemm", "cblas_dgemm", "cblas_cgemm", "cblas_zgemm"}; /* as fb_blas has them */
    _Static_assert(sizeof *blas == sizeof names, "");
    if (blas->zgemm) return FB_OK;
    errno = 0;
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NODELETE), *function = library;
    for (size_t i = 0; function && i < sizeof names / sizeof *names; i++) {
        function = dlsym(library, names[i]);
        memcpy((char *)blas + i * sizeof function, &function, sizeof function);
    }
    fb_status status = FB_OK;
    if (!function && errno == ENOMEM) status = fb_fail_memory(error);
    else if (!function) status = fb_fail(error, FB_IO, "library-missing", NULL, "a library cannot be loaded: %s", dlerror());
    if (library) dlclose(library);
    return status;
}
