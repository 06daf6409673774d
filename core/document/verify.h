/* Whether a graph is consistent. Run when a document has been read, and after passes. */
#ifndef FB_DOCUMENT_VERIFY_H
#define FB_DOCUMENT_VERIFY_H

#include "core/base/work.h"
#include "core/graph/graph.h"

/* Appends everything that is wrong, in time linear in the graph's size:
 *
 * - programs: nodes follow what they read; one output, at the end; inputs have distinct targets; placeholders have at most a
 *   default, get_attr nothing, methods a self; modules and attributes that targets name exist (bad-arguments, duplicate-name,
 *   forward-reference, missing-output, duplicate-output, output-not-last, unknown-module, unknown-attribute, bad-wrap)
 * - modules: the root is there and first; every other is called, owns a tensor, has attributes or is a nested program; config
 *   agrees with the tensors (missing-root, root-not-first, unused-module, and the codes of core/ops/module.h)
 * - tensors: every one is owned or read by a recipe; at most one place of its bytes; data of the right length, and of the
 *   digest that is given; a size that can be counted in bytes; recipes (unused-tensor, contradictory-source, bad-data,
 *   bad-digest, bad-shape, and those of core/weights/recipe.h)
 *
 * Pointers are into the document that the graph would be written as. Names, and that they are unique, are the concern of
 * whoever adds rows. Nodes must have been numbered (fb_graph_number). Running out of memory sets errors->out_of_memory. */
void fb_verify(const fb_graph *graph, fb_errors *errors);
/* The same of a large graph. When fb_work_status is not FB_OK afterwards, what was appended is not everything, or wrong. */
void fb_verify_metered(const fb_graph *graph, fb_work *work, fb_errors *errors);

#endif
