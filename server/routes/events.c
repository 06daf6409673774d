/* GET /v1/events: what happens, as server-sent events (WHATWG HTML, 9.2). */
#include <string.h>

#include "server/events/event_hub.h"
#include "server/graphs/app.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* A name to filter by, NULL when absent. False when this has responded. */
static bool read_name(const fb_request *request, fb_response *response, const char *parameter, const char **name) {
    *name = fb_request_query(request, parameter);
    if (!*name || fb_is_name(*name)) return true;
    return fb_refuse_parameter(response, parameter, "bad-name",
                               "a name has letters, digits, '.', '_' and '-', and is not . or ..");
}

/* "alias,run": kinds of events, by default alias alone. False when this has responded. */
static bool read_kinds(const fb_request *request, fb_response *response, unsigned *kinds) {
    const char *text = fb_request_query(request, "types");
    *kinds = text ? 0 : 1U << FB_EVENT_ALIAS;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        fb_event_kind kind = 0;
        while (kind < FB_EVENT_KINDS && (strncmp(fb_event_kind_name(kind), text, length) || fb_event_kind_name(kind)[length]))
            kind++;
        if (kind == FB_EVENT_KINDS) break;
        *kinds |= 1U << kind;
        text += length + (text[length] == ',' && text[length + 1]);
    }
    if (*kinds && (!text || !*text)) return true;
    return fb_refuse_parameter(response, "types", "unknown-event-type",
                               "types are alias, version and run, separated by commas");
}

/* The place that the client has got to: it says so when it comes back, otherwise it is the last one of all. */
static bool read_start(const fb_request *request, fb_response *response, const fb_event_wish *wish, const fb_event_place *last,
                       const fb_event_place *highest, fb_event_place *start) {
    const char *since = fb_request_query(request, "since"), *seen = fb_request_header(request, "Last-Event-ID");
    *start = *last;
    if (since && strcmp(since, "0") == 0) *start = (fb_event_place){0};
    else if (since && !fb_event_id_read(since, start))
        return fb_refuse_parameter(response, "since", "bad-parameter", "since is the id of an event, or 0 for all of them");
    if (seen && strcmp(seen, "0") == 0) *start = (fb_event_place){0};
    else if (seen && !fb_event_id_read(seen, start)) {
        fb_respond_problem(response, 422, "bad-last-event-id", "Last-Event-ID must be the id of an event");
        return false;
    }
    for (fb_event_kind kind = 0; kind < FB_EVENT_KINDS; kind++) {
        if (!(wish->kinds & 1U << kind) || start->of[kind] <= highest->of[kind]) continue;
        /* A client of another data folder: it would miss everything up to that number. */
        fb_respond_problem(response, 422, "unknown-event", "there is no event %lld yet, the last one of type %s is %lld",
                           (long long)start->of[kind], fb_event_kind_name(kind), (long long)last->of[kind]);
        return false;
    }
    return true;
}

static void get_events(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_event_place last, highest, start;
    fb_event_wish wish;
    if (!read_name(request, response, "model", &wish.model) || !read_name(request, response, "alias", &wish.alias) ||
        !read_kinds(request, response, &wish.kinds))
        return;
    fb_status status = fb_store_last_event(app->store, &last, &highest, &error);
    if (!status && !read_start(request, response, &wish, &last, &highest, &start)) return;
    fb_subscriber *subscriber = status ? NULL : fb_event_hub_subscribe(app->events, &wish, &start);
    if (!subscriber) {
        if (!status) fb_fail_memory(&error);
        fb_respond_error(response, &error);
        return;
    }
    fb_response_header(response, "X-Accel-Buffering", "no"); /* nginx would hold events back */
    fb_respond_stream(request, response, "text/event-stream", &fb_event_source, subscriber);
}

const fb_route fb_event_routes[] = {
    {.method = "GET",
     .pattern = "/v1/events",
     .handler = get_events,
     .scope = FB_SCOPE_READ,
     .query = "types,model,alias,since",
     .produces = "text/event-stream"},
    {0},
};
