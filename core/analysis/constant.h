/* Constants that a graph reads: buffers that no checkpoint has, whose bytes are in the document. */
#ifndef FB_ANALYSIS_CONSTANT_H
#define FB_ANALYSIS_CONSTANT_H

#include "core/analysis/alias.h"

/* Does the get_attr node read such a buffer? */
bool fb_reads_bytes(const fb_graph *graph, fb_node read, fb_tensor *tensor);
/* … and is it never written? */
bool fb_reads_constant(const fb_graph *graph, const fb_alias *alias, fb_node read, fb_tensor *tensor);

#endif
