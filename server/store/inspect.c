#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/blobs/files.h"
#include "server/database/backend.h"
#include "server/database/query.h"
#include "server/store/backup.h"
#include "server/store/store.h"

/* ---- files -------------------------------------------------------------------------------------------------------------- */

static bool look_at(const char *folder, const char *suffix, struct stat *about) {
    char *path = fb_path_with(folder, suffix);
    bool is_there = path && stat(path, about) == 0;
    free(path);
    return is_there;
}

static void look_at_files(const char *folder, fb_inspection *out) {
    struct stat about;
    int lock = -1;
    fb_error error = {0};
    if (look_at(folder, "/foldback.sqlite", &about)) out->database_bytes = (uint64_t)about.st_size;
    if (look_at(folder, "/foldback.sqlite-wal", &about)) out->log_bytes = (uint64_t)about.st_size;
    if (look_at(folder, "/" FB_BACKED_UP_FILE, &about)) out->backed_up = fb_changed_ms(&about);
    out->has_bucket = fb_store_has_bucket(folder);
    out->is_held = fb_folder_lock(folder, false, &lock, &error) == FB_BUSY;
    if (lock >= 0) close(lock);
}

/* ---- rows --------------------------------------------------------------------------------------------------------------- */

static fb_status check_pages(fb_connection *connection, fb_inspection *out, fb_error *error) {
    const char *pages = connection->backend->glance_at_pages;
    if (!pages) return FB_OK;
    fb_query query = fb_query_begin(connection, pages, error);
    while (fb_query_row(&query)) {
        const char *line = fb_column_text(&query, 0);
        if (strcmp(line, "ok") == 0) continue;
        if (!out->damages++) fb_copy_text(out->damage, sizeof out->damage, line);
    }
    return fb_query_end(&query);
}

static fb_status count_rows(fb_connection *connection, fb_inspection *out, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT (SELECT count(*) FROM graphs), (SELECT count(*) FROM runs), "
                                    "(SELECT count(*) FROM blobs), (SELECT CAST(sum(size) AS BIGINT) FROM blobs), "
                                    "(SELECT max(created) FROM graphs), "
                                    "(SELECT max(created) FROM runs), (SELECT max(created) FROM jobs), "
                                    "(SELECT count(*) FROM jobs WHERE state = 'failed')",
                                    error);
    if (fb_query_row(&query)) {
        int64_t *const numbers[] = {&out->graphs, &out->runs, &out->blobs, &out->blob_bytes};
        for (int i = 0; i < 4; i++) *numbers[i] = fb_column_int(&query, i);
        for (int i = 4; i < 7; i++)
            if (fb_column_int(&query, i) > out->newest) out->newest = fb_column_int(&query, i);
        out->failed_job_count = fb_column_int(&query, 7);
    }
    return fb_query_end(&query);
}

static fb_status read_failed_jobs(fb_connection *connection, fb_inspection *out, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT id, method, target, status, finished FROM jobs WHERE state = 'failed' "
                                    "ORDER BY finished DESC, key DESC LIMIT ?",
                                    error);
    fb_bind_int(&query, FB_INSPECTED_JOBS);
    for (fb_failed_job *job = out->failed_jobs; job < out->failed_jobs + FB_INSPECTED_JOBS && fb_query_row(&query); job++) {
        fb_copy_text(job->id, sizeof job->id, fb_column_text(&query, 0));
        fb_copy_text(job->method, sizeof job->method, fb_column_text(&query, 1));
        fb_copy_text(job->target, sizeof job->target, fb_column_text(&query, 2));
        job->status = (int)fb_column_int(&query, 3);
        job->finished = fb_column_int(&query, 4);
    }
    return fb_query_end(&query);
}

/* Pages first: of a damaged database everything else may be wrong. */
static fb_status read_rows(fb_connection *connection, fb_inspection *out, fb_error *error) {
    fb_status status = fb_schema_read(connection, &out->schema, error);
    if (status) return status;
    out->is_read = true;
    status = check_pages(connection, out, error);
    if (status || out->damages || out->schema != out->our_schema) return status;
    status = count_rows(connection, out, error);
    return status ? status : read_failed_jobs(connection, out, error);
}

static fb_status inspect_database(const char *where, fb_access access, fb_inspection *out, fb_error *error) {
    fb_connection connection = {0};
    fb_status status = fb_connection_open(&connection, where, access, error);
    if (!status) status = read_rows(&connection, out, error);
    fb_connection_close(&connection);
    return status;
}

static fb_status inspect_file(const char *folder, fb_inspection *out, fb_error *error) {
    struct stat about;
    if (!look_at(folder, "/foldback.sqlite", &about))
        return fb_fail(error, FB_NOT_FOUND, "no-store", NULL, "there is no store in %s", folder);
    fb_access access = FB_READS;
    int lock = -1;
    fb_status status = fb_folder_look(folder, &access, &lock, error);
    char *path = fb_path_with(folder, "/foldback.sqlite");
    if (!status) status = path ? inspect_database(path, access, out, error) : fb_fail_memory(error);
    free(path);
    if (lock >= 0) close(lock);
    return status;
}

fb_status fb_store_inspect(const char *folder, const char *database, fb_inspection *out, fb_error *error) {
    *out = (fb_inspection){.our_schema = fb_schema_newest()};
    look_at_files(folder, out);
    out->url = database ? strdup(database) : fb_store_url(folder);
    return out->url ? inspect_database(out->url, FB_READS, out, error) : inspect_file(folder, out, error);
}
