/* Recipes: making them, their types, the checks of a whole graph, ranges of dtypes. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/build.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe.h"
#include "tests/unit/documents.h"
#include "tests/unit/quoted.h"
#include "tests/unit/run_tests.h"

/* ---- documents ---------------------------------------------------------------------------------------------------------- */

#define TENSOR(name, dtype, shape) "{'name':'" name "','dtype':'" dtype "','shape':" shape "}"
#define TENSORS                                                                                                                           \
    TENSOR("a", "float32", "[2,3]")                                                                                                       \
    "," TENSOR("b", "float32", "[4,3]") "," TENSOR("v", "float32", "[3]") "," TENSOR("s", "float32", "[]") "," TENSOR(                    \
        "h", "float16",                                                                                                                   \
        "[2,3]") "," TENSOR("i", "int64",                                                                                                 \
                            "[2,3]") "," TENSOR("t", "float32",                                                                           \
                                                "[5,3,2]") "," TENSOR("z", "float32",                                                     \
                                                                      "[0,3]") "," TENSOR("f8", "float8_e5m2",                            \
                                                                                          "[2,3]") "," TENSOR("q", "bool",                \
                                                                                                              "[2,3]") "," TENSOR("huge", \
                                                                                                                                  "int8", \
                                                                                                                                  "[2147483648,2147483648]")
#define PARAMETERS "'a':'a','b':'b','v':'v','s':'s','h':'h','i':'i','t':'t','z':'z','f8':'f8','q':'q','huge':'huge','r':'r'"
#define ROOT "{'path':'','type':'M','parameters':{" PARAMETERS "}}"
#define OUT "{'name':'output','op':'output','target':'output','args':[null]}"
#define OP(name, args, rest) "{'op':'" name "','args':[" args "]" rest "}"
#define FULL(shape, value) "{'op':'full','args':[],'shape':" shape ",'value':" value "}"

/* `tensor` is dtype and shape of the tensor that the recipe defines; `errors` what the reader says. The tensor is the twelfth.
 */
static const struct {
    const char *dtype, *shape, *recipe, *errors;
} recipes[] = {
    {"float32", "[2,3]", "'a'", ""},
    {"float32", "[6,3]", OP("concat", "'a','b'", ",'axis':0"), ""},
    {"float32", "[2,3]", OP("concat", "'a'", ",'axis':0"), ""},
    {"float32", "[2,3]", OP("concat", "'z','a'", ",'axis':0"), ""},
    {"float32", "[6,3]", OP("concat", "'a','b'", ",'axis':-2"), "bad-recipe /tensors/11/recipe/axis\n"},
    {"float32", "[6,3]", OP("concat", "'a','b'", ",'axis':2"), "bad-recipe /tensors/11/recipe/axis\n"},
    {"float32", "[6,3]", OP("concat", "'a','b'", ",'axis':1"), "bad-recipe /tensors/11/recipe/args/1\n"},
    {"float32", "[6,3]", OP("concat", "'a','v'", ",'axis':0"), "bad-recipe /tensors/11/recipe/args/1\n"},
    {"float32", "[4,3]", OP("concat", "'a','h'", ",'axis':0"), "bad-recipe /tensors/11/recipe/args/1\n"},
    {"float32", "[4,3]", OP("concat", OP("neg", "'a'", "") ",'h'", ",'axis':0"), ""},
    {"float32", "[4,3]", OP("concat", OP("neg", FULL("[2,3]", "1"), "") ",'i'", ",'axis':0"),
     "bad-recipe /tensors/11/recipe/args/1\n"},
    {"float32", "[0]", OP("concat", "", ",'axis':0"), "bad-recipe /tensors/11/recipe/args\n"},
    {"float32", "[5,3]", OP("concat", "'a'," FULL("[3,3]", "0"), ",'axis':0"), ""},
    {"int64", "[5,3]", OP("concat", FULL("[3,3]", "-9") ",'i'", ",'axis':0"), ""},
    {"int64", "[5,3]", OP("concat", FULL("[3,3]", "0.5") ",'i'", ",'axis':0"), "bad-recipe /tensors/11/recipe/args/0/value\n"},
    {"bool", "[3,3]", OP("concat", FULL("[1,3]", "true") ",'q'", ",'axis':0"), ""},
    {"bool", "[3,3]", OP("concat", FULL("[1,3]", "1") ",'q'", ",'axis':0"), "bad-recipe /tensors/11/recipe/args/0/value\n"},
    {"float16", "[3,3]", OP("concat", FULL("[1,3]", "1e5") ",'h'", ",'axis':0"),
     "bad-recipe /tensors/11/recipe/args/0/value\n"},
    {"float16", "[3,3]", OP("concat", FULL("[1,3]", "{'$float':'inf'}") ",'h'", ",'axis':0"), ""},
    {"uint8", "[2]", FULL("[2]", "255"), ""},
    {"uint8", "[2]", FULL("[2]", "256"), "bad-recipe /tensors/11/recipe/value\n"},
    {"float32", "[2]", FULL("[2]", "'x'"), "bad-recipe /tensors/11/recipe/value\n"},
    {"float32", "[2]", FULL("[-2]", "0"), "bad-recipe /tensors/11/recipe/shape\n"},
    {"float32", "[2]", FULL("2", "0"), "bad-recipe /tensors/11/recipe/shape\n"},
    {"float32", "[2]", FULL("[{'$int':'9223372036854775807'},2]", "0"), "bad-recipe /tensors/11/recipe\n"},
    {"float32", "[1,3]", OP("slice", "'a'", ",'axis':0,'start':1,'stop':2"), ""},
    {"float32", "[0,3]", OP("slice", "'a'", ",'axis':0,'start':2,'stop':2"), ""},
    {"float32", "[1,3]", OP("slice", "'a'", ",'axis':0,'start':2,'stop':1"), "bad-recipe /tensors/11/recipe/start\n"},
    {"float32", "[1,3]", OP("slice", "'a'", ",'axis':0,'start':-1,'stop':1"), "bad-recipe /tensors/11/recipe/start\n"},
    {"float32", "[1,3]", OP("slice", "'a'", ",'axis':0,'start':1,'stop':3"), "bad-recipe /tensors/11/recipe/stop\n"},
    {"float32", "[1,3]", OP("slice", "'a'", ",'axis':0,'start':1"), "bad-recipe /tensors/11/recipe\n"},
    {"float32", "[1,3]", OP("slice", "'a'", ",'axis':0,'start':1,'stop':2,'step':1"), "bad-recipe /tensors/11/recipe\n"},
    {"float32", "[1,3]", OP("slice", "'a'", ",'axis':0,'start':1.5,'stop':2"), "bad-recipe /tensors/11/recipe/start\n"},
    {"float32", "[]", OP("slice", "'s'", ",'axis':0,'start':0,'stop':0"), "bad-recipe /tensors/11/recipe/axis\n"},
    {"float32", "[3,2]", OP("reshape", "'a'", ",'shape':[3,2]"), ""},
    {"float32", "[1,1]", OP("reshape", "'s'", ",'shape':[1,1]"), ""},
    {"float32", "[0]", OP("reshape", "'z'", ",'shape':[0]"), ""},
    {"float32", "[6]", OP("reshape", "'a'", ",'shape':[-1]"), "bad-recipe /tensors/11/recipe/shape\n"},
    {"float32", "[5]", OP("reshape", "'a'", ",'shape':[5]"), "bad-recipe /tensors/11/recipe/shape\n"},
    {"float32", "[3,2,5]", OP("permute", "'t'", ",'dims':[1,2,0]"), ""},
    {"float32", "[3,2,5]", OP("permute", "'t'", ",'dims':[1,1,0]"), "bad-recipe /tensors/11/recipe/dims\n"},
    {"float32", "[3,2,5]", OP("permute", "'t'", ",'dims':[1,0]"), "bad-recipe /tensors/11/recipe/dims\n"},
    {"float32", "[3,2,5]", OP("permute", "'t'", ",'dims':[-1,0,1]"), "bad-recipe /tensors/11/recipe/dims\n"},
    {"float32", "[2,3]", OP("add", "'a','v'", ""), ""},
    {"float32", "[2,3]", OP("mul", "'s','a'", ""), ""},
    {"float32", "[0,3]", OP("sub", "'z','v'", ""), ""},
    {"float32", "[2,3]", OP("div", "'a','b'", ""), "bad-recipe /tensors/11/recipe\n"},
    {"float16", "[2,3]", OP("add", "'a','h'", ""), ""},
    {"float32", "[2,3]", OP("add", "'a','i'", ""), "bad-recipe /tensors/11/recipe/args/1\n"},
    {"float32", "[2,3]", OP("neg", "'f8'", ""), "bad-recipe /tensors/11/recipe/args/0\n"},
    {"float32", "[2,3]", OP("add", "'a'", ""), "bad-recipe /tensors/11/recipe/args\n"},
    {"float32", "[2,3]", OP("rsqrt", OP("add", "'a'," FULL("[]", "1e-5"), ""), ""), ""},
    {"float32", "[2,3]", OP("rsqrt", OP("add", "'a'," OP("sqrt", OP("neg", "'b'", ""), ""), ""), ""),
     "bad-recipe /tensors/11/recipe/args/0\n"},
    {"float32", "[2,4]", OP("matmul", "'a'," OP("permute", "'b'", ",'dims':[1,0]"), ""), ""},
    {"float32", "[2]", OP("matmul", "'a','v'", ""), ""},
    {"float32", "[]", OP("matmul", "'v','v'", ""), ""},
    {"float32", "[5,2]", OP("matmul", "'v','t'", ""), ""},
    {"float32", "[5,2,2]", OP("matmul", "'a','t'", ""), ""},
    {"float32", "[2,4]", OP("matmul", "'a','b'", ""), "bad-recipe /tensors/11/recipe\n"},
    {"float32", "[]", OP("matmul", "'s','v'", ""), "bad-recipe /tensors/11/recipe\n"},
    {"float32", "[2,3]", OP("matmul", FULL("[3,2,2]", "1") "," FULL("[2,2,2]", "1"), ""), "bad-recipe /tensors/11/recipe\n"},
    {"int8", "[2]", OP("concat", "'huge','huge','huge'", ",'axis':0"), "bad-recipe /tensors/11/recipe/args/0\n"},
    {"float16", "[2,3]", "'a'", "recipe-contradicts-tensor /tensors/11/recipe\n"},
    {"float32", "[3,2]", "'a'", "recipe-contradicts-tensor /tensors/11/recipe\n"},
    {"float32", "[2,1]", OP("absmax", "'a'", ",'dims':[1]"), ""},
    {"float16", "[1,3,1]", OP("absmax", "'t'", ",'dims':[2,0]"), ""},
    {"float32", "[2,3]", OP("absmax", "'a'", ",'dims':[]"), ""},
    {"float32", "[2,1]", OP("absmax", "'a'", ""), "bad-recipe /tensors/11/recipe\n"},
    {"float32", "[2,1]", OP("absmax", "'a'", ",'dims':[2]"), "bad-recipe /tensors/11/recipe/dims\n"},
    {"float32", "[2,1]", OP("absmax", "'a'", ",'dims':[-1]"), "bad-recipe /tensors/11/recipe/dims\n"},
    {"float32", "[2,1]", OP("absmax", "'a'", ",'dims':[1,1]"), "bad-recipe /tensors/11/recipe/dims\n"},
    {"float32", "[1,3]", OP("absmax", "'z'", ",'dims':[0]"), "bad-recipe /tensors/11/recipe/dims\n"},
    {"float32", "[0,1]", OP("absmax", "'z'", ",'dims':[1]"), ""},
    {"int64", "[2,1]", OP("absmax", "'i'", ",'dims':[1]"), "bad-recipe /tensors/11/recipe/args/0\n"},
    {"float32", "[6,3]", OP("index_select", "'a','i'", ",'axis':0"), ""},
    {"float32", "[2,6]", OP("index_select", OP("exp", "'a'", "") ",'i'", ",'axis':1"), ""},
    {"float32", "[6,3]", OP("index_select", "'a','i'", ""), "bad-recipe /tensors/11/recipe\n"},
    {"float32", "[6,3]", OP("index_select", "'a','i'", ",'axis':2"), "bad-recipe /tensors/11/recipe/axis\n"},
    {"float32", "[6,3]", OP("index_select", "'a','a'", ",'axis':0"), "bad-recipe /tensors/11/recipe/args/1\n"},
    {"float32", "[2,3]", OP("index_select", "'a'," FULL("[2]", "0"), ",'axis':0"), "bad-recipe /tensors/11/recipe/args/1\n"},
    {"float32", "[6,3]", OP("index_select", "'z','i'", ",'axis':0"), "bad-recipe /tensors/11/recipe/axis\n"},
    {"int64", "[6,3]", OP("index_select", "'i','i'", ",'axis':0"), "bad-recipe /tensors/11/recipe/args/0\n"},
    {"float32", "[2,3]", OP("maximum", "'a','v'", ""), ""},
    {"float32", "[2,3]", OP("minimum", "'a','i'", ""), "bad-recipe /tensors/11/recipe/args/1\n"},
    {"float32", "[2,3]", OP("exp", "'i'", ""), "bad-recipe /tensors/11/recipe/args/0\n"},
    {"float32", "[2,3]", OP("sin", OP("cos", "'a'", ""), ""), ""},
    {"float32", "[2,3]", OP("cos", "'i'", ""), "bad-recipe /tensors/11/recipe/args/0\n"},
    {"int8", "[2,3]", OP("div", "'a','v'", ""), ""},
    {"int8", "[2,3]", OP("round", "'a'", ""), ""},
    {"float16", "[2,3]", OP("round", OP("div", "'a','v'", ""), ""), ""},
    {"float32", "[2,3]", OP("round", "'a','a'", ""), "bad-recipe /tensors/11/recipe/args\n"},
    {"int64", "[2,3]", OP("round", "'i'", ""), "bad-recipe /tensors/11/recipe/args/0\n"},
    {"int8", "[2,3]", OP("mul", OP("div", "'i','v'", "") ",'v'", ""), "bad-recipe /tensors/11/recipe/args/0/args/0\n"},
    {"uint8", "[2,3]", OP("neg", "'a'", ""), "recipe-contradicts-tensor /tensors/11/recipe\n"},
    {"int64", "[2,3]", OP("neg", "'a'", ""), "recipe-contradicts-tensor /tensors/11/recipe\n"},
    {"float32", "[2,3]", "'r'", "recipe-cycle /tensors/11/recipe\n"},
    {"float32", "[2,3]", OP("neg", "'r'", ""), "recipe-cycle /tensors/11/recipe\n"},
};

START_TEST(test_types) {
    char tensors[4096];
    snprintf(tensors, sizeof tensors, TENSORS ",{'name':'r','dtype':'%s','shape':%s,'recipe':%s}", recipes[_i].dtype,
             recipes[_i].shape, recipes[_i].recipe);
    char *errors = quoted_errors(OUT, ROOT, tensors);
    /* `huge` is an impossible tensor: only what is said about the recipe counts. */
    char *line = errors;
    while (*line && strncmp(line, "bad-recipe", 10) != 0 && strncmp(line, "recipe-", 7) != 0) {
        line = strchr(line, '\n') + 1;
    }
    char *end = *line ? strchr(line, '\n') + 1 : line;
    *end = '\0';
    ck_assert_msg(strcmp(line, recipes[_i].errors) == 0, "%s: %s", recipes[_i].recipe, line);
    free(errors);
}
END_TEST

/* ---- made by hand ------------------------------------------------------------------------------------------------------- */

static fb_tensor add_tensor(fb_graph *graph, const char *name, fb_dtype dtype, const int64_t *sizes, size_t rank) {
    fb_tensor tensor = fb_graph_add_tensor(graph, fb_intern(graph, name), (fb_tensor){0});
    fb_tensor_row_at(graph, tensor)->dtype = (uint8_t)dtype;
    fb_tensor_row_at(graph, tensor)->shape = fb_make_shape(graph, sizes, rank);
    return tensor;
}

START_TEST(test_makers) {
    fb_graph *graph = fb_graph_new();
    fb_tensor tensor = add_tensor(graph, "w", FB_FLOAT32, (int64_t[]){4, 6}, 2);
    fb_value w = fb_recipe_tensor(graph, tensor), half = fb_make_float(graph, 0.5);
    fb_value parts[] = {fb_recipe_slice(graph, w, 1, 0, 2), fb_recipe_full(graph, (int64_t[]){4, 1}, 2, half)};
    fb_value joined = fb_recipe_concat(graph, 1, parts, 2);
    fb_value moved =
        fb_recipe_permute(graph, fb_recipe_reshape(graph, joined, (int64_t[]){2, 2, 3}, 3), (int64_t[]){2, 0, 1}, 3);
    fb_recipe_type type;
    fb_error error = {0};
    ck_assert_int_eq(fb_recipe_type_of(graph, moved, &type, &error), FB_OK);
    ck_assert(type.is_movement && type.dtype == FB_FLOAT32 && type.rank == 3);
    ck_assert(type.sizes[0] == 3 && type.sizes[1] == 2 && type.sizes[2] == 2);
    fb_value computed = fb_recipe_matmul(graph, fb_recipe_add(graph, moved, fb_recipe_neg(graph, moved)),
                                         fb_recipe_rsqrt(graph, fb_recipe_sqrt(graph, fb_recipe_div(graph, moved, w))));
    ck_assert_int_eq(fb_recipe_type_of(graph, computed, &type, &error), FB_INVALID); /* (3,2,2) / (4,6) */
    ck_assert_str_eq(error.code, "bad-recipe");
    ck_assert_str_eq(error.pointer, "/args/1/args/0/args/0");
    fb_value product = fb_recipe_mul(graph, fb_recipe_sub(graph, w, w), w);
    error = (fb_error){0};
    ck_assert_int_eq(fb_recipe_type_of(graph, product, &type, &error), FB_OK);
    ck_assert(!type.is_movement && type.rank == 2);
    ck_assert(fb_values_equal(graph, product, fb_recipe_mul(graph, fb_recipe_sub(graph, w, w), w)));
    ck_assert_int_eq(fb_recipe_op_of(graph, product), FB_RECIPE_MUL);
    ck_assert_int_eq(fb_recipe_op_of(graph, w), FB_RECIPE_NONE);
    ck_assert_uint_eq(fb_recipe_neg(graph, (fb_value){0}).id, 0);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_facts) {
    for (fb_recipe_op op = FB_RECIPE_CONCAT; op < FB_RECIPE_OP_COUNT; op++) {
        const fb_recipe_facts *facts = fb_recipe_facts_of(op);
        ck_assert_int_eq(fb_recipe_op_find(facts->name), op);
        for (const fb_recipe_member *m = facts->members; m->name && m[1].name; m++)
            ck_assert_int_lt(strcmp(m->name, m[1].name), 0);
    }
    ck_assert_int_eq(fb_recipe_op_find("pow"), FB_RECIPE_NONE);
    ck_assert_int_eq(fb_recipe_op_find(""), FB_RECIPE_NONE);
}
END_TEST

START_TEST(test_depth) {
    fb_graph *graph = fb_graph_new();
    fb_value chain = fb_recipe_tensor(graph, add_tensor(graph, "w", FB_FLOAT32, NULL, 0));
    fb_recipe_type type;
    fb_error error = {0};
    for (int i = 0; i < FB_RECIPE_MAX_DEPTH; i++) chain = fb_recipe_neg(graph, chain);
    ck_assert_int_eq(fb_recipe_type_of(graph, chain, &type, &error), FB_OK);
    chain = fb_recipe_neg(graph, chain);
    ck_assert_int_eq(fb_recipe_type_of(graph, chain, &type, &error), FB_INVALID);
    fb_graph_free(graph);
}
END_TEST

/* 100,000 tensors, each computed from the one before; then the first from the last. */
START_TEST(test_long_chain) {
    enum { LENGTH = 100000 };
    fb_graph *graph = fb_graph_new();
    fb_errors errors = {0};
    fb_tensor first = add_tensor(graph, "first", FB_FLOAT32, NULL, 0), last = first;
    for (int i = 0; i < LENGTH; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        fb_value recipe = fb_recipe_neg(graph, fb_recipe_tensor(graph, last));
        last = add_tensor(graph, name, FB_FLOAT32, NULL, 0);
        fb_tensor_row_at(graph, last)->recipe = recipe;
    }
    fb_recipe_check_all(graph, &errors);
    ck_assert_uint_eq(errors.total, 0);
    fb_tensor_row_at(graph, first)->recipe = fb_recipe_neg(graph, fb_recipe_tensor(graph, last));
    fb_recipe_check_all(graph, &errors);
    ck_assert_uint_eq(errors.total, 1);
    ck_assert_str_eq(errors.items[0].code, "recipe-cycle");
    ck_assert_str_eq(errors.items[0].pointer, "/tensors/1/recipe");
    fb_errors_free(&errors);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_two_cycles_and_a_reader) {
    fb_graph *graph = fb_graph_new();
    fb_errors errors = {0};
    fb_tensor t[5];
    static const int reads[5] = {1, 0, 3, 2, 0}; /* 0 <-> 1, 2 <-> 3, 4 reads 0 */
    for (int i = 0; i < 5; i++) t[i] = add_tensor(graph, (const char[]){(char)('a' + i), 0}, FB_FLOAT32, NULL, 0);
    for (int i = 0; i < 5; i++) fb_tensor_row_at(graph, t[i])->recipe = fb_recipe_tensor(graph, t[reads[i]]);
    fb_recipe_check_all(graph, &errors);
    char *text = errors_text(&errors);
    ck_assert_str_eq(text, "recipe-cycle /tensors/1/recipe\nrecipe-cycle /tensors/3/recipe\n");
    free(text);
    fb_errors_free(&errors);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_ranges) {
    fb_dtype_range range;
    ck_assert(fb_dtype_limits(FB_FLOAT16, &range));
    ck_assert_double_eq(range.largest, 65504);
    ck_assert_double_eq(range.smallest_normal, 6.103515625e-05);
    ck_assert_int_eq(range.mantissa_bits, 11);
    ck_assert(fb_dtype_limits(FB_BFLOAT16, &range));
    ck_assert_double_eq(range.largest, 3.3895313892515355e38);
    ck_assert(fb_dtype_limits(FB_FLOAT32, &range));
    ck_assert_double_eq(range.largest, 3.4028234663852886e38);
    ck_assert_double_eq(range.smallest_normal, 1.1754943508222875e-38);
    ck_assert(fb_dtype_limits(FB_FLOAT64, &range));
    ck_assert_double_eq(range.smallest_subnormal, 5e-324);
    ck_assert(!fb_dtype_limits(FB_INT64, &range));
    ck_assert(!fb_dtype_limits(FB_DTYPE_UNKNOWN, &range));
    ck_assert(!fb_dtype_limits(FB_DTYPE_COUNT, &range));
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("recipe");
    tcase_add_loop_test(cases, test_types, 0, (int)(sizeof recipes / sizeof *recipes));
    tcase_add_test(cases, test_makers);
    tcase_add_test(cases, test_facts);
    tcase_add_test(cases, test_depth);
    tcase_add_test(cases, test_long_chain);
    tcase_add_test(cases, test_two_cycles_and_a_reader);
    tcase_add_test(cases, test_ranges);
    return run_tests("recipe", cases);
}
