/* `.pt2` archives of torch.export: read as documents.
 *
 * The document is the one that the Python client's exporter makes of the loaded program: the same nodes and names, modules,
 * ties, constants and nested programs, and so the same structure. Its tensors point into the archive, which must be a blob;
 * only what is no range of its bytes (deflated, or not row-major) goes into the document.
 *
 * What cannot be told without a guess is refused by name: "bad-archive" for what is broken, "unsupported-archive" for what
 * PyTorch can load and this cannot. */
#ifndef FB_ARCHIVE_ARCHIVE_H
#define FB_ARCHIVE_ARCHIVE_H

#include "core/archive/zip.h"
#include "core/base/buffer.h"
#include "core/base/sha256.h"
#include "core/graph/graph.h"

typedef struct fb_archive {
    fb_zip zip;
    char *root;          /* the folder that all entries are in, with its slash */
    const char **models; /* names of its programs, sorted */
    size_t model_count;
} fb_archive;

/* Reads the container: entries, root folder, models. The bytes are borrowed. Close it also after a failure. */
fb_status fb_archive_open(const void *bytes, uint64_t size, fb_work *work, fb_archive *archive, fb_error *error);
void fb_archive_close(fb_archive *archive);

/* Checks the size and the CRC of every entry. */
fb_status fb_archive_check(const fb_archive *archive, fb_work *work, fb_error *error);

/* The entry called `name` within the root folder, or NULL. */
const fb_zip_entry *fb_archive_find(const fb_archive *archive, const char *name);

/* Appends the document of a model; `model` may be NULL where there is only one. `blob` is the archive's id. What the document
 * says is to be read with fb_document_read, which checks it. */
fb_status fb_archive_document(const fb_archive *archive, const char *model, const char *blob, fb_work *work, fb_buffer *out,
                              fb_error *error);

/* The archive that a graph was read from: its metadata say it, {"archive": {"blob": "sha256:…", "model": "…"}}, also after
 * passes. */
typedef struct fb_archive_origin {
    char blob[FB_ID_LENGTH + 1]; /* "" = it came from no archive */
    char *model;                 /* the caller's: free() */
} fb_archive_origin;

fb_status fb_archive_origin_of(const fb_graph *graph, fb_archive_origin *out, fb_error *error);

/* An archive that foldback writes for a changed graph has the graph's id in this entry. Others may have changed the archive
 * since: it is the graph's only if it has the same bytes as what fb_archive_file writes of that graph. */
#define FB_ARCHIVE_GRAPH_ENTRY "extra/foldback_graph"

/* Reads the id in that entry, or "" if the archive lacks it. */
fb_status fb_archive_written_for(const fb_archive *archive, char id[FB_ID_LENGTH + 1], fb_error *error);

/* Appends the document of the graph `written` with the weights of `trained`, which was read from an archive that PyTorch saved
 * again: nodes, names and marks are those of `written`. FB_CONFLICT "another-program" says where the two differ in anything but
 * names and the bytes of weights. */
fb_status fb_archive_trained_document(const fb_graph *written, const fb_graph *trained, fb_buffer *out, fb_error *error);

#endif
