/* What follows when images lie in channels_last that lay row by row: who would notice. */
#ifndef FB_PASSES_TURNED_H
#define FB_PASSES_TURNED_H

#include "core/passes/pass.h"

/* A reader that may fail or answer otherwise, or a result that would lie otherwise; without a reader nobody notices. */
typedef struct fb_notice {
    fb_node reader;
    fb_obstacle why;
} fb_notice;

typedef struct fb_turned fb_turned;

/* Looks at each reader of each value of the main program once, in O(nodes + edges). Borrows what it is given until it is freed.
 * `version`, of ChannelsLast: 1 knows fewer operators. NULL: fb_work_failed says why. */
fb_turned *fb_turned_new(const fb_graph *graph, const fb_alias *alias, fb_work *work, int version);
void fb_turned_free(fb_turned *turned);

/* What would come of it if the node's result, an image that a convolution gives, lay in channels_last. */
fb_notice fb_turned_notice(const fb_turned *turned, fb_node convolution);

/* Does it give images that lie in channels_last when those do that it is given: a convolution, a pool, arithmetic? */
bool fb_hands_image_on(const fb_turned *turned, fb_node node);
/* A reshape, flatten or contiguous: it copies what does not lie row by row. */
bool fb_lays_out_in_rows(const fb_turned *turned, fb_node node);
/* Its sizes are recorded, and channels_last orders its elements as rows do: it has one channel, or one pixel. */
bool fb_image_is_line(const fb_graph *graph, fb_node node);

#endif
