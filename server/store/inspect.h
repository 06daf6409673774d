/* A look at a store from outside, also one that a service is using: nothing is changed, and no lock is kept. */
#ifndef FB_STORE_INSPECT_H
#define FB_STORE_INSPECT_H

#include "server/store/store.h"

#define FB_INSPECTED_JOBS 5

/* A job that has failed. */
typedef struct fb_failed_job {
    char id[40], method[8], target[120];
    int status;
    int64_t finished;
} fb_failed_job;

typedef struct fb_inspection {
    char *url;                          /* of the server that the database is on, or NULL; free it */
    bool is_held, has_bucket;           /* a process has the folder */
    bool is_read;                       /* the rest was read from the database */
    int64_t schema, our_schema;         /* of the store; the newest that this program knows */
    uint64_t database_bytes, log_bytes; /* of a file */
    int64_t backed_up;                  /* when foldback db backup last ended; 0: not known */
    int64_t damages;                    /* lines of the database's quick check, beside those of fb_store_inspect's error */
    char damage[200];                   /* the first of them */

    /* Of a store with our schema. */
    int64_t graphs, runs, blobs, blob_bytes;
    int64_t newest; /* when the newest graph, run or job was made; 0: there is none */
    int64_t failed_job_count;
    fb_failed_job failed_jobs[FB_INSPECTED_JOBS]; /* the newest */
} fb_inspection;

/* Looks at the store of the folder, or, when `database` is not NULL, at that one. `out` holds what was found until something
 * failed, and is to be freed in either case. FB_NOT_FOUND "no-store", and the errors of fb_store_open. */
fb_status fb_store_inspect(const char *folder, const char *database, fb_inspection *out, fb_error *error);

#endif
