/* Collects garbage in the store every so often, on a thread of its own: old runs, then blobs. */
#ifndef FB_SERVICE_COLLECTOR_H
#define FB_SERVICE_COLLECTOR_H

#include "server/app.h"

typedef struct fb_collector fb_collector;

/* The first time when `interval_ms` have passed. What goes wrong is told on stderr, and it tries again next time. When the
 * clock jumped since the start, runs are not removed for their age: they may look older than they are. */
fb_status fb_collector_start(const fb_app *app, uint64_t interval_ms, fb_collector **out, fb_error *error);
/* Ends a collection that runs, and waits for that. NULL does nothing. */
void fb_collector_stop(fb_collector *collector);

#endif
