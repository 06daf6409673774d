/* GET /livez, /readyz and /metrics, and the same on a listener of their own (--metrics-listen). */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/buffer.h"
#include "server/graphs/app.h"
#include "server/graphs/graphs.h"
#include "server/metrics/metrics.h"
#include "server/routes/routes.h"
#include "server/webhooks/webhooks.h"

/* Metrics of the process itself, under Prometheus' usual names. */

/* A file of /proc as text; false when it cannot be read: then the line is left out. */
static bool read_file(const char *path, char *text, size_t space) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t size = fread(text, 1, space - 1, file);
    fclose(file);
    text[size] = '\0';
    return size > 0;
}

static void print_memory(fb_buffer *out) {
    char text[256];
    unsigned long long virtual_pages, resident_pages;
    if (!read_file("/proc/self/statm", text, sizeof text)) return;
    if (sscanf(text, "%llu %llu", &virtual_pages, &resident_pages) != 2) return;
    double page = (double)sysconf(_SC_PAGESIZE);
    fb_print_metric(out, "process_virtual_memory_bytes", "gauge", "Virtual memory.", (double)virtual_pages * page);
    fb_print_metric(out, "process_resident_memory_bytes", "gauge", "Resident memory.", (double)resident_pages * page);
}

static void print_allocator(fb_buffer *out) {
    fb_allocator_figures figures = fb_allocator_read();
    fb_print_metric(out, "foldback_memory_used_bytes", "gauge", "Memory that is allocated.", (double)figures.used);
    fb_print_metric(out, "foldback_memory_free_bytes", "gauge",
                    "Memory that was freed and is kept for later; some of it is resident.", (double)figures.free);
}

static void print_descriptors(fb_buffer *out) {
    DIR *folder = opendir("/proc/self/fd");
    if (folder) {
        double count = -3; /* "." and ".." and the folder itself */
        while (readdir(folder)) count++;
        closedir(folder);
        fb_print_metric(out, "process_open_fds", "gauge", "Open file descriptors.", count);
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        fb_print_metric(out, "process_max_fds", "gauge", "Most file descriptors that may be open.", (double)limit.rlim_cur);
}

static void print_times(fb_buffer *out) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        double seconds = (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec;
        double microseconds = (double)usage.ru_utime.tv_usec + (double)usage.ru_stime.tv_usec;
        fb_print_metric(out, "process_cpu_seconds_total", "counter", "Processor time, of user and system.",
                        seconds + microseconds / 1e6);
    }
    char text[8192];
    const char *after_name = read_file("/proc/self/stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    unsigned long long start;
    if (!after_name || sscanf(after_name, ") %*c%*d%*d%*d%*d%*d%*u%*u%*u%*u%*u%*u%*u%*d%*d%*d%*d%*d%*d%llu", &start) != 1)
        return;
    const char *boot = read_file("/proc/stat", text, sizeof text) ? strstr(text, "btime ") : NULL;
    if (!boot) return;
    double since_boot = (double)start / (double)sysconf(_SC_CLK_TCK);
    fb_print_metric(out, "process_start_time_seconds", "gauge", "When the process began, in seconds since 1970.",
                    (double)strtoll(boot + strlen("btime "), NULL, 10) + since_boot);
}

static void process_metrics(fb_buffer *out) {
    print_memory(out);
    print_allocator(out);
    print_descriptors(out);
    print_times(out);
}

/* The process answers. */
static void get_live(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_json_take(response, 200, json_pack("{s:s}", "status", "live"));
}

/* It can do its work: the store reads and writes, and its bucket, if it has one, answers. */
static void get_ready(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_status status = fb_store_health(app->store, &error);
    if (!status) status = fb_store_bucket_health(app->store, &error);
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
    if (app->webhooks) fb_webhooks_metrics(app->webhooks, &text);
    process_metrics(&text);
    if (!status) {
        fb_respond_buffer_take(response, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
        return;
    }
    fb_respond_error(response, &error);
    fb_buffer_free(&text);
}

static void get_metrics(const fb_request *request, fb_response *response) {
    respond_metrics(request->context, fb_request_server(request), response);
}

/* ---- on a listener of their own ----------------------------------------------------------------------------------------- */

#define PATIENCE_MS 3000

/* Not whether this listener answers, but whether the one that serves does. */
static void get_live_of_service(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    if (fb_http_probe(app->http, "/livez", PATIENCE_MS, &error)) fb_respond_error(response, &error);
    else get_live(request, response);
}

static void get_metrics_of_service(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    respond_metrics(app, app->http, response);
}

const fb_route fb_metrics_routes[] = {
    {.method = "GET", .pattern = "/livez", .handler = get_live_of_service, .scope = FB_SCOPE_NONE},
    {.method = "GET", .pattern = "/readyz", .handler = get_ready, .scope = FB_SCOPE_NONE},
    {.method = "GET",
     .pattern = "/metrics",
     .handler = get_metrics_of_service,
     .scope = FB_SCOPE_NONE,
     .produces = "text/plain"},
};

const size_t fb_metrics_route_count = sizeof fb_metrics_routes / sizeof *fb_metrics_routes;

const fb_route fb_health_routes[] = {
    {.method = "GET", .pattern = "/livez", .handler = get_live, .scope = FB_SCOPE_NONE, .is_probe = true, .is_inline = true},
    {.method = "GET", .pattern = "/readyz", .handler = get_ready, .scope = FB_SCOPE_NONE, .is_probe = true},
    {.method = "GET", .pattern = "/metrics", .handler = get_metrics, .scope = FB_SCOPE_READ, .produces = "text/plain"},
    {0},
};
