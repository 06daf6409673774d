/* The changes from one graph to another, in groups that hang together, each of which can be applied without the others: the
 * matches of a pass that is not one of ours.
 *
 *     x ── div ── add ── relu ── y          x ── mul ── add ── gelu ── y
 *
 * has two groups: div, which mul replaces, with add, which reads mul in its place; and relu. What touches a module or a weight
 * that has changed is one group. */
#ifndef FB_COMPOSE_CHANGES_H
#define FB_COMPOSE_CHANGES_H

#include "core/base/work.h"
#include "core/compose/bisect.h"
#include "core/graph/graph.h"

typedef struct fb_change_set {
    const fb_graph *before, *after;
    uint32_t *group_before, *group_after; /* by node: 1 + its group; 0 = it did not change */
    uint32_t with_modules;                /* 1 + the group that modules and tensors go with; 0 = none of them changed */
    fb_match_names names;                 /* of groups: the first node of each in `after`, or else in `before` */
    fb_arena arena;
} fb_change_set;

/* Borrows both graphs. FB_NO_MEMORY; what `work` is stopped with. Free `out` with fb_changes_free. */
fb_status fb_changes_find(const fb_graph *before, const fb_graph *after, fb_work *work, fb_change_set *out, fb_error *error);
void fb_changes_free(fb_change_set *changes);
/* `before` with the groups of these names alone; their order is that of `after`. FB_INVALID "matches-depend" where that is no
 * valid graph. */
fb_status fb_changes_apply(const fb_change_set *changes, const fb_match_names *chosen, fb_work *work, fb_graph **out,
                           fb_error *error);

#endif
