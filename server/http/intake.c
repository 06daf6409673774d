/* A body on its way to the sink of its route.
 *
 *     I/O thread ──► filling ──(full: the two change places)──► writing ──► sink.write, on a worker
 *
 * While a worker writes one part the I/O thread fills the other; when that is full too the connection is suspended until they
 * can change places. The worker goes on as long as there is something to do and then rests; so there is one job of a transfer
 * at most, and all functions of its sink are called one after the other. A client that leaves is noticed while a worker is in
 * the sink: the exchange is then freed by the worker, after `abandon`.
 *
 * Locks are taken in this order: ours, those of the queue, the reaper and libmicrohttpd.
 */
#include "server/http/internal.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- on a worker -------------------------------------------------------------------------------------------------------- */

static void work(void *intake);

static void begin(void *argument) {
    fb_exchange *exchange = argument;
    fb_request *request = &exchange->request;
    uint64_t size = exchange->is_chunked ? FB_SIZE_UNKNOWN : exchange->content_length;
    if (fb_exchange_is_due(exchange))
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
    if (!fb_exchange_is_due(exchange) && intake->is_open) abandon(intake);
    intake->is_open = false;
    free_part(intake, &intake->filling);
    free_part(intake, &intake->writing);
    fb_exchange_work(exchange);
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

/* ---- on the I/O thread -------------------------------------------------------------------------------------------------- */

bool fb_intake_begin(fb_exchange *exchange) {
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
    exchange->job.run = begin;
    return true;
}

bool fb_intake_has_begun(fb_exchange *exchange) {
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

/* Whether `filling` has room; otherwise the connection is suspended, or there is an answer. */
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
    else fb_respond_body_memory(exchange);
    fb_intake_refuse(exchange);
    return false;
}

size_t fb_intake_take(fb_exchange *exchange, const char *bytes, size_t size) {
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
        fb_respond_stopping(exchange);
        break;
    }
    return size;
}

void fb_intake_refuse(fb_exchange *exchange) {
    fb_intake *intake = exchange->intake;
    pthread_mutex_lock(&intake->lock);
    intake->is_refused = true;
    set_to_work(intake);
    pthread_mutex_unlock(&intake->lock);
}

void fb_intake_finish(fb_exchange *exchange) {
    fb_intake *intake = exchange->intake;
    MHD_suspend_connection(exchange->mhd);
    pthread_mutex_lock(&intake->lock);
    intake->has_ended = set_to_work(intake);
    bool is_taken = intake->has_ended;
    pthread_mutex_unlock(&intake->lock);
    if (is_taken) return;
    fb_respond_stopping(exchange);
    MHD_resume_connection(exchange->mhd);
}

void fb_intake_leave(fb_exchange *exchange) {
    fb_intake *intake = exchange->intake;
    pthread_mutex_lock(&intake->lock);
    intake->is_left = true;
    intake->has_ended = false;
    bool is_free = !intake->is_busy, is_taken = !is_free || (intake->is_open && set_to_work(intake));
    pthread_mutex_unlock(&intake->lock);
    if (!is_taken) work(intake); /* nothing to wait for, or the workers are gone */
}
