/* Models of ONNX as documents: what is made of a model is a valid document, whose tensors have the bytes that NumPy gives them.
 * tests/fixtures/onnx/make.py made the models. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/document/document.h"
#include "core/onnx/onnx.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

#define BLOB "sha256:00000000000000000000000000000000000000000000000000000000000000aa"
#define OTHER "sha256:00000000000000000000000000000000000000000000000000000000000000bb"

static const char *const fixtures[] = {"external-two-files", "functions", "half-mlp", "if-and-loop", "keras-cnn-11", "qdq-cnn"};
#define FIXTURES (int)(sizeof fixtures / sizeof *fixtures)

/* ---- helpers ------------------------------------------------------------------------------------------------------------ */

static bool find_file(void *context, const char *location, uint64_t *size, const char **blob) {
    (void)context;
    *size = 12288;
    *blob = OTHER;
    return *location != 'n';
}

static fb_status document_in(const void *bytes, size_t size, fb_buffer *out, fb_error *error) {
    onnx_file file;
    fb_work work = {0};
    fb_status status = onnx_open(bytes, size, NULL, &work, &file, error);
    if (!status) status = onnx_check(&file, &(onnx_files){.model = "model.onnx", .find = find_file}, &work, error);
    if (!status) status = onnx_document(&file, BLOB, NULL, &work, out, error);
    onnx_close(&file);
    return status;
}

static fb_graph *graph_in(const void *bytes, size_t size) {
    fb_buffer text = {0};
    fb_error error = {0};
    fb_status status = document_in(bytes, size, &text, &error);
    ck_assert_msg(!status, "%s", error.message);
    fb_graph *graph = graph_of(text.data, text.size);
    fb_buffer_free(&text);
    return graph;
}

static unsigned char *from_hex(const char *hex, size_t *size) {
    *size = strcmp(hex, "-") == 0 ? 0 : strlen(hex) / 2;
    unsigned char *bytes = malloc(*size ? *size : 1);
    for (size_t i = 0; i < *size; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return bytes;
}

/* Calls `visit` with the three words of each line. */
static size_t for_each(const char *name, void (*visit)(const char *first, const char *second, const char *third)) {
    size_t size, seen = 0;
    char *text = read_fixture("onnx", name, &size), *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), seen++) {
        char *second = strchr(line, ' '), *third = strrchr(line, ' ');
        *second++ = *third++ = '\0';
        visit(line, second, third);
    }
    free(text);
    return seen;
}

static fb_node node_called(const fb_graph *graph, const char *name) {
    fb_node node = fb_node_find(graph, FB_MAIN_PROGRAM, name);
    ck_assert_msg(node.id, "there is no node %s", name);
    return node;
}

static const char *target_of(const fb_graph *graph, const char *name) {
    return fb_text(graph, fb_node_at(graph, node_called(graph, name))->target);
}

/* ---- tests -------------------------------------------------------------------------------------------------------------- */

START_TEST(test_fixtures) {
    char name[64];
    size_t size;
    snprintf(name, sizeof name, "%s.onnx", fixtures[_i]);
    char *bytes = read_fixture("onnx", name, &size);
    fb_graph_free(graph_in(bytes, size));
    free(bytes);
}
END_TEST

/* A Constant is a weight like any other. */
START_TEST(test_constants) {
    static const char model[] =
        "\x08\x08\x42\x02\x10\x11\x3a\x30\x0a\x27\x22\x08\x43\x6f\x6e\x73\x74\x61\x6e\x74\x12\x01\x79\x2a"
        "\x18\x0a\x05\x76\x61\x6c\x75\x65\xa0\x01\x04\x2a\x0c\x10\x01\x08\x01\x4a\x04\x01\x02\x03\x04\x42"
        "\x00\x62\x03\x0a\x01\x79\x12\x00";
    fb_graph *graph = graph_in(model, sizeof model - 1);
    ck_assert_int_eq(fb_node_at(graph, node_called(graph, "y"))->opcode, FB_GET_ATTR);
    fb_tensor tensor = fb_tensor_find(graph, "y");
    ck_assert(tensor.id && fb_tensor_at(graph, tensor)->data.id);
    ck_assert_str_eq(fb_text(graph, fb_tensor_at(graph, tensor)->data), "AQIDBA=="); /* few bytes are in the document */
    fb_graph_free(graph);
}
END_TEST

static void check_tensor(const char *name, const char *wanted_hex, const char *hex) {
    size_t size, wanted_size;
    unsigned char *bytes = from_hex(hex, &size), *wanted = from_hex(wanted_hex, &wanted_size);
    fb_graph *graph = graph_in(bytes, size);
    fb_tensor tensor = fb_tensor_find(graph, "w");
    ck_assert_msg(tensor.id, "%s: no tensor", name);
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    unsigned char *made = NULL;
    if (row->dtype == FB_DTYPE_OTHER) { /* less than a byte */
        ck_assert(!row->data.id && !row->blob.id);
        wanted_size = 0;
    } else if (row->data.id) {
        const char *data = fb_text(graph, row->data);
        ck_assert_uint_eq(fb_base64_size(data, strlen(data)), wanted_size);
        made = malloc(wanted_size + 1);
        fb_base64_decode(data, 0, wanted_size, made);
    } else {
        ck_assert_msg(row->blob.id && strcmp(fb_text(graph, row->blob), BLOB) == 0, "%s", name);
        ck_assert_uint_le((uint64_t)row->offset + wanted_size, size);
    }
    ck_assert_msg(!wanted_size || memcmp(made ? made : bytes + row->offset, wanted, wanted_size) == 0, "%s has other bytes",
                  name);
    fb_graph_free(graph);
    free(made);
    free(bytes);
    free(wanted);
}

START_TEST(test_bytes_of_tensors) {
    ck_assert_uint_ge(for_each("tensors.txt", check_tensor), 50);
}
END_TEST

/* The version of an operator is the one in force, names are identifiers, and nested graphs say what they read from outside. */
START_TEST(test_nodes) {
    size_t size;
    char *bytes = read_fixture("onnx", "if-and-loop.onnx", &size);
    fb_graph *graph = graph_in(bytes, size);
    ck_assert_str_eq(target_of(graph, "Loop"), "onnx.Loop.v16");
    ck_assert_str_eq(target_of(graph, "fin"), "operator.getitem");
    ck_assert_str_eq(target_of(graph, "y"), "onnx.If.v16");
    ck_assert(fb_module_find(graph, "body.else_branch").id);
    fb_graph_free(graph);
    free(bytes);
}
END_TEST

static const struct {
    const char *domain, *op;
    unsigned char opset;
    const char *target;
} versions[] = {
    {"", "Softmax", 7, "onnx.Softmax.v1"},
    {"", "Softmax", 10, "onnx.Softmax.v1"},
    {"", "Softmax", 11, "onnx.Softmax.v11"},
    {"", "Softmax", 12, "onnx.Softmax.v11"},
    {"ai.onnx", "Softmax", 13, "onnx.Softmax.v13"},
    {"", "Softmax", 28, "onnx.Softmax.v13"},
    {"", "LayerNormalization", 14, "onnx.LayerNormalization.v14"},
    {"", "Unheard-of 1", 14, "onnx.Unheard_2dof_201.v14"},
    {"com.microsoft", "Gelu", 1, "com.microsoft.Gelu.v1"},
    {"1.x-y..z", "2a", 3, "_31.x_2dy_2e.z._32a.v3"},
};

/* The version in force, and letters that no identifier has. */
START_TEST(test_targets) {
    fb_buffer model = {0}, opset = {0}, node = {0}, graph = {0}, value = {0};
    onnx_put_bytes(&opset, ONNX_opset_domain, versions[_i].domain, strlen(versions[_i].domain));
    onnx_put_tag(&opset, ONNX_opset_version, ONNX_VARINT);
    onnx_put_number(&opset, ONNX_VARINT, versions[_i].opset);
    onnx_put_bytes(&node, ONNX_node_op_type, versions[_i].op, strlen(versions[_i].op));
    onnx_put_bytes(&node, ONNX_node_domain, versions[_i].domain, strlen(versions[_i].domain));
    onnx_put_bytes(&node, ONNX_node_output, "y", 1);
    onnx_put_bytes(&value, ONNX_value_info_name, "y", 1);
    onnx_put_bytes(&graph, ONNX_graph_node, node.data, node.size);
    onnx_put_bytes(&graph, ONNX_graph_output, value.data, value.size);
    onnx_put_tag(&model, ONNX_model_ir_version, ONNX_VARINT);
    onnx_put_number(&model, ONNX_VARINT, 8);
    onnx_put_bytes(&model, ONNX_model_opset_import, opset.data, opset.size);
    onnx_put_bytes(&model, ONNX_model_graph, graph.data, graph.size);
    fb_graph *made = graph_in(model.data, model.size);
    ck_assert_str_eq(target_of(made, "y"), versions[_i].target);
    fb_graph_free(made);
    fb_buffer_free(&model), fb_buffer_free(&opset), fb_buffer_free(&node), fb_buffer_free(&graph), fb_buffer_free(&value);
}
END_TEST

START_TEST(test_files_beside) {
    size_t size;
    char *bytes = read_fixture("onnx", "external-two-files.onnx", &size);
    fb_graph *graph = graph_in(bytes, size);
    size_t seen = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next)
        seen += fb_tensor_at(graph, t)->blob.id && strcmp(fb_text(graph, fb_tensor_at(graph, t)->blob), OTHER) == 0;
    ck_assert_uint_ge(seen, 2);
    fb_graph_free(graph);
    free(bytes);
}
END_TEST

/* A document that is made is JSON, and is read or refused with a reason. */
static void read_document(const unsigned char *bytes, size_t size, const char *name, bool is_right) {
    fb_buffer text = {0};
    fb_error error = {0};
    fb_errors errors = {0};
    fb_graph *graph = NULL;
    if (!document_in(bytes, size, &text, &error)) {
        fb_status status = fb_document_read(text.data, text.size, NULL, "", &graph, &errors);
        ck_assert_msg(status != FB_SYNTAX, "%s: %s", name, errors.items[0].message);
        ck_assert_msg(!status || (!is_right && errors.total), "%s: %s", name, errors.count ? errors.items[0].message : "");
        if (!status) fb_graph_free(graph);
    }
    fb_buffer_free(&text);
    fb_errors_free(&errors);
}

static void check_model(const char *name, const char *code, const char *hex) {
    size_t size;
    unsigned char *bytes = from_hex(hex, &size);
    read_document(bytes, size, name, true);
    for (size_t at = 0; at < size && strcmp(code, "ok") == 0; at++) {
        for (int bit = 0; bit < 8; bit += 3) {
            bytes[at] ^= (unsigned char)(1 << bit);
            read_document(bytes, size, name, false);
            bytes[at] ^= (unsigned char)(1 << bit);
        }
    }
    free(bytes);
}

START_TEST(test_changed_bytes) {
    for_each("checks.txt", check_model);
}
END_TEST

START_TEST(test_memory_runs_out) {
    char name[64];
    size_t size;
    snprintf(name, sizeof name, "%s.onnx", fixtures[_i]);
    char *bytes = read_fixture("onnx", name, &size);
    for (long k = 0;; k++) {
        fb_buffer text = {0};
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = document_in(bytes, size, &text, &error);
        bool has_failed = chaos_off();
        fb_buffer_free(&text);
        if (!has_failed) break;
        ck_assert_msg(status == FB_NO_MEMORY, "allocation %ld: %d %s", k, status, error.message);
    }
    free(bytes);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("onnx_read");
    tcase_add_loop_test(tests, test_fixtures, 0, FIXTURES);
    tcase_add_test(tests, test_bytes_of_tensors);
    tcase_add_test(tests, test_constants);
    tcase_add_test(tests, test_nodes);
    tcase_add_loop_test(tests, test_targets, 0, sizeof versions / sizeof *versions);
    tcase_add_test(tests, test_files_beside);
    tcase_add_test(tests, test_changed_bytes);
    tcase_add_loop_test(tests, test_memory_runs_out, 0, FIXTURES);
    tcase_set_timeout(tests, 600);
    return run_tests("onnx_read", tests);
}
