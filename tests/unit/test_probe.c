/* fb_http_probe notices each I/O thread that hangs, and a thread that accepts no more. */
#include "tests/unit/checks.h"
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/http_fixture.h"
#include "tests/unit/run_tests.h"

#define THREADS 3
#define LONG_MS 60000
#define SHORT_MS 300

static void hang(const fb_request *request, fb_response *response) {
    http_wait_at_gate();
    http_get_word(request, response);
}

static void answer_failure(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_problem(response, 503, "broken", "broken");
}

static const fb_route routes[] = {
    {.method = "GET", .pattern = "/word", .handler = http_get_word, .produces = "text/plain", .is_inline = true},
    {.method = "GET", .pattern = "/hang", .handler = hang, .produces = "text/plain", .is_inline = true}, /* its I/O thread */
    {.method = "GET", .pattern = "/fails", .handler = answer_failure, .is_inline = true},
};

static fb_status probe(const char *target, unsigned timeout_ms) {
    fb_error error = {0};
    return fb_http_probe(http_server, target, timeout_ms, &error);
}

static void start(void) {
    fb_http_config config = http_small_config();
    config.io_threads = THREADS;
    http_start_routes(&config, routes, sizeof routes / sizeof *routes);
}

/* Connections whose descriptors differ go to threads that differ, so one after the other is made to hang. */
START_TEST(every_thread) {
    start();
    ck_assert(!probe("/word", LONG_MS));
    int idle[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        int s = http_dial();
        http_say_head(s, "GET /hang", "Connection: close\r\n");
        http_wait_for_waiting(1);
        ck_assert_int_eq(probe("/word", SHORT_MS), FB_IO);
        http_open_gate();
        http_expect_end(s, 200, "word");
        close(s);
        ck_assert(!probe("/word", LONG_MS));
        pthread_mutex_lock(&http_app.lock);
        http_app.is_open = false;
        pthread_mutex_unlock(&http_app.lock);
        idle[i] = http_dial(); /* takes the descriptors, so that the next round has others */
    }
    for (unsigned i = 0; i < THREADS; i++) close(idle[i]);
    http_stop();
}
END_TEST

START_TEST(all_threads) {
    start();
    int s[2 * THREADS];
    for (unsigned i = 0; i < 2 * THREADS; i++) {
        s[i] = http_dial();
        http_say_head(s[i], "GET /hang", "Connection: close\r\n");
    }
    http_wait_for_waiting(1);
    ck_assert_int_eq(probe("/word", SHORT_MS), FB_IO);
    http_open_gate();
    for (unsigned i = 0; i < 2 * THREADS; i++) {
        http_expect_end(s[i], 200, "word");
        close(s[i]);
    }
    ck_assert(!probe("/word", LONG_MS));
    http_stop();
}
END_TEST

START_TEST(other_answers) {
    start();
    ck_assert_int_eq(probe("/fails", LONG_MS), FB_IO);
    ck_assert_int_eq(probe("/absent", LONG_MS), FB_IO);
    http_await_metric("foldback_http_connections 0\n", true);
    http_stop();
}
END_TEST

/* It is none of the clients: their limits do not concern it. */
START_TEST(at_the_limit) {
    fb_http_config config = http_small_config();
    config.connection_limit = 2;
    http_start_routes(&config, routes, sizeof routes / sizeof *routes);
    int held[3];
    for (int i = 0; i < 3; i++) held[i] = http_dial();
    http_await_metric("foldback_http_connections 2\n", true);
    ck_assert(!probe("/word", LONG_MS));
    for (int i = 0; i < 3; i++) close(held[i]);
    http_stop();
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("probe");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, every_thread);
    tcase_add_test(tests, all_threads);
    tcase_add_test(tests, other_answers);
    tcase_add_test(tests, at_the_limit);
    return run_tests("probe", tests);
}
