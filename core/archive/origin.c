#include "core/archive/archive.h"

#include <stdlib.h>
#include <string.h>

#include "core/archive/rewrite.h"
#include "core/json/json.h"

const char *pt_origin_text(const fb_graph *graph) {
    fb_value metadata = fb_graph_metadata(graph);
    return metadata.id ? fb_value_text(graph, fb_map_value(graph, metadata, "archive")) : NULL;
}

fb_status fb_archive_origin_of(const fb_graph *graph, fb_archive_origin *out, fb_error *error) {
    const char *text = pt_origin_text(graph);
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

fb_status fb_archive_written_for(const fb_archive *archive, char id[FB_ID_LENGTH + 1], fb_error *error) {
    const fb_zip_entry *entry = fb_archive_find(archive, FB_ARCHIVE_GRAPH_ENTRY);
    fb_work work = {0};
    char *text;
    *id = '\0';
    if (!entry || entry->size != FB_ID_LENGTH) return FB_OK;
    fb_status status = fb_zip_read(&archive->zip, entry, FB_ID_LENGTH, &work, &text, error);
    if (status) return status;
    if (fb_is_sha256_id(text)) memcpy(id, text, FB_ID_LENGTH + 1);
    free(text);
    return FB_OK;
}
