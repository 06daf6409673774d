/* Entries of an archive, members of its JSON, and errors that say where. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/grow.h"

/* Entries are sorted, and all begin with the root folder. */
const fb_zip_entry *fb_archive_find(const fb_archive *archive, const char *name) {
    size_t root = strlen(archive->root), low = 0, high = archive->zip.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(archive->zip.entries[middle].name + root, name);
        if (order == 0) return &archive->zip.entries[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

bool pt_keys_find(const pt_keys *keys, const char *text, size_t length, uint32_t *value) {
    uint32_t cursor = 0, at;
    uint64_t hash = fb_hash(text, length, (uint64_t)(uintptr_t)keys);
    while ((at = fb_map_next(&keys->map, hash, &cursor)) != 0) {
        const pt_key *row = &keys->rows[at - 1];
        if (row->length != length || memcmp(row->text, text, length) != 0) continue;
        *value = row->value;
        return true;
    }
    return false;
}

bool pt_keys_put(pt_keys *keys, const char *text, size_t length, uint32_t value, bool *is_new) {
    uint32_t before;
    *is_new = !pt_keys_find(keys, text, length, &before);
    if (!*is_new) return true;
    if (!FB_GROW(keys->rows, keys->count, keys->capacity)) return false;
    keys->rows[keys->count++] = (pt_key){text, (uint32_t)length, value};
    return fb_map_add(&keys->map, fb_hash(text, length, (uint64_t)(uintptr_t)keys), keys->count);
}

void pt_keys_free(pt_keys *keys) {
    fb_map_free(&keys->map);
    free(keys->rows);
    *keys = (pt_keys){0};
}

static bool fail(pt_model *m, const char *code, const char *file, const char *format, va_list args) {
    if (m->status) return false;
    fb_buffer message = {0};
    if (file) fb_buffer_printf(&message, "%s: ", file);
    fb_buffer_vprintf(&message, format, args);
    const char *text = fb_buffer_text(&message);
    m->status = text ? fb_fail(m->error, FB_INVALID, code, "", "%s", text) : fb_fail_memory(m->error);
    fb_buffer_free(&message);
    return false;
}

bool pt_bad(pt_model *m, const char *file, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(m, "bad-archive", file, format, args);
    va_end(args);
    return false;
}

bool pt_unsupported(pt_model *m, const char *file, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(m, "unsupported-archive", file, format, args);
    va_end(args);
    return false;
}

fb_status pt_end(pt_model *m, bool ok) {
    if (!m->status) m->status = fb_work_status(m->work, m->error);
    if (!m->status && !ok) m->status = fb_fail_memory(m->error);
    return m->status;
}

void *pt_alloc(pt_model *m, size_t size) {
    void *made = fb_arena_alloc(&m->arena, size);
    return made ? memset(made, 0, size) : NULL;
}

const char *pt_text(pt_model *m, const fb_json *string) {
    if (!string || string->kind != FB_JSON_STRING) return NULL;
    return fb_arena_text(&m->arena, string->text, string->count);
}

const char *pt_keep(pt_model *m, fb_buffer *text) {
    const char *made = fb_buffer_text(text) ? fb_arena_text(&m->arena, text->data, text->size) : NULL;
    fb_buffer_free(text);
    if (!made && !m->status) m->status = fb_fail_memory(m->error);
    return made;
}

const char *pt_format(pt_model *m, const char *format, ...) {
    fb_buffer text = {0};
    va_list args;
    va_start(args, format);
    fb_buffer_vprintf(&text, format, args);
    va_end(args);
    return pt_keep(m, &text);
}

const fb_json *pt_member(const fb_json *object, const char *name) {
    if (!object || object->kind != FB_JSON_OBJECT) return NULL;
    const fb_json *key = fb_json_first(object);
    for (uint32_t i = 0; i < object->count; i++, key = fb_json_next(key + 1)) {
        if (fb_json_is(key, name)) return key + 1;
    }
    return NULL;
}

const fb_json *pt_member_of(const fb_json *object, const char *name, fb_json_kind kind) {
    const fb_json *value = pt_member(object, name);
    return value && value->kind == kind ? value : NULL;
}

const fb_json *pt_union(const fb_json *object, const char **kind) {
    static const char *const kinds[] = {
        "as_none",
        "as_tensor",
        "as_tensors",
        "as_int",
        "as_ints",
        "as_float",
        "as_floats",
        "as_string",
        "as_strings",
        "as_sym_int",
        "as_sym_ints",
        "as_scalar_type",
        "as_memory_format",
        "as_layout",
        "as_device",
        "as_bool",
        "as_bools",
        "as_sym_bool",
        "as_sym_bools",
        "as_graph",
        "as_optional_tensors",
        "as_custom_obj",
        "as_operator",
        "as_sym_float",
        "as_sym_floats",
        "as_optional_tensor",
        "as_complex",
        "as_nested_tensors",
        "as_int_lists",
        "as_string_to_argument",
        "as_float_lists",
        "as_expr",
        "as_name",
        "user_input",
        "parameter",
        "buffer",
        "tensor_constant",
        "custom_obj",
        "token",
        "constant_input",
        "user_output",
        "loss_output",
        "buffer_mutation",
        "gradient_to_parameter",
        "gradient_to_user_input",
        "user_input_mutation",
        "parameter_mutation",
    };
    if (!object || object->kind != FB_JSON_OBJECT || object->count != 1) return NULL;
    const fb_json *key = fb_json_first(object);
    *kind = "unknown";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (fb_json_is(key, kinds[i])) *kind = kinds[i];
    }
    return key + 1;
}

bool pt_read_entry(pt_model *m, const fb_zip_entry *entry, uint64_t limit, char **content) {
    const fb_archive_limits *limits = &m->archive->limits;
    char name[200];
    fb_copy_text(name, sizeof name, entry->name);
    if (limits->size && (entry->size > limits->size || m->held > limits->size - entry->size))
        m->status = fb_fail(m->error, FB_TOO_LARGE, "body-too-large", "",
                            "with the entry \"%s\" more than %llu bytes of the archive would be in memory", name,
                            (unsigned long long)limits->size);
    else if (limits->hold) m->status = limits->hold(limits->context, entry->size, m->error);
    if (m->status) return false;
    m->held += entry->size;
    m->status = fb_zip_read(&m->archive->zip, entry, limit, m->work, content, m->error);
    return !m->status;
}

void pt_release_entry(pt_model *m, uint64_t size) {
    m->held -= size;
    if (m->archive->limits.release) m->archive->limits.release(m->archive->limits.context, size);
}

const char *pt_dtype_name(int64_t scalar_type) {
    static const char *const names[] = {
        [1] = "uint8",
        [2] = "int8",
        [3] = "int16",
        [4] = "int32",
        [5] = "int64",
        [6] = "float16",
        [7] = "float32",
        [8] = "float64",
        [9] = "complex32",
        [10] = "complex64",
        [11] = "complex128",
        [12] = "bool",
        [13] = "bfloat16",
        [28] = "uint16",
        [29] = "float8_e4m3fn",
        [30] = "float8_e5m2",
        [31] = "float8_e4m3fnuz",
        [32] = "float8_e5m2fnuz",
        [33] = "float8_e8m0fnu",
        [34] = "uint32",
        [35] = "uint64",
    };
    bool is_known = scalar_type > 0 && scalar_type < (int64_t)(sizeof names / sizeof *names);
    return is_known ? names[scalar_type] : NULL;
}
