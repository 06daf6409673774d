#include "server/store/sql.h"

#include <stdio.h>
#include <string.h>

#include "migrations.inc"

#define MIGRATION_COUNT ((int64_t)(sizeof migrations / sizeof migrations[0]))
#define APPLICATION_ID 0x666c6462 /* "fldb": marks the file as a store of foldback */

static fb_status read_int(fb_connection *connection, const char *sql, int64_t *value, fb_error *error) {
    fb_query query = fb_query_begin(connection, sql, error);
    if (fb_query_row(&query)) *value = fb_column_int(&query, 0);
    return fb_query_end(&query);
}

fb_status fb_schema_read(fb_connection *connection, int64_t *version, fb_error *error) {
    int64_t application = 0, objects = 0;
    fb_status status = read_int(connection, "PRAGMA application_id", &application, error);
    if (!status) status = read_int(connection, "PRAGMA user_version", version, error);
    if (!status) status = read_int(connection, "SELECT count(*) FROM sqlite_schema", &objects, error);
    if (status) return status;
    bool is_empty = application == 0 && *version == 0 && objects == 0;
    if (application != APPLICATION_ID && !is_empty)
        return fb_fail(error, FB_INVALID, "not-a-store", NULL, "the database in the data folder is not one of foldback");
    if (*version > MIGRATION_COUNT)
        return fb_fail(error, FB_CONFLICT, "newer-schema", NULL,
                       "the store has schema %lld, and this version of foldback knows schemas up to %lld: use a newer foldback",
                       (long long)*version, (long long)MIGRATION_COUNT);
    return FB_OK;
}

fb_status fb_schema_is_newest(fb_connection *connection, fb_error *error) {
    int64_t version = 0;
    fb_status status = fb_schema_read(connection, &version, error);
    if (status || version == MIGRATION_COUNT) return status;
    return fb_fail(error, FB_IO, "store-not-writable", NULL,
                   "the store has schema %lld, which has to be brought up to date, and cannot be written to: copy the folder",
                   (long long)version);
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

static fb_status run_migration(fb_connection *connection, int64_t number, fb_error *error) {
    char finish[96];
    snprintf(finish, sizeof finish, "PRAGMA user_version = %lld; PRAGMA application_id = %d; COMMIT", (long long)number,
             APPLICATION_ID);
    fb_status status = fb_sql_script(connection, "BEGIN IMMEDIATE", error);
    if (!status) status = fb_sql_script(connection, migrations[number - 1], error);
    if (!status) status = fb_sql_script(connection, finish, error);
    if (status && !sqlite3_get_autocommit(connection->handle)) fb_sql_script(connection, "ROLLBACK", NULL);
    return status;
}

/* synchronous = FULL: a commit returns after its fsync. The writer checkpoints itself. The cache (32 MB) holds a whole group.
 */
static const char writer_settings[] = "PRAGMA synchronous = FULL;"
                                      "PRAGMA wal_autocheckpoint = 0;"
                                      "PRAGMA journal_size_limit = 67108864;"
                                      "PRAGMA cache_size = -32768;"
                                      "PRAGMA secure_delete = FAST;";

fb_status fb_migrate(fb_connection *connection, fb_error *error) {
    int64_t version = 0;
    fb_status status = fb_schema_read(connection, &version, error);
    if (!status) status = set_write_ahead_log(connection, error);
    if (!status) status = fb_sql_script(connection, writer_settings, error);
    for (int64_t number = version + 1; number <= MIGRATION_COUNT && !status; number++)
        status = run_migration(connection, number, error);
    return status;
}
