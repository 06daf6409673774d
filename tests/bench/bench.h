/* Measuring: medians and minima of repeated work, printed as ratios to a reference that ran in the same process. */
#ifndef FB_BENCH_H
#define FB_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/buffer.h"

typedef struct fb_timing {
    double minimum, median; /* milliseconds */
} fb_timing;

/* Runs work(context) once to warm up, then `repeats` times. */
fb_timing fb_measure(void (*work)(void *context), void *context, size_t repeats);

/* One line of the table; `reference` may be NULL. */
void fb_print_timing(const char *what, fb_timing timing, const fb_timing *reference);

/* A document of about `nodes` nodes: blocks of three Linears that read one value, a division, two additions. */
void fb_bench_document(fb_buffer *out, size_t nodes);
void fb_bench_read_file(const char *path, fb_buffer *out);

/* A service of its own on a free port, with its data in `folder` (emptied before), and one keep-alive connection to it. */
typedef struct fb_bench_service {
    int pid, socket;
} fb_bench_service;
fb_bench_service fb_bench_start(const char *binary, const char *folder);
void fb_bench_stop(fb_bench_service *service);
/* Sends a request and reads the whole answer into `answer` (emptied before); exits when the status is not the one expected. */
void fb_bench_request(const fb_bench_service *service, const char *method, const char *path, const void *body, size_t size,
                      int expected, fb_buffer *answer);

#endif
