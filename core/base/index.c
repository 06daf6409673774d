#include "core/base/index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/pages.h"

#define MOST_BITS 30 /* of a capacity */

void fb_index_add(fb_index *index, uint32_t hash, uint32_t id) {
    assert(index->used < FB_INDEX_ROOM(index->capacity));
    uint32_t place = hash >> index->shift;
    while (index->slots[place].id) place = (place + 1) & (index->capacity - 1);
    index->slots[place] = (fb_index_slot){hash, id};
    index->used++;
}

static bool is_live(fb_index_slot slot) {
    return slot.id && slot.id != FB_INDEX_REMOVED;
}

bool fb_index_grow(fb_index *index, size_t count) {
    size_t live = 0; /* removed entries are not taken along, so an index that changes much does not grow by that */
    for (uint32_t i = 0; i < index->capacity; i++) live += is_live(index->slots[i]);
    size_t needed = live + live / 4 + count;
    uint32_t bits = index->capacity ? 32 - index->shift : 4;
    while (bits <= MOST_BITS && FB_INDEX_ROOM(1U << bits) < needed) bits++;
    if (bits > MOST_BITS) return false;
    fb_index fresh = {.capacity = 1U << bits, .shift = 32 - bits, .slots = calloc(1U << bits, sizeof *fresh.slots)};
    if (!fb_in_large_pages(fresh.slots, fresh.capacity * sizeof *fresh.slots)) return false;
    for (uint32_t i = 0; i < index->capacity; i++) {
        if (is_live(index->slots[i])) fb_index_add(&fresh, index->slots[i].hash, index->slots[i].id);
    }
    free(index->slots);
    *index = fresh;
    return true;
}

void fb_index_remove(fb_index *index, uint32_t hash, uint32_t id) {
    for (uint32_t place = index->capacity ? hash >> index->shift : 0; index->capacity && index->slots[place].id;
         place = (place + 1) & (index->capacity - 1)) {
        if (index->slots[place].id != id) continue;
        index->slots[place].id = FB_INDEX_REMOVED;
        return;
    }
}

void fb_index_clear(fb_index *index) {
    if (index->slots) memset(index->slots, 0, index->capacity * sizeof *index->slots);
    index->used = 0;
}

bool fb_index_copy(fb_index *to, const fb_index *from) {
    *to = *from;
    if (!from->capacity) return true;
    to->slots = fb_in_large_pages(malloc(from->capacity * sizeof *to->slots), from->capacity * sizeof *to->slots);
    if (!to->slots) {
        *to = (fb_index){0};
        return false;
    }
    memcpy(to->slots, from->slots, from->capacity * sizeof *to->slots);
    return true;
}

void fb_index_free(fb_index *index) {
    free(index->slots);
    *index = (fb_index){0};
}
