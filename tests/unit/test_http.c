/* The HTTP layer with small limits and short deadlines, over real sockets; what needs no such limits is in
 * tests/api/test_http.py. */
#include "tests/unit/http_fixture.h"
#include "tests/unit/run_tests.h"

#include "tests/unit/checks.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static void alive(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_empty(response, 204);
}

static const fb_route alive_route = {.method = "GET", .pattern = "/alive", .handler = alive};

START_TEST(addresses) {
    static const char *const loopback[] = {"127.0.0.1:80", "127.8.9.1:0", "[::1]:8080", "localhost:1"};
    for (size_t i = 0; i < 4; i++) ck_assert_msg(fb_http_is_loopback(loopback[i]), "%s", loopback[i]);
    static const char *const other[] = {"0.0.0.0:80", "[::]:80",         "10.0.0.1:80",  "::1:80",  "127.0.0.1",
                                        "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:8x", "[::1:80", ":80",
                                        "",           "example.com:80",  "[]:1"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) ck_assert_msg(!fb_http_is_loopback(other[i]), "%s", other[i]);

    fb_http_config config = http_small_config();
    http_start(&config);
    config.listen = strchr(fb_http_url(http_server), '1');
    fb_http_server *second;
    fb_error error = {0};
    ck_assert_int_eq(fb_http_start(&config, &alive_route, 1, NULL, &second, &error), FB_IO);
    ck_assert_ptr_nonnull(strstr(error.message, "in use"));
    error = (fb_error){0};
    config.listen = "nowhere";
    ck_assert_int_eq(fb_http_start(&config, &alive_route, 1, NULL, &second, &error), FB_INVALID);
    static const fb_route bad = {.method = "GET", .pattern = "/{a", .handler = alive};
    error = (fb_error){0};
    ck_assert_int_eq(fb_http_start(&config, &bad, 1, NULL, &second, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "bad-route");
    http_stop();

    config.listen = "[::1]:0";
    if (!fb_http_start(&config, &alive_route, 1, NULL, &http_server, &error)) { /* where there is IPv6 */
        ck_assert_ptr_nonnull(strstr(fb_http_url(http_server), "http://[::1]:"));
        http_stop();
    }
}
END_TEST

START_TEST(parameters) {
    fb_http_config config = http_small_config();
    http_start(&config);
    http_get("/items/a%20b+c?v=1&v=&v=x%2By+z%c3%a9&limit=7&deep", "", 200,
             "{\"id\":\"a b+c\",\"limit\":7,\"deep\":true,\"v\":[\"1\",\"\",\"x+y z\xc3\xa9\"]}");
    http_get("/items/x?deep=false&", "", 200, "\"limit\":20,\"deep\":false");
    http_get("/items/newest", "", 200, "literal");
    http_get("/items/", "", 404, "not-found");
    static const char *const bad[] = {"limit=0",    "limit=101",       "limit=",     "limit=1x",
                                      "limit=%201", "limit=1&limit=1", "deep=maybe", "limit=99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char target[100];
        snprintf(target, sizeof target, "/items/x?%s", bad[i]);
        http_get(target, "", 422, "bad-parameter");
    }
    http_get("/items/x?other=1", "", 422, "unknown-parameter");
    http_stop();
}
END_TEST

START_TEST(etags) {
    fb_http_config config = http_small_config();
    http_start(&config);
    static const char *const match[] = {"\"tag\"", "W/\"tag\"", "*", "\"a\", \"tag\"", "\"a,b\",W/\"tag\""};
    for (size_t i = 0; i < sizeof match / sizeof *match; i++) {
        char header[100];
        snprintf(header, sizeof header, "If-None-Match: %s\r\n", match[i]);
        char request[300];
        snprintf(request, sizeof request, "GET /items/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s\r\n", header);
        char *answer = http_ask(request);
        ck_assert_int_eq(http_status_of(answer), 304);
        ck_assert_ptr_nonnull(strstr(answer, "ETag: \"tag\"\r\n"));
        ck_assert_str_eq(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
        free(answer);
    }
    static const char *const differ[] = {"\"tag2\"", "tag", "\"\"", "\"tag", ""};
    for (size_t i = 0; i < sizeof differ / sizeof *differ; i++) {
        char header[100];
        snprintf(header, sizeof header, "If-None-Match: %s\r\n", differ[i]);
        http_get("/items/x", header, 200, "ETag: \"tag\"\r\n");
    }
    http_stop();
}
END_TEST

START_TEST(problems) {
    fb_http_config config = http_small_config();
    http_start(&config);
    static const struct {
        fb_status error;
        int status;
    } cases[] = {{FB_SYNTAX, 400},   {FB_INVALID, 422}, {FB_TOO_LARGE, 413}, {FB_NOT_FOUND, 404}, {FB_CONFLICT, 409},
                 {FB_NO_SPACE, 507}, {FB_BUSY, 503},    {FB_NO_MEMORY, 503}, {FB_IO, 500}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char target[50];
        snprintf(target, sizeof target, "/fails/%d", (int)cases[i].error);
        http_get(target, "", cases[i].status, "\"code\":\"some-code\"");
        http_get(target, "", cases[i].status, "\"detail\":\"it is \\\"bad\\\" ?\"");
        http_get(target, "", cases[i].status,
                 cases[i].status < 500 ? "\"pointer\":\"/graph/nodes/1\",\"nodes\":[\"relu\"]" : "\"extra\":7");
        if (cases[i].status == 503) http_get(target, "", 503, "\r\nRetry-After: ");
    }
    http_get("/many", "", 422, "\"detail\":\"number 0\"");
    http_get("/many", "", 422, "{\"pointer\":\"/x\",\"code\":\"bad-thing\",\"detail\":\"number 1\"}],\"total\":5}");
    http_get("/silent", "", 500, "no-response");
    http_stop();
}
END_TEST

static size_t pack_gzip(const void *bytes, size_t size, char *out, size_t space) {
    z_stream stream = {0};
    deflateInit2(&stream, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = (unsigned char *)(uintptr_t)bytes;
    stream.avail_in = (unsigned)size;
    stream.next_out = (unsigned char *)out;
    stream.avail_out = (unsigned)space;
    ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return space - stream.avail_out;
}

START_TEST(compressed_bodies) {
    fb_http_config config = http_small_config();
    http_start(&config);
    size_t limit = config.body_limit, bomb_size = (size_t)64 << 20, space = (size_t)1 << 20;
    char *plain = calloc(1, bomb_size), *packed = malloc(space);
    for (size_t i = 0; i < limit; i++) plain[i] = (char)('a' + i % 23);
    for (int is_zstd = 0; is_zstd < 2; is_zstd++) {
        const char *coding = is_zstd ? "zstd" : "gzip";
        const size_t sizes[] = {1, 1000, limit - 1, limit, limit + 1, bomb_size};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t size =
                is_zstd ? ZSTD_compress(packed, space, plain, sizes[i], 9) : pack_gzip(plain, sizes[i], packed, space);
            char *answer = http_post(coding, packed, size);
            ck_assert_int_eq(http_status_of(answer), sizes[i] <= limit ? 200 : 413);
            if (sizes[i] <= limit) {
                const char *body = strstr(answer, "\r\n\r\n") + 4;
                ck_assert_uint_eq(strlen(body), sizes[i]);
                ck_assert_int_eq(memcmp(body, plain, sizes[i]), 0);
            }
            free(answer);
            for (size_t cut = 0; cut < size && sizes[i] == 1000; cut++) { /* at every byte */
                answer = http_post(coding, packed, cut);
                ck_assert_int_eq(http_status_of(answer), 400);
                free(answer);
            }
        }
    }
    http_expect_metric("foldback_http_body_bytes 0\n");
    free(plain);
    free(packed);
    http_stop();
}
END_TEST

START_TEST(body_limits) {
    fb_http_config config = http_small_config();
    config.body_memory_limit = 3 << 20;
    http_start(&config);
    http_expect("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\nExpect: 100-continue\r\n\r\n", 413,
                "body-too-large");
    http_expect(
        "PUT /raw HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nContent-Type: image/png\r\nConnection: close\r\n\r\n01234567890",
        413, "body-too-large");
    http_expect(
        "PUT /raw HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nContent-Type: image/png\r\nConnection: close\r\n\r\n0123456789",
        200, "0123456789");

    /* Chunked: found out on the way. After 2 MiB the answer comes at the end, after 64 MiB past libmicrohttpd. */
    char *chunk = malloc(65536 + 8);
    memcpy(chunk, "10000\r\n", 7);
    memset(chunk + 7, 'x', 65536);
    for (int is_endless = 0; is_endless < 2; is_endless++) {
        int s = http_dial();
        http_say(s, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
        for (int i = 0; i < (is_endless ? 1024 : 32); i++)
            if (!http_give(s, chunk, 65536 + 7) || !http_give(s, "\r\n", 2)) break;
        http_say(s, "0\r\n\r\n");
        char *answer = http_hear(s);
        ck_assert_msg(http_status_of(answer) == 413 && strstr(answer, "body-too-large"), "%s", answer);
        free(answer);
    }
    free(chunk);

    /* Memory for all bodies together: four uploads of 1 MiB that stop before their end. */
    int held[4];
    char *part = calloc(1, 900000);
    for (int i = 0; i < 4; i++) {
        held[i] = http_dial();
        http_say(held[i], "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 900001\r\nConnection: close\r\n\r\n");
        http_give(held[i], part, 900000);
    }
    free(part);
    http_await_metric("foldback_http_rejected_total{reason=\"body-memory\"} 0\n", false);
    int refused = 0;
    for (int i = 0; i < 4; i++) {
        http_say(held[i], "x");
        char *answer = http_hear(held[i]);
        refused += http_status_of(answer) == 503 && strstr(answer, "Retry-After");
        free(answer);
    }
    ck_assert_int_ge(refused, 1);
    http_expect_metric("foldback_http_body_bytes 0\n");
    http_stop();
}
END_TEST

static int drip(const char *prefix, const char *drop, double *taken) {
    int s = http_dial();
    double begin = http_seconds();
    http_say(s, prefix);
    char answer[2000];
    ssize_t got = 0;
    while (http_seconds() - begin < 20) {
        http_say(s, drop);
        got = recv(s, answer, sizeof answer - 1, MSG_DONTWAIT);
        if (got >= 0) break;
        usleep(20000);
    }
    *taken = http_seconds() - begin;
    close(s);
    answer[got > 0 ? got : 0] = '\0';
    return http_status_of(answer);
}

START_TEST(deadlines) {
    fb_http_config config = http_small_config();
    config.header_timeout_ms = 400;
    config.body_timeout_ms = 600;
    config.idle_timeout_ms = 800;
    config.minimum_rate = 1 << 20;
    http_start(&config);
    double taken;
    ck_assert_int_eq(drip("", "\r\n", &taken), 408); /* empty lines before a request are allowed */
    ck_assert_double_lt(taken, 10);
    ck_assert_int_eq(drip("GET /alive", "x", &taken), 408);
    ck_assert_int_eq(drip("GET /alive HTTP/1.1\r\n", "X: y\r\n", &taken), 408);
    ck_assert_double_ge(taken, 0.4);
    ck_assert_int_eq(drip("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", "x", &taken), 408);
    ck_assert_double_ge(taken, 0.6);
    ck_assert_int_eq(drip("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", &taken), 408);
    ck_assert_int_eq(drip("POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", "x", &taken), 408);
    ck_assert_double_lt(taken, 10);

    int s = http_dial(); /* kept alive, then silent: closed without a word */
    http_say(s, "GET /alive HTTP/1.1\r\nHost: a\r\n\r\n");
    double begin = http_seconds();
    char *answer = http_hear(s);
    ck_assert_int_eq(http_status_of(answer), 200);
    ck_assert_ptr_null(strstr(answer, "HTTP/1.1 408"));
    ck_assert_double_ge(http_seconds() - begin, 0.7);
    free(answer);

    s = http_dial(); /* does not read its answer; 600 ms + 32 s at 1 MiB/s is too long for a test: only the server's side is
                   looked at */
    int small = 4096;
    setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    http_say(s, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    http_expect_metric("foldback_http_in_flight 1\n");
    close(s);
    http_expect_metric("foldback_http_in_flight 0\n");
    http_stop();
}
END_TEST

START_TEST(slow_readers) {
    fb_http_config config = http_small_config();
    config.body_timeout_ms = 300;
    config.minimum_rate = 64 << 20;
    http_start(&config);
    int s = http_dial();
    http_say(s, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    http_expect_metric("foldback_http_in_flight 1\n");
    http_expect_metric("foldback_http_rejected_total{reason=\"deadline\"} 1\n");
    http_expect_metric("foldback_http_in_flight 0\n");
    close(s);
    http_stop();
}
END_TEST

START_TEST(overload) {
    fb_http_config config = http_small_config(); /* two workers, room for two more */
    http_start(&config);
    int waiting[4];
    for (int i = 0; i < 4; i++) {
        waiting[i] = http_dial();
        http_say(waiting[i], "GET /gate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        if (i == 1) http_wait_for_waiting(2);
    }
    http_expect_metric("foldback_http_queue_depth 2\n");
    http_get("/gate", "", 503, "\r\nRetry-After: ");
    http_expect_metric("foldback_http_rejected_total{reason=\"queue-full\"} 1\n");
    http_get("/alive", "", 200, "ok"); /* needs no worker */
    close(waiting[0]);                 /* gone while its handler is at work */
    http_open_gate();
    for (int i = 1; i < 4; i++) {
        char *answer = http_hear(waiting[i]);
        ck_assert_int_eq(http_status_of(answer), 200);
        free(answer);
    }
    http_expect_metric("foldback_http_in_flight 0\n");
    http_stop();
}
END_TEST

START_TEST(connection_limits) {
    fb_http_config config = http_small_config();
    config.connection_limit = 4;
    http_start(&config);
    int open[4];
    char buffer[2000];
    for (int i = 0; i < 4; i++) {
        open[i] = http_dial();
        http_say(open[i], "GET /alive HTTP/1.1\r\nHost: a\r\n\r\n");
        ck_assert_int_gt(recv(open[i], buffer, sizeof buffer, 0), 0);
    }
    int fifth = http_dial(); /* waits in the backlog */
    http_say(fifth, "GET /alive HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    usleep(200000);
    ck_assert_int_lt(recv(fifth, buffer, sizeof buffer, MSG_DONTWAIT), 0);
    close(open[0]);
    char *answer = http_hear(fifth);
    ck_assert_int_eq(http_status_of(answer), 200);
    free(answer);
    for (int i = 1; i < 4; i++) close(open[i]);
    http_stop();

    static const unsigned limits[][2] = {{100, 2}, {4, FB_HTTP_HALF}, {3, FB_HTTP_HALF}}; /* all, of one address */
    ck_assert_uint_eq(fb_http_config_default().connection_limit_per_address, FB_HTTP_HALF);
    for (size_t which = 0; which < sizeof limits / sizeof *limits; which++) {
        config.connection_limit = limits[which][0];
        config.connection_limit_per_address = limits[which][1];
        http_start(&config);
        for (int i = 0; i < 2; i++) {
            open[i] = http_dial();
            http_say(open[i], "GET /alive HTTP/1.1\r\nHost: a\r\n\r\n");
            ck_assert_int_gt(recv(open[i], buffer, sizeof buffer, 0), 0);
        }
        answer = http_ask("GET /alive HTTP/1.1\r\nHost: a\r\n\r\n");
        ck_assert_str_eq(answer, "");
        free(answer);
        close(open[0]);
        close(open[1]);
        http_stop();
    }
}
END_TEST

static void *stopper(void *context) {
    bool *is_clean = context;
    *is_clean = fb_http_stop(http_server, 300);
    return NULL;
}

START_TEST(stopping) {
    fb_http_config config = http_small_config();
    http_start(&config);
    int waiting[3], kept = http_dial();
    for (int i = 0; i < 3; i++) { /* two at work, one queued */
        waiting[i] = http_dial();
        http_say(waiting[i], "GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
        if (i == 1) http_wait_for_waiting(2);
    }
    http_expect_metric("foldback_http_queue_depth 1\n");
    http_say(kept, "GET /alive HTTP/1.1\r\nHost: a\r\n\r\n");
    char buffer[2000];
    ck_assert_int_gt(recv(kept, buffer, sizeof buffer, 0), 0);

    pthread_t thread;
    bool is_clean = true;
    pthread_create(&thread, NULL, stopper, &is_clean);
    usleep(100000);
    http_say(kept, "GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"); /* a new request on an open connection */
    char *answer = http_hear(kept);
    ck_assert_msg(http_status_of(answer) == 503 && strstr(answer, "Connection: close") && strstr(answer, "stopping"), "%s",
                  answer);
    free(answer);
    usleep(500000); /* the time is up: what waits is refused, what runs is waited for */
    http_open_gate();
    pthread_join(thread, NULL);
    ck_assert(!is_clean);
    int refused = 0;
    for (int i = 0; i < 3; i++) {
        answer = http_hear(waiting[i]);
        refused += http_status_of(answer) == 503;
        free(answer);
    }
    ck_assert_int_eq(refused, 1);
}
END_TEST

static void *hammer(void *context) {
    char request[200], answer[4000];
    int number = (int)(intptr_t)context;
    for (int round = 0; round < 5; round++) {
        int s = http_dial();
        for (int i = 0; i < 40; i++) {
            snprintf(request, sizeof request, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n%06d",
                     number * 1000 + i);
            http_say(s, request);
            ssize_t got = recv(s, answer, sizeof answer - 1, 0);
            ck_assert_int_gt(got, 0);
            answer[got] = '\0';
            ck_assert_msg(http_status_of(answer) == 200 && !strcmp(answer + got - 6, request + strlen(request) - 6), "%s",
                          answer);
            if (i == 20 && round % 2) break; /* and go away */
        }
        close(s);
    }
    return NULL;
}

START_TEST(many_clients) {
    fb_http_config config = http_small_config();
    config.queue_limit = 1000;
    config.worker_threads = 8;
    http_start(&config);
    pthread_t threads[32];
    for (int i = 0; i < 32; i++) pthread_create(&threads[i], NULL, hammer, (void *)(intptr_t)i);
    for (int i = 0; i < 32; i++) pthread_join(threads[i], NULL);
    ck_assert_uint_eq(atomic_load(&http_app.served), 32 * (3 * 40 + 2 * 21));
    http_stop();
}
END_TEST

/* libmicrohttpd calls this epoll_wait, and sleeps for good on a full array: see server/http/epoll.c. */
START_TEST(an_array_of_events_is_never_full) {
    enum { EVENTS = 128 };
    struct epoll_event events[EVENTS];
    int epoll = epoll_create1(EPOLL_CLOEXEC), ready[EVENTS];
    for (int i = 0; i < EVENTS; i++) {
        ready[i] = eventfd(1, EFD_CLOEXEC);
        ck_assert(!epoll_ctl(epoll, EPOLL_CTL_ADD, ready[i], &(struct epoll_event){.events = EPOLLIN}));
    }
    int (*of_libraries)(int, struct epoll_event *, int, int) = NULL;
    *(void **)&of_libraries = dlsym(RTLD_DEFAULT, "epoll_wait");
    ck_assert_int_eq(of_libraries(epoll, events, EVENTS, 0), EVENTS - 1);
    for (int i = 0; i < EVENTS; i++) close(ready[i]);
    close(epoll);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("http");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, addresses);
    tcase_add_test(tests, parameters);
    tcase_add_test(tests, etags);
    tcase_add_test(tests, problems);
    tcase_add_test(tests, compressed_bodies);
    tcase_add_test(tests, body_limits);
    tcase_add_test(tests, deadlines);
    tcase_add_test(tests, slow_readers);
    tcase_add_test(tests, overload);
    tcase_add_test(tests, connection_limits);
    tcase_add_test(tests, stopping);
    tcase_add_test(tests, many_clients);
    tcase_add_test(tests, an_array_of_events_is_never_full);
    return run_tests("http", tests);
}
