/* Entries of an archive, its files of JSON, and errors that say where. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/grow.h"

#define NESTING 400

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

bool pt_fail(pt_model *m, const char *code, const char *file, const char *format, va_list args) {
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
    pt_fail(m, PT_BAD, file, format, args);
    va_end(args);
    return false;
}

bool pt_unsupported(pt_model *m, const char *file, const char *format, ...) {
    va_list args;
    va_start(args, format);
    pt_fail(m, PT_UNSUPPORTED, file, format, args);
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

static bool read_text(pt_model *m, const char *name, char **text, uint64_t *size) {
    for (size_t i = 0; i < m->given_count; i++) {
        if (strcmp(m->given[i].name, name) != 0) continue;
        *size = strlen(m->given[i].text);
        *text = strdup(m->given[i].text);
        return *text;
    }
    const fb_zip_entry *entry = fb_archive_find(m->archive, name);
    if (!entry) return pt_bad(m, NULL, "the entry %s is missing", name);
    *size = entry->size;
    return pt_read_entry(m, entry, PT_MOST_JSON, text);
}

bool pt_read_file(pt_model *m, pt_file *file, const char *name) {
    file->name = (char *)(uintptr_t)name;
    uint64_t size = 0;
    if (!name || !read_text(m, name, &file->text, &size)) return false;
    fb_scan_init(&file->scan, file->text, size, NESTING);
    file->scan.work = m->work;
    file->root = fb_scan_value(&file->scan);
    if (file->root && fb_scan_end(&file->scan) && file->root->kind == FB_JSON_OBJECT) return true;
    if (file->scan.status == FB_NO_MEMORY) return false;
    if (fb_work_status(m->work, m->error)) return false;
    if (file->scan.status == FB_OK) return pt_bad(m, name, "it is not a JSON object");
    size_t line, column;
    fb_scan_position(&file->scan, file->scan.failed_at, &line, &column);
    return pt_bad(m, name, "it is not valid JSON: %s (line %zu, column %zu)", file->scan.message, line, column);
}

static void free_file(pt_file *file) {
    fb_scan_free(&file->scan);
    free(file->text);
}

void pt_close_model(pt_model *m) {
    for (size_t i = 0; i < m->program_count; i++) {
        pt_program *p = m->programs[i];
        pt_keys_free(&p->by_name);
        fb_namespace_free(p->names);
        free(p->results);
        free(p->rows);
    }
    free_file(&m->program_file);
    free_file(&m->weights_file);
    free_file(&m->constants_file);
    pt_release_entry(m, m->held);
    pt_keys_free(&m->weights);
    pt_keys_free(&m->constants);
    free(m->tensors);
    free(m->order);
    fb_arena_free(&m->arena);
}
