/* ULIDs (github.com/ulid/spec): 48 bits of milliseconds and 80 random bits in 26 characters of Crockford's base 32. Monotonic:
 * within a millisecond, and when the clock goes back, the last one plus 1. */
#ifndef FB_DATABASE_ULID_H
#define FB_DATABASE_ULID_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

#define FB_ULID_LENGTH 26
#define FB_ULID_DIGITS "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

/* Unpredictable bytes, up to 256. False: the system gives none, and errno says why. */
bool fb_fill_random(void *bytes, size_t size);

typedef struct fb_ulid_source {
    pthread_mutex_t mutex; /* initialised by the owner */
    int64_t last_ms;
    uint8_t random[10];
} fb_ulid_source;

/* Writes the next ULID and a NUL. */
fb_status fb_ulid_next(fb_ulid_source *source, int64_t now_ms, char out[FB_ULID_LENGTH + 1], fb_error *error);

/* Goes on after a ULID that was given before, so that they ascend over a restart with a clock that went back as well. A
 * text that is not a ULID changes nothing. */
void fb_ulid_resume(fb_ulid_source *source, const char *ulid);
/* After that, where others go on after the same ULID: goes on from a random place behind it. */
fb_status fb_ulid_part(fb_ulid_source *source, fb_error *error);

#endif
