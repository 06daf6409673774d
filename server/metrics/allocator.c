/* glibc gives each thread an arena of its own, up to 8 for each processor, and returns only what is free at an arena's end. A
 * request's memory comes from its worker's arena, and what outlives the request (decoded graphs in the cache, pages of SQLite)
 * is scattered among it: so every arena grows to the most that was ever needed in it, and none shrinks. Over hours that looks
 * like a leak. Fewer arenas share that peak, and a trim now and then returns free pages in the middle of them as well.
 */
#include "server/metrics/metrics.h"

#include <malloc.h>
#include <unistd.h>

/* Larger blocks are mapped and unmapped one by one. Set, because by default it rises with what is freed, up to 32 MiB, and such
 * blocks then stay in an arena. Above the parts of 1 MiB in which bodies are read and made. */
#define MAPPED_FROM (2 << 20)

void fb_allocator_tune(void) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    mallopt(M_ARENA_MAX, processors < 2 ? 2 : processors > 64 ? 64 : (int)processors); /* no more threads run at once */
    mallopt(M_MMAP_THRESHOLD, MAPPED_FROM);
}

void fb_allocator_trim(void) {
    malloc_trim(0);
}

fb_allocator_figures fb_allocator_read(void) {
    struct mallinfo2 info = mallinfo2();
    return (fb_allocator_figures){.used = info.uordblks + info.hblkhd, .free = info.fordblks};
}
