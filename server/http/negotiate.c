/* Accept, Accept-Encoding, Content-Type, If-None-Match, Range, If-Range. */
#include "server/http/internal.h"

#include <string.h>
#include <strings.h>

/* Small text functions of HTTP: percent-decoding, list elements, quality values. */

bool fb_text_is_utf8(const char *text, size_t size) {
    const unsigned char *p = (const unsigned char *)text, *end = p + size;
    while (p < end) {
        if (*p < 0x80) {
            p++;
            continue;
        }
        size_t length = *p >= 0xc2 && *p <= 0xdf ? 2 : (*p & 0xf0) == 0xe0 ? 3 : *p >= 0xf0 && *p <= 0xf4 ? 4 : 0;
        if (!length || (size_t)(end - p) < length) return false;
        for (size_t i = 1; i < length; i++)
            if ((p[i] & 0xc0) != 0x80) return false;
        /* overlong forms, surrogates, beyond U+10FFFF */
        if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
            (*p == 0xf4 && p[1] > 0x8f))
            return false;
        p += length;
    }
    return true;
}

bool fb_text_next_element(const char **cursor, const char **element, size_t *size) {
    const char *p = *cursor;
    while (*p == ' ' || *p == '\t' || *p == ',') p++;
    if (!*p) return false;
    const char *start = p;
    bool is_quoted = false;
    for (; *p && (is_quoted || *p != ','); p++) {
        if (*p == '"') is_quoted = !is_quoted;
        if (*p == '\\' && is_quoted && p[1]) p++;
    }
    const char *end = p;
    while (end > start && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *cursor = p;
    *element = start;
    *size = (size_t)(end - start);
    return true;
}

int fb_text_quality(const char *element, size_t size, size_t *value_size) {
    const char *end = element + size, *parameter = memchr(element, ';', size);
    const char *value_end = parameter ? parameter : end;
    while (value_end > element && (value_end[-1] == ' ' || value_end[-1] == '\t')) value_end--;
    *value_size = (size_t)(value_end - element);
    while (parameter) {
        const char *p = parameter + 1;
        while (p < end && (*p == ' ' || *p == '\t')) p++;
        if (end - p >= 3 && (*p == 'q' || *p == 'Q') && p[1] == '=') {
            int quality = p[2] == '1' ? 1000 : 0, unit = 100;
            if (p[2] == '0' && end - p >= 4 && p[3] == '.')
                for (p += 4; p < end && *p >= '0' && *p <= '9' && unit; p++, unit /= 10) quality += (*p - '0') * unit;
            return quality;
        }
        parameter = p < end ? memchr(p, ';', (size_t)(end - p)) : NULL;
    }
    return 1000;
}

bool fb_text_list_has(const char *list, const char *name, size_t name_size) {
    const char *element;
    size_t size;
    while (fb_text_next_element(&list, &element, &size))
        if (size == name_size && !strncasecmp(element, name, size)) return true;
    return false;
}

/* How well a media range ("text/plain", "text/" + "*", any) names a type: 0 not, 1 any, 2 its main type, 3 exactly. */
static int range_matches(const char *range, size_t range_size, const char *type, size_t type_size) {
    if ((range_size == 3 && !memcmp(range, "*/*", 3)) || (range_size == 1 && *range == '*')) return 1;
    const char *slash = memchr(range, '/', range_size);
    if (slash && slash + 2 == range + range_size && slash[1] == '*') {
        size_t main_size = (size_t)(slash - range) + 1;
        return type_size > main_size && !strncasecmp(range, type, main_size) ? 2 : 0;
    }
    return range_size == type_size && !strncasecmp(range, type, type_size) ? 3 : 0;
}

/* How exactly Accept names a type: 0 not at all, 3 with its name, 4 there is no Accept. */
static int match_type(const fb_exchange *exchange, const char *type, size_t size, int *quality) {
    int best = 0;
    bool has_range = false;
    size_t cursor = 0, range_size, value_size;
    for (const char *header; (header = fb_exchange_header(exchange, "Accept", &cursor));) {
        for (const char *range; fb_text_next_element(&header, &range, &range_size);) {
            has_range = true;
            int asked = fb_text_quality(range, range_size, &value_size);
            int match = range_matches(range, value_size, type, size);
            if (match > best) {
                best = match;
                *quality = asked;
            }
        }
    }
    return has_range ? best : 4;
}

int fb_accepts_type(const fb_exchange *exchange, const char *type, size_t size) {
    int quality = 0;
    return match_type(exchange, type, size, &quality) == 4 ? 1000 : quality;
}

bool fb_accepts_route(const fb_exchange *exchange, const fb_route *route) {
    const char *types = route->produces ? route->produces : "application/json", *type;
    size_t size;
    while (fb_text_next_element(&types, &type, &size))
        if (fb_accepts_type(exchange, type, size) > 0) return true;
    /* Clients that generators make name only the errors where nothing else is JSON: any type that the path gives is wanted. */
    static const char problem[] = "application/problem+json";
    int quality = 0;
    return match_type(exchange, problem, sizeof problem - 1, &quality) == 3 && quality > 0;
}

/* Parameters of a Content-Type may be anything, but a charset other than UTF-8 is a body that we would misread. */
static bool is_charset_utf8(const char *parameters) {
    const char *charset = parameters ? strcasestr(parameters, "charset=") : NULL;
    if (!charset) return true;
    charset += strlen("charset=");
    if (*charset == '"') charset++;
    size_t size = strcspn(charset, "\"; \t");
    return (size == 5 && !strncasecmp(charset, "utf-8", 5)) || (size == 4 && !strncasecmp(charset, "utf8", 4)) ||
           (size == 8 && !strncasecmp(charset, "us-ascii", 8));
}

static bool is_one_of(const char *content_type, const char *types) {
    content_type += strspn(content_type, " \t");
    size_t size = strcspn(content_type, "; \t");
    return size && fb_text_list_has(types, content_type, size);
}

bool fb_request_has_type(const fb_request *request, const char *types) {
    return is_one_of(request->content_type, types);
}

static bool goes_to_sink(const fb_route *route, const char *content_type) {
    return !route->sink_types || is_one_of(content_type, route->sink_types);
}

const fb_sink *fb_exchange_sink(const fb_exchange *exchange) {
    const fb_route *route = exchange->route;
    return route->sink && goes_to_sink(route, exchange->request.content_type) ? route->sink : NULL;
}

bool fb_consumes(const fb_route *route, const char *content_type) {
    if (route->sink_types && goes_to_sink(route, content_type)) return true;
    while (*content_type == ' ' || *content_type == '\t') content_type++;
    size_t size = strcspn(content_type, "; \t");
    if (route->consumes && !strcmp(route->consumes, "*")) return true;
    if (!size) return true;
    if (route->consumes) return fb_text_list_has(route->consumes, content_type, size);
    if (!is_charset_utf8(strchr(content_type, ';'))) return false;
    bool is_json_suffix = size > 5 && !strncasecmp(content_type + size - 5, "+json", 5) && memchr(content_type, '/', size);
    return is_json_suffix || fb_text_list_has("application/json, application/x-www-form-urlencoded, application/octet-stream",
                                              content_type, size);
}

/* Weak comparison, as RFC 9110 13.1.2 asks for: our compressed answers carry the weak form of the tag. */
bool fb_has_etag(const fb_exchange *exchange, const char *tag) {
    size_t cursor = 0, size, tag_size = strlen(tag);
    for (const char *header; (header = fb_exchange_header(exchange, "If-None-Match", &cursor));) {
        for (const char *element; fb_text_next_element(&header, &element, &size);) {
            if (size == 1 && *element == '*') return true;
            if (size > 2 && !memcmp(element, "W/", 2)) element += 2, size -= 2;
            if (size == tag_size + 2 && *element == '"' && element[size - 1] == '"' && !memcmp(element + 1, tag, tag_size))
                return true;
        }
    }
    return false;
}

bool fb_prefers(const fb_exchange *exchange, const char *preference) {
    size_t cursor = 0, size, expected = strlen(preference);
    const char *element;
    for (const char *list; (list = fb_exchange_header(exchange, "Prefer", &cursor));) {
        while (fb_text_next_element(&list, &element, &size)) {
            size_t name_size = strcspn(element, "=; \t,");
            if (name_size > size) name_size = size;
            if (name_size != expected || strncasecmp(element, preference, expected) != 0) continue;
            const char *rest = element + name_size, *end = element + size;
            while (rest < end && (*rest == ' ' || *rest == '\t')) rest++;
            if (rest == end || *rest == ';') return true; /* a value would make it something else */
        }
    }
    return false;
}
