/* What the files of the HTTP layer share. Routes include http.h only.
 *
 * One fb_http_connection per socket (its deadlines), one fb_exchange per request on it. An exchange belongs to its I/O thread,
 * except between fb_queue_push and MHD_resume_connection, when it belongs to a worker.
 */
#ifndef FB_HTTP_INTERNAL_H
#define FB_HTTP_INTERNAL_H

#include "server/http/http.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct fb_exchange fb_exchange;
typedef struct fb_http_connection fb_http_connection;

typedef struct fb_pair {
    const char *name, *value;
} fb_pair;

int64_t fb_http_now(void); /* nanoseconds, monotonic */

/* ------------------------------------------------------------------------------------------------------- text.c */

bool fb_text_is_utf8(const char *text, size_t size);
bool fb_text_is_token(const char *text, size_t size); /* RFC 9110 token */
/* Decodes %XX (and '+' when `plus`) in place and terminates; false on malformed escapes, control characters, invalid UTF-8,
 * and, when `is_segment`, on an encoded slash. text[size] must be writable. */
bool fb_text_decode(char *text, size_t size, bool plus, bool is_segment);
/* Cuts the next element of a comma-separated header list (quoted strings respected), trimmed; false at the end. */
bool fb_text_next_element(const char **cursor, const char **element, size_t *size);
/* Quality, 0 … 1000, that one list element asks for ("…;q=0.5"). *value_size becomes the size before the first parameter. */
int fb_text_quality(const char *element, size_t size, size_t *value_size);
/* Is `name` an element of the plain list "a, b, c" (any case)? */
bool fb_text_list_has(const char *list, const char *name, size_t name_size);

/* -------------------------------------------------------------------------------------------------- negotiate.c */

int fb_accepts_type(const fb_exchange *exchange, const char *type, size_t size);
bool fb_accepts_coding(const fb_exchange *exchange, const char *coding, bool explicitly);
bool fb_accepts_route(const fb_exchange *exchange, const fb_route *route);
/* Whether Content-Type is one that the route takes. */
bool fb_consumes(const fb_route *route, const char *content_type);
bool fb_has_etag(const fb_exchange *exchange, const char *tag);

/* ------------------------------------------------------------------------------------------------------- body.c */

typedef enum fb_coding { FB_CODING_IDENTITY, FB_CODING_GZIP, FB_CODING_ZSTD } fb_coding;

/* Collects a body, decoding as it comes, so that a bomb is stopped at the limit and not after it. */
typedef struct fb_body_reader {
    fb_coding coding;
    uint64_t limit;
    fb_buffer bytes;
    void *stream;      /* z_stream or ZSTD_DCtx */
    bool is_frame_end; /* the compressed stream may end here */
} fb_body_reader;

/* *coding of a Content-Encoding value; false when it is none that we decode. */
bool fb_coding_parse(const char *value, fb_coding *coding);
fb_status fb_body_begin(fb_body_reader *reader, fb_coding coding, uint64_t limit, fb_error *error);
fb_status fb_body_feed(fb_body_reader *reader, const char *bytes, size_t size, fb_error *error);
fb_status fb_body_end(fb_body_reader *reader, fb_error *error);
void fb_body_free(fb_body_reader *reader);
/* Compresses; false when memory is out or it does not get smaller. `out` is the caller's to free. */
bool fb_body_compress(fb_coding coding, const char *bytes, size_t size, fb_buffer *out);

/* ----------------------------------------------------------------------------------------- response.c, problem.c */

struct fb_response {
    int status;
    char content_type[96];
    const char *bytes;
    size_t size;
    void (*release)(void *owner);
    void *owner;
    json_t *problem; /* when it is one; becomes the bytes at the end */
    struct {
        char *name, *value;
    } * headers;
    size_t header_count;
    char etag[160];
    char coding[8];
    fb_stream *stream; /* when the body is one */
    bool is_identity;
    bool failed; /* memory ran out on the way */
};

/* Drops body, problem and status; keeps the headers. */
void fb_response_clear(fb_response *response);
void fb_response_free(fb_response *response);
/* Renders a problem into bytes and turns failure into 503. After it the response has a status and a body. */
void fb_response_settle(fb_response *response);
/* Makes the MHD response: 304, compression, standard headers. NULL when memory is out. */
struct MHD_Response *fb_response_finish(fb_exchange *exchange);

/* ----------------------------------------------------------------------------------------------------- target.c */

/* Splits and decodes exchange->target into path segments and query pairs; on failure responds and returns false. */
bool fb_target_parse(fb_exchange *exchange);
/* As fb_request_query_…, by the exchange. */

#define FB_SEGMENTS_MAX 24

/* ----------------------------------------------------------------------------------------------------- router.c */

bool fb_route_check(const fb_route *route, fb_error *error);
/* Finds exchange->route and fills its parameters; otherwise responds (404, 405, OPTIONS) and returns false. */
bool fb_route_find(fb_exchange *exchange);

/* ------------------------------------------------------------------------------------------------------ guard.c */

/* Headers into exchange->headers, and the checks without which nothing on this connection can be trusted. False: responded, and
 * the connection must be closed. */
bool fb_guard_framing(fb_exchange *exchange, const char *version);
/* Checks of a routed request: Accept, Origin, query names, media type, coding, size. False: responded. */
bool fb_guard_request(fb_exchange *exchange);

/* --------------------------------------------------------------------------------------------------- exchange.c */

typedef enum fb_phase {
    FB_PHASE_HEADERS,    /* the request line is there */
    FB_PHASE_READING,    /* the body goes into the reader */
    FB_PHASE_DISCARDING, /* the answer is known already; the body is dropped */
    FB_PHASE_WORKING,    /* with a worker, or ready and waiting for its I/O thread */
    FB_PHASE_SENDING,
} fb_phase;

struct fb_exchange {
    fb_request request;
    fb_response response;
    fb_http_server *server;
    fb_http_connection *connection;
    struct MHD_Connection *mhd;
    struct MHD_Response *answer; /* made by the worker, queued by the I/O thread */
    fb_stream *stream;           /* the answer's, or NULL */
    const fb_route *route;       /* NULL until found */
    fb_exchange *next;           /* in the queue */
    fb_phase phase;
    bool is_head, is_counted, is_chunked, expects_continue, must_close;
    uint64_t content_length; /* 0 when chunked or absent */
    uint64_t received;       /* body bytes as they came */
    uint64_t discarded;
    size_t body_memory; /* counted in the server's body_memory */
    fb_body_reader reader;
    char *target;  /* as sent */
    char *decoded; /* a copy, cut and decoded in place: segments, query names and values point into it */
    char *path;    /* the path as sent */
    const char *segments[FB_SEGMENTS_MAX];
    size_t segment_count;
    fb_pair parameters[FB_ROUTE_PARAMS];
    fb_pair *query;
    size_t query_count;
    fb_pair *headers;
    size_t header_count;
    int64_t started;
    char id[136];
};

void *fb_exchange_begin(void *server, const char *target, struct MHD_Connection *mhd);
enum MHD_Result fb_exchange_step(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                                 const char *version, const char *data, size_t *size, void **exchange);
void fb_exchange_end(void *server, struct MHD_Connection *mhd, void **exchange, enum MHD_RequestTerminationCode code);
/* Runs the handler and makes the answer. */
void fb_exchange_work(fb_exchange *exchange);
const char *fb_exchange_header(const fb_exchange *exchange, const char *name, size_t *cursor);

/* --------------------------------------------------------------------------------------------------- workers.c */

typedef struct fb_queue {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    fb_exchange *head, **tail;
    unsigned depth, limit;
    bool is_closed;
    pthread_t *threads;
    unsigned thread_count;
} fb_queue;

fb_status fb_queue_start(fb_queue *queue, unsigned threads, unsigned limit, fb_error *error);
/* Suspends the exchange's connection and queues it; false when the queue is full or closed (then it is not suspended). */
bool fb_queue_push(fb_queue *queue, fb_exchange *exchange);
/* Answers what still waits with 503. */
void fb_queue_refuse_waiting(fb_queue *queue);
/* Takes no more, waits for the running handlers. */
void fb_queue_stop(fb_queue *queue);

/* ------------------------------------------------------------------------------------------------ connection.c */

typedef enum fb_waiting {
    FB_WAITING_HEADERS, /* the first request of a connection, or one whose request line has come */
    FB_WAITING_IDLE,    /* kept alive, nothing of the next request known */
    FB_WAITING_BODY,
    FB_WAITING_WORK, /* on us: no deadline */
    FB_WAITING_SEND,
    FB_WAITING_END, /* of a stream */
} fb_waiting;

struct fb_http_connection {
    fb_http_connection *previous, *next;
    int socket;
    fb_waiting waiting;
    bool is_expired; /* its deadline passed: the socket is shut down, nothing more is done on it */
    bool lingers;    /* we close while the client still sends: read on for a moment, or it never sees the answer */
    int64_t deadline;
    int64_t since;     /* when the body began */
    int64_t touched;   /* when the client was last heard of */
    bool is_checked;   /* for having left, since then */
    uint64_t received; /* of the body */
    char remote[64];
};

/* Deadlines of all connections, one thread. */
typedef struct fb_reaper {
    pthread_mutex_t lock;
    fb_http_connection *first;
    unsigned count;
    int wake; /* eventfd */
    bool is_stopping;
    pthread_t thread;
    int64_t tick;
    struct fb_linger *lingering;
    unsigned lingering_count;
} fb_reaper;

fb_status fb_reaper_start(fb_http_server *server, fb_error *error);
void fb_reaper_stop(fb_http_server *server);
void fb_reaper_shut_all(fb_http_server *server);
/* MHD_OPTION_NOTIFY_CONNECTION */
void fb_connection_notify(void *server, struct MHD_Connection *mhd, void **connection,
                          enum MHD_ConnectionNotificationCode code);
/* Starts the deadline that goes with `waiting`; `size` = bytes to send for FB_WAITING_SEND. False when the connection has
 * expired in the meantime: nothing may be done on it. */
bool fb_connection_wait(fb_http_server *server, fb_http_connection *connection, fb_waiting waiting, uint64_t size);
bool fb_connection_received(fb_http_server *server, fb_http_connection *connection, uint64_t size);
/* Writes a whole small problem answer past MHD and shuts the sending side down: for where MHD can no longer answer. */
void fb_connection_send_problem(int socket, int status, const char *code, const char *detail);

/* --------------------------------------------------------------------------------------------------- stream.c */

typedef struct fb_streams {
    pthread_mutex_t lock;
    fb_stream *first; /* those whose answers are being sent */
    unsigned count;   /* and those whose will be */
    bool is_ending;
    int64_t next_look; /* the reaper thread's own */
} fb_streams;

void fb_stream_free(void *stream);
/* The libmicrohttpd response over it, which then owns it; NULL when memory is out. */
struct MHD_Response *fb_stream_answer(fb_stream *stream, bool is_head);
/* Around the sending of exchange->stream. End tells the bytes sent; it also takes a stream that never began. */
void fb_stream_begin(fb_exchange *exchange);
uint64_t fb_stream_end(fb_exchange *exchange);
/* Ends all of them, and those that begin later. */
void fb_streams_end(fb_http_server *server);
/* Notices clients that left; for the reaper thread. */
void fb_streams_look_after(fb_http_server *server, int64_t now);

/* ------------------------------------------------------------------------------------------------- listener.c */

typedef struct fb_listener {
    int socket;
    int wake; /* eventfd */
    pthread_t thread;
    char url[80];
} fb_listener;

fb_status fb_listener_open(fb_listener *listener, const char *address, fb_error *error);
fb_status fb_listener_start(fb_http_server *server, fb_error *error);
void fb_listener_stop(fb_listener *listener, bool is_running);

/* --------------------------------------------------------------------------------------------- metrics.c, log.c */

#define FB_METRIC_BUCKETS 13
#define FB_METRIC_STATUSES 600

typedef struct fb_route_metrics {
    atomic_ullong statuses[FB_METRIC_STATUSES]; /* 0 = the client went away first */
    atomic_ullong buckets[FB_METRIC_BUCKETS + 1];
    atomic_ullong nanoseconds;
} fb_route_metrics;

typedef enum fb_rejection {
    FB_REJECTED_QUEUE_FULL,
    FB_REJECTED_STOPPING,
    FB_REJECTED_BODY_MEMORY,
    FB_REJECTED_FRAMING,
    FB_REJECTED_DEADLINE,
    FB_REJECTED_STREAMS,
    FB_REJECTION_COUNT,
} fb_rejection;

void fb_metrics_record(fb_exchange *exchange, int status, int64_t nanoseconds);
void fb_metrics_reject(fb_http_server *server, fb_rejection reason);
void fb_log_request(const fb_exchange *exchange, int status, uint64_t bytes_out, int64_t nanoseconds);

/* -------------------------------------------------------------------------------------------------- server.c */

struct fb_http_server {
    fb_http_config config;
    const fb_route *routes;
    size_t route_count;
    void *context;
    struct MHD_Daemon *daemon;
    fb_listener listener;
    fb_queue queue;
    fb_reaper reaper;
    fb_streams streams;
    atomic_bool is_stopping;
    atomic_ullong body_memory;
    pthread_mutex_t flight_lock;
    pthread_cond_t landed;
    unsigned in_flight;
    fb_route_metrics *metrics; /* route_count + 1; the last for what no route took */
    atomic_ullong rejected[FB_REJECTION_COUNT];
};

/* Runs `start` with all signals blocked, so that the new threads never take one. */
int fb_http_thread(pthread_t *thread, void *(*start)(void *), void *argument);

#endif
