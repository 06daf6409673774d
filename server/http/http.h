/* The HTTP layer: the only header that routes and main include.
 *
 *     socket ── libmicrohttpd's I/O threads ── guards ── router ── body (decoded, in memory)
 *                                                                     │ bounded queue
 *     socket ── I/O thread ◄── fb_response ◄── handler on a worker ◄──┘
 *
 * A handler is a plain function that may block (it runs on a worker thread, never on an I/O thread):
 *
 *     static void get_graph(const fb_request *request, fb_response *response) {
 *         const char *id = fb_request_param(request, "id");
 *         …
 *         if (status) return fb_respond_error(response, &error);
 *         fb_response_etag(response, id);
 *         fb_respond_bytes(response, 200, "application/json", document, size, document_release, reference);
 *     }
 *
 *     static const fb_route graph_routes[] = {
 *         {.method = "GET", .pattern = "/v1/graphs/{id}", .handler = get_graph},
 *         {.method = "POST", .pattern = "/v1/graphs", .handler = post_graph, .body = FB_BODY_REQUIRED},
 *     };
 *
 * Done for every request before its handler sees it: framing guards, deadlines, limits, path and query decoding, 404, 405 with
 * Allow, HEAD (a GET without the body), OPTIONS, 406, 415, 413, writes by pages of another origin (403), gzip and zstd bodies.
 * Afterwards: If-None-Match, compression, security headers, access log, metrics.
 */
#ifndef FB_HTTP_H
#define FB_HTTP_H

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "core/base/work.h"

#include <jansson.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The response; see "response" below. */
typedef struct fb_response fb_response;

/* ------------------------------------------------------------------------------------------------------------- request */

/* One request, as a handler sees it. Everything in it, and every string that the functions below return, is valid until the
 * handler returns; with a sink until that or its `abandon` does, but headers and media type only while `begin` or the handler
 * runs. The strings are UTF-8 without NUL inside. */
typedef struct fb_request {
    const char *method;       /* "GET", also when the client sent HEAD */
    bool is_head;             /* the client sent HEAD */
    const char *path;         /* as sent, still percent-encoded, without the query: "/v1/graphs/sha256:ab…" */
    const char *id;           /* for logs and traces: the client's X-Request-Id or trace id when sane, else random hex */
    const char *content_type; /* as sent, "" when there was none */
    const char *principal;    /* who asks: the name of its token; FB_ANONYMOUS without one; FB_LOCAL from within the process */
    const char *job;          /* what it is a part of, and within that job no other request has; NULL = it was asked for now */
    const char *body;         /* decompressed, followed by a NUL (not counted); never NULL */
    size_t body_size;
    void *body_state;          /* the state of the route's sink, which got body_size bytes; NULL without one */
    void *context;             /* what fb_http_start was given: the application */
    struct fb_exchange *inner; /* the layer's own */
} fb_request;

/* Path and query, as sent. */
const char *fb_request_target(const fb_request *request);

/* The decoded path parameter `name` of the route's pattern; never NULL for a name that the pattern has, and never empty. */
const char *fb_request_param(const fb_request *request, const char *name);

/* Appends the decoded rest of the path from the parameter `name` on, of a route that takes_rest. */
void fb_request_rest(const fb_request *request, const char *name, fb_buffer *out);
/* Is the body's media type one of a comma-separated list? */
bool fb_request_has_type(const fb_request *request, const char *types);

/* The first value of the query parameter `name`, decoded ('+' is a space); "" for `?name` and `?name=`; NULL when absent. */
const char *fb_request_query(const fb_request *request, const char *name);
/* All values of a repeated parameter, in order: start with *cursor = 0 and call until NULL comes back. */
const char *fb_request_query_next(const fb_request *request, const char *name, size_t *cursor);
/* The query as a list of pairs, in the order sent: for checks over all of it. */
size_t fb_request_query_count(const fb_request *request);
const char *fb_request_query_name(const fb_request *request, size_t index);
const char *fb_request_query_value(const fb_request *request, size_t index);
/* An integer query parameter: `absent` when it is not given. When it is given twice, is not an integer or is out of [minimum,
 * maximum] this responds with a 422 problem and returns false, and the handler returns. */
bool fb_request_query_int(const fb_request *request, fb_response *response, const char *name, int64_t minimum, int64_t maximum,
                          int64_t absent, int64_t *value);
/* A boolean query parameter: true, 1 or nothing after the name; false or 0; `absent` when it is not given. Otherwise as above.
 */
bool fb_request_query_bool(const fb_request *request, fb_response *response, const char *name, bool absent, bool *value);

/* The body is not read any more: its memory is free for what is made of it. `request` still says what it was. */
void fb_request_forget_body(const fb_request *request);

/* The first header of that name (any case), or NULL. */
const char *fb_request_header(const fb_request *request, const char *name);

/* Reads a list of entity tags (RFC 9110, 8.8.3); false when it is not such a list. *is_there: a strong one of them is `tag`. */
bool fb_tags_have(const char *list, const char *tag, bool *is_there);

/* How much the client's Accept wants `media_type` (lower case, without parameters): 0 = not at all … 1000. 1000 without Accept.
 */
int fb_request_accepts(const fb_request *request, const char *media_type);
/* True if If-None-Match names this entity tag (without its quotes): then the handler may call fb_respond_not_modified and need
 * not make the body. Calling only fb_response_etag is right too, but costs the body. */
bool fb_request_has_etag(const fb_request *request, const char *tag);

/* ------------------------------------------------------------------------------------------------------------ response */

/* A handler calls one fb_respond_… function (the last call wins) and any number of fb_response_… and
 * fb_problem_… functions. Running out of memory inside any of them is remembered, and 503 is sent instead: handlers need not
 * check. */

/* No body: 204. */
void fb_respond_empty(fb_response *response, int status);
/* 304 with the tag; `content_type` is the 200's, which says whether it could be compressed (Vary). libmicrohttpd sends
 * `Content-Length: 0`, which clients pass over; with fb_response_etag alone it is the length of the 200. */
void fb_respond_not_modified(fb_response *response, const char *content_type, const char *tag);
/* Steals the buffer's bytes; `buffer` is empty afterwards. */
void fb_respond_buffer_take(fb_response *response, int status, const char *content_type, fb_buffer *buffer);
/* Copies. */
void fb_respond_copy(fb_response *response, int status, const char *content_type, const void *bytes, size_t size);
/* Borrows: `release(owner)` is called exactly once when the bytes are no longer needed (from any thread, also when sending
 * fails). `release` may be NULL for bytes that live as long as the process. `content_type` is copied. */
void fb_respond_bytes(fb_response *response, int status, const char *content_type, const void *bytes, size_t size,
                      void (*release)(void *owner), void *owner);
/* Compact JSON, members in insertion order. Steals the reference to `value` (NULL counts as out of memory, so that
 * `fb_respond_json_take(response, 200, json_pack(…))` needs no check). */
void fb_respond_json_take(fb_response *response, int status, json_t *value);
/* JSON that the caller has written itself; as fb_respond_buffer_take with application/json. */
void fb_respond_json_buffer_take(fb_response *response, int status, fb_buffer *buffer);

/* RFC 9457 application/problem+json: {"type": "/problems/<code>", "title", "status", "detail", "code", …}. `code` is lower-case
 * words joined by hyphens ("unknown-pass"); the title is made from it ("Unknown pass"). `detail` is printf-like. */
void fb_respond_problem(fb_response *response, int status, const char *code, const char *detail, ...)
    __attribute__((format(printf, 4, 5)));
/* These add to the problem set before (they do nothing when the response is not a problem). A member that exists is replaced.
 */
void fb_problem_pointer(fb_response *response, const char *pointer);
void fb_problem_node(fb_response *response, const char *node);                       /* appends to "nodes" */
void fb_problem_member_take(fb_response *response, const char *name, json_t *value); /* "conflicts", "passes", "rollback" … */
/* The problem's members (borrowed); NULL when the response is not a problem. */
const json_t *fb_problem_members(const fb_response *response);

/* The problem for an error, by its status: FB_SYNTAX 400, FB_INVALID 422, FB_TOO_LARGE 413, FB_NOT_FOUND 404, FB_CONFLICT 409,
 * FB_NO_SPACE 507, FB_BUSY and FB_NO_MEMORY 503 with Retry-After, FB_IO 500. Its code, message, pointer and node go along. */
void fb_respond_error(fb_response *response, const fb_error *error);
/* The same of memory that is out; false. */
bool fb_respond_no_memory(fb_response *response);
/* As fb_respond_error, with `prefix` ("/graph") put before the error's pointer: for a document inside a request. */
void fb_respond_error_at(fb_response *response, const char *prefix, const fb_error *error);
/* 422 with "errors": [{"pointer", "code", "detail", "node"?}, …]; the first one's code, message and pointer on top; "total"
 * when more were found than kept. `prefix` as above, "" for none. An out-of-memory list gives 503. */
void fb_respond_errors(fb_response *response, const char *prefix, const fb_errors *errors);

/* 412 precondition-failed. */
void fb_respond_condition_failed(fb_response *response);

/* Adds a header ("Location", "Link"). Names and values are the caller's: the value must not hold control characters (one that
 * does is left out). A header of the same name is replaced, except Link, which may repeat. */
void fb_response_header(fb_response *response, const char *name, const char *value);
void fb_response_header_format(fb_response *response, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets ETag: "<tag>" (tag without quotes, no '"' in it). When the request is a GET or HEAD, the status 200 and If-None-Match
 * names the tag, 304 without a body is sent instead. A 200 with an ETag gets `Cache-Control: no-cache` (keep, but ask) unless
 * fb_response_header said otherwise; other responses get no-store. */
void fb_response_etag(fb_response *response, const char *tag);
/* When what is answered with 200 was changed last (ms since 1970), for If-Unmodified-Since. To be safe, what was changed within
 * the second of that header was changed since. */
void fb_response_changed(fb_response *response, int64_t at);
/* Never compress this body (already compressed, or tiny on purpose). */
void fb_response_identity(fb_response *response);

/* The status set so far, 0 when none. */
int fb_response_status(const fb_response *response);

/* ---------------------------------------------------------------------------------------------------- body on demand */

/* A body of known size that is made a part at a time while it is sent, however large: files, weights. Parts are made ahead by
 * workers, a few at once; a slow client holds none of them. */
typedef struct fb_pull_source {
    /* Writes bytes offset … offset + size of the body to `to`: 1 MiB, less only at the end. On a worker, never twice at once,
     * in order from where the body or the range begins. On failure the connection is cut, so that the client sees it; the
     * error goes to the access log. */
    fb_status (*read)(void *state, uint64_t offset, void *to, size_t size, fb_error *error);
    /* Called exactly once, from any thread, when nothing more is needed. */
    void (*release)(void *state);
} fb_pull_source;

/* Answers 200 with it, or to a GET with one satisfiable Range (and an If-Range that is the ETag, when there is one) 206 with
 * that part; 416 with Content-Range when none is. Several ranges are answered with the whole. Sends Accept-Ranges and
 * Content-Length; never compressed. Steals `state`. For HEAD, 304 and 416 `read` is never called. ETag: fb_response_etag,
 * before or after. */
void fb_respond_pulled(const fb_request *request, fb_response *response, const char *content_type, uint64_t size,
                       const fb_pull_source *source, void *state);

/* -------------------------------------------------------------------------------------------------------------- stream */

/* A body that is made while it is sent and whose end is not known: server-sent events. It holds no worker and has no deadline
 * as long as the client reads; it ends when the service stops. */
typedef struct fb_stream fb_stream;

#define FB_STREAM_END SIZE_MAX

typedef struct fb_stream_source {
    /* Copies the next bytes, `size` at most, to `to` and returns how many. 0: there are none now; it is asked again after
     * fb_stream_wake(stream). FB_STREAM_END: that was all. Called on an I/O thread, never twice at once; it must not block. */
    size_t (*read)(void *state, fb_stream *stream, char *to, size_t size);
    /* Called exactly once, from any thread: it is over, for any reason. When it has returned the stream must not be woken any
     * more. */
    void (*release)(void *state);
} fb_stream_source;

/* Answers 200 with a stream, never compressed. Steals `state`. When too many are open (fb_http_config.stream_limit) this
 * responds with 503 "too-many-streams" instead. For HEAD `read` is never called. */
void fb_respond_stream(const fb_request *request, fb_response *response, const char *content_type,
                       const fb_stream_source *source, void *state);
/* There is something to read again. From any thread, for a stream that `read` was given. */
void fb_stream_wake(fb_stream *stream);

/* -------------------------------------------------------------------------------------------------------------- routes */

typedef void fb_handler(const fb_request *request, fb_response *response);

typedef enum fb_body {
    FB_BODY_NONE = 0, /* a body is refused (400 unexpected-body); Content-Length: 0 is fine */
    FB_BODY_OPTIONAL, /* a route that takes only JSON treats the body `null` as absent */
    FB_BODY_REQUIRED, /* an empty body is 400 missing-body */
} fb_body;

/* Scopes of requests. */
typedef enum fb_scope {
    FB_SCOPE_NONE, /* needs nothing: for probes, and for what says how to use the service */
    FB_SCOPE_READ,
    FB_SCOPE_WRITE,
    FB_SCOPE_HOOKS, /* manages webhooks, and reads */
    FB_SCOPE_ADMIN,
} fb_scope;

/* True if a token of scope `has` may do what needs `needed`: each scope includes those before it, but hooks and write do not
 * include each other. */
static inline bool fb_scope_covers(fb_scope has, fb_scope needed) {
    return has >= needed && (has != FB_SCOPE_HOOKS || needed != FB_SCOPE_WRITE);
}

/* True if the request's token has this scope, where only a part of what a route does needs it; otherwise this responds. */
bool fb_request_may(const fb_request *request, fb_scope scope);

/* Principals that no token is called. */
#define FB_ANONYMOUS "anonymous" /* where no tokens are needed */
#define FB_LOCAL "local"         /* fb_http_connect */

#define FB_PRINCIPAL_MAX 200

typedef enum fb_grant {
    FB_GRANTED,
    FB_TOKEN_MISSING, /* 401 token-required */
    FB_TOKEN_UNKNOWN,
    FB_TOKEN_EXPIRED,
    FB_TOKEN_REVOKED,   /* 401 token-invalid */
    FB_SCOPE_TOO_SMALL, /* 403 scope-too-small */
    FB_NOT_DECIDED,     /* 503 out-of-memory */
} fb_grant;

/* Decides on access. The context is the handlers'. Called on I/O threads: they must not block. */
typedef struct fb_doorkeeper {
    /* For each request of a route that needs a scope, unless it comes from within the process. `token` NULL: there was none.
     * When it is known who asks, granted or not, its name is written to `principal`, which is FB_ANONYMOUS before. */
    fb_grant (*admit)(void *context, const char *token, fb_scope needed, char principal[FB_PRINCIPAL_MAX + 1]);
    /* Now and then, for a stream that was granted: whether it may go on. */
    bool (*still_admits)(void *context, const char *principal, fb_scope needed);
    /* True if every client may do everything now, because no tokens exist. Then Host must be one of those below. */
    bool (*admits_all)(void *context);
} fb_doorkeeper;

/* Where the body of a request goes as it comes, when it is not to be held in memory: a file. All functions run on workers, one
 * at a time for a request, in order; the I/O thread reads on meanwhile, into a second buffer of 1 MiB at most. */
typedef struct fb_sink {
    /* Before the first byte, and before a client that waits for 100-continue may go on: the request has everything but its
     * body. `size` is the Content-Length, or FB_SIZE_UNKNOWN. False: it has responded, and the body is refused. */
    bool (*begin)(const fb_request *request, fb_response *response, uint64_t size, void **state);
    /* The next bytes: 1 MiB, less only at the end. False: it has responded, the rest is refused, and `abandon` is called. */
    bool (*write)(void *state, const char *bytes, size_t size, fb_response *response);
    /* The handler will not be called: the client left or sent less than it said (what came, but for the last few KiB, has been
     * written first), the body is too large, write failed, or the server stops. Exactly once after a `begin` that returned
     * true, and before the error is answered, unless so much of the body is left that the answer does not wait for its end. Not
     * when the handler is called, whose request->body_state is then its to end. */
    void (*abandon)(void *state);
} fb_sink;

#define FB_SIZE_UNKNOWN UINT64_MAX

/* One row of a const table. */
typedef struct fb_route {
    const char *method;  /* "GET" (HEAD comes with it), "POST", "PUT", "PATCH", "DELETE" */
    const char *pattern; /* "/v1/graphs/{id}/code"; a literal segment beats a parameter; at most FB_ROUTE_PARAMS parameters */
    fb_handler *handler;
    fb_scope scope; /* what asking for it needs */
    fb_body body;
    const char *consumes; /* media types of the body, comma-separated; "*" (any) for raw bodies; NULL = JSON:
                           * application/json, anything +json, and for the sake of `curl --data-binary` without -H also
                           * application/x-www-form-urlencoded, application/octet-stream and no Content-Type */
    const char *produces; /* media types of the 2xx answer, comma-separated; NULL = application/json. Accept is checked against
                           * it (406). Problems are always sent as application/problem+json */
    const char *query;   /* names of the query parameters it takes, comma-separated: others are 422 unknown-parameter. NULL: not
                          * checked here; "": takes none */
    uint64_t body_limit; /* decompressed bytes; 0 = the server's; with a sink: 0 = none */
    const char *instead_of_body; /* with FB_BODY_OPTIONAL: a query parameter; without it and a body it is 400 missing-body */
    const fb_sink *sink;    /* takes the body, in identity coding only (415); request->body is "" then. With FB_BODY_OPTIONAL it
                             * also gets a request without a body: `begin` with size 0 */
    const char *sink_types; /* media types of the bodies that go to the sink, comma-separated, which are taken besides
                             * `consumes`; all others are held in memory. NULL = all bodies go to the sink */
    bool (*defer)(const fb_request *request, fb_response *response,
                  bool is_preferred); /* called before the handler, and says whether the client prefers respond-async (RFC
                                       * 7240); false: it has not responded, the handler is to. To respond later it needs
                                       * FB_SCOPE_WRITE at least, because the request is stored */
    bool checks_conditions; /* it looks at If-Match and If-None-Match itself. Otherwise a PUT, PATCH or DELETE whose conditions
                             * do not hold for what GET of its path answers is 412, before the handler is called */
    bool takes_rest;        /* its last segment, a parameter, takes all that are left: a path within the path */
    bool is_probe;          /* reveals nothing of value: answered for any Host */
    bool is_inline;         /* runs on the I/O thread, also when the queue is full or the server stops: only for handlers that
                             * neither block nor compute (livez) */
} fb_route;

#define FB_EXPANDED_SIZE 72 /* of a value that fb_http_config.expand writes, with its NUL */
#define FB_EXPANDED_MAX 8   /* values of one request */
#define FB_ROUTE_PARAMS 4

/* -------------------------------------------------------------------------------------------------------------- server */

#define FB_HTTP_HALF UINT_MAX

typedef struct fb_http_config {
    const char *listen;                    /* "127.0.0.1:8080", "[::1]:0", "0.0.0.0:80": a numeric address; port 0 picks one. Or
                                            * "unix:PATH": a socket that is a file, for this user alone */
    unsigned io_threads;                   /* epoll loops */
    unsigned worker_threads;               /* handlers at work at once; they block on commits, so more than processors */
    unsigned queue_limit;                  /* requests waiting for a worker; more are 503 with Retry-After. Parts of bodies
                                            * that come or go already (sinks, fb_respond_pulled) wait, but are not refused */
    unsigned stream_limit;                 /* open streams (fb_respond_stream); at most half of connection_limit counts */
    unsigned connection_limit;             /* more are not accepted until one ends */
    unsigned connection_limit_per_address; /* in IPv6 of one /64, at a path of one user; 0 = no such limit; FB_HTTP_HALF = half
                                              of connection_limit */
    size_t target_limit;                   /* bytes of path and query together; more is 414 */
    size_t header_limit;                   /* bytes of all headers; more is 431 */
    uint64_t body_limit;                   /* bytes of one body after decompression; more is 413 */
    unsigned body_ratio;                   /* decompressed size to compressed size, beyond the first 16 MiB; more is 413;
                                            * 0 = no such limit */
    uint64_t body_memory_limit;            /* bytes of all bodies held at once, buffers of sinks included; more is 503 with
                                            * Retry-After */
    unsigned header_timeout_ms;            /* from accept, or from the request line on, to the end of the headers */
    unsigned idle_timeout_ms;              /* from the last answer to the end of the next request's headers */
    unsigned body_timeout_ms;              /* a client may lag behind minimum_rate by so much, with a body that it sends and
                                            * with an answer that it takes; waiting for us does not count */
    unsigned minimum_rate;                 /* bytes per second */
    unsigned request_timeout_ms;           /* from the end of a request to the end of its handler, waiting for a worker
                                            * included; see fb_request_watch */
    bool compress;                         /* gzip or zstd answers over 1 KiB when the client accepts them */
    /* Called on a worker before a handler, for each parameter of the path and the query. Writes the value that `value` is short
     * for, if it differs. False: it has responded. NULL: values stay as they are. */
    bool (*expand)(void *context, fb_response *response, const char *name, const char *value, char expanded[FB_EXPANDED_SIZE]);
    /* Called on a worker after a handler that responded with a problem; adds to it. NULL: problems stay as they are. */
    void (*explain)(void *context, fb_response *response);
    fb_doorkeeper doorkeeper;         /* without `admit` everybody may do everything */
    const char *const *allowed_hosts; /* as long as the doorkeeper admits all: answered besides localhost and loopback */
    size_t allowed_host_count;        /* addresses, each with any port; see fb_http_is_host_name */
    bool allows_addresses;            /* then: any address, but names as above */
    const char *const *cors_origins;  /* "https://registry.example": their pages may use the service as well */
    size_t cors_origin_count;
    unsigned rate_limit;                   /* requests a second of one token, or without one of one address (in IPv6 of one
                                            * /64), and as many at once; more are 429. 0 = any. Routes that need no scope do
                                            * not count */
    const char *tls_certificate, *tls_key; /* PEM: then it speaks TLS alone. The certificate may be a chain. NULL = no TLS */
    FILE *access_log;                      /* one JSON line a request; NULL = none. Stays the caller's */
} fb_http_config;

/* The defaults: 127.0.0.1:8080, 2 I/O threads, 64 workers, queue 256, 1024 connections, half of them of one address, target 8
 * KiB, headers 32 KiB, body 1 GiB, ratio 200, body memory 4 GiB, headers 10 s, idle 60 s, body 30 s + size / (64 KiB/s),
 * requests 120 s, compress, log to stderr. */
fb_http_config fb_http_config_default(void);

/* FB_INVALID "bad-address" when that is not an address with a port, like 127.0.0.1:8080 or [::1]:8080, nor unix:PATH with a
 * path of at most 107 bytes. */
fb_status fb_http_check_address(const char *listen, fb_error *error);
/* Makes room for a socket at unix:PATH: removes one that a service left which was killed. Until `lock` is closed, other
 * services wait before they look in the same folder: of two that start at once, the second finds the first. -1 for any other
 * address. FB_IO "cannot-listen" when a process listens there, or when the file is not a socket. To be called before
 * fb_http_start, and before a sandbox is entered. */
fb_status fb_http_clear_address(const char *listen, int *lock, fb_error *error);
/* True for unix:PATH. */
bool fb_http_is_path(const char *listen);
/* True if the address names this machine only: 127.0.0.0/8, ::1 or unix:PATH. False also for what is not an address. */
bool fb_http_is_loopback(const char *listen);

/* True for an origin as browsers write it: https://registry.example, http://localhost:3000. Not *, and no path. */
bool fb_cors_is_origin(const char *text);

/* True for a name or address without a port: "registry.example", "10.0.0.5", "::1", "[::1]". */
bool fb_http_is_host_name(const char *name);

typedef struct fb_http_server fb_http_server;

/* Listens and serves; returns when connections are accepted. Without an address to listen on (NULL) it is reached by
 * fb_http_connect alone. `routes` and `context` must live until fb_http_stop has returned; the configuration is copied. Blocks
 * no signals in the caller, all of them in its own threads. FB_INVALID: bad address or route; FB_IO: the address is taken, or
 * the system refused; FB_NO_MEMORY. */
fb_status fb_http_start(const fb_http_config *config, const fb_route *routes, size_t route_count, void *context,
                        fb_http_server **server, fb_error *error);

/* How many descriptors it has open at most, besides its connections' and the ones that handlers and sinks open. */
unsigned fb_http_descriptors(const fb_http_config *config);

/* "http://127.0.0.1:8080", with the real port, or "unix:PATH"; "" when it does not listen. Valid until fb_http_stop. */
const char *fb_http_url(const fb_http_server *server);

/* A connection from within the process, without any network: the client's end of it, a blocking socket for the caller to close,
 * or -1 (errno). Needs no token, but TLS where the server has it. */
int fb_http_connect(fb_http_server *server);

/* Asks each I/O thread for `target`, a path that needs no token, by a request from within the process that the thread which
 * accepts connections hands on. FB_IO: one of them was not answered with 200 in time, all together. For a server that listens;
 * one caller at a time. */
fb_status fb_http_probe(fb_http_server *server, const char *target, unsigned timeout_ms, fb_error *error);

/* Graceful stop: stops listening at once, answers new requests on open connections with 503 and Connection: close, lets running
 * and queued ones finish for up to `timeout_ms`, then drops connections (a running handler is still waited for: it uses the
 * context). Frees the server; NULL is fine. True when nothing had to be cut off. */
bool fb_http_stop(fb_http_server *server, unsigned timeout_ms);

/* A request from within the process that needs no connection. */
typedef struct fb_http_replayed {
    const char *method, *target, *content_type; /* of a request that a route took before: it is not checked again */
    const char *principal, *id, *job;           /* as in fb_request */
    const char *body;                           /* with a NUL after it */
    size_t body_size;
    const fb_watch *watch; /* what fb_request_watch gives */
} fb_http_replayed;

/* The answer to a request, to be freed with fb_http_answer_free. */
typedef struct fb_http_answer {
    int status;
    const char *content_type;
    const char *location; /* or NULL */
    const char *bytes;
    size_t size;
    char code[48]; /* of a problem; "" = not a problem */
    struct fb_exchange *inner;
} fb_http_answer;

/* Runs its handler on the caller's thread. The server must not be stopped meanwhile. FB_NO_MEMORY. */
fb_status fb_http_replay(fb_http_server *server, const fb_http_replayed *replayed, fb_http_answer *out, fb_error *error);
void fb_http_answer_free(fb_http_answer *answer);

/* The layer's metrics in Prometheus' text format, appended to `out`: foldback_http_requests_total{route,method,status},
 * foldback_http_request_duration_seconds (histogram by route), foldback_http_in_flight, foldback_http_queue_depth,
 * foldback_http_connections, foldback_http_streams, foldback_http_rejected_total{reason}. From any thread. */
void fb_http_metrics(const fb_http_server *server, fb_buffer *out);

/* For a handler whose work may take long: says when it is to end with an error, which fb_respond_error knows how to answer.
 * FB_BUSY "deadline-exceeded" (it takes longer than fb_http_config.request_timeout_ms), "cancelled" (no client waits for the
 * answer any more), "stopping" (the server does, and has run out of time). Nothing may be stored after that. */
const fb_watch *fb_request_watch(const fb_request *request);

/* Counts memory that a handler takes for what a client has sent, as bodies are counted; what is not released ends with the
 * request. FB_BUSY "overloaded" beyond fb_http_config.body_memory_limit, but not for a request that is replayed: it would not
 * be tried again. */
fb_status fb_request_hold(const fb_request *request, uint64_t size, fb_error *error);
void fb_request_release(const fb_request *request, uint64_t size);

/* The server's limits of a body after decompression: its size, and the ratio (fb_http_config). */
uint64_t fb_request_body_limit(const fb_request *request);
unsigned fb_request_body_ratio(const fb_request *request);

/* The server that a request came through: for a /metrics route. */
const fb_http_server *fb_request_server(const fb_request *request);

#endif
