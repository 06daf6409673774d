/* What the store says when the disk fails, when it is killed in the middle of a migration, and when the clock jumps. */
#include "tests/unit/checks.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "tests/unit/chaos.h"
#include "tests/unit/file_faults.h"
#include "tests/unit/store_fixture.h"

static char folder[512];

static void setup(void) {
    snprintf(folder, sizeof folder, "%s", new_folder());
}

static void teardown(void) {
    remove_folder(folder);
}

static bool has_graph(fb_store *store, const made_graph *made) {
    char *document = NULL;
    size_t size = 0;
    bool is_there = fb_store_get_document(store, made->id, &document, &size, NULL) == FB_OK;
    if (is_there) ck_assert(size == made->graph.size && memcmp(document, made->document, size) == 0);
    free(document);
    return is_there;
}

/* ---- a disk that fails -------------------------------------------------------------------------------------------------- */

typedef struct disk_answer {
    int reason;
    fb_status status;
    const char *code;
} disk_answer;

static const disk_answer disk_answers[] = {
    {EIO, FB_IO, "store-failed"},
    {EROFS, FB_IO, "store-failed"},
    {ENOSPC, FB_NO_SPACE, "disk-full"},
    {EDQUOT, FB_NO_SPACE, "disk-full"},
};

/* Every k-th write and sync of the database fails, with all that follow: the graph is stored, or it is told why not and nothing
 * of it is there; what was stored before can be read; and when the disk works again, so does the store. */
START_TEST(a_disk_that_fails_is_told_and_recovered_from) {
    const disk_answer *expected = &disk_answers[_i];
    fb_store *store = open_store(folder, NULL);
    made_graph first, made;
    fb_error error = {0};
    make_graph(&first, 0, 1000);
    check_ok(fb_store_put_graph(store, &first.graph, NULL, NULL, &error), &error);
    long failed = 0;
    bool is_done = false;
    for (unsigned k = 0; !is_done && k < 200; k++) {
        make_graph(&made, k + 1, 30000);
        file_faults_after(PWRITE | FSYNC | TRUNCATE, OF_SQLITE, (long)k, expected->reason);
        fb_status status = fb_store_put_graph(store, &made.graph, NULL, NULL, &error);
        bool is_readable = has_graph(store, &first);
        bool is_there = has_graph(store, &made);
        is_done = !file_faults_off();
        ck_assert(is_readable);
        ck_assert_int_eq(is_there, status == FB_OK);
        if (status) {
            failed++;
            check_error(status, &error, expected->status, expected->code);
            check_ok(fb_store_health(store, &error), &error);
            check_ok(fb_store_put_graph(store, &made.graph, NULL, NULL, &error), &error);
        }
        free_graph(&made);
    }
    ck_assert(is_done);
    ck_assert_int_gt(failed, 5);
    fb_store_close(store);
    store = open_store(folder, NULL);
    ck_assert(has_graph(store, &first));
    fb_store_close(store);
    free_graph(&first);
}
END_TEST

/* ---- migrations --------------------------------------------------------------------------------------------------------- */

static void run_sql(const char *sql) {
    char path[600], *message = NULL;
    sqlite3 *handle = NULL;
    snprintf(path, sizeof path, "%s/foldback.sqlite", folder);
    ck_assert_int_eq(sqlite3_open(path, &handle), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(handle, sql, NULL, NULL, &message) == SQLITE_OK, "%s", message);
    sqlite3_close(handle);
}

static char *read_text(const char *path) {
    fb_buffer text = {0};
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s", path);
    for (int c; (c = getc(file)) != EOF;) fb_buffer_char(&text, (char)c);
    fclose(file);
    return fb_buffer_take(&text, NULL);
}

/* A database of the first schema with one graph, whose document nobody reads here. */
static void make_old_store(void) {
    char *schema = read_text("schema/sql/001_initial.sql");
    run_sql("PRAGMA journal_mode = WAL");
    run_sql(schema);
    run_sql(
        "INSERT INTO graphs (id, structure, name, nodes, size, created, document) VALUES ('old', 's', 'n', 1, 1, 1, x'00')");
    run_sql("PRAGMA application_id = 0x666c6462; PRAGMA user_version = 1");
    free(schema);
}

/* True when the child opened the store; else it died at its k-th write, sync or removal. */
static bool open_in_child(long k) {
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        fb_store *store = NULL;
        file_faults_after(ALL_CALLS, OF_SQLITE, k, 0);
        _exit(fb_store_open(folder, NULL, &store, NULL) ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 7));
    return WEXITSTATUS(status) == 0;
}

static int64_t number_of(fb_store *store, const char *sql) {
    fb_connection *connection = NULL;
    int64_t number = -1;
    ck_assert_int_eq(fb_readers_take(&store->readers, &connection, NULL), FB_OK);
    fb_query query = fb_query_begin(connection, sql, NULL);
    ck_assert_int_eq(fb_read_key(&query, &number), FB_OK);
    fb_readers_give_back(&store->readers, connection);
    return number;
}

START_TEST(a_migration_that_dies_at_any_call_is_gone_on_with) {
    int64_t newest = 0;
    long deaths = 0;
    for (bool is_done = false; !is_done; deaths += fault_step()) {
        make_old_store();
        is_done = open_in_child(deaths);
        fb_store *store = open_store(folder, NULL);
        int64_t version = number_of(store, "PRAGMA user_version");
        if (!newest) newest = version;
        ck_assert_int_eq(version, newest);
        ck_assert_int_eq(number_of(store, "SELECT count(*) FROM graphs WHERE id = 'old'"), 1);
        ck_assert_int_eq(number_of(store, "SELECT count(*) FROM unread_graphs"), 0);
        ck_assert_int_eq(number_of(store, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
        fb_store_close(store);
        remove_folder(folder);
        setup();
    }
    ck_assert_int_gt(deaths, 10);
}
END_TEST

/* ---- the clock ---------------------------------------------------------------------------------------------------------- */

static int64_t now;

static int64_t read_now(void) {
    return now;
}

static const fb_store_config with_clock = {.now_ms = read_now};
static const int64_t jumps[] = {0, 3600000, -86400000, 5, -1700000000000, 1700000000000 + 3600000, 0};

START_TEST(runs_ascend_however_the_clock_jumps) {
    char last[FB_RUN_ID_LENGTH + 1] = "";
    made_graph source, result;
    make_graph(&source, 1, 10);
    make_graph(&result, 2, 10);
    now = 1763717000000;
    fb_store *store = open_store(folder, &with_clock);
    for (size_t i = 0; i < 2 * sizeof jumps / sizeof *jumps; i++) {
        if (i == sizeof jumps / sizeof *jumps) now = 1763717000000;
        now += jumps[i % (sizeof jumps / sizeof *jumps)];
        fb_store_run run = make_run(store, &source, &result);
        put_run(store, &run, &source, &result);
        ck_assert_int_eq(run.created, now);
        ck_assert_int_gt(strcmp(run.id, last), 0);
        memcpy(last, run.id, sizeof last);
        if (i % 2) { /* also over a restart */
            fb_store_close(store);
            store = open_store(folder, &with_clock);
        }
        fb_store_runs runs;
        ck_assert_int_eq(fb_store_list_runs(store, NULL, NULL, false, &runs, NULL), FB_OK);
        ck_assert_str_eq(runs.items[0].id, last);
        FB_STORE_FREE(&runs);
    }
    fb_store_close(store);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

/* A clock that goes back keeps answers; one that goes on by a day lets them go; none is kept for ever by a jump and back. */
START_TEST(answers_are_sane_when_the_clock_jumps) {
    made_graph made;
    make_graph(&made, 1, 10);
    fb_store_answer answer = {.key = {"ann", "POST /v1/graphs", "k"}, .request_digest = "d", .status = 201}, found = {0};
    fb_store_repeat repeat;
    now = 1763717000000;
    fb_store *store = open_store(folder, &with_clock);
    ck_assert_int_eq(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k"}, "d", &repeat, &found, NULL),
                     FB_OK);
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    ck_assert_int_eq(fb_store_put_graph(store, &made.graph, &answer, NULL, NULL), FB_OK);
    fb_store_end_request(store, &(fb_store_key){"ann", answer.key.scope, "k"});
    const struct {
        int64_t jump;
        fb_store_repeat repeat;
    } steps[] = {{0, FB_REPEATED},
                 {-400 * (int64_t)86400000, FB_REPEATED},
                 {400 * (int64_t)86400000 + 86400000 - 1, FB_REPEATED},
                 {1, FB_FIRST_REQUEST}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        now += steps[i].jump;
        ck_assert_int_eq(
            fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k"}, "d", &repeat, &found, NULL), FB_OK);
        ck_assert_int_eq(repeat, steps[i].repeat);
        if (repeat == FB_REPEATED) FB_STORE_FREE(&found);
        else fb_store_end_request(store, &(fb_store_key){"ann", answer.key.scope, "k"});
    }
    fb_store_close(store);
    free_graph(&made);
}
END_TEST

START_TEST(a_ulid_is_gone_on_after) {
    fb_ulid_source source = {.mutex = PTHREAD_MUTEX_INITIALIZER}, other = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    char given[FB_ULID_LENGTH + 1], next[FB_ULID_LENGTH + 1];
    static const char *const wrong[] = {"", "01ARYZ6S41", "01ARYZ6S42000000000000000!", "01ARYZ6S4200000000000000000"};
    for (int64_t at = 1; at < (int64_t)1 << 47; at *= 3) {
        ck_assert_int_eq(fb_ulid_next(&source, at, given, NULL), FB_OK);
        fb_ulid_resume(&other, given);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) fb_ulid_resume(&other, wrong[i]);
        ck_assert_int_eq(other.last_ms, at);
        ck_assert_mem_eq(other.random, source.random, sizeof source.random);
        ck_assert_int_eq(fb_ulid_next(&other, 0, next, NULL), FB_OK);
        ck_assert_int_gt(strcmp(next, given), 0);
    }
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("answers");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, a_disk_that_fails_is_told_and_recovered_from, 0, sizeof disk_answers / sizeof *disk_answers);
    tcase_add_test(tests, a_migration_that_dies_at_any_call_is_gone_on_with);
    tcase_add_test(tests, runs_ascend_however_the_clock_jumps);
    tcase_add_test(tests, answers_are_sane_when_the_clock_jumps);
    tcase_add_test(tests, a_ulid_is_gone_on_after);
    return run_tests("store_answers", tests);
}
