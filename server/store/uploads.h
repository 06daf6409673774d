/* Uploads, which are to become blobs; and claims of objects in the bucket, among all replicas. */
#ifndef FB_STORE_UPLOADS_H
#define FB_STORE_UPLOADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "server/blobs/files.h"
#include "server/database/query.h"
#include "server/store/blobs.h"
#include "server/store/store.h"

/* Claims a blob's object among the threads of all replicas: as fb_bucket_claim, _try_claim and _release. */
fb_status fb_object_claim(fb_store *store, const char *digest, fb_claim *claim, fb_error *error);
fb_status fb_object_try_claim(fb_store *store, const char *digest, fb_claim *claim, bool *is_had, fb_error *error);
void fb_object_release(fb_store *store, fb_claim *claim);
/* On the writer: FB_BUSY when it does not belong to this replica any more. */
fb_status fb_check_claim(fb_connection *connection, fb_store *store, const char *digest, fb_error *error);

#define FB_UPLOAD_BUCKETS 256

/* The uploads that are not finished, open or not. */
typedef struct fb_uploads {
    pthread_mutex_t mutex;
    fb_upload *buckets[FB_UPLOAD_BUCKETS];
    size_t count;
} fb_uploads;

/* Finds the uploads of an opened store. */
fb_status fb_uploads_load(fb_store *store, fb_error *error);
void fb_uploads_free(fb_uploads *uploads);
size_t fb_uploads_count(fb_uploads *uploads);
/* Removes (or, `is_dry`, counts) uploads that are not open and were not continued since `before`; returns how many. */
uint64_t fb_uploads_collect(fb_store *store, int64_t before, bool is_dry);

/* ---- An upload ---- */

/* Its bytes are in the file uploads/<id>. While it is open, only its opener touches it and its file. */
struct fb_upload {
    fb_store *store;
    fb_upload *next; /* in its bucket */
    char id[FB_UPLOAD_ID_LENGTH + 1];
    bool is_kept, is_open;
    bool is_changed;  /* since it was opened */
    bool is_whole;    /* an earlier finish was interrupted: its file may be a blob's already, and is not written to */
    bool is_finished; /* it has become a blob, and its file is gone */
    int file;         /* while it is open */
    uint64_t size;
    int64_t changed; /* when */
    int64_t created; /* of the blob, once it is one */
    fb_sha256 *hash; /* of its bytes; NULL: it is to be computed from the file */
};

#endif
