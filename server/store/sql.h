/* One connection to SQLite with its compiled statements, and the one way to run SQL in the store.
 *
 * A connection is used by one thread at a time. Statements are compiled once per connection and values are always bound. A
 * query is sticky: after something failed the rest does nothing, and fb_query_end returns the first failure.
 *
 *     fb_query query = fb_query_begin(connection, "SELECT …", error);
 *     fb_bind_text(&query, id);
 *     while (fb_query_row(&query)) …fb_column_int(&query, 0)…
 *     return fb_query_end(&query);
 */
#ifndef FB_STORE_SQL_H
#define FB_STORE_SQL_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

#define FB_STATEMENTS_MAX 64 /* compiled statements that a connection keeps */

typedef struct fb_statement {
    char *sql;
    uint64_t hash, last_use;
    sqlite3_stmt *handle;
    bool is_running;
} fb_statement;

typedef struct fb_connection {
    sqlite3 *handle;
    fb_statement statements[FB_STATEMENTS_MAX];
    uint64_t uses;
    atomic_bool *is_damaged; /* set when a page of the database is not what it should be; or NULL */
} fb_connection;

typedef enum fb_access {
    FB_READS_AND_WRITES,
    FB_READS,        /* beside others; never checkpoints */
    FB_READS_FROZEN, /* a file without a log that nobody changes meanwhile; its folder may be read-only */
} fb_access;

/* Opens the database file. Sets what every connection needs; the writer's file settings (WAL) are fb_writer's. */
fb_status fb_connection_open(fb_connection *connection, const char *path, fb_access access, fb_error *error);
void fb_connection_close(fb_connection *connection);

/* Runs SQL of our own that gives no rows and is run once: pragmas, migrations. */
fb_status fb_sql_script(fb_connection *connection, const char *sql, fb_error *error);

/* What SQLite's result code means to our callers; FB_OK for SQLITE_OK, _ROW and _DONE. `connection` may have no handle. */
fb_status fb_sql_status(fb_connection *connection, int result, fb_error *error);

typedef struct fb_query {
    fb_connection *connection;
    fb_statement *statement;
    int parameter; /* bound so far */
    fb_status status;
    fb_error *error;
} fb_query;

fb_query fb_query_begin(fb_connection *connection, const char *sql, fb_error *error);

/* Bind the next parameter. What is bound must live until fb_query_end. NULL binds SQL's NULL. */
void fb_bind_int(fb_query *query, int64_t value);
void fb_bind_text(fb_query *query, const char *text);
void fb_bind_bytes(fb_query *query, const void *bytes, size_t size);

/* The next row; false at the end and after a failure. */
bool fb_query_row(fb_query *query);
int64_t fb_column_int(fb_query *query, int column);
bool fb_column_is_null(fb_query *query, int column);
const char *fb_column_text(fb_query *query, int column);                /* until the next row; never NULL */
const void *fb_column_bytes(fb_query *query, int column, size_t *size); /* until the next row; NULL when empty */
fb_status fb_query_end(fb_query *query);
/* Forgets the values and rows so that the same query can be bound and run again. */
void fb_query_again(fb_query *query);

/* fb_query_row, once, and fb_query_end: for statements that give no rows. */
fb_status fb_query_run(fb_query *query);

/* Reports that what was read cannot be. */
fb_status fb_fail_corrupt(fb_error *error, const char *what);
/* Reports FB_NO_SPACE "disk-full". */
fb_status fb_fail_full(fb_error *error);

/* The database's schema and its version (user_version). The migrations of schema/sql/ are built into the program. */

/* Only the check: FB_INVALID "not-a-store", FB_CONFLICT "newer-schema"; the schema's version, 0 for an empty database. */
fb_status fb_schema_read(fb_connection *connection, int64_t *version, fb_error *error);

/* For a database that cannot be written to: FB_IO "store-not-writable" when it lacks migrations. */
fb_status fb_schema_is_newest(fb_connection *connection, fb_error *error);

/* Checks that the database is ours and not newer than this program, sets it up for the writer (WAL), and runs the migrations
 * that it lacks, each in one transaction. Touches nothing when it refuses. */
fb_status fb_migrate(fb_connection *connection, fb_error *error);

#endif
