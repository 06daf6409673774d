#include "core/base/sort.h"

#include <stdlib.h>

void fb_sort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *)) {
    if (count > 1) qsort(items, count, size, compare);
}
