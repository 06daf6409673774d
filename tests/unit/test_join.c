/* Boxes through reshapes, and joining pieces. */
#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>

#include "core/weights/box.h"
#include "core/weights/invert.h"
#include "tests/unit/movements.h"
#include "tests/unit/run_tests.h"

/* ---- boxes through reshapes --------------------------------------------------------------------------------------------- */

/* The box of `inner` that holds exactly the elements in `wanted`, in their order; by looking at all of them. */
static bool find_box(const bool *wanted, const int64_t *inner, int rank, int64_t count, fb_range *box) {
    int64_t low[4], high[4], size = 1, found = 0;
    for (int i = 0; i < rank; i++) {
        low[i] = inner[i];
        high[i] = -1;
    }
    for (int64_t at = 0; at < count; at++) {
        if (!wanted[at]) continue;
        found++;
        int64_t rest = at;
        for (int i = rank - 1; i >= 0; i--) {
            int64_t index = rest % inner[i];
            rest /= inner[i];
            if (index < low[i]) low[i] = index;
            if (index > high[i]) high[i] = index;
        }
    }
    for (int i = 0; i < rank; i++) {
        box[i] = (fb_range){low[i], high[i] - low[i] + 1};
        size *= box[i].size;
    }
    return size == found;
}

static int64_t elements_of(const int64_t *sizes, int rank) {
    int64_t product = 1;
    for (int i = 0; i < rank; i++) product *= sizes[i];
    return product;
}

/* Shapes of up to four dimensions with that many elements; returns how many there are. */
static size_t shapes_of(int64_t elements, int64_t (*shapes)[4], int *ranks) {
    size_t count = 0;
    for (int rank = 0; rank <= 4; rank++) {
        int64_t s[4];
        for (int64_t code = 0, codes = rank ? elements_of((int64_t[]){elements, rank > 1 ? elements : 1,
                                                                      rank > 2 ? elements : 1, rank > 3 ? elements : 1},
                                                          4)
                                            : 1;
             code < codes; code++) {
            int64_t rest = code;
            for (int i = 0; i < rank; i++, rest /= elements) s[i] = 1 + rest % elements;
            if (elements_of(s, rank) != elements) continue;
            memcpy(shapes[count], s, sizeof s);
            ranks[count++] = rank;
        }
    }
    return count;
}

/* Every box of every reshape between small shapes: followed exactly when the elements are a box. */
START_TEST(test_boxes_through_reshapes) {
    static const int64_t counts[] = {1, 2, 4, 6, 8, 12};
    static int64_t shapes[400][4];
    static int ranks[400];
    size_t followed = 0, refused = 0;
    int64_t elements = counts[_i];
    size_t shape_count = shapes_of(elements, shapes, ranks);
    for (size_t o = 0; o < shape_count; o++) {
        for (size_t i = 0; i < shape_count; i++) {
            fb_range box[4], found[4], expected[4];
            int64_t pick[4] = {0};
            for (;;) { /* over all boxes: in each dimension a number for (start, size) */
                bool wanted[16] = {false};
                int64_t size = 1;
                for (int k = 0; k < ranks[o]; k++) {
                    box[k] = (fb_range){pick[k] % shapes[o][k], 1 + pick[k] / shapes[o][k]};
                    size *= box[k].start + box[k].size <= shapes[o][k] ? box[k].size : 0;
                }
                for (int64_t n = 0; n < size; n++) {
                    int64_t at = 0, rest = n, place = 1;
                    for (int k = ranks[o] - 1; k >= 0; k--) {
                        at += (box[k].start + rest % box[k].size) * place;
                        rest /= box[k].size;
                        place *= shapes[o][k];
                    }
                    wanted[at] = true;
                }
                if (size) {
                    bool is_box = find_box(wanted, shapes[i], ranks[i], elements, expected);
                    bool is_found = fb_box_through_reshape(shapes[o], box, ranks[o], shapes[i], found, ranks[i]);
                    ck_assert_int_eq(is_found, is_box);
                    for (int k = 0; is_found && k < ranks[i]; k++) {
                        ck_assert_int_eq(found[k].start, expected[k].start);
                        ck_assert_int_eq(found[k].size, expected[k].size);
                    }
                    followed += is_found;
                    refused += !is_found;
                }
                int k = 0;
                while (k < ranks[o] && ++pick[k] == shapes[o][k] * shapes[o][k]) pick[k++] = 0;
                if (k == ranks[o]) break;
            }
        }
    }
    ck_assert_uint_gt(followed, 0);
    ck_assert(elements < 4 || refused > 0);
}
END_TEST

/* ---- joining ------------------------------------------------------------------------------------------------------------ */

static void add_piece(fb_pieces *pieces, fb_graph *graph, fb_tensor now, int rank, const int64_t *start, const int64_t *stop) {
    if (pieces->count == pieces->capacity) {
        pieces->capacity = 2 * pieces->capacity + 8;
        pieces->items = realloc(pieces->items, pieces->capacity * sizeof *pieces->items);
    }
    fb_piece piece = {.source = now, .rank = rank, .from = fb_recipe_tensor(graph, now)};
    for (int i = 0; i < rank; i++) {
        piece.start[i] = start[i];
        piece.stop[i] = stop[i];
        piece.from = fb_recipe_slice(graph, piece.from, i, start[i], stop[i]);
    }
    pieces->items[pieces->count++] = piece;
}

static void cut_up(fb_pieces *pieces, movements *m, fb_tensor now, int rank, int64_t *start, int64_t *stop, int cuts) {
    int axis = rank ? (int)movements_below(m, rank) : 0;
    if (cuts == 0 || rank == 0 || stop[axis] - start[axis] < 2) {
        add_piece(pieces, m->graph, now, rank, start, stop);
        return;
    }
    int64_t low = start[axis], high = stop[axis], at = low + 1 + movements_below(m, high - low - 1);
    stop[axis] = at;
    cut_up(pieces, m, now, rank, start, stop, cuts - 1);
    stop[axis] = high;
    start[axis] = at;
    cut_up(pieces, m, now, rank, start, stop, cuts - 1);
    start[axis] = low;
}

START_TEST(test_join_of_random_cuts) {
    for (uint64_t seed = 1; seed <= 500; seed++) {
        movements m = {.graph = fb_graph_new(), .random = {seed}};
        int rank = (int)movements_below(&m, 4);
        int64_t sizes[4], start[4] = {0}, stop[4], numbers[512];
        for (int i = 0; i < rank; i++) stop[i] = sizes[i] = 1 + movements_below(&m, 8);
        int64_t count = elements_of(sizes, rank);
        for (int64_t i = 0; i < count; i++) numbers[i] = i * 7 + 1;
        fb_tensor now = put_tensor(m.graph, "now", FB_INT64, sizes, rank, numbers, (size_t)count * sizeof *numbers);
        fb_pieces pieces = {0};
        cut_up(&pieces, &m, now, rank, start, stop, (int)movements_below(&m, 7));
        for (size_t i = pieces.count; i > 1; i--) {
            size_t other = (size_t)movements_below(&m, (int64_t)i);
            fb_piece moved = pieces.items[i - 1];
            pieces.items[i - 1] = pieces.items[other];
            pieces.items[other] = moved;
        }
        fb_value joined = join_pieces(m.graph, &pieces, sizes, rank);
        ck_assert_uint_ne(joined.id, 0);
        if (pieces.count == 1) ck_assert_uint_eq(joined.id, pieces.items[0].from.id);
        int64_t *found = moved_numbers(m.graph, joined, (size_t)count);
        ck_assert_mem_eq(found, numbers, (size_t)count * sizeof *numbers);
        free(found);
        /* One twice: they overlap. One too few: a gap. One moved: both. */
        fb_piece last = pieces.items[pieces.count - 1];
        add_piece(&pieces, m.graph, now, rank, last.start, last.stop);
        ck_assert_uint_eq(join_pieces(m.graph, &pieces, sizes, rank).id, 0);
        pieces.count -= 2;
        ck_assert_uint_eq(join_pieces(m.graph, &pieces, sizes, rank).id, 0);
        if (rank) {
            last.stop[0]++;
            add_piece(&pieces, m.graph, now, rank, last.start, last.stop);
            ck_assert_uint_eq(join_pieces(m.graph, &pieces, sizes, rank).id, 0);
        }
        fb_pieces_free(&pieces);
        movements_free(&m);
    }
}
END_TEST

START_TEST(test_join_needs_a_cut_through_the_whole) {
    /* Five boxes like a pinwheel: every cut goes through one of them. */
    static const int64_t boxes[][4] = {{0, 0, 1, 2}, {0, 2, 2, 3}, {2, 1, 3, 3}, {1, 0, 3, 1}, {1, 1, 2, 2}};
    fb_graph *graph = fb_graph_new();
    int64_t sizes[] = {3, 3}, numbers[9] = {0};
    fb_tensor now = put_tensor(graph, "now", FB_INT64, sizes, 2, numbers, sizeof numbers);
    fb_pieces pieces = {0};
    for (size_t i = 0; i < 5; i++) add_piece(&pieces, graph, now, 2, boxes[i], boxes[i] + 2);
    ck_assert_uint_eq(join_pieces(graph, &pieces, sizes, 2).id, 0);
    fb_pieces_free(&pieces);
    fb_graph_free(graph);
}
END_TEST

/* A spiral of n boxes: each cut takes one off. Nested as deep as expressions may be, half of it for what is joined. */
static fb_value join_spiral(fb_graph *graph, int64_t n) {
    int64_t sizes[] = {n, n};
    fb_tensor now = put_tensor(graph, n % 2 ? "odd" : "even", FB_INT8, sizes, 2, NULL, 0);
    fb_pieces pieces = {0};
    for (int64_t i = 0; i < n; i++) {
        add_piece(&pieces, graph, now, 2, (int64_t[]){i, i}, (int64_t[]){i + 1, n});
        if (i + 1 < n) add_piece(&pieces, graph, now, 2, (int64_t[]){i + 1, i}, (int64_t[]){n, i + 1});
    }
    fb_value joined = join_pieces(graph, &pieces, sizes, 2);
    fb_pieces_free(&pieces);
    return joined;
}

START_TEST(test_join_is_not_nested_too_deep) {
    fb_graph *graph = fb_graph_new();
    fb_recipe_type type;
    fb_value joined = join_spiral(graph, 64);
    ck_assert_uint_ne(joined.id, 0);
    ck_assert_int_eq(fb_recipe_type_of(graph, joined, &type, NULL), FB_OK);
    ck_assert_uint_eq(join_spiral(graph, 67).id, 0);
    ck_assert(!fb_graph_out_of_memory(graph));
    fb_graph_free(graph);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("join");
    tcase_set_timeout(cases, 600);
    tcase_add_loop_test(cases, test_boxes_through_reshapes, 0, 6);
    tcase_add_test(cases, test_join_of_random_cuts);
    tcase_add_test(cases, test_join_needs_a_cut_through_the_whole);
    tcase_add_test(cases, test_join_is_not_nested_too_deep);
    return run_tests("join", cases);
}
