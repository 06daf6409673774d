/* Two runs are the same: they lead from one origin to one result by the same steps. */
#ifndef FB_HISTORY_SAME_RUN_H
#define FB_HISTORY_SAME_RUN_H

#include "server/history/history.h"

#define FB_KEPT_RUNS_MAX 16

/* Runs that were kept. Texts are borrowed from the list of runs. */
typedef struct fb_kept_run {
    const char *id, *result, *request;
    char origin[FB_ID_LENGTH + 1], signature[FB_SIGNATURE_LENGTH + 1]; /* of its steps */
    bool is_of_several; /* its steps are of several runs: what an undo left over of them */
} fb_kept_run;

typedef struct fb_kept_runs {
    fb_kept_run items[FB_KEPT_RUNS_MAX];
    size_t count;
    bool is_whole;
} fb_kept_runs;

/* Keeps the run unless it repeats a kept one, or has made nothing. With `is_whole` the same origin and result suffice, whatever
 * the signatures. */
void fb_keep_run(fb_kept_runs *kept, const fb_store_run *run);

#endif
