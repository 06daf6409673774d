/* Asks the service itself, over HTTP, whether it still answers: for a watchdog.
 *
 * The request takes the way of every other: the thread that accepts hands a socket to an I/O thread of libmicrohttpd, which
 * reads, routes and answers. Only the network is left out (one end of a pair of sockets is the client's), because the sandbox
 * does not let the service connect to anything, and because a service whose connections are all taken works as well. Each I/O
 * thread is asked: libmicrohttpd gives a socket to the thread whose number is the descriptor modulo the number of threads. */
#include "server/http/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define SEARCH 64 /* descriptors of other files that may be in the way of the one wanted */

/* Moves the socket to a descriptor that belongs to that thread; -1, and it is closed, when there is none. */
static int move_to_thread(int socket, unsigned thread, unsigned threads) {
    int found = -1, from = (int)thread;
    for (unsigned i = 0; i < SEARCH && found < 0; i++) {
        found = fcntl(socket, F_DUPFD_CLOEXEC, from);
        if (found < 0 || (unsigned)found % threads == thread) break;
        from = found - (int)((unsigned)found % threads) + (int)thread; /* the next one of that thread's */
        if (from <= found) from += (int)threads;
        close(found);
        found = -1;
    }
    close(socket);
    return found;
}

static void set_timeout(int socket, int64_t deadline) {
    int64_t left = (deadline - fb_monotonic_ns()) / 1000;
    if (left < 1000) left = 1000;
    struct timeval time = {.tv_sec = left / 1000000, .tv_usec = left % 1000000};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

/* Receives until the connection ends, or the room is used up. */
static size_t ask_plainly(int socket, const char *request, char *answer, size_t room) {
    size_t got = 0;
    if (send(socket, request, strlen(request), MSG_NOSIGNAL) < 0) return 0;
    for (ssize_t more; got < room && (more = recv(socket, answer + got, room - got, 0)) > 0;) got += (size_t)more;
    return got;
}

/* The certificate is our own: there is nothing to verify. */
static size_t ask_through_tls(int socket, const char *request, char *answer, size_t room) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *tls = context ? SSL_new(context) : NULL;
    size_t got = 0, sent = 0;
    if (tls && SSL_set_fd(tls, socket) == 1 && SSL_connect(tls) == 1 &&
        SSL_write_ex(tls, request, strlen(request), &sent) == 1) {
        for (size_t more; got < room && SSL_read_ex(tls, answer + got, room - got, &more) == 1;) got += more;
    }
    SSL_free(tls);
    SSL_CTX_free(context);
    return got;
}

static bool is_answered(const fb_http_server *server, int socket, const char *target, int64_t deadline) {
    char request[300], answer[2000];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", target);
    set_timeout(socket, deadline);
    size_t got = (server->config.tls_key ? ask_through_tls : ask_plainly)(socket, request, answer, sizeof answer);
    static const char good[] = "HTTP/1.1 200 ";
    return got >= sizeof good - 1 && !memcmp(answer, good, sizeof good - 1);
}

static fb_status ask_thread(fb_http_server *server, unsigned thread, const char *target, int64_t deadline, fb_error *error) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return fb_fail(error, FB_IO, "no-descriptor", NULL, "cannot make a pair of sockets: %s", strerror(errno));
    ends[1] = move_to_thread(ends[1], thread, server->config.io_threads);
    if (ends[1] < 0) {
        close(ends[0]);
        return fb_fail(error, FB_IO, "no-descriptor", NULL, "cannot duplicate a socket: %s", strerror(errno));
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    atomic_store(&server->listener.handed, ends[1]);
    eventfd_write(server->listener.wake, 1);
    bool is_good = is_answered(server, ends[0], target, deadline);
    close(ends[0]);
    int untaken = atomic_exchange(&server->listener.handed, -1);
    if (untaken >= 0) close(untaken);
    if (is_good) return FB_OK;
    return fb_fail(error, FB_IO, "not-answered", NULL, "GET %s was not answered in time by %s", target,
                   untaken >= 0 ? "the thread that accepts connections" : "an I/O thread");
}

fb_status fb_http_probe(fb_http_server *server, const char *target, unsigned timeout_ms, fb_error *error) {
    int64_t deadline = fb_monotonic_ns() + (int64_t)timeout_ms * 1000000;
    fb_status status = FB_OK;
    for (unsigned thread = 0; !status && thread < server->config.io_threads; thread++)
        status = ask_thread(server, thread, target, deadline, error);
    return status;
}
