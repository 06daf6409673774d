#include "tests/bench/durable/ceiling.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

#define CHECKPOINT_PAGES 1000 /* as the service's */
#define ROWS 1000

/* Rows of the service's, held in memory, and the statement that writes one of them again; its first parameter is what is new.
 */
typedef struct rows {
    sqlite3_stmt *insert;
    sqlite3_value **values;
    size_t count;
    int columns;
} rows;

struct fb_ceiling {
    sqlite3 *database;
    sqlite3_stmt *begin, *commit;
    rows runs, passes, acts;
    size_t number; /* of the next run; an id of its own */
};

static void check(fb_ceiling *ceiling, int result) {
    if (result == SQLITE_OK || result == SQLITE_ROW || result == SQLITE_DONE) return;
    fprintf(stderr, "the ceiling: %s\n", sqlite3_errmsg(ceiling->database));
    exit(1);
}

static void run(fb_ceiling *ceiling, const char *sql) {
    check(ceiling, sqlite3_exec(ceiling->database, sql, NULL, NULL, NULL));
}

static sqlite3_stmt *prepare(fb_ceiling *ceiling, const char *sql) {
    sqlite3_stmt *statement = NULL;
    check(ceiling, sqlite3_prepare_v3(ceiling->database, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL));
    return statement;
}

static rows read_rows(fb_ceiling *ceiling, const char *table, const char *left_out, const char *first) {
    char sql[2000], marks[200] = "?";
    rows all = {0};
    snprintf(sql, sizeof sql,
             "SELECT group_concat(name, ', '), count(*) FROM pragma_table_info('%s') WHERE name NOT IN ('%s', '%s')", table,
             left_out, first);
    sqlite3_stmt *names = prepare(ceiling, sql);
    check(ceiling, sqlite3_step(names));
    all.columns = sqlite3_column_int(names, 1);
    for (int i = 0; i < all.columns; i++) strcat(marks, ", ?");
    snprintf(sql, sizeof sql, "INSERT INTO %s (%s, %s) VALUES (%s)", table, first, sqlite3_column_text(names, 0), marks);
    all.insert = prepare(ceiling, sql);
    snprintf(sql, sizeof sql, "SELECT %s FROM %s LIMIT %d", sqlite3_column_text(names, 0), table, ROWS);
    sqlite3_finalize(names);

    sqlite3_stmt *found = prepare(ceiling, sql);
    all.values = calloc((size_t)ROWS * (size_t)all.columns, sizeof *all.values);
    if (!all.values) exit(1);
    for (; sqlite3_step(found) == SQLITE_ROW; all.count++) {
        for (int i = 0; i < all.columns; i++)
            all.values[all.count * (size_t)all.columns + (size_t)i] = sqlite3_value_dup(sqlite3_column_value(found, i));
    }
    check(ceiling, sqlite3_finalize(found));
    if (!all.count) exit(1);
    return all;
}

static void free_rows(rows *all) {
    for (size_t i = 0; i < all->count * (size_t)all->columns; i++) sqlite3_value_free(all->values[i]);
    free(all->values);
    sqlite3_finalize(all->insert);
}

fb_ceiling *fb_ceiling_open(const char *database) {
    fb_ceiling *ceiling = calloc(1, sizeof *ceiling);
    if (!ceiling) exit(1);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    check(ceiling, sqlite3_open_v2(database, &ceiling->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL));
    run(ceiling, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -32768");
    sqlite3_wal_autocheckpoint(ceiling->database, CHECKPOINT_PAGES);
    ceiling->begin = prepare(ceiling, "BEGIN IMMEDIATE");
    ceiling->commit = prepare(ceiling, "COMMIT");
    ceiling->runs = read_rows(ceiling, "runs", "key", "id");
    ceiling->passes = read_rows(ceiling, "run_passes", "", "run");
    ceiling->acts = read_rows(ceiling, "audit", "number", "object");
    return ceiling;
}

static void step(fb_ceiling *ceiling, sqlite3_stmt *statement) {
    check(ceiling, sqlite3_step(statement));
    check(ceiling, sqlite3_reset(statement));
}

static void write_row(fb_ceiling *ceiling, const rows *all) {
    sqlite3_value **row = all->values + ceiling->number % all->count * (size_t)all->columns;
    for (int i = 0; i < all->columns; i++) {
        int at = i + 2, size = sqlite3_value_bytes(row[i]);
        switch (sqlite3_value_type(row[i])) {
        case SQLITE_INTEGER: sqlite3_bind_int64(all->insert, at, sqlite3_value_int64(row[i])); break;
        case SQLITE_TEXT:
            sqlite3_bind_text(all->insert, at, (const char *)sqlite3_value_text(row[i]), size, SQLITE_STATIC);
            break;
        case SQLITE_BLOB: sqlite3_bind_blob(all->insert, at, sqlite3_value_blob(row[i]), size, SQLITE_STATIC); break;
        default: sqlite3_bind_null(all->insert, at); break;
        }
    }
    step(ceiling, all->insert);
}

/* A run has one pass and one act. */
static void write_run(fb_ceiling *ceiling) {
    char id[40];
    int size = snprintf(id, sizeof id, "run_%026zu", ceiling->number);
    sqlite3_bind_text(ceiling->runs.insert, 1, id, size, SQLITE_STATIC);
    write_row(ceiling, &ceiling->runs);
    sqlite3_bind_int64(ceiling->passes.insert, 1, sqlite3_last_insert_rowid(ceiling->database));
    write_row(ceiling, &ceiling->passes);
    sqlite3_bind_text(ceiling->acts.insert, 1, id, size, SQLITE_STATIC);
    write_row(ceiling, &ceiling->acts);
    ceiling->number++;
}

double fb_ceiling_measure(fb_ceiling *ceiling, size_t group, double seconds) {
    double begun = fb_now_ms(), now = begun;
    for (size_t done = 0;; now = fb_now_ms()) {
        if (now - begun >= seconds * 1e3) return (double)done * 1e3 / (now - begun);
        step(ceiling, ceiling->begin);
        for (size_t i = 0; i < group; i++) write_run(ceiling);
        step(ceiling, ceiling->commit);
        done += group;
    }
}

void fb_ceiling_close(fb_ceiling *ceiling) {
    sqlite3_finalize(ceiling->begin);
    sqlite3_finalize(ceiling->commit);
    free_rows(&ceiling->runs);
    free_rows(&ceiling->passes);
    free_rows(&ceiling->acts);
    sqlite3_close(ceiling->database);
    free(ceiling);
}
