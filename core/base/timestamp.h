/* Moments as people write them. */
#ifndef FB_BASE_TIMESTAMP_H
#define FB_BASE_TIMESTAMP_H

#include <stdbool.h>
#include <stdint.h>

/* A time of RFC 3339, "2026-01-31T23:59:59.5+01:00" (the offset may be Z), or a date, "2026-01-31", which is its first moment
 * in UTC; from 1970 on. In milliseconds since then. False when it is neither. */
bool fb_timestamp_read(const char *text, int64_t *milliseconds);

#endif
