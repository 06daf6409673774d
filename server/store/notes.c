/* Small texts of the store as a whole, and which database it is: a file of the data folder, or a server. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/blobs/files.h"
#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/tables.h"

#define NOTE_MAX 8192

/* ---- in files ----------------------------------------------------------------------------------------------------------- */

static fb_status read_file(int folder, const char *name, char **text, fb_error *error) {
    *text = NULL;
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return errno == ENOENT ? FB_OK : fb_fail_file(error, "open a note", errno);
    char *found = calloc(1, NOTE_MAX + 1);
    ssize_t size = found ? read(file, found, NOTE_MAX) : 0;
    int reason = errno;
    close(file);
    if (found && size >= 0) {
        *text = found;
        return FB_OK;
    }
    free(found);
    return found ? fb_fail_file(error, "read a note", reason) : fb_fail_memory(error);
}

/* ---- in the database ---------------------------------------------------------------------------------------------------- */

static fb_status read_row(fb_connection *connection, const char *name, char **text, fb_error *error) {
    *text = NULL;
    fb_query query = fb_query_begin(connection, "SELECT text FROM notes WHERE name = ?", error);
    fb_bind_text(&query, name);
    if (fb_query_row(&query) && !(*text = strdup(fb_column_text(&query, 0)))) query.status = fb_fail_memory(error);
    return fb_query_end(&query);
}

static fb_status write_row(fb_connection *connection, const char *name, const char *text, fb_error *error) {
    fb_query query = fb_query_begin(
        connection, "INSERT INTO notes (name, text) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET text = excluded.text",
        error);
    fb_bind_text(&query, name);
    fb_bind_text(&query, text);
    return fb_query_run(&query);
}

/* ---- either ------------------------------------------------------------------------------------------------------------- */

fb_status fb_note_read(fb_store *store, const char *name, char **text, fb_error *error) {
    if (!fb_store_is_on_server(store)) return read_file(store->files.folder, name, text, error);
    return read_row(&store->writer.connection, name, text, error);
}

fb_status fb_note_write(fb_store *store, const char *name, const char *text, fb_error *error) {
    if (!fb_store_is_on_server(store)) return fb_folder_write(store->files.folder, name, text, strlen(text), error);
    fb_connection *connection = &store->writer.connection;
    fb_status status = fb_begin(connection, true, error);
    if (!status) status = write_row(connection, name, text, error);
    if (!status) status = fb_commit(connection, error);
    if (status) fb_roll_back(connection);
    return status;
}

/* ---- which database ----------------------------------------------------------------------------------------------------- */

#define STORE_NOTE "store" /* its id, in a database on a server */

/* A line of the note: the part after "name "; "" when it is missing. */
static void take_line(const char *text, const char *name, char *to, size_t space) {
    size_t length = strlen(name);
    *to = '\0';
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, name, length) && line[length] == ' ')
            snprintf(to, space, "%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
}

char *fb_store_url(const char *folder) {
    char url[NOTE_MAX] = "", *text = NULL;
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0 && !read_file(descriptor, FB_STORE_FILE, &text, NULL)) take_line(text, "url", url, sizeof url);
    if (descriptor >= 0) close(descriptor);
    free(text);
    return *url ? strdup(url) : NULL;
}

#define COPY_NOTE "copy-of"

/* The store that this is an unfinished copy of, malloc'ed; NULL = not a copy. */
static fb_status read_filling(fb_connection *connection, char **from, fb_error *error) {
    return read_row(connection, COPY_NOTE, from, error);
}

fb_status fb_store_check_filled(fb_connection *connection, fb_error *error) {
    char *from = NULL;
    fb_status status = read_filling(connection, &from, error);
    if (!status && from)
        status = fb_fail(error, FB_CONFLICT, "copy-unfinished", NULL,
                         "the store is an unfinished copy of %s: run foldback db copy again to complete it", from);
    free(from);
    return status;
}

fb_status fb_store_begin_filling(fb_store *store, fb_error *error) {
    fb_connection *connection = &store->writer.connection;
    fb_status status = fb_begin(connection, true, error);
    if (!status) status = write_row(connection, COPY_NOTE, store->config.filled_from, error);
    if (!status) status = fb_commit(connection, error);
    if (status) fb_roll_back(connection);
    return status;
}

static fb_status delete_copy_note(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)argument, (void)added;
    fb_query delete = fb_query_begin(connection, "DELETE FROM notes WHERE name = '" COPY_NOTE "'", error);
    return fb_query_run(&delete);
}

fb_status fb_store_end_filling(fb_store *store, fb_error *error) {
    return fb_writer_run(&store->writer, delete_copy_note, NULL, error);
}

static fb_status fail_not_empty(const fb_store *store, fb_error *error) {
    return fb_fail(error, FB_CONFLICT, "store-not-empty", NULL,
                   "%s has data of its own: name an empty database, or a new folder", store->path);
}

static fb_status check_empty(fb_store *store, fb_connection *connection, fb_error *error) {
    fb_buffer tables = {0};
    fb_status status = fb_tables_read(connection, &tables, error);
    const fb_sql_table *all = (const fb_sql_table *)(const void *)tables.data;
    size_t count = tables.size / sizeof *all;
    for (size_t i = 0; i < count && !status; i++) {
        fb_query query = fb_query_begin(connection, all[i].last, error);
        bool has_row = fb_query_row(&query);
        status = fb_query_end(&query);
        if (!status && has_row) status = fail_not_empty(store, error);
    }
    fb_tables_free(&tables);
    return status;
}

fb_status fb_store_may_be_filled(fb_store *store, fb_error *error) {
    fb_connection *connection = &store->writer.connection;
    int64_t version = 0;
    char *copied = NULL;
    bool is_alone = false;
    fb_status status = fb_store_is_on_server(store) ? fb_hold(connection, false, &is_alone, error) : FB_OK;
    if (!status) status = fb_schema_read(connection, &version, error);
    if (status || !version) return status;
    /* A start that was killed may have left some of the migrations to be done. */
    if (!fb_schema_is_newest(connection, NULL)) status = read_filling(connection, &copied, error);
    if (!status && !copied) status = check_empty(store, connection, error);
    if (!status && copied && strcmp(copied, store->config.filled_from) != 0)
        status = fb_fail(error, FB_CONFLICT, "copy-unfinished", NULL, "%s is an unfinished copy of %s, not of %s", store->path,
                         copied, store->config.filled_from);
    free(copied);
    return status;
}

/* The id of the store in the database; a new one for a new store. */
static fb_status find_id(fb_store *store, char id[FB_ULID_LENGTH + 1], fb_error *error) {
    fb_connection *connection = &store->writer.connection;
    char *found = NULL;
    fb_status status = fb_begin(connection, true, error);
    if (!status) status = read_row(connection, STORE_NOTE, &found, error);
    if (!status && !found) {
        status = fb_ulid_next(&store->ulids, store->config.now_ms(), id, error);
        if (!status) status = write_row(connection, STORE_NOTE, id, error);
    }
    if (!status) status = fb_commit(connection, error);
    if (status) fb_roll_back(connection);
    if (found) snprintf(id, FB_ULID_LENGTH + 1, "%s", found);
    free(found);
    return status;
}

/* Reads the folder's note: the store's id, its URL, and the folder's own id. */
static fb_status read_folder_note(fb_store *store, char id[FB_ULID_LENGTH + 1], char url[NOTE_MAX], fb_error *error) {
    char *text = NULL;
    fb_status status = read_file(store->files.folder, FB_STORE_FILE, &text, error);
    take_line(text, "id", id, FB_ULID_LENGTH + 1);
    take_line(text, "url", url, NOTE_MAX);
    take_line(text, "folder", store->folder_id, sizeof store->folder_id);
    free(text);
    return status;
}

fb_status fb_store_recognise(fb_store *store, fb_error *error) {
    char id[FB_ULID_LENGTH + 1], url[NOTE_MAX];
    return read_folder_note(store, id, url, error);
}

fb_status fb_store_identify(fb_store *store, fb_error *error) {
    char id[FB_ULID_LENGTH + 1] = "", was[FB_ULID_LENGTH + 1] = "", url[NOTE_MAX] = "", now[NOTE_MAX];
    fb_status status = find_id(store, id, error);
    if (!status) status = read_folder_note(store, was, url, error);
    if (status) return status;
    if (*was && strcmp(was, id) != 0)
        return fb_fail(error, FB_CONFLICT, "store-elsewhere", NULL,
                       "the data folder belongs to the store in %s, and --store names another one: use another folder", url);
    if (!*store->folder_id) status = fb_ulid_next(&store->ulids, store->config.now_ms(), store->folder_id, error);
    snprintf(now, sizeof now, "url %s\nid %s\nfolder %s\n", store->path, id, store->folder_id);
    bool is_same = *was && strcmp(url, store->path) == 0;
    return status || is_same ? status : fb_folder_write(store->files.folder, FB_STORE_FILE, now, strlen(now), error);
}

/* ---- where the blobs of a store on a server are -------------------------------------------------------------------------- */

#define FOLDER_NOTE "blobs-in-folder" /* the id of the data folder that has them, if a folder has */

static fb_status count_files(fb_connection *connection, int64_t *count, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT count(*) FROM blobs WHERE bytes IS NULL", error);
    return fb_read_key(&query, count);
}

static fb_status find_blobs(fb_store *store, bool *is_ours, fb_error *error) {
    char *owner = NULL;
    int64_t files = 0;
    fb_status status = fb_note_read(store, FOLDER_NOTE, &owner, error);
    if (!status) status = count_files(&store->writer.connection, &files, error);
    bool is_free = !owner || !files;
    *is_ours = owner && !strcmp(owner, store->folder_id);
    free(owner);
    if (status || *is_ours || is_free) return status;
    return fb_fail(error, FB_CONFLICT, "blobs-elsewhere", NULL,
                   "the store has %lld large blobs in another data folder: use that one, or keep blobs in a bucket (--blobs)",
                   (long long)files);
}

fb_status fb_store_claim_blobs(fb_store *store, fb_error *error) {
    bool is_ours = true;
    fb_status status = store->files.bucket ? FB_OK : find_blobs(store, &is_ours, error);
    return status || is_ours ? status : fb_note_write(store, FOLDER_NOTE, store->folder_id, error);
}

fb_status fb_store_find_blobs(fb_store *store, fb_error *error) {
    bool is_ours;
    return store->files.bucket ? FB_OK : find_blobs(store, &is_ours, error);
}

fb_status fb_store_check_no_files(fb_store *store, fb_error *error) {
    int64_t files = 0;
    fb_status status = fb_store_is_on_server(store) ? count_files(&store->writer.connection, &files, error) : FB_OK;
    if (status || !files) return status;
    return fb_fail(error, FB_CONFLICT, "blobs-elsewhere", NULL,
                   "the store has %lld large blobs in a data folder, where other replicas do not see them: leave out --blobs, "
                   "or move it to "
                   "a new store with foldback db copy",
                   (long long)files);
}
