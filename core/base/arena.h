/* Memory: an arena is many small allocations, freed together; and large blocks. */
#ifndef FB_BASE_ARENA_H
#define FB_BASE_ARENA_H

#include <stddef.h>

typedef struct fb_arena_chunk fb_arena_chunk;

typedef struct fb_arena {
    fb_arena_chunk *chunks; /* newest first */
    size_t total;           /* bytes handed out, alignment included */
} fb_arena;

/* `size` bytes aligned to 8, or NULL when memory is out. */
void *fb_arena_alloc(fb_arena *arena, size_t size);
/* A copy of the bytes with a NUL after them. */
char *fb_arena_text(fb_arena *arena, const char *bytes, size_t size);
void fb_arena_free(fb_arena *arena);

/* A block as of malloc. One that has room for a large page (2 MiB) begins with one, and asks the kernel for those that it has
 * room for: a graph of a million nodes is read in no order that a TLB could follow, and each of its small pages costs a fault.
 */
void *fb_large_block(size_t size);

#endif
