/* Files of other programs, recognised by their first bytes, for errors that say what a client has sent instead. */
#ifndef FB_BASE_FILE_KIND_H
#define FB_BASE_FILE_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a graph document (or other JSON) is expected: what the bytes are and what to do, "this is …; export …"; NULL for what
 * may be JSON. */
const char *fb_kind_instead_of_json(const void *bytes, size_t size);

/* The same where a safetensors file is expected. */
const char *fb_kind_instead_of_safetensors(const void *bytes, uint64_t size);

/* The same where an archive of torch.export is expected. */
const char *fb_kind_instead_of_archive(const void *bytes, uint64_t size);

/* The same where an ONNX model is expected. */
const char *fb_kind_instead_of_onnx(const void *bytes, uint64_t size);

/* Does it begin as ONNX models do? */
bool fb_is_onnx(const void *bytes, uint64_t size);

#endif
