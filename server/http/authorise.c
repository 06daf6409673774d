/* Authorises requests: identity, scope and rate.
 *
 * The order is: the framing (nothing of a badly framed request is believed), access, rate, and only then whether there is
 * anything at the path: a client without a token does not learn that. */
#include "server/http/internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

/* The names that a service without tokens answers to.
 *
 * A web page's host name may be made to point to 127.0.0.1 after the page was loaded (DNS rebinding): for the browser it is
 * then of the service's own origin, and may read and write. But it cannot send another Host than its own name. So without
 * tokens only names that no other site can own are answered: localhost, loopback addresses, and the names of --allow-host.
 */

#define NAME_MAX_LENGTH 255

/* A Host without its port, brackets and the dot of the root: "[::1]:8080" is "::1", "localhost." is "localhost". */
typedef struct host_name {
    char name[NAME_MAX_LENGTH + 1];
    bool is_bracketed;
} host_name;

/* Nothing, or a colon and the digits of a port. */
static bool is_port(const char *text) {
    if (!*text) return true;
    size_t digits = *text == ':' ? strspn(text + 1, "0123456789") : 0;
    return *text == ':' && digits <= 5 && !text[1 + digits];
}

static bool split(const char *text, host_name *out) {
    size_t length = strlen(text);
    while (length && strchr(" \t", text[length - 1])) length--;
    char whole[NAME_MAX_LENGTH + 9];
    if (!length || length >= sizeof whole) return false;
    snprintf(whole, sizeof whole, "%.*s", (int)length, text);
    out->is_bracketed = *whole == '[';
    char *name = whole + out->is_bracketed, *end = name + strcspn(name, out->is_bracketed ? "]" : ":");
    const char *port = out->is_bracketed && *end ? end + 1 : end;
    if ((out->is_bracketed && !*end) || !is_port(port) || end == name) return false;
    size_t size = (size_t)(end - name);
    if (!out->is_bracketed && size > 1 && name[size - 1] == '.') size--;
    if (size > NAME_MAX_LENGTH) return false;
    snprintf(out->name, sizeof out->name, "%.*s", (int)size, name);
    return true;
}

static bool is_v4(const host_name *h, struct in_addr *out) {
    return !h->is_bracketed && inet_pton(AF_INET, h->name, out) == 1;
}

static bool is_v6(const host_name *h, struct in6_addr *out) {
    return h->is_bracketed && inet_pton(AF_INET6, h->name, out) == 1;
}

static bool is_loopback(const host_name *h) {
    struct in_addr v4;
    struct in6_addr v6;
    if (!h->is_bracketed && !strcasecmp(h->name, "localhost")) return true;
    if (is_v4(h, &v4)) return ntohl(v4.s_addr) >> 24 == 127;
    return is_v6(h, &v6) && (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}

/* No other site can own an address: a page is of its origin only when it came from there. */
static bool is_address(const host_name *h) {
    struct in_addr v4;
    struct in6_addr v6;
    return is_v4(h, &v4) || is_v6(h, &v6);
}

static bool is_same(const host_name *a, const host_name *b) {
    struct in6_addr of_a, of_b;
    if (is_v6(a, &of_a) && is_v6(b, &of_b)) return IN6_ARE_ADDR_EQUAL(&of_a, &of_b);
    return a->is_bracketed == b->is_bracketed && !strcasecmp(a->name, b->name);
}

/* An allowed name; an address of IPv6 is taken without brackets as well. */
static bool read_allowed(const char *text, host_name *out) {
    struct in6_addr v6;
    if (inet_pton(AF_INET6, text, &v6) == 1) {
        *out = (host_name){.is_bracketed = true};
        snprintf(out->name, sizeof out->name, "%s", text);
        return true;
    }
    if (!split(text, out) || (out->is_bracketed ? text[strlen(text) - 1] != ']' : strchr(text, ':') != NULL)) return false;
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._";
    return out->is_bracketed ? is_v6(out, &v6) : !out->name[strspn(out->name, letters)];
}

bool fb_http_is_host_name(const char *name) {
    host_name unused;
    return read_allowed(name, &unused);
}

/* True if a service without tokens answers to this Host. */
static bool host_is_allowed(const fb_http_config *config, const char *text) {
    host_name asked, allowed;
    if (!split(text, &asked)) return false;
    if (is_loopback(&asked) || (config->allows_addresses && is_address(&asked))) return true;
    for (size_t i = 0; i < config->allowed_host_count; i++)
        if (read_allowed(config->allowed_hosts[i], &allowed) && is_same(&asked, &allowed)) return true;
    return false;
}

static bool needs_no_token(const fb_exchange *exchange) {
    const fb_http_connection *connection = exchange->connection; /* a request that is made later has none any more */
    bool is_local = connection ? connection->is_local : !strcmp(exchange->principal, FB_LOCAL);
    return is_local || !exchange->server->config.doorkeeper.admit;
}

/* The scope of a route; an unknown path, or a method that it does not take, needs a token of any scope. */
static fb_scope scope_of(const fb_exchange *exchange) {
    return exchange->route ? exchange->route->scope : FB_SCOPE_READ;
}

/* The scope of this request: one that is answered later is stored, so it needs to write. */
static fb_scope needed_scope(const fb_exchange *exchange) {
    fb_scope scope = scope_of(exchange);
    bool is_stored = exchange->route && exchange->route->defer && fb_prefers(exchange, "respond-async");
    return is_stored && scope < FB_SCOPE_WRITE ? FB_SCOPE_WRITE : scope;
}

#define CREDENTIALS_MAX 255 /* characters: what is longer is not a token */

/* The credentials of "Authorization: Bearer …" (RFC 6750; a scheme's case does not matter), without the space around them.
 * NULL: there are none of that scheme. "": there are, but no token could be so. */
static const char *find_token(const fb_exchange *exchange, char text[CREDENTIALS_MAX + 1]) {
    static const char scheme[] = "Bearer";
    size_t cursor = 0, length = sizeof scheme - 1;
    const char *value = fb_exchange_header(exchange, "Authorization", &cursor);
    if (!value) return NULL;
    *text = '\0';
    if (fb_exchange_header(exchange, "Authorization", &cursor)) return text;
    if (strncasecmp(value, scheme, length) != 0 || (value[length] && value[length] != ' ')) return NULL;
    value += length + strspn(value + length, " ");
    size_t size = strlen(value);
    while (size && strchr(" \t", value[size - 1])) size--;
    if (size <= CREDENTIALS_MAX) snprintf(text, CREDENTIALS_MAX + 1, "%.*s", (int)size, value);
    return text;
}

static bool refuse_token(fb_exchange *exchange, const char *code, const char *error, const char *detail) {
    fb_respond_problem(&exchange->response, 401, code, "%s", detail);
    fb_response_header_format(&exchange->response, "WWW-Authenticate", "Bearer realm=\"foldback\"%s", error);
    fb_metrics_reject(exchange->server, FB_REJECTED_ACCESS);
    return false;
}

static bool refuse_invalid(fb_exchange *exchange, const char *detail) {
    return refuse_token(exchange, "token-invalid", ", error=\"invalid_token\"", detail);
}

static bool refuse_scope(fb_exchange *exchange, fb_scope scope) {
    static const char *const names[] = {"none", "read", "write", "hooks", "admin"};
    const char *needed = names[scope];
    fb_respond_problem(&exchange->response, 403, "scope-too-small", "this needs a token of scope %s", needed);
    fb_response_header_format(&exchange->response, "WWW-Authenticate",
                              "Bearer realm=\"foldback\", error=\"insufficient_scope\", scope=\"%s\"", needed);
    fb_metrics_reject(exchange->server, FB_REJECTED_ACCESS);
    return false;
}

static bool answer_grant(fb_exchange *exchange, fb_grant grant) {
    switch (grant) {
    case FB_GRANTED: return true;
    case FB_TOKEN_MISSING:
        return refuse_token(exchange, "token-required", "", "this needs a token: send Authorization: Bearer and the token");
    case FB_TOKEN_UNKNOWN: return refuse_invalid(exchange, "the token is not one of this service");
    case FB_TOKEN_EXPIRED: return refuse_invalid(exchange, "the token has expired");
    case FB_TOKEN_REVOKED: return refuse_invalid(exchange, "the token has been revoked");
    case FB_SCOPE_TOO_SMALL: return refuse_scope(exchange, needed_scope(exchange));
    case FB_NOT_DECIDED: break;
    }
    return fb_respond_no_memory(&exchange->response);
}

/* Requests that show a token count together wherever they come from; all others by their address. So who guesses tokens soon
 * guesses slowly. */
static bool check_rate(fb_exchange *exchange, bool has_token) {
    fb_http_server *server = exchange->server;
    uint64_t key = exchange->connection->address;
    if (has_token) key = fb_rate_key(&server->rates, exchange->principal, strlen(exchange->principal));
    int64_t wait = fb_rate_take(&server->rates, key, fb_monotonic_ns());
    if (!wait) return true;
    fb_respond_problem(&exchange->response, 429, "too-many-requests", "more than %u requests a second come from this %s",
                       server->config.rate_limit, has_token ? "token" : "address");
    fb_response_header_format(&exchange->response, "Retry-After", "%lld", (long long)(wait / 1000000000 + 1));
    fb_metrics_reject(server, FB_REJECTED_RATE);
    return false;
}

/* A request without Host is of HTTP/1.0: no browser sends one. */
static bool check_host(fb_exchange *exchange) {
    const fb_http_server *server = exchange->server;
    const fb_doorkeeper *doorkeeper = &server->config.doorkeeper;
    const char *host = fb_request_header(&exchange->request, "Host");
    bool is_probe = exchange->route && exchange->route->is_probe;
    if (!host || is_probe || !doorkeeper->admits_all || !doorkeeper->admits_all(server->context)) return true;
    if (host_is_allowed(&server->config, host)) return true;
    fb_respond_problem(
        &exchange->response, 403, "foreign-host",
        "there are no tokens, so that only requests to localhost or a loopback address are answered, not to %.200s. "
        "Make a token (foldback token create), or start the service with --allow-host",
        host);
    fb_metrics_reject(exchange->server, FB_REJECTED_ACCESS);
    return false;
}

bool fb_access_check(fb_exchange *exchange) {
    fb_scope needed = needed_scope(exchange);
    fb_grant grant = FB_GRANTED;
    exchange->request.principal = exchange->principal;
    fb_copy_text(exchange->principal, sizeof exchange->principal, exchange->connection->is_local ? FB_LOCAL : FB_ANONYMOUS);
    if (exchange->connection->is_local) return true;
    if (!check_host(exchange)) return false;
    if (needed == FB_SCOPE_NONE) return true;
    if (!needs_no_token(exchange)) {
        char token[CREDENTIALS_MAX + 1];
        const fb_doorkeeper *doorkeeper = &exchange->server->config.doorkeeper;
        grant = doorkeeper->admit(exchange->server->context, find_token(exchange, token), needed, exchange->principal);
        explicit_bzero(token, sizeof token);
    }
    bool has_token = strcmp(exchange->principal, FB_ANONYMOUS) != 0;
    return check_rate(exchange, has_token) && answer_grant(exchange, grant);
}

bool fb_still_authorised(const fb_exchange *exchange) {
    const fb_doorkeeper *doorkeeper = &exchange->server->config.doorkeeper;
    if (needs_no_token(exchange) || scope_of(exchange) == FB_SCOPE_NONE) return true;
    return doorkeeper->still_admits(exchange->server->context, exchange->principal, scope_of(exchange));
}

bool fb_request_may(const fb_request *request, fb_scope scope) {
    fb_exchange *exchange = request->inner;
    const fb_doorkeeper *doorkeeper = &exchange->server->config.doorkeeper;
    bool may = needs_no_token(exchange) || doorkeeper->still_admits(exchange->server->context, exchange->principal, scope);
    return may || refuse_scope(exchange, scope);
}
