/* Blobs in memory, for tests of weights. */
#ifndef FB_TESTS_MEMORY_BLOBS_H
#define FB_TESTS_MEMORY_BLOBS_H

#include "core/base/buffer.h"
#include "core/weights/blobs.h"

#define MAX_MEMORY_BLOBS 64

typedef struct memory_blob {
    char digest[FB_ID_LENGTH + 1];
    unsigned char *bytes;
    uint64_t size;
    bool is_lent; /* the bytes are the caller's */
    bool is_away; /* as if it had been removed */
} memory_blob;

typedef struct memory_blobs {
    fb_blobs source; /* what core is given */
    memory_blob items[MAX_MEMORY_BLOBS];
    size_t count;
    size_t open;       /* how many are open now */
    size_t remembered; /* digests that were told; none is recalled */
} memory_blobs;

void memory_blobs_init(memory_blobs *blobs);
/* Fails the test when one is still open. */
void memory_blobs_free(memory_blobs *blobs);

/* Puts a copy of the bytes in; its digest, which lives as long as the blobs. */
const char *memory_blobs_put(memory_blobs *blobs, const void *bytes, size_t size);
const char *memory_blobs_put_file(memory_blobs *blobs, const char *path);
/* The same for bytes that are not copied, under a digest that need not be theirs. */
void memory_blobs_lend(memory_blobs *blobs, const char *digest, unsigned char *bytes, uint64_t size);
memory_blob *memory_blobs_find(memory_blobs *blobs, const char *digest);

typedef struct memory_tensor {
    const char *name, *dtype, *shape; /* "2,3" */
    const void *bytes;
    size_t size;
} memory_tensor;
/* A safetensors file in the order given; `metadata` is JSON, or NULL. */
const char *memory_blobs_put_tensors(memory_blobs *blobs, const char *metadata, const memory_tensor *tensors, size_t count);

#endif
