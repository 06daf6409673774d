/* From method and path to a row of the route table. */
#include "server/http/internal.h"

#include <string.h>

bool fb_route_check(const fb_route *route, fb_error *error) {
    size_t parameters = 0;
    bool is_whole = route->pattern && route->pattern[0] == '/' && route->method && route->handler;
    for (const char *p = is_whole ? route->pattern : ""; *p; p++) {
        if (*p != '{') continue;
        parameters++;
        const char *end = strchr(p, '}');
        is_whole &= p[-1] == '/' && end && end > p + 1 && (end[1] == '/' || !end[1]);
    }
    if (route->sink) is_whole &= route->body != FB_BODY_NONE && !route->is_inline;
    if (is_whole && parameters <= FB_ROUTE_PARAMS) return true;
    fb_fail(error, FB_INVALID, "bad-route", NULL, "the route %s %s is not valid", route->method ? route->method : "?",
            route->pattern ? route->pattern : "?");
    return false;
}

/* True if the path fits the pattern. The values of its parameters go to `parameters`. */
static bool pattern_matches(const fb_exchange *exchange, const fb_route *route, fb_pair *parameters, size_t *count) {
    const char *pattern = route->pattern;
    *count = 0;
    for (size_t i = 0; i < exchange->segment_count; i++) {
        if (!*pattern && route->takes_rest) continue;
        if (*pattern != '/') return false;
        pattern++;
        size_t size = (size_t)(strchrnul(pattern, '/') - pattern);
        const char *segment = exchange->segments[i];
        bool is_rest = route->takes_rest && !pattern[size];
        if (strchr(segment, '/') && !is_rest) return false; /* it was encoded */
        if (*pattern == '{') {
            if (!*segment) return false;
            parameters[(*count)++] = (fb_pair){.name = pattern + 1, .value = segment};
        } else if (strlen(segment) != size || memcmp(pattern, segment, size)) {
            return false;
        }
        pattern += size;
    }
    return !*pattern;
}

static void append_word(char *list, size_t space, const char *word) {
    size_t used = strlen(list);
    snprintf(list + used, space - used, "%s%s", used ? ", " : "", word);
}

/* "GET, HEAD, POST, OPTIONS" for one pattern. */
static void allowed_methods(const fb_http_server *server, const char *pattern, char *list, size_t space) {
    list[0] = '\0';
    for (size_t i = 0; i < server->route_count; i++) {
        if (strcmp(server->routes[i].pattern, pattern)) continue;
        append_word(list, space, server->routes[i].method);
        if (!strcmp(server->routes[i].method, "GET")) append_word(list, space, "HEAD");
    }
    append_word(list, space, "OPTIONS");
}

void fb_route_find(fb_exchange *exchange, const char **found) {
    const fb_http_server *server = exchange->server;
    const char *pattern = NULL, *method = exchange->request.method;
    size_t fewest = FB_ROUTE_PARAMS + 1;
    for (size_t i = 0; i < server->route_count; i++) {
        fb_pair parameters[FB_ROUTE_PARAMS];
        size_t count;
        const fb_route *route = &server->routes[i];
        if (!pattern_matches(exchange, route, parameters, &count) || count > fewest) continue;
        if (count < fewest) exchange->route = NULL; /* a literal segment beats a parameter */
        fewest = count;
        pattern = route->pattern;
        if (strcmp(route->method, method)) continue;
        exchange->route = route;
        memset(exchange->parameters, 0, sizeof exchange->parameters);
        memcpy(exchange->parameters, parameters, count * sizeof *parameters);
    }
    *found = pattern;
}

bool fb_route_require(fb_exchange *exchange, const char *pattern) {
    const char *method = exchange->request.method;
    if (exchange->route) return true;
    for (size_t i = 0; i < exchange->segment_count && !pattern; i++) {
        if (!strchr(exchange->segments[i], '/')) continue;
        exchange->must_close = true; /* a proxy may have read it as another request than we */
        fb_respond_problem(&exchange->response, 400, "bad-target", "the path holds an encoded slash where a name has none");
        return false;
    }
    if (!pattern) {
        fb_respond_problem(&exchange->response, 404, "not-found", "there is nothing at this path");
        return false;
    }
    char allow[128];
    allowed_methods(exchange->server, pattern, allow, sizeof allow);
    if (!strcmp(method, "OPTIONS")) fb_respond_empty(&exchange->response, 204);
    else fb_respond_problem(&exchange->response, 405, "method-not-allowed", "this path takes %s", allow);
    fb_response_header(&exchange->response, "Allow", allow);
    return false;
}
