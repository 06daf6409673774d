/* Bodies that go to a sink as they come, from clients that leave, are slow or many, and while the server stops. */
#include "tests/unit/run_tests.h"
#include "tests/unit/sink_fixture.h"

#include "tests/unit/checks.h"
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- clients ------------------------------------------------------------------------------------------------------------ */

START_TEST(client_leaves) {
    fb_http_config config = http_small_config();
    sink_start(&config);
    static const size_t sent[] = {0, 1, 1000, PART - 1};
    unsigned expected = 0;
    for (unsigned i = 0; i < 4; i++) {
        int s = http_dial();
        http_say_sized_head(s, "PUT /sink", 8 * PART, "");
        http_give(s, sink_body, sent[i]);
        sink_await_count(&sink_counts.begun, i + 1);
        shutdown(s, SHUT_WR);
        sink_await_count(&sink_counts.abandoned, i + 1);
        expected += (unsigned)sent[i];
        ck_assert_uint_eq(sink_counts.written, expected); /* what came is written first */
        close(s);
    }
    for (int i = 0; i < 2; i++) { /* while a worker is in write; with the connection suspended, or not */
        int s = http_dial();
        http_say_sized_head(s, "PUT /gate", 8 * PART, "");
        http_give(s, sink_body, i ? 3 * PART : PART);
        http_wait_for_waiting(1);
        close(s);
        usleep(100000);
        http_open_gate();
        sink_await_count(&sink_counts.abandoned, 5 + (unsigned)i);
        pthread_mutex_lock(&http_app.lock);
        http_app.is_open = false;
        pthread_mutex_unlock(&http_app.lock);
    }
    ck_assert_uint_eq(sink_counts.handled, 0);
    sink_stop();
}
END_TEST

START_TEST(deadlines) {
    fb_http_config config = http_small_config();
    config.body_timeout_ms = 400;
    config.minimum_rate = 50 << 10;
    sink_start(&config);
    int s = http_dial(); /* fast at first: that does not give it time to be slow later */
    http_say_sized_head(s, "PUT /sink", 100 * PART, "");
    http_give(s, sink_body, PART - 1000);
    double begin_time = http_seconds();
    struct pollfd answer = {.fd = s, .events = POLLIN};
    for (size_t at = PART - 1000; http_seconds() - begin_time < 30 && !poll(&answer, 1, 20); at++)
        http_give(s, sink_body + at, 1);
    http_expect_end(s, 408, "request-timeout");
    ck_assert_double_lt(http_seconds() - begin_time, 15);
    sink_await_count(&sink_counts.abandoned, 1);

    s = http_dial(); /* a slow sink is not the client's fault */
    http_say_sized_head(s, "PUT /gate", 4 * PART, "");
    http_give(s, sink_body, 3 * PART);
    http_wait_for_waiting(1);
    usleep(1000000);
    http_open_gate();
    http_give(s, sink_body + 3 * PART, PART);
    http_expect_answer(s, 201, "\"whole\":true");
    close(s);
    sink_stop();
}
END_TEST

static void upload(unsigned seed) {
    for (int round = 0; round < 4; round++) {
        int s = http_dial();
        for (int i = 0; i < 3; i++) {
            size_t size = (size_t)rand_r(&seed) % SINK_BODY_SIZE,
                   sent = rand_r(&seed) % 3 ? size : (size_t)rand_r(&seed) % (size + 1);
            bool is_chunked = rand_r(&seed) % 2;
            if (is_chunked) http_say_head(s, "PUT /sink", "Transfer-Encoding: chunked\r\n");
            else http_say_sized_head(s, "PUT /sink", size, "");
            if (sent < size) { /* and goes away */
                http_give(s, sink_body, is_chunked ? 0 : sent);
                break;
            }
            sink_give_body(s, size, is_chunked, &seed);
            http_expect_answer(s, 201, "\"whole\":true");
            if (is_chunked) break; /* after which the connection is closed */
        }
        close(s);
    }
}

START_TEST(many_at_once) {
    fb_http_config config = http_small_config();
    config.queue_limit = 64;
    sink_start(&config);
    sink_counts.pause_us = 500;
    http_many_at_once(upload);
    ck_assert_uint_gt(sink_counts.handled, 24);
    ck_assert_uint_gt(sink_counts.begun, sink_counts.handled);
    sink_stop();
}
END_TEST

/* ---- stopping ----------------------------------------------------------------------------------------------------------- */

/* The time to stop is up while one upload's part is with a worker, another waits for more of its body, and a third one
 * waits to begin; or there is time enough, and those that have begun end well. */
START_TEST(stopping) {
    fb_http_config config = http_small_config();
    config.worker_threads = 1;
    for (int is_patient = 0; is_patient < 2; is_patient++) {
        sink_start(&config);
        int slow = http_dial(), held = http_dial(), late = http_dial();
        http_say_sized_head(slow, "PUT /sink", 3 * PART, "");
        http_give(slow, sink_body, PART + 5);
        sink_await_count(&sink_counts.written, PART);
        http_say_sized_head(held, "PUT /gate", 3 * PART, "");
        http_give(held, sink_body, 3 * PART);
        http_wait_for_waiting(1);
        http_say_sized_head(late, "PUT /sink", 5, "");
        http_expect_metric("foldback_http_queue_depth 1\n");

        bool is_clean = is_patient;
        pthread_t thread = http_stop_beside(&is_clean);
        if (is_patient) {
            http_give(slow, sink_body + PART + 5, 2 * PART - 5);
            http_give(late, sink_body, 5);
            http_expect_end(slow, 201, "\"whole\":true");
            http_expect_end(held, 201, "\"whole\":true");
            http_expect_end(late, 201, "\"whole\":true");
        }
        pthread_join(thread, NULL);
        ck_assert(is_clean == is_patient);
        ck_assert_uint_eq(sink_counts.begun, sink_counts.abandoned + sink_counts.handled);
        ck_assert_uint_eq(sink_counts.begun, is_patient ? 3 : 2);
        if (!is_patient) {
            ck_assert_uint_eq(sink_counts.abandoned, 2);
            close(slow), close(held), close(late);
        }
    }
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("http-sink-clients");
    tcase_set_timeout(tests, 600);
    tcase_add_unchecked_fixture(tests, sink_make_body, sink_free_body);
    tcase_add_test(tests, client_leaves);
    tcase_add_test(tests, deadlines);
    tcase_add_test(tests, many_at_once);
    tcase_add_test(tests, stopping);
    return run_tests("http-sink-clients", tests);
}
