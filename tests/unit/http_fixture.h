/* A server with demonstration routes and small limits, and a raw client, for the tests of the HTTP layer. */
#ifndef TESTS_UNIT_HTTP_FIXTURE_H
#define TESTS_UNIT_HTTP_FIXTURE_H

#include "server/http/http.h"

#include <pthread.h>
#include <stdatomic.h>

#define PART ((size_t)1 << 20) /* of a body: what the server takes or makes at a time */

typedef struct http_application {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open; /* the gate that GET /gate waits at */
    unsigned waiting;
    atomic_uint served;
} http_application;

extern http_application http_app;
extern fb_http_server *http_server;

/* Two workers, room for two more requests, bodies up to 1 MiB, no log. */
fb_http_config http_small_config(void);
void http_start(const fb_http_config *config);
void http_start_routes(const fb_http_config *config, const fb_route *routes, size_t count); /* others than demonstration's */
void http_stop(void);                                                                       /* and nothing had to be cut off */
/* Begins to stop the server in a thread, which is to be joined: it has 20 s where `*is_clean`, or 0.3 s. The gate is opened
 * while it stops, or when that time is up. After the thread `*is_clean` says whether nothing was cut off. */
pthread_t http_stop_beside(bool *is_clean);
void http_wait_at_gate(void); /* in a handler, as GET /gate does */
void http_open_gate(void);
void http_wait_for_waiting(unsigned count);

/* What routes of a test's own may have: a handler for GET /word, and the byte number `position` of a body that is known. */
void http_get_word(const fb_request *request, fb_response *response);
char http_byte_at(uint64_t position);

int http_dial(void);
bool http_give(int s, const void *bytes, size_t size); /* false: the server does not take any more */
void http_say(int s, const char *text);
void http_say_head(int s, const char *method_and_path, const char *headers); /* these are whole lines */
void http_say_sized_head(int s, const char *method_and_path, size_t size, const char *headers);
bool http_give_chunk(int s, const char *bytes, size_t size);
char *http_hear(int s); /* all until the server closes; the caller frees */
char *http_ask(const char *request);
int http_status_of(const char *answer); /* 0 when it is no answer */
/* The answer to `request` has this status and, unless NULL, `part` in it. */
void http_expect(const char *request, int status, const char *part);
/* The next answer on a connection that stays open has them; the answer after which it is closed. */
void http_expect_answer(int s, int status, const char *part);
void http_expect_end(int s, int status, const char *part);
/* The same for GET; `headers` are whole lines. */
void http_get(const char *target, const char *headers, int status, const char *part);
char *http_post(const char *coding, const void *body, size_t size);

/* Clients in 24 threads, numbered from 1; beside them GET /word is answered. */
void http_many_at_once(void (*act)(unsigned number));

double http_seconds(void);
/* Waits until the metrics hold (or do not hold) the text: bookkeeping follows the answer. */
void http_await_metric(const char *line, bool is_expected);
void http_expect_metric(const char *line);

#endif
