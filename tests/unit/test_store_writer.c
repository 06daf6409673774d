/* The store's writer: of a group, what fails after it has written something is undone alone. */
#include "tests/unit/checks.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "tests/unit/store_fixture.h"
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

/* A write that adds a row, and then may fail. */
typedef struct late_write {
    pthread_t thread;
    char text[40];
    bool fails;
    int undone, done; /* how often its end was told */
    fb_status status;
    fb_error error;
} late_write;

static fb_status add_row(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    late_write *late = argument;
    fb_query insert = fb_query_begin(connection, "INSERT INTO signatures (text) VALUES (?)", error);
    fb_bind_text(&insert, late->text);
    fb_status status = fb_query_run(&insert);
    added->runs = 1;
    return !status && late->fails ? fb_fail(error, FB_CONFLICT, "too-late", NULL, "it has written already") : status;
}

static void count_end(fb_connection *connection, void *argument, fb_write_outcome outcome) {
    (void)connection;
    late_write *late = argument;
    if (outcome == FB_WRITE_DURABLE) late->done++;
    else late->undone++;
}

static void *write_late(void *argument) {
    late_write *late = argument;
    late->status = fb_writer_run_to_end(&store->writer, add_row, count_end, late, &late->error);
    return NULL;
}

/* Rows of the late writes that are there, one bit each. */
static fb_status find_rows(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    unsigned *found = argument;
    *found = 0;
    fb_query query = fb_query_begin(connection, "SELECT text FROM signatures WHERE text LIKE 'late-%'", error);
    while (fb_query_row(&query)) *found |= 1U << atoi(fb_column_text(&query, 0) + strlen("late-"));
    return fb_query_end(&query);
}

/* So many writes in one group, of which those in `failing` fail. */
static void write_group(late_write *late, size_t count, unsigned failing) {
    store_gate gate;
    close_gate(&gate, store);
    for (size_t i = 0; i < count; i++) {
        late[i] = (late_write){.fails = failing >> i & 1};
        snprintf(late[i].text, sizeof late[i].text, "late-%zu", i);
        ck_assert_int_eq(pthread_create(&late[i].thread, NULL, write_late, &late[i]), 0);
        wait_for_queue(store, i + 1);
    }
    open_gate(&gate);
    for (size_t i = 0; i < count; i++) pthread_join(late[i].thread, NULL);
}

START_TEST(what_fails_late_is_undone_alone) {
    static const struct {
        size_t count;
        unsigned failing;
    } groups[] = {{6, 0}, {6, 1U << 4}, {6, 1U << 0 | 1U << 5}, {6, 0x3f}, {1, 1}};
    late_write late[6];
    size_t count = groups[_i].count;
    unsigned failing = groups[_i].failing, found, first = 0;
    write_group(late, count, failing);
    while (first < count && !late[first].fails) first++;
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(late[i].status, late[i].fails ? FB_CONFLICT : FB_OK);
        ck_assert_str_eq(late[i].error.code, late[i].fails ? "too-late" : "");
        ck_assert_int_eq(late[i].done, !late[i].fails);
        /* All up to the first that failed were undone with it; each that failed, once more. */
        ck_assert_int_eq(late[i].undone, (first < count && i <= first) + late[i].fails);
    }
    ck_assert_int_eq(fb_writer_run(&store->writer, find_rows, &found, NULL), FB_OK);
    ck_assert_uint_eq(found, ((1U << count) - 1) & ~failing);
    ck_assert_double_eq(metric(store, "runs"), __builtin_popcount(found));
    ck_assert_double_eq(metric(store, "failed_writes_total"), __builtin_popcount(failing));
    ck_assert_int_eq(fb_writer_read_figures(&store->writer).last_failure.status, FB_OK); /* the store itself did not fail */
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("writer");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, what_fails_late_is_undone_alone, 0, 5);
    return run_tests("store_writer", tests);
}
