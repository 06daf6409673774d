/* Requests without a connection: what was asked for earlier is done now. */
#include <stdlib.h>
#include <string.h>

#include "server/http/internal.h"

static fb_exchange *new_exchange(fb_http_server *server, const fb_http_replayed *replayed) {
    fb_exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange) return NULL;
    exchange->server = server;
    exchange->target = strdup(replayed->target);
    exchange->decoded = strdup(replayed->target);
    exchange->path = strdup(replayed->target);
    exchange->response.bytes = "";
    exchange->watch = *replayed->watch;
    fb_copy_text(exchange->principal, sizeof exchange->principal, replayed->principal);
    exchange->request = (fb_request){.method = replayed->method,
                                     .path = exchange->path,
                                     .id = replayed->id,
                                     .content_type = replayed->content_type,
                                     .principal = exchange->principal,
                                     .job = replayed->job,
                                     .body = replayed->body,
                                     .body_size = replayed->body_size,
                                     .context = server->context,
                                     .inner = exchange};
    if (exchange->target && exchange->decoded && exchange->path) return exchange;
    fb_exchange_free(exchange);
    return NULL;
}

static const char *location_of(const fb_response *response) {
    for (size_t i = 0; i < response->header_count; i++)
        if (!strcmp(response->headers[i].name, "Location")) return response->headers[i].value;
    return NULL;
}

static void describe(fb_exchange *exchange, fb_http_answer *out) {
    fb_response *response = &exchange->response;
    *out = (fb_http_answer){.inner = exchange};
    if (response->stream) fb_respond_problem(response, 500, "not-replayable", "the answer has no end");
    fb_response_settle(response);
    fb_log_full_disk(exchange->server, response->status);
    fb_copy_text(out->code, sizeof out->code, response->code);
    out->status = response->status;
    out->content_type = response->content_type;
    out->location = location_of(response);
    out->bytes = response->bytes;
    out->size = response->size;
}

/* Checks the requester's token again: it may have been lost since. */
static bool is_still_admitted(fb_exchange *exchange) {
    if (fb_still_authorised(exchange)) return true;
    fb_respond_problem(&exchange->response, 403, "access-withdrawn", "the token that requested this has lost its permission");
    return false;
}

fb_status fb_http_replay(fb_http_server *server, const fb_http_replayed *replayed, fb_http_answer *out, fb_error *error) {
    fb_exchange *exchange = new_exchange(server, replayed);
    if (!exchange) return fb_fail_memory(error);
    const char *pattern = NULL;
    bool is_target = fb_target_parse(exchange);
    if (is_target) fb_route_find(exchange, &pattern);
    if (is_target && fb_route_require(exchange, pattern) && is_still_admitted(exchange) && fb_exchange_expand(exchange))
        fb_exchange_handle(exchange);
    fb_response_require(&exchange->response);
    describe(exchange, out);
    return FB_OK;
}

void fb_http_answer_free(fb_http_answer *answer) {
    if (answer->inner) fb_exchange_free(answer->inner);
    *answer = (fb_http_answer){0};
}
