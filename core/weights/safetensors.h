/* The safetensors file format: eight bytes of little-endian header size, a JSON header, the tensors' bytes one after another.
 * Source: the format's description in the safetensors project, "Format". */
#ifndef FB_WEIGHTS_SAFETENSORS_H
#define FB_WEIGHTS_SAFETENSORS_H

#include <jansson.h>

#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/graph/graph.h"

#define FB_SAFETENSORS_MAX_HEADER ((uint64_t)100000000) /* bytes, as in the reference implementation */
#define FB_SAFETENSORS_MAX_RANK 32

typedef struct fb_safetensors_entry {
    const char *name;
    fb_dtype dtype;
    const char *dtype_name; /* as the format spells it */
    int rank;
    const int64_t *shape;      /* of graphs, whose elements pack the numbers of F4 and F6 */
    const int64_t *torn_shape; /* the file's, where its rows end within such an element: `shape` is flat then. NULL otherwise */
    int torn_rank;
    uint64_t offset; /* from the begin of the file */
    uint64_t size;   /* bytes */
} fb_safetensors_entry;

/* A parsed header. */
typedef struct fb_safetensors {
    fb_safetensors_entry *entries; /* in the order of their offsets, as the header has them where that is the same */
    size_t count;
    json_t *metadata; /* "__metadata__": an object of strings in the order given; NULL = none */
    uint64_t size;    /* of the file that the header describes */
    void *memory;     /* names and shapes */
} fb_safetensors;

/* Parses the header of a file of `size` bytes, of which `bytes` has at least the header's (mapped, usually all). FB_INVALID
 * "bad-safetensors", with a pointer into the header ("/encoder.weight/data_offsets") where it is known, for everything that the
 * reference implementation refuses: a header beyond the file or FB_SAFETENSORS_MAX_HEADER, that does not begin with '{', is not
 * UTF-8 or JSON, an unknown dtype, offsets that do not agree with dtype and shape, overlap, leave a hole or do not end with the
 * file; overflow of any product. And for what the format's description forbids though that implementation takes it: a repeated
 * name, an unknown member; for U+0000 in a name, more than FB_SAFETENSORS_MAX_RANK dimensions, sizes from 2^63 on. */
fb_status fb_safetensors_read(const unsigned char *bytes, uint64_t size, fb_safetensors *out, fb_error *error);
void fb_safetensors_free(fb_safetensors *file);

/* Lays out a file of these tensors as the reference implementation does: sorted by dtype in its order, the largest elements
 * first (so that all are aligned), then by name; the header padded with spaces to a multiple of eight bytes. Sorts `entries`
 * and sets their offsets; `header` gets the eight bytes and the header. `metadata` may be NULL; its members stay in their
 * order. Needs name, dtype and shape of the entries, and sets the rest. The bytes are those that `safetensors.torch.save_file`
 * writes. FB_INVALID "not-in-safetensors" for a repeated name, one that is "__metadata__" or a dtype that the format lacks
 * (complex128); FB_TOO_LARGE, FB_NO_MEMORY. `header` is written on success only. */
fb_status fb_safetensors_lay_out(fb_safetensors_entry *entries, size_t count, const json_t *metadata, fb_buffer *header,
                                 uint64_t *size, fb_error *error);

/* The header of a file of tensors that follow one another in a file that was read, in their order there. Sets the entries'
 * offsets. `header` and `metadata` as above; FB_TOO_LARGE, FB_NO_MEMORY. */
fb_status fb_safetensors_cut_out(fb_safetensors_entry *entries, size_t count, const json_t *metadata, fb_buffer *header,
                                 fb_error *error);

#endif
