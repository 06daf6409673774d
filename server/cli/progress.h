/* How far something large has come: one line on standard error, when that is a terminal. */
#ifndef FB_CLI_PROGRESS_H
#define FB_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fb_progress {
    const char *what, *name; /* "sending", "model.safetensors"; borrowed */
    uint64_t done, total;    /* bytes */
    uint64_t first;          /* of `done` that were there before */
    int64_t begun, shown;    /* milliseconds */
    bool is_visible;
} fb_progress;

/* `done` of `total` bytes are there already. */
void fb_progress_begin(fb_progress *progress, const char *what, const char *name, uint64_t done, uint64_t total);
/* NULL does nothing. */
void fb_progress_add(fb_progress *progress, uint64_t bytes);
/* Takes the line away. */
void fb_progress_end(fb_progress *progress);

#endif
