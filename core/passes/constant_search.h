/* Which nodes of a graph depend on weights only. */
#ifndef FB_PASSES_CONSTANT_SEARCH_H
#define FB_PASSES_CONSTANT_SEARCH_H

#include "core/passes/constant.h"

typedef enum fb_constancy {
    FB_VARIES = 0, /* it depends on an input, or on what is no weight */
    FB_WEIGHT,     /* a get_attr node that reads a weight */
    FB_INSIDE,     /* a call on weights only, whose readers are all of this or the next kind */
    FB_FOLDED,     /* the last one: what it gives becomes a weight */
    FB_REFUSED,    /* it looks constant, and must stay; so its readers vary */
} fb_constancy;

typedef struct fb_constant_finding {
    uint8_t constancy;           /* fb_constancy */
    bool is_claimed;             /* for the pass: it is part of a match */
    const char *reason, *detail; /* why it is refused */
} fb_constant_finding;

/* Findings by node id, malloc'ed; NULL when memory is out. `maximum_growth`: by how many elements a node's weight may be larger
 * than those that it is made from and that nobody else needs. */
fb_constant_finding *fb_find_constants(fb_matcher *matcher, int64_t maximum_growth);

#endif
