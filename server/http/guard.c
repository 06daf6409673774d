/* Checks of a request before its content is believed.
 *
 * libmicrohttpd 0.9.75 takes the first Content-Length of several, prefers Transfer-Encoding silently, and reads "until close"
 * for a coding that it does not know: each lets a proxy and us disagree on where a request ends, and what follows is then
 * executed as a request of its own. So such requests are refused, and the connection is closed.
 */
#include "server/http/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEADERS_MAX 128

typedef struct framing {
    fb_exchange *exchange;
    size_t capacity, bytes;
    unsigned content_lengths, transfer_encodings, hosts, expects;
    const char *content_length, *transfer_encoding, *host, *expect;
    const char *line; /* where the next line begins when all before it ended in CR LF */
    bool has_bad_name, has_bad_value, has_loose_lines;
} framing;

/* libmicrohttpd takes a bare LF for the end of a line, joins folded lines, and cuts a line at a NUL, all silently. But it
 * parses in place and puts a NUL over each byte of a line's end: so a line that ended in CR LF has two of them after it, and
 * the next one follows there. What is not so was not CR LF. (NUL LF looks the same and is let through.) From 1.0 on it does
 * this itself when configured to be strict. */
static const char *after_line(const char *end) {
    return end + 2;
}

static bool is_name(const char *name, size_t size, const char *expected) {
    return size == strlen(expected) && !strncasecmp(name, expected, size);
}

static bool text_is_token(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_word && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c))) return false;
    }
    return size > 0;
}

static enum MHD_Result take_header(void *context, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                   const char *value, size_t value_size) {
    (void)kind;
    framing *f = context;
    if (!value) value = "";
    f->bytes += name_size + value_size;
    f->has_loose_lines |= name != f->line;
    f->line = after_line(value + value_size);
    f->has_bad_name |= !text_is_token(name, name_size);
    for (size_t i = 0; i < value_size; i++)
        f->has_bad_value |= ((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f;
    if (is_name(name, name_size, "Content-Length")) f->content_lengths++, f->content_length = value;
    if (is_name(name, name_size, "Transfer-Encoding")) f->transfer_encodings++, f->transfer_encoding = value;
    if (is_name(name, name_size, "Host")) f->hosts++, f->host = value;
    if (is_name(name, name_size, "Expect")) f->expects++, f->expect = value;
    if (f->exchange->header_count < f->capacity)
        f->exchange->headers[f->exchange->header_count++] = (fb_pair){.name = name, .value = value};
    return MHD_YES;
}

static bool bad_framing(fb_exchange *exchange, const char *detail) {
    fb_respond_problem(&exchange->response, 400, "bad-framing", "%s", detail);
    fb_metrics_reject(exchange->server, FB_REJECTED_FRAMING);
    return false;
}

static bool check_lengths(fb_exchange *exchange, const framing *f, bool is_1_1) {
    if (f->content_lengths > 1) return bad_framing(exchange, "there is more than one Content-Length");
    if (f->transfer_encodings > 1) return bad_framing(exchange, "there is more than one Transfer-Encoding");
    if (f->content_lengths && f->transfer_encodings)
        return bad_framing(exchange, "there are both a Content-Length and a Transfer-Encoding");
    if (f->transfer_encodings) {
        if (!is_1_1 || strcasecmp(f->transfer_encoding, "chunked"))
            return bad_framing(exchange, "the only Transfer-Encoding taken is chunked, with HTTP/1.1");
        /* Chunk extensions, and bare LF between chunks, are taken and not shown to us: so nothing that follows is believed. */
        exchange->is_chunked = exchange->must_close = true;
    }
    if (f->content_lengths) {
        size_t digits = strspn(f->content_length, "0123456789");
        if (!digits || digits > 18 || f->content_length[digits])
            return bad_framing(exchange, "the Content-Length is not a sensible number");
        exchange->content_length = strtoull(f->content_length, NULL, 10);
    }
    return true;
}

bool fb_guard_sees_lines(void) {
    return !strncmp(MHD_get_version(), "0.", 2);
}

/* True if the request line and the headers were well-formed lines; asked after all headers were taken. */
static bool has_strict_lines(const fb_exchange *exchange, const framing *f, const char *method, const char *version) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(exchange->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    bool has_single_spaces = version == method + strlen(method) + 1 + strlen(exchange->target) + 1;
    return has_single_spaces && !f->has_loose_lines && info && after_line(f->line) == method + info->header_size;
}

/* A name or an address, and perhaps a port. */
static bool is_host(const char *host) {
    size_t size = strspn(host, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._~!$&'()*+;=%:[]");
    return size && !host[size + strspn(host + size, " \t")];
}

bool fb_guard_framing(fb_exchange *exchange, const char *method, const char *version) {
    int count = MHD_get_connection_values(exchange->mhd, MHD_HEADER_KIND, NULL, NULL);
    framing f = {
        .exchange = exchange,
        .capacity = count < HEADERS_MAX ? (size_t)(count > 0 ? count : 0) : HEADERS_MAX,
        .line = after_line(version + strlen(version)),
    };
    exchange->headers = calloc(f.capacity + 1, sizeof *exchange->headers);
    if (!exchange->headers) {
        exchange->response.failed = true;
        return false;
    }
    MHD_get_connection_values_n(exchange->mhd, MHD_HEADER_KIND, take_header, &f);
    bool is_1_1 = !strcmp(version, "HTTP/1.1");
    if (!is_1_1 && strcmp(version, "HTTP/1.0")) return bad_framing(exchange, "the protocol is neither HTTP/1.1 nor HTTP/1.0");
    if (!text_is_token(method, strlen(method)))
        return bad_framing(exchange, "the method holds characters that no method may have");
    if (f.has_bad_name) return bad_framing(exchange, "a header's name holds characters that no name may have");
    if (f.has_bad_value) return bad_framing(exchange, "a header's value holds control characters");
    if (fb_guard_sees_lines() && !has_strict_lines(exchange, &f, method, version))
        return bad_framing(exchange, "a line does not end in CR LF, is folded, or holds a NUL or a space too many");
    if (f.hosts > 1) return bad_framing(exchange, "there is more than one Host");
    if (!f.hosts && is_1_1) return bad_framing(exchange, "there is no Host");
    if (f.hosts && !is_host(f.host)) return bad_framing(exchange, "the Host is not a name or address");
    if (!check_lengths(exchange, &f, is_1_1)) return false;
    if (count > HEADERS_MAX || f.bytes > exchange->server->config.header_limit) {
        fb_respond_problem(&exchange->response, 431, "headers-too-large", "the headers are more than %zu bytes or %d lines",
                           exchange->server->config.header_limit, HEADERS_MAX);
        return false;
    }
    exchange->expects_continue = f.expects && is_1_1;
    if (f.expects && strcasecmp(f.expect, "100-continue")) {
        fb_respond_problem(&exchange->response, 417, "unknown-expectation", "the only expectation known is 100-continue");
        return false;
    }
    return true;
}

typedef struct trailers {
    const fb_exchange *exchange;
    size_t count;
} trailers;

/* Where the end of the last chunk comes in pieces, libmicrohttpd gives the last header again, as a trailer. */
static enum MHD_Result count_trailer(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
    (void)kind, (void)value;
    trailers *t = context;
    bool is_header = false;
    for (size_t i = 0; i < t->exchange->header_count; i++) is_header |= t->exchange->headers[i].name == name;
    t->count += !is_header;
    return MHD_YES;
}

bool fb_guard_trailers(fb_exchange *exchange) {
    trailers found = {.exchange = exchange};
    MHD_get_connection_values(exchange->mhd, MHD_FOOTER_KIND, count_trailer, &found);
    return !found.count || bad_framing(exchange, "there are trailers after the body");
}

static bool is_header(const fb_exchange *exchange, const char *name, const char *value) {
    const char *found = fb_request_header(&exchange->request, name);
    return found && !strcasecmp(found, value);
}

/* A web page of another origin must not make a browser write here, nor make it read in vain what costs much. Browsers send
 * Origin with what they write, also with forms and other requests that need no preflight (text/plain), and newer ones
 * Sec-Fetch-Site with all; other clients send neither. A link that a user follows is not a page's request. */
static bool is_foreign_page(const fb_exchange *exchange) {
    const char *origin = fb_request_header(&exchange->request, "Origin"), *host = fb_request_header(&exchange->request, "Host");
    bool is_read = !strcmp(exchange->route->method, "GET");
    if (fb_cors_origin(exchange)) return false;
    bool is_from_elsewhere =
        is_header(exchange, "Sec-Fetch-Site", "cross-site") || is_header(exchange, "Sec-Fetch-Site", "same-site");
    if (is_read)
        return is_from_elsewhere && exchange->route->scope != FB_SCOPE_NONE &&
               !is_header(exchange, "Sec-Fetch-Mode", "navigate");
    if (is_from_elsewhere || !origin) return is_from_elsewhere;
    const char *authority = strstr(origin, "://");
    return !authority || !host || strcasecmp(authority + 3, host);
}

static bool check_query(fb_exchange *exchange) {
    if (!exchange->route->query) return true;
    for (size_t i = 0; i < exchange->query_count; i++) {
        const char *name = exchange->query[i].name;
        if (fb_text_list_has(exchange->route->query, name, strlen(name))) continue;
        fb_respond_problem(&exchange->response, 422, "unknown-parameter", "there is no query parameter %s here%s%s", name,
                           *exchange->route->query ? "; known: " : "", exchange->route->query);
        fb_problem_member_take(&exchange->response, "parameter", json_string(name));
        return false;
    }
    return true;
}

uint64_t fb_exchange_body_limit(const fb_exchange *exchange) {
    const fb_route *route = exchange->route;
    return route->body_limit            ? route->body_limit
           : fb_exchange_sink(exchange) ? UINT64_MAX
                                        : exchange->server->config.body_limit;
}

/* *coding of a Content-Encoding value; false when we decode no such coding. */
static bool coding_parse(const char *value, fb_coding *coding) {
    if (!strcasecmp(value, "identity") || !*value) *coding = FB_CODING_IDENTITY;
    else if (!strcasecmp(value, "gzip") || !strcasecmp(value, "x-gzip")) *coding = FB_CODING_GZIP;
    else if (!strcasecmp(value, "zstd")) *coding = FB_CODING_ZSTD;
    else return false;
    return true;
}

/* False: the body is in a coding that is not taken here. */
static bool check_coding(fb_exchange *exchange, fb_coding *coding) {
    size_t cursor = 0;
    const char *name = fb_exchange_header(exchange, "Content-Encoding", &cursor);
    bool has_several = name && fb_exchange_header(exchange, "Content-Encoding", &cursor), has_sink = fb_exchange_sink(exchange);
    *coding = FB_CODING_IDENTITY;
    if (!name) return true;
    bool is_known = !has_several && coding_parse(name, coding);
    if (is_known && (!has_sink || *coding == FB_CODING_IDENTITY)) return true;
    fb_respond_problem(&exchange->response, 415, "unsupported-encoding",
                       has_sink ? "the body is taken as it is, without Content-Encoding"
                                : "the body's Content-Encoding must be gzip or zstd");
    fb_response_header(&exchange->response, "Accept-Encoding", has_sink ? "identity" : "gzip, zstd");
    return false;
}

static bool check_body(fb_exchange *exchange) {
    const fb_route *route = exchange->route;
    fb_response *response = &exchange->response;
    bool has_body = exchange->is_chunked || exchange->content_length;
    if (route->body == FB_BODY_NONE && has_body) {
        fb_respond_problem(response, 400, "unexpected-body", "this request takes no body");
        return false;
    }
    const char *other = route->instead_of_body;
    bool needs_body = route->body == FB_BODY_REQUIRED || (other && !fb_request_query(&exchange->request, other));
    if (needs_body && !has_body) {
        fb_respond_problem(response, 400, "missing-body", "this request needs a body");
        return false;
    }
    if (!has_body) return true;
    if (!fb_consumes(route, exchange->request.content_type)) {
        fb_respond_problem(response, 415, "unsupported-media-type", "the body must be %s in UTF-8",
                           route->consumes ? route->consumes : "application/json");
        fb_response_header(response, "Accept", route->consumes ? route->consumes : "application/json");
        return false;
    }
    uint64_t limit = fb_exchange_body_limit(exchange);
    if (exchange->content_length > limit) {
        fb_respond_problem(response, 413, "body-too-large", "the body is larger than %llu bytes", (unsigned long long)limit);
        return false;
    }
    fb_coding coding;
    if (!check_coding(exchange, &coding)) return false;
    if (fb_exchange_sink(exchange)) return true;
    fb_error error = {0};
    if (fb_body_begin(&exchange->reader, coding, limit, exchange->server->config.body_ratio, &error)) {
        fb_respond_error(response, &error);
        return false;
    }
    return true;
}

bool fb_guard_request(fb_exchange *exchange) {
    const fb_route *route = exchange->route;
    if (!fb_accepts_route(exchange, route)) {
        fb_respond_problem(&exchange->response, 406, "not-acceptable", "this path gives %s",
                           route->produces ? route->produces : "application/json");
        return false;
    }
    if (is_foreign_page(exchange)) {
        fb_respond_problem(&exchange->response, 403, "foreign-origin", "web pages of another origin may not use this service");
        return false;
    }
    return check_query(exchange) && check_body(exchange);
}
