/* How the C library keeps memory that was freed, in a service that runs for months. */
#ifndef FB_METRICS_ALLOCATOR_H
#define FB_METRICS_ALLOCATOR_H

#include <stddef.h>

/* For a process of many threads; before the second one starts. */
void fb_allocator_tune(void);

/* Gives memory that was freed back to the system. Takes some milliseconds, in which other threads may wait. */
void fb_allocator_trim(void);

typedef struct fb_allocator_figures {
    size_t used; /* bytes that are allocated */
    size_t free; /* bytes that were freed and are kept */
} fb_allocator_figures;

fb_allocator_figures fb_allocator_read(void);

#endif
