/* The bytes of a changed graph's archive: its entries one after the other, and the directory. */
#include "core/archive/archive.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/archive/parts.h"
#include "core/archive/rewrite.h"

#define ALIGNMENT 64
#define PADDING 0x4246 /* the id that PyTorch gives the extra field that only takes room */
#define BLOCK ((size_t)1 << 20)
#define LARGE UINT32_MAX /* from this number on, a field holds this value and ZIP64's field the number */
#define MANY UINT16_MAX  /* likewise of entries */
#define ZIP64 1          /* the id of the extra field that has them */

struct fb_archive_file {
    fb_graph *graph; /* a copy, for expressions over its tensors */
    fb_work *work;
    fb_error *error;
    fb_parts parts;
    fb_buffer directory;
    size_t entries;
};

static fb_status add_buffer_take(fb_archive_file *file, fb_buffer *buffer) {
    size_t size;
    char *text = fb_buffer_take(buffer, &size);
    return text ? fb_parts_add(&file->parts, (fb_part){.text = text, .size = size}, file->error) : fb_fail_memory(file->error);
}

static void put(fb_buffer *out, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++, number >>= 8) fb_buffer_char(out, (char)(number & 0xff));
}

static uint64_t at_most(uint64_t number, uint64_t most) {
    return number < most ? number : most;
}

/* Writes the fields that local headers and the directory have in common. `is_large`: both sizes are in a field of ZIP64. */
static void put_facts(fb_buffer *out, const pt_entry *entry, uint32_t crc, uint64_t stored, uint64_t size, bool is_large) {
    put(out, is_large ? 45 : 20, 2); /* the version that reads it */
    put(out, 0x800, 2);              /* names are UTF-8 */
    put(out, entry->is_deflated ? 8 : 0, 2);
    put(out, 0, 2);    /* the time */
    put(out, 0x21, 2); /* 1980-01-01 */
    put(out, crc, 4);
    put(out, is_large ? LARGE : stored, 4);
    put(out, is_large ? LARGE : size, 4);
    put(out, strlen(entry->name), 2);
}

static void put_large(fb_buffer *out, uint64_t stored, uint64_t size) {
    put(out, size, 8);
    put(out, stored, 8);
}

static fb_status begin_entry(fb_archive_file *file, const pt_entry *entry, uint32_t crc, uint64_t stored, uint64_t size) {
    fb_buffer header = {0};
    bool is_large = stored >= LARGE || size >= LARGE, is_far = file->parts.size >= LARGE;
    size_t sizes = is_large ? 16 : 0, extra = sizes + (is_far ? 8 : 0), before = sizes ? 4 + sizes : 0;
    size_t name = strlen(entry->name), at = (size_t)((file->parts.size + 30 + name + before + 4) % ALIGNMENT),
           room = (ALIGNMENT - at) % ALIGNMENT;
    if (name > UINT16_MAX)
        return fb_fail(file->error, FB_CONFLICT, "archive-changed", "", "the name of the entry %.80s… is too long",
                       entry->name);
    put(&file->directory, 0x02014b50, 4);
    put(&file->directory, extra ? 45 : 20, 2); /* the version that made it */
    put_facts(&file->directory, entry, crc, stored, size, is_large);
    put(&file->directory, extra ? 4 + extra : 0, 2);
    put(&file->directory, 0, 10); /* no comment, disk, attributes: 2 + 2 + 2 + 4 */
    put(&file->directory, at_most(file->parts.size, LARGE), 4);
    fb_buffer_string(&file->directory, entry->name);
    if (extra) {
        put(&file->directory, ZIP64, 2);
        put(&file->directory, extra, 2);
        if (is_large) put_large(&file->directory, stored, size);
        if (is_far) put(&file->directory, file->parts.size, 8);
    }
    file->entries++;
    put(&header, 0x04034b50, 4);
    put_facts(&header, entry, crc, stored, size, is_large);
    put(&header, before + 4 + room, 2);
    fb_buffer_string(&header, entry->name);
    if (is_large) {
        put(&header, ZIP64, 2);
        put(&header, sizes, 2);
        put_large(&header, stored, size);
    }
    put(&header, PADDING, 2);
    put(&header, room, 2);
    put(&header, 0, (int)room);
    return add_buffer_take(file, &header);
}

static fb_status end_file(fb_archive_file *file) {
    uint64_t start = file->parts.size, size = file->directory.size;
    if (file->entries >= MANY || start >= LARGE || size >= LARGE) {
        put(&file->directory, 0x06064b50, 4);
        put(&file->directory, 44, 8); /* bytes of this record that follow */
        put(&file->directory, 45, 2);
        put(&file->directory, 45, 2);
        put(&file->directory, 0, 8); /* disks */
        put(&file->directory, file->entries, 8);
        put(&file->directory, file->entries, 8);
        put(&file->directory, size, 8);
        put(&file->directory, start, 8);
        put(&file->directory, 0x07064b50, 4); /* where that record is */
        put(&file->directory, 0, 4);
        put(&file->directory, start + size, 8);
        put(&file->directory, 1, 4); /* disks */
    }
    put(&file->directory, 0x06054b50, 4);
    put(&file->directory, 0, 4);
    put(&file->directory, at_most(file->entries, MANY), 2);
    put(&file->directory, at_most(file->entries, MANY), 2);
    put(&file->directory, at_most(size, LARGE), 4);
    put(&file->directory, at_most(start, LARGE), 4);
    put(&file->directory, 0, 2);
    return add_buffer_take(file, &file->directory);
}

static fb_status checksum(fb_archive_file *file, fb_tensor tensor, uint64_t *size, uint32_t *crc) {
    fb_evaluation *evaluation = NULL;
    unsigned char *block = malloc(BLOCK);
    fb_status status = block ? fb_parts_evaluate(&file->parts, tensor, &evaluation, file->error) : fb_fail_memory(file->error);
    *size = status ? 0 : fb_evaluation_size(evaluation);
    *crc = 0;
    if (!status) status = fb_evaluation_refuse_overflow(evaluation, NULL, file->error);
    for (uint64_t at = 0; at < *size && !status;) {
        size_t now = *size - at < BLOCK ? (size_t)(*size - at) : BLOCK;
        status = fb_watch_check(file->work->watch, file->error);
        if (!status) status = fb_evaluation_read(evaluation, at, block, now, file->error);
        if (!status) *crc = (uint32_t)crc32_z(*crc, block, now);
        at += now;
    }
    fb_evaluation_free(evaluation);
    free(block);
    return status;
}

static fb_status add_entry(void *context, const pt_entry *entry) {
    fb_archive_file *file = context;
    fb_part content = {.tensor = entry->tensor, .size = entry->size};
    uint64_t size = entry->size;
    uint32_t crc = entry->crc;
    fb_status status = FB_OK;
    if (entry->text) {
        size = content.size = strlen(entry->text);
        crc = (uint32_t)crc32_z(0, (const unsigned char *)entry->text, content.size);
        content.text = strdup(entry->text);
        if (!content.text) return fb_fail_memory(file->error);
    } else if (entry->range) {
        content.range = entry->range;
        content.size = entry->stored;
    } else {
        status = checksum(file, entry->tensor, &content.size, &crc);
        size = content.size;
    }
    if (!status) status = begin_entry(file, entry, crc, content.size, size);
    if (!status) return fb_parts_add(&file->parts, content, file->error);
    free(content.text);
    return status;
}

fb_status fb_archive_file_new(const fb_archive *archive, const char *model, const char *blob, const fb_graph *graph,
                              const json_t *makers, const fb_blobs *blobs, fb_work *work, fb_archive_file **out,
                              fb_error *error) {
    fb_archive_file *file = calloc(1, sizeof *file);
    if (!file) return fb_fail_memory(error);
    *file = (fb_archive_file){.graph = fb_graph_copy(graph, work), .work = work, .error = error};
    file->parts = (fb_parts){.graph = file->graph, .blobs = blobs};
    fb_status status = file->graph ? FB_OK : fb_work_failed(work, error);
    if (!status) status = pt_rewrite(archive, model, blob, file->graph, makers, work, add_entry, file, error);
    if (!status) status = end_file(file);
    file->work = NULL;
    file->error = NULL;
    if (status) fb_archive_file_free(file);
    else *out = file;
    return status;
}

void fb_archive_file_free(fb_archive_file *file) {
    if (!file) return;
    fb_parts_free(&file->parts);
    fb_buffer_free(&file->directory);
    fb_graph_free(file->graph);
    free(file);
}

uint64_t fb_archive_file_size(const fb_archive_file *file) {
    return file->parts.size;
}

fb_status fb_archive_file_read(fb_archive_file *file, uint64_t offset, void *to, size_t size, fb_error *error) {
    return fb_parts_read(&file->parts, offset, to, size, error);
}
