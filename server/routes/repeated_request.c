#include "server/routes/answer.h"

#include <stdlib.h>
#include <string.h>

#define KEY_MAX 255 /* characters */

static bool is_key(const char *key) {
    size_t length = strlen(key);
    if (!length || length > KEY_MAX) return false;
    while (*key > 0x20 && *key < 0x7f) key++;
    return !*key;
}

/* The digest of everything that the answer depends on: query, type and body; the path is the scope. */
static bool digest_request(const fb_request *request, char digest[FB_ID_LENGTH + 1]) {
    char body[FB_ID_LENGTH + 1];
    if (!fb_sha256_id(request->body, request->body_size, body)) return false;
    fb_buffer text = {0};
    fb_buffer_string(&text, body);
    for (size_t i = 0; i < fb_request_query_count(request); i++) {
        const char *name = fb_request_query_name(request, i), *value = fb_request_query_value(request, i);
        fb_buffer_json_string(&text, name, strlen(name));
        fb_buffer_json_string(&text, value, strlen(value));
    }
    bool ok = !text.failed && fb_sha256_id(text.data, text.size, digest);
    fb_buffer_free(&text);
    return ok;
}

static void answer_again(const fb_request *request, fb_response *response, const fb_store_answer *answer) {
    static const char runs[] = "/v1/runs/", models[] = "/v1/models/";
    if (answer->location && strncmp(answer->location, runs, strlen(runs)) == 0) {
        fb_respond_run_again(request, response, answer->status, answer->location + strlen(runs), answer->body);
    } else if (answer->location && strncmp(answer->location, models, strlen(models)) == 0) {
        fb_respond_stored_alias(request, response, answer->status, answer->body);
    } else {
        fb_respond_copy(response, answer->status, "application/json", answer->body, answer->body_size);
        if (answer->location) fb_response_header(response, "Location", answer->location);
    }
    fb_response_header(response, "Idempotency-Replayed", "true");
}

static void respond_repeat(const fb_request *request, fb_response *response, fb_store_repeat what,
                           const fb_store_answer *answer) {
    if (what == FB_REPEATED) {
        answer_again(request, response, answer);
    } else if (what == FB_STILL_RUNNING) {
        fb_respond_problem(response, 409, "request-in-progress", "the first request with this Idempotency-Key still runs");
        fb_response_header(response, "Retry-After", "1");
    } else {
        fb_respond_problem(response, 422, "idempotency-key-reused",
                           "this Idempotency-Key belongs to a request with another body or query");
    }
}

/* A job's own key, which no client could give; else the client's, or NULL. */
static const char *key_of(const fb_request *request) {
    return request->job ? request->job : fb_request_header(request, "Idempotency-Key");
}

bool fb_repeat_check_key(const fb_request *request, fb_response *response) {
    const char *key = key_of(request);
    if (!key || request->job || is_key(key)) return true;
    fb_respond_problem(response, 400, "bad-idempotency-key", "an Idempotency-Key has 1 to %d visible ASCII characters",
                       KEY_MAX);
    return false;
}

bool fb_repeat_begin(const fb_request *request, fb_response *response, fb_repeat *repeat) {
    *repeat = (fb_repeat){.app = request->context};
    const char *key = key_of(request);
    if (!key) return true;
    if (!fb_repeat_check_key(request, response)) return false;
    fb_error error = {0};
    fb_store_repeat what = FB_FIRST_REQUEST;
    fb_store_answer answer = {0};
    fb_buffer scope = {0};
    if (request->job) fb_buffer_string(&scope, FB_JOB_SCOPE);
    else fb_buffer_printf(&scope, "%s %s", request->method, request->path);
    repeat->scope = fb_buffer_take(&scope, NULL);
    repeat->principal = request->job ? "" : request->principal;
    fb_store_key asked = {repeat->principal, repeat->scope, key};
    fb_status status = repeat->scope && digest_request(request, repeat->digest) ? FB_OK : fb_fail_memory(&error);
    if (!status) status = fb_store_begin_request(repeat->app->store, &asked, repeat->digest, &what, &answer, &error);
    if (!status && what == FB_FIRST_REQUEST) {
        repeat->key = key;
        return true;
    }
    if (status) fb_respond_error(response, &error);
    else respond_repeat(request, response, what, &answer);
    FB_STORE_FREE(&answer);
    free(repeat->scope);
    return false;
}

void fb_repeat_end(fb_repeat *repeat) {
    if (!repeat->key) return;
    fb_store_end_request(repeat->app->store, &(fb_store_key){repeat->principal, repeat->scope, repeat->key});
    free(repeat->scope);
}

const fb_store_answer *fb_repeat_answer(fb_repeat *repeat, int status, const char *location, const char *body, size_t size) {
    if (!repeat->key) return NULL;
    repeat->answer = (fb_store_answer){.key = {repeat->principal, repeat->scope, repeat->key},
                                       .request_digest = repeat->digest,
                                       .status = status,
                                       .location = location,
                                       .body = body,
                                       .body_size = size};
    return &repeat->answer;
}
