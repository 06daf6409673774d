/* Which names a service without tokens answers to.
 *
 * A web page's host name may be made to point to 127.0.0.1 after the page was loaded (DNS rebinding): for the browser it is
 * then of the service's own origin, and may read and write. What it cannot do is send another Host than its own name. So
 * without tokens only names that nobody else can own are answered: localhost, loopback addresses, and what --allow-host says.
 */
#include "server/http/internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_LENGTH 255

/* A Host without its port, brackets and the dot of the root: "[::1]:8080" is "::1", "localhost." is "localhost". */
typedef struct host {
    char name[NAME_MAX_LENGTH + 1];
    bool is_bracketed;
} host;

/* Nothing, or a colon and the digits of a port. */
static bool is_port(const char *text) {
    if (!*text) return true;
    size_t digits = *text == ':' ? strspn(text + 1, "0123456789") : 0;
    return *text == ':' && digits <= 5 && !text[1 + digits];
}

static bool split(const char *text, host *out) {
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

static bool is_v4(const host *h, struct in_addr *out) {
    return !h->is_bracketed && inet_pton(AF_INET, h->name, out) == 1;
}

static bool is_v6(const host *h, struct in6_addr *out) {
    return h->is_bracketed && inet_pton(AF_INET6, h->name, out) == 1;
}

static bool is_loopback(const host *h) {
    struct in_addr v4;
    struct in6_addr v6;
    if (!h->is_bracketed && !strcasecmp(h->name, "localhost")) return true;
    if (is_v4(h, &v4)) return ntohl(v4.s_addr) >> 24 == 127;
    return is_v6(h, &v6) && (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}

/* Nobody else can own an address: a page is of its origin only when it came from there. */
static bool is_address(const host *h) {
    struct in_addr v4;
    struct in6_addr v6;
    return is_v4(h, &v4) || is_v6(h, &v6);
}

static bool is_same(const host *a, const host *b) {
    struct in6_addr of_a, of_b;
    if (is_v6(a, &of_a) && is_v6(b, &of_b)) return IN6_ARE_ADDR_EQUAL(&of_a, &of_b);
    return a->is_bracketed == b->is_bracketed && !strcasecmp(a->name, b->name);
}

/* An allowed name; an address of IPv6 is taken without brackets, too. */
static bool read_allowed(const char *text, host *out) {
    struct in6_addr v6;
    if (inet_pton(AF_INET6, text, &v6) == 1) {
        *out = (host){.is_bracketed = true};
        snprintf(out->name, sizeof out->name, "%s", text);
        return true;
    }
    if (!split(text, out) || (out->is_bracketed ? text[strlen(text) - 1] != ']' : strchr(text, ':') != NULL)) return false;
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._";
    return out->is_bracketed ? is_v6(out, &v6) : !out->name[strspn(out->name, letters)];
}

bool fb_http_is_host_name(const char *name) {
    host unused;
    return read_allowed(name, &unused);
}

bool fb_host_is_allowed(const fb_http_config *config, const char *text) {
    host asked, allowed;
    if (!split(text, &asked)) return false;
    if (is_loopback(&asked) || (config->allows_addresses && is_address(&asked))) return true;
    for (size_t i = 0; i < config->allowed_host_count; i++)
        if (read_allowed(config->allowed_hosts[i], &allowed) && is_same(&asked, &allowed)) return true;
    return false;
}
