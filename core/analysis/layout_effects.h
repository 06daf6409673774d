/* Which readers depend on the memory format of a convolution's result. */
#ifndef FB_ANALYSIS_LAYOUT_EFFECTS_H
#define FB_ANALYSIS_LAYOUT_EFFECTS_H

#include "core/analysis/alias.h"
#include "core/analysis/obstacle.h"

/* A reader that may fail or answer otherwise, or a result that would have another layout; without a reader nothing dependents.
 */
typedef struct fb_dependent {
    fb_node reader;
    fb_obstacle why;
} fb_dependent;

typedef struct fb_layout_effects fb_layout_effects;

/* Looks at each reader of each value of the main program once, in O(nodes + edges). Borrows what it is given until it is freed.
 * `version`, of ChannelsLast: 1 knows fewer operators. NULL: fb_work_failed says why. */
fb_layout_effects *fb_layout_effects_new(const fb_graph *graph, const fb_alias *alias, fb_work *work, int version);
void fb_layout_effects_free(fb_layout_effects *layouts);

/* The first reader that would notice if the node's result, an image that a convolution gives, were in channels_last. */
fb_dependent fb_layout_dependent(const fb_layout_effects *layouts, fb_node convolution);

/* Does it give images in channels_last when its inputs are in it: a convolution, a pool, arithmetic? */
bool fb_hands_image_on(const fb_layout_effects *layouts, fb_node node);
/* A reshape, flatten or contiguous: it copies what is not row-major. */
bool fb_lays_out_in_rows(const fb_layout_effects *layouts, fb_node node);
/* Its sizes are recorded, and channels_last orders its elements as rows do: it has one channel, or one pixel. */
bool fb_image_is_line(const fb_graph *graph, fb_node node);

#endif
