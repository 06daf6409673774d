#include "core/base/index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"

#define MOST_BITS 30 /* of a capacity */
#define REMOVED 1    /* a tag */

void fb_index_add(fb_index *index, uint32_t hash, uint32_t id) {
    assert(index->used < FB_INDEX_ROOM(index->capacity));
    uint32_t step = 1;
    while (index->tags[((hash >> index->shift) + step - 1) & (index->capacity - 1)]) step++;
    fb_index_add_here(index, hash, id, step);
}

/* Of tags and slots. */
static size_t bytes_of(uint32_t capacity) {
    return capacity * (sizeof(uint8_t) + sizeof(fb_index_slot));
}

/* False when memory is out. The tags come first, where large pages are. */
static bool take_memory(fb_index *index) {
    index->tags = fb_large_block(bytes_of(index->capacity));
    if (index->tags) index->slots = (fb_index_slot *)(void *)(index->tags + index->capacity);
    return index->tags;
}

bool fb_index_grow(fb_index *index, size_t count) {
    size_t live = 0; /* removed entries are not taken along, so an index that changes much does not grow by that */
    for (uint32_t i = 0; i < index->capacity; i++) live += index->tags[i] > REMOVED;
    size_t needed = live + live / 4 + count;
    uint32_t bits = index->capacity ? 32 - index->shift : 4;
    while (bits <= MOST_BITS && FB_INDEX_ROOM(1U << bits) < needed) bits++;
    if (bits > MOST_BITS) return false;
    fb_index fresh = {.capacity = 1U << bits, .shift = 32 - bits};
    if (!take_memory(&fresh)) return false;
    memset(fresh.tags, 0, fresh.capacity);
    for (uint32_t i = 0; i < index->capacity; i++) {
        if (index->tags[i] > REMOVED) fb_index_add(&fresh, index->slots[i].hash, index->slots[i].id);
    }
    free(index->tags);
    *index = fresh;
    return true;
}

void fb_index_remove(fb_index *index, uint32_t hash, uint32_t id) {
    for (uint32_t place = index->capacity ? hash >> index->shift : 0; index->capacity && index->tags[place];
         place = (place + 1) & (index->capacity - 1)) {
        if (index->tags[place] == REMOVED || index->slots[place].id != id) continue;
        index->tags[place] = REMOVED;
        return;
    }
}

void fb_index_clear(fb_index *index) {
    if (index->tags) memset(index->tags, 0, index->capacity);
    index->used = 0;
}

bool fb_index_copy(fb_index *to, const fb_index *from) {
    *to = *from;
    if (!from->capacity) return true;
    if (!take_memory(to)) {
        *to = (fb_index){0};
        return false;
    }
    memcpy(to->tags, from->tags, bytes_of(from->capacity));
    return true;
}

void fb_index_free(fb_index *index) {
    free(index->tags);
    *index = (fb_index){0};
}
