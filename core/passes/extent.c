#include "core/passes/pass.h"

#include <math.h>

#include "core/base/base64.h"
#include "core/weights/dtype.h"

enum { CHUNK = 3072 }; /* bytes; whole groups of base64 and whole numbers of every dtype */

static void add(fb_extent *extent, double number) {
    double size = fabs(number);
    extent->is_finite &= isfinite(number) != 0;
    extent->has_zero |= size == 0;
    if (!isfinite(number) || size == 0) return;
    if (size < extent->least) extent->least = size;
    if (size > extent->largest) extent->largest = size;
}

double fb_tensor_largest(const fb_graph *g, fb_tensor tensor) {
    fb_extent extent;
    if (!tensor.id) return 0;
    return fb_tensor_extent(g, tensor, &extent) && extent.is_finite ? extent.largest : NAN;
}

fb_obstacle fb_range_obstacle(fb_dtype dtype, double largest) {
    fb_dtype_range range;
    return fb_dtype_limits(dtype, &range) && largest > range.largest
               ? (fb_obstacle){"tensor-overflows", "a weight or bias that it computes may be beyond the range of its dtype"}
               : FB_NO_OBSTACLE;
}

bool fb_tensor_extent(const fb_graph *g, fb_tensor tensor, fb_extent *out) {
    fb_symbol data = fb_tensor_at(g, tensor)->data;
    fb_dtype dtype = (fb_dtype)fb_tensor_at(g, tensor)->dtype;
    if (!data.id || !fb_dtype_is_computed(dtype)) return false;
    fb_extent found = {.least = INFINITY, .is_finite = true};
    size_t size = fb_base64_size(fb_text(g, data), fb_text_length(g, data)), width = (size_t)fb_dtype_size(dtype);
    unsigned char bytes[CHUNK];
    double numbers[CHUNK / 2];
    for (size_t at = 0; at < size; at += CHUNK) {
        size_t count = size - at < CHUNK ? size - at : CHUNK;
        fb_base64_decode(fb_text(g, data), at, count, bytes);
        fb_decode_numbers(dtype, bytes, count / width, numbers);
        for (size_t i = 0; i < count / width; i++) add(&found, numbers[i]);
    }
    *out = found;
    return true;
}
