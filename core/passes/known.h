/* Python values that are known without running anything: recorded sizes and dtypes, and arithmetic on them. */
#ifndef FB_PASSES_KNOWN_H
#define FB_PASSES_KNOWN_H

#include "core/ops/shape.h"

typedef enum fb_known_kind {
    FB_KNOWN_SIZES, /* an int, or a torch.Size or tuple of ints */
    FB_KNOWN_FLOAT,
    FB_KNOWN_DTYPE,
} fb_known_kind;

typedef struct fb_known {
    fb_known_kind kind;
    fb_sizes sizes;
    double real;
    fb_dtype dtype;
} fb_known;

/* What a call gives: x.size(0), x.shape[:-1] + (4,), x.size(-1) ** -0.5, x.dtype, torch.finfo(x.dtype).min. False for tensors,
 * symbolic sizes, and what is not recorded. As recorded: whether the tensor is given another shape later is not looked at. */
bool fb_known_at(const fb_graph *graph, fb_node node, fb_known *known);
/* The same as a literal; a torch.Size becomes a tuple. */
fb_value fb_make_known(fb_graph *graph, const fb_known *known);

#endif
