/* A graph as its document, `foldback.graph/1`: canonical bytes and identity. */
#ifndef FB_GRAPH_WRITE_H
#define FB_GRAPH_WRITE_H

#include "core/base/buffer.h"
#include "core/base/sha256.h"
#include "core/base/work.h"
#include "core/graph/graph.h"

#define FB_DOCUMENT_FORMAT "foldback.graph/1"

/* Appends the canonical bytes. Check out->failed. */
void fb_document_write(const fb_graph *graph, fb_buffer *out);
/* "sha256:" and the hash of the canonical bytes. False when memory is out. */
bool fb_document_id(const fb_graph *graph, char id[FB_ID_LENGTH + 1]);
/* The same of a large graph. False: fb_work_failed says why. */
bool fb_document_id_metered(const fb_graph *graph, fb_work *work, char id[FB_ID_LENGTH + 1]);
/* The same hash without what differs between two tracings of one model: name, metadata, all of meta but shape and dtype, and
 * the tensors' digest, blob, offset and data. */
bool fb_document_structure(const fb_graph *graph, char id[FB_ID_LENGTH + 1]);
/* Bytes and id at once: appends the canonical bytes to `out`, which is empty, or `left_out` is NULL. That takes down what of
 * the bytes is not part of the structure, for fb_document_structure_of them. */
bool fb_document_write_marked(const fb_graph *graph, fb_work *work, fb_buffer *out, fb_buffer *left_out,
                              char id[FB_ID_LENGTH + 1]);
bool fb_document_structure_of(const fb_buffer *document, const fb_buffer *left_out, fb_work *work, char id[FB_ID_LENGTH + 1]);
/* Have two graphs the same canonical bytes? False: fb_work_failed says why the answer is missing. */
bool fb_document_is_same(const fb_graph *a, const fb_graph *b, fb_work *work, bool *is_same);

/* Appends one value in canonical form, as a document has it. */
void fb_value_write(const fb_graph *graph, fb_value value, fb_buffer *out);

/* One row alone, as a document has it. A tensor's requires_grad is always written: what its default is depends on its owners.
 */
void fb_node_write(const fb_graph *graph, fb_node node, fb_buffer *out);
void fb_module_write(const fb_graph *graph, fb_module module, fb_buffer *out);
void fb_tensor_write(const fb_graph *graph, fb_tensor tensor, fb_buffer *out);

#endif
