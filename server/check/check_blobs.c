/* Blobs: are the bytes those that the digest says, and what is remembered of them true? */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "server/check/internal.h"
#include "server/store/blobs.h"
#include "server/store/check.h"

#define BLOCK ((size_t)1 << 20)

/* The digest of a part. */
static fb_status hash_part(fb_blob *blob, uint64_t offset, uint64_t size, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    fb_sha256 *hash = fb_sha256_new();
    char *block = malloc(BLOCK);
    fb_status status = hash && block ? FB_OK : fb_fail_memory(error);
    for (uint64_t done = 0; done < size && !status; done += BLOCK) {
        size_t some = size - done < BLOCK ? (size_t)(size - done) : BLOCK;
        status = fb_blob_read(blob, offset + done, block, some, error);
        if (!status && !fb_sha256_add(hash, block, some)) status = fb_fail_memory(error);
    }
    if (!status && !fb_sha256_id_so_far(hash, digest)) status = fb_fail_memory(error);
    free(block);
    fb_sha256_free(hash);
    return status;
}

/* Bytes of a tensor; false when the text is no shape, or they are too many. */
static bool size_of(const fb_store_tensor_digest *tensor, uint64_t *size) {
    uint64_t elements = 1, bytes = fb_dtype_size(fb_dtype_find(tensor->dtype));
    const char *at = tensor->shape;
    if (*at++ != '[' || !bytes) return false;
    while (*at && *at != ']') {
        char *end;
        unsigned long long extent = strtoull(at, &end, 10);
        if (end == at || __builtin_mul_overflow(elements, (uint64_t)extent, &elements)) return false;
        at = *end == ',' ? end + 1 : end;
    }
    return *at == ']' && !__builtin_mul_overflow(elements, bytes, size);
}

static fb_status check_tensors(const fb_app *app, fb_check *check, fb_blob *blob, const char *digest, fb_error *error) {
    fb_store_tensor_digest *tensors = NULL;
    size_t count = 0;
    char subject[FB_ID_LENGTH + 40], actual[FB_ID_LENGTH + 1];
    fb_status status = fb_store_tensor_digests(app->store, digest, &tensors, &count, error);
    for (size_t i = 0; i < count && !status; i++) {
        uint64_t size = 0, room = fb_blob_size(blob);
        const fb_store_tensor_digest *one = &tensors[i];
        snprintf(subject, sizeof subject, "blob %s at %" PRIu64, digest, one->offset);
        check->tensors++;
        if (!size_of(one, &size) || one->offset > room || size > room - one->offset) {
            fb_check_found(check, "tensor-digest-wrong", subject, "a tensor %s%s is not there", one->dtype, one->shape);
            continue;
        }
        status = hash_part(blob, one->offset, size, actual, error);
        if (!status && strcmp(actual, one->digest) != 0)
            fb_check_found(check, "tensor-digest-wrong", subject, "the digest of %s%s is %s, not %s", one->dtype, one->shape,
                           actual, one->digest);
    }
    free(tensors);
    return status;
}

static fb_status check_blob(const fb_app *app, fb_check *check, const char *digest, fb_error *error) {
    char subject[FB_ID_LENGTH + 8], actual[FB_ID_LENGTH + 1];
    fb_blob *blob = NULL;
    fb_error met = {0};
    snprintf(subject, sizeof subject, "blob %.*s", FB_ID_LENGTH, digest);
    if (fb_blob_open(app->store, digest, &blob, &met)) return fb_check_met(check, "blob-damaged", subject, &met, error);
    check->blob_bytes += fb_blob_size(blob);
    fb_status status = hash_part(blob, 0, fb_blob_size(blob), actual, &met);
    if (status) status = fb_check_met(check, "blob-damaged", subject, &met, error);
    else if (strcmp(actual, digest) != 0)
        fb_check_found(check, "blob-damaged", subject, "its bytes have the digest %s", actual);
    else status = check_tensors(app, check, blob, digest, error);
    fb_blob_close(blob);
    return status;
}

fb_status fb_check_blobs(const fb_app *app, fb_check *check, fb_error *error) {
    fb_store_texts digests;
    fb_error met = {0};
    if (fb_store_list_texts(app->store, FB_STORED_BLOBS, &digests, &met))
        return fb_check_met(check, "database-damaged", "the list of blobs", &met, error);
    fb_status status = FB_OK;
    const char *digest = digests.texts.data;
    for (size_t i = 0; i < digests.count && !status; i++, digest += strlen(digest) + 1) {
        status = check_blob(app, check, digest, error);
        fb_check_progress(check, "blobs", ++check->blobs, digests.count);
    }
    fb_buffer_free(&digests.texts);
    return status;
}
