/* The bytes of blobs and uploads: files of the data folder, objects of a bucket, and the cache of these. */
#ifndef FB_STORE_FILES_H
#define FB_STORE_FILES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "server/database/query.h"
#include "server/store/blobs.h"
#include "server/store/store.h"

/* ---- Where the bytes of blobs and uploads are in the data folder, and how a file gets from uploads/ to blobs/ ------------ */

#define FB_UPLOADS_FOLDER "uploads"
#define FB_BLOBS_FOLDER "blobs"
#define FB_BLOB_HEX_LENGTH 64
#define FB_FILE_PATH_MAX 80

/* "blobs/ab/cd/<hex>" and "uploads/<id>", from the data folder. */
void fb_blob_path(const char *digest, char path[FB_FILE_PATH_MAX]);
void fb_upload_path(const char *id, char path[FB_FILE_PATH_MAX]);

/* Makes the two folders that are missing; durable. */
fb_status fb_blob_folders_make(fb_store *store, fb_error *error);

/* On the writer: true when the blob's file is there in its right size. */
bool fb_blob_file_is_there(const fb_store *store, const char *digest, uint64_t size);
/* On the writer: puts the upload's file, whose bytes are on disk, at the blob's place; durable. It keeps the upload's name,
 * too, so that the upload is there until the blob's row is; only where files have one name each it is moved. *is_put is set as
 * soon as the file is there, also when something failed afterwards. */
fb_status fb_blob_file_put(const fb_store *store, const char *upload, const char *digest, bool *is_put, fb_error *error);
/* On the writer: takes that back. */
void fb_blob_file_put_back(const fb_store *store, const char *upload, const char *digest);

/* Writes a file of the data folder in place of the one of that name, if any: whole or not at all; durable. */
fb_status fb_store_write_file(const fb_store *store, const char *name, const void *bytes, size_t size, fb_error *error);

/* Makes the entries of a folder within the data folder durable. */
fb_status fb_folder_sync(const fb_store *store, const char *path, fb_error *error);

/* Files of blobs whose bytes were found to be those that their digests say, in this process (checked.c). */
typedef struct fb_checked {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct fb_checked_file *files;
    size_t count, oldest;
} fb_checked;

void fb_checked_init(fb_checked *checked);
void fb_checked_free(fb_checked *checked);
/* False when the file was checked as it is now, perhaps by another thread while this waits. Otherwise the caller checks it, and
 * fb_checked_end must follow. */
bool fb_checked_begin(fb_checked *checked, const char *digest, const struct stat *about);
void fb_checked_end(fb_checked *checked, const char *digest, bool is_right);

/* When a file was last written, in milliseconds since 1970. */
int64_t fb_changed_ms(const struct stat *about);

/* Reports errno's `reason` for what could not be done: "write an upload". */
fb_status fb_fail_file(fb_error *error, const char *what, int reason);

/* ---- The bucket for large blobs (bucket.c), and which of them the data folder has as well (cache.c) --------------------- */

#define FB_CACHE_FOLDER "cache"
#define FB_BUCKET_FILE "blobs-at" /* in the data folder: which bucket the store uses */

typedef struct fb_bucket fb_bucket;

/* A digest whose bytes one thread puts, fetches or removes at a time. */
typedef struct fb_claim {
    char digest[FB_ID_LENGTH + 1];
    struct fb_claim *next;
} fb_claim;

/* store->bucket, which stays NULL when the store has none. Errors as fb_store_open. */
fb_status fb_bucket_open(fb_store *store, fb_error *error);
void fb_bucket_close(fb_bucket *bucket);
struct fb_s3 *fb_bucket_s3(const fb_bucket *bucket);
/* True when what is in it may be removed. */
bool fb_bucket_is_owned(const fb_bucket *bucket);

/* Waits until the digest is free. `claim` stays where it is until it is released. */
void fb_bucket_claim(fb_bucket *bucket, const char *digest, fb_claim *claim);
/* False, at once, when it is taken. */
bool fb_bucket_try_claim(fb_bucket *bucket, const char *digest, fb_claim *claim);
void fb_bucket_release(fb_bucket *bucket, fb_claim *claim);

/* Gives the digest of a blob by its object's key, which is its path in the data folder. False for any other key. */
bool fb_bucket_digest_of(const char *key, char digest[FB_ID_LENGTH + 1]);

/* With the claim: puts `size` bytes of a file there, unless an object of that size is there and not known to be damaged. */
fb_status fb_bucket_put(fb_bucket *bucket, const char *digest, int file, uint64_t size, bool is_damaged, fb_error *error);
/* With the claim: fetches the blob into `file`, of which nothing is kept when the bytes are not those that the digest says:
 * FB_IO "store-corrupt". */
fb_status fb_bucket_fetch(fb_bucket *bucket, const char *digest, int file, uint64_t size, fb_error *error);
/* Reads a part. FB_IO "store-corrupt" when the object is not there. */
fb_status fb_bucket_read(fb_bucket *bucket, const char *digest, uint64_t offset, void *to, size_t size, fb_error *error);
/* Finds out if the object is there. FB_IO "store-corrupt" when it has another size. */
fb_status fb_bucket_has(fb_bucket *bucket, const char *digest, uint64_t size, bool *is_there, fb_error *error);
/* With the claim. */
fb_status fb_bucket_remove(fb_bucket *bucket, const char *digest, fb_error *error);
/* FB_CONFLICT "blobs-taken" when the bucket is another store's by now: then nothing in it is to be removed. */
fb_status fb_bucket_check_owner(fb_bucket *bucket, fb_error *error);

/* A blob's file in the cache, open for reading; -1 when it is not there in that size. */
int fb_cache_open(const fb_store *store, const char *digest, uint64_t size);
/* Fetches the blob into the cache, unless it is there; the caller closes the file. Others go to make room; a blob larger than
 * the whole cache is there until it is closed. */
fb_status fb_cache_fetch(fb_store *store, const char *digest, uint64_t size, int *file, fb_error *error);
/* With the claim: moves the file of an upload, whose bytes are on disk, into the cache, or removes it. */
void fb_cache_take(fb_store *store, const char *upload, const char *digest, uint64_t size);
void fb_cache_remove(const fb_store *store, const char *digest);
/* Makes its folder, and removes what was being fetched when the process ended. */
fb_status fb_cache_make(fb_store *store, fb_error *error);

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

/* A new file in uploads/, open for reading and writing. */
fb_status fb_upload_file_make(fb_store *store, char id[FB_UPLOAD_ID_LENGTH + 1], int *file, fb_error *error);
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
