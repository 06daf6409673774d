/* Long work in small parts. A loop says how many steps it is about to take, and learns whether to go on:
 *
 *     for (size_t i = 0; i < count && fb_work_goes_on(work, 1); i++) …
 *     if (!status) status = fb_work_status(work, error);
 *
 * The watch is asked once in FB_WORK_UNASKED steps, so a step may be as short as an element of an array. A step of more than
 * about 100 nanoseconds counts as several: then the watch is asked at least every 10 milliseconds. Once the work has been
 * stopped it stays so, and all loops over the same meter end at once. */
#ifndef FB_BASE_WORK_H
#define FB_BASE_WORK_H

#include <stdint.h>

#include "core/base/error.h"

/* Lets the caller of long work stop it, and follow how far it has come. core has no clock and knows no clients: who starts the
 * work says how it is asked.
 *
 * Either function may be NULL. They are called on the thread that works. */
typedef struct fb_watch {
    void *context;
    /* FB_OK: go on. A failure, FB_BUSY with its reason as the code, ends the work, which has then changed nothing. Asked many
     * times a second, so it must be cheap. */
    fb_status (*check)(void *context, fb_error *error);
    /* A part of the work begins: its name, and how many of all parts are done. */
    void (*begins)(void *context, const char *name, size_t done, size_t total);
} fb_watch;

/* `watch` may be NULL: it is neither stopped nor watched. */
static inline fb_status fb_watch_check(const fb_watch *watch, fb_error *error) {
    return watch && watch->check ? watch->check(watch->context, error) : FB_OK;
}

static inline void fb_watch_begins(const fb_watch *watch, const char *name, size_t done, size_t total) {
    if (watch && watch->begins) watch->begins(watch->context, name, done, total);
}

#define FB_WORK_UNASKED ((uint64_t)1 << 16)
#define FB_WORK_NODE ((int64_t)FB_WORK_UNASKED / 256) /* steps that looking at a node of a graph takes */
#define FB_WORK_BLOCK ((int64_t)1 << 14)              /* elements that a loop handles without looking up */

typedef struct fb_work {
    const fb_watch *watch; /* may be NULL: it is never stopped */
    uint64_t unasked;      /* steps since the watch was asked; enough to ask again once it has been stopped */
    fb_error stopped;      /* why; its status is FB_OK as long as it goes on */
} fb_work;

/* Asks the watch now. */
bool fb_work_ask(fb_work *work);

/* So many steps are about to be taken. False: take none of them. */
static inline bool fb_work_goes_on(fb_work *work, int64_t steps) {
    return (work->unasked += (uint64_t)steps) < FB_WORK_UNASKED || fb_work_ask(work);
}

/* The same for each element of a plain loop, in parts:
 *
 *     for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) … */
static inline bool fb_work_at(fb_work *work, int64_t i, int64_t count) {
    return i & (FB_WORK_BLOCK - 1) || fb_work_goes_on(work, count - i < FB_WORK_BLOCK ? count - i : FB_WORK_BLOCK);
}

/* The end of the part of 0 … count - 1 that begins at `from`: for loops that are to stay short enough for vector instructions.
 *
 *     for (int64_t from = 0, to; (to = fb_work_part(work, from, count)) > from; from = to)
 *         for (int64_t i = from; i < to; i++) … */
static inline int64_t fb_work_part(fb_work *work, int64_t from, int64_t count) {
    int64_t size = count - from < FB_WORK_BLOCK ? count - from : FB_WORK_BLOCK;
    return size > 0 && fb_work_goes_on(work, size) ? from + size : from;
}

/* How many steps an element of a loop takes whose elements are so far apart: beyond a page each may be a page of memory that is
 * touched for the first time. */
#define FB_WORK_FAR ((int64_t)4096) /* bytes */
static inline int64_t fb_work_steps_at(int64_t bytes_apart) {
    return bytes_apart < FB_WORK_FAR && bytes_apart > -FB_WORK_FAR ? 1 : 32;
}

/* FB_OK, or why the work was stopped, which is reported to `error`. */
fb_status fb_work_status(const fb_work *work, fb_error *error);
/* Why metered work came to nothing: it was stopped, or memory is out. */
fb_status fb_work_failed(const fb_work *work, fb_error *error);

#endif
