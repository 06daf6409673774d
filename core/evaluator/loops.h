/* Loops over elements, for kernels: the expression is compiled once for runs without gaps (which compilers vectorise), once for
 * a second operand that is one number, and once for any strides. */
#ifndef FB_EVALUATOR_LOOPS_H
#define FB_EVALUATOR_LOOPS_H

#include <complex.h>

#include "core/evaluator/array.h"

#ifndef CMPLX /* glibc's <complex.h> has these of C11 for gcc alone */
#define CMPLX(x, y) __builtin_complex((double)(x), (double)(y))
#define CMPLXF(x, y) __builtin_complex((float)(x), (float)(y))
#endif

/* Products as c10::complex has them: C's own operator looks for infinities. */
static inline double _Complex fb_complex_product(double _Complex x, double _Complex y) {
    double a = creal(x), b = cimag(x), c = creal(y), d = cimag(y);
    return CMPLX(a * c - b * d, a * d + b * c);
}
static inline float _Complex fb_complex_product_float(float _Complex x, float _Complex y) {
    float a = crealf(x), b = cimagf(x), c = crealf(y), d = cimagf(y);
    return CMPLXF(a * c - b * d, a * d + b * c);
}

/* static void name(out of type R, a of type A): R = expression of x. */
#define FB_LOOP_1(name, R, A, expression)                                                                                      \
    static void name(const fb_array *out, const fb_array *a) {                                                                 \
        fb_walk walk;                                                                                                          \
        for (fb_walk_begin(&walk, out, a, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {                                   \
            R *restrict r = walk.data[0];                                                                                      \
            const A *restrict p = walk.data[1];                                                                                \
            if (walk.strides[0] == 1 && walk.strides[1] == 1) {                                                                \
                for (int64_t i = 0; i < walk.count; i++) {                                                                     \
                    const A x = p[i];                                                                                          \
                    r[i] = (R)(expression);                                                                                    \
                }                                                                                                              \
                continue;                                                                                                      \
            }                                                                                                                  \
            for (int64_t i = 0; i < walk.count; i++) {                                                                         \
                const A x = p[i * walk.strides[1]];                                                                            \
                r[i * walk.strides[0]] = (R)(expression);                                                                      \
            }                                                                                                                  \
        }                                                                                                                      \
    }

/* static void name(out of type R, a and b of type A): R = expression of x and y. */
#define FB_LOOP_2(name, R, A, expression)                                                                                      \
    static void name(const fb_array *out, const fb_array *a, const fb_array *b) {                                              \
        fb_walk walk;                                                                                                          \
        for (fb_walk_begin(&walk, out, a, b, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {                                \
            R *restrict r = walk.data[0];                                                                                      \
            const A *p = walk.data[1], *q = walk.data[2];                                                                      \
            if (walk.strides[0] == 1 && walk.strides[1] == 1 && walk.strides[2] == 1) {                                        \
                for (int64_t i = 0; i < walk.count; i++) {                                                                     \
                    const A x = p[i], y = q[i];                                                                                \
                    r[i] = (R)(expression);                                                                                    \
                }                                                                                                              \
                continue;                                                                                                      \
            }                                                                                                                  \
            if (walk.strides[0] == 1 && walk.strides[1] == 1 && walk.strides[2] == 0) {                                        \
                const A y = *q;                                                                                                \
                for (int64_t i = 0; i < walk.count; i++) {                                                                     \
                    const A x = p[i];                                                                                          \
                    r[i] = (R)(expression);                                                                                    \
                }                                                                                                              \
                continue;                                                                                                      \
            }                                                                                                                  \
            for (int64_t i = 0; i < walk.count; i++) {                                                                         \
                const A x = p[i * walk.strides[1]], y = q[i * walk.strides[2]];                                                \
                r[i * walk.strides[0]] = (R)(expression);                                                                      \
            }                                                                                                                  \
        }                                                                                                                      \
    }

#endif
