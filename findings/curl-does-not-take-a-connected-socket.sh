#!/bin/sh
# CURL_SOCKOPT_ALREADY_CONNECTED, which is for a socket that is connected already, ends in "Failed to connect".
#
# Guess:    an open-socket callback that gives a connected socket, and a sockopt callback that says so, let curl send at
#           once: that is what the value is for.
# Seen:     curl sends nothing and gives up with CURLE_COULDNT_CONNECT, for TCP as well as for a pair of sockets.
#           The same callbacks with a socket that is not connected work.
# Versions: libcurl4-openssl-dev 7.88.1-10+deb12u15
# Changed:  server/cli/client.c: the command line speaks HTTP itself over the pair of sockets to a service in its own
#           process, and uses curl only for a service elsewhere.
. "$(dirname "$0")/setup"
debian_with gcc libcurl4-openssl-dev
compile_with -lcurl -lpthread <<'END'
#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum kind { NOT_CONNECTED, TCP, PAIR };
static int given;

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address) {
    (void)context, (void)purpose, (void)address;
    return given;
}

static int set_options(void *kind, curl_socket_t socket, curlsocktype purpose) {
    (void)socket, (void)purpose;
    return *(enum kind *)kind == NOT_CONNECTED ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ALREADY_CONNECTED;
}

/* Answers one request on the socket, which listens unless it is of a pair. */
static void *serve(void *socket) {
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    int listener = *(int *)socket, client = accept(listener, NULL, NULL);
    char request[4096];
    if (client < 0) client = listener;
    if (read(client, request, sizeof request) > 0 && write(client, text, sizeof text - 1) < 0) perror("write");
    close(client);
    return NULL;
}

static void try(const char *name, enum kind kind) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM, 0), pair[2];
    bind(server, (struct sockaddr *)&address, size);
    listen(server, 1);
    getsockname(server, (struct sockaddr *)&address, &size);
    given = socket(AF_INET, SOCK_STREAM, 0);
    if (kind == TCP && connect(given, (struct sockaddr *)&address, size)) perror("connect");
    if (kind == PAIR && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) given = pair[0], server = pair[1];
    pthread_t thread;
    pthread_create(&thread, NULL, serve, &server);
    CURL *curl = curl_easy_init();
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, set_options);
    curl_easy_setopt(curl, CURLOPT_SOCKOPTDATA, &kind);
    CURLcode result = curl_easy_perform(curl);
    printf("%s: %s\n", name, curl_easy_strerror(result));
    curl_easy_cleanup(curl);
    pthread_join(thread, NULL);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    try("not connected", NOT_CONNECTED);
    try("connected TCP", TCP);
    try("connected pair", PAIR);
    return 0;
}
END
"$work/program" >"$work/seen"
expect <<'END'
not connected: No error
connected TCP: Couldn't connect to server
connected pair: Couldn't connect to server
END
