#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "server/jobs/internal.h"

#define KEPT 1000       /* events; of more the oldest go */
#define ATTEMPT_BITS 32 /* the number of an event within its start */

void fb_job_log_begin(fb_job_log *log, uint32_t attempts) {
    int64_t first = (int64_t)attempts << ATTEMPT_BITS;
    if (log->last < first) log->last = first;
}

static void write_event(int64_t number, const char *event, const char *data, fb_buffer *out) {
    fb_buffer_printf(out, "id: %" PRId64 "\nevent: %s\ndata: ", number, event);
    fb_buffer_string(out, data);
    fb_buffer_string(out, "\n\n");
}

/* Takes the text. */
static void append(fb_job_log *log, int64_t number, char *text) {
    if (log->count == KEPT) {
        free(log->items[0].text);
        memmove(log->items, log->items + 1, --log->count * sizeof *log->items);
    }
    if (!FB_GROW(log->items, log->count, log->capacity)) {
        free(text);
        return;
    }
    log->items[log->count++] = (fb_job_event){number, text};
}

void fb_job_log_add(fb_job_log *log, const char *event, const char *data) {
    fb_buffer text = {0};
    write_event(++log->last, event, data, &text);
    char *bytes = fb_buffer_take(&text, NULL);
    if (bytes) append(log, log->last, bytes);
    fb_buffer_free(&text);
}

const fb_job_event *fb_job_log_after(const fb_job_log *log, int64_t number) {
    size_t low = 0, high = log->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (log->items[middle].number > number) high = middle;
        else low = middle + 1;
    }
    return low < log->count ? &log->items[low] : NULL;
}

void fb_job_log_write(const fb_job_log *log, const char *event, const char *data, fb_buffer *out) {
    for (size_t i = 0; i < log->count; i++) fb_buffer_string(out, log->items[i].text);
    write_event(log->last + 1, event, data, out);
}

bool fb_job_log_read(fb_job_log *log, const char *text) {
    static const char head[] = "id: ", end[] = "\n\n";
    while (strncmp(text, head, strlen(head)) == 0) {
        const char *behind = strstr(text, end);
        char *copy = behind ? strndup(text, (size_t)(behind - text) + strlen(end)) : NULL;
        if (!copy) return !behind;
        log->last = strtoll(text + strlen(head), NULL, 10);
        size_t count = log->count;
        append(log, log->last, copy);
        if (log->count == count && count < KEPT) return false;
        text = behind + strlen(end);
    }
    return true;
}

void fb_job_log_free(fb_job_log *log) {
    for (size_t i = 0; i < log->count; i++) free(log->items[i].text);
    free(log->items);
    *log = (fb_job_log){0};
}
