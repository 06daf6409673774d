/* The limits of a `.pt2` archive: those that a caller sets, and those that hold for all. */
#ifndef FB_ARCHIVE_LIMITS_H
#define FB_ARCHIVE_LIMITS_H

#include <stdint.h>

#include "core/base/error.h"

/* Limits on the reading of an archive. 0 of each: no limit. */
typedef struct fb_archive_limits {
    uint64_t size;  /* bytes of entries that are in memory at once, together: FB_TOO_LARGE "body-too-large" */
    unsigned ratio; /* bytes of all entries to the archive's (fb_is_within_ratio): FB_TOO_LARGE "body-ratio-too-large" */
    void *context;
    /* So many bytes of an entry are about to be in memory; those that were held have been freed. Both or neither is NULL. */
    fb_status (*hold)(void *context, uint64_t size, fb_error *error);
    void (*release)(void *context, uint64_t size);
} fb_archive_limits;

#define PT_MOST_ENTRIES 100000              /* of the ZIP file */
#define PT_MOST_NAME_BYTES (1U << 20)       /* of all its names together */
#define PT_MOST_COMMENT 65535               /* bytes */
#define PT_MOST_INFLATION 1032              /* bytes that deflate can make of one */
#define PT_MOST_JSON ((uint64_t)1 << 30)    /* bytes of a program or a config */
#define PT_MOST_INLINE ((uint64_t)64 << 20) /* bytes of tensors that go into a document, together */
#define PT_MOST_ROWS 2000000                /* nodes of a program */
#define PT_MOST_DEPTH 32                    /* of programs in programs, and of arguments */
#define PT_MOST_DIMENSIONS 64
#define PT_MOST_DOTS 64           /* of an owner's path */
#define PT_MOST_PARTS 4096        /* of an expression of strides */
#define PT_MOST_SIZE_DEPTH 40     /* of an expression of sizes */
#define PT_MOST_SIZE_ARGUMENTS 64 /* of one of its calls */

#endif
