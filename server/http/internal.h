/* Declarations that the files of the HTTP layer share. Routes include http.h only.
 *
 * One fb_http_connection per socket (its deadlines), one fb_exchange per request on it. An exchange belongs to its I/O thread,
 * except between fb_queue_push and MHD_resume_connection, when it belongs to a worker. Data that lives longer or is used by
 * both at once has a lock of its own: exchange.c (a body on its way to a sink), pull.c and stream.c (bodies that are made while
 * they are sent).
 */
#ifndef FB_HTTP_INTERNAL_H
#define FB_HTTP_INTERNAL_H

#include "server/http/http.h"
#include "server/metrics/metrics.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct fb_exchange fb_exchange;
typedef struct fb_http_connection fb_http_connection;
typedef struct fb_intake fb_intake;
typedef struct fb_pull fb_pull;

typedef struct fb_pair {
    const char *name, *value;
} fb_pair;

/* -------------------------------------------------------------------------------------------------- negotiate.c */

bool fb_text_is_utf8(const char *text, size_t size);
/* Cuts the next element of a comma-separated header list (quoted strings respected), trimmed; false at the end. */
bool fb_text_next_element(const char **cursor, const char **element, size_t *size);
/* Quality, 0 … 1000, that one list element asks for ("…;q=0.5"). *value_size becomes the size before the first parameter. */
int fb_text_quality(const char *element, size_t size, size_t *value_size);
/* Is `name` an element of the plain list "a, b, c" (any case)? */
bool fb_text_list_has(const char *list, const char *name, size_t name_size);

/* -------------------------------------------------------------------------------------------------- negotiate.c */

int fb_accepts_type(const fb_exchange *exchange, const char *type, size_t size);
bool fb_accepts_route(const fb_exchange *exchange, const fb_route *route);
/* Where the request's body goes as it comes; NULL = it is held in memory. */
const fb_sink *fb_exchange_sink(const fb_exchange *exchange);
/* True if Content-Type is one that the route takes. */
bool fb_consumes(const fb_route *route, const char *content_type);
bool fb_has_etag(const fb_exchange *exchange, const char *tag);
/* True if If-Match, or else If-Unmodified-Since, holds for the answer. */
bool fb_conditions_hold(const fb_exchange *exchange, const fb_response *now);
/* True if the conditions of a request that changes something hold for the present state; else this has responded. */
bool fb_change_is_wanted(fb_exchange *exchange);
/* True if Prefer (RFC 7240) names this preference, without a value. */
bool fb_prefers(const fb_exchange *exchange, const char *preference);

typedef enum fb_byte_range {
    FB_RANGE_NONE, /* the whole is asked for, or what is asked for is answered with the whole */
    FB_RANGE_PART,
    FB_RANGE_OUTSIDE,
} fb_byte_range;

/* ------------------------------------------------------------------------------------------------------- body.c */

typedef enum fb_coding { FB_CODING_IDENTITY, FB_CODING_GZIP, FB_CODING_ZSTD } fb_coding;

/* Collects a body, decoding as it comes, so that a bomb is stopped at the limit and not after it. */
typedef struct fb_body_reader {
    fb_coding coding;
    uint64_t limit;
    unsigned ratio; /* decoded bytes to encoded ones, at most; 0 = any */
    uint64_t taken; /* encoded bytes */
    fb_buffer bytes;
    void *stream;      /* z_stream or ZSTD_DCtx */
    bool is_frame_end; /* the compressed stream may end here */
} fb_body_reader;

/* *coding of a Content-Encoding value; false when we decode no such coding. */
fb_status fb_body_begin(fb_body_reader *reader, fb_coding coding, uint64_t limit, unsigned ratio, fb_error *error);
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
    char code[64];   /* of the problem, once it has */
    struct {
        char *name, *value;
    } * headers;
    size_t header_count;
    char etag[160];
    int64_t changed_ms; /* when what is answered was changed last; 0 = it never is, or is not known */
    char coding[8];
    fb_stream *stream; /* when the body is one */
    fb_pull *pull;     /* what the stream reads from, when its size is known */
    bool is_identity;
    bool failed; /* memory ran out on the way */
};

/* Drops body, problem and status; keeps the headers. */
void fb_response_clear(fb_response *response);
void fb_response_free(fb_response *response);
/* One that has no answer yet is a 500. */
void fb_response_require(fb_response *response);
/* Renders a problem into bytes and turns failure into 503. After it the response has a status and a body, and a problem its
 * code. */
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
/* Finds exchange->route and fills its parameters; without one *pattern is the path's, with other methods, or NULL. */
void fb_route_find(fb_exchange *exchange, const char **pattern);
/* Without a route, responds (404, 405, OPTIONS) and returns false. */
bool fb_route_require(fb_exchange *exchange, const char *pattern);

/* ------------------------------------------------------------------------------------------------------ guard.c */

/* Headers into exchange->headers, and the checks without which nothing on this connection can be trusted. False: responded, and
 * the connection must be closed. */
bool fb_guard_framing(fb_exchange *exchange, const char *method, const char *version);
/* After the last byte of a body. False: there are trailers; responded. */
bool fb_guard_trailers(fb_exchange *exchange);
/* True if fb_guard_framing knows how this libmicrohttpd parses; other versions are configured to be strict themselves. */
bool fb_guard_sees_lines(void);
/* Checks of a routed request: Accept, Origin, query names, media type, coding, size. False: responded. */
bool fb_guard_request(fb_exchange *exchange);

/* ------------------------------------------------------------------------------------------------------- cors.c */

/* The origin of the page that asks, when it may use the service; else NULL. */
const char *fb_cors_origin(const fb_exchange *exchange);
/* Answers a browser that asks whether such a page may. False: that is not what is asked. */
bool fb_cors_preflight(fb_exchange *exchange);

/* ---------------------------------------------------------------------------------------------- authorise.c, rate.c */

/* Checks the access of a request whose route was looked for: fills request.principal. False: 401, 403 or 429; responded. */
bool fb_access_check(fb_exchange *exchange);
/* True if access would still be granted; for streams. */
bool fb_still_authorised(const fb_exchange *exchange);

typedef struct fb_rates {
    pthread_mutex_t lock;
    struct fb_rate_slot *slots;
    int64_t interval; /* nanoseconds between two requests; 0 = no limit */
    uint64_t seed;
} fb_rates;

fb_status fb_rates_init(fb_rates *rates, unsigned per_second, fb_error *error);
void fb_rates_free(fb_rates *rates);
/* The key of a client's name or address. */
uint64_t fb_rate_key(const fb_rates *rates, const void *bytes, size_t size);
/* 0: it may ask; otherwise in how many nanoseconds. */
int64_t fb_rate_take(fb_rates *rates, uint64_t key, int64_t now);

/* --------------------------------------------------------------------------------------------------- server.c */

/* Something for a worker to do. Lives in what it works on. */
typedef struct fb_job {
    void (*run)(void *argument);
    void *argument;
    bool is_request; /* it starts on a request: counts against the limit. Parts of running transfers do not */
    struct fb_job *next;
} fb_job;

/* First in, first out: a transfer has one job in it at most, so that no number of transfers starves requests. */
typedef struct fb_queue {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    fb_job *head, **tail;
    unsigned depth, limit;  /* requests */
    unsigned pending, idle; /* jobs, requests or not; threads that wait for one */
    bool is_closed;
    pthread_t *threads;
    unsigned thread_count, most_threads;
} fb_queue;

/* False when the queue is closed, or for a request when too many wait. */
bool fb_queue_push(fb_queue *queue, fb_job *job);

/* -------------------------------------------------------------------------------------------------- exchange.c */

typedef enum fb_rejection {
    FB_REJECTED_QUEUE_FULL,
    FB_REJECTED_STOPPING,
    FB_REJECTED_BODY_MEMORY,
    FB_REJECTED_FRAMING,
    FB_REJECTED_DEADLINE,
    FB_REJECTED_STREAMS,
    FB_REJECTED_ADDRESS,
    FB_REJECTED_ACCESS,
    FB_REJECTED_RATE,
    FB_REJECTED_WORK_DEADLINE,
    FB_REJECTED_CLIENT_LEFT,
    FB_REJECTION_COUNT,
} fb_rejection;

typedef enum fb_phase {
    FB_PHASE_HEADERS,    /* the request line is there */
    FB_PHASE_BEGINNING,  /* the sink's `begin` is with a worker, or has returned */
    FB_PHASE_READING,    /* the body goes into the reader, or to the sink */
    FB_PHASE_DISCARDING, /* the answer is known already; the body is dropped */
    FB_PHASE_WORKING,    /* with a worker, or ready and waiting for its I/O thread */
    FB_PHASE_SENDING,
} fb_phase;

/* Moments and durations, in nanoseconds. */
typedef struct fb_exchange_times {
    int64_t queued, begun;      /* when it came to wait for a worker, and when its handler began; 0 = not yet */
    int64_t parse, work, store; /* what the handler spent */
} fb_exchange_times;

struct fb_exchange {
    fb_request request;
    fb_response response;
    fb_http_server *server;
    fb_http_connection *connection;
    struct MHD_Connection *mhd;
    struct MHD_Response *answer; /* made by the worker, queued by the I/O thread */
    fb_stream *stream;           /* the answer's, or NULL */
    fb_pull *pull;               /* the stream's, or NULL */
    fb_intake *intake;           /* when the route has a sink */
    const fb_route *route;       /* NULL until found */
    fb_job job;                  /* the handler's, or the sink's */
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
    char expanded[FB_EXPANDED_MAX][FB_EXPANDED_SIZE]; /* values that shorter ones expand to */
    size_t expanded_count;
    fb_pair *query;
    size_t query_count;
    fb_pair *headers;
    size_t header_count;
    int64_t started;
    fb_exchange_times times;
    int64_t work_deadline; /* 0 = the request is not whole yet */
    fb_watch watch;
    bool is_stopped; /* the watch has said so */
    char id[136];
    char trace[33], parent[17]; /* of traceparent; "" = none */
    char principal[FB_PRINCIPAL_MAX + 1];
};

void *fb_exchange_begin(void *server, const char *target, struct MHD_Connection *mhd);
enum MHD_Result fb_exchange_step(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                                 const char *version, const char *data, size_t *size, void **exchange);
void fb_exchange_end(void *server, struct MHD_Connection *mhd, void **exchange, enum MHD_RequestTerminationCode code);
/* Calls the route's handler, and fb_http_config.explain after a problem. */
void fb_exchange_handle(fb_exchange *exchange);
/* Lets the service replace parameters of the path and the query (fb_http_config.expand); false: it has responded. */
bool fb_exchange_expand(fb_exchange *exchange);
/* After fb_exchange_end: the last thing that is done with it. */
void fb_exchange_free(fb_exchange *exchange);
/* Most bytes that its body may have; UINT64_MAX = any number. */
uint64_t fb_exchange_body_limit(const fb_exchange *exchange);
/* 503 with Retry-After, counted. */
const char *fb_exchange_header(const fb_exchange *exchange, const char *name, size_t *cursor);

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
    uint64_t number; /* no other connection has it */
    uint64_t inode;  /* of the socket */
    int socket;
    fb_waiting waiting;
    bool is_expired;      /* its deadline passed: the socket is shut down, nothing more is done on it */
    atomic_bool has_left; /* while it was with a worker: what is done for it is not waited for any more */
    bool lingers;         /* we close while the client still sends: read on for a moment, or it never sees the answer */
    int64_t deadline;
    int64_t touched;  /* when the client was last heard of */
    bool is_checked;  /* for having left, since then */
    bool is_local;    /* fb_http_connect */
    uint64_t address; /* a key of its rate, and of its place */
    char remote[64];
};

/* How many connections each address has. */
typedef struct fb_places {
    struct fb_place *slots;
    size_t mask;
} fb_places;

/* ------------------------------------------------------------------------------------------------ connection.c */

#define LINGER_MAX 64 /* sockets that are read on for a moment after their connections have ended */

/* All connections, and one thread that ends those whose deadline passes. */
typedef struct fb_reaper {
    pthread_mutex_t lock;
    fb_http_connection *first;                          /* those that libmicrohttpd serves */
    fb_http_connection *expected_first, *expected_last; /* accepted; libmicrohttpd has not begun to serve them */
    uint64_t last_number;
    unsigned count; /* of both, but for those from within the process: compared with connection_limit */
    fb_places places;
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
/* Counts a connection from here on, before libmicrohttpd is given its socket. 0: its address has too many (counted as refused),
 * or memory is out. */
uint64_t fb_connection_expect(fb_http_server *server, int socket, const struct sockaddr *address, bool is_local);
/* libmicrohttpd has refused it, and closed the socket. */
void fb_connection_drop(fb_http_server *server, uint64_t number);
/* MHD_OPTION_NOTIFY_CONNECTION */
void fb_connection_notify(void *server, struct MHD_Connection *mhd, void **connection,
                          enum MHD_ConnectionNotificationCode code);
/* Starts the deadline that goes with `waiting`; `size` = bytes to send for FB_WAITING_SEND. False when the connection has
 * expired in the meantime: nothing may be done on it. */
bool fb_connection_wait(fb_http_server *server, fb_http_connection *connection, fb_waiting waiting, uint64_t size);
/* So many bytes of a body have come (FB_WAITING_BODY), or are to be sent next (FB_WAITING_SEND): the deadline moves on by the
 * time that they may take. So a client may lag behind the minimum rate by body_timeout_ms in all, and what it was faster before
 * is not saved up: one that stops is noticed after that time, however large the body. Otherwise as above. */
bool fb_connection_moved(fb_http_server *server, fb_http_connection *connection, fb_waiting waiting, uint64_t size);
/* Writes a whole answer past MHD, `body` being a small problem in JSON, and shuts the sending side down: for where MHD can no
 * longer answer. */
void fb_connection_send_problem(const fb_http_server *server, int socket, int status, const char *body);

/* --------------------------------------------------------------------------------------------------- stream.c */

typedef struct fb_streams {
    pthread_mutex_t lock;
    fb_stream *first; /* those whose answers are being sent */
    unsigned count;   /* endless ones, and those whose answers will be sent */
    bool is_ending;
    int64_t next_look; /* the reaper thread's own */
} fb_streams;

/* Steals `state`. `size` is what it will give, or FB_SIZE_UNKNOWN; when it says FB_STREAM_END before that, the connection is
 * cut. NULL, and `state` is released, when memory is out. */
fb_stream *fb_stream_new(fb_http_server *server, const fb_stream_source *source, void *state, uint64_t size);
/* Before its answer is made: less of it. */
void fb_stream_resize(fb_stream *stream, uint64_t size);
bool fb_stream_is_endless(const fb_stream *stream);
void fb_stream_free(void *stream);
/* The libmicrohttpd response over it, which then owns it; NULL when memory is out. */
struct MHD_Response *fb_stream_answer(fb_stream *stream, bool is_head);
/* Around the sending of exchange->stream. End gets the number of bytes sent; it also takes a stream that never began. */
void fb_stream_begin(fb_exchange *exchange);
uint64_t fb_stream_end(fb_exchange *exchange);
/* Ends all endless ones, and those that begin later. */
void fb_streams_end(fb_http_server *server);
/* Notices clients that left; for the reaper thread. */
void fb_streams_look_after(fb_http_server *server, int64_t now);

/* ----------------------------------------------------------------------------------------------- pull.c */

/* The size of the parts that an I/O thread and a worker exchange: large enough that waking the other costs little beside it. A
 * transfer holds two. */
#define FB_PART_SIZE ((size_t)1 << 20)

typedef struct fb_part {
    char *bytes;
    size_t size;
} fb_part;

/* Makes the response what Range and its entity tag ask for. */
void fb_pull_select(fb_exchange *exchange);
/* Why it was cut short; false when it was not. */
bool fb_pull_error(fb_pull *pull, fb_error *error);

/* ------------------------------------------------------------------------------------------------- server.c */

typedef struct fb_listener {
    int socket;
    int wake;          /* eventfd: one of the two below has changed, or there is room for a connection again */
    atomic_int handed; /* a socket to be served as if it had been accepted; -1 = none. See probe.c */
    atomic_bool is_stopping;
    pthread_t thread;
    char url[120];
    char path[108]; /* of a socket that is a file; "" when it is not */
    ino_t inode;    /* of that file */
} fb_listener;

fb_status fb_listener_open(fb_listener *listener, const char *address, bool has_tls, fb_error *error);
fb_status fb_listener_start(fb_http_server *server, fb_error *error);
void fb_listener_stop(fb_listener *listener, bool is_running);

/* --------------------------------------------------------------------------------------------- metrics.c */

#define FB_METRIC_BUCKETS 13
#define FB_METRIC_STATUSES 600

typedef struct fb_route_metrics {
    atomic_ullong statuses[FB_METRIC_STATUSES]; /* 0 = the client went away first */
    atomic_ullong buckets[FB_METRIC_BUCKETS + 1];
    atomic_ullong nanoseconds;
} fb_route_metrics;

void fb_metrics_record(fb_exchange *exchange, int status, int64_t nanoseconds);
void fb_metrics_reject(fb_http_server *server, fb_rejection reason);

/* ---------------------------------------------------------------------------------------------------- trace.c */

/* Fills exchange->id, trace and parent. */
void fb_trace_identify(fb_exchange *exchange);
/* Around the handler. End adds Server-Timing to the response. */
void fb_trace_begin_work(fb_exchange *exchange);
void fb_trace_end_work(fb_exchange *exchange);
/* After an answer of that status: says on stderr that the disk is full, once a minute at most. */
void fb_log_full_disk(fb_http_server *server, int status);
/* One JSON object a line. Neither query nor headers are in it: tokens travel there. */
void fb_log_access(const fb_exchange *exchange, int status, uint64_t bytes_out, int64_t nanoseconds);

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
    fb_rates rates;
    atomic_bool is_stopping;
    atomic_bool is_out_of_time; /* to stop: what waits for a worker is refused */
    atomic_ullong body_memory;
    _Atomic int64_t full_disk_said; /* when that was said on stderr, of the monotonic clock; 0 = never */
    pthread_mutex_t flight_lock;
    pthread_cond_t landed;
    unsigned in_flight;
    fb_route_metrics *metrics; /* route_count + 1; the last for what no route took */
    atomic_ullong rejected[FB_REJECTION_COUNT];
};

/* Runs `start` with all signals blocked, so that the new threads never take one. */
int fb_http_thread(pthread_t *thread, void *(*start)(void *), void *argument);

#endif
