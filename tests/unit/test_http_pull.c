/* Bodies of known size that workers make while they are sent, over real sockets. Byte number i is known; the source checks how
 * it is asked. */
#include "tests/unit/http_fixture.h"
#include "tests/unit/run_tests.h"

#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct counts {
    atomic_uint opened, released, reads, wrong;
    atomic_uint pause_us; /* in each read */
} counts;

/* One download; it also notices calls that overlap or are out of order. */
typedef struct source {
    atomic_flag is_busy;
    bool is_begun, waits;
    uint64_t position, size, fails_from;
} source;

static fb_status read_source(void *state, uint64_t offset, void *to, size_t size, fb_error *error) {
    source *one = state;
    counts.reads++;
    if (atomic_flag_test_and_set(&one->is_busy)) counts.wrong++;
    if ((one->is_begun && offset != one->position) || !size || offset + size > one->size) counts.wrong++;
    one->is_begun = true;
    one->position = offset + size;
    if (counts.pause_us) usleep(counts.pause_us);
    if (one->waits) http_wait_at_gate();
    for (size_t i = 0; i < size; i++) ((char *)to)[i] = http_byte_at(offset + i);
    bool is_failed = one->position > one->fails_from;
    atomic_flag_clear(&one->is_busy);
    return is_failed ? fb_fail(error, FB_IO, "bad-disk", NULL, "the disk is broken") : FB_OK;
}

static void release_source(void *state) {
    source *one = state;
    if (atomic_flag_test_and_set(&one->is_busy)) counts.wrong++;
    free(one);
    counts.released++;
}

static void get_body(const fb_request *request, fb_response *response) {
    static const fb_pull_source pulled = {.read = read_source, .release = release_source};
    int64_t size, fails_from;
    bool has_tag, is_late, waits, instead;
    if (!fb_request_query_int(request, response, "size", 0, INT64_MAX, 100, &size) ||
        !fb_request_query_int(request, response, "fails_from", 0, INT64_MAX, INT64_MAX, &fails_from) ||
        !fb_request_query_bool(request, response, "tag", true, &has_tag) ||
        !fb_request_query_bool(request, response, "late", false, &is_late) ||
        !fb_request_query_bool(request, response, "waits", false, &waits) ||
        !fb_request_query_bool(request, response, "instead", false, &instead))
        return;
    source *one = calloc(1, sizeof *one);
    one->size = (uint64_t)size;
    one->fails_from = (uint64_t)fails_from;
    one->waits = waits;
    counts.opened++;
    if (has_tag && !is_late) fb_response_etag(response, "tag");
    fb_respond_pulled(request, response, "application/octet-stream", (uint64_t)size, &pulled, one);
    if (has_tag && is_late) fb_response_etag(response, "tag");
    if (instead) fb_respond_problem(response, 409, "instead", "something else was said");
}

static const fb_route routes[] = {
    {.method = "GET", .pattern = "/body", .handler = get_body, .produces = "application/octet-stream"},
    {.method = "GET", .pattern = "/word", .handler = http_get_word, .produces = "text/plain"},
};

static void start(const fb_http_config *config) {
    memset(&counts, 0, sizeof counts);
    http_start_routes(config, routes, sizeof routes / sizeof *routes);
}

static void check_counts(void) {
    ck_assert_uint_eq(counts.opened, counts.released);
    ck_assert_uint_eq(counts.wrong, 0);
}

static void stop(void) {
    http_expect_metric("foldback_http_in_flight 0\n");
    http_stop();
    check_counts();
}

static void say(int s, const char *target, const char *headers) {
    char request[600];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n", target, headers);
    http_say(s, request);
}

/* Reads up to the end of the headers, which the caller frees. */
static char *hear_head(int s) {
    fb_buffer head = {0};
    char byte;
    while (!strstr(fb_buffer_text(&head), "\r\n\r\n") && recv(s, &byte, 1, 0) == 1) fb_buffer_char(&head, byte);
    return head.data;
}

/* The bytes from … to of the body, in the order they come; false when they end before. */
static bool hear_bytes(int s, uint64_t from, uint64_t to) {
    static _Thread_local char bytes[1 << 18];
    while (from < to) {
        ssize_t got = recv(s, bytes, to - from < sizeof bytes ? (size_t)(to - from) : sizeof bytes, 0);
        if (got <= 0) return false;
        bool is_right = true;
        for (ssize_t i = 0; i < got; i++) is_right &= bytes[i] == http_byte_at(from++);
        ck_assert(is_right);
    }
    return true;
}

/* On a connection that stays open. `content_range` NULL: there is none. */
static void expect_body(int s, int status, uint64_t from, uint64_t to, const char *content_range) {
    char *head = hear_head(s), length[60];
    snprintf(length, sizeof length, "\r\nContent-Length: %llu\r\n", (unsigned long long)(to - from));
    ck_assert_msg(http_status_of(head) == status && strstr(head, length) && strstr(head, "\r\nAccept-Ranges: bytes\r\n"), "%s",
                  head);
    const char *range = strstr(head, "Content-Range: ");
    ck_assert_msg(content_range ? range && strstr(range, content_range) == range + 15 : !range, "%s", head);
    ck_assert(!strstr(head, "Content-Encoding") && !strstr(head, "Transfer-Encoding") && !strstr(head, "Vary"));
    free(head);
    ck_assert(hear_bytes(s, from, to));
}

/* ---- what is sent ------------------------------------------------------------------------------------------------------- */

START_TEST(whole_bodies) {
    fb_http_config config = http_small_config();
    start(&config);
    static const size_t sizes[] = {0,        1,    5,        1000,     16384,        262143,       262144,       262145,
                                   PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1, 3 * PART - 1, 20 * PART + 3};
    int s = http_dial(); /* one connection for all */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char target[60];
        snprintf(target, sizeof target, "/body?size=%zu", sizes[i]);
        say(s, target, "Accept-Encoding: gzip, zstd\r\n");
        expect_body(s, 200, 0, sizes[i], NULL);
    }
    close(s);
    s = http_dial();
    http_say(s, "GET /body?size=3000000 HTTP/1.0\r\nHost: a\r\n\r\n");
    expect_body(s, 200, 0, 3000000, NULL);
    char byte;
    ck_assert_int_eq(recv(s, &byte, 1, 0), 0);
    close(s);
    http_get("/body?instead", "", 409, "something else");
    http_expect_metric("foldback_http_streams 0\n");
    stop();
}
END_TEST

START_TEST(without_a_body) {
    fb_http_config config = http_small_config();
    start(&config);
    char *answer = http_ask("HEAD /body?size=12345678901 HTTP/1.1\r\nHost: a\r\nRange: bytes=5-9\r\nConnection: close\r\n\r\n");
    ck_assert_msg(http_status_of(answer) == 200 && strstr(answer, "\r\nContent-Length: 12345678901\r\n") &&
                      strstr(answer, "\r\nAccept-Ranges: bytes\r\n") && strstr(answer, "\r\nETag: \"tag\"\r\n") &&
                      !strcmp(strstr(answer, "\r\n\r\n"), "\r\n\r\n"),
                  "%s", answer);
    free(answer);
    static const char *const headers[] = {"If-None-Match: \"tag\"\r\n",
                                          "If-None-Match: \"tag\"\r\nRange: bytes=0-0\r\nIf-Range: \"tag\"\r\n"};
    for (int i = 0; i < 4; i++) {
        int s = http_dial();
        say(s, i % 2 ? "/body?late" : "/body", headers[i / 2]);
        char *head = hear_head(s);
        ck_assert_msg(http_status_of(head) == 304 && strstr(head, "\r\nETag: \"tag\"\r\n"), "%s", head);
        free(head);
        say(s, "/word", "Connection: close\r\n"); /* nothing came in between */
        answer = http_hear(s);
        ck_assert_int_eq(http_status_of(answer), 200);
        free(answer);
    }
    ck_assert_uint_eq(counts.reads, 0);
    stop();
}
END_TEST

START_TEST(ranges) {
    fb_http_config config = http_small_config();
    start(&config);
    static const struct {
        const char *target, *headers;
        int status;
        uint64_t from, to;
        const char *content_range;
    } cases[] = {
        {"/body", "Range: bytes=0-0\r\n", 206, 0, 1, "bytes 0-0/100\r\n"},
        {"/body", "Range: BYTES=10-19\r\n", 206, 10, 20, "bytes 10-19/100\r\n"},
        {"/body", "Range: bytes=90-\r\n", 206, 90, 100, "bytes 90-99/100\r\n"},
        {"/body", "Range: bytes=90-100\r\n", 206, 90, 100, "bytes 90-99/100\r\n"},
        {"/body", "Range: bytes=99-99999999999999999999999\r\n", 206, 99, 100, "bytes 99-99/100\r\n"},
        {"/body", "Range: bytes=0-\r\n", 206, 0, 100, "bytes 0-99/100\r\n"},
        {"/body", "Range: bytes=-1\r\n", 206, 99, 100, "bytes 99-99/100\r\n"},
        {"/body", "Range: bytes=-100\r\n", 206, 0, 100, "bytes 0-99/100\r\n"},
        {"/body", "Range: bytes=-1000\r\n", 206, 0, 100, "bytes 0-99/100\r\n"},
        {"/body?size=5000000", "Range: bytes=1000001-4200002\r\n", 206, 1000001, 4200003, "bytes 1000001-4200002/5000000\r\n"},
        {"/body?size=9223372036854775807", "Range: bytes=9223372036854775800-\r\n", 206, 9223372036854775800,
         9223372036854775807, "bytes 9223372036854775800-9223372036854775806/9223372036854775807\r\n"},
        /* well-formed, but not within */
        {"/body", "Range: bytes=100-\r\n", 416, 0, 0, "bytes */100\r\n"},
        {"/body", "Range: bytes=100-200\r\n", 416, 0, 0, "bytes */100\r\n"},
        {"/body", "Range: bytes=99999999999999999999999-\r\n", 416, 0, 0, "bytes */100\r\n"},
        {"/body", "Range: bytes=-0\r\n", 416, 0, 0, "bytes */100\r\n"},
        {"/body?size=0", "Range: bytes=0-\r\n", 416, 0, 0, "bytes */0\r\n"},
        {"/body?size=0", "Range: bytes=-0\r\n", 416, 0, 0, "bytes */0\r\n"},
        {"/body?size=0", "Range: bytes=-5\r\n", 200, 0, 0, NULL},
        /* not well-formed, or several */
        {"/body", "Range: bytes=\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=-\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=5\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=9-5\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=5-9x\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=+5-9\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes 5-9\r\n", 200, 0, 100, NULL},
        {"/body", "Range: lines=5-9\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=1-2,5-9\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=1-2\r\nRange: bytes=5-9\r\n", 200, 0, 100, NULL},
        /* If-Range */
        {"/body", "Range: bytes=5-9\r\nIf-Range: \"tag\"\r\n", 206, 5, 10, "bytes 5-9/100\r\n"},
        {"/body?late", "Range: bytes=5-9\r\nIf-Range: \"tag\"\r\n", 206, 5, 10, "bytes 5-9/100\r\n"},
        {"/body", "Range: bytes=500-\r\nIf-Range: \"other\"\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=5-9\r\nIf-Range: W/\"tag\"\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=5-9\r\nIf-Range: tag\r\n", 200, 0, 100, NULL},
        {"/body", "Range: bytes=5-9\r\nIf-Range: Sat, 29 Oct 1994 19:43:31 GMT\r\n", 200, 0, 100, NULL},
        {"/body?tag=0", "Range: bytes=5-9\r\nIf-Range: \"\"\r\n", 200, 0, 100, NULL},
        {"/body?tag=0", "Range: bytes=5-9\r\n", 206, 5, 10, "bytes 5-9/100\r\n"},
        {"/body", "Range: bytes=5-9\r\nIf-None-Match: \"other\"\r\n", 206, 5, 10, "bytes 5-9/100\r\n"},
    };
    int s = http_dial();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].status == 416) {
            char expected[60];
            snprintf(expected, sizeof expected, "\r\nContent-Range: %s", cases[i].content_range);
            http_get(cases[i].target, cases[i].headers, 416, expected);
            http_get(cases[i].target, cases[i].headers, 416, "\"code\":\"range-not-satisfiable\"");
            continue;
        }
        say(s, cases[i].target, cases[i].headers);
        expect_body(s, cases[i].status, cases[i].from, cases[i].to, cases[i].content_range);
    }
    close(s);
    http_get("/body?size=5", "Range: bytes=1-2\r\n", 206, "\r\nETag: \"tag\"\r\n");
    stop();
}
END_TEST

/* ---- when it goes wrong ------------------------------------------------------------------------------------------------- */

START_TEST(failures) {
    fb_http_config config = http_small_config();
    char *log = NULL;
    size_t log_size;
    config.access_log = open_memstream(&log, &log_size);
    start(&config);
    static const size_t points[] = {0, PART, 3 * PART, 10 * PART - 1};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        char target[80];
        snprintf(target, sizeof target, "/body?size=%zu&fails_from=%zu", 10 * PART, points[i]);
        int s = http_dial();
        say(s, target, "");
        free(hear_head(s));
        size_t whole = points[i] / PART * PART; /* the parts before the one that fails */
        ck_assert(hear_bytes(s, 0, whole));
        char byte;
        ck_assert_int_le(recv(s, &byte, 1, 0), 0);
        close(s);
    }
    stop();
    fclose(config.access_log);
    const char *line = log;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        char sent[60];
        snprintf(sent, sizeof sent, "\"bytes_out\":%zu,", points[i] / PART * PART);
        line = strstr(line, sent);
        ck_assert_msg(line && strstr(line, "\"error\":\"the disk is broken\""), "%s", log);
    }
    free(log);
}
END_TEST

static void download(unsigned seed) {
    for (int round = 0; round < 4; round++) {
        int s = http_dial();
        for (int i = 0; i < 3; i++) {
            size_t size = (size_t)rand_r(&seed) % (8 * PART), from = (size_t)rand_r(&seed) % (size + 1);
            bool leaves = rand_r(&seed) % 3 == 0, is_part = from < size && rand_r(&seed) % 2;
            char target[60], range[60] = "", content_range[80];
            snprintf(target, sizeof target, "/body?size=%zu", size);
            if (is_part) snprintf(range, sizeof range, "Range: bytes=%zu-\r\n", from);
            snprintf(content_range, sizeof content_range, "bytes %zu-%zu/%zu\r\n", from, size - 1, size);
            say(s, target, range);
            if (leaves) {
                free(hear_head(s));
                hear_bytes(s, is_part ? from : 0, (is_part ? from : 0) + (size - from) / 2);
                break;
            }
            expect_body(s, is_part ? 206 : 200, is_part ? from : 0, size, is_part ? content_range : NULL);
        }
        close(s);
    }
}

START_TEST(many_at_once) {
    fb_http_config config = http_small_config();
    config.queue_limit = 64;
    start(&config);
    counts.pause_us = 500;
    http_many_at_once(download);
    ck_assert_uint_gt(counts.opened, 96);
    stop();
}
END_TEST

START_TEST(slow_clients) {
    fb_http_config config = http_small_config(); /* two workers, room for two more requests */
    start(&config);
    int open[20], small = 1 << 18;
    for (int i = 0; i < 20; i++) {
        open[i] = http_dial();
        setsockopt(open[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        say(open[i], "/body?size=10000000", "");
        free(hear_head(open[i]));
    }
    unsigned before;
    do { /* until all have come to a halt */
        before = counts.reads;
        usleep(200000);
    } while (before != counts.reads);
    ck_assert_uint_lt(before, 20 * 20);
    for (int i = 0; i < 5; i++) http_get("/word", "", 200, "word"); /* none of them holds a worker */
    for (int i = 0; i < 20; i++) {
        ck_assert(i % 2 || hear_bytes(open[i], 0, 10000000));
        close(open[i]);
    }
    stop();
}
END_TEST

START_TEST(deadlines) {
    fb_http_config config = http_small_config();
    config.body_timeout_ms = 400;
    config.minimum_rate = 200 << 10;
    start(&config);
    int s = http_dial(), small = 1 << 18; /* fast at first: that does not give it time to be slow later */
    setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    say(s, "/body?size=300000000", "");
    free(hear_head(s));
    for (uint64_t at = 0; at < 20000000; at += 50000, usleep(1000)) ck_assert(hear_bytes(s, at, at + 50000));
    http_expect_metric("foldback_http_rejected_total{reason=\"deadline\"} 1\n"); /* within 5 s, not 100 */
    ck_assert(!hear_bytes(s, 20000000, 300000000));
    close(s);

    s = http_dial(); /* a slow source is not the client's fault */
    say(s, "/body?size=3000000&waits", "");
    http_wait_for_waiting(1);
    usleep(1000000);
    http_open_gate();
    expect_body(s, 200, 0, 3000000, NULL);
    close(s);
    stop();
}
END_TEST

START_TEST(client_leaves_while_it_is_read) {
    fb_http_config config = http_small_config();
    start(&config);
    int s = http_dial();
    say(s, "/body?size=3000000&waits", "");
    http_wait_for_waiting(1);
    close(s);
    http_expect_metric("foldback_http_in_flight 0\n"); /* noticed, although the connection is suspended */
    ck_assert_uint_eq(counts.released, 0);
    http_open_gate();
    for (int i = 0; i < 500 && !counts.released; i++) usleep(10000);
    ck_assert_uint_eq(counts.released, 1);
    stop();
}
END_TEST

/* The time to stop is up while one body is read and another one is sent to a client that does not read; or there is time
 * enough. */
START_TEST(stopping) {
    fb_http_config config = http_small_config();
    for (int is_patient = 0; is_patient < 2; is_patient++) {
        start(&config);
        int held = http_dial(), slow = http_dial(), small = 1 << 18;
        setsockopt(slow, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        say(slow, "/body?size=30000000", "");
        free(hear_head(slow));
        say(held, "/body?size=3000000&waits", "");
        http_wait_for_waiting(1);
        bool is_clean = is_patient;
        pthread_t thread = http_stop_beside(&is_clean);
        if (is_patient) {
            ck_assert(hear_bytes(slow, 0, 30000000));
            expect_body(held, 200, 0, 3000000, NULL);
        }
        pthread_join(thread, NULL);
        ck_assert(is_clean == is_patient);
        check_counts();
        ck_assert_uint_eq(counts.released, 2);
        if (!is_patient) ck_assert(!hear_bytes(slow, 0, 30000000));
        close(held);
        close(slow);
    }
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("http-pull");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, whole_bodies);
    tcase_add_test(tests, without_a_body);
    tcase_add_test(tests, ranges);
    tcase_add_test(tests, failures);
    tcase_add_test(tests, many_at_once);
    tcase_add_test(tests, slow_clients);
    tcase_add_test(tests, deadlines);
    tcase_add_test(tests, client_leaves_while_it_is_read);
    tcase_add_test(tests, stopping);
    return run_tests("http-pull", tests);
}
