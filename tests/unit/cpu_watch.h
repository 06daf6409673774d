/* Looks at the time that the thread's CPU has worked: when it was asked, and for how long it was not. */
#ifndef FB_TESTS_CPU_WATCH_H
#define FB_TESTS_CPU_WATCH_H

#include <stdint.h>

#include "core/base/work.h"

#define MS ((int64_t)1000000)
#ifdef __SANITIZE_ADDRESS__
#define MOST_UNASKED (2000 * MS)
#else
#define MOST_UNASKED (100 * MS) /* from the deadline to the end */
#endif

typedef struct cpu_watch {
    int64_t deadline, last, longest; /* when to stop; the last look, and the longest time between two; nanoseconds */
    size_t asked;                    /* how many times */
    fb_watch watch;
} cpu_watch;

/* Begins now, and says stop (FB_BUSY "deadline-exceeded") after so long; 0: never. It stays where it is. */
void cpu_watch_begin(cpu_watch *clock, int64_t deadline);
/* The work has ended: the longest time that it was not asked, in milliseconds. */
double cpu_watch_end(cpu_watch *clock);

#endif
