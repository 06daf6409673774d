#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/backup.h"
#include "server/store/blobs.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/tables.h"
#include "server/store/uploads.h"

#define BLOCK ((size_t)1 << 20)

/* The primary key of a row; no value for a place before the first. */
typedef struct place {
    bool is_set;
    struct {
        int64_t number;
        char *text; /* malloc'ed, of a column of text */
    } values[FB_KEYS_MAX];
} place;

typedef struct copy {
    fb_store *from, *to;
    fb_connection *source; /* one snapshot for all rows */
    fb_copy_progress *progress;
    void *context;
    fb_store_copied figures;
} copy;

static void tell(const copy *work, const char *what, uint64_t done, uint64_t total) {
    if (work->progress) work->progress(work->context, what, done, total);
}

/* ---- places in a table -------------------------------------------------------------------------------------------------- */

static void free_place(place *of) {
    for (size_t i = 0; i < FB_KEYS_MAX; i++) free(of->values[i].text);
    *of = (place){0};
}

/* From the columns of a row, or of its key alone. */
static fb_status take_place(const fb_sql_table *of, fb_query *query, bool is_key, place *out, fb_error *error) {
    free_place(out);
    out->is_set = true;
    for (size_t i = 0; i < of->key_count; i++) {
        int at = (int)(is_key ? i : of->key[i]);
        if (of->columns[of->key[i]].type == 'I') out->values[i].number = fb_column_int(query, at);
        else if (!(out->values[i].text = strdup(fb_column_text(query, at)))) return fb_fail_memory(error);
    }
    return FB_OK;
}

static void describe_place(const fb_sql_table *of, const place *at, char *out, size_t space) {
    size_t size = 0;
    for (size_t i = 0; i < of->key_count && size < space; i++) {
        const char *comma = i ? ", " : "";
        int wrote = at->values[i].text ? snprintf(out + size, space - size, "%s%s", comma, at->values[i].text)
                                       : snprintf(out + size, space - size, "%s%lld", comma, (long long)at->values[i].number);
        size += (size_t)wrote;
    }
}

static fb_query begin_rows(fb_connection *connection, const fb_sql_table *of, const place *after, fb_error *error) {
    fb_query query = fb_query_begin(connection, after->is_set ? of->next : of->first, error);
    for (size_t i = 0; i < of->key_count && after->is_set; i++) {
        if (after->values[i].text) fb_bind_text(&query, after->values[i].text);
        else fb_bind_int(&query, after->values[i].number);
    }
    return query;
}

static fb_status find_last(fb_store *store, const fb_sql_table *of, place *out, fb_error *error) {
    fb_query query = fb_read_begin(&store->readers, of->last, error);
    if (fb_query_row(&query)) query.status = take_place(of, &query, true, out, error);
    return fb_read_end(&store->readers, &query);
}

/* ---- rows --------------------------------------------------------------------------------------------------------------- */

static void bind_value(fb_query *to, const fb_sql_column *of, fb_query *from, int at) {
    size_t size = 0;
    if (fb_column_is_null(from, at)) {
        fb_bind_text(to, NULL);
    } else if (of->type == 'I') {
        fb_bind_int(to, fb_column_int(from, at));
    } else if (of->type == 'T') {
        fb_bind_text(to, fb_column_text(from, at));
    } else {
        const void *bytes = fb_column_bytes(from, at, &size);
        fb_bind_bytes(to, bytes ? bytes : "", size);
    }
}

/* Rows on their way to the writer. */
typedef struct rows_write {
    const copy *work;
    const fb_sql_table *of;
    const place *after;
    place last;
    size_t count;
} rows_write;

static fb_status write_rows(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    rows_write *write = argument;
    const fb_sql_table *of = write->of;
    write->count = 0;
    fb_query from = begin_rows(write->work->source, of, write->after, error);
    fb_query to = fb_query_begin(connection, of->insert, error);
    while (!to.status && fb_query_row(&from)) {
        for (size_t i = 0; i < of->count; i++) bind_value(&to, &of->columns[i], &from, (int)i);
        fb_query_row(&to);
        fb_query_again(&to);
        from.status = take_place(of, &from, false, &write->last, error);
        write->count++;
    }
    fb_status written = fb_query_end(&to), status = fb_query_end(&from);
    return status ? status : written;
}

static fb_status copy_rows(copy *work, const fb_sql_table *of, fb_error *error) {
    place at = {0};
    fb_status status = find_last(work->to, of, &at, error);
    for (bool is_over = false; !status && !is_over;) {
        rows_write write = {.work = work, .of = of, .after = &at};
        status = fb_writer_run(&work->to->writer, write_rows, &write, error);
        is_over = write.count < of->rows_at_once;
        work->figures.copied_rows += status ? 0 : write.count;
        if (!status && write.count) {
            free_place(&at);
            at = write.last;
        } else {
            free_place(&write.last);
        }
        tell(work, of->name, work->figures.copied_rows, 0);
    }
    free_place(&at);
    return status;
}

/* ---- counters ----------------------------------------------------------------------------------------------------------- */

/* The column of a table whose keys the database counts; NULL for none. */
static const char *counted_column(const fb_sql_table *of) {
    bool is_counted = of->key_count == 1 && of->columns[of->key[0]].type == 'I';
    return is_counted ? of->columns[of->key[0]].name : NULL;
}

/* The last key that the source gave, also to a row that has gone. */
static fb_status find_counter(copy *work, const fb_sql_table *of, int64_t *last, fb_error *error) {
    int64_t highest = 0;
    fb_status status = fb_read_counter(work->source, of->name, counted_column(of), last, error);
    fb_query query = fb_query_begin(work->source, of->last, error);
    fb_status read = fb_read_key(&query, &highest);
    if (highest > *last) *last = highest;
    return status ? status : read;
}

typedef struct counter_write {
    const fb_sql_table *of;
    int64_t last;
} counter_write;

static fb_status write_counter(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const counter_write *write = argument;
    return fb_set_counter(connection, write->of->name, counted_column(write->of), write->last, error);
}

static fb_status copy_counter(copy *work, const fb_sql_table *of, fb_error *error) {
    counter_write write = {.of = of};
    if (!counted_column(of)) return FB_OK;
    fb_status status = find_counter(work, of, &write.last, error);
    return status || !write.last ? status : fb_writer_run(&work->to->writer, write_counter, &write, error);
}

/* ---- large blobs -------------------------------------------------------------------------------------------------------- */

static fb_status is_in_target(const copy *work, const char *digest, uint64_t size, bool *is_there, fb_error *error) {
    fb_error met = {0};
    if (!work->to->files.bucket) {
        *is_there = fb_blob_file_is_there(work->to->files.folder, digest, size);
        return FB_OK;
    }
    fb_status status = fb_bucket_has(work->to->files.bucket, digest, size, is_there, &met);
    if (status && strcmp(met.code, "store-corrupt") == 0) *is_there = false; /* it is put again */
    else if (status) return fb_fail(error, met.status, met.code, NULL, "%s", met.message);
    return FB_OK;
}

static fb_status read_file(const copy *work, const char *digest, fb_upload *to, fb_error *error) {
    char *block = malloc(BLOCK);
    fb_blob *blob = NULL;
    fb_status status = block ? fb_blob_open(work->from, digest, &blob, error) : fb_fail_memory(error);
    for (uint64_t at = 0; !status && at < fb_blob_size(blob); at += BLOCK) {
        uint64_t left = fb_blob_size(blob) - at;
        size_t size = left < BLOCK ? (size_t)left : BLOCK;
        status = fb_blob_read(blob, at, block, size, error);
        if (!status) status = fb_upload_write(to, block, size, error);
    }
    fb_blob_close(blob);
    free(block);
    return status;
}

/* Its digest is right, or this fails. */
static fb_status read_source(const copy *work, const char *digest, uint64_t size, fb_upload *to, fb_error *error) {
    bool is_file = !work->from->files.bucket || fb_blob_file_is_there(work->from->files.folder, digest, size);
    return is_file ? read_file(work, digest, to, error)
                   : fb_bucket_fetch(work->from->files.bucket, digest, to->file, size, error);
}

static fb_status put_target(const copy *work, const char *digest, uint64_t size, fb_upload *from, fb_error *error) {
    bool is_put = false;
    fb_store *to = work->to;
    if (to->files.bucket) return fb_bucket_put(to->files.bucket, digest, from->file, size, false, error);
    if (fsync(from->file) != 0) return fb_fail(error, FB_IO, "store-failed", NULL, "the store cannot sync a blob");
    return fb_blob_file_put(to->files.folder, from->id, digest, &is_put, error);
}

static fb_status copy_blob(copy *work, const char *digest, uint64_t size, fb_error *error) {
    bool is_there = false;
    fb_error met = {0};
    fb_upload *upload = NULL;
    fb_status status = is_in_target(work, digest, size, &is_there, error);
    if (status || is_there) return status;
    status = fb_upload_new(work->to, false, &upload, &met);
    if (!status) status = read_source(work, digest, size, upload, &met);
    if (!status) status = put_target(work, digest, size, upload, &met);
    fb_upload_close(upload, true);
    if (status) return fb_fail(error, status, met.code, NULL, "%s (blob %s)", met.message, digest);
    work->figures.copied_blobs++;
    return FB_OK;
}

/* Calls `step` for every large blob of the source. */
static fb_status for_blobs(copy *work, const char *what, fb_status (*step)(copy *, const char *, uint64_t, fb_error *),
                           fb_error *error) {
    fb_connection *connection = NULL;
    uint64_t done = 0;
    int64_t total = 0;
    fb_status status = fb_readers_take(&work->from->readers, &connection, error);
    if (status) return status;
    fb_query count = fb_query_begin(connection, "SELECT count(*) FROM blobs WHERE bytes IS NULL", error);
    status = fb_read_key(&count, &total);
    fb_query query = fb_query_begin(connection, "SELECT digest, size FROM blobs WHERE bytes IS NULL ORDER BY key", error);
    while (!status && fb_query_row(&query)) {
        status = step(work, fb_column_text(&query, 0), (uint64_t)fb_column_int(&query, 1), error);
        tell(work, what, ++done, (uint64_t)total);
    }
    fb_status ended = fb_query_end(&query);
    fb_readers_give_back(&work->from->readers, connection);
    return status ? status : ended;
}

/* ---- comparing ---------------------------------------------------------------------------------------------------------- */

static bool is_same_value(const fb_sql_column *of, fb_query *a, fb_query *b, int at) {
    bool is_null = fb_column_is_null(a, at);
    if (is_null != fb_column_is_null(b, at)) return false;
    if (is_null) return true;
    if (of->type == 'I') return fb_column_int(a, at) == fb_column_int(b, at);
    if (of->type == 'T') return strcmp(fb_column_text(a, at), fb_column_text(b, at)) == 0;
    size_t size_a = 0, size_b = 0;
    const void *bytes_a = fb_column_bytes(a, at, &size_a), *bytes_b = fb_column_bytes(b, at, &size_b);
    return size_a == size_b && (!size_a || memcmp(bytes_a, bytes_b, size_a) == 0);
}

static fb_status fail_differs(const fb_sql_table *of, const place *at, fb_error *error) {
    char key[200] = "the first";
    if (at->is_set) describe_place(of, at, key, sizeof key);
    return fb_fail(error, FB_CONFLICT, "copy-differs", NULL,
                   "the copy differs from its source in the table %s, at the row of key %s or the next: the source was changed "
                   "since the copy began; begin again with an empty target",
                   of->name, key);
}

/* The rows after `*at`, up to as many as one query gives. */
static fb_status compare_some(copy *work, fb_connection *target, const fb_sql_table *of, place *at, size_t *count,
                              fb_error *error) {
    fb_status same = FB_OK;
    place before = *at;
    *at = (place){0};
    fb_query a = begin_rows(work->source, of, &before, error), b = begin_rows(target, of, &before, error);
    for (*count = 0; !same; ++*count) {
        bool has_a = fb_query_row(&a), has_b = fb_query_row(&b);
        if (a.status || b.status || (!has_a && !has_b)) break;
        bool is_same = has_a && has_b;
        for (size_t i = 0; i < of->count && is_same; i++) is_same = is_same_value(&of->columns[i], &a, &b, (int)i);
        if (has_a) a.status = take_place(of, &a, false, at, error);
        if (!a.status && !is_same) same = fail_differs(of, at, error);
    }
    fb_status status_a = fb_query_end(&a), status_b = fb_query_end(&b);
    free_place(&before);
    return status_a ? status_a : status_b ? status_b : same;
}

static fb_status compare_rows(copy *work, const fb_sql_table *of, fb_error *error) {
    place at = {0};
    fb_connection *target = NULL;
    fb_status status = fb_readers_take(&work->to->readers, &target, error);
    if (status) return status;
    for (size_t count = 1; !status && count;) {
        status = compare_some(work, target, of, &at, &count, error);
        work->figures.rows += count;
        tell(work, "rows compared", work->figures.rows, 0);
    }
    fb_readers_give_back(&work->to->readers, target);
    free_place(&at);
    return status;
}

static fb_status read_blob(copy *work, const char *digest, uint64_t size, int file, fb_error *error) {
    if (work->to->files.bucket) return fb_bucket_fetch(work->to->files.bucket, digest, file, size, error);
    fb_blob *blob = NULL;
    fb_status status = fb_blob_open(work->to, digest, &blob, error);
    if (!status) status = fb_blob_verify(blob, error);
    fb_blob_close(blob);
    return status;
}

static fb_status compare_blob(copy *work, const char *digest, uint64_t size, fb_error *error) {
    int file = -1;
    fb_error met = {0};
    fb_status status = work->to->files.bucket ? fb_store_scratch(work->to, &file, &met) : FB_OK;
    if (!status) status = read_blob(work, digest, size, file, &met);
    if (file >= 0) close(file);
    if (status) return fb_fail(error, status, met.code, NULL, "%s (blob %s of the copy)", met.message, digest);
    work->figures.blobs++;
    work->figures.blob_bytes += size;
    return FB_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

/* The target's: both have the same, and the source's may have been made in any order, if it was restored from a dump. */
static fb_status read_target_tables(copy *work, fb_buffer *tables, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&work->to->readers, &connection, error);
    if (status) return status;
    status = fb_tables_read(connection, tables, error);
    fb_readers_give_back(&work->to->readers, connection);
    return status;
}

static fb_status copy_all(copy *work, fb_error *error) {
    fb_buffer tables = {0};
    fb_status status = read_target_tables(work, &tables, error);
    const fb_sql_table *all = (const fb_sql_table *)(const void *)tables.data;
    size_t count = tables.size / sizeof *all;
    if (!status) status = for_blobs(work, "large blobs", copy_blob, error); /* a blob's bytes are there before its row */
    for (size_t i = 0; i < count && !status; i++) status = copy_rows(work, &all[i], error);
    for (size_t i = 0; i < count && !status; i++) status = copy_counter(work, &all[i], error);
    for (size_t i = 0; i < count && !status; i++) status = compare_rows(work, &all[i], error);
    if (!status) status = for_blobs(work, "large blobs compared", compare_blob, error);
    if (!status) status = fb_store_end_filling(work->to, error);
    work->figures.tables = count;
    fb_tables_free(&tables);
    return status;
}

static fb_status copy_between(copy *work, fb_error *error) {
    fb_status status = fb_readers_take(&work->from->readers, &work->source, error);
    if (status) return status;
    status = copy_all(work, error);
    fb_readers_give_back(&work->from->readers, work->source);
    return status;
}

/* The source first: the target is marked as its copy only when there is something to copy. */
fb_status fb_store_copy(const fb_copy_side *from, const fb_copy_side *to, fb_copy_progress *progress, void *context,
                        fb_store_copied *out, fb_error *error) {
    copy work = {.progress = progress, .context = context};
    char *migrated = fb_path_with(to->folder, ".source.sqlite");
    const fb_store_config source = {.database = from->database, .readers = 4, .migrated = migrated};
    const fb_store_config target = {.database = to->database, .readers = 2, .bucket = to->bucket, .filled_from = from->name};
    fb_status status = migrated ? fb_store_open(from->folder, &source, &work.from, error) : fb_fail_memory(error);
    if (!status) status = fb_store_open(to->folder, &target, &work.to, error);
    if (!status) status = copy_between(&work, error);
    fb_store_close(work.to);
    fb_store_close(work.from);
    if (migrated) fb_database_remove(migrated);
    free(migrated);
    if (!status) *out = work.figures;
    return status;
}
