/* The ids of a request in logs and traces, and where its time went. */
#include "server/http/internal.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

/* ---- names -------------------------------------------------------------------------------------------------------------- */

static bool is_sane_id(const char *id) {
    size_t size = strlen(id);
    return size && size <= 128 && strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:") == size;
}

/* `digits` lower-case hexadecimal digits, and the one expected after them. */
static bool is_field(const char *text, size_t digits, char after) {
    return strspn(text, "0123456789abcdef") == digits && text[digits] == after;
}

static bool is_zero(const char *text, size_t digits) {
    return strspn(text, "0") >= digits;
}

/* W3C trace context, level 1: version, trace id, parent id, flags; a later version may have more. A malformed one counts as
 * absent. */
static bool is_traceparent(const char *text) {
    bool is_first_version = !strncmp(text, "00-", 3);
    if (!is_field(text, 2, '-') || !strncmp(text, "ff", 2)) return false;
    if (!is_field(text + 3, 32, '-') || is_zero(text + 3, 32)) return false;
    if (!is_field(text + 36, 16, '-') || is_zero(text + 36, 16)) return false;
    return is_field(text + 53, 2, '\0') || (!is_first_version && is_field(text + 53, 2, '-'));
}

/* 32 hexadecimal digits. */
static void write_random(char *id, const uint64_t random[2]) {
    for (unsigned i = 0; i < 32; i++) id[i] = "0123456789abcdef"[random[i / 16] >> 4 * (i % 16) & 15];
    id[32] = '\0';
}

void fb_trace_identify(fb_exchange *exchange) {
    size_t cursor = 0;
    const char *id = fb_request_header(&exchange->request, "X-Request-Id");
    const char *trace = fb_exchange_header(exchange, "traceparent", &cursor);
    bool is_single = trace && !fb_exchange_header(exchange, "traceparent", &cursor);
    if (is_single && is_traceparent(trace)) {
        snprintf(exchange->trace, sizeof exchange->trace, "%.32s", trace + 3);
        snprintf(exchange->parent, sizeof exchange->parent, "%.16s", trace + 36);
    }
    if (id && is_sane_id(id)) {
        snprintf(exchange->id, sizeof exchange->id, "%s", id);
    } else if (*exchange->trace) {
        snprintf(exchange->id, sizeof exchange->id, "%s", exchange->trace);
    } else {
        uint64_t random[2] = {(uint64_t)exchange->started, (uint64_t)(uintptr_t)exchange};
        if (getrandom(random, sizeof random, GRND_NONBLOCK) < 0) random[0] ^= (uint64_t)fb_monotonic_ns();
        write_random(exchange->id, random);
    }
}

/* ---- times -------------------------------------------------------------------------------------------------------------- */

void fb_trace_begin_work(fb_exchange *exchange) {
    exchange->times.begun = fb_monotonic_ns();
    if (!exchange->times.queued) exchange->times.queued = exchange->times.begun;
    fb_timing_reset();
}

/* A time in milliseconds as two integers, which are printed far faster than a double. */
#define FULL_DISK_MS 60000
#define TIME "%lld.%03lld"
#define MILLISECONDS(nanoseconds) (long long)(nanoseconds) / 1000000, (long long)(nanoseconds) / 1000 % 1000

void fb_trace_end_work(fb_exchange *exchange) {
    fb_exchange_times *times = &exchange->times;
    int64_t end = fb_monotonic_ns();
    times->parse = fb_timing_spent(FB_TIMING_PARSE);
    times->store = fb_timing_spent(FB_TIMING_STORE);
    times->work = end - times->begun - times->parse - times->store;
    fb_response_header_format(
        &exchange->response, "Server-Timing",
        "read;dur=" TIME ", queue;dur=" TIME ", parse;dur=" TIME ", work;dur=" TIME ", store;dur=" TIME ", total;dur=" TIME,
        MILLISECONDS(times->queued - exchange->started), MILLISECONDS(times->begun - times->queued), MILLISECONDS(times->parse),
        MILLISECONDS(times->work), MILLISECONDS(times->store), MILLISECONDS(end - exchange->started));
}

/* Members for the access log, each with a comma before it. */
static void trace_print(const fb_exchange *exchange, fb_buffer *line) {
    const fb_exchange_times *times = &exchange->times;
    if (*exchange->trace) fb_buffer_printf(line, ",\"trace\":\"%s\",\"parent_span\":\"%s\"", exchange->trace, exchange->parent);
    if (!times->begun) return; /* no handler ran */
    fb_buffer_printf(line, ",\"queue_ms\":" TIME ",\"parse_ms\":" TIME ",\"work_ms\":" TIME ",\"store_ms\":" TIME,
                     MILLISECONDS(times->begun - times->queued), MILLISECONDS(times->parse), MILLISECONDS(times->work),
                     MILLISECONDS(times->store));
}

/* ---- the access log ------------------------------------------------------------------------------------------------------ */

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

void fb_log_full_disk(fb_http_server *server, int status) {
    int64_t now = fb_monotonic_ms(), said = atomic_load(&server->full_disk_said);
    bool is_due = !said || now - said >= FULL_DISK_MS;
    if (status != 507 || !server->config.listen || !is_due) return;
    if (atomic_compare_exchange_strong(&server->full_disk_said, &said, now))
        fputs("foldback: the disk is full: requests that write are answered with 507 disk-full until there is room\n", stderr);
}

void fb_log_access(const fb_exchange *exchange, int status, uint64_t bytes_out, int64_t nanoseconds) {
    FILE *log = exchange->server->config.access_log;
    fb_log_full_disk(exchange->server, status);
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
    trace_print(exchange, &line);
    const char *code = exchange->response.code;
    if (*code) append_text(&line, "code", code, strlen(code));
    append_text(&line, "who", exchange->request.principal, strlen(exchange->request.principal));
    append_text(&line, "remote", exchange->connection->remote, strlen(exchange->connection->remote));
    fb_error error = {0};
    if (exchange->pull && fb_pull_error(exchange->pull, &error))
        append_text(&line, "error", error.message, strlen(error.message));
    fb_buffer_string(&line, "}\n");
    if (!line.failed) fwrite(line.data, 1, line.size, log); /* one call: lines of several threads do not mix */
    fb_buffer_free(&line);
}
