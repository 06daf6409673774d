/* The archive as a folder of entries, and what all readers of it share. */
#include "core/archive/archive.h"

#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/file_kind.h"
#include "core/base/ratio.h"

/* ---- the container ------------------------------------------------------------------------------------------------------ */

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
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
    if (text && wanted) pt_bad(m, NULL, "the archive has no model \"%s\"; it has %s", wanted, text);
    else if (text) pt_bad(m, NULL, "the archive has %zu models, so one must be named: %s", archive->model_count, text);
    fb_buffer_free(&names);
    return false;
}

static bool load_model(pt_model *m, const char *wanted) {
    if (!choose_model(m, wanted)) return false;
    const char *program = pt_format(m, "models/%s.json", m->name), *samples = pt_format(m, "data/sample_inputs/%s.pt", m->name);
    const char *weights = pt_format(m, "data/weights/%s_weights_config.json", m->name);
    const char *constants = pt_format(m, "data/constants/%s_constants_config.json", m->name);
    if (m->status || !pt_read_file(m, &m->program_file, program) || !pt_check_version(m)) return false;
    if (!fb_archive_find(m->archive, samples)) return pt_bad(m, NULL, "the entry %s is missing", samples);
    return pt_read_file(m, &m->weights_file, weights) && pt_read_file(m, &m->constants_file, constants) && pt_check_schema(m) &&
           pt_decode(m) && pt_read_payloads(m) && pt_make_rows(m);
}

fb_status pt_model_document(pt_model *m, const char *wanted, fb_buffer *out) {
    bool ok = load_model(m, wanted) && pt_write_document(m, out);
    return pt_end(m, ok && !out->failed);
}

fb_status fb_archive_document(const fb_archive *archive, const char *model, const char *blob, fb_work *work, fb_buffer *out,
                              fb_error *error) {
    pt_model *m = calloc(1, sizeof *m);
    if (!m) return fb_fail_memory(error);
    *m = (pt_model){.archive = archive, .blob = blob, .work = work, .error = error};
    fb_status status = pt_model_document(m, model, out);
    pt_close_model(m);
    free(m);
    return status;
}
