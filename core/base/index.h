/* Hash index over the rows of a table: finds a row's id by the hash of what names the row. The index keeps hash and id only, so
 * the caller compares the row; with the hash beside the id, that is nearly always the row that is looked for. Open addressing,
 * linear probing. Hashes must be seeded by something that a document cannot foresee.
 *
 * Each slot has a tag of one byte, stored with the other tags. A search reads those, which fit the processor's caches where
 * slots do not, so that it need not wait for memory to know that nothing is there.
 *
 * It is not an fb_map: every graph has three of these, copied with it, and reading a document is mostly looking names up. So a
 * slot has half the size of a map's, the hash comes from the caller, who keeps it, and is not hashed again, and looking up is
 * inline. The two have in common only how they grow and are copied, a dozen lines over other slots. */
#ifndef FB_BASE_INDEX_H
#define FB_BASE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FB_INDEX_ROOM(capacity) ((capacity) - (capacity) / 4)

typedef struct fb_index_slot {
    uint32_t hash, id;
} fb_index_slot;

typedef struct fb_index {
    uint8_t *tags;        /* 0 = empty, 1 = removed, else fb_index_tag of the hash */
    fb_index_slot *slots; /* behind them */
    uint32_t capacity;    /* power of two, or 0 */
    uint32_t used;        /* slots that are not empty, removed ones included */
    uint32_t shift;       /* a hash's place is in its upper bits: hash >> shift */
} fb_index;

static inline uint8_t fb_index_tag(uint32_t hash) {
    return (uint8_t)(hash | 0x80);
}

/* The ids under a hash, one after the other: start with *step = 0 and call until 0 comes back. */
static inline uint32_t fb_index_next(const fb_index *index, uint32_t hash, uint32_t *step) {
    if (!index->capacity) return 0;
    for (uint32_t first = hash >> index->shift;;) {
        uint32_t place = (first + (*step)++) & (index->capacity - 1);
        if (!index->tags[place]) return 0;
        if (index->tags[place] == fb_index_tag(hash) && index->slots[place].hash == hash) return index->slots[place].id;
    }
}

bool fb_index_grow(fb_index *index, size_t count);
/* Room for `count` more entries without allocation; false when memory is out. Never shrinks. */
static inline bool fb_index_reserve(fb_index *index, size_t count) {
    return index->used + count <= FB_INDEX_ROOM(index->capacity) || fb_index_grow(index, count);
}
/* Adds an entry; there must be room. */
void fb_index_add(fb_index *index, uint32_t hash, uint32_t id);
/* The same right after fb_index_next has given 0 for that hash, and left `step` where the entry belongs. */
static inline void fb_index_add_here(fb_index *index, uint32_t hash, uint32_t id, uint32_t step) {
    uint32_t place = ((hash >> index->shift) + step - 1) & (index->capacity - 1);
    index->tags[place] = fb_index_tag(hash);
    index->slots[place] = (fb_index_slot){hash, id};
    index->used++;
}
void fb_index_remove(fb_index *index, uint32_t hash, uint32_t id);
void fb_index_clear(fb_index *index); /* keeps the memory */
bool fb_index_copy(fb_index *to, const fb_index *from);
void fb_index_free(fb_index *index);

#endif
