/* Limits the rate of each client: a number of requests a second, and as many at once.
 *
 * For each asker one number is kept, the moment at which all that it asked would have been asked for at that rate (the generic
 * cell rate algorithm). The table has a fixed size: an asker that is new takes the place of the one that has been quiet for the
 * longest among a few, so that no number of askers takes memory. */
#include "server/http/internal.h"

#include <stdlib.h>
#include <sys/random.h>

#include "core/base/map.h"

#define SECOND ((int64_t)1000000000)
#define SLOTS ((size_t)1 << 13)
#define NEIGHBOURS ((size_t)8)

struct fb_rate_slot {
    uint64_t key;
    int64_t due;
};

fb_status fb_rates_init(fb_rates *rates, unsigned per_second, fb_error *error) {
    *rates = (fb_rates){.interval = per_second ? SECOND / per_second : 0};
    pthread_mutex_init(&rates->lock, NULL);
    if (getrandom(&rates->seed, sizeof rates->seed, 0) < 0) rates->seed = (uint64_t)fb_monotonic_ns();
    if (!per_second) return FB_OK;
    rates->slots = calloc(SLOTS, sizeof *rates->slots);
    return rates->slots ? FB_OK : fb_fail_memory(error);
}

void fb_rates_free(fb_rates *rates) {
    pthread_mutex_destroy(&rates->lock);
    free(rates->slots);
}

uint64_t fb_rate_key(const fb_rates *rates, const void *bytes, size_t size) {
    return fb_hash(bytes, size, rates->seed);
}

static struct fb_rate_slot *find_slot(fb_rates *rates, uint64_t key) {
    struct fb_rate_slot *first = &rates->slots[key % SLOTS / NEIGHBOURS * NEIGHBOURS], *oldest = first;
    for (struct fb_rate_slot *slot = first; slot < first + NEIGHBOURS; slot++) {
        if (slot->key == key) return slot;
        if (slot->due < oldest->due) oldest = slot;
    }
    *oldest = (struct fb_rate_slot){.key = key};
    return oldest;
}

int64_t fb_rate_take(fb_rates *rates, uint64_t key, int64_t now) {
    if (!rates->interval) return 0;
    pthread_mutex_lock(&rates->lock);
    struct fb_rate_slot *slot = find_slot(rates, key);
    int64_t due = (slot->due > now ? slot->due : now) + rates->interval;
    int64_t wait = due - now - SECOND;
    if (wait <= 0) slot->due = due;
    pthread_mutex_unlock(&rates->lock);
    return wait > 0 ? wait : 0;
}
