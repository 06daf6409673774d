/* Which blobs a graph refers to. */
#ifndef FB_STORE_BLOB_REFERENCES_H
#define FB_STORE_BLOB_REFERENCES_H

#include "core/graph/graph.h"

/* The blobs that the tensors of a graph refer to, each once, for fb_store_graph. The array is malloc'ed (caller frees), the
 * texts are the graph's. */
fb_status fb_list_blobs(const fb_graph *graph, const char ***blobs, size_t *count, fb_error *error);

#endif
