/* Floats are spelled as Python's repr: every power of two, their neighbours, and random bit patterns, checked by
 * Python itself; and a few by heart. */
#include "tests/unit/checks.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/base/float.h"
#include "tests/unit/random_case.h"
#include "tests/unit/run_tests.h"

static const char checker[] = "python3 -c '\n"
                              "import struct, sys\n"
                              "count = wrong = 0\n"
                              "for line in sys.stdin:\n"
                              "    bits, text = line.split()\n"
                              "    count += 1\n"
                              "    if repr(struct.unpack(\">d\", bytes.fromhex(bits))[0]) != text:\n"
                              "        wrong += 1\n"
                              "        print(bits, text, file=sys.stderr)\n"
                              "sys.exit(wrong > 0 or count < 20000)'";

static void send_value(FILE *to, double value) {
    char text[FB_FLOAT_MAX];
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    size_t length = fb_float_repr(value, text);
    ck_assert_uint_eq(length, strlen(text));
    ck_assert_uint_lt(length, FB_FLOAT_MAX);
    fprintf(to, "%016llx %s\n", (unsigned long long)bits, text);
}

START_TEST(test_as_python) {
    FILE *python = popen(checker, "w");
    ck_assert_ptr_nonnull(python);
    for (int exponent = -1074; exponent < 1024; exponent++) {
        double value = ldexp(1, exponent);
        send_value(python, value);
        send_value(python, -value);
        send_value(python, nextafter(value, 0));
        send_value(python, nextafter(value, INFINITY));
    }
    uint64_t state = 0x9e3779b97f4a7c15ULL;
    for (uint64_t i = 0, patterns = 100 * random_setting("FOLDBACK_RANDOM_CASES", 10000); i < patterns; i++) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        uint64_t bits = state ^ state >> 29;
        double value;
        memcpy(&value, &bits, sizeof value);
        send_value(python, isnan(value) ? (double)i / 1000 : value);
    }
    ck_assert_int_eq(WEXITSTATUS(pclose(python)), 0);
}
END_TEST

static const struct {
    double value;
    const char *text;
} known[] = {
    {0.0, "0.0"},
    {-0.0, "-0.0"},
    {1e16, "1e+16"},
    {9999999999999998.0, "9999999999999998.0"},
    {0.0001, "0.0001"},
    {0.00001, "1e-05"},
    {5e-324, "5e-324"},
    {1.7976931348623157e308, "1.7976931348623157e+308"},
    {9007199254740993.0, "9007199254740992.0"},
    {0.1, "0.1"},
    {-2.5, "-2.5"},
    {100.0, "100.0"},
    {INFINITY, "inf"},
    {-INFINITY, "-inf"},
    {NAN, "nan"},
};

START_TEST(test_known) {
    char text[FB_FLOAT_MAX];
    fb_float_repr(known[_i].value, text);
    ck_assert_str_eq(text, known[_i].text);
}
END_TEST

int main(void) {
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 600);
    tcase_add_test(all, test_as_python);
    tcase_add_loop_test(all, test_known, 0, sizeof known / sizeof *known);
    return run_tests("float", all);
}
