/* What reading and writing headers share; for core/weights/safetensors*.c alone. */
#ifndef FB_WEIGHTS_SAFETENSORS_INTERNAL_H
#define FB_WEIGHTS_SAFETENSORS_INTERNAL_H

#include "core/weights/safetensors.h"

typedef struct fb_safetensors_dtype {
    const char *name;
    unsigned bits; /* of an element */
    fb_dtype dtype;
} fb_safetensors_dtype;

/* In the order in which a file has its tensors. A name of NULL ends it. */
extern const fb_safetensors_dtype fb_safetensors_dtypes[];

/* Bytes of a tensor; false when its bits cannot be counted in 64 bits, or are no whole bytes. */
bool fb_safetensors_size(const int64_t *shape, int rank, unsigned bits, uint64_t *size);

#endif
