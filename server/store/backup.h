/* Copying a data folder, also one that a service is writing to; and putting a copy in a folder's place.
 *
 * A copy is a data folder. Its database is one snapshot of the other's, read by a connection that cannot write and so never
 * checkpoints. Files of blobs never change: they are linked where both folders are on one file system, and copied elsewhere. */
#ifndef FB_STORE_BACKUP_H
#define FB_STORE_BACKUP_H

#include "server/database/query.h"
#include "server/store/store.h"

#define FB_BACKED_UP_FILE "backed-up" /* in the data folder: written when a backup was complete; where it went */

typedef struct fb_copying {
    bool may_link;  /* else every file is copied, and its digest computed */
    bool is_frozen; /* no process can open the folder meanwhile, and it has no log */
    void *context;
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total); /* or NULL; "pages", "files" */
} fb_copying;

typedef struct fb_copied {
    uint64_t database_bytes, graphs, runs, blobs, files, linked;
    uint64_t damaged; /* files that are not there, or not what their digest says: what they are is in the copy all the same */
} fb_copied;

/* Makes the folder `to`, which must not be there or be empty, and appears when it is complete and on disk; until then it is
 * TO.partial, which a later call removes. `from` may be read-only. FB_NOT_FOUND "no-store"; FB_CONFLICT "folder-in-use": `to`
 * is not empty, or within `from`, or another copy to it is under way; FB_IO "store-corrupt": damaged pages; "store-failed",
 * "store-not-writable"; as fb_folder_look; FB_NO_SPACE. */
fb_status fb_store_back_up(const char *from, const char *to, const fb_copying *how, fb_copied *out, fb_error *error);

/* ---- restore ---- */

/* A copy of a backup beside the data folder whose place it is to take, which is held meanwhile. */
typedef struct fb_restoring {
    char *data, *stage;
    char *aside; /* where the old folder went, when there was one with something in it */
    bool has_old, has_content, is_staged;
    int lock; /* of the old folder */
} fb_restoring;

/* Copies the backup. FB_CONFLICT "folder-not-empty": and `may_replace` is false; FB_BUSY "store-locked": a service holds the
 * folder, or has the backup open; else as above. fb_restore_end is due in either case. */
fb_status fb_restore_begin(const char *backup, const char *data, bool may_replace, const fb_copying *how, fb_restoring *out,
                           fb_copied *copied, fb_error *error);
/* Puts the copy in its place, in one step; an old folder stays beside it, DATA.before-restore… */
fb_status fb_restore_finish(fb_restoring *restoring, fb_error *error);
/* Removes a copy that did not get there. */
void fb_restore_end(fb_restoring *restoring);

/* ---- for both: folders.c ---- */

/* "path" and what follows, malloc'ed; NULL when memory is out. Slashes at the path's end are left out. */
char *fb_path_with(const char *path, const char *suffix);
/* Takes the lock of a data folder: FB_BUSY "store-locked". *lock stays -1 when the folder has none and `is_made` is false. */
fb_status fb_folder_lock(const char *folder, bool is_made, int *lock, fb_error *error);
/* How the database of a folder that this process cannot write to is read: FB_READS when others may use it too; else no other
 * process may have the folder open, and it is held (`lock` is as fb_folder_lock's). *access stays as it is for a folder that
 * can be written to. FB_IO "store-not-writable": it has a log that cannot be read there; FB_BUSY "store-locked". */
fb_status fb_folder_look(const char *folder, fb_access *access, int *lock, fb_error *error);
/* True when nothing but a lock is in it. A folder that cannot be read is not. */
bool fb_folder_is_empty(const char *folder);
/* Removes a folder and all in it. */
fb_status fb_folder_remove(const char *folder, fb_error *error);

/* Copies a database file, as it is at one moment, to a file that is made anew. */
fb_status fb_database_copy(const char *from, fb_access access, const char *to, fb_error *error);
/* Removes a database file with its log. */
void fb_database_remove(const char *path);

/* Copying a whole store: rows from SQLite to PostgreSQL or back, large blobs from files to a bucket or back.
 *
 * Every row is copied with its keys, so that ids, page tokens and numbers of events stay what they are. Rows and blobs that are
 * there already are not copied again, so a copy that was broken off goes on where it was; until it is complete nothing opens
 * the target. At the end all rows of both are compared, and the target's blobs are read and hashed. The source is only read. */

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

/* A look at a store from outside, also one that a service is using: nothing is changed, and no lock is kept. */

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
    int64_t damages;                    /* lines of the database's quick check, beside the ones of fb_store_inspect's error */
    char damage[200];                   /* the first of them */

    /* Counts of a store with our schema. */
    int64_t graphs, runs, blobs, blob_bytes;
    int64_t newest; /* when the newest graph, run or job was made; 0: the store has neither */
    int64_t failed_job_count;
    fb_failed_job failed_jobs[FB_INSPECTED_JOBS]; /* the newest */
} fb_inspection;

/* Looks at the store of the folder, or, when `database` is not NULL, at that one. `out` holds what was found until something
 * failed, and is to be freed in either case. FB_NOT_FOUND "no-store", and the errors of fb_store_open. */
fb_status fb_store_inspect(const char *folder, const char *database, fb_inspection *out, fb_error *error);

#endif
