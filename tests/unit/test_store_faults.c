/* The store under threads and faults: group commit, a full disk, kill -9, damage, and folders that it must refuse. */
#include "tests/unit/checks.h"
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "tests/unit/store_fixture.h"
#include "tests/unit/store_gate.h"

static char folder[512];

static void setup(void) {
    snprintf(folder, sizeof folder, "%s", new_folder());
}

static void teardown(void) {
    remove_folder(folder);
}

static fb_status put_graph(fb_store *store, unsigned number, size_t filler, fb_error *error) {
    made_graph made;
    make_graph(&made, number, filler);
    fb_status status = fb_store_put_graph(store, &made.graph, NULL, NULL, error);
    free_graph(&made);
    return status;
}

static bool has_graph(fb_store *store, unsigned number, size_t filler) {
    made_graph made;
    make_graph(&made, number, filler);
    char *document = NULL;
    size_t size = 0;
    bool is_there = fb_store_get_document(store, made.id, &document, &size, NULL) == FB_OK;
    if (is_there) ck_assert(size == made.graph.size && memcmp(document, made.document, size) == 0);
    free(document);
    free_graph(&made);
    return is_there;
}

static void change_database(const char *sql) {
    char path[600];
    sqlite3 *handle = NULL;
    snprintf(path, sizeof path, "%s/foldback.sqlite", folder);
    ck_assert_int_eq(sqlite3_open(path, &handle), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(handle, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(handle);
}

static void check_refused(fb_status expected, const char *code) {
    fb_store *store = NULL;
    fb_error error = {0};
    ck_assert_int_eq(fb_store_open(folder, NULL, &store, &error), expected);
    ck_assert_str_eq(error.code, code);
    ck_assert_ptr_null(store);
}

/* ---- folders ---- */

START_TEST(the_folder_is_created_for_its_owner_only) {
    char inner[640];
    struct stat about;
    snprintf(inner, sizeof inner, "%s/data", folder);
    fb_store_close(open_store(inner, NULL));
    ck_assert_int_eq(stat(inner, &about), 0);
    ck_assert_uint_eq(about.st_mode & 0777, 0700);
    strcat(inner, "/foldback.sqlite");
    ck_assert_int_eq(stat(inner, &about), 0);
    ck_assert_uint_eq(about.st_mode & 0777, 0600);
    strcat(inner, "-wal");
    ck_assert_int_ne(stat(inner, &about), 0); /* closed cleanly */
}
END_TEST

START_TEST(one_process_holds_the_folder) {
    fb_store *store = open_store(folder, NULL);
    check_refused(FB_BUSY, "store-locked");
    pid_t child = fork();
    if (child == 0) {
        fb_store *other = NULL;
        fb_error error = {0};
        _exit(fb_store_open(folder, NULL, &other, &error) == FB_BUSY && strcmp(error.code, "store-locked") == 0 ? 0 : 1);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    fb_store_close(store);
    fb_store_close(open_store(folder, NULL));
}
END_TEST

/* Each schema is a migration. */
static int newest_schema(void) {
    glob_t found;
    ck_assert_int_eq(glob("schema/sql/*.sql", 0, NULL, &found), 0);
    int count = (int)found.gl_pathc;
    globfree(&found);
    return count;
}

static int64_t setting(fb_connection *connection, const char *pragma) {
    int64_t value = 0;
    fb_query query = fb_query_begin(connection, pragma, NULL);
    ck_assert_int_eq(fb_read_key(&query, &value), FB_OK);
    return value;
}

static fb_status read_settings(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added, (void)error;
    int64_t *settings = argument;
    settings[0] = setting(connection, "PRAGMA user_version");
    settings[1] = setting(connection, "PRAGMA synchronous");
    settings[2] = setting(connection, "PRAGMA foreign_keys");
    settings[3] = setting(connection, "PRAGMA wal_autocheckpoint");
    return FB_OK;
}

START_TEST(commits_are_synced_in_the_newest_schema) {
    fb_store *store = open_store(folder, NULL);
    int64_t settings[4] = {0};
    ck_assert_int_eq(fb_writer_run(&store->writer, read_settings, settings, NULL), FB_OK);
    ck_assert_int_eq(settings[0], newest_schema());
    ck_assert_int_eq(settings[1], 2); /* FULL */
    ck_assert_int_eq(settings[2], 1);
    ck_assert_int_eq(settings[3], 0);
    fb_store_close(store);
}
END_TEST

START_TEST(a_newer_schema_is_refused_and_left_alone) {
    fb_store_close(open_store(folder, NULL));
    change_database("PRAGMA user_version = 99");
    check_refused(FB_CONFLICT, "newer-schema");
    check_refused(FB_CONFLICT, "newer-schema");
    char back[60];
    snprintf(back, sizeof back, "PRAGMA user_version = %d", newest_schema());
    change_database(back);
    fb_store_close(open_store(folder, NULL));
}
END_TEST

START_TEST(another_programs_database_is_refused) {
    change_database("CREATE TABLE theirs (x)");
    check_refused(FB_INVALID, "not-a-store");
}
END_TEST

START_TEST(what_is_no_database_is_refused) {
    char path[600];
    snprintf(path, sizeof path, "%s/foldback.sqlite", folder);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 1000; i++) fputs("this is not a database ", file);
    fclose(file);
    check_refused(FB_IO, "store-corrupt");
}
END_TEST

START_TEST(a_folder_that_cannot_be_used_is_refused) {
    char file[512];
    snprintf(file, sizeof file, "%.500s/file", folder);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    fb_store *store = NULL;
    fb_error error = {0};
    ck_assert_int_eq(fb_store_open(file, NULL, &store, &error), FB_IO);
    ck_assert_str_eq(error.code, "store-not-writable");
    error = (fb_error){0};
    ck_assert_int_eq(fb_store_open("/proc/none", NULL, &store, &error), FB_IO);
    ck_assert_str_eq(error.code, "store-not-writable");
    error = (fb_error){0};
    ck_assert_int_eq(fb_store_open("/no such parent/data", NULL, &store, &error), FB_IO);
    ck_assert_str_eq(error.code, "store-not-writable");
}
END_TEST

START_TEST(a_damaged_document_is_noticed) {
    fb_store *store = open_store(folder, NULL);
    ck_assert_int_eq(put_graph(store, 1, 100, NULL), FB_OK);
    fb_store_close(store);
    change_database("UPDATE graphs SET document = CAST(substr(document, 1, 40) || x'00' || substr(document, 42) AS BLOB)");
    store = open_store(folder, NULL);
    made_graph made;
    make_graph(&made, 1, 100);
    char *document = NULL;
    size_t size = 0;
    fb_error error = {0};
    ck_assert_int_eq(fb_store_get_document(store, made.id, &document, &size, &error), FB_IO);
    ck_assert_str_eq(error.code, "store-corrupt");
    free_graph(&made);
    fb_store_close(store);
}
END_TEST

/* ---- threads ---- */

#define THREADS 64
#define RUNS_PER_THREAD 8

static fb_store *shared;

/* Puts runs of graphs of its own, each read back at once; every second one is followed by a write that fails. */
static void *put_many(void *argument) {
    unsigned first = (unsigned)(uintptr_t)argument;
    size_t wrong = 0;
    for (unsigned i = 0; i < RUNS_PER_THREAD; i++) {
        made_graph source, result;
        make_graph(&source, 2 * (first + i), 200);
        make_graph(&result, 2 * (first + i) + 1, 200);
        fb_store_graph graphs[] = {source.graph, result.graph};
        fb_store_run run = make_run(shared, &source, &result), back = {0};
        if (fb_store_put_run(shared, &run, graphs, 2, NULL, NULL) != FB_OK) wrong++;
        if (fb_store_get_run(shared, run.id, &back, NULL) != FB_OK) wrong++;
        FB_STORE_FREE(&back);
        if (i % 2 && fb_store_put_run(shared, &run, graphs, 2, NULL, NULL) != FB_CONFLICT) wrong++;
        free_graph(&source);
        free_graph(&result);
    }
    return (void *)wrong;
}

START_TEST(many_threads_write_at_once) {
    pthread_t threads[THREADS];
    shared = open_store(folder, &(fb_store_config){.readers = 3});
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, put_many, (void *)(i * RUNS_PER_THREAD)), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
    ck_assert_double_eq(metric(shared, "runs"), THREADS * RUNS_PER_THREAD);
    ck_assert_double_eq(metric(shared, "graphs"), 2 * THREADS * RUNS_PER_THREAD);
    ck_assert_double_eq(metric(shared, "failed_writes_total"), THREADS * RUNS_PER_THREAD / 2);
    ck_assert_double_gt(metric(shared, "largest_group"), 1);
    ck_assert_double_lt(metric(shared, "commits_total"), metric(shared, "writes_total"));
    ck_assert_double_eq(metric(shared, "queue_depth"), 0);
    fb_store_close(shared);
    shared = open_store(folder, NULL);
    ck_assert_double_eq(metric(shared, "runs"), THREADS * RUNS_PER_THREAD);
    for (unsigned i = 0; i < 2 * THREADS * RUNS_PER_THREAD; i += 37) ck_assert(has_graph(shared, i, 200));
    fb_store_close(shared);
}
END_TEST

typedef struct put_thread {
    pthread_t thread;
    unsigned number;
    size_t filler;
    fb_status status;
    fb_error error;
} put_thread;

static void *put_one(void *argument) {
    put_thread *put = argument;
    put->status = put_graph(shared, put->number, put->filler, &put->error);
    return NULL;
}

/* Starts the puts while the gate is closed, and waits until all of them are in the queue. */
static void queue_puts(put_thread *puts, size_t count) {
    for (size_t i = 0; i < count; i++) ck_assert_int_eq(pthread_create(&puts[i].thread, NULL, put_one, &puts[i]), 0);
    wait_for_queue(shared, count);
}

START_TEST(what_fails_in_a_group_fails_alone) {
    shared = open_store(folder, &(fb_store_config){.max_bytes = 400 * 1024});
    store_gate gate;
    close_gate(&gate, shared);
    put_thread puts[8] = {{0}};
    for (unsigned i = 0; i < 8; i++) puts[i] = (put_thread){.number = i, .filler = i == 3 ? 2000000 : 500};
    queue_puts(puts, 8);
    open_gate(&gate);
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(puts[i].thread, NULL);
        ck_assert_int_eq(puts[i].status, i == 3 ? FB_NO_SPACE : FB_OK);
        ck_assert_int_eq(has_graph(shared, i, puts[i].filler), i != 3);
    }
    ck_assert_str_eq(puts[3].error.code, "disk-full");
    ck_assert_double_eq(metric(shared, "graphs"), 7);
    ck_assert_double_ge(metric(shared, "largest_group"), 8);
    fb_store_close(shared);
}
END_TEST

START_TEST(a_full_queue_says_busy) {
    shared = open_store(folder, &(fb_store_config){.queue_limit = 2});
    store_gate gate;
    fb_error error = {0};
    close_gate(&gate, shared);
    put_thread puts[2] = {{.number = 1}, {.number = 2}};
    queue_puts(puts, 2);
    ck_assert_int_eq(put_graph(shared, 3, 0, &error), FB_BUSY);
    ck_assert_str_eq(error.code, "store-busy");
    open_gate(&gate);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(puts[i].thread, NULL);
        ck_assert_int_eq(puts[i].status, FB_OK);
    }
    ck_assert_int_eq(put_graph(shared, 3, 0, NULL), FB_OK);
    fb_store_close(shared);
}
END_TEST

static void *put_large_ones(void *argument) {
    size_t wrong = 0;
    (void)argument;
    for (unsigned i = 1; i < 30; i++) wrong += put_graph(shared, i, 4000000, NULL) != FB_OK;
    return (void *)wrong;
}

/* As long as it reads, the log cannot begin anew; at 16,384 pages the writer waits for it. */
START_TEST(a_reader_that_stays_does_not_let_the_log_grow_for_ever) {
    shared = open_store(folder, NULL);
    fb_connection *reader = NULL;
    int64_t key = 0;
    ck_assert_int_eq(put_graph(shared, 0, 100, NULL), FB_OK);
    ck_assert_int_eq(fb_readers_take(&shared->readers, &reader, NULL), FB_OK);
    ck_assert_int_eq(fb_find_graph(reader, "none", &key, NULL), FB_OK); /* its snapshot begins */
    pthread_t thread;
    void *wrong = NULL;
    ck_assert_int_eq(pthread_create(&thread, NULL, put_large_ones, NULL), 0);
    while (metric(shared, "wal_bytes") < 67.5e6) usleep(1000);
    fb_readers_give_back(&shared->readers, reader);
    pthread_join(thread, &wrong);
    ck_assert_ptr_null(wrong);
    ck_assert_double_lt(metric(shared, "wal_bytes"), 40e6);
    for (unsigned i = 1; i < 30; i++) ck_assert(has_graph(shared, i, 4000000));
    fb_store_close(shared);
}
END_TEST

/* ---- full disks and kills ---- */

START_TEST(a_full_disk_is_told_and_recovered_from) {
    fb_store *store = open_store(folder, NULL);
    fb_error error = {0};
    ck_assert_int_eq(put_graph(store, 1, 50000, NULL), FB_OK);
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 440 * 1024, .rlim_max = before.rlim_max});
    ck_assert_msg(put_graph(store, 2, 600000, &error) == FB_NO_SPACE, "%s", error.message);
    ck_assert_str_eq(error.code, "disk-full");
    ck_assert_int_eq(fb_store_health(store, NULL), FB_OK); /* it only was too large: there still is room for less */
    ck_assert(has_graph(store, 1, 50000));
    ck_assert(!has_graph(store, 2, 600000));
    unsigned number = 3;
    while (put_graph(store, number, 20000, NULL) == FB_OK) number++;
    ck_assert_uint_gt(number, 3);
    ck_assert_uint_lt(number, 40);
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(fb_store_health(store, NULL), FB_OK);
    ck_assert_int_eq(put_graph(store, 2, 600000, NULL), FB_OK);
    fb_store_close(store);
    store = open_store(folder, NULL);
    for (unsigned i = 1; i < number; i++) ck_assert(has_graph(store, i, i == 1 ? 50000 : i == 2 ? 600000 : 20000));
    ck_assert(!has_graph(store, number, 20000));
    fb_store_close(store);
}
END_TEST

START_TEST(health_tells_a_full_store) {
    fb_store *store = open_store(folder, &(fb_store_config){.max_bytes = 400 * 1024});
    fb_error error = {0};
    ck_assert_int_eq(fb_store_health(store, NULL), FB_OK);
    unsigned number = 0;
    while (put_graph(store, number, 3000, NULL) == FB_OK) number++;
    ck_assert_int_eq(fb_store_health(store, &error), FB_NO_SPACE);
    ck_assert_str_eq(error.code, "disk-full");
    for (unsigned i = 0; i < number / 2; i++) {
        made_graph made;
        make_graph(&made, i, 3000);
        ck_assert_int_eq(fb_store_delete_graph(store, made.id, NULL, NULL, NULL), FB_OK);
        free_graph(&made);
    }
    ck_assert_int_eq(fb_store_health(store, NULL), FB_OK);
    ck_assert_int_eq(put_graph(store, 0, 3000, NULL), FB_OK);
    fb_store_close(store);
}
END_TEST

/* Writes graphs first, first + 4, … and reports each through a pipe after it was acknowledged. */
typedef struct reporter {
    unsigned first;
    int pipe;
} reporter;

static void *put_until_killed(void *argument) {
    const reporter *self = argument;
    for (unsigned number = self->first;; number += 4)
        if (put_graph(shared, number, 300, NULL) != FB_OK || write(self->pipe, &number, sizeof number) != sizeof number)
            _exit(1);
    return NULL;
}

static void be_killed(int output) {
    pthread_t threads[4];
    reporter reporters[4];
    shared = open_store(folder, NULL);
    for (unsigned i = 0; i < 4; i++) {
        reporters[i] = (reporter){.first = i, .pipe = output};
        pthread_create(&threads[i], NULL, put_until_killed, &reporters[i]);
    }
    pause();
}

START_TEST(what_was_acknowledged_survives_a_kill) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        be_killed(ends[1]);
    }
    close(ends[1]);
    unsigned acknowledged[4096], count = 0;
    while (count < 100 + 50 * (unsigned)_i && read(ends[0], &acknowledged[count], sizeof acknowledged[0]) > 0) count++;
    kill(child, SIGKILL);
    while (count < 4096 && read(ends[0], &acknowledged[count], sizeof acknowledged[0]) > 0) count++;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert_uint_ge(count, 100);
    fb_store *store = open_store(folder, NULL);
    for (unsigned i = 0; i < count; i++) ck_assert_msg(has_graph(store, acknowledged[i], 300), "graph %u", acknowledged[i]);
    ck_assert_int_eq(put_graph(store, 1000000, 300, NULL), FB_OK);
    fb_store_close(store);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("faults");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, the_folder_is_created_for_its_owner_only);
    tcase_add_test(tests, one_process_holds_the_folder);
    tcase_add_test(tests, commits_are_synced_in_the_newest_schema);
    tcase_add_test(tests, a_newer_schema_is_refused_and_left_alone);
    tcase_add_test(tests, another_programs_database_is_refused);
    tcase_add_test(tests, what_is_no_database_is_refused);
    tcase_add_test(tests, a_folder_that_cannot_be_used_is_refused);
    tcase_add_test(tests, a_damaged_document_is_noticed);
    tcase_add_test(tests, many_threads_write_at_once);
    tcase_add_test(tests, what_fails_in_a_group_fails_alone);
    tcase_add_test(tests, a_full_queue_says_busy);
    tcase_add_test(tests, a_reader_that_stays_does_not_let_the_log_grow_for_ever);
    tcase_add_test(tests, a_full_disk_is_told_and_recovered_from);
    tcase_add_test(tests, health_tells_a_full_store);
    tcase_add_loop_test(tests, what_was_acknowledged_survives_a_kill, 0, 5);
    return run_tests("store_faults", tests);
}
