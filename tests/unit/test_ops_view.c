/* Views: what a node is as a Linear, a convolution, a norm, a division. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <string.h>

#include "core/analysis/view.h"
#include "tests/unit/call_graph.h"
#include "tests/unit/quoted.h"
#include "tests/unit/run_tests.h"

#define TENSOR(name, shape) "{'name':'" name "','dtype':'float16','shape':" shape "}"
#define OWNS(type, config, parameters, buffers)                                                                                \
    "{'path':'m','type':'torch.nn." type "','config':{" config "},'parameters':{" parameters "},'buffers':{" buffers "}}"

START_TEST(test_linear_view) {
    const char *module = OWNS("Linear", "'in_features':4,'out_features':3", "'weight':'w','bias':'b'", "");
    const char *tensors = TENSOR("w", "[3,4]") "," TENSOR("b", "[3]");
    fb_linear linear;
    fb_graph *graph = call_graph(MODULE(KWARGS("'input':" NODE("y"))), module, tensors);
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
        graph = call_graph(calls[i], module, tensors);
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
    fb_graph *graph = call_graph_reading(READS, call, OWNS_ALL, ALL_TENSORS);
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

#define CALL(name, call) "{'name':'" name "'," call "},"
#define STEP(name, target, args) CALL(name, FUNCTION(target, ARGS(args)))
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
    fb_graph *graph = call_graph_reading(steps, SCALED, OWNS_ALL, ALL_TENSORS);
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
    fb_graph *graph = call_graph(MODULE(X), OWNS("Conv2d", "'groups':2,'bias':false", "'weight':'w','bias':null", ""),
                                 TENSOR("w", "[6,3,5,5]"));
    ck_assert(fb_conv_at(graph, node_named(graph, "f"), &conv));
    ck_assert_int_eq(conv.spatial, 2);
    ck_assert_int_eq(conv.in_channels, 6);
    ck_assert_int_eq(conv.out_channels, 6);
    ck_assert_int_eq(conv.groups, 2);
    ck_assert_uint_eq(conv.bias.id, 0);
    ck_assert(!fb_batch_norm_at(graph, node_named(graph, "f"), &norm));
    fb_graph_free(graph);

    graph = call_graph(MODULE(X), OWNS("BatchNorm1d", "'affine':false,'eps':0.5", "", "'running_mean':'a','running_var':'v'"),
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
        double number; /* nan: it is not a number */
    } rows[] = {
        {"", 1e-5},           {",'eps':0.25", 0.25},
        {",'eps':2", 2},      {",'eps':{'$int':'100000000000000000000'}", 1e20},
        {",'eps':true", NAN}, {",'eps':{'$opaque':'eps'}", NAN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char module[400];
        fb_batch_norm norm;
        snprintf(module, sizeof module, OWNS("BatchNorm1d", "'affine':false%s", "", "'running_mean':'a','running_var':'v'"),
                 rows[i].config);
        fb_graph *graph = call_graph(MODULE(X), module, TENSOR("a", "[7]") "," TENSOR("v", "[7]"));
        ck_assert(fb_batch_norm_at(graph, node_named(graph, "f"), &norm));
        bool is_nan = isnan(rows[i].number);
        ck_assert_msg(is_nan ? isnan(norm.eps_number) : norm.eps_number == rows[i].number, "%s: %g", rows[i].config,
                      norm.eps_number);
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
    fb_graph *graph = call_graph(divisions[_i].call, "", "");
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
        fb_graph *graph = call_graph(MODULE(X), types[i].module, "");
        ck_assert_msg(fb_module_is_linear_like(graph, fb_module_find(graph, "m")) == types[i].is_like, "%s", types[i].module);
        fb_graph_free(graph);
    }
    fb_graph *graph = call_graph(MODULE(X), OWNS("Linear", "'bias':false", "'weight':'w'", ""), TENSOR("w", "[3,4]"));
    ck_assert(!fb_module_is_linear_like(graph, fb_module_find(graph, "m")));
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_python_numbers) {
    fb_graph *graph = call_graph_reading(
        CALL("size", METHOD("size", X)) STEP("item", "operator.getitem", NODE("size") ",0")
            STEP("half", "operator.truediv", NODE("item") ",2") STEP("mixed", "operator.mul", NODE("half") "," NODE("x"))
                STEP("row", "operator.getitem", NODE("x") ",0") STEP("info", "torch.finfo", "{'$dtype':'float32'}")
                    STEP("min", "builtins.getattr", NODE("info") ",'min'") CALL("kind", METHOD("type", X)),
        FUNCTION("my.f", ARGS(NODE("size"))), "", "");
    static const char *const numbers[] = {"size", "item", "half", "info", "min", "kind"};
    static const char *const others[] = {"x", "mixed", "row", "f", "output"};
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
    TCase *cases = tcase_create("ops-view");
    tcase_add_test(cases, test_linear_view);
    tcase_add_loop_test(cases, test_linear_functions, 0, LENGTH(linear_functions));
    tcase_add_loop_test(cases, test_norm_spelled_out, 0, LENGTH(spelled_out));
    tcase_add_test(cases, test_conv_and_batch_norm_views);
    tcase_add_test(cases, test_numbers_of_config);
    tcase_add_loop_test(cases, test_divisions, 0, LENGTH(divisions));
    tcase_add_test(cases, test_linear_like);
    tcase_add_test(cases, test_python_numbers);
    return run_tests("ops-view", cases);
}
