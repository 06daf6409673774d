/* The graph document, `foldback.graph/1`: JSON in (and out: core/graph/write.h). The format is schema/graph.schema.json and
 * what a schema cannot say is checked by fb_verify. */
#ifndef FB_DOCUMENT_DOCUMENT_H
#define FB_DOCUMENT_DOCUMENT_H

#include "core/base/work.h"
#include "core/graph/graph.h"
#include "core/graph/write.h"

#define FB_MAX_NODES_DEFAULT 2000000

/* Limits of a reader; a member that is 0 has its default. */
typedef struct fb_document_limits {
    size_t max_bytes;      /* of the document; default 1 GiB, never more than 4 GiB */
    size_t max_nodes;      /* with nested programs' nodes; default FB_MAX_NODES_DEFAULT */
    size_t max_nesting;    /* arrays and objects open at once; default 64, never more than 1,000 */
    const fb_watch *watch; /* may be NULL */
} fb_document_limits;

/* Reads a document, checks it whole (fb_verify) and numbers its nodes. `limits` may be NULL. `pointer_prefix` is the document's
 * place in a request ("" or "/graph") and begins every pointer. `errors` is empty.
 *
 *   FB_OK        `*out` is the caller's (fb_graph_free)
 *   FB_SYNTAX    not JSON as we take it: one error, whose message has line, column and byte. Codes: invalid-json, invalid-utf8,
 *                duplicate-member, nul-character, lone-surrogate, number-out-of-range
 *   FB_INVALID   every other fault, all of them (errors->total; the first `limit` are kept), but nesting-too-deep comes alone
 *   FB_TOO_LARGE one error: document-too-large, too-many-nodes
 *   FB_NO_MEMORY one error, if there is room for it
 *   FB_BUSY      one error: what the watch stops it with
 *
 * `*out` is written on FB_OK only. */
fb_status fb_document_read(const char *bytes, size_t size, const fb_document_limits *limits, const char *pointer_prefix,
                           fb_graph **out, fb_errors *errors);

/* ---- The verifier, run when a document has been read, and after passes. ------------------------------------------------- */

/* Appends everything that is wrong, in time linear in the graph's size:
 *
 * - programs: nodes follow what they read; one output, at the end; inputs have distinct targets; placeholders have at most a
 *   default, get_attr nothing, methods a self; modules and attributes that targets name exist (bad-arguments, duplicate-name,
 *   forward-reference, missing-output, duplicate-output, output-not-last, unknown-module, unknown-attribute, bad-wrap)
 * - modules: the root is there and first; every other is called, owns a tensor, has attributes or is a nested program; config
 *   agrees with the tensors (missing-root, root-not-first, unused-module, and the codes of core/analysis/module.h)
 * - tensors: every one is owned or read by a recipe; at most one place of its bytes; data of the right length, and of the
 *   digest that is given; a size that can be counted in bytes; recipes (unused-tensor, contradictory-source, bad-data,
 *   bad-digest, bad-shape, and those of core/weights/recipe.h)
 *
 * Pointers are into the document that the graph would be written as. Names, and that they are unique, are the concern of the
 * code that adds rows. Nodes must have been numbered (fb_graph_number). Running out of memory sets errors->out_of_memory. When
 * fb_work_status is not FB_OK afterwards, what was appended is not everything, or wrong. */
void fb_verify(const fb_graph *graph, fb_work *work, fb_errors *errors);

#endif
