/* Metrics of the service itself: where requests spend their time, what passes did, what the allocator holds. */
#ifndef FB_METRICS_METRICS_H
#define FB_METRICS_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buffer.h"
#include "core/compose/run.h"

/* ---- Figures as Prometheus reads them ----------------------------------------------------------------------------------- */

/* Prints the head of a metric; its lines follow. */
void fb_print_metric_head(fb_buffer *out, const char *name, const char *type, const char *help);
/* A metric of one line. */
void fb_print_metric(fb_buffer *out, const char *name, const char *type, const char *help, double value);

/* ---- Clocks ----------------------------------------------------------------------------------------------------------- */

int64_t fb_wall_ms(void);      /* since 1970, UTC */
int64_t fb_monotonic_ms(void); /* of a clock that is never set */
int64_t fb_monotonic_ns(void);

/* ---- How the C library keeps memory that was freed, in a service that runs for months ------------------------------------ */

/* For a process of many threads; before the second one starts. */
void fb_allocator_tune(void);

/* Gives memory that was freed back to the system. Takes some milliseconds, in which other threads may wait. */
void fb_allocator_trim(void);

typedef struct fb_allocator_figures {
    size_t used; /* bytes that are allocated */
    size_t free; /* bytes that were freed and are kept */
} fb_allocator_figures;

fb_allocator_figures fb_allocator_read(void);

/* ---- How often passes were applied, and how often and why they were refused: for /metrics. Safe from any thread ---------- */

typedef struct fb_pass_counts fb_pass_counts;

fb_pass_counts *fb_pass_counts_new(void); /* NULL when memory is out */
void fb_pass_counts_free(fb_pass_counts *counts);

void fb_pass_counts_add(fb_pass_counts *counts, const fb_run *run);
/* foldback_pass_applied_total{pass} and foldback_pass_refused_total{pass,reason}. */
void fb_pass_counts_metrics(fb_pass_counts *counts, fb_buffer *out);

/* ---- Where a request's time goes: what the thread that works on it spent since fb_timing_reset --------------------------- */

typedef enum fb_timing_kind {
    FB_TIMING_PARSE, /* graph documents read */
    FB_TIMING_STORE, /* the database read, and waits for commits */
    FB_TIMING_COUNT,
} fb_timing_kind;

void fb_timing_reset(void);
/* Counts the time between the two calls, once: an inner pair counts with the outer one. */
void fb_timing_enter(fb_timing_kind kind);
void fb_timing_leave(void);
/* Nanoseconds. */
int64_t fb_timing_spent(fb_timing_kind kind);

#endif
