/* Blobs under threads and faults: puts and gc at once, groups that cannot be committed, a full disk, calls that fail, kills. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/blob_fixture.h"
#include "tests/unit/chaos.h"
#include "tests/unit/store_gate.h"

/* ---- system calls that fail, or at which the process dies ----
 * These stand before libc's for the whole program, SQLite included. */

enum { NO_CALL = 0, PWRITE = 1, FSYNC = 2, RENAME = 4, UNLINK = 8, MKDIR = 16, TRUNCATE = 32, ALL_CALLS = 63 };

static unsigned faulty; /* which calls */
static enum { OF_ALL, NOT_OF_SQLITE, OF_SQLITE } whose;
static int reason;              /* errno, or 0: the process dies */
static _Atomic long calls_left; /* that still go well */

static bool is_of_sqlite(int file) {
    char link[64], path[600];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return strstr(path, "foldback.sqlite") != NULL;
}

static bool must_fail(unsigned call, int file) {
    if (!(faulty & call) || (whose && is_of_sqlite(file) != (whose == OF_SQLITE))) return false;
    if (atomic_fetch_sub(&calls_left, 1) > 0) return false;
    if (!reason) _exit(7);
    errno = reason;
    return true;
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset) {
    return must_fail(PWRITE, file) ? -1 : syscall(SYS_pwrite64, file, bytes, size, offset);
}
int fsync(int file) {
    return must_fail(FSYNC, file) ? -1 : (int)syscall(SYS_fsync, file);
}
int fdatasync(int file) {
    return must_fail(FSYNC, file) ? -1 : (int)syscall(SYS_fdatasync, file);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return must_fail(RENAME, -1) ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
}
int unlinkat(int folder, const char *path, int flags) {
    return must_fail(UNLINK, -1) ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    return must_fail(MKDIR, -1) ? -1 : (int)syscall(SYS_mkdirat, folder, path, mode);
}

int ftruncate(int file, off_t size) {
    return must_fail(TRUNCATE, file) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}

static void (*before_open)(void); /* called once, when a blob's file is about to be opened */

int openat(int folder, const char *path, int flags, ...) {
    void (*hook)(void) = before_open;
    if (hook && strncmp(path, "blobs/", 6) == 0 && !(flags & O_DIRECTORY)) {
        before_open = NULL;
        hook();
    }
    va_list rest;
    va_start(rest, flags);
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

static void fail_after(unsigned calls, long count, int error_number) {
    reason = error_number;
    atomic_store(&calls_left, count);
    faulty = calls;
}

/* True if a call failed. */
static bool faults_off(void) {
    faulty = NO_CALL;
    return atomic_load(&calls_left) < 0;
}

/* ---- the store ---- */

static char folder[512];
static fb_store *store;

static void setup(void) {
    snprintf(folder, sizeof folder, "%s", new_folder());
    whose = NOT_OF_SQLITE;
    store = open_store(folder, NULL);
}

static void teardown(void) {
    fb_store_close(store);
    remove_folder(folder);
}

/* Every row has its bytes; when gc has run, there is no other file. Returns how many blobs there are. */
static size_t check_blobs(void) {
    fb_blob_rows rows;
    size_t files = 0;
    ck_assert_int_eq(fb_blobs_list(store, &(fb_store_page){.limit = FB_PAGE_MAX}, &rows, NULL), FB_OK);
    for (size_t i = 0; i < rows.count; i++) {
        fb_blob *blob = NULL;
        fb_error error = {0};
        const unsigned char *bytes = NULL;
        char digest[FB_ID_LENGTH + 1];
        check_ok(fb_blob_open(store, rows.items[i].digest, &blob, &error), &error);
        check_ok(fb_blob_map(blob, &bytes, &error), &error);
        ck_assert_uint_eq(fb_blob_size(blob), rows.items[i].size);
        ck_assert(fb_sha256_id(bytes, (size_t)rows.items[i].size, digest));
        ck_assert_str_eq(digest, rows.items[i].digest);
        fb_blob_close(blob);
        files += rows.items[i].size > FB_BLOB_INLINE;
    }
    ck_assert_double_eq(metric(store, "blobs"), (double)rows.count);
    ck_assert_uint_ge(count_files(folder, "blobs"), files);
    free(rows.items);
    return rows.count;
}

static void check_all_rubbish_goes(void) {
    check_blobs();
    fb_garbage garbage = collect(store, 0, false);
    size_t kept = check_blobs();
    ck_assert_uint_eq(kept, garbage.kept);
    fb_blob_rows rows;
    size_t files = 0;
    ck_assert_int_eq(fb_blobs_list(store, &(fb_store_page){.limit = FB_PAGE_MAX}, &rows, NULL), FB_OK);
    for (size_t i = 0; i < rows.count; i++) files += rows.items[i].size > FB_BLOB_INLINE;
    free(rows.items);
    ck_assert_uint_eq(count_files(folder, "blobs"), files);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
}

/* ---- threads ---- */

static _Atomic size_t wrong, new_ones;
static _Atomic bool is_over;
static made_blob same;

static void *put_the_same(void *argument) {
    bool gc_runs = argument != NULL;
    for (int round = 0; round < 40; round++) {
        bool is_new = false;
        fb_blob *blob = NULL;
        if (put_blob(store, &same, &is_new, NULL) != FB_OK) wrong++;
        fb_status status = fb_blob_open(store, same.digest, &blob, NULL);
        const unsigned char *bytes = NULL;
        if (status != FB_OK && (status != FB_NOT_FOUND || !gc_runs)) wrong++;
        if (blob && (fb_blob_map(blob, &bytes, NULL) || memcmp(bytes, same.bytes, same.size) != 0)) wrong++;
        fb_blob_close(blob);
        new_ones += is_new;
    }
    return NULL;
}

START_TEST(one_digest_is_put_by_many_at_once) {
    pthread_t threads[8];
    make_blob(&same, 1, _i ? 1000 : 200000);
    wrong = 0;
    for (size_t i = 0; i < 8; i++) pthread_create(&threads[i], NULL, put_the_same, NULL);
    for (size_t i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    ck_assert_uint_eq(wrong, 0);
    ck_assert_double_eq(metric(store, "blobs"), 1);
    ck_assert_double_eq(metric(store, "blob_bytes"), (double)same.size);
    ck_assert_uint_eq(check_blobs(), 1);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    ck_assert_uint_eq(count_files(folder, "blobs"), !_i);
    free_blob(&same);
}
END_TEST

static void *collect_all_the_time(void *argument) {
    uint64_t *removed = argument;
    while (!is_over) {
        fb_garbage garbage = {0};
        if (fb_store_collect(store, 0, false, &garbage, NULL) != FB_OK) wrong++;
        *removed += garbage.blobs;
    }
    return NULL;
}

START_TEST(gc_and_puts_of_one_digest_race) {
    pthread_t threads[6], collectors[2];
    uint64_t removed[2] = {0};
    make_blob(&same, 1, _i ? 1000 : 70000);
    wrong = new_ones = 0;
    is_over = false;
    for (size_t i = 0; i < 2; i++) pthread_create(&collectors[i], NULL, collect_all_the_time, &removed[i]);
    for (size_t i = 0; i < 6; i++) pthread_create(&threads[i], NULL, put_the_same, &same);
    for (size_t i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    is_over = true;
    for (size_t i = 0; i < 2; i++) pthread_join(collectors[i], NULL);
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_gt(removed[0] + removed[1], 5);
    ck_assert_uint_eq(new_ones, removed[0] + removed[1] + check_blobs());
    check_all_rubbish_goes();
    free_blob(&same);
}
END_TEST

static void collect_now(void) {
    ck_assert_uint_eq(collect(store, 0, false).blobs, 1);
}

static void collect_and_put_now(void) {
    collect_now();
    put_new_blob(store, &same);
}

START_TEST(a_blob_goes_while_it_is_opened) {
    make_blob(&same, 1, 100000);
    put_new_blob(store, &same);
    before_open = _i ? collect_and_put_now : collect_now;
    ck_assert_int_eq(has_blob(store, &same), _i);
    ck_assert(!before_open);
    free_blob(&same);
}
END_TEST

/* ---- groups ---- */

static void *put_one(void *argument) {
    return (void *)(uintptr_t)put_blob(store, argument, NULL, NULL);
}

static void *collect_once(void *argument) {
    return (void *)(uintptr_t)fb_store_collect(store, 5000, false, argument, NULL);
}

static int64_t time_ms;

static int64_t now_ms(void) {
    return time_ms;
}

static void *put_large_graph(void *argument) {
    made_graph made;
    (void)argument;
    make_graph(&made, 1, 2000000);
    fb_status status = fb_store_put_graph(store, &made.graph, NULL, NULL, NULL);
    free_graph(&made);
    return (void *)(uintptr_t)status;
}

/* gc takes the old blob, it and another one are put: all in one group, in every order. The group is committed; or something
 * makes it fail, so that each runs again alone; or nothing can be committed at all. */
START_TEST(a_group_of_gc_and_puts) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const int *order = orders[_i / 3];
    bool group_fails = _i % 3 == 1, all_fails = _i % 3 == 2;
    made_blob old, other;
    make_blob(&old, 1, 100000);
    make_blob(&other, 2, 100000);
    fb_store_close(store);
    store = open_store(folder, &(fb_store_config){.max_bytes = 400 * 1024, .now_ms = now_ms});
    time_ms = 10000;
    put_new_blob(store, &old);
    time_ms = 20000;
    fb_garbage garbage = {0};
    void *(*const functions[3])(void *) = {collect_once, put_one, put_one};
    void *const arguments[3] = {&garbage, &old, &other};
    store_gate gate;
    pthread_t threads[4];
    close_gate(&gate, store);
    for (size_t i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, functions[order[i]], arguments[order[i]]);
        wait_for_queue(store, i + 1);
    }
    if (group_fails) {
        pthread_create(&threads[3], NULL, put_large_graph, NULL);
        wait_for_queue(store, 4);
    }
    if (all_fails) {
        whose = OF_SQLITE;
        fail_after(FSYNC, 0, EIO); /* the gate wrote nothing */
    }
    open_gate(&gate);
    for (size_t i = 0; i < 3; i++) {
        void *status = NULL;
        pthread_join(threads[i], &status);
        ck_assert_uint_eq((uintptr_t)status, all_fails ? FB_IO : FB_OK);
    }
    if (all_fails) ck_assert(faults_off());
    if (group_fails) {
        void *status = NULL;
        pthread_join(threads[3], &status);
        ck_assert_uint_eq((uintptr_t)status, FB_NO_SPACE);
    }
    ck_assert_double_ge(metric(store, "largest_group"), 3 + group_fails);
    ck_assert_int_eq(has_blob(store, &old), 1);
    ck_assert_int_eq(has_blob(store, &other), !all_fails);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    ck_assert_uint_eq(count_files(folder, "blobs"), all_fails ? 1 : 2);
    ck_assert_uint_eq(check_blobs(), all_fails ? 1 : 2);
    free_blob(&old);
    free_blob(&other);
}
END_TEST

static fb_status run_script(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    return fb_sql_script(connection, argument, error);
}

START_TEST(a_row_that_cannot_be_written_leaves_the_upload) {
    made_blob made;
    make_blob(&made, 1, _i ? 100 : 100000);
    fb_upload *upload = NULL;
    char found[FB_ID_LENGTH + 1],
        trigger[] = "CREATE TEMP TRIGGER no BEFORE INSERT ON main.blobs "
                    "BEGIN SELECT RAISE(ABORT, 'no'); END",
        drop[] = "DROP TRIGGER no";
    bool is_new = false;
    fb_error error = {0};
    ck_assert_int_eq(fb_upload_new(store, true, &upload, NULL), FB_OK);
    ck_assert_int_eq(fb_upload_write(upload, made.bytes, made.size, NULL), FB_OK);
    check_ok(fb_writer_run(&store->writer, run_script, trigger, &error), &error);
    check_error(fb_upload_finish(upload, made.digest, found, &is_new, &error), &error, FB_IO, "store-failed");
    ck_assert_uint_eq(count_files(folder, "uploads"), 1);
    ck_assert_uint_eq(count_files(folder, "blobs"), 0);
    ck_assert_int_eq(fb_writer_run(&store->writer, run_script, drop, NULL), FB_OK);
    check_ok(fb_upload_finish(upload, made.digest, found, &is_new, &error), &error);
    fb_upload_close(upload, false);
    ck_assert_int_eq(has_blob(store, &made), 1);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    free_blob(&made);
}
END_TEST

/* ---- a full disk ---- */

static const unsigned full_disks[] = {PWRITE, FSYNC, RENAME, MKDIR, PWRITE | FSYNC | RENAME | MKDIR};

START_TEST(a_full_disk_is_told_and_recovered_from) {
    size_t failed = 0;
    for (unsigned k = 0, stop = 0; !stop; k++) {
        made_blob made;
        fb_error error = {0};
        make_blob(&made, k, 100000);
        fail_after(full_disks[_i], k, ENOSPC);
        fb_status status = put_blob(store, &made, NULL, &error);
        stop = !faults_off();
        if (status) check_error(status, &error, FB_NO_SPACE, "disk-full");
        ck_assert_int_eq(has_blob(store, &made), status == FB_OK);
        if (status) failed++;
        ck_assert_int_eq(fb_store_health(store, NULL), FB_OK);
        put_new_blob(store, &made);
        ck_assert_int_eq(has_blob(store, &made), 1);
        ck_assert_uint_eq(check_blobs(), k + 1);
        free_blob(&made);
    }
    ck_assert_uint_ge(failed, 1);
    check_all_rubbish_goes();
}
END_TEST

START_TEST(a_write_that_fails_keeps_what_was_there) {
    made_blob made;
    char id[FB_UPLOAD_ID_LENGTH + 1];
    fb_upload *upload = NULL;
    fb_error error = {0};
    bool is_new;
    char found[FB_ID_LENGTH + 1];
    struct rlimit before;
    make_blob(&made, 1, 500000);
    ck_assert_int_eq(fb_upload_new(store, true, &upload, NULL), FB_OK);
    snprintf(id, sizeof id, "%s", fb_upload_id(upload));
    ck_assert_int_eq(fb_upload_write(upload, made.bytes, 200000, NULL), FB_OK);
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 300000, .rlim_max = before.rlim_max});
    check_error(fb_upload_write(upload, made.bytes + 200000, 300000, &error), &error, FB_NO_SPACE, "disk-full");
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_uint_eq(fb_upload_size(upload), 200000);
    if (_i) {
        fb_upload_close(upload, false);
        fb_store_close(store);
        store = open_store(folder, NULL);
        ck_assert_int_eq(fb_upload_open(store, id, &upload, NULL), FB_OK);
        ck_assert_uint_eq(fb_upload_size(upload), 200000);
    }
    ck_assert_int_eq(fb_upload_write(upload, made.bytes + 200000, 300000, NULL), FB_OK);
    check_ok(fb_upload_finish(upload, made.digest, found, &is_new, &error), &error);
    fb_upload_close(upload, false);
    ck_assert_int_eq(has_blob(store, &made), 1);
    free_blob(&made);
}
END_TEST

START_TEST(what_was_half_written_does_not_get_into_the_blob) {
    made_blob made;
    fb_upload *upload = NULL;
    fb_error error = {0};
    bool is_new;
    char found[FB_ID_LENGTH + 1];
    struct rlimit before;
    make_blob(&made, 1, 200000);
    ck_assert_int_eq(fb_upload_new(store, true, &upload, NULL), FB_OK);
    ck_assert_int_eq(fb_upload_write(upload, made.bytes, 100000, NULL), FB_OK);
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 250000, .rlim_max = before.rlim_max});
    char rubbish[200000] = "";
    fail_after(TRUNCATE, 0, EIO);
    ck_assert_int_eq(fb_upload_write(upload, rubbish, sizeof rubbish, NULL), FB_NO_SPACE);
    ck_assert(faults_off());
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(fb_upload_write(upload, made.bytes + 100000, 100000, NULL), FB_OK);
    check_ok(fb_upload_finish(upload, made.digest, found, &is_new, &error), &error);
    fb_upload_close(upload, false);
    ck_assert_int_eq(has_blob(store, &made), 1);
    free_blob(&made);
}
END_TEST

/* What of the bytes is on the disk then, nobody knows. */
START_TEST(an_upload_that_could_not_be_synced_begins_anew) {
    made_blob made;
    fb_upload *upload = NULL;
    fb_error error = {0};
    bool is_new;
    char found[FB_ID_LENGTH + 1];
    make_blob(&made, 1, 500000);
    ck_assert_int_eq(fb_upload_new(store, true, &upload, NULL), FB_OK);
    ck_assert_int_eq(fb_upload_write(upload, made.bytes, made.size, NULL), FB_OK);
    fail_after(FSYNC, 0, EIO);
    ck_assert_int_eq(fb_upload_finish(upload, made.digest, found, &is_new, &error), FB_IO);
    ck_assert(faults_off());
    ck_assert_uint_eq(fb_upload_size(upload), 0);
    ck_assert_int_eq(fb_upload_write(upload, made.bytes, made.size, NULL), FB_OK);
    error = (fb_error){0};
    check_ok(fb_upload_finish(upload, made.digest, found, &is_new, &error), &error);
    fb_upload_close(upload, false);
    ck_assert_int_eq(has_blob(store, &made), 1);
    free_blob(&made);
}
END_TEST

START_TEST(files_that_cannot_be_removed_go_the_next_time) {
    made_blob made;
    make_blob(&made, 1, 100000);
    put_new_blob(store, &made);
    fail_after(UNLINK, 0, EIO);
    ck_assert_uint_eq(collect(store, 0, false).blobs, 1);
    ck_assert(faults_off());
    ck_assert_uint_eq(count_files(folder, "blobs"), 1);
    ck_assert_int_eq(has_blob(store, &made), 0);
    ck_assert_uint_eq(collect(store, 0, false).files, 1);
    ck_assert_uint_eq(count_files(folder, "blobs"), 0);
    free_blob(&made);
}
END_TEST

/* ---- no memory ---- */

START_TEST(memory_runs_out) {
    made_blob made;
    make_blob(&made, 1, _i ? 100 : 100000);
    put_graph_of_blobs(store, 1, (const char *[]){made.digest}, 1);
    for (long k = 0; k < 100000; k++) {
        fb_error error = {0};
        fb_blob *blob = NULL;
        fb_blob_rows rows = {0};
        fb_garbage garbage;
        bool is_missing = false;
        const unsigned char *bytes;
        const char *digest = made.digest;
        chaos_fail_after(k);
        fb_status status = put_blob(store, &made, NULL, &error);
        if (!status) status = fb_blob_open(store, digest, &blob, &error);
        if (!status) status = fb_blob_map(blob, &bytes, &error);
        if (!status) status = fb_blobs_missing(store, &digest, 1, &is_missing, &error);
        if (!status) status = fb_blobs_list(store, NULL, &rows, &error);
        if (!status) status = fb_store_collect(store, 0, false, &garbage, &error);
        bool has_failed = chaos_off();
        fb_blob_close(blob);
        free(rows.items);
        if (!status && !has_failed) break;
        if (status) check_error(status, &error, FB_NO_MEMORY, "out-of-memory");
    }
    ck_assert_int_eq(has_blob(store, &made), 1);
    check_all_rubbish_goes();
    free_blob(&made);
}
END_TEST

/* ---- kills ---- */

/* What the process that is killed was told to be done; shared with the one that looks. */
typedef struct done {
    _Atomic bool is_put[8], may_be_gone[8];
} done;

static const size_t killed_sizes[8] = {100, 70000, 100000, FB_BLOB_INLINE, 200000, 0, 90000, 300000};

static void work_until_killed(done *progress) {
    made_blob made[8];
    made_graph graph;
    for (unsigned i = 0; i < 8; i++) make_blob(&made[i], i, killed_sizes[i]);
    for (unsigned i = 0; i < 8; i++) {
        if (put_blob(store, &made[i], NULL, NULL)) _exit(1);
        progress->is_put[i] = true;
        if (i == 1) put_graph_of_blobs(store, 1, (const char *[]){made[1].digest, made[2].digest}, 2);
        if (i == 2) put_graph_of_blobs(store, 2, (const char *[]){made[2].digest}, 1);
        if (i != 3 && i != 6) continue;
        if (i == 6) progress->may_be_gone[1] = true;
        for (unsigned j = 0; j <= i; j++)
            if (j != 1 && j != 2) progress->may_be_gone[j] = true;
        make_graph(&graph, 1, 10);
        if (i == 6 && fb_store_delete_graph(store, graph.id, NULL, NULL)) _exit(1);
        if (fb_store_collect(store, 0, false, &(fb_garbage){0}, NULL)) _exit(1);
    }
    fb_upload *upload = NULL;
    if (fb_upload_new(store, true, &upload, NULL) || fb_upload_write(upload, made[7].bytes, made[7].size, NULL)) _exit(1);
    fb_upload_close(upload, false);
    _exit(0);
}

static void check_after_kill(done *progress) {
    made_blob made;
    store = open_store(folder, NULL);
    for (unsigned i = 0; i < 8; i++) {
        make_blob(&made, i, killed_sizes[i]);
        int is_there = has_blob(store, &made);
        if (progress->is_put[i] && !progress->may_be_gone[i]) ck_assert_msg(is_there, "blob %u", i);
        free_blob(&made);
    }
    check_all_rubbish_goes();
    put_blob(store, (make_blob(&made, 7, 300000), &made), NULL, NULL);
    ck_assert_int_eq(has_blob(store, &made), 1);
    free_blob(&made);
}

/* The process dies at its k-th call that changes a file, for every k. */
START_TEST(a_death_at_any_call_leaves_no_half_blob) {
    done *progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(progress, MAP_FAILED);
    int status = 0;
    long k = 0;
    for (; !(WIFEXITED(status) && k && WEXITSTATUS(status) == 0); k++) {
        fb_store_close(store);
        store = NULL;
        remove_folder(folder);
        snprintf(folder, sizeof folder, "%s", new_folder());
        memset((void *)progress, 0, sizeof *progress);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            whose = OF_ALL;
            fail_after(ALL_CALLS, k, 0);
            store = open_store(folder, NULL);
            work_until_killed(progress);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) != 1, "call %ld: status %d", k, status);
        check_after_kill(progress);
    }
    ck_assert_int_gt(k, 60);
    munmap(progress, sizeof *progress);
}
END_TEST

static void *churn(void *argument) {
    unsigned random = (unsigned)(uintptr_t)argument;
    for (;;) {
        made_blob made;
        random = random * 1664525U + 1013904223U;
        make_blob(&made, random >> 29, random >> 28 & 1 ? 70000 : 1000);
        if (put_blob(store, &made, NULL, NULL)) _exit(1);
        free_blob(&made);
        if (random >> 20 & 1 && fb_store_collect(store, 0, false, &(fb_garbage){0}, NULL)) _exit(1);
    }
}

START_TEST(kills_at_any_time_leave_no_half_blob) {
    fb_store_close(store);
    store = NULL;
    srand((unsigned)_i);
    for (int round = 0; round < 10; round++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            pthread_t threads[4];
            store = open_store(folder, NULL);
            for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, churn, (void *)(i + 5 * (uintptr_t)round + 1));
            pause();
        }
        usleep((useconds_t)(20000 + rand() % 100000));
        kill(child, SIGKILL);
        int status = 0;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status));
        store = open_store(folder, NULL);
        if (round % 2) check_all_rubbish_goes();
        else check_blobs();
        fb_store_close(store);
        store = NULL;
    }
    store = open_store(folder, NULL);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("blob faults");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, one_digest_is_put_by_many_at_once, 0, 2);
    tcase_add_loop_test(tests, gc_and_puts_of_one_digest_race, 0, 2);
    tcase_add_loop_test(tests, a_blob_goes_while_it_is_opened, 0, 2);
    tcase_add_loop_test(tests, a_group_of_gc_and_puts, 0, 18);
    tcase_add_loop_test(tests, a_row_that_cannot_be_written_leaves_the_upload, 0, 2);
    tcase_add_loop_test(tests, a_full_disk_is_told_and_recovered_from, 0, 5);
    tcase_add_loop_test(tests, a_write_that_fails_keeps_what_was_there, 0, 2);
    tcase_add_test(tests, what_was_half_written_does_not_get_into_the_blob);
    tcase_add_test(tests, an_upload_that_could_not_be_synced_begins_anew);
    tcase_add_test(tests, files_that_cannot_be_removed_go_the_next_time);
    tcase_add_loop_test(tests, memory_runs_out, 0, 2);
    tcase_add_test(tests, a_death_at_any_call_leaves_no_half_blob);
    tcase_add_loop_test(tests, kills_at_any_time_leave_no_half_blob, 0, 3);
    return run_tests("store_blob_faults", tests);
}
