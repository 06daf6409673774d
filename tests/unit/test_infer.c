/* Shapes and dtypes: every call of the fixtures, 1,800 calls recorded from PyTorch 2.13 in data/inference.json, symbolic sizes,
 * sizes that are computed. Where fb_infer answers, it must be what PyTorch gave. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/infer.h"
#include "core/analysis/view.h"
#include "tests/unit/documents.h"
#include "tests/unit/quoted.h"
#include "tests/unit/run_tests.h"

typedef struct coverage {
    size_t calls, shapes, dtypes;
} coverage;

static void check_node(fb_graph *graph, fb_node node, coverage *c) {
    const fb_node_row *row = fb_node_at(graph, node);
    fb_shape_result result;
    if (row->opcode < FB_CALL_MODULE || row->opcode > FB_CALL_METHOD) return;
    bool is_tensor = row->shape.id || row->dtype;
    c->calls += is_tensor;
    if (!fb_infer(graph, node, &result)) return;
    const char *name = fb_node_name(graph, node), *target = fb_node_target(graph, node);
    ck_assert_msg(is_tensor, "%s (%s) is no tensor", name, target);
    if (result.rank >= 0) {
        c->shapes++;
        ck_assert_msg(fb_make_result_shape(graph, &result).id == row->shape.id, "shape of %s (%s)", name, target);
    }
    if (result.dtype) {
        c->dtypes++;
        ck_assert_msg(result.dtype == row->dtype, "dtype of %s (%s): %s", name, target, fb_dtype_name(result.dtype));
    }
}

static void check_graph(char *text, size_t size, const char *name, size_t percent) {
    fb_graph *graph = graph_of(text, size);
    coverage c = {0};
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(graph, n)->next) check_node(graph, n, &c);
    printf("%-14s %4zu results, shape known %3zu%%, dtype known %3zu%%\n", name, c.calls, 100 * c.shapes / c.calls,
           100 * c.dtypes / c.calls);
    ck_assert_uint_ge(100 * c.shapes / c.calls, percent);
    ck_assert_uint_ge(100 * c.dtypes / c.calls, percent);
    fb_graph_free(graph);
    free(text);
}

START_TEST(test_fixture) {
    size_t size;
    char *text = read_fixture(fixture_names[_i], "graph.json", &size);
    check_graph(text, size, fixture_names[_i], strcmp(fixture_names[_i], "aten-llama") == 0 ? 98 : 100);
}
END_TEST

START_TEST(test_recorded_calls) {
    size_t size;
    char *text = read_file("tests/unit/data/inference.json", &size);
    check_graph(text, size, "recorded", 98);
}
END_TEST

/* ---- symbolic and computed sizes ---------------------------------------------------------------------------------------- */

#define NODE(name) "{'$node':'" name "'}"
#define INPUT(name, shape)                                                                                                     \
    "{'name':'" name "','op':'placeholder','target':'" name "','meta':{'shape':" shape ",'dtype':'float32'}},"
#define CALL(name, target, args) "{'name':'" name "','op':'call_function','target':'" target "','args':[" args "]},"
#define METHOD(name, target, args) "{'name':'" name "','op':'call_method','target':'" target "','args':[" args "]},"
#define INPUTS INPUT("x", "['s0',3,'s1',4]") INPUT("y", "[1,1,'s1',4]") INPUT("z", "[2,4]") INPUT("w", "['2*s0',4]")
#define END "{'name':'output','op':'output','target':'output','args':[null]}"
#define SIZE METHOD("size", "size", NODE("x") ",0") METHOD("four", "size", NODE("x") ",-1")

static const struct {
    const char *nodes; /* the last is named f */
    const char *shape; /* "?" = unknown */
} symbolic[] = {
    {CALL("f", "torch.add", NODE("x") "," NODE("y")), "s0 3 s1 4"},
    {CALL("f", "torch.add", NODE("x") "," NODE("z")), "?"},
    {CALL("f", "torch.matmul", NODE("x") "," NODE("z")), "?"},
    {METHOD("t", "t", NODE("z")) CALL("f", "torch.numel", NODE("z")), "?"},
    {METHOD("f", "permute", NODE("x") ",1,3,0,2"), "3 4 s0 s1"},
    {METHOD("f", "flatten", NODE("x") ",1,1"), "s0 3 s1 4"},
    {METHOD("f", "flatten", NODE("x") ",2,3"), "?"},
    {METHOD("f", "flatten", NODE("y") ",0,2"), "s1 4"},
    {SIZE METHOD("f", "view", NODE("x") "," NODE("size") ",12,-1"), "s0 12 s1"},
    {SIZE METHOD("f", "view", NODE("x") "," NODE("size") ",-1"), "?"},
    {SIZE METHOD("f", "view", NODE("x") ",-1,12"), "?"},
    {SIZE METHOD("f", "expand", NODE("y") "," NODE("size") ",3,-1,-1"), "s0 3 s1 4"},
    {SIZE CALL("f", "torch.ones", NODE("size") ",2"), "s0 2"},
    {SIZE CALL("f", "torch.arange", NODE("size")), "s0"},
    {SIZE CALL("e", "operator.add", NODE("size") ",1") CALL("f", "torch.ones", NODE("e")), "?"},
    {SIZE CALL("e", "operator.floordiv", NODE("four") ",3") CALL("f", "torch.ones", NODE("e")), "1"},
    {SIZE CALL("e", "operator.floordiv", NODE("four") ",-3") CALL("f", "torch.ones", NODE("e")), "?"},
    {SIZE CALL("e", "operator.floordiv", NODE("four") ",0") CALL("f", "torch.ones", NODE("e")), "?"},
    {CALL("s", "builtins.getattr", NODE("x") ",'shape'") CALL("p", "operator.getitem", NODE("s") ",{'$slice':[null,-1,null]}")
         CALL("e", "operator.add", NODE("p") ",{'$tuple':[1]}") CALL("f", "torch.ones", NODE("e")),
     "s0 3 s1 1"},
    {CALL("f", "torch.cat", "[" NODE("x") "," NODE("x") "],-1"), "s0 3 s1 8"},
    {CALL("f", "torch.cat", "[" NODE("x") "," NODE("x") "],0"), "?"},
    {CALL("f", "torch.cat", "[" NODE("x") "," NODE("x") "],4"), "?"},
    {CALL("f", "torch.cat", "[]"), "?"},
    {CALL("f", "torch.cat", "3"), "?"},
    {CALL("f", "operator.getitem", NODE("x") ",{'$tuple':[{'$ellipsis':true},{'$slice':[1,3,null]}]}"), "s0 3 s1 2"},
    {CALL("f", "operator.getitem", NODE("x") ",{'$tuple':[{'$slice':[0,null,null]},0]}"), "s0 s1 4"},
    {CALL("f", "operator.getitem", NODE("x") ",{'$slice':[1,null,null]}"), "?"},
    {CALL("f", "operator.getitem", NODE("x") ",{'$tuple':[0,0,0,0,0]}"), "?"},
    {CALL("f", "torch.ops.aten.slice.Tensor", NODE("x") ",0,0,{'$int':'9223372036854775807'}"), "s0 3 s1 4"},
    {CALL("u", "torch.nonzero", NODE("z")) CALL("f", "torch.ops.aten.view.dtype", NODE("u") ",6"), "?"}, /* 6: a dtype */
    {CALL("f", "torch.transpose", NODE("w") ",0,1"), "4 2*s0"},
    {CALL("f", "torch.transpose", NODE("w") ",0,2"), "?"},
    {METHOD("f", "repeat", NODE("z") ",{'$int':'9223372036854775807'},1"), "?"},
    {CALL("f", "torch.nn.functional.pad", NODE("z") ",[-9,0]"), "?"},
    {CALL("f", "torch.nn.functional.max_pool2d", NODE("y") ",{'$int':'9223372036854775807'}"), "?"},
    {CALL("f", "torch.ones", "[-1]"), "?"},
    {CALL("f", "torch.add", "1,2"), "?"},
    {CALL("f", "torch.stack", "[" NODE("z") "," NODE("w") "]"), "?"},
};

static void write_shape(const fb_graph *graph, fb_node node, char text[128]) {
    fb_shape_result result;
    strcpy(text, "?");
    if (!fb_infer(graph, node, &result) || result.rank < 0) return;
    text[0] = '\0';
    for (int i = 0; i < result.rank; i++) {
        char one[32];
        if (result.sizes[i].symbol.id) snprintf(one, sizeof one, "%s", fb_text(graph, result.sizes[i].symbol));
        else snprintf(one, sizeof one, "%d", (int)result.sizes[i].size);
        if (i) strcat(text, " ");
        strcat(text, one);
    }
}

START_TEST(test_symbolic) {
    char nodes[4096], text[128];
    snprintf(nodes, sizeof nodes, INPUTS "%s" END, symbolic[_i].nodes);
    fb_graph *graph = quoted_graph(nodes, NULL, "");
    write_shape(graph, node_named(graph, "f"), text);
    ck_assert_msg(strcmp(text, symbolic[_i].shape) == 0, "%s: %s", symbolic[_i].nodes, text);
    fb_graph_free(graph);
}
END_TEST

#define TYPED(name, dtype)                                                                                                     \
    "{'name':'" name "','op':'placeholder','target':'" name "','meta':{'shape':[2,2],'dtype':'" dtype "'}},"
#define KEYWORD(target, args, name, value)                                                                                     \
    "{'name':'f','op':'call_function','target':'" target "','args':[" args "],'kwargs':{'" name "':" value "}},"

static const struct {
    const char *call;
    fb_dtype dtype;
} typed[] = {
    {CALL("f", "operator.matmul", NODE("single") "," NODE("single")), FB_FLOAT32},
    /* PyTorch computes products of two dtypes where no number is to be multiplied, and gives the dtype of the one or the other.
     */
    {CALL("f", "operator.matmul", NODE("single") "," NODE("double")), FB_DTYPE_UNKNOWN},
    {CALL("f", "torch.bmm", NODE("single") "," NODE("double")), FB_DTYPE_UNKNOWN},
    {CALL("f", "torch.baddbmm", NODE("single") "," NODE("single") "," NODE("double")), FB_DTYPE_UNKNOWN},
    {CALL("f", "operator.mul", NODE("single") ",{'$complex':[0,1]}"), FB_COMPLEX64},
    {CALL("f", "operator.mul", NODE("double") ",{'$complex':[0,1]}"), FB_COMPLEX128},
    {CALL("f", "operator.mul", NODE("half") ",{'$complex':[0,1]}"), FB_DTYPE_UNKNOWN}, /* complex32 */
    {CALL("f", "torch.nn.functional.tanhshrink", NODE("integer")), FB_FLOAT32},
    {CALL("f", "torch.scalar_tensor", "2"), FB_FLOAT32},
    {KEYWORD("torch.scalar_tensor", "2", "dtype", "{'$dtype':'int64'}"), FB_INT64},
    {CALL("f", "torch.tensor", "2"), FB_INT64},
    {KEYWORD("torch.nn.functional.normalize", NODE("single"), "eps", NODE("double")), FB_DTYPE_UNKNOWN},
    {KEYWORD("torch.nn.functional.gumbel_softmax", NODE("single"), "tau", NODE("double")), FB_DTYPE_UNKNOWN},
    {CALL("f", "torch._weight_norm", NODE("single") "," NODE("double")), FB_DTYPE_UNKNOWN},
};

START_TEST(test_dtype) {
    char nodes[4096];
    snprintf(nodes, sizeof nodes,
             TYPED("half", "float16") TYPED("single", "float32") TYPED("double", "float64") TYPED("integer", "int32") "%s" END,
             typed[_i].call);
    fb_graph *graph = quoted_graph(nodes, NULL, "");
    fb_shape_result result = {.dtype = FB_DTYPE_UNKNOWN};
    fb_infer(graph, node_named(graph, "f"), &result);
    ck_assert_msg(result.dtype == typed[_i].dtype, "%s: %s", typed[_i].call, fb_dtype_name(result.dtype));
    fb_graph_free(graph);
}
END_TEST

/* a1 = a0 + a0, a2 = a1 + a1 …: 2^60 paths, and a chain deeper than the evaluator goes. */
START_TEST(test_work_is_bounded) {
    char *nodes = malloc(1 << 16), *end = nodes, text[128];
    end += sprintf(end, INPUTS METHOD("a0", "size", NODE("z") ",0"));
    for (int i = 1; i <= 60; i++) {
        end += sprintf(end,
                       "{'name':'a%d','op':'call_function','target':'operator.add','args':[{'$node':'a%d'},{'$node':'a%d'}]},",
                       i, i - 1, i - 1);
    }
    end += sprintf(end, CALL("f", "torch.ones", NODE("a60")) CALL("g", "torch.ones", NODE("a3")) END);
    fb_graph *graph = quoted_graph(nodes, NULL, "");
    write_shape(graph, node_named(graph, "f"), text);
    ck_assert_str_eq(text, "?");
    write_shape(graph, node_named(graph, "g"), text);
    ck_assert_str_eq(text, "16");
    ck_assert(fb_is_python_number(graph, node_named(graph, "a5")));
    fb_graph_free(graph);
    free(nodes);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("infer");
    tcase_add_loop_test(cases, test_fixture, 0, fixture_count);
    tcase_add_test(cases, test_recorded_calls);
    tcase_add_loop_test(cases, test_symbolic, 0, (int)(sizeof symbolic / sizeof *symbolic));
    tcase_add_loop_test(cases, test_dtype, 0, (int)(sizeof typed / sizeof *typed));
    tcase_add_test(cases, test_work_is_bounded);
    return run_tests("infer", cases);
}
