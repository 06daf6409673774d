/* A checkpoint: safetensors files as a document whose modules own their tensors, and which computes nothing. */
#ifndef FB_BIND_CHECKPOINT_H
#define FB_BIND_CHECKPOINT_H

#include "core/base/buffer.h"
#include "core/weights/blobs.h"

/* Appends the document. `files` are digests of safetensors files, in any order; an index of shards may be among them, and must
 * agree with them then. A tensor's name is the path of the module that owns it, a dot, and the attribute; its bytes stay in the
 * blob. FB_INVALID with a pointer that begins with "/weights/1": "bad-safetensors", "bad-checkpoint" where two files have one
 * name or the index names another one, "unsupported-dtype"; FB_NOT_FOUND "blob-missing". */
fb_status fb_checkpoint_write(const char *const *files, size_t count, const char *name, const fb_blobs *blobs, fb_buffer *out,
                              fb_error *error);

#endif
