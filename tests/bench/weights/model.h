/* Models that are measured: a document, and a safetensors file of its weights. */
#ifndef FB_BENCH_MODEL_H
#define FB_BENCH_MODEL_H

#include "core/base/sha256.h"
#include "core/weights/safetensors.h"

typedef struct fb_model {
    fb_buffer document;
    const char *pass; /* what there is to do to it */
    char path[200];   /* of the file */
    char digest[FB_ID_LENGTH + 1];
    uint64_t size;
    fb_safetensors_entry *entries;
    size_t count, capacity;
} fb_model;

/* `blocks` of three Linears of that width that read one value, for MergeLinears: everything moves. */
void fb_model_linears(fb_model *model, const char *path, size_t blocks, size_t width);
/* `count` Conv2d of 3 x 3 with a BatchNorm2d each, for FuseBatchNorm2dInConv2d: everything computes. */
void fb_model_convs(fb_model *model, const char *path, size_t count, size_t channels, fb_dtype dtype);
/* Removes the file, too. */
void fb_model_free(fb_model *model);

#endif
