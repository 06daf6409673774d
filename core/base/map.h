/* Hash map from a 64-bit key to a 32-bit value, and a hash for bytes. Open addressing, linear probing; 0 is not a value.
 *
 * Keys are ids (a symbol, a pair of ids packed into 64 bits) or hashes of bytes; for hashes the caller compares what it finds,
 * and walks on with fb_map_next. */
#ifndef FB_BASE_MAP_H
#define FB_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fb_map_slot {
    uint64_t key;
    uint32_t value; /* 0 = empty, UINT32_MAX = deleted */
} fb_map_slot;

typedef struct fb_map {
    fb_map_slot *slots;
    uint32_t capacity; /* power of two, or 0 */
    uint32_t used;     /* slots that are not empty, deleted ones included */
    uint64_t seed;     /* keys are often ids that a document can foresee; where they fall must not be */
} fb_map;

/* Value of `key`, or 0. */
uint32_t fb_map_get(const fb_map *map, uint64_t key);
/* Sets (or overwrites) the value of `key`; false when memory is out. `value` is neither 0 nor UINT32_MAX. */
bool fb_map_put(fb_map *map, uint64_t key, uint32_t value);
/* Room for `count` more entries without allocation; false when memory is out. */
bool fb_map_reserve(fb_map *map, size_t count);
void fb_map_remove(fb_map *map, uint64_t key);
void fb_map_clear(fb_map *map); /* keeps the memory */
void fb_map_free(fb_map *map);

/* Multi-map use, several values under one key: start with *cursor = 0 and call until 0 comes back. fb_map_add adds without
 * looking for the key. */
uint32_t fb_map_next(const fb_map *map, uint64_t key, uint32_t *cursor);
bool fb_map_add(fb_map *map, uint64_t key, uint32_t value);

/* XXH3 of the bytes. */
uint64_t fb_hash(const void *bytes, size_t size, uint64_t seed);
uint64_t fb_hash_text(const char *text, uint64_t seed);

#endif
