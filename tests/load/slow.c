/* Clients that hold a connection and give or take a little now and then. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/load/clients.h"

#define TICK_MICROSECONDS 100000
#define SIP 64 /* bytes read at a time */

typedef enum habit { SLOW_HEADERS, SLOW_BODY, SLOW_READER, IDLE, HABITS } habit;

struct fb_slow_clients {
    pthread_t thread;
    atomic_bool is_stopping;
    unsigned port;
    int *sockets;
    size_t count;
    uint64_t ended;
    const char *path;
};

static int dial(const fb_slow_clients *slow, habit how) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)slow->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 2048;
    if (handle < 0) return -1;
    if (how == SLOW_READER) setsockopt(handle, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (connect(handle, (struct sockaddr *)&address, sizeof address)) {
        close(handle);
        return -1;
    }
    char text[300];
    int size = 0;
    if (how == SLOW_HEADERS) size = snprintf(text, sizeof text, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ");
    if (how == SLOW_BODY)
        size = snprintf(
            text, sizeof text,
            "POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n");
    if (how == SLOW_READER) size = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", slow->path);
    if (size) send(handle, text, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    return handle;
}

/* False when the service has ended the connection. */
static bool act(int handle, habit how) {
    char bytes[SIP];
    if (how == SLOW_HEADERS || how == SLOW_BODY) {
        if (send(handle, " ", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN) return false;
    }
    ssize_t got = recv(handle, bytes, how == SLOW_READER ? SIP : 1, MSG_DONTWAIT);
    return got > 0 || (got < 0 && errno == EAGAIN);
}

static void *drip(void *context) {
    fb_slow_clients *slow = context;
    while (!atomic_load(&slow->is_stopping)) {
        for (size_t i = 0; i < slow->count; i++) {
            habit how = (habit)(i % HABITS);
            if (slow->sockets[i] >= 0 && act(slow->sockets[i], how)) continue;
            if (slow->sockets[i] >= 0) {
                close(slow->sockets[i]);
                slow->ended++;
            }
            slow->sockets[i] = dial(slow, how);
        }
        usleep(TICK_MICROSECONDS);
    }
    return NULL;
}

fb_slow_clients *fb_slow_clients_start(unsigned port, size_t count, const char *path) {
    fb_slow_clients *slow = calloc(1, sizeof *slow);
    int *sockets = calloc(count, sizeof *sockets);
    if (!slow || !sockets) exit(1);
    *slow = (fb_slow_clients){.port = port, .sockets = sockets, .count = count, .path = path};
    for (size_t i = 0; i < count; i++) {
        sockets[i] = dial(slow, (habit)(i % HABITS));
        if (sockets[i] >= 0) continue;
        perror("a slow client cannot connect");
        exit(1);
    }
    if (pthread_create(&slow->thread, NULL, drip, slow)) exit(1);
    return slow;
}

void fb_slow_clients_stop(fb_slow_clients *slow, uint64_t *ended) {
    atomic_store(&slow->is_stopping, true);
    pthread_join(slow->thread, NULL);
    for (size_t i = 0; i < slow->count; i++)
        if (slow->sockets[i] >= 0) close(slow->sockets[i]);
    *ended = slow->ended;
    free(slow->sockets);
    free(slow);
}
