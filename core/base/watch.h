/* Whether long work is still wanted, and how far it has come. core has no clock and knows no clients: who starts the work says
 * how it is asked. */
#ifndef FB_BASE_WATCH_H
#define FB_BASE_WATCH_H

#include "core/base/error.h"

/* Either function may be NULL. They are called on the thread that works. */
typedef struct fb_watch {
    void *context;
    /* FB_OK: go on. A failure, FB_BUSY with its reason as the code, ends the work, which has then changed nothing. Asked many
     * times a second, so it must be cheap. */
    fb_status (*check)(void *context, fb_error *error);
    /* A part of the work begins: its name, and how many of all parts are done. */
    void (*begins)(void *context, const char *name, size_t done, size_t total);
} fb_watch;

/* `watch` may be NULL: nobody stops it, nobody looks. */
static inline fb_status fb_watch_check(const fb_watch *watch, fb_error *error) {
    return watch && watch->check ? watch->check(watch->context, error) : FB_OK;
}

static inline void fb_watch_begins(const fb_watch *watch, const char *name, size_t done, size_t total) {
    if (watch && watch->begins) watch->begins(watch->context, name, done, total);
}

#endif
