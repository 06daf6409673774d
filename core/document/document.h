/* The graph document, `foldback.graph/1`: JSON in (and out: core/graph/write.h). The format is schema/graph.schema.json and
 * what a schema cannot say is verify.h. */
#ifndef FB_DOCUMENT_DOCUMENT_H
#define FB_DOCUMENT_DOCUMENT_H

#include "core/graph/write.h"

#define FB_MAX_NODES_DEFAULT 2000000

/* What a reader accepts; a member that is 0 has its default. */
typedef struct fb_document_limits {
    size_t max_bytes;      /* of the document; default 1 GiB, never more than 4 GiB */
    size_t max_nodes;      /* those of nested programs included; default FB_MAX_NODES_DEFAULT */
    size_t max_nesting;    /* arrays and objects open at once; default 64, never more than 1,000 */
    const fb_watch *watch; /* may be NULL */
} fb_document_limits;

/* Reads a document, checks it whole (verify.h) and numbers its nodes. `limits` may be NULL. `pointer_prefix` says where the
 * document stands in a request ("" or "/graph") and begins every pointer. `errors` is empty.
 *
 *   FB_OK        `*out` is the caller's (fb_graph_free)
 *   FB_SYNTAX    not JSON as we take it: one error, whose message has line, column and byte. Codes: invalid-json, invalid-utf8,
 *                duplicate-member, nul-character, lone-surrogate, number-out-of-range
 *   FB_INVALID   every other fault, all of them (errors->total; the first `limit` are kept), but nesting-too-deep stands alone
 *   FB_TOO_LARGE one error: document-too-large, too-many-nodes
 *   FB_NO_MEMORY one error, if there is room for it
 *   FB_BUSY      one error: what the watch stops it with
 *
 * `*out` is written on FB_OK only. */
fb_status fb_document_read(const char *bytes, size_t size, const fb_document_limits *limits, const char *pointer_prefix,
                           fb_graph **out, fb_errors *errors);

#endif
