/* GET /v1/events: changes of aliases as server-sent events (WHATWG HTML, 9.2). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/app.h"
#include "server/events/event_hub.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"
#include "server/store/models.h"

/* A name to filter by, NULL when absent. False when this has responded. */
static bool read_name(const fb_request *request, fb_response *response, const char *parameter, const char **name) {
    *name = fb_request_query(request, parameter);
    if (!*name || fb_is_name(*name)) return true;
    return fb_refuse_parameter(response, parameter, "bad-name",
                               "a name has letters, digits, '.', '_' and '-', and is not . or ..");
}

static bool read_number(const char *text, int64_t *number) {
    size_t digits = strspn(text, "0123456789");
    errno = 0;
    *number = strtoll(text, NULL, 10);
    return digits && !text[digits] && !errno;
}

/* The number of the last entry that the client has got: it says so when it comes back, otherwise it is the last one of all. */
static bool read_start(const fb_request *request, fb_response *response, int64_t last, int64_t *start) {
    const char *seen = fb_request_header(request, "Last-Event-ID");
    if (!fb_request_query_int(request, response, "since", 0, INT64_MAX, last, start)) return false;
    if (seen && !read_number(seen, start)) {
        fb_respond_problem(response, 422, "bad-last-event-id", "Last-Event-ID must be a number: the id of an event");
        return false;
    }
    if (*start <= last) return true;
    /* A client of another data folder: it would miss everything up to that number. */
    fb_respond_problem(response, 422, "unknown-event", "there is no event %lld yet, the last one is %lld", (long long)*start,
                       (long long)last);
    return false;
}

static void get_events(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    int64_t last, start;
    const char *model, *alias;
    if (!read_name(request, response, "model", &model) || !read_name(request, response, "alias", &alias)) return;
    fb_status status = fb_store_last_alias_event(app->store, &last, &error);
    if (!status && !read_start(request, response, last, &start)) return;
    fb_subscriber *subscriber = status ? NULL : fb_event_hub_subscribe(app->events, model, alias, start);
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
     .query = "model,alias,since",
     .produces = "text/event-stream"},
    {0},
};
