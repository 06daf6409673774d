#include "tests/bench/durable/ceiling.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

#define CHECKPOINT_PAGES 1000 /* as the service's */

struct fb_ceiling {
    sqlite3 *database;
    sqlite3_stmt *begin, *commit, *run, *passes, *act;
    sqlite3_int64 first, last; /* keys of the runs that are written again and again */
    sqlite3_int64 next;        /* of them */
    unsigned long long number; /* for ids of their own */
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

static sqlite3_int64 number(fb_ceiling *ceiling, const char *sql) {
    sqlite3_stmt *statement = prepare(ceiling, sql);
    check(ceiling, sqlite3_step(statement));
    sqlite3_int64 found = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return found;
}

/* INSERT INTO table (first, others) SELECT value, others FROM source.table WHERE condition: whatever columns there are. */
static sqlite3_stmt *copy_of(fb_ceiling *ceiling, const char *table, const char *left_out, const char *first, const char *value,
                             const char *condition) {
    char sql[2000];
    snprintf(sql, sizeof sql, "SELECT group_concat(name, ', ') FROM pragma_table_info('%s') WHERE name NOT IN (%s)", table,
             left_out);
    sqlite3_stmt *names = prepare(ceiling, sql);
    check(ceiling, sqlite3_step(names));
    const char *others = (const char *)sqlite3_column_text(names, 0);
    snprintf(sql, sizeof sql, "INSERT INTO main.%s (%s, %s) SELECT %s, %s FROM source.%s WHERE %s", table, first, others, value,
             others, table, condition);
    sqlite3_finalize(names);
    return prepare(ceiling, sql);
}

static void copy_file(const char *from, const char *to) {
    fb_buffer bytes = {0};
    fb_bench_read_file(from, &bytes);
    FILE *file = fopen(to, "wb");
    if (!file || fwrite(bytes.data, 1, bytes.size, file) != bytes.size || fclose(file)) {
        perror(to);
        exit(1);
    }
    fb_buffer_free(&bytes);
}

fb_ceiling *fb_ceiling_open(const char *database) {
    char text[1000];
    fb_ceiling *ceiling = calloc(1, sizeof *ceiling);
    if (!ceiling) exit(1);
    snprintf(text, sizeof text, "%s.source", database);
    copy_file(database, text);
    check(ceiling, sqlite3_open(database, &ceiling->database));
    run(ceiling, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -32768");
    snprintf(text, sizeof text, "ATTACH '%s.source' AS source", database);
    run(ceiling, text);
    sqlite3_wal_autocheckpoint(ceiling->database, CHECKPOINT_PAGES);
    ceiling->begin = prepare(ceiling, "BEGIN IMMEDIATE");
    ceiling->commit = prepare(ceiling, "COMMIT");
    ceiling->run = copy_of(ceiling, "runs", "'key', 'id'", "id", "?2", "key = ?1");
    ceiling->passes = copy_of(ceiling, "run_passes", "'run'", "run", "?2", "run = ?1");
    ceiling->act = copy_of(ceiling, "audit", "'number', 'object'", "object", "?2", "number = ?1");
    ceiling->first = ceiling->next = number(ceiling, "SELECT min(key) FROM source.runs");
    ceiling->last = number(ceiling, "SELECT max(key) FROM source.runs");
    return ceiling;
}

static void step(fb_ceiling *ceiling, sqlite3_stmt *statement) {
    check(ceiling, sqlite3_step(statement));
    check(ceiling, sqlite3_reset(statement));
}

static void write_run(fb_ceiling *ceiling) {
    char id[40];
    int size = snprintf(id, sizeof id, "run_%026llu", ceiling->number++);
    sqlite3_bind_int64(ceiling->run, 1, ceiling->next);
    sqlite3_bind_text(ceiling->run, 2, id, size, SQLITE_STATIC);
    step(ceiling, ceiling->run);
    sqlite3_bind_int64(ceiling->passes, 1, ceiling->next);
    sqlite3_bind_int64(ceiling->passes, 2, sqlite3_last_insert_rowid(ceiling->database));
    step(ceiling, ceiling->passes);
    sqlite3_bind_int64(ceiling->act, 1, ceiling->next); /* one act a run, in the same order */
    sqlite3_bind_text(ceiling->act, 2, id, size, SQLITE_STATIC);
    step(ceiling, ceiling->act);
    if (++ceiling->next > ceiling->last) ceiling->next = ceiling->first;
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
    sqlite3_stmt *all[] = {ceiling->begin, ceiling->commit, ceiling->run, ceiling->passes, ceiling->act};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sqlite3_finalize(all[i]);
    sqlite3_close(ceiling->database);
    free(ceiling);
}
