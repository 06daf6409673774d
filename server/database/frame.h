/* Documents, reports and answers are stored as one zstd frame each, with a checksum. */
#ifndef FB_DATABASE_FRAME_H
#define FB_DATABASE_FRAME_H

#include <stddef.h>

#include "core/base/error.h"

/* The frame is malloc'ed (caller frees). `bytes` may be NULL when `size` is 0. */
fb_status fb_frame_pack(const void *bytes, size_t size, int level, void **frame, size_t *frame_size, fb_error *error);

/* Unpacks into malloc'ed bytes (caller frees), NUL-terminated. The frame must hold exactly `size` bytes: else FB_IO
 * "store-corrupt". */
fb_status fb_frame_unpack(const void *frame, size_t frame_size, size_t size, char **bytes, fb_error *error);

#endif
