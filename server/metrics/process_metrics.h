/* What the process itself takes, under Prometheus' usual names. */
#ifndef FB_METRICS_PROCESS_METRICS_H
#define FB_METRICS_PROCESS_METRICS_H

#include "core/base/buffer.h"

void fb_process_metrics(fb_buffer *out);

#endif
