/* Bodies that go to a sink as they come, over real sockets. The body's byte number i is known; the sink checks each and counts
 * how it is called. */
#include "tests/unit/http_fixture.h"

#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PART ((size_t)1 << 20) /* that of the server */

static struct counts {
    atomic_uint begun, written, abandoned, handled, wrong; /* written: bytes */
    atomic_uint_least64_t size;                            /* that the last begin was told */
    atomic_uint refuse_from;                               /* bytes after which write says no; UINT_MAX = never */
    atomic_uint pause_us;                                  /* in each write */
} counts;

/* One upload; it also notices calls that overlap. */
typedef struct intake {
    atomic_flag is_busy;
    size_t position;
} intake;

static char byte_at(size_t position) {
    return (char)(position * 2654435761u >> 13);
}

static bool begin(const fb_request *request, fb_response *response, uint64_t size, void **state) {
    counts.size = size;
    if (fb_request_query(request, "silent")) return false;
    if (fb_request_query(request, "refuse")) {
        fb_respond_problem(response, 409, "not-now", "this one is not wanted");
        return false;
    }
    *state = calloc(1, sizeof(intake));
    counts.begun++;
    return true;
}

static bool write_bytes(void *state, const char *bytes, size_t size, fb_response *response) {
    intake *one = state;
    if (atomic_flag_test_and_set(&one->is_busy)) counts.wrong++;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != byte_at(one->position + i)) counts.wrong++;
    one->position += size;
    counts.written += (unsigned)size;
    if (counts.pause_us) usleep(counts.pause_us);
    bool is_refused = one->position > counts.refuse_from;
    if (is_refused) fb_respond_problem(response, 507, "disk-full", "there is no room for it");
    atomic_flag_clear(&one->is_busy);
    return !is_refused;
}

static void let_go(void *state, atomic_uint *count) {
    intake *one = state;
    if (atomic_flag_test_and_set(&one->is_busy)) counts.wrong++;
    free(one);
    (*count)++;
}

static void abandon(void *state) {
    let_go(state, &counts.abandoned);
}

static const fb_sink sink = {.begin = begin, .write = write_bytes, .abandon = abandon};

static void stored(const fb_request *request, fb_response *response) {
    intake *one = request->body_state;
    bool is_whole = one->position == request->body_size && !*request->body;
    let_go(one, &counts.handled);
    fb_respond_json_take(response, 201, json_pack("{s:I, s:b}", "size", (json_int_t)request->body_size, "whole", is_whole));
}

/* Waits at the gate before it takes anything. */
static bool write_at_gate(void *state, const char *bytes, size_t size, fb_response *response) {
    pthread_mutex_lock(&http_app.lock);
    http_app.waiting++;
    pthread_cond_broadcast(&http_app.changed);
    while (!http_app.is_open) pthread_cond_wait(&http_app.changed, &http_app.lock);
    http_app.waiting--;
    pthread_mutex_unlock(&http_app.lock);
    return write_bytes(state, bytes, size, response);
}

static const fb_sink gate_sink = {.begin = begin, .write = write_at_gate, .abandon = abandon};

static void get_word(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_copy(response, 200, "text/plain", "word", 4);
}

static const fb_route routes[] = {
    {.method = "PUT", .pattern = "/sink", .handler = stored, .body = FB_BODY_OPTIONAL, .consumes = "*", .sink = &sink},
    {.method = "POST", .pattern = "/sink", .handler = stored, .body = FB_BODY_REQUIRED, .consumes = "*", .sink = &sink},
    {.method = "PUT",
     .pattern = "/small",
     .handler = stored,
     .body = FB_BODY_REQUIRED,
     .consumes = "*",
     .body_limit = PART + 7,
     .sink = &sink},
    {.method = "PUT", .pattern = "/gate", .handler = stored, .body = FB_BODY_REQUIRED, .consumes = "*", .sink = &gate_sink},
    {.method = "GET", .pattern = "/word", .handler = get_word, .produces = "text/plain"},
};

static void start(const fb_http_config *config) {
    memset(&counts, 0, sizeof counts);
    counts.refuse_from = UINT32_MAX;
    http_start_routes(config, routes, sizeof routes / sizeof *routes);
}

/* Every upload that was begun has ended once, and nothing is held for any. */
static void stop(void) {
    http_expect_metric("foldback_http_in_flight 0\n");
    http_expect_metric("foldback_http_body_bytes 0\n");
    http_stop();
    ck_assert_uint_eq(counts.begun, counts.abandoned + counts.handled);
    ck_assert_uint_eq(counts.wrong, 0);
}

static char *body; /* of 8 MiB */
#define BODY_SIZE (8 * PART)

static void make_body(void) {
    body = malloc(BODY_SIZE);
    for (size_t i = 0; i < BODY_SIZE; i++) body[i] = byte_at(i);
}

static void free_body(void) {
    free(body);
}

static void say_head(int s, const char *method_and_path, const char *headers) {
    char head[500];
    snprintf(head, sizeof head, "%s HTTP/1.1\r\nHost: a\r\n%s\r\n", method_and_path, headers);
    http_say(s, head);
}

static void say_sized_head(int s, const char *method_and_path, size_t size, const char *headers) {
    char lines[300];
    snprintf(lines, sizeof lines, "Content-Length: %zu\r\n%s", size, headers);
    say_head(s, method_and_path, lines);
}

static bool give_chunk(int s, const char *bytes, size_t size) {
    char line[30];
    snprintf(line, sizeof line, "%zx\r\n", size);
    return http_give(s, line, strlen(line)) && http_give(s, bytes, size) && http_give(s, "\r\n", 2);
}

/* In pieces of random sizes. */
static void give_body(int s, size_t size, bool is_chunked, unsigned *seed) {
    for (size_t done = 0; done < size;) {
        size_t most = rand_r(seed) % 2 ? 300 : 300000, piece = 1 + (size_t)rand_r(seed) % most;
        if (piece > size - done) piece = size - done;
        if (!(is_chunked ? give_chunk(s, body + done, piece) : http_give(s, body + done, piece))) return;
        done += piece;
    }
    if (is_chunked) http_say(s, "0\r\n\r\n");
}

/* One answer on a connection that stays open. */
static void expect_answer(int s, int status, const char *part) {
    char answer[4000];
    size_t used = 0;
    char *end = NULL;
    size_t body_size = 0;
    while (!end || used < (size_t)(end - answer) + 4 + body_size) {
        ssize_t got = recv(s, answer + used, sizeof answer - 1 - used, 0);
        ck_assert_int_gt(got, 0);
        answer[used += (size_t)got] = '\0';
        end = strstr(answer, "\r\n\r\n");
        const char *length = strstr(answer, "Content-Length: ");
        if (end && length) body_size = strtoul(length + 16, NULL, 10);
    }
    ck_assert_msg(http_status_of(answer) == status && strstr(answer, part), "%s", answer);
}

static void expect_end(int s, int status, const char *part) {
    char *answer = http_hear(s);
    ck_assert_msg(http_status_of(answer) == status && strstr(answer, part), "%s", answer);
    free(answer);
}

static void await_count(const atomic_uint *count, unsigned least) {
    for (int i = 0; i < 1000 && *count < least; i++) usleep(10000);
    ck_assert_uint_ge(*count, least);
}

/* ---- what is taken ------------------------------------------------------------------------------------------------------ */

START_TEST(whole_bodies) {
    fb_http_config config = http_small_config(); /* body_limit is 1 MiB: not for these */
    start(&config);
    static const size_t sizes[] = {
        1, 5, 65536, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1, 3 * PART - 1, 5 * PART + 3, 8 * PART - 7, 8 * PART};
    unsigned seed = 1;
    for (int is_chunked = 0; is_chunked < 2; is_chunked++) {
        int s = http_dial(); /* one connection for all, but none outlives a chunked body */
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            if (is_chunked && i) {
                close(s);
                s = http_dial();
            }
            char expected[50];
            snprintf(expected, sizeof expected, "{\"size\":%zu,\"whole\":true}", sizes[i]);
            if (is_chunked) say_head(s, "PUT /sink", "Transfer-Encoding: chunked\r\n");
            else say_sized_head(s, "PUT /sink", sizes[i], "Content-Encoding: identity\r\n");
            give_body(s, sizes[i], is_chunked, &seed);
            expect_answer(s, 201, expected);
            ck_assert_uint_eq(counts.size, is_chunked ? FB_SIZE_UNKNOWN : sizes[i]);
        }
        close(s);
    }
    ck_assert_uint_eq(counts.handled, 24);
    stop();
}
END_TEST

START_TEST(empty_bodies) {
    fb_http_config config = http_small_config();
    start(&config);
    int s = http_dial();
    say_head(s, "PUT /sink", "");
    expect_answer(s, 201, "{\"size\":0,\"whole\":true}");
    ck_assert_uint_eq(counts.size, 0);
    say_sized_head(s, "PUT /sink", 0, "");
    expect_answer(s, 201, "{\"size\":0,\"whole\":true}");
    say_head(s, "POST /sink", "");
    expect_answer(s, 400, "missing-body");
    ck_assert_uint_eq(counts.begun, 2);
    say_head(s, "POST /sink", "Transfer-Encoding: chunked\r\n");
    http_say(s, "0\r\n\r\n"); /* it was begun before that was known */
    expect_answer(s, 400, "missing-body");
    ck_assert_uint_eq(counts.abandoned, 1);
    close(s);
    stop();
}
END_TEST

START_TEST(expect_continue) {
    fb_http_config config = http_small_config();
    start(&config);
    char bytes[100] = "";
    int s = http_dial();
    say_sized_head(s, "PUT /sink", 2 * PART, "Expect: 100-continue\r\n");
    ck_assert_int_gt(recv(s, bytes, sizeof bytes - 1, 0), 0);
    ck_assert_str_eq(bytes, "HTTP/1.1 100 Continue\r\n\r\n");
    ck_assert_uint_eq(counts.begun, 1);
    http_give(s, body, 2 * PART);
    expect_answer(s, 201, "\"whole\":true");
    say_sized_head(s, "PUT /sink?refuse", 2 * PART, "Expect: 100-continue\r\n");
    expect_end(s, 409, "not-now"); /* instead of 100, at once */
    stop();
}
END_TEST

/* ---- what is refused ---------------------------------------------------------------------------------------------------- */

START_TEST(refused_at_begin) {
    fb_http_config config = http_small_config();
    start(&config);
    int s = http_dial();
    say_sized_head(s, "PUT /sink?refuse", 1000, ""); /* a small one is read, and the connection kept */
    http_give(s, body, 1000);
    expect_answer(s, 409, "not-now");
    say_sized_head(s, "PUT /sink?silent", 1000, "");
    http_give(s, body, 1000);
    expect_answer(s, 500, "no-response");
    say_sized_head(s, "PUT /sink?refuse", 100 * PART, "");
    expect_end(s, 409, "Connection: close");
    s = http_dial();
    say_head(s, "PUT /sink?refuse", "Transfer-Encoding: chunked\r\n");
    expect_end(s, 409, "not-now");

    s = http_dial();
    say_sized_head(s, "PUT /sink", 5, "Content-Encoding: gzip\r\n");
    http_say(s, "12345");
    expect_answer(s, 415, "unsupported-encoding");
    say_sized_head(s, "PUT /small", PART + 8, "Expect: 100-continue\r\n");
    expect_end(s, 413, "body-too-large");
    ck_assert_uint_eq(counts.begun, 0);

    static const fb_route bad[] = {
        {.method = "PUT", .pattern = "/", .handler = stored, .sink = &sink},
        {.method = "PUT", .pattern = "/", .handler = stored, .body = FB_BODY_OPTIONAL, .sink = &sink, .is_inline = true}};
    for (int i = 0; i < 2; i++) {
        fb_http_server *second;
        fb_error error = {0};
        ck_assert_int_eq(fb_http_start(&config, &bad[i], 1, NULL, &second, &error), FB_INVALID);
        ck_assert_str_eq(error.code, "bad-route");
    }
    stop();
}
END_TEST

START_TEST(refused_in_write) {
    fb_http_config config = http_small_config();
    start(&config);
    static const size_t points[] = {0, PART, 3 * PART};
    unsigned seed = 2;
    for (unsigned i = 0; i < 6; i++) {
        size_t size = i < 3 ? 5 * PART : points[i - 3] + 1; /* in the middle; with the last part */
        counts.refuse_from = (unsigned)points[i % 3];
        int s = http_dial();
        say_sized_head(s, "PUT /sink", size, "");
        give_body(s, size, false, &seed);
        expect_answer(s, 507, "disk-full");
        ck_assert_uint_eq(counts.abandoned, i + 1); /* before the answer */
        say_head(s, "GET /word", "Connection: close\r\n");
        expect_end(s, 200, "word");
    }
    counts.refuse_from = 0;
    int slow = http_dial(); /* the sink need not wait until the client has sent the rest */
    say_sized_head(slow, "PUT /sink", PART + 1, "");
    http_give(slow, body, PART);
    await_count(&counts.abandoned, 7);
    http_give(slow, body + PART, 1);
    expect_answer(slow, 507, "disk-full");
    close(slow);
    for (int is_chunked = 0; is_chunked < 2; is_chunked++) { /* too much is left of it to be read to its end */
        int s = http_dial();
        if (is_chunked) say_head(s, "PUT /sink", "Transfer-Encoding: chunked\r\n");
        else say_sized_head(s, "PUT /sink", 1000 * PART, "");
        for (int i = 0; i < 1000; i++) {
            const char *bytes = body + (size_t)(i % 8) * PART;
            if (!(is_chunked ? give_chunk(s, bytes, PART) : http_give(s, bytes, PART))) break;
        }
        expect_end(s, 507, "disk-full");
    }
    ck_assert_uint_eq(counts.handled, 0);
    stop();
}
END_TEST

START_TEST(too_large) {
    fb_http_config config = http_small_config();
    start(&config);
    unsigned seed = 3;
    for (size_t size = PART + 6; size <= PART + 9; size++) {
        int s = http_dial();
        say_head(s, "PUT /small", "Transfer-Encoding: chunked\r\n");
        give_body(s, size, true, &seed);
        bool fits = size <= PART + 7;
        expect_answer(s, fits ? 201 : 413, fits ? "\"whole\":true" : "body-too-large");
        close(s);
    }
    ck_assert_uint_eq(counts.handled, 2);
    ck_assert_uint_eq(counts.abandoned, 2);
    stop();
}
END_TEST

START_TEST(memory) {
    fb_http_config config = http_small_config();
    config.body_memory_limit = 3 * PART;
    start(&config);
    int held[4];
    for (int i = 0; i < 4; i++) { /* a part each */
        held[i] = http_dial();
        say_sized_head(held[i], "PUT /sink", 8 * PART, "");
        http_give(held[i], body, 1000);
        if (i < 3) {
            char line[60];
            snprintf(line, sizeof line, "foldback_http_body_bytes %zu\n", (size_t)(i + 1) * PART);
            http_expect_metric(line);
        }
    }
    http_expect_metric("foldback_http_rejected_total{reason=\"body-memory\"} 1\n");
    http_give(held[3], body + 1000, 8 * PART - 1000);
    expect_answer(held[3], 503, "Retry-After: ");
    for (int i = 0; i < 4; i++) close(held[i]);
    await_count(&counts.abandoned, 4);
    stop();
}
END_TEST

START_TEST(no_worker_to_begin) {
    fb_http_config config = http_small_config(); /* two workers, room for two more */
    start(&config);
    int busy[5], begun = http_dial();
    say_sized_head(begun, "PUT /sink", 3 * PART, "");
    await_count(&counts.begun, 1);
    for (int i = 0; i < 2; i++) { /* the workers are in write */
        busy[i] = http_dial();
        say_sized_head(busy[i], "PUT /gate", 3 * PART, "");
        http_give(busy[i], body, PART);
        http_wait_for_waiting((unsigned)i + 1);
    }
    for (int i = 2; i < 5; i++) {
        busy[i] = http_dial();
        say_sized_head(busy[i], "PUT /gate", 3 * PART, "Expect: 100-continue\r\n");
        if (i < 4) http_expect_metric(i == 2 ? "foldback_http_queue_depth 1\n" : "foldback_http_queue_depth 2\n");
    }
    expect_end(busy[4], 503, "overloaded");
    ck_assert_uint_eq(counts.begun, 3);
    http_give(begun, body, 3 * PART); /* what has begun goes on, whatever waits */
    usleep(200000);
    http_open_gate();
    expect_answer(begun, 201, "\"whole\":true");
    close(begun);
    for (int i = 0; i < 2; i++) {
        http_give(busy[i], body + PART, 2 * PART);
        expect_answer(busy[i], 201, "\"whole\":true");
        close(busy[i]);
    }
    for (int i = 2; i < 4; i++) close(busy[i]);
    stop();
}
END_TEST

/* ---- clients ------------------------------------------------------------------------------------------------------------ */

START_TEST(client_leaves) {
    fb_http_config config = http_small_config();
    start(&config);
    static const size_t sent[] = {0, 1, 1000, PART - 1};
    unsigned expected = 0;
    for (unsigned i = 0; i < 4; i++) {
        int s = http_dial();
        say_sized_head(s, "PUT /sink", 8 * PART, "");
        http_give(s, body, sent[i]);
        await_count(&counts.begun, i + 1);
        shutdown(s, SHUT_WR);
        await_count(&counts.abandoned, i + 1);
        expected += (unsigned)sent[i];
        ck_assert_uint_eq(counts.written, expected); /* what came is written first */
        close(s);
    }
    for (int i = 0; i < 2; i++) { /* while a worker is in write; with the connection suspended, or not */
        int s = http_dial();
        say_sized_head(s, "PUT /gate", 8 * PART, "");
        http_give(s, body, i ? 3 * PART : PART);
        http_wait_for_waiting(1);
        close(s);
        usleep(100000);
        http_open_gate();
        await_count(&counts.abandoned, 5 + (unsigned)i);
        pthread_mutex_lock(&http_app.lock);
        http_app.is_open = false;
        pthread_mutex_unlock(&http_app.lock);
    }
    ck_assert_uint_eq(counts.handled, 0);
    stop();
}
END_TEST

START_TEST(deadlines) {
    fb_http_config config = http_small_config();
    config.body_timeout_ms = 400;
    config.minimum_rate = 50 << 10;
    start(&config);
    int s = http_dial(); /* fast at first: that does not give it time to be slow later */
    say_sized_head(s, "PUT /sink", 100 * PART, "");
    http_give(s, body, PART - 1000);
    double begin_time = http_seconds();
    struct pollfd answer = {.fd = s, .events = POLLIN};
    for (size_t at = PART - 1000; http_seconds() - begin_time < 30 && !poll(&answer, 1, 20); at++) http_give(s, body + at, 1);
    expect_end(s, 408, "request-timeout");
    ck_assert_double_lt(http_seconds() - begin_time, 15);
    await_count(&counts.abandoned, 1);

    s = http_dial(); /* a slow sink is not the client's fault */
    say_sized_head(s, "PUT /gate", 4 * PART, "");
    http_give(s, body, 3 * PART);
    http_wait_for_waiting(1);
    usleep(1000000);
    http_open_gate();
    http_give(s, body + 3 * PART, PART);
    expect_answer(s, 201, "\"whole\":true");
    close(s);
    stop();
}
END_TEST

typedef struct client {
    pthread_t thread;
    unsigned number;
} client;

static void *upload(void *context) {
    unsigned seed = ((client *)context)->number;
    for (int round = 0; round < 4; round++) {
        int s = http_dial();
        for (int i = 0; i < 3; i++) {
            size_t size = (size_t)rand_r(&seed) % BODY_SIZE,
                   sent = rand_r(&seed) % 3 ? size : (size_t)rand_r(&seed) % (size + 1);
            bool is_chunked = rand_r(&seed) % 2;
            if (is_chunked) say_head(s, "PUT /sink", "Transfer-Encoding: chunked\r\n");
            else say_sized_head(s, "PUT /sink", size, "");
            if (sent < size) { /* and goes away */
                http_give(s, body, is_chunked ? 0 : sent);
                break;
            }
            give_body(s, size, is_chunked, &seed);
            expect_answer(s, 201, "\"whole\":true");
            if (is_chunked) break; /* after which the connection is closed */
        }
        close(s);
    }
    return NULL;
}

START_TEST(many_at_once) {
    fb_http_config config = http_small_config();
    config.queue_limit = 64;
    start(&config);
    counts.pause_us = 500;
    client clients[24];
    for (unsigned i = 0; i < 24; i++) {
        clients[i].number = i + 1;
        pthread_create(&clients[i].thread, NULL, upload, &clients[i]);
    }
    for (int i = 0; i < 20; i++) http_get("/word", "", 200, "word"); /* not starved */
    for (int i = 0; i < 24; i++) pthread_join(clients[i].thread, NULL);
    ck_assert_uint_gt(counts.handled, 24);
    ck_assert_uint_gt(counts.begun, counts.handled);
    stop();
}
END_TEST

/* ---- stopping ----------------------------------------------------------------------------------------------------------- */

static void *stop_soon(void *context) {
    bool *is_clean = context;
    *is_clean = fb_http_stop(http_server, *is_clean ? 20000 : 300);
    return NULL;
}

/* The time to stop is up while one upload's part is with a worker, another waits for more of its body, and a third one waits to
 * begin; or there is time enough, and those that have begun end well. */
START_TEST(stopping) {
    fb_http_config config = http_small_config();
    config.worker_threads = 1;
    for (int is_patient = 0; is_patient < 2; is_patient++) {
        start(&config);
        int slow = http_dial(), held = http_dial(), late = http_dial();
        say_sized_head(slow, "PUT /sink", 3 * PART, "");
        http_give(slow, body, PART + 5);
        await_count(&counts.written, PART);
        say_sized_head(held, "PUT /gate", 3 * PART, "");
        http_give(held, body, 3 * PART);
        http_wait_for_waiting(1);
        say_sized_head(late, "PUT /sink", 5, "");
        http_expect_metric("foldback_http_queue_depth 1\n");

        pthread_t thread;
        bool is_clean = is_patient;
        pthread_create(&thread, NULL, stop_soon, &is_clean);
        usleep(is_patient ? 100000 : 600000);
        http_open_gate();
        if (is_patient) {
            http_give(slow, body + PART + 5, 2 * PART - 5);
            http_give(late, body, 5);
            expect_end(slow, 201, "\"whole\":true");
            expect_end(held, 201, "\"whole\":true");
            expect_end(late, 201, "\"whole\":true");
        }
        pthread_join(thread, NULL);
        ck_assert(is_clean == is_patient);
        ck_assert_uint_eq(counts.begun, counts.abandoned + counts.handled);
        ck_assert_uint_eq(counts.begun, is_patient ? 3 : 2);
        if (!is_patient) {
            ck_assert_uint_eq(counts.abandoned, 2);
            close(slow), close(held), close(late);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http-sink");
    TCase *tests = tcase_create("http-sink");
    tcase_set_timeout(tests, 120);
    tcase_add_unchecked_fixture(tests, make_body, free_body);
    tcase_add_test(tests, whole_bodies);
    tcase_add_test(tests, empty_bodies);
    tcase_add_test(tests, expect_continue);
    tcase_add_test(tests, refused_at_begin);
    tcase_add_test(tests, refused_in_write);
    tcase_add_test(tests, too_large);
    tcase_add_test(tests, memory);
    tcase_add_test(tests, no_worker_to_begin);
    tcase_add_test(tests, client_leaves);
    tcase_add_test(tests, deadlines);
    tcase_add_test(tests, many_at_once);
    tcase_add_test(tests, stopping);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
