/* Digests of tensors within blobs, so that each is computed once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/internal.h"

fb_status fb_store_recall_digest(fb_store *store, const char *blob, uint64_t offset, const char *dtype, const char *shape,
                                 char digest[FB_ID_LENGTH + 1], fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection,
                                    "SELECT t.digest FROM tensor_digests t JOIN blobs b ON b.key = t.blob "
                                    "WHERE b.digest = ? AND t.\"offset\" = ? AND t.dtype = ? AND t.shape = ?",
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

/* Of a blob that has gone meanwhile nothing is to be remembered. */
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
