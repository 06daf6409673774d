#!/bin/sh
# A chunked request without trailers has one for libmicrohttpd if its last byte comes alone: the last header, again.
#
# Guess:    what a handler sees of a request does not depend on how TCP cut it: without trailers MHD_FOOTER_KIND has none.
# Seen:     when the last line feed comes in a packet of its own, the last of the headers is listed once more, as a trailer.
#           Cut at any other place, or whole, the same request has none.
# Versions: libmicrohttpd-dev 0.9.75-6
# Changed:  server/http/guard.c, count_trailer: requests with trailers are refused, and this one is not counted.
. "$(dirname "$0")/setup"
debian_with gcc libmicrohttpd-dev
compile_with -lmicrohttpd <<'END'
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static enum MHD_Result show(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
    (void)context, (void)kind;
    printf(" %s=%s", name, value);
    return MHD_YES;
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *body, size_t *size, void **request) {
    (void)context, (void)url, (void)method, (void)version, (void)body;
    bool is_first = !*request, has_body = *size > 0;
    *request = connection;
    *size = 0;
    if (is_first || has_body) return MHD_YES;
    printf("trailers:");
    MHD_get_connection_values(connection, MHD_FOOTER_KIND, show, NULL);
    puts("");
    struct MHD_Response *response = MHD_create_response_from_buffer(2, "ok", MHD_RESPMEM_PERSISTENT);
    enum MHD_Result result = MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

int main(void) {
    static const char request[] = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nLast: header\r\n\r\n"
                                  "2\r\nhi\r\n0\r\n\r\n";
    const size_t size = sizeof request - 1;
    struct MHD_Daemon *daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, answer, NULL,
                                                 MHD_OPTION_SOCK_ADDR, &(struct sockaddr_in){.sin_family = AF_INET,
                                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, MHD_OPTION_END);
    if (!daemon) return 2;
    for (size_t kept = 0; kept <= 4; kept++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        address.sin_port = htons(MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
        int client = socket(AF_INET, SOCK_STREAM, 0);
        char text[1024];
        if (connect(client, (struct sockaddr *)&address, sizeof address)) return 2;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        printf("%zu bytes come later; ", kept);
        if (send(client, request, size - kept, 0) < 0) return 2;
        if (kept) {
            usleep(300 * 1000);
            if (send(client, request + size - kept, kept, 0) < 0) return 2;
        }
        if (recv(client, text, sizeof text, 0) <= 0) return 2;
        close(client);
    }
    MHD_stop_daemon(daemon);
    return 0;
}
END
"$work/program" >"$work/seen"
expect <<'END'
0 bytes come later; trailers:
1 bytes come later; trailers: Last=header
2 bytes come later; trailers:
3 bytes come later; trailers:
4 bytes come later; trailers:
END
