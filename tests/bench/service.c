#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

static void fail(const char *what) {
    perror(what);
    exit(1);
}

void fb_bench_empty(const char *folder) {
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

fb_bench_service fb_bench_start(const char *binary, const char *folder) {
    return fb_bench_start_with(binary, folder, (const char *const[]){NULL});
}

fb_bench_service fb_bench_start_with(const char *binary, const char *folder, const char *const *options) {
    const char *arguments[20] = {binary, "serve", "--listen", "127.0.0.1:0", "--data", folder, "--access-log", "off"};
    for (size_t i = 0; i < 8 && options[i]; i++) arguments[8 + i] = options[i];
    int output[2];
    if (pipe(output)) fail("pipe");
    fb_bench_service service = {.pid = fork()};
    if (service.pid == 0) {
        dup2(output[1], STDOUT_FILENO);
        execv(binary, (char **)(uintptr_t)arguments); /* which only reads them */
        _exit(127);
    }
    close(output[1]);
    FILE *lines = fdopen(output[0], "r");
    char line[256];
    if (!lines || !fgets(line, sizeof line, lines)) fail("the service did not start");
    fclose(lines);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    service.port = (unsigned)atoi(strrchr(line, ':') + 1);
    address.sin_port = htons((uint16_t)service.port);
    service.socket = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    setsockopt(service.socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(service.socket, (struct sockaddr *)&address, sizeof address)) fail("connect");
    return service;
}

void fb_bench_stop(fb_bench_service *service) {
    close(service->socket);
    kill(service->pid, SIGTERM);
    waitpid(service->pid, NULL, 0);
}

size_t fb_bench_folder_size(const char *folder) {
    size_t size = 0;
    char path[4096];
    struct stat facts;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &facts) == 0 && S_ISREG(facts.st_mode)) size += (size_t)facts.st_size;
    }
    if (entries) closedir(entries);
    return size;
}

size_t fb_bench_memory(const fb_bench_service *service, const char *line) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/status", service->pid);
    FILE *status = fopen(path, "r");
    if (!status) fail(path);
    size_t found = 0;
    while (fgets(text, sizeof text, status)) {
        if (strncmp(text, line, strlen(line)) == 0) found = strtoul(text + strlen(line), NULL, 10);
    }
    fclose(status);
    return found;
}

static void send_all(int socket, const char *bytes, size_t size) {
    while (size) {
        ssize_t sent = send(socket, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0) fail("send");
        bytes += sent;
        size -= (size_t)sent;
    }
}

/* ---- requests ------------------------------------------------------------------------------------------------------------ */

static void send_head(const fb_bench_service *service, const char *method, const char *path, const char *type, size_t size) {
    char head[512];
    int length = snprintf(head, sizeof head,
                          "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/%s\r\nContent-Length: %zu\r\n\r\n",
                          method, path, type, size);
    send_all(service->socket, head, (size_t)length);
}

#define PIECE ((size_t)1 << 18)

/* Reads an answer's head, and of its body at least what came with it, into `answer`, emptied before; exits when the status is
 * not the one expected. Returns the size of the head and the body. */
static size_t receive_head(const fb_bench_service *service, const char *what, int expected, fb_buffer *answer) {
    size_t total = 0;
    answer->size = 0;
    while (!total) {
        char *to = fb_buffer_reserve(answer, PIECE);
        ssize_t got = to ? recv(service->socket, to, PIECE, 0) : -1;
        if (got <= 0) fail("recv");
        answer->size += (size_t)got;
        const char *text = fb_buffer_text(answer), *end = strstr(text, "\r\n\r\n");
        const char *content = end ? strcasestr(text, "content-length:") : NULL;
        if (content) total = (size_t)(end + 4 - text) + strtoul(content + 15, NULL, 10);
    }
    int status = atoi(fb_buffer_text(answer) + 9);
    if (status == expected) return total;
    fprintf(stderr, "%s: %d\n%s\n", what, status, answer->data);
    exit(1);
}

static void receive_rest(const fb_bench_service *service, size_t total, fb_buffer *answer) {
    while (answer->size < total) {
        char *to = fb_buffer_reserve(answer, PIECE);
        ssize_t got = to ? recv(service->socket, to, PIECE, 0) : -1;
        if (got <= 0) fail("recv");
        answer->size += (size_t)got;
    }
}

void fb_bench_request(const fb_bench_service *service, const char *method, const char *path, const void *body, size_t size,
                      int expected, fb_buffer *answer) {
    send_head(service, method, path, "json", size);
    send_all(service->socket, body, size);
    receive_rest(service, receive_head(service, path, expected, answer), answer);
}

void fb_bench_put_file(const fb_bench_service *service, const char *path, const char *file) {
    struct stat facts;
    int input = open(file, O_RDONLY);
    if (input < 0 || fstat(input, &facts)) fail(file);
    send_head(service, "PUT", path, "octet-stream", (size_t)facts.st_size);
    for (size_t left = (size_t)facts.st_size; left;) {
        ssize_t sent = sendfile(service->socket, input, NULL, left);
        if (sent <= 0) fail("sendfile");
        left -= (size_t)sent;
    }
    close(input);
    fb_buffer answer = {0};
    receive_rest(service, receive_head(service, path, 201, &answer), &answer);
    fb_buffer_free(&answer);
}

uint64_t fb_bench_get(const fb_bench_service *service, const char *path) {
    static char piece[PIECE];
    fb_buffer answer = {0};
    send_head(service, "GET", path, "json", 0);
    size_t total = receive_head(service, path, 200, &answer), received = answer.size;
    size_t head = (size_t)(strstr(fb_buffer_text(&answer), "\r\n\r\n") + 4 - answer.data);
    while (received < total) {
        ssize_t got = recv(service->socket, piece, sizeof piece, 0);
        if (got <= 0) fail("recv");
        received += (size_t)got;
    }
    fb_buffer_free(&answer);
    return total - head;
}
