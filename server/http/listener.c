/* Listening and accepting. We accept ourselves and hand sockets to libmicrohttpd (MHD_add_connection): stopping to listen is
 * then a matter of one thread of ours (MHD_quiesce_daemon can abort the process when it meets a loop that is at its connection
 * limit), connections are counted when they are accepted, and beyond the limit clients wait in the kernel's backlog. */
#include "server/http/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024
#define RETRY_MS 20            /* out of descriptors, or another service starts in the same folder */
#define LONGEST_START_MS 10000 /* of that service */

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
                   "%s is not an address to listen on; write it as 127.0.0.1:8080, [::1]:8080 or unix:/run/foldback.sock",
                   address);
}

/* ---- sockets that are files --------------------------------------------------------------------------------------------- */

/* The path in "unix:PATH"; NULL for any other address. */
static const char *path_of(const char *address) {
    static const char scheme[] = "unix:";
    return strncmp(address, scheme, sizeof scheme - 1) ? NULL : address + sizeof scheme - 1;
}

static fb_status set_path(const char *path, struct sockaddr_un *out, fb_error *error) {
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (!*path) return fail_address("unix:", error);
    if (strlen(path) >= sizeof out->sun_path)
        return fb_fail(error, FB_INVALID, "bad-address", NULL, "the path of a socket has at most %zu bytes; %s has %zu",
                       sizeof out->sun_path - 1, path, strlen(path));
    snprintf(out->sun_path, sizeof out->sun_path, "%s", path);
    return FB_OK;
}

static fb_status fail_listen(const char *address, const char *reason, fb_error *error) {
    bool is_taken = strcmp(reason, strerror(EADDRINUSE)) == 0;
    return fb_fail(error, FB_IO, "cannot-listen", NULL, "cannot listen on %s: %s%s", address, reason,
                   is_taken ? "; give another address with --listen (with port 0 any free port is taken)" : "");
}

/* 0 when a process listens there, else why it cannot be reached. */
static int try_connect(const struct sockaddr_un *name) {
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (client < 0) return errno;
    int failure = connect(client, (const struct sockaddr *)name, sizeof *name) ? errno : 0;
    close(client);
    return failure == EAGAIN ? 0 : failure; /* a full backlog */
}

/* The folder of a path, locked until the descriptor is closed; -1 and errno. */
static int lock_folder(const char *path) {
    char *copy = strdup(path);
    int lock = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(copy);
    for (unsigned waited = 0; lock >= 0 && flock(lock, LOCK_EX | LOCK_NB); waited += RETRY_MS) {
        if (errno != EWOULDBLOCK || waited >= LONGEST_START_MS) {
            int failure = errno;
            close(lock);
            errno = failure;
            return -1;
        }
        poll(NULL, 0, RETRY_MS);
    }
    return lock;
}

static fb_status clear_path(const char *address, const struct sockaddr_un *name, fb_error *error) {
    struct stat about;
    if (lstat(name->sun_path, &about)) return errno == ENOENT ? FB_OK : fail_listen(address, strerror(errno), error);
    if (!S_ISSOCK(about.st_mode)) return fail_listen(address, "that file is not a socket", error);
    int failure = try_connect(name);
    if (!failure) return fail_listen(address, "another process listens there", error);
    if (failure != ECONNREFUSED) return fail_listen(address, strerror(failure), error);
    return unlink(name->sun_path) && errno != ENOENT ? fail_listen(address, strerror(errno), error) : FB_OK;
}

fb_status fb_http_clear_address(const char *address, int *lock, fb_error *error) {
    const char *path = path_of(address);
    struct sockaddr_un name;
    *lock = -1;
    if (!path) return FB_OK;
    if (set_path(path, &name, error)) return FB_INVALID;
    int locked = lock_folder(path);
    if (locked < 0)
        return fail_listen(address, errno == EWOULDBLOCK ? "another process has locked its folder" : strerror(errno), error);
    fb_status status = clear_path(address, &name, error);
    if (status) close(locked);
    else *lock = locked;
    return status;
}

static fb_status open_path(fb_listener *listener, const char *address, fb_error *error) {
    struct sockaddr_un name;
    struct stat about;
    fb_status status = set_path(path_of(address), &name, error);
    if (status) return status;
    listener->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* The file gets the mode of the socket: at no time can others connect. */
    bool ok = listener->socket >= 0 && !fchmod(listener->socket, 0600) &&
              !bind(listener->socket, (const struct sockaddr *)&name, sizeof name);
    if (ok && !lstat(name.sun_path, &about)) {
        snprintf(listener->path, sizeof listener->path, "%s", name.sun_path);
        listener->inode = about.st_ino;
    }
    if (!ok || listen(listener->socket, BACKLOG)) return fail_listen(address, strerror(errno), error);
    snprintf(listener->url, sizeof listener->url, "%s", address);
    return FB_OK;
}

/* Another service may have put its own there since. */
static void remove_path(fb_listener *listener) {
    struct stat about;
    if (*listener->path && !lstat(listener->path, &about) && about.st_ino == listener->inode) unlink(listener->path);
    *listener->path = '\0';
}

/* ---- addresses ---------------------------------------------------------------------------------------------------------- */

fb_status fb_http_check_address(const char *listen, fb_error *error) {
    struct sockaddr_un unused;
    if (path_of(listen)) return set_path(path_of(listen), &unused, error);
    struct addrinfo *found = resolve(listen);
    if (!found) return fail_address(listen, error);
    freeaddrinfo(found);
    return FB_OK;
}

bool fb_http_is_path(const char *listen) {
    return path_of(listen) != NULL;
}

bool fb_http_is_loopback(const char *listen) {
    if (path_of(listen)) return true;
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

static fb_status open_port(fb_listener *listener, const char *address, bool has_tls, fb_error *error) {
    struct addrinfo *found = resolve(address);
    if (!found) return fail_address(address, error);
    listener->socket = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    bool ok = listener->socket >= 0 && !setsockopt(listener->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
              !bind(listener->socket, found->ai_addr, found->ai_addrlen) && !listen(listener->socket, BACKLOG);
    if (!ok) fail_listen(address, strerror(errno), error);
    freeaddrinfo(found);
    if (!ok) return FB_IO;
    write_url(listener, has_tls ? "https" : "http");
    return FB_OK;
}

fb_status fb_listener_open(fb_listener *listener, const char *address, bool has_tls, fb_error *error) {
    fb_status status = path_of(address) ? open_path(listener, address, error) : open_port(listener, address, has_tls, error);
    if (status) return status;
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
static bool hand_over(fb_http_server *server, int socket, const struct sockaddr *address, socklen_t size, bool is_local) {
    uint64_t number = fb_connection_expect(server, socket, address, is_local);
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
    return hand_over(server, socket, &local, sizeof local, true);
}

static void accept_one(fb_http_server *server) {
    fb_listener *listener = &server->listener;
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    int socket = accept4(listener->socket, (struct sockaddr *)&address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
        bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (is_short) poll(&(struct pollfd){.fd = listener->wake, .events = POLLIN}, 1, RETRY_MS);
        return;
    }
    int on = 1;
    if (address.ss_family != AF_UNIX) setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (size < sizeof(struct sockaddr)) size = sizeof(struct sockaddr); /* a client's socket has no name */
    hand_over(server, socket, (struct sockaddr *)&address, size, false);
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
    remove_path(listener);
    if (listener->socket >= 0) close(listener->socket);
    listener->socket = -1;
}
