/* Evaluating random recipes: every tensor's bytes, read whole and in parts, from inline data and from blobs, in blocks and
 * tiles of any size, against what was computed beside them. */
#include "tests/unit/checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/weights/evaluate_internal.h"
#include "tests/unit/chaos.h"
#include "tests/unit/computations.h"
#include "tests/unit/evaluated.h"
#include "tests/unit/numbers.h"
#include "tests/unit/random_case.h"
#include "tests/unit/run_tests.h"

static size_t kept_count, mapped_count, block_count, lying_count; /* how often what was taken */

static fb_evaluation_limits small_limits(computations *c) {
    return (fb_evaluation_limits){.moved = 1 + (int64_t)random_below(&c->random, 50),
                                  .computed = 1 + (int64_t)random_below(&c->random, 50),
                                  .repeating = 1 + (int64_t)random_below(&c->random, 50),
                                  .rows = 1 + (int64_t)random_below(&c->random, 4),
                                  .columns = 1 + (int64_t)random_below(&c->random, 4),
                                  .inner = 1 + (int64_t)random_below(&c->random, 4),
                                  .block = 1 << 20,
                                  .touched = 1 + random_below(&c->random, 100000),
                                  .kept = random_below(&c->random, 300),
                                  .depth = (int)random_below(&c->random, 6),
                                  .cost = (int64_t)random_below(&c->random, 6),
                                  .repeated = (int64_t)random_below(&c->random, 4)};
}

/* The same numbers, bit by bit; but any nan for a nan. */
static void expect_numbers(uint64_t seed, const computations *c, const computed_tensor *t, const unsigned char *bytes,
                           size_t size) {
    fb_dtype dtype = (fb_dtype)fb_tensor_at(c->graph, t->tensor)->dtype;
    size_t count = (size_t)element_count(&t->is.numbers);
    double *found = calloc(count + 1, sizeof *found);
    ck_assert_uint_eq(size, count * fb_dtype_size(dtype));
    decode_numbers(dtype, bytes, count, found);
    for (size_t i = 0; i < count; i++) {
        double expected = *element(&t->is.numbers, (int64_t)i);
        bool is_same = isnan(expected) ? isnan(found[i]) : memcmp(&expected, &found[i], sizeof expected) == 0;
        ck_assert_msg(is_same, "seed %llu, %s[%zu]: %a, expected %a", (unsigned long long)seed,
                      fb_tensor_name(c->graph, t->tensor), i, found[i], expected);
    }
    free(found);
}

/* Reads parts, in order or not. */
static void expect_parts(computations *c, fb_evaluation *e, const unsigned char *whole, size_t size) {
    unsigned char *part = malloc(size + 1);
    bool is_in_order = random_below(&c->random, 2);
    size_t offset = 0, most = 1 + random_below(&c->random, is_in_order ? size + 1 : 40);
    for (int times = 0; times < 12; times++) {
        if (!is_in_order) offset = random_below(&c->random, size + 1);
        size_t some = random_below(&c->random, size - offset + 1);
        if (some > most) some = most;
        part[some] = 0xa5;
        ck_assert_int_eq(fb_evaluation_read(e, offset, part, some, NULL), FB_OK);
        ck_assert_mem_eq(part, whole + offset, some);
        ck_assert_uint_eq(part[some], 0xa5);
        offset += is_in_order ? some : 0;
    }
    free(part);
}

/* What lies there as it is are the same bytes. */
static void expect_lying(fb_evaluation *e, const unsigned char *whole, size_t size) {
    for (size_t offset = 0, count; offset < size; offset += count ? count : (size_t)e->element) {
        const unsigned char *bytes = NULL;
        count = fb_evaluation_lie(e, offset, size - offset, &bytes);
        ck_assert(count <= size - offset && (!count || memcmp(bytes, whole + offset, count) == 0));
        lying_count += count > 0 && e->root->op;
    }
}

static void check_tensor(uint64_t seed, computations *c, const computed_tensor *t, const fb_blobs *blobs) {
    fb_error error = {0};
    fb_evaluation *e = NULL;
    fb_evaluation_limits limits = random_below(&c->random, 3) ? small_limits(c) : fb_evaluation_usual;
    fb_value whole = fb_recipe_tensor(c->graph, t->tensor);
    fb_status status =
        fb_evaluation_within(c->graph, whole, (fb_dtype)fb_tensor_at(c->graph, t->tensor)->dtype, blobs, &limits, &e, &error);
    ck_assert_msg(!status, "seed %llu: %s %s", (unsigned long long)seed, error.code, error.message);
    unsigned char *bytes = NULL;
    size_t size = 0;
    status = evaluated_bytes(e, &bytes, &size, &error);
    ck_assert_msg(!status, "seed %llu: %s %s", (unsigned long long)seed, error.code, error.message);
    expect_numbers(seed, c, t, bytes, size);
    if (size) expect_parts(c, e, bytes, size);
    expect_lying(e, bytes, size);
    for (size_t i = 0; i < e->kept.size / sizeof(fb_kept); i++) {
        kept_count++;
        mapped_count += ((const fb_kept *)(const void *)e->kept.data)[i].mapped != NULL;
    }
    block_count += e->root->computes && e->root->elements > e->block;
    fb_evaluation_free(e);
    free(bytes);
}

START_TEST(test_random_computations) {
    size_t made = 0;
    for (uint64_t seed = 1; seed <= random_setting("FOLDBACK_RANDOM_CASES", 3000); seed++) {
        computations c;
        computations_make(&c, seed);
        memory_blobs blobs;
        memory_blobs_init(&blobs);
        bool has_blob = random_below(&c.random, 2);
        fb_errors errors = {0};
        if (has_blob) computations_use_blob(&c, &blobs);
        fb_recipe_check_all(c.graph, &errors);
        ck_assert_uint_eq(errors.total, 0);
        for (size_t t = 0; t < c.count; t++) {
            check_tensor(seed, &c, &c.tensors[t], has_blob ? &blobs.source : NULL);
            made += !c.tensors[t].is_source;
        }
        memory_blobs_free(&blobs);
        computations_free(&c);
    }
    ck_assert_uint_gt(made, 1000);
    ck_assert_uint_gt(kept_count, 100);
    ck_assert_uint_gt(mapped_count, 10);
    ck_assert_uint_gt(block_count, 100);
    ck_assert_uint_gt(lying_count, 100);
}
END_TEST

/* Every allocation fails once, or from then on: that is reported, and nothing is left open. */
START_TEST(test_without_memory) {
    void (*start)(long) = _i ? chaos_fail_once : chaos_fail_after;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        computations c;
        computations_make(&c, seed);
        memory_blobs blobs;
        memory_blobs_init(&blobs);
        computations_use_blob(&c, &blobs);
        const computed_tensor *last = &c.tensors[c.count - 1];
        fb_evaluation_limits limits = small_limits(&c);
        fb_value whole = fb_recipe_tensor(c.graph, last->tensor);
        fb_dtype dtype = (fb_dtype)fb_tensor_at(c.graph, last->tensor)->dtype;
        size_t size = (size_t)element_count(&last->is.numbers) * fb_dtype_size(dtype);
        unsigned char *bytes = malloc(size + 1);
        for (long k = 0, failed = true; failed; k++) {
            fb_evaluation *e = NULL;
            fb_error error = {0};
            start(k);
            fb_status status = fb_evaluation_within(c.graph, whole, dtype, &blobs.source, &limits, &e, &error);
            bool is_open = status == FB_OK;
            if (is_open) status = fb_evaluation_read(e, 0, bytes, size, &error);
            failed = chaos_off();
            ck_assert_int_eq(status, failed ? FB_NO_MEMORY : FB_OK);
            ck_assert_int_eq(error.status, status);
            if (!status) expect_numbers(seed, &c, last, bytes, size);
            fb_evaluation_free(is_open ? e : NULL);
            ck_assert_uint_eq(blobs.open, 0);
        }
        free(bytes);
        memory_blobs_free(&blobs);
        computations_free(&c);
    }
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("evaluate random");
    tcase_set_timeout(cases, 600);
    tcase_add_test(cases, test_random_computations);
    tcase_add_loop_test(cases, test_without_memory, 0, 2);
    return run_tests("evaluate random", cases);
}
