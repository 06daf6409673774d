/* The bucket: which one it is, who is at which blob of it, and the bytes. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/s3/s3.h"
#include "server/store/backup.h"
#include "server/store/files.h"
#include "server/store/state.h"
#include "server/store/store.h"

#define OWNER_KEY "foldback-store" /* the object that has the id of the store whose blobs these are */
#define CLAIM_NOTE "blobs-claim"   /* the id that the store puts there */
#define PART ((uint64_t)8 << 20)   /* THREADS of them are in memory at once */
#define BLOCK ((size_t)1 << 20)
#define PARTS_MAX 10000U
#define THREADS 4
#define LINE_MAX_BYTES 1024

/* The contents of blobs-at. */
typedef struct record {
    char url[LINE_MAX_BYTES], endpoint[LINE_MAX_BYTES], region[LINE_MAX_BYTES]; /* "" for none */
    char id[FB_ULID_LENGTH + 1];                                                /* of the store */
} record;

struct fb_bucket {
    fb_s3 *s3;
    record is;
    bool is_owned;
    pthread_mutex_t mutex;
    pthread_cond_t released;
    fb_claim *claims;
};

/* ---- which bucket ------------------------------------------------------------------------------------------------------- */

static void take_line(const char *line, size_t size, record *out) {
    const struct {
        const char *name;
        char *to;
        size_t space;
    } members[] = {{"url ", out->url, sizeof out->url},
                   {"endpoint ", out->endpoint, sizeof out->endpoint},
                   {"region ", out->region, sizeof out->region},
                   {"id ", out->id, sizeof out->id}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        size_t length = strlen(members[i].name);
        if (length <= size && strncmp(line, members[i].name, length) == 0)
            snprintf(members[i].to, members[i].space, "%.*s", (int)(size - length), line + length);
    }
}

static fb_status read_record(fb_store *store, record *out, bool *is_there, fb_error *error) {
    char *text = NULL;
    fb_status status = fb_note_read(store, FB_BUCKET_FILE, &text, error);
    *is_there = text != NULL;
    for (const char *line = text; line && *line; line += strcspn(line, "\n"), line += *line == '\n')
        take_line(line, strcspn(line, "\n"), out);
    free(text);
    if (status || !*is_there || (*out->url && *out->id)) return status;
    return fb_fail_corrupt(error, "its file " FB_BUCKET_FILE " is damaged");
}

static fb_status write_record(fb_store *store, const record *is, fb_error *error) {
    fb_buffer out = {0};
    fb_buffer_printf(&out, "url %s\nid %s\n", is->url, is->id);
    if (*is->endpoint) fb_buffer_printf(&out, "endpoint %s\n", is->endpoint);
    if (*is->region) fb_buffer_printf(&out, "region %s\n", is->region);
    const char *text = fb_buffer_text(&out);
    fb_status status = text ? fb_note_write(store, FB_BUCKET_FILE, text, error) : fb_fail_memory(error);
    fb_buffer_free(&out);
    return status;
}

/* The id of the store that has its blobs there; "" for none. */
static fb_status read_owner(fb_s3 *s3, char id[FB_ULID_LENGTH + 1], fb_error *error) {
    uint64_t size = 0;
    fb_error met = {0};
    *id = '\0';
    fb_status status = fb_s3_size(s3, OWNER_KEY, &size, &met);
    if (status == FB_NOT_FOUND) return FB_OK;
    if (!status) status = fb_s3_read(s3, OWNER_KEY, 0, FB_ULID_LENGTH, id, -1, &met);
    if (!status) id[size == FB_ULID_LENGTH ? FB_ULID_LENGTH : 1] = '\0';
    return status ? fb_fail(error, met.status, met.code, NULL, "%s", met.message) : FB_OK;
}

static fb_status fail_taken(const record *is, fb_error *error) {
    return fb_fail(error, FB_CONFLICT, "blobs-taken", NULL,
                   "another store has its blobs in %s: name a prefix of its own in --blobs for each store", is->url);
}

fb_status fb_bucket_check_owner(fb_bucket *bucket, fb_error *error) {
    char id[FB_ULID_LENGTH + 1];
    fb_status status = read_owner(bucket->s3, id, error);
    if (status) return status;
    return strcmp(id, bucket->is.id) == 0 ? FB_OK : fail_taken(&bucket->is, error);
}

/* The id under which the store wants the bucket: noted before the bucket knows it, so that a start that was killed in between
 * goes on with the same one. */
static fb_status choose_id(fb_store *store, char id[FB_ULID_LENGTH + 1], fb_error *error) {
    char *chosen = NULL;
    fb_status status = fb_note_read(store, CLAIM_NOTE, &chosen, error);
    if (!status && chosen) snprintf(id, FB_ULID_LENGTH + 1, "%s", chosen);
    else if (!status) status = fb_ulid_next(&store->ulids, store->config.now_ms(), id, error);
    if (!status && !chosen) status = fb_note_write(store, CLAIM_NOTE, id, error);
    free(chosen);
    return status;
}

/* Takes the bucket over; of two stores that do so at once the one that wrote last has it. */
static fb_status take_over(fb_store *store, fb_bucket *bucket, fb_error *error) {
    char id[FB_ULID_LENGTH + 1];
    fb_status status = fb_store_check_no_files(store, error);
    if (!status) status = read_owner(bucket->s3, id, error);
    if (!status) status = choose_id(store, bucket->is.id, error);
    if (!status && *id && strcmp(id, bucket->is.id) != 0) return fail_taken(&bucket->is, error);
    if (!status) status = fb_s3_put(bucket->s3, OWNER_KEY, bucket->is.id, FB_ULID_LENGTH, error);
    if (!status) status = fb_bucket_check_owner(bucket, error);
    return status ? status : write_record(store, &bucket->is, error);
}

static void copy_text(char to[LINE_MAX_BYTES], const char *text) {
    snprintf(to, LINE_MAX_BYTES, "%s", text);
}

/* "s3://bucket/prefix" without slashes at the end. */
static size_t url_length(const char *url) {
    size_t length = strlen(url);
    while (length > 5 && url[length - 1] == '/') length--;
    return length;
}

static bool is_same_url(const char *a, const char *b) {
    return url_length(a) == url_length(b) && strncmp(a, b, url_length(a)) == 0;
}

static fb_status open_bucket(fb_store *store, fb_bucket *bucket, bool is_known, fb_error *error) {
    const fb_bucket_config *given = &store->config.bucket;
    record was = bucket->is;
    if (given->url && is_known && !is_same_url(given->url, was.url))
        return fb_fail(error, FB_CONFLICT, "blobs-elsewhere", NULL, "the store has its blobs in %s, not in %s", was.url,
                       given->url);
    if (given->url) copy_text(bucket->is.url, given->url);
    if (given->url && given->endpoint) copy_text(bucket->is.endpoint, given->endpoint);
    if (given->url && given->region) copy_text(bucket->is.region, given->region);
    const fb_s3_config config = {.url = bucket->is.url,
                                 .endpoint = *bucket->is.endpoint ? bucket->is.endpoint : NULL,
                                 .region = *bucket->is.region ? bucket->is.region : NULL,
                                 .public_endpoint = given->public_endpoint};
    fb_status status = fb_s3_new(&config, &bucket->s3, error);
    if (!status && given->url) status = fb_s3_has_credentials(error); /* other verbs may need no blob */
    if (status) return status;
    bucket->is_owned = given->url != NULL;
    if (!is_known) return take_over(store, bucket, error);
    bool is_changed = strcmp(was.endpoint, bucket->is.endpoint) != 0 || strcmp(was.region, bucket->is.region) != 0;
    return is_changed ? write_record(store, &bucket->is, error) : FB_OK;
}

fb_status fb_bucket_open(fb_store *store, fb_error *error) {
    bool is_known = false;
    fb_bucket *bucket = calloc(1, sizeof *bucket);
    if (!bucket) return fb_fail_memory(error);
    fb_status status = read_record(store, &bucket->is, &is_known, error);
    if (status || (!is_known && !store->config.bucket.url)) {
        free(bucket);
        return status;
    }
    pthread_mutex_init(&bucket->mutex, NULL);
    pthread_cond_init(&bucket->released, NULL);
    status = open_bucket(store, bucket, is_known, error);
    if (status) fb_bucket_close(bucket);
    else store->bucket = bucket;
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

bool fb_store_has_bucket(const char *folder) {
    char *path = fb_path_with(folder, "/" FB_BUCKET_FILE);
    bool has = path && access(path, F_OK) == 0;
    free(path);
    return has;
}

fb_status fb_store_bucket_health(fb_store *store, fb_error *error) {
    return store->bucket ? fb_s3_probe(store->bucket->s3, error) : FB_OK;
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

static fb_status hash_file(int file, uint64_t size, fb_sha256 *hash, fb_error *error) {
    char *block = malloc(BLOCK);
    fb_status status = block ? FB_OK : fb_fail_memory(error);
    for (uint64_t at = 0; at < size && !status;) {
        ssize_t got = pread(file, block, BLOCK, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = fb_fail_file(error, "read a blob", errno);
        else if (got == 0) status = fb_fail_corrupt(error, "a blob's file became shorter");
        else if (!fb_sha256_add(hash, block, (size_t)got)) status = fb_fail_memory(error);
        at += got > 0 ? (uint64_t)got : 0;
    }
    free(block);
    return status;
}

static fb_status check_digest(int file, uint64_t size, const char *digest, fb_error *error) {
    char actual[FB_ID_LENGTH + 1];
    fb_sha256 *hash = fb_sha256_new();
    fb_status status = hash ? hash_file(file, size, hash, error) : fb_fail_memory(error);
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
