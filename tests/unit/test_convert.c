/* Elements to float64 and back: all of the short dtypes, and rounding as fb_dtype_encode does it, which test_evaluate.c checks
 * number by number. */
#include "tests/unit/checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/weights/dtype.h"
#include "tests/unit/numbers.h"
#include "tests/unit/run_tests.h"

static uint64_t bits_of(double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* Every pattern, decoded as the tests' own decoder does, at an odd address; encoded again it is the same. */
START_TEST(test_short_dtypes) {
    fb_dtype dtype = _i ? FB_BFLOAT16 : FB_FLOAT16;
    enum { PATTERNS = 65536 };
    unsigned char *bytes = malloc(2 * PATTERNS + 1), *again = malloc(2 * PATTERNS + 1);
    double *numbers = calloc(PATTERNS, sizeof *numbers), *expected = calloc(PATTERNS, sizeof *expected);
    for (unsigned i = 0; i < PATTERNS; i++) {
        bytes[1 + 2 * i] = (unsigned char)i;
        bytes[2 + 2 * i] = (unsigned char)(i >> 8);
    }
    fb_decode_numbers(dtype, bytes + 1, PATTERNS, numbers);
    decode_numbers(dtype, bytes + 1, PATTERNS, expected);
    fb_encode_numbers(dtype, numbers, PATTERNS, again + 1);
    for (size_t i = 0; i < PATTERNS; i++) {
        ck_assert(isnan(expected[i]) ? isnan(numbers[i]) : bits_of(numbers[i]) == bits_of(expected[i]));
        if (!isnan(expected[i])) ck_assert_mem_eq(bytes + 1 + 2 * i, again + 1 + 2 * i, 2);
    }
    free(bytes);
    free(again);
    free(numbers);
    free(expected);
}
END_TEST

static void expect_rounded(fb_dtype dtype, const double *numbers, size_t count) {
    unsigned char found[64 * 8 + 1], expected[8];
    size_t size = fb_dtype_size(dtype);
    double rounded[64], decoded[64];
    fb_encode_numbers(dtype, numbers, count, found + 1);
    memcpy(rounded, numbers, count * sizeof *numbers);
    fb_round_numbers(dtype, rounded, count);
    fb_decode_numbers(dtype, found + 1, count, decoded);
    for (size_t i = 0; i < count; i++) {
        fb_dtype_encode(dtype, numbers[i], expected);
        ck_assert_msg(memcmp(found + 1 + i * size, expected, size) == 0, "%s of %a", fb_dtype_name(dtype), numbers[i]);
        ck_assert(bits_of(rounded[i]) == bits_of(decoded[i]));
    }
}

/* Random bits; numbers near the dtype's range; and at, just below and just above what lies half way between two of them. */
START_TEST(test_rounding) {
    static const fb_dtype dtypes[] = {FB_FLOAT64, FB_FLOAT32, FB_FLOAT16, FB_BFLOAT16};
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, -NAN, 1e300, -1e300, 0x1p-1074, -0x1p-1074};
    fb_dtype_range range;
    fb_dtype dtype = dtypes[_i];
    uint64_t random = 0x9e3779b97f4a7c15u;
    ck_assert(fb_dtype_limits(dtype, &range));
    expect_rounded(dtype, special, sizeof special / sizeof *special);
    int lowest = ilogb(range.smallest_subnormal) - 2, span = ilogb(range.largest) + 3 - lowest;
    for (int times = 0; times < 30000; times++) {
        double numbers[40];
        for (int i = 0; i < 40; i += 4) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            uint64_t pattern = random ^ random >> 29;
            memcpy(&numbers[i], &pattern, sizeof pattern);
            double size =
                fmax(ldexp(1 + (double)(pattern >> 12) * 0x1p-52, lowest + (int)(pattern % (uint64_t)span)), 0x1p-1074);
            double quantum = fmax(ldexp(1, ilogb(size) - range.mantissa_bits + 1), range.smallest_subnormal);
            double middle = (floor(size / quantum) + 0.5) * quantum;
            if (_i == 0 || !isfinite(middle)) middle = size;
            numbers[i + 1] = random & 1 ? middle : -middle;
            numbers[i + 2] = nextafter(middle, 0);
            numbers[i + 3] = nextafter(middle, INFINITY);
        }
        expect_rounded(dtype, numbers, 40);
    }
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("convert");
    tcase_set_timeout(cases, 600);
    tcase_add_loop_test(cases, test_short_dtypes, 0, 2);
    tcase_add_loop_test(cases, test_rounding, 0, 4);
    return run_tests("convert", cases);
}
