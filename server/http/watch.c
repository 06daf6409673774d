/* When the work for a request is to end before it is done. */
#include "server/http/internal.h"

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
    if (!exchange->work_deadline || fb_http_now() < exchange->work_deadline) return FB_OK;
    count(exchange, FB_REJECTED_WORK_DEADLINE);
    return fb_fail(error, FB_BUSY, "deadline-exceeded", NULL,
                   "the work is too large to be done within %u s (--request-timeout) and has been stopped. With Prefer: "
                   "respond-async, where that is taken, it becomes a job, which may take longer",
                   exchange->server->config.request_timeout_ms / 1000);
}

void fb_exchange_watch(fb_exchange *exchange) {
    exchange->watch = (fb_watch){.context = exchange, .check = check};
}

void fb_exchange_begin_work(fb_exchange *exchange) {
    exchange->work_deadline = fb_http_now() + (int64_t)exchange->server->config.request_timeout_ms * 1000000;
}

const fb_watch *fb_request_watch(const fb_request *request) {
    return &request->inner->watch;
}
