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

#include "core/json/json.h"

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

/* 503 with Retry-After, counted. */
static void respond_stopping(fb_exchange *exchange) {
    respond_overload(exchange, FB_REJECTED_STOPPING, "stopping", "the server is stopping");
    exchange->must_close = true;
}

#define BODY_MEMORY_DETAIL "the server holds too many large bodies at the moment"

static void respond_body_memory(fb_exchange *exchange) {
    respond_overload(exchange, FB_REJECTED_BODY_MEMORY, "overloaded", BODY_MEMORY_DETAIL);
}

fb_status fb_request_hold(const fb_request *request, uint64_t size, fb_error *error) {
    fb_exchange *exchange = request->inner;
    fb_http_server *server = exchange->server;
    bool fits = atomic_fetch_add(&server->body_memory, size) + size <= server->config.body_memory_limit;
    exchange->body_memory += size;
    if (fits || !exchange->connection) return FB_OK;
    fb_request_release(request, size);
    fb_metrics_reject(server, FB_REJECTED_BODY_MEMORY);
    return fb_fail(error, FB_BUSY, "overloaded", NULL, BODY_MEMORY_DETAIL);
}

void fb_request_release(const fb_request *request, uint64_t size) {
    fb_exchange *exchange = request->inner;
    atomic_fetch_sub(&exchange->server->body_memory, size);
    exchange->body_memory -= size;
}

uint64_t fb_request_body_limit(const fb_request *request) {
    return request->inner->server->config.body_limit;
}

unsigned fb_request_body_ratio(const fb_request *request) {
    return request->inner->server->config.body_ratio;
}

static bool is_answered(const fb_exchange *exchange) {
    return exchange->response.status || exchange->response.failed;
}

/* ---- the work ----------------------------------------------------------------------------------------------------------- */

/* False when there is an answer already, or the time to stop is up (then there is one now): the route must not run.
 */
static bool exchange_is_due(fb_exchange *exchange) {
    if (is_answered(exchange)) return false;
    fb_error error = {0};
    if (atomic_load(&exchange->server->is_out_of_time)) respond_stopping(exchange);
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

void fb_exchange_handle(fb_exchange *exchange) {
    const fb_http_server *server = exchange->server;
    exchange->route->handler(&exchange->request, &exchange->response);
    if (exchange->response.problem && server->config.explain) server->config.explain(server->context, &exchange->response);
}

static void run(fb_exchange *exchange) {
    const fb_route *route = exchange->route;
    fb_request *request = &exchange->request;
    if (!route->is_inline && !fb_exchange_expand(exchange)) return;
    bool is_answered = !fb_change_is_wanted(exchange) ||
                       (route->defer && route->defer(request, &exchange->response, fb_prefers(exchange, "respond-async")));
    if (!is_answered) fb_exchange_handle(exchange);
    else if (request->body_state) route->sink->abandon(request->body_state);
}

/* Runs the handler when it is due, and makes the answer. */
static void exchange_work(fb_exchange *exchange) {
    if (exchange_is_due(exchange)) {
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
    exchange_work(exchange);
    MHD_resume_connection(mhd); /* from here on the exchange is its I/O thread's again */
}

/* Suspends the connection, so that the exchange is a worker's. False when the connection must not be used any more. */
static bool push(fb_exchange *exchange) {
    if (!fb_connection_wait(exchange->server, exchange->connection, FB_WAITING_WORK, 0)) return false;
    MHD_suspend_connection(exchange->mhd);
    exchange->times.queued = fb_monotonic_ns();
    if (fb_queue_push(&exchange->server->queue, &exchange->job)) return true;
    respond_overload(exchange, FB_REJECTED_QUEUE_FULL, "overloaded", "too many requests are waiting");
    MHD_resume_connection(exchange->mhd);
    return true;
}

/* ---- when the work for a request is to end before it is done ------------------------------------------------------------ */

static void count(fb_exchange *exchange, fb_rejection reason) {
    if (!exchange->is_stopped) fb_metrics_reject(exchange->server, reason);
    exchange->is_stopped = true;
}

/* fb_watch.check */
static fb_status check(void *context, fb_error *error) {
    fb_exchange *exchange = context;
    if (atomic_load(&exchange->server->is_out_of_time))
        return fb_fail(error, FB_BUSY, "stopping", NULL, "the server is stopping");
    if (atomic_load(&exchange->connection->has_left)) {
        count(exchange, FB_REJECTED_CLIENT_LEFT);
        return fb_fail(error, FB_BUSY, "cancelled", NULL, "the client left before the work was done");
    }
    if (!exchange->work_deadline || fb_monotonic_ns() < exchange->work_deadline) return FB_OK;
    count(exchange, FB_REJECTED_WORK_DEADLINE);
    return fb_fail(error, FB_BUSY, "deadline-exceeded", NULL,
                   "the work is too large to be done within %u s (--request-timeout) and has been stopped. With Prefer: "
                   "respond-async, where that is taken, it becomes a job, which may take longer",
                   exchange->server->config.request_timeout_ms / 1000);
}

/* Fills exchange->watch. */
static void exchange_watch(fb_exchange *exchange) {
    exchange->watch = (fb_watch){.context = exchange, .check = check};
}

/* The request is whole: its work must end in time from here on. */
static void exchange_begin_work(fb_exchange *exchange) {
    exchange->work_deadline = fb_monotonic_ns() + (int64_t)exchange->server->config.request_timeout_ms * 1000000;
}

const fb_watch *fb_request_watch(const fb_request *request) {
    return &request->inner->watch;
}

/* ---- begin -------------------------------------------------------------------------------------------------------------- */

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
    exchange->started = fb_monotonic_ns();
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
    exchange_watch(exchange);
    exchange->job = (fb_job){.run = handle, .argument = exchange, .is_request = true};
    fb_connection_wait(server, connection, FB_WAITING_HEADERS, 0);
    return exchange;
}

/* ---- a body on its way to the sink of its route ------------------------------------------------------------------------- */

/*     I/O thread ──► filling ──(full: the two change places)──► writing ──► sink.write, on a worker
 *
 * While a worker writes one part the I/O thread fills the other; when that is full too the connection is suspended until they
 * can change places. The worker goes on as long as there is something to do and then rests; so there is one job of a transfer
 * at most, and all functions of its sink are called one after the other. A client that leaves is noticed while a worker is in
 * the sink: the exchange is then freed by the worker, after `abandon`.
 *
 * Locks are taken in this order: ours, the queue's, the reaper's and libmicrohttpd's.
 */

struct fb_intake {
    fb_exchange *exchange;
    size_t part_size;
    fb_part filling;      /* the I/O thread's; the worker's when is_full, or when the body has ended */
    fb_part writing;      /* the worker's */
    bool is_open;         /* the sink waits for its end. The worker's while is_busy */
    fb_response response; /* the worker's until is_refused: what the sink said when it refused to go on */

    pthread_mutex_t lock; /* for what follows */
    bool is_busy;         /* the job is queued or runs */
    bool is_full;         /* `filling` is */
    bool is_suspended;    /* the connection is, until `filling` has room again */
    bool is_refused;      /* there is an answer: nothing is written any more */
    bool has_ended;       /* the body has, and the connection is suspended until there is an answer */
    bool is_left;         /* the exchange has ended */
};

/* -- on a worker -------------------------------------------------------------------------------------------------------- */

static void work(void *intake);

static void begin_transfer(void *argument) {
    fb_exchange *exchange = argument;
    fb_request *request = &exchange->request;
    uint64_t size = exchange->is_chunked ? FB_SIZE_UNKNOWN : exchange->content_length;
    if (exchange_is_due(exchange))
        exchange->intake->is_open = exchange->route->sink->begin(request, &exchange->response, size, &request->body_state);
    exchange->job = (fb_job){.run = work, .argument = exchange->intake};
    MHD_resume_connection(exchange->mhd);
}

static void free_part(fb_intake *intake, fb_part *part) {
    if (part->bytes) atomic_fetch_sub(&intake->exchange->server->body_memory, intake->part_size);
    free(part->bytes);
    *part = (fb_part){0};
}

static void free_intake(fb_intake *intake) {
    intake->exchange->intake = NULL;
    free_part(intake, &intake->filling);
    free_part(intake, &intake->writing);
    fb_response_free(&intake->response);
    pthread_mutex_destroy(&intake->lock);
    free(intake);
}

static void write_part(fb_intake *intake) {
    fb_exchange *exchange = intake->exchange;
    const fb_part *part = &intake->writing;
    if (exchange->route->sink->write(exchange->request.body_state, part->bytes, part->size, &intake->response)) return;
    pthread_mutex_lock(&intake->lock);
    intake->is_refused = true;
    pthread_mutex_unlock(&intake->lock);
}

static void abandon(fb_intake *intake) {
    intake->is_open = false;
    intake->exchange->route->sink->abandon(intake->exchange->request.body_state);
}

/* Moves what the sink said to the exchange, which the caller owns. */
static void take_refusal(fb_intake *intake) {
    fb_response *response = &intake->exchange->response;
    if (response->status || response->failed) return;
    *response = intake->response;
    intake->response = (fb_response){.bytes = ""};
    fb_response_require(response);
}

/* The body has ended: the handler ends what the sink began, unless there is an answer already. */
static void answer(fb_intake *intake) {
    fb_exchange *exchange = intake->exchange;
    if (intake->is_refused) take_refusal(intake);
    if (!exchange_is_due(exchange) && intake->is_open) abandon(intake);
    intake->is_open = false;
    free_part(intake, &intake->filling);
    free_part(intake, &intake->writing);
    exchange_work(exchange);
    pthread_mutex_lock(&intake->lock);
    intake->is_busy = false;
    pthread_mutex_unlock(&intake->lock);
    MHD_resume_connection(exchange->mhd); /* from here on the exchange is its I/O thread's again */
}

typedef enum step { WRITE, ABANDON, ANSWER, FREE, REST } step;

static step next_step(fb_intake *intake) {
    bool is_over = intake->has_ended || intake->is_left;
    if (intake->is_refused && intake->is_open) return ABANDON;
    if (intake->is_full || (is_over && intake->filling.size)) {
        fb_part full = intake->filling;
        intake->filling = intake->writing;
        intake->filling.size = 0;
        intake->writing = full;
        intake->is_full = false;
        if (intake->is_suspended) MHD_resume_connection(intake->exchange->mhd);
        intake->is_suspended = false;
        if (intake->is_open) return WRITE;
    }
    if (intake->has_ended) return ANSWER;
    if (intake->is_left) return intake->is_open ? ABANDON : FREE;
    intake->is_busy = false;
    return REST;
}

static void work(void *argument) {
    fb_intake *intake = argument;
    for (;;) {
        pthread_mutex_lock(&intake->lock);
        step next = next_step(intake);
        pthread_mutex_unlock(&intake->lock);
        switch (next) {
        case WRITE: write_part(intake); break;
        case ABANDON: abandon(intake); break;
        case ANSWER: answer(intake); return;
        case FREE: {
            fb_exchange *exchange = intake->exchange;
            free_intake(intake);
            fb_exchange_free(exchange);
            return;
        }
        case REST: return;
        }
    }
}

/* -- on the I/O thread -------------------------------------------------------------------------------------------------- */

/* For a route with a sink: makes exchange->intake and a job that calls the sink's `begin`. False when memory is out; then there
 * is an answer. */
static bool intake_begin(fb_exchange *exchange) {
    fb_intake *intake = calloc(1, sizeof *intake);
    if (!intake) {
        exchange->response.failed = true;
        return false;
    }
    intake->exchange = exchange;
    intake->response.bytes = "";
    intake->part_size =
        exchange->is_chunked || exchange->content_length > FB_PART_SIZE ? FB_PART_SIZE : (size_t)exchange->content_length;
    pthread_mutex_init(&intake->lock, NULL);
    exchange->intake = intake;
    exchange->job.run = begin_transfer;
    return true;
}

/* After that job: what `begin` said. When it refused there is an answer, and no intake any more. */
static bool intake_has_begun(fb_exchange *exchange) {
    fb_intake *intake = exchange->intake;
    if (intake->is_open) return true;
    fb_response_require(&exchange->response);
    free_intake(intake);
    return false;
}

/* With the lock. */
static bool set_to_work(fb_intake *intake) {
    if (!intake->is_busy) intake->is_busy = fb_queue_push(&intake->exchange->server->queue, &intake->exchange->job);
    return intake->is_busy;
}

/* True if `filling` has room; otherwise the connection is suspended, or has an answer. */
static bool has_room(fb_intake *intake) {
    fb_exchange *exchange = intake->exchange;
    pthread_mutex_lock(&intake->lock);
    bool is_refused = intake->is_refused, is_full = intake->is_full;
    if (is_full && !is_refused) {
        fb_connection_wait(exchange->server, exchange->connection, FB_WAITING_WORK, 0);
        MHD_suspend_connection(exchange->mhd);
        intake->is_suspended = true;
    }
    pthread_mutex_unlock(&intake->lock);
    if (is_refused) take_refusal(intake);
    return !is_refused && !is_full;
}

/* There is an answer, an error: the sink is abandoned. */
static void intake_refuse(fb_exchange *exchange) {
    fb_intake *intake = exchange->intake;
    pthread_mutex_lock(&intake->lock);
    intake->is_refused = true;
    set_to_work(intake);
    pthread_mutex_unlock(&intake->lock);
}

/* Memory for `filling`, counted. */
static bool make_part(fb_intake *intake) {
    fb_exchange *exchange = intake->exchange;
    fb_http_server *server = exchange->server;
    size_t size = intake->part_size;
    if (intake->filling.bytes) return true;
    bool fits = atomic_fetch_add(&server->body_memory, size) + size <= server->config.body_memory_limit;
    if (fits && (intake->filling.bytes = malloc(size))) return true;
    atomic_fetch_sub(&server->body_memory, size);
    if (fits) exchange->response.failed = true;
    else respond_body_memory(exchange);
    intake_refuse(exchange);
    return false;
}

/* Takes a piece of the body and returns how much of it is left: when any is, the connection is suspended until there is room,
 * or there is an answer now. */
static size_t intake_take(fb_exchange *exchange, const char *bytes, size_t size) {
    fb_intake *intake = exchange->intake;
    while (size && has_room(intake) && make_part(intake)) {
        fb_part *filling = &intake->filling;
        size_t room = intake->part_size - filling->size, taken = size < room ? size : room;
        memcpy(filling->bytes + filling->size, bytes, taken);
        filling->size += taken;
        bytes += taken;
        size -= taken;
        if (filling->size < intake->part_size) continue;
        pthread_mutex_lock(&intake->lock);
        intake->is_full = true;
        bool is_taken = set_to_work(intake);
        pthread_mutex_unlock(&intake->lock);
        if (is_taken) continue;
        respond_stopping(exchange);
        break;
    }
    return size;
}

/* The body has come to its end: suspends; afterwards the answer is made. */
static void intake_finish(fb_exchange *exchange) {
    fb_intake *intake = exchange->intake;
    MHD_suspend_connection(exchange->mhd);
    pthread_mutex_lock(&intake->lock);
    intake->has_ended = set_to_work(intake);
    bool is_taken = intake->has_ended;
    pthread_mutex_unlock(&intake->lock);
    if (is_taken) return;
    respond_stopping(exchange);
    MHD_resume_connection(exchange->mhd);
}

/* The exchange has ended: frees it, now or when the sink has let go of it. */
static void intake_leave(fb_exchange *exchange) {
    fb_intake *intake = exchange->intake;
    pthread_mutex_lock(&intake->lock);
    intake->is_left = true;
    intake->has_ended = false;
    bool is_free = !intake->is_busy, is_taken = !is_free || (intake->is_open && set_to_work(intake));
    pthread_mutex_unlock(&intake->lock);
    if (!is_taken) work(intake); /* nothing to wait for, or the workers are gone */
}

/* ---- the steps ---------------------------------------------------------------------------------------------------------- */

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
    if (!intake_begin(exchange)) return refuse(exchange);
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
        respond_stopping(exchange);
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
    else if (!fits) respond_body_memory(exchange);
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
        intake_refuse(exchange);
    } else {
        size = intake_take(exchange, data, size);
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
        exchange_work(exchange);
        return send_answer(exchange);
    }
    exchange->phase = FB_PHASE_WORKING;
    exchange_begin_work(exchange);
    return push(exchange) ? MHD_YES : MHD_NO;
}

/* The whole request is there, and has a sink. Also after an error: the sink has let go before its answer is sent. */
static enum MHD_Result finish_sink(fb_exchange *exchange) {
    if (exchange->route->body == FB_BODY_REQUIRED && !exchange->received && !is_answered(exchange))
        respond_missing_body(exchange);
    exchange->request.body_size = exchange->received;
    exchange->phase = FB_PHASE_WORKING;
    exchange_begin_work(exchange);
    if (!fb_connection_wait(exchange->server, exchange->connection, FB_WAITING_WORK, 0)) return MHD_NO;
    exchange->times.queued = fb_monotonic_ns();
    intake_finish(exchange);
    return MHD_YES;
}

static enum MHD_Result end_of_body(fb_exchange *exchange) {
    bool is_bad = !is_answered(exchange) && !fb_guard_trailers(exchange);
    if (is_bad && exchange->intake) intake_refuse(exchange);
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
    if (exchange->phase == FB_PHASE_BEGINNING) return intake_has_begun(exchange) ? begin_reading(exchange) : refuse(exchange);
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
    int64_t taken = fb_monotonic_ns() - exchange->started;
    if (exchange->is_counted) {
        bool is_answered = exchange->phase == FB_PHASE_SENDING;
        int status = is_answered ? exchange->response.status : 0;
        bool has_body = is_answered && !exchange->is_head && status != 304 && code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
        fb_metrics_record(exchange, status, taken);
        uint64_t size = exchange->stream ? fb_stream_end(exchange) : has_body ? exchange->response.size : 0;
        fb_log_access(exchange, status, size, taken);
    }
    fb_connection_wait(server, exchange->connection, FB_WAITING_IDLE, 0);
    if (exchange->intake) intake_leave(exchange);
    else fb_exchange_free(exchange);
}
