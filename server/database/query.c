#include "server/database/query.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "server/database/backend.h"

fb_status fb_fail_corrupt(fb_error *error, const char *what) {
    return fb_fail(error, FB_IO, "store-corrupt", NULL, "the store is damaged: %s", what);
}

fb_status fb_fail_full(fb_error *error) {
    return fb_fail(error, FB_NO_SPACE, "disk-full", NULL, "there is no space left for the store");
}

/* ---- connections ---- */

bool fb_is_database_url(const char *where) {
    return !strncmp(where, "postgresql://", 13) || !strncmp(where, "postgres://", 11);
}

fb_status fb_connection_open(fb_connection *connection, const char *where, fb_access access, fb_error *error) {
    *connection = (fb_connection){.backend = fb_is_database_url(where) ? &fb_postgres : &fb_sqlite};
    fb_status status = connection->backend->open(connection, where, access, error);
    if (status) fb_connection_close(connection);
    return status;
}

static void drop(fb_connection *connection, fb_statement *statement) {
    if (statement->handle) connection->backend->finalize(connection, statement->handle);
    free(statement->sql);
    *statement = (fb_statement){0};
}

void fb_connection_close(fb_connection *connection) {
    for (size_t i = 0; i < FB_STATEMENTS_MAX; i++) drop(connection, &connection->statements[i]);
    if (connection->handle) connection->backend->close(connection);
    *connection = (fb_connection){0};
}

fb_status fb_sql_script(fb_connection *connection, const char *sql, fb_error *error) {
    return connection->backend->script(connection, sql, error);
}

fb_status fb_begin(fb_connection *connection, bool writes, fb_error *error) {
    return connection->backend->begin(connection, writes, error);
}

fb_status fb_commit(fb_connection *connection, fb_error *error) {
    return connection->backend->commit(connection, error);
}

void fb_roll_back(fb_connection *connection) {
    connection->backend->roll_back(connection);
}

bool fb_is_in_transaction(const fb_connection *connection) {
    return connection->backend->is_in_transaction(connection);
}

int64_t fb_changes(const fb_connection *connection) {
    return connection->backend->changes(connection);
}

int64_t fb_changed_rows(const fb_connection *connection) {
    return connection->backend->changed_rows(connection);
}

fb_status fb_hold(fb_connection *connection, bool is_shared, bool *is_alone, fb_error *error) {
    return connection->backend->hold(connection, is_shared, is_alone, error);
}

bool fb_checkpoint(fb_connection *connection, bool truncates) {
    return !connection->backend->checkpoint || connection->backend->checkpoint(connection, truncates);
}

const char *fb_sql_check_pages(const fb_connection *connection) {
    return connection->backend->check_pages;
}

const char *fb_sql_check_keys(const fb_connection *connection) {
    return connection->backend->check_keys;
}

const char *fb_sql_columns(const fb_connection *connection) {
    return connection->backend->columns;
}

fb_status fb_read_counter(fb_connection *connection, const char *table, const char *column, int64_t *last, fb_error *error) {
    fb_query query = fb_query_begin(connection, connection->backend->counter, error);
    fb_bind_text(&query, table);
    fb_bind_text(&query, column);
    *last = fb_query_row(&query) ? fb_column_int(&query, 0) : 0;
    return fb_query_end(&query);
}

fb_status fb_set_counter(fb_connection *connection, const char *table, const char *column, int64_t last, fb_error *error) {
    return connection->backend->set_counter(connection, table, column, last, error);
}

/* ---- queries ---- */

/* The compiled statement for `sql`; compiled when it is missing, into an empty place or the least recently used one's. */
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
    drop(connection, place);
    fb_statement made = {.hash = hash, .sql = strdup(sql)};
    *status = made.sql ? connection->backend->prepare(connection, made.sql, &made.handle, error) : fb_fail_memory(error);
    if (*status) {
        drop(connection, &made);
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

void fb_bind_int(fb_query *query, int64_t value) {
    if (!query->status) query->status = query->connection->backend->bind_int(query, ++query->parameter, value);
}

void fb_bind_text(fb_query *query, const char *text) {
    if (!query->status) query->status = query->connection->backend->bind_text(query, ++query->parameter, text);
}

void fb_bind_bytes(fb_query *query, const void *bytes, size_t size) {
    if (!query->status) query->status = query->connection->backend->bind_bytes(query, ++query->parameter, bytes, size);
}

bool fb_query_row(fb_query *query) {
    bool is_row = false;
    if (!query->status) query->status = query->connection->backend->step(query, &is_row);
    return is_row && !query->status;
}

int64_t fb_column_int(fb_query *query, int column) {
    return query->connection->backend->column_int(query, column);
}

bool fb_column_is_null(fb_query *query, int column) {
    return query->connection->backend->column_is_null(query, column);
}

const char *fb_column_text(fb_query *query, int column) {
    return query->connection->backend->column_text(query, column);
}

const void *fb_column_bytes(fb_query *query, int column, size_t *size) {
    return query->connection->backend->column_bytes(query, column, size);
}

void fb_query_again(fb_query *query) {
    if (!query->statement) return;
    query->connection->backend->reset(query->statement);
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

fb_status fb_query_run_numbers(fb_connection *connection, const char *sql, const int64_t *numbers, size_t count,
                               int64_t *changed, fb_error *error) {
    fb_query query = fb_query_begin(connection, sql, error);
    for (size_t i = 0; i < count; i++) fb_bind_int(&query, numbers[i]);
    fb_status status = fb_query_run(&query);
    if (changed) *changed = status ? 0 : fb_changed_rows(connection);
    return status;
}

fb_status fb_query_insert(fb_query *query, int64_t *key) {
    *key = fb_query_row(query) ? fb_column_int(query, 0) : 0;
    while (fb_query_row(query)) continue;
    return fb_query_end(query);
}
