#include "core/weights/weights_source.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/graph/build.h"
#include "core/graph/write.h"
#include "core/weights/evaluate.h"

#define NOTE "weights_file"

/* ---- the file ----------------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp((*(const fb_safetensors_entry *const *)a)->name, (*(const fb_safetensors_entry *const *)b)->name);
}

static fb_status read_header(fb_weights_source *source, fb_error *error) {
    fb_safetensors *header = &source->header;
    fb_status status = fb_safetensors_read(source->bytes.bytes, source->bytes.size, header, NULL);
    if (status) return status == FB_NO_MEMORY ? fb_fail_memory(error) : FB_OK;
    source->by_name = malloc((header->count + 1) * sizeof *source->by_name);
    if (!source->by_name) return fb_fail_memory(error);
    for (size_t i = 0; i < header->count; i++) source->by_name[i] = &header->entries[i];
    fb_sort(source->by_name, header->count, sizeof *source->by_name, by_name);
    return FB_OK;
}

fb_status fb_weights_source_open(fb_weights_source *source, const fb_blobs *blobs, const char *blob, fb_error *error) {
    *source = (fb_weights_source){.blobs = blobs, .blob = blob};
    fb_status status = blobs->open(blobs->context, blob, &source->bytes, error);
    if (status) return status;
    status = read_header(source, error);
    if (status) fb_weights_source_close(source);
    return status;
}

void fb_weights_source_close(fb_weights_source *source) {
    fb_safetensors_free(&source->header);
    free(source->by_name);
    source->blobs->close(source->blobs->context, &source->bytes);
}

/* ---- its tensors -------------------------------------------------------------------------------------------------------- */

const fb_safetensors_entry *fb_weights_source_find(const fb_weights_source *source, const char *name) {
    const fb_safetensors_entry wanted = {.name = name}, *key = &wanted;
    if (!source->header.count) return NULL;
    const fb_safetensors_entry **found = bsearch(&key, source->by_name, source->header.count, sizeof *source->by_name, by_name);
    return found ? *found : NULL;
}

static bool is_of_shape(const fb_graph *graph, const fb_tensor_row *row, const fb_safetensors_entry *entry) {
    bool is_same = entry->dtype == row->dtype && entry->rank == fb_shape_rank(graph, row->shape);
    for (int i = 0; is_same && i < entry->rank; i++) is_same = entry->shape[i] == fb_shape_size(graph, row->shape, i);
    return is_same;
}

static fb_status digest_entry(const fb_weights_source *source, const fb_safetensors_entry *entry, const char *shape,
                              char digest[FB_ID_LENGTH + 1], fb_error *error) {
    const fb_blobs *blobs = source->blobs;
    const fb_blob_tensor place = {.blob = source->blob,
                                  .offset = entry->offset,
                                  .size = entry->size,
                                  .dtype = fb_dtype_name(entry->dtype),
                                  .shape = shape};
    fb_error ignored = {0};
    if (blobs->recall && !blobs->recall(blobs->context, &place, digest, &ignored)) return FB_OK;
    if (!fb_sha256_id(source->bytes.bytes + entry->offset, (size_t)entry->size, digest)) return fb_fail_memory(error);
    blobs->forget(blobs->context, &source->bytes);
    if (blobs->remember) blobs->remember(blobs->context, &place, digest);
    return FB_OK;
}

static fb_status compare_bytes(const fb_weights_source *source, const fb_graph *graph, fb_tensor tensor,
                               const fb_safetensors_entry *entry, bool *is_same, fb_error *error) {
    char of_tensor[FB_ID_LENGTH + 1], of_entry[FB_ID_LENGTH + 1];
    fb_buffer shape = {0};
    fb_value_write(graph, fb_tensor_at(graph, tensor)->shape, &shape);
    const char *text = fb_buffer_text(&shape);
    fb_status status = text ? fb_evaluation_digest(graph, tensor, source->blobs, of_tensor, error) : fb_fail_memory(error);
    if (!status) status = digest_entry(source, entry, text, of_entry, error);
    *is_same = !status && strcmp(of_tensor, of_entry) == 0;
    fb_buffer_free(&shape);
    return status;
}

fb_status fb_weights_source_has(const fb_weights_source *source, const fb_graph *graph, fb_tensor tensor, const char *key,
                                bool *has, fb_error *error) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    const fb_safetensors_entry *entry = fb_weights_source_find(source, key);
    *has = false;
    if (!entry || !is_of_shape(graph, row, entry)) return FB_OK;
    *has = row->blob.id && (uint64_t)row->offset == entry->offset && strcmp(fb_text(graph, row->blob), source->blob) == 0;
    return *has ? FB_OK : compare_bytes(source, graph, tensor, entry, has, error);
}

/* ---- what is left over -------------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* {"blob": "sha256:…", "extra": "sha256:…"}, canonical; the caller frees. NULL when memory is out. */
static char *write_note(const char *blob, const char **extra, size_t count) {
    char digest[FB_ID_LENGTH + 1];
    fb_buffer names = {0}, note = {0};
    fb_sort(extra, count, sizeof *extra, by_text);
    for (size_t i = 0; i < count; i++) fb_buffer_append(&names, extra[i], strlen(extra[i]) + 1);
    bool ok = !names.failed && fb_sha256_id(names.data, names.size, digest);
    if (ok) fb_buffer_printf(&note, "{\"blob\":\"%s\",\"extra\":\"%s\"}", blob, digest);
    fb_buffer_free(&names);
    return ok ? fb_buffer_take(&note, NULL) : NULL;
}

bool fb_weights_note_extra(fb_graph *graph, const char *blob, const char **extra, size_t count) {
    fb_value metadata = fb_graph_metadata(graph), note = {0};
    bool is_noted = metadata.id && fb_map_value(graph, metadata, NOTE).id;
    if (!count && !is_noted) return true;
    char *text = count ? write_note(blob, extra, count) : NULL;
    if (count && !text) return false;
    if (text) note = fb_make_text(graph, FB_RAW, text, strlen(text));
    free(text);
    if (count && !note.id) return false;
    metadata = count ? fb_sorted_map_with(graph, metadata, NOTE, note) : fb_map_with(graph, metadata, NOTE, note);
    if (metadata.id) fb_graph_set_metadata(graph, fb_value_at(graph, metadata)->count ? metadata : (fb_value){0});
    return metadata.id != 0;
}

fb_status fb_weights_check_extra(const fb_graph *graph, const char *blob, const char **extra, size_t count, bool *is_right,
                                 fb_error *error) {
    fb_value metadata = fb_graph_metadata(graph);
    const char *said = metadata.id ? fb_value_text(graph, fb_map_value(graph, metadata, NOTE)) : NULL;
    *is_right = !count;
    if (!count || !said) return FB_OK;
    char *text = write_note(blob, extra, count);
    *is_right = text && strcmp(text, said) == 0;
    free(text);
    return text ? FB_OK : fb_fail_memory(error);
}
