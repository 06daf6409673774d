/* Python's arithmetic on numbers: of recorded sizes (sizes.c), of constants that a pass or a rule reads, and of the evaluator.
 */
#ifndef FB_ANALYSIS_NUMBER_H
#define FB_ANALYSIS_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/operators/op.h"

/* Python's int (of 64 bits) or float. */
typedef struct fb_number {
    bool is_int;
    int64_t integer;
    double real; /* of both */
} fb_number;

static inline fb_number fb_number_of_int(int64_t integer) {
    return (fb_number){.is_int = true, .integer = integer, .real = (double)integer};
}

static inline fb_number fb_number_of_real(double real) {
    return (fb_number){.real = real};
}

/* a + b, a - b, a * b, a / b (TRUE_DIVIDE), a // b, a % b, a ** b. False: Python raises, the result is complex or an int beyond
 * 64 bits, or it is other arithmetic. */
bool fb_number_calculate(fb_arithmetic op, fb_number a, fb_number b, fb_number *out);
/* -a, +a and abs(a); false as above. */
bool fb_number_calculate_one(fb_arithmetic op, fb_number a, fb_number *out);

#endif
