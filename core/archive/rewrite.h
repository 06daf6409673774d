/* Which entries the archive of a changed graph has; for core/archive alone. */
#ifndef FB_ARCHIVE_REWRITE_H
#define FB_ARCHIVE_REWRITE_H

#include "core/archive/archive.h"
#include "core/graph/graph.h"

/* A text, a range of the old archive, or else a tensor of the graph. */
typedef struct pt_entry {
    const char *name;
    const char *text;
    const unsigned char *range;
    uint64_t stored, size; /* of a range */
    uint32_t crc;
    bool is_deflated;
    fb_tensor tensor;
} pt_entry;

typedef fb_status pt_add_entry(void *context, const pt_entry *entry);

/* Calls `add` for each entry. FB_CONFLICT "archive-changed": with what cannot be written. */
fb_status pt_rewrite(const fb_archive *archive, const char *model, const char *blob, const fb_graph *graph, fb_work *work,
                     pt_add_entry *add, void *context, fb_error *error);

#endif
