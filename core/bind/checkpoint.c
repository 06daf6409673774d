#include "core/bind/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/bind/bind_internal.h"
#include "core/graph/slot.h"
#include "core/json/json.h"
#include "core/operators/spelling.h"
#include "core/weights/evaluate.h"
#include "core/weights/weights_file.h"

typedef struct owned {
    const char *name;
    size_t path_length; /* 0: the root owns it */
    const fb_safetensors_entry *entry;
    const fb_bind_file *file;
    size_t index, order; /* of the file; of all */
} owned;

static int by_owner(const void *a, const void *b) {
    const owned *one = a, *two = b;
    size_t length = one->path_length < two->path_length ? one->path_length : two->path_length;
    int order = memcmp(one->name, two->name, length);
    if (order) return order;
    if (one->path_length != two->path_length) return one->path_length < two->path_length ? -1 : 1;
    return (one->order > two->order) - (one->order < two->order);
}

static owned *list_owned(const fb_binder *b, fb_error *error) {
    owned *list = malloc((b->given_count + 1) * sizeof *list);
    size_t count = 0;
    if (!list) fb_fail_memory(error);
    for (size_t f = 0; list && f < b->file_count; f++) {
        for (size_t i = 0; i < b->files[f].header.count; i++) {
            const fb_safetensors_entry *entry = &b->files[f].header.entries[i];
            const char *dot = strrchr(entry->name, '.');
            list[count] = (owned){.name = entry->name,
                                  .path_length = dot ? (size_t)(dot - entry->name) : 0,
                                  .entry = entry,
                                  .file = &b->files[f],
                                  .index = f,
                                  .order = count};
            count++;
        }
    }
    if (list) fb_sort(list, count, sizeof *list, by_owner);
    return list;
}

/* FB_WEIGHTS_TIE by tensors' names. "format" is the format's own word. */
static json_t *read_ties(const fb_safetensors *header) {
    const char *key;
    json_t *value, *ties = json_object();
    bool ok = ties != NULL;
    json_object_foreach(header->metadata, key, value) {
        if (!ok) break;
        if (strcmp(key, "format") == 0) continue;
        ok = json_object_set(ties, key, value) == 0 &&
             json_object_set_new(ties, json_string_value(value), json_string(key)) == 0;
    }
    if (ok) return ties;
    json_decref(ties);
    return NULL;
}

static const char *attribute_of(const owned *one) {
    return one->name + one->path_length + (one->path_length || *one->name == '.' ? 1 : 0);
}

static void write_modules(const owned *list, size_t count, fb_buffer *out) {
    fb_put_name(out, "modules");
    fb_buffer_char(out, '[');
    bool has_root = count && !list[0].path_length;
    if (!has_root) fb_buffer_string(out, "{\"path\":\"\",\"type\":\"" FB_TYPE_MODULE "\"}");
    for (size_t from = 0, to; from < count; from = to) {
        fb_put_comma(out);
        fb_buffer_string(out, "{\"path\":");
        fb_buffer_json_string(out, list[from].name, list[from].path_length);
        fb_buffer_string(out, ",\"type\":\"" FB_TYPE_MODULE "\",\"parameters\":{");
        for (to = from; to < count && list[to].path_length == list[from].path_length &&
                        memcmp(list[to].name, list[from].name, list[from].path_length) == 0;
             to++)
            fb_put_text(out, attribute_of(&list[to]), list[to].name);
        fb_buffer_string(out, "}}");
    }
    fb_buffer_char(out, ']');
}

static void put_sizes(fb_buffer *out, const char *member, const int64_t *sizes, int rank) {
    fb_put_name(out, member);
    fb_buffer_char(out, '[');
    for (int axis = 0; axis < rank; axis++) fb_buffer_printf(out, "%s%lld", axis ? "," : "", (long long)sizes[axis]);
    fb_buffer_char(out, ']');
}

/* `ties` has one list per file. */
static void write_tensors(const owned *list, size_t count, json_t *const *ties, fb_buffer *out) {
    fb_put_name(out, "tensors");
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < count; i++) {
        const fb_safetensors_entry *entry = list[i].entry;
        fb_put_comma(out);
        fb_buffer_char(out, '{');
        fb_put_text(out, "name", entry->name);
        fb_put_text(out, "dtype", fb_dtype_name(entry->dtype));
        put_sizes(out, "shape", entry->shape, entry->rank);
        if (entry->torn_shape) put_sizes(out, FB_WEIGHTS_TORN, entry->torn_shape, entry->torn_rank);
        fb_put_text(out, "blob", list[i].file->blob);
        fb_put_int(out, "offset", (int64_t)entry->offset);
        const char *tie = json_string_value(json_object_get(ties[list[i].index], entry->name));
        if (tie) fb_put_text(out, FB_WEIGHTS_TIE, tie);
        fb_buffer_char(out, '}');
    }
    fb_buffer_char(out, ']');
}

static json_t **list_ties(const fb_binder *b, fb_error *error) {
    json_t **ties = calloc(b->file_count + 1, sizeof *ties);
    if (!ties) fb_fail_memory(error);
    for (size_t f = 0; ties && f < b->file_count && !error->status; f++)
        if (!(ties[f] = read_ties(&b->files[f].header))) fb_fail_memory(error);
    return ties;
}

static void free_ties(const fb_binder *b, json_t **ties) {
    for (size_t f = 0; ties && f < b->file_count; f++) json_decref(ties[f]);
    free(ties);
}

static fb_status write_document(const fb_binder *b, const char *name, fb_buffer *out, fb_error *error) {
    owned *list = list_owned(b, error);
    json_t **ties = list_ties(b, error);
    if (!error->status) {
        fb_buffer_string(out, "{\"format\":\"foldback.graph/1\"");
        fb_put_text(out, "name", name);
        fb_buffer_string(out, ",\"nodes\":[{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[null]}]");
        write_modules(list, b->given_count, out);
        write_tensors(list, b->given_count, ties, out);
        fb_buffer_char(out, '}');
        if (out->failed) fb_fail_memory(error);
    }
    free_ties(b, ties);
    free(list);
    return error->status;
}

static fb_status check_found(const fb_binder *b, fb_error *error) {
    const json_t *first = json_array_get(b->binding->mismatching, 0);
    if (!first) return FB_OK;
    return fb_fail(error, FB_INVALID, "bad-checkpoint", "/weights", "%.200s: %.300s",
                   json_string_value(json_object_get(first, "name")), json_string_value(json_object_get(first, "detail")));
}

fb_status fb_checkpoint_write(const char *const *files, size_t count, const char *name, const fb_blobs *blobs, fb_buffer *out,
                              fb_error *error) {
    fb_binding found = {.mismatching = json_array()};
    fb_binder b = {.blobs = blobs, .binding = &found, .error = error};
    fb_status status = found.mismatching ? fb_bind_open(&b, files, count) : fb_fail_memory(error);
    if (!status) status = fb_bind_check_files(&b);
    if (!status) status = check_found(&b, error);
    if (!status) status = write_document(&b, name, out, error);
    fb_bind_close(&b);
    json_decref(found.mismatching);
    return status;
}

/* ---- comparing two ------------------------------------------------------------------------------------------------------ */

static size_t count_slots(const fb_graph *graph) {
    fb_slot slot;
    size_t count = 0;
    for (fb_slot_cursor cursor = {0}; fb_slot_next(graph, &cursor, &slot);) count++;
    return count;
}

static bool have_same_type(const fb_graph *a, fb_tensor of_a, const fb_graph *b, fb_tensor of_b) {
    fb_value shape = fb_tensor_at(a, of_a)->shape, other = fb_tensor_at(b, of_b)->shape;
    bool is_same = !strcmp(fb_tensor_dtype_name(a, of_a), fb_tensor_dtype_name(b, of_b)) &&
                   fb_shape_rank(a, shape) == fb_shape_rank(b, other);
    for (int i = 0; is_same && i < fb_shape_rank(a, shape); i++)
        is_same = fb_shape_size(a, shape, i) == fb_shape_size(b, other, i);
    return is_same;
}

static fb_status compare_tensors(const fb_graph *a, fb_tensor of_a, const fb_graph *b, fb_tensor of_b, const fb_blobs *blobs,
                                 bool *are_equal, fb_error *error) {
    fb_evaluation *one = NULL, *other = NULL;
    fb_status status = fb_evaluation_new(a, of_a, blobs, &one, error);
    if (!status) status = fb_evaluation_new(b, of_b, blobs, &other, error);
    if (!status) status = fb_evaluation_equal(one, other, are_equal, error);
    fb_evaluation_free(one);
    fb_evaluation_free(other);
    return status;
}

fb_status fb_checkpoints_equal(const fb_graph *a, const fb_graph *b, const fb_blobs *blobs, const fb_watch *watch,
                               bool *are_equal, fb_error *error) {
    fb_buffer path = {0};
    fb_slot slot;
    fb_status status = FB_OK;
    bool is_same = fb_node_count(a) <= 1 && fb_node_count(b) <= 1 && count_slots(a) == count_slots(b);
    for (fb_slot_cursor cursor = {0}; is_same && !status && fb_slot_next(a, &cursor, &slot);) {
        path.size = 0;
        fb_slot_path(a, &slot, &path);
        const char *text = fb_buffer_text(&path);
        fb_tensor other = text ? fb_tensor_at_path(b, text) : (fb_tensor){0};
        is_same = other.id && have_same_type(a, slot.tensor, b, other);
        status = text ? fb_watch_check(watch, error) : fb_fail_memory(error);
        if (is_same && !status) status = compare_tensors(a, slot.tensor, b, other, blobs, &is_same, error);
    }
    fb_buffer_free(&path);
    if (!status) *are_equal = is_same;
    return status;
}
