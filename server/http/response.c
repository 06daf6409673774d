/* Responses that handlers build, and how they become libmicrohttpd's. */
#include "server/http/internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/json/json.h"

#define COMPRESS_FROM 1024 /* bytes; below it the headers outweigh the gain */

void fb_response_clear(fb_response *response) {
    if (response->release) response->release(response->owner);
    response->release = NULL;
    response->owner = NULL;
    response->bytes = "";
    response->size = 0;
    json_decref(response->problem);
    response->problem = NULL;
    if (response->stream) fb_stream_free(response->stream);
    response->stream = NULL;
    response->pull = NULL; /* was the stream's */
    response->status = 0;
    response->content_type[0] = '\0';
    response->coding[0] = '\0';
}

void fb_response_free(fb_response *response) {
    fb_response_clear(response);
    for (size_t i = 0; i < response->header_count; i++) {
        free(response->headers[i].name);
        free(response->headers[i].value);
    }
    free(response->headers);
    response->headers = NULL;
    response->header_count = 0;
}

void fb_respond_bytes(fb_response *response, int status, const char *content_type, const void *bytes, size_t size,
                      void (*release)(void *owner), void *owner) {
    fb_response_clear(response);
    response->status = status;
    snprintf(response->content_type, sizeof response->content_type, "%s", content_type);
    response->bytes = size ? bytes : "";
    response->size = size;
    response->release = release;
    response->owner = owner;
}

void fb_respond_empty(fb_response *response, int status) {
    fb_respond_bytes(response, status, "", "", 0, NULL, NULL);
}

void fb_respond_not_modified(fb_response *response, const char *content_type, const char *tag) {
    fb_respond_bytes(response, 304, content_type, "", 0, NULL, NULL);
    fb_response_etag(response, tag);
}

void fb_respond_buffer_take(fb_response *response, int status, const char *content_type, fb_buffer *buffer) {
    size_t size;
    char *bytes = fb_buffer_take(buffer, &size);
    if (!bytes) {
        response->failed = true;
        return;
    }
    fb_respond_bytes(response, status, content_type, bytes, size, free, bytes);
}

void fb_respond_copy(fb_response *response, int status, const char *content_type, const void *bytes, size_t size) {
    fb_buffer copy = {0};
    fb_buffer_append(&copy, bytes, size);
    fb_respond_buffer_take(response, status, content_type, &copy);
}

void fb_respond_json_buffer_take(fb_response *response, int status, fb_buffer *buffer) {
    fb_respond_buffer_take(response, status, "application/json", buffer);
}

void fb_respond_json_take(fb_response *response, int status, json_t *value) {
    char *text = value ? fb_dump_json(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    if (!text) {
        response->failed = true;
        return;
    }
    fb_respond_bytes(response, status, "application/json", text, strlen(text), free, text);
}

void fb_response_header(fb_response *response, const char *name, const char *value) {
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) return;
    char *copy = strdup(value);
    if (!copy) {
        response->failed = true;
        return;
    }
    if (strcasecmp(name, "Link")) {
        for (size_t i = 0; i < response->header_count; i++) {
            if (strcasecmp(response->headers[i].name, name)) continue;
            free(response->headers[i].value);
            response->headers[i].value = copy;
            return;
        }
    }
    void *grown = realloc(response->headers, (response->header_count + 1) * sizeof *response->headers);
    char *name_copy = grown ? strdup(name) : NULL;
    if (grown) response->headers = grown;
    if (!name_copy) {
        free(copy);
        response->failed = true;
        return;
    }
    response->headers[response->header_count].name = name_copy;
    response->headers[response->header_count++].value = copy;
}

void fb_response_header_format(fb_response *response, const char *name, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fb_buffer value = {0};
    fb_buffer_vprintf(&value, format, args);
    va_end(args);
    const char *text = fb_buffer_text(&value);
    if (text) fb_response_header(response, name, text);
    else response->failed = true;
    fb_buffer_free(&value);
}

void fb_response_etag(fb_response *response, const char *tag) {
    for (const char *p = tag; *p; p++)
        if ((unsigned char)*p <= 0x20 || *p == 0x7f || *p == '"') return;
    if (strlen(tag) < sizeof response->etag) snprintf(response->etag, sizeof response->etag, "%s", tag);
}

void fb_response_changed(fb_response *response, int64_t at) {
    response->changed_ms = at;
}

/* The bytes given are already in that coding ("zstd", "gzip"). */
static void set_encoding(fb_response *response, const char *coding) {
    snprintf(response->coding, sizeof response->coding, "%s", coding);
}

void fb_response_identity(fb_response *response) {
    response->is_identity = true;
}

int fb_response_status(const fb_response *response) {
    return response->status;
}

void fb_response_require(fb_response *response) {
    if (response->status || response->failed) return;
    fb_respond_problem(response, 500, "no-response", "the server made no answer to this request");
}

void fb_response_settle(fb_response *response) {
    fb_response_require(response);
    if (response->problem) {
        char *text = fb_dump_json(response->problem, JSON_COMPACT);
        if (text) {
            int status = response->status;
            fb_copy_text(response->code, sizeof response->code, json_string_value(json_object_get(response->problem, "code")));
            fb_respond_bytes(response, status, "application/problem+json", text, strlen(text), free, text);
        } else {
            response->failed = true;
        }
    }
    if (!response->failed) return;
    static const char text[] = "{\"type\":\"/problems/out-of-memory\",\"title\":\"Out of memory\",\"status\":503,"
                               "\"detail\":\"the server is out of memory\",\"code\":\"out-of-memory\"}";
    fb_respond_bytes(response, 503, "application/problem+json", text, sizeof text - 1, NULL, NULL);
    fb_copy_text(response->code, sizeof response->code, "out-of-memory");
    response->failed = false;
    fb_response_header(response, "Retry-After", "5");
    response->failed = false; /* without Retry-After then */
}

static bool is_compressible(const char *content_type) {
    return !strncmp(content_type, "text/", 5) || strstr(content_type, "json") || strstr(content_type, "yaml");
}

static bool accepts_coding(const fb_exchange *exchange, const char *coding) {
    size_t cursor = 0, size, value_size;
    bool is_accepted = false;
    for (const char *header; (header = fb_exchange_header(exchange, "Accept-Encoding", &cursor));) {
        for (const char *element; fb_text_next_element(&header, &element, &size);) {
            int quality = fb_text_quality(element, size, &value_size);
            if (value_size == strlen(coding) && !strncasecmp(element, coding, value_size)) is_accepted = quality > 0;
        }
    }
    return is_accepted;
}

/* Compresses when that was asked for; true when the answer depends on Accept-Encoding. */
static bool negotiate_coding(fb_exchange *exchange) {
    fb_response *response = &exchange->response;
    if (response->coding[0]) return true;
    if (!exchange->server->config.compress || response->is_identity || !is_compressible(response->content_type)) return false;
    if (response->status == 304) return true; /* of a body that may not have been made, and that may be large */
    if (response->size < COMPRESS_FROM) return false;
    bool is_zstd = accepts_coding(exchange, "zstd");
    if (!is_zstd && !accepts_coding(exchange, "gzip")) return true;
    fb_buffer out = {0};
    size_t size;
    if (fb_body_compress(is_zstd ? FB_CODING_ZSTD : FB_CODING_GZIP, response->bytes, response->size, &out)) {
        int status = response->status;
        char type[sizeof response->content_type];
        memcpy(type, response->content_type, sizeof type);
        char *bytes = fb_buffer_take(&out, &size);
        if (bytes) {
            fb_respond_bytes(response, status, type, bytes, size, free, bytes);
            set_encoding(response, is_zstd ? "zstd" : "gzip");
        }
    }
    fb_buffer_free(&out);
    return true;
}

static bool has_header(const fb_response *response, const char *name) {
    for (size_t i = 0; i < response->header_count; i++)
        if (!strcasecmp(response->headers[i].name, name)) return true;
    return false;
}

/* Headers that a page of another origin may read besides the few that every page may. */
#define EXPOSED                                                                                                                \
    "Accept-Ranges, Content-Location, Content-Range, ETag, Idempotency-Replayed, Link, Location, Preference-Applied, Range, "  \
    "Retry-After, Server-Timing, Upload-Offset, WWW-Authenticate, X-Request-Id"

static bool add_headers(fb_exchange *exchange, struct MHD_Response *answer, bool varies) {
    const fb_response *response = &exchange->response;
    bool ok = true;
    if (response->content_type[0]) ok &= MHD_add_response_header(answer, "Content-Type", response->content_type) == MHD_YES;
    if (response->coding[0]) ok &= MHD_add_response_header(answer, "Content-Encoding", response->coding) == MHD_YES;
    if (varies) ok &= MHD_add_response_header(answer, "Vary", "Accept-Encoding") == MHD_YES;
    int status = response->status;
    bool is_tagged = response->etag[0] && (status == 200 || status == 201 || status == 206 || status == 304);
    if (is_tagged) {
        /* The tag names the plain bytes; a compressed form is only equivalent to them. */
        char tag[sizeof response->etag + 8];
        snprintf(tag, sizeof tag, response->coding[0] ? "W/\"%s\"" : "\"%s\"", response->etag);
        ok &= MHD_add_response_header(answer, "ETag", tag) == MHD_YES;
    }
    if (!has_header(response, "Cache-Control"))
        ok &= MHD_add_response_header(answer, "Cache-Control", is_tagged ? "no-cache" : "no-store") == MHD_YES;
    ok &= MHD_add_response_header(answer, "X-Content-Type-Options", "nosniff") == MHD_YES;
    ok &= MHD_add_response_header(answer, "X-Request-Id", exchange->request.id) == MHD_YES;
    if (exchange->must_close) ok &= MHD_add_response_header(answer, "Connection", "close") == MHD_YES;
    const char *origin = fb_cors_origin(exchange);
    if (exchange->server->config.cors_origin_count) ok &= MHD_add_response_header(answer, "Vary", "Origin") == MHD_YES;
    if (origin) {
        ok &= MHD_add_response_header(answer, "Access-Control-Allow-Origin", origin) == MHD_YES;
        ok &= MHD_add_response_header(answer, "Access-Control-Expose-Headers", EXPOSED) == MHD_YES;
    }
    for (size_t i = 0; i < response->header_count; i++)
        ok &= MHD_add_response_header(answer, response->headers[i].name, response->headers[i].value) == MHD_YES;
    return ok;
}

struct MHD_Response *fb_response_finish(fb_exchange *exchange) {
    fb_response *response = &exchange->response;
    fb_response_settle(response);
    bool is_get = exchange->route && !strcmp(exchange->route->method, "GET");
    bool is_there = response->status == 200 || response->status == 304;
    if (is_get && is_there && !fb_conditions_hold(exchange, response)) {
        fb_respond_condition_failed(response);
        fb_response_settle(response);
    }
    if (is_get && response->status == 200 && response->etag[0] && fb_has_etag(exchange, response->etag))
        response->status = 304; /* libmicrohttpd sends the headers of the 200, its length included, and no body */
    else if (is_get && response->status == 200 && response->pull) {
        fb_pull_select(exchange);
        fb_response_settle(response);
    }
    bool varies = negotiate_coding(exchange);
    fb_stream *stream = response->stream;
    struct MHD_Response *answer;
    /* The cast drops const: libmicrohttpd only reads. */
    char *bytes = (char *)(uintptr_t)response->bytes;
    if (stream) answer = fb_stream_answer(stream, exchange->is_head);
    else if (response->release)
        answer =
            MHD_create_response_from_buffer_with_free_callback_cls(response->size, bytes, response->release, response->owner);
    else answer = MHD_create_response_from_buffer(response->size, bytes, MHD_RESPMEM_PERSISTENT);
    if (!answer) return NULL;
    response->release = NULL; /* the answer's now */
    response->stream = NULL;
    exchange->must_close |= stream && fb_stream_is_endless(stream);
    exchange->stream = stream;
    exchange->pull = response->pull;
    response->pull = NULL;
    if (add_headers(exchange, answer, varies)) return answer;
    exchange->stream = NULL;
    exchange->pull = NULL;
    MHD_destroy_response(answer); /* and what it owns */
    fb_response_clear(response);
    response->failed = true;
    return NULL;
}
