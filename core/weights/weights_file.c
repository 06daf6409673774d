#include "core/weights/weights_file.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/sort.h"
#include "core/graph/slot.h"
#include "core/graph/write.h"
#include "core/weights/inputs.h"
#include "core/weights/weights_source.h"

#define LET_GO ((uint64_t)64 << 20) /* bytes */

struct fb_weights_file {
    const fb_graph *graph;
    const fb_blobs *blobs;
    fb_arena arena;    /* names and shapes */
    fb_buffer entries; /* fb_safetensors_entry, in the order of the file once it is laid out */
    fb_buffer header;
    uint64_t size;
    json_t *metadata;
    const char **sources; /* blobs */
    size_t source_count;
    fb_weights_source *opened; /* the sources, while the file is made */
    size_t opened_count;
    fb_blob_bytes whole; /* all of the file, if a source is it */
    bool is_whole;
    size_t whole_count;        /* its tensors */
    uint64_t whole_touched;    /* bytes since its pages were let go */
    fb_evaluation *evaluation; /* of entry `open`, or NULL */
    size_t open;
};

static fb_safetensors_entry *entries_of(const fb_weights_file *file) {
    return (fb_safetensors_entry *)(void *)file->entries.data;
}

size_t fb_weights_file_count(const fb_weights_file *file) {
    return file->is_whole ? file->whole_count : file->entries.size / sizeof(fb_safetensors_entry);
}

uint64_t fb_weights_file_size(const fb_weights_file *file) {
    return file->size;
}

const char *const *fb_weights_file_sources(const fb_weights_file *file, size_t *count) {
    *count = file->source_count;
    return file->sources;
}

/* ---- which tensors ------------------------------------------------------------------------------------------------------ */

/* The shape that the tensor's own file had, where elements of graphs have none like it: "[8,3]". */
static bool add_torn_shape(fb_weights_file *file, const fb_tensor_row *row, fb_safetensors_entry *entry) {
    fb_value torn = fb_map_value(file->graph, row->rest, FB_WEIGHTS_TORN);
    const char *at = torn.id && fb_value_kind(file->graph, torn) == FB_RAW ? fb_value_text(file->graph, torn) : NULL;
    int64_t sizes[FB_SAFETENSORS_MAX_RANK], product = 1;
    int rank = 0;
    bool fits = at && *at == '[' && entry->rank == 1;
    while (fits && *at != ']') {
        char *end;
        fits = rank < FB_SAFETENSORS_MAX_RANK && at[1] >= '0' && at[1] <= '9';
        if (!fits) break;
        sizes[rank] = strtoll(at + 1, &end, 10);
        at = end;
        fits = !__builtin_mul_overflow(product, sizes[rank++], &product) && (*at == ',' || *at == ']');
    }
    if (!fits || !rank || product != fb_dtype_packs(entry->dtype) * entry->shape[0]) return true; /* none, or another's idea */
    int64_t *shape = fb_arena_alloc(&file->arena, (size_t)rank * sizeof *shape);
    if (!shape) return false;
    memcpy(shape, sizes, (size_t)rank * sizeof *shape);
    entry->torn_shape = shape;
    entry->torn_rank = rank;
    return true;
}

static bool add(fb_weights_file *file, const char *key, size_t length, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(file->graph, tensor);
    int rank = fb_shape_rank(file->graph, row->shape);
    int64_t *shape = fb_arena_alloc(&file->arena, ((size_t)rank + 1) * sizeof *shape);
    const char *name = fb_arena_text(&file->arena, key, length);
    if (!shape || !name) return false;
    for (int i = 0; i < rank; i++) shape[i] = fb_shape_size(file->graph, row->shape, i);
    fb_safetensors_entry entry = {.name = name, .dtype = (fb_dtype)row->dtype, .rank = rank, .shape = shape};
    if (!add_torn_shape(file, row, &entry)) return false;
    fb_buffer_append(&file->entries, &entry, sizeof entry);
    return !file->entries.failed;
}

/* A tensor of which a checkpoint knows nothing. Its bytes are in a blob when a file had it all the same. */
static bool is_left_out(const fb_graph *graph, const fb_slot *slot) {
    return !fb_slot_is_persistent(graph, slot) && !fb_tensor_at(graph, slot->tensor)->blob.id;
}

/* The first owner of each, or all of them. */
static fb_status choose_owned(fb_weights_file *file, bool with_all, fb_error *error) {
    bool *is_there = calloc(fb_tensor_limit(file->graph), sizeof *is_there), ok = is_there != NULL;
    fb_buffer path = {0};
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(file->graph, &cursor, &slot);) {
        if (is_there[slot.tensor.id] && !with_all) continue;
        if (is_left_out(file->graph, &slot)) continue;
        is_there[slot.tensor.id] = true;
        path.size = 0;
        fb_slot_path(file->graph, &slot, &path);
        ok = !path.failed && add(file, path.data, path.size, slot.tensor);
    }
    free(is_there);
    fb_buffer_free(&path);
    return ok ? FB_OK : fb_fail_memory(error);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static fb_status choose_named(fb_weights_file *file, const fb_weights_choice *choice, fb_error *error) {
    const char **names = malloc((choice->count + 1) * sizeof *names);
    fb_buffer unknown = {0};
    bool ok = names != NULL;
    if (ok && choice->count) {
        memcpy(names, choice->names, choice->count * sizeof *names);
        fb_sort(names, choice->count, sizeof *names, by_text);
    }
    for (size_t i = 0; ok && i < choice->count; i++) {
        if (i && strcmp(names[i - 1], names[i]) == 0) continue;
        fb_tensor tensor = fb_tensor_called(file->graph, names[i]);
        if (tensor.id) ok = add(file, names[i], strlen(names[i]), tensor);
        else fb_buffer_printf(&unknown, unknown.size ? ", %s" : "%s", names[i]);
    }
    free(names);
    ok &= !unknown.failed;
    fb_status status = ok ? FB_OK : fb_fail_memory(error);
    if (!status && unknown.size) {
        const char *text = fb_buffer_text(&unknown);
        status =
            text ? fb_fail(error, FB_INVALID, "unknown-tensor", "", "the graph has no tensor %s", text) : fb_fail_memory(error);
    }
    fb_buffer_free(&unknown);
    return status;
}

/* ---- whether their bytes are here --------------------------------------------------------------------------------------- */

typedef struct missing_list {
    const fb_graph *graph;
    json_t *items;
    bool failed;
} missing_list;

static void report_missing(void *context, fb_tensor tensor, const char *code, const char *blob) {
    missing_list *list = context;
    json_t *item = json_pack("{s:s, s:s, s:s*}", "name", fb_tensor_name(list->graph, tensor), "code", code, "blob", blob);
    if (!item || json_array_append_new(list->items, item)) list->failed = true;
}

/* In the order of the entries; the caller frees. NULL when memory is out. */
static fb_tensor *tensors_of(const fb_weights_file *file) {
    size_t count = fb_weights_file_count(file);
    fb_tensor *tensors = malloc((count + 1) * sizeof *tensors);
    for (size_t i = 0; tensors && i < count; i++) tensors[i] = fb_tensor_called(file->graph, entries_of(file)[i].name);
    return tensors;
}

static fb_status check_bytes(fb_weights_file *file, json_t **missing, fb_error *error) {
    size_t count = fb_weights_file_count(file);
    missing_list list = {.graph = file->graph, .items = json_array()};
    fb_tensor *tensors = tensors_of(file);
    fb_status status = list.items && tensors ? FB_OK : fb_fail_memory(error);
    if (!status) status = fb_evaluation_missing(file->graph, tensors, count, file->blobs, report_missing, &list, error);
    if (!status && list.failed) status = fb_fail_memory(error);
    if (!status && json_array_size(list.items)) {
        status =
            fb_fail(error, FB_CONFLICT, "bytes-missing", "", "the bytes of %zu tensors are not here, those of %s for instance",
                    json_array_size(list.items), json_string_value(json_object_get(json_array_get(list.items, 0), "name")));
        *missing = json_incref(list.items);
    }
    json_decref(list.items);
    free(tensors);
    return status;
}

/* ---- whether their numbers are finite ------------------------------------------------------------------------------------ */

static fb_status check_tensor(const fb_weights_file *file, fb_tensor tensor, uint64_t *left, fb_error *error) {
    fb_evaluation *evaluation = NULL;
    fb_status status = fb_evaluation_new(file->graph, tensor, file->blobs, &evaluation, error);
    if (!status) status = fb_evaluation_refuse_overflow(evaluation, left, error);
    fb_evaluation_free(evaluation);
    return status;
}

static fb_status check_numbers(const fb_weights_file *file, json_t **faulty, fb_error *error) {
    uint64_t left = FB_OVERFLOW_LOOK;
    json_t *items = json_array();
    fb_tensor *tensors = tensors_of(file);
    bool *is_done = calloc(fb_tensor_limit(file->graph), sizeof *is_done);
    fb_status status = items && tensors && is_done ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < fb_weights_file_count(file) && !status; i++) {
        fb_error met = {0};
        if (is_done[tensors[i].id] || !fb_tensor_at(file->graph, tensors[i])->recipe.id) continue;
        is_done[tensors[i].id] = true;
        status = check_tensor(file, tensors[i], &left, &met);
        if (status == FB_CONFLICT && !strcmp(met.code, FB_TENSOR_OVERFLOWS)) {
            json_t *item =
                json_pack("{s:s, s:s}", "name", fb_tensor_name(file->graph, tensors[i]), "code", FB_TENSOR_OVERFLOWS);
            status = !item || json_array_append_new(items, item) ? fb_fail_memory(error) : FB_OK;
        }
        if (status == met.status && status) status = fb_fail(error, status, met.code, met.pointer, "%s", met.message);
        if (!status && met.status && json_array_size(items) == 1) fb_fail(error, met.status, met.code, "", "%s", met.message);
    }
    if (!status && json_array_size(items)) {
        status = FB_CONFLICT; /* `error` is the first one's */
        *faulty = json_incref(items);
    }
    json_decref(items);
    free(tensors);
    free(is_done);
    return status;
}

/* ---- what the files say that the bytes come from ------------------------------------------------------------------------ */

static char *place_of(const char *blob, uint64_t offset, uint64_t size) {
    fb_buffer text = {0};
    fb_buffer_printf(&text, "%s %llu %llu", blob, (unsigned long long)offset, (unsigned long long)size);
    return fb_buffer_take(&text, NULL);
}

/* The keys of entries whose bytes are a blob's, by where these are. NULL when memory is out. */
static json_t *list_places(const fb_weights_file *file) {
    json_t *places = json_object();
    bool ok = places != NULL;
    for (size_t i = 0; i < fb_weights_file_count(file) && ok; i++) {
        const fb_safetensors_entry *entry = &entries_of(file)[i];
        const fb_tensor_row *row = fb_tensor_at(file->graph, fb_tensor_called(file->graph, entry->name));
        uint64_t size = fb_dtype_size(entry->dtype);
        if (!row->blob.id || row->recipe.id) continue;
        for (int axis = 0; axis < entry->rank; axis++) size *= (uint64_t)entry->shape[axis];
        char *place = place_of(fb_text(file->graph, row->blob), (uint64_t)row->offset, size);
        ok = place && (json_object_get(places, place) || !json_object_set_new(places, place, json_string(entry->name)));
        free(place);
    }
    if (ok) return places;
    json_decref(places);
    return NULL;
}

/* Where the tensors of a blob went: keys of this file, or null, by names in that one. */
static json_t *list_moves(const json_t *places, const char *blob, const fb_safetensors *header) {
    json_t *moves = json_object();
    bool ok = moves != NULL;
    for (size_t i = 0; i < header->count && ok; i++) {
        const fb_safetensors_entry *entry = &header->entries[i];
        char *place = place_of(blob, entry->offset, entry->size);
        json_t *key = place ? json_object_get(places, place) : NULL;
        ok = place && !json_object_set(moves, entry->name, key ? key : json_null());
        free(place);
    }
    if (ok) return moves;
    json_decref(moves);
    return NULL;
}

/* A note of a tensor follows it, and is left out where the tensor's bytes are not in the file as they were: safetensors'
 * save_model notes {"left out": "kept"} of two tensors that are tied. "format" is the format's own word. */
static fb_status merge_note(fb_weights_file *file, const json_t *moves, const char *key, const char *value, fb_error *error) {
    bool is_note = strcmp(key, "format") != 0;
    const json_t *of_key = is_note ? json_object_get(moves, key) : NULL;
    const json_t *of_value = is_note ? json_object_get(moves, value) : NULL;
    if (json_is_null(of_key) || json_is_null(of_value)) return FB_OK;
    const char *new_key = of_key ? json_string_value(of_key) : key, *new_value = of_value ? json_string_value(of_value) : value;
    if (of_value && !strcmp(new_value, key)) new_key = value; /* now the other of the two names is the one left out */
    if (json_object_get(file->metadata, new_key)) return FB_OK;
    return json_object_set_new(file->metadata, new_key, json_string(new_value)) ? fb_fail_memory(error) : FB_OK;
}

static fb_status merge_metadata(fb_weights_file *file, const json_t *places, const char *blob, const fb_safetensors *header,
                                fb_error *error) {
    const char *key;
    json_t *value, *moves = list_moves(places, blob, header);
    if (!file->metadata) file->metadata = json_object();
    fb_status status = moves && file->metadata ? FB_OK : fb_fail_memory(error);
    json_object_foreach(header->metadata, key, value) {
        if (!status) status = merge_note(file, moves, key, json_string_value(value), error);
    }
    json_decref(moves);
    return status;
}

static fb_status take_over_metadata(fb_weights_file *file, fb_error *error) {
    json_t *places = list_places(file);
    fb_status status = places ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < file->opened_count && !status; i++) {
        const fb_weights_source *source = &file->opened[i];
        if (source->header.metadata) status = merge_metadata(file, places, source->blob, &source->header, error);
    }
    json_decref(places);
    return status;
}

/* ---- the keys of tied tensors ------------------------------------------------------------------------------------------- */

/* The sources are the shards of one model if no two have a name in common. */
static bool are_shards(const fb_weights_file *file) {
    bool is_apart = true;
    for (size_t i = 1; i < file->opened_count && is_apart; i++) {
        for (size_t k = 0; k < file->opened[i].header.count && is_apart; k++) {
            const char *name = file->opened[i].header.entries[k].name;
            for (size_t j = 0; j < i && is_apart; j++) is_apart = !fb_weights_source_find(&file->opened[j], name);
        }
    }
    return is_apart;
}

/* The tensor's own file has it under that key, or another shard. */
static fb_status is_in_sources(const fb_weights_file *file, bool with_others, const char *key, fb_tensor tensor, bool *is_in,
                               fb_error *error) {
    fb_symbol blob = fb_tensor_at(file->graph, tensor)->blob;
    fb_status status = FB_OK;
    *is_in = false;
    for (size_t i = 0; i < file->opened_count && !*is_in && !status; i++) {
        const fb_weights_source *source = &file->opened[i];
        if (with_others || (blob.id && !strcmp(fb_text(file->graph, blob), source->blob)))
            status = fb_weights_source_has(source, file->graph, tensor, key, is_in, error);
    }
    return status;
}

/* Drops entries of one tensor: the ones that the files have stay, or else the first. */
static fb_status drop_copies(fb_weights_file *file, bool has_made, fb_error *error) {
    size_t count = fb_weights_file_count(file), limit = fb_tensor_limit(file->graph), kept = 0;
    fb_safetensors_entry *entries = entries_of(file);
    fb_tensor *tensors = tensors_of(file);
    size_t *owners = calloc(limit, sizeof *owners);
    bool *is_named = calloc(count + 1, sizeof *is_named), *is_settled = calloc(limit, sizeof *is_settled);
    bool with_others = !has_made && are_shards(file);
    fb_status status = tensors && owners && is_named && is_settled ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < count && !status; i++) owners[tensors[i].id]++;
    for (size_t i = 0; i < count && !status; i++) {
        if (owners[tensors[i].id] > 1)
            status = is_in_sources(file, with_others, entries[i].name, tensors[i], &is_named[i], error);
        is_settled[tensors[i].id] |= is_named[i];
    }
    for (size_t i = 0; i < count && !status; i++) {
        if (is_named[i] || !is_settled[tensors[i].id]) entries[kept++] = entries[i];
        is_settled[tensors[i].id] = true;
    }
    if (!status) file->entries.size = kept * sizeof *entries;
    free(tensors);
    free(owners);
    free(is_named);
    free(is_settled);
    return status;
}

static bool has_made_tensor(const fb_weights_file *file, const bool *is_owned) {
    bool is_made = false;
    for (size_t i = 0; i < fb_weights_file_count(file) && !is_made; i++)
        is_made = fb_tensor_is_made(file->graph, fb_tensor_called(file->graph, entries_of(file)[i].name), is_owned);
    return is_made;
}

bool fb_recipe_id(const fb_graph *graph, fb_value recipe, char id[FB_ID_LENGTH + 1]) {
    fb_buffer text = {0};
    fb_value_write(graph, recipe, &text);
    bool ok = !text.failed && fb_sha256_id(text.data, text.size, id);
    fb_buffer_free(&text);
    return ok;
}

/* Adds what the file's tensor is, unless its key says it. */
static bool describe_tensor(const fb_weights_file *file, const char *key, json_t *tensors) {
    char id[FB_ID_LENGTH + 1];
    fb_tensor tensor = fb_tensor_called(file->graph, key);
    const char *name = fb_tensor_name(file->graph, tensor);
    fb_value recipe = fb_tensor_at(file->graph, tensor)->recipe;
    if (!recipe.id) return !strcmp(name, key) || json_object_set_new(tensors, key, json_pack("[s]", name)) == 0;
    return fb_recipe_id(file->graph, recipe, id) && json_object_set_new(tensors, key, json_pack("[s, s]", name, id)) == 0;
}

static json_t *describe_tensors(const fb_weights_file *file) {
    json_t *tensors = json_object();
    bool ok = tensors != NULL;
    for (size_t i = 0; i < fb_weights_file_count(file) && ok; i++)
        ok = describe_tensor(file, entries_of(file)[i].name, tensors);
    char *text = ok ? json_dumps(tensors, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_t *member = text ? json_string(text) : NULL;
    free(text);
    json_decref(tensors);
    return member;
}

/* True if the tensors come from several files, or from parts of one: then a file's metadata need not be true of all of them. */
static bool is_put_together(const fb_weights_file *file) {
    const char *first = NULL;
    bool is_mixed = false;
    for (size_t i = 0; i < fb_weights_file_count(file) && !is_mixed; i++) {
        const fb_tensor_row *row = fb_tensor_at(file->graph, fb_tensor_called(file->graph, entries_of(file)[i].name));
        const char *blob = row->blob.id && !row->recipe.id ? fb_text(file->graph, row->blob) : NULL;
        is_mixed = !blob || (first && strcmp(first, blob) != 0);
        first = blob;
    }
    return is_mixed;
}

/* True if a file's metadata is true of these tensors: another file may have replaced some. */
static bool is_said_right(const fb_weights_file *file, const json_t *metadata) {
    const char *text = json_string_value(json_object_get(metadata, FB_WEIGHTS_TENSORS));
    json_t *said = text ? json_loads(text, 0, NULL) : NULL;
    bool is_right = !text || json_is_object(said);
    for (size_t i = 0; text && i < fb_weights_file_count(file) && is_right; i++) {
        const char *key = entries_of(file)[i].name;
        const char *name = json_string_value(json_array_get(json_object_get(said, key), 0));
        is_right = strcmp(name ? name : key, fb_tensor_name(file->graph, fb_tensor_called(file->graph, key))) == 0;
    }
    json_decref(said);
    return is_right;
}

static void drop_said(const fb_weights_file *file) {
    static const char *const members[] = {FB_WEIGHTS_GRAPH, FB_WEIGHTS_STRUCTURE, FB_WEIGHTS_READING, FB_WEIGHTS_TENSORS};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) json_object_del(file->metadata, members[i]);
}

/* Notes whose weights the file holds, where the names alone may not show it: see fb_bind. */
static fb_status sign(fb_weights_file *file, bool has_made, fb_error *error) {
    char id[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1];
    bool ok = true;
    if (has_made || (json_object_get(file->metadata, FB_WEIGHTS_GRAPH) && is_put_together(file))) {
        if (!file->metadata) file->metadata = json_object();
        ok = file->metadata && fb_document_id(file->graph, id) && fb_document_structure(file->graph, structure) &&
             json_object_set_new(file->metadata, FB_WEIGHTS_GRAPH, json_string(id)) == 0 &&
             json_object_set_new(file->metadata, FB_WEIGHTS_STRUCTURE, json_string(structure)) == 0 &&
             json_object_set_new(file->metadata, FB_WEIGHTS_READING, json_string("finished")) == 0 &&
             json_object_set_new(file->metadata, FB_WEIGHTS_TENSORS, describe_tensors(file)) == 0;
    } else if (!is_said_right(file, file->metadata)) {
        drop_said(file);
    }
    return ok ? FB_OK : fb_fail_memory(error);
}

/* ---- the file that the graph was bound to -------------------------------------------------------------------------------- */

/* All of the entries are the source's. */
static fb_status has_all(const fb_weights_file *file, const fb_weights_source *source, bool *out, fb_error *error) {
    fb_tensor *tensors = tensors_of(file);
    fb_status status = tensors ? FB_OK : fb_fail_memory(error);
    *out = fb_weights_file_count(file) <= source->header.count;
    for (size_t i = 0; i < fb_weights_file_count(file) && *out && !status; i++)
        status = fb_weights_source_has(source, file->graph, tensors[i], entries_of(file)[i].name, out, error);
    free(tensors);
    return status;
}

/* The names in the source that no entry has; the caller frees the array. */
static fb_status list_extra(const fb_weights_file *file, const fb_weights_source *source, const char ***names, size_t *count,
                            fb_error *error) {
    json_t *keys = json_object();
    const char **extra = malloc((source->header.count + 1) * sizeof *extra);
    bool ok = keys && extra;
    for (size_t i = 0; i < fb_weights_file_count(file) && ok; i++)
        ok = !json_object_set_new(keys, entries_of(file)[i].name, json_null());
    *count = 0;
    for (size_t i = 0; i < source->header.count && ok; i++) {
        const char *name = source->header.entries[i].name;
        if (!json_object_get(keys, name)) extra[(*count)++] = name;
    }
    json_decref(keys);
    if (ok) *names = extra;
    else free(extra);
    return ok ? FB_OK : fb_fail_memory(error);
}

static fb_status find_whole(fb_weights_file *file, bool *is_whole, fb_error *error) {
    const char **extra = NULL;
    size_t count = 0;
    const fb_weights_source *source = file->opened;
    *is_whole = false;
    bool computes_nothing = fb_node_count(file->graph) <= 1; /* a checkpoint is its file, also one that is of another graph */
    if (file->opened_count != 1 || !source->by_name) return FB_OK;
    if (!computes_nothing && !is_said_right(file, source->header.metadata)) return FB_OK;
    fb_status status = has_all(file, source, is_whole, error);
    if (status || !*is_whole) return status;
    status = list_extra(file, source, &extra, &count, error);
    if (!status) status = fb_weights_check_extra(file->graph, source->blob, extra, count, is_whole, error);
    free(extra);
    return status;
}

static fb_status take_whole(fb_weights_file *file, fb_error *error) {
    const fb_weights_source *source = file->opened;
    fb_status status = file->blobs->open(file->blobs->context, source->blob, &file->whole, error);
    if (status) return status;
    file->is_whole = true;
    file->whole_count = source->header.count;
    file->size = file->whole.size;
    return FB_OK;
}

static void read_whole(fb_weights_file *file, uint64_t offset, void *to, size_t size) {
    memcpy(to, file->whole.bytes + offset, size);
    file->whole_touched += size;
    if (file->whole_touched < LET_GO) return;
    file->blobs->forget(file->blobs->context, &file->whole);
    file->whole_touched = 0;
}

/* ---- the file ----------------------------------------------------------------------------------------------------------- */

static fb_status open_sources(fb_weights_file *file, fb_error *error) {
    fb_tensor *tensors = tensors_of(file);
    fb_status status =
        tensors ? fb_inputs_blobs(file->graph, tensors, fb_weights_file_count(file), &file->sources, &file->source_count, error)
                : fb_fail_memory(error);
    free(tensors);
    if (status) return status;
    file->opened = calloc(file->source_count + 1, sizeof *file->opened);
    if (!file->opened) return fb_fail_memory(error);
    for (size_t i = 0; i < file->source_count && !status; i++) {
        status = fb_weights_source_open(&file->opened[i], file->blobs, file->sources[i], error);
        file->opened_count += !status;
    }
    return status;
}

static void close_sources(fb_weights_file *file) {
    while (file->opened_count) fb_weights_source_close(&file->opened[--file->opened_count]);
    free(file->opened);
    file->opened = NULL;
}

static fb_status lay_out(fb_weights_file *file, bool has_made, fb_error *error) {
    fb_status status = take_over_metadata(file, error);
    if (!status) status = sign(file, has_made, error);
    if (status) return status;
    return fb_safetensors_lay_out(entries_of(file), fb_weights_file_count(file), file->metadata, &file->header, &file->size,
                                  error);
}

static fb_status make(fb_weights_file *file, bool is_as_uploaded, fb_error *error) {
    bool *is_owned = fb_owned_tensors(file->graph), is_whole = false;
    if (!is_owned) return fb_fail_memory(error);
    bool has_made = has_made_tensor(file, is_owned);
    free(is_owned);
    fb_status status = file->blobs ? open_sources(file, error) : FB_OK;
    if (!status && is_as_uploaded) status = drop_copies(file, has_made, error);
    if (!status && is_as_uploaded && !has_made) status = find_whole(file, &is_whole, error);
    if (!status) status = is_whole ? take_whole(file, error) : lay_out(file, has_made, error);
    close_sources(file);
    return status;
}

fb_status fb_weights_file_new(const fb_graph *graph, const fb_weights_choice *choice, const fb_blobs *blobs,
                              fb_weights_file **out, json_t **faulty, fb_error *error) {
    static const fb_weights_choice all = {0};
    *faulty = NULL;
    if (!choice) choice = &all;
    fb_weights_file *file = calloc(1, sizeof *file);
    if (!file) return fb_fail_memory(error);
    file->graph = graph;
    file->blobs = blobs;
    fb_status status =
        choice->names ? choose_named(file, choice, error) : choose_owned(file, choice->tied != FB_TIED_FIRST, error);
    if (!status) status = check_bytes(file, faulty, error);
    if (!status && !choice->is_finite) status = check_numbers(file, faulty, error);
    if (!status) status = make(file, !choice->names && choice->tied == FB_TIED_AS_UPLOADED, error);
    if (status) fb_weights_file_free(file);
    else *out = file;
    return status;
}

void fb_weights_file_free(fb_weights_file *file) {
    if (!file) return;
    if (file->is_whole) file->blobs->close(file->blobs->context, &file->whole);
    fb_evaluation_free(file->evaluation);
    fb_arena_free(&file->arena);
    fb_buffer_free(&file->entries);
    fb_buffer_free(&file->header);
    json_decref(file->metadata);
    free(file->sources);
    free(file);
}

/* The entry that has the byte; one of no size has none. */
static size_t entry_at(const fb_weights_file *file, uint64_t offset) {
    const fb_safetensors_entry *entries = entries_of(file);
    size_t low = 0, high = fb_weights_file_count(file);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entries[middle].offset + entries[middle].size > offset) high = middle;
        else low = middle + 1;
    }
    return low;
}

static fb_status open_entry(fb_weights_file *file, size_t index, fb_error *error) {
    if (file->evaluation && file->open == index) return FB_OK;
    fb_evaluation_free(file->evaluation);
    file->evaluation = NULL;
    file->open = index;
    const fb_safetensors_entry *entry = &entries_of(file)[index];
    fb_status status =
        fb_evaluation_new(file->graph, fb_tensor_called(file->graph, entry->name), file->blobs, &file->evaluation, error);
    assert(status || fb_evaluation_size(file->evaluation) == entry->size);
    return status ? status : fb_evaluation_refuse_overflow(file->evaluation, NULL, error);
}

fb_status fb_weights_file_read(fb_weights_file *file, uint64_t offset, void *to, size_t size, fb_error *error) {
    assert(offset <= file->size && size <= file->size - offset);
    unsigned char *at = to;
    while (size) {
        uint64_t count = size;
        if (file->is_whole) {
            read_whole(file, offset, at, size);
        } else if (offset < file->header.size) {
            count = file->header.size - offset < size ? file->header.size - offset : size;
            memcpy(at, file->header.data + offset, (size_t)count);
        } else {
            size_t index = entry_at(file, offset);
            const fb_safetensors_entry *entry = &entries_of(file)[index];
            uint64_t start = offset - entry->offset;
            count = entry->size - start < size ? entry->size - start : size;
            fb_status status = open_entry(file, index, error);
            if (!status) status = fb_evaluation_read(file->evaluation, start, at, (size_t)count, error);
            if (status) return status;
        }
        offset += count;
        at += count;
        size -= (size_t)count;
    }
    return FB_OK;
}

fb_status fb_weights_file_lie(fb_weights_file *file, uint64_t offset, size_t size, const unsigned char **bytes, size_t *count,
                              fb_error *error) {
    assert(offset < file->size);
    *count = file->is_whole ? size : 0;
    if (file->is_whole) *bytes = file->whole.bytes + offset;
    if (file->is_whole || offset < file->header.size) return FB_OK;
    size_t index = entry_at(file, offset);
    const fb_safetensors_entry *entry = &entries_of(file)[index];
    uint64_t start = offset - entry->offset, left = entry->size - start;
    fb_status status = open_entry(file, index, error);
    if (!status) *count = fb_evaluation_lie(file->evaluation, start, left < size ? (size_t)left : size, bytes);
    return status;
}
