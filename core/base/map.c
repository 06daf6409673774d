#include "core/base/map.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define DELETED UINT32_MAX

uint64_t fb_hash(const void *bytes, size_t size, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, size, seed);
}

uint64_t fb_hash_text(const char *text, uint64_t seed) {
    return fb_hash(text, strlen(text), seed);
}

/* Keys are often small consecutive ids: spread them (the finaliser of MurmurHash3). */
static uint32_t first_slot(const fb_map *map, uint64_t key) {
    key ^= map->seed;
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ULL;
    key ^= key >> 33;
    return (uint32_t)key & (map->capacity - 1);
}

static void insert(fb_map *map, uint64_t key, uint32_t value) {
    uint32_t i = first_slot(map, key);
    while (map->slots[i].value) i = (i + 1) & (map->capacity - 1);
    map->slots[i] = (fb_map_slot){key, value};
    map->used++;
}

static bool is_live(fb_map_slot slot) {
    return slot.value && slot.value != DELETED;
}

bool fb_map_reserve(fb_map *map, size_t count) {
    if (map->capacity && map->used + count <= map->capacity - map->capacity / 4) return true;
    size_t live = 0; /* removed entries are not taken along, so a map that changes much does not grow by that */
    for (uint32_t i = 0; i < map->capacity; i++) live += is_live(map->slots[i]);
    size_t needed = live + live / 4 + count;
    if (needed > UINT32_MAX / 4) return false;
    uint32_t capacity = 16;
    while (capacity - capacity / 4 < needed) capacity *= 2;
    fb_map fresh = {.slots = fb_large_block(capacity * sizeof *fresh.slots), .capacity = capacity};
    if (!fresh.slots) return false;
    memset(fresh.slots, 0, capacity * sizeof *fresh.slots);
    fresh.seed = (uint64_t)(uintptr_t)fresh.slots * 0x9e3779b97f4a7c15ULL; /* differs in every process and table */
    for (uint32_t i = 0; i < map->capacity; i++) {
        if (is_live(map->slots[i])) insert(&fresh, map->slots[i].key, map->slots[i].value);
    }
    free(map->slots);
    *map = fresh;
    return true;
}

static fb_map_slot *find(const fb_map *map, uint64_t key) {
    if (!map->capacity) return NULL;
    for (uint32_t i = first_slot(map, key); map->slots[i].value; i = (i + 1) & (map->capacity - 1)) {
        if (map->slots[i].key == key && map->slots[i].value != DELETED) return &map->slots[i];
    }
    return NULL;
}

uint32_t fb_map_get(const fb_map *map, uint64_t key) {
    const fb_map_slot *slot = find(map, key);
    return slot ? slot->value : 0;
}

bool fb_map_add(fb_map *map, uint64_t key, uint32_t value) {
    if (!fb_map_reserve(map, 1)) return false;
    insert(map, key, value);
    return true;
}

bool fb_map_put(fb_map *map, uint64_t key, uint32_t value) {
    fb_map_slot *slot = find(map, key);
    if (!slot) return fb_map_add(map, key, value);
    slot->value = value;
    return true;
}

void fb_map_remove(fb_map *map, uint64_t key) {
    fb_map_slot *slot = find(map, key);
    if (slot) slot->value = DELETED;
}

void fb_map_clear(fb_map *map) {
    if (map->slots) memset(map->slots, 0, map->capacity * sizeof *map->slots);
    map->used = 0;
}

void fb_map_free(fb_map *map) {
    free(map->slots);
    *map = (fb_map){0};
}

uint32_t fb_map_next(const fb_map *map, uint64_t key, uint32_t *cursor) {
    if (!map->capacity) return 0;
    uint32_t start = first_slot(map, key);
    for (uint32_t step = *cursor; step < map->capacity; step++) {
        const fb_map_slot *slot = &map->slots[(start + step) & (map->capacity - 1)];
        if (!slot->value) break;
        if (slot->key == key && slot->value != DELETED) {
            *cursor = step + 1;
            return slot->value;
        }
    }
    *cursor = map->capacity;
    return 0;
}
