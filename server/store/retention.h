/* Retention: old runs go, and the graphs that only they needed.
 *
 * What stays: runs that are pinned; that a version of a model was made from, or whose result is one; that the history of an
 * alias names; and of all these the runs that made what they started from, as far back as it is known, so that passes can be
 * taken out of what is or was deployed. Of every run that stays (the young ones and the newest ones as well) the run that it
 * undid and those whose passes it left over, and all graphs that undoing it takes. Runs that a repeated request would be
 * answered with stay until that answer is forgotten; runs and graphs that a job names, until it has ended. */
#ifndef FB_STORE_RETENTION_H
#define FB_STORE_RETENTION_H

#include "core/base/work.h"
#include "server/store/store.h"

/* The limits of retention: older runs go, and runs beyond that many. 0 = unlimited. */
typedef struct fb_retention {
    int64_t age_ms;
    uint64_t count;
    int64_t audit_age_ms; /* of the audit's entries: see audit.h */
} fb_retention;

#define FB_REMOVED_RUNS_MAX 100
typedef struct fb_removed {
    uint64_t runs, graphs; /* removed, or (dry run) to be removed */
    uint64_t kept_runs;
    uint64_t audit_entries;                              /* as `runs` */
    char ids[FB_REMOVED_RUNS_MAX][FB_RUN_ID_LENGTH + 1]; /* of the newest that went */
    size_t id_count;
} fb_removed;

typedef struct fb_retaining {
    fb_retention limits;
    bool is_dry;              /* only counts */
    const fb_store_actor *by; /* NULL: the service itself */
    const fb_watch *watch;    /* or NULL */
    /* Called for every graph that has gone; NULL for none. */
    void (*graph_gone)(void *context, const char *id);
    void *context;
} fb_retaining;

/* In small transactions: other writes go on, and what they need meanwhile stays. When the watch ends it, what went before has
 * gone. */
fb_status fb_store_retain(fb_store *store, const fb_retaining *how, fb_removed *out, fb_error *error);

/* ---- pins ---- */

typedef struct fb_store_pin {
    char run[FB_RUN_ID_LENGTH + 1];
    const char *note; /* or NULL */
    int64_t created;
    fb_store_memory *memory;
} fb_store_pin;

/* `out` (free it) is the pin as it is stored; with one there already, only the note changes. FB_NOT_FOUND "unknown-run". */
fb_status fb_store_put_pin(fb_store *store, const char *run, const char *note, const fb_store_actor *by, bool *is_new,
                           fb_store_pin *out, fb_error *error);
/* FB_NOT_FOUND "unknown-run", "not-pinned". */
fb_status fb_store_get_pin(fb_store *store, const char *run, fb_store_pin *out, fb_error *error);
/* FB_NOT_FOUND "unknown-run", "not-pinned". */
fb_status fb_store_delete_pin(fb_store *store, const char *run, const fb_store_actor *by, fb_error *error);

#endif
