/* Bodies of known size that are made while they are sent: a source of a stream (stream.c) that has workers make the parts.
 *
 *     source.read, on a worker ──► ready ──(sending is used up: the two change places)──► sending ──► I/O thread
 *
 * A worker makes one part while the one before is sent, and then is free until the two have changed places: a client that does
 * not read holds memory for two parts, but no worker.
 *
 * Our lock is taken before the queue's and the streams'.
 */
#include "server/http/internal.h"

#include <stdlib.h>
#include <string.h>

struct fb_pull {
    fb_http_server *server;
    fb_pull_source source;
    void *state;
    uint64_t end;    /* of what is sent; position begins where that begins */
    size_t taken;    /* bytes of `sending`: the I/O thread's */
    fb_part sending; /* the I/O thread's */
    fb_part ready;   /* the worker's while is_busy */
    fb_job job;
    fb_stream *stream; /* set before the first job */

    pthread_mutex_t lock; /* for what follows, and for `position` and `ready` when not is_busy */
    uint64_t position;    /* of the next part */
    bool is_busy;         /* the job is queued or runs */
    bool is_ready;        /* `ready` has bytes to be sent */
    bool is_over;         /* the answer has ended: who is last frees */
    fb_error error;       /* of the source; nothing more is read then */
};

static void free_pull(fb_pull *pull) {
    pull->source.release(pull->state);
    free(pull->sending.bytes);
    free(pull->ready.bytes);
    pthread_mutex_destroy(&pull->lock);
    free(pull);
}

/* ---- on a worker -------------------------------------------------------------------------------------------------------- */

static fb_status make_part(fb_pull *pull, fb_error *error) {
    uint64_t left = pull->end - pull->position;
    fb_part *part = &pull->ready;
    part->size = left < FB_PART_SIZE ? (size_t)left : FB_PART_SIZE;
    if (!part->bytes) part->bytes = malloc(part->size); /* no later one is larger */
    if (!part->bytes) return fb_fail_memory(error);
    return pull->source.read(pull->state, pull->position, part->bytes, part->size, error);
}

static void work(void *argument) {
    fb_pull *pull = argument;
    fb_error error = {0};
    fb_status status = make_part(pull, &error);
    if (status) fb_fail(&error, status, "read-failed", NULL, "the source of the body failed"); /* when it did not say why */
    pthread_mutex_lock(&pull->lock);
    pull->error = error;
    pull->position += pull->ready.size;
    pull->is_ready = !status;
    pull->is_busy = false;
    bool is_over = pull->is_over;
    if (!is_over) fb_stream_wake(pull->stream);
    pthread_mutex_unlock(&pull->lock);
    if (is_over) free_pull(pull);
}

/* ---- on the I/O thread -------------------------------------------------------------------------------------------------- */

/* With the lock: takes the next part when it is ready, and has the one after it made. False when there will be none. */
static bool go_on(fb_pull *pull) {
    if (pull->is_ready) {
        fb_part full = pull->ready;
        pull->ready = pull->sending;
        pull->sending = full;
        pull->taken = 0;
        pull->is_ready = false;
    } else if (pull->error.status) {
        return false;
    }
    if (pull->is_busy || pull->error.status || pull->position == pull->end) return true;
    pull->is_busy = fb_queue_push(&pull->server->queue, &pull->job);
    return pull->is_busy; /* not when the server stops */
}

static size_t read_pull(void *state, fb_stream *stream, char *to, size_t size) {
    fb_pull *pull = state;
    if (pull->taken == pull->sending.size) {
        pthread_mutex_lock(&pull->lock);
        pull->stream = stream;
        bool goes_on = go_on(pull);
        pthread_mutex_unlock(&pull->lock);
        if (!goes_on) return FB_STREAM_END;
    }
    size_t left = pull->sending.size - pull->taken, given = left < size ? left : size;
    if (given) memcpy(to, pull->sending.bytes + pull->taken, given);
    pull->taken += given;
    return given;
}

static void release_pull(void *state) {
    fb_pull *pull = state;
    pthread_mutex_lock(&pull->lock);
    pull->is_over = true;
    bool is_busy = pull->is_busy;
    pthread_mutex_unlock(&pull->lock);
    if (!is_busy) free_pull(pull);
}

bool fb_pull_error(fb_pull *pull, fb_error *error) {
    pthread_mutex_lock(&pull->lock);
    *error = pull->error;
    pthread_mutex_unlock(&pull->lock);
    return error->status;
}

/* ---- the response ------------------------------------------------------------------------------------------------------- */

void fb_respond_pulled(const fb_request *request, fb_response *response, const char *content_type, uint64_t size,
                       const fb_pull_source *source, void *state) {
    static const fb_stream_source stream_source = {.read = read_pull, .release = release_pull};
    fb_http_server *server = request->inner->server;
    fb_pull *pull = calloc(1, sizeof *pull);
    if (!pull) {
        source->release(state);
        response->failed = true;
        return;
    }
    *pull = (fb_pull){.server = server, .source = *source, .state = state, .end = size};
    pull->job = (fb_job){.run = work, .argument = pull};
    pthread_mutex_init(&pull->lock, NULL);
    fb_stream *stream = fb_stream_new(server, &stream_source, pull, size);
    if (!stream) {
        response->failed = true;
        return;
    }
    fb_respond_bytes(response, 200, content_type, "", 0, NULL, NULL);
    fb_response_identity(response);
    fb_response_header(response, "Accept-Ranges", "bytes");
    response->stream = stream;
    response->pull = pull;
}

/* Reads the digits of a position; saturates. False without a digit. */
static bool read_position(const char **text, uint64_t *position) {
    size_t digits = strspn(*text, "0123456789");
    *position = 0;
    for (size_t i = 0; i < digits; i++) {
        uint64_t digit = (uint64_t)((*text)[i] - '0');
        *position = *position > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *position * 10 + digit;
    }
    *text += digits;
    return digits;
}

/* Strong comparison, as RFC 9110 13.1.5 asks for; a date is never one of ours. */
static bool is_if_range_met(const fb_exchange *exchange, const char *tag) {
    const char *wanted = fb_request_header(&exchange->request, "If-Range");
    size_t size = strlen(tag);
    if (!wanted) return true;
    return size && strlen(wanted) == size + 2 && *wanted == '"' && !memcmp(wanted + 1, tag, size) && wanted[size + 1] == '"';
}

/* RFC 9110 14.1.2: what is not well-formed is as if it were not there. */
static fb_byte_range range_asked(const fb_exchange *exchange, const char *tag, uint64_t size, uint64_t *from, uint64_t *to) {
    size_t cursor = 0;
    const char *text = fb_exchange_header(exchange, "Range", &cursor);
    bool is_one = text && !fb_exchange_header(exchange, "Range", &cursor) && !strchr(text, ',');
    if (!is_one || strncasecmp(text, "bytes=", 6) || !is_if_range_met(exchange, tag)) return FB_RANGE_NONE;
    text += 6;
    uint64_t first, last;
    bool has_first = read_position(&text, &first);
    if (*text++ != '-') return FB_RANGE_NONE;
    bool has_last = read_position(&text, &last);
    if (*text || (!has_first && !has_last) || (has_first && has_last && first > last)) return FB_RANGE_NONE;
    if (!has_first) {                            /* the last so many */
        if (last && !size) return FB_RANGE_NONE; /* of nothing: no Content-Range could say that */
        first = last < size ? size - last : 0;
    }
    if (!has_first || !has_last) last = UINT64_MAX;
    if (first >= size) return FB_RANGE_OUTSIDE;
    *from = first;
    *to = last < size ? last + 1 : size;
    return FB_RANGE_PART;
}

void fb_pull_select(fb_exchange *exchange) {
    fb_response *response = &exchange->response;
    fb_pull *pull = response->pull;
    unsigned long long size = pull->end;
    uint64_t from, to;
    fb_byte_range range = exchange->is_head ? FB_RANGE_NONE : range_asked(exchange, response->etag, size, &from, &to);
    if (range == FB_RANGE_OUTSIDE) {
        fb_respond_problem(response, 416, "range-not-satisfiable", "the range is not within the %llu bytes that there are",
                           size);
        fb_response_header_format(response, "Content-Range", "bytes */%llu", size);
    } else if (range == FB_RANGE_PART) {
        response->status = 206;
        fb_response_header_format(response, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)from,
                                  (unsigned long long)to - 1, size);
        pull->position = from;
        pull->end = to;
        fb_stream_resize(response->stream, to - from);
    }
}
