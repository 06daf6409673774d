/* The archive of a graph that was read from one and has been changed since.
 *
 * The program is rewritten where the graph differs; the records that nothing touched are ranges of the old archive, new weights
 * are evaluated while the file is read. Before the first byte the rewritten program is read again and compared with the graph,
 * so an archive that says something else than the graph is never given. */
#ifndef FB_ARCHIVE_EXPORT_H
#define FB_ARCHIVE_EXPORT_H

#include "core/archive/archive.h"
#include "core/weights/blobs.h"

typedef struct fb_archive_file fb_archive_file;

/* The archive, the graph and `blobs` must outlive the file. `blob` is the id of the archive, and `model` the program of it that
 * the graph was. FB_CONFLICT "archive-changed" says what cannot be written; FB_NOT_FOUND and the others are those of
 * fb_evaluation_new. */
fb_status fb_archive_file_new(const fb_archive *archive, const char *model, const char *blob, const fb_graph *graph,
                              const fb_blobs *blobs, fb_work *work, fb_archive_file **out, fb_error *error);
void fb_archive_file_free(fb_archive_file *file);
uint64_t fb_archive_file_size(const fb_archive_file *file);
/* Bytes offset … offset + size of it, which must lie within. One thread at a time. */
fb_status fb_archive_file_read(fb_archive_file *file, uint64_t offset, void *to, size_t size, fb_error *error);

#endif
