/* GET /ui and below: the viewer, files that are part of the program. It asks the API for all that it shows, as any client does.
 */
#include <string.h>

#include "server/routes/routes.h"

typedef struct ui_file {
    const char *name, *tag;
    const unsigned char *bytes;
    size_t size;
} ui_file;

#include "ui.inc"

/* Nothing from outside, no script or style in the page itself, and in no frame. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

static const char *type_of(const char *name) {
    const char *dot = strrchr(name, '.');
    return !strcmp(dot, ".js")    ? "text/javascript; charset=utf-8"
           : !strcmp(dot, ".css") ? "text/css; charset=utf-8"
           : !strcmp(dot, ".svg") ? "image/svg+xml"
                                  : "text/html; charset=utf-8";
}

static void respond_file(fb_response *response, const char *name) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(files[i].name, name) != 0) continue;
        fb_response_header(response, "Content-Security-Policy", policy);
        fb_response_header(response, "Referrer-Policy", "no-referrer");
        fb_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
        fb_response_etag(response, files[i].tag);
        fb_respond_bytes(response, 200, type_of(name), files[i].bytes, files[i].size, NULL, NULL);
        return;
    }
    fb_respond_problem(response, 404, "not-found", "there is nothing at this path");
}

/* Which page an address means, its script finds out. */
static void get_ui(const fb_request *request, fb_response *response) {
    (void)request;
    respond_file(response, "index.html");
}

static bool is_page(const char *name) {
    static const char *const pages[] = {"models", "runs", "graphs", "compare", "jobs"};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (!strcmp(pages[i], name)) return true;
    return false;
}

static void get_ui_page(const fb_request *request, fb_response *response) {
    const char *name = fb_request_param(request, "page");
    respond_file(response, is_page(name) ? "index.html" : name);
}

static void get_ui_thing(const fb_request *request, fb_response *response) {
    respond_file(response, is_page(fb_request_param(request, "page")) ? "index.html" : "");
}

const fb_route fb_ui_routes[] = {
    {.method = "GET", .pattern = "/ui", .handler = get_ui, .scope = FB_SCOPE_NONE, .produces = "text/html", .is_inline = true},
    {.method = "GET",
     .pattern = "/ui/{page}",
     .handler = get_ui_page,
     .scope = FB_SCOPE_NONE,
     .produces = "text/html,text/css,text/javascript,image/svg+xml",
     .is_inline = true},
    {.method = "GET",
     .pattern = "/ui/{page}/{thing}",
     .handler = get_ui_thing,
     .scope = FB_SCOPE_NONE,
     .produces = "text/html",
     .is_inline = true},
    {0},
};
