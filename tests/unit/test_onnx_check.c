/* What a model of ONNX must be. tests/fixtures/onnx/make.py made checks.txt: models, and the error that each gets. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/onnx/check.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

/* ---- helpers ------------------------------------------------------------------------------------------------------------ */

static bool find_file(void *context, const char *location, uint64_t *size, const char **blob) {
    (void)context, (void)blob;
    *size = 64;
    return strcmp(location, "w.bin") == 0 || strcmp(location, "a/b.bin") == 0;
}

static const onnx_files small_files = {.model = "model.onnx", .find = find_file};

static fb_status check_in(const void *bytes, size_t size, const onnx_files *files, fb_error *error) {
    onnx_file file;
    fb_work work = {0};
    fb_status status = onnx_open(bytes, size, NULL, &work, &file, error);
    if (!status) status = onnx_check(&file, files, &work, error);
    onnx_close(&file);
    return status;
}

/* Calls `visit` with each line's name, code and bytes, which are in a block of their own size. */
static size_t for_each(void (*visit)(const char *name, const char *code, const unsigned char *bytes, size_t size)) {
    size_t size, seen = 0;
    char *text = read_fixture("onnx", "checks.txt", &size), *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), seen++) {
        char *code = strchr(line, ' '), *hex = strrchr(line, ' ');
        *code++ = *hex++ = '\0';
        size_t count = strlen(hex) / 2;
        unsigned char *bytes = malloc(count ? count : 1);
        for (size_t i = 0; i < count; i++) {
            char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
            bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
        }
        visit(line, code, bytes, count);
        free(bytes);
    }
    free(text);
    return seen;
}

/* ---- tests -------------------------------------------------------------------------------------------------------------- */

static void check_code(const char *name, const char *code, const unsigned char *bytes, size_t size) {
    fb_error error = {0};
    fb_status status = check_in(bytes, size, &small_files, &error);
    ck_assert_msg(strcmp(status ? error.code : "ok", code) == 0, "%s: %s \"%s\" instead of %s", name, error.code, error.message,
                  code);
    ck_assert_msg(!status || status == FB_INVALID, "%s: %d", name, status);
    bool has_place = strstr(error.message, " at byte ") || strcmp(error.code, "missing-files") == 0;
    ck_assert_msg(!status || has_place, "%s: \"%s\" says no place", name, error.message);
}

START_TEST(test_each_gets_its_error) {
    ck_assert_uint_ge(for_each(check_code), 150);
}
END_TEST

static void check_flips(const char *name, const char *code, const unsigned char *bytes, size_t size) {
    unsigned char *copy = malloc(size);
    if (size) memcpy(copy, bytes, size);
    for (size_t at = 0; at < size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            fb_error error = {0};
            copy[at] ^= (unsigned char)(1 << bit);
            fb_status status = check_in(copy, size, &small_files, &error);
            copy[at] ^= (unsigned char)(1 << bit);
            bool is_known = !status || ((status == FB_INVALID || status == FB_TOO_LARGE) && error.code[0] && error.message[0]);
            ck_assert_msg(is_known, "%s (%s) at %zu: %d %s", name, code, at, status, error.message);
        }
    }
    free(copy);
}

START_TEST(test_changed_bytes) {
    for_each(check_flips);
}
END_TEST

static void check_memory(const char *name, const char *code, const unsigned char *bytes, size_t size) {
    for (long k = 0;; k++) {
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = check_in(bytes, size, &small_files, &error);
        if (!chaos_off()) break;
        ck_assert_msg(status == FB_NO_MEMORY, "%s (%s), allocation %ld: %d %s", name, code, k, status, error.message);
    }
}

START_TEST(test_memory_runs_out) {
    for_each(check_memory);
}
END_TEST

static bool find_two(void *context, const char *location, uint64_t *size, const char **blob) {
    (void)context, (void)blob;
    *size = strcmp(location, "two.data") == 0 ? 12288 : 6144;
    return strcmp(location, "two.data") == 0 || strcmp(location, "weights/one.bin") == 0;
}

START_TEST(test_fixtures) {
    static const char *const names[] = {"external-two-files.onnx", "functions.onnx",    "half-mlp.onnx",
                                        "if-and-loop.onnx",        "keras-cnn-11.onnx", "qdq-cnn.onnx"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size;
        fb_error error = {0};
        char *bytes = read_fixture("onnx", names[i], &size);
        fb_status status = check_in(bytes, size, &(onnx_files){.find = find_two}, &error);
        ck_assert_msg(!status, "%s: %s", names[i], error.message);
        free(bytes);
    }
}
END_TEST

START_TEST(test_files_are_gathered) {
    size_t size;
    char *bytes = read_fixture("onnx", "external-two-files.onnx", &size);
    fb_error error = {0};
    ck_assert_int_eq(check_in(bytes, size, NULL, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "missing-files");
    ck_assert_msg(strstr(error.message, "two.data") && strstr(error.message, "weights/one.bin"), "%s", error.message);
    onnx_file file;
    fb_work work = {0};
    ck_assert(!onnx_open(bytes, size, NULL, &work, &file, &error));
    ck_assert(!onnx_check(&file, &(onnx_files){.may_lack = true}, &work, &error));
    ck_assert_uint_eq(file.location_count, 2);
    ck_assert(!file.locations[0]->is_there && !file.locations[1]->is_there);
    onnx_close(&file);
    free(bytes);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("onnx_check");
    tcase_add_test(tests, test_each_gets_its_error);
    tcase_add_test(tests, test_changed_bytes);
    tcase_add_test(tests, test_memory_runs_out);
    tcase_add_test(tests, test_fixtures);
    tcase_add_test(tests, test_files_are_gathered);
    tcase_set_timeout(tests, 600);
    return run_tests("onnx_check", tests);
}
