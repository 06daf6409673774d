/* Pages of other origins that may use the service (CORS, the Fetch standard): the configuration lists them, each by its whole
 * name. A browser asks before it lets a page send what no form could send (a preflight), and then hides the answer from the
 * page unless that allows the origin as well. Credentials that a browser would send by itself are never allowed: a page brings
 * its token in Authorization. */
#include <string.h>

#include "server/http/internal.h"

const char *fb_cors_origin(const fb_exchange *exchange) {
    const fb_http_config *config = &exchange->server->config;
    size_t cursor = 0;
    const char *origin = config->cors_origin_count ? fb_exchange_header(exchange, "Origin", &cursor) : NULL;
    if (!origin || fb_exchange_header(exchange, "Origin", &cursor)) return NULL;
    for (size_t i = 0; i < config->cors_origin_count; i++)
        if (strcmp(config->cors_origins[i], origin) == 0) return config->cors_origins[i];
    return NULL;
}

bool fb_cors_preflight(fb_exchange *exchange) {
    bool is_preflight = !strcmp(exchange->request.method, "OPTIONS") &&
                        fb_request_header(&exchange->request, "Access-Control-Request-Method") && fb_cors_origin(exchange);
    if (!is_preflight) return false;
    fb_response *response = &exchange->response;
    fb_respond_empty(response, 204);
    fb_response_header(response, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
    fb_response_header(
        response, "Access-Control-Allow-Headers",
        "Authorization, Content-Type, Content-Encoding, Content-Range, Idempotency-Key, If-Match, If-None-Match, "
        "If-Range, Last-Event-ID, Prefer, Range, X-Request-Id, traceparent, tracestate");
    fb_response_header(response, "Access-Control-Max-Age", "600");
    return true;
}

bool fb_cors_is_origin(const char *text) {
    const char *host = strncmp(text, "https://", 8) == 0 ? text + 8 : strncmp(text, "http://", 7) == 0 ? text + 7 : "";
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]";
    return *host && strlen(text) <= 300 && strspn(host, allowed) == strlen(host);
}
