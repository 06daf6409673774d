#include "tests/unit/sink_fixture.h"

#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sink_counts sink_counts;

/* One upload; it also notices calls that overlap. */
typedef struct intake {
    atomic_flag is_busy;
    size_t position;
} intake;

static bool begin(const fb_request *request, fb_response *response, uint64_t size, void **state) {
    sink_counts.size = size;
    if (fb_request_query(request, "silent")) return false;
    if (fb_request_query(request, "refuse")) {
        fb_respond_problem(response, 409, "not-now", "this one is not wanted");
        return false;
    }
    *state = calloc(1, sizeof(intake));
    sink_counts.begun++;
    return true;
}

static bool write_bytes(void *state, const char *bytes, size_t size, fb_response *response) {
    intake *one = state;
    if (atomic_flag_test_and_set(&one->is_busy)) sink_counts.wrong++;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != http_byte_at(one->position + i)) sink_counts.wrong++;
    one->position += size;
    sink_counts.written += (unsigned)size;
    if (sink_counts.pause_us) usleep(sink_counts.pause_us);
    bool is_refused = one->position > sink_counts.refuse_from;
    if (is_refused) fb_respond_problem(response, 507, "disk-full", "there is no room for it");
    atomic_flag_clear(&one->is_busy);
    return !is_refused;
}

static void let_go(void *state, atomic_uint *count) {
    intake *one = state;
    if (atomic_flag_test_and_set(&one->is_busy)) sink_counts.wrong++;
    free(one);
    (*count)++;
}

static void abandon(void *state) {
    let_go(state, &sink_counts.abandoned);
}

const fb_sink sink_checked = {.begin = begin, .write = write_bytes, .abandon = abandon};

void sink_stored(const fb_request *request, fb_response *response) {
    intake *one = request->body_state;
    bool is_whole = one->position == request->body_size && !*request->body;
    let_go(one, &sink_counts.handled);
    fb_respond_json_take(response, 201, json_pack("{s:I, s:b}", "size", (json_int_t)request->body_size, "whole", is_whole));
}

/* Waits at the gate before it takes anything. */
static bool write_at_gate(void *state, const char *bytes, size_t size, fb_response *response) {
    http_wait_at_gate();
    return write_bytes(state, bytes, size, response);
}

static const fb_sink gate_sink = {.begin = begin, .write = write_at_gate, .abandon = abandon};

static const fb_route routes[] = {
    {.method = "PUT",
     .pattern = "/sink",
     .handler = sink_stored,
     .body = FB_BODY_OPTIONAL,
     .consumes = "*",
     .sink = &sink_checked},
    {.method = "POST",
     .pattern = "/sink",
     .handler = sink_stored,
     .body = FB_BODY_REQUIRED,
     .consumes = "*",
     .sink = &sink_checked},
    {.method = "PUT",
     .pattern = "/small",
     .handler = sink_stored,
     .body = FB_BODY_REQUIRED,
     .consumes = "*",
     .body_limit = PART + 7,
     .sink = &sink_checked},
    {.method = "PUT",
     .pattern = "/gate",
     .handler = sink_stored,
     .body = FB_BODY_REQUIRED,
     .consumes = "*",
     .sink = &gate_sink},
    {.method = "GET", .pattern = "/word", .handler = http_get_word, .produces = "text/plain"},
};

void sink_start(const fb_http_config *config) {
    memset(&sink_counts, 0, sizeof sink_counts);
    sink_counts.refuse_from = UINT32_MAX;
    http_start_routes(config, routes, sizeof routes / sizeof *routes);
}

void sink_stop(void) {
    http_expect_metric("foldback_http_in_flight 0\n");
    http_expect_metric("foldback_http_body_bytes 0\n");
    http_stop();
    ck_assert_uint_eq(sink_counts.begun, sink_counts.abandoned + sink_counts.handled);
    ck_assert_uint_eq(sink_counts.wrong, 0);
}

char *sink_body;

void sink_make_body(void) {
    sink_body = malloc(SINK_BODY_SIZE);
    for (size_t i = 0; i < SINK_BODY_SIZE; i++) sink_body[i] = http_byte_at(i);
}

void sink_free_body(void) {
    free(sink_body);
}

void sink_give_body(int s, size_t size, bool is_chunked, unsigned *seed) {
    for (size_t done = 0; done < size;) {
        size_t most = rand_r(seed) % 2 ? 300 : 300000, piece = 1 + (size_t)rand_r(seed) % most;
        if (piece > size - done) piece = size - done;
        if (!(is_chunked ? http_give_chunk(s, sink_body + done, piece) : http_give(s, sink_body + done, piece))) return;
        done += piece;
    }
    if (is_chunked) http_say(s, "0\r\n\r\n");
}

void sink_await_count(const atomic_uint *count, unsigned least) {
    for (int i = 0; i < 1000 && *count < least; i++) usleep(10000);
    ck_assert_uint_ge(*count, least);
}
