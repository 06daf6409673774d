#include "server/metrics/metrics.h"

typedef struct account {
    int64_t spent[FB_TIMING_COUNT];
    int64_t entered;
    fb_timing_kind kind;
    unsigned depth;
} account;

static _Thread_local account mine; /* a request is worked on by one thread, and the store need not know which request it is */

void fb_timing_reset(void) {
    mine = (account){0};
}

void fb_timing_enter(fb_timing_kind kind) {
    if (mine.depth++) return;
    mine.kind = kind;
    mine.entered = fb_monotonic_ns();
}

void fb_timing_leave(void) {
    if (--mine.depth == 0) mine.spent[mine.kind] += fb_monotonic_ns() - mine.entered;
}

int64_t fb_timing_spent(fb_timing_kind kind) {
    return mine.spent[kind];
}
