/* Large blocks of memory. */
#ifndef FB_BASE_PAGES_H
#define FB_BASE_PAGES_H

#include <stddef.h>

/* Asks the kernel to back a block of malloc's by large pages (2 MiB), before it is used: a graph of a million nodes is read in
 * no order that a TLB could follow, and each of its small pages costs a fault. A hint, for blocks that can hold some large
 * pages, and no more than a comparison for others. Gives the block, which may be NULL. */
void *fb_in_large_pages(void *block, size_t size);

#endif
