/* The operator table, effects, arguments by name, views. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/view.h"
#include "tests/unit/documents.h"
#include "tests/unit/quoted.h"

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

#define INPUT(name) "{'name':'" name "','op':'placeholder','target':'" name "'},"
#define TENSOR_INPUT(name) "{'name':'" name "','op':'placeholder','target':'" name "','meta':{'dtype':'float32'}},"
#define NODE(name) "{'$node':'" name "'}"
#define END ",{'name':'output','op':'output','target':'output','args':[null]}"
#define ROOT "{'path':'','type':'M'}"

/* `call` is the rest of a node after its name. */
static fb_graph *graph_with_reads(const char *reads, const char *call, const char *modules, const char *tensors) {
    char nodes[4096];
    snprintf(nodes, sizeof nodes, INPUT("x") INPUT("y") TENSOR_INPUT("z") "%s{'name':'f',%s}" END, reads, call);
    char all[4096];
    snprintf(all, sizeof all, ROOT "%s%s", *modules ? "," : "", modules);
    return quoted_graph(nodes, all, tensors);
}

static fb_graph *graph_with(const char *call, const char *modules, const char *tensors) {
    return graph_with_reads("", call, modules, tensors);
}

#define FUNCTION(target, rest) "'op':'call_function','target':'" target "'," rest
#define METHOD(target, rest) "'op':'call_method','target':'" target "'," rest
#define MODULE(rest) "'op':'call_module','target':'m'," rest
#define ARGS(args) "'args':[" args "]"
#define KWARGS(kwargs) "'kwargs':{" kwargs "}"
#define X ARGS(NODE("x"))
#define TYPE(type, config, training) "{'path':'m','type':'" type "','config':{" config "},'training':" training "}"

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
    fb_graph *graph = graph_with(effects[_i].call, effects[_i].module, "");
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
    fb_graph *graph = graph_with(arguments[_i].call, is_module ? TYPE("torch.nn.Identity", "", "false") : "", "");
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

/* ---- views -------------------------------------------------------------------------------------------------------------- */

#define TENSOR(name, shape) "{'name':'" name "','dtype':'float16','shape':" shape "}"
#define OWNS(type, config, parameters, buffers)                                                                                \
    "{'path':'m','type':'torch.nn." type "','config':{" config "},'parameters':{" parameters "},'buffers':{" buffers "}}"

START_TEST(test_linear_view) {
    const char *module = OWNS("Linear", "'in_features':4,'out_features':3", "'weight':'w','bias':'b'", "");
    const char *tensors = TENSOR("w", "[3,4]") "," TENSOR("b", "[3]");
    fb_linear linear;
    fb_graph *graph = graph_with(MODULE(KWARGS("'input':" NODE("y"))), module, tensors);
    fb_node node = node_named(graph, "f");
    ck_assert(fb_linear_at(graph, node, &linear));
    ck_assert_uint_eq(linear.node.id, node.id);
    ck_assert_uint_eq(linear.input.id, node_named(graph, "y").id);
    ck_assert_int_eq(linear.in_features, 4);
    ck_assert_int_eq(linear.out_features, 3);
    ck_assert_int_eq(linear.dtype, FB_FLOAT16);
    ck_assert_uint_eq(linear.weight.id, fb_tensor_find(graph, "w").id);
    ck_assert_uint_eq(linear.bias.id, fb_tensor_find(graph, "b").id);
    ck_assert(!fb_linear_at(graph, node_named(graph, "x"), &linear));
    fb_graph_free(graph);

    static const char *const calls[] = {MODULE(ARGS(NODE("x") "," NODE("y"))), MODULE(ARGS("1")), MODULE(ARGS("")),
                                        MODULE(KWARGS("'inputs':" NODE("x"))), MODULE(ARGS("[" NODE("x") "]"))};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        graph = graph_with(calls[i], module, tensors);
        ck_assert_msg(!fb_linear_at(graph, node_named(graph, "f"), &linear), "%s", calls[i]);
        fb_graph_free(graph);
    }
}
END_TEST

#define READ(name) "{'name':'" name "','op':'get_attr','target':'m." name "'},"
#define OWNS_ALL "{'path':'m','type':'torch.nn.Module','parameters':{'w':'w','b':'b','p':'p'}}"
#define READS READ("w") READ("b") READ("p")
#define ALL_TENSORS TENSOR("w", "[3,4]") "," TENSOR("b", "[3]") "," TENSOR("p", "[4,3]")

/* Functions, whose weights get_attr nodes read. */
static const struct {
    const char *target, *args;
    bool is_linear, is_packed;
} linear_functions[] = {
    {"torch.nn.functional.linear", ARGS(NODE("x") "," NODE("w") "," NODE("b")), true, false},
    {"torch._C._nn.linear", ARGS(NODE("x") "," NODE("w")), true, false},
    {"torch.ops.aten.linear.default", ARGS(NODE("x") "," NODE("w") ",null"), true, false},
    {"torch.nn.functional.linear", KWARGS("'input':" NODE("x") ",'bias':" NODE("b") ",'weight':" NODE("w")), true, false},
    {"torch.addmm", ARGS(NODE("b") "," NODE("x") "," NODE("p")), true, true},
    {"torch.ops.aten.addmm.default", ARGS(NODE("b") "," NODE("x") "," NODE("p")) "," KWARGS("'alpha':1"), true, true},
    {"torch.addmm", ARGS(NODE("b") "," NODE("x") "," NODE("p")) "," KWARGS("'beta':2"), false, false},
    {"torch.addmm", ARGS(NODE("x") "," NODE("x") "," NODE("p")), false, false},
    {"torch.nn.functional.linear", ARGS(NODE("x") "," NODE("y")), false, false},
    {"torch.nn.functional.linear", ARGS(NODE("x") "," NODE("b")), false, false},
    {"torch.nn.functional.linear", ARGS(NODE("x") "," NODE("w") "," NODE("y")), false, false},
    {"torch.nn.functional.linear", ARGS(NODE("w") "," NODE("w")), false, false},
};

START_TEST(test_linear_functions) {
    char call[512];
    snprintf(call, sizeof call, "'op':'call_function','target':'%s',%s", linear_functions[_i].target,
             linear_functions[_i].args);
    fb_graph *graph = graph_with_reads(READS, call, OWNS_ALL, ALL_TENSORS);
    fb_linear linear;
    bool is_linear = fb_linear_at(graph, node_named(graph, "f"), &linear);
    ck_assert_msg(is_linear == linear_functions[_i].is_linear, "%s", call);
    if (is_linear) {
        ck_assert_uint_eq(linear.module.id, 0);
        ck_assert_uint_eq(linear.input.id, node_named(graph, "x").id);
        ck_assert_uint_eq(linear.weight_read.id, node_named(graph, linear.is_packed ? "p" : "w").id);
        ck_assert_int_eq(linear.is_packed, linear_functions[_i].is_packed);
        ck_assert_int_eq(linear.in_features, 4);
        ck_assert_int_eq(linear.out_features, 3);
    }
    fb_graph_free(graph);
}
END_TEST

#define STEP(name, target, args) "{'name':'" name "'," FUNCTION(target, ARGS(args)) "},"
#define SCALED FUNCTION("torch.ops.aten.mul.Tensor", ARGS(NODE("b") "," NODE("to")))

/* RMSNorm spelled out, as it must be and with one thing changed. */
static const struct {
    const char *square, *mean, *root;
    bool is_norm;
} spelled_out[] = {
    {NODE("x") ",2", NODE("pow") ",[-1],true", NODE("add"), true},
    {NODE("x") ",3", NODE("pow") ",[-1],true", NODE("add"), false},
    {NODE("y") ",2", NODE("pow") ",[-1],true", NODE("add"), false},
    {NODE("x") ",2", NODE("pow") ",[-2],true", NODE("add"), false},
    {NODE("x") ",2", NODE("pow") ",[-1],false", NODE("add"), false},
    {NODE("x") ",2", NODE("pow") ",[-1],true", NODE("mean"), false},
};

START_TEST(test_norm_spelled_out) {
    char steps[2048];
    snprintf(steps, sizeof steps,
             READ("b") STEP("pow", "torch.ops.aten.pow.Tensor_Scalar", "%s") STEP("mean", "torch.ops.aten.mean.dim", "%s")
                 STEP("add", "torch.ops.aten.add.Tensor", NODE("mean") ",0.25")
                     STEP("rsqrt", "torch.ops.aten.rsqrt.default", "%s")
                         STEP("mul", "torch.ops.aten.mul.Tensor", NODE("x") "," NODE("rsqrt"))
                             STEP("to", "torch.ops.aten.to.dtype", NODE("mul") ",{'$dtype':'float16'}"),
             spelled_out[_i].square, spelled_out[_i].mean, spelled_out[_i].root);
    fb_graph *graph = graph_with_reads(steps, SCALED, OWNS_ALL, ALL_TENSORS);
    fb_norm norm;
    bool is_norm = fb_norm_at(graph, node_named(graph, "f"), &norm);
    ck_assert_int_eq(is_norm, spelled_out[_i].is_norm);
    if (is_norm) {
        ck_assert_uint_eq(norm.input.id, node_named(graph, "x").id);
        ck_assert_uint_eq(norm.unscaled.id, node_named(graph, "to").id);
        ck_assert_uint_eq(norm.weight_read.id, node_named(graph, "b").id);
        ck_assert(norm.axes == 1 && norm.features == 3 && norm.eps == 0.25 && !norm.is_centred);
    }
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_conv_and_batch_norm_views) {
    fb_conv conv;
    fb_batch_norm norm;
    fb_graph *graph = graph_with(MODULE(X), OWNS("Conv2d", "'groups':2,'bias':false", "'weight':'w','bias':null", ""),
                                 TENSOR("w", "[6,3,5,5]"));
    ck_assert(fb_conv_at(graph, node_named(graph, "f"), &conv));
    ck_assert_int_eq(conv.spatial, 2);
    ck_assert_int_eq(conv.in_channels, 6);
    ck_assert_int_eq(conv.out_channels, 6);
    ck_assert_int_eq(conv.groups, 2);
    ck_assert_uint_eq(conv.bias.id, 0);
    ck_assert(!fb_batch_norm_at(graph, node_named(graph, "f"), &norm));
    fb_graph_free(graph);

    graph = graph_with(MODULE(X), OWNS("BatchNorm1d", "'affine':false,'eps':0.5", "", "'running_mean':'a','running_var':'v'"),
                       TENSOR("a", "[7]") "," TENSOR("v", "[7]"));
    ck_assert(fb_batch_norm_at(graph, node_named(graph, "f"), &norm));
    ck_assert_int_eq(norm.spatial, 1);
    ck_assert_int_eq(norm.num_features, 7);
    ck_assert_double_eq(norm.eps_number, 0.5);
    ck_assert_uint_eq(norm.weight.id, 0);
    ck_assert_uint_eq(norm.running_var.id, fb_tensor_find(graph, "v").id);
    ck_assert(!norm.training);
    fb_graph_free(graph);
}
END_TEST

/* An eps is a number, an int of any size too. */
START_TEST(test_numbers_of_config) {
    static const struct {
        const char *config;
        double number; /* 0 = is none */
    } rows[] = {
        {"", 1e-5},        {"'eps':0.25", 0.25},           {"'eps':2", 2}, {"'eps':{'$int':'100000000000000000000'}", 1e20},
        {"'eps':true", 0}, {"'eps':{'$opaque':'eps'}", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char module[256];
        snprintf(module, sizeof module, "{'path':'m','type':'my.Norm','config':{%s}}", rows[i].config);
        fb_graph *graph = graph_with(MODULE(X), module, "");
        double number = 0;
        bool is_number = fb_config_number(graph, fb_module_find(graph, "m"), "eps", 1e-5, &number);
        ck_assert_msg(is_number == (rows[i].number != 0), "%s", rows[i].config);
        ck_assert_double_eq(number, rows[i].number);
        fb_graph_free(graph);
    }
}
END_TEST

static const struct {
    const char *call;
    const char *form; /* o operator, f function, m method, a and s ATen, - not a division that counts */
} divisions[] = {
    {FUNCTION("operator.truediv", ARGS(NODE("x") ",8")), "o"},
    {FUNCTION("torch.div", ARGS(NODE("x") ",8")), "f"},
    {FUNCTION("torch.div", X "," KWARGS("'other':8")), "f"},
    {FUNCTION("torch.true_divide", ARGS(NODE("x") ",8")), "f"},
    {METHOD("div", ARGS(NODE("x") ",8")), "m"},
    {METHOD("div", X "," KWARGS("'other':8,'rounding_mode':'floor'")), "m"},
    {METHOD("div_", ARGS(NODE("x") ",8")), "-"},
    {METHOD("true_divide", ARGS(NODE("x") ",8")), "m"},
    {METHOD("divide", ARGS(NODE("x") ",8")), "m"},
    {METHOD("divide", X "," KWARGS("'other':8,'rounding_mode':'trunc'")), "m"},
    {METHOD("divide_", ARGS(NODE("x") ",8")), "-"},
    {FUNCTION("torch.divide", ARGS(NODE("x") ",8")), "f"},
    {FUNCTION("torch.divide", X "," KWARGS("'other':8,'rounding_mode':'floor'")), "f"},
    {FUNCTION("torch.Tensor.div", ARGS(NODE("x") ",8")), "f"},
    {FUNCTION("torch.ops.aten.true_divide.Tensor", ARGS(NODE("x") ",8")), "a"},
    {FUNCTION("operator.itruediv", ARGS(NODE("x") ",8")), "-"},
    {FUNCTION("operator.floordiv", ARGS(NODE("x") ",8")), "-"},
    {FUNCTION("torch.ops.aten.div.Tensor", ARGS(NODE("x") ",8")), "a"},
    {FUNCTION("torch.ops.aten.div.Scalar", ARGS(NODE("x") ",8")), "s"},
    {FUNCTION("torch.ops.aten.div.Tensor_mode", X "," KWARGS("'other':8,'rounding_mode':'floor'")), "a"},
    {FUNCTION("torch.ops.aten.div_.Tensor", ARGS(NODE("x") ",8")), "-"},
    {FUNCTION("operator.truediv", X), "-"},
};

START_TEST(test_divisions) {
    fb_graph *graph = graph_with(divisions[_i].call, "", "");
    fb_node node = node_named(graph, "f");
    fb_division division;
    int64_t divisor = 0;
    char form = fb_division_at(graph, node, &division) ? "ofmas"[division.form] : '-';
    ck_assert_msg(form == divisions[_i].form[0], "%s: %c", divisions[_i].call, form);
    if (form != '-') {
        ck_assert_uint_eq(fb_value_node(graph, division.numerator).id, node_named(graph, "x").id);
        ck_assert(fb_value_is_int(graph, division.divisor, &divisor) && divisor == 8);
        ck_assert_int_eq(division.rounding_mode.id != 0, strstr(divisions[_i].call, "rounding") != NULL);
    }
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_linear_like) {
    static const struct {
        const char *module;
        bool is_like;
    } types[] = {
        {TYPE("torch.nn.modules.linear.NonDynamicallyQuantizableLinear", "", "false"), true},
        {TYPE("torch.nn.LazyLinear", "", "false"), true},
        {TYPE("bitsandbytes.nn.Linear8bitLt", "", "false"), true},
        {TYPE("Linear", "", "false"), true},
        {TYPE("torch.nn.Identity", "", "false"), false},
        {TYPE("my.Bilinear", "", "false"), false},
        {TYPE("linear.Block", "", "false"), false},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        fb_graph *graph = graph_with(MODULE(X), types[i].module, "");
        ck_assert_msg(fb_module_is_linear_like(graph, fb_module_find(graph, "m")) == types[i].is_like, "%s", types[i].module);
        fb_graph_free(graph);
    }
    fb_graph *graph = graph_with(MODULE(X), OWNS("Linear", "'bias':false", "'weight':'w'", ""), TENSOR("w", "[3,4]"));
    ck_assert(!fb_module_is_linear_like(graph, fb_module_find(graph, "m")));
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_python_numbers) {
    fb_graph *graph = quoted_graph(
        INPUT("x") "{'name':'size','op':'call_method','target':'size','args':[" NODE(
            "x") "]},"
                 "{'name':'item','op':'call_function','target':'operator.getitem','args':[" NODE(
                     "size") ",0]},"
                             "{'name':'half','op':'call_function','target':'operator.truediv','args':[" NODE(
                                 "item") ",2]},"
                                         "{'name':'mixed','op':'call_function','target':'operator.mul','args':[" NODE(
                                             "half") "," NODE("x") "]},"
                                                                   "{'name':'row','op':'call_function','target':'operator."
                                                                   "getitem','args':[" NODE(
                                                                       "x") ",0]},"
                                                                            "{'name':'info','op':'call_function','target':'"
                                                                            "torch.finfo','args':[{'$dtype':'float32'}]},"
                                                                            "{'name':'min','op':'call_function','target':'"
                                                                            "builtins.getattr','args':[" NODE(
                                                                                "info") ",'min']},"
                                                                                        "{'name':'kind','op':'call_method','"
                                                                                        "target':'type','args':[" NODE(
                                                                                            "x") "]},"
                                                                                                 "{'name':'odd','op':'call_"
                                                                                                 "function','target':'my.f','"
                                                                                                 "args':[" NODE(
                                                                                                     "size") "]}" END,
        NULL, "");
    static const char *const numbers[] = {"size", "item", "half", "info", "min", "kind"};
    static const char *const others[] = {"x", "mixed", "row", "odd", "output"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ck_assert_msg(fb_is_python_number(graph, node_named(graph, numbers[i])), "%s", numbers[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ck_assert_msg(!fb_is_python_number(graph, node_named(graph, others[i])), "%s", others[i]);
    }
    fb_graph_free(graph);
}
END_TEST

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

int main(void) {
    Suite *suite = suite_create("ops");
    TCase *cases = tcase_create("ops");
    int fixtures = 0;
    while (fixture_names[fixtures]) fixtures++;
    tcase_add_loop_test(cases, test_functions, 0, LENGTH(functions));
    tcase_add_test(cases, test_methods_and_modules);
    tcase_add_test(cases, test_rows);
    tcase_add_loop_test(cases, test_fixtures_are_known, 0, fixtures);
    tcase_add_loop_test(cases, test_effects, 0, LENGTH(effects));
    tcase_add_loop_test(cases, test_arguments, 0, LENGTH(arguments));
    tcase_add_test(cases, test_linear_view);
    tcase_add_loop_test(cases, test_linear_functions, 0, (int)(sizeof linear_functions / sizeof *linear_functions));
    tcase_add_loop_test(cases, test_norm_spelled_out, 0, (int)(sizeof spelled_out / sizeof *spelled_out));
    tcase_add_test(cases, test_conv_and_batch_norm_views);
    tcase_add_test(cases, test_numbers_of_config);
    tcase_add_loop_test(cases, test_divisions, 0, LENGTH(divisions));
    tcase_add_test(cases, test_linear_like);
    tcase_add_test(cases, test_python_numbers);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
