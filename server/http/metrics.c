/* Counters by route, and their text for Prometheus. */
#include "server/http/internal.h"

#include <string.h>

static const double bounds[FB_METRIC_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};

static const char *const rejection_names[FB_REJECTION_COUNT] = {
    [FB_REJECTED_QUEUE_FULL] = "queue-full",
    [FB_REJECTED_STOPPING] = "stopping",
    [FB_REJECTED_BODY_MEMORY] = "body-memory",
    [FB_REJECTED_FRAMING] = "framing",
    [FB_REJECTED_DEADLINE] = "deadline",
    [FB_REJECTED_STREAMS] = "streams",
    [FB_REJECTED_ADDRESS] = "address",
    [FB_REJECTED_ACCESS] = "access",
    [FB_REJECTED_RATE] = "rate",
    [FB_REJECTED_WORK_DEADLINE] = "work-deadline",
    [FB_REJECTED_CLIENT_LEFT] = "client-left",
};

void fb_metrics_record(fb_exchange *exchange, int status, int64_t nanoseconds) {
    fb_http_server *server = exchange->server;
    size_t index = exchange->route ? (size_t)(exchange->route - server->routes) : server->route_count;
    fb_route_metrics *metrics = &server->metrics[index];
    if (status < 0 || status >= FB_METRIC_STATUSES) status = 0;
    size_t bucket = 0;
    while (bucket < FB_METRIC_BUCKETS && (double)nanoseconds > bounds[bucket] * 1e9) bucket++;
    atomic_fetch_add_explicit(&metrics->statuses[status], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metrics->buckets[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metrics->nanoseconds, (unsigned long long)nanoseconds, memory_order_relaxed);
}

void fb_metrics_reject(fb_http_server *server, fb_rejection reason) {
    atomic_fetch_add_explicit(&server->rejected[reason], 1, memory_order_relaxed);
}

static void print_requests(const fb_http_server *server, fb_buffer *out) {
    fb_print_metric_head(out, "foldback_http_requests_total", "counter",
                         "Requests by route, method and status (0: the client left first).");
    for (size_t r = 0; r <= server->route_count; r++) {
        bool is_route = r < server->route_count;
        for (int status = 0; status < FB_METRIC_STATUSES; status++) {
            unsigned long long count = atomic_load_explicit(&server->metrics[r].statuses[status], memory_order_relaxed);
            if (!count) continue;
            fb_buffer_printf(out, "foldback_http_requests_total{route=\"%s\",method=\"%s\",status=\"%d\"} %llu\n",
                             is_route ? server->routes[r].pattern : "", is_route ? server->routes[r].method : "", status,
                             count);
        }
    }
}

static void print_durations(const fb_http_server *server, fb_buffer *out) {
    static const char name[] = "foldback_http_request_duration_seconds";
    fb_print_metric_head(out, name, "histogram", "From the request line to the end of the answer.");
    for (size_t r = 0; r < server->route_count; r++) {
        const fb_route *route = &server->routes[r];
        const fb_route_metrics *metrics = &server->metrics[r];
        unsigned long long counts[FB_METRIC_BUCKETS + 1], total = 0;
        for (size_t b = 0; b <= FB_METRIC_BUCKETS; b++)
            total += counts[b] = atomic_load_explicit(&metrics->buckets[b], memory_order_relaxed);
        if (!total) continue;
        unsigned long long below = 0;
        for (size_t b = 0; b < FB_METRIC_BUCKETS; b++)
            fb_buffer_printf(out, "%s_bucket{route=\"%s\",method=\"%s\",le=\"%g\"} %llu\n", name, route->pattern, route->method,
                             bounds[b], below += counts[b]);
        fb_buffer_printf(out, "%s_bucket{route=\"%s\",method=\"%s\",le=\"+Inf\"} %llu\n", name, route->pattern, route->method,
                         total);
        double seconds = (double)atomic_load_explicit(&metrics->nanoseconds, memory_order_relaxed) / 1e9;
        fb_buffer_printf(out, "%s_sum{route=\"%s\",method=\"%s\"} %.9g\n", name, route->pattern, route->method, seconds);
        fb_buffer_printf(out, "%s_count{route=\"%s\",method=\"%s\"} %llu\n", name, route->pattern, route->method, total);
    }
}

void fb_http_metrics(const fb_http_server *constant, fb_buffer *out) {
    fb_http_server *server = (fb_http_server *)(uintptr_t)constant; /* only its locks are touched */
    print_requests(server, out);
    print_durations(server, out);

    pthread_mutex_lock(&server->flight_lock);
    unsigned in_flight = server->in_flight;
    pthread_mutex_unlock(&server->flight_lock);
    pthread_mutex_lock(&server->queue.lock);
    unsigned depth = server->queue.depth;
    pthread_mutex_unlock(&server->queue.lock);
    pthread_mutex_lock(&server->reaper.lock);
    unsigned connections = server->reaper.count;
    pthread_mutex_unlock(&server->reaper.lock);
    pthread_mutex_lock(&server->streams.lock);
    unsigned streams = server->streams.count;
    pthread_mutex_unlock(&server->streams.lock);
    fb_print_metric(out, "foldback_http_in_flight", "gauge",
                    "Requests whose headers have come and whose answer is not sent yet.", in_flight);
    fb_print_metric(out, "foldback_http_queue_depth", "gauge", "Requests that wait for a worker.", depth);
    fb_print_metric(out, "foldback_http_connections", "gauge", "Open connections.", connections);
    fb_print_metric(out, "foldback_http_streams", "gauge", "Open event streams.", streams);
    fb_print_metric(out, "foldback_http_body_bytes", "gauge", "Memory that request bodies hold.",
                    (double)atomic_load(&server->body_memory));

    fb_print_metric_head(out, "foldback_http_rejected_total", "counter", "Requests and connections turned away, by reason.");
    for (int reason = 0; reason < FB_REJECTION_COUNT; reason++)
        fb_buffer_printf(out, "foldback_http_rejected_total{reason=\"%s\"} %llu\n", rejection_names[reason],
                         atomic_load_explicit(&server->rejected[reason], memory_order_relaxed));
}
