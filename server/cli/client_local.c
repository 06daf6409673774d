/* HTTP to the service in this process: one request a connection, until its end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/cli/transport.h"

#define PIECE ((size_t)1 << 16)

static void write_head(const fb_call *call, const char *target, fb_buffer *out) {
    bool has_body = call->body.size || strcmp(call->method, "POST") == 0;
    fb_buffer_printf(out, "%s %s HTTP/1.1\r\nHost: local\r\nConnection: close\r\n", call->method, target);
    if (call->header) fb_buffer_printf(out, "%s\r\n", call->header);
    if (has_body) fb_buffer_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", call->body.size);
    fb_buffer_string(out, "\r\n");
}

/* An answer may come before all has been sent: what was sent until then counts. */
static void send_all(int socket, const char *bytes, size_t size) {
    while (size) {
        ssize_t sent = send(socket, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return;
        bytes += sent, size -= (size_t)sent;
    }
}

static bool receive_all(int socket, fb_buffer *out) {
    for (;;) {
        char *space = fb_buffer_reserve(out, PIECE);
        ssize_t got = space ? recv(socket, space, PIECE, 0) : -1;
        if (got < 0 && space && errno == EINTR) continue;
        if (got <= 0) return got == 0;
        out->size += (size_t)got;
    }
}

/* The bytes become the answer's body, without the head. */
static bool read_answer(fb_buffer *bytes, fb_answer *answer) {
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
    answer->body = *bytes;
    *bytes = (fb_buffer){0};
    return true;
}

fb_status fb_local_call(fb_http_server *server, const fb_call *call, const char *target, fb_answer *answer, fb_error *error) {
    fb_buffer head = {0}, received = {0};
    write_head(call, target, &head);
    int socket = head.failed ? -1 : fb_http_connect(server);
    bool is_answered = false;
    if (socket >= 0) {
        send_all(socket, head.data, head.size);
        send_all(socket, call->body.data, call->body.size);
        is_answered = receive_all(socket, &received) && read_answer(&received, answer);
        close(socket);
    }
    bool is_short = head.failed || received.failed;
    fb_buffer_free(&head);
    fb_buffer_free(&received);
    if (is_answered) return FB_OK;
    if (is_short) return fb_fail_memory(error);
    return fb_fail(error, FB_IO, "not-answered", "", "the service in this process did not answer");
}
