/* Who may share memory with whom, when it is written, and who uses which module and tensor. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/memory_layout.h"
#include "core/analysis/usage.h"
#include "core/document/document.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/quoted.h"
#include "tests/unit/run_tests.h"

#define NODE(name) "{'$node':'" name "'}"
#define INPUT(name) "{'name':'" name "','op':'placeholder','target':'" name "'},"
#define CALL(name, target, args) "{'name':'" name "','op':'call_function','target':'" target "','args':[" args "]},"
#define METHOD(name, target, args) "{'name':'" name "','op':'call_method','target':'" target "','args':[" args "]},"
#define MODULE(name, target, args) "{'name':'" name "','op':'call_module','target':'" target "','args':[" args "]},"
#define READ(name, target) "{'name':'" name "','op':'get_attr','target':'" target "'},"
#define END "{'name':'output','op':'output','target':'output','args':[null]}"
#define TENSOR(name) "{'name':'" name "','dtype':'float32','shape':[4]}"

/* ---- aliases ------------------------------------------------------------------------------------------------------------ */

#define VIEWS                                                                                                                  \
    INPUT("x") INPUT("y") METHOD("v", "view", NODE("x") ",-1") METHOD("t", "t", NODE("v")) METHOD("c", "clone", NODE("x"))

static const struct {
    const char *nodes; /* between x, y, v = x.view, t = v.t(), c = x.clone() and the output */
    const char *value; /* … whose memory is written at these ordinals */
    const char *writes;
} writes[] = {
    {"", "x", ""},
    {METHOD("w", "add_", NODE("x") ",1"), "x", "5"},
    {METHOD("w", "add_", NODE("x") ",1"), "t", "5"},
    {METHOD("w", "add_", NODE("x") ",1"), "w", "5"},
    {METHOD("w", "add_", NODE("x") ",1"), "c", ""},
    {METHOD("w", "add_", NODE("x") ",1"), "y", ""},
    {METHOD("w", "add_", NODE("t") ",1"), "x", "5"},
    {METHOD("w", "copy_", NODE("y") "," NODE("x")), "x", ""},
    {METHOD("w", "copy_", NODE("y") "," NODE("x")), "y", "5"},
    {CALL("w", "operator.setitem", NODE("x") ",0," NODE("y")), "v", "5"},
    {CALL("w", "my.f", NODE("x") "," NODE("y")), "t", "5"},
    {CALL("w", "my.f", NODE("x") "," NODE("y")), "y", "5"},
    {CALL("w", "my.f", NODE("c")), "x", ""},
    {CALL("w", "my.f", "[" NODE("c") "],{'$tuple':[" NODE("y") "]}") CALL("u", "torch.relu_", NODE("w")), "y", "5 6"},
    {CALL("s", "torch.split", NODE("c") ",2") CALL("p", "operator.getitem", NODE("s") ",0") CALL("w", "torch.relu_", NODE("p")),
     "c", "7"},
    {CALL("s", "torch.cat", "[" NODE("x") "," NODE("y") "]") CALL("w", "torch.relu_", NODE("s")), "x", ""},
    {CALL("s", "builtins.list", "[" NODE("x") "," NODE("y") "]") CALL("p", "operator.getitem", NODE("s") ",1")
         CALL("w", "torch.relu_", NODE("p")),
     "y", "7"},
    {METHOD("n", "size", NODE("x") ",0") METHOD("u", "view", NODE("y") "," NODE("n")) CALL("w", "torch.relu_", NODE("u")), "x",
     ""},
    {METHOD("n", "size", NODE("x") ",0") CALL("w", "my.f", NODE("y") "," NODE("n")) CALL("m", "my.g", NODE("c") "," NODE("n")),
     "y", "6"},
    {METHOD("a", "add_", NODE("x") ",1") METHOD("b", "mul_", NODE("t") ",1") METHOD("d", "mul_", NODE("y") ",1")
         METHOD("e", "mul_", NODE("v") ",1"),
     "x", "5 6 8"},
    {"{'name':'w','op':'call_function','target':'torch.relu_','args':[],'kwargs':{'input':" NODE("x") "}},", "x", "5"},
    {"{'name':'w','op':'call_function','target':'torch.add','args':[" NODE("y") ",1],'kwargs':{'out':" NODE("x") "}},", "v",
     "5"},
    {CALL("l", "builtins.list", "[" NODE("y") "]") CALL("s", "operator.setitem", NODE("l") ",0," NODE("x"))
         CALL("e", "operator.getitem", NODE("l") ",0") METHOD("w", "add_", NODE("e") ",1"),
     "x", "6 8"},
    {CALL("k", "torch.chunk", NODE("y") ",2") CALL("s", "operator.add", NODE("k") ",{'$tuple':[" NODE("x") "]}")
         CALL("e", "operator.getitem", NODE("s") ",2") METHOD("w", "add_", NODE("e") ",1"),
     "x", "8"},
    {CALL("s", "operator.add", NODE("x") "," NODE("c")) CALL("w", "torch.relu_", NODE("s")), "x", ""},
    {CALL("w", "operator.setitem", NODE("c") ",0," NODE("x")), "x", ""},
    {METHOD("l", "copy", NODE("x")) CALL("e", "operator.getitem", NODE("l") ",0") CALL("w", "torch.relu_", NODE("e")), "x",
     "7"},
    {CALL("w", "torch.nn.functional.dropout", NODE("c") ",0.1,false") CALL("u", "torch.relu_", NODE("w")), "c", "6"},
};

static fb_alias *alias_of(const fb_graph *graph) {
    fb_usage *usage = fb_usage_new(graph);
    fb_alias *alias = usage ? fb_alias_new(graph, usage, &(fb_work){0}) : NULL;
    fb_usage_free(usage);
    return alias;
}

START_TEST(test_writes) {
    char nodes[4096];
    snprintf(nodes, sizeof nodes, VIEWS "%s" END, writes[_i].nodes);
    fb_graph *graph = quoted_graph(nodes, NULL, "");
    fb_alias *alias = alias_of(graph);
    fb_node value = node_named(graph, writes[_i].value);
    uint32_t last = fb_node_at(graph, node_named(graph, "output"))->ordinal;
    char text[64] = "";
    for (uint32_t i = 1; i < last; i++) {
        if (fb_mutated_between(alias, value, i - 1, i + 1)) sprintf(text + strlen(text), "%s%u", *text ? " " : "", i);
        /* The whole is what its parts are. */
        bool is_any = fb_mutated_between(alias, value, 0, i + 1);
        ck_assert_int_eq(is_any, *text != '\0');
    }
    ck_assert_msg(strcmp(text, writes[_i].writes) == 0, "%s of %s: %s", writes[_i].value, writes[_i].nodes, text);
    ck_assert_int_eq(fb_is_mutated(alias, value), *text != '\0');
    ck_assert(!fb_mutated_between(alias, value, 3, 3) && !fb_mutated_between(alias, value, 9, 2));
    fb_alias_free(alias);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_parameters) {
    fb_graph *graph =
        quoted_graph(READ("a", "p") READ("b", "r") READ("c", "q") READ("d", "k") READ("e", "k") READ("g", "m") READ("f", "view")
                         CALL("w", "torch.relu_", NODE("b")) CALL("v", "torch.relu_", NODE("d")) END,
                     "{'path':'','type':'M','parameters':{'p':'p','q':'q','r':'p','view':'view'},'attributes':{'k':1,'m':1}}",
                     TENSOR("p") "," TENSOR("q") ",{'name':'view','dtype':'float32','shape':[2],'recipe':"
                                                 "{'op':'slice','args':['p'],'axis':0,'start':0,'stop':2}}");
    fb_alias *alias = alias_of(graph);
    ck_assert(fb_is_mutated(alias, node_named(graph, "a"))); /* tied */
    ck_assert(fb_is_mutated(alias, node_named(graph, "b")));
    ck_assert(!fb_is_mutated(alias, node_named(graph, "c")));
    ck_assert(fb_is_mutated(alias, node_named(graph, "e"))); /* the same plain attribute */
    ck_assert(!fb_is_mutated(alias, node_named(graph, "g")));
    ck_assert(fb_is_mutated(alias, node_named(graph, "f"))); /* a view of its storage */
    ck_assert(fb_tensor_is_mutated(alias, fb_tensor_find(graph, "p")));
    ck_assert(!fb_tensor_is_mutated(alias, fb_tensor_find(graph, "q")));
    fb_alias_free(alias);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_modules_write) {
    const char *modules = "{'path':'','type':'M'},"
                          "{'path':'n','type':'torch.nn.BatchNorm1d','config':{'affine':false},'buffers':{'running_mean':'m'},"
                          "'training':true},"
                          "{'path':'o','type':'torch.nn.BatchNorm1d','config':{'affine':false},'buffers':{'running_mean':'e'}},"
                          "{'path':'box','type':'my.Box'},"
                          "{'path':'box.fc','type':'torch.nn.Linear','parameters':{'weight':'w'},'config':{'bias':false}}";
    fb_graph *graph =
        quoted_graph(INPUT("x") MODULE("a", "n", NODE("x")) MODULE("b", "o", NODE("a")) MODULE("c", "box", NODE("b")) END,
                     modules, TENSOR("m") "," TENSOR("e") ",{'name':'w','dtype':'float32','shape':[2,2]}");
    fb_alias *alias = alias_of(graph);
    ck_assert(fb_tensor_is_mutated(alias, fb_tensor_find(graph, "m")));
    ck_assert(!fb_tensor_is_mutated(alias, fb_tensor_find(graph, "e")));
    ck_assert(fb_tensor_is_mutated(alias, fb_tensor_find(graph, "w"))); /* the box may do anything with what is in it */
    ck_assert(!fb_is_mutated(alias, node_named(graph, "x")));
    ck_assert(fb_is_mutated(alias, node_named(graph, "b")));
    fb_alias_free(alias);
    fb_graph_free(graph);
}
END_TEST

/* What a nested program is given, and what it reads, is written when one of its nodes writes, or may. */
START_TEST(test_programs_that_write_nothing) {
#define WRAP "torch.ops.higher_order.wrap_with_set_grad_enabled"
#define BODY(node) "'graph':{'nodes':[" INPUT("y") READ("r", "b") node END "]}"
    static const struct {
        const char *body, *call;
        bool is_mutated;
    } runs[] = {
        {BODY(CALL("z", "torch.mul", NODE("y") "," NODE("r"))), CALL("w", WRAP, "false," NODE("s") "," NODE("x") "," NODE("p")),
         false},
        {BODY(METHOD("z", "add_", NODE("y") ",1")), CALL("w", WRAP, "false," NODE("s") "," NODE("x") "," NODE("p")), true},
        {BODY(CALL("z", "my.f", NODE("y"))), CALL("w", WRAP, "false," NODE("s") "," NODE("x") "," NODE("p")), true},
        {BODY(CALL("z", WRAP, "true," NODE("r") "," NODE("y"))),
         CALL("w", WRAP, "false," NODE("s") "," NODE("x") "," NODE("p")), true},
        {BODY(MODULE("z", "norm", NODE("y"))), CALL("w", WRAP, "false," NODE("s") "," NODE("x") "," NODE("p")), true},
        {BODY(""),
         CALL("w", "torch.ops.higher_order.cond", NODE("x") "," NODE("s") "," NODE("s") ",[" NODE("x") "," NODE("p") "]"),
         false},
        {BODY(""), CALL("w", "torch.ops.higher_order.other", "false," NODE("s") "," NODE("x") "," NODE("p")), true},
        {BODY(""), CALL("w", WRAP, "false," NODE("x") "," NODE("p")), true},
        {BODY(""),
         CALL("g", "builtins.getattr", NODE("s") ",'forward'")
             CALL("w", WRAP, "false," NODE("g") "," NODE("s") "," NODE("x") "," NODE("p")),
         true},
        {BODY(""), CALL("w", WRAP, "false," NODE("s") "," NODE("x") "," NODE("p")) METHOD("v", "add_", NODE("w") ",1"), true},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char nodes[1024], modules[1024];
        snprintf(nodes, sizeof nodes, INPUT("x") READ("p", "p") READ("s", "sub") "%s" END, runs[i].call);
        snprintf(modules, sizeof modules,
                 "{'path':'','type':'M','parameters':{'p':'p'}},"
                 "{'path':'sub','type':'torch.fx.GraphModule','buffers':{'b':'b'},%s},"
                 "{'path':'sub.norm','type':'torch.nn.BatchNorm1d','config':{'num_features':4,'affine':false},"
                 "'buffers':{'running_mean':'m','running_var':'v','num_batches_tracked':null},'training':true}",
                 runs[i].body);
        fb_graph *graph = quoted_graph(nodes, modules, TENSOR("p") "," TENSOR("b") "," TENSOR("m") "," TENSOR("v"));
        fb_alias *alias = alias_of(graph);
        bool is_run = strstr(runs[i].call, NODE("s"));
        ck_assert_msg(fb_tensor_is_mutated(alias, fb_tensor_find(graph, "b")) == (is_run && runs[i].is_mutated), "%zu", i);
        ck_assert_msg(fb_is_mutated(alias, node_named(graph, "p")) == runs[i].is_mutated, "%zu", i);
        ck_assert_msg(fb_is_mutated(alias, node_named(graph, "x")) == runs[i].is_mutated, "%zu", i);
        fb_alias_free(alias);
        fb_graph_free(graph);
    }
}
END_TEST

START_TEST(test_nested_programs) {
    const char *modules = "{'path':'','type':'M','parameters':{'p':'p','q':'q'}},"
                          "{'path':'fc','type':'torch.nn.Linear','parameters':{'weight':'w'},'config':{'bias':false}},"
                          "{'path':'sub','type':'torch.fx.GraphModule','parameters':{'own':'p'},'buffers':{'b':'b'},"
                          "'graph':{'nodes':[" READ("r", "in.k") MODULE("m", "one", NODE("r")) END
        "]}},"
        "{'path':'sub.one','type':'torch.nn.Linear','parameters':{'weight':'w'},'config':{'bias':false}},"
        "{'path':'sub.in','type':'M','parameters':{'k':'k'}}";
    const char *tensors =
        TENSOR("p") "," TENSOR("q") "," TENSOR("b") "," TENSOR("k") ",{'name':'w','dtype':'float32','shape':[2,2]}";
    static const struct {
        const char *call;
        bool is_mutated;
    } runs[] = {
        {CALL("w", "my.run", "false," NODE("s")), true},
        {CALL("w", "my.run", "[" NODE("s") "]," NODE("x")), true},
        {CALL("g", "builtins.getattr", NODE("s") ",'forward'") CALL("w", "my.run", NODE("g")), true},
        {MODULE("w", "sub", NODE("x")), true},
        {CALL("w", "my.run", NODE("x")), false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char nodes[1024];
        snprintf(nodes, sizeof nodes, INPUT("x") READ("s", "sub") "%s" END, runs[i].call);
        fb_graph *graph = quoted_graph(nodes, modules, tensors);
        fb_alias *alias = alias_of(graph);
        static const char *const reached[] = {"p", "b", "k", "w"};
        for (size_t k = 0; k < sizeof reached / sizeof *reached; k++) {
            bool is_mutated = fb_tensor_is_mutated(alias, fb_tensor_find(graph, reached[k]));
            ck_assert_msg(is_mutated == runs[i].is_mutated, "%s by %s", reached[k], runs[i].call);
        }
        ck_assert(!fb_tensor_is_mutated(alias, fb_tensor_find(graph, "q")));
        ck_assert(!fb_mode_switched_between(alias, 0, UINT32_MAX));
        fb_alias_free(alias);
        fb_graph_free(graph);
    }
}
END_TEST

static const struct {
    const char *nodes;    /* after x, y, v, t, c */
    const char *switches; /* the ordinals at which a mode is switched */
} modes[] = {
    {CALL("z", "torch.ones", "2"), ""},
    {CALL("z", "my.f", NODE("x")), ""},
    {CALL("z", "torch.set_autocast_enabled", "'cpu',true"), "5"},
    {CALL("z", "torch._functorch.predispatch._vmap_increment_nesting", "3,'error'"), "5"},
    {METHOD("n", "size", NODE("x") ",0") CALL("z", "my.f", NODE("n")), "6"},
    {CALL("z", "torch.amp.autocast_mode._enter_autocast", "'cpu'")
         CALL("u", "torch.amp.autocast_mode._exit_autocast", NODE("z")),
     "5 6"},
    {CALL("z", "my.enter", "") METHOD("u", "__exit__", NODE("z")) CALL("w", "torch.relu_", NODE("x")), "5 6"},
};

START_TEST(test_modes) {
    char nodes[2048], text[64] = "";
    snprintf(nodes, sizeof nodes, VIEWS "%s" END, modes[_i].nodes);
    fb_graph *graph = quoted_graph(nodes, NULL, "");
    fb_alias *alias = alias_of(graph);
    uint32_t last = fb_node_at(graph, node_named(graph, "output"))->ordinal;
    for (uint32_t i = 1; i < last; i++) {
        if (fb_mode_switched_between(alias, i - 1, i + 1)) sprintf(text + strlen(text), "%s%u", *text ? " " : "", i);
    }
    ck_assert_msg(strcmp(text, modes[_i].switches) == 0, "%s: %s", modes[_i].nodes, text);
    fb_alias_free(alias);
    fb_graph_free(graph);
}
END_TEST

/* ---- layout ------------------------------------------------------------------------------------------------------------- */

#define SHAPED(name, op, target, args, shape)                                                                                  \
    "{'name':'" name "','op':'" op "','target':'" target "','args':[" args "],'meta':{'shape':" shape ",'dtype':'float32'}},"

static const struct {
    const char *readers; /* of q, a Linear's result of shape [2,4] */
    bool needs_contiguous;
} layouts[] = {
    {METHOD("r", "relu", NODE("q")), false},
    {SHAPED("r", "call_method", "view", NODE("q") ",2,2,2", "[2,2,2]"), false},
    {SHAPED("r", "call_method", "view", NODE("q") ",8", "[8]"), true},
    {SHAPED("r", "call_method", "resize_", NODE("q") ",8", "[8]"), true},
    {SHAPED("r", "call_method", "as_strided", NODE("q") ",[8],[1]", "[8]"), true},
    {METHOD("r", "set_", NODE("q") "," NODE("y")), true},
    {METHOD("r", "untyped_storage", NODE("q")), true},
    {METHOD("r", "data_ptr", NODE("q")), true},
    {METHOD("r", "is_contiguous", NODE("q")), true},
    {METHOD("r", "stride", NODE("q") ",0"), true},
    {METHOD("r", "size", NODE("q") ",0"), false},
    {SHAPED("r", "call_method", "detach", NODE("q"), "[2,4]"), false},
    {SHAPED("r", "call_method", "detach_", NODE("q"), "[2,4]"), true},
    {SHAPED("d", "call_method", "detach", NODE("q"), "[2,4]") SHAPED("r", "call_method", "detach_", NODE("d"), "[2,4]"), true},
    {CALL("r", "copy.deepcopy", NODE("q")), true},
    {MODULE("r", "odd", NODE("q")), true},
    {MODULE("r", "same", NODE("q")), false},
    {CALL("s", "operator.setitem", NODE("y") ",0," NODE("q")), true},
    {SHAPED("z", "call_method", "clone", NODE("y"), "[2,4]") CALL("s", "operator.setitem", NODE("z") ",0," NODE("q")), false},
    {CALL("s", "operator.add", NODE("y") ",{'$tuple':[" NODE("q") "]}") CALL("e", "operator.getitem", NODE("s") ",0")
         SHAPED("r", "call_method", "view", NODE("e") ",8", "[8]"),
     true},
};

START_TEST(test_layouts) {
    const char *modules = "{'path':'','type':'M'},"
                          "{'path':'q','type':'torch.nn.Linear','parameters':{'weight':'w'},'config':{'bias':false}},"
                          "{'path':'odd','type':'my.OddLinear'},{'path':'same','type':'torch.nn.Identity'}";
    char nodes[2048];
    snprintf(nodes, sizeof nodes,
             INPUT("x") INPUT("y") SHAPED("q", "call_module", "q", NODE("x"), "[2,4]") "%s" MODULE("odd", "odd", NODE("x"))
                 MODULE("same", "same", NODE("x")) END,
             layouts[_i].readers);
    fb_graph *graph = quoted_graph(nodes, modules, "{'name':'w','dtype':'float32','shape':[4,4]}");
    fb_alias *alias = alias_of(graph);
    bool needs = fb_needs_contiguous(graph, alias, node_named(graph, "q"), 4);
    ck_assert_msg(needs == layouts[_i].needs_contiguous, "%s", layouts[_i].readers);
    fb_alias_free(alias);
    fb_graph_free(graph);
}
END_TEST

/* ---- usage -------------------------------------------------------------------------------------------------------------- */

START_TEST(test_usage) {
    const char *modules =
        "{'path':'','type':'M','parameters':{'w':'w','z':'z','o':'o'}},"
        "{'path':'a','type':'torch.nn.Linear','parameters':{'weight':'w','bias':'z'}},"
        "{'path':'b','type':'torch.nn.Linear','parameters':{'weight':'w','bias':null},'config':{'bias':false}},"
        "{'path':'bx','type':'torch.nn.Identity'},"
        "{'path':'box','type':'my.Box'},"
        "{'path':'box.in','type':'torch.nn.Identity','buffers':{'w':'w','v':'w'}},"
        "{'path':'sub','type':'torch.fx.GraphModule','graph':{'nodes':[" INPUT("x") MODULE("i", "one", NODE("x")) END
        "]}},"
        "{'path':'sub.one','type':'torch.nn.Identity'}";
    fb_graph *graph =
        quoted_graph(INPUT("x") MODULE("p", "a", NODE("x")) MODULE("q", "a", NODE("p")) READ("r", "b.weight") READ("s", "sub")
                         MODULE("t", "bx", NODE("q")) MODULE("u", "box", NODE("t")) MODULE("v", "a", NODE("u")) END,
                     modules,
                     "{'name':'w','dtype':'float32','shape':[4,4]}," TENSOR(
                         "z") ",{'name':'y','dtype':'float32','shape':[4],'recipe':{'op':'add','args':['z','z']}}"
                              ",{'name':'o','dtype':'float32','shape':[4],'recipe':'y'}");
    fb_usage *usage = fb_usage_new(graph);
    fb_module a = fb_module_find(graph, "a"), b = fb_module_find(graph, "b");
    ck_assert_uint_eq(fb_call_count(usage, a), 3);
    ck_assert_uint_eq(fb_first_call(usage, a).id, node_named(graph, "p").id);
    ck_assert_uint_eq(fb_next_call(usage, node_named(graph, "p")).id, node_named(graph, "q").id);
    ck_assert_uint_eq(fb_next_call(usage, node_named(graph, "q")).id, node_named(graph, "v").id);
    ck_assert_uint_eq(fb_next_call(usage, node_named(graph, "v")).id, 0);
    ck_assert_uint_eq(fb_call_count(usage, b), 0);
    ck_assert_uint_eq(fb_first_call(usage, b).id, 0);
    ck_assert_uint_eq(fb_call_count(usage, fb_module_find(graph, "sub.one")), 1);
    ck_assert(fb_module_is_read(usage, b) && fb_module_is_read(usage, fb_module_find(graph, "sub")));
    ck_assert(!fb_module_is_read(usage, a));
    ck_assert(fb_module_is_inside_call(usage, fb_module_find(graph, "box.in")));
    ck_assert(!fb_module_is_inside_call(usage, fb_module_find(graph, "bx")));
    ck_assert(!fb_module_is_inside_call(usage, fb_module_find(graph, "box")));
    fb_usage_free(usage);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_out_of_memory) {
    size_t size;
    char *text = read_fixture("aten-llama", "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    long failures = 0;
    for (long k = 0;; k++) {
        chaos_fail_after(k);
        fb_usage *usage = fb_usage_new(graph);
        fb_alias *alias = alias_of(graph);
        bool has_failed = chaos_off();
        ck_assert(has_failed == (!usage || !alias));
        fb_usage_free(usage);
        fb_alias_free(alias);
        if (!has_failed) break;
        failures++;
    }
    ck_assert_int_ge(failures, 20);
    fb_graph_free(graph);
    free(text);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("alias");
    tcase_add_loop_test(cases, test_writes, 0, (int)(sizeof writes / sizeof *writes));
    tcase_add_test(cases, test_parameters);
    tcase_add_test(cases, test_modules_write);
    tcase_add_test(cases, test_programs_that_write_nothing);
    tcase_add_test(cases, test_nested_programs);
    tcase_add_loop_test(cases, test_modes, 0, (int)(sizeof modes / sizeof *modes));
    tcase_add_loop_test(cases, test_layouts, 0, (int)(sizeof layouts / sizeof *layouts));
    tcase_add_test(cases, test_usage);
    tcase_add_test(cases, test_out_of_memory);
    return run_tests("alias and usage", cases);
}
