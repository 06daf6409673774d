/* Inverting long chains and wide concats, what is too large, and running out of memory. */
#include "tests/unit/checks.h"
#include <stdio.h>

#include "core/graph/build.h"
#include "core/weights/invert.h"
#include "tests/unit/chaos.h"
#include "tests/unit/movements.h"
#include "tests/unit/run_tests.h"

static fb_status invert(fb_graph *graph, fb_tensor made, fb_tensor now, fb_pieces *pieces, bool *is_computed) {
    fb_error error = {0};
    fb_status status = fb_recipe_invert(graph, made, now, pieces, is_computed, &error);
    ck_assert_int_eq(error.status, status);
    return status;
}

/* ---- long and wide ------------------------------------------------------------------------------------------------------- */

/* A chain of tensors, each made from the one before. */
static fb_tensor add_chain(fb_graph *graph, int length, fb_value (*next)(fb_graph *, fb_tensor, int)) {
    char name[32];
    fb_tensor last = put_tensor(graph, "t0", FB_FLOAT32, (int64_t[]){4, 4}, 2, NULL, 0);
    for (int i = 1; i <= length; i++) {
        snprintf(name, sizeof name, "t%d", i);
        last = put_recipe(graph, name, FB_FLOAT32, next(graph, last, i));
    }
    return last;
}

static fb_value next_turned(fb_graph *graph, fb_tensor last, int i) {
    fb_value from = fb_recipe_tensor(graph, last);
    if (i % 2) return fb_recipe_permute(graph, from, (int64_t[]){1, 0}, 2);
    return fb_recipe_concat(graph, 0,
                            (fb_value[]){fb_recipe_slice(graph, from, 0, 1, 4), fb_recipe_slice(graph, from, 0, 0, 1)}, 2);
}

static fb_value next_doubled(fb_graph *graph, fb_tensor last, int i) {
    fb_value from = fb_recipe_tensor(graph, last);
    (void)i;
    return fb_recipe_concat(graph, 0, (fb_value[]){from, from}, 2);
}

static fb_value next_shuffled(fb_graph *graph, fb_tensor last, int i) {
    fb_value from = fb_recipe_tensor(graph, last);
    (void)i;
    from = fb_recipe_permute(graph, fb_recipe_reshape(graph, from, (int64_t[]){2, 8}, 2), (int64_t[]){1, 0}, 2);
    return fb_recipe_reshape(graph, from, (int64_t[]){4, 4}, 2);
}

START_TEST(test_long_chain) {
    fb_graph *graph = fb_graph_new();
    fb_tensor made = add_chain(graph, 20000, next_turned);
    fb_pieces pieces = {0};
    bool is_computed = true;
    ck_assert_int_eq(invert(graph, made, made, &pieces, &is_computed), FB_OK);
    ck_assert(!is_computed);
    ck_assert_uint_eq(pieces.count, 16); /* single elements, by and by */
    ck_assert_uint_ne(join_pieces(graph, &pieces, (int64_t[]){4, 4}, 2).id, 0);
    fb_pieces_free(&pieces);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_too_many_pieces) {
    fb_graph *graph = fb_graph_new();
    fb_tensor made = add_chain(graph, 18, next_doubled), half = fb_tensor_find(graph, "t17");
    fb_pieces pieces = {0};
    bool is_computed = true;
    fb_error error = {0};
    ck_assert_int_eq(invert(graph, half, half, &pieces, &is_computed), FB_OK);
    ck_assert_uint_eq(pieces.count, 1 << 17);
    pieces.count = 0;
    ck_assert_int_eq(fb_recipe_invert(graph, made, made, &pieces, &is_computed, &error), FB_TOO_LARGE);
    ck_assert_str_eq(error.code, "recipe-too-large");
    ck_assert_uint_eq(pieces.count, 0);
    fb_pieces_free(&pieces);
    fb_graph_free(graph);
}
END_TEST

/* One that depends on itself is refused by the reader; should one come up while a graph is changed, this ends too. */
START_TEST(test_cycle) {
    fb_graph *graph = fb_graph_new();
    fb_tensor made = add_chain(graph, 2, next_turned);
    fb_tensor_row_at(graph, fb_tensor_find(graph, "t0"))->recipe = fb_recipe_tensor(graph, made);
    fb_pieces pieces = {0};
    bool is_computed;
    ck_assert_int_eq(invert(graph, made, made, &pieces, &is_computed), FB_TOO_LARGE);
    fb_pieces_free(&pieces);
    fb_graph_free(graph);
}
END_TEST

/* What cannot be made shorter may not become deeper than an expression may be. */
START_TEST(test_deep_inverse) {
    for (int length = 30; length <= 80; length += 50) {
        fb_graph *graph = fb_graph_new();
        fb_tensor made = add_chain(graph, length, next_shuffled);
        fb_pieces pieces = {0};
        bool is_computed;
        fb_recipe_type type;
        ck_assert_int_eq(invert(graph, made, made, &pieces, &is_computed), FB_OK);
        ck_assert_int_eq(is_computed, length == 80);
        if (!is_computed) ck_assert_int_eq(fb_recipe_type_of(graph, pieces.items[0].from, &type, NULL), FB_OK);
        fb_pieces_free(&pieces);
        fb_graph_free(graph);
    }
}
END_TEST

/* Merged, taken apart, merged again: the way from each part to its place is found, not searched. */
START_TEST(test_wide_concats) {
    enum { PARTS = 20000 };
    fb_graph *graph = fb_graph_new();
    static fb_value parts[PARTS];
    fb_tensor source = put_tensor(graph, "source", FB_FLOAT32, (int64_t[]){PARTS, 2}, 2, NULL, 0);
    fb_tensor merged = source;
    for (int round = 0; round < 3; round++) {
        char name[32];
        for (int i = 0; i < PARTS; i++) {
            parts[i] = fb_recipe_slice(graph, fb_recipe_tensor(graph, merged), 0, (i * 7 + 3) % PARTS, (i * 7 + 3) % PARTS + 1);
        }
        snprintf(name, sizeof name, "merged%d", round);
        merged = put_recipe(graph, name, FB_FLOAT32, fb_recipe_concat(graph, 0, parts, PARTS));
    }
    fb_pieces pieces = {0};
    bool is_computed;
    ck_assert_int_eq(invert(graph, merged, merged, &pieces, &is_computed), FB_OK);
    ck_assert_uint_eq(pieces.count, PARTS);
    fb_value whole = join_pieces(graph, &pieces, (int64_t[]){PARTS, 2}, 2);
    ck_assert_uint_ne(whole.id, 0);
    fb_pieces_free(&pieces);
    fb_graph_free(graph);
}
END_TEST

/* ---- without memory ------------------------------------------------------------------------------------------------------ */

START_TEST(test_without_memory) {
    void (*start)(long) = _i ? chaos_fail_once : chaos_fail_after;
    fb_graph *fresh = fb_graph_new();
    fb_tensor made = put_recipe(fresh, "made", FB_FLOAT32, next_shuffled(fresh, add_chain(fresh, 5, next_turned), 0));
    bool failed = true;
    for (long k = 0; failed; k++) {
        fb_graph *graph = fb_graph_copy(fresh, &(fb_work){0});
        fb_pieces pieces = {0};
        bool is_computed = true;
        fb_error error = {0};
        const fb_piece *own[64];
        fb_value whole = {0};
        fb_recipe_type type;
        start(k);
        fb_status status = fb_recipe_invert(graph, made, made, &pieces, &is_computed, &error);
        for (size_t i = 0; i < pieces.count; i++) own[i] = &pieces.items[i];
        if (!status) whole = fb_pieces_join(graph, own, pieces.count, (int64_t[]){4, 4}, 2);
        failed = chaos_off();
        if (status) {
            ck_assert(failed);
            ck_assert_int_eq(status, FB_NO_MEMORY);
            ck_assert_str_eq(error.code, "out-of-memory");
            ck_assert_uint_eq(pieces.count, 0);
        } else {
            ck_assert(!is_computed);
            ck_assert_uint_gt(pieces.count, 2);
            ck_assert_int_eq(whole.id != 0, !fb_graph_out_of_memory(graph));
            if (whole.id) ck_assert_int_eq(fb_recipe_type_of(graph, whole, &type, NULL), FB_OK);
        }
        if (!failed) {
            ck_assert_uint_ne(whole.id, 0);
            ck_assert_int_gt(k, 5);
        }
        fb_pieces_free(&pieces);
        fb_graph_free(graph);
    }
    fb_graph_free(fresh);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("invert large");
    tcase_set_timeout(cases, 600);
    tcase_add_test(cases, test_long_chain);
    tcase_add_test(cases, test_too_many_pieces);
    tcase_add_test(cases, test_cycle);
    tcase_add_test(cases, test_deep_inverse);
    tcase_add_test(cases, test_wide_concats);
    tcase_add_loop_test(cases, test_without_memory, 0, 2);
    return run_tests("invert large", cases);
}
