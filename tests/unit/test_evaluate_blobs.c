/* Evaluating tensors in blobs: where they lie, what is missing, digests; and recipes that are large, deep or much of little. */
#include "tests/unit/checks.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/graph/build.h"
#include "core/weights/evaluate_internal.h"
#include "tests/unit/evaluated.h"
#include "tests/unit/memory_blobs.h"
#include "tests/unit/movements.h"
#include "tests/unit/run_tests.h"

static fb_graph *graph;
static memory_blobs blobs;

static void set_up(void) {
    graph = fb_graph_new();
    memory_blobs_init(&blobs);
}

static void tear_down(void) {
    fb_graph_free(graph);
    memory_blobs_free(&blobs);
}

static fb_tensor put_in_blob(const char *name, fb_dtype dtype, const int64_t *sizes, int rank, const char *digest,
                             int64_t offset) {
    fb_tensor tensor = put_tensor(graph, name, dtype, sizes, rank, NULL, 0);
    fb_tensor_row_at(graph, tensor)->blob = fb_intern(graph, digest);
    fb_tensor_row_at(graph, tensor)->offset = offset;
    return tensor;
}

static fb_evaluation *opened(fb_value expression, fb_dtype dtype) {
    fb_evaluation *e = NULL;
    fb_error error = {0};
    fb_status status = fb_evaluation_of(graph, expression, dtype, &blobs.source, &e, &error);
    ck_assert_msg(!status, "%s: %s", error.code, error.message);
    return e;
}

static void expect_bytes(fb_value expression, fb_dtype dtype, const void *expected, size_t size) {
    fb_evaluation *e = opened(expression, dtype);
    unsigned char *bytes = NULL;
    size_t found = 0;
    ck_assert_int_eq(evaluated_bytes(e, &bytes, &found, NULL), FB_OK);
    ck_assert_uint_eq(found, size);
    ck_assert_mem_eq(bytes, expected, size);
    free(bytes);
    fb_evaluation_free(e);
}

static void expect_failure(fb_tensor tensor, const fb_blobs *from, fb_status expected, const char *code, const char *named) {
    fb_evaluation *e = NULL;
    fb_error error = {0};
    ck_assert_int_eq(fb_evaluation_new(graph, tensor, from, &e, &error), expected);
    ck_assert_str_eq(error.code, code);
    ck_assert_msg(strstr(error.message, named), "%s", error.message);
}

/* ---- where tensors lie -------------------------------------------------------------------------------------------------- */

START_TEST(test_places) {
    const char *digest = memory_blobs_put(&blobs, "abcdefgh", 8);
    fb_tensor x = put_in_blob("x", FB_INT16, (int64_t[]){2}, 1, digest, 1);
    fb_tensor y = put_in_blob("y", FB_INT16, (int64_t[]){3}, 1, digest, 2); /* they overlap */
    fb_tensor scalar = put_in_blob("scalar", FB_INT8, NULL, 0, digest, 7);
    fb_tensor empty = put_in_blob("empty", FB_INT16, (int64_t[]){4, 0}, 2, digest, 8);
    fb_tensor nowhere = put_tensor(graph, "nowhere", FB_INT16, (int64_t[]){0}, 1, NULL, 0);
    expect_bytes(fb_recipe_tensor(graph, x), FB_INT16, "bcde", 4);
    expect_bytes(fb_recipe_tensor(graph, y), FB_INT16, "cdefgh", 6);
    expect_bytes(fb_recipe_tensor(graph, scalar), FB_INT8, "h", 1);
    expect_bytes(fb_recipe_tensor(graph, empty), FB_INT16, "", 0);
    expect_bytes(fb_recipe_tensor(graph, nowhere), FB_INT16, "", 0);
    fb_value parts[] = {fb_recipe_tensor(graph, y), fb_recipe_tensor(graph, nowhere), fb_recipe_tensor(graph, x)};
    expect_bytes(fb_recipe_concat(graph, 0, parts, 3), FB_INT16, "cdefghbcde", 10);
}
END_TEST

START_TEST(test_what_is_not_there) {
    const char *digest = memory_blobs_put(&blobs, "abcdefgh", 8), *away = memory_blobs_put(&blobs, "other", 5);
    memory_blobs_find(&blobs, away)->is_away = true;
    fb_tensor x = put_in_blob("x", FB_INT16, (int64_t[]){3}, 1, digest, 3);
    fb_tensor far = put_in_blob("far", FB_INT8, (int64_t[]){1}, 1, digest, INT64_MAX);
    fb_tensor lost = put_in_blob("lost", FB_INT8, (int64_t[]){5}, 1, away, 0);
    fb_tensor unknown = put_tensor(graph, "unknown", FB_INT8, (int64_t[]){5}, 1, NULL, 0);
    fb_tensor made = put_recipe(graph, "made", FB_INT8, fb_recipe_tensor(graph, lost));
    expect_failure(x, &blobs.source, FB_INVALID, "blob-too-small", "x");
    expect_failure(far, &blobs.source, FB_INVALID, "blob-too-small", "far");
    expect_failure(lost, &blobs.source, FB_NOT_FOUND, "blob-missing", away);
    expect_failure(made, &blobs.source, FB_NOT_FOUND, "blob-missing", away);
    expect_failure(made, NULL, FB_NOT_FOUND, "blob-missing", away);
    expect_failure(unknown, &blobs.source, FB_NOT_FOUND, "bytes-unknown", "unknown");
}
END_TEST

typedef struct missing_list {
    char text[400];
} missing_list;

static void note_missing(void *context, fb_tensor tensor, const char *code, const char *blob) {
    missing_list *list = context;
    size_t size = strlen(list->text);
    snprintf(list->text + size, sizeof list->text - size, "%s %s %.9s;", fb_tensor_name(graph, tensor), code,
             blob ? blob : "-");
}

START_TEST(test_missing) {
    const char *digest = memory_blobs_put(&blobs, "abcdefgh", 8), *away = memory_blobs_put(&blobs, "other", 5);
    memory_blobs_find(&blobs, away)->is_away = true;
    missing_list list = {0};
    fb_tensor here = put_in_blob("here", FB_INT8, (int64_t[]){5}, 1, digest, 0);
    fb_tensor lost = put_in_blob("lost", FB_INT8, (int64_t[]){5}, 1, away, 0);
    fb_tensor unknown = put_tensor(graph, "unknown", FB_INT8, (int64_t[]){5}, 1, NULL, 0);
    fb_tensor empty = put_in_blob("empty", FB_INT8, (int64_t[]){0}, 1, away, 0);
    fb_tensor data = put_tensor(graph, "data", FB_INT8, (int64_t[]){5}, 1, "12345", 5);
    fb_value parts[] = {fb_recipe_tensor(graph, lost), fb_recipe_tensor(graph, here), fb_recipe_tensor(graph, unknown)};
    fb_tensor made = put_recipe(graph, "made", FB_INT8, fb_recipe_concat(graph, 0, parts, 3));
    fb_tensor tensors[] = {here, empty, data, made, lost};
    ck_assert_int_eq(fb_evaluation_missing(graph, tensors, 5, &blobs.source, note_missing, &list, NULL), FB_OK);
    char expected[100], other[100];
    snprintf(expected, sizeof expected, "lost blob-missing %.9s;unknown bytes-unknown -;", away);
    snprintf(other, sizeof other, "unknown bytes-unknown -;lost blob-missing %.9s;", away);
    ck_assert_msg(strcmp(list.text, expected) == 0 || strcmp(list.text, other) == 0, "%s", list.text);
    list.text[0] = '\0';
    ck_assert_int_eq(fb_evaluation_missing(graph, tensors, 1, NULL, note_missing, &list, NULL), FB_OK);
    ck_assert(strncmp(list.text, "here blob-missing", 17) == 0);
}
END_TEST

/* Offsets and sizes of more than 32 bits: five gigabytes, of which nearly nothing is ever touched. */
START_TEST(test_large) {
    const uint64_t size = ((uint64_t)5 << 30) + 64;
    unsigned char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert(bytes != MAP_FAILED);
    char digest[FB_ID_LENGTH + 1];
    ck_assert(fb_sha256_id("large", 5, digest));
    memory_blobs_lend(&blobs, digest, bytes, size);
    const int64_t count = (int64_t)(size - 64) / 4;
    const float last[] = {1.5F, -2.5F, 0.25F}, doubled[] = {3, -5, 0.5F};
    memcpy(bytes + size - 64 + 2 - sizeof last, last, sizeof last);
    fb_value x = fb_recipe_tensor(graph, put_in_blob("x", FB_FLOAT32, (int64_t[]){count}, 1, digest, 2));
    unsigned char found[sizeof last];
    fb_value twice = fb_recipe_concat(graph, 0, (fb_value[]){x, x}, 2);
    fb_value grid = fb_recipe_reshape(graph, x, (int64_t[]){count / 1024, 1024}, 2);
    fb_value column = fb_recipe_permute(graph, fb_recipe_slice(graph, grid, 1, 1021, 1024), (int64_t[]){1, 0}, 2);
    struct {
        fb_value expression;
        const float *expected;
        uint64_t end;
    } cases[] = {{x, last, size - 64},
                 {twice, last, 2 * (size - 64)},
                 {twice, last, size - 64},
                 {fb_recipe_add(graph, x, x), doubled, size - 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fb_evaluation *e = opened(cases[i].expression, FB_FLOAT32);
        ck_assert_uint_eq(fb_evaluation_size(e) >= cases[i].end, 1);
        ck_assert_int_eq(fb_evaluation_read(e, cases[i].end - sizeof found, found, sizeof found, NULL), FB_OK);
        ck_assert_mem_eq(found, cases[i].expected, sizeof found);
        fb_evaluation_free(e);
    }
    expect_bytes(fb_recipe_slice(graph, x, 0, count - 3, count), FB_FLOAT32, last, sizeof last);
    expect_bytes(fb_recipe_slice(graph, column, 1, count / 1024 - 1, count / 1024), FB_FLOAT32, last, sizeof last);
    munmap(bytes, size);
}
END_TEST

/* ---- digests ------------------------------------------------------------------------------------------------------------ */

static size_t recalls;
static fb_blob_tensor recalled;
static char recalled_shape[40];

static fb_status recall(void *context, const fb_blob_tensor *tensor, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    (void)context;
    recalls++;
    recalled = *tensor;
    snprintf(recalled_shape, sizeof recalled_shape, "%s", tensor->shape);
    if (tensor->offset != 3) return fb_fail(error, FB_NOT_FOUND, "unknown-digest", "", "not remembered");
    ck_assert(fb_sha256_id("remembered", 10, digest));
    return FB_OK;
}

static void expect_digest(fb_tensor tensor, const char *bytes, size_t size) {
    char expected[FB_ID_LENGTH + 1], found[FB_ID_LENGTH + 1] = "";
    fb_error error = {0};
    ck_assert(fb_sha256_id(bytes, size, expected));
    fb_status status = fb_evaluation_digest(graph, tensor, &blobs.source, found, &error);
    ck_assert_msg(!status, "%s: %s", error.code, error.message);
    ck_assert_str_eq(found, expected);
}

START_TEST(test_digests) {
    const char *digest = memory_blobs_put(&blobs, "abcdefgh", 8), *other = memory_blobs_put(&blobs, "12345678", 8);
    blobs.source.recall = recall;
    recalls = 0;
    expect_digest(put_in_blob("part", FB_INT16, (int64_t[]){2, 1}, 2, digest, 1), "bcde", 4);
    ck_assert_uint_eq(recalls, 1);
    ck_assert_uint_eq(blobs.remembered, 1);
    ck_assert_str_eq(recalled_shape, "[2,1]");
    ck_assert_str_eq(recalled.dtype, "int16");
    ck_assert_uint_eq(recalled.size, 4);
    ck_assert_str_eq(recalled.blob, digest);
    expect_digest(put_in_blob("known", FB_INT16, (int64_t[]){2}, 1, digest, 3), "remembered", 10);
    ck_assert_uint_eq(blobs.remembered, 1);
    fb_tensor whole = put_in_blob("whole", FB_INT16, (int64_t[]){4}, 1, digest, 0);
    fb_tensor named = put_recipe(graph, "named", FB_INT16, fb_recipe_tensor(graph, whole));
    expect_digest(whole, "abcdefgh", 8);
    expect_digest(named, "abcdefgh", 8);
    memcpy(memory_blobs_find(&blobs, other)->bytes, "spoiled!", 8); /* its name says what it holds: it is not read */
    expect_digest(put_in_blob("unread", FB_INT16, (int64_t[]){4}, 1, other, 0), "12345678", 8);
    fb_value swapped[] = {fb_recipe_slice(graph, fb_recipe_tensor(graph, whole), 0, 2, 4),
                          fb_recipe_slice(graph, fb_recipe_tensor(graph, whole), 0, 0, 2)};
    recalls = 0;
    expect_digest(put_recipe(graph, "swapped", FB_INT16, fb_recipe_concat(graph, 0, swapped, 2)), "efghabcd", 8);
    ck_assert_uint_eq(recalls, 0);
    float one = 1, minus_one = -1;
    fb_value x = fb_recipe_tensor(graph, put_tensor(graph, "x", FB_FLOAT32, NULL, 0, &one, sizeof one));
    expect_digest(put_recipe(graph, "negated", FB_FLOAT32, fb_recipe_neg(graph, x)), (const char *)&minus_one, 4);
}
END_TEST

START_TEST(test_equal) {
    const char *digest = memory_blobs_put(&blobs, "abcdabcdab", 10);
    fb_value x = fb_recipe_tensor(graph, put_in_blob("x", FB_INT8, (int64_t[]){4}, 1, digest, 0));
    fb_value y = fb_recipe_tensor(graph, put_in_blob("y", FB_INT8, (int64_t[]){4}, 1, digest, 4));
    fb_value z = fb_recipe_tensor(graph, put_in_blob("z", FB_INT8, (int64_t[]){4}, 1, digest, 5));
    fb_value w = fb_recipe_tensor(graph, put_in_blob("w", FB_INT8, (int64_t[]){5}, 1, digest, 0));
    fb_value others[] = {y, z, w};
    for (int i = 0; i < 3; i++) {
        bool is_equal = i != 0;
        fb_evaluation *a = opened(x, FB_INT8), *b = opened(others[i], FB_INT8);
        ck_assert_int_eq(fb_evaluation_equal(a, b, &is_equal, NULL), FB_OK);
        ck_assert_int_eq(is_equal, i == 0);
        fb_evaluation_free(a);
        fb_evaluation_free(b);
    }
}
END_TEST

/* ---- long, deep and large recipes ---------------------------------------------------------------------------------------- */

/* Each tensor reads the one before twice: looked through, the last one would be read 2^100000 times. */
START_TEST(test_shared_chain) {
    enum { LENGTH = 100000 };
    float numbers[] = {1.5F, -3};
    fb_tensor last = put_tensor(graph, "t0", FB_FLOAT32, (int64_t[]){2}, 1, numbers, sizeof numbers);
    fb_value half = fb_recipe_full(graph, NULL, 0, fb_make_float(graph, 0.5));
    for (int i = 1; i <= LENGTH; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%d", i);
        fb_value x = fb_recipe_tensor(graph, last);
        fb_value parts[] = {fb_recipe_slice(graph, x, 0, 1, 2), fb_recipe_slice(graph, x, 0, 0, 1)};
        last = put_recipe(graph, name, FB_FLOAT32,
                          _i ? fb_recipe_concat(graph, 0, parts, 2) : fb_recipe_mul(graph, fb_recipe_add(graph, x, x), half));
    }
    expect_bytes(fb_recipe_tensor(graph, last), FB_FLOAT32, numbers, sizeof numbers);
}
END_TEST

/* Twice as long with each tensor; of what would be 2^60 elements a few are read. */
START_TEST(test_doubled) {
    fb_tensor last = put_tensor(graph, "t0", FB_INT8, (int64_t[]){2}, 1, "ab", 2);
    for (int i = 1; i < 58; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%d", i);
        fb_value x = fb_recipe_tensor(graph, last);
        last = put_recipe(graph, name, FB_INT8, fb_recipe_concat(graph, 0, (fb_value[]){x, x}, 2));
        if (i % 9 == 0)
            last =
                put_recipe(graph, strcat(name, "s"), FB_INT8, fb_recipe_slice(graph, fb_recipe_tensor(graph, last), 0, 1, 3));
    }
    fb_evaluation *e = opened(fb_recipe_tensor(graph, last), FB_INT8);
    char found[4];
    ck_assert_int_eq(fb_evaluation_read(e, fb_evaluation_size(e) - 4, found, 4, NULL), FB_OK);
    ck_assert(found[0] == found[2] && found[1] == found[3] && found[0] + found[1] == 'a' + 'b');
    fb_evaluation_free(e);
}
END_TEST

/* As deep as a recipe may be: one operation in another, and sums that lean to the right. */
START_TEST(test_deep) {
    double number = 3;
    fb_value x = fb_recipe_tensor(graph, put_tensor(graph, "x", FB_FLOAT64, (int64_t[]){1}, 1, &number, sizeof number));
    fb_value nested = x, sum = x;
    for (int i = 0; i < FB_RECIPE_MAX_DEPTH; i++) {
        nested =
            i % 2 ? fb_recipe_neg(graph, nested) : fb_recipe_reshape(graph, nested, (int64_t[]){1, 1, 1}, (size_t)(1 + i % 3));
        sum = fb_recipe_add(graph, x, sum);
    }
    expect_bytes(nested, FB_FLOAT64, &number, sizeof number);
    number *= FB_RECIPE_MAX_DEPTH + 1;
    expect_bytes(sum, FB_FLOAT64, &number, sizeof number);
    fb_evaluation *e = NULL;
    fb_error error = {0};
    ck_assert_int_eq(fb_evaluation_of(graph, fb_recipe_neg(graph, nested), FB_FLOAT64, NULL, &e, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "bad-recipe");
}
END_TEST

/* What the limits allow, and 8 MiB for the tensors' own descriptions and what is handed on. */
START_TEST(test_memory) {
    const fb_evaluation_limits *l = &fb_evaluation_usual;
    uint64_t tiles = (uint64_t)((l->rows + l->columns) * l->inner) * sizeof(double);
    ck_assert_uint_le((uint64_t)l->block + l->touched + l->kept + tiles + ((uint64_t)8 << 20), FB_EVALUATION_MEMORY);
    /* Each of many operations that need a copy makes the blocks smaller. */
    float numbers[4] = {1, 2, 3, 4};
    fb_value x = fb_recipe_tensor(graph, put_tensor(graph, "x", FB_FLOAT32, (int64_t[]){2, 2}, 2, numbers, sizeof numbers));
    for (int i = 0; i < FB_RECIPE_MAX_DEPTH / 2; i++)
        x = fb_recipe_permute(graph, fb_recipe_neg(graph, x), (int64_t[]){1, 0}, 2);
    fb_evaluation *e = opened(x, FB_FLOAT32);
    ck_assert_int_le(e->block * FB_RECIPE_MAX_DEPTH / 2 * (int64_t)sizeof(double), l->block);
    fb_evaluation_free(e);
    expect_bytes(x, FB_FLOAT32, numbers, sizeof numbers);
}
END_TEST

/* More than one tile of each dimension. */
START_TEST(test_tiles_of_matmul) {
    enum { ROWS = 1030, INNER = 1100, COLUMNS = 4100 };
    float *a = calloc(ROWS * INNER, sizeof *a), *b = calloc(INNER * COLUMNS, sizeof *b), found[7];
    for (int i = 0; i < ROWS * INNER; i++) a[i] = (float)(i * 37 % 11 - 5);
    for (int i = 0; i < INNER * COLUMNS; i++) b[i] = (float)(i * 53 % 13 - 6);
    const char *left = memory_blobs_put(&blobs, a, ROWS * INNER * sizeof *a);
    const char *right = memory_blobs_put(&blobs, b, INNER * COLUMNS * sizeof *b);
    fb_value x = fb_recipe_tensor(graph, put_in_blob("x", FB_FLOAT32, (int64_t[]){ROWS, INNER}, 2, left, 0));
    fb_value y = fb_recipe_tensor(graph, put_in_blob("y", FB_FLOAT32, (int64_t[]){INNER, COLUMNS}, 2, right, 0));
    fb_evaluation *e = opened(fb_recipe_matmul(graph, x, y), FB_FLOAT32);
    for (int row = 0; row < ROWS; row += 343) {
        for (int column = 0; column + 7 <= COLUMNS; column += 1364) {
            uint64_t offset = ((uint64_t)row * COLUMNS + (uint64_t)column) * sizeof *a;
            ck_assert_int_eq(fb_evaluation_read(e, offset, found, sizeof found, NULL), FB_OK);
            for (int i = 0; i < 7; i++) {
                float sum = 0;
                for (int k = 0; k < INNER; k++) sum += a[row * INNER + k] * b[k * COLUMNS + column + i];
                ck_assert_float_eq(found[i], sum);
            }
        }
    }
    fb_evaluation_free(e);
    free(a);
    free(b);
}
END_TEST

/* ---- much of little ----------------------------------------------------------------------------------------------------- */

START_TEST(test_too_large) {
    int64_t sizes[] = {(int64_t)1 << 40};
    fb_value zeros = fb_recipe_full(graph, sizes, 1, fb_make_float(graph, 0));
    fb_tensor made = put_recipe(graph, "made", FB_FLOAT32, zeros);
    fb_value x =
        fb_recipe_tensor(graph, put_recipe(graph, "computed", FB_FLOAT32, fb_recipe_neg(graph, fb_recipe_tensor(graph, made))));
    char digest[FB_ID_LENGTH + 1];
    fb_error error = {0};
    ck_assert_int_eq(fb_evaluation_digest(graph, made, NULL, digest, &error), FB_TOO_LARGE);
    ck_assert_str_eq(error.code, "recipe-too-large");
    /* Read twice, `computed` would be kept. */
    fb_evaluation *e = opened(fb_recipe_slice(graph, fb_recipe_add(graph, x, x), 0, 0, 4), FB_FLOAT32);
    unsigned char bytes[16];
    error = (fb_error){0};
    ck_assert_int_eq(fb_evaluation_read(e, 0, bytes, 16, &error), FB_TOO_LARGE);
    ck_assert_str_eq(error.code, "recipe-too-large");
    fb_evaluation_free(e);
    expect_bytes(fb_recipe_slice(graph, x, 0, 7, 9), FB_FLOAT32, "\0\0\0\x80\0\0\0\x80", 8); /* -0.0 */
}
END_TEST

static fb_status full_scratch(void *context, int *file, fb_error *error) {
    (void)context;
    (void)error;
    *file = open("/dev/full", O_RDWR | O_CLOEXEC);
    return FB_OK;
}

static fb_status no_scratch(void *context, int *file, fb_error *error) {
    (void)context;
    (void)file;
    return fb_fail(error, FB_NO_SPACE, "disk-full", "", "no file");
}

START_TEST(test_full_disk) {
    float number = 1;
    fb_value one = fb_recipe_tensor(graph, put_tensor(graph, "one", FB_FLOAT32, NULL, 0, &number, sizeof number));
    fb_value x = fb_recipe_tensor(graph, put_recipe(graph, "x", FB_FLOAT32, fb_recipe_neg(graph, one)));
    fb_value sum = fb_recipe_add(graph, x, x);
    fb_evaluation_limits limits = fb_evaluation_usual;
    limits.kept = 0;
    blobs.source.scratch = _i ? full_scratch : no_scratch;
    fb_evaluation *e = NULL;
    fb_error error = {0};
    unsigned char bytes[4];
    ck_assert_int_eq(fb_evaluation_within(graph, sum, FB_FLOAT32, &blobs.source, &limits, &e, &error), FB_OK);
    ck_assert_int_eq(fb_evaluation_read(e, 0, bytes, 4, &error), FB_NO_SPACE);
    ck_assert_str_eq(error.code, "disk-full");
    fb_evaluation_free(e);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("evaluate blobs");
    tcase_set_timeout(cases, 600);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, test_places);
    tcase_add_test(cases, test_what_is_not_there);
    tcase_add_test(cases, test_missing);
    tcase_add_test(cases, test_large);
    tcase_add_test(cases, test_digests);
    tcase_add_test(cases, test_equal);
    tcase_add_loop_test(cases, test_shared_chain, 0, 2);
    tcase_add_test(cases, test_doubled);
    tcase_add_test(cases, test_deep);
    tcase_add_test(cases, test_memory);
    tcase_add_test(cases, test_tiles_of_matmul);
    tcase_add_test(cases, test_too_large);
    tcase_add_loop_test(cases, test_full_disk, 0, 2);
    return run_tests("evaluate blobs", cases);
}
