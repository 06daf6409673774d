/* The inputs and outputs of a graph, and the files that hold them. */
#include "core/evaluator/evaluator.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/archive/archive.h"
#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/weights/npy.h"
#include "core/weights/safetensors.h"

#define INPUT "input."
#define OUTPUT "output."

/* ---- placeholders ------------------------------------------------------------------------------------------------------ */

/* Is it the name that an ONNX model gives the placeholder? Its metadata are {"value": name}. */
static bool is_value_name(const fb_graph *graph, fb_node node, const char *value) {
    fb_value rest = fb_node_at(graph, node)->meta_rest;
    const char *said = rest.id ? fb_value_text(graph, fb_map_value(graph, rest, "onnx")) : NULL;
    return said && strcmp(said, value) == 0;
}

static bool is_name_of_value(const fb_graph *graph, fb_node node, const char *name, bool *is_of_another) {
    fb_buffer value = {0};
    fb_buffer_string(&value, "{\"value\":");
    fb_buffer_json_string(&value, name, strlen(name));
    fb_buffer_char(&value, '}');
    const char *text = fb_buffer_text(&value);
    bool is_it = text && is_value_name(graph, node, text);
    *is_of_another = !text;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && !is_it && !*is_of_another; n = fb_next_node(graph, n))
        *is_of_another = fb_node_at(graph, n)->opcode == FB_PLACEHOLDER && is_value_name(graph, n, text);
    fb_buffer_free(&value);
    return is_it;
}

bool fb_is_input_name(const fb_graph *graph, fb_node node, const char *name) {
    const char *target = fb_node_target(graph, node);
    bool is_of_another = false;
    if (fb_node_at(graph, node)->meta_rest.id) {
        if (is_name_of_value(graph, node, name, &is_of_another)) return true;
        fb_buffer whole = {0};
        bool is_another, is_it = false;
        fb_buffer_printf(&whole, INPUT "%s", name); /* which a file's names have lost */
        const char *text = is_of_another ? NULL : fb_buffer_text(&whole);
        if (text) is_it = is_name_of_value(graph, node, text, &is_another);
        fb_buffer_free(&whole);
        if (is_it) return true;
    }
    target += strspn(target, "*");
    return !is_of_another && (strcmp(name, target) == 0 || strcmp(name, fb_node_name(graph, node)) == 0);
}

/* A symbol is any size of a dynamic axis: it gets one of 5 to 15 by its name, so that all tensors agree about it. -1 = the size
 * is an expression. */
static int64_t size_of_symbol(const char *text, uint64_t seed) {
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_') return -1;
    return isdigit((unsigned char)*text) ? -1 : 5 + (int64_t)(fb_hash_text(text, seed) % 11);
}

/* The size that an array which is given has on an axis of this symbol; -1 = none has one. */
static int64_t given_size(const fb_eval_inputs *given, fb_symbol symbol) {
    fb_work *work = &given->memory->work;
    fb_node node = given->count ? fb_first_node(given->graph, FB_MAIN_PROGRAM) : (fb_node){0};
    for (; node.id && fb_node_at(given->graph, node)->opcode == FB_PLACEHOLDER; node = fb_next_node(given->graph, node)) {
        const fb_array *array = NULL;
        fb_shape_result type;
        for (size_t i = 0; i < given->count && !array && fb_work_goes_on(work, 10); i++)
            if (fb_is_input_name(given->graph, node, given->items[i].name)) array = given->items[i].array;
        if (work->stopped.status) return -1;
        if (!array || !fb_recorded_shape(given->graph, node, &type) || type.rank != array->rank) continue;
        for (int i = 0; i < type.rank; i++)
            if (type.sizes[i].symbol.id == symbol.id) return array->sizes[i];
    }
    return -1;
}

static fb_status draw_value(const fb_eval_inputs *given, fb_node node, fb_object *out, fb_error *error) {
    const fb_graph *graph = given->graph;
    fb_shape_result type;
    int64_t sizes[FB_MAX_RANK];
    const char *name = fb_node_name(graph, node);
    if (!fb_recorded_shape(graph, node, &type) || type.rank < 0 || !type.dtype)
        return fb_fail(error, FB_INVALID, "missing-shape", NULL, "%s is not given, and its shape and dtype are not recorded",
                       name);
    for (int i = 0; i < type.rank; i++) {
        const char *symbol = fb_text(graph, type.sizes[i].symbol);
        sizes[i] = *symbol ? given_size(given, type.sizes[i].symbol) : type.sizes[i].size;
        if (*symbol && sizes[i] < 0) sizes[i] = size_of_symbol(symbol, given->sizes_seed);
        if (sizes[i] < 0)
            return fb_fail(error, FB_INVALID, "missing-shape", NULL, "%s is not given, and its size %s is an expression", name,
                           symbol);
    }
    fb_status status = fb_work_status(&given->memory->work, error);
    if (!status)
        status = fb_random_array(given->memory, type.dtype, type.rank, sizes, given->seed, name,
                                 given->deviation > 0 ? given->deviation : 1, 2, &out->array, error);
    if (!status) out->kind = FB_OBJECT_ARRAY;
    return status;
}

fb_status fb_draw_value(const fb_graph *graph, fb_node node, fb_array_memory *memory, const fb_eval_options *options,
                        fb_object *out, fb_error *error) {
    const fb_eval_inputs given = {.graph = graph, .memory = memory, .seed = options->seed, .deviation = options->deviation};
    return draw_value(&given, node, out, error);
}

static fb_status draw(const fb_eval_inputs *given, fb_node node, fb_object *out, fb_error *error) {
    fb_error found = {0};
    fb_status status = draw_value(given, node, out, &found);
    bool has_default = fb_node_arg(given->graph, node, 0).id;
    if (status == FB_INVALID && has_default && strcmp(found.code, "missing-shape") == 0) return FB_NOT_FOUND; /* that will do */
    if (status && error) *error = found;
    return status;
}

/* The same numbers, as an array of the evaluation's precision. */
static fb_status take(const fb_eval_inputs *given, const fb_array *array, fb_object *out, fb_error *error) {
    size_t size = (size_t)fb_array_count(array) * fb_dtype_size(array->dtype);
    if (fb_dtype_is_wide_unsigned(array->dtype) && !given->memory->has_wide_unsigned)
        return fb_fail(error, FB_INVALID, "unsupported-dtype", NULL, "an input has the dtype %s, which is not evaluated",
                       fb_dtype_name(array->dtype));
    fb_status status = fb_array_memory_take(given->memory, size, error);
    if (status) return status;
    void *bytes = malloc(size ? size : 1);
    if (bytes) fb_array_to_bytes(array, bytes);
    else status = fb_fail_memory(error);
    if (!status) status = fb_work_status(fb_array_work(array), error);
    if (!status)
        status = fb_array_from_bytes(given->memory, array->dtype, array->rank, array->sizes, bytes, size, &out->array, error);
    if (!status) out->kind = FB_OBJECT_ARRAY;
    free(bytes);
    fb_array_memory_give(given->memory, size);
    return status;
}

fb_status fb_give_input(void *context, fb_node node, fb_object *out, fb_error *error) {
    const fb_eval_inputs *given = context;
    for (size_t i = 0; i < given->count; i++) {
        const fb_named_array *item = &given->items[i];
        if (fb_is_input_name(given->graph, node, item->name)) return take(given, item->array, out, error);
    }
    return given->is_drawn ? draw(given, node, out, error) : FB_NOT_FOUND;
}

/* ---- outputs: the tensors, in the order of torch.utils._pytree, and dicts as they were filled ---------------------------- */

static void flatten(const fb_object *object, fb_buffer *arrays) {
    if (object->kind == FB_OBJECT_ARRAY) {
        fb_buffer_append(arrays, &object->array, sizeof object->array);
        if (!arrays->failed) fb_array_keep(object->array);
    } else if (object->kind == FB_OBJECT_DICT) {
        for (size_t i = 1; i < object->items->count; i += 2) flatten(&object->items->objects[i], arrays);
    } else if (fb_object_is_sequence(object)) {
        for (size_t i = 0; i < object->items->count; i++) flatten(&object->items->objects[i], arrays);
    }
}

fb_status fb_flatten_output(const fb_object *output, fb_array ***items, size_t *count, fb_error *error) {
    fb_buffer arrays = {0};
    flatten(output, &arrays);
    *count = arrays.size / sizeof(fb_array *);
    *items = (fb_array **)(void *)arrays.data;
    if (!arrays.failed) return FB_OK;
    for (size_t i = 0; i < *count; i++) fb_array_drop((*items)[i]);
    fb_buffer_free(&arrays);
    return fb_fail_memory(error);
}

/* ---- files ------------------------------------------------------------------------------------------------------------- */

/* One array of a file: its elements are from `bytes` on. */
typedef struct stored_array {
    const char *name, *dtype_name;
    fb_dtype dtype;
    int rank;
    const int64_t *shape;
    const unsigned char *bytes;
    size_t size;
} stored_array;

static fb_status read_array(const stored_array *stored, fb_array_file *out, fb_error *error) {
    bool is_input = strncmp(stored->name, INPUT, sizeof INPUT - 1) == 0;
    const char *name = stored->name + (is_input ? sizeof INPUT - 1 : 0);
    if (strncmp(stored->name, OUTPUT, sizeof OUTPUT - 1) == 0 && !out->has_outputs) return FB_OK;
    if (!stored->dtype || fb_held_of(FB_PRECISION_RECORDED, stored->dtype) == FB_HELD_NONE)
        return fb_fail(error, FB_INVALID, "unsupported-dtype", NULL, "%s has the dtype %s, which is not evaluated",
                       stored->name, stored->dtype_name);
    if (stored->rank > FB_MAX_RANK)
        return fb_fail(error, FB_TOO_LARGE, "evaluation-too-large", NULL, "%s has too many dimensions", stored->name);
    for (size_t i = 0; i < out->count && fb_work_goes_on(&out->memory.work, 10); i++) {
        if (strcmp(out->items[i].name, name) == 0)
            return fb_fail(error, FB_INVALID, "given-twice", NULL, "%s is given twice, with and without \"" INPUT "\"", name);
    }
    fb_status status = fb_work_status(&out->memory.work, error);
    if (status) return status;
    fb_named_array *item = &out->items[out->count];
    item->name = fb_arena_text(&out->arena, name, strlen(name));
    if (!item->name) return fb_fail_memory(error);
    status = fb_array_from_bytes(&out->memory, stored->dtype, stored->rank, stored->shape, stored->bytes, stored->size,
                                 &item->array, error);
    out->count += !status;
    return status;
}

static fb_status read_safetensors(const unsigned char *bytes, uint64_t size, fb_array_file *out, fb_error *error) {
    fb_safetensors file;
    fb_status status = fb_safetensors_read(bytes, size, &file, error);
    if (status) return status;
    out->items = calloc(file.count + 1, sizeof *out->items);
    if (!out->items) status = fb_fail_memory(error);
    for (size_t i = 0; i < file.count && !status; i++) {
        const fb_safetensors_entry *entry = &file.entries[i];
        status = read_array(&(stored_array){entry->name, entry->dtype_name, entry->dtype, entry->rank, entry->shape,
                                            bytes + entry->offset, (size_t)entry->size},
                            out, error);
    }
    fb_safetensors_free(&file);
    return status;
}

/* The array of one entry of a .npz, row by row. */
static fb_status read_npy(const char *name, const unsigned char *bytes, uint64_t size, fb_array_file *out, fb_error *error) {
    fb_npy npy;
    fb_status status = fb_npy_read(name, bytes, size, &npy, error);
    if (!status) status = fb_array_memory_take(&out->memory, (size_t)npy.size, error);
    if (status) return status;
    unsigned char *rows = malloc(npy.size ? (size_t)npy.size : 1);
    if (rows) {
        fb_npy_copy(&npy, bytes, rows);
        status =
            read_array(&(stored_array){name, fb_dtype_name(npy.dtype), npy.dtype, npy.rank, npy.shape, rows, (size_t)npy.size},
                       out, error);
    } else {
        status = fb_fail_memory(error);
    }
    free(rows);
    fb_array_memory_give(&out->memory, (size_t)npy.size);
    return status;
}

static fb_status read_entry(const fb_zip *zip, const fb_zip_entry *entry, fb_array_file *out, fb_error *error) {
    static const char ending[] = ".npy";
    size_t length = strlen(entry->name), end = sizeof ending - 1;
    if (length <= end || strcmp(entry->name + length - end, ending) != 0)
        return fb_fail(error, FB_INVALID, "bad-npy", NULL, "the entry %.200s of the .npz file is not a .npy file", entry->name);
    uint64_t left = out->memory.limit ? out->memory.limit - out->memory.used : UINT64_MAX;
    char *name = strndup(entry->name, length - end), *content = NULL;
    fb_status status = name ? fb_array_memory_take(&out->memory, (size_t)entry->size, error) : fb_fail_memory(error);
    if (!status) {
        status = fb_zip_read(zip, entry, left, &out->memory.work, &content, error);
        if (!status) status = read_npy(name, (unsigned char *)content, entry->size, out, error);
        fb_array_memory_give(&out->memory, (size_t)entry->size);
    }
    free(content);
    free(name);
    return status;
}

static fb_status read_npz(const unsigned char *bytes, uint64_t size, fb_array_file *out, fb_error *error) {
    fb_zip zip;
    fb_status status = fb_zip_open(bytes, size, &out->memory.work, &zip, error);
    if (!status && !(out->items = calloc(zip.count + 1, sizeof *out->items))) status = fb_fail_memory(error);
    for (size_t i = 0; i < zip.count && !status; i++) status = read_entry(&zip, &zip.entries[i], out, error);
    fb_zip_close(&zip);
    return status;
}

fb_status fb_array_file_read(const unsigned char *bytes, uint64_t size, size_t limit, bool has_outputs, const fb_watch *watch,
                             fb_array_file *out, fb_error *error) {
    *out = (fb_array_file){
        .has_outputs = has_outputs,
        .memory = {.limit = limit, .precision = FB_PRECISION_RECORDED, .has_wide_unsigned = true, .work = {.watch = watch}}};
    return fb_is_zip(bytes, size) ? read_npz(bytes, size, out, error) : read_safetensors(bytes, size, out, error);
}

void fb_array_file_free(fb_array_file *file) {
    for (size_t i = 0; i < file->count; i++) fb_array_drop(file->items[i].array);
    free(file->items);
    fb_arena_free(&file->arena);
    *file = (fb_array_file){0};
}

/* By the place of an entry's name, which sorting leaves. */
static uint64_t key_of(const char *name) {
    return (uint64_t)(uintptr_t)name;
}

fb_status fb_arrays_write(const fb_named_array *items, size_t count, fb_buffer *out, fb_error *error) {
    fb_safetensors_entry *entries = calloc(count + 1, sizeof *entries);
    fb_map places = {0};
    uint64_t size;
    fb_status status = entries ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < count && !status; i++) {
        if (!fb_map_put(&places, key_of(items[i].name), (uint32_t)i)) status = fb_fail_memory(error);
        entries[i] = (fb_safetensors_entry){.name = items[i].name,
                                            .dtype = items[i].array->dtype,
                                            .rank = items[i].array->rank,
                                            .shape = items[i].array->sizes};
    }
    if (!status) status = fb_safetensors_lay_out(entries, count, NULL, out, &size, error);
    fb_array_memory *memory = count ? items[0].array->storage->memory : NULL;
    if (!status && memory) status = fb_array_memory_take(memory, size, error);
    char *bytes = status ? NULL : fb_buffer_reserve(out, size); /* at once: it does not move while it grows */
    for (size_t i = 0; i < count && !status; i++) {
        if (!bytes) status = fb_fail_memory(error);
        if (bytes) fb_array_to_bytes(items[fb_map_get(&places, key_of(entries[i].name))].array, out->data + out->size);
        if (!status) status = fb_work_status(&memory->work, error);
        if (!status) out->size += (size_t)entries[i].size;
    }
    if (!status && memory) fb_array_memory_give(memory, size);
    fb_map_free(&places);
    free(entries);
    return status;
}

#define NAME_SIZE 40

fb_status fb_outputs_write(fb_array *const *arrays, size_t count, fb_buffer *out, fb_error *error) {
    fb_named_array *items = calloc(count + 1, sizeof *items);
    char(*names)[NAME_SIZE] = calloc(count + 1, sizeof *names);
    fb_status status = items && names ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < count && !status; i++) {
        snprintf(names[i], sizeof names[i], OUTPUT "%zu", i);
        items[i] = (fb_named_array){names[i], arrays[i]};
    }
    if (!status) status = fb_arrays_write(items, count, out, error);
    free(items);
    free(names);
    return status;
}
