/* core/graph/code.h against what PyTorch 2.13 printed: the fixtures, and 200 random graphs over all kinds of values, targets
 * and names. The latter were built with torch.fx from a seed each, so nothing in them means anything. Where code.h says that
 * the code is another than torch.fx's, it is that one. */
#include "core/graph/code.h"

#include "tests/unit/checks.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "core/graph/build.h"
#include "core/graph/python.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

static fb_graph *read_document(const char *bytes, size_t size, const char *what) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_status status = fb_document_read(bytes, size, NULL, "", &graph, &errors);
    ck_assert_msg(status == FB_OK, "%s: %s: %s", what, errors.count ? errors.items[0].pointer : "",
                  errors.count ? errors.items[0].message : "");
    fb_errors_free(&errors);
    return graph;
}

static void expect_code(const fb_graph *graph, const char *expected, const char *what) {
    fb_buffer code = {0};
    ck_assert(fb_code_write(graph, FB_MAIN_PROGRAM, &(fb_work){0}, &code));
    const char *text = fb_buffer_text(&code);
    ck_assert_msg(strcmp(text, expected) == 0, "%s: the code is\n%s\nand should be\n%s", what, text, expected);
    fb_buffer_free(&code);
}

START_TEST(test_fixture) {
    const char *name = fixture_names[_i];
    size_t size;
    char *document = read_fixture(name, "graph.json", &size), *expected = read_fixture_code(name, NULL);
    fb_graph *graph = read_document(document, size, name);
    expect_code(graph, expected, name);
    fb_graph_free(graph);
    free(document);
    free(expected);
}
END_TEST

/* Two lines a case: a document, and its code as a JSON string. */
START_TEST(test_recorded_cases) {
    FILE *file = fopen("tests/unit/data/code_cases.jsonl", "r");
    ck_assert_ptr_nonnull(file);
    char *document = NULL, *code = NULL;
    size_t document_capacity = 0, code_capacity = 0, cases = 0;
    ssize_t size;
    while ((size = getline(&document, &document_capacity, file)) > 0) {
        char what[32];
        snprintf(what, sizeof what, "case %zu", ++cases);
        ck_assert(getline(&code, &code_capacity, file) > 0);
        json_t *expected = json_loads(code, JSON_DECODE_ANY, NULL);
        ck_assert_ptr_nonnull(expected);
        fb_graph *graph = read_document(document, (size_t)size, what);
        expect_code(graph, json_string_value(expected), what);
        fb_graph_free(graph);
        json_decref(expected);
    }
    ck_assert_uint_eq(cases, 200);
    free(document);
    free(code);
    fclose(file);
}
END_TEST

/* ---- graphs that no document can give: code must not become an injection surface even then ------------------------------- */

static fb_graph *graph;

static void set_up(void) {
    graph = fb_graph_new();
    ck_assert_ptr_nonnull(graph);
}

static void tear_down(void) {
    fb_graph_free(graph);
}

static fb_node add_node(const char *name, fb_opcode opcode, const char *target, fb_value *args, size_t count) {
    fb_node node = fb_graph_add_node(graph, FB_MAIN_PROGRAM, fb_intern(graph, name), (fb_node){0});
    fb_graph_set_target(graph, node, opcode, fb_intern(graph, target));
    fb_value list = fb_make_list(graph, args, count);
    ck_assert(fb_graph_set_args(graph, node, list, fb_node_at(graph, node)->kwargs));
    return node;
}

static void expect_body(const char *expected) {
    expect_code(graph, expected, "graph");
}

START_TEST(test_names_that_are_no_names) {
    add_node("x): import os #", FB_PLACEHOLDER, "y): import os #", NULL, 0);
    add_node("class", FB_CALL_FUNCTION, "f(); import os; g", NULL, 0);
    add_node("m", FB_CALL_MODULE, "a\").b(\"c\n.d\\", NULL, 0);
    expect_body("\n\n\ndef forward(self, x_import_os_):\n"
                "    class_1 = f_import_os_g();  class_1 = None\n"
                "    m = getattr(getattr(getattr(self, 'a\")'), 'b(\"c\\n'), 'd\\\\')();  m = None\n"
                "    ");
}
END_TEST

START_TEST(test_values_that_are_no_values) {
    fb_value args[] = {
        fb_make_text(graph, FB_OPAQUE, "exit()", 6),  fb_make_text(graph, FB_OPAQUE, "a[b.c] d", 8),
        fb_make_text(graph, FB_OPAQUE, "yield x", 7), fb_make_text(graph, FB_OPAQUE, "", 0),
        fb_make_text(graph, FB_OPAQUE, "it's\n", 5),  fb_make_text(graph, FB_BIG_INT, "-1+exit()", 9),
        fb_make_text(graph, FB_DTYPE, "a()", 3),      fb_make_text(graph, FB_DEVICE, "a'):exit()", 10),
        fb_make_text(graph, FB_REF, "exit()", 6),     fb_make_string(graph, "\xff'\"\\"),
    };
    add_node("f", FB_CALL_FUNCTION, "math.sqrt", args, sizeof args / sizeof *args);
    expect_body(
        "\n\n\ndef forward(self):\n"
        "    f = math_sqrt('exit()', a[b.c] d, 'yield x', '', \"it's\\n\", '-1+exit()', 'a()', device(type=\"a')\", index=0), "
        "exit_, '\\xff\\'\"\\\\');  f = None\n"
        "    ");
}
END_TEST

START_TEST(test_keywords_and_types_that_are_none) {
    fb_node node = add_node("f", FB_CALL_FUNCTION, "torch.f", NULL, 0);
    fb_value kwargs = fb_node_at(graph, node)->kwargs;
    kwargs = fb_map_with(graph, kwargs, "a = exit()", fb_make_bool(graph, true));
    kwargs = fb_map_with(graph, kwargs, "class", fb_make_none(graph));
    kwargs = fb_map_with(graph, kwargs, "b", fb_make_int(graph, INT64_MIN));
    ck_assert(fb_graph_set_args(graph, node, fb_node_at(graph, node)->args, kwargs));
    fb_node_row_at(graph, node)->type = fb_intern(graph, "exit()");
    expect_body("\n\n\ndef forward(self):\n"
                "    f : 'exit()' = torch.f(**{'a = exit()': True}, **{'class': None}, b = -9223372036854775808);  f = None\n"
                "    ");
}
END_TEST

/* ---- what torch.fx cannot print ------------------------------------------------------------------------------------------ */

START_TEST(test_keyword_attributes) {
    fb_value x = fb_make_node(graph, add_node("x", FB_PLACEHOLDER, "x", NULL, 0));
    fb_value args[] = {x, fb_make_string(graph, "class")};
    add_node("a", FB_CALL_FUNCTION, "builtins.getattr", args, 2);
    add_node("b", FB_CALL_MODULE, "if.else.c", NULL, 0);
    expect_body("\n\n\ndef forward(self, x):\n"
                "    a = getattr(x, \"class\");  x = a = None\n"
                "    b = getattr(getattr(self, \"if\"), \"else\").c();  b = None\n"
                "    ");
}
END_TEST

/* Python reads the NFKC form of an identifier: another module. */
START_TEST(test_attributes_that_python_renames) {
    fb_value x = fb_make_node(graph, add_node("x", FB_PLACEHOLDER, "x", NULL, 0));
    fb_value args[] = {x, fb_make_string(graph, "\u212a")}; /* the sign of Kelvin, which becomes K */
    add_node("a", FB_CALL_FUNCTION, "builtins.getattr", args, 2);
    add_node("b", FB_CALL_MODULE, "gr\u00f6\u00dfe.fc", NULL, 0);
    add_node("c", FB_CALL_MODULE, "gro\u0308\u00dfe.\uff41", NULL, 0);
    expect_body("\n\n\ndef forward(self, x):\n"
                "    a = getattr(x, \"\u212a\");  x = a = None\n"
                "    b = self.gr\u00f6\u00dfe.fc();  b = None\n"
                "    c = getattr(getattr(self, \"gro\u0308\u00dfe\"), \"\uff41\")();  c = None\n"
                "    ");
}
END_TEST

/* PyTorch's code would read the input in the place of the number. */
START_TEST(test_inputs_called_like_numbers) {
    fb_value x = fb_make_node(graph, add_node("inf_1", FB_PLACEHOLDER, "inf", NULL, 0));
    fb_value y = fb_make_node(graph, add_node("nan_1", FB_PLACEHOLDER, "nan", (fb_value[]){fb_make_float(graph, NAN)}, 1));
    add_node("mul", FB_CALL_FUNCTION, "operator.mul", (fb_value[]){x, y}, 2);
    expect_body("\n\n\ndef forward(self, inf, nan = nan):\n"
                "    inf_1 = inf\n"
                "    nan_1 = nan\n"
                "    mul = inf_1 * nan_1;  inf_1 = nan_1 = mul = None\n"
                "    ");
    add_node("add", FB_CALL_FUNCTION, "operator.add", (fb_value[]){x, fb_make_float(graph, -INFINITY)}, 2);
    expect_body("\n\n\ndef forward(self, inf_1, nan = nan):\n"
                "    nan_1 = nan\n"
                "    mul = inf_1 * nan_1;  nan_1 = mul = None\n"
                "    add = inf_1 + -inf;  inf_1 = add = None\n"
                "    ");
}
END_TEST

START_TEST(test_inputs_called_like_what_the_code_says) {
    fb_value x = fb_make_node(graph, add_node("torch_1", FB_PLACEHOLDER, "torch", NULL, 0));
    fb_value rest = fb_make_node(graph, add_node("slice_1", FB_PLACEHOLDER, "*slice", NULL, 0));
    fb_value type = fb_make_node(graph, add_node("type_1", FB_PLACEHOLDER, "type", NULL, 0));
    add_node("to", FB_CALL_METHOD, "to", (fb_value[]){x, fb_make_text(graph, FB_DEVICE, "cpu", 3)}, 2);
    add_node("torch_2", FB_CALL_METHOD, "torch", (fb_value[]){rest, fb_make_string(graph, "the type of a torch slice")}, 2);
    expect_body("\n\n\ndef forward(self, torch, *slice, type):\n"
                "    torch_1 = torch\n"
                "    slice_1 = slice\n"
                "    type_1 = type\n"
                "    to = torch_1.to(device(type='cpu'));  torch_1 = to = None\n"
                "    torch_2 = slice_1.torch('the type of a torch slice');  slice_1 = torch_2 = None\n"
                "    ");
    fb_value nothing = fb_make_none(graph), part = fb_make_slice(graph, nothing, x, nothing);
    add_node("getitem", FB_CALL_FUNCTION, "operator.getitem", (fb_value[]){type, part}, 2);
    add_node("relu", FB_CALL_FUNCTION, "torch.relu", &x, 1);
    expect_body("\n\n\ndef forward(self, torch_1, *slice_1, type):\n"
                "    type_1 = type\n"
                "    to = torch_1.to(device(type='cpu'));  to = None\n"
                "    torch_2 = slice_1.torch('the type of a torch slice');  slice_1 = torch_2 = None\n"
                "    getitem = type_1[slice(None, torch_1, None)];  type_1 = getitem = None\n"
                "    relu = torch.relu(torch_1);  torch_1 = relu = None\n"
                "    ");
}
END_TEST

/* torch.fx would write over an input before it reads it. */
START_TEST(test_inputs_with_each_others_names) {
    fb_value a = fb_make_node(graph, add_node("b", FB_PLACEHOLDER, "a", NULL, 0));
    fb_value b = fb_make_node(graph, add_node("a", FB_PLACEHOLDER, "b", NULL, 0));
    fb_value c = fb_make_node(graph, add_node("y", FB_PLACEHOLDER, "c", NULL, 0));
    fb_value sum = fb_make_node(graph, add_node("c", FB_CALL_FUNCTION, "operator.add", (fb_value[]){a, b}, 2));
    add_node("sub", FB_CALL_FUNCTION, "operator.sub", (fb_value[]){sum, c}, 2);
    expect_body("\n\n\ndef forward(self, b, a, c):\n"
                "    y = c\n"
                "    c = b + a;  b = a = None\n"
                "    sub = c - y;  c = y = sub = None\n"
                "    ");
}
END_TEST

START_TEST(test_numbers_and_words_that_python_does_not_take) {
    add_node("debug", FB_PLACEHOLDER, "__debug__", NULL, 0);
    fb_value parts[] = {fb_make_float(graph, 1), fb_make_float(graph, -INFINITY)};
    fb_value number = fb_make_items(graph, FB_COMPLEX, (fb_symbol){0}, parts, 2);
    add_node("f", FB_CALL_FUNCTION, "torch.f", &number, 1);
    expect_body("\n\n\ndef forward(self, debug):\n"
                "    f = torch.f(complex(1.0, -inf));  f = None\n"
                "    ");
}
END_TEST

START_TEST(test_too_few_operands) {
    fb_value one = fb_make_int(graph, 1);
    add_node("add", FB_CALL_FUNCTION, "operator.add", &one, 1);
    add_node("setitem", FB_CALL_FUNCTION, "operator.setitem", &one, 1);
    expect_body("\n\n\ndef forward(self):\n"
                "    add = _operator_add(1);  add = None\n"
                "    setitem = _operator_setitem(1);  setitem = None\n"
                "    ");
}
END_TEST

START_TEST(test_empty_program) {
    expect_body("\n\n\ndef forward(self):\n    pass\n    ");
}
END_TEST

START_TEST(test_nested_program) {
    fb_module owner = fb_graph_add_module(graph, fb_intern(graph, "sub"), (fb_module){0});
    fb_program nested = fb_graph_add_program(graph, owner);
    fb_node node = fb_graph_add_node(graph, nested, fb_intern(graph, "y"), (fb_node){0});
    fb_graph_set_target(graph, node, FB_PLACEHOLDER, fb_intern(graph, "y"));
    add_node("x", FB_PLACEHOLDER, "x", NULL, 0);
    expect_body("\n\n\ndef forward(self, x):\n    ");
    fb_buffer code = {0};
    ck_assert(fb_code_write(graph, nested, &(fb_work){0}, &code));
    ck_assert_str_eq(fb_buffer_text(&code), "\n\n\ndef forward(self, y):\n    ");
    fb_buffer_free(&code);
}
END_TEST

/* ---- literals ------------------------------------------------------------------------------------------------------------ */

static void expect_string(const char *text, const char *literal) {
    fb_buffer out = {0};
    fb_repr_string(&out, text, strlen(text));
    ck_assert_str_eq(fb_buffer_text(&out), literal);
    fb_buffer_free(&out);
}

START_TEST(test_strings) {
    expect_string("", "''");
    expect_string("it's", "\"it's\"");
    expect_string("say \"it's\"", "'say \"it\\'s\"'");
    expect_string("a\tb\r\n\x01\x7f\\", "'a\\tb\\r\\n\\x01\\x7f\\\\'");
    expect_string("\u00e9\u00a0\u00ad\u0300", "'\u00e9\\xa0\\xad\u0300'");
    expect_string("\u2028\u3000\ue000\ufeff", "'\\u2028\\u3000\\ue000\\ufeff'");
    expect_string("\U0001f600\U000e0001\U0010ffff", "'\U0001f600\\U000e0001\\U0010ffff'");
    expect_string("\xc0\x80\xed\xa0\x80\xf5", "'\\xc0\\x80\\xed\\xa0\\x80\\xf5'");
}
END_TEST

static void expect_complex(double real, double imaginary, const char *literal) {
    fb_buffer out = {0};
    fb_repr_complex(&out, real, imaginary);
    ck_assert_str_eq(fb_buffer_text(&out), literal);
    fb_buffer_free(&out);
}

START_TEST(test_complex_numbers) {
    expect_complex(0.0, 2.0, "2j");
    expect_complex(0.0, -0.0, "-0j");
    expect_complex(-0.0, 2.0, "(-0+2j)");
    expect_complex(1.5, -2.0, "(1.5-2j)");
    expect_complex(1e16, 1e-5, "(1e+16+1e-05j)");
    expect_complex(NAN, -NAN, "(nan+nanj)");
    expect_complex(-INFINITY, -INFINITY, "(-inf-infj)");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("code");
    TCase *documents = tcase_create("documents");
    tcase_add_loop_test(documents, test_fixture, 0, fixture_count);
    tcase_add_test(documents, test_recorded_cases);
    suite_add_tcase(suite, documents);
    TCase *graphs = tcase_create("graphs");
    tcase_add_checked_fixture(graphs, set_up, tear_down);
    tcase_add_test(graphs, test_names_that_are_no_names);
    tcase_add_test(graphs, test_values_that_are_no_values);
    tcase_add_test(graphs, test_keywords_and_types_that_are_none);
    tcase_add_test(graphs, test_keyword_attributes);
    tcase_add_test(graphs, test_attributes_that_python_renames);
    tcase_add_test(graphs, test_inputs_called_like_numbers);
    tcase_add_test(graphs, test_inputs_called_like_what_the_code_says);
    tcase_add_test(graphs, test_inputs_with_each_others_names);
    tcase_add_test(graphs, test_numbers_and_words_that_python_does_not_take);
    tcase_add_test(graphs, test_too_few_operands);
    tcase_add_test(graphs, test_empty_program);
    tcase_add_test(graphs, test_nested_program);
    tcase_add_test(graphs, test_strings);
    tcase_add_test(graphs, test_complex_numbers);
    suite_add_tcase(suite, graphs);
    return run_suite(suite);
}
