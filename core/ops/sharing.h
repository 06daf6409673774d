/* May a value be read from the memory of another one, with the same numbers, from now on? Answers for passes that put one value
 * in the place of another, and takes note of what they did, because what was harmless alone need not be harmless together.
 *
 * It is no when one of the two is written afterwards, as the other would then see it. And it is no when they leave the graph by
 * different ways: two results of the graph, or a result and an input or parameter. Whoever called the graph may write into
 * either, and must not find the other one changed. */
#ifndef FB_OPS_SHARING_H
#define FB_OPS_SHARING_H

#include "core/ops/alias.h"

typedef struct fb_sharing fb_sharing;

/* Borrows graph and alias. NULL: fb_work_failed says why. */
fb_sharing *fb_sharing_new(const fb_graph *graph, const fb_alias *alias, fb_work *work);
void fb_sharing_free(fb_sharing *sharing);

typedef enum fb_share_verdict {
    FB_MAY_SHARE,
    FB_SHARE_WRITTEN,  /* one of them is written behind `since` */
    FB_SHARE_RETURNED, /* both are seen by the caller */
} fb_share_verdict;

/* Values that may share memory already are only written to, or returned, as one. `since` is an ordinal. */
fb_share_verdict fb_may_share(const fb_sharing *sharing, fb_node a, fb_node b, uint32_t since);
/* From now on they do. */
void fb_share(fb_sharing *sharing, fb_node a, fb_node b);

#endif
