/* Answers of the service, piece by piece. */
#include "server/cli/client.h"

#include "server/service/service.h"

static void keep_value(const char *line, size_t size, const char *name, char *out, size_t space) {
    size_t length = strlen(name);
    if (size < length || strncasecmp(line, name, length) != 0) return;
    line += length, size -= length;
    while (size && (*line == ' ' || *line == '\t')) line++, size--;
    while (size && strchr("\r\n \t", line[size - 1])) size--;
    if (size < space) snprintf(out, space, "%.*s", (int)size, line);
}

void fb_answer_header(fb_answer *answer, const char *line, size_t size) {
    keep_value(line, size, "ETag:", answer->etag, sizeof answer->etag);
    keep_value(line, size, "Content-Type:", answer->media_type, sizeof answer->media_type);
    char length[24] = "", *end;
    keep_value(line, size, "Content-Length:", length, sizeof length);
    if (!*length) return;
    answer->length = strtoull(length, &end, 10);
    answer->has_length = !*end;
}

bool fb_answer_body(const fb_call *call, fb_answer *answer, const char *bytes, size_t size) {
    if (call->receiver && answer->status / 100 == 2) {
        fb_progress_add(call->progress, size);
        return call->receiver->take(call->receiver->context, answer, bytes, size);
    }
    fb_buffer_append(&answer->body, bytes, size);
    return !answer->body.failed;
}
