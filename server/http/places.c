/* How many connections each address has: a hash table with linear probing, large enough for as many addresses as there may be
 * connections, so that it never grows. */
#include "server/http/internal.h"

#include <stdlib.h>

struct fb_place {
    uint64_t address;
    unsigned count; /* 0 = a free slot */
};

fb_status fb_places_init(fb_places *places, unsigned connections, fb_error *error) {
    size_t size = 16;
    while (size < 2 * (size_t)connections) size *= 2;
    *places = (fb_places){.slots = calloc(size, sizeof *places->slots), .mask = size - 1};
    return places->slots ? FB_OK : fb_fail_memory(error);
}

void fb_places_free(fb_places *places) {
    free(places->slots);
}

/* The slot of the address, or the free one where it would be. */
static size_t find(const fb_places *places, uint64_t address) {
    size_t at = (size_t)address & places->mask;
    while (places->slots[at].count && places->slots[at].address != address) at = (at + 1) & places->mask;
    return at;
}

bool fb_places_take(fb_places *places, uint64_t address, unsigned limit) {
    struct fb_place *place = &places->slots[find(places, address)];
    if (limit && place->count >= limit) return false;
    place->address = address;
    place->count++;
    return true;
}

void fb_places_leave(fb_places *places, uint64_t address) {
    size_t free_slot = find(places, address);
    if (--places->slots[free_slot].count) return;
    /* Moves up what follows, so that a search that meets a free slot may stop (Knuth 6.4, algorithm R). */
    for (size_t at = (free_slot + 1) & places->mask; places->slots[at].count; at = (at + 1) & places->mask) {
        size_t home = (size_t)places->slots[at].address & places->mask;
        bool is_reached = ((at - home) & places->mask) < ((at - free_slot) & places->mask);
        if (is_reached) continue;
        places->slots[free_slot] = places->slots[at];
        places->slots[at].count = 0;
        free_slot = at;
    }
}
