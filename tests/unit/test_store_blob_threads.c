/* Blobs under threads: puts of one digest, gc at the same time, and groups that cannot be committed. */
#include "tests/unit/checks.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/blob_fixture.h"
#include "tests/unit/file_faults.h"
#include "tests/unit/store_gate.h"

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
        if (gc_runs) usleep(10000); /* each put makes the blob a millisecond younger, and gc takes none that is of the future */
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
    ck_assert_uint_eq(check_blobs(store, folder), 1);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    ck_assert_uint_eq(count_files(folder, "blobs"), !_i);
    free_blob(&same);
}
END_TEST

static void *collect_all_the_time(void *argument) {
    uint64_t *removed = argument;
    while (!is_over) {
        fb_garbage garbage = {0};
        if (fb_store_collect(store, 0, false, NULL, NULL, &garbage, NULL) != FB_OK) wrong++;
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
    ck_assert_uint_eq(new_ones, removed[0] + removed[1] + check_blobs(store, folder));
    check_all_rubbish_goes(store, folder);
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
    before_blob_is_opened(_i ? collect_and_put_now : collect_now);
    ck_assert_int_eq(has_blob(store, &same), _i);
    ck_assert_double_eq(metric(store, "collected_blobs_total"), 1);
    free_blob(&same);
}
END_TEST

/* ---- groups ---- */

static void *put_one(void *argument) {
    return (void *)(uintptr_t)put_blob(store, argument, NULL, NULL);
}

static void *collect_once(void *argument) {
    return (void *)(uintptr_t)fb_store_collect(store, 5000, false, NULL, NULL, argument, NULL);
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
        file_faults_after(FSYNC, OF_SQLITE, 0, EIO); /* the gate wrote nothing */
    }
    open_gate(&gate);
    for (size_t i = 0; i < 3; i++) {
        void *status = NULL;
        pthread_join(threads[i], &status);
        ck_assert_uint_eq((uintptr_t)status, all_fails ? FB_IO : FB_OK);
    }
    if (all_fails) ck_assert(file_faults_off());
    if (group_fails) {
        void *status = NULL;
        pthread_join(threads[3], &status);
        ck_assert_uint_eq((uintptr_t)status, FB_NO_SPACE);
    }
    ck_assert_double_ge(metric(store, "largest_group"), 3 + group_fails);
    ck_assert_int_eq(has_blob(store, &old), 1);
    ck_assert_int_eq(has_blob(store, &other), !all_fails);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    ck_assert_uint_eq(count_files(folder, "blobs"), 2); /* of a commit that may have been done, the file stays */
    ck_assert_uint_eq(check_blobs(store, folder), all_fails ? 1 : 2);
    free_blob(&old);
    free_blob(&other);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("blob threads");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, one_digest_is_put_by_many_at_once, 0, 2);
    tcase_add_loop_test(tests, gc_and_puts_of_one_digest_race, 0, 2);
    tcase_add_loop_test(tests, a_blob_goes_while_it_is_opened, 0, 2);
    tcase_add_loop_test(tests, a_group_of_gc_and_puts, 0, 18);
    return run_tests("store_blob_threads", tests);
}
