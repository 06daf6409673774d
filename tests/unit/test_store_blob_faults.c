/* Blobs under faults: rows that cannot be written, a full disk, calls that fail, no memory, kills. */
#include "tests/unit/checks.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/blobs.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/uploads.h"
#include "tests/unit/blob_fixture.h"
#include "tests/unit/chaos.h"
#include "tests/unit/file_faults.h"

static char folder[512];
static fb_store *store;

static void setup(void) {
    snprintf(folder, sizeof folder, "%s", new_folder());
    store = open_store(folder, NULL);
}

static void teardown(void) {
    fb_store_close(store);
    remove_folder(folder);
}

/* ---- rows and files ---- */

static fb_status run_script(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    return fb_sql_script(connection, argument, error);
}

/* Of a small blob, of a large one, and of a large one where a file has one name only. */
START_TEST(a_row_that_cannot_be_written_leaves_the_upload) {
    made_blob made;
    make_blob(&made, 1, _i == 0 ? 100 : 100000);
    if (_i == 2) file_faults_after(LINK, OF_ALL, 0, EPERM);
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
    check_error(fb_upload_finish(upload, made.digest, NULL, found, &is_new, &error), &error, FB_IO, "store-failed");
    ck_assert_uint_eq(count_files(folder, "uploads"), 1);
    ck_assert_uint_eq(count_files(folder, "blobs"), 0);
    ck_assert_int_eq(fb_writer_run(&store->writer, run_script, drop, NULL), FB_OK);
    check_ok(fb_upload_finish(upload, made.digest, NULL, found, &is_new, &error), &error);
    fb_upload_close(upload, false);
    ck_assert_int_eq(has_blob(store, &made), 1);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    ck_assert_int_eq(file_faults_off(), _i == 2);
    free_blob(&made);
}
END_TEST

/* ---- a full disk ---- */

static const unsigned full_disks[] = {PWRITE, FSYNC, LINK, MKDIR, PWRITE | FSYNC | LINK | MKDIR};

START_TEST(a_full_disk_is_told_and_recovered_from) {
    size_t failed = 0;
    for (unsigned k = 0, stop = 0; !stop; k++) {
        made_blob made;
        fb_error error = {0};
        make_blob(&made, k, 100000);
        file_faults_after(full_disks[_i], NOT_OF_SQLITE, k, ENOSPC);
        fb_status status = put_blob(store, &made, NULL, &error);
        stop = !file_faults_off();
        if (status) check_error(status, &error, FB_NO_SPACE, "disk-full");
        ck_assert_int_eq(has_blob(store, &made), status == FB_OK);
        if (status) failed++;
        ck_assert_int_eq(fb_store_health(store, NULL), FB_OK);
        put_new_blob(store, &made);
        ck_assert_int_eq(has_blob(store, &made), 1);
        ck_assert_uint_eq(check_blobs(store, folder), k + 1);
        free_blob(&made);
    }
    ck_assert_uint_ge(failed, 1);
    check_all_rubbish_goes(store, folder);
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
    check_ok(fb_upload_finish(upload, made.digest, NULL, found, &is_new, &error), &error);
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
    file_faults_after(TRUNCATE, NOT_OF_SQLITE, 0, EIO);
    ck_assert_int_eq(fb_upload_write(upload, rubbish, sizeof rubbish, NULL), FB_NO_SPACE);
    ck_assert(file_faults_off());
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(fb_upload_write(upload, made.bytes + 100000, 100000, NULL), FB_OK);
    check_ok(fb_upload_finish(upload, made.digest, NULL, found, &is_new, &error), &error);
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
    file_faults_after(FSYNC, NOT_OF_SQLITE, 0, EIO);
    ck_assert_int_eq(fb_upload_finish(upload, made.digest, NULL, found, &is_new, &error), FB_IO);
    ck_assert(file_faults_off());
    ck_assert_uint_eq(fb_upload_size(upload), 0);
    ck_assert_int_eq(fb_upload_write(upload, made.bytes, made.size, NULL), FB_OK);
    error = (fb_error){0};
    check_ok(fb_upload_finish(upload, made.digest, NULL, found, &is_new, &error), &error);
    fb_upload_close(upload, false);
    ck_assert_int_eq(has_blob(store, &made), 1);
    free_blob(&made);
}
END_TEST

START_TEST(files_that_cannot_be_removed_go_the_next_time) {
    made_blob made;
    make_blob(&made, 1, 100000);
    put_new_blob(store, &made);
    file_faults_after(UNLINK, OF_ALL, 0, EIO);
    ck_assert_uint_eq(collect(store, 0, false).blobs, 1);
    ck_assert(file_faults_off());
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
    for (long k = 0; k < 100000; k += fault_step()) {
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
        if (!status) status = fb_store_collect(store, 0, false, NULL, NULL, &garbage, &error);
        bool has_failed = chaos_off();
        fb_blob_close(blob);
        fb_memory_free(rows.memory);
        if (!status && !has_failed) break;
        if (status) check_error(status, &error, FB_NO_MEMORY, "out-of-memory");
    }
    ck_assert_int_eq(has_blob(store, &made), 1);
    check_all_rubbish_goes(store, folder);
    free_blob(&made);
}
END_TEST

/* ---- an end that is interrupted ---- */

static void finish_and_die(const made_blob *made, long k) {
    fb_upload *upload = NULL;
    char found[FB_ID_LENGTH + 1];
    bool is_new;
    store = open_store(folder, NULL);
    if (fb_upload_new(store, true, &upload, NULL) || fb_upload_write(upload, made->bytes, made->size, NULL)) _exit(1);
    if (fb_upload_sync(upload, NULL)) _exit(1);
    file_faults_after(ALL_CALLS, OF_ALL, k, 0);
    if (fb_upload_finish(upload, made->digest, NULL, found, &is_new, NULL)) _exit(1);
    _exit(0);
}

/* The one upload that is there; "" when there is none. */
static void find_upload(char id[FB_UPLOAD_ID_LENGTH + 1]) {
    char path[600];
    *id = '\0';
    snprintf(path, sizeof path, "%s/uploads", folder);
    DIR *listing = opendir(path);
    ck_assert_ptr_nonnull(listing);
    for (struct dirent *entry; (entry = readdir(listing));)
        if (entry->d_name[0] != '.') snprintf(id, FB_UPLOAD_ID_LENGTH + 1, "%.*s", FB_UPLOAD_ID_LENGTH, entry->d_name);
    closedir(listing);
}

/* Whether it was whole already. */
static bool finish_again(const made_blob *made, const char *id) {
    fb_upload *upload = NULL;
    char found[FB_ID_LENGTH + 1];
    bool is_new, was_there = has_blob(store, made);
    fb_error error = {0};
    check_ok(fb_upload_open(store, id, &upload, &error), &error);
    ck_assert_uint_eq(fb_upload_size(upload), made->size);
    bool is_whole = upload->is_whole;
    if (is_whole) check_error(fb_upload_write(upload, "x", 1, &error), &error, FB_CONFLICT, "upload-whole");
    check_ok(fb_upload_finish(upload, made->digest, NULL, found, &is_new, &error), &error);
    fb_upload_close(upload, false);
    ck_assert(is_new != was_there);
    return is_whole;
}

/* The process dies at the k-th call after the end of an upload was asked for, for every k: the upload is still there, or the
 * blob is. */
START_TEST(an_end_that_is_interrupted_is_asked_for_again) {
    made_blob made;
    make_blob(&made, 1, _i ? 1000 : 100000);
    int status = 0;
    unsigned whole = 0, again = 0;
    for (long k = 0; !(WIFEXITED(status) && k && WEXITSTATUS(status) == 0); k++) {
        fb_store_close(store);
        store = NULL;
        remove_folder(folder);
        snprintf(folder, sizeof folder, "%s", new_folder());
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) finish_and_die(&made, k);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) != 1, "call %ld: status %d", k, status);
        char id[FB_UPLOAD_ID_LENGTH + 1];
        store = open_store(folder, NULL);
        find_upload(id);
        if (*id) again++, whole += finish_again(&made, id);
        ck_assert_int_eq(has_blob(store, &made), 1);
        ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    }
    ck_assert_uint_gt(again, 1);
    ck_assert(_i || whole > 1);
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
        if (i == 6 && fb_store_delete_graph(store, graph.id, NULL, NULL, NULL)) _exit(1);
        if (fb_store_collect(store, 0, false, NULL, NULL, &(fb_garbage){0}, NULL)) _exit(1);
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
    check_all_rubbish_goes(store, folder);
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
    for (; !(WIFEXITED(status) && k && WEXITSTATUS(status) == 0); k += fault_step()) {
        fb_store_close(store);
        store = NULL;
        remove_folder(folder);
        snprintf(folder, sizeof folder, "%s", new_folder());
        memset((void *)progress, 0, sizeof *progress);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            file_faults_after(ALL_CALLS, OF_ALL, k, 0);
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
        if (random >> 20 & 1 && fb_store_collect(store, 0, false, NULL, NULL, &(fb_garbage){0}, NULL)) _exit(1);
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
        if (round % 2) check_all_rubbish_goes(store, folder);
        else check_blobs(store, folder);
        fb_store_close(store);
        store = NULL;
    }
    store = open_store(folder, NULL);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("blob faults");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, a_row_that_cannot_be_written_leaves_the_upload, 0, 3);
    tcase_add_loop_test(tests, a_full_disk_is_told_and_recovered_from, 0, 5);
    tcase_add_loop_test(tests, a_write_that_fails_keeps_what_was_there, 0, 2);
    tcase_add_test(tests, what_was_half_written_does_not_get_into_the_blob);
    tcase_add_test(tests, an_upload_that_could_not_be_synced_begins_anew);
    tcase_add_test(tests, files_that_cannot_be_removed_go_the_next_time);
    tcase_add_loop_test(tests, memory_runs_out, 0, 2);
    tcase_add_loop_test(tests, an_end_that_is_interrupted_is_asked_for_again, 0, 2);
    tcase_add_test(tests, a_death_at_any_call_leaves_no_half_blob);
    tcase_add_loop_test(tests, kills_at_any_time_leave_no_half_blob, 0, 3);
    return run_tests("store_blob_faults", tests);
}
