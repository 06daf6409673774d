#include "tests/unit/http_fixture.h"

#include "tests/unit/checks.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------- the server */

http_application http_app;
fb_http_server *http_server;
static int http_port;

static void echo(const fb_request *request, fb_response *response) {
    ck_assert_int_eq(request->body[request->body_size], '\0');
    atomic_fetch_add(&http_app.served, 1);
    fb_respond_copy(response, 200, "application/octet-stream", request->body, request->body_size);
    fb_response_identity(response);
}

static void gate(const fb_request *request, fb_response *response) {
    (void)request;
    http_wait_at_gate();
    fb_respond_json_take(response, 200, json_pack("{s:b}", "open", 1));
}

void http_get_word(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_copy(response, 200, "text/plain", "word", 4);
}

static void alive(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_json_take(response, 200, json_pack("{s:s}", "status", "ok"));
}

static void item(const fb_request *request, fb_response *response) {
    int64_t limit;
    bool deep;
    if (!fb_request_query_int(request, response, "limit", 1, 100, 20, &limit)) return;
    if (!fb_request_query_bool(request, response, "deep", false, &deep)) return;
    json_t *values = json_array();
    size_t cursor = 0;
    for (const char *value; (value = fb_request_query_next(request, "v", &cursor));)
        json_array_append_new(values, json_string(value));
    fb_response_etag(response, "tag");
    fb_respond_json_take(response, 200,
                         json_pack("{s:s, s:I, s:b, s:o}", "id", fb_request_param(request, "id"), "limit", (json_int_t)limit,
                                   "deep", (int)deep, "v", values));
}

static void newest(const fb_request *request, fb_response *response) {
    (void)request;
    fb_respond_json_take(response, 200, json_pack("{s:s}", "id", "literal"));
}

static void fails(const fb_request *request, fb_response *response) {
    fb_error error = {0};
    fb_fail(&error, (fb_status)atoi(fb_request_param(request, "status")), "some-code", "/nodes/1", "it is \"bad\" \xc3");
    snprintf(error.node, sizeof error.node, "relu");
    fb_respond_error_at(response, "/graph", &error);
    fb_problem_member_take(response, "extra", json_integer(7));
}

static void many(const fb_request *request, fb_response *response) {
    (void)request;
    fb_errors errors = {.limit = 2};
    for (int i = 0; i < 5; i++) fb_errors_add(&errors, "bad-thing", "/x", "number %d", i);
    fb_respond_errors(response, "", &errors);
    fb_errors_free(&errors);
}

static void silent(const fb_request *request, fb_response *response) {
    (void)request, (void)response;
}

static void large(const fb_request *request, fb_response *response) {
    (void)request;
    size_t size = (size_t)32 << 20;
    char *bytes = malloc(size);
    memset(bytes, 'x', size);
    fb_respond_bytes(response, 200, "application/octet-stream", bytes, size, free, bytes);
}

static const fb_route demonstration[] = {
    {.method = "GET", .pattern = "/alive", .handler = alive, .is_inline = true},
    {.method = "POST", .pattern = "/echo", .handler = echo, .body = FB_BODY_REQUIRED, .produces = "application/octet-stream"},
    {.method = "PUT",
     .pattern = "/raw",
     .handler = echo,
     .body = FB_BODY_OPTIONAL,
     .consumes = "*",
     .produces = "*/*",
     .body_limit = 10},
    {.method = "GET", .pattern = "/gate", .handler = gate},
    {.method = "GET", .pattern = "/items/{id}", .handler = item, .query = "limit, deep, v"},
    {.method = "GET", .pattern = "/items/newest", .handler = newest},
    {.method = "GET", .pattern = "/fails/{status}", .handler = fails},
    {.method = "GET", .pattern = "/many", .handler = many},
    {.method = "GET", .pattern = "/silent", .handler = silent},
    {.method = "GET", .pattern = "/large", .handler = large, .produces = "application/octet-stream"},
};

fb_http_config http_small_config(void) {
    fb_http_config config = fb_http_config_default();
    config.listen = "127.0.0.1:0";
    config.access_log = NULL;
    config.worker_threads = 2;
    config.queue_limit = 2;
    config.connection_limit_per_address = 0; /* all are of this one */
    config.body_limit = 1 << 20;
    return config;
}

void http_start(const fb_http_config *config) {
    http_start_routes(config, demonstration, sizeof demonstration / sizeof *demonstration);
}

void http_start_routes(const fb_http_config *config, const fb_route *routes, size_t count) {
    fb_error error = {0};
    memset(&http_app, 0, sizeof http_app);
    pthread_mutex_init(&http_app.lock, NULL);
    pthread_cond_init(&http_app.changed, NULL);
    fb_status status = fb_http_start(config, routes, count, &http_app, &http_server, &error);
    ck_assert_msg(!status, "%s", error.message);
    http_port = atoi(strrchr(fb_http_url(http_server), ':') + 1);
}

void http_wait_at_gate(void) {
    pthread_mutex_lock(&http_app.lock);
    http_app.waiting++;
    pthread_cond_broadcast(&http_app.changed);
    while (!http_app.is_open) pthread_cond_wait(&http_app.changed, &http_app.lock);
    http_app.waiting--;
    pthread_mutex_unlock(&http_app.lock);
}

void http_open_gate(void) {
    pthread_mutex_lock(&http_app.lock);
    http_app.is_open = true;
    pthread_cond_broadcast(&http_app.changed);
    pthread_mutex_unlock(&http_app.lock);
}

void http_wait_for_waiting(unsigned count) {
    pthread_mutex_lock(&http_app.lock);
    while (http_app.waiting < count) pthread_cond_wait(&http_app.changed, &http_app.lock);
    pthread_mutex_unlock(&http_app.lock);
}

void http_stop(void) {
    ck_assert(fb_http_stop(http_server, 10000));
}

static void *stop_soon(void *context) {
    bool *is_clean = context;
    *is_clean = fb_http_stop(http_server, *is_clean ? 20000 : 300);
    return NULL;
}

pthread_t http_stop_beside(bool *is_clean) {
    bool is_patient = *is_clean;
    pthread_t thread;
    pthread_create(&thread, NULL, stop_soon, is_clean);
    usleep(is_patient ? 100000 : 600000);
    http_open_gate();
    return thread;
}

char http_byte_at(uint64_t position) {
    return (char)(position * 2654435761u >> 13);
}

/* ------------------------------------------------------------------------------------------------------- the client */

int http_dial(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)http_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval timeout = {.tv_sec = 30};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ck_assert_int_eq(connect(s, (struct sockaddr *)&address, sizeof address), 0);
    return s;
}

/* false: the server does not take any more */
bool http_give(int s, const void *bytes, size_t size) {
    for (const char *p = bytes; size;) {
        ssize_t sent = send(s, p, size, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        p += sent;
        size -= (size_t)sent;
    }
    return true;
}

void http_say(int s, const char *text) {
    http_give(s, text, strlen(text));
}

/* All until the server closes; the caller frees. */
char *http_hear(int s) {
    fb_buffer all = {0};
    for (;;) {
        char *to = fb_buffer_reserve(&all, 65536);
        ssize_t got = recv(s, to, 65536, 0);
        if (got <= 0) break;
        all.size += (size_t)got;
    }
    close(s);
    fb_buffer_text(&all);
    return all.data;
}

char *http_ask(const char *request) {
    int s = http_dial();
    http_say(s, request);
    return http_hear(s);
}

void http_say_head(int s, const char *method_and_path, const char *headers) {
    char head[500];
    snprintf(head, sizeof head, "%s HTTP/1.1\r\nHost: a\r\n%s\r\n", method_and_path, headers);
    http_say(s, head);
}

void http_say_sized_head(int s, const char *method_and_path, size_t size, const char *headers) {
    char lines[300];
    snprintf(lines, sizeof lines, "Content-Length: %zu\r\n%s", size, headers);
    http_say_head(s, method_and_path, lines);
}

bool http_give_chunk(int s, const char *bytes, size_t size) {
    char line[30];
    snprintf(line, sizeof line, "%zx\r\n", size);
    return http_give(s, line, strlen(line)) && http_give(s, bytes, size) && http_give(s, "\r\n", 2);
}

int http_status_of(const char *answer) {
    return strncmp(answer, "HTTP/1.1 ", 9) ? 0 : atoi(answer + 9);
}

void http_expect(const char *request, int status, const char *part) {
    char *answer = http_ask(request);
    ck_assert_msg(http_status_of(answer) == status && (!part || strstr(answer, part)), "%s\n-> %s", request, answer);
    free(answer);
}

void http_expect_answer(int s, int status, const char *part) {
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

void http_expect_end(int s, int status, const char *part) {
    char *answer = http_hear(s);
    ck_assert_msg(http_status_of(answer) == status && strstr(answer, part), "%s", answer);
    free(answer);
}

void http_get(const char *target, const char *headers, int status, const char *part) {
    char request[1000];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s\r\n", target, headers);
    http_expect(request, status, part);
}

char *http_post(const char *coding, const void *body, size_t size) {
    char head[200];
    snprintf(head, sizeof head,
             "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Encoding: %s\r\nContent-Length: %zu\r\n\r\n",
             coding, size);
    int s = http_dial();
    http_say(s, head);
    http_give(s, body, size);
    return http_hear(s);
}

typedef struct numbered_client {
    pthread_t thread;
    void (*act)(unsigned number);
    unsigned number;
} numbered_client;

static void *run_client(void *context) {
    const numbered_client *one = context;
    one->act(one->number);
    return NULL;
}

void http_many_at_once(void (*act)(unsigned number)) {
    numbered_client clients[24];
    for (unsigned i = 0; i < 24; i++) {
        clients[i] = (numbered_client){.act = act, .number = i + 1};
        pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
    }
    for (int i = 0; i < 20; i++) http_get("/word", "", 200, "word"); /* not starved */
    for (int i = 0; i < 24; i++) pthread_join(clients[i].thread, NULL);
}

double http_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Waits until the metrics say so: bookkeeping follows the answer. */
void http_await_metric(const char *line, bool is_expected) {
    for (int i = 0; i < 500; i++) {
        fb_buffer text = {0};
        fb_http_metrics(http_server, &text);
        bool is_there = strstr(fb_buffer_text(&text), line);
        fb_buffer_free(&text);
        if (is_there == is_expected) return;
        usleep(10000);
    }
    ck_abort_msg("%s metric %s", is_expected ? "no" : "still the", line);
}

void http_expect_metric(const char *line) {
    http_await_metric(line, true);
}
