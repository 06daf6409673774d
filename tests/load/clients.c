#include "tests/load/clients.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define PIECE ((size_t)64 << 10)
#define ERRORS_SHOWN 5

typedef struct client {
    int socket;
    fb_buffer request, answer;
    size_t sent;
    uint64_t number;
    int expected;
    double started; /* 0: it waits for nothing */
} client;

struct fb_load_clients {
    unsigned port;
    client *all;
    size_t count, busy;
    int poll;
    fb_load_next *next;
    fb_load_answered *answered;
    void *context;
    uint64_t number, errors;
};

/* ---- latencies ----------------------------------------------------------------------------------------------------------- */

void fb_latencies_add(fb_latencies *latencies, double milliseconds) {
    if (latencies->count == latencies->capacity) {
        size_t capacity = latencies->capacity ? 2 * latencies->capacity : 65536;
        float *grown = realloc(latencies->times, capacity * sizeof *grown);
        if (!grown) exit(1);
        latencies->times = grown;
        latencies->capacity = capacity;
    }
    latencies->times[latencies->count++] = (float)milliseconds;
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double fb_latencies_at(fb_latencies *latencies, double fraction) {
    if (!latencies->count) return 0;
    qsort(latencies->times, latencies->count, sizeof *latencies->times, by_size);
    size_t index = (size_t)(fraction * (double)latencies->count);
    return (double)latencies->times[index < latencies->count ? index : latencies->count - 1];
}

void fb_latencies_free(fb_latencies *latencies) {
    free(latencies->times);
    *latencies = (fb_latencies){0};
}

/* ---- one client ---------------------------------------------------------------------------------------------------------- */

static int dial(unsigned port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (handle < 0 || connect(handle, (struct sockaddr *)&address, sizeof address)) {
        perror("connect");
        exit(1);
    }
    return handle;
}

static void show_error(fb_load_clients *clients, const client *c, const char *what) {
    if (clients->errors++ >= ERRORS_SHOWN) return;
    int line = (int)strcspn(c->request.data, "\r");
    fprintf(stderr, "%.*s: %s; expected %d\n%.*s\n", line, c->request.data, what, c->expected, (int)c->answer.size,
            c->answer.data ? c->answer.data : "");
}

static void watch(const fb_load_clients *clients, client *c) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(clients->poll, EPOLL_CTL_ADD, c->socket, &event)) {
        perror("epoll_ctl");
        exit(1);
    }
}

static void reconnect(fb_load_clients *clients, client *c) {
    close(c->socket);
    c->socket = dial(clients->port);
    watch(clients, c);
}

/* Requests are small beside a socket's buffer: sending never waits. */
static void begin(fb_load_clients *clients, client *c) {
    c->request.size = c->answer.size = 0;
    c->number = clients->number++;
    c->expected = clients->next(clients->context, c->number, &c->request);
    c->started = fb_now_ms();
    clients->busy++;
    if (send(c->socket, c->request.data, c->request.size, MSG_NOSIGNAL) == (ssize_t)c->request.size) return;
    show_error(clients, c, "cannot be sent");
    reconnect(clients, c);
    send(c->socket, c->request.data, c->request.size, MSG_NOSIGNAL);
}

/* The size of the head when the answer is whole, otherwise 0. */
static size_t whole_head(client *c) {
    const char *text = fb_buffer_text(&c->answer), *end = text ? strstr(text, "\r\n\r\n") : NULL;
    const char *length = end ? strstr(text, "\r\nContent-Length: ") : NULL;
    if (!length) return 0;
    size_t head = (size_t)(end + 4 - text), body = strtoul(length + strlen("\r\nContent-Length: "), NULL, 10);
    return c->answer.size >= head + body ? head : 0;
}

/* Reads what there is; true when the client has its answer, or will never have one. */
static bool hear(fb_load_clients *clients, client *c) {
    char *to = fb_buffer_reserve(&c->answer, PIECE);
    ssize_t got = to ? recv(c->socket, to, PIECE, MSG_DONTWAIT) : -1;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
        if (c->started != 0) show_error(clients, c, "ended without an answer");
        reconnect(clients, c);
        return c->started != 0;
    }
    c->answer.size += (size_t)got;
    size_t head = whole_head(c);
    if (!head) return false;
    int status = atoi(c->answer.data + strlen("HTTP/1.1 "));
    if (status != c->expected) show_error(clients, c, "another status");
    else if (clients->answered) clients->answered(clients->context, c->number, c->answer.data + head, c->answer.size - head);
    return true;
}

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

fb_load_clients *fb_load_clients_new(unsigned port, size_t count, fb_load_next *next, fb_load_answered *answered,
                                     void *context) {
    fb_load_clients *clients = calloc(1, sizeof *clients);
    client *all = calloc(count, sizeof *all);
    if (!clients || !all) exit(1);
    *clients =
        (fb_load_clients){.port = port, .all = all, .count = count, .next = next, .answered = answered, .context = context};
    clients->poll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < count; i++) {
        all[i].socket = dial(port);
        watch(clients, &all[i]);
    }
    return clients;
}

uint64_t fb_load_clients_run(fb_load_clients *clients, double seconds, fb_latencies *latencies, uint64_t *errors) {
    double until = fb_now_ms() + seconds * 1e3;
    uint64_t done = 0, errors_before = clients->errors;
    for (size_t i = 0; i < clients->count; i++) begin(clients, &clients->all[i]);
    while (clients->busy) {
        struct epoll_event events[64];
        int count = epoll_wait(clients->poll, events, 64, 30000);
        if (count == 0) {
            fprintf(stderr, "no answer for 30 s\n");
            exit(1);
        }
        for (int i = 0; i < count; i++) {
            client *c = events[i].data.ptr;
            if (!hear(clients, c)) continue;
            double now = fb_now_ms();
            fb_latencies_add(latencies, now - c->started);
            c->started = 0;
            clients->busy--;
            done++;
            if (now < until) begin(clients, c);
        }
    }
    *errors += clients->errors - errors_before;
    return done - (clients->errors - errors_before);
}

void fb_load_clients_free(fb_load_clients *clients) {
    for (size_t i = 0; i < clients->count; i++) {
        close(clients->all[i].socket);
        fb_buffer_free(&clients->all[i].request);
        fb_buffer_free(&clients->all[i].answer);
    }
    close(clients->poll);
    free(clients->all);
    free(clients);
}

void fb_load_request(fb_buffer *out, const char *method, const char *path, const char *body, size_t size) {
    fb_buffer_printf(out, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n", method, path);
    if (size) fb_buffer_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", size);
    else if (strcmp(method, "POST") == 0) fb_buffer_string(out, "Content-Length: 0\r\n");
    fb_buffer_string(out, "\r\n");
    fb_buffer_append(out, body, size);
}
