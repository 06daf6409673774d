/* GET /livez, /readyz and /metrics. */
#include "server/app.h"
#include "server/process_metrics.h"
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

void fb_get_metrics(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_buffer text = {0};
    fb_buffer_string(&text, "# HELP foldback_build_info The program's version.\n# TYPE foldback_build_info gauge\n"
                            "foldback_build_info{version=\"" FB_VERSION "\"} 1\n");
    fb_http_metrics(fb_request_server(request), &text);
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
