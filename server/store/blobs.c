/* Reads blobs, and remembers digests of the tensors within them. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/blobs/files.h"
#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/s3/s3.h"
#include "server/store/blobs.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

#define AHEAD FB_BLOB_CHECKED /* bytes that are read of an object at once */

struct fb_blob {
    fb_store *store;
    char digest[FB_ID_LENGTH + 1];
    uint64_t size;
    unsigned char *bytes; /* of a small one, malloc'ed; of a file, mapped or NULL */
    int file;             /* -1 for a small one, and for an object in the bucket that was not mapped */
    bool is_object, is_cached;
    fb_sha256 *hash; /* of the first `hashed` bytes; NULL when that is 0 */
    uint64_t hashed;
    char *ahead; /* of an object: AHEAD bytes, or NULL; */
    bool is_ahead;
    uint64_t ahead_at; /* when is_ahead: those from here on, as far as the object goes */
};

static fb_status fail_unknown(fb_error *error, const char *digest) {
    return fb_fail(error, FB_NOT_FOUND, "unknown-blob", NULL, "there is no blob %s", digest);
}

fb_status fb_find_blob(fb_connection *connection, const char *digest, int64_t *key, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT key FROM blobs WHERE digest = ?", error);
    fb_bind_text(&query, digest);
    return fb_read_key(&query, key);
}

/* ---- open ---- */

/* Reads the row, and the bytes of a small blob. */
static fb_status read_row(fb_store *store, const char *digest, fb_blob *blob, fb_error *error) {
    fb_query query = fb_read_begin(&store->readers, "SELECT size, bytes FROM blobs WHERE digest = ?", error);
    fb_bind_text(&query, digest);
    bool is_known = fb_query_row(&query);
    if (is_known) blob->size = (uint64_t)fb_column_int(&query, 0);
    if (is_known && !fb_column_is_null(&query, 1)) {
        size_t size = 0;
        const void *bytes = fb_column_bytes(&query, 1, &size);
        blob->bytes = malloc(size + 1);
        if (!blob->bytes) query.status = fb_fail_memory(error);
        else if (size != blob->size) query.status = fb_fail_corrupt(error, "a blob of the wrong size");
        else if (size && !query.status) memcpy(blob->bytes, bytes, size);
    }
    fb_status status = fb_read_end(&store->readers, &query);
    return status || is_known ? status : fail_unknown(error, digest);
}

static fb_status open_object(const fb_store *store, const char *digest, fb_blob *blob, fb_error *error) {
    blob->file = fb_cache_open(&store->files, digest, blob->size);
    blob->is_cached = blob->file >= 0;
    return blob->file >= 0 ? FB_OK : fb_bucket_has(store->files.bucket, digest, blob->size, &blob->is_object, error);
}

/* Leaves the file -1 when it is not there. */
static fb_status open_file(const fb_store *store, const char *digest, fb_blob *blob, fb_error *error) {
    char path[FB_FILE_PATH_MAX];
    struct stat about;
    fb_blob_path(digest, path);
    blob->file = openat(store->files.folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (blob->file < 0 && errno == ENOENT && store->files.bucket) return open_object(store, digest, blob, error);
    if (blob->file < 0) return errno == ENOENT ? FB_OK : fb_fail_file(error, "open a blob", errno);
    if (fstat(blob->file, &about) != 0) return fb_fail_file(error, "open a blob", errno);
    return (uint64_t)about.st_size == blob->size ? FB_OK : fb_fail_corrupt(error, "a blob's file has the wrong size");
}

/* A file that is not there may have gone with its row since that was read: so the row is read again, and so on, should the blob
 * come and go all the time. */
static fb_status open_blob(fb_store *store, const char *digest, fb_blob *blob, fb_error *error) {
    for (int attempt = 0; attempt < 5; attempt++) {
        fb_status status = read_row(store, digest, blob, error);
        if (!status && !blob->bytes) status = open_file(store, digest, blob, error);
        if (status || blob->bytes || blob->file >= 0 || blob->is_object) return status;
    }
    return fb_fail_corrupt(error, "a blob's file is missing");
}

/* ---- checks ---- */

/* Checks that a blob which was read in order from the beginning has its digest; fails at the end if not. A damaged copy in the
 * cache goes: the bucket may have it right. */
static fb_status check_so_far(fb_blob *blob, uint64_t offset, const void *bytes, size_t size, fb_error *error) {
    char actual[FB_ID_LENGTH + 1];
    if (offset != blob->hashed) return FB_OK;
    if (!blob->hash && !(blob->hash = fb_sha256_new())) return fb_fail_memory(error);
    if (!fb_sha256_add(blob->hash, bytes, size)) return fb_fail_memory(error);
    blob->hashed += size;
    if (blob->hashed < blob->size) return FB_OK;
    if (!fb_sha256_id_so_far(blob->hash, actual)) return fb_fail_memory(error);
    if (strcmp(actual, blob->digest) == 0) return FB_OK;
    if (blob->is_cached) fb_cache_remove(&blob->store->files, blob->digest);
    return fb_fail_corrupt(error, "a blob has other bytes than its digest says");
}

static fb_status check_small(fb_blob *blob, fb_error *error) {
    if (blob->size > FB_BLOB_CHECKED) return FB_OK;
    if (blob->file < 0 && blob->bytes) return check_so_far(blob, 0, blob->bytes, (size_t)blob->size, error);
    return fb_blob_verify(blob, error);
}

fb_status fb_blob_open(fb_store *store, const char *digest, fb_blob **out, fb_error *error) {
    if (!fb_is_sha256_id(digest)) return fail_unknown(error, digest);
    fb_blob *blob = calloc(1, sizeof *blob);
    if (!blob) return fb_fail_memory(error);
    *blob = (fb_blob){.store = store, .file = -1};
    snprintf(blob->digest, sizeof blob->digest, "%s", digest);
    fb_error met = {0};
    fb_status status = open_blob(store, digest, blob, error);
    if (!status) status = check_small(blob, &met);
    if (met.status && blob->is_cached && strcmp(met.code, "store-corrupt") == 0) { /* it has left the cache */
        fb_blob_close(blob);
        return fb_blob_open(store, digest, out, error);
    }
    if (met.status) fb_fail(error, met.status, met.code, NULL, "%s", met.message);
    if (status) fb_blob_close(blob);
    else *out = blob;
    return status;
}

void fb_blob_close(fb_blob *blob) {
    if (!blob) return;
    if (blob->file < 0) {
        free(blob->bytes);
    } else {
        if (blob->bytes) munmap(blob->bytes, (size_t)blob->size);
        close(blob->file);
    }
    fb_sha256_free(blob->hash);
    free(blob->ahead);
    free(blob);
}

uint64_t fb_blob_size(const fb_blob *blob) {
    return blob->size;
}

/* ---- bytes ---- */

/* An object that cannot be read may have gone with its row, since that was read. */
static fb_status fail_object(fb_blob *blob, const fb_error *met, fb_error *error) {
    bool is_missing = false;
    const char *digest = blob->digest;
    bool is_looked_up = !strcmp(met->code, "store-corrupt") && !fb_blobs_missing(blob->store, &digest, 1, &is_missing, NULL);
    if (is_looked_up && is_missing) return fail_unknown(error, digest);
    return fb_fail(error, met->status, met->code, NULL, "%s", met->message);
}

fb_status fb_blob_map(fb_blob *blob, const unsigned char **bytes, fb_error *error) {
    if (!blob->bytes) {
        fb_error met = {0};
        fb_status status =
            blob->file < 0 ? fb_cache_fetch(&blob->store->files, blob->digest, blob->size, &blob->file, &met) : FB_OK;
        if (status) return fail_object(blob, &met, error);
        void *mapped = mmap(NULL, (size_t)blob->size, PROT_READ, MAP_SHARED, blob->file, 0);
        if (mapped == MAP_FAILED) return fb_fail_file(error, "map a blob", errno);
        blob->bytes = mapped;
    }
    *bytes = blob->bytes;
    return FB_OK;
}

void fb_blob_forget(const fb_blob *blob) {
    if (blob->file >= 0 && blob->bytes) madvise(blob->bytes, (size_t)blob->size, MADV_DONTNEED);
}

/* Small parts in a row cost one request. */
static fb_status read_object(fb_blob *blob, uint64_t offset, char *to, size_t size, fb_error *error) {
    if (!blob->ahead && !(blob->ahead = malloc(AHEAD))) return fb_fail_memory(error);
    while (size) {
        uint64_t at = offset - blob->ahead_at, left = blob->size - offset;
        if (!blob->is_ahead || offset < blob->ahead_at || at >= AHEAD) {
            blob->is_ahead = false;
            fb_error met = {0};
            fb_status status = fb_bucket_read(blob->store->files.bucket, blob->digest, offset, blob->ahead,
                                              left < AHEAD ? (size_t)left : AHEAD, &met);
            if (status) return fail_object(blob, &met, error);
            blob->is_ahead = true;
            blob->ahead_at = offset;
            at = 0;
        }
        size_t some = size < AHEAD - (size_t)at ? size : AHEAD - (size_t)at;
        memcpy(to, blob->ahead + at, some);
        to += some, offset += some, size -= some;
    }
    return FB_OK;
}

static fb_status read_bytes(fb_blob *blob, uint64_t offset, void *to, size_t size, fb_error *error) {
    if (blob->file < 0 && !blob->bytes) return read_object(blob, offset, to, size, error);
    if (blob->file < 0) {
        memcpy(to, blob->bytes + offset, size);
        return FB_OK;
    }
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(blob->file, (char *)to + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fb_fail_file(error, "read a blob", errno);
        if (got == 0) return fb_fail_corrupt(error, "a blob's file became shorter");
        done += (size_t)got;
    }
    return FB_OK;
}

fb_status fb_blob_read(fb_blob *blob, uint64_t offset, void *to, size_t size, fb_error *error) {
    assert(offset <= blob->size && size <= blob->size - offset);
    fb_status status = read_bytes(blob, offset, to, size, error);
    return status ? status : check_so_far(blob, offset, to, size, error);
}

static fb_status verify(fb_blob *blob, const fb_watch *watch, fb_error *error) {
    char *block = malloc(FB_BLOB_CHECKED);
    fb_status status = block ? FB_OK : fb_fail_memory(error);
    for (uint64_t at = 0; !status && at < blob->size; at += FB_BLOB_CHECKED) {
        uint64_t left = blob->size - at;
        status = fb_watch_check(watch, error);
        if (!status) status = fb_blob_read(blob, at, block, left < FB_BLOB_CHECKED ? (size_t)left : FB_BLOB_CHECKED, error);
    }
    free(block);
    return status;
}

fb_status fb_blob_verify(fb_blob *blob, fb_error *error) {
    return verify(blob, NULL, error);
}

fb_status fb_blob_verify_once(fb_blob *blob, const fb_watch *watch, fb_error *error) {
    fb_checked *checked = &blob->store->files.checked;
    struct stat about;
    if (blob->file < 0 || blob->size <= FB_BLOB_CHECKED || blob->size > FB_BLOB_CHECKED_ONCE) return FB_OK;
    if (fstat(blob->file, &about) != 0) return fb_fail_file(error, "open a blob", errno);
    if (!fb_checked_begin(checked, blob->digest, &about)) return FB_OK;
    fb_status status = verify(blob, watch, error);
    fb_checked_end(checked, blob->digest, !status);
    return status;
}

#define URL_SECONDS 900

fb_status fb_blob_url(fb_store *store, const char *digest, char **url, fb_error *error) {
    char path[FB_FILE_PATH_MAX];
    fb_blob blob = {.file = -1};
    *url = NULL;
    if (!store->files.bucket || !store->config.bucket.redirects) return FB_OK;
    if (!fb_is_sha256_id(digest)) return fail_unknown(error, digest);
    fb_status status = read_row(store, digest, &blob, error);
    bool is_small = blob.bytes != NULL;
    free(blob.bytes);
    fb_blob_path(digest, path);
    if (status || is_small || faccessat(store->files.folder, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return status;
    *url = fb_s3_url(fb_bucket_s3(store->files.bucket), path, URL_SECONDS);
    return *url ? FB_OK
                : fb_fail(error, FB_IO, "blobs-refused", NULL, "no URL of the blob could be signed; check the credentials");
}

/* ---- which are here ---- */

fb_status fb_blobs_missing(fb_store *store, const char *const *digests, size_t count, bool *is_missing, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    for (size_t i = 0; i < count && !status; i++) {
        int64_t key = 0;
        status = fb_find_blob(connection, digests[i], &key, error);
        is_missing[i] = key == 0;
    }
    fb_readers_give_back(&store->readers, connection);
    return status;
}

fb_status fb_blobs_have_size(fb_store *store, uint64_t size, bool *out, fb_error *error) {
    fb_query query = fb_read_begin(&store->readers, "SELECT 1 FROM blobs WHERE size = ? LIMIT 1", error);
    fb_bind_int(&query, (int64_t)size);
    *out = fb_query_row(&query);
    return fb_read_end(&store->readers, &query);
}

static fb_status read_item(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    (void)memory;
    fb_blob_row *out = item;
    fb_query query = fb_query_begin(connection,
                                    "SELECT digest, size, created, used, "
                                    "(SELECT count(*) FROM graph_blobs WHERE digest = b.digest) FROM blobs b WHERE key = ?",
                                    error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) {
        snprintf(out->digest, sizeof out->digest, "%s", fb_column_text(&query, 0));
        out->size = (uint64_t)fb_column_int(&query, 1);
        out->created = fb_column_int(&query, 2);
        out->used = fb_column_int(&query, 3);
        out->graphs = (uint64_t)fb_column_int(&query, 4);
    }
    return fb_query_end(&query);
}

fb_status fb_blobs_list(fb_store *store, const fb_store_page *page, fb_blob_rows *out, fb_error *error) {
    fb_list_query query = {.conditions =
                               &(fb_condition){.sql = "SELECT key FROM blobs WHERE key <= ? ORDER BY key DESC LIMIT 1"},
                           .count = 1,
                           .page = page,
                           .filter_hash = fb_filter_hash(0, "blobs"),
                           .item_size = sizeof *out->items,
                           .read = read_item};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

/* ---- digests of tensors within blobs, so that each is computed once ---- */

fb_status fb_store_recall_digest(fb_store *store, const char *blob, uint64_t offset, const char *dtype, const char *shape,
                                 char digest[FB_ID_LENGTH + 1], fb_error *error) {
    fb_query query = fb_read_begin(&store->readers,
                                   "SELECT t.digest FROM tensor_digests t JOIN blobs b ON b.key = t.blob "
                                   "WHERE b.digest = ? AND t.\"offset\" = ? AND t.dtype = ? AND t.shape = ?",
                                   error);
    fb_bind_text(&query, blob);
    fb_bind_int(&query, (int64_t)offset);
    fb_bind_text(&query, dtype);
    fb_bind_text(&query, shape);
    bool is_known = fb_query_row(&query);
    if (is_known) snprintf(digest, FB_ID_LENGTH + 1, "%s", fb_column_text(&query, 0));
    fb_status status = fb_read_end(&store->readers, &query);
    if (!status && !is_known)
        status = fb_fail(error, FB_NOT_FOUND, "unknown-digest", NULL, "no digest of this tensor is remembered");
    return status;
}

enum { BLOB, DTYPE, SHAPE, DIGEST, TEXTS };

typedef struct remembered {
    uint64_t offset;
    const char *texts[TEXTS]; /* in `memory` */
    char memory[];
} remembered;

static remembered *copy(uint64_t offset, const char *const texts[TEXTS]) {
    size_t size = 0;
    for (int i = 0; i < TEXTS; i++) size += strlen(texts[i]) + 1;
    remembered *row = malloc(sizeof *row + size);
    if (!row) return NULL;
    row->offset = offset;
    char *at = row->memory;
    for (int i = 0; i < TEXTS; i++) {
        row->texts[i] = at;
        at = stpcpy(at, texts[i]) + 1;
    }
    return row;
}

/* Remembers a digest, unless the blob has gone meanwhile. */
static fb_status write_digest(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const remembered *row = argument;
    fb_query query = fb_query_begin(connection,
                                    "INSERT INTO tensor_digests (blob, \"offset\", dtype, shape, digest) "
                                    "SELECT key, ?2, ?3, ?4, ?5 FROM blobs WHERE digest = ?1 "
                                    "ON CONFLICT (blob, \"offset\", dtype, shape) DO UPDATE SET digest = excluded.digest",
                                    error);
    fb_bind_text(&query, row->texts[BLOB]);
    fb_bind_int(&query, (int64_t)row->offset);
    fb_bind_text(&query, row->texts[DTYPE]);
    fb_bind_text(&query, row->texts[SHAPE]);
    fb_bind_text(&query, row->texts[DIGEST]);
    return fb_query_run(&query);
}

fb_status fb_store_remember_digest(fb_store *store, const char *blob, uint64_t offset, const char *dtype, const char *shape,
                                   const char *digest, fb_error *error) {
    const char *const texts[TEXTS] = {blob, dtype, shape, digest};
    remembered *row = copy(offset, texts);
    return row ? fb_writer_post_take(&store->writer, write_digest, row, error) : fb_fail_memory(error);
}
