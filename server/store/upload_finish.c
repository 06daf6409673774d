/* An upload becomes a blob. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/blobs.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/uploads.h"

/* ---- the digest ---- */

static fb_status read_file(const fb_upload *upload, void *to, size_t size, fb_error *error) {
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(upload->file, (char *)to + done, size - done, (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fb_fail_file(error, "read an upload", errno);
        if (got == 0) return fb_fail_corrupt(error, "an upload is shorter than it was");
        done += (size_t)got;
    }
    return FB_OK;
}

fb_status fb_upload_digest(fb_upload *upload, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    if (!upload->hash) {
        fb_sha256 *hash = fb_sha256_new();
        fb_status status =
            hash ? fb_file_hash(upload->file, upload->size, hash, "read an upload", error) : fb_fail_memory(error);
        if (status) {
            fb_sha256_free(hash);
            return status;
        }
        upload->hash = hash;
    }
    return fb_sha256_id_so_far(upload->hash, digest) ? FB_OK : fb_fail_memory(error);
}

/* ---- on the writer ---- */

/* A blob on its way to the writer. */
typedef struct put_blob {
    fb_store *store;
    const char *upload; /* its id */
    const char *digest;
    const fb_store_actor *by;
    uint64_t size;
    int64_t now;
    int64_t created; /* now, or when it was here already: then */
    void *bytes;     /* of a small one; NULL: in the upload's file, or */
    bool is_object;  /* in the bucket */
    bool is_damaged; /* it is here with other bytes */
    bool is_put;     /* the upload's file is at the blob's place */
    bool is_new;
} put_blob;

/* Always later than before: who put it first sees that another has put it since (fb_blob_withdraw). */
static fb_status renew(fb_connection *connection, int64_t key, put_blob *put, fb_error *error) {
    fb_query query = fb_query_begin(
        connection, "UPDATE blobs SET used = CASE WHEN used < ?2 THEN ?2 ELSE used + 1 END WHERE key = ?1 RETURNING created",
        error);
    fb_bind_int(&query, key);
    fb_bind_int(&query, put->now);
    while (fb_query_row(&query)) put->created = fb_column_int(&query, 0);
    return fb_query_end(&query);
}

static fb_status mend_row(fb_connection *connection, int64_t key, const put_blob *put, fb_error *error) {
    fb_query query = fb_query_begin(connection, "UPDATE blobs SET size = ?2, bytes = ?3 WHERE key = ?1", error);
    fb_bind_int(&query, key);
    fb_bind_int(&query, (int64_t)put->size);
    fb_bind_bytes(&query, put->bytes, (size_t)put->size);
    return fb_query_run(&query);
}

static fb_status insert(fb_connection *connection, const put_blob *put, fb_error *error) {
    fb_query query =
        fb_query_begin(connection, "INSERT INTO blobs (digest, size, created, used, bytes) VALUES (?1, ?2, ?3, ?3, ?4)", error);
    fb_bind_text(&query, put->digest);
    fb_bind_int(&query, (int64_t)put->size);
    fb_bind_int(&query, put->now);
    fb_bind_bytes(&query, put->bytes, (size_t)put->size);
    return fb_query_run(&query);
}

static fb_status audit_put(fb_connection *connection, const put_blob *put, fb_error *error) {
    char outcome[40];
    snprintf(outcome, sizeof outcome, "%" PRIu64 " bytes", put->size);
    return fb_write_audit(connection, put->by, put->now, "blob-put", put->digest, outcome, error);
}

/* A file that is there already is right, unless it was found damaged: files come here whole. So one whose row's removal may yet
 * be undone stays where it is. A blob whose file was damaged or lost gets it back, and keeps it. */
static fb_status write_put(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    put_blob *put = argument;
    int64_t key = 0;
    put->is_put = false;
    put->created = put->now;
    fb_status status = put->is_object ? fb_check_claim(connection, put->store, put->digest, error) : FB_OK;
    if (!status) status = fb_find_blob(connection, put->digest, &key, error);
    put->is_new = !status && key == 0;
    bool needs_file = !put->bytes && !put->is_object;
    if (!status && needs_file && (put->is_damaged || !fb_blob_file_is_there(put->store->files.folder, put->digest, put->size)))
        status = fb_blob_file_put(put->store->files.folder, put->upload, put->digest, &put->is_put, error);
    if (put->is_damaged) put->is_put = false; /* without a row it is rubbish, which gc takes away */
    if (!status && put->is_damaged && key) status = mend_row(connection, key, put, error);
    if (!status) status = key ? renew(connection, key, put, error) : insert(connection, put, error);
    if (!status && put->is_new) status = fb_blob_came(connection, put->digest, error);
    if (!status && put->is_new) status = audit_put(connection, put, error);
    if (!status && put->is_new) added->blobs++, added->blob_bytes += (int64_t)put->size;
    return status;
}

static void end_put(fb_connection *connection, void *argument, fb_write_outcome outcome) {
    (void)connection;
    const put_blob *put = argument;
    if (put->is_put && outcome == FB_WRITE_UNDONE) fb_blob_file_put_back(put->store->files.folder, put->upload, put->digest);
}

/* ---- finish ---- */

static fb_status read_small(fb_upload *upload, put_blob *put, fb_error *error) {
    put->bytes = malloc((size_t)upload->size + 1);
    return put->bytes ? read_file(upload, put->bytes, (size_t)upload->size, error) : fb_fail_memory(error);
}

static fb_status put_row(fb_upload *upload, put_blob *put, fb_error *error) {
    char path[FB_FILE_PATH_MAX];
    fb_status status = fb_writer_run_to_end(&upload->store->writer, write_put, end_put, put, error);
    fb_upload_path(upload->id, path);
    if (!status && !put->is_object) unlinkat(upload->store->files.folder, path, 0);
    return status;
}

/* The digest is claimed until there is a row, so that gc lets the object be. A failure in between leaves an object without a
 * row, and the upload as it was. */
static fb_status put_object(fb_upload *upload, put_blob *put, fb_error *error) {
    fb_store *store = upload->store;
    fb_claim claim;
    fb_status status = fb_object_claim(store, put->digest, &claim, error);
    if (status) return status;
    put->is_object = !fb_blob_file_is_there(store->files.folder, put->digest, put->size);
    if (put->is_object)
        status = fb_bucket_put(store->files.bucket, put->digest, upload->file, put->size, put->is_damaged, error);
    if (!status) status = put_row(upload, put, error);
    if (!status && put->is_object) fb_cache_take(&store->files, upload->id, put->digest, put->size);
    fb_object_release(store, &claim);
    return status;
}

/* Its bytes are read: who puts a blob again may do so because it is damaged. */
static fb_status find_damage(put_blob *put, fb_error *error) {
    fb_error met = {0};
    fb_blob *blob = NULL;
    fb_status status = fb_blob_open(put->store, put->digest, &blob, &met);
    if (!status) status = fb_blob_verify(blob, &met);
    fb_blob_close(blob);
    put->is_damaged = strcmp(met.code, "store-corrupt") == 0 || strcmp(met.code, "store-failed") == 0;
    if (!status || put->is_damaged || status == FB_NOT_FOUND) return FB_OK;
    return fb_fail(error, status, met.code, NULL, "%s", met.message);
}

fb_status fb_upload_finish(fb_upload *upload, const char *digest, const fb_store_actor *by, char found[FB_ID_LENGTH + 1],
                           bool *is_new, fb_error *error) {
    assert(!upload->is_finished);
    fb_store *store = upload->store;
    char actual[FB_ID_LENGTH + 1];
    fb_status status = fb_upload_digest(upload, actual, error);
    if (status) return status;
    if (digest && strcmp(digest, actual) != 0)
        return fb_fail(error, FB_INVALID, "digest-mismatch", NULL, "the digest of the bytes is %s, not %s", actual, digest);
    put_blob put = {
        .store = store, .upload = upload->id, .digest = actual, .by = by, .size = upload->size, .now = store->config.now_ms()};
    if (upload->size <= FB_BLOB_INLINE) status = read_small(upload, &put, error);
    else if (!upload->is_whole) status = fb_upload_sync(upload, error);
    if (!status) status = find_damage(&put, error);
    bool is_large = !status && !put.bytes;
    if (!status)
        status = is_large && store->files.bucket && !upload->is_whole ? put_object(upload, &put, error)
                                                                      : put_row(upload, &put, error);
    free(put.bytes);
    if (status) return status;
    upload->is_finished = true;
    upload->created = put.created;
    memcpy(found, actual, sizeof actual);
    *is_new = put.is_new;
    return FB_OK;
}
