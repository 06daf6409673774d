#include <float.h>
#include <math.h>

#include "core/pass/pass.h"
#include "core/weights/dtype.h"

enum { BYTES_OF_A_STEP = 256, FREELY = 16 << 20 /* bytes */ };

/* Numbers near the end of float32's range are found in small tensors, as masks are; a large one is not read for them. */
static bool is_worth_reading(uint64_t bytes, fb_dtype dtype) {
    fb_dtype_range range;
    return bytes <= FREELY || (fb_dtype_limits(dtype, &range) && range.largest < FLT_MAX / 2);
}

bool fb_known_extent(fb_matcher *m, fb_tensor tensor, fb_dtype dtype, fb_extent *out) {
    uint64_t bytes = fb_tensor_bytes(m->graph, tensor);
    return is_worth_reading(bytes, dtype) && fb_matcher_takes(m, (unsigned)(bytes / BYTES_OF_A_STEP) + 1) &&
           fb_tensor_extent_of(m->graph, tensor, m->blobs, out);
}

double fb_known_largest(fb_matcher *m, fb_tensor tensor, fb_dtype dtype) {
    fb_extent extent;
    if (!tensor.id) return 0;
    return fb_known_extent(m, tensor, dtype, &extent) && extent.is_finite ? extent.largest : NAN;
}

fb_obstacle fb_range_obstacle(fb_dtype dtype, double largest) {
    fb_dtype_range range;
    return fb_dtype_limits(dtype, &range) && largest > range.largest
               ? (fb_obstacle){FB_TENSOR_OVERFLOWS, "a weight or bias that it computes may be beyond the range of its dtype"}
               : FB_NO_OBSTACLE;
}
