/* Facts about dialects, by which passes decide in place of asking for one. */
#ifndef FB_ANALYSIS_DIALECT_H
#define FB_ANALYSIS_DIALECT_H

#include "core/graph/graph.h"

typedef struct fb_dialect_facts {
    bool has_bytes; /* a model comes with the bytes of its weights: those without are sparse, or in a file that is not here */
    bool has_one_owner; /* the root owns all weights, however many they are */
    bool has_split;     /* one call gives all parts of a value; else each part is a view of it */
    bool has_names;     /* something beside the graph may name its values */
    bool has_matmul;    /* a Linear on more than two dimensions is a MatMul: its weight is (in_features, out_features) */
} fb_dialect_facts;

const fb_dialect_facts *fb_dialect_facts_of(const fb_graph *graph);

#endif
