/* Inverting movements: random ones against the reference evaluator, those of our passes, single ones. */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/weights/invert.h"
#include "tests/unit/documents.h"
#include "tests/unit/movements.h"
#include "tests/unit/quoted.h"
#include "tests/unit/run_tests.h"

static fb_status invert(fb_graph *graph, fb_tensor made, fb_tensor now, fb_pieces *pieces, bool *is_computed) {
    fb_error error = {0};
    fb_status status = fb_recipe_invert(graph, made, now, pieces, is_computed, &error);
    ck_assert_int_eq(error.status, status);
    return status;
}

/* ---- random movements ---------------------------------------------------------------------------------------------------- */

/* Nothing in the expression could be left out. */
static void expect_lean(const fb_graph *graph, fb_value expression) {
    fb_recipe_op op = fb_recipe_op_of(graph, expression);
    if (!op) return;
    fb_recipe_type type, inner;
    fb_value from = fb_recipe_arg(graph, expression, 0);
    ck_assert_int_eq(fb_recipe_type_of(graph, expression, &type, NULL), FB_OK);
    ck_assert_int_eq(fb_recipe_type_of(graph, from, &inner, NULL), FB_OK);
    bool is_same = type.rank == inner.rank && memcmp(type.sizes, inner.sizes, (size_t)type.rank * sizeof *type.sizes) == 0;
    if (op == FB_RECIPE_SLICE || op == FB_RECIPE_RESHAPE) ck_assert(!is_same);
    if (op != FB_RECIPE_SLICE) ck_assert_int_ne(fb_recipe_op_of(graph, from), op);
    expect_lean(graph, from);
}

typedef struct outcomes {
    size_t pieces, fillers, computed, joined, unjoined, chained;
} outcomes;

/* `now` holds (a random number << 16 | position). Every element of the piece must come from a position that holds it. */
static void check_piece(movements *m, const fb_piece *piece, const value *made, size_t *taken, outcomes *seen) {
    fb_recipe_type type;
    ck_assert_int_eq(fb_recipe_type_of(m->graph, piece->from, &type, NULL), FB_OK);
    ck_assert_int_eq(type.rank, piece->rank);
    int64_t count = 1;
    for (int i = 0; i < piece->rank; i++) {
        ck_assert_int_eq(type.sizes[i], piece->stop[i] - piece->start[i]);
        count *= type.sizes[i];
    }
    ck_assert_int_gt(count, 0);
    expect_lean(m->graph, piece->from);
    size_t source = 0;
    while (source < m->count && m->tensors[source].tensor.id != piece->source.id) source++;
    ck_assert(piece->source.id ? m->tensors[source].is_source : source == m->count);
    int64_t *numbers = moved_numbers(m->graph, piece->from, (size_t)count), filler;
    for (int64_t i = 0; i < count; i++) {
        int64_t position = numbers[i] & 0xffff, at = 0, rest = i, place = 1;
        for (int k = piece->rank - 1; k >= 0; k--) {
            at += (piece->start[k] + rest % type.sizes[k]) * place;
            rest /= type.sizes[k];
            if (piece->source.id) place *= m->tensors[source].elements.sizes[k];
        }
        double expected = (double)((int64_t)(source + 1) * SOURCE_STEP + at);
        if (!piece->source.id && fb_value_is_int(m->graph, piece->number, &filler)) expected = (double)filler;
        ck_assert_double_eq(*element(made, position), expected);
        taken[position]++;
    }
    free(numbers);
    seen->pieces++;
    seen->fillers += !piece->source.id;
    seen->chained += fb_recipe_op_of(m->graph, piece->from) != FB_RECIPE_NONE;
}

/* Joins the pieces of one source, where they can be, and looks at what comes out. */
static void check_join(movements *m, const moved_tensor *source, const fb_pieces *pieces, outcomes *seen) {
    const fb_piece **own = calloc(pieces->count + 1, sizeof *own);
    size_t count = 0, expected = (size_t)element_count(&source->elements), covered = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        if (pieces->items[i].source.id == source->tensor.id) own[count++] = &pieces->items[i];
    }
    size_t *times = calloc(expected + 1, sizeof *times);
    int64_t *parts[64] = {0};
    for (size_t i = 0; i < count && count <= 64; i++) { /* what each element is now, by brute force */
        int64_t size = 1;
        for (int k = 0; k < own[i]->rank; k++) size *= own[i]->stop[k] - own[i]->start[k];
        parts[i] = moved_numbers(m->graph, own[i]->from, (size_t)size);
    }
    fb_value whole = fb_pieces_join(m->graph, own, count, source->elements.sizes, source->elements.rank);
    ck_assert(!fb_graph_out_of_memory(m->graph));
    int64_t *numbers = whole.id && count <= 64 ? moved_numbers(m->graph, whole, expected) : NULL;
    bool is_partition = count > 0 && count <= 64;
    for (size_t i = 0; i < count && count <= 64; i++) {
        int64_t size[FB_RECIPE_MAX_RANK], all = 1;
        for (int k = 0; k < own[i]->rank; k++) all *= size[k] = own[i]->stop[k] - own[i]->start[k];
        for (int64_t j = 0; j < all; j++) {
            int64_t at = 0, rest = j, place = 1;
            for (int k = own[i]->rank - 1; k >= 0; k--) {
                at += (own[i]->start[k] + rest % size[k]) * place;
                rest /= size[k];
                place *= source->elements.sizes[k];
            }
            if (numbers) ck_assert_int_eq(numbers[at], parts[i][j]);
            covered += times[at]++ == 0;
            is_partition &= times[at] == 1;
        }
        free(parts[i]);
    }
    is_partition &= covered == expected;
    if (count <= 64) ck_assert(is_partition || !whole.id);
    seen->joined += whole.id != 0;
    seen->unjoined += is_partition && !whole.id;
    free(numbers);
    free(times);
    free(own);
}

static void check_movement(uint64_t seed, outcomes *seen) {
    movements m;
    movements_make(&m, seed);
    const moved_tensor *made = &m.tensors[m.count - 1];
    int64_t count = element_count(&made->elements);
    ck_assert_int_lt(count, 65536);
    int64_t *fresh = calloc((size_t)count + 1, sizeof *fresh);
    for (int64_t i = 0; i < count; i++) fresh[i] = movements_below(&m, INT64_C(1) << 40) << 16 | i;
    fb_tensor now =
        put_tensor(m.graph, "now", FB_INT64, made->elements.sizes, made->elements.rank, fresh, (size_t)count * sizeof *fresh);
    fb_pieces pieces = {0};
    bool is_computed = true;
    ck_assert_int_eq(invert(m.graph, made->tensor, now, &pieces, &is_computed), FB_OK);
    if (is_computed) {
        ck_assert_uint_eq(pieces.count, 0);
        seen->computed++;
    } else {
        size_t *taken = calloc((size_t)count + 1, sizeof *taken);
        for (size_t i = 0; i < pieces.count; i++) check_piece(&m, &pieces.items[i], &made->elements, taken, seen);
        for (int64_t i = 0; i < count; i++) ck_assert_uint_eq(taken[i], 1);
        free(taken);
        for (size_t i = 0; i < m.count; i++) {
            if (m.tensors[i].is_source) check_join(&m, &m.tensors[i], &pieces, seen);
        }
    }
    free(fresh);
    fb_pieces_free(&pieces);
    movements_free(&m);
}

START_TEST(test_random_movements) {
    outcomes seen = {0};
    enum { CASES = 4000 };
    for (uint64_t seed = 1; seed <= CASES; seed++) check_movement(seed, &seen);
    /* Enough of each to mean something. */
    ck_assert_uint_lt(seen.computed, CASES / 10);
    ck_assert_uint_gt(seen.computed, 10);
    ck_assert_uint_gt(seen.pieces, 3 * CASES);
    ck_assert_uint_gt(seen.fillers, CASES / 2);
    ck_assert_uint_gt(seen.chained, 2 * CASES);
    ck_assert_uint_gt(seen.joined, CASES / 2);
}
END_TEST

/* ---- recipes of our passes ----------------------------------------------------------------------------------------------- */

static fb_graph *run_on(const char *fixture, const char *passes) {
    size_t size;
    char *text = read_fixture(fixture, "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    free(text);
    json_t *list = json_loads(passes, JSON_DECODE_ANY, NULL);
    fb_composition composition;
    fb_run run;
    fb_error error = {0};
    ck_assert_int_eq(fb_composition_read(list, "", NULL, &composition, &error), FB_OK);
    ck_assert_int_eq(fb_composition_run(&composition, graph, FB_LINT_END, NULL, &run, &error), FB_OK);
    fb_graph_free(graph);
    graph = fb_graph_copy(run.result, &(fb_work){0});
    fb_run_free(&run);
    fb_composition_free(&composition);
    json_decref(list);
    return graph;
}

static bool is_owned(const fb_graph *graph, fb_tensor tensor) {
    for (fb_module m = fb_first_module(graph); m.id; m = fb_module_at(graph, m)->next) {
        const fb_value_row *map = fb_value_at(graph, fb_module_at(graph, m)->parameters);
        for (uint32_t i = 1; i < map->count; i += 2) {
            if (fb_value_tensor(graph, map->items[i]).id == tensor.id) return true;
        }
    }
    return false;
}

static const struct {
    const char *fixture, *passes;
} moving[] = {
    {"toy", "[\"MergeLinears\"]"},
    {"toy", "[\"FuseBiasInLinear\"]"},
    {"toy", "[\"MergeLinears\",\"FuseBiasInLinear\"]"},
    {"toy", "[\"FuseBiasInLinear\",\"MergeLinears\"]"},
    {"bert-tiny", "[\"MergeLinears\"]"},
    {"bert-tiny", "[\"FuseBiasInLinear\"]"},
    {"bert-tiny", "[\"MergeLinears\",\"FuseBiasInLinear\"]"},
    {"bert-tiny", "[\"FuseBiasInLinear\",\"MergeLinears\"]"},
};

/* Whatever moved can be put back whole, each source from one tensor. */
START_TEST(test_recipes_of_passes) {
    fb_graph *graph = run_on(moving[_i].fixture, moving[_i].passes);
    size_t made = 0, restored = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
        if (!fb_tensor_at(graph, t)->recipe.id || !is_owned(graph, t)) continue;
        fb_pieces pieces = {0};
        bool is_computed = true;
        ck_assert_int_eq(invert(graph, t, t, &pieces, &is_computed), FB_OK);
        ck_assert(!is_computed);
        for (size_t i = 0; i < pieces.count; i++) {
            const fb_piece *piece = &pieces.items[i];
            int64_t sizes[FB_RECIPE_MAX_RANK];
            fb_recipe_type type;
            if (!piece->source.id) continue; /* zeros for a bias that is not there */
            fb_value shape = fb_tensor_at(graph, piece->source)->shape;
            int rank = fb_shape_rank(graph, shape);
            for (int k = 0; k < rank; k++) sizes[k] = fb_shape_size(graph, shape, k);
            fb_value whole = fb_pieces_join(graph, &piece, 1, sizes, rank);
            ck_assert_uint_eq(whole.id, piece->from.id);
            ck_assert_int_eq(fb_recipe_type_of(graph, whole, &type, NULL), FB_OK);
            ck_assert_int_eq(type.rank, rank);
            ck_assert_mem_eq(type.sizes, sizes, (size_t)rank * sizeof *sizes);
            restored++;
        }
        fb_pieces_free(&pieces);
        made++;
    }
    ck_assert_uint_gt(made, 0);
    ck_assert_uint_gt(restored, made);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_folds_are_computed) {
    fb_graph *graph = run_on("resnet-tiny", "[\"FuseBatchNorm2dInConv2d\"]");
    size_t made = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
        if (!fb_tensor_at(graph, t)->recipe.id || !is_owned(graph, t)) continue;
        fb_pieces pieces = {0};
        bool is_computed = false;
        ck_assert_int_eq(invert(graph, t, t, &pieces, &is_computed), FB_OK);
        ck_assert(is_computed);
        ck_assert_uint_eq(pieces.count, 0);
        fb_pieces_free(&pieces);
        made++;
    }
    ck_assert_uint_gt(made, 0);
    fb_graph_free(graph);
}
END_TEST

/* ---- single cases -------------------------------------------------------------------------------------------------------- */

#define T(name, shape, rest) "{'name':'" name "','dtype':'float32','shape':" shape rest "}"
#define OP(name, args, rest) "{'op':'" name "','args':[" args "]" rest "}"
#define ROOT "{'path':'','type':'M','parameters':{'m':'m'},'buffers':{'n':'n','a':'a','b':'b'}}"
#define OUT "{'name':'output','op':'output','target':'output','args':[null]}"

/* `pieces`: "source start:stop,… from" each, over the tensor m that has the recipe; or "computed". */
static const struct {
    const char *shape, *recipe, *pieces;
} cases[] = {
    {"[2,3]", "'a'", "a 0:2,0:3, \"m\"\n"},
    {"[6]", OP("reshape", "'a'", ",'shape':[6]"), "a 0:2,0:3, {\"op\":\"reshape\",\"args\":[\"m\"],\"shape\":[2,3]}\n"},
    {"[3,2]", OP("permute", "'a'", ",'dims':[1,0]"), "a 0:2,0:3, {\"op\":\"permute\",\"args\":[\"m\"],\"dims\":[1,0]}\n"},
    {"[2,3]", OP("permute", OP("permute", "'a'", ",'dims':[1,0]"), ",'dims':[1,0]"), "a 0:2,0:3, \"m\"\n"},
    {"[2,3]", OP("reshape", OP("reshape", "'a'", ",'shape':[6]"), ",'shape':[2,3]"), "a 0:2,0:3, \"m\"\n"},
    {"[1,3]", OP("slice", "'a'", ",'axis':0,'start':1,'stop':2"), "a 1:2,0:3, \"m\"\n"},
    {"[0,3]", OP("slice", "'a'", ",'axis':0,'start':1,'stop':1"), ""},
    {"[4]",
     OP("concat",
        OP("full", "", ",'shape':[1],'value':0.5") "," OP("reshape", OP("slice", "'a'", ",'axis':0,'start':0,'stop':1"),
                                                          ",'shape':[3]"),
        ",'axis':0"),
     "filler 0:1, {\"op\":\"slice\",\"args\":[\"m\"],\"axis\":0,\"start\":0,\"stop\":1}\n"
     "a 0:1,0:3, {\"op\":\"reshape\",\"args\":[{\"op\":\"slice\",\"args\":[\"m\"],\"axis\":0,\"start\":1,\"stop\":4}],"
     "\"shape\":[1,3]}\n"},
    /* A row of a reshape is a box of the argument, a column is none. */
    {"[1,2]", OP("slice", OP("reshape", "'a'", ",'shape':[3,2]"), ",'axis':0,'start':0,'stop':1"), "a 0:1,0:2, \"m\"\n"},
    {"[1,2]", OP("slice", OP("reshape", "'a'", ",'shape':[3,2]"), ",'axis':0,'start':1,'stop':2"), "computed"},
    {"[3,1]", OP("slice", OP("reshape", "'a'", ",'shape':[3,2]"), ",'axis':1,'start':0,'stop':1"), "computed"},
    {"[2,3]", OP("neg", "'a'", ""), "computed"},
    {"[2,6]", OP("concat", "'a'," OP("add", "'a','b'", ""), ",'axis':1"), "computed"},
};

static void write_pieces(const fb_graph *graph, const fb_pieces *pieces, fb_buffer *out) {
    for (size_t i = 0; i < pieces->count; i++) {
        const fb_piece *piece = &pieces->items[i];
        const char *name = piece->source.id ? fb_text(graph, fb_tensor_at(graph, piece->source)->name) : "filler";
        fb_buffer_printf(out, "%s ", name);
        for (int k = 0; k < piece->rank; k++) {
            fb_buffer_printf(out, "%lld:%lld,", (long long)piece->start[k], (long long)piece->stop[k]);
        }
        fb_buffer_char(out, ' ');
        fb_value_write(graph, piece->from, out);
        fb_buffer_char(out, '\n');
    }
}

START_TEST(test_single_recipes) {
    fb_buffer tensors = {0}, found = {0};
    fb_buffer_printf(&tensors, T("a", "[2,3]", "") "," T("b", "[2,3]", "") "," T("n", "[2]", "") ",");
    fb_buffer_printf(&tensors, "{'name':'m','dtype':'float32','shape':%s,'recipe':%s}", cases[_i].shape, cases[_i].recipe);
    fb_graph *graph = quoted_graph(OUT, ROOT, fb_buffer_text(&tensors));
    fb_tensor made = fb_tensor_find(graph, "m");
    fb_pieces pieces = {0};
    bool is_computed;
    ck_assert_int_eq(invert(graph, made, made, &pieces, &is_computed), FB_OK);
    if (is_computed) fb_buffer_string(&found, "computed");
    write_pieces(graph, &pieces, &found);
    ck_assert_str_eq(fb_buffer_text(&found), cases[_i].pieces);
    fb_pieces_free(&pieces);
    fb_buffer_free(&tensors);
    fb_buffer_free(&found);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_tensor_without_recipe) {
    fb_graph *graph = fb_graph_new();
    int64_t sizes[40];
    for (int i = 0; i < 40; i++) sizes[i] = 1;
    fb_tensor scalar = put_tensor(graph, "scalar", FB_FLOAT32, sizes, 0, NULL, 0);
    fb_tensor deep = put_tensor(graph, "deep", FB_FLOAT32, sizes, 40, NULL, 0);
    fb_tensor empty = put_tensor(graph, "empty", FB_FLOAT32, (int64_t[]){3, 0}, 2, NULL, 0);
    fb_tensor now = put_tensor(graph, "now", FB_FLOAT32, sizes, 0, NULL, 0);
    fb_pieces pieces = {0};
    bool is_computed = true;
    ck_assert_int_eq(invert(graph, empty, empty, &pieces, &is_computed), FB_OK);
    ck_assert(!is_computed && pieces.count == 0);
    ck_assert_int_eq(invert(graph, scalar, now, &pieces, &is_computed), FB_OK);
    ck_assert(!is_computed && pieces.count == 1);
    ck_assert_uint_eq(pieces.items[0].source.id, scalar.id);
    ck_assert_uint_eq(pieces.items[0].from.id, fb_recipe_tensor(graph, now).id);
    /* What cannot be followed leaves what was there. */
    ck_assert_int_eq(invert(graph, deep, deep, &pieces, &is_computed), FB_OK);
    ck_assert(is_computed && pieces.count == 1);
    fb_pieces_free(&pieces);
    fb_graph_free(graph);
}
END_TEST

int main(void) {
    TCase *cases_of_it = tcase_create("invert");
    tcase_set_timeout(cases_of_it, 600);
    tcase_add_test(cases_of_it, test_random_movements);
    tcase_add_loop_test(cases_of_it, test_recipes_of_passes, 0, (int)(sizeof moving / sizeof *moving));
    tcase_add_test(cases_of_it, test_folds_are_computed);
    tcase_add_loop_test(cases_of_it, test_single_recipes, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(cases_of_it, test_tensor_without_recipe);
    return run_tests("invert", cases_of_it);
}
