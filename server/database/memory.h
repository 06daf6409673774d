/* The memory in which the texts and arrays of one result are: freed together. */
#ifndef FB_DATABASE_MEMORY_H
#define FB_DATABASE_MEMORY_H

#include <stddef.h>

typedef struct fb_store_memory fb_store_memory;

/* `size` zeroed bytes, aligned for anything, or NULL. `*memory` starts as NULL. */
void *fb_memory_take(fb_store_memory **memory, size_t size);
/* A copy of `text`, or NULL when memory is out. */
const char *fb_memory_text(fb_store_memory **memory, const char *text);
void fb_memory_free(fb_store_memory *memory);

#endif
