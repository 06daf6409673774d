#include "server/database/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct fb_store_memory {
    fb_store_memory *next;
    max_align_t bytes[];
};

void *fb_memory_take(fb_store_memory **memory, size_t size) {
    if (size > SIZE_MAX - sizeof(fb_store_memory)) return NULL;
    fb_store_memory *piece = calloc(1, sizeof *piece + size);
    if (!piece) return NULL;
    piece->next = *memory;
    *memory = piece;
    return piece->bytes;
}

const char *fb_memory_text(fb_store_memory **memory, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = fb_memory_take(memory, size);
    if (copy) memcpy(copy, text, size);
    return copy;
}

void fb_memory_free(fb_store_memory *memory) {
    while (memory) {
        fb_store_memory *next = memory->next;
        free(memory);
        memory = next;
    }
}
