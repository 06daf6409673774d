/* GET /, /docs and /openapi.yaml: where to start. */
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "server/routes/routes.h"

#include "openapi.inc"

/* Two lines to copy, with the address of this server in them. */
static void write_first_steps(const char *url, fb_buffer *out) {
    char line[320], service[160];
    snprintf(service, sizeof service, fb_http_is_path(url) ? "--unix-socket '%s' 'http://localhost" : "'%s",
             fb_http_is_path(url) ? strchr(url, ':') + 1 : url);
    fb_put_name(out, "start");
    fb_buffer_char(out, '[');
    snprintf(line, sizeof line, "curl --data-binary @graph.json %s/v1/optimize?pass=MergeLinears&include=code'", service);
    fb_buffer_json_string(out, line, strlen(line));
    snprintf(line, sizeof line, "curl -X POST %s/v1/runs/RUN/reverse?include=graph'", service);
    fb_buffer_char(out, ',');
    fb_buffer_json_string(out, line, strlen(line));
    fb_buffer_char(out, ']');
}

/* A browser is led to the viewer. */
static void get_index(const fb_request *request, fb_response *response) {
    if (fb_request_accepts(request, "text/html") > fb_request_accepts(request, "application/json")) {
        static const char note[] = "<!doctype html><title>foldback</title><a href=\"/ui\">The viewer</a>\n";
        fb_respond_bytes(response, 303, "text/html; charset=utf-8", note, sizeof note - 1, NULL, NULL);
        fb_response_header(response, "Location", "/ui");
        fb_response_header(response, "Vary", "Accept");
        return;
    }
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "name", "foldback");
    fb_put_text(&answer, "version", FB_VERSION);
    fb_put_text(&answer, "description", "optimises neural-network graphs, and puts the originals back");
    write_first_steps(fb_http_url(fb_request_server(request)), &answer);
    fb_put_text(&answer, "passes", "/v1/passes");
    fb_put_text(&answer, "graphs", "/v1/graphs");
    fb_put_text(&answer, "runs", "/v1/runs");
    fb_put_text(&answer, "models", "/v1/models");
    fb_put_text(&answer, "health", "/readyz");
    fb_put_text(&answer, "metrics", "/metrics");
    fb_put_text(&answer, "openapi", "/openapi.yaml");
    fb_put_text(&answer, "docs", "/docs");
    fb_put_text(&answer, "ui", "/ui");
    fb_buffer_string(&answer, "}\n");
    fb_respond_json_buffer_take(response, 200, &answer);
}

static void get_openapi(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_bytes(response, 200, "application/yaml", openapi, sizeof openapi - 1, NULL, NULL);
}

/* The page loads nothing and runs nothing, and its headers say so to a browser. */
static void get_docs(const fb_request *request, fb_response *response) {
    (void)request;
    fb_response_header(response, "Content-Security-Policy", docs_policy);
    fb_response_header(response, "Referrer-Policy", "no-referrer");
    fb_respond_bytes(response, 200, "text/html; charset=utf-8", docs, sizeof docs - 1, NULL, NULL);
}

const fb_route fb_index_routes[] = {
    {.method = "GET",
     .pattern = "/",
     .handler = get_index,
     .scope = FB_SCOPE_NONE,
     .query = "",
     .produces = "application/json,text/html",
     .is_inline = true},
    {.method = "GET",
     .pattern = "/openapi.yaml",
     .handler = get_openapi,
     .scope = FB_SCOPE_NONE,
     .query = "",
     .produces = "application/yaml",
     .is_inline = true},
    {.method = "GET",
     .pattern = "/docs",
     .handler = get_docs,
     .scope = FB_SCOPE_NONE,
     .query = "",
     .produces = "text/html",
     .is_inline = true},
    {0},
};
