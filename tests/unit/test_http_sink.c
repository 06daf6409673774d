/* Bodies that go to a sink as they come, over real sockets: what is taken, and what is refused. */
#include "tests/unit/run_tests.h"
#include "tests/unit/sink_fixture.h"

#include "tests/unit/checks.h"
#include <sys/socket.h>
#include <unistd.h>

/* ---- what is taken ------------------------------------------------------------------------------------------------------ */

START_TEST(whole_bodies) {
    fb_http_config config = http_small_config(); /* body_limit is 1 MiB: not for these */
    sink_start(&config);
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
            if (is_chunked) http_say_head(s, "PUT /sink", "Transfer-Encoding: chunked\r\n");
            else http_say_sized_head(s, "PUT /sink", sizes[i], "Content-Encoding: identity\r\n");
            sink_give_body(s, sizes[i], is_chunked, &seed);
            http_expect_answer(s, 201, expected);
            ck_assert_uint_eq(sink_counts.size, is_chunked ? FB_SIZE_UNKNOWN : sizes[i]);
        }
        close(s);
    }
    ck_assert_uint_eq(sink_counts.handled, 24);
    sink_stop();
}
END_TEST

START_TEST(empty_bodies) {
    fb_http_config config = http_small_config();
    sink_start(&config);
    int s = http_dial();
    http_say_head(s, "PUT /sink", "");
    http_expect_answer(s, 201, "{\"size\":0,\"whole\":true}");
    ck_assert_uint_eq(sink_counts.size, 0);
    http_say_sized_head(s, "PUT /sink", 0, "");
    http_expect_answer(s, 201, "{\"size\":0,\"whole\":true}");
    http_say_head(s, "POST /sink", "");
    http_expect_answer(s, 400, "missing-body");
    ck_assert_uint_eq(sink_counts.begun, 2);
    http_say_head(s, "POST /sink", "Transfer-Encoding: chunked\r\n");
    http_say(s, "0\r\n\r\n"); /* it was begun before that was known */
    http_expect_answer(s, 400, "missing-body");
    ck_assert_uint_eq(sink_counts.abandoned, 1);
    close(s);
    sink_stop();
}
END_TEST

START_TEST(expect_continue) {
    fb_http_config config = http_small_config();
    sink_start(&config);
    char bytes[100] = "";
    int s = http_dial();
    http_say_sized_head(s, "PUT /sink", 2 * PART, "Expect: 100-continue\r\n");
    ck_assert_int_gt(recv(s, bytes, sizeof bytes - 1, 0), 0);
    ck_assert_str_eq(bytes, "HTTP/1.1 100 Continue\r\n\r\n");
    ck_assert_uint_eq(sink_counts.begun, 1);
    http_give(s, sink_body, 2 * PART);
    http_expect_answer(s, 201, "\"whole\":true");
    http_say_sized_head(s, "PUT /sink?refuse", 2 * PART, "Expect: 100-continue\r\n");
    http_expect_end(s, 409, "not-now"); /* instead of 100, at once */
    sink_stop();
}
END_TEST

/* ---- what is refused ---------------------------------------------------------------------------------------------------- */

START_TEST(refused_at_begin) {
    fb_http_config config = http_small_config();
    sink_start(&config);
    int s = http_dial();
    http_say_sized_head(s, "PUT /sink?refuse", 1000, ""); /* a small one is read, and the connection kept */
    http_give(s, sink_body, 1000);
    http_expect_answer(s, 409, "not-now");
    http_say_sized_head(s, "PUT /sink?silent", 1000, "");
    http_give(s, sink_body, 1000);
    http_expect_answer(s, 500, "no-response");
    http_say_sized_head(s, "PUT /sink?refuse", 100 * PART, "");
    http_expect_end(s, 409, "Connection: close");
    s = http_dial();
    http_say_head(s, "PUT /sink?refuse", "Transfer-Encoding: chunked\r\n");
    http_expect_end(s, 409, "not-now");

    s = http_dial();
    http_say_sized_head(s, "PUT /sink", 5, "Content-Encoding: gzip\r\n");
    http_say(s, "12345");
    http_expect_answer(s, 415, "unsupported-encoding");
    http_say_sized_head(s, "PUT /small", PART + 8, "Expect: 100-continue\r\n");
    http_expect_end(s, 413, "body-too-large");
    ck_assert_uint_eq(sink_counts.begun, 0);

    static const fb_route bad[] = {{.method = "PUT", .pattern = "/", .handler = sink_stored, .sink = &sink_checked},
                                   {.method = "PUT",
                                    .pattern = "/",
                                    .handler = sink_stored,
                                    .body = FB_BODY_OPTIONAL,
                                    .sink = &sink_checked,
                                    .is_inline = true}};
    for (int i = 0; i < 2; i++) {
        fb_http_server *second;
        fb_error error = {0};
        ck_assert_int_eq(fb_http_start(&config, &bad[i], 1, NULL, &second, &error), FB_INVALID);
        ck_assert_str_eq(error.code, "bad-route");
    }
    sink_stop();
}
END_TEST

START_TEST(refused_in_write) {
    fb_http_config config = http_small_config();
    sink_start(&config);
    static const size_t points[] = {0, PART, 3 * PART};
    unsigned seed = 2;
    for (unsigned i = 0; i < 6; i++) {
        size_t size = i < 3 ? 5 * PART : points[i - 3] + 1; /* in the middle; with the last part */
        sink_counts.refuse_from = (unsigned)points[i % 3];
        int s = http_dial();
        http_say_sized_head(s, "PUT /sink", size, "");
        sink_give_body(s, size, false, &seed);
        http_expect_answer(s, 507, "disk-full");
        ck_assert_uint_eq(sink_counts.abandoned, i + 1); /* before the answer */
        http_say_head(s, "GET /word", "Connection: close\r\n");
        http_expect_end(s, 200, "word");
    }
    sink_counts.refuse_from = 0;
    int slow = http_dial(); /* the sink need not wait until the client has sent the rest */
    http_say_sized_head(slow, "PUT /sink", PART + 1, "");
    http_give(slow, sink_body, PART);
    sink_await_count(&sink_counts.abandoned, 7);
    http_give(slow, sink_body + PART, 1);
    http_expect_answer(slow, 507, "disk-full");
    close(slow);
    for (int is_chunked = 0; is_chunked < 2; is_chunked++) { /* too much is left of it to be read to its end */
        int s = http_dial();
        if (is_chunked) http_say_head(s, "PUT /sink", "Transfer-Encoding: chunked\r\n");
        else http_say_sized_head(s, "PUT /sink", 1000 * PART, "");
        for (int i = 0; i < 1000; i++) {
            const char *bytes = sink_body + (size_t)(i % 8) * PART;
            if (!(is_chunked ? http_give_chunk(s, bytes, PART) : http_give(s, bytes, PART))) break;
        }
        http_expect_end(s, 507, "disk-full");
    }
    ck_assert_uint_eq(sink_counts.handled, 0);
    sink_stop();
}
END_TEST

START_TEST(too_large) {
    fb_http_config config = http_small_config();
    sink_start(&config);
    unsigned seed = 3;
    for (size_t size = PART + 6; size <= PART + 9; size++) {
        int s = http_dial();
        http_say_head(s, "PUT /small", "Transfer-Encoding: chunked\r\n");
        sink_give_body(s, size, true, &seed);
        bool fits = size <= PART + 7;
        http_expect_answer(s, fits ? 201 : 413, fits ? "\"whole\":true" : "body-too-large");
        close(s);
    }
    ck_assert_uint_eq(sink_counts.handled, 2);
    ck_assert_uint_eq(sink_counts.abandoned, 2);
    sink_stop();
}
END_TEST

START_TEST(memory) {
    fb_http_config config = http_small_config();
    config.body_memory_limit = 3 * PART;
    sink_start(&config);
    int held[4];
    for (int i = 0; i < 4; i++) { /* a part each */
        held[i] = http_dial();
        http_say_sized_head(held[i], "PUT /sink", 8 * PART, "");
        http_give(held[i], sink_body, 1000);
        if (i < 3) {
            char line[60];
            snprintf(line, sizeof line, "foldback_http_body_bytes %zu\n", (size_t)(i + 1) * PART);
            http_expect_metric(line);
        }
    }
    http_expect_metric("foldback_http_rejected_total{reason=\"body-memory\"} 1\n");
    http_give(held[3], sink_body + 1000, 8 * PART - 1000);
    http_expect_answer(held[3], 503, "Retry-After: ");
    for (int i = 0; i < 4; i++) close(held[i]);
    sink_await_count(&sink_counts.abandoned, 4);
    sink_stop();
}
END_TEST

START_TEST(no_worker_to_begin) {
    fb_http_config config = http_small_config(); /* two workers, room for two more */
    sink_start(&config);
    int busy[5], begun = http_dial();
    http_say_sized_head(begun, "PUT /sink", 3 * PART, "");
    sink_await_count(&sink_counts.begun, 1);
    for (int i = 0; i < 2; i++) { /* the workers are in write */
        busy[i] = http_dial();
        http_say_sized_head(busy[i], "PUT /gate", 3 * PART, "");
        http_give(busy[i], sink_body, PART);
        http_wait_for_waiting((unsigned)i + 1);
    }
    for (int i = 2; i < 5; i++) {
        busy[i] = http_dial();
        http_say_sized_head(busy[i], "PUT /gate", 3 * PART, "Expect: 100-continue\r\n");
        if (i < 4) http_expect_metric(i == 2 ? "foldback_http_queue_depth 1\n" : "foldback_http_queue_depth 2\n");
    }
    http_expect_end(busy[4], 503, "overloaded");
    ck_assert_uint_eq(sink_counts.begun, 3);
    http_give(begun, sink_body, 3 * PART); /* what has begun goes on, whatever waits */
    usleep(200000);
    http_open_gate();
    http_expect_answer(begun, 201, "\"whole\":true");
    close(begun);
    for (int i = 0; i < 2; i++) {
        http_give(busy[i], sink_body + PART, 2 * PART);
        http_expect_answer(busy[i], 201, "\"whole\":true");
        close(busy[i]);
    }
    for (int i = 2; i < 4; i++) close(busy[i]);
    sink_stop();
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("http-sink");
    tcase_set_timeout(tests, 600);
    tcase_add_unchecked_fixture(tests, sink_make_body, sink_free_body);
    tcase_add_test(tests, whole_bodies);
    tcase_add_test(tests, empty_bodies);
    tcase_add_test(tests, expect_continue);
    tcase_add_test(tests, refused_at_begin);
    tcase_add_test(tests, refused_in_write);
    tcase_add_test(tests, too_large);
    tcase_add_test(tests, memory);
    tcase_add_test(tests, no_worker_to_begin);
    return run_tests("http-sink", tests);
}
