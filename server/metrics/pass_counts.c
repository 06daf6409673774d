#include "core/base/grow.h"
#include "server/metrics/metrics.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The name of all rules together, whose names and reasons are their authors'. */
#define RULES "rules"

/* One line of the metrics. Names and reasons are constants of the passes. */
typedef struct line {
    const char *pass;
    const char *reason; /* NULL: applied */
    uint64_t count;
} line;

struct fb_pass_counts {
    pthread_mutex_t mutex;
    line *lines;
    size_t count, capacity;
};

fb_pass_counts *fb_pass_counts_new(void) {
    fb_pass_counts *counts = calloc(1, sizeof *counts);
    if (counts) pthread_mutex_init(&counts->mutex, NULL);
    return counts;
}

void fb_pass_counts_free(fb_pass_counts *counts) {
    if (!counts) return;
    pthread_mutex_destroy(&counts->mutex);
    free(counts->lines);
    free(counts);
}

static bool is_line(const line *one, const char *pass, const char *reason) {
    if (strcmp(one->pass, pass) != 0 || !one->reason != !reason) return false;
    return !reason || strcmp(one->reason, reason) == 0;
}

/* Few dozen lines at most: there is one for each pass and reason of the program. Without memory for one, it is not counted. */
static void add(fb_pass_counts *counts, const char *pass, const char *reason, uint64_t amount) {
    for (size_t i = 0; i < counts->count; i++) {
        if (!is_line(&counts->lines[i], pass, reason)) continue;
        counts->lines[i].count += amount;
        return;
    }
    if (!FB_GROW(counts->lines, counts->count, counts->capacity)) return;
    counts->lines[counts->count++] = (line){.pass = pass, .reason = reason, .count = amount};
}

void fb_pass_counts_add(fb_pass_counts *counts, const fb_run *run) {
    pthread_mutex_lock(&counts->mutex);
    for (size_t i = 0; i < run->count; i++) {
        const fb_pass_report *report = &run->passes[i];
        bool is_rule = report->pass->digest != NULL;
        const char *name = is_rule ? RULES : report->pass->name;
        add(counts, name, NULL, report->applied);
        if (is_rule && report->refused_count) add(counts, name, RULES, report->refused_count);
        for (const fb_refusal *refusal = is_rule ? NULL : report->refused; refusal; refusal = refusal->next)
            add(counts, name, refusal->reason, 1);
    }
    pthread_mutex_unlock(&counts->mutex);
}

void fb_pass_counts_metrics(fb_pass_counts *counts, fb_buffer *out) {
    pthread_mutex_lock(&counts->mutex);
    fb_print_metric_head(out, "foldback_pass_applied_total", "counter", "Matches that passes were applied to.");
    for (size_t i = 0; i < counts->count; i++) {
        const line *one = &counts->lines[i];
        if (one->reason) continue;
        fb_buffer_printf(out, "foldback_pass_applied_total{pass=\"%s\"} %" PRIu64 "\n", one->pass, one->count);
    }
    fb_print_metric_head(out, "foldback_pass_refused_total", "counter", "Candidates that passes refused, by reason.");
    for (size_t i = 0; i < counts->count; i++) {
        const line *one = &counts->lines[i];
        if (!one->reason) continue;
        fb_buffer_printf(out, "foldback_pass_refused_total{pass=\"%s\",reason=\"%s\"} %" PRIu64 "\n", one->pass, one->reason,
                         one->count);
    }
    pthread_mutex_unlock(&counts->mutex);
}
