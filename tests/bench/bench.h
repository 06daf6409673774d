/* Measuring. Rows of a table are measured in rounds: each round does the work of every row once, so that all rows meet the same
 * weather on a shared machine, and a row's ratio is the median of its ratios within one round. */
#ifndef FB_BENCH_H
#define FB_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buffer.h"

typedef struct fb_row {
    const char *what, *target; /* target NULL = none */
    void (*work)(void *context);
    void (*prepare)(void *context); /* before each time, not counted; may be NULL */
    void *context;
    double minimum, median, ratio; /* milliseconds; ratio to the first row: of medians within a round */
} fb_row;

double fb_now_ms(void);
/* One round to warm up, then `rounds` that count. */
void fb_measure(fb_row *rows, size_t count, size_t rounds);
/* A Markdown table. */
void fb_print_rows(const fb_row *rows, size_t count);

/* ---- documents ----------------------------------------------------------------------------------------------------------- */

/* About `nodes` nodes: blocks of three Linears that read one value, a division, two additions. */
void fb_bench_blocks(fb_buffer *out, size_t nodes);
/* `count` Linears that read one value; and `count` divisions by zero, which are refused. */
void fb_bench_fan(fb_buffer *out, size_t count);
void fb_bench_refusals(fb_buffer *out, size_t count);
/* About `nodes` nodes: blocks with something for every pass of the preset "inference". */
void fb_bench_layers(fb_buffer *out, size_t nodes);
void fb_bench_read_file(const char *path, fb_buffer *out);

/* ---- a service ----------------------------------------------------------------------------------------------------------- */

/* A service of its own on a free port, and one keep-alive connection to it. */
typedef struct fb_bench_service {
    int pid, socket;
    unsigned port;
} fb_bench_service;
void fb_bench_empty(const char *folder);
size_t fb_bench_folder_size(const char *folder); /* bytes of its files */
fb_bench_service fb_bench_start(const char *binary, const char *folder);
/* With options of `foldback serve`, NULL after the last; at most 8. */
fb_bench_service fb_bench_start_with(const char *binary, const char *folder, const char *const *options);
void fb_bench_stop(fb_bench_service *service);
/* A line of /proc/{pid}/status in KiB: "VmRSS:" now, "VmHWM:" at most so far. */
size_t fb_bench_memory(const fb_bench_service *service, const char *line);
/* Sends a request and reads the whole answer into `answer` (emptied before); exits when the status is not the one expected. */
void fb_bench_request(const fb_bench_service *service, const char *method, const char *path, const void *body, size_t size,
                      int expected, fb_buffer *answer);
/* PUTs a file as it is, and reads the answer; expects 201. */
void fb_bench_put_file(const fb_bench_service *service, const char *path, const char *file);
/* GETs, and lets the body go by; expects 200. Returns the body's size. */
uint64_t fb_bench_get(const fb_bench_service *service, const char *path);

#endif
