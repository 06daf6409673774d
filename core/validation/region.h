/* The changes of a rewrite, as regions to be evaluated. */
#ifndef FB_VALIDATION_REGION_H
#define FB_VALIDATION_REGION_H

#include "core/base/buffer.h"
#include "core/base/work.h"
#include "core/graph/graph.h"

/* Nodes of both graphs, paired by name. */
typedef struct fb_regions {
    const fb_graph *before, *after;
    fb_work *work;
    bool doubts_shapes;
    fb_node *twin_of_before, *twin_of_after;       /* by node: of the same name in the other graph, or none */
    unsigned char *changed_before, *changed_after; /* by node: it is in one graph alone, or computes otherwise in the other */
    unsigned char *determined_before, *determined_after; /* by node: it must not be given, because others say what it is */
    unsigned char *computed_before, *computed_after;     /* by node: needed for a pair, and not given */
    fb_buffer pairs;                                     /* fb_region_pair */
    uint32_t *read_before, *read_after;                  /* by node that pairs name: the ordinal of their first reader, or 0 */
    uint32_t *parents;                                   /* union-find over nodes: `before`'s first, then `after`'s */
} fb_regions;

/* Two values that unchanged nodes read for each other, so they must be the same; or alike, for who asks for no more. */
typedef struct fb_region_pair {
    fb_node before, after;
    bool by_type; /* shape and dtype are all that counts */
} fb_region_pair;

/* `doubts_shapes`: a recorded shape may be wrong, so that values that are equal by type alone are pairs as well. FB_NO_MEMORY,
 * or what `work`, which is borrowed, is stopped with. Freed also after a failure. Linear in the graphs' sizes. */
fb_status fb_regions_find(const fb_graph *before, const fb_graph *after, fb_work *work, bool doubts_shapes, fb_regions *out,
                          fb_error *error);
void fb_regions_free(fb_regions *regions);

/* Values are given at random although some depend on others, so a rewrite that relies on that may look wrong:
 *
 *     x ── neg ─┬─ neg ── b        x ── b           x and a are given; b is -a before, and x after
 *               └─ a                 └─ neg ── a
 *
 * Computes what is between given values that the pairs with is_doubted (by pair) need, and sets *has_changed if that changes
 * anything; then the regions must be evaluated again. FB_NO_MEMORY, or what the work is stopped with. Linear. */
fb_status fb_regions_relate(fb_regions *regions, const bool *is_doubted, bool *has_changed, fb_error *error);

/* Only what the pairs with is_wanted (by pair) need is computed from now on; what hangs together stays as it is. */
fb_status fb_regions_compute(fb_regions *regions, const bool *is_wanted, fb_error *error);

/* `row_of_pair` gives each pair its region, 0 … rows - 1. Sets same_as[row] to the first region that computes the same but for
 * names, or to the row itself. Only regions whose random weights take much time are looked at: those with a known weight, with
 * state or with an effect are equal to none. FB_NO_MEMORY, or what the work is stopped with. */
fb_status fb_regions_find_equal(const fb_regions *regions, const uint32_t *row_of_pair, size_t rows, uint32_t *same_as,
                                fb_error *error);

/* Equal numbers for what is of one region. */
uint32_t fb_region_of_before(fb_regions *regions, fb_node node);
uint32_t fb_region_of_after(fb_regions *regions, fb_node node);
uint32_t fb_region_of(fb_regions *regions, const fb_region_pair *pair);

#endif
