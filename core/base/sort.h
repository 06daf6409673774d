/* qsort(3) that takes nothing as well: the C library's own must not be given NULL, also for 0 items, and a list that has never
 * grown is NULL. */
#ifndef FB_BASE_SORT_H
#define FB_BASE_SORT_H

#include <stddef.h>

void fb_sort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *));

#endif
