#include "tests/unit/blob_fixture.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void make_blob(made_blob *made, unsigned number, size_t size) {
    uint64_t random = number * 2654435761ULL + 1;
    *made = (made_blob){.bytes = malloc(size + 1), .size = size};
    ck_assert_ptr_nonnull(made->bytes);
    for (size_t i = 0; i < size; i++) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        made->bytes[i] = (unsigned char)(random >> 56);
    }
    ck_assert(fb_sha256_id(made->bytes, size, made->digest));
}

void free_blob(made_blob *made) {
    free(made->bytes);
}

fb_status put_blob(fb_store *store, const made_blob *made, bool *is_new, fb_error *error) {
    fb_upload *upload = NULL;
    char found[FB_ID_LENGTH + 1];
    bool unused;
    fb_status status = fb_upload_new(store, false, &upload, error);
    for (size_t at = 0, piece; !status && at < made->size; at += piece) {
        piece = made->size - at < 50021 ? made->size - at : 50021;
        status = fb_upload_write(upload, made->bytes + at, piece, error);
    }
    if (!status) status = fb_upload_finish(upload, made->digest, NULL, found, is_new ? is_new : &unused, error);
    fb_upload_close(upload, false);
    return status;
}

bool put_new_blob(fb_store *store, const made_blob *made) {
    fb_error error = {0};
    bool is_new = false;
    check_ok(put_blob(store, made, &is_new, &error), &error);
    return is_new;
}

int has_blob(fb_store *store, const made_blob *made) {
    fb_blob *blob = NULL;
    fb_error error = {0};
    fb_status status = fb_blob_open(store, made->digest, &blob, &error);
    if (status == FB_NOT_FOUND) return 0;
    check_ok(status, &error);
    ck_assert_uint_eq(fb_blob_size(blob), made->size);
    const unsigned char *bytes = NULL, *again = NULL;
    check_ok(fb_blob_map(blob, &bytes, &error), &error);
    check_ok(fb_blob_map(blob, &again, &error), &error);
    ck_assert_ptr_eq(bytes, again);
    ck_assert(memcmp(bytes, made->bytes, made->size) == 0);
    fb_blob_forget(blob);
    ck_assert(memcmp(bytes, made->bytes, made->size) == 0);
    char *copy = malloc(made->size + 1);
    check_ok(fb_blob_read(blob, 0, copy, made->size, &error), &error);
    ck_assert(memcmp(copy, made->bytes, made->size) == 0);
    size_t half = made->size / 2;
    check_ok(fb_blob_read(blob, half, copy, made->size - half, &error), &error);
    ck_assert(memcmp(copy, made->bytes + half, made->size - half) == 0);
    free(copy);
    fb_blob_close(blob);
    return 1;
}

void blob_file(const char *folder, const char *digest, char *path, size_t capacity) {
    const char *hex = digest + 7;
    snprintf(path, capacity, "%.300s/blobs/%.2s/%.2s/%s", folder, hex, hex + 2, hex);
}

static size_t file_count;

static int count_entry(const char *path, const struct stat *about, int type, struct FTW *where) {
    (void)path, (void)about, (void)where;
    file_count += type == FTW_F;
    return 0;
}

size_t count_files(const char *folder, const char *inner) {
    char path[600];
    snprintf(path, sizeof path, "%.500s/%s", folder, inner);
    file_count = 0;
    nftw(path, count_entry, 8, FTW_PHYS);
    return file_count;
}

void put_graph_of_blobs(fb_store *store, unsigned number, const char *const *digests, size_t count) {
    made_graph made;
    fb_error error = {0};
    make_graph(&made, number, 10);
    made.graph.blobs = digests;
    made.graph.blob_count = count;
    check_ok(fb_store_put_graph(store, &made.graph, NULL, NULL, &error), &error);
    free_graph(&made);
}

fb_garbage collect(fb_store *store, int64_t grace_ms, bool is_dry) {
    fb_garbage garbage;
    fb_error error = {0};
    check_ok(fb_store_collect(store, grace_ms, is_dry, NULL, NULL, &garbage, &error), &error);
    return garbage;
}

size_t check_blobs(fb_store *store, const char *folder) {
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
    fb_memory_free(rows.memory);
    return rows.count;
}

void check_all_rubbish_goes(fb_store *store, const char *folder) {
    check_blobs(store, folder);
    fb_garbage garbage = collect(store, 0, false);
    size_t kept = check_blobs(store, folder);
    ck_assert_uint_eq(kept, garbage.kept);
    fb_blob_rows rows;
    size_t files = 0;
    ck_assert_int_eq(fb_blobs_list(store, &(fb_store_page){.limit = FB_PAGE_MAX}, &rows, NULL), FB_OK);
    for (size_t i = 0; i < rows.count; i++) files += rows.items[i].size > FB_BLOB_INLINE;
    fb_memory_free(rows.memory);
    ck_assert_uint_eq(count_files(folder, "blobs"), files);
    ck_assert_uint_eq(count_files(folder, "uploads"), 0);
}
