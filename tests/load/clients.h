/* Clients that keep a service busy: each sends a request, reads the whole answer, and sends the next one; all of them in one
 * thread, so that they take as little of the machine as can be. And clients that are slow on purpose. */
#ifndef FB_LOAD_CLIENTS_H
#define FB_LOAD_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buffer.h"

/* Milliseconds that requests took, in no order. */
typedef struct fb_latencies {
    float *times;
    size_t count, capacity;
} fb_latencies;

void fb_latencies_add(fb_latencies *latencies, double milliseconds);
/* The time that a fraction of them does not exceed; sorts. 0 without any. */
double fb_latencies_at(fb_latencies *latencies, double fraction);
void fb_latencies_free(fb_latencies *latencies);

/* Writes a whole request, head and body, to `out`, which is empty, and returns the status expected. */
typedef int fb_load_next(void *context, uint64_t number, fb_buffer *out);
/* Sees each answer's body; may be NULL. */
typedef void fb_load_answered(void *context, uint64_t number, const char *body, size_t size);

typedef struct fb_load_clients fb_load_clients;

/* `count` connections. Exits when they cannot be made. */
fb_load_clients *fb_load_clients_new(unsigned port, size_t count, fb_load_next *next, fb_load_answered *answered,
                                     void *context);
/* Goes on for that long and until the last answer has come. Returns how many requests were answered as expected; others count
 * in *errors, and the first few are shown. */
uint64_t fb_load_clients_run(fb_load_clients *clients, double seconds, fb_latencies *latencies, uint64_t *errors);
void fb_load_clients_free(fb_load_clients *clients);

/* A request with a body of JSON, for fb_load_next. */
void fb_load_request(fb_buffer *out, const char *method, const char *path, const char *body, size_t size);

typedef struct fb_slow_clients fb_slow_clients;

/* A thread with `count` connections that send headers or a body a byte at a time, read the answer at `path` a little at a time,
 * or do nothing; one that the service ends begins again. */
fb_slow_clients *fb_slow_clients_start(unsigned port, size_t count, const char *path);
/* How many were ended by the service and how many could not connect; for what is printed. */
void fb_slow_clients_stop(fb_slow_clients *slow, uint64_t *ended);

#endif
