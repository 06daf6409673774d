/* The operator table, effects, arguments by name. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/view.h"
#include "tests/unit/call_graph.h"
#include "tests/unit/documents.h"
#include "tests/unit/quoted.h"
#include "tests/unit/run_tests.h"

/* ---- spellings ---------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *target;
    fb_op op;
} functions[] = {
    {"torch.nn.functional.linear", FB_OP_LINEAR},
    {"torch._C._nn.linear", FB_OP_LINEAR},
    {"torch.ops.aten.linear.default", FB_OP_LINEAR},
    {"torch.ops.aten.linear.out", FB_OP_UNKNOWN},
    {"torch.ops.aten.linear", FB_OP_UNKNOWN},
    {"linear", FB_OP_UNKNOWN},
    {"mymodule.linear", FB_OP_UNKNOWN},
    {"operator.add", FB_OP_ADD},
    {"operator.iadd", FB_OP_ADD | FB_OP_IN_PLACE},
    {"torch.add", FB_OP_ADD},
    {"torch.Tensor.add", FB_OP_ADD},
    {"torch.Tensor.add_", FB_OP_ADD | FB_OP_IN_PLACE},
    {"torch.ops.aten.add.Tensor", FB_OP_ADD},
    {"torch.ops.aten.add.Scalar", FB_OP_ADD},
    {"torch.ops.aten.add.out", FB_OP_UNKNOWN},
    {"torch.ops.aten.add_.Tensor", FB_OP_ADD | FB_OP_IN_PLACE},
    {"torch.ops.aten.relu_.default", FB_OP_RELU | FB_OP_IN_PLACE},
    {"torch.relu_", FB_OP_RELU | FB_OP_IN_PLACE},
    {"torch.ops.aten.fill_.Scalar", FB_OP_FILL | FB_OP_IN_PLACE},
    {"torch.ops.aten.copy_.default", FB_OP_COPY | FB_OP_IN_PLACE},
    {"torch.ops.aten.triu_.default", FB_OP_TRIU | FB_OP_IN_PLACE},
    {"torch.ops.aten.fill_diagonal_.default", FB_OP_FILL_DIAGONAL | FB_OP_IN_PLACE},
    {"torch.ops.aten.index_put_.default", FB_OP_INDEX_PUT | FB_OP_IN_PLACE},
    {"torch.ops.aten.detach_.default", FB_OP_DETACH | FB_OP_IN_PLACE},
    {"torch.ops.aten._assert_tensor_metadata.default", FB_OP_ASSERT},
    {"torch.ops.aten.__and__.Tensor", FB_OP_BITWISE_AND},
    {"torch.ops.aten.layer_norm_.default", FB_OP_UNKNOWN}, /* has no in-place form */
    {"torch.special.erf", FB_OP_ERF},
    {"torch.nn.init.normal_", FB_OP_UNKNOWN},
    {"torch.true_divide", FB_OP_TRUE_DIVIDE},
    {"torch.", FB_OP_UNKNOWN},
    {"torch.ops.aten.", FB_OP_UNKNOWN},
    {"torch.ops.aten..default", FB_OP_UNKNOWN},
    {"torch._", FB_OP_UNKNOWN},
    {"", FB_OP_UNKNOWN},
    {"torch.add ", FB_OP_UNKNOWN},
    {"torch.add sub", FB_OP_UNKNOWN},
};

/* What torch.export keeps though nothing reads it, by overload. */
START_TEST(test_kept) {
    static const char *const targets[] = {
        "torch.ops.aten._assert_async.msg",
        "torch.ops.aten._assert_scalar.default",
        "torch.ops.aten._assert_tensor_metadata.default",
        "torch.ops.aten.sym_constrain_range.default",
        "torch.ops.aten.sym_constrain_range_for_size.default",
        "torch.ops.aten._assert_async.default",
    };
    for (size_t i = 0; i < 6; i++) {
        const char *overload = targets[i] + strlen("torch.ops.aten.");
        const fb_op_facts *facts = fb_op_facts_of(fb_op_of_function(targets[i], strlen(targets[i])));
        ck_assert_msg(fb_has_word(facts->kept, overload, strlen(overload)) == (i < 5), "%s", targets[i]);
    }
}
END_TEST

START_TEST(test_functions) {
    const char *target = functions[_i].target;
    ck_assert_msg(fb_op_of_function(target, strlen(target)) == functions[_i].op, "%s", target);
}
END_TEST

START_TEST(test_methods_and_modules) {
    ck_assert_int_eq(fb_op_of_method("view", 4), FB_OP_VIEW);
    ck_assert_int_eq(fb_op_of_method("div_", 4), FB_OP_DIV | FB_OP_IN_PLACE);
    ck_assert_int_eq(fb_op_of_method("frobnicate", 10), FB_OP_UNKNOWN);
    ck_assert_int_eq(fb_op_of_method("apply_", 6), FB_OP_UNKNOWN);
    ck_assert_int_eq(fb_op_of_method("_", 1), FB_OP_UNKNOWN);
    ck_assert_int_eq(fb_op_of_module("torch.nn.Linear", 15), FB_OP_LINEAR);
    ck_assert_int_eq(fb_op_of_module("torch.nn.LazyLinear", 19), FB_OP_UNKNOWN);
    ck_assert_int_eq(fb_op_of_module("Linear", 6), FB_OP_UNKNOWN);
}
END_TEST

/* Each word of a list finds its own row: nothing is listed twice. */
static void check_words(const char *list, fb_op row, fb_op in_place, fb_op (*find)(const char *, size_t)) {
    while (list && *list) {
        size_t size = strcspn(list, " ");
        ck_assert_msg(find(list, size) == (row | in_place), "%.*s of %s", (int)size, list, fb_op_facts_of(row)->id);
        list += size + (list[size] == ' ');
    }
}

START_TEST(test_rows) {
    ck_assert_int_ge(FB_OP_COUNT, 200);
    for (fb_op op = 1; op < FB_OP_COUNT; op++) {
        const fb_op_facts *facts = fb_op_facts_of(op);
        check_words(facts->names, op, 0, fb_op_of_method);
        check_words(facts->functions, op, 0, fb_op_of_function);
        check_words(facts->in_place, op, FB_OP_IN_PLACE, fb_op_of_function);
        ck_assert(!facts->in_place || facts->flags & (FB_FACT_HAS_IN_PLACE | FB_FACT_MUTATES));
        ck_assert(!strstr(facts->parameters, "inplace") ||
                  facts->flags & FB_FACT_HAS_IN_PLACE); /* effects.c looks no further */
        for (const char *type = facts->modules; type && *type;) {
            char full[64];
            size_t size = strcspn(type, " ");
            snprintf(full, sizeof full, "torch.nn.%.*s", (int)size, type);
            ck_assert_msg(fb_op_of_module(full, strlen(full)) == op, "%s", full);
            type += size + (type[size] == ' ');
        }
    }
    ck_assert_int_eq(fb_op_facts_of(FB_OP_UNKNOWN)->flags, 0);
    ck_assert_ptr_eq(fb_op_facts_of(FB_OP_ADD | FB_OP_IN_PLACE), fb_op_facts_of(FB_OP_ADD));
    ck_assert_ptr_eq(fb_op_facts_of(0x7fff), fb_op_facts_of(FB_OP_UNKNOWN));
}
END_TEST

START_TEST(test_fixtures_are_known) {
    size_t size, unknown = 0;
    char *text = read_fixture(fixture_names[_i], "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(graph, n)->next) {
        const fb_node_row *row = fb_node_at(graph, n);
        if (row->opcode < FB_CALL_MODULE || row->opcode > FB_CALL_METHOD || fb_node_op(graph, n)) continue;
        ck_assert_str_eq(fb_node_target(graph, n), "torch.ops.higher_order.wrap_with_autocast");
        unknown++;
    }
    ck_assert_uint_le(unknown, 1);
    fb_graph_free(graph);
    free(text);
}
END_TEST

/* ---- one call in a small graph ------------------------------------------------------------------------------------------ */

static const struct {
    const char *call, *module;
    const char *effects; /* u unknown, i mutates input, r random, a may alias, A with any, m mutates module, e other effect */
} effects[] = {
    {FUNCTION("torch.relu", X), "", ""},
    {FUNCTION("torch.relu_", X), "", "ia"},
    {FUNCTION("torch.nn.functional.relu", ARGS(NODE("x") ",true")), "", "ia"},
    {FUNCTION("torch.nn.functional.relu", X "," KWARGS("'inplace':true")), "", "ia"},
    {FUNCTION("torch.nn.functional.relu", X "," KWARGS("'inplace':" NODE("y"))), "", "ia"},
    {FUNCTION("torch.nn.functional.relu", X "," KWARGS("'inplace':false")), "", ""},
    {MODULE(X), TYPE("torch.nn.ReLU", "'inplace':true", "false"), "ia"},
    {MODULE(X), TYPE("torch.nn.ReLU", "", "false"), ""},
    {MODULE(X), TYPE("torch.nn.Linear2", "", "false"), "uiraAme"}, /* by its name alone it may be anything */
    {MODULE(X), TYPE("torch.nn.Odd", "", "false"), "uiraAme"},
    {FUNCTION("mymodule.f", X), "", "uiraAme"},
    {METHOD("frobnicate", X), "", "uiraAme"},
    {METHOD("frobnicate_", X), "", "uiraAme"},
    {METHOD("add_", ARGS(NODE("x") ",1")), "", "ia"},
    {FUNCTION("operator.setitem", ARGS(NODE("x") ",0,1")), "", "iaA"},
    {FUNCTION("operator.setitem", ARGS(NODE("z") ",0," NODE("x"))), "", "i"},
    {METHOD("__setitem__", ARGS(NODE("x") ",0," NODE("y"))), "", "iaA"},
    {FUNCTION("operator.add", ARGS(NODE("x") "," NODE("y"))), "", "aA"},
    {FUNCTION("operator.add", ARGS(NODE("x") ",{'$tuple':[" NODE("z") "]}")), "", "aA"},
    {FUNCTION("operator.add", ARGS(NODE("x") "," NODE("y")) ",'meta':{'dtype':'float32'}"), "", ""},
    {FUNCTION("operator.add", ARGS(NODE("x") "," NODE("z"))), "", ""},
    {FUNCTION("operator.add", ARGS(NODE("z") "," NODE("x"))), "", ""},
    {FUNCTION("operator.add", ARGS(NODE("x") ",1")), "", ""},
    {FUNCTION("operator.iadd", ARGS(NODE("x") "," NODE("y"))), "", "iaA"},
    {FUNCTION("operator.iadd", ARGS(NODE("z") "," NODE("y"))), "", "ia"},
    {FUNCTION("operator.mul", ARGS(NODE("x") ",2")), "", "aA"},
    {FUNCTION("operator.mul", ARGS(NODE("x") ",2.0")), "", ""},
    {FUNCTION("operator.or_", ARGS(NODE("x") ",{'$dict':[['k'," NODE("y") "]]}")), "", "aA"},
    {FUNCTION("operator.sub", ARGS(NODE("x") "," NODE("y"))), "", "aA"},
    {FUNCTION("operator.truediv", ARGS(NODE("x") "," NODE("y"))), "", ""},
    {FUNCTION("torch.add", ARGS(NODE("x") "," NODE("y"))), "", ""},
    {METHOD("copy", X), "", "a"},
    {METHOD("resize_", ARGS(NODE("x") ",8")), "", "ia"},
    {FUNCTION("torch.add", ARGS(NODE("x") ",1") "," KWARGS("'out':" NODE("y"))), "", "uiraAme"},
    {FUNCTION("torch.add", ARGS(NODE("x") ",1") "," KWARGS("'out':null")), "", ""},
    {FUNCTION("torch.rand", ARGS("2")), "", "r"},
    {FUNCTION("torch.empty", ARGS("2")), "", "r"},
    {MODULE(X), TYPE("torch.nn.Dropout", "'p':0.1", "false"), "a"},
    {MODULE(X), TYPE("torch.nn.Dropout", "'p':0.1", "true"), "ra"},
    {FUNCTION("torch.nn.functional.dropout", X), "", "ra"},
    {FUNCTION("torch.nn.functional.dropout", ARGS(NODE("x") ",0.1,false")), "", "a"},
    {FUNCTION("torch.nn.functional.dropout", X "," KWARGS("'training':false")), "", "a"},
    {FUNCTION("torch.ops.aten.dropout.default", ARGS(NODE("x") ",0.1,true")), "", "ra"},
    {FUNCTION("torch.ops.aten.dropout.default", ARGS(NODE("x") ",0.1,false")), "", "a"},
    {FUNCTION("torch.nn.functional.scaled_dot_product_attention", ARGS(NODE("x") "," NODE("x") "," NODE("y"))), "", ""},
    {FUNCTION("torch.nn.functional.scaled_dot_product_attention", ARGS(NODE("x") "," NODE("x") "," NODE("y") ",null,0.5")), "",
     "r"},
    {MODULE(X), TYPE("torch.nn.BatchNorm2d", "'affine':false", "true"), "m"},
    {MODULE(X), TYPE("torch.nn.BatchNorm2d", "'affine':false", "false"), ""},
    {FUNCTION("torch.nn.functional.batch_norm", ARGS(NODE("x") "," NODE("y") "," NODE("y"))), "", ""},
    {FUNCTION("torch.nn.functional.batch_norm", ARGS(NODE("x") "," NODE("y") "," NODE("y") ",null,null,true")), "", "uiraAme"},
    {FUNCTION("torch.ops.aten.batch_norm.default", ARGS(NODE("x") ",null,null," NODE("y") "," NODE("y") ",true,0.1,1e-5,true")),
     "", "uiraAme"},
    {FUNCTION("torch.ops.aten.batch_norm.default",
              ARGS(NODE("x") ",null,null," NODE("y") "," NODE("y") ",false,0.1,1e-5,true")),
     "", ""},
    {FUNCTION("torch.nn.functional.embedding", ARGS(NODE("x") "," NODE("y") ",null,1.0")), "", "uiraAme"},
    {FUNCTION("torch.nn.functional.embedding", ARGS(NODE("x") "," NODE("y"))), "", ""},
    {METHOD("view", ARGS(NODE("x") ",-1")), "", "a"},
    {METHOD("contiguous", X), "", "a"},
    {METHOD("to", ARGS(NODE("x") ",{'$dtype':'float16'}")), "", "a"},
    {METHOD("type", ARGS(NODE("x") ",{'$dtype':'float16'}")), "", "a"},
    {FUNCTION("operator.getitem", ARGS(NODE("x") ",0")), "", "a"},
    {FUNCTION("torch.flatten", X), "", "a"},
    {METHOD("expand", ARGS(NODE("x") ",2")), "", "a"},
    {METHOD("clone", X), "", ""},
    {FUNCTION("copy.copy", X), "", "a"},
    {FUNCTION("builtins.getattr", ARGS(NODE("x") ",'shape'")), "", ""},
    {FUNCTION("builtins.getattr", ARGS(NODE("x") ",'T'")), "", "a"},
    {FUNCTION("torch.ops.aten._assert_tensor_metadata.default", X), "", "e"},
    {FUNCTION("torch._C._set_grad_enabled", ARGS("false")), "", "e"},
};

START_TEST(test_effects) {
    fb_graph *graph = call_graph(effects[_i].call, effects[_i].module, "");
    fb_node node = node_named(graph, "f");
    fb_effects found = fb_op_effects(graph, node);
    char text[9] = "", *end = text;
    if (found.is_unknown) *end++ = 'u';
    if (found.mutates_input) *end++ = 'i';
    if (found.is_random) *end++ = 'r';
    if (found.may_alias_input) *end++ = 'a';
    if (found.may_alias_all) *end++ = 'A';
    if (found.mutates_module) *end++ = 'm';
    if (found.has_effect) *end++ = 'e';
    *end = '\0';
    ck_assert_msg(strcmp(text, effects[_i].effects) == 0, "%s: %s, not %s", effects[_i].call, text, effects[_i].effects);
    ck_assert_int_eq(fb_op_is_pure(graph, node), strpbrk(text, "uirme") == NULL);
    ck_assert(fb_op_is_pure(graph, node_named(graph, "x")));
    fb_graph_free(graph);
}
END_TEST

static const struct {
    const char *call, *parameter;
    const char *place; /* "0", "1", a keyword, or "" for none */
} arguments[] = {
    {FUNCTION("torch.add", ARGS(NODE("x") "," NODE("y"))), "other", "1"},
    {FUNCTION("torch.add", X "," KWARGS("'other':" NODE("y"))), "other", "other"},
    {FUNCTION("torch.add", KWARGS("'input':" NODE("x") ",'other':1")), "input", "input"},
    {FUNCTION("torch.ops.aten.add.Tensor", KWARGS("'self':" NODE("x") ",'other':1")), "input", "self"},
    {METHOD("transpose", ARGS(NODE("x") ",0,1")), "dim1", "2"},
    {METHOD("transpose", X), "dim0", ""},
    {FUNCTION("torch.sum", X "," KWARGS("'axis':1")), "dim", "axis"},
    {FUNCTION("torch.nn.functional.softmax", ARGS(NODE("x") ",1,3,{'$dtype':'float32'}")), "dtype", "3"},
    {FUNCTION("torch.softmax", ARGS(NODE("x") ",1,{'$dtype':'float32'}")), "dtype", "2"},
    {FUNCTION("torch.nn.functional.embedding", ARGS(NODE("x") "," NODE("y"))), "weight", "1"},
    {FUNCTION("torch.ops.aten.embedding.default", ARGS(NODE("x") "," NODE("y"))), "weight", "0"},
    {METHOD("where", ARGS(NODE("x") "," NODE("y") ",1")), "condition", "1"},
    {MODULE(X), "input", "0"},
    {MODULE(KWARGS("'input':" NODE("x"))), "input", "input"},
    {MODULE(ARGS(NODE("x") "," NODE("y"))), "weight", ""},
    {FUNCTION("mymodule.f", X), "input", ""},
};

START_TEST(test_arguments) {
    bool is_module = strstr(arguments[_i].call, "call_module");
    fb_graph *graph = call_graph(arguments[_i].call, is_module ? TYPE("torch.nn.Identity", "", "false") : "", "");
    fb_node node = node_named(graph, "f");
    fb_argument_place place;
    char text[32] = "";
    if (fb_call_argument_place(graph, node, arguments[_i].parameter, &place)) {
        if (place.is_keyword) snprintf(text, sizeof text, "%s", place.keyword);
        else snprintf(text, sizeof text, "%zu", place.index);
        fb_value value = place.is_keyword ? fb_node_kwarg(graph, node, place.keyword) : fb_node_arg(graph, node, place.index);
        ck_assert_uint_eq(fb_call_argument(graph, node, arguments[_i].parameter).id, value.id);
    } else {
        ck_assert_uint_eq(fb_call_argument(graph, node, arguments[_i].parameter).id, 0);
    }
    ck_assert_msg(strcmp(text, arguments[_i].place) == 0, "%s: %s", arguments[_i].call, text);
    fb_graph_free(graph);
}
END_TEST

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

int main(void) {
    TCase *cases = tcase_create("ops");
    tcase_add_test(cases, test_kept);
    tcase_add_loop_test(cases, test_functions, 0, LENGTH(functions));
    tcase_add_test(cases, test_methods_and_modules);
    tcase_add_test(cases, test_rows);
    tcase_add_loop_test(cases, test_fixtures_are_known, 0, fixture_count);
    tcase_add_loop_test(cases, test_effects, 0, LENGTH(effects));
    tcase_add_loop_test(cases, test_arguments, 0, LENGTH(arguments));
    return run_tests("ops", cases);
}
