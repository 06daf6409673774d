/* The functions of a database that run the SQL of query.h. A connection's `handle` and a statement's are theirs. */
#ifndef FB_DATABASE_BACKEND_H
#define FB_DATABASE_BACKEND_H

#include "server/database/query.h"

typedef struct fb_backend {
    fb_status (*open)(fb_connection *connection, const char *where, fb_access access, fb_error *error);
    void (*close)(fb_connection *connection);

    /* Statements. Parameters count from 1; a NULL text, and NULL bytes, are SQL's NULL. `reset` forgets rows and values. */
    fb_status (*prepare)(fb_connection *connection, const char *sql, void **statement, fb_error *error);
    void (*finalize)(fb_connection *connection, void *statement);
    fb_status (*bind_int)(fb_query *query, int at, int64_t value);
    fb_status (*bind_text)(fb_query *query, int at, const char *text);
    fb_status (*bind_bytes)(fb_query *query, int at, const void *bytes, size_t size);
    fb_status (*step)(fb_query *query, bool *is_row);
    int64_t (*column_int)(fb_query *query, int column);
    bool (*column_is_null)(fb_query *query, int column);
    const char *(*column_text)(fb_query *query, int column);
    const void *(*column_bytes)(fb_query *query, int column, size_t *size);
    void (*reset)(fb_statement *statement);

    fb_status (*script)(fb_connection *connection, const char *sql, fb_error *error);
    fb_status (*begin)(fb_connection *connection, bool writes, fb_error *error);
    fb_status (*commit)(fb_connection *connection, fb_error *error);
    void (*roll_back)(fb_connection *connection);
    bool (*is_in_transaction)(const fb_connection *connection);
    int64_t (*changes)(const fb_connection *connection);
    int64_t (*changed_rows)(const fb_connection *connection);
    fb_status (*hold)(fb_connection *connection, bool is_shared, bool *is_alone, fb_error *error); /* or NULL */
    bool (*checkpoint)(fb_connection *connection, bool truncates);                                 /* or NULL */

    /* The schema. *is_ours: the mark of a store is there; *is_empty: nothing is. `migrate` runs one migration, or what several
     * end in, and notes the number of the last with it. */
    fb_status (*read_version)(fb_connection *connection, int64_t *version, bool *is_ours, bool *is_empty, fb_error *error);
    fb_status (*set_up_writer)(fb_connection *connection, uint64_t max_bytes, fb_error *error);
    fb_status (*migrate)(fb_connection *connection, int64_t number, const char *sql, fb_error *error);
    const char *check_pages, *check_keys; /* as in query.h */
    const char *glance_at_pages;          /* as check_pages, without comparing tables and indexes: a fraction of its time */

    /* For copies. `columns`: a SELECT of a table, a column, its type (INTEGER, TEXT or BLOB) and its place in the primary key
     * (from 1; 0: it is not in it), tables in the order in which they were made. A table's counter has the last key that it
     * gave. */
    const char *columns, *counter;
    fb_status (*set_counter)(fb_connection *connection, const char *table, const char *column, int64_t last, fb_error *error);
} fb_backend;

extern const fb_backend fb_sqlite, fb_postgres;

/* ---- for backups, which copy the pages of a file ---- */

struct sqlite3;
struct sqlite3 *fb_sqlite_handle(const fb_connection *connection);
/* The status of SQLite's result code for our callers; FB_OK for SQLITE_OK, _ROW and _DONE. `connection` may have no handle. */
fb_status fb_sqlite_status(fb_connection *connection, int result, fb_error *error);

#endif
