/* One request: the steps that libmicrohttpd's access handler takes with it.
 *
 *     HEADERS ──► READING ──► WORKING (suspended, with a worker) ──► SENDING
 *        │           │                                                 ▲
 *        └───────────┴──► DISCARDING (the answer is an error) ─────────┘
 *
 * Before READING a route with a sink has BEGINNING (suspended, with a worker).
 *
 * libmicrohttpd takes an answer only at the first call (then it closes the connection) or after the whole body. So an error
 * found in the middle waits for the end of the body, within limits.
 */
#include "server/http/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "core/json/json.h"

/* ---- the access log ------------------------------------------------------------------------------------------------------ */

/* One JSON object a line. Neither query nor headers are in it: tokens travel there. */

static void append_time(fb_buffer *line) {
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    fb_buffer_printf(line, "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ\"", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1000000);
}

/* A member whose text came from the network: what is not printable ASCII becomes '?'. */
static void append_text(fb_buffer *line, const char *name, const char *text, size_t size) {
    char printable[512];
    if (size > sizeof printable) size = sizeof printable;
    for (size_t i = 0; i < size; i++) printable[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    fb_buffer_printf(line, ",\"%s\":", name);
    fb_buffer_json_string(line, printable, size);
}

static void log_access(const fb_exchange *exchange, int status, uint64_t bytes_out, int64_t nanoseconds) {
    FILE *log = exchange->server->config.access_log;
    if (!log) return;
    const char *target = exchange->target ? exchange->target : "", *method = exchange->request.method;
    fb_buffer line = {0};
    append_time(&line);
    append_text(&line, "request", exchange->id, strlen(exchange->id));
    append_text(&line, "method", exchange->is_head ? "HEAD" : method, strlen(exchange->is_head ? "HEAD" : method));
    append_text(&line, "path", target, strcspn(target, "?"));
    if (exchange->route) append_text(&line, "route", exchange->route->pattern, strlen(exchange->route->pattern));
    fb_buffer_printf(&line, ",\"status\":%d,\"bytes_in\":%llu,\"bytes_out\":%llu,\"ms\":%.3f", status,
                     (unsigned long long)exchange->received, (unsigned long long)bytes_out, (double)nanoseconds / 1e6);
    fb_trace_print(exchange, &line);
    append_text(&line, "who", exchange->request.principal, strlen(exchange->request.principal));
    append_text(&line, "remote", exchange->connection->remote, strlen(exchange->connection->remote));
    fb_error error = {0};
    if (exchange->pull && fb_pull_error(exchange->pull, &error))
        append_text(&line, "error", error.message, strlen(error.message));
    fb_buffer_string(&line, "}\n");
    if (!line.failed) fwrite(line.data, 1, line.size, log); /* one call: lines of several threads do not mix */
    fb_buffer_free(&line);
}

#define DISCARD_WHOLE ((uint64_t)1 << 20) /* a refused body of up to this size is read, so that the connection can be kept */
#define DISCARD_REST ((uint64_t)16 << 20) /* of a body found bad in the middle, this much more is read */
#define RETRY_AFTER "1"

const char *fb_exchange_header(const fb_exchange *exchange, const char *name, size_t *cursor) {
    while (*cursor < exchange->header_count) {
        const fb_pair *header = &exchange->headers[(*cursor)++];
        if (!strcasecmp(header->name, name)) return header->value;
    }
    return NULL;
}

static void release_body(fb_exchange *exchange) {
    fb_body_free(&exchange->reader);
    atomic_fetch_sub(&exchange->server->body_memory, exchange->body_memory);
    exchange->body_memory = 0;
    exchange->request.body = "";
    exchange->request.body_size = 0;
}

void fb_request_forget_body(const fb_request *request) {
    release_body(request->inner);
}

static void respond_overload(fb_exchange *exchange, fb_rejection reason, const char *code, const char *detail) {
    fb_respond_problem(&exchange->response, 503, code, "%s", detail);
    fb_response_header(&exchange->response, "Retry-After", RETRY_AFTER);
    fb_metrics_reject(exchange->server, reason);
}

void fb_respond_stopping(fb_exchange *exchange) {
    respond_overload(exchange, FB_REJECTED_STOPPING, "stopping", "the server is stopping");
    exchange->must_close = true;
}

void fb_respond_body_memory(fb_exchange *exchange) {
    respond_overload(exchange, FB_REJECTED_BODY_MEMORY, "overloaded", "the server holds too many large bodies at the moment");
}

static bool is_answered(const fb_exchange *exchange) {
    return exchange->response.status || exchange->response.failed;
}

bool fb_exchange_is_due(fb_exchange *exchange) {
    if (is_answered(exchange)) return false;
    fb_error error = {0};
    if (atomic_load(&exchange->server->is_out_of_time)) fb_respond_stopping(exchange);
    else if (fb_watch_check(&exchange->watch, &error)) fb_respond_error(&exchange->response, &error);
    return !is_answered(exchange);
}

/* `name` ends at `size`. */
static bool expand(fb_exchange *exchange, const char *name, size_t size, const char **value) {
    const fb_http_server *server = exchange->server;
    char plain[32];
    if (size >= sizeof plain || exchange->expanded_count == FB_EXPANDED_MAX) return true;
    memcpy(plain, name, size);
    plain[size] = '\0';
    char *place = exchange->expanded[exchange->expanded_count];
    *place = '\0';
    if (!server->config.expand(server->context, &exchange->response, plain, *value, place)) return false;
    if (!*place) return true;
    *value = place;
    exchange->expanded_count++;
    return true;
}

bool fb_exchange_expand(fb_exchange *exchange) {
    if (!exchange->server->config.expand) return true;
    for (size_t i = 0; i < FB_ROUTE_PARAMS && exchange->parameters[i].name; i++) {
        fb_pair *one = &exchange->parameters[i];
        if (!expand(exchange, one->name, strcspn(one->name, "}"), &one->value)) return false;
    }
    for (size_t i = 0; i < exchange->query_count; i++) {
        fb_pair *one = &exchange->query[i];
        if (!expand(exchange, one->name, strlen(one->name), &one->value)) return false;
    }
    return true;
}

static void run(fb_exchange *exchange) {
    const fb_route *route = exchange->route;
    fb_request *request = &exchange->request;
    if (!route->is_inline && !fb_exchange_expand(exchange)) return;
    bool is_deferred = route->defer && fb_prefers(exchange, "respond-async") && route->defer(request, &exchange->response);
    if (!is_deferred) route->handler(request, &exchange->response);
}

void fb_exchange_work(fb_exchange *exchange) {
    if (fb_exchange_is_due(exchange)) {
        fb_trace_begin_work(exchange);
        run(exchange);
        fb_trace_end_work(exchange);
    }
    release_body(exchange);
    if (atomic_load(&exchange->server->is_stopping)) exchange->must_close = true;
    exchange->answer = fb_response_finish(exchange);
}

/* The job of an exchange without a sink. */
static void handle(void *argument) {
    fb_exchange *exchange = argument;
    struct MHD_Connection *mhd = exchange->mhd;
    fb_exchange_work(exchange);
    MHD_resume_connection(mhd); /* from here on the exchange is its I/O thread's again */
}

/* Suspends the connection, so that the exchange is a worker's. False when the connection must not be used any more. */
static bool push(fb_exchange *exchange) {
    if (!fb_connection_wait(exchange->server, exchange->connection, FB_WAITING_WORK, 0)) return false;
    MHD_suspend_connection(exchange->mhd);
    exchange->times.queued = fb_http_now();
    if (fb_queue_push(&exchange->server->queue, &exchange->job)) return true;
    respond_overload(exchange, FB_REJECTED_QUEUE_FULL, "overloaded", "too many requests are waiting");
    MHD_resume_connection(exchange->mhd);
    return true;
}

void *fb_exchange_begin(void *server, const char *target, struct MHD_Connection *mhd) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    fb_http_connection *connection = info ? info->socket_context : NULL;
    fb_exchange *exchange = connection ? calloc(1, sizeof *exchange) : NULL;
    if (!exchange) return NULL;
    exchange->target = strdup(target ? target : "");
    exchange->decoded = strdup(target ? target : "");
    exchange->path = strdup(target ? target : "");
    exchange->server = server;
    exchange->connection = connection;
    exchange->mhd = mhd;
    exchange->started = fb_http_now();
    exchange->response.bytes = "";
    exchange->request = (fb_request){
        .method = "",
        .path = exchange->path,
        .id = exchange->id,
        .content_type = "",
        .principal = FB_ANONYMOUS,
        .body = "",
        .context = exchange->server->context,
        .inner = exchange,
    };
    fb_exchange_watch(exchange);
    exchange->job = (fb_job){.run = handle, .argument = exchange, .is_request = true};
    fb_connection_wait(server, connection, FB_WAITING_HEADERS, 0);
    return exchange;
}

static enum MHD_Result send_answer(fb_exchange *exchange) {
    if (!exchange->answer) exchange->answer = fb_response_finish(exchange);
    if (!exchange->answer) return MHD_NO; /* no memory even to say so */
    exchange->phase = FB_PHASE_SENDING;
    if (!fb_connection_wait(exchange->server, exchange->connection, FB_WAITING_SEND, exchange->response.size)) return MHD_NO;
    if (exchange->stream) fb_stream_begin(exchange);
    return MHD_queue_response(exchange->mhd, (unsigned)exchange->response.status, exchange->answer);
}

/* An error is known, the body (if any) not read yet. */
static enum MHD_Result refuse(fb_exchange *exchange) {
    bool has_body = exchange->is_chunked || exchange->content_length;
    bool is_small = !exchange->is_chunked && !exchange->expects_continue && exchange->content_length <= DISCARD_WHOLE;
    release_body(exchange);
    if (exchange->must_close || (has_body && !is_small)) {
        exchange->must_close = true;
        exchange->connection->lingers = true;
        return send_answer(exchange);
    }
    exchange->phase = FB_PHASE_DISCARDING;
    return fb_connection_wait(exchange->server, exchange->connection, FB_WAITING_BODY, 0) ? MHD_YES : MHD_NO;
}

static bool check_target_size(fb_exchange *exchange) {
    size_t limit = exchange->server->config.target_limit;
    if (strlen(exchange->target) <= limit) return true;
    fb_respond_problem(&exchange->response, 414, "target-too-long", "path and query are longer than %zu bytes", limit);
    return false;
}

static enum MHD_Result begin_reading(fb_exchange *exchange) {
    exchange->phase = FB_PHASE_READING;
    return fb_connection_wait(exchange->server, exchange->connection, FB_WAITING_BODY, 0) ? MHD_YES : MHD_NO;
}

/* libmicrohttpd asks for the first call again when the sink has answered; only then does it send 100-continue. */
static enum MHD_Result begin_sink(fb_exchange *exchange) {
    exchange->phase = FB_PHASE_BEGINNING;
    if (!fb_intake_begin(exchange)) return refuse(exchange);
    return push(exchange) ? MHD_YES : MHD_NO;
}

/* The headers are complete. */
static enum MHD_Result begin(fb_exchange *exchange, const char *method, const char *version) {
    fb_http_server *server = exchange->server;
    pthread_mutex_lock(&server->flight_lock);
    server->in_flight++;
    pthread_mutex_unlock(&server->flight_lock);
    exchange->is_counted = true;
    exchange->is_head = !strcmp(method, "HEAD");
    exchange->request.is_head = exchange->is_head;
    exchange->request.method = exchange->is_head ? "GET" : method;
    if (!exchange->target || !exchange->decoded || !exchange->path) return MHD_NO;

    bool is_framed = fb_guard_framing(exchange, method, version);
    fb_trace_identify(exchange);
    if (!is_framed) {
        exchange->must_close = true;
        return refuse(exchange);
    }
    const char *content_type = fb_request_header(&exchange->request, "Content-Type");
    if (content_type) exchange->request.content_type = content_type;
    const char *pattern;
    if (!check_target_size(exchange) || !fb_target_parse(exchange)) {
        exchange->must_close = true; /* a proxy may have read it as another request than we */
        return refuse(exchange);
    }
    fb_route_find(exchange, &pattern);
    if (fb_cors_preflight(exchange) || !fb_access_check(exchange) || !fb_route_require(exchange, pattern) ||
        !fb_guard_request(exchange))
        return refuse(exchange);
    if (atomic_load(&server->is_stopping) && !exchange->route->is_inline) {
        fb_respond_stopping(exchange);
        return refuse(exchange);
    }
    if (fb_exchange_sink(exchange)) return begin_sink(exchange);
    return begin_reading(exchange);
}

/* Keeps count of what all bodies hold together. */
static bool account_body(fb_exchange *exchange) {
    fb_http_server *server = exchange->server;
    size_t grown = exchange->reader.bytes.capacity - exchange->body_memory;
    if (!grown) return true;
    exchange->body_memory += grown;
    return atomic_fetch_add(&server->body_memory, grown) + grown <= server->config.body_memory_limit;
}

static void read_body(fb_exchange *exchange, const char *data, size_t size) {
    fb_error error = {0};
    bool is_bad = fb_body_feed(&exchange->reader, data, size, &error) != FB_OK;
    bool fits = account_body(exchange);
    if (is_bad) fb_respond_error(&exchange->response, &error);
    else if (!fits) fb_respond_body_memory(exchange);
    else return;
    release_body(exchange);
    exchange->phase = FB_PHASE_DISCARDING;
}

/* A piece of a body for the sink. Returns how much of it is left for later. */
static size_t pass_to_sink(fb_exchange *exchange, const char *data, size_t size) {
    uint64_t limit = fb_exchange_body_limit(exchange);
    if (size > limit - exchange->received) {
        fb_respond_problem(&exchange->response, 413, "body-too-large", "the body is larger than %llu bytes",
                           (unsigned long long)limit);
        fb_intake_refuse(exchange);
    } else {
        size = fb_intake_take(exchange, data, size);
    }
    if (!is_answered(exchange)) return size;
    exchange->phase = FB_PHASE_DISCARDING;
    return 0;
}

/* Drops a piece of the body; when there is too much of it the answer goes out past libmicrohttpd, and the connection ends. */
static bool discard(fb_exchange *exchange, size_t size) {
    exchange->discarded += size;
    if (exchange->discarded <= DISCARD_REST) return true;
    fb_response *response = &exchange->response;
    char *problem = response->problem ? fb_dump_json(response->problem, JSON_COMPACT) : NULL;
    if (problem) fb_connection_send_problem(exchange->server, exchange->connection->socket, response->status, problem);
    free(problem);
    exchange->phase = FB_PHASE_SENDING;
    exchange->connection->lingers = true;
    return false;
}

static void respond_missing_body(fb_exchange *exchange) {
    fb_respond_problem(&exchange->response, 400, "missing-body", "this request needs a body");
}

/* Clients that generators make send the JSON null for a body that they were not given. */
static bool is_null_for_none(const fb_exchange *exchange) {
    const fb_route *route = exchange->route;
    const fb_request *request = &exchange->request;
    bool is_json = route->body == FB_BODY_OPTIONAL && !route->consumes && !route->sink && !route->instead_of_body;
    return is_json && request->body_size == strlen("null") && memcmp(request->body, "null", request->body_size) == 0;
}

/* The whole request is there. */
static enum MHD_Result dispatch(fb_exchange *exchange) {
    fb_error error = {0};
    bool has_body = exchange->is_chunked || exchange->content_length;
    if (has_body && fb_body_end(&exchange->reader, &error)) {
        fb_respond_error(&exchange->response, &error);
        return send_answer(exchange);
    }
    if (has_body) {
        exchange->request.body = exchange->reader.bytes.data;
        exchange->request.body_size = exchange->reader.bytes.size;
        if (is_null_for_none(exchange)) exchange->request.body_size = 0;
    }
    if (exchange->route->body == FB_BODY_REQUIRED && !exchange->request.body_size) {
        respond_missing_body(exchange);
        return send_answer(exchange);
    }
    if (exchange->route->is_inline) {
        fb_exchange_work(exchange);
        return send_answer(exchange);
    }
    exchange->phase = FB_PHASE_WORKING;
    fb_exchange_begin_work(exchange);
    return push(exchange) ? MHD_YES : MHD_NO;
}

/* The whole request is there, and has a sink. Also after an error: the sink has let go before its answer is sent. */
static enum MHD_Result finish_sink(fb_exchange *exchange) {
    if (exchange->route->body == FB_BODY_REQUIRED && !exchange->received && !is_answered(exchange))
        respond_missing_body(exchange);
    exchange->request.body_size = exchange->received;
    exchange->phase = FB_PHASE_WORKING;
    fb_exchange_begin_work(exchange);
    if (!fb_connection_wait(exchange->server, exchange->connection, FB_WAITING_WORK, 0)) return MHD_NO;
    exchange->times.queued = fb_http_now();
    fb_intake_finish(exchange);
    return MHD_YES;
}

static enum MHD_Result end_of_body(fb_exchange *exchange) {
    bool is_bad = !is_answered(exchange) && !fb_guard_trailers(exchange);
    if (is_bad && exchange->intake) fb_intake_refuse(exchange);
    if (is_bad && !exchange->intake) return send_answer(exchange);
    if (exchange->intake) return finish_sink(exchange);
    return exchange->phase == FB_PHASE_READING ? dispatch(exchange) : send_answer(exchange);
}

enum MHD_Result fb_exchange_step(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                                 const char *version, const char *data, size_t *size, void **context) {
    (void)server, (void)mhd, (void)url;
    fb_exchange *exchange = *context;
    if (!exchange) return MHD_NO;
    if (exchange->phase == FB_PHASE_HEADERS) return begin(exchange, method, version);
    if (exchange->phase == FB_PHASE_BEGINNING)
        return fb_intake_has_begun(exchange) ? begin_reading(exchange) : refuse(exchange);
    if (exchange->phase == FB_PHASE_WORKING) return send_answer(exchange);
    if (exchange->phase == FB_PHASE_SENDING) return MHD_YES;
    if (!*size) return end_of_body(exchange);

    size_t given = *size;
    *size = 0;
    if (!fb_connection_moved(exchange->server, exchange->connection, FB_WAITING_BODY, given)) return MHD_NO;
    if (exchange->phase == FB_PHASE_READING && exchange->intake) *size = pass_to_sink(exchange, data, given);
    else if (exchange->phase == FB_PHASE_READING) read_body(exchange, data, given);
    else if (!discard(exchange, given)) return MHD_NO;
    exchange->received += given - *size;
    return MHD_YES;
}

void fb_exchange_free(fb_exchange *exchange) {
    fb_http_server *server = exchange->server;
    bool is_counted = exchange->is_counted;
    if (exchange->answer) MHD_destroy_response(exchange->answer);
    release_body(exchange);
    fb_response_free(&exchange->response);
    free(exchange->headers);
    free(exchange->query);
    free(exchange->target);
    free(exchange->decoded);
    free(exchange->path);
    free(exchange);
    if (!is_counted) return;
    pthread_mutex_lock(&server->flight_lock);
    if (--server->in_flight == 0) pthread_cond_broadcast(&server->landed);
    pthread_mutex_unlock(&server->flight_lock);
}

void fb_exchange_end(void *context, struct MHD_Connection *mhd, void **exchange_context, enum MHD_RequestTerminationCode code) {
    (void)mhd;
    fb_http_server *server = context;
    fb_exchange *exchange = *exchange_context;
    if (!exchange) return;
    *exchange_context = NULL;
    int64_t taken = fb_http_now() - exchange->started;
    if (exchange->is_counted) {
        bool is_answered = exchange->phase == FB_PHASE_SENDING;
        int status = is_answered ? exchange->response.status : 0;
        bool has_body = is_answered && !exchange->is_head && status != 304 && code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
        fb_metrics_record(exchange, status, taken);
        uint64_t size = exchange->stream ? fb_stream_end(exchange) : has_body ? exchange->response.size : 0;
        log_access(exchange, status, size, taken);
    }
    fb_connection_wait(server, exchange->connection, FB_WAITING_IDLE, 0);
    if (exchange->intake) fb_intake_leave(exchange);
    else fb_exchange_free(exchange);
}
