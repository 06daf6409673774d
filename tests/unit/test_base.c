/* Maps against a plain array, tables whose rows stay where they are, buffers, errors. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "core/base/index.h"
#include "core/base/map.h"
#include "core/base/table.h"
#include "tests/unit/chaos.h"
#include "tests/unit/run_tests.h"

#define KEYS 2000

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(*state >> 33);
}

START_TEST(test_map_random) {
    static uint32_t model[KEYS];
    fb_map map = {0};
    uint64_t state = (uint64_t)_i + 1;
    memset(model, 0, sizeof model);
    for (int step = 0; step < 100000; step++) {
        uint32_t key = next_random(&state) % KEYS, value = next_random(&state) % 1000 + 1;
        if (next_random(&state) % 3 == 0) {
            fb_map_remove(&map, key);
            model[key] = 0;
        } else {
            ck_assert(fb_map_put(&map, key, value));
            model[key] = value;
        }
    }
    for (uint32_t key = 0; key < KEYS; key++) ck_assert_uint_eq(fb_map_get(&map, key), model[key]);
    fb_map_clear(&map);
    ck_assert_uint_eq(fb_map_get(&map, 7), 0);
    ck_assert_uint_lt(map.capacity, KEYS * 4); /* removed entries do not make it grow */
    fb_map_free(&map);
}
END_TEST

START_TEST(test_map_of_many_values) {
    fb_map map = {0};
    uint32_t cursor = 0, value;
    uint64_t sum = 0;
    for (uint32_t i = 1; i <= 100; i++) ck_assert(fb_map_add(&map, i % 2, i));
    while ((value = fb_map_next(&map, 1, &cursor))) sum += value;
    ck_assert_uint_eq(sum, 2500);
    fb_map_free(&map);
}
END_TEST

/* Ids under a hash: all that were added and not removed, whatever other hashes share their places. */
static size_t count_under(const fb_index *index, uint32_t hash, uint32_t wanted, size_t *found) {
    size_t count = 0;
    uint32_t step = 0, id;
    for (*found = 0; (id = fb_index_next(index, hash, &step)); count++) *found += id == wanted;
    return count;
}

START_TEST(test_index) {
    enum { count = 20000 };
    fb_index index = {0}, copy;
    size_t found;
    ck_assert_uint_eq(count_under(&index, 7, 1, &found), 0);
    for (uint32_t id = 1; id <= count; id++) {
        uint32_t hash = id % 5000 * 0x9e3779b9U, step = 0; /* four ids under each */
        ck_assert(fb_index_reserve(&index, 1));
        while (fb_index_next(&index, hash, &step)) continue;
        if (id % 2) fb_index_add(&index, hash, id);
        else fb_index_add_here(&index, hash, id, step);
    }
    for (uint32_t id = 1; id <= count; id += 2) fb_index_remove(&index, id % 5000 * 0x9e3779b9U, id);
    ck_assert(fb_index_copy(&copy, &index));
    ck_assert(fb_index_reserve(&index, count)); /* which puts everything elsewhere */
    fb_index *both[] = {&index, &copy};
    for (int i = 0; i < 2; i++) {
        for (uint32_t id = 1; id <= count; id++) {
            uint32_t hash = id % 5000 * 0x9e3779b9U;
            ck_assert_uint_eq(count_under(both[i], hash, id, &found), id % 2 ? 0 : 4);
            ck_assert_uint_eq(found, id % 2 ? 0 : 1);
        }
    }
    uint32_t capacity = index.capacity;
    fb_index_clear(&index);
    ck_assert_uint_eq(count_under(&index, 2 * 0x9e3779b9U, 2, &found), 0);
    ck_assert_uint_eq(index.capacity, capacity);
    ck_assert(!fb_index_reserve(&index, (size_t)1 << 31));
    chaos_fail_after(0);
    bool has_grown = fb_index_reserve(&index, capacity);
    ck_assert(chaos_off() && !has_grown);
    fb_index_free(&index);
    fb_index_free(&copy);
}
END_TEST

START_TEST(test_table_rows_stay) {
    fb_table table = {.row_size = 24};
    char *rows[5000];
    for (uint32_t i = 1; i < 5000; i++) {
        ck_assert_uint_eq(fb_table_add(&table), i);
        rows[i] = fb_table_at(&table, i);
        memset(rows[i], (int)(i & 127), 24);
    }
    for (uint32_t i = 1; i < 5000; i++) {
        ck_assert_ptr_eq(fb_table_at(&table, i), rows[i]);
        ck_assert_int_eq(rows[i][23], (int)(i & 127));
    }
    fb_table copy;
    ck_assert(fb_table_copy(&copy, &table, &(fb_work){0}));
    ck_assert_mem_eq(fb_table_at(&copy, 4999), rows[4999], 24);
    fb_table_truncate(&table, 10);
    ck_assert_uint_eq(fb_table_add(&table), 10);
    ck_assert_ptr_eq(fb_table_at(&table, 10), rows[10]); /* the memory stayed */
    fb_table_free(&table);
    fb_table_free(&copy);
}
END_TEST

START_TEST(test_json_string) {
    fb_buffer out = {0};
    const char text[] = "a\"b\\c\n\t\x01\x1f/\x7f\xc3\xa9";
    fb_buffer_json_string(&out, text, sizeof text - 1);
    ck_assert_str_eq(fb_buffer_text(&out), "\"a\\\"b\\\\c\\n\\t\\u0001\\u001f/\x7f\xc3\xa9\"");
    out.size = 0;
    fb_buffer_pointer_token(&out, "a/b~c", 5);
    fb_buffer_int(&out, INT64_MIN);
    ck_assert_str_eq(fb_buffer_text(&out), "/a~1b~0c-9223372036854775808");
    fb_buffer_free(&out);
}
END_TEST

/* Whether a conversion is done here or left to printf, the text is printf's. */
START_TEST(test_printf) {
#define CHECK_PRINTF(...)                                                                                                      \
    do {                                                                                                                       \
        char expected[200];                                                                                                    \
        fb_buffer out = {0};                                                                                                   \
        snprintf(expected, sizeof expected, __VA_ARGS__);                                                                      \
        fb_buffer_string(&out, "before ");                                                                                     \
        fb_buffer_printf(&out, __VA_ARGS__);                                                                                   \
        const char *text = fb_buffer_text(&out);                                                                               \
        ck_assert_uint_eq(out.size, strlen(text));                                                                             \
        ck_assert_int_eq(strncmp(text, "before ", 7), 0);                                                                      \
        ck_assert_str_eq(text + 7, expected);                                                                                  \
        fb_buffer_free(&out);                                                                                                  \
    } while (0)
    CHECK_PRINTF("plain");
    CHECK_PRINTF("%s and %s", "", "text");
    CHECK_PRINTF("%d %d %d", 0, -7, INT32_MIN);
    CHECK_PRINTF("%u %lu %llu", UINT32_MAX, (unsigned long)INT64_MAX, (unsigned long long)UINT64_MAX);
    CHECK_PRINTF("%ld %lld %zu", -1L, (long long)INT64_MIN, (size_t)10);
    CHECK_PRINTF("%04d-%02d %03lld", 7, 12, 1234LL);
    CHECK_PRINTF("%04d %02d", -7, -123);
    CHECK_PRINTF("%s %d %% %s", "a", 1, "b");
    CHECK_PRINTF("%s %.3s|%5d|%-3d|%x", "long", "long", 3, 4, 255);
    CHECK_PRINTF("%d %.3f %c %10s", 1, 2.5, 'x', "right");
    CHECK_PRINTF("%012d %02zu", 5, (size_t)5);
#undef CHECK_PRINTF
}
END_TEST

START_TEST(test_first_error_wins) {
    fb_error error = {0};
    ck_assert_int_eq(fb_fail(&error, FB_INVALID, "first", "/a", "one %d", 1), FB_INVALID);
    ck_assert_int_eq(fb_fail(&error, FB_IO, "second", "/b", "two"), FB_IO);
    ck_assert_int_eq(error.status, FB_INVALID);
    ck_assert_str_eq(error.code, "first");
    ck_assert_str_eq(error.message, "one 1");
}
END_TEST

START_TEST(test_long_texts_are_cut_between_characters) {
    fb_error error = {0};
    char text[1001];
    for (size_t i = 0; i < 1000; i += 2) memcpy(text + i, "\xc3\xa9", 2);
    text[1000] = '\0';
    fb_fail(&error, FB_INVALID, "x", text, "a%s", text);
    ck_assert_uint_eq(strlen(error.pointer) % 2, 0);
    ck_assert_uint_eq(strlen(error.message) % 2, 1);
}
END_TEST

START_TEST(test_error_list_keeps_some_and_counts_all) {
    fb_errors errors = {.limit = 3};
    for (int i = 0; i < 10; i++) fb_errors_add(&errors, "code", "", "%d", i);
    ck_assert_uint_eq(errors.count, 3);
    ck_assert_uint_eq(errors.total, 10);
    ck_assert_str_eq(errors.items[2].message, "2");
    fb_errors_free(&errors);
}
END_TEST

int main(void) {
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, test_map_random, 0, 20);
    tcase_add_test(all, test_map_of_many_values);
    tcase_add_test(all, test_index);
    tcase_add_test(all, test_table_rows_stay);
    tcase_add_test(all, test_json_string);
    tcase_add_test(all, test_printf);
    tcase_add_test(all, test_first_error_wins);
    tcase_add_test(all, test_long_texts_are_cut_between_characters);
    tcase_add_test(all, test_error_list_keeps_some_and_counts_all);
    return run_tests("base", all);
}
