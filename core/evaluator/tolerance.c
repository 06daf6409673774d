/* How far results may be apart, by their dtype. */
#include <math.h>

#include "core/evaluator/evaluator.h"
#include "core/weights/dtype.h"

fb_tolerance fb_tolerance_of(fb_dtype dtype, bool only_moves) {
    fb_dtype_range range;
    if (!fb_dtype_limits(fb_dtype_part(dtype), &range)) return (fb_tolerance){0, 0};
    /* Of the dtype's precision p: sums in another order lose a few bits of it, weights that are rounded once more some more.
     * The narrow dtypes are summed in float32, so there it is the rounding of results alone. */
    bool is_narrow = range.mantissa_bits < 24;
    int lost = only_moves ? (is_narrow ? 2 : 6) : is_narrow ? 4 : 9;
    return (fb_tolerance){ldexp(1, lost - 2 * range.mantissa_bits), ldexp(1, lost - range.mantissa_bits)};
}

fb_dtype fb_narrower_dtype(fb_dtype dtype, fb_dtype other) {
    fb_dtype_range range, of_other;
    bool are_floats = fb_dtype_limits(fb_dtype_part(dtype), &range) && fb_dtype_limits(fb_dtype_part(other), &of_other);
    return are_floats && of_other.mantissa_bits < range.mantissa_bits ? other : dtype;
}
