/* What the texts and arrays of one result live in: freed together. */
#ifndef FB_STORE_MEMORY_H
#define FB_STORE_MEMORY_H

#include <stddef.h>

#include "server/store/store.h"

/* `size` zeroed bytes, aligned for anything, or NULL. `*memory` starts as NULL. */
void *fb_memory_take(fb_store_memory **memory, size_t size);
/* A copy of `text`, or NULL when memory is out. */
const char *fb_memory_text(fb_store_memory **memory, const char *text);
void fb_memory_free(fb_store_memory *memory);

#endif
