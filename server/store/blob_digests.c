/* Digests of tensors within blobs, so that each is computed once. */
#include <stdio.h>

#include "server/store/internal.h"

fb_status fb_store_recall_digest(fb_store *store, const char *blob, uint64_t offset, const char *dtype, const char *shape,
                                 char digest[FB_ID_LENGTH + 1], fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection,
                                    "SELECT t.digest FROM tensor_digests t JOIN blobs b ON b.key = t.blob "
                                    "WHERE b.digest = ? AND t.offset = ? AND t.dtype = ? AND t.shape = ?",
                                    error);
    fb_bind_text(&query, blob);
    fb_bind_int(&query, (int64_t)offset);
    fb_bind_text(&query, dtype);
    fb_bind_text(&query, shape);
    bool is_known = fb_query_row(&query);
    if (is_known) snprintf(digest, FB_ID_LENGTH + 1, "%s", fb_column_text(&query, 0));
    status = fb_query_end(&query);
    fb_readers_give_back(&store->readers, connection);
    if (!status && !is_known)
        status = fb_fail(error, FB_NOT_FOUND, "unknown-digest", NULL, "no digest of this tensor is remembered");
    return status;
}

typedef struct remembered {
    const char *blob, *dtype, *shape, *digest;
    uint64_t offset;
} remembered;

/* Of a blob that has gone meanwhile nothing is to be remembered. */
static fb_status write_digest(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const remembered *row = argument;
    fb_query query = fb_query_begin(connection,
                                    "INSERT OR REPLACE INTO tensor_digests (blob, offset, dtype, shape, digest) "
                                    "SELECT key, ?2, ?3, ?4, ?5 FROM blobs WHERE digest = ?1",
                                    error);
    fb_bind_text(&query, row->blob);
    fb_bind_int(&query, (int64_t)row->offset);
    fb_bind_text(&query, row->dtype);
    fb_bind_text(&query, row->shape);
    fb_bind_text(&query, row->digest);
    return fb_query_run(&query);
}

fb_status fb_store_remember_digest(fb_store *store, const char *blob, uint64_t offset, const char *dtype, const char *shape,
                                   const char *digest, fb_error *error) {
    remembered row = {.blob = blob, .dtype = dtype, .shape = shape, .digest = digest, .offset = offset};
    return fb_writer_run(&store->writer, write_digest, &row, error);
}
