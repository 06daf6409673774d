/* The files that a model is made of. */
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "core/base/sort.h"
#include "core/json/json.h"
#include "core/onnx/onnx.h"

static int by_name(const void *a, const void *b) {
    return strcmp(((const onnx_bundle_file *)a)->name, ((const onnx_bundle_file *)b)->name);
}

bool onnx_bundle_gather(const json_t *files, onnx_bundle *bundle) {
    const char *name;
    json_t *blob;
    bundle->files = calloc(json_object_size(files) + 1, sizeof *bundle->files);
    if (!bundle->files) return false;
    json_object_foreach((json_t *)(uintptr_t)files, name, blob) {
        if (strcmp(name, bundle->model) == 0) continue;
        bundle->files[bundle->count++] = (onnx_bundle_file){.name = name, .blob = json_string_value(blob)};
    }
    fb_sort(bundle->files, bundle->count, sizeof *bundle->files, by_name);
    return true;
}

const onnx_bundle_file *onnx_bundle_find(const onnx_bundle *bundle, const char *name) {
    const onnx_bundle_file wanted = {.name = name};
    return bundle->count ? bsearch(&wanted, bundle->files, bundle->count, sizeof wanted, by_name) : NULL;
}

static bool are_files(const json_t *files) {
    const char *name;
    json_t *blob;
    json_object_foreach((json_t *)(uintptr_t)files, name, blob) {
        if (!json_is_null(blob) && !(json_is_string(blob) && fb_is_sha256_id(json_string_value(blob)))) return false;
    }
    return json_is_object(files);
}

fb_status onnx_bundle_of(const fb_graph *graph, onnx_bundle *out, fb_error *error) {
    fb_value metadata = fb_graph_metadata(graph);
    const char *text = metadata.id ? fb_value_text(graph, fb_map_value(graph, metadata, "onnx")) : NULL;
    *out = (onnx_bundle){0};
    if (!text) return FB_OK;
    json_error_t failure;
    out->said = fb_load_json_bytes(text, strlen(text), JSON_DECODE_ANY, &failure);
    if (!out->said) return failure.text[0] ? FB_OK : fb_fail_memory(error);
    const char *blob = json_string_value(json_object_get(out->said, "blob"));
    const json_t *files = json_object_get(out->said, "files");
    out->model = json_string_value(json_object_get(out->said, "model"));
    if (!blob || !out->model || !fb_is_sha256_id(blob) || !are_files(files)) return FB_OK;
    if (!onnx_bundle_gather(files, out)) return fb_fail_memory(error);
    for (size_t i = 0; i < out->count; i++) out->may_lack |= !out->files[i].blob;
    out->blob = blob;
    return FB_OK;
}

void onnx_bundle_free(onnx_bundle *bundle) {
    free(bundle->files);
    json_decref(bundle->said);
    *bundle = (onnx_bundle){0};
}
