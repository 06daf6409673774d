/* SQLite: a database that is a file of the data folder. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "server/database/backend.h"

sqlite3 *fb_sqlite_handle(const fb_connection *connection) {
    return connection->handle;
}

/* ---- errors ---- */

/* The error number of the last failure in one of the connection's two files. */
static int last_errno(sqlite3 *handle, int which_file) {
    sqlite3_file *file = NULL;
    int code = 0;
    if (sqlite3_file_control(handle, NULL, which_file, &file) == SQLITE_OK && file && file->pMethods)
        file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &code);
    return code;
}

/* SQLite knows only ENOSPC as a full disk; a quota or a limit on the file's size reaches us as an I/O error. */
static bool is_out_of_space(sqlite3 *handle) {
    if (!handle) return false;
    int codes[] = {sqlite3_system_errno(handle), last_errno(handle, SQLITE_FCNTL_FILE_POINTER),
                   last_errno(handle, SQLITE_FCNTL_JOURNAL_POINTER)};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i] == ENOSPC || codes[i] == EDQUOT || codes[i] == EFBIG) return true;
    return false;
}

fb_status fb_sqlite_status(fb_connection *connection, int result, fb_error *error) {
    sqlite3 *handle = connection->handle;
    const char *message = handle ? sqlite3_errmsg(handle) : sqlite3_errstr(result);
    switch (result & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return FB_OK;
    case SQLITE_NOMEM: return fb_fail_memory(error);
    case SQLITE_FULL: return fb_fail_full(error);
    case SQLITE_TOOBIG:
        return fb_fail(error, FB_TOO_LARGE, "too-large-to-store", NULL, "the store cannot hold a value this large");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        if (connection->is_damaged) atomic_store(connection->is_damaged, true);
        return fb_fail_corrupt(error, message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return fb_fail(error, FB_BUSY, "store-busy", NULL, "another program has locked the database of the store");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
        if (is_out_of_space(handle)) return fb_fail_full(error);
        return fb_fail(error, FB_IO, "store-not-writable", NULL, "the store cannot be opened or written: %s", message);
    case SQLITE_IOERR:
        if (result == SQLITE_IOERR_NOMEM) return fb_fail_memory(error);
        if (is_out_of_space(handle)) return fb_fail_full(error);
        break;
    default: break;
    }
    return fb_fail(error, FB_IO, "store-failed", NULL, "the store failed: %s (SQLite %d)", message, result);
}

static fb_status script(fb_connection *connection, const char *sql, fb_error *error) {
    return fb_sqlite_status(connection, sqlite3_exec(connection->handle, sql, NULL, NULL, NULL), error);
}

/* ---- open and close ---- */

/* temp_store: a sort never needs a file of its own. cell_size_check, defensive, trusted_schema: a damaged or prepared file is
 * refused, not followed. No mmap: a failing disk would be a SIGBUS instead of an error. */
static const char common_settings[] = "PRAGMA foreign_keys = ON;"
                                      "PRAGMA trusted_schema = OFF;"
                                      "PRAGMA cell_size_check = ON;"
                                      "PRAGMA temp_store = MEMORY;"
                                      "PRAGMA mmap_size = 0;";

/* Keeps what a savepoint may have to restore in memory: else SQLite would write it to a file among the system's temporary ones.
 * SQLite's own count of its memory, which is not read, would take a lock at every allocation. */
static void configure(void) {
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_config(SQLITE_CONFIG_STMTJRNL_SPILL, -1);
}

/* As SQLite's URI of a file that does not change. */
static char *frozen_name(const char *path) {
    fb_buffer name = {0};
    fb_buffer_string(&name, "file:");
    for (; *path; path++) {
        if (strchr("?#%", *path)) fb_buffer_printf(&name, "%%%02X", *path);
        else fb_buffer_char(&name, *path);
    }
    fb_buffer_string(&name, "?immutable=1");
    return fb_buffer_take(&name, NULL);
}

static fb_status open_file(fb_connection *connection, const char *path, fb_access access, fb_error *error) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure);
    int flags = access == FB_READS_AND_WRITES ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    if (access == FB_READS_FROZEN) flags |= SQLITE_OPEN_URI;
    char *name = access == FB_READS_FROZEN ? frozen_name(path) : NULL;
    if (access == FB_READS_FROZEN && !name) return fb_fail_memory(error);
    sqlite3 *handle = NULL;
    int result = sqlite3_open_v2(name ? name : path, &handle, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    free(name);
    connection->handle = handle;
    fb_status status = fb_sqlite_status(connection, result, error);
    if (!status) {
        sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, access != FB_READS_AND_WRITES, NULL);
        sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(handle, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
        sqlite3_db_config(handle, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
        /* One process, one writer: it never waits for another, except during recovery, which takes a moment. */
        sqlite3_busy_timeout(handle, 5000);
        status = script(connection, common_settings, error);
    }
    return status;
}

static void close_file(fb_connection *connection) {
    sqlite3_close(connection->handle);
}

/* ---- statements ---- */

static fb_status prepare(fb_connection *connection, const char *sql, void **statement, fb_error *error) {
    sqlite3_stmt *made = NULL;
    int result = sqlite3_prepare_v3(connection->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &made, NULL);
    *statement = made;
    return fb_sqlite_status(connection, result, error);
}

static void finalize(fb_connection *connection, void *statement) {
    (void)connection;
    sqlite3_finalize(statement);
}

static fb_status judge(fb_query *query, int result) {
    return fb_sqlite_status(query->connection, result, query->error);
}

static fb_status bind_int(fb_query *query, int at, int64_t value) {
    return judge(query, sqlite3_bind_int64(query->statement->handle, at, value));
}

static fb_status bind_text(fb_query *query, int at, const char *text) {
    sqlite3_uint64 size = text ? strlen(text) : 0;
    return judge(query, text ? sqlite3_bind_text64(query->statement->handle, at, text, size, SQLITE_STATIC, SQLITE_UTF8)
                             : sqlite3_bind_null(query->statement->handle, at));
}

static fb_status bind_bytes(fb_query *query, int at, const void *bytes, size_t size) {
    return judge(query, bytes ? sqlite3_bind_blob64(query->statement->handle, at, bytes, size, SQLITE_STATIC)
                              : sqlite3_bind_null(query->statement->handle, at));
}

static fb_status step(fb_query *query, bool *is_row) {
    int result = sqlite3_step(query->statement->handle);
    *is_row = result == SQLITE_ROW;
    return judge(query, result);
}

static int64_t column_int(fb_query *query, int column) {
    return sqlite3_column_int64(query->statement->handle, column);
}

static bool column_is_null(fb_query *query, int column) {
    return sqlite3_column_type(query->statement->handle, column) == SQLITE_NULL;
}

/* A value that is not there for lack of memory fails the query. */
static void check_value(fb_query *query, const void *value) {
    if (!value && !query->status && sqlite3_errcode(query->connection->handle) == SQLITE_NOMEM)
        query->status = judge(query, SQLITE_NOMEM);
}

static const char *column_text(fb_query *query, int column) {
    const char *text = (const char *)sqlite3_column_text(query->statement->handle, column);
    check_value(query, text);
    return text ? text : "";
}

static const void *column_bytes(fb_query *query, int column, size_t *size) {
    const void *bytes = sqlite3_column_blob(query->statement->handle, column);
    *size = (size_t)sqlite3_column_bytes(query->statement->handle, column);
    check_value(query, bytes);
    return bytes;
}

static void reset(fb_statement *statement) {
    sqlite3_reset(statement->handle); /* repeats what the last step said, which has been seen */
    sqlite3_clear_bindings(statement->handle);
}

/* ---- transactions ---- */

static fb_status run(fb_connection *connection, const char *sql, fb_error *error) {
    fb_query query = fb_query_begin(connection, sql, error);
    return fb_query_run(&query);
}

static bool is_in_transaction(const fb_connection *connection) {
    return !sqlite3_get_autocommit(connection->handle);
}

static void roll_back(fb_connection *connection) {
    if (is_in_transaction(connection)) run(connection, "ROLLBACK", NULL);
}

static fb_status begin(fb_connection *connection, bool writes, fb_error *error) {
    roll_back(connection);
    return run(connection, writes ? "BEGIN IMMEDIATE" : "BEGIN", error);
}

static fb_status commit(fb_connection *connection, fb_error *error) {
    return run(connection, "COMMIT", error);
}

static int64_t changes(const fb_connection *connection) {
    return sqlite3_total_changes64(connection->handle);
}

static int64_t changed_rows(const fb_connection *connection) {
    return sqlite3_changes(connection->handle);
}

/* ---- the write-ahead log ---- */

#define LOCK_WAIT_MS 1000 /* a reader that meets the log's header half written takes the writer's lock for a moment */

static int note_log_size(void *argument, sqlite3 *handle, const char *database, int pages) {
    (void)handle, (void)database;
    fb_connection *connection = argument;
    if (pages < connection->log_pages) connection->checkpointed_pages = 0; /* the log has begun anew */
    connection->log_pages = pages;
    return SQLITE_OK;
}

static bool checkpoint(fb_connection *connection, bool truncates) {
    int log = -1, done = -1;
    sqlite3_busy_timeout(connection->handle, 0); /* one that meets a reader tries again later */
    int result = sqlite3_wal_checkpoint_v2(connection->handle, NULL,
                                           truncates ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE, &log, &done);
    sqlite3_busy_timeout(connection->handle, LOCK_WAIT_MS);
    if (result == SQLITE_OK && log >= 0) {
        connection->log_pages = log;
        connection->checkpointed_pages = done;
    }
    return result == SQLITE_OK || result == SQLITE_BUSY;
}

/* ---- the schema ---- */

#define APPLICATION_ID 0x666c6462 /* "fldb": marks the file as a store of foldback */

static fb_status read_int(fb_connection *connection, const char *sql, int64_t *value, fb_error *error) {
    fb_query query = fb_query_begin(connection, sql, error);
    if (fb_query_row(&query)) *value = fb_column_int(&query, 0);
    return fb_query_end(&query);
}

static fb_status read_version(fb_connection *connection, int64_t *version, bool *is_ours, bool *is_empty, fb_error *error) {
    int64_t application = 0, objects = 0;
    fb_status status = read_int(connection, "PRAGMA application_id", &application, error);
    if (!status) status = read_int(connection, "PRAGMA user_version", version, error);
    if (!status) status = read_int(connection, "SELECT count(*) FROM sqlite_schema", &objects, error);
    *is_ours = application == APPLICATION_ID;
    *is_empty = application == 0 && *version == 0 && objects == 0;
    return status;
}

static fb_status set_write_ahead_log(fb_connection *connection, fb_error *error) {
    char mode[8] = "";
    fb_query query = fb_query_begin(connection, "PRAGMA journal_mode = WAL", error);
    if (fb_query_row(&query)) snprintf(mode, sizeof mode, "%s", fb_column_text(&query, 0));
    fb_status status = fb_query_end(&query);
    if (!status && strcmp(mode, "wal") != 0)
        status = fb_fail(error, FB_IO, "store-failed", NULL, "the data folder's file system cannot hold a write-ahead log");
    return status;
}

/* synchronous = FULL: a commit returns after its fsync. The writer checkpoints itself. The cache (32 MB) holds a whole group.
 */
static const char writer_settings[] = "PRAGMA synchronous = FULL;"
                                      "PRAGMA wal_autocheckpoint = 0;"
                                      "PRAGMA journal_size_limit = 67108864;"
                                      "PRAGMA cache_size = -32768;"
                                      "PRAGMA secure_delete = FAST;";

static fb_status set_up_writer(fb_connection *connection, uint64_t max_bytes, fb_error *error) {
    fb_status status = set_write_ahead_log(connection, error);
    if (!status) status = script(connection, writer_settings, error);
    if (!status && max_bytes) {
        char limit[64];
        snprintf(limit, sizeof limit, "PRAGMA max_page_count = %" PRIu64, max_bytes / 4096 + 1);
        status = script(connection, limit, error);
    }
    connection->log_pages = 1; /* perhaps something is left from before */
    sqlite3_busy_timeout(connection->handle, LOCK_WAIT_MS);
    sqlite3_wal_hook(connection->handle, note_log_size, connection);
    return status;
}

static fb_status migrate(fb_connection *connection, int64_t number, const char *sql, fb_error *error) {
    char note[96];
    snprintf(note, sizeof note, "PRAGMA user_version = %" PRId64 "; PRAGMA application_id = %d", number, APPLICATION_ID);
    fb_status status = script(connection, sql, error);
    return status ? status : script(connection, note, error);
}

/* Tables without AUTOINCREMENT have no counter. */
static fb_status set_counter(fb_connection *connection, const char *table, const char *column, int64_t last, fb_error *error) {
    (void)column;
    fb_query delete = fb_query_begin(connection, "DELETE FROM sqlite_sequence WHERE name = ?", error);
    fb_bind_text(&delete, table);
    fb_status status = fb_query_run(&delete);
    if (status) return status;
    fb_query insert = fb_query_begin(connection,
                                     "INSERT INTO sqlite_sequence (name, seq) SELECT name, ?2 FROM sqlite_schema "
                                     "WHERE name = ?1 AND sql LIKE '%AUTOINCREMENT%'",
                                     error);
    fb_bind_text(&insert, table);
    fb_bind_int(&insert, last);
    return fb_query_run(&insert);
}

const fb_backend fb_sqlite = {
    .open = open_file,
    .close = close_file,
    .prepare = prepare,
    .finalize = finalize,
    .bind_int = bind_int,
    .bind_text = bind_text,
    .bind_bytes = bind_bytes,
    .step = step,
    .column_int = column_int,
    .column_is_null = column_is_null,
    .column_text = column_text,
    .column_bytes = column_bytes,
    .reset = reset,
    .script = script,
    .begin = begin,
    .commit = commit,
    .roll_back = roll_back,
    .is_in_transaction = is_in_transaction,
    .changes = changes,
    .changed_rows = changed_rows,
    .checkpoint = checkpoint,
    .read_version = read_version,
    .set_up_writer = set_up_writer,
    .migrate = migrate,
    .check_pages = "PRAGMA integrity_check(100)",
    .check_keys = "PRAGMA foreign_key_check",
    .glance_at_pages = "PRAGMA quick_check(100)",
    .columns = "SELECT t.name, c.name, c.type, c.pk FROM sqlite_schema t JOIN pragma_table_info(t.name) c "
               "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' ORDER BY t.rowid, c.cid",
    .counter = "SELECT max(seq) FROM sqlite_sequence WHERE name = ?1 AND ?2 <> ''",
    .set_counter = set_counter,
};
