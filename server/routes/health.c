/* GET /livez, /readyz and /metrics, and the same on a listener of their own (--metrics-listen). */
#include "server/app.h"
#include "server/metrics/process_metrics.h"
#include "server/routes/routes.h"

/* The process answers. */
void fb_get_live(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_json_take(response, 200, json_pack("{s:s}", "status", "live"));
}

/* It can do its work: the store reads and writes. */
void fb_get_ready(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_status status = fb_store_health(app->store, &error);
    if (!status) {
        fb_respond_json_take(response, 200, json_pack("{s:s}", "status", "ready"));
        return;
    }
    fb_respond_problem(response, 503, error.code, "%s", error.message);
    fb_response_header(response, "Retry-After", "5");
}

static void respond_metrics(const fb_app *app, const fb_http_server *http, fb_response *response) {
    fb_error error = {0};
    fb_buffer text = {0};
    fb_buffer_string(&text, "# HELP foldback_build_info The program's version.\n# TYPE foldback_build_info gauge\n"
                            "foldback_build_info{version=\"" FB_VERSION "\"} 1\n");
    fb_http_metrics(http, &text);
    fb_status status = fb_store_metrics(app->store, &text, &error);
    fb_cache_metrics(app->cache, &text);
    fb_pass_counts_metrics(app->counts, &text);
    if (app->jobs) fb_jobs_metrics(app->jobs, &text);
    fb_process_metrics(&text);
    if (!status) {
        fb_respond_buffer_take(response, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
        return;
    }
    fb_respond_error(response, &error);
    fb_buffer_free(&text);
}

void fb_get_metrics(const fb_request *request, fb_response *response) {
    respond_metrics(request->context, fb_request_server(request), response);
}

/* ---- on a listener of their own ----------------------------------------------------------------------------------------- */

#define PATIENCE_MS 3000

/* Not whether this listener answers, but whether the one that serves does. */
static void get_live_of_service(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    if (fb_http_probe(app->http, "/livez", PATIENCE_MS, &error)) fb_respond_error(response, &error);
    else fb_get_live(request, response);
}

static void get_metrics_of_service(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    respond_metrics(app, app->http, response);
}

const fb_route fb_metrics_routes[] = {
    {.method = "GET", .pattern = "/livez", .handler = get_live_of_service, .scope = FB_SCOPE_NONE},
    {.method = "GET", .pattern = "/readyz", .handler = fb_get_ready, .scope = FB_SCOPE_NONE},
    {.method = "GET",
     .pattern = "/metrics",
     .handler = get_metrics_of_service,
     .scope = FB_SCOPE_NONE,
     .produces = "text/plain"},
};

const size_t fb_metrics_route_count = sizeof fb_metrics_routes / sizeof *fb_metrics_routes;
