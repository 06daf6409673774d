/* A file that is made while it is read: texts, ranges of other files, and tensors that are evaluated. */
#ifndef FB_ARCHIVE_PARTS_H
#define FB_ARCHIVE_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/graph/graph.h"
#include "core/weights/evaluate.h"

/* Bytes of the file: a text, a range, or a tensor. */
typedef struct fb_part {
    uint64_t start, size;
    char *text;                 /* owned; or NULL */
    const unsigned char *range; /* or NULL */
    fb_tensor tensor;
} fb_part;

/* Zeros, the graph and the blobs. */
typedef struct fb_parts {
    fb_graph *graph; /* borrowed; expressions over its tensors are made in it */
    const fb_blobs *blobs;
    fb_part *items;
    size_t count, capacity;
    uint64_t size;
    fb_evaluation *evaluation; /* of part `open`, or NULL */
    size_t open;
} fb_parts;

/* Takes the text also where memory is out. `start` is set here. */
fb_status fb_parts_add(fb_parts *parts, fb_part added, fb_error *error);
void fb_parts_free(fb_parts *parts);
/* Bytes offset … offset + size, which must be within it. One thread at a time. */
fb_status fb_parts_read(fb_parts *parts, uint64_t offset, void *to, size_t size, fb_error *error);
/* The tensor's bytes in the order of its strides: channels_last is row-major with the channels last. */
fb_status fb_parts_evaluate(fb_parts *parts, fb_tensor tensor, fb_evaluation **out, fb_error *error);

#endif
