/* Blobs and uploads in the store: put, read, listed, resumed. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/graphs/graphs.h"
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

/* ---- put and read ---- */

static const size_t sizes[] = {0, 1, FB_BLOB_INLINE - 1, FB_BLOB_INLINE, FB_BLOB_INLINE + 1, 3000000};
#define SIZES ((int)(sizeof sizes / sizeof sizes[0]))

START_TEST(blobs_of_any_size_are_put_and_read) {
    made_blob made;
    bool is_large = sizes[_i] > FB_BLOB_INLINE;
    make_blob(&made, 1, sizes[_i]);
    ck_assert_int_eq(has_blob(store, &made), 0);
    ck_assert(put_new_blob(store, &made));
    ck_assert_int_eq(has_blob(store, &made), 1);
    ck_assert_uint_eq(count_files(folder, "blobs"), is_large);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    ck_assert(!put_new_blob(store, &made));
    ck_assert_uint_eq(count_files(folder, "blobs"), is_large);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    ck_assert_double_eq(metric(store, "blobs"), 1);
    ck_assert_double_eq(metric(store, "blob_bytes"), (double)made.size);
    ck_assert_double_eq(metric(store, "uploads"), 0);
    reopen();
    ck_assert_int_eq(has_blob(store, &made), 1);
    ck_assert_double_eq(metric(store, "blobs"), 1);
    ck_assert_double_eq(metric(store, "blob_bytes"), (double)made.size);
    free_blob(&made);
}
END_TEST

START_TEST(a_file_is_for_its_owner_only_and_at_its_place) {
    made_blob made;
    char path[512];
    struct stat about;
    make_blob(&made, 1, 100000);
    put_new_blob(store, &made);
    blob_file(folder, made.digest, path, sizeof path);
    ck_assert_int_eq(stat(path, &about), 0);
    ck_assert_uint_eq(about.st_mode & 0777, 0600);
    free_blob(&made);
}
END_TEST

START_TEST(an_unknown_blob_is_told) {
    static const char *const digests[] = {"sha256:0000000000000000000000000000000000000000000000000000000000000000",
                                          "sha256:", "", "../../../../etc/passwd"};
    for (size_t i = 0; i < 4; i++) {
        fb_blob *blob = NULL;
        fb_error error = {0};
        check_error(fb_blob_open(store, digests[i], &blob, &error), &error, FB_NOT_FOUND, "unknown-blob");
        ck_assert_ptr_null(blob);
    }
}
END_TEST

START_TEST(a_damaged_file_is_never_served_and_put_again) {
    made_blob made;
    char path[512];
    make_blob(&made, 1, 100000);
    put_new_blob(store, &made);
    blob_file(folder, made.digest, path, sizeof path);
    if (_i) ck_assert_int_eq(truncate(path, 99999), 0);
    else ck_assert_int_eq(unlink(path), 0);
    fb_blob *blob = NULL;
    fb_error error = {0};
    check_error(fb_blob_open(store, made.digest, &blob, &error), &error, FB_IO, "store-corrupt");
    ck_assert(!put_new_blob(store, &made));
    ck_assert_int_eq(has_blob(store, &made), 1);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    free_blob(&made);
}
END_TEST

START_TEST(which_are_missing) {
    made_blob made[3];
    bool is_missing[4];
    for (unsigned i = 0; i < 3; i++) make_blob(&made[i], i, i * 60000);
    put_new_blob(store, &made[0]);
    put_new_blob(store, &made[2]);
    const char *digests[] = {made[2].digest, made[1].digest, made[0].digest, made[1].digest};
    ck_assert_int_eq(fb_blobs_missing(store, digests, 4, is_missing, NULL), FB_OK);
    ck_assert(!is_missing[0] && is_missing[1] && !is_missing[2] && is_missing[3]);
    for (size_t i = 0; i < 3; i++) free_blob(&made[i]);
}
END_TEST

START_TEST(lists_are_paged) {
    made_blob made[7];
    for (unsigned i = 0; i < 7; i++) {
        make_blob(&made[i], i, 100 + i);
        put_new_blob(store, &made[i]);
        time_ms++;
    }
    put_graph_of_blobs(store, 1, (const char *[]){made[5].digest}, 1);
    put_graph_of_blobs(store, 2, (const char *[]){made[5].digest, made[6].digest}, 2);
    fb_blob_rows rows;
    fb_store_page page = {.limit = 3};
    char token[FB_PAGE_TOKEN_LENGTH + 1];
    for (size_t seen = 0; seen < 7; seen += rows.count) {
        ck_assert_int_eq(fb_blobs_list(store, &page, &rows, NULL), FB_OK);
        ck_assert_uint_eq(rows.count, seen < 6 ? 3 : 1);
        for (size_t i = 0; i < rows.count; i++) {
            size_t number = 6 - seen - i;
            ck_assert_str_eq(rows.items[i].digest, made[number].digest);
            ck_assert_uint_eq(rows.items[i].size, 100 + number);
            ck_assert_int_eq(rows.items[i].created, time_ms - 7 + (int64_t)number);
            ck_assert_int_eq(rows.items[i].used, rows.items[i].created);
            ck_assert_uint_eq(rows.items[i].graphs, number == 5 ? 2 : number == 6);
        }
        strcpy(token, rows.next_token);
        page.token = token;
        fb_memory_free(rows.memory);
    }
    ck_assert_str_eq(token, "");
    fb_error error = {0};
    page.token = "not a token";
    check_error(fb_blobs_list(store, &page, &rows, &error), &error, FB_INVALID, "bad-page-token");
    for (size_t i = 0; i < 7; i++) free_blob(&made[i]);
}
END_TEST

/* ---- uploads ---- */

static fb_upload *new_upload(void) {
    fb_upload *upload = NULL;
    fb_error error = {0};
    check_ok(fb_upload_new(store, true, &upload, &error), &error);
    return upload;
}

static fb_upload *open_upload(const char *id) {
    fb_upload *upload = NULL;
    fb_error error = {0};
    check_ok(fb_upload_open(store, id, &upload, &error), &error);
    return upload;
}

static void write_upload(fb_upload *upload, const made_blob *made, size_t from, size_t to) {
    fb_error error = {0};
    check_ok(fb_upload_write(upload, made->bytes + from, to - from, &error), &error);
}

static void finish_upload(fb_upload *upload, const char *digest, const made_blob *made) {
    char found[FB_ID_LENGTH + 1];
    bool is_new = false;
    fb_error error = {0};
    check_ok(fb_upload_finish(upload, digest, NULL, found, &is_new, &error), &error);
    ck_assert_str_eq(found, made->digest);
    ck_assert(is_new);
    fb_upload_close(upload, false);
}

START_TEST(a_wrong_digest_is_refused_with_both) {
    made_blob made, other;
    make_blob(&made, 1, 70000);
    make_blob(&other, 2, 70000);
    fb_upload *upload = new_upload();
    write_upload(upload, &made, 0, made.size);
    char found[FB_ID_LENGTH + 1];
    bool is_new;
    fb_error error = {0};
    ck_assert_int_eq(fb_upload_finish(upload, other.digest, NULL, found, &is_new, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "digest-mismatch");
    ck_assert_ptr_nonnull(strstr(error.message, made.digest));
    ck_assert_ptr_nonnull(strstr(error.message, other.digest));
    ck_assert_int_eq(has_blob(store, &made), 0);
    ck_assert_uint_eq(count_files(folder, "blobs"), 0);
    ck_assert_uint_eq(fb_upload_size(upload), made.size);
    finish_upload(upload, made.digest, &made); /* what was said wrongly can be said again */
    ck_assert_int_eq(has_blob(store, &made), 1);
    free_blob(&made);
    free_blob(&other);
}
END_TEST

START_TEST(an_upload_is_gone_on_with) {
    made_blob made;
    char id[FB_UPLOAD_ID_LENGTH + 1];
    make_blob(&made, 3, sizes[_i]);
    fb_upload *upload = new_upload();
    snprintf(id, sizeof id, "%s", fb_upload_id(upload));
    write_upload(upload, &made, 0, made.size / 3);
    fb_upload_close(upload, false);
    upload = open_upload(id);
    ck_assert_uint_eq(fb_upload_size(upload), made.size / 3);
    write_upload(upload, &made, made.size / 3, made.size / 2);
    fb_upload_close(upload, false);
    reopen();
    ck_assert_double_eq(metric(store, "uploads"), 1);
    upload = open_upload(id);
    ck_assert_uint_eq(fb_upload_size(upload), made.size / 2);
    write_upload(upload, &made, made.size / 2, made.size);
    finish_upload(upload, NULL, &made);
    ck_assert_int_eq(has_blob(store, &made), 1);
    ck_assert_double_eq(metric(store, "uploads"), 0);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    fb_error error = {0};
    check_error(fb_upload_open(store, id, &upload, &error), &error, FB_NOT_FOUND, "unknown-upload");
    free_blob(&made);
}
END_TEST

START_TEST(one_request_has_an_upload_open) {
    char id[FB_UPLOAD_ID_LENGTH + 1];
    fb_upload *upload = new_upload(), *other = NULL;
    fb_error error = {0};
    snprintf(id, sizeof id, "%s", fb_upload_id(upload));
    ck_assert_uint_le(strlen(id), FB_UPLOAD_ID_LENGTH);
    check_error(fb_upload_open(store, id, &other, &error), &error, FB_CONFLICT, "upload-busy");
    fb_upload_close(upload, false);
    upload = open_upload(id);
    check_error(fb_upload_open(store, id, &other, &error), &error, FB_CONFLICT, "upload-busy");
    fb_upload_close(upload, true);
    check_error(fb_upload_open(store, id, &other, &error), &error, FB_NOT_FOUND, "unknown-upload");
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    check_error(fb_upload_open(store, "../foldback.sqlite", &other, &error), &error, FB_NOT_FOUND, "unknown-upload");
}
END_TEST

START_TEST(an_upload_that_is_not_kept_goes) {
    made_blob made;
    make_blob(&made, 3, 100000);
    fb_upload *upload = NULL;
    ck_assert_int_eq(fb_upload_new(store, false, &upload, NULL), FB_OK);
    ck_assert_str_eq(fb_upload_id(upload), "");
    write_upload(upload, &made, 0, made.size);
    ck_assert_uint_eq(count_files(folder, "uploads"), 1);
    fb_upload_close(upload, false);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    fb_upload_close(NULL, true);
    free_blob(&made);
}
END_TEST

START_TEST(a_scratch_file_has_no_name) {
    int file = -1;
    char byte = 0;
    ck_assert_int_eq(fb_store_scratch(store, &file, NULL), FB_OK);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
    ck_assert_int_eq(pwrite(file, "x", 1, 1000000), 1);
    ck_assert_int_eq(pread(file, &byte, 1, 1000000), 1);
    ck_assert_int_eq(byte, 'x');
    close(file);
}
END_TEST

/* ---- what the store knows of blobs ---- */

/* What was remembered is there when a later write is. */
static void wait_for_writes(void) {
    ck_assert_int_eq(fb_store_delete_graph(store, "none", NULL, NULL, NULL), FB_NOT_FOUND);
}

START_TEST(digests_of_tensors_are_remembered_with_their_blob) {
    made_blob made;
    char digest[FB_ID_LENGTH + 1] = "";
    make_blob(&made, 1, 100000);
    ck_assert_int_eq(fb_store_remember_digest(store, made.digest, 8, "float32", "[2,3]", made.digest, NULL), FB_OK);
    wait_for_writes();
    ck_assert_int_eq(fb_store_recall_digest(store, made.digest, 8, "float32", "[2,3]", digest, NULL), FB_NOT_FOUND);
    put_new_blob(store, &made);
    for (int i = 0; i < 2; i++) /* again says the same */
        ck_assert_int_eq(fb_store_remember_digest(store, made.digest, 8, "float32", "[2,3]", made.digest, NULL), FB_OK);
    reopen();
    ck_assert_int_eq(fb_store_recall_digest(store, made.digest, 8, "float32", "[2,3]", digest, NULL), FB_OK);
    ck_assert_str_eq(digest, made.digest);
    ck_assert_int_eq(fb_store_recall_digest(store, made.digest, 9, "float32", "[2,3]", digest, NULL), FB_NOT_FOUND);
    ck_assert_int_eq(fb_store_recall_digest(store, made.digest, 8, "int32", "[2,3]", digest, NULL), FB_NOT_FOUND);
    ck_assert_int_eq(fb_store_recall_digest(store, made.digest, 8, "float32", "[3,2]", digest, NULL), FB_NOT_FOUND);
    ck_assert_uint_eq(collect(store, 0, false).blobs, 1);
    put_new_blob(store, &made);
    ck_assert_int_eq(fb_store_recall_digest(store, made.digest, 8, "float32", "[2,3]", digest, NULL), FB_NOT_FOUND);
    free_blob(&made);
}
END_TEST

START_TEST(core_sees_the_blobs) {
    made_blob made;
    fb_blobs blobs = fb_blob_source(store);
    fb_blob_bytes bytes = {0};
    fb_error error = {0};
    make_blob(&made, 1, sizes[_i]);
    ck_assert_int_eq(blobs.open(blobs.context, made.digest, &bytes, &error), FB_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.message, made.digest));
    check_error(FB_NOT_FOUND, &error, FB_NOT_FOUND, "blob-missing");
    put_new_blob(store, &made);
    check_ok(blobs.open(blobs.context, made.digest, &bytes, &error), &error);
    ck_assert_uint_eq(bytes.size, made.size);
    ck_assert_ptr_nonnull(bytes.bytes);
    blobs.forget(blobs.context, &bytes);
    ck_assert(memcmp(bytes.bytes, made.bytes, made.size) == 0);
    blobs.close(blobs.context, &bytes);
    fb_blob_tensor tensor = {.blob = made.digest, .dtype = "float32", .shape = "[]"};
    char digest[FB_ID_LENGTH + 1] = "";
    ck_assert_int_eq(blobs.recall(blobs.context, &tensor, digest, NULL), FB_NOT_FOUND);
    blobs.remember(blobs.context, &tensor, made.digest);
    wait_for_writes();
    ck_assert_int_eq(blobs.recall(blobs.context, &tensor, digest, NULL), FB_OK);
    ck_assert_str_eq(digest, made.digest);
    free_blob(&made);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("blobs");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, blobs_of_any_size_are_put_and_read, 0, SIZES);
    tcase_add_test(tests, a_file_is_for_its_owner_only_and_at_its_place);
    tcase_add_test(tests, an_unknown_blob_is_told);
    tcase_add_loop_test(tests, a_damaged_file_is_never_served_and_put_again, 0, 2);
    tcase_add_test(tests, which_are_missing);
    tcase_add_test(tests, lists_are_paged);
    tcase_add_test(tests, a_wrong_digest_is_refused_with_both);
    tcase_add_loop_test(tests, an_upload_is_gone_on_with, 0, SIZES);
    tcase_add_test(tests, one_request_has_an_upload_open);
    tcase_add_test(tests, an_upload_that_is_not_kept_goes);
    tcase_add_test(tests, a_scratch_file_has_no_name);
    tcase_add_test(tests, digests_of_tensors_are_remembered_with_their_blob);
    tcase_add_loop_test(tests, core_sees_the_blobs, 0, SIZES);
    return run_tests("store_blobs", tests);
}
