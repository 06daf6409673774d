#include "core/archive/archive.h"

#include <string.h>

#include "core/json/json.h"

fb_status fb_archive_origin_of(const fb_graph *graph, fb_archive_origin *out, fb_error *error) {
    fb_value metadata = fb_graph_metadata(graph);
    const char *text = metadata.id ? fb_value_text(graph, fb_map_value(graph, metadata, "archive")) : NULL;
    *out = (fb_archive_origin){0};
    if (!text) return FB_OK;
    json_error_t failure;
    json_t *said = fb_load_json_bytes(text, strlen(text), 0, &failure);
    if (!said && !failure.text[0]) return fb_fail_memory(error);
    const char *blob = json_string_value(json_object_get(said, "blob")),
               *model = json_string_value(json_object_get(said, "model"));
    fb_status status = FB_OK;
    if (blob && model && json_object_size(said) == 2 && fb_is_sha256_id(blob)) {
        memcpy(out->blob, blob, sizeof out->blob);
        out->model = strdup(model);
        if (!out->model) status = fb_fail_memory(error);
    }
    json_decref(said);
    return status;
}
