#include "server/database/frame.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <zstd.h>

#include "server/database/query.h"

#define KEPT ((size_t)1 << 20) /* bytes of a context, at most: what compressed a large document is not kept */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* of each thread's context, for its next frame: a new one has its tables cleared */
static bool has_key;

static void free_context(void *context) {
    ZSTD_freeCCtx(context);
}

static void make_key(void) {
    has_key = pthread_key_create(&key, free_context) == 0;
}

static ZSTD_CCtx *take_context(void) {
    pthread_once(&once, make_key);
    ZSTD_CCtx *context = has_key ? pthread_getspecific(key) : NULL;
    if (!context) return ZSTD_createCCtx();
    pthread_setspecific(key, NULL);
    return context;
}

static void give_back(ZSTD_CCtx *context) {
    bool is_kept = has_key && ZSTD_sizeof_CCtx(context) <= KEPT && pthread_setspecific(key, context) == 0;
    if (!is_kept) ZSTD_freeCCtx(context);
}

fb_status fb_frame_pack(const void *bytes, size_t size, int level, void **frame, size_t *frame_size, fb_error *error) {
    size_t capacity = ZSTD_compressBound(size);
    if (ZSTD_isError(capacity)) return fb_fail(error, FB_TOO_LARGE, "too-large-to-store", NULL, "too large to be compressed");
    void *packed = malloc(capacity);
    ZSTD_CCtx *context = take_context();
    size_t result = 0;
    if (packed && context) {
        ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level);
        ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
        result = ZSTD_compress2(context, packed, capacity, bytes, size);
    }
    give_back(context);
    /* With room for the bound, the only thing that compression can lack is memory. */
    if (result == 0 || ZSTD_isError(result)) {
        free(packed);
        return fb_fail_memory(error);
    }
    void *fitted = realloc(packed, result);
    *frame = fitted ? fitted : packed;
    *frame_size = result;
    return FB_OK;
}

fb_status fb_frame_unpack(const void *frame, size_t frame_size, size_t size, char **bytes, fb_error *error) {
    if (!frame || ZSTD_getFrameContentSize(frame, frame_size) != size)
        return fb_fail_corrupt(error, "a frame of the wrong size");
    char *unpacked = size < SIZE_MAX ? malloc(size + 1) : NULL;
    ZSTD_DCtx *context = ZSTD_createDCtx();
    if (!unpacked || !context) {
        free(unpacked);
        ZSTD_freeDCtx(context);
        return fb_fail_memory(error);
    }
    size_t result = ZSTD_decompressDCtx(context, unpacked, size, frame, frame_size);
    ZSTD_freeDCtx(context);
    if (ZSTD_isError(result) || result != size) {
        free(unpacked);
        return fb_fail_corrupt(error, "a frame that cannot be decompressed");
    }
    unpacked[size] = '\0';
    *bytes = unpacked;
    return FB_OK;
}
