/* Figures as Prometheus reads them. */
#include <math.h>

#include "server/metrics/metrics.h"

void fb_print_metric_head(fb_buffer *out, const char *name, const char *type, const char *help) {
    fb_buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void fb_print_metric(fb_buffer *out, const char *name, const char *type, const char *help, double value) {
    fb_print_metric_head(out, name, type, help);
    fb_buffer_printf(out, value == floor(value) ? "%s %.0f\n" : "%s %.15g\n", name, value);
}
