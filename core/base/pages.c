#include "core/base/pages.h"

#include <stdint.h>
#include <sys/mman.h>

#define LARGE_PAGE ((uintptr_t)2 << 20)

void *fb_in_large_pages(void *block, size_t size) {
    if (!block || size < 2 * LARGE_PAGE) return block;
    uintptr_t first = ((uintptr_t)block + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)block + size) & ~(LARGE_PAGE - 1);
    madvise((void *)first, end - first, MADV_HUGEPAGE); /* where the kernel has none, all is as it was */
    return block;
}
