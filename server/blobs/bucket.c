/* The bucket: whose it is, who is at which blob of it, and the bytes. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/blobs/files.h"
#include "server/database/query.h"
#include "server/s3/s3.h"

#define OWNER_KEY "foldback-store" /* the object that has the id of the store whose blobs these are */
#define PART ((uint64_t)8 << 20)   /* THREADS of them are in memory at once */
#define PARTS_MAX 10000U
#define THREADS 4

struct fb_bucket {
    fb_s3 *s3;
    char url[FB_BUCKET_LINE], id[FB_ULID_LENGTH + 1]; /* of its record */
    bool is_owned;
    pthread_mutex_t mutex;
    pthread_cond_t released;
    fb_claim *claims;
};

/* ---- whose it is -------------------------------------------------------------------------------------------------------- */

fb_status fb_bucket_new(const fb_bucket_record *record, const char *public_endpoint, bool is_owned, fb_bucket **out,
                        fb_error *error) {
    const fb_s3_config config = {.url = record->url,
                                 .endpoint = *record->endpoint ? record->endpoint : NULL,
                                 .region = *record->region ? record->region : NULL,
                                 .public_endpoint = public_endpoint};
    fb_bucket *bucket = calloc(1, sizeof *bucket);
    if (!bucket) return fb_fail_memory(error);
    pthread_mutex_init(&bucket->mutex, NULL);
    pthread_cond_init(&bucket->released, NULL);
    bucket->is_owned = is_owned;
    memcpy(bucket->url, record->url, sizeof bucket->url);
    memcpy(bucket->id, record->id, sizeof bucket->id);
    fb_status status = fb_s3_new(&config, &bucket->s3, error);
    if (status) fb_bucket_close(bucket);
    else *out = bucket;
    return status;
}

void fb_bucket_close(fb_bucket *bucket) {
    if (!bucket) return;
    fb_s3_free(bucket->s3);
    pthread_mutex_destroy(&bucket->mutex);
    pthread_cond_destroy(&bucket->released);
    free(bucket);
}

fb_s3 *fb_bucket_s3(const fb_bucket *bucket) {
    return bucket->s3;
}

bool fb_bucket_is_owned(const fb_bucket *bucket) {
    return bucket->is_owned;
}

fb_status fb_bucket_owner(const fb_bucket *bucket, char id[FB_ULID_LENGTH + 1], fb_error *error) {
    uint64_t size = 0;
    fb_error met = {0};
    *id = '\0';
    fb_status status = fb_s3_size(bucket->s3, OWNER_KEY, &size, &met);
    if (status == FB_NOT_FOUND) return FB_OK;
    if (!status) status = fb_s3_read(bucket->s3, OWNER_KEY, 0, FB_ULID_LENGTH, id, -1, &met);
    if (!status) id[size == FB_ULID_LENGTH ? FB_ULID_LENGTH : 1] = '\0';
    return status ? fb_fail(error, met.status, met.code, NULL, "%s", met.message) : FB_OK;
}

static fb_status check_owner(const fb_bucket *bucket, const char *owner, fb_error *error) {
    if (strcmp(owner, bucket->id) == 0) return FB_OK;
    return fb_fail(error, FB_CONFLICT, "blobs-taken", NULL,
                   "another store has its blobs in %s: name a prefix of its own in --blobs for each store", bucket->url);
}

fb_status fb_bucket_check_owner(const fb_bucket *bucket, fb_error *error) {
    char owner[FB_ULID_LENGTH + 1];
    fb_status status = fb_bucket_owner(bucket, owner, error);
    return status ? status : check_owner(bucket, owner, error);
}

fb_status fb_bucket_take_over(fb_bucket *bucket, const char *owner, const char *id, fb_error *error) {
    memcpy(bucket->id, id, sizeof bucket->id);
    fb_status status = *owner ? check_owner(bucket, owner, error) : FB_OK;
    if (!status) status = fb_s3_put(bucket->s3, OWNER_KEY, bucket->id, FB_ULID_LENGTH, error);
    return status ? status : fb_bucket_check_owner(bucket, error);
}

/* ---- claims ------------------------------------------------------------------------------------------------------------- */

/* With the mutex. */
static bool is_claimed(const fb_bucket *bucket, const char *digest) {
    for (const fb_claim *claim = bucket->claims; claim; claim = claim->next)
        if (strcmp(claim->digest, digest) == 0) return true;
    return false;
}

static bool claim_when_free(fb_bucket *bucket, const char *digest, fb_claim *claim, bool waits) {
    pthread_mutex_lock(&bucket->mutex);
    while (waits && is_claimed(bucket, digest)) pthread_cond_wait(&bucket->released, &bucket->mutex);
    bool is_free = !is_claimed(bucket, digest);
    if (is_free) {
        snprintf(claim->digest, sizeof claim->digest, "%s", digest);
        claim->next = bucket->claims;
        bucket->claims = claim;
    }
    pthread_mutex_unlock(&bucket->mutex);
    return is_free;
}

void fb_bucket_claim(fb_bucket *bucket, const char *digest, fb_claim *claim) {
    claim_when_free(bucket, digest, claim, true);
}

bool fb_bucket_try_claim(fb_bucket *bucket, const char *digest, fb_claim *claim) {
    return claim_when_free(bucket, digest, claim, false);
}

void fb_bucket_release(fb_bucket *bucket, fb_claim *claim) {
    pthread_mutex_lock(&bucket->mutex);
    fb_claim **place = &bucket->claims;
    while (*place != claim) place = &(*place)->next;
    *place = claim->next;
    pthread_cond_broadcast(&bucket->released);
    pthread_mutex_unlock(&bucket->mutex);
}

/* ---- parts, some at a time ---------------------------------------------------------------------------------------------- */

typedef struct parts {
    fb_bucket *bucket;
    const char *key, *upload; /* `upload` of those that are put */
    uint64_t size, part_size;
    size_t count;
    int file;             /* that they are fetched into */
    unsigned char *bytes; /* of those that are put */
    fb_s3_part *put;
    atomic_size_t next;
    pthread_mutex_t mutex; /* for the error, the first one */
    fb_error error;
} parts;

static fb_status do_part(parts *all, size_t number, fb_error *error) {
    uint64_t offset = number * all->part_size, left = all->size - offset;
    size_t size = (size_t)(left < all->part_size ? left : all->part_size);
    if (!all->bytes) return fb_s3_read(all->bucket->s3, all->key, offset, size, NULL, all->file, error);
    fb_status status =
        fb_s3_parts_put(all->bucket->s3, all->key, all->upload, number, all->bytes + offset, size, &all->put[number], error);
    madvise(all->bytes + offset, size, MADV_DONTNEED); /* a part begins at a page */
    return status;
}

static void *do_parts(void *argument) {
    parts *all = argument;
    for (size_t number; (number = atomic_fetch_add(&all->next, 1)) < all->count;) {
        fb_error met = {0};
        if (!do_part(all, number, &met)) continue;
        pthread_mutex_lock(&all->mutex);
        if (!all->error.status) all->error = met;
        pthread_mutex_unlock(&all->mutex);
        atomic_store(&all->next, all->count);
    }
    return NULL;
}

static fb_status run_parts(parts *all, fb_error *error) {
    pthread_t threads[THREADS - 1];
    size_t started = 0;
    pthread_mutex_init(&all->mutex, NULL);
    while (started + 1 < all->count && started < THREADS - 1 && !pthread_create(&threads[started], NULL, do_parts, all))
        started++;
    do_parts(all);
    while (started) pthread_join(threads[--started], NULL);
    pthread_mutex_destroy(&all->mutex);
    const fb_error *met = &all->error;
    return met->status ? fb_fail(error, met->status, met->code, NULL, "%s", met->message) : FB_OK;
}

static uint64_t part_size_of(uint64_t size) {
    uint64_t least = size / PARTS_MAX / PART + 1; /* in whole PARTs */
    return least * PART;
}

/* ---- bytes -------------------------------------------------------------------------------------------------------------- */

bool fb_bucket_digest_of(const char *key, char digest[FB_ID_LENGTH + 1]) {
    char path[FB_FILE_PATH_MAX];
    const char *hex = strrchr(key, '/');
    if (!hex || strlen(hex + 1) != FB_BLOB_HEX_LENGTH) return false;
    snprintf(digest, FB_ID_LENGTH + 1, "sha256:%s", hex + 1);
    if (!fb_is_sha256_id(digest)) return false;
    fb_blob_path(digest, path);
    return strcmp(path, key) == 0;
}

fb_status fb_bucket_has(fb_bucket *bucket, const char *digest, uint64_t size, bool *is_there, fb_error *error) {
    char key[FB_FILE_PATH_MAX];
    uint64_t actual = 0;
    fb_error met = {0};
    fb_blob_path(digest, key);
    fb_status status = fb_s3_size(bucket->s3, key, &actual, &met);
    *is_there = !status;
    if (status == FB_NOT_FOUND) return FB_OK;
    if (status) return fb_fail(error, met.status, met.code, NULL, "%s", met.message);
    return actual == size ? FB_OK : fb_fail_corrupt(error, "a blob's object has the wrong size");
}

static fb_status fail_lost(fb_error *error) {
    return fb_fail(error, FB_BUSY, "blobs-unavailable", NULL, "the bucket lost an upload in parts; send the blob again");
}

/* The answer to the last request may be lost: then it is not repeated blindly, but looked whether the object is there. */
static fb_status end_parts(parts *all, const char *digest, fb_error *error) {
    fb_error met = {0};
    bool is_there = false;
    fb_status status = fb_s3_parts_end(all->bucket->s3, all->key, all->upload, all->put, all->count, &met);
    if (!status) return FB_OK;
    if (!fb_bucket_has(all->bucket, digest, all->size, &is_there, NULL) && is_there) return FB_OK;
    if (status == FB_NOT_FOUND) return fail_lost(error);
    return fb_fail(error, met.status, met.code, NULL, "%s", met.message);
}

static fb_status put_in_parts(parts *all, const char *digest, fb_error *error) {
    char *upload = NULL;
    all->put = calloc(all->count, sizeof *all->put);
    if (!all->put) return fb_fail_memory(error);
    fb_status status = fb_s3_parts_begin(all->bucket->s3, all->key, &upload, error);
    all->upload = upload;
    fb_error met = {0};
    if (!status && (status = run_parts(all, &met)))
        status = status == FB_NOT_FOUND ? fail_lost(error) : fb_fail(error, status, met.code, NULL, "%s", met.message);
    if (!status) status = end_parts(all, digest, error);
    if (status && upload) fb_s3_parts_abort(all->bucket->s3, all->key, upload, NULL); /* else gc does */
    free(upload);
    free(all->put);
    return status;
}

fb_status fb_bucket_put(fb_bucket *bucket, const char *digest, int file, uint64_t size, bool is_damaged, fb_error *error) {
    char key[FB_FILE_PATH_MAX];
    bool is_there = false;
    fb_error met = {0};
    fb_blob_path(digest, key);
    fb_status status = fb_bucket_has(bucket, digest, size, &is_there, &met);
    is_damaged |= status && strcmp(met.code, "store-corrupt") == 0;
    if (status && !is_damaged) return fb_fail(error, met.status, met.code, NULL, "%s", met.message);
    if (is_there && !is_damaged) return FB_OK;
    void *bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) return fb_fail_file(error, "map an upload", errno);
    parts all = {.bucket = bucket, .key = key, .size = size, .part_size = part_size_of(size), .bytes = bytes};
    all.count = (size_t)((size + all.part_size - 1) / all.part_size);
    status = all.count > 1 ? put_in_parts(&all, digest, error) : fb_s3_put(bucket->s3, key, bytes, (size_t)size, error);
    munmap(bytes, (size_t)size);
    return status;
}

static fb_status check_digest(int file, uint64_t size, const char *digest, fb_error *error) {
    char actual[FB_ID_LENGTH + 1];
    fb_sha256 *hash = fb_sha256_new();
    fb_status status = hash ? fb_file_hash(file, size, hash, "read a blob", error) : fb_fail_memory(error);
    if (!status && !fb_sha256_id_so_far(hash, actual)) status = fb_fail_memory(error);
    fb_sha256_free(hash);
    if (status) return status;
    return strcmp(actual, digest) == 0 ? FB_OK : fb_fail_corrupt(error, "a blob's object has other bytes than its digest says");
}

static fb_status fail_missing(const fb_error *met, fb_error *error) {
    if (met->status == FB_NOT_FOUND) return fb_fail_corrupt(error, "a blob's object is missing");
    return fb_fail(error, met->status, met->code, NULL, "%s", met->message);
}

fb_status fb_bucket_fetch(fb_bucket *bucket, const char *digest, int file, uint64_t size, fb_error *error) {
    char key[FB_FILE_PATH_MAX];
    fb_error met = {0};
    fb_blob_path(digest, key);
    parts all = {.bucket = bucket, .key = key, .size = size, .part_size = PART, .file = file};
    all.count = (size_t)((size + all.part_size - 1) / all.part_size);
    if (ftruncate(file, (off_t)size) != 0) return fb_fail_file(error, "fetch a blob", errno);
    if (run_parts(&all, &met)) return fail_missing(&met, error);
    return check_digest(file, size, digest, error);
}

fb_status fb_bucket_read(fb_bucket *bucket, const char *digest, uint64_t offset, void *to, size_t size, fb_error *error) {
    char key[FB_FILE_PATH_MAX];
    fb_error met = {0};
    fb_blob_path(digest, key);
    return fb_s3_read(bucket->s3, key, offset, size, to, -1, &met) ? fail_missing(&met, error) : FB_OK;
}

fb_status fb_bucket_remove(fb_bucket *bucket, const char *digest, fb_error *error) {
    char key[FB_FILE_PATH_MAX];
    fb_blob_path(digest, key);
    return fb_s3_remove(bucket->s3, key, error);
}
