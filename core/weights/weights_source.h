/* The safetensors files that a graph's bytes come from, and which of its tensors are theirs. */
#ifndef FB_WEIGHTS_WEIGHTS_SOURCE_H
#define FB_WEIGHTS_WEIGHTS_SOURCE_H

#include "core/weights/blobs.h"
#include "core/weights/safetensors.h"

typedef struct fb_weights_source {
    const fb_blobs *blobs;
    const char *blob;
    fb_blob_bytes bytes;
    fb_safetensors header;                /* without entries where the blob is not a safetensors file */
    const fb_safetensors_entry **by_name; /* sorted */
} fb_weights_source;

/* Opens the blob; fb_weights_source_close must follow on success. FB_NOT_FOUND, FB_IO, FB_NO_MEMORY. */
fb_status fb_weights_source_open(fb_weights_source *source, const fb_blobs *blobs, const char *blob, fb_error *error);
void fb_weights_source_close(fb_weights_source *source);
/* The file's tensor of that name, or NULL. */
const fb_safetensors_entry *fb_weights_source_find(const fb_weights_source *source, const char *name);
/* Finds out if the file has the graph's tensor under that key: of the same dtype, shape and bytes. */
fb_status fb_weights_source_has(const fb_weights_source *source, const fb_graph *graph, fb_tensor tensor, const char *key,
                                bool *has, fb_error *error);

/* Notes in the graph's metadata that these tensors of a file were left over when the graph was bound to it, under
 * "weights_file": {"blob": the file's digest, "extra": the digest of the sorted names}. No names: removes the note. Sorts
 * `extra`. False when memory is out. */
bool fb_weights_note_extra(fb_graph *graph, const char *blob, const char **extra, size_t count);
/* Finds out if exactly these are left over of the file: none, or the ones in the note. Sorts `extra`. */
fb_status fb_weights_check_extra(const fb_graph *graph, const char *blob, const char **extra, size_t count, bool *is_right,
                                 fb_error *error);

#endif
