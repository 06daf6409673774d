/* The files that a graph is bound to. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/bind/bind_internal.h"
#include "core/json/scan.h"

#define MAX_INDEX ((uint64_t)64 << 20) /* bytes of an index; one of 100,000 tensors has 10 MB */
#define NESTING 32

/* ---- opening ------------------------------------------------------------------------------------------------------------ */

/* A safetensors file begins with the size of its header in eight bytes, of which the upper four are 0: JSON has no such bytes.
 */
static bool looks_like_index(const fb_blob_bytes *bytes) {
    for (uint64_t i = 0; i < bytes->size; i++) {
        if (!bytes->bytes[i] || !strchr(" \t\r\n", bytes->bytes[i]))
            return bytes->bytes[i] == '{' && (bytes->size < 8 || bytes->bytes[7]);
    }
    return false;
}

static fb_status open_file(fb_binder *b, fb_bind_file *file, fb_error *error) {
    fb_status status = b->blobs->open(b->blobs->context, file->blob, &file->bytes, error);
    if (status) return status;
    file->is_open = true;
    file->is_index = looks_like_index(&file->bytes);
    if (file->is_index) return FB_OK;
    return fb_safetensors_read(file->bytes.bytes, file->bytes.size, &file->header, error);
}

/* With "/weights/1" before the pointer. */
static fb_status fail_at_file(fb_binder *b, const fb_bind_file *file, const fb_error *error) {
    char pointer[FB_POINTER_MAX + 32];
    snprintf(pointer, sizeof pointer, "/weights/%zu%s", file->position, error->pointer);
    return fb_fail(b->error, error->status, error->code, pointer, "%s", error->message);
}

static int by_name(const void *a, const void *b) {
    const fb_given *x = a, *y = b;
    int order = strcmp(x->entry->name, y->entry->name);
    return order ? order : x->file < y->file ? -1 : 1;
}

static bool is_known(const fb_binder *b, const char *blob) {
    for (size_t i = 0; i < b->file_count; i++) {
        if (strcmp(b->files[i].blob, blob) == 0) return true;
    }
    return false;
}

fb_status fb_bind_open(fb_binder *b, const char *const *files, size_t count) {
    b->files = calloc(count + 1, sizeof *b->files);
    if (!b->files) return fb_fail_memory(b->error);
    for (size_t i = 0; i < count; i++) {
        if (is_known(b, files[i])) continue;
        fb_bind_file *file = &b->files[b->file_count++];
        fb_error error = {0};
        file->blob = files[i];
        file->position = i;
        if (open_file(b, file, &error)) return fail_at_file(b, file, &error);
        b->given_count += file->header.count;
    }
    b->given = calloc(b->given_count + 1, sizeof *b->given);
    if (!b->given) return fb_fail_memory(b->error);
    fb_given *next = b->given;
    for (size_t f = 0; f < b->file_count; f++) {
        const fb_safetensors *header = &b->files[f].header;
        for (size_t i = 0; i < header->count; i++) {
            const fb_safetensors_entry *entry = &header->entries[i];
            *next++ = (fb_given){.entry = entry, .name = entry->name, .file = f};
        }
    }
    fb_sort(b->given, b->given_count, sizeof *b->given, by_name);
    return FB_OK;
}

void fb_bind_close(fb_binder *b) {
    for (size_t i = 0; i < b->file_count; i++) {
        fb_safetensors_free(&b->files[i].header);
        if (b->files[i].is_open) b->blobs->close(b->blobs->context, &b->files[i].bytes);
    }
    free(b->files);
    free(b->given);
}

/* ---- what does not fit -------------------------------------------------------------------------------------------------- */

static json_t *describe_given(const fb_safetensors_entry *entry) {
    json_t *shape = json_array();
    const int64_t *sizes = entry->torn_shape ? entry->torn_shape : entry->shape;
    for (int i = 0; i < (entry->torn_shape ? entry->torn_rank : entry->rank); i++) {
        if (json_array_append_new(shape, json_integer(sizes[i]))) {
            json_decref(shape);
            return NULL;
        }
    }
    const char *dtype = entry->torn_shape ? entry->dtype_name : fb_dtype_name(entry->dtype);
    return shape ? json_pack("{s:s, s:o}", "dtype", dtype, "shape", shape) : NULL;
}

static json_t *describe_tensor(const fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    json_t *shape = json_array();
    for (int i = 0; i < fb_shape_rank(graph, row->shape); i++) {
        if (json_array_append_new(shape, json_integer(fb_shape_size(graph, row->shape, i)))) {
            json_decref(shape);
            return NULL;
        }
    }
    return shape ? json_pack("{s:s, s:o}", "dtype", fb_tensor_dtype_name(graph, tensor), "shape", shape) : NULL;
}

fb_status fb_bind_mismatch(fb_binder *b, const char *name, const fb_given *given, fb_tensor tensor, const char *format, ...) {
    char detail[400], whole[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(whole, sizeof whole, format, args);
    va_end(args);
    fb_copy_text(detail, sizeof detail, whole);
    json_t *item = json_pack("{s:s, s:s}", "name", name, "detail", detail);
    bool ok = item != NULL;
    if (ok && given) ok = json_object_set_new(item, "file", describe_given(given->entry)) == 0;
    if (ok && tensor.id) ok = json_object_set_new(item, "graph", describe_tensor(b->graph, tensor)) == 0;
    if (!ok) json_decref(item);
    if (tensor.id) b->is_mismatching[tensor.id] = true;
    return ok && json_array_append_new(b->binding->mismatching, item) == 0 ? FB_OK : fb_fail_memory(b->error);
}

/* ---- the index: {"metadata": {…}, "weight_map": {"encoder.weight": "model-00001-of-00002.safetensors", …}} -------------- */

typedef struct listed {
    const char *name, *shard;
} listed;

typedef struct index_reader {
    fb_scan scan;
    fb_arena arena;
    fb_buffer items; /* listed */
    bool has_map;
} index_reader;

static bool read_weight_map(index_reader *r) {
    size_t index = SIZE_MAX;
    if (r->has_map || !fb_scan_enter(&r->scan, '{')) return false;
    r->has_map = true;
    while (fb_scan_more(&r->scan, '}', &index)) {
        const fb_json *text = fb_scan_key(&r->scan);
        if (!text) return false;
        listed item = {.name = fb_arena_text(&r->arena, text->text, text->count)};
        r->scan.max_nesting = r->scan.depth; /* only strings */
        text = fb_scan_value(&r->scan);
        r->scan.max_nesting = NESTING;
        if (!text || text->kind != FB_JSON_STRING) return false;
        item.shard = fb_arena_text(&r->arena, text->text, text->count);
        fb_buffer_append(&r->items, &item, sizeof item);
        r->items.failed |= !item.name || !item.shard;
    }
    return !r->scan.status;
}

/* Nothing of it is kept. */
static bool skip_value(fb_scan *scan) {
    size_t index = SIZE_MAX;
    if (fb_scan_enter(scan, '{')) {
        while (fb_scan_more(scan, '}', &index)) {
            if (!fb_scan_key(scan) || !skip_value(scan)) return false;
        }
    } else if (fb_scan_enter(scan, '[')) {
        while (fb_scan_more(scan, ']', &index)) {
            if (!skip_value(scan)) return false;
        }
    } else {
        return fb_scan_value(scan) != NULL;
    }
    return !scan->status;
}

/* False when it is not an index; see also scan.status and items.failed. */
static bool read_index(index_reader *r, const fb_blob_bytes *bytes) {
    size_t index = SIZE_MAX;
    if (bytes->size > MAX_INDEX) return false;
    fb_scan_init(&r->scan, (const char *)bytes->bytes, (size_t)bytes->size, NESTING);
    fb_scan_enter(&r->scan, '{');
    while (fb_scan_more(&r->scan, '}', &index)) {
        const fb_json *key = fb_scan_key(&r->scan);
        if (!key || (fb_json_is(key, "weight_map") ? !read_weight_map(r) : !skip_value(&r->scan))) return false;
    }
    return !r->scan.status && fb_scan_end(&r->scan) && r->has_map;
}

static int by_shard(const void *a, const void *b) {
    const listed *x = a, *y = b;
    int order = strcmp(x->shard, y->shard);
    return order ? order : strcmp(x->name, y->name);
}

static fb_given *find_given(const fb_binder *b, const char *name) {
    const fb_safetensors_entry entry = {.name = name};
    size_t low = 0, high = b->given_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(b->given[middle].entry->name, entry.name) < 0) low = middle + 1;
        else high = middle;
    }
    return low < b->given_count && strcmp(b->given[low].entry->name, name) == 0 ? &b->given[low] : NULL;
}

/* The tensors of one shard are all in one of the files; one fault of a shard is enough. */
static fb_status check_shard(fb_binder *b, const listed *items, size_t count) {
    const fb_given *first = NULL;
    fb_status status = FB_OK;
    bool is_told = false;
    for (size_t i = 0; i < count && !status; i++) {
        fb_given *given = find_given(b, items[i].name);
        if (given) given->is_listed = true;
        if (!first) first = given;
        if (is_told || (given && given->file == first->file)) continue;
        is_told = true;
        if (!given) {
            status = fb_bind_mismatch(b, items[i].shard, NULL, (fb_tensor){0},
                                      "this shard of the index is not among the files, or lacks %s", items[i].name);
        } else {
            status = fb_bind_mismatch(b, items[i].shard, NULL, (fb_tensor){0},
                                      "the tensors of this shard of the index are in two files: %s and %s", first->entry->name,
                                      items[i].name);
        }
    }
    return status;
}

static fb_status check_index(fb_binder *b, const fb_bind_file *file) {
    index_reader r = {0};
    fb_status status = FB_OK;
    if (!read_index(&r, &file->bytes) || r.items.failed) {
        fb_error error = {.status = FB_INVALID, .code = "bad-safetensors"};
        fb_copy_text(error.message, sizeof error.message,
                     r.scan.message ? r.scan.message
                                    : "this is not an index of a sharded model: weight_map says the file of each name");
        if (r.items.failed || r.scan.status == FB_NO_MEMORY) status = fb_fail_memory(b->error);
        else status = fail_at_file(b, file, &error);
    }
    listed *items = (listed *)(void *)r.items.data;
    size_t count = r.items.size / sizeof *items;
    if (!status) fb_sort(items, count, sizeof *items, by_shard);
    for (size_t i = 0, next; i < count && !status; i = next) {
        for (next = i + 1; next < count && strcmp(items[next].shard, items[i].shard) == 0;) next++;
        status = check_shard(b, &items[i], next - i);
    }
    fb_scan_free(&r.scan);
    fb_arena_free(&r.arena);
    fb_buffer_free(&r.items);
    return status;
}

fb_status fb_bind_check_files(fb_binder *b) {
    bool has_index = false;
    fb_status status = FB_OK;
    for (size_t i = 0; i < b->file_count && !status; i++) {
        if (b->files[i].is_index) status = check_index(b, &b->files[i]);
        has_index |= b->files[i].is_index;
    }
    for (size_t i = 0; i < b->given_count && !status; i++) {
        const fb_given *given = &b->given[i];
        const char *name = given->entry->name;
        bool is_repeated = i > 0 && strcmp(name, given[-1].entry->name) == 0;
        if (is_repeated)
            status = fb_bind_mismatch(b, name, given, (fb_tensor){0}, "two of the files have a tensor of this name");
        else if (has_index && !given->is_listed)
            status = fb_bind_mismatch(b, name, given, (fb_tensor){0}, "the index does not name it");
    }
    return status;
}
