/* Garbage: blobs that nothing needs, files without rows, and old uploads.
 *
 * What might go is looked for by readers, and taken away by the writer, some at a time: it asks again whether the row may go,
 * and removes a file when the row's removal is durable, and only if no row exists then. The writer alone puts files there, too;
 * so it never takes one away that a row will refer to. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/s3/s3.h"
#include "server/store/audit.h"
#include "server/store/blobs.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/uploads.h"

#define BATCH 32 /* that the writer takes away at once */

typedef struct candidate {
    int64_t key; /* of its row; 0: a file without one */
    char digest[FB_ID_LENGTH + 1];
    int64_t size;
    bool is_object; /* in the bucket, without a row */
} candidate;

typedef struct removal {
    fb_store *store;
    const char *action; /* for the audit */
    const fb_store_actor *by;
    const fb_watch *watch;
    int64_t now, before;
    candidate items[BATCH];
    size_t count;
    uint64_t blobs, bytes, files; /* that went; `files`: of objects as well */
    int opened[BATCH];            /* files that have no name any more */
    size_t opened_count;
} removal;

/* ---- on the writer ---- */

static fb_status write_removal(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    removal *batch = argument;
    batch->blobs = batch->bytes = batch->files = 0;
    fb_query delete = fb_query_begin(connection,
                                     "DELETE FROM blobs WHERE key = ? AND used <= ? AND "
                                     "NOT EXISTS (SELECT 1 FROM graph_blobs WHERE digest = blobs.digest) AND "
                                     "NOT EXISTS (SELECT 1 FROM job_references WHERE id = blobs.digest)",
                                     error);
    for (size_t i = 0; i < batch->count && !delete.status; i++) {
        if (!batch->items[i].key) continue;
        fb_bind_int(&delete, batch->items[i].key);
        fb_bind_int(&delete, batch->before);
        fb_query_row(&delete);
        fb_query_again(&delete);
        if (delete.status || !fb_changed_rows(connection)) continue;
        delete.status = fb_blob_went(connection, batch->items[i].digest, batch->now, error);
        batch->blobs++;
        batch->bytes += (uint64_t)batch->items[i].size;
    }
    added->blobs -= (int64_t)batch->blobs;
    added->blob_bytes -= (int64_t)batch->bytes;
    added->collected_blobs += (int64_t)batch->blobs;
    added->collected_bytes += (int64_t)batch->bytes;
    fb_status status = fb_query_end(&delete);
    if (!status && batch->blobs) status = fb_forget_collected(connection, batch->now, error);
    if (status || !batch->blobs) return status;
    char outcome[80];
    snprintf(outcome, sizeof outcome, "%" PRIu64 " blobs, %" PRIu64 " bytes", batch->blobs, batch->bytes);
    return fb_write_audit(connection, batch->by, batch->now, batch->action, "blobs", outcome, error);
}

/* To give back the room of a large file takes seconds: so that writes need not wait for it, the file stays open until they go
 * on. */
static void remove_file(removal *batch, const candidate *item) {
    char path[FB_FILE_PATH_MAX];
    fb_blob_path(item->digest, path);
    int file = openat(batch->store->files.folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file >= 0) batch->opened[batch->opened_count++] = file;
    if (unlinkat(batch->store->files.folder, path, 0) == 0 && !item->key) batch->files++;
}

static void end_removal(fb_connection *connection, void *argument, fb_write_outcome outcome) {
    removal *batch = argument;
    for (size_t i = 0; i < batch->count && outcome == FB_WRITE_DURABLE; i++) {
        int64_t key = 0;
        fb_status status = fb_find_blob(connection, batch->items[i].digest, &key, NULL);
        if (!status && !key) remove_file(batch, &batch->items[i]);
    }
}

/* ---- in the bucket ---- */

static fb_status has_row(fb_store *store, const char *digest, bool *answer, fb_error *error) {
    fb_connection *connection = NULL;
    int64_t key = 0;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    status = fb_find_blob(connection, digest, &key, error);
    fb_readers_give_back(&store->readers, connection);
    *answer = key != 0;
    return status;
}

/* The blob is not put while its digest is claimed; its writer has the claim until the row exists. */
static fb_status remove_object(removal *batch, const candidate *item, fb_error *error) {
    fb_store *store = batch->store;
    fb_claim claim;
    bool is_known = true, is_had = false;
    fb_status status = fb_object_try_claim(store, item->digest, &claim, &is_had, error);
    if (status || !is_had) return status;
    status = has_row(store, item->digest, &is_known, error);
    if (!status && !is_known) {
        fb_cache_remove(&store->files, item->digest);
        if (fb_bucket_is_owned(store->files.bucket)) status = fb_bucket_remove(store->files.bucket, item->digest, error);
        if (!status && item->is_object) batch->files++;
    }
    fb_object_release(store, &claim);
    return status;
}

static fb_status remove_objects(removal *batch, fb_error *error) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < batch->count && !status; i++) status = remove_object(batch, &batch->items[i], error);
    return status;
}

/* Takes the batch away, or counts it, and empties it. */
static fb_status remove_batch(removal *batch, bool is_dry, fb_garbage *garbage, fb_error *error) {
    fb_status status = fb_watch_check(batch->watch, error);
    if (status || !batch->count) return status;
    if (is_dry) {
        batch->blobs = batch->bytes = batch->files = 0;
        for (size_t i = 0; i < batch->count; i++) {
            if (batch->items[i].key) batch->blobs++, batch->bytes += (uint64_t)batch->items[i].size;
            else batch->files++;
        }
    } else {
        status = fb_writer_make_room(&batch->store->writer, write_removal, end_removal, batch, error);
        if (!status && batch->store->files.bucket) status = remove_objects(batch, error);
    }
    while (batch->opened_count) close(batch->opened[--batch->opened_count]);
    batch->count = 0;
    if (status) return status;
    garbage->blobs += batch->blobs;
    garbage->bytes += batch->bytes;
    garbage->files += batch->files;
    return FB_OK;
}

/* ---- rows ---- */

/* Rows after the key *after that may go, BATCH at most. */
static fb_status find_rows(removal *batch, int64_t *after, fb_error *error) {
    fb_query query = fb_read_begin(&batch->store->readers,
                                   "SELECT key, digest, size FROM blobs b WHERE key > ? AND used <= ? AND "
                                   "NOT EXISTS (SELECT 1 FROM graph_blobs WHERE digest = b.digest) AND "
                                   "NOT EXISTS (SELECT 1 FROM job_references WHERE id = b.digest) ORDER BY key LIMIT ?",
                                   error);
    fb_bind_int(&query, *after);
    fb_bind_int(&query, batch->before);
    fb_bind_int(&query, BATCH);
    while (batch->count < BATCH && fb_query_row(&query)) {
        candidate *item = &batch->items[batch->count++];
        *after = item->key = fb_column_int(&query, 0);
        snprintf(item->digest, sizeof item->digest, "%s", fb_column_text(&query, 1));
        item->size = fb_column_int(&query, 2);
    }
    return fb_read_end(&batch->store->readers, &query);
}

static fb_status collect_rows(removal *batch, bool is_dry, fb_garbage *garbage, fb_error *error) {
    int64_t after = 0;
    for (bool is_last = false; !is_last;) {
        fb_status status = find_rows(batch, &after, error);
        is_last = batch->count < BATCH;
        if (!status) status = remove_batch(batch, is_dry, garbage, error);
        if (status) return status;
    }
    return FB_OK;
}

/* ---- files without rows ---- */

/* A file of a blob that has been there for long enough and has no row goes into the batch. */
static fb_status look_at_file(removal *batch, int folder, const char *name, fb_error *error) {
    candidate *item = &batch->items[batch->count];
    struct stat about;
    *item = (candidate){0};
    snprintf(item->digest, sizeof item->digest, "sha256:%.*s", FB_BLOB_HEX_LENGTH, name);
    if (strlen(name) != FB_BLOB_HEX_LENGTH || !fb_is_sha256_id(item->digest)) return FB_OK;
    if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode)) return FB_OK;
    if (fb_changed_ms(&about) > batch->before) return FB_OK;
    bool is_known = true;
    fb_status status = fb_watch_check(batch->watch, error);
    if (!status) status = has_row(batch->store, item->digest, &is_known, error);
    if (!status && !is_known) batch->count++;
    return status;
}

/* Opens a folder within another; *out stays NULL when it is not a folder. */
static fb_status open_folder(int parent, const char *name, DIR **out, fb_error *error) {
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (folder < 0) return errno == ENOTDIR ? FB_OK : fb_fail_file(error, "list the blobs", errno);
    *out = fdopendir(folder);
    if (*out) return FB_OK;
    fb_status status = fb_fail_file(error, "list the blobs", errno);
    close(folder);
    return status;
}

/* Goes through the folder `name` within `parent`; `depth` folders further down are files. */
static fb_status collect_files(removal *batch, int parent, const char *name, int depth, bool is_dry, fb_garbage *garbage,
                               fb_error *error) {
    DIR *listing = NULL;
    fb_status status = open_folder(parent, name, &listing, error);
    if (!listing) return status;
    for (struct dirent *entry; !status && (entry = readdir(listing));) {
        if (entry->d_name[0] == '.') continue;
        if (depth) status = collect_files(batch, dirfd(listing), entry->d_name, depth - 1, is_dry, garbage, error);
        else status = look_at_file(batch, dirfd(listing), entry->d_name, error);
        if (!status && batch->count == BATCH) status = remove_batch(batch, is_dry, garbage, error);
    }
    closedir(listing);
    return status;
}

/* ---- objects without rows ---- */

typedef struct sweep {
    removal *batch;
    bool is_dry;
    fb_garbage *garbage;
} sweep;

static fb_status look_at_object(void *context, const char *key, int64_t changed, fb_error *error) {
    sweep *s = context;
    removal *batch = s->batch;
    candidate *item = &batch->items[batch->count];
    *item = (candidate){.is_object = true};
    if (!fb_bucket_digest_of(key, item->digest) || changed > batch->before) return FB_OK;
    bool is_known = true;
    fb_status status = fb_watch_check(batch->watch, error);
    if (!status) status = has_row(batch->store, item->digest, &is_known, error);
    if (!status && !is_known) batch->count++;
    return !status && batch->count == BATCH ? remove_batch(batch, s->is_dry, s->garbage, error) : status;
}

/* Parts of an upload whose process ended; not of one that is being sent, which has the claim. */
static fb_status look_at_parts(void *context, const char *key, const char *upload, int64_t begun, fb_error *error) {
    sweep *s = context;
    fb_bucket *bucket = s->batch->store->files.bucket;
    char digest[FB_ID_LENGTH + 1];
    fb_claim claim;
    if (!fb_bucket_digest_of(key, digest) || begun > s->batch->before) return FB_OK;
    bool is_had = false;
    fb_status status = fb_object_try_claim(s->batch->store, digest, &claim, &is_had, error);
    if (status || !is_had) return status;
    status = s->is_dry ? FB_OK : fb_s3_parts_abort(fb_bucket_s3(bucket), key, upload, error);
    fb_object_release(s->batch->store, &claim);
    if (!status) s->garbage->uploads++;
    return status;
}

static fb_status collect_objects(removal *batch, bool is_dry, fb_garbage *garbage, fb_error *error) {
    fb_bucket *bucket = batch->store->files.bucket;
    sweep all = {.batch = batch, .is_dry = is_dry, .garbage = garbage};
    if (!bucket || !fb_bucket_is_owned(bucket)) return FB_OK;
    fb_status status = fb_s3_list(fb_bucket_s3(bucket), FB_BLOBS_FOLDER "/", look_at_object, &all, error);
    if (status) return status;
    return fb_s3_parts_list(fb_bucket_s3(bucket), FB_BLOBS_FOLDER "/", look_at_parts, &all, error);
}

/* ---- uploads ---- */

typedef struct others {
    const fb_store_actor *by;
    int64_t now;
    uint64_t uploads, files;
} others;

static fb_status audit_count(fb_connection *connection, const others *gone, uint64_t count, const char *what, fb_error *error) {
    char outcome[60];
    if (!count) return FB_OK;
    snprintf(outcome, sizeof outcome, "%" PRIu64 " %s", count, what);
    return fb_write_audit(connection, gone->by, gone->now, "gc", what, outcome, error);
}

static fb_status write_others(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const others *gone = argument;
    fb_status status = audit_count(connection, gone, gone->uploads, "uploads", error);
    return status ? status : audit_count(connection, gone, gone->files, "files", error);
}

/* For what has no row: its entry is written after it is gone. */
static fb_status audit_others(fb_store *store, const removal *batch, const fb_garbage *garbage, fb_error *error) {
    others gone = {.by = batch->by, .now = batch->now, .uploads = garbage->uploads, .files = garbage->files};
    return gone.uploads || gone.files ? fb_writer_make_room(&store->writer, write_others, NULL, &gone, error) : FB_OK;
}

fb_status fb_store_collect(fb_store *store, int64_t grace_ms, bool is_dry, const fb_store_actor *by, const fb_watch *watch,
                           fb_garbage *out, fb_error *error) {
    int64_t now = store->config.now_ms();
    removal batch = {
        .store = store, .action = "gc", .by = by, .watch = watch, .now = now, .before = now - (grace_ms > 0 ? grace_ms : 0)};
    fb_garbage garbage = {0};
    bool is_owned = store->files.bucket && fb_bucket_is_owned(store->files.bucket);
    fb_status status = is_owned ? fb_bucket_check_owner(store->files.bucket, error) : FB_OK;
    if (!status) status = collect_rows(&batch, is_dry, &garbage, error);
    if (!status) status = collect_files(&batch, store->files.folder, FB_BLOBS_FOLDER, 2, is_dry, &garbage, error);
    if (!status) status = remove_batch(&batch, is_dry, &garbage, error);
    if (!status) status = collect_objects(&batch, is_dry, &garbage, error);
    if (!status) status = remove_batch(&batch, is_dry, &garbage, error);
    if (status) return status;
    garbage.uploads += fb_uploads_collect(store, batch.before, is_dry);
    if (!is_dry) status = audit_others(store, &batch, &garbage, error);
    if (status) return status;
    fb_totals totals = {0};
    status = fb_store_totals(store, &totals, error);
    if (status) return status;
    garbage.kept = (uint64_t)totals.blobs - (is_dry ? garbage.blobs : 0);
    garbage.kept_bytes = (uint64_t)totals.blob_bytes - (is_dry ? garbage.bytes : 0);
    *out = garbage;
    return FB_OK;
}

fb_status fb_blob_withdraw(fb_store *store, const char *digest, int64_t put, const fb_store_actor *by, fb_error *error) {
    removal batch = {.store = store, .action = "blob-withdraw", .by = by, .now = store->config.now_ms(), .before = put};
    fb_garbage garbage = {0};
    fb_blob *blob = NULL;
    candidate *item = &batch.items[0];
    fb_connection *connection = NULL;
    fb_status status = fb_blob_open(store, digest, &blob, error);
    if (status == FB_NOT_FOUND) return FB_OK;
    if (status) return status;
    item->size = (int64_t)fb_blob_size(blob);
    fb_blob_close(blob);
    status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    snprintf(item->digest, sizeof item->digest, "%s", digest);
    status = fb_find_blob(connection, digest, &item->key, error);
    fb_readers_give_back(&store->readers, connection);
    batch.count = !status && item->key;
    return status ? status : remove_batch(&batch, false, &garbage, error);
}
