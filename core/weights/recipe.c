/* The operations of recipes as a table, and the making of expressions. */
#include "core/weights/recipe.h"

#include <stdlib.h>
#include <string.h>

static const fb_recipe_facts table[FB_RECIPE_OP_COUNT] = {
    [FB_RECIPE_CONCAT] = {"concat", 1, -1, true, {{"axis", FB_MEMBER_INT}}},
    [FB_RECIPE_SLICE] = {"slice", 1, 1, true, {{"axis", FB_MEMBER_INT}, {"start", FB_MEMBER_INT}, {"stop", FB_MEMBER_INT}}},
    [FB_RECIPE_RESHAPE] = {"reshape", 1, 1, true, {{"shape", FB_MEMBER_INTS}}},
    [FB_RECIPE_PERMUTE] = {"permute", 1, 1, true, {{"dims", FB_MEMBER_INTS}}},
    [FB_RECIPE_FULL] = {"full", 0, 0, true, {{"shape", FB_MEMBER_INTS}, {"value", FB_MEMBER_NUMBER}}},
    [FB_RECIPE_ADD] = {"add", 2, 2, false, {{0}}},
    [FB_RECIPE_SUB] = {"sub", 2, 2, false, {{0}}},
    [FB_RECIPE_MUL] = {"mul", 2, 2, false, {{0}}},
    [FB_RECIPE_DIV] = {"div", 2, 2, false, {{0}}},
    [FB_RECIPE_NEG] = {"neg", 1, 1, false, {{0}}},
    [FB_RECIPE_SQRT] = {"sqrt", 1, 1, false, {{0}}},
    [FB_RECIPE_RSQRT] = {"rsqrt", 1, 1, false, {{0}}},
    [FB_RECIPE_EXP] = {"exp", 1, 1, false, {{0}}},
    [FB_RECIPE_SIN] = {"sin", 1, 1, false, {{0}}},
    [FB_RECIPE_COS] = {"cos", 1, 1, false, {{0}}},
    [FB_RECIPE_MAXIMUM] = {"maximum", 2, 2, false, {{0}}},
    [FB_RECIPE_MINIMUM] = {"minimum", 2, 2, false, {{0}}},
    [FB_RECIPE_MATMUL] = {"matmul", 2, 2, false, {{0}}},
    [FB_RECIPE_ABSMAX] = {"absmax", 1, 1, false, {{"dims", FB_MEMBER_INTS}}},
    [FB_RECIPE_ROUND] = {"round", 1, 1, false, {{0}}},
    [FB_RECIPE_INDEX_SELECT] = {"index_select", 2, 2, false, {{"axis", FB_MEMBER_INT}}},
};

const fb_recipe_facts *fb_recipe_facts_of(fb_recipe_op op) {
    return &table[op];
}

bool fb_recipe_rounds_to(fb_dtype dtype) {
    return fb_dtype_is_computed(dtype) || dtype == FB_INT8;
}

fb_recipe_op fb_recipe_op_find(const char *name) {
    for (fb_recipe_op op = FB_RECIPE_CONCAT; op < FB_RECIPE_OP_COUNT; op++) {
        if (*table[op].name == *name && strcmp(table[op].name, name) == 0) return op;
    }
    return FB_RECIPE_NONE;
}

fb_recipe_op fb_recipe_op_of(const fb_graph *graph, fb_value expression) {
    if (fb_value_kind(graph, expression) != FB_EXPRESSION) return FB_RECIPE_NONE;
    return fb_recipe_op_find(fb_text(graph, fb_value_at(graph, expression)->symbol));
}

size_t fb_recipe_arg_count(const fb_graph *graph, fb_value expression) {
    return fb_value_at(graph, fb_value_item(graph, expression, 0))->count;
}

fb_value fb_recipe_arg(const fb_graph *graph, fb_value expression, size_t index) {
    return fb_value_item(graph, fb_value_item(graph, expression, 0), index);
}

fb_value fb_recipe_value(const fb_graph *graph, fb_value expression, const char *member) {
    return fb_map_value(graph, fb_value_item(graph, expression, 1), member);
}

int64_t fb_recipe_int(const fb_graph *graph, fb_value expression, const char *member) {
    int64_t number = 0;
    fb_value_is_int(graph, fb_recipe_value(graph, expression, member), &number);
    return number;
}

/* ---- making ---------------------------------------------------------------------------------------------------------- */

/* `members` holds the values in the table's order. */
static fb_value make(fb_graph *graph, fb_recipe_op op, const fb_value *args, size_t count, const fb_value *members) {
    fb_value pairs[2 * (sizeof table[0].members / sizeof table[0].members[0])];
    size_t size = 0;
    for (size_t i = 0; table[op].members[i].name; i++) {
        pairs[size++] = fb_make_string(graph, table[op].members[i].name);
        pairs[size++] = members[i];
    }
    fb_value items[2] = {fb_make_list(graph, args, count), fb_make_items(graph, FB_MAP, (fb_symbol){0}, pairs, size)};
    fb_symbol name = fb_intern(graph, table[op].name);
    if (!name.id) return (fb_value){0};
    return fb_make_items(graph, FB_EXPRESSION, name, items, 2);
}

fb_value fb_recipe_tensor(fb_graph *graph, fb_tensor tensor) {
    return tensor.id ? fb_make_tensor(graph, tensor) : (fb_value){0};
}

fb_value fb_recipe_concat(fb_graph *graph, int64_t axis, const fb_value *parts, size_t count) {
    fb_value members[] = {fb_make_int(graph, axis)};
    return make(graph, FB_RECIPE_CONCAT, parts, count, members);
}

fb_value fb_recipe_slice(fb_graph *graph, fb_value from, int64_t axis, int64_t start, int64_t stop) {
    fb_value members[] = {fb_make_int(graph, axis), fb_make_int(graph, start), fb_make_int(graph, stop)};
    return make(graph, FB_RECIPE_SLICE, &from, 1, members);
}

fb_value fb_recipe_reshape(fb_graph *graph, fb_value from, const int64_t *sizes, size_t rank) {
    fb_value members[] = {fb_make_shape(graph, sizes, rank)};
    return make(graph, FB_RECIPE_RESHAPE, &from, 1, members);
}

fb_value fb_recipe_permute(fb_graph *graph, fb_value from, const int64_t *dims, size_t rank) {
    fb_value members[] = {fb_make_shape(graph, dims, rank)};
    return make(graph, FB_RECIPE_PERMUTE, &from, 1, members);
}

fb_value fb_recipe_full(fb_graph *graph, const int64_t *sizes, size_t rank, fb_value number) {
    fb_value members[] = {fb_make_shape(graph, sizes, rank), number};
    return make(graph, FB_RECIPE_FULL, NULL, 0, members);
}

static fb_value make_binary(fb_graph *graph, fb_recipe_op op, fb_value a, fb_value b) {
    fb_value args[] = {a, b};
    return make(graph, op, args, 2, NULL);
}

fb_value fb_recipe_zeros(fb_graph *graph, const int64_t *sizes, size_t rank, fb_dtype dtype) {
    fb_value zero = dtype == FB_BOOL             ? fb_make_bool(graph, false)
                    : fb_dtype_is_integer(dtype) ? fb_make_int(graph, 0)
                                                 : fb_make_float(graph, 0);
    return fb_recipe_full(graph, sizes, rank, zero);
}

fb_value fb_recipe_add(fb_graph *graph, fb_value a, fb_value b) {
    return make_binary(graph, FB_RECIPE_ADD, a, b);
}

fb_value fb_recipe_sub(fb_graph *graph, fb_value a, fb_value b) {
    return make_binary(graph, FB_RECIPE_SUB, a, b);
}

fb_value fb_recipe_mul(fb_graph *graph, fb_value a, fb_value b) {
    return make_binary(graph, FB_RECIPE_MUL, a, b);
}

fb_value fb_recipe_rounded(fb_graph *graph, fb_tensor tensor) {
    return fb_recipe_mul(graph, fb_recipe_tensor(graph, tensor), fb_recipe_full(graph, NULL, 0, fb_make_int(graph, 1)));
}

fb_value fb_recipe_div(fb_graph *graph, fb_value a, fb_value b) {
    return make_binary(graph, FB_RECIPE_DIV, a, b);
}

fb_value fb_recipe_neg(fb_graph *graph, fb_value a) {
    return make(graph, FB_RECIPE_NEG, &a, 1, NULL);
}

fb_value fb_recipe_sqrt(fb_graph *graph, fb_value a) {
    return make(graph, FB_RECIPE_SQRT, &a, 1, NULL);
}

fb_value fb_recipe_rsqrt(fb_graph *graph, fb_value a) {
    return make(graph, FB_RECIPE_RSQRT, &a, 1, NULL);
}

fb_value fb_recipe_exp(fb_graph *graph, fb_value a) {
    return make(graph, FB_RECIPE_EXP, &a, 1, NULL);
}

fb_value fb_recipe_sin(fb_graph *graph, fb_value a) {
    return make(graph, FB_RECIPE_SIN, &a, 1, NULL);
}

fb_value fb_recipe_cos(fb_graph *graph, fb_value a) {
    return make(graph, FB_RECIPE_COS, &a, 1, NULL);
}

fb_value fb_recipe_maximum(fb_graph *graph, fb_value a, fb_value b) {
    return make_binary(graph, FB_RECIPE_MAXIMUM, a, b);
}

fb_value fb_recipe_minimum(fb_graph *graph, fb_value a, fb_value b) {
    return make_binary(graph, FB_RECIPE_MINIMUM, a, b);
}

fb_value fb_recipe_round(fb_graph *graph, fb_value a) {
    return make(graph, FB_RECIPE_ROUND, &a, 1, NULL);
}

fb_value fb_recipe_matmul(fb_graph *graph, fb_value a, fb_value b) {
    return make_binary(graph, FB_RECIPE_MATMUL, a, b);
}

fb_value fb_recipe_absmax(fb_graph *graph, fb_value from, const int64_t *dims, size_t count) {
    fb_value members[] = {fb_make_shape(graph, dims, count)};
    return make(graph, FB_RECIPE_ABSMAX, &from, 1, members);
}

fb_value fb_recipe_index_select(fb_graph *graph, fb_value from, int64_t axis, fb_tensor index) {
    fb_value args[] = {from, fb_recipe_tensor(graph, index)}, members[] = {fb_make_int(graph, axis)};
    return make(graph, FB_RECIPE_INDEX_SELECT, args, 2, members);
}
