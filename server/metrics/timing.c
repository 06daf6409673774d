#include "server/metrics/metrics.h"

#include <time.h>

typedef struct account {
    int64_t spent[FB_TIMING_COUNT];
    int64_t entered;
    fb_timing_kind kind;
    unsigned depth;
} account;

static _Thread_local account mine; /* a request is worked on by one thread, and the store need not know which request it is */

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void fb_timing_reset(void) {
    mine = (account){0};
}

void fb_timing_enter(fb_timing_kind kind) {
    if (mine.depth++) return;
    mine.kind = kind;
    mine.entered = now();
}

void fb_timing_leave(void) {
    if (--mine.depth == 0) mine.spent[mine.kind] += now() - mine.entered;
}

int64_t fb_timing_spent(fb_timing_kind kind) {
    return mine.spent[kind];
}
