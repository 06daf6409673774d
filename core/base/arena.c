#include "core/base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE_PAGE ((uintptr_t)2 << 20)

void *fb_large_block(size_t size) {
    void *block;
    if (size < 2 * LARGE_PAGE) return malloc(size);
    if (posix_memalign(&block, LARGE_PAGE, size)) return NULL;
    madvise(block, size & ~(LARGE_PAGE - 1), MADV_HUGEPAGE); /* where the kernel has none, all is as it was */
    return block;
}

struct fb_arena_chunk {
    fb_arena_chunk *next;
    size_t used, capacity;
    max_align_t bytes[];
};

void *fb_arena_alloc(fb_arena *arena, size_t size) {
    if (size > SIZE_MAX / 4) return NULL;
    size = (size + 7) & ~(size_t)7;
    fb_arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->capacity - chunk->used < size) {
        size_t capacity = chunk ? chunk->capacity * 2 : 4096;
        if (capacity > 2 * LARGE_PAGE) capacity = 2 * LARGE_PAGE;
        if (capacity < size) capacity = size;
        fb_arena_chunk *fresh = fb_large_block(sizeof *fresh + capacity);
        if (!fresh) return NULL;
        *fresh = (fb_arena_chunk){.next = chunk, .capacity = capacity};
        arena->chunks = chunk = fresh;
    }
    void *bytes = (char *)chunk->bytes + chunk->used;
    chunk->used += size;
    arena->total += size;
    return bytes;
}

char *fb_arena_text(fb_arena *arena, const char *bytes, size_t size) {
    char *text = fb_arena_alloc(arena, size + 1);
    if (!text) return NULL;
    if (size) memcpy(text, bytes, size);
    text[size] = '\0';
    return text;
}

void fb_arena_free(fb_arena *arena) {
    for (fb_arena_chunk *chunk = arena->chunks; chunk;) {
        fb_arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *arena = (fb_arena){0};
}
