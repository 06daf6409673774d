/* GGUF, the file format of llama.cpp: metadata, names and places of tensors, and their bytes, each at a multiple of the
 * alignment. Source: docs/gguf.md in the project ggml, version 3; version 2 is the same, and version 1 is refused.
 *
 *     "GGUF" version tensors members | member … | tensor … | padding | bytes, padding, bytes …
 *
 * Numbers are little-endian. Sizes of a tensor are written the innermost first; here they are the outermost first, as
 * everywhere else. A quantised tensor has blocks of elements along its innermost dimension. */
#ifndef FB_WEIGHTS_GGUF_H
#define FB_WEIGHTS_GGUF_H

#include "core/base/buffer.h"
#include "core/base/error.h"

#define FB_GGUF_MAX_RANK 4
#define FB_GGUF_MAX_NAME 63                       /* bytes, which llama.cpp can read */
#define FB_GGUF_MAX_HEADER ((uint64_t)1000000000) /* bytes */

/* A type of ggml's: `elements` in `bytes`. */
typedef struct fb_gguf_type {
    uint32_t id;
    const char *name, *dtype; /* as safetensors spells it; NULL: quantised */
    uint32_t elements, bytes; /* of a block */
} fb_gguf_type;
const fb_gguf_type *fb_gguf_type_named(const char *name);     /* "Q8_0"; NULL: not known */
const fb_gguf_type *fb_gguf_type_of_dtype(const char *dtype); /* "BF16" */

typedef struct fb_gguf_tensor {
    const char *name;
    const fb_gguf_type *type;
    int rank;
    int64_t shape[FB_GGUF_MAX_RANK]; /* elements, the outermost first */
    uint64_t offset;                 /* from the begin of the file */
    uint64_t size;                   /* bytes */
} fb_gguf_tensor;

typedef struct fb_gguf {
    uint32_t version, alignment;
    uint64_t members;                 /* of the metadata */
    uint64_t metadata, metadata_size; /* its bytes in the file */
    uint64_t data;                    /* where the tensors' bytes begin */
    fb_gguf_tensor *tensors;          /* in the order of the file */
    size_t count;
    void *memory;
} fb_gguf;

/* Reads the header of a file of `size` bytes, of which `bytes` has the first `have`. FB_INVALID "bad-gguf" for everything that
 * is not as the format says, for unknown types, a repeated name, tensors that overlap or end beyond the file; "gguf-truncated"
 * if the header does not end within `have` bytes, though it may within the file. FB_NO_MEMORY. Free `out` with fb_gguf_free. */
fb_status fb_gguf_read(const unsigned char *bytes, size_t have, uint64_t size, fb_gguf *out, fb_error *error);
void fb_gguf_free(fb_gguf *file);

/* Finds a member of the metadata of a file whose header is `bytes`: a text, or a whole number that is not negative; of a list
 * of numbers that are all the same, that one. False if there is none of that kind. */
bool fb_gguf_text(const fb_gguf *file, const unsigned char *bytes, const char *key, const char **text, uint64_t *length);
bool fb_gguf_number(const fb_gguf *file, const unsigned char *bytes, const char *key, int64_t *out);

/* Writes the header of a file with this metadata, as it is in another file, and these tensors, whose offsets it sets: they
 * follow each other in this order. `text`, if not NULL, becomes a member `key`, in the place of one of that name. FB_INVALID
 * "bad-gguf" for a name that is too long. */
fb_status fb_gguf_lay_out(const fb_gguf *like, const unsigned char *bytes, const char *key, const char *text,
                          fb_gguf_tensor *tensors, size_t count, fb_buffer *out, fb_error *error);

#endif
