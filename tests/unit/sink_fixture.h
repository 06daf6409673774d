/* A server whose routes send bodies to a sink as they come. The body's byte number i is known; the sink checks each and counts
 * how it is called. */
#ifndef TESTS_UNIT_SINK_FIXTURE_H
#define TESTS_UNIT_SINK_FIXTURE_H

#include "tests/unit/http_fixture.h"

#define SINK_BODY_SIZE (8 * PART)

extern struct sink_counts {
    atomic_uint begun, written, abandoned, handled, wrong; /* written: bytes */
    atomic_uint_least64_t size;                            /* that the last begin was told */
    atomic_uint refuse_from;                               /* bytes after which write says no; UINT_MAX = never */
    atomic_uint pause_us;                                  /* in each write */
} sink_counts;

extern const fb_sink sink_checked;
void sink_stored(const fb_request *request, fb_response *response);

/* PUT and POST /sink; PUT /small, which takes a part and 7 bytes; PUT /gate, which waits at the gate before it takes anything;
 * GET /word. With ?refuse and ?silent a sink does not begin. */
void sink_start(const fb_http_config *config);
/* Every upload that was begun has ended once, and nothing is held for any. */
void sink_stop(void);

extern char *sink_body; /* of SINK_BODY_SIZE */
void sink_make_body(void);
void sink_free_body(void);
/* In pieces of random sizes. */
void sink_give_body(int s, size_t size, bool is_chunked, unsigned *seed);

void sink_await_count(const atomic_uint *count, unsigned least);

#endif
