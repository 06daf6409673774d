/* `foldback db check`: all of a data folder is read, every id and digest computed again, and every run done again. Nothing is
 * changed, except that an older schema is brought up to date. */
#ifndef FB_CHECK_CHECK_H
#define FB_CHECK_CHECK_H

#include <stdint.h>

#include "core/base/error.h"

/* Something that is wrong: what, of what, how one sees it, what is lost by it, and what helps. */
typedef struct fb_finding {
    const char *code, *subject, *detail, *costs, *cure;
} fb_finding;

/* A check under way. The caller sets the functions, the rest counts. */
typedef struct fb_check {
    void *context;
    void (*found)(void *context, const fb_finding *finding);
    /* NULL for none. `what` is "graphs". */
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total);

    uint64_t graphs, rules, blobs, blob_bytes, tensors, answers;
    uint64_t runs, replayed; /* not replayed: undos that merged, of which the store does not know what from, or that depended on
                              * bytes that were here then */
    uint64_t findings;
} fb_check;

/* Opens the folder as a service does, and so needs it for itself. FB_OK also when there are findings; a folder that cannot be
 * opened because it is damaged is one. FB_NOT_FOUND "no-store": there is none; else the errors of fb_store_open. */
fb_status fb_check_folder(const char *folder, fb_check *check, fb_error *error);

#endif
