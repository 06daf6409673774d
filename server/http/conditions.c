/* Conditional requests: If-Match, If-Unmodified-Since and If-None-Match, in the order of RFC 9110, 13.2.2. */
#include "server/http/internal.h"

#include <string.h>
#include <time.h>

bool fb_tags_have(const char *list, const char *tag, bool *is_there) {
    const char *at = list + strspn(list, " \t,");
    *is_there = false;
    if (!*at) return false;
    while (*at) {
        bool is_weak = strncmp(at, "W/", 2) == 0;
        if (is_weak) at += 2;
        if (*at++ != '"') return false;
        size_t length = strcspn(at, "\" \t");
        if (at[length] != '"') return false;
        *is_there |= !is_weak && length == strlen(tag) && memcmp(at, tag, length) == 0;
        at += length + 1;
        at += strspn(at, " \t");
        if (*at && *at != ',') return false;
        at += strspn(at, " \t,");
    }
    return true;
}

/* `*`: there is one, with any tag. */
static bool is_match(const fb_exchange *exchange, bool exists, const char *tag) {
    size_t cursor = 0;
    bool is_there = false;
    for (const char *list; !is_there && (list = fb_exchange_header(exchange, "If-Match", &cursor));)
        is_there = exists && (!strcmp(list, "*") || (*tag && fb_tags_have(list, tag, &is_there) && is_there));
    return is_there;
}

/* A date that cannot be read is as if it were not there. */
static bool is_unmodified(const char *date, int64_t changed_ms) {
    struct tm utc = {0};
    const char *rest = strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    return !rest || *rest || !changed_ms || changed_ms <= (int64_t)timegm(&utc) * 1000;
}

bool fb_conditions_hold(const fb_exchange *exchange, const fb_response *now) {
    bool exists = now->status >= 200 && now->status < 400;
    const char *date = fb_request_header(&exchange->request, "If-Unmodified-Since");
    if (fb_request_header(&exchange->request, "If-Match")) return is_match(exchange, exists, now->etag);
    return !date || !exists || is_unmodified(date, now->changed_ms);
}

void fb_respond_condition_failed(fb_response *response) {
    fb_respond_problem(response, 412, "precondition-failed",
                       "what is there is not what If-Match, If-Unmodified-Since or If-None-Match of the request ask for");
}

/* ---- before something is changed ---------------------------------------------------------------------------------------- */

static const fb_route *find_reader(const fb_exchange *exchange) {
    const fb_http_server *server = exchange->server;
    for (size_t i = 0; i < server->route_count; i++) {
        const fb_route *route = &server->routes[i];
        if (!strcmp(route->method, "GET") && !strcmp(route->pattern, exchange->route->pattern)) return route;
    }
    return NULL;
}

/* It is what GET of the path would answer now. */
bool fb_change_is_wanted(fb_exchange *exchange) {
    const fb_request *request = &exchange->request;
    bool has_tags = fb_request_header(request, "If-None-Match");
    bool is_change = !strcmp(request->method, "PUT") || !strcmp(request->method, "PATCH") || !strcmp(request->method, "DELETE");
    bool is_asked = has_tags || fb_request_header(request, "If-Match") || fb_request_header(request, "If-Unmodified-Since");
    const fb_route *reader = is_asked && is_change && !exchange->route->checks_conditions ? find_reader(exchange) : NULL;
    if (!reader) return true;
    fb_response now = {.bytes = ""};
    reader->handler(request, &now);
    bool exists = now.status >= 200 && now.status < 400, is_known = exists || now.status == 404;
    bool is_wanted = fb_conditions_hold(exchange, &now) && !(has_tags && exists && fb_has_etag(exchange, now.etag));
    fb_response_free(&now);
    if (is_known && !is_wanted) fb_respond_condition_failed(&exchange->response);
    return is_wanted || !is_known;
}
