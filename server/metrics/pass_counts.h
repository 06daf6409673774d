/* How often passes were applied, and how often and why they were refused: for /metrics. Safe from any thread. */
#ifndef FB_METRICS_PASS_COUNTS_H
#define FB_METRICS_PASS_COUNTS_H

#include "core/base/buffer.h"
#include "core/compose/run.h"

typedef struct fb_pass_counts fb_pass_counts;

fb_pass_counts *fb_pass_counts_new(void); /* NULL when memory is out */
void fb_pass_counts_free(fb_pass_counts *counts);

void fb_pass_counts_add(fb_pass_counts *counts, const fb_run *run);
/* foldback_pass_applied_total{pass} and foldback_pass_refused_total{pass,reason}. */
void fb_pass_counts_metrics(fb_pass_counts *counts, fb_buffer *out);

#endif
