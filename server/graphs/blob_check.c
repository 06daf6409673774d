/* A mapped blob is only checked here: the blobs of a body are read beside it, in proportion. Where a part of them is sent they
 * are read before it, once while the files stay as they are. */
#include <stdlib.h>
#include <string.h>

#include "server/graphs/graphs.h"

#define BLOCK ((size_t)1 << 20)
#define MOST 4 /* bytes that are read for each one that is sent */

struct fb_blob_check {
    fb_store *store;
    char (*digests)[FB_ID_LENGTH + 1];
    size_t count, next;
    uint64_t total, done; /* bytes of all */
    uint64_t body, sent;
    fb_blob *blob; /* being read */
    uint64_t at;
};

/* Adds a blob to be checked: small ones were checked as they were opened, and a missing one fails where it is needed. */
static fb_status add_blob(fb_blob_check *check, const char *digest, fb_error *error) {
    fb_blob *blob = NULL;
    fb_error met = {0};
    fb_status status = fb_blob_open(check->store, digest, &blob, &met);
    if (status) return status == FB_NOT_FOUND ? FB_OK : fb_fail(error, status, met.code, NULL, "%s", met.message);
    uint64_t size = fb_blob_size(blob);
    fb_blob_close(blob);
    if (size <= FB_BLOB_CHECKED) return FB_OK;
    memcpy(check->digests[check->count++], digest, FB_ID_LENGTH + 1);
    check->total += size;
    return FB_OK;
}

static fb_status check_first(fb_blob_check *check, const fb_watch *watch, fb_error *error) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < check->count && !status; i++) {
        fb_blob *blob = NULL;
        status = fb_blob_open(check->store, check->digests[i], &blob, error);
        if (!status) status = fb_blob_verify_once(blob, watch, error);
        fb_blob_close(blob);
    }
    check->count = 0;
    check->total = 0;
    return status;
}

fb_status fb_blob_check_new(fb_store *store, const char *const *blobs, size_t count, const fb_body_part *part,
                            fb_blob_check **out, fb_error *error) {
    fb_blob_check *check = calloc(1, sizeof *check);
    if (!check) return fb_fail_memory(error);
    *check = (fb_blob_check){.store = store, .body = part->body};
    check->digests = calloc(count + 1, sizeof *check->digests);
    fb_status status = check->digests ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < count && !status; i++) status = add_blob(check, blobs[i], error);
    if (!status && (part->is_range || check->total / MOST > part->body)) status = check_first(check, part->watch, error);
    if (status) fb_blob_check_free(check);
    else *out = check;
    return status;
}

void fb_blob_check_free(fb_blob_check *check) {
    if (!check) return;
    fb_blob_close(check->blob);
    free(check->digests);
    free(check);
}

static fb_status read_block(fb_blob_check *check, char *block, fb_error *error) {
    if (!check->blob) {
        check->at = 0;
        fb_status status = fb_blob_open(check->store, check->digests[check->next++], &check->blob, error);
        if (status) return status;
    }
    uint64_t left = fb_blob_size(check->blob) - check->at;
    size_t size = left < BLOCK ? (size_t)left : BLOCK;
    fb_status status = fb_blob_read(check->blob, check->at, block, size, error);
    check->at += size;
    check->done += size;
    if (size < left) return status;
    fb_blob_close(check->blob);
    check->blob = NULL;
    return status;
}

fb_status fb_blob_check_go_on(fb_blob_check *check, uint64_t offset, size_t size, fb_error *error) {
    if (offset != check->sent) return FB_OK; /* a part of it was asked for */
    check->sent += size;
    bool is_end = check->sent == check->body;
    uint64_t wanted = is_end ? check->total : (uint64_t)((double)check->total * ((double)check->sent / (double)check->body));
    if (check->done >= wanted) return FB_OK;
    char *block = malloc(BLOCK);
    fb_status status = block ? FB_OK : fb_fail_memory(error);
    while (!status && check->done < wanted && check->done < check->total) status = read_block(check, block, error);
    free(block);
    return status;
}
