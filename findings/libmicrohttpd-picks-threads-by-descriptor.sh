#!/bin/sh
# libmicrohttpd gives a socket to the thread whose number is the descriptor modulo the pool's size, so half of the pool may
# idle.
#
# Guess:    MHD_add_connection with a pool of threads hands connections round, or to the thread that has the fewest.
# Seen:     the descriptor's number decides. Where each connection comes with one more descriptor (a second socket, a file),
#           all numbers are even or all are odd, and of four threads two answer everything.
# Versions: libmicrohttpd-dev 0.9.75-6
# Changed:  server/http/probe.c, move_to_thread: the watchdog reaches each thread by a descriptor of that thread's number.
. "$(dirname "$0")/setup"
debian_with gcc libmicrohttpd-dev
compile_with -lmicrohttpd -lpthread <<'END'
#include <fcntl.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static pthread_t threads[64];
static int count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *body, size_t *size, void **request) {
    (void)context, (void)url, (void)method, (void)version, (void)body, (void)size, (void)request;
    pthread_mutex_lock(&mutex);
    int known = 0;
    while (known < count && !pthread_equal(threads[known], pthread_self())) known++;
    if (known == count) threads[count++] = pthread_self();
    pthread_mutex_unlock(&mutex);
    struct MHD_Response *response = MHD_create_response_from_buffer(2, "ok", MHD_RESPMEM_PERSISTENT);
    enum MHD_Result result = MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

/* Sends 32 requests, each on a connection of its own, whose descriptors are `apart`. */
static void send_requests(struct MHD_Daemon *daemon, int first, int apart) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    count = 0;
    for (int i = 0; i < 32; i++) {
        int pair[2];
        char text[1024];
        const struct sockaddr address = {.sa_family = AF_UNIX};
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return;
        int socket = fcntl(pair[1], F_DUPFD, first + i * apart);
        MHD_add_connection(daemon, socket, &address, sizeof address.sa_family);
        if (send(pair[0], request, sizeof request - 1, 0) < 0 || recv(pair[0], text, sizeof text, 0) <= 0) return;
    }
    printf("descriptors %d apart: %d of 4 threads answer\n", apart, count);
}

int main(void) {
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC, 0, NULL, NULL, answer, NULL,
                         MHD_OPTION_THREAD_POOL_SIZE, 4U, MHD_OPTION_END);
    if (!daemon) return 2;
    send_requests(daemon, 300, 1);
    send_requests(daemon, 400, 2);
    send_requests(daemon, 500, 4);
    return 0;
}
END
"$work/program" >"$work/seen"
expect <<'END'
descriptors 1 apart: 4 of 4 threads answer
descriptors 2 apart: 2 of 4 threads answer
descriptors 4 apart: 1 of 4 threads answer
END
