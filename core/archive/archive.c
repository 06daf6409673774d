/* The archive as a folder of entries, and what all readers of it share. */
#include "core/archive/archive.h"

#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/file_kind.h"
#include "core/base/ratio.h"

#define MOST_JSON ((uint64_t)1 << 30) /* bytes of a program or a config */
#define MAJOR 8                       /* of the schema */
#define NESTING 400

/* ---- the container ------------------------------------------------------------------------------------------------------ */

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

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

/* All entries are in one folder, of any name. */
static fb_status find_root(fb_archive *archive, fb_error *error) {
    const char *first = archive->zip.count ? archive->zip.entries[0].name : "";
    size_t length = strcspn(first, "/");
    if (!first[length])
        return fb_fail(
            error, FB_INVALID, "bad-archive", "",
            "this zip archive is not a .pt2: its entries are not in a folder. Save the program with torch.export.save");
    archive->root = strndup(first, length + 1);
    if (!archive->root) return fb_fail_memory(error);
    for (size_t i = 1; i < archive->zip.count; i++) {
        if (starts_with(archive->zip.entries[i].name, archive->root)) continue;
        char name[200];
        fb_copy_text(name, sizeof name, archive->zip.entries[i].name);
        return fb_fail(error, FB_INVALID, "bad-archive", "", "the entry \"%s\" is not in the folder %s of the others", name,
                       archive->root);
    }
    return FB_OK;
}

static fb_status expect_text(const fb_archive *archive, const char *name, const char *wanted, fb_error *error) {
    const fb_zip_entry *entry = fb_archive_find(archive, name);
    fb_work work = {0};
    char *text;
    if (!entry) {
        const char *kind = fb_kind_instead_of_archive(archive->zip.bytes, archive->zip.size);
        if (kind) return fb_fail(error, FB_INVALID, "bad-archive", "", "%s", kind);
        return fb_fail(error, FB_INVALID, "bad-archive", "", "the entry %s is missing: this is not a .pt2 of torch.export.save",
                       name);
    }
    fb_status status = fb_zip_read(&archive->zip, entry, 4096, &work, &text, error);
    if (status) return status;
    text[strcspn(text, "\r\n")] = '\0';
    bool is_wanted = strcmp(text, wanted) == 0;
    free(text);
    return is_wanted ? FB_OK
                     : fb_fail(error, FB_INVALID, "unsupported-archive", "",
                               "the entry %s does not say \"%s\"; only such archives are read", name, wanted);
}

static fb_status find_models(fb_archive *archive, fb_error *error) {
    archive->models = calloc(archive->zip.count + 1, sizeof *archive->models);
    if (!archive->models) return fb_fail_memory(error);
    size_t root = strlen(archive->root);
    for (size_t i = 0; i < archive->zip.count; i++) {
        const char *name = archive->zip.entries[i].name + root;
        size_t length = strlen(name);
        if (!starts_with(name, "models/") || length <= 12 || strcmp(name + length - 5, ".json") != 0) continue;
        char *model = strndup(name + 7, length - 12);
        if (!model) return fb_fail_memory(error);
        archive->models[archive->model_count++] = model;
    }
    if (!archive->model_count)
        return fb_fail(error, FB_INVALID, "bad-archive", "", "the archive has no models/*.json: there is no program in it");
    return FB_OK;
}

/* Before anything is inflated: no entry becomes larger than the directory says. */
static fb_status check_ratio(const fb_archive *archive, fb_error *error) {
    uint64_t made = 0;
    for (size_t i = 0; i < archive->zip.count; i++) {
        const fb_zip_entry *entry = &archive->zip.entries[i];
        if (__builtin_add_overflow(made, entry->size, &made)) made = UINT64_MAX;
        if (fb_is_within_ratio(made, archive->zip.size, archive->limits.ratio)) continue;
        char name[200];
        fb_copy_text(name, sizeof name, entry->name);
        return fb_fail(
            error, FB_TOO_LARGE, "body-ratio-too-large", "",
            "with the entry \"%s\" the content of the archive is more than %u times as large as the archive; send it "
            "less compressed",
            name, archive->limits.ratio);
    }
    return FB_OK;
}

fb_status fb_archive_open(const void *bytes, uint64_t size, const fb_archive_limits *limits, fb_work *work, fb_archive *archive,
                          fb_error *error) {
    *archive = (fb_archive){.limits = limits ? *limits : (fb_archive_limits){0}};
    const char *kind = fb_is_zip(bytes, size) ? NULL : fb_kind_instead_of_archive(bytes, size);
    if (kind) return fb_fail(error, FB_INVALID, "bad-archive", "", "%s", kind);
    fb_status status = fb_zip_open(bytes, size, work, &archive->zip, error);
    if (!status) status = check_ratio(archive, error);
    if (!status) status = find_root(archive, error);
    if (!status) status = expect_text(archive, "archive_format", "pt2", error);
    if (!status) status = expect_text(archive, "archive_version", "0", error);
    if (!status && !fb_archive_find(archive, ".data/version"))
        status = fb_fail(error, FB_INVALID, "bad-archive", "",
                         "the entry .data/version is missing: PyTorch does not load such archives");
    if (!status && fb_archive_find(archive, "byteorder")) status = expect_text(archive, "byteorder", "little", error);
    if (!status) status = find_models(archive, error);
    return status;
}

void fb_archive_close(fb_archive *archive) {
    fb_zip_close(&archive->zip);
    for (size_t i = 0; i < archive->model_count; i++) free((char *)(uintptr_t)archive->models[i]);
    free(archive->models);
    free(archive->root);
    *archive = (fb_archive){0};
}

fb_status fb_archive_check(const fb_archive *archive, fb_work *work, fb_error *error) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < archive->zip.count && !status; i++)
        status = fb_zip_check(&archive->zip, &archive->zip.entries[i], work, error);
    return status;
}

/* ---- keys --------------------------------------------------------------------------------------------------------------- */

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
    if (keys->count == keys->capacity) {
        uint32_t capacity = keys->capacity ? keys->capacity * 2 : 64;
        pt_key *rows = realloc(keys->rows, capacity * sizeof *rows);
        if (!rows) return false;
        keys->rows = rows;
        keys->capacity = capacity;
    }
    keys->rows[keys->count++] = (pt_key){text, (uint32_t)length, value};
    return fb_map_add(&keys->map, fb_hash(text, length, (uint64_t)(uintptr_t)keys), keys->count);
}

void pt_keys_free(pt_keys *keys) {
    fb_map_free(&keys->map);
    free(keys->rows);
    *keys = (pt_keys){0};
}

/* ---- failures and memory ------------------------------------------------------------------------------------------------ */

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

bool pt_no_memory(pt_model *m) {
    if (!m->status) m->status = fb_fail_memory(m->error);
    return false;
}

void *pt_alloc(pt_model *m, size_t size) {
    void *made = fb_arena_alloc(&m->arena, size);
    if (made) memset(made, 0, size);
    else pt_no_memory(m);
    return made;
}

const char *pt_text(pt_model *m, const fb_json *string) {
    if (!string || string->kind != FB_JSON_STRING) return NULL;
    const char *made = fb_arena_text(&m->arena, string->text, string->count);
    if (!made) pt_no_memory(m);
    return made;
}

const char *pt_format(pt_model *m, const char *format, ...) {
    fb_buffer text = {0};
    va_list args;
    va_start(args, format);
    fb_buffer_vprintf(&text, format, args);
    va_end(args);
    const char *made = fb_buffer_text(&text) ? fb_arena_text(&m->arena, text.data, text.size) : NULL;
    fb_buffer_free(&text);
    if (!made) pt_no_memory(m);
    return made;
}

/* ---- JSON --------------------------------------------------------------------------------------------------------------- */

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

static bool read_text(pt_model *m, const char *name, char **text, uint64_t *size) {
    for (size_t i = 0; i < m->given_count; i++) {
        if (strcmp(m->given[i].name, name) != 0) continue;
        *size = strlen(m->given[i].text);
        *text = strdup(m->given[i].text);
        return *text || pt_no_memory(m);
    }
    const fb_zip_entry *entry = fb_archive_find(m->archive, name);
    if (!entry) return pt_bad(m, NULL, "the entry %s is missing", name);
    *size = entry->size;
    return pt_read_entry(m, entry, MOST_JSON, text);
}

static bool read_file(pt_model *m, pt_file *file, const char *name) {
    file->name = (char *)(uintptr_t)name;
    uint64_t size = 0;
    if (!name || !read_text(m, name, &file->text, &size)) return false;
    fb_scan_init(&file->scan, file->text, size, NESTING);
    file->scan.work = m->work;
    file->root = fb_scan_value(&file->scan);
    if (file->root && fb_scan_end(&file->scan) && file->root->kind == FB_JSON_OBJECT) return true;
    if (file->scan.status == FB_NO_MEMORY) return pt_no_memory(m);
    if (fb_work_status(m->work, m->error)) {
        m->status = m->work->stopped.status;
        return false;
    }
    if (file->scan.status == FB_OK) return pt_bad(m, name, "it is not a JSON object");
    size_t line, column;
    fb_scan_position(&file->scan, file->scan.failed_at, &line, &column);
    return pt_bad(m, name, "it is not valid JSON: %s (line %zu, column %zu)", file->scan.message, line, column);
}

static void free_file(pt_file *file) {
    fb_scan_free(&file->scan);
    free(file->text);
}

/* ---- the document ------------------------------------------------------------------------------------------------------- */

static bool choose_model(pt_model *m, const char *wanted) {
    const fb_archive *archive = m->archive;
    for (size_t i = 0; i < archive->model_count; i++) {
        if (wanted ? strcmp(archive->models[i], wanted) == 0 : archive->model_count == 1) m->name = archive->models[i];
    }
    if (m->name) return true;
    fb_buffer names = {0};
    for (size_t i = 0; i < archive->model_count && i < 8; i++)
        fb_buffer_printf(&names, "%s%s", i ? ", " : "", archive->models[i]);
    const char *text = fb_buffer_text(&names);
    if (!text) pt_no_memory(m);
    else if (wanted) pt_bad(m, NULL, "the archive has no model \"%s\"; it has %s", wanted, text);
    else pt_bad(m, NULL, "the archive has %zu models, so one must be named: %s", archive->model_count, text);
    fb_buffer_free(&names);
    return false;
}

static bool check_version(pt_model *m) {
    const fb_json *version = pt_member(m->program_file.root, "schema_version"),
                  *major = pt_member_of(version, "major", FB_JSON_INT);
    if (!major) return pt_bad(m, m->program_file.name, "the schema_version is missing");
    return major->integer == MAJOR ||
           pt_unsupported(m, m->program_file.name,
                          "the schema_version is %lld; version %d is read. Save the program again with PyTorch 2.13",
                          (long long)major->integer, MAJOR);
}

static bool load_model(pt_model *m, const char *wanted, pt_program **out) {
    if (!choose_model(m, wanted)) return false;
    const char *program = pt_format(m, "models/%s.json", m->name), *samples = pt_format(m, "data/sample_inputs/%s.pt", m->name);
    const char *weights = pt_format(m, "data/weights/%s_weights_config.json", m->name);
    const char *constants = pt_format(m, "data/constants/%s_constants_config.json", m->name);
    if (m->status || !read_file(m, &m->program_file, program) || !check_version(m)) return false;
    if (!fb_archive_find(m->archive, samples)) return pt_bad(m, NULL, "the entry %s is missing", samples);
    if (!read_file(m, &m->weights_file, weights) || !read_file(m, &m->constants_file, constants)) return false;
    const fb_json *graph = pt_member_of(pt_member(m->program_file.root, "graph_module"), "graph", FB_JSON_OBJECT);
    if (!graph) return pt_bad(m, program, "the graph_module has no graph");
    if (!pt_read_payloads(m)) return false;
    *out = pt_read_program(m, graph, NULL, "");
    return *out && pt_unlift(m, *out);
}

void pt_close_model(pt_model *m) {
    for (size_t i = 0; i < m->program_count; i++) pt_free_program(m->programs[i]);
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

fb_status pt_model_document(pt_model *m, const char *wanted, pt_program **program, fb_buffer *out) {
    bool ok = load_model(m, wanted, program) && pt_write_document(m, *program, out) && pt_check_schema(m);
    if (!m->status) m->status = fb_work_status(m->work, m->error);
    if (!m->status && (!ok || out->failed)) m->status = fb_fail_memory(m->error);
    return m->status;
}

fb_status fb_archive_document(const fb_archive *archive, const char *model, const char *blob, fb_work *work, fb_buffer *out,
                              fb_error *error) {
    pt_model *m = calloc(1, sizeof *m);
    pt_program *program;
    if (!m) return fb_fail_memory(error);
    *m = (pt_model){.archive = archive, .blob = blob, .work = work, .error = error};
    fb_status status = pt_model_document(m, model, &program, out);
    pt_close_model(m);
    free(m);
    return status;
}
