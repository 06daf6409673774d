/* The graph document, `foldback.graph/1`: JSON in and out, canonical bytes, identity. The format is schema/graph.schema.json
 * and what a schema cannot say is verify.h. */
#ifndef FB_GRAPH_DOCUMENT_H
#define FB_GRAPH_DOCUMENT_H

#include <jansson.h>

#include "core/base/buffer.h"
#include "core/base/sha256.h"
#include "core/base/work.h"
#include "core/graph/graph.h"

#define FB_DOCUMENT_FORMAT "foldback.graph/1"

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

/* Appends the canonical bytes. Check out->failed. */
void fb_document_write(const fb_graph *graph, fb_buffer *out);
/* "sha256:" and the hash of the canonical bytes. False when memory is out. */
bool fb_document_id(const fb_graph *graph, char id[FB_ID_LENGTH + 1]);
/* The same of a large graph. False: fb_work_failed says why. */
bool fb_document_id_metered(const fb_graph *graph, fb_work *work, char id[FB_ID_LENGTH + 1]);
/* Both at once: appends the canonical bytes to `out`, and their id. */
bool fb_document_write_id(const fb_graph *graph, fb_buffer *out, char id[FB_ID_LENGTH + 1]);
/* The same of a large graph. False: fb_work_failed says why. */
bool fb_document_write_id_metered(const fb_graph *graph, fb_work *work, fb_buffer *out, char id[FB_ID_LENGTH + 1]);
/* The same hash without what differs between two tracings of one model: name, metadata, all of meta but shape and dtype, and
 * the tensors' digest, blob, offset and data. */
bool fb_document_structure(const fb_graph *graph, char id[FB_ID_LENGTH + 1]);
bool fb_document_structure_metered(const fb_graph *graph, fb_work *work, char id[FB_ID_LENGTH + 1]);

/* Appends one value in canonical form, as it stands in a document. */
void fb_value_write(const fb_graph *graph, fb_value value, fb_buffer *out);

/* One row alone, as it stands in a document. A tensor's requires_grad is always written: what its default is depends on its
 * owners. */
void fb_node_write(const fb_graph *graph, fb_node node, fb_buffer *out);
void fb_module_write(const fb_graph *graph, fb_module module, fb_buffer *out);
void fb_tensor_write(const fb_graph *graph, fb_tensor tensor, fb_buffer *out);

/* Appends free JSON in canonical form: members sorted by their bytes, floats as Python's repr, ints bare. FB_NO_MEMORY, or
 * FB_SYNTAX for what a document could not hold (\u0000). */
fb_status fb_free_json_canonical(const json_t *value, fb_buffer *out);

#endif
