/* Bytes to be put as blobs, and the usual ways to put and read them. */
#ifndef FB_TESTS_BLOB_FIXTURE_H
#define FB_TESTS_BLOB_FIXTURE_H

#include "server/store/blobs.h"
#include "tests/unit/store_fixture.h"

/* A blob with content of its own: `number` and `size` decide the bytes. */
typedef struct made_blob {
    unsigned char *bytes;
    size_t size;
    char digest[FB_ID_LENGTH + 1];
} made_blob;

void make_blob(made_blob *made, unsigned number, size_t size);
void free_blob(made_blob *made);

/* Puts it by one upload, written in pieces. */
fb_status put_blob(fb_store *store, const made_blob *made, bool *is_new, fb_error *error);
/* The same; fails the test when that fails. */
bool put_new_blob(fb_store *store, const made_blob *made);

/* 1: the blob is there, and its bytes are right, read and mapped; 0: it is not there. Fails the test otherwise. */
int has_blob(fb_store *store, const made_blob *made);

/* The path of a blob's file. */
void blob_file(const char *folder, const char *digest, char *path, size_t capacity);
/* Files under a folder, at any depth. */
size_t count_files(const char *folder, const char *inner);

/* A graph, as make_graph makes one, that refers to these blobs. */
void put_graph_of_blobs(fb_store *store, unsigned number, const char *const *digests, size_t count);
fb_garbage collect(fb_store *store, int64_t grace_ms, bool is_dry);

/* Every row has its bytes. Returns how many blobs there are, FB_PAGE_MAX at most. */
size_t check_blobs(fb_store *store, const char *folder);
/* The same, and when gc has run, there is no file that nothing needs. */
void check_all_rubbish_goes(fb_store *store, const char *folder);

#endif
