/* Tensors: their shapes, and where their elements are. */
#include <string.h>

#include "core/onnx/check.h"

#define MOST_ELEMENTS ((uint64_t)1 << 56) /* so that their bits are counted in 64 */

typedef enum per { ELEMENT, PAIR, BYTE } per;

static const struct {
    const char *name, *word;
    uint32_t bits;
    int field;
    per per;
} dtypes[] = {
#define ONNX_DTYPE(number, name, word, bits, field, per) [number] = {#name, word, bits, ONNX_tensor_##field, per},
#include "core/operators/onnx_dtypes.def"
};
#undef ONNX_DTYPE

bool onnx_is_dtype(int32_t number) {
    return number > 0 && (size_t)number < sizeof dtypes / sizeof *dtypes;
}

const char *onnx_dtype_word(int32_t number) {
    return onnx_is_dtype(number) ? dtypes[number].word : NULL;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------------- */

/* Multiplies the sizes. The product without zeros must also fit, so that no stride overflows. */
static bool count_elements(onnx_checking *c, const onnx_tensor *tensor, const onnx_numbers *dims, uint64_t *count) {
    onnx_number_cursor cursor = onnx_numbers_from(dims, ONNX_VARINT);
    uint64_t product = 1;
    bool is_empty = false;
    uint64_t bits;
    if (dims->count > ONNX_MOST_DIMENSIONS)
        return onnx_unsupported(c, ONNX_IS_tensor, tensor, ONNX_tensor_dims, "a tensor has more than %d dimensions",
                                ONNX_MOST_DIMENSIONS);
    while (onnx_numbers_next(&cursor, &bits)) {
        if (bits > INT64_MAX) return onnx_bad(c, ONNX_IS_tensor, tensor, ONNX_tensor_dims, "a size is negative");
        if (!bits) is_empty = true;
        else if (__builtin_mul_overflow(product, bits, &product) || product > MOST_ELEMENTS)
            return onnx_bad(c, ONNX_IS_tensor, tensor, ONNX_tensor_dims, "the sizes make more elements than any file can hold");
    }
    *count = is_empty ? 0 : product;
    return true;
}

/* ---- locations ---------------------------------------------------------------------------------------------------------- */

/* Leaves out `.`, `..` with what is before it, and empty parts. NULL: it leaves the folder, or names no file in it. */
static char *plain_name(fb_arena *arena, onnx_bytes location, bool *has_memory) {
    char *name = fb_arena_text(arena, location.text, location.size);
    *has_memory = name != NULL;
    if (!name || strlen(name) != location.size || *name == '/') return NULL;
    size_t length = 0;
    for (const char *part = name; *part;) {
        size_t size = strcspn(part, "/");
        if (size == 2 && memcmp(part, "..", 2) == 0) {
            if (!length) return NULL;
            while (length && name[--length] != '/') continue;
        } else if (size && !(size == 1 && *part == '.')) {
            if (length) name[length++] = '/';
            memmove(name + length, part, size);
            length += size;
        }
        part += size + (part[size] == '/');
    }
    name[length] = '\0';
    return length && location.text[location.size - 1] != '/' ? name : NULL;
}

static bool find_file(onnx_checking *c, onnx_location *location, const char *plain) {
    const onnx_files *files = c->files;
    location->name = plain;
    if (!files || !files->find) return false;
    const char *spelled = fb_arena_text(&c->file->arena, location->spelled.text, location->spelled.size);
    if (!spelled) return !(c->status = fb_fail_memory(c->error));
    if (files->find(files->context, spelled, &location->size, &location->blob)) location->name = spelled;
    else if (!files->find(files->context, plain, &location->size, &location->blob)) return false;
    return true;
}

/* Two spellings may be one file. False: memory is out. */
static bool add_name(onnx_checking *c, onnx_location *made, uint64_t spelled) {
    onnx_file *file = c->file;
    uint64_t hash = fb_hash(made->name, strlen(made->name), (uint64_t)(uintptr_t)c->file + 1);
    made->is_first = true;
    for (uint32_t cursor = 0, at; (at = fb_map_next(&file->by_location, hash, &cursor)) != 0;)
        if (strcmp(file->locations[at - 1]->name, made->name) == 0) made->is_first = false;
    return fb_map_add(&file->by_location, spelled, file->location_count + 1) &&
           (!made->is_first || fb_map_add(&file->by_location, hash, file->location_count + 1));
}

/* The file, each location once. */
static onnx_location *locate(onnx_checking *c, const onnx_tensor *tensor, onnx_bytes spelled) {
    onnx_file *file = c->file;
    char shown[96];
    bool has_memory, same_memory = true;
    uint64_t hash = fb_hash(spelled.text, spelled.size, (uint64_t)(uintptr_t)file);
    for (uint32_t cursor = 0, at; (at = fb_map_next(&file->by_location, hash, &cursor)) != 0;)
        if (onnx_same(file->locations[at - 1]->spelled, spelled)) return file->locations[at - 1];
    char *name = plain_name(&file->arena, spelled, &has_memory);
    if (!onnx_is_utf8(spelled)) name = NULL;
    onnx_bytes model = {c->files && c->files->model ? c->files->model : "",
                        c->files && c->files->model ? strlen(c->files->model) : 0};
    const char *own = name && model.size ? plain_name(&file->arena, model, &same_memory) : NULL;
    onnx_location *made = fb_arena_alloc(&file->arena, sizeof *made);
    if (!has_memory || !same_memory || !made) {
        if (!c->status) c->status = fb_fail_memory(c->error);
        return NULL;
    }
    if (!name || (own && strcmp(name, own) == 0)) {
        onnx_bad(c, ONNX_IS_tensor, tensor, ONNX_tensor_external_data,
                 name ? "the location \"%s\" is the model's own file"
                      : "the location \"%s\" is not a file within the model's folder",
                 onnx_shown(spelled, shown));
        return NULL;
    }
    if (file->location_count == file->location_capacity) {
        uint32_t capacity = file->location_capacity ? 2 * file->location_capacity : 16;
        onnx_location **grown = fb_arena_alloc(&file->arena, capacity * sizeof *grown);
        if (!grown) {
            c->status = fb_fail_memory(c->error);
            return NULL;
        }
        if (file->location_count) memcpy(grown, file->locations, file->location_count * sizeof *grown);
        file->locations = grown;
        file->location_capacity = capacity;
    }
    *made = (onnx_location){.spelled = spelled};
    made->is_there = find_file(c, made, name);
    if (!c->status && !add_name(c, made, hash)) c->status = fb_fail_memory(c->error);
    return c->status ? NULL : (file->locations[file->location_count++] = made);
}

/* Digits and nothing else. */
static bool read_decimal(onnx_bytes text, uint64_t *out) {
    *out = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.text[i] < '0' || text.text[i] > '9') return false;
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, (uint64_t)(text.text[i] - '0'), out))
            return false;
    }
    return text.size > 0;
}

static bool read_external(onnx_checking *c, const onnx_tensor *tensor, onnx_stored *out) {
    static const char *const keys[] = {"location", "offset", "length"};
    const onnx_entry *found[3] = {0};
    int field = ONNX_tensor_external_data;
    uint64_t length = out->size;
    for (size_t i = 0; i < tensor->external_data.count; i++) {
        const onnx_entry *entry = &tensor->external_data.items[i];
        for (size_t j = 0; j < i && i < 64; j++)
            if (onnx_same(entry->key, tensor->external_data.items[j].key))
                return onnx_bad(c, ONNX_IS_tensor, tensor, field, "a key of the external data is there twice");
        for (int k = 0; k < 3; k++)
            if (onnx_is(entry->key, keys[k])) found[k] = entry;
    }
    if (tensor->external_data.count > 64)
        return onnx_unsupported(c, ONNX_IS_tensor, tensor, field, "the external data has more than 64 keys");
    if (!found[0]) return onnx_bad(c, ONNX_IS_tensor, tensor, field, "the external data has no location");
    if (found[1] && !read_decimal(found[1]->value, &out->offset))
        return onnx_bad(c, ONNX_IS_tensor, tensor, field, "the offset of the external data is not a whole number");
    if (found[2] && !read_decimal(found[2]->value, &length))
        return onnx_bad(c, ONNX_IS_tensor, tensor, field, "the length of the external data is not a whole number");
    if (length != out->size)
        return onnx_bad(c, ONNX_IS_tensor, tensor, field, "the external data has %llu bytes, but the shape needs %llu",
                        (unsigned long long)length, (unsigned long long)out->size);
    out->location = locate(c, tensor, found[0]->value);
    if (!out->location) return false;
    out->where = out->location->is_there ? ONNX_EXTERNAL : ONNX_NOWHERE;
    bool is_within = out->offset <= out->location->size && out->size <= out->location->size - out->offset;
    char shown[96];
    return !out->location->is_there || is_within ||
           onnx_bad(c, ONNX_IS_tensor, tensor, field, "its bytes reach beyond the end of \"%s\", which has %llu",
                    onnx_shown(found[0]->value, shown), (unsigned long long)out->location->size);
}

/* ---- elements ----------------------------------------------------------------------------------------------------------- */

/* The only typed field that has something, or 0; -1: there are several. */
static int typed_field(const onnx_tensor *tensor) {
    const struct {
        int number;
        uint64_t count;
    } fields[] = {
        {ONNX_tensor_float_data, tensor->float_data.count},   {ONNX_tensor_int32_data, tensor->int32_data.count},
        {ONNX_tensor_string_data, tensor->string_data.count}, {ONNX_tensor_int64_data, tensor->int64_data.count},
        {ONNX_tensor_double_data, tensor->double_data.count}, {ONNX_tensor_uint64_data, tensor->uint64_data.count},
    };
    int found = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].count) found = found ? -1 : fields[i].number;
    return found;
}

static uint64_t typed_count(const onnx_tensor *tensor) {
    return tensor->float_data.count + tensor->int32_data.count + tensor->string_data.count + tensor->int64_data.count +
           tensor->double_data.count + tensor->uint64_data.count;
}

static bool read_typed(onnx_checking *c, const onnx_tensor *tensor, int field, onnx_stored *out) {
    uint64_t given = typed_count(tensor), wanted = out->count;
    if (dtypes[tensor->data_type].per == PAIR) wanted *= 2;
    if (dtypes[tensor->data_type].per == BYTE) wanted = out->size;
    if (field != dtypes[tensor->data_type].field)
        return onnx_bad(c, ONNX_IS_tensor, tensor, field > 0 ? field : 0, "a tensor of %s has its elements elsewhere",
                        dtypes[tensor->data_type].name);
    out->where = ONNX_TYPED;
    return given == wanted || onnx_bad(c, ONNX_IS_tensor, tensor, field, "it has %llu numbers, but the shape needs %llu",
                                       (unsigned long long)given, (unsigned long long)wanted);
}

static bool read_raw(onnx_checking *c, const onnx_tensor *tensor, onnx_stored *out) {
    int field = ONNX_tensor_raw_data;
    if (!dtypes[tensor->data_type].bits) return onnx_bad(c, ONNX_IS_tensor, tensor, field, "strings have no raw bytes");
    out->where = ONNX_RAW;
    out->offset = (uint64_t)((const unsigned char *)tensor->raw_data.text - c->file->bytes);
    return tensor->raw_data.size == out->size ||
           onnx_bad(c, ONNX_IS_tensor, tensor, field, "it has %llu bytes, but the shape needs %llu",
                    (unsigned long long)tensor->raw_data.size, (unsigned long long)out->size);
}

bool onnx_stored_in(onnx_checking *c, const onnx_tensor *tensor, onnx_stored *out) {
    *out = (onnx_stored){0};
    if (!onnx_is_dtype(tensor->data_type))
        return onnx_bad(c, ONNX_IS_tensor, tensor, ONNX_tensor_data_type, "%d is not the number of a dtype", tensor->data_type);
    if (tensor->segment)
        return onnx_unsupported(c, ONNX_IS_tensor, tensor, ONNX_tensor_segment, "tensors in segments are not read");
    if (!count_elements(c, tensor, &tensor->dims, &out->count)) return false;
    out->size = (out->count * dtypes[tensor->data_type].bits + 7) / 8;
    int field = typed_field(tensor);
    bool has_raw = onnx_has(&tensor->head, ONNX_tensor_raw_data) && (tensor->raw_data.size || !field);
    if (tensor->data_location < 0 || tensor->data_location > 1)
        return onnx_unsupported(c, ONNX_IS_tensor, tensor, ONNX_tensor_data_location, "%d is not a place of data",
                                tensor->data_location);
    if ((has_raw && field) || (tensor->data_location && (tensor->raw_data.size || field)))
        return onnx_bad(c, ONNX_IS_tensor, tensor, 0, "its elements are in two places");
    if (tensor->data_location && !dtypes[tensor->data_type].bits)
        return onnx_bad(c, ONNX_IS_tensor, tensor, ONNX_tensor_external_data, "strings have no raw bytes");
    if (tensor->data_location) return read_external(c, tensor, out);
    if (has_raw) return read_raw(c, tensor, out);
    if (field) return read_typed(c, tensor, field, out);
    return !out->count || onnx_bad(c, ONNX_IS_tensor, tensor, 0, "it has no elements, but the shape needs %llu",
                                   (unsigned long long)out->count);
}

/* The indices that the model's own file has; those of another file are not read here. */
static bool check_indices(onnx_checking *c, const onnx_sparse *sparse, const onnx_stored *stored, uint64_t count) {
    const onnx_tensor *i = sparse->indices;
    uint64_t sizes[ONNX_MOST_DIMENSIONS], each = 0, bits;
    onnx_run raw = {(const unsigned char *)i->raw_data.text, i->raw_data.size, true, NULL};
    const onnx_numbers all = {stored->count, &raw, &raw};
    onnx_number_cursor dims = onnx_numbers_from(&sparse->dims, ONNX_VARINT);
    onnx_number_cursor cursor =
        stored->where == ONNX_RAW ? onnx_numbers_from(&all, ONNX_FIXED64) : onnx_numbers_from(&i->int64_data, ONNX_VARINT);
    while (onnx_numbers_next(&dims, &bits)) sizes[each++] = bits;
    if (i->dims.count == 1) sizes[0] = count, each = 1;
    for (uint64_t k = 0; onnx_numbers_next(&cursor, &bits); k++) {
        if (!fb_work_goes_on(c->work, 1)) return !(c->status = fb_work_status(c->work, c->error));
        if (bits >= sizes[k % each])
            return onnx_bad(c, ONNX_IS_sparse, sparse, ONNX_sparse_indices, "an index is beyond the tensor's shape");
    }
    return true;
}

/* Values at positions: an index of the flat tensor for each, or one for each dimension. */
bool onnx_check_sparse(onnx_checking *c, const onnx_sparse *sparse) {
    onnx_stored values, indices;
    const onnx_tensor *v = sparse->values, *i = sparse->indices;
    uint64_t count;
    if (!v || !i) return onnx_bad(c, ONNX_IS_sparse, sparse, 0, "it lacks its values or their indices");
    if (!onnx_stored_in(c, v, &values) || !onnx_stored_in(c, i, &indices)) return false;
    if (!count_elements(c, v, &sparse->dims, &count)) return false;
    uint64_t each = i->dims.count == 2 ? sparse->dims.count : 1;
    bool fits = v->dims.count == 1 && i->data_type == 7 && (i->dims.count == 1 || i->dims.count == 2) &&
                indices.count == values.count * each;
    if (!fits) return onnx_bad(c, ONNX_IS_sparse, sparse, ONNX_sparse_indices, "the indices are not one for each value");
    return check_indices(c, sparse, &indices, count);
}
