/* HTTP to the service in this process: one request a connection, until its end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/cli/client.h"
#include "server/http/http.h"

#define PIECE ((size_t)1 << 16)

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static void write_head(const fb_call *call, const char *target, fb_buffer *out) {
    bool has_body = call->body.size || call->file || strcmp(call->method, "POST") == 0;
    unsigned long long size = call->file ? call->file->size : call->body.size;
    fb_buffer_printf(out, "%s %s HTTP/1.1\r\nHost: local\r\nConnection: close\r\n", call->method, target);
    if (call->header) fb_buffer_printf(out, "%s\r\n", call->header);
    const char *type = call->file ? "application/octet-stream" : call->type ? call->type : "application/json";
    if (has_body) fb_buffer_printf(out, "Content-Type: %s\r\nContent-Length: %llu\r\n", type, size);
    fb_buffer_string(out, "\r\n");
}

/* An answer may come before all has been sent: what was sent until then counts. */
static bool send_all(int socket, const char *bytes, size_t size) {
    while (size) {
        ssize_t sent = send(socket, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
        bytes += sent, size -= (size_t)sent;
    }
    return true;
}

/* A file that has become shorter is noticed by the service: it waits for the rest until the connection ends. */
static void send_file(int socket, const fb_call *call) {
    const fb_sent_file *file = call->file;
    char piece[PIECE];
    for (uint64_t at = 0; at < file->size;) {
        size_t wanted = file->size - at < sizeof piece ? (size_t)(file->size - at) : sizeof piece;
        ssize_t got = pread(file->file, piece, wanted, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            shutdown(socket, SHUT_WR);
            return;
        }
        if (!send_all(socket, piece, (size_t)got)) return;
        fb_progress_add(call->progress, (uint64_t)got);
        at += (uint64_t)got;
    }
}

/* ---- the answer --------------------------------------------------------------------------------------------------------- */

/* -1: failed, 0: the end. */
static ssize_t receive(int socket, fb_buffer *out) {
    char *space = fb_buffer_reserve(out, PIECE);
    ssize_t got;
    do got = space ? recv(socket, space, PIECE, 0) : -1;
    while (got < 0 && space && errno == EINTR);
    if (got > 0) out->size += (size_t)got;
    return got;
}

/* Reads the head out of `bytes`, if it is there whole, and leaves what follows. */
static bool take_head(fb_buffer *bytes, fb_answer *answer) {
    const char *text = fb_buffer_text(bytes), *body = text ? strstr(text, "\r\n\r\n") : NULL;
    if (!body || strncmp(text, "HTTP/1.1 ", 9) != 0) return false;
    answer->status = atoi(text + 9);
    for (const char *line = strstr(text, "\r\n") + 2, *end; line < body; line = end + 2) {
        end = strstr(line, "\r\n");
        fb_answer_header(answer, line, (size_t)(end - line));
    }
    size_t head = (size_t)(body - text) + 4;
    memmove(bytes->data, bytes->data + head, bytes->size - head);
    bytes->size -= head;
    return true;
}

static fb_status receive_answer(int socket, const fb_call *call, fb_buffer *bytes, fb_answer *answer, fb_error *error) {
    uint64_t received = 0;
    bool has_body = strcmp(call->method, "HEAD") != 0;
    while (!answer->status && receive(socket, bytes) > 0) take_head(bytes, answer);
    if (!answer->status) return fb_fail(error, FB_IO, "not-answered", "", "the service in this process did not answer");
    do {
        if (bytes->size && !fb_answer_body(call, answer, bytes->data, bytes->size))
            return fb_fail(error, FB_IO, "not-taken", "", "the answer could not be taken");
        received += bytes->size;
        bytes->size = 0;
    } while (has_body && receive(socket, bytes) > 0);
    if (!has_body || !answer->has_length || received == answer->length) return FB_OK;
    return fb_fail(error, FB_IO, "cut-off", "", "the service in this process ended its answer early");
}

fb_status fb_local_call(fb_http_server *server, const fb_call *call, const char *target, fb_answer *answer, fb_error *error) {
    fb_buffer head = {0}, bytes = {0};
    write_head(call, target, &head);
    int socket = head.failed ? -1 : fb_http_connect(server);
    fb_status status = FB_OK;
    if (socket >= 0) {
        bool is_sent = send_all(socket, head.data, head.size) && send_all(socket, call->body.data, call->body.size);
        if (is_sent && call->file) send_file(socket, call);
        status = receive_answer(socket, call, &bytes, answer, error);
        close(socket);
    } else if (!head.failed) {
        status =
            fb_fail(error, FB_IO, "not-answered", "", "the service in this process cannot be reached: %s", strerror(errno));
    }
    bool is_short = head.failed || bytes.failed || answer->body.failed;
    fb_buffer_free(&head);
    fb_buffer_free(&bytes);
    return is_short ? fb_fail_memory(error) : status;
}
