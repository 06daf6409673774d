/* How far a client's compressed bytes may expand: small ones by any factor. */
#ifndef FB_BASE_RATIO_H
#define FB_BASE_RATIO_H

#include <stdbool.h>
#include <stdint.h>

#define FB_RATIO_FROM ((uint64_t)16 << 20) /* expanded bytes that may come of any number */

/* `ratio`: expanded bytes to compressed ones, at most; 0 = any. */
static inline bool fb_is_within_ratio(uint64_t expanded, uint64_t compressed, unsigned ratio) {
    return !ratio || expanded <= FB_RATIO_FROM || expanded / ratio <= compressed;
}

#endif
