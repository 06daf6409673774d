/* Request bodies: collected in memory, gzip and zstd decoded on the way, never beyond the limit. And compression of answers. */
#define ZLIB_CONST
#include "server/http/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "core/base/ratio.h"

#define STEP ((size_t)256 << 10) /* decoded bytes at a time */

fb_status fb_body_begin(fb_body_reader *reader, fb_coding coding, uint64_t limit, unsigned ratio, fb_error *error) {
    reader->coding = coding;
    reader->limit = limit;
    reader->ratio = ratio;
    if (coding == FB_CODING_GZIP) {
        z_stream *stream = calloc(1, sizeof *stream);
        if (!stream) return fb_fail_memory(error);
        if (inflateInit2(stream, 15 + 16) != Z_OK) { /* 15 bits of window, + 16 = gzip */
            free(stream);
            return fb_fail_memory(error);
        }
        reader->stream = stream;
    } else if (coding == FB_CODING_ZSTD) {
        reader->stream = ZSTD_createDCtx(); /* refuses windows over 128 MiB by itself */
        if (!reader->stream) return fb_fail_memory(error);
    }
    return FB_OK;
}

static fb_status too_large(const fb_body_reader *reader, fb_error *error) {
    return fb_fail(error, FB_TOO_LARGE, "body-too-large", NULL, "the body is larger than %llu bytes%s",
                   (unsigned long long)reader->limit, reader->coding == FB_CODING_IDENTITY ? "" : " after decompression");
}

/* Checks the size of what was decoded so far: small bodies always pass. */
static fb_status check_size(const fb_body_reader *reader, fb_error *error) {
    if (reader->bytes.size > reader->limit) return too_large(reader, error);
    if (fb_is_within_ratio(reader->bytes.size, reader->taken, reader->ratio)) return FB_OK;
    return fb_fail(error, FB_TOO_LARGE, "body-ratio-too-large", NULL,
                   "the body is more than %u times as large after decompression as before; send it less compressed",
                   reader->ratio);
}

static fb_status corrupt(fb_error *error, const char *coding) {
    return fb_fail(error, FB_SYNTAX, "bad-encoding", NULL, "the body is not valid %s data", coding);
}

/* Room for the next step, one byte over the limit at most: that byte shows that the limit is passed. */
static size_t room(const fb_body_reader *reader) {
    uint64_t left = reader->limit - reader->bytes.size + 1;
    return left < STEP ? (size_t)left : STEP;
}

static fb_status feed_gzip(fb_body_reader *reader, const char *bytes, size_t size, fb_error *error) {
    z_stream *stream = reader->stream;
    stream->next_in = (const unsigned char *)bytes;
    stream->avail_in = (unsigned)size;
    for (bool is_full = false; stream->avail_in || is_full;) {
        if (reader->is_frame_end) { /* a gzip file may have several members */
            if (inflateReset(stream) != Z_OK) return corrupt(error, "gzip");
            reader->is_frame_end = false;
        }
        size_t space = room(reader);
        char *out = fb_buffer_reserve(&reader->bytes, space);
        if (!out) return fb_fail_memory(error);
        stream->next_out = (unsigned char *)out;
        stream->avail_out = (unsigned)space;
        int result = inflate(stream, Z_NO_FLUSH);
        if (result == Z_MEM_ERROR) return fb_fail_memory(error);
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return corrupt(error, "gzip");
        reader->bytes.size += space - stream->avail_out;
        fb_status status = check_size(reader, error);
        if (status) return status;
        reader->is_frame_end = result == Z_STREAM_END;
        is_full = stream->avail_out == 0 && !reader->is_frame_end;
    }
    return FB_OK;
}

static fb_status feed_zstd(fb_body_reader *reader, const char *bytes, size_t size, fb_error *error) {
    ZSTD_inBuffer in = {.src = bytes, .size = size};
    for (bool is_full = false; in.pos < in.size || is_full;) {
        size_t space = room(reader);
        char *out = fb_buffer_reserve(&reader->bytes, space);
        if (!out) return fb_fail_memory(error);
        ZSTD_outBuffer output = {.dst = out, .size = space};
        size_t result = ZSTD_decompressStream(reader->stream, &output, &in);
        if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
            return fb_fail(error, FB_TOO_LARGE, "window-too-large", NULL,
                           "the zstd frame needs a window of more than 128 MiB; compress with --long=27 or less");
        if (ZSTD_isError(result)) return corrupt(error, "zstd");
        reader->bytes.size += output.pos;
        fb_status status = check_size(reader, error);
        if (status) return status;
        reader->is_frame_end = result == 0;
        is_full = output.pos == output.size && !reader->is_frame_end;
    }
    return FB_OK;
}

fb_status fb_body_feed(fb_body_reader *reader, const char *bytes, size_t size, fb_error *error) {
    reader->taken += size;
    if (reader->coding == FB_CODING_GZIP) return feed_gzip(reader, bytes, size, error);
    if (reader->coding == FB_CODING_ZSTD) return feed_zstd(reader, bytes, size, error);
    if (size > reader->limit - reader->bytes.size) return too_large(reader, error);
    fb_buffer_append(&reader->bytes, bytes, size);
    return reader->bytes.failed ? fb_fail_memory(error) : FB_OK;
}

fb_status fb_body_end(fb_body_reader *reader, fb_error *error) {
    if (reader->coding != FB_CODING_IDENTITY && !reader->is_frame_end)
        return fb_fail(error, FB_SYNTAX, "bad-encoding", NULL, "the compressed body ends too early");
    return fb_buffer_text(&reader->bytes) ? FB_OK : fb_fail_memory(error);
}

void fb_body_free(fb_body_reader *reader) {
    if (reader->coding == FB_CODING_GZIP && reader->stream) {
        inflateEnd(reader->stream);
        free(reader->stream);
    } else if (reader->stream) {
        ZSTD_freeDCtx(reader->stream);
    }
    reader->stream = NULL;
    fb_buffer_free(&reader->bytes);
}

static size_t compress_gzip(const char *bytes, size_t size, char *out, size_t space) {
    z_stream stream = {0};
    if (size > UINT32_MAX || space > UINT32_MAX || deflateInit2(&stream, 4, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    stream.next_in = (const unsigned char *)bytes;
    stream.avail_in = (unsigned)size;
    stream.next_out = (unsigned char *)out;
    stream.avail_out = (unsigned)space;
    int result = deflate(&stream, Z_FINISH);
    size_t written = space - stream.avail_out;
    deflateEnd(&stream);
    return result == Z_STREAM_END ? written : 0;
}

bool fb_body_compress(fb_coding coding, const char *bytes, size_t size, fb_buffer *out) {
    size_t space = size - size / 16; /* less gain than that is not worth the client's work */
    char *to = fb_buffer_reserve(out, space);
    if (!to) return false;
    size_t written = 0;
    if (coding == FB_CODING_GZIP) written = compress_gzip(bytes, size, to, space);
    else written = ZSTD_compress(to, space, bytes, size, 3);
    if (!written || ZSTD_isError(written)) return false;
    out->size = written;
    return true;
}
