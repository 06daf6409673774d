/* Objects: read, put, listed, removed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/s3/internal.h"

/* Reads a store's XML, as far as it is needed: the text of elements, which have no attributes of interest and do not nest in
 * themselves. */

fb_status fb_s3_probe(fb_s3 *s3, fb_error *error) {
    fb_buffer query = {0};
    fb_buffer_string(&query, "list-type=2&max-keys=1&prefix=");
    fb_s3_encode(&query, fb_s3_place_of(s3)->prefix, false);
    fb_s3_call call = {.method = "GET", .query = fb_buffer_text(&query), .is_probe = true};
    fb_status status = call.query ? fb_s3_do(s3, &call, error) : fb_fail_memory(error);
    fb_buffer_free(&call.text);
    fb_buffer_free(&query);
    return status;
}

fb_status fb_s3_size(fb_s3 *s3, const char *key, uint64_t *size, fb_error *error) {
    fb_s3_call call = {.method = "HEAD", .key = key};
    fb_error met = {0};
    fb_status status = fb_s3_do(s3, &call, &met);
    fb_buffer_free(&call.text);
    if (!status) *size = call.length;
    char first; /* what refused HEAD has no sentence */
    fb_status why = status == FB_IO ? fb_s3_read(s3, key, 0, 1, &first, -1, error) : FB_OK;
    if (why) return why;
    return status ? fb_fail(error, status, met.code, NULL, "%s", met.message) : FB_OK;
}

fb_status fb_s3_read(fb_s3 *s3, const char *key, uint64_t offset, size_t size, void *to, int file, fb_error *error) {
    if (!size) return FB_OK;
    fb_s3_call call = {.method = "GET", .key = key, .offset = offset, .wanted = size, .to = to, .file = file};
    fb_status status = fb_s3_do(s3, &call, error);
    fb_buffer_free(&call.text);
    return status;
}

fb_status fb_s3_put(fb_s3 *s3, const char *key, const void *bytes, size_t size, fb_error *error) {
    fb_s3_call call = {.method = "PUT", .key = key, .body = bytes, .size = size};
    fb_status status = fb_s3_do(s3, &call, error);
    fb_buffer_free(&call.text);
    return status;
}

fb_status fb_s3_remove(fb_s3 *s3, const char *key, fb_error *error) {
    fb_s3_call call = {.method = "DELETE", .key = key};
    fb_error met = {0};
    fb_status status = fb_s3_do(s3, &call, &met);
    fb_buffer_free(&call.text);
    if (!status || status == FB_NOT_FOUND) return FB_OK;
    return fb_fail(error, met.status, met.code, NULL, "%s", met.message);
}

/* ---- lists -------------------------------------------------------------------------------------------------------------- */

/* "2009-10-12T17:50:30.000Z"; INT64_MAX, which nothing is older than, when it is not a time. */
static int64_t read_time(const char *text) {
    struct tm utc = {0};
    const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &utc) : NULL;
    if (!rest) return INT64_MAX;
    return ((int64_t)timegm(&utc) + 1) * 1000; /* its fraction is left out: not older than it is */
}

/* Without our prefix; NULL when it lacks that. */
static const char *below_prefix(const fb_s3 *s3, const char *key) {
    const char *prefix = fb_s3_place_of(s3)->prefix;
    return strncmp(key, prefix, strlen(prefix)) == 0 ? key + strlen(prefix) : NULL;
}

static fb_status read_page(fb_s3 *s3, const char *at, const char *end, fb_s3_found found, void *context, fb_error *error) {
    fb_status status = FB_OK;
    const char *inside;
    size_t size;
    while (!status && fb_s3_xml_find(&at, end, "Contents", &inside, &size)) {
        const char *from = inside;
        char *key = fb_s3_xml_text(&from, inside + size, "Key");
        from = inside;
        char *changed = fb_s3_xml_text(&from, inside + size, "LastModified");
        const char *name = key ? below_prefix(s3, key) : NULL;
        if (!key || !changed) status = fb_fail(error, FB_IO, "blobs-refused", NULL, "a list of the blobs' store lacks keys");
        else if (name) status = found(context, name, read_time(changed), error);
        free(changed);
        free(key);
    }
    return status;
}

fb_status fb_s3_list(fb_s3 *s3, const char *start, fb_s3_found found, void *context, fb_error *error) {
    char *token = NULL;
    fb_status status = FB_OK;
    do {
        fb_buffer query = {0};
        if (token) {
            fb_buffer_string(&query, "continuation-token=");
            fb_s3_encode(&query, token, false);
            fb_buffer_char(&query, '&');
        }
        fb_buffer_string(&query, "list-type=2&prefix=");
        fb_s3_encode(&query, fb_s3_place_of(s3)->prefix, false);
        fb_s3_encode(&query, start, false);
        free(token);
        token = NULL;
        fb_s3_call call = {.method = "GET", .query = fb_buffer_text(&query)};
        status = call.query ? fb_s3_do(s3, &call, error) : fb_fail_memory(error);
        const char *text = status ? NULL : fb_buffer_text(&call.text), *end = text ? text + call.text.size : NULL, *at = text;
        if (!status) status = text ? read_page(s3, text, end, found, context, error) : fb_fail_memory(error);
        if (!status) token = fb_s3_xml_text(&at, end, "NextContinuationToken");
        fb_buffer_free(&call.text);
        fb_buffer_free(&query);
    } while (!status && token);
    free(token);
    return status;
}

/* ---- parts -------------------------------------------------------------------------------------------------------------- */

fb_status fb_s3_parts_begin(fb_s3 *s3, const char *key, char **upload, fb_error *error) {
    fb_s3_call call = {.method = "POST", .key = key, .query = "uploads="};
    fb_status status = fb_s3_do(s3, &call, error);
    const char *text = status ? NULL : fb_buffer_text(&call.text), *at = text;
    char *id = text ? fb_s3_xml_text(&at, text + call.text.size, "UploadId") : NULL;
    fb_buffer_free(&call.text);
    if (!status && !id) return fb_fail(error, FB_IO, "blobs-refused", NULL, "the blobs' store gave an upload no id");
    *upload = id;
    return status;
}

/* "partNumber=1&uploadId=…" in order. */
static void put_upload(fb_buffer *query, const char *upload) {
    fb_buffer_string(query, "uploadId=");
    fb_s3_encode(query, upload, false);
}

fb_status fb_s3_parts_put(fb_s3 *s3, const char *key, const char *upload, size_t number, const void *bytes, size_t size,
                          fb_s3_part *part, fb_error *error) {
    fb_buffer query = {0};
    fb_buffer_printf(&query, "partNumber=%zu&", number + 1);
    put_upload(&query, upload);
    fb_s3_call call = {.method = "PUT", .key = key, .query = fb_buffer_text(&query), .body = bytes, .size = size};
    fb_status status = call.query ? fb_s3_do(s3, &call, error) : fb_fail_memory(error);
    fb_buffer_free(&call.text);
    fb_buffer_free(&query);
    if (!status && !*call.etag) return fb_fail(error, FB_IO, "blobs-refused", NULL, "the blobs' store gave a part no ETag");
    if (!status) memcpy(part->etag, call.etag, sizeof part->etag);
    return status;
}

fb_status fb_s3_parts_end(fb_s3 *s3, const char *key, const char *upload, const fb_s3_part *parts, size_t count,
                          fb_error *error) {
    fb_buffer query = {0}, body = {0};
    put_upload(&query, upload);
    fb_buffer_string(&body, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (size_t i = 0; i < count; i++)
        fb_buffer_printf(&body, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>", i + 1, parts[i].etag);
    fb_buffer_string(&body, "</CompleteMultipartUpload>");
    fb_s3_call call = {.method = "POST",
                       .key = key,
                       .query = fb_buffer_text(&query),
                       .body = fb_buffer_text(&body),
                       .size = body.size,
                       .is_long = true};
    fb_status status = call.query && call.body ? fb_s3_do(s3, &call, error) : fb_fail_memory(error);
    fb_buffer_free(&call.text);
    fb_buffer_free(&query);
    fb_buffer_free(&body);
    return status;
}

fb_status fb_s3_parts_abort(fb_s3 *s3, const char *key, const char *upload, fb_error *error) {
    fb_buffer query = {0};
    fb_error met = {0};
    put_upload(&query, upload);
    fb_s3_call call = {.method = "DELETE", .key = key, .query = fb_buffer_text(&query)};
    fb_status status = call.query ? fb_s3_do(s3, &call, &met) : fb_fail_memory(&met);
    fb_buffer_free(&call.text);
    fb_buffer_free(&query);
    if (!status || status == FB_NOT_FOUND) return FB_OK;
    return fb_fail(error, met.status, met.code, NULL, "%s", met.message);
}

static fb_status read_uploads(fb_s3 *s3, const char *start, const char *at, const char *end, fb_s3_unfinished found,
                              void *context, fb_error *error) {
    fb_status status = FB_OK;
    const char *inside;
    size_t size;
    while (!status && fb_s3_xml_find(&at, end, "Upload", &inside, &size)) {
        const char *from = inside;
        char *key = fb_s3_xml_text(&from, inside + size, "Key");
        from = inside;
        char *upload = fb_s3_xml_text(&from, inside + size, "UploadId");
        from = inside;
        char *begun = fb_s3_xml_text(&from, inside + size, "Initiated");
        const char *name = key && upload ? below_prefix(s3, key) : NULL;
        if (name && strncmp(name, start, strlen(start)) == 0) status = found(context, name, upload, read_time(begun), error);
        free(begun);
        free(upload);
        free(key);
    }
    return status;
}

fb_status fb_s3_parts_list(fb_s3 *s3, const char *start, fb_s3_unfinished found, void *context, fb_error *error) {
    fb_buffer query = {0};
    fb_buffer_string(&query, "prefix=");
    fb_s3_encode(&query, fb_s3_place_of(s3)->prefix, false);
    fb_s3_encode(&query, start, false);
    fb_buffer_string(&query, "&uploads=");
    fb_s3_call call = {.method = "GET", .query = fb_buffer_text(&query)};
    fb_error met = {0};
    fb_status status = call.query ? fb_s3_do(s3, &call, &met) : fb_fail_memory(&met);
    bool has_none = status == FB_NOT_FOUND || call.status == 501; /* or lists none */
    if (status && !has_none) fb_fail(error, met.status, met.code, NULL, "%s", met.message);
    const char *text = status ? NULL : fb_buffer_text(&call.text);
    if (has_none) status = FB_OK;
    else if (!status)
        status = text ? read_uploads(s3, start, text, text + call.text.size, found, context, error) : fb_fail_memory(error);
    fb_buffer_free(&call.text);
    fb_buffer_free(&query);
    return status;
}
