/* libFuzzer: whatever method and target a request has, it is refused with a problem or finds a route, and then its parameters
 * are text without control characters and its query reads as what it says. The input is the number of a method, and a target.
 * `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "server/http/internal.h"
#include "server/routes/routes.h"

static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"};
enum { METHODS = sizeof methods / sizeof *methods };

static void require_text(const char *text, const char *allowed) {
    size_t size = strlen(text);
    require(fb_text_is_utf8(text, size));
    for (size_t i = 0; i < size; i++) require(((unsigned char)text[i] >= 0x20 && text[i] != 0x7f) || strchr(allowed, text[i]));
}

static void check_query(fb_exchange *exchange) {
    static const char *const names[] = {"limit", "tied", "page_token", "pass", ""};
    const fb_request *request = &exchange->request;
    for (size_t i = 0; i < fb_request_query_count(request); i++) {
        require_text(fb_request_query_name(request, i), "\t\r\n");
        require_text(fb_request_query_value(request, i), "\t\r\n");
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t number;
        bool truth;
        size_t cursor = 0, count = 0;
        while (fb_request_query_next(request, names[i], &cursor)) count++;
        require((fb_request_query(request, names[i]) != NULL) == (count > 0));
        if (fb_request_query_int(request, &exchange->response, names[i], -5, 1000, 7, &number))
            require(number >= -5 && number <= 1000);
        else require(exchange->response.status == 422 && count > 0);
        if (!fb_request_query_bool(request, &exchange->response, names[i], false, &truth))
            require(exchange->response.status == 422 && count > 0);
    }
}

static void check_found(fb_exchange *exchange) {
    require(exchange->route && !strcmp(exchange->route->method, exchange->request.method));
    for (size_t i = 0; i < FB_ROUTE_PARAMS && exchange->parameters[i].name; i++) {
        const char *value = exchange->parameters[i].value;
        require_text(value, "");
        require(!strchr(value, '/') || exchange->route->takes_rest);
        require(*value && strcmp(value, ".") && strcmp(value, ".."));
    }
    if (!fb_guard_request(exchange)) require(exchange->response.status >= 400 && exchange->response.status < 500);
    check_query(exchange);
}

static void check_route(fb_exchange *exchange) {
    const char *pattern = NULL;
    fb_route_find(exchange, &pattern);
    int *status = &exchange->response.status;
    if (fb_route_require(exchange, pattern)) check_found(exchange);
    else if (*status == 400) require(exchange->must_close && strstr(exchange->target, "%2"));
    else require(pattern ? *status == 405 || *status == 204 : *status == 404);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size || memchr(data + 1, '\0', size - 1)) return 0;
    static const fb_response empty = {.bytes = ""};
    fb_http_server *server = calloc(1, sizeof *server);
    fb_exchange *exchange = calloc(1, sizeof *exchange);
    require(server && exchange);
    server->config = fb_http_config_default();
    fb_route *routes = fb_routes_join(&server->route_count);
    require(routes);
    server->routes = routes;
    exchange->server = server;
    exchange->target = strndup((const char *)data + 1, size - 1);
    exchange->decoded = strdup(exchange->target);
    exchange->path = strdup(exchange->target);
    exchange->response = empty;
    exchange->request = (fb_request){
        .method = methods[data[0] % METHODS], .path = exchange->path, .content_type = "", .body = "", .inner = exchange};
    if (!fb_target_parse(exchange)) require(exchange->response.status == 400);
    else check_route(exchange);
    fb_response_free(&exchange->response);
    free(exchange->target);
    free(exchange->decoded);
    free(exchange->path);
    free(exchange->query);
    free(exchange);
    free(routes);
    free(server);
    return 0;
}
