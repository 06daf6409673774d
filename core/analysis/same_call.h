/* Equality of calls, as a hash and a comparison, when some nodes replace others. */
#ifndef FB_ANALYSIS_SAME_CALL_H
#define FB_ANALYSIS_SAME_CALL_H

#include "core/graph/graph.h"

typedef struct fb_same_call {
    const fb_graph *graph;
    const fb_node *now; /* by node: what is read in its place; none = itself */
    uint64_t seed;      /* of the hashes: nothing that a document can foresee */
} fb_same_call;

/* The hash of opcode, target, arguments, and the recorded shape and dtype. O(arguments). */
uint64_t fb_call_hash(const fb_same_call *same, fb_node node);
bool fb_calls_are_same(const fb_same_call *same, fb_node a, fb_node b);

#endif
