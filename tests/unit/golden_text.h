/* A graph as text that a person reads, and what a run changed of it. */
#ifndef FB_TESTS_GOLDEN_TEXT_H
#define FB_TESTS_GOLDEN_TEXT_H

#include "core/compose/run.h"

/* Appends the graph, one line for each thing that its document says: the generated code, each line with the meta of its node;
 * below it the modules, the tensors with their recipes or numbers, and
 * metadata. Only the name is left out. A node that a pass of the run marked names that pass. */
void write_graph_text(const fb_graph *graph, const fb_run *run, fb_buffer *out);

/* Appends every line of both texts once: those of the first alone after "-", those of the second alone after "+". */
void write_changes(const char *before, const char *after, fb_buffer *out);

#endif
