/* Sizes of ONNX's values: numbers and products of symbols, of which equal ones are found equal. */
#include <string.h>

#include "core/analysis/onnx_call.h"
#include "tests/unit/checks.h"
#include "tests/unit/run_tests.h"

static fb_onnx_sizes *s;
static size batch, length, two, three;

static void set_up(void) {
    s = fb_onnx_sizes_new();
    batch = fb_size_named(s, "batch");
    length = fb_size_named(s, "length");
    two = fb_size_of(s, 2);
    three = fb_size_of(s, 3);
}

static void tear_down(void) {
    ck_assert(!fb_onnx_sizes_failed(s));
    fb_onnx_sizes_free(s);
}

START_TEST(test_numbers) {
    int64_t number;
    ck_assert(fb_size_is_number(s, fb_size_add(s, two, three), &number) && number == 5);
    ck_assert(fb_size_is_number(s, fb_size_sub(s, two, three), &number) && number == -1);
    ck_assert(fb_size_is_number(s, fb_size_mul(s, two, three), &number) && number == 6);
    ck_assert(fb_size_is_number(s, fb_size_div(s, fb_size_of(s, -7), two), &number) && number == -3);
    ck_assert(fb_size_is_number(s, fb_size_floor_div(s, fb_size_of(s, -7), two), &number) && number == -4);
    ck_assert(fb_size_is_number(s, fb_size_ceil_div(s, fb_size_of(s, 7), two), &number) && number == 4);
    ck_assert_uint_eq(fb_size_of(s, 2), two);
    ck_assert(fb_size_is(s, two, 2) && !fb_size_is(s, two, 3) && !fb_size_is(s, batch, 2) && !fb_size_is(s, 0, 0));
}
END_TEST

START_TEST(test_beyond_64_bits) {
    size most = fb_size_of(s, INT64_MAX), least = fb_size_of(s, INT64_MIN);
    ck_assert_uint_eq(fb_size_add(s, most, two), 0);
    ck_assert_uint_eq(fb_size_mul(s, most, two), 0);
    ck_assert_uint_eq(fb_size_sub(s, least, two), 0);
    ck_assert_uint_eq(fb_size_div(s, least, fb_size_of(s, -1)), 0);
    ck_assert_uint_eq(fb_size_div(s, two, fb_size_of(s, 0)), 0);
    ck_assert_uint_eq(fb_size_mul(s, fb_size_mul(s, batch, most), two), 0);
    ck_assert_uint_eq(fb_size_add(s, 0, two), 0);
    ck_assert_uint_eq(fb_size_add(s, two, 0), 0);
}
END_TEST

START_TEST(test_products) {
    size both = fb_size_mul(s, batch, length), more = fb_size_mul(s, both, fb_size_of(s, 12));
    ck_assert_uint_eq(both, fb_size_mul(s, length, batch));
    ck_assert_uint_eq(fb_size_div(s, more, fb_size_mul(s, batch, three)), fb_size_mul(s, length, fb_size_of(s, 4)));
    ck_assert_uint_eq(fb_size_add(s, fb_size_mul(s, batch, two), batch), fb_size_mul(s, batch, three));
    ck_assert(fb_size_is(s, fb_size_sub(s, both, both), 0));
    ck_assert(fb_size_is(s, fb_size_mul(s, both, fb_size_of(s, 0)), 0));
    ck_assert_str_eq(fb_size_name(s, batch), "batch");
    ck_assert(!fb_size_name(s, both) && !fb_size_name(s, two));
}
END_TEST

/* The same of the same; otherwise nothing is said, also not that two differ. */
START_TEST(test_sums_and_quotients) {
    size sum = fb_size_add(s, batch, length), half = fb_size_div(s, batch, two);
    ck_assert_uint_eq(sum, fb_size_add(s, length, batch));
    ck_assert_uint_eq(fb_size_sub(s, sum, length), batch);
    ck_assert_uint_eq(fb_size_add(s, fb_size_sub(s, batch, length), length), batch);
    ck_assert_uint_eq(fb_size_sub(s, fb_size_add(s, batch, two), two), batch);
    ck_assert_uint_eq(fb_size_add(s, fb_size_add(s, two, batch), three), fb_size_add(s, batch, fb_size_of(s, 5)));
    ck_assert_uint_eq(half, fb_size_div(s, batch, two));
    ck_assert_uint_ne(half, fb_size_floor_div(s, batch, two));
    ck_assert_uint_ne(fb_size_fresh(s), fb_size_fresh(s));
    ck_assert(fb_size_is_plain(s, sum) && fb_size_is_plain(s, half) && fb_size_is_plain(s, fb_size_fresh(s)));
    ck_assert(!fb_size_is_plain(s, fb_size_sub(s, batch, length)) && !fb_size_is_plain(s, fb_size_sub(s, batch, two)));
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("onnx_sizes");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_numbers);
    tcase_add_test(tcase, test_beyond_64_bits);
    tcase_add_test(tcase, test_products);
    tcase_add_test(tcase, test_sums_and_quotients);
    return run_tests("onnx_sizes", tcase);
}
