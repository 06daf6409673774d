/* `.pt2` archives of torch.export: read as documents.
 *
 * The document is the one that the Python client's exporter makes of the loaded program: the same nodes and names, modules,
 * ties, constants and nested programs, and so the same structure. Its tensors point into the archive, which must be a blob;
 * only tensors that are not a range of its bytes (deflated, or not row-major) go into the document.
 *
 * What cannot be known without a guess is refused by name: "bad-archive" for what is broken, "unsupported-archive" for what
 * PyTorch can load and this cannot. */
#ifndef FB_ARCHIVE_ARCHIVE_H
#define FB_ARCHIVE_ARCHIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/archive/limits.h"
#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/base/work.h"
#include "core/graph/graph.h"
#include "core/weights/blobs.h"

/* The container of an archive: a zip file in memory (or mapped), read from its central directory.
 *
 * PyTorch stores entries without compression, so each is a range of bytes of the file. Deflated entries and ZIP64 are read as
 * well. Archives that only an attacker would make are refused by the entry's name: names that are twice there, that leave the
 * folder or are absolute, entries that overlap or reach beyond the file, sizes that the file cannot hold, encryption, several
 * disks. */

typedef struct fb_zip_entry {
    const char *name;
    uint64_t offset; /* of the entry's bytes in the file */
    uint64_t stored; /* bytes that it takes there */
    uint64_t size;   /* bytes of the content; the same as stored unless it is deflated */
    uint64_t header; /* offset of its local header */
    uint32_t crc;
    bool is_deflated;
} fb_zip_entry;

typedef struct fb_zip {
    const unsigned char *bytes; /* borrowed */
    uint64_t size;
    fb_zip_entry *entries; /* sorted by name; folders are left out */
    size_t count;
    fb_arena names;
} fb_zip;

/* Does the file begin as a zip file does? */
bool fb_is_zip(const void *bytes, uint64_t size);

/* Reads the directory and the headers of the entries; contents are not looked at. Asks the watch once in so many bytes of the
 * file: it may give back the pages of a mapped one. The caller frees with fb_zip_close, also after a failure, which is
 * FB_INVALID ("bad-archive"), FB_NO_MEMORY or the watch's. */
fb_status fb_zip_open(const void *bytes, uint64_t size, fb_work *work, fb_zip *zip, fb_error *error);
void fb_zip_close(fb_zip *zip);

/* Checks that the content has the size and the CRC that the directory gives. */
fb_status fb_zip_check(const fb_zip *zip, const fb_zip_entry *entry, fb_work *work, fb_error *error);
/* The content, of at most `limit` bytes, with a NUL behind it; to be freed. The CRC is checked. */
fb_status fb_zip_read(const fb_zip *zip, const fb_zip_entry *entry, uint64_t limit, fb_work *work, char **out, fb_error *error);

typedef struct fb_archive {
    fb_zip zip;
    fb_archive_limits limits;
    char *root;          /* the folder that all entries are in, with its slash */
    const char **models; /* names of its programs, sorted */
    size_t model_count;
} fb_archive;

/* Reads the container: entries, root folder, models. The bytes are borrowed; `limits` may be NULL. Close it also after a
 * failure.
 */
fb_status fb_archive_open(const void *bytes, uint64_t size, const fb_archive_limits *limits, fb_work *work, fb_archive *archive,
                          fb_error *error);
void fb_archive_close(fb_archive *archive);

/* Checks the size and the CRC of every entry. */
fb_status fb_archive_check(const fb_archive *archive, fb_work *work, fb_error *error);

/* The entry called `name` within the root folder, or NULL. */
const fb_zip_entry *fb_archive_find(const fb_archive *archive, const char *name);

/* Appends the document of a model; `model` may be NULL where there is only one. `blob` is the archive's id. Read the document
 * with fb_document_read, which checks it. */
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
 * again: nodes, names and marks come from `written`. FB_CONFLICT "another-program" says where the two differ in anything but
 * names and the bytes of weights. */
fb_status fb_archive_trained_document(const fb_graph *written, const fb_graph *trained, fb_buffer *out, fb_error *error);

/* The archive of a graph that was read from one and has been changed since.
 *
 * The program is rewritten where the graph differs; the records that nothing touched are ranges of the old archive, new weights
 * are evaluated while the file is read. Before the first byte the rewritten program is read again and compared with the graph,
 * so an archive that says something else than the graph is never given. */

typedef struct fb_archive_file fb_archive_file;

/* The archive, the graph and `blobs` must outlive the file. `blob` is the id of the archive, and `model` the program of it that
 * the graph was. `makers`: the passes that made nodes of the graph, texts by node, or NULL: new nodes say which
 * pass made them, and of what. FB_CONFLICT "archive-changed" says what cannot be written; FB_NOT_FOUND and the others
 * come from fb_evaluation_new. */
fb_status fb_archive_file_new(const fb_archive *archive, const char *model, const char *blob, const fb_graph *graph,
                              const json_t *makers, const fb_blobs *blobs, fb_work *work, fb_archive_file **out,
                              fb_error *error);
void fb_archive_file_free(fb_archive_file *file);
uint64_t fb_archive_file_size(const fb_archive_file *file);
/* Bytes offset … offset + size of it, which must be within it. One thread at a time. */
fb_status fb_archive_file_read(fb_archive_file *file, uint64_t offset, void *to, size_t size, fb_error *error);

#endif
