/* libFuzzer: whatever JSON comes, the reader of layouts answers, an error has a place in it, and a layout that is taken can be
 * applied: the checkpoint is valid afterwards, and has every tensor that no row took. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/compose/run.h"
#include "core/layouts/layout.h"

#define OWNED(name, attribute) "\"" attribute "\":\"" name "." attribute "\""
#define TENSOR(name, shape) "{\"name\":\"" name "\",\"dtype\":\"float32\",\"shape\":[" shape "]}"
#define BLOCK(path)                                                                                                            \
    "{\"path\":\"" path ".q\",\"type\":\"torch.nn.Module\",\"parameters\":{" OWNED(                                            \
        path ".q", "weight") "}},"                                                                                             \
                             "{\"path\":\"" path ".k\",\"type\":\"torch.nn.Module\",\"parameters\":{" OWNED(                   \
                                 path ".k", "weight") "," OWNED(path ".k", "bias") "}}"
#define TENSORS(path) TENSOR(path ".q.weight", "4,2") "," TENSOR(path ".k.weight", "2,2") "," TENSOR(path ".k.bias", "2")
static const char document[] = "{\"format\":\"foldback.graph/"
                               "1\",\"nodes\":[{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[null]}],"
                               "\"modules\":[{\"path\":\"\",\"type\":\"torch.nn.Module\",\"parameters\":{\"w\":\"w\"}}," BLOCK(
                                   "0") "," BLOCK("1") "],"
                                                       "\"tensors\":[" TENSOR("w", "3") "," TENSORS("0") "," TENSORS("1") "]}";

static void apply(const fb_pass *layout, const json_t *params) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_error error = {0};
    fb_arena arena = {0};
    char *text = json_dumps(params, JSON_COMPACT);
    require(fb_document_read(document, sizeof document - 1, NULL, "", &graph, &errors) == FB_OK);
    fb_graph *source = fb_graph_copy(graph, &(fb_work){0});
    fb_namespace *names = fb_namespace_of(source, &(fb_work){0});
    fb_graph_state work = {.graph = graph, .names = names};
    fb_pass_report report = {.pass = layout, .params = text, .signature = "fuzz"};
    require(fb_pass_apply(&work, NULL, &report, &arena, &error) == FB_OK);
    require(fb_lint_graph(graph, &(fb_work){0}, &error) == FB_OK);
    require(report.applied || fb_tensor_count(graph) == 7);
    fb_graph_state_forget(&work);
    fb_namespace_free(names);
    fb_graph_free(graph);
    fb_graph_free(source);
    fb_arena_free(&arena);
    fb_errors_free(&errors);
    free(text);
}

/* Of every parameter that is required: a small number. */
static json_t *some_params(const fb_pass *layout) {
    json_t *schema = json_loads(layout->parameters, 0, NULL), *params = json_object(), *name;
    size_t i;
    require(schema && params);
    json_array_foreach(json_object_get(schema, "required"), i, name) {
        json_object_set_new(params, json_string_value(name), json_integer((json_int_t)(i + 1)));
    }
    json_decref(schema);
    return params;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    const fb_pass *layout = NULL, *again = NULL;
    fb_error error = {0};
    if (!json) return 0;
    fb_status status = fb_layout_read(json, "/layout", 1, &layout, &error);
    json_decref(json);
    require((status == FB_OK) == (layout != NULL));
    require(status == FB_OK || (status == FB_INVALID && strncmp(error.pointer, "/layout", 7) == 0));
    if (!layout) return 0;
    json_t *stored = json_loads(fb_layout_document(layout), 0, NULL);
    require(stored && fb_layout_read(stored, "", 1, &again, &error) == FB_OK);
    require(strcmp(layout->digest, again->digest) == 0);
    json_decref(stored);
    json_t *params = some_params(layout);
    apply(layout, params);
    json_decref(params);
    fb_pass_free(layout);
    fb_pass_free(again);
    return 0;
}
