/* Listening and accepting. We accept ourselves and hand sockets to libmicrohttpd (MHD_add_connection): stopping to listen is
 * then a matter of one thread of ours (MHD_quiesce_daemon can abort the process when it meets a loop that is at its connection
 * limit), connections are counted when they are accepted, and beyond the limit clients wait in the kernel's backlog. */
#include "server/http/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 1024
#define RETRY_MS 20 /* out of descriptors */

/* "host:port" or "[host]:port", numeric. The result is freeaddrinfo's; NULL when it is not an address. */
static struct addrinfo *resolve(const char *address) {
    char host[64];
    const char *colon = strrchr(address, ':'), *end = colon;
    if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5) return NULL;
    if (atoi(colon + 1) > 65535) return NULL;
    if (*address == '[') {
        address++;
        if (--end <= address || *end != ']') return NULL;
    } else if (memchr(address, ':', (size_t)(end - address))) {
        return NULL; /* IPv6 without brackets */
    }
    if (end <= address || (size_t)(end - address) >= sizeof host) return NULL;
    snprintf(host, sizeof host, "%.*s", (int)(end - address), address);
    if (!strcmp(host, "localhost")) snprintf(host, sizeof host, "127.0.0.1");
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found;
    return getaddrinfo(host, colon + 1, &hints, &found) ? NULL : found;
}

static fb_status fail_address(const char *address, fb_error *error) {
    return fb_fail(error, FB_INVALID, "bad-address", NULL,
                   "%s is not an address to listen on; write it as 127.0.0.1:8080 or [::1]:8080", address);
}

fb_status fb_http_check_address(const char *listen, fb_error *error) {
    struct addrinfo *found = resolve(listen);
    if (!found) return fail_address(listen, error);
    freeaddrinfo(found);
    return FB_OK;
}

bool fb_http_is_loopback(const char *listen) {
    struct addrinfo *found = resolve(listen);
    if (!found) return false;
    bool is_loopback = false;
    if (found->ai_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)found->ai_addr;
        is_loopback = ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    } else if (found->ai_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)found->ai_addr;
        is_loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    }
    freeaddrinfo(found);
    return is_loopback;
}

static void write_url(fb_listener *listener, const char *scheme) {
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    char host[INET6_ADDRSTRLEN] = "?";
    getsockname(listener->socket, (struct sockaddr *)&bound, &size);
    if (bound.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&bound;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(listener->url, sizeof listener->url, "%s://[%s]:%u", scheme, host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&bound;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(listener->url, sizeof listener->url, "%s://%s:%u", scheme, host, ntohs(v4->sin_port));
    }
}

fb_status fb_listener_open(fb_listener *listener, const char *address, bool has_tls, fb_error *error) {
    struct addrinfo *found = resolve(address);
    if (!found) return fail_address(address, error);
    listener->socket = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    bool ok = listener->socket >= 0 && !setsockopt(listener->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
              !bind(listener->socket, found->ai_addr, found->ai_addrlen) && !listen(listener->socket, BACKLOG);
    if (!ok) fb_fail(error, FB_IO, "cannot-listen", NULL, "cannot listen on %s: %s", address, strerror(errno));
    freeaddrinfo(found);
    if (!ok) return FB_IO;
    write_url(listener, has_tls ? "https" : "http");
    listener->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (listener->wake < 0)
        return fb_fail(error, FB_IO, "no-descriptor", NULL, "cannot create an eventfd: %s", strerror(errno));
    return FB_OK;
}

static bool is_at_limit(fb_http_server *server) {
    pthread_mutex_lock(&server->reaper.lock);
    bool is_full = server->reaper.count >= server->config.connection_limit;
    pthread_mutex_unlock(&server->reaper.lock);
    return is_full;
}

/* Counts the connection and gives it to libmicrohttpd; the socket is closed when that fails. */
static bool hand_over(fb_http_server *server, int socket, const struct sockaddr *address, socklen_t size) {
    uint64_t number = fb_connection_expect(server, socket, address);
    if (!number) {
        close(socket);
        return false;
    }
    if (MHD_add_connection(server->daemon, socket, address, size) == MHD_YES) return true;
    fb_connection_drop(server, number);
    return false;
}

static bool hand_over_local(fb_http_server *server, int socket) {
    static const struct sockaddr local = {.sa_family = AF_UNIX};
    return hand_over(server, socket, &local, sizeof local);
}

static void accept_one(fb_http_server *server) {
    fb_listener *listener = &server->listener;
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int socket = accept4(listener->socket, (struct sockaddr *)&address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
        bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (is_short) poll(&(struct pollfd){.fd = listener->wake, .events = POLLIN}, 1, RETRY_MS);
        return;
    }
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    hand_over(server, socket, (struct sockaddr *)&address, size);
}

static void *accept_connections(void *context) {
    fb_http_server *server = context;
    fb_listener *listener = &server->listener;
    for (;;) {
        bool is_full = is_at_limit(server); /* only this thread takes places */
        struct pollfd waits[2] = {{.fd = listener->wake, .events = POLLIN}, {.fd = listener->socket, .events = POLLIN}};
        poll(waits, is_full ? 1 : 2, -1);
        eventfd_t value;
        if (waits[0].revents) eventfd_read(listener->wake, &value);
        if (atomic_load(&listener->is_stopping)) return NULL;
        int handed = atomic_exchange(&listener->handed, -1);
        if (handed >= 0) hand_over_local(server, handed);
        if (!is_full && waits[1].revents) accept_one(server);
    }
}

fb_status fb_listener_start(fb_http_server *server, fb_error *error) {
    int failure = fb_http_thread(&server->listener.thread, accept_connections, server);
    if (!failure) return FB_OK;
    return fb_fail(error, FB_IO, "no-thread", NULL, "cannot start a thread: %s", strerror(failure));
}

int fb_http_connect(fb_http_server *server) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return -1;
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    if (hand_over_local(server, ends[1])) return ends[0];
    close(ends[0]);
    return -1;
}

void fb_listener_stop(fb_listener *listener, bool is_running) {
    if (is_running) {
        atomic_store(&listener->is_stopping, true);
        eventfd_write(listener->wake, 1);
        pthread_join(listener->thread, NULL);
    }
    if (listener->socket >= 0) close(listener->socket);
    listener->socket = -1;
}
