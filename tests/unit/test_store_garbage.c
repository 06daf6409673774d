/* What gc takes away and what it keeps, in stores of earlier versions, too. */
#include "tests/unit/checks.h"
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/store/retention.h"
#include "tests/unit/blob_fixture.h"

static char folder[512];
static fb_store *store;
static int64_t time_ms;

static int64_t now_ms(void) {
    return time_ms;
}

static void reopen(void) {
    fb_store_close(store);
    store = open_store(folder, &(fb_store_config){.now_ms = now_ms});
}

static void setup(void) {
    snprintf(folder, sizeof folder, "%s", new_folder());
    time_ms = (int64_t)4 << 40; /* in the future: what is written now is old */
    store = NULL;
    reopen();
}

static void teardown(void) {
    fb_store_close(store);
    remove_folder(folder);
}

static fb_upload *new_upload(void) {
    fb_upload *upload = NULL;
    fb_error error = {0};
    check_ok(fb_upload_new(store, true, &upload, &error), &error);
    return upload;
}

#define HOUR ((int64_t)3600 * 1000)

START_TEST(what_graphs_refer_to_is_kept) {
    made_blob made[4], graph_blob;
    made_graph graph;
    make_blob(&graph_blob, 9, 80000);
    for (unsigned i = 0; i < 4; i++) {
        make_blob(&made[i], i, i % 2 ? 100000 : 1000);
        put_new_blob(store, &made[i]);
    }
    const char *digests[] = {made[0].digest, made[1].digest, graph_blob.digest}; /* the last one is not here */
    put_graph_of_blobs(store, 1, digests, 3);
    put_graph_of_blobs(store, 2, digests, 2);
    ck_assert_uint_eq(collect(store, HOUR, false).blobs, 0); /* too young */
    time_ms += HOUR;
    fb_garbage dry = collect(store, HOUR, true), wet = collect(store, HOUR, false);
    ck_assert_uint_eq(dry.blobs, 2);
    ck_assert_uint_eq(dry.bytes, 101000);
    ck_assert_uint_eq(dry.kept, 2);
    ck_assert_uint_eq(dry.kept_bytes, 101000);
    ck_assert_uint_eq(dry.files, 0);
    ck_assert_int_eq(memcmp(&dry, &wet, sizeof dry), 0);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(has_blob(store, &made[i]), i < 2);
    ck_assert_uint_eq(count_files(folder, "blobs"), 1);
    ck_assert_double_eq(metric(store, "blobs"), 2);
    ck_assert_double_eq(metric(store, "blob_bytes"), 101000);
    ck_assert_double_eq(metric(store, "collected_blobs_total"), 2);
    ck_assert_double_eq(metric(store, "collected_bytes_total"), 101000);

    for (unsigned i = 1; i <= 2; i++) { /* when the last graph goes, the grace period begins */
        make_graph(&graph, i, 10);
        time_ms += 2 * HOUR;
        ck_assert_int_eq(fb_store_delete_graph(store, graph.id, NULL, NULL, NULL), FB_OK);
        free_graph(&graph);
        ck_assert_uint_eq(collect(store, HOUR, false).blobs, 0);
    }
    time_ms += HOUR;
    ck_assert_uint_eq(collect(store, HOUR, false).blobs, 2);
    ck_assert_uint_eq(count_files(folder, "blobs"), 0);
    ck_assert(put_new_blob(store, &made[1]));
    ck_assert_int_eq(has_blob(store, &made[1]), 1);
    for (int i = 0; i < 4; i++) free_blob(&made[i]);
    free_blob(&graph_blob);
}
END_TEST

/* A graph was bound to a blob, which went before the graph came: it is not stored. */
START_TEST(what_a_new_graph_needs_must_be_here) {
    made_blob made[2];
    made_graph graph;
    fb_error error = {0};
    for (unsigned i = 0; i < 2; i++) put_new_blob(store, (make_blob(&made[i], i, 1000), &made[i]));
    const char *digests[] = {made[0].digest, made[1].digest};
    make_graph(&graph, 1, 10);
    graph.graph.blobs = digests;
    graph.graph.blob_count = 2;
    put_graph_of_blobs(store, 2, digests, 1);
    time_ms++;
    ck_assert_uint_eq(collect(store, 0, false).blobs, 1);
    check_error(fb_store_put_graph(store, &graph.graph, NULL, NULL, &error), &error, FB_CONFLICT, "blob-missing");
    ck_assert_double_eq(metric(store, "graphs"), 1);
    put_new_blob(store, &made[1]);
    check_ok(fb_store_put_graph(store, &graph.graph, NULL, NULL, &error), &error);
    time_ms++;
    ck_assert_uint_eq(collect(store, 0, false).blobs, 0);
    free_graph(&graph);
    for (unsigned i = 0; i < 2; i++) free_blob(&made[i]);
}
END_TEST

/* ---- an end before the end ---- */

static fb_status until_zero(void *context, fb_error *error) {
    unsigned *left = context;
    return *left && (*left)-- ? FB_OK : fb_fail(error, FB_BUSY, "stopping", NULL, "enough");
}

START_TEST(a_collection_ends_when_it_is_to) {
    made_blob made;
    unsigned left = 2;
    fb_watch watch = {.context = &left, .check = until_zero};
    fb_garbage garbage;
    fb_error error = {0};
    for (unsigned i = 0; i < 200; i++) {
        make_blob(&made, i, 1000);
        put_new_blob(store, &made);
        free_blob(&made);
    }
    time_ms++;
    check_error(fb_store_collect(store, 0, false, NULL, &watch, &garbage, &error), &error, FB_BUSY, "stopping");
    ck_assert_double_gt(metric(store, "blobs"), 0);
    ck_assert_double_gt(metric(store, "collected_blobs_total"), 0);
    left = 100;
    check_ok(fb_store_collect(store, 0, false, NULL, &watch, &garbage, &error), &error);
    ck_assert_double_eq(metric(store, "blobs"), 0);
}
END_TEST

START_TEST(files_are_looked_at_until_it_is_to_end) {
    made_blob made[20];
    fb_garbage garbage;
    fb_error error = {0};
    for (unsigned i = 0; i < 20; i++) put_new_blob(store, (make_blob(&made[i], i, 100000), &made[i]));
    const char *digests[20];
    for (unsigned i = 0; i < 20; i++) digests[i] = made[i].digest;
    put_graph_of_blobs(store, 1, digests, 20);
    for (unsigned left = 0; left < 20; left++) {
        unsigned counted = left;
        fb_watch watch = {.context = &counted, .check = until_zero};
        check_error(fb_store_collect(store, 0, true, NULL, &watch, &garbage, &error), &error, FB_BUSY, "stopping");
    }
    for (unsigned i = 0; i < 20; i++) free_blob(&made[i]);
}
END_TEST

START_TEST(retention_ends_when_it_is_to) {
    made_graph made[2];
    fb_error error = {0};
    fb_removed removed;
    for (unsigned i = 0; i < 2; i++) make_graph(&made[i], i, 10);
    for (unsigned i = 0; i < 100; i++) {
        fb_store_run run = make_run(store, &made[0], &made[1]);
        put_run(store, &run, &made[0], &made[1]);
    }
    static const unsigned checks[] = {0, 50, 99, 102}, kept[] = {100, 100, 100, 36}; /* one a run, and one a batch of 32 */
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        unsigned left = checks[i];
        fb_watch watch = {.context = &left, .check = until_zero};
        fb_retaining how = {.limits.count = 1, .watch = &watch};
        check_error(fb_store_retain(store, &how, &removed, &error), &error, FB_BUSY, "stopping");
        ck_assert_double_eq(metric(store, "runs"), kept[i]);
    }
    check_ok(fb_store_retain(store, &(fb_retaining){.limits.count = 1}, &removed, &error), &error);
    ck_assert_double_eq(metric(store, "runs"), 1);
    for (unsigned i = 0; i < 2; i++) free_graph(&made[i]);
}
END_TEST

START_TEST(a_put_renews_the_grace_period) {
    made_blob made;
    make_blob(&made, 1, 100000);
    put_new_blob(store, &made);
    time_ms += 2 * HOUR;
    ck_assert(!put_new_blob(store, &made));
    ck_assert_uint_eq(collect(store, HOUR, false).blobs, 0);
    time_ms += HOUR;
    ck_assert_uint_eq(collect(store, HOUR, false).blobs, 1);
    free_blob(&made);
}
END_TEST

START_TEST(more_than_one_batch_goes) {
    for (unsigned i = 0; i < 100; i++) {
        made_blob made;
        make_blob(&made, i, i % 9 ? 10 : 70000);
        put_new_blob(store, &made);
        if (i % 10 == 0) put_graph_of_blobs(store, i, (const char *[]){made.digest}, 1);
        free_blob(&made);
    }
    ck_assert_uint_eq(collect(store, 0, true).blobs, 90);
    ck_assert_uint_eq(collect(store, 0, false).blobs, 90);
    fb_garbage again = collect(store, 0, false);
    ck_assert_uint_eq(again.blobs, 0);
    ck_assert_uint_eq(again.kept, 10);
}
END_TEST

START_TEST(an_open_blob_stays_readable) {
    made_blob made;
    make_blob(&made, 1, 300000);
    put_new_blob(store, &made);
    fb_blob *blob = NULL;
    const unsigned char *bytes = NULL;
    ck_assert_int_eq(fb_blob_open(store, made.digest, &blob, NULL), FB_OK);
    ck_assert_uint_eq(collect(store, 0, false).blobs, 1);
    ck_assert_int_eq(has_blob(store, &made), 0);
    ck_assert_int_eq(fb_blob_map(blob, &bytes, NULL), FB_OK);
    ck_assert(memcmp(bytes, made.bytes, made.size) == 0);
    fb_blob_close(blob);
    free_blob(&made);
}
END_TEST

static void make_file(const char *inner, int64_t age_ms) {
    char path[700];
    snprintf(path, sizeof path, "%.500s/%s", folder, inner);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(file, 0);
    int64_t at = time_ms - age_ms;
    struct timespec times[2] = {{.tv_sec = at / 1000}, {.tv_sec = at / 1000}};
    ck_assert_int_eq(futimens(file, times), 0);
    close(file);
}

/* A blob's file without its row, as a crash leaves it. */
static void leave_file(const made_blob *made, int64_t age_ms) {
    char inner[128], path[700];
    snprintf(path, sizeof path, "%.500s/blobs/%.2s", folder, made->digest + 7);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%.500s/blobs/%.2s/%.2s", folder, made->digest + 7, made->digest + 9);
    mkdir(path, 0700);
    snprintf(inner, sizeof inner, "blobs/%.2s/%.2s/%s", made->digest + 7, made->digest + 9, made->digest + 7);
    snprintf(path, sizeof path, "%.500s/%s", folder, inner);
    FILE *file = fopen(path, "w");
    ck_assert_uint_eq(fwrite(made->bytes, 1, made->size, file), made->size);
    fclose(file);
    make_file(inner, age_ms);
}

START_TEST(files_without_rows_go_and_strange_ones_stay) {
    made_blob made, rubbish, young;
    char inner[128];
    make_blob(&made, 1, 100000);
    make_blob(&rubbish, 2, 100000);
    make_blob(&young, 3, 100000);
    put_new_blob(store, &made);
    leave_file(&rubbish, HOUR);
    leave_file(&young, HOUR - 2000);
    make_file("blobs/strange", 9 * HOUR);
    snprintf(inner, sizeof inner, "blobs/%.2s/%.2s/strange", young.digest + 7, young.digest + 9);
    make_file(inner, 9 * HOUR);
    ck_assert_uint_eq(count_files(folder, "blobs"), 5);
    ck_assert_uint_eq(collect(store, HOUR, true).files, 1);
    fb_garbage wet = collect(store, HOUR, false);
    ck_assert_uint_eq(wet.files, 1);
    ck_assert_uint_eq(wet.blobs, 0);
    ck_assert_uint_eq(count_files(folder, "blobs"), 4);
    ck_assert_int_eq(has_blob(store, &made), 1);
    ck_assert_int_eq(has_blob(store, &rubbish), 0);
    ck_assert_int_eq(has_blob(store, &young), 0);
    ck_assert(put_new_blob(store, &young));
    ck_assert(put_new_blob(store, &rubbish));
    ck_assert_int_eq(has_blob(store, &young), 1);
    ck_assert_int_eq(has_blob(store, &rubbish), 1);
    free_blob(&made);
    free_blob(&rubbish);
    free_blob(&young);
}
END_TEST

START_TEST(old_uploads_go) {
    fb_upload *open = new_upload(), *closed = new_upload(), *other = NULL;
    char id[FB_UPLOAD_ID_LENGTH + 1];
    snprintf(id, sizeof id, "%s", fb_upload_id(closed));
    fb_upload_close(closed, false);
    ck_assert_uint_eq(collect(store, HOUR, false).uploads, 0);
    time_ms += HOUR;
    ck_assert_uint_eq(collect(store, HOUR, true).uploads, 1);
    ck_assert_uint_eq(collect(store, HOUR, false).uploads, 1); /* not the one that is open */
    fb_error error = {0};
    check_error(fb_upload_open(store, id, &other, &error), &error, FB_NOT_FOUND, "unknown-upload");
    ck_assert_uint_eq(count_files(folder, "uploads"), 1);
    snprintf(id, sizeof id, "%s", fb_upload_id(open));
    ck_assert_int_eq(fb_upload_write(open, "x", 1, NULL), FB_OK);
    fb_upload_close(open, false); /* it has been resumed now */
    ck_assert_uint_eq(collect(store, HOUR, false).uploads, 0);
    make_file("uploads/strange", 9 * HOUR);
    reopen(); /* and is still known; the clock is ahead of the file's */
    ck_assert_uint_eq(collect(store, HOUR, false).uploads, 1);
    ck_assert_uint_eq(count_files(folder, "uploads"), 1);
}
END_TEST

/* ---- stores of earlier versions ---- */

static void run_sql(const char *sql) {
    sqlite3 *database;
    char path[600];
    snprintf(path, sizeof path, "%s/foldback.sqlite", folder);
    ck_assert_int_eq(sqlite3_open(path, &database), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(database, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(database));
    sqlite3_close(database);
}

/* A graph whose tensors are in these blobs, one after the other. */
static void put_document(unsigned number, const char *const *digests, size_t count) {
    fb_buffer text = {0};
    char id[FB_ID_LENGTH + 1];
    fb_buffer_printf(&text,
                     "{\"format\": \"foldback.graph/1\", \"name\": \"graph %u\", "
                     "\"nodes\": [{\"name\": \"output\", \"op\": \"output\", \"target\": \"output\", \"args\": [null]}], "
                     "\"modules\": [{\"path\": \"\", \"type\": \"M\", \"parameters\": {",
                     number);
    for (size_t i = 0; i < count; i++) fb_buffer_printf(&text, "%s\"t%zu\": \"t%zu\"", i ? ", " : "", i, i);
    fb_buffer_string(&text, "}}], \"tensors\": [");
    for (size_t i = 0; i < count; i++)
        fb_buffer_printf(&text,
                         "%s{\"name\": \"t%zu\", \"dtype\": \"float32\", \"shape\": [1], \"blob\": \"%s\", \"offset\": 4}",
                         i ? ", " : "", i, digests[i]);
    fb_buffer_string(&text, "]}");
    ck_assert(fb_sha256_id(text.data, text.size, id));
    fb_store_graph graph = {.id = id, .structure = id, .name = "", .document = text.data, .size = text.size};
    ck_assert_int_eq(fb_store_put_graph(store, &graph, NULL, NULL, NULL), FB_OK);
    fb_buffer_free(&text);
}

START_TEST(graphs_stored_before_blobs_refer_to_them) {
    made_blob made[3];
    made_graph damaged;
    for (unsigned i = 0; i < 3; i++) make_blob(&made[i], i, 1000);
    put_document(0, NULL, 0);
    for (unsigned i = 1; i < 250; i++)
        put_document(i, (const char *[]){made[0].digest, made[1].digest, made[0].digest}, i == 1 ? 1 : 3);
    make_graph(&damaged, 1, 100);
    ck_assert_int_eq(fb_store_put_graph(store, &damaged.graph, NULL, NULL, NULL), FB_OK); /* no document at all */
    free_graph(&damaged);
    make_graph(&damaged, 2, 100);
    ck_assert_int_eq(fb_store_put_graph(store, &damaged.graph, NULL, NULL, NULL), FB_OK);
    fb_store_close(store);
    run_sql(
        "ALTER TABLE runs DROP COLUMN requested; DROP INDEX run_passes_preset; ALTER TABLE run_passes DROP COLUMN preset; "
        "DROP INDEX node_signatures_signature; ALTER TABLE node_signatures DROP COLUMN name; "
        "DROP TABLE webhook_deliveries; DROP TABLE webhooks; ALTER TABLE models DROP COLUMN naming; ALTER TABLE models DROP "
        "COLUMN last_number; DROP TABLE claims; DROP TABLE requests; DROP TABLE replicas; DROP TABLE notes; DROP TABLE "
        "job_references; DROP TABLE unread_jobs; DROP TABLE jobs; DROP TABLE pins; DROP INDEX "
        "alias_entries_graph; DROP TABLE tokens; DROP TABLE audit; DROP TABLE "
        "audit_trim; DROP TABLE rules; DROP "
        "TABLE unread_graphs; DROP TABLE tensor_digests; DROP "
        "TABLE graph_blobs; DROP TABLE collected; DROP TABLE blobs;"
        "ALTER TABLE runs DROP COLUMN validation; PRAGMA user_version = 2; UPDATE graphs SET document = x'0102' WHERE name "
        "= 'model 2'");
    store = NULL;
    reopen();
    for (unsigned i = 0; i < 3; i++) put_new_blob(store, &made[i]);
    for (int again = 0; again < 2; again++) { /* it is done once */
        fb_blob_rows rows;
        ck_assert_int_eq(fb_blobs_list(store, NULL, &rows, NULL), FB_OK);
        ck_assert_uint_eq(rows.items[0].graphs, 0);
        ck_assert_uint_eq(rows.items[1].graphs, 248);
        ck_assert_uint_eq(rows.items[2].graphs, 249);
        fb_memory_free(rows.memory);
        reopen();
    }
    ck_assert_uint_eq(collect(store, 0, false).blobs, 1);
    free_graph(&damaged);
    for (unsigned i = 0; i < 3; i++) free_blob(&made[i]);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("garbage");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, what_graphs_refer_to_is_kept);
    tcase_add_test(tests, what_a_new_graph_needs_must_be_here);
    tcase_add_test(tests, a_collection_ends_when_it_is_to);
    tcase_add_test(tests, files_are_looked_at_until_it_is_to_end);
    tcase_add_test(tests, retention_ends_when_it_is_to);
    tcase_add_test(tests, a_put_renews_the_grace_period);
    tcase_add_test(tests, more_than_one_batch_goes);
    tcase_add_test(tests, an_open_blob_stays_readable);
    tcase_add_test(tests, files_without_rows_go_and_strange_ones_stay);
    tcase_add_test(tests, old_uploads_go);
    tcase_add_test(tests, graphs_stored_before_blobs_refer_to_them);
    return run_tests("store_garbage", tests);
}
