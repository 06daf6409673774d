/* The archive that a graph was read from: its metadata say it, {"archive": {"blob": "sha256:…", "model": "…"}}, also after
 * passes. */
#ifndef FB_ARCHIVE_ORIGIN_H
#define FB_ARCHIVE_ORIGIN_H

#include "core/base/sha256.h"
#include "core/graph/graph.h"

typedef struct fb_archive_origin {
    char blob[FB_ID_LENGTH + 1]; /* "" = it came from no archive */
    char *model;                 /* the caller's: free() */
} fb_archive_origin;

fb_status fb_archive_origin_of(const fb_graph *graph, fb_archive_origin *out, fb_error *error);

#endif
