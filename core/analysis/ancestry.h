/* The nodes that a new node was made of, found from the two graphs alone: passes need not say it, and no document does.
 *
 *     x ── matmul ── softmax ── matmul ── y     x ── attention ── y
 *
 * y reads the attention where it read the second matmul, so the attention replaces that, and with it the nodes before it that
 * are gone. A new node that only new nodes read is made of what they are; one that was put between two old nodes is made of
 * the first. */
#ifndef FB_ANALYSIS_ANCESTRY_H
#define FB_ANALYSIS_ANCESTRY_H

#include "core/base/arena.h"
#include "core/base/work.h"
#include "core/graph/graph.h"

#define FB_ANCESTORS_MAX 64 /* of one node, the nearest; and with their own, which PyTorch has written */

typedef struct fb_ancestors {
    fb_node *nodes; /* of the earlier graph, the nearest first */
    uint32_t count;
} fb_ancestors;

typedef struct fb_ancestry {
    fb_ancestors *of; /* by node of the later graph; of nodes that are not new: nothing */
    bool *is_new;     /* by node of the later graph: a call that was not there, or called something else */
    bool *is_gone;    /* by node of the earlier graph: likewise */
    fb_arena arena;
} fb_ancestry;

/* Compares a program of the one graph with a program of the other; nodes are paired by name. Linear in their sizes.
 * FB_NO_MEMORY, or what the work is stopped with. Free it after success. */
fb_status fb_ancestry_find(const fb_graph *before, fb_program was, const fb_graph *after, fb_program is, fb_work *work,
                           fb_ancestry *out, fb_error *error);
void fb_ancestry_free(fb_ancestry *ancestry);

#endif
