/* Deadlines of connections. libmicrohttpd only has idle timeouts, so a client that drips a byte now and then would live
 * forever: here every wait for a client has an absolute deadline, and one thread shuts down the sockets that pass theirs. The
 * same thread reads on for a moment from sockets that we close while the client still sends (it would get a reset instead of
 * our answer).
 *
 * A connection counts from the moment it is accepted, in the thread that accepts. libmicrohttpd's own count begins when one of
 * its threads comes round to the connection, so a burst overshoots it; and 0.9.75 does not unlock its mutex where it finds its
 * own limit exceeded (new_connection_process_), which ends that thread's service for ever. So its limit is out of reach, and
 * ours is the only one. */
#include "server/http/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- how many connections each address has ------------------------------------------------------------------------------- */

/* A hash table with linear probing, large enough for as many addresses as there may be connections, so that it never grows. */

struct fb_place {
    uint64_t address;
    unsigned count; /* 0 = a free slot */
};

/* For at most so many connections. */
static fb_status places_init(fb_places *places, unsigned connections, fb_error *error) {
    size_t size = 16;
    while (size < 2 * (size_t)connections) size *= 2;
    *places = (fb_places){.slots = calloc(size, sizeof *places->slots), .mask = size - 1};
    return places->slots ? FB_OK : fb_fail_memory(error);
}

static void places_free(fb_places *places) {
    free(places->slots);
}

/* The slot of the address, or the free one where it would be. */
static size_t find(const fb_places *places, uint64_t address) {
    size_t at = (size_t)address & places->mask;
    while (places->slots[at].count && places->slots[at].address != address) at = (at + 1) & places->mask;
    return at;
}

/* False: the address has `limit` places already; 0 = no limit. */
static bool places_take(fb_places *places, uint64_t address, unsigned limit) {
    struct fb_place *place = &places->slots[find(places, address)];
    if (limit && place->count >= limit) return false;
    place->address = address;
    place->count++;
    return true;
}

static void places_leave(fb_places *places, uint64_t address) {
    size_t free_slot = find(places, address);
    if (--places->slots[free_slot].count) return;
    /* Moves up what follows, so that a search that meets a free slot may stop (Knuth 6.4, algorithm R). */
    for (size_t at = (free_slot + 1) & places->mask; places->slots[at].count; at = (at + 1) & places->mask) {
        size_t home = (size_t)places->slots[at].address & places->mask;
        bool is_reached = ((at - home) & places->mask) < ((at - free_slot) & places->mask);
        if (is_reached) continue;
        places->slots[free_slot] = places->slots[at];
        places->slots[at].count = 0;
        free_slot = at;
    }
}

#define END_TIME ((int64_t)1000000000) /* for the last bytes of a stream */
#define QUIET_TIME ((int64_t)1000000000)
#define LINGER_TIME ((int64_t)2 * 1000000000)
#define MILLISECOND ((int64_t)1000000)

typedef struct fb_linger {
    int socket;
    int64_t deadline;
} fb_linger;

/* How long `size` bytes may take. */
static int64_t time_for(const fb_http_config *config, uint64_t size) {
    uint64_t seconds = size / (config->minimum_rate ? config->minimum_rate : 1);
    if (seconds > 1000000) seconds = 1000000;
    return (int64_t)config->body_timeout_ms * MILLISECOND + (int64_t)seconds * 1000 * MILLISECOND;
}

bool fb_connection_wait(fb_http_server *server, fb_http_connection *connection, fb_waiting waiting, uint64_t size) {
    const fb_http_config *config = &server->config;
    int64_t now = fb_monotonic_ns();
    pthread_mutex_lock(&server->reaper.lock);
    switch (waiting) {
    case FB_WAITING_HEADERS: {
        int64_t deadline = now + (int64_t)config->header_timeout_ms * MILLISECOND;
        if (deadline < connection->deadline) connection->deadline = deadline;
        break;
    }
    case FB_WAITING_IDLE: connection->deadline = now + (int64_t)config->idle_timeout_ms * MILLISECOND; break;
    case FB_WAITING_BODY: connection->deadline = now + time_for(config, 0); break;
    case FB_WAITING_WORK: connection->deadline = INT64_MAX; break;
    case FB_WAITING_SEND: connection->deadline = now + time_for(config, size); break;
    case FB_WAITING_END: connection->deadline = now + END_TIME; break;
    }
    connection->waiting = waiting;
    connection->touched = now;
    connection->is_checked = false;
    bool is_alive = !connection->is_expired;
    pthread_mutex_unlock(&server->reaper.lock);
    return is_alive;
}

bool fb_connection_moved(fb_http_server *server, fb_http_connection *connection, fb_waiting waiting, uint64_t size) {
    const fb_http_config *config = &server->config;
    int64_t now = fb_monotonic_ns(), latest = now + time_for(config, 0);
    uint64_t rate = config->minimum_rate ? config->minimum_rate : 1;
    pthread_mutex_lock(&server->reaper.lock);
    if (connection->deadline > latest) connection->deadline = latest;
    connection->deadline += (int64_t)(size * 1000000000 / rate);
    connection->waiting = waiting;
    connection->touched = now;
    connection->is_checked = false;
    bool is_alive = !connection->is_expired;
    pthread_mutex_unlock(&server->reaper.lock);
    return is_alive;
}

/* The user of the process at the other end of a socket that is a file. */
static uid_t user_of(int socket) {
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t size = sizeof peer;
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return peer.uid;
}

static void describe_address(int socket, const struct sockaddr *address, bool is_local, char *text, size_t space) {
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(text, space, "%s:%u", host, ntohs(v4->sin_port));
    } else if (is_local) {
        snprintf(text, space, "local");
    } else if (address->sa_family == AF_UNIX) {
        snprintf(text, space, "user %u", (unsigned)user_of(socket));
    } else {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(text, space, "[%s]:%u", host, ntohs(v6->sin6_port));
    }
}

/* A key of whom it counts for. In IPv6 that is a network of 64 bits: one machine has all of its addresses. At a path it is a
 * user. */
static uint64_t address_key(const fb_http_server *server, int socket, const struct sockaddr *address) {
    const fb_rates *rates = &server->rates;
    if (address->sa_family == AF_UNIX) {
        uid_t user = user_of(socket);
        return fb_rate_key(rates, &user, sizeof user);
    }
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        return fb_rate_key(rates, &v4->sin_addr, sizeof v4->sin_addr);
    }
    if (address->sa_family != AF_INET6) return 0;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_V4MAPPED(v6) ? fb_rate_key(rates, v6->s6_addr + 12, 4) : fb_rate_key(rates, v6->s6_addr, 8);
}

/* ---- from accept to close ----------------------------------------------------------------------------------------------- */

/* One client does not take all connections. */
static unsigned limit_per_address(const fb_http_config *config) {
    if (config->connection_limit_per_address != FB_HTTP_HALF) return config->connection_limit_per_address;
    return (config->connection_limit + 1) / 2;
}

/* The inode of an open socket; 0 when the descriptor is not one. */
static uint64_t inode_of(int socket) {
    struct stat about;
    return fstat(socket, &about) == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

/* With the lock, as the functions below. Takes it out of the list of those that are expected. */
static void unlink_expected(fb_reaper *reaper, fb_http_connection *connection) {
    *(connection->previous ? &connection->previous->next : &reaper->expected_first) = connection->next;
    *(connection->next ? &connection->next->previous : &reaper->expected_last) = connection->previous;
    connection->previous = connection->next = NULL;
}

static void link_expected(fb_reaper *reaper, fb_http_connection *connection) {
    connection->previous = reaper->expected_last;
    *(reaper->expected_last ? &reaper->expected_last->next : &reaper->expected_first) = connection;
    reaper->expected_last = connection;
}

static bool take_place(fb_http_server *server, const fb_http_connection *connection) {
    if (connection->is_local) return true;
    if (!places_take(&server->reaper.places, connection->address, limit_per_address(&server->config))) return false;
    server->reaper.count++;
    return true;
}

static void leave_place(fb_http_server *server, const fb_http_connection *connection) {
    if (connection->is_local) return;
    places_leave(&server->reaper.places, connection->address);
    if (server->reaper.count-- == server->config.connection_limit && server->listener.wake >= 0)
        eventfd_write(server->listener.wake, 1); /* it may accept again */
}

static void drop_expected(fb_http_server *server, fb_http_connection *connection) {
    unlink_expected(&server->reaper, connection);
    leave_place(server, connection);
    free(connection);
}

static fb_http_connection *find_expected(const fb_reaper *reaper, int socket) {
    fb_http_connection *connection = reaper->expected_first;
    while (connection && connection->socket != socket) connection = connection->next;
    return connection;
}

uint64_t fb_connection_expect(fb_http_server *server, int socket, const struct sockaddr *address, bool is_local) {
    fb_reaper *reaper = &server->reaper;
    fb_http_connection *connection = calloc(1, sizeof *connection);
    if (!connection) return 0;
    connection->socket = socket;
    connection->inode = inode_of(socket);
    connection->touched = fb_monotonic_ns();
    connection->is_local = is_local;
    connection->address = address_key(server, socket, address);
    describe_address(socket, address, is_local, connection->remote, sizeof connection->remote);
    pthread_mutex_lock(&reaper->lock);
    fb_http_connection *lost = find_expected(reaper, socket); /* its descriptor is ours now: so libmicrohttpd closed it */
    if (lost) drop_expected(server, lost);
    bool has_place = take_place(server, connection);
    uint64_t number = has_place ? connection->number = ++reaper->last_number : 0;
    if (has_place) link_expected(reaper, connection);
    pthread_mutex_unlock(&reaper->lock);
    if (has_place) return number;
    fb_metrics_reject(server, FB_REJECTED_ADDRESS);
    free(connection);
    return 0;
}

void fb_connection_drop(fb_http_server *server, uint64_t number) {
    fb_reaper *reaper = &server->reaper;
    pthread_mutex_lock(&reaper->lock);
    fb_http_connection *connection = reaper->expected_first;
    while (connection && connection->number != number) connection = connection->next;
    if (connection) drop_expected(server, connection);
    pthread_mutex_unlock(&reaper->lock);
}

/* libmicrohttpd says nothing of a connection for which it has no memory: it closes the socket. */
static void drop_lost(fb_http_server *server, int64_t now) {
    for (fb_http_connection *c = server->reaper.expected_first, *next; c; c = next) {
        next = c->next;
        if (now - c->touched < QUIET_TIME) return; /* those after it are younger */
        if (inode_of(c->socket) != c->inode) drop_expected(server, c);
    }
}

static void open_connection(fb_http_server *server, struct MHD_Connection *mhd, void **context) {
    const union MHD_ConnectionInfo *socket = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    *context = NULL;
    if (!socket) return; /* its first request closes it */
    fb_reaper *reaper = &server->reaper;
    pthread_mutex_lock(&reaper->lock);
    fb_http_connection *connection = find_expected(reaper, socket->connect_fd);
    if (connection) {
        unlink_expected(reaper, connection);
        connection->waiting = FB_WAITING_HEADERS;
        connection->touched = fb_monotonic_ns();
        connection->deadline = connection->touched + (int64_t)server->config.header_timeout_ms * MILLISECOND;
        connection->next = reaper->first;
        if (connection->next) connection->next->previous = connection;
        reaper->first = connection;
    }
    pthread_mutex_unlock(&reaper->lock);
    *context = connection;
}

static void start_lingering(fb_reaper *reaper, int socket) {
    if (reaper->lingering_count == LINGER_MAX) return;
    int copy = dup(socket); /* keeps the connection when libmicrohttpd closes its own descriptor */
    if (copy < 0) return;
    shutdown(copy, SHUT_WR);
    reaper->lingering[reaper->lingering_count++] = (fb_linger){.socket = copy, .deadline = fb_monotonic_ns() + LINGER_TIME};
    eventfd_write(reaper->wake, 1);
}

/* Called before libmicrohttpd closes the socket, so a descriptor in the list is never another one's. */
static void close_connection(fb_http_server *server, void **context) {
    fb_http_connection *connection = *context;
    if (!connection) return;
    fb_reaper *reaper = &server->reaper;
    pthread_mutex_lock(&reaper->lock);
    if (connection->previous) connection->previous->next = connection->next;
    else reaper->first = connection->next;
    if (connection->next) connection->next->previous = connection->previous;
    leave_place(server, connection);
    if (connection->lingers && !connection->is_expired) start_lingering(reaper, connection->socket);
    pthread_mutex_unlock(&reaper->lock);
    free(connection);
    *context = NULL;
}

void fb_connection_notify(void *server, struct MHD_Connection *mhd, void **connection,
                          enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED) open_connection(server, mhd, connection);
    else close_connection(server, connection);
}

void fb_connection_send_problem(const fb_http_server *server, int socket, int status, const char *body) {
    char answer[2500];
    if (server->config.tls_key) return; /* only libmicrohttpd can say something there */
    int size =
        snprintf(answer, sizeof answer,
                 "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/problem+json\r\nCache-Control: no-store\r\n"
                 "X-Content-Type-Options: nosniff\r\nContent-Length: %zu\r\n\r\n%s",
                 status, MHD_get_reason_phrase_for((unsigned)status), strlen(body), body);
    /* Nothing was sent on this connection since the last answer, so the buffer has room: one call takes all of it. */
    if (size > 0 && (size_t)size < sizeof answer && send(socket, answer, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL) == size)
        shutdown(socket, SHUT_WR);
}

static void expire(fb_http_server *server, fb_http_connection *connection) {
    connection->is_expired = true;
    if (connection->waiting != FB_WAITING_IDLE) fb_metrics_reject(server, FB_REJECTED_DEADLINE);
    if (connection->waiting == FB_WAITING_HEADERS || connection->waiting == FB_WAITING_BODY)
        fb_connection_send_problem(server, connection->socket, 408,
                                   "{\"type\":\"/problems/request-timeout\",\"title\":\"Request timeout\",\"status\":408,"
                                   "\"detail\":\"the request did not come in time\",\"code\":\"request-timeout\"}");
    shutdown(connection->socket, SHUT_RDWR);
}

/* When a client's last bytes and its leaving come in one event, libmicrohttpd (edge-triggered) reads the bytes and never learns
 * of the rest. So a connection that has become quiet is looked at once; should the client leave later, that is an event of its
 * own. */
static bool has_left(fb_http_connection *connection, int64_t now) {
    bool is_ours = connection->waiting >= FB_WAITING_WORK;
    if (is_ours || connection->is_checked || now - connection->touched < QUIET_TIME) return false;
    connection->is_checked = true;
    char byte;
    return recv(connection->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* A connection that is with a worker is out of libmicrohttpd's epoll set, so nothing else notices that the client leaves. It
 * may only have said its last word and still read: so the socket stays, and what is done by then is answered. */
static void notice_leaving(fb_http_connection *connection, int64_t now) {
    if (connection->waiting != FB_WAITING_WORK || now - connection->touched < QUIET_TIME) return;
    struct pollfd wait = {.fd = connection->socket, .events = POLLRDHUP};
    if (poll(&wait, 1, 0) > 0) atomic_store(&connection->has_left, true);
}

static void look_after(fb_http_server *server, fb_http_connection *connection, int64_t now) {
    if (connection->is_expired) return;
    notice_leaving(connection, now);
    if (connection->deadline <= now) {
        expire(server, connection);
    } else if (has_left(connection, now)) {
        connection->is_expired = true;
        shutdown(connection->socket, SHUT_RDWR);
    }
}

static bool is_drained(const fb_linger *linger, int64_t now) {
    static const int pieces_at_once = 64;
    char sink[16384];
    if (now >= linger->deadline) return true;
    for (int i = 0; i < pieces_at_once; i++) {
        ssize_t got = recv(linger->socket, sink, sizeof sink, MSG_DONTWAIT);
        if (got < 0) return errno != EAGAIN && errno != EINTR;
        if (got == 0) return true;
    }
    return false;
}

static void drain_lingering(fb_reaper *reaper, int64_t now) {
    for (unsigned i = 0; i < reaper->lingering_count;) {
        if (!is_drained(&reaper->lingering[i], now)) {
            i++;
            continue;
        }
        close(reaper->lingering[i].socket);
        reaper->lingering[i] = reaper->lingering[--reaper->lingering_count];
    }
}

static void *reap(void *context) {
    fb_http_server *server = context;
    fb_reaper *reaper = &server->reaper;
    struct pollfd waits[LINGER_MAX + 1];
    for (;;) {
        int64_t now = fb_monotonic_ns();
        pthread_mutex_lock(&reaper->lock);
        bool is_stopping = reaper->is_stopping;
        for (fb_http_connection *c = reaper->first; c; c = c->next) look_after(server, c, now);
        drop_lost(server, now);
        drain_lingering(reaper, now);
        waits[0] = (struct pollfd){.fd = reaper->wake, .events = POLLIN};
        unsigned count = 1;
        for (unsigned i = 0; i < reaper->lingering_count; i++)
            waits[count++] = (struct pollfd){.fd = reaper->lingering[i].socket, .events = POLLIN};
        pthread_mutex_unlock(&reaper->lock);
        if (is_stopping) return NULL;
        fb_streams_look_after(server, now);
        poll(waits, count, (int)(reaper->tick / MILLISECOND));
        eventfd_t value;
        if (waits[0].revents) eventfd_read(reaper->wake, &value);
    }
}

fb_status fb_reaper_start(fb_http_server *server, fb_error *error) {
    fb_reaper *reaper = &server->reaper;
    const fb_http_config *config = &server->config;
    unsigned shortest = config->header_timeout_ms;
    if (config->idle_timeout_ms < shortest) shortest = config->idle_timeout_ms;
    if (config->body_timeout_ms < shortest) shortest = config->body_timeout_ms;
    unsigned tick = shortest / 8;
    reaper->tick = (tick < 5 ? 5 : tick > 250 ? 250 : tick) * MILLISECOND;
    reaper->lingering = calloc(LINGER_MAX, sizeof *reaper->lingering);
    if (!reaper->lingering) return fb_fail_memory(error);
    fb_status status = places_init(&reaper->places, config->connection_limit, error);
    if (status) return status;
    reaper->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (reaper->wake < 0) return fb_fail(error, FB_IO, "no-descriptor", NULL, "cannot create an eventfd: %s", strerror(errno));
    int failure = fb_http_thread(&reaper->thread, reap, server);
    if (!failure) return FB_OK;
    close(reaper->wake);
    reaper->wake = -1;
    return fb_fail(error, FB_IO, "no-thread", NULL, "cannot start a thread: %s", strerror(failure));
}

void fb_reaper_stop(fb_http_server *server) {
    fb_reaper *reaper = &server->reaper;
    if (reaper->wake >= 0) {
        pthread_mutex_lock(&reaper->lock);
        reaper->is_stopping = true;
        pthread_mutex_unlock(&reaper->lock);
        eventfd_write(reaper->wake, 1);
        pthread_join(reaper->thread, NULL);
        close(reaper->wake);
    }
    for (unsigned i = 0; i < reaper->lingering_count; i++) close(reaper->lingering[i].socket);
    free(reaper->lingering);
    for (fb_http_connection *c = reaper->expected_first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    places_free(&reaper->places);
}

void fb_reaper_shut_all(fb_http_server *server) {
    pthread_mutex_lock(&server->reaper.lock);
    for (fb_http_connection *c = server->reaper.first; c; c = c->next) {
        c->is_expired = true;
        shutdown(c->socket, SHUT_RDWR);
    }
    pthread_mutex_unlock(&server->reaper.lock);
}
