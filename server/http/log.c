/* The access log: one JSON object a line. Neither query nor headers are in it: tokens travel there. */
#include "server/http/internal.h"

#include <string.h>
#include <time.h>

static void append_time(fb_buffer *line) {
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    fb_buffer_printf(line, "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ\"", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1000000);
}

/* A member whose text came from the network: what is not printable ASCII becomes '?'. */
static void append_text(fb_buffer *line, const char *name, const char *text, size_t size) {
    char printable[512];
    if (size > sizeof printable) size = sizeof printable;
    for (size_t i = 0; i < size; i++) printable[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    fb_buffer_printf(line, ",\"%s\":", name);
    fb_buffer_json_string(line, printable, size);
}

void fb_log_request(const fb_exchange *exchange, int status, uint64_t bytes_out, int64_t nanoseconds) {
    FILE *log = exchange->server->config.access_log;
    if (!log) return;
    const char *target = exchange->target ? exchange->target : "", *method = exchange->request.method;
    fb_buffer line = {0};
    append_time(&line);
    append_text(&line, "request", exchange->id, strlen(exchange->id));
    append_text(&line, "method", exchange->is_head ? "HEAD" : method, strlen(exchange->is_head ? "HEAD" : method));
    append_text(&line, "path", target, strcspn(target, "?"));
    if (exchange->route) append_text(&line, "route", exchange->route->pattern, strlen(exchange->route->pattern));
    fb_buffer_printf(&line, ",\"status\":%d,\"bytes_in\":%llu,\"bytes_out\":%llu,\"ms\":%.3f", status,
                     (unsigned long long)exchange->received, (unsigned long long)bytes_out, (double)nanoseconds / 1e6);
    fb_trace_print(exchange, &line);
    append_text(&line, "who", exchange->request.principal, strlen(exchange->request.principal));
    append_text(&line, "remote", exchange->connection->remote, strlen(exchange->connection->remote));
    fb_error error = {0};
    if (exchange->pull && fb_pull_error(exchange->pull, &error))
        append_text(&line, "error", error.message, strlen(error.message));
    fb_buffer_string(&line, "}\n");
    if (!line.failed) fwrite(line.data, 1, line.size, log); /* one call: lines of several threads do not mix */
    fb_buffer_free(&line);
}
