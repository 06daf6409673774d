#include "tests/unit/bind_fixture.h"

#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bind/bind.h"
#include "core/document/document.h"
#include "tests/unit/documents.h"

memory_blobs bind_blobs;

void bind_set_up(void) {
    memory_blobs_init(&bind_blobs);
}

void bind_tear_down(void) {
    memory_blobs_free(&bind_blobs);
}

fb_graph *bind_graph(const char *owners, const char *tensors) {
    fb_buffer modules = {0};
    const char *path;
    json_t *json = json_loads(owners, 0, NULL), *parameters;
    ck_assert_ptr_nonnull(json);
    json_object_foreach(json, path, parameters) {
        char *text = json_dumps(parameters, JSON_COMPACT);
        fb_buffer_printf(&modules, "%s{\"path\":\"%s\",\"type\":\"torch.nn.Module\",\"parameters\":%s}",
                         modules.size ? "," : "", path, text);
        free(text);
    }
    json_decref(json);
    char *text = document_of("{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\"},"
                             "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"x\"}]}",
                             fb_buffer_text(&modules), tensors);
    fb_graph *graph = graph_of(text, strlen(text));
    fb_buffer_free(&modules);
    free(text);
    return graph;
}

char *bind_document(const fb_graph *graph) {
    fb_buffer text = {0};
    fb_document_write(graph, &text);
    return fb_buffer_take(&text, NULL);
}

static char *list_text(const json_t *list) {
    return json_dumps(list, JSON_COMPACT);
}

void expect_binding_with(fb_graph *graph, const char *const *files, size_t count, const fb_bind_options *options, size_t bound,
                         const char *missing, const char *extra, const char *mismatching, const char *detail) {
    fb_binding binding;
    fb_error error = {0};
    char *before = bind_document(graph);
    fb_status status = fb_bind(graph, files, count, &bind_blobs.source, options, &binding, &error);
    ck_assert_msg(status == FB_OK, "%s: %s %s", error.code, error.pointer, error.message);
    char *found_missing = list_text(binding.missing), *found_extra = list_text(binding.extra);
    ck_assert_str_eq(found_missing, missing);
    ck_assert_str_eq(found_extra, extra);
    json_t *names = json_array(), *item;
    size_t i;
    json_array_foreach(binding.mismatching, i, item) json_array_append(names, json_object_get(item, "name"));
    char *found_mismatching = list_text(names), *after = bind_document(graph);
    ck_assert_str_eq(found_mismatching, mismatching);
    if (json_array_size(names)) {
        const char *text = json_string_value(json_object_get(json_array_get(binding.mismatching, 0), "detail"));
        ck_assert_msg(strstr(text, detail), "\"%s\" lacks \"%s\"", text, detail);
        ck_assert_str_eq(after, before);
    } else {
        ck_assert_uint_eq(binding.bound, bound);
    }
    fb_graph *again = graph_of(after, strlen(after));
    ck_assert_ptr_nonnull(again);
    fb_graph_free(again);
    json_decref(names);
    free(found_missing);
    free(found_extra);
    free(found_mismatching);
    free(before);
    free(after);
    fb_binding_free(&binding);
    ck_assert_uint_eq(bind_blobs.open, 0);
}

void expect_binding(fb_graph *graph, const char *const *files, size_t count, size_t bound, const char *missing,
                    const char *extra, const char *mismatching, const char *detail) {
    expect_binding_with(graph, files, count, NULL, bound, missing, extra, mismatching, detail);
}

void expect_bound(fb_graph *graph, const char *file, size_t bound) {
    expect_bound_with(graph, file, NULL, bound);
}

void expect_bound_with(fb_graph *graph, const char *file, const fb_bind_options *options, size_t bound) {
    expect_binding_with(graph, &file, 1, options, bound, "[]", "[]", "[]", "");
}

static void expect_refused(fb_graph *graph, const char *file, const fb_bind_options *options) {
    fb_binding binding;
    fb_error error = {0};
    char *before = bind_document(graph);
    ck_assert_int_eq(fb_bind(graph, &file, 1, &bind_blobs.source, options, &binding, &error), FB_CONFLICT);
    ck_assert_str_eq(error.code, "ambiguous-weights");
    char *after = bind_document(graph);
    ck_assert_str_eq(after, before);
    free(before);
    free(after);
    ck_assert_uint_eq(bind_blobs.open, 0);
}

void expect_ambiguous(fb_graph *graph, const char *file) {
    expect_refused(graph, file, NULL);
}

void expect_contradiction(fb_graph *graph, const char *file) {
    expect_refused(graph, file, &(fb_bind_options){.as = FB_WEIGHTS_SOURCE});
}

void expect_mismatch(fb_graph *graph, const char *file, const char *name, const char *detail) {
    char names[100];
    snprintf(names, sizeof names, "[\"%s\"]", name);
    expect_binding(graph, &file, 1, 0, "[]", "[]", names, detail);
}

const fb_tensor_row *tensor_row(const fb_graph *graph, const char *name) {
    fb_tensor tensor = fb_tensor_find(graph, name);
    ck_assert_msg(tensor.id, "there is no %s", name);
    return fb_tensor_at(graph, tensor);
}

void expect_bytes(const fb_graph *graph, const char *name, const char *bytes) {
    const fb_tensor_row *row = tensor_row(graph, name);
    ck_assert_msg(row->blob.id && !row->recipe.id && !row->data.id, "%s has no blob", name);
    const memory_blob *blob = memory_blobs_find(&bind_blobs, fb_text(graph, row->blob));
    ck_assert_mem_eq(blob->bytes + row->offset, bytes, strlen(bytes));
}

void bytes_digest(const char *bytes, char digest[FB_ID_LENGTH + 1]) {
    ck_assert(fb_sha256_id(bytes, strlen(bytes), digest));
}
