/* Which kernels OpenBLAS has chosen: never those of 2004 on a processor with AVX2, known to OpenBLAS or not. */
#include "tests/unit/checks.h"
#include <dlfcn.h>
#include <string.h>

#include "core/weights/blas.h"
#include "tests/unit/run_tests.h"

START_TEST(test_kernels_of_the_processor) {
    fb_blas blas = {0};
    ck_assert_int_eq(fb_blas_load(&blas, NULL), FB_OK);
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    char *(*name)(void);
    *(void **)&name = dlsym(library, "openblas_get_corename");
    ck_assert_ptr_nonnull(*(void **)&name);
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) ck_assert_str_ne(name(), "Prescott");
#endif
    dlclose(library);
}
END_TEST

START_TEST(test_a_product) {
    fb_blas blas = {0};
    ck_assert_int_eq(fb_blas_load(&blas, NULL), FB_OK);
    const double a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
    double c[4];
    blas.dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 2, 2, 2, 1, a, 2, b, 2, 0, c, 2);
    const double expected[] = {19, 22, 43, 50};
    ck_assert_mem_eq(c, expected, sizeof c);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("blas");
    tcase_add_test(tests, test_kernels_of_the_processor);
    tcase_add_test(tests, test_a_product);
    return run_tests("blas", tests);
}
