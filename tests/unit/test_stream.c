/* Answers that are made while they are sent, over real sockets. The source is a text whose byte number i is known, of which
 * more and more is there. */
#include "tests/unit/http_fixture.h"
#include "tests/unit/run_tests.h"

#include "tests/unit/checks.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct reader {
    struct reader *next;
    fb_stream *stream;
    size_t position;
} reader;

static struct feed {
    pthread_mutex_t lock;
    size_t size;
    bool is_over;
    size_t late; /* bytes that come, one by one, just after a reader was told that there are none */
    reader *first;
    unsigned released;
} feed;

static char byte_at(size_t position) {
    return (char)('a' + position % 23);
}

static size_t read_feed(void *state, fb_stream *stream, char *to, size_t size) {
    reader *one = state;
    size_t given = 0;
    pthread_mutex_lock(&feed.lock);
    one->stream = stream;
    while (given < size && one->position < feed.size) to[given++] = byte_at(one->position++);
    bool is_over = feed.is_over, is_late = !given && feed.late;
    if (is_late) feed.late--, feed.size++;
    pthread_mutex_unlock(&feed.lock);
    if (is_late) fb_stream_wake(stream);
    return given || !is_over ? given : FB_STREAM_END;
}

static void release_reader(void *state) {
    reader *one = state;
    pthread_mutex_lock(&feed.lock);
    reader **place = &feed.first;
    while (*place != one) place = &(*place)->next;
    *place = one->next;
    feed.released++;
    pthread_mutex_unlock(&feed.lock);
    free(one);
}

static const fb_stream_source source = {.read = read_feed, .release = release_reader};

static void get_feed(const fb_request *request, fb_response *response) {
    reader *one = calloc(1, sizeof *one);
    pthread_mutex_lock(&feed.lock);
    one->next = feed.first;
    feed.first = one;
    pthread_mutex_unlock(&feed.lock);
    fb_respond_stream(request, response, "text/event-stream", &source, one);
    if (fb_request_query(request, "instead")) fb_respond_problem(response, 409, "instead", "something else was said");
}

static void get_word(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_copy(response, 200, "text/plain", "word", 4);
}

static const fb_route routes[] = {
    {.method = "GET", .pattern = "/feed", .handler = get_feed, .produces = "text/event-stream"},
    {.method = "GET", .pattern = "/word", .handler = get_word, .produces = "text/plain"},
};

static fb_http_config stream_config(void) {
    fb_http_config config = http_small_config(); /* two workers */
    config.queue_limit = 1000;
    return config;
}

static void start(const fb_http_config *config) {
    memset(&feed, 0, sizeof feed);
    pthread_mutex_init(&feed.lock, NULL);
    http_start_routes(config, routes, sizeof routes / sizeof *routes);
}

static void feed_more(size_t size, bool is_over) {
    pthread_mutex_lock(&feed.lock);
    feed.size += size;
    feed.is_over |= is_over;
    for (reader *one = feed.first; one; one = one->next)
        if (one->stream) fb_stream_wake(one->stream);
    pthread_mutex_unlock(&feed.lock);
}

static int open_feed(void) {
    int s = http_dial();
    http_say(s, "GET /feed HTTP/1.0\r\nHost: a\r\n\r\n"); /* 1.0: the bytes come without chunks around them */
    return s;
}

/* Reads up to the end of the headers, which the caller frees. The status is 200. */
static char *hear_head(int s) {
    fb_buffer head = {0};
    char byte;
    while (!strstr(fb_buffer_text(&head), "\r\n\r\n") && recv(s, &byte, 1, 0) == 1) fb_buffer_char(&head, byte);
    ck_assert_msg(http_status_of(head.data) == 200, "%s", head.data);
    return head.data;
}

static void expect_bytes(int s, size_t from, size_t to) {
    char bytes[65536];
    while (from < to) {
        ssize_t got = recv(s, bytes, to - from < sizeof bytes ? to - from : sizeof bytes, 0);
        ck_assert_msg(got > 0, "the stream stopped at %zu of %zu", from, to);
        bool is_right = true;
        for (ssize_t i = 0; i < got; i++) is_right &= bytes[i] == byte_at(from++);
        ck_assert(is_right);
    }
}

static void expect_end(int s) {
    char byte;
    ck_assert_int_eq(recv(s, &byte, 1, 0), 0);
    close(s);
}

START_TEST(pieces) {
    fb_http_config config = stream_config();
    char *log = NULL;
    size_t log_size;
    config.access_log = open_memstream(&log, &log_size);
    start(&config);
    int s = http_dial();
    http_say(s, "GET /feed HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, zstd\r\n\r\n");
    char *head = hear_head(s);
    static const char *const lines[] = {"HTTP/1.1 200 ", "\r\nContent-Type: text/event-stream\r\n",
                                        "\r\nTransfer-Encoding: chunked\r\n", "\r\nCache-Control: no-store\r\n",
                                        "\r\nConnection: close\r\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) ck_assert_msg(strstr(head, lines[i]) != NULL, "%s", head);
    ck_assert(!strstr(head, "Content-Encoding") && !strstr(head, "Content-Length") && !strstr(head, "Vary"));
    free(head);
    char bytes[100];
    feed_more(3, false);
    ck_assert_int_eq(recv(s, bytes, 8, MSG_WAITALL), 8);
    ck_assert_int_eq(memcmp(bytes, "3\r\nabc\r\n", 8), 0);
    feed_more(2, false);
    ck_assert_int_eq(recv(s, bytes, 7, MSG_WAITALL), 7);
    ck_assert_int_eq(memcmp(bytes, "2\r\nde\r\n", 7), 0);
    http_expect_metric("foldback_http_streams 1\n");
    feed_more(0, true);
    char *rest = http_hear(s);
    ck_assert_str_eq(rest, "0\r\n\r\n");
    free(rest);
    http_expect_metric("foldback_http_streams 0\n");
    http_expect_metric("foldback_http_requests_total{route=\"/feed\",method=\"GET\",status=\"200\"} 1\n");

    http_get("/feed", "Accept: application/json\r\n", 406, "not-acceptable");
    http_get("/feed?instead", "", 409, "something else");
    char *answer = http_ask("HEAD /feed HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    ck_assert_msg(strstr(answer, "Content-Type: text/event-stream\r\n") && !strcmp(strstr(answer, "\r\n\r\n"), "\r\n\r\n"),
                  "%s", answer);
    free(answer);
    http_stop();
    ck_assert_uint_eq(feed.released, 3);
    fclose(config.access_log);
    ck_assert_msg(strstr(log, "\"method\":\"GET\",\"path\":\"/feed\",\"route\":\"/feed\",\"status\":200,\"bytes_in\":0,"
                              "\"bytes_out\":5,") != NULL,
                  "%s", log);
    free(log);
}
END_TEST

START_TEST(without_chunks) {
    fb_http_config config = stream_config();
    start(&config);
    int s = open_feed();
    char *head = hear_head(s);
    ck_assert(!strstr(head, "Transfer-Encoding"));
    free(head);
    for (size_t size = 0, more = 1; more < 1000000; size += more, more *= 3) {
        feed_more(more, false);
        expect_bytes(s, size, size + more);
    }
    feed_more(0, true);
    expect_end(s);
    http_stop();
}
END_TEST

START_TEST(a_wake_in_between) {
    fb_http_config config = stream_config();
    start(&config);
    feed.late = 1000;
    int s = open_feed();
    free(hear_head(s));
    expect_bytes(s, 0, 1000);
    feed_more(0, true);
    expect_end(s);
    http_stop();
}
END_TEST

START_TEST(no_worker_is_held) {
    fb_http_config config = stream_config();
    start(&config);
    int open[20];
    for (int i = 0; i < 20; i++) free((open[i] = open_feed(), hear_head(open[i])));
    http_expect_metric("foldback_http_streams 20\n");
    http_get("/word", "", 200, "word");
    feed_more(1000, true);
    for (int i = 0; i < 20; i++) {
        expect_bytes(open[i], 0, 1000);
        expect_end(open[i]);
    }
    http_stop();
}
END_TEST

START_TEST(limit) {
    fb_http_config config = stream_config();
    for (int is_half = 0; is_half < 2; is_half++) {
        config.stream_limit = is_half ? 100 : 3;
        config.connection_limit = is_half ? 7 : 100;
        start(&config);
        int open[3];
        for (int i = 0; i < 3; i++) free((open[i] = open_feed(), hear_head(open[i])));
        http_get("/feed", "", 503, "\r\nRetry-After: ");
        http_get("/feed", "", 503, "too-many-streams");
        http_expect_metric("foldback_http_rejected_total{reason=\"streams\"} 2\n");
        ck_assert_uint_eq(feed.released, 2);
        http_get("/word", "", 200, "word");
        close(open[0]); /* nothing is sent to it: its leaving must be seen by itself */
        http_expect_metric("foldback_http_streams 2\n");
        free((open[0] = open_feed(), hear_head(open[0])));
        feed_more(10, true);
        for (int i = 0; i < 3; i++) {
            expect_bytes(open[i], 0, 10);
            expect_end(open[i]);
        }
        http_stop();
    }
}
END_TEST

START_TEST(patience) {
    fb_http_config config = stream_config();
    config.header_timeout_ms = config.idle_timeout_ms = config.body_timeout_ms = 300;
    config.minimum_rate = 64 << 20;
    start(&config);
    int reads = open_feed(), stops = http_dial(), small = 4096;
    setsockopt(stops, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    http_say(stops, "GET /feed HTTP/1.0\r\nHost: a\r\n\r\n");
    free(hear_head(reads));
    free(hear_head(stops));
    usleep(1000000); /* longer than any deadline: a stream without news lives */
    http_expect_metric("foldback_http_streams 2\n");
    size_t size = 0;
    for (int i = 0; i < 100; i++, size += 50000) {
        feed_more(50000, false);
        expect_bytes(reads, size, size + 50000);
    }
    http_expect_metric("foldback_http_streams 1\n"); /* who does not read is dropped, and only he */
    feed_more(1, true);
    expect_bytes(reads, size, size + 1);
    expect_end(reads);
    close(stops);
    http_stop();
}
END_TEST

START_TEST(stopping) {
    fb_http_config config = stream_config();
    start(&config);
    int idle = http_dial(), stuck = open_feed(), idle_1_0 = open_feed();
    http_say(idle, "GET /feed HTTP/1.1\r\nHost: a\r\n\r\n");
    free(hear_head(idle));
    free(hear_head(idle_1_0));
    free(hear_head(stuck));
    for (size_t size = 0; size < (size_t)20 << 20; size += 50000) { /* more than the kernel takes for it */
        feed_more(50000, false);
        expect_bytes(idle_1_0, size, size + 50000);
        char bytes[60000];
        struct pollfd wait = {.fd = idle, .events = POLLIN};
        while (poll(&wait, 1, 0) == 1 && recv(idle, bytes, sizeof bytes, 0) > 0) continue;
    }
    http_stop(); /* its deadline for answers is 30 s: nothing may wait for that */
    expect_end(idle_1_0);
    char *rest = http_hear(idle);
    size_t size = strlen(rest);
    ck_assert(size >= 5 && !strcmp(rest + size - 5, "0\r\n\r\n"));
    free(rest);
    close(stuck);
    ck_assert_uint_eq(feed.released, 3);
}
END_TEST

static atomic_bool is_storm_over;

static void *listen_for_storm(void *context) {
    bool leaves = context != NULL;
    while (!atomic_load(&is_storm_over)) {
        int s = open_feed();
        free(hear_head(s));
        if (leaves) {
            expect_bytes(s, 0, 10);
            close(s);
            continue;
        }
        expect_bytes(s, 0, 10 + 4 * 3000);
        expect_end(s);
        break;
    }
    return NULL;
}

static void *cause_storm(void *context) {
    (void)context;
    for (int i = 0; i < 3000; i++) feed_more(1, false);
    return NULL;
}

START_TEST(storm) {
    fb_http_config config = stream_config();
    start(&config);
    pthread_t listeners[12], causes[4];
    feed_more(10, false);
    atomic_store(&is_storm_over, false);
    for (int i = 0; i < 12; i++) pthread_create(&listeners[i], NULL, listen_for_storm, i < 8 ? NULL : &is_storm_over);
    http_await_metric("foldback_http_streams 0\n", false);
    for (int i = 0; i < 4; i++) pthread_create(&causes[i], NULL, cause_storm, NULL);
    for (int i = 0; i < 4; i++) pthread_join(causes[i], NULL);
    atomic_store(&is_storm_over, true);
    feed_more(0, true);
    for (int i = 0; i < 12; i++) pthread_join(listeners[i], NULL);
    http_expect_metric("foldback_http_streams 0\n");
    http_stop();
    ck_assert_ptr_null(feed.first);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("stream");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, pieces);
    tcase_add_test(tests, without_chunks);
    tcase_add_test(tests, a_wake_in_between);
    tcase_add_test(tests, no_worker_is_held);
    tcase_add_test(tests, limit);
    tcase_add_test(tests, patience);
    tcase_add_test(tests, stopping);
    tcase_add_test(tests, storm);
    return run_tests("stream", tests);
}
