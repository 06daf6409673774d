/* Copying a whole store: rows from SQLite to PostgreSQL or back, large blobs from files to a bucket or back.
 *
 * Every row is copied with its keys, so that ids, page tokens and numbers of events stay what they are. What is there already
 * is not copied again, so a copy that was broken off goes on where it was; until it is complete nothing opens the target. At
 * the end all rows of both are compared, and the target's blobs are read and hashed. The source is only read. */
#ifndef FB_STORE_COPY_H
#define FB_STORE_COPY_H

#include "server/store/store.h"

typedef struct fb_copy_side {
    const char *folder;      /* the data folder */
    const char *database;    /* NULL: SQLite in the folder or, of the source, what the folder says */
    fb_bucket_config bucket; /* of the target; `url` NULL: large blobs are files of its folder */
    const char *name;        /* of the source, the same each time: the unfinished copy is known by it */
} fb_copy_side;

typedef struct fb_store_copied {
    uint64_t tables, rows, copied_rows; /* all; those that this call has copied */
    uint64_t blobs, copied_blobs;       /* the large ones */
    uint64_t blob_bytes;
} fb_store_copied;

/* Called now and then: "rows" of a table and so on; `total` 0 when it is not known. */
typedef void fb_copy_progress(void *context, const char *what, uint64_t done, uint64_t total);

/* Fails as fb_store_open, and with FB_BUSY "store-locked": a service has the source or the target; FB_CONFLICT
 * "store-not-empty": the target has data of its own; "copy-unfinished": the target is an unfinished copy of another store;
 * "copy-differs": the source was changed since the copy began; FB_NOT_FOUND "no-store"; FB_IO "store-corrupt": a blob of the
 * source is damaged. */
fb_status fb_store_copy(const fb_copy_side *from, const fb_copy_side *to, fb_copy_progress *progress, void *context,
                        fb_store_copied *out, fb_error *error);

#endif
