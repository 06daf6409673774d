#include "tests/unit/cpu_watch.h"

#include <time.h>

static void look(cpu_watch *clock) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    int64_t now = (int64_t)time.tv_sec * 1000 * MS + time.tv_nsec;
    if (now - clock->last > clock->longest) clock->longest = now - clock->last;
    clock->last = now;
}

static fb_status check(void *context, fb_error *error) {
    cpu_watch *clock = context;
    clock->asked++;
    look(clock);
    return clock->last < clock->deadline ? FB_OK : fb_fail(error, FB_BUSY, "deadline-exceeded", NULL, "time is up");
}

void cpu_watch_begin(cpu_watch *clock, int64_t deadline) {
    *clock = (cpu_watch){.watch = {.context = clock, .check = check}};
    look(clock);
    clock->longest = 0;
    clock->deadline = deadline ? clock->last + deadline : INT64_MAX;
}

double cpu_watch_end(cpu_watch *clock) {
    look(clock);
    return (double)clock->longest / (double)MS;
}
