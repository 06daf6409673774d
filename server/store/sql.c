#include "server/store/sql.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/base/map.h"

fb_status fb_fail_corrupt(fb_error *error, const char *what) {
    return fb_fail(error, FB_IO, "store-corrupt", NULL, "the store is damaged: %s", what);
}

fb_status fb_fail_full(fb_error *error) {
    return fb_fail(error, FB_NO_SPACE, "disk-full", NULL, "there is no space left for the store");
}

/* The error number of the last failure in one of the connection's two files. */
static int last_errno(sqlite3 *handle, int which_file) {
    sqlite3_file *file = NULL;
    int code = 0;
    if (sqlite3_file_control(handle, NULL, which_file, &file) == SQLITE_OK && file && file->pMethods)
        file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &code);
    return code;
}

/* SQLite knows only ENOSPC as a full disk; a quota or a limit on the file's size reaches us as an I/O error. */
static bool is_out_of_space(fb_connection *connection) {
    if (!connection->handle) return false;
    int codes[] = {sqlite3_system_errno(connection->handle), last_errno(connection->handle, SQLITE_FCNTL_FILE_POINTER),
                   last_errno(connection->handle, SQLITE_FCNTL_JOURNAL_POINTER)};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i] == ENOSPC || codes[i] == EDQUOT || codes[i] == EFBIG) return true;
    return false;
}

fb_status fb_sql_status(fb_connection *connection, int result, fb_error *error) {
    const char *message = connection->handle ? sqlite3_errmsg(connection->handle) : sqlite3_errstr(result);
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
        if (is_out_of_space(connection)) return fb_fail_full(error);
        return fb_fail(error, FB_IO, "store-not-writable", NULL, "the store cannot be opened or written: %s", message);
    case SQLITE_IOERR:
        if (result == SQLITE_IOERR_NOMEM) return fb_fail_memory(error);
        if (is_out_of_space(connection)) return fb_fail_full(error);
        break;
    default: break;
    }
    return fb_fail(error, FB_IO, "store-failed", NULL, "the store failed: %s (SQLite %d)", message, result);
}

fb_status fb_sql_script(fb_connection *connection, const char *sql, fb_error *error) {
    return fb_sql_status(connection, sqlite3_exec(connection->handle, sql, NULL, NULL, NULL), error);
}

/* temp_store: a sort never needs a file of its own. cell_size_check, defensive, trusted_schema: a damaged or prepared file is
 * refused, not followed. No mmap: a failing disk would be a SIGBUS instead of an error. */
static const char common_settings[] = "PRAGMA foreign_keys = ON;"
                                      "PRAGMA trusted_schema = OFF;"
                                      "PRAGMA cell_size_check = ON;"
                                      "PRAGMA temp_store = MEMORY;"
                                      "PRAGMA mmap_size = 0;";

/* What a savepoint may have to restore stays in memory: else SQLite would write it to a file among the system's temporary ones.
 * SQLite's own count of its memory, which nobody reads, takes a lock at every allocation. */
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

fb_status fb_connection_open(fb_connection *connection, const char *path, fb_access access, fb_error *error) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure);
    *connection = (fb_connection){0};
    int flags = access == FB_READS_AND_WRITES ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    if (access == FB_READS_FROZEN) flags |= SQLITE_OPEN_URI;
    char *name = access == FB_READS_FROZEN ? frozen_name(path) : NULL;
    if (access == FB_READS_FROZEN && !name) return fb_fail_memory(error);
    int result =
        sqlite3_open_v2(name ? name : path, &connection->handle, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    free(name);
    fb_status status = fb_sql_status(connection, result, error);
    if (!status) {
        sqlite3_db_config(connection->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, access != FB_READS_AND_WRITES, NULL);
        sqlite3_db_config(connection->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(connection->handle, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
        sqlite3_db_config(connection->handle, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
        /* One process, one writer: nobody is waited for, except during recovery, which takes a moment. */
        sqlite3_busy_timeout(connection->handle, 5000);
        status = fb_sql_script(connection, common_settings, error);
    }
    if (status) fb_connection_close(connection);
    return status;
}

static void drop(fb_statement *statement) {
    sqlite3_finalize(statement->handle);
    free(statement->sql);
    *statement = (fb_statement){0};
}

void fb_connection_close(fb_connection *connection) {
    for (size_t i = 0; i < FB_STATEMENTS_MAX; i++) drop(&connection->statements[i]);
    sqlite3_close(connection->handle);
    *connection = (fb_connection){0};
}

/* The compiled statement for `sql`; compiled into an empty place or that of the one used longest ago when it is not there. */
static fb_statement *find_statement(fb_connection *connection, const char *sql, fb_status *status, fb_error *error) {
    uint64_t hash = fb_hash(sql, strlen(sql), 0);
    fb_statement *place = NULL;
    for (size_t i = 0; i < FB_STATEMENTS_MAX; i++) {
        fb_statement *candidate = &connection->statements[i];
        if (candidate->is_running) continue;
        if (candidate->sql && candidate->hash == hash && strcmp(candidate->sql, sql) == 0) return candidate;
        if (!place || candidate->last_use < place->last_use) place = candidate;
    }
    if (!place) {
        *status = fb_fail(error, FB_IO, "store-failed", NULL, "too many SQL statements run at once");
        return NULL;
    }
    drop(place);
    fb_statement made = {.hash = hash, .sql = strdup(sql)};
    int result = made.sql ? sqlite3_prepare_v3(connection->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &made.handle, NULL)
                          : SQLITE_NOMEM;
    *status = fb_sql_status(connection, result, error);
    if (*status) {
        drop(&made);
        return NULL;
    }
    *place = made;
    return place;
}

fb_query fb_query_begin(fb_connection *connection, const char *sql, fb_error *error) {
    fb_query query = {.connection = connection, .error = error};
    query.statement = find_statement(connection, sql, &query.status, error);
    if (query.statement) {
        query.statement->is_running = true;
        query.statement->last_use = ++connection->uses;
    }
    return query;
}

static void check(fb_query *query, int result) {
    if (!query->status) query->status = fb_sql_status(query->connection, result, query->error);
}

void fb_bind_int(fb_query *query, int64_t value) {
    if (!query->status) check(query, sqlite3_bind_int64(query->statement->handle, ++query->parameter, value));
}

void fb_bind_text(fb_query *query, const char *text) {
    if (query->status) return;
    int at = ++query->parameter;
    sqlite3_uint64 size = text ? strlen(text) : 0;
    check(query, text ? sqlite3_bind_text64(query->statement->handle, at, text, size, SQLITE_STATIC, SQLITE_UTF8)
                      : sqlite3_bind_null(query->statement->handle, at));
}

void fb_bind_bytes(fb_query *query, const void *bytes, size_t size) {
    if (query->status) return;
    int at = ++query->parameter;
    check(query, bytes ? sqlite3_bind_blob64(query->statement->handle, at, bytes, size, SQLITE_STATIC)
                       : sqlite3_bind_null(query->statement->handle, at));
}

bool fb_query_row(fb_query *query) {
    if (query->status) return false;
    int result = sqlite3_step(query->statement->handle);
    check(query, result);
    return result == SQLITE_ROW;
}

int64_t fb_column_int(fb_query *query, int column) {
    return sqlite3_column_int64(query->statement->handle, column);
}

bool fb_column_is_null(fb_query *query, int column) {
    return sqlite3_column_type(query->statement->handle, column) == SQLITE_NULL;
}

const char *fb_column_text(fb_query *query, int column) {
    const char *text = (const char *)sqlite3_column_text(query->statement->handle, column);
    if (!text && sqlite3_errcode(query->connection->handle) == SQLITE_NOMEM) check(query, SQLITE_NOMEM);
    return text ? text : "";
}

const void *fb_column_bytes(fb_query *query, int column, size_t *size) {
    const void *bytes = sqlite3_column_blob(query->statement->handle, column);
    *size = (size_t)sqlite3_column_bytes(query->statement->handle, column);
    if (!bytes && sqlite3_errcode(query->connection->handle) == SQLITE_NOMEM) check(query, SQLITE_NOMEM);
    return bytes;
}

void fb_query_again(fb_query *query) {
    if (!query->statement) return;
    sqlite3_reset(query->statement->handle); /* repeats what the last step said, which has been seen */
    sqlite3_clear_bindings(query->statement->handle);
    query->parameter = 0;
}

fb_status fb_query_end(fb_query *query) {
    fb_query_again(query);
    if (query->statement) query->statement->is_running = false;
    query->statement = NULL;
    return query->status;
}

fb_status fb_query_run(fb_query *query) {
    fb_query_row(query);
    return fb_query_end(query);
}
