#include "server/graphs/graphs.h"

static fb_status open_blob(void *context, const char *digest, fb_blob_bytes *out, fb_error *error) {
    fb_blob *blob = NULL;
    fb_error reason = {0};
    const unsigned char *bytes = NULL;
    fb_status status = fb_blob_open(context, digest, &blob, &reason);
    if (!status) status = fb_blob_map(blob, &bytes, &reason);
    if (status) {
        fb_blob_close(blob);
        if (status == FB_NOT_FOUND)
            return fb_fail(error, FB_NOT_FOUND, "blob-missing", NULL, "the blob %s is not here", digest);
        if (error && !error->status) *error = reason;
        return status;
    }
    *out = (fb_blob_bytes){.bytes = bytes, .size = fb_blob_size(blob), .owner = blob};
    return FB_OK;
}

static void close_blob(void *context, fb_blob_bytes *bytes) {
    (void)context;
    fb_blob_close(bytes->owner);
    *bytes = (fb_blob_bytes){0};
}

static void forget(void *context, const fb_blob_bytes *bytes) {
    (void)context;
    fb_blob_forget(bytes->owner);
}

static fb_status recall(void *context, const fb_blob_tensor *tensor, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    return fb_store_recall_digest(context, tensor->blob, tensor->offset, tensor->dtype, tensor->shape, digest, error);
}

static void remember(void *context, const fb_blob_tensor *tensor, const char *digest) {
    fb_store_remember_digest(context, tensor->blob, tensor->offset, tensor->dtype, tensor->shape, digest, NULL);
}

static fb_status scratch(void *context, int *file, fb_error *error) {
    return fb_store_scratch(context, file, error);
}

/* ---- compared with their digests ---------------------------------------------------------------------------------------- */

static fb_status open_checked(void *context, const char *digest, fb_blob_bytes *out, fb_error *error) {
    const fb_checked_source *source = context;
    fb_status status = open_blob(source->store, digest, out, error);
    if (status) return status;
    fb_error reason = {0};
    status = fb_blob_verify_once(out->owner, source->watch, &reason);
    if (!status) return FB_OK;
    close_blob(context, out);
    if (error && !error->status) *error = reason;
    return status;
}

static fb_status recall_checked(void *context, const fb_blob_tensor *tensor, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    return recall(((const fb_checked_source *)context)->store, tensor, digest, error);
}

static void remember_checked(void *context, const fb_blob_tensor *tensor, const char *digest) {
    remember(((const fb_checked_source *)context)->store, tensor, digest);
}

static fb_status scratch_checked(void *context, int *file, fb_error *error) {
    return scratch(((const fb_checked_source *)context)->store, file, error);
}

fb_blobs fb_checked_blob_source(fb_checked_source *source) {
    return (fb_blobs){.context = source,
                      .open = open_checked,
                      .close = close_blob,
                      .forget = forget,
                      .recall = recall_checked,
                      .remember = remember_checked,
                      .scratch = scratch_checked};
}

fb_blobs fb_blob_source(fb_store *store) {
    return (fb_blobs){.context = store,
                      .open = open_blob,
                      .close = close_blob,
                      .forget = forget,
                      .recall = recall,
                      .remember = remember,
                      .scratch = scratch};
}
