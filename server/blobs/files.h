/* The bytes of blobs and uploads: files of the data folder, objects of a bucket, and the cache of these. Which blobs there are
 * is known to server/store, which has their rows. */
#ifndef FB_BLOBS_FILES_H
#define FB_BLOBS_FILES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "server/database/ulid.h"

/* ---- places of blobs and uploads in the data folder, and the way from uploads/ to blobs/ ------------------------------- */

#define FB_UPLOADS_FOLDER "uploads"
#define FB_BLOBS_FOLDER "blobs"
#define FB_BLOB_HEX_LENGTH 64
#define FB_FILE_PATH_MAX 80

/* "blobs/ab/cd/<hex>" and "uploads/<id>", from the data folder. */
void fb_blob_path(const char *digest, char path[FB_FILE_PATH_MAX]);
void fb_upload_path(const char *id, char path[FB_FILE_PATH_MAX]);

/* `folder` is the data folder. Makes the two folders that are missing; durable. */
fb_status fb_blob_folders_make(int folder, fb_error *error);

/* On the writer: true when the blob's file is there in its right size. */
bool fb_blob_file_is_there(int folder, const char *digest, uint64_t size);
/* On the writer: puts the upload's file, whose bytes are on disk, at the blob's place; durable. It keeps the upload's name,
 * too, so that the upload is there until the blob's row is; only where files have one name each it is moved. *is_put is set as
 * soon as the file is there, also when something failed afterwards. */
fb_status fb_blob_file_put(int folder, const char *upload, const char *digest, bool *is_put, fb_error *error);
/* On the writer: takes that back. */
void fb_blob_file_put_back(int folder, const char *upload, const char *digest);

/* Writes a file in place of the one of that name, if any: whole or not at all; durable. */
fb_status fb_folder_write(int folder, const char *name, const void *bytes, size_t size, fb_error *error);

/* Makes the entries of a folder within the data folder durable. */
fb_status fb_folder_sync(int folder, const char *path, fb_error *error);

/* Copies the first `size` bytes of a file into an empty one: shares its blocks where the file system can. Adds them to the
 * hash, and tells `progress`, if there is one, how many more are hashed. FB_NO_SPACE; FB_IO "file-failed" when the file has
 * become shorter. */
fb_status fb_file_copy(int from, int to, uint64_t size, fb_sha256 *hash, void (*progress)(void *context, uint64_t bytes),
                       void *context, fb_error *error);

/* Adds a file's first `size` bytes to the hash. `what` is for fb_fail_file. */
fb_status fb_file_hash(int file, uint64_t size, fb_sha256 *hash, const char *what, fb_error *error);

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

#define FB_BUCKET_LINE 1024 /* bytes of a line of that file */

/* Its contents: which bucket, and whose. */
typedef struct fb_bucket_record {
    char url[FB_BUCKET_LINE], endpoint[FB_BUCKET_LINE], region[FB_BUCKET_LINE]; /* "" for none */
    char id[FB_ULID_LENGTH + 1];                                                /* of the store */
} fb_bucket_record;

/* `is_owned`: what is in it may be removed. */
fb_status fb_bucket_new(const fb_bucket_record *record, const char *public_endpoint, bool is_owned, fb_bucket **out,
                        fb_error *error);
void fb_bucket_close(fb_bucket *bucket);
struct fb_s3 *fb_bucket_s3(const fb_bucket *bucket);
bool fb_bucket_is_owned(const fb_bucket *bucket);
/* The id of the store that has its blobs there; "" for none. */
fb_status fb_bucket_owner(const fb_bucket *bucket, char id[FB_ULID_LENGTH + 1], fb_error *error);
/* Makes the bucket that store's, unless it is another's: FB_CONFLICT "blobs-taken". Of two that do so at once the one that
 * wrote last has it. */
fb_status fb_bucket_take_over(fb_bucket *bucket, const char *owner, const char *id, fb_error *error);

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
fb_status fb_bucket_check_owner(const fb_bucket *bucket, fb_error *error);

/* The state of blobs in a store, besides their rows. */
typedef struct fb_blob_files {
    int folder;                  /* the data folder, for paths within it */
    fb_bucket *bucket;           /* or NULL */
    uint64_t cache_bytes;        /* of the bucket's blobs that are in the data folder as well, at most */
    pthread_mutex_t cache_mutex; /* while room is made there */
    fb_checked checked;
} fb_blob_files;

/* A blob's file in the cache, open for reading; -1 when it is not there in that size. */
int fb_cache_open(const fb_blob_files *files, const char *digest, uint64_t size);
/* Fetches the blob into the cache, unless it is there; the caller closes the file. Others go to make room; a blob larger than
 * the whole cache is there until it is closed. */
fb_status fb_cache_fetch(fb_blob_files *files, const char *digest, uint64_t size, int *file, fb_error *error);
/* With the claim: moves the file of an upload, whose bytes are on disk, into the cache, or removes it. */
void fb_cache_take(fb_blob_files *files, const char *upload, const char *digest, uint64_t size);
void fb_cache_remove(const fb_blob_files *files, const char *digest);
/* Makes its folder, and removes what was being fetched when the process ended. */
fb_status fb_cache_make(fb_blob_files *files, fb_error *error);

#endif
