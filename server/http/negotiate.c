/* Accept, Accept-Encoding, Content-Type, If-None-Match, Range, If-Range. */
#include "server/http/internal.h"

#include <string.h>
#include <strings.h>

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

bool fb_accepts_coding(const fb_exchange *exchange, const char *coding, bool explicitly) {
    size_t cursor = 0, size, value_size;
    int named = -1, any = -1;
    for (const char *header; (header = fb_exchange_header(exchange, "Accept-Encoding", &cursor));) {
        for (const char *element; fb_text_next_element(&header, &element, &size);) {
            int quality = fb_text_quality(element, size, &value_size);
            if (value_size == strlen(coding) && !strncasecmp(element, coding, value_size)) named = quality;
            if (value_size == 1 && *element == '*') any = quality;
        }
    }
    return named >= 0 ? named > 0 : !explicitly && any > 0;
}

bool fb_accepts_route(const fb_exchange *exchange, const fb_route *route) {
    const char *types = route->produces ? route->produces : "application/json", *type;
    size_t size;
    while (fb_text_next_element(&types, &type, &size))
        if (fb_accepts_type(exchange, type, size) > 0) return true;
    /* Clients that generators make name only the errors where nothing else is JSON: whatever the path gives is wanted. */
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

static bool goes_to_sink(const fb_route *route, const char *content_type) {
    content_type += strspn(content_type, " \t");
    size_t size = strcspn(content_type, "; \t");
    return !route->sink_types || (size && fb_text_list_has(route->sink_types, content_type, size));
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

/* Digits of a position; saturates. False when there are none. */
static bool read_position(const char **text, uint64_t *position) {
    size_t digits = strspn(*text, "0123456789");
    *position = 0;
    for (size_t i = 0; i < digits; i++) {
        uint64_t digit = (uint64_t)((*text)[i] - '0');
        *position = *position > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *position * 10 + digit;
    }
    *text += digits;
    return digits;
}

/* Strong comparison, as RFC 9110 13.1.5 asks for; a date is never one of ours. */
static bool is_if_range_met(const fb_exchange *exchange, const char *tag) {
    const char *wanted = fb_request_header(&exchange->request, "If-Range");
    size_t size = strlen(tag);
    if (!wanted) return true;
    return size && strlen(wanted) == size + 2 && *wanted == '"' && !memcmp(wanted + 1, tag, size) && wanted[size + 1] == '"';
}

/* RFC 9110 14.1.2: what is not well-formed is as if it were not there. */
fb_byte_range fb_range_asked(const fb_exchange *exchange, const char *tag, uint64_t size, uint64_t *from, uint64_t *to) {
    size_t cursor = 0;
    const char *text = fb_exchange_header(exchange, "Range", &cursor);
    bool is_one = text && !fb_exchange_header(exchange, "Range", &cursor) && !strchr(text, ',');
    if (!is_one || strncasecmp(text, "bytes=", 6) || !is_if_range_met(exchange, tag)) return FB_RANGE_NONE;
    text += 6;
    uint64_t first, last;
    bool has_first = read_position(&text, &first);
    if (*text++ != '-') return FB_RANGE_NONE;
    bool has_last = read_position(&text, &last);
    if (*text || (!has_first && !has_last) || (has_first && has_last && first > last)) return FB_RANGE_NONE;
    if (!has_first) {                            /* the last so many */
        if (last && !size) return FB_RANGE_NONE; /* of nothing: no Content-Range could say that */
        first = last < size ? size - last : 0;
    }
    if (!has_first || !has_last) last = UINT64_MAX;
    if (first >= size) return FB_RANGE_OUTSIDE;
    *from = first;
    *to = last < size ? last + 1 : size;
    return FB_RANGE_PART;
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
