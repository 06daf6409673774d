/* Values that cannot be given at will, because others say what they are.
 *
 *     w ── tanh ── a ── …     a depends on weights alone, which are what they are
 *
 *     x ──┬─ exp ── a         a and b are equal, so both are computed from x, or two numbers would stand for one
 *         └─ exp ── b
 *
 *     x ── view ── a          a is x in another shape, and a rewrite may read either
 */
#ifndef FB_EVAL_DETERMINED_H
#define FB_EVAL_DETERMINED_H

#include "core/base/work.h"
#include "core/graph/graph.h"

/* Sets determined[node] for those of the main program. What draws random numbers, writes, or is not known is not one of them.
 * False: fb_work_failed says why. Linear in the graph's size. */
bool fb_find_determined(const fb_graph *graph, unsigned char *determined, fb_work *work);

#endif
