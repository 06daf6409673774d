/* Where the bytes of blobs are. core knows no files: who calls it says how a blob is opened. */
#ifndef FB_WEIGHTS_BLOBS_H
#define FB_WEIGHTS_BLOBS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/graph/graph.h"

/* A blob's bytes, there and unchanged until they are closed. */
typedef struct fb_blob_bytes {
    const unsigned char *bytes;
    uint64_t size;
    void *owner; /* the opener's own */
} fb_blob_bytes;

/* A row of remembered digests: the tensor at `offset` of a blob. */
typedef struct fb_blob_tensor {
    const char *blob;      /* "sha256:…" */
    uint64_t offset, size; /* bytes */
    const char *dtype;     /* "float32" */
    const char *shape;     /* "[64,64]" */
} fb_blob_tensor;

/* All functions may be called from any thread. */
typedef struct fb_blobs {
    void *context;
    /* FB_NOT_FOUND "blob-missing", whose message names it; FB_IO; FB_NO_MEMORY. */
    fb_status (*open)(void *context, const char *blob, fb_blob_bytes *out, fb_error *error);
    void (*close)(void *context, fb_blob_bytes *bytes);
    /* The pages of these bytes need not stay in memory: they were read, and will hardly be again. */
    void (*forget)(void *context, const fb_blob_bytes *bytes);
    /* A digest that was remembered: FB_NOT_FOUND when there is none. NULL: nothing is remembered. */
    fb_status (*recall)(void *context, const fb_blob_tensor *tensor, char digest[FB_ID_LENGTH + 1], fb_error *error);
    /* Remembers one; that it could not is not a failure of the caller's. NULL as above. */
    void (*remember)(void *context, const fb_blob_tensor *tensor, const char *digest);
    /* Writes elements first … first + count of a tensor whose own bytes are not known, or whose blob is not here. NULL: nothing
     * replaces them. */
    void (*stand_in)(void *context, const fb_graph *graph, fb_tensor tensor, int64_t first, int64_t count, unsigned char *to);
    /* A file without a name, open for reading and writing, for what does not fit into memory; the caller closes it. NULL: there
     * is only memory. FB_NO_SPACE, FB_IO. */
    fb_status (*scratch)(void *context, int *file, fb_error *error);
} fb_blobs;

#endif
