#include "server/metrics/metrics.h"

#include <time.h>

static struct timespec read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now;
}

static int64_t milliseconds(struct timespec time) {
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int64_t fb_wall_ms(void) {
    return milliseconds(read_clock(CLOCK_REALTIME));
}

int64_t fb_monotonic_ms(void) {
    return milliseconds(read_clock(CLOCK_MONOTONIC));
}

int64_t fb_monotonic_ns(void) {
    struct timespec now = read_clock(CLOCK_MONOTONIC);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
