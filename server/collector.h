/* Collects garbage in the store every so often, on a thread of its own. */
#ifndef FB_SERVER_COLLECTOR_H
#define FB_SERVER_COLLECTOR_H

#include "server/store/store.h"

typedef struct fb_collector fb_collector;

/* The first time when `interval_ms` have passed. What goes wrong is told on stderr, and it tries again next time. */
fb_status fb_collector_start(fb_store *store, uint64_t interval_ms, int64_t grace_ms, fb_collector **out, fb_error *error);
/* Waits for a collection that runs. NULL does nothing. */
void fb_collector_stop(fb_collector *collector);

#endif
