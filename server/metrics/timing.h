/* Where a request's time goes: what the thread that works on it spent since fb_timing_reset. */
#ifndef FB_METRICS_TIMING_H
#define FB_METRICS_TIMING_H

#include <stdint.h>

typedef enum fb_timing_kind {
    FB_TIMING_PARSE, /* graph documents read */
    FB_TIMING_STORE, /* the database read, and waits for commits */
    FB_TIMING_COUNT,
} fb_timing_kind;

void fb_timing_reset(void);
/* What happens between the two counts, once: an inner pair counts with the outer one. */
void fb_timing_enter(fb_timing_kind kind);
void fb_timing_leave(void);
/* Nanoseconds. */
int64_t fb_timing_spent(fb_timing_kind kind);

#endif
