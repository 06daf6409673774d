#include "core/base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE_PAGE ((uintptr_t)2 << 20)

void *fb_in_large_pages(void *block, size_t size) {
    if (!block || size < 2 * LARGE_PAGE) return block;
    uintptr_t first = ((uintptr_t)block + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)block + size) & ~(LARGE_PAGE - 1);
    madvise((void *)first, end - first, MADV_HUGEPAGE); /* where the kernel has none, all is as it was */
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
        if (capacity > (size_t)4 << 20) capacity = (size_t)4 << 20;
        if (capacity < size) capacity = size;
        fb_arena_chunk *fresh = fb_in_large_pages(malloc(sizeof *fresh + capacity), sizeof *fresh + capacity);
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
