/* One connection to a database with its compiled statements, and the one way to run SQL in the store.
 *
 * SQL is written once. A backend (backend.h) runs it: sqlite.c in a file of the data folder, postgres.c in a server that other
 * replicas use as well. A connection is used by one thread at a time. Statements are compiled once per connection and values
 * are always bound. A query is sticky: after something failed the rest does nothing, and fb_query_end returns the first
 * failure.
 *
 *     fb_query query = fb_query_begin(connection, "SELECT …", error);
 *     fb_bind_text(&query, id);
 *     while (fb_query_row(&query)) …fb_column_int(&query, 0)…
 *     return fb_query_end(&query);
 *
 * What both run: parameters are ? or ?1, ?2 …; a condition that is a parameter is written ?1 = 1; one that may be NULL is
 * compared first and asked for NULL after that; a new row's key comes by RETURNING, to fb_query_insert.
 */
#ifndef FB_DATABASE_QUERY_H
#define FB_DATABASE_QUERY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

#define FB_STATEMENTS_MAX 64 /* compiled statements that a connection keeps */

typedef struct fb_statement {
    char *sql;
    uint64_t hash, last_use;
    void *handle; /* the backend's */
    bool is_running;
} fb_statement;

typedef struct fb_connection {
    const struct fb_backend *backend;
    void *handle; /* the backend's; NULL: it is closed */
    fb_statement statements[FB_STATEMENTS_MAX];
    uint64_t uses;
    int log_pages, checkpointed_pages; /* of the log that fb_checkpoint empties; 0 where there is none of ours */
    atomic_bool *is_damaged;           /* set when a page of the database is not what it should be; or NULL */
} fb_connection;

typedef enum fb_access {
    FB_READS_AND_WRITES,
    FB_READS,        /* beside others; never checkpoints */
    FB_READS_FROZEN, /* a file without a log that does not change meanwhile; its folder may be read-only */
} fb_access;

/* True for the URL of a server, false for the path of a file. */
bool fb_is_database_url(const char *where);

/* Opens the database: a file, or the URL of a server. Sets what every connection needs; fb_migrate sets what the writer does.
 */
fb_status fb_connection_open(fb_connection *connection, const char *where, fb_access access, fb_error *error);
void fb_connection_close(fb_connection *connection);

/* Runs SQL of our own that gives no rows and is run once: migrations. */
fb_status fb_sql_script(fb_connection *connection, const char *sql, fb_error *error);

/* ---- transactions ----
 * The one that writes sees all earlier commits, and no other one writes until it ends, on any replica: so what it read stays
 * true, and keys and numbers ascend in the order of the commits. One that reads sees one snapshot. */

fb_status fb_begin(fb_connection *connection, bool writes, fb_error *error);
/* After FB_OK it is durable; after FB_IO "commit-unknown" perhaps; after any other failure it was undone. */
fb_status fb_commit(fb_connection *connection, fb_error *error);
/* Undoes the transaction, if there is one. When even that fails, for lack of memory, the next fb_begin tries again. */
void fb_roll_back(fb_connection *connection);
/* False also when a failure has ended it. */
bool fb_is_in_transaction(const fb_connection *connection);
/* Counts what may have to be undone; the difference counts. */
int64_t fb_changes(const fb_connection *connection);
/* How many rows the last statement changed. */
int64_t fb_changed_rows(const fb_connection *connection);

/* For a database on a server, until the connection is closed: with `is_shared` beside others that share it as well, else alone.
 * *is_alone: no other holds it now. FB_BUSY "store-locked". */
fb_status fb_hold(fb_connection *connection, bool is_shared, bool *is_alone, fb_error *error);

/* Puts the log into the database, as far as readers allow; `truncates` waits for none, and empties the log when it can. False
 * when it failed. */
bool fb_checkpoint(fb_connection *connection, bool truncates);

/* SQL with which the database checks itself: a SELECT of one text a fault ("ok" is none); NULL where there is none. */
const char *fb_sql_check_pages(const fb_connection *connection);
/* A SELECT of a table, a row in it, and a table in which a row is missing that it refers to; NULL where that cannot be. */
const char *fb_sql_check_keys(const fb_connection *connection);

/* The parts of a database that copies of it read and write besides rows: see backend.h. */
const char *fb_sql_columns(const fb_connection *connection);
fb_status fb_read_counter(fb_connection *connection, const char *table, const char *column, int64_t *last, fb_error *error);
fb_status fb_set_counter(fb_connection *connection, const char *table, const char *column, int64_t last, fb_error *error);

typedef struct fb_query {
    fb_connection *connection;
    fb_statement *statement;
    int parameter; /* bound so far */
    fb_status status;
    fb_error *error;
} fb_query;

fb_query fb_query_begin(fb_connection *connection, const char *sql, fb_error *error);

/* Bind the next parameter. A bound value must live until fb_query_end. NULL binds SQL's NULL. */
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
/* Runs a statement whose parameters are these numbers. `changed`, which may be NULL, gets how many rows it changed; 0 after a
 * failure. */
fb_status fb_query_run_numbers(fb_connection *connection, const char *sql, const int64_t *numbers, size_t count,
                               int64_t *changed, fb_error *error);

/* The same for an INSERT … RETURNING of the new row's key; 0 when none was made. */
fb_status fb_query_insert(fb_query *query, int64_t *key);

/* Reports that what was read cannot be. */
fb_status fb_fail_corrupt(fb_error *error, const char *what);
/* Reports FB_NO_SPACE "disk-full". */
fb_status fb_fail_full(fb_error *error);

/* The database's schema and its version. The migrations of schema/sql/ are built into the program. */

/* Only the check: FB_INVALID "not-a-store", FB_CONFLICT "newer-schema"; the schema's version, 0 for an empty database. */
fb_status fb_schema_read(fb_connection *connection, int64_t *version, fb_error *error);

/* The newest version that this program knows. */
int64_t fb_schema_newest(void);
/* The bytes of a database in a file that has this schema and no rows: to write them takes a tenth of the time of its
 * statements. */
const void *fb_schema_file(size_t *size);
/* For a database that cannot be written to: FB_IO "store-not-writable" when it lacks migrations. */
fb_status fb_schema_is_newest(fb_connection *connection, fb_error *error);

/* Checks that the database is ours and not newer than this program, sets it up for the writer, and runs the migrations that it
 * lacks, each in one transaction. Touches nothing when it refuses. `max_bytes` limits the size of a file; 0 = it does not. The
 * connection stays where it is until it is closed. */
fb_status fb_migrate(fb_connection *connection, uint64_t max_bytes, fb_error *error);

#endif
