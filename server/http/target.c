/* The request target: we decode it, because libmicrohttpd would cut it at %00 and merge %2f with '/'. */
#include "server/http/internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/json/scan.h"

static bool refuse(fb_exchange *exchange, const char *detail) {
    fb_respond_problem(&exchange->response, 400, "bad-target", "%s", detail);
    return false;
}

/* Decodes %XX (and '+' when `plus`) in place and terminates; false on malformed escapes, control characters and invalid UTF-8.
 * text[size] must be writable. */
static bool text_decode(char *text, size_t size, bool plus, bool is_segment) {
    size_t written = 0;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '%') {
            if (size - i < 3 || fb_hex_digit(text[i + 1]) < 0 || fb_hex_digit(text[i + 2]) < 0) return false;
            c = (char)(fb_hex_digit(text[i + 1]) * 16 + fb_hex_digit(text[i + 2]));
            i += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        bool is_control = (unsigned char)c < 0x20 || c == 0x7f;
        bool is_allowed = !is_segment && (c == '\t' || c == '\n' || c == '\r');
        if (is_control && !is_allowed) return false;
        text[written++] = c;
    }
    text[written] = '\0';
    return fb_text_is_utf8(text, written);
}

static bool parse_path(fb_exchange *exchange, char *path) {
    for (char *segment = path + 1;;) { /* path[0] is '/' */
        char *end = strchrnul(segment, '/');
        bool is_last = !*end;
        if (exchange->segment_count == FB_SEGMENTS_MAX) return refuse(exchange, "the path has too many segments");
        if (!text_decode(segment, (size_t)(end - segment), false, true))
            return refuse(exchange, "the path holds a malformed percent escape or a control character, or is not UTF-8");
        if (!strcmp(segment, ".") || !strcmp(segment, "..")) return refuse(exchange, "the path holds a dot segment");
        exchange->segments[exchange->segment_count++] = segment;
        if (is_last) return true;
        segment = end + 1;
    }
}

static bool parse_query(fb_exchange *exchange, char *query) {
    size_t count = 1;
    for (const char *p = query; *p; p++) count += *p == '&';
    exchange->query = calloc(count, sizeof *exchange->query);
    if (!exchange->query) {
        exchange->response.failed = true;
        return false;
    }
    for (char *pair = query; pair;) {
        char *end = strchrnul(pair, '&'), *next = *end ? end + 1 : NULL;
        *end = '\0';
        char *equals = strchr(pair, '='), *value = equals ? equals + 1 : end;
        bool is_empty = pair == end;
        if (!text_decode(value, (size_t)(end - value), true, false) ||
            !text_decode(pair, (size_t)((equals ? equals : end) - pair), true, false))
            return refuse(exchange, "the query holds a malformed percent escape or a control character, or is not UTF-8");
        if (!is_empty) exchange->query[exchange->query_count++] = (fb_pair){.name = pair, .value = value};
        pair = next;
    }
    return true;
}

bool fb_target_parse(fb_exchange *exchange) {
    const char *target = exchange->target;
    for (const char *p = target; *p; p++)
        if ((unsigned char)*p <= 0x20 || *p == 0x7f || *p == '#')
            return refuse(exchange, "the request target holds a space, a control character or a fragment");
    if (target[0] != '/') return refuse(exchange, "the request target is not a path");
    size_t path_size = strcspn(target, "?");
    exchange->path[path_size] = '\0';
    char *query = exchange->decoded + path_size;
    bool has_query = *query == '?';
    *query = '\0';
    return parse_path(exchange, exchange->decoded) && (!has_query || parse_query(exchange, query + 1));
}

const char *fb_request_target(const fb_request *request) {
    return request->inner->target;
}

const char *fb_request_param(const fb_request *request, const char *name) {
    const fb_exchange *exchange = request->inner;
    for (size_t i = 0; i < FB_ROUTE_PARAMS && exchange->parameters[i].name; i++) {
        /* the name is part of the pattern: "id}/code" */
        size_t size = strcspn(exchange->parameters[i].name, "}");
        if (strlen(name) == size && !memcmp(exchange->parameters[i].name, name, size)) return exchange->parameters[i].value;
    }
    return NULL;
}

void fb_request_rest(const fb_request *request, const char *name, fb_buffer *out) {
    const fb_exchange *exchange = request->inner;
    const char *first = fb_request_param(request, name);
    bool is_within = false;
    for (size_t i = 0; i < exchange->segment_count; i++) {
        if (is_within) fb_buffer_char(out, '/');
        is_within |= exchange->segments[i] == first;
        if (is_within) fb_buffer_string(out, exchange->segments[i]);
    }
}

size_t fb_request_query_count(const fb_request *request) {
    return request->inner->query_count;
}

const char *fb_request_query_name(const fb_request *request, size_t index) {
    return request->inner->query[index].name;
}

const char *fb_request_query_value(const fb_request *request, size_t index) {
    return request->inner->query[index].value;
}

const char *fb_request_query_next(const fb_request *request, const char *name, size_t *cursor) {
    const fb_exchange *exchange = request->inner;
    while (*cursor < exchange->query_count) {
        const fb_pair *pair = &exchange->query[(*cursor)++];
        if (!strcmp(pair->name, name)) return pair->value;
    }
    return NULL;
}

const char *fb_request_query(const fb_request *request, const char *name) {
    size_t cursor = 0;
    return fb_request_query_next(request, name, &cursor);
}

static bool refuse_value(fb_response *response, const char *name, const char *expected) {
    fb_respond_problem(response, 422, "bad-parameter", "the query parameter %s must be %s", name, expected);
    fb_problem_member_take(response, "parameter", json_string(name));
    return false;
}

/* The only value of `name`; NULL when absent. False: given more than once, responded. */
static bool single(const fb_request *request, fb_response *response, const char *name, const char **text) {
    size_t cursor = 0;
    *text = fb_request_query_next(request, name, &cursor);
    return !*text || !fb_request_query_next(request, name, &cursor) || refuse_value(response, name, "given only once");
}

bool fb_request_query_int(const fb_request *request, fb_response *response, const char *name, int64_t minimum, int64_t maximum,
                          int64_t absent, int64_t *value) {
    const char *text;
    if (!single(request, response, name, &text)) return false;
    if (!text) {
        *value = absent;
        return true;
    }
    char *end;
    long long number = strtoll(text, &end, 10);
    bool is_number = (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) && *end == '\0' && end != text;
    if (!is_number || number < minimum || number > maximum) {
        char expected[80];
        snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)minimum, (long long)maximum);
        return refuse_value(response, name, expected);
    }
    *value = number;
    return true;
}

bool fb_request_query_bool(const fb_request *request, fb_response *response, const char *name, bool absent, bool *value) {
    const char *text;
    if (!single(request, response, name, &text)) return false;
    if (!text) *value = absent;
    else if (!*text || !strcmp(text, "true") || !strcmp(text, "1")) *value = true;
    else if (!strcmp(text, "false") || !strcmp(text, "0")) *value = false;
    else return refuse_value(response, name, "true or false");
    return true;
}

const char *fb_request_header(const fb_request *request, const char *name) {
    size_t cursor = 0;
    return fb_exchange_header(request->inner, name, &cursor);
}

int fb_request_accepts(const fb_request *request, const char *media_type) {
    return fb_accepts_type(request->inner, media_type, strlen(media_type));
}

bool fb_request_has_etag(const fb_request *request, const char *tag) {
    return fb_has_etag(request->inner, tag);
}

const fb_http_server *fb_request_server(const fb_request *request) {
    return request->inner->server;
}
