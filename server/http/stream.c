/* Bodies that are made while they are sent.
 *
 * libmicrohttpd asks for the next piece when the one before has gone to the socket. When there is none the connection is
 * suspended inside the content reader (0.9.75 allows that; returning 0 without it makes its loop spin), and the thread that has
 * news resumes it. A suspended connection is out of libmicrohttpd's epoll set, so it is not noticed that the client leaves: the
 * reaper thread looks now and then.
 *
 * Locks are taken in this order: a source's own, ours, the reaper's and libmicrohttpd's.
 */
#include "server/http/internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#define BLOCK ((size_t)16 << 10)        /* bytes at a time for HTTP/1.0, which has no chunks */
#define KNOWN_BLOCK ((size_t)256 << 10) /* bytes at a time when the size is known */
#define SEND_BUFFER (64 << 10)          /* the kernel's, so that a client that stops reading does not fill megabytes of it */
#define LOOK_INTERVAL ((int64_t)1000000000)
#define RETRY_AFTER "10"

struct fb_stream {
    fb_http_server *server;
    const fb_stream_source *source;
    void *state;
    uint64_t size;                  /* FB_SIZE_UNKNOWN: it is endless, holds a place, and ends with the server */
    uint64_t sent;                  /* the I/O thread's own */
    fb_http_connection *connection; /* this and mhd: NULL until the answer goes out and after it ended */
    struct MHD_Connection *mhd;
    const fb_exchange *exchange; /* as long as mhd */

    /* under the lock of `streams` */
    fb_stream *previous, *next;
    bool is_suspended, is_woken, has_left;
    bool is_withdrawn; /* what it was granted no longer holds */
};

static unsigned limit_of(const fb_http_config *config) {
    unsigned half = config->connection_limit / 2; /* the rest is for requests */
    return config->stream_limit < half ? config->stream_limit : half;
}

static bool take_place(fb_http_server *server) {
    fb_streams *streams = &server->streams;
    pthread_mutex_lock(&streams->lock);
    bool is_free = streams->count < limit_of(&server->config);
    if (is_free) streams->count++;
    pthread_mutex_unlock(&streams->lock);
    return is_free;
}

static void leave_place(fb_http_server *server) {
    pthread_mutex_lock(&server->streams.lock);
    server->streams.count--;
    pthread_mutex_unlock(&server->streams.lock);
}

fb_stream *fb_stream_new(fb_http_server *server, const fb_stream_source *source, void *state, uint64_t size) {
    fb_stream *stream = calloc(1, sizeof *stream);
    if (stream) *stream = (fb_stream){.server = server, .source = source, .state = state, .size = size};
    else source->release(state);
    return stream;
}

bool fb_stream_is_endless(const fb_stream *stream) {
    return stream->size == FB_SIZE_UNKNOWN;
}

void fb_stream_resize(fb_stream *stream, uint64_t size) {
    stream->size = size;
}

void fb_respond_stream(const fb_request *request, fb_response *response, const char *content_type,
                       const fb_stream_source *source, void *state) {
    fb_http_server *server = request->inner->server;
    if (!take_place(server)) {
        source->release(state);
        fb_respond_problem(response, 503, "too-many-streams", "%u streams are open, more are not allowed",
                           limit_of(&server->config));
        fb_response_header(response, "Retry-After", RETRY_AFTER);
        fb_metrics_reject(server, FB_REJECTED_STREAMS);
        return;
    }
    fb_stream *stream = fb_stream_new(server, source, state, FB_SIZE_UNKNOWN);
    if (!stream) {
        leave_place(server);
        response->failed = true;
        return;
    }
    fb_respond_bytes(response, 200, content_type, "", 0, NULL, NULL);
    fb_response_identity(response);
    response->stream = stream;
}

void fb_stream_free(void *argument) {
    fb_stream *stream = argument;
    if (fb_stream_is_endless(stream)) leave_place(stream->server);
    stream->source->release(stream->state);
    free(stream);
}

/* ---- reading and waking ------------------------------------------------------------------------------------------------- */

/* With the lock. */
static void resume(fb_stream *stream) {
    if (!stream->is_suspended) return;
    stream->is_suspended = false;
    MHD_resume_connection(stream->mhd);
}

void fb_stream_wake(fb_stream *stream) {
    pthread_mutex_lock(&stream->server->streams.lock);
    stream->is_woken = true;
    resume(stream);
    pthread_mutex_unlock(&stream->server->streams.lock);
}

typedef enum outcome { AGAIN, WAIT, SEND, END, ABORT } outcome;

/* Tells the reaper what is waited for now; false when the client is gone. */
static bool wait_for(const fb_stream *stream, bool is_end, size_t given) {
    if (!is_end && given && !fb_stream_is_endless(stream))
        return fb_connection_moved(stream->server, stream->connection, FB_WAITING_SEND, given);
    fb_waiting waiting = is_end ? FB_WAITING_END : given ? FB_WAITING_SEND : FB_WAITING_WORK;
    return fb_connection_wait(stream->server, stream->connection, waiting, given);
}

/* Decides what follows after the source gave `given` bytes. A wake between its answer and the suspension must not be lost. */
static outcome settle(fb_stream *stream, size_t given) {
    fb_streams *streams = &stream->server->streams;
    pthread_mutex_lock(&streams->lock);
    bool is_ending = streams->is_ending || stream->is_withdrawn;
    bool is_end = given == FB_STREAM_END || (is_ending && fb_stream_is_endless(stream));
    bool is_alive = wait_for(stream, is_end, given) && !stream->has_left;
    outcome next = !is_alive ? ABORT : is_end ? END : given ? SEND : stream->is_woken ? AGAIN : WAIT;
    stream->is_woken = false;
    if (next == WAIT) {
        MHD_suspend_connection(stream->mhd);
        stream->is_suspended = true;
    }
    pthread_mutex_unlock(&streams->lock);
    return next;
}

/* MHD_ContentReaderCallback */
static ssize_t read_stream(void *argument, uint64_t position, char *to, size_t size) {
    (void)position;
    fb_stream *stream = argument;
    for (;;) {
        size_t given = stream->source->read(stream->state, stream, to, size);
        switch (settle(stream, given)) {
        case AGAIN: continue;
        case WAIT: return 0;
        case SEND: stream->sent += given; return (ssize_t)given;
        case END:
            if (fb_stream_is_endless(stream)) return MHD_CONTENT_READER_END_OF_STREAM;
            return MHD_CONTENT_READER_END_WITH_ERROR; /* too early */
        case ABORT: return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    }
}

struct MHD_Response *fb_stream_answer(fb_stream *stream, bool is_head) {
    bool is_endless = fb_stream_is_endless(stream);
    size_t block = is_endless ? BLOCK : stream->size < KNOWN_BLOCK ? (size_t)stream->size : KNOWN_BLOCK;
    struct MHD_Response *answer = MHD_create_response_from_callback(is_endless ? MHD_SIZE_UNKNOWN : stream->size,
                                                                    block ? block : 1, read_stream, stream, fb_stream_free);
    /* Otherwise 0.9.75 says that the answer to HEAD is chunked, and sends the last chunk. */
    if (answer && is_head && is_endless) MHD_set_response_options(answer, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    return answer;
}

/* ---- begin and end ------------------------------------------------------------------------------------------------------ */

void fb_stream_begin(fb_exchange *exchange) {
    fb_stream *stream = exchange->stream;
    fb_streams *streams = &exchange->server->streams;
    if (fb_stream_is_endless(stream)) {
        int socket = exchange->connection->socket, size = SEND_BUFFER;
        unsigned patience = exchange->server->config.body_timeout_ms; /* for a client whose machine is gone without a word */
        setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
    }
    pthread_mutex_lock(&streams->lock);
    stream->mhd = exchange->mhd;
    stream->exchange = exchange;
    stream->connection = exchange->connection;
    stream->next = streams->first;
    if (stream->next) stream->next->previous = stream;
    streams->first = stream;
    pthread_mutex_unlock(&streams->lock);
}

uint64_t fb_stream_end(fb_exchange *exchange) {
    fb_stream *stream = exchange->stream;
    fb_streams *streams = &exchange->server->streams;
    pthread_mutex_lock(&streams->lock);
    if (stream->mhd) {
        if (stream->previous) stream->previous->next = stream->next;
        else streams->first = stream->next;
        if (stream->next) stream->next->previous = stream->previous;
        stream->mhd = NULL;
        stream->connection = NULL;
    }
    pthread_mutex_unlock(&streams->lock);
    return stream->sent;
}

void fb_streams_end(fb_http_server *server) {
    fb_streams *streams = &server->streams;
    pthread_mutex_lock(&streams->lock);
    streams->is_ending = true;
    for (fb_stream *stream = streams->first; stream; stream = stream->next) {
        if (!fb_stream_is_endless(stream)) continue;
        fb_connection_wait(server, stream->connection, FB_WAITING_END, 0); /* for those whose clients do not read */
        resume(stream);
    }
    pthread_mutex_unlock(&streams->lock);
}

/* Also when it sent something before it left that is not read. */
static bool has_left(const fb_stream *stream) {
    struct pollfd wait = {.fd = stream->connection->socket, .events = POLLRDHUP};
    return poll(&wait, 1, 0) > 0;
}

void fb_streams_look_after(fb_http_server *server, int64_t now) {
    fb_streams *streams = &server->streams;
    if (now < streams->next_look) return;
    streams->next_look = now + LOOK_INTERVAL;
    pthread_mutex_lock(&streams->lock);
    for (fb_stream *stream = streams->first; stream; stream = stream->next) {
        stream->is_withdrawn = fb_stream_is_endless(stream) && !fb_still_authorised(stream->exchange);
        if (!stream->is_suspended) continue;
        stream->has_left = has_left(stream);
        if (stream->is_withdrawn || stream->has_left) resume(stream);
    }
    pthread_mutex_unlock(&streams->lock);
}
