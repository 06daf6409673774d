#include "tests/unit/memory_blobs.h"

#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit/documents.h"

memory_blob *memory_blobs_find(memory_blobs *blobs, const char *digest) {
    for (size_t i = 0; i < blobs->count; i++) {
        if (strcmp(blobs->items[i].digest, digest) == 0) return &blobs->items[i];
    }
    return NULL;
}

static fb_status open_blob(void *context, const char *digest, fb_blob_bytes *out, fb_error *error) {
    memory_blobs *blobs = context;
    memory_blob *blob = memory_blobs_find(blobs, digest);
    void *handle = malloc(1); /* so that an opening can fail, and a leak is seen */
    if (!handle) return fb_fail_memory(error);
    if (!blob || blob->is_away) {
        free(handle);
        return fb_fail(error, FB_NOT_FOUND, "blob-missing", "", "%s is not here", digest);
    }
    *out = (fb_blob_bytes){.bytes = blob->bytes, .size = blob->size, .owner = handle};
    blobs->open++;
    return FB_OK;
}

static void close_blob(void *context, fb_blob_bytes *bytes) {
    ((memory_blobs *)context)->open--;
    free(bytes->owner);
}

static void forget(void *context, const fb_blob_bytes *bytes) {
    (void)context;
    if (!bytes->owner) abort(); /* the check library would allocate */
}

static void remember(void *context, const fb_blob_tensor *tensor, const char *digest) {
    memory_blobs *blobs = context;
    memory_blob *blob = memory_blobs_find(blobs, tensor->blob);
    if (!fb_is_sha256_id(digest) || tensor->offset + tensor->size > blob->size) abort();
    blobs->remembered++;
}

static fb_status scratch(void *context, int *file, fb_error *error) {
    (void)context;
    *file = memfd_create("scratch", MFD_CLOEXEC);
    return *file >= 0 ? FB_OK : fb_fail(error, FB_IO, "io", "", "memfd_create");
}

void memory_blobs_init(memory_blobs *blobs) {
    *blobs = (memory_blobs){.source = {.context = blobs,
                                       .open = open_blob,
                                       .close = close_blob,
                                       .forget = forget,
                                       .remember = remember,
                                       .scratch = scratch}};
}

void memory_blobs_free(memory_blobs *blobs) {
    ck_assert_uint_eq(blobs->open, 0);
    for (size_t i = 0; i < blobs->count; i++) {
        if (!blobs->items[i].is_lent) free(blobs->items[i].bytes);
    }
    blobs->count = 0;
}

const char *memory_blobs_put(memory_blobs *blobs, const void *bytes, size_t size) {
    char digest[FB_ID_LENGTH + 1];
    ck_assert(fb_sha256_id(bytes, size, digest));
    memory_blob *blob = memory_blobs_find(blobs, digest);
    if (blob) return blob->digest;
    ck_assert_uint_lt(blobs->count, MAX_MEMORY_BLOBS);
    blob = &blobs->items[blobs->count++];
    memcpy(blob->digest, digest, sizeof digest);
    blob->bytes = malloc(size ? size : 1);
    memcpy(blob->bytes, bytes, size);
    blob->size = size;
    return blob->digest;
}

void memory_blobs_lend(memory_blobs *blobs, const char *digest, unsigned char *bytes, uint64_t size) {
    ck_assert_uint_lt(blobs->count, MAX_MEMORY_BLOBS);
    memory_blob *blob = &blobs->items[blobs->count++];
    *blob = (memory_blob){.bytes = bytes, .size = size, .is_lent = true};
    fb_copy_text(blob->digest, sizeof blob->digest, digest);
}

const char *memory_blobs_put_file(memory_blobs *blobs, const char *path) {
    size_t size;
    char *bytes = read_file(path, &size);
    const char *digest = memory_blobs_put(blobs, bytes, size);
    free(bytes);
    return digest;
}

const char *memory_blobs_put_tensors(memory_blobs *blobs, const char *metadata, const memory_tensor *tensors, size_t count) {
    fb_buffer file = {0}, header = {0};
    size_t offset = 0;
    fb_buffer_char(&header, '{');
    if (metadata) fb_buffer_printf(&header, "\"__metadata__\":%s", metadata);
    for (size_t i = 0; i < count; i++) {
        if (i || metadata) fb_buffer_char(&header, ',');
        fb_buffer_json_string(&header, tensors[i].name, strlen(tensors[i].name));
        fb_buffer_printf(&header, ":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", tensors[i].dtype,
                         tensors[i].shape, offset, offset + tensors[i].size);
        offset += tensors[i].size;
    }
    fb_buffer_char(&header, '}');
    for (int i = 0; i < 8; i++) fb_buffer_char(&file, (char)(unsigned char)((uint64_t)header.size >> (8 * i)));
    fb_buffer_append(&file, header.data, header.size);
    for (size_t i = 0; i < count; i++) fb_buffer_append(&file, tensors[i].bytes, tensors[i].size);
    const char *digest = memory_blobs_put(blobs, file.data, file.size);
    fb_buffer_free(&header);
    fb_buffer_free(&file);
    return digest;
}
