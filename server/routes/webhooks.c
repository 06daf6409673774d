/* /v1/webhooks: the receivers of events, and their deliveries. */
#include "server/webhooks/webhooks.h"

#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

#define WORDS_MAX 100        /* events or patterns of one webhook */
#define OVERLAP_S 86400      /* for which the old secret signs as well */
#define OVERLAP_MAX 31536000 /* seconds */

/* ---- as JSON ------------------------------------------------------------------------------------------------------------- */

static void put_words(fb_buffer *out, const char *name, const char *words) {
    fb_put_name(out, name);
    fb_buffer_char(out, '[');
    for (const char *at = words; *at;) {
        size_t length = strcspn(at, " ");
        fb_put_comma(out);
        fb_buffer_json_string(out, at, length);
        at += length + (at[length] == ' ');
    }
    fb_buffer_char(out, ']');
}

/* `secret` is NULL but for one that has just been made. */
static void write_webhook(const fb_store_webhook *webhook, const char *secret, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "id", webhook->id);
    fb_put_text(out, "url", webhook->url);
    put_words(out, "events", webhook->events);
    put_words(out, "models", webhook->models);
    fb_put_text_or_null(out, "note", webhook->note);
    fb_put_bool(out, "enabled", webhook->is_enabled);
    fb_put_text_or_null(out, "who", webhook->who);
    fb_put_bool(out, "withdrawn", webhook->ends && webhook->ends <= fb_wall_ms());
    if (secret) fb_put_text(out, "secret", secret);
    if (webhook->old_secret_until) fb_put_time(out, "old_secret_until", webhook->old_secret_until);
    fb_put_time(out, "created", webhook->created);
    fb_put_time(out, "changed", webhook->changed);
    fb_put_int(out, "pending", (int64_t)webhook->pending);
    fb_put_int(out, "parked", (int64_t)webhook->parked);
    fb_buffer_char(out, '}');
}

/* Frees the webhook. */
static void respond_webhook(fb_response *response, int status, fb_store_webhook *webhook, const char *secret) {
    fb_buffer answer = {0};
    write_webhook(webhook, secret, &answer);
    fb_respond_json_buffer_take(response, status, &answer);
    if (status == 201) fb_response_header_format(response, "Location", "/v1/webhooks/%s", webhook->id);
    FB_STORE_FREE(webhook);
}

static void write_delivery(const fb_store_delivery *delivery, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "id", delivery->id);
    fb_put_text(out, "type", delivery->type);
    fb_put_text(out, "state", delivery->state);
    fb_put_int(out, "attempts", delivery->attempts);
    fb_put_time(out, "created", delivery->created);
    if (delivery->attempted) fb_put_time(out, "attempted", delivery->attempted);
    if (delivery->due) fb_put_time(out, "due", delivery->due);
    if (delivery->status) fb_put_int(out, "status", delivery->status);
    if (delivery->failure) fb_put_text(out, "failure", delivery->failure);
    if (delivery->body) {
        fb_put_name(out, "message");
        fb_buffer_string(out, delivery->body);
    }
    fb_buffer_char(out, '}');
}

/* Frees the delivery. */
static void respond_delivery(fb_response *response, int status, fb_store_delivery *delivery) {
    fb_buffer answer = {0};
    write_delivery(delivery, &answer);
    fb_respond_json_buffer_take(response, status, &answer);
    FB_STORE_FREE(delivery);
}

/* ---- what a request says of a webhook ------------------------------------------------------------------------------------ */

static bool is_event(const char *text) {
    if (strcmp(text, "*") == 0) return true;
    for (size_t i = 0; fb_event_type(i); i++)
        if (strcmp(fb_event_type(i), text) == 0) return true;
    return false;
}

static bool is_pattern(const char *text) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-*?";
    size_t length = strlen(text);
    return length && length <= FB_NAME_MAX && strspn(text, allowed) == length;
}

/* An array of such texts as words; nothing where the member is not there. False when this has responded. */
static bool read_words(fb_response *response, const fb_request_body *body, const char *name, bool (*is_word)(const char *),
                       const char *code, const char *detail, fb_buffer *out) {
    char pointer[40];
    const json_t *list = json_object_get(body->members, name);
    size_t count = json_array_size(list);
    snprintf(pointer, sizeof pointer, "/%s", name);
    if (!list) return true;
    if (!json_is_array(list) || !count || count > WORDS_MAX)
        return fb_refuse_member(response, "wrong-type", pointer, "this is an array of 1 to 100 strings");
    for (size_t i = 0; i < count; i++) {
        const char *word = json_string_value(json_array_get(list, i));
        snprintf(pointer, sizeof pointer, "/%s/%zu", name, i);
        if (!word || !is_word(word)) return fb_refuse_member(response, word ? code : "wrong-type", pointer, detail);
        if (out->size) fb_buffer_char(out, ' ');
        fb_buffer_string(out, word);
    }
    return true;
}

static bool read_events(fb_response *response, const fb_request_body *body, fb_buffer *out) {
    return read_words(response, body, "events", is_event, "unknown-event-type",
                      "an event is * or alias.created, alias.moved, alias.rolled_back, alias.deleted, version.created, "
                      "run.finished or job.finished",
                      out);
}

static bool read_models(fb_response *response, const fb_request_body *body, fb_buffer *out) {
    return read_words(response, body, "models", is_pattern, "bad-model-pattern",
                      "a pattern is a model's name, in which * stands for any characters and ? for any one", out);
}

static bool read_enabled(fb_response *response, const fb_request_body *body, int *out) {
    const json_t *member = json_object_get(body->members, "enabled");
    if (!member) return true;
    if (!json_is_boolean(member)) return fb_refuse_member(response, "wrong-type", "/enabled", "enabled is true or false");
    *out = json_is_true(member);
    return true;
}

/* NULL where none is given: the caller makes one up. */
static bool read_secret(fb_response *response, const fb_request_body *body, const char **out) {
    if (!fb_body_text(response, body, "secret", FB_SECRET_MAX, out)) return false;
    return !*out || fb_is_hook_secret(*out) ||
           fb_refuse_member(response, "bad-secret", "/secret", "a secret is whsec_ and the base64 of 24 to 64 random bytes");
}

static bool read_url(const fb_app *app, fb_response *response, const fb_request_body *body, const char **out) {
    fb_error error = {0};
    if (!fb_body_text(response, body, "url", FB_NOTE_MAX, out)) return false;
    if (!*out || !fb_webhooks_check_url(app->webhooks, *out, &error)) return true;
    fb_respond_error(response, &error);
    return false;
}

static bool check_is_on(const fb_app *app, fb_response *response) {
    if (app->webhooks) return true;
    fb_respond_problem(response, 409, "webhooks-off",
                       "this service delivers to no webhooks: start it with foldback serve --webhooks");
    return false;
}

static void wake(const fb_app *app) {
    if (app->webhooks) fb_webhooks_wake(app->webhooks);
}

/* ---- POST, PATCH, DELETE, and another secret ----------------------------------------------------------------------------- */

/* The words, or `usual` where there are none. */
static const char *words_of(fb_buffer *words, const char *usual) {
    return words->size || words->failed ? fb_buffer_text(words) : usual;
}

static bool read_webhook(const fb_app *app, fb_response *response, const fb_request_body *body, fb_buffer *events,
                         fb_buffer *models, fb_store_webhook *out, const char **secret) {
    int is_enabled = true;
    if (!read_url(app, response, body, &out->url) || !read_events(response, body, events) ||
        !read_models(response, body, models) || !fb_body_text(response, body, "note", FB_NOTE_MAX, &out->note) ||
        !read_enabled(response, body, &is_enabled) || !read_secret(response, body, secret))
        return false;
    if (!out->url) return fb_refuse_member(response, "missing-member", "", "a webhook needs a url");
    out->events = words_of(events, "*");
    out->models = words_of(models, "*");
    out->is_enabled = is_enabled;
    return true;
}

static void make_webhook(const fb_request *request, fb_response *response, const fb_store_webhook *wanted, const char *given) {
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    fb_store_webhook made;
    char secret[FB_SECRET_MAX + 1];
    fb_status status = wanted->events && wanted->models ? FB_OK : fb_fail_memory(&error);
    if (!status && !given) status = fb_hook_secret_make(secret, &error);
    if (!status) status = fb_store_put_webhook(app->store, wanted, given ? given : secret, &by, &made, &error);
    if (status) fb_respond_error(response, &error);
    else respond_webhook(response, 201, &made, given ? given : secret);
    if (!status) wake(app);
}

/* Takes no Idempotency-Key: the answer, which holds the secret, would have to be stored. */
static void post_webhook(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"url", "events", "models", "note", "enabled", "secret", NULL};
    const fb_app *app = request->context;
    fb_request_body body;
    fb_buffer events = {0}, models = {0};
    fb_store_webhook wanted = {0};
    const char *secret = NULL;
    if (!check_is_on(app, response) || !fb_body_read(request, response, known, &body)) return;
    if (read_webhook(app, response, &body, &events, &models, &wanted, &secret))
        make_webhook(request, response, &wanted, secret);
    fb_buffer_free(&events);
    fb_buffer_free(&models);
    fb_request_body_free(&body);
}

static bool read_change(const fb_app *app, fb_response *response, const fb_request_body *body, fb_buffer *events,
                        fb_buffer *models, fb_store_webhook_change *out) {
    const json_t *note = json_object_get(body->members, "note");
    out->is_enabled = -1;
    if (!read_events(response, body, events) || !read_models(response, body, models) ||
        !read_enabled(response, body, &out->is_enabled))
        return false;
    if (json_is_null(note)) out->note = "";
    else if (!fb_body_text(response, body, "note", FB_NOTE_MAX, &out->note)) return false;
    if (json_object_get(body->members, "url") && (!check_is_on(app, response) || !read_url(app, response, body, &out->url)))
        return false;
    out->events = words_of(events, NULL);
    out->models = words_of(models, NULL);
    return true;
}

static void patch_webhook(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"url", "events", "models", "note", "enabled", NULL};
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    fb_request_body body;
    fb_buffer events = {0}, models = {0};
    fb_store_webhook_change change = {0};
    fb_store_webhook changed;
    if (!fb_body_read(request, response, known, &body)) return;
    if (read_change(app, response, &body, &events, &models, &change)) {
        fb_status status = events.failed || models.failed ? fb_fail_memory(&error) : FB_OK;
        if (!status)
            status = fb_store_change_webhook(app->store, fb_request_param(request, "webhook"), &change, &by, &changed, &error);
        if (status) fb_respond_error(response, &error);
        else respond_webhook(response, 200, &changed, NULL);
        if (!status) wake(app);
    }
    fb_buffer_free(&events);
    fb_buffer_free(&models);
    fb_request_body_free(&body);
}

static void delete_webhook(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    if (fb_store_delete_webhook(app->store, fb_request_param(request, "webhook"), &by, &error))
        fb_respond_error(response, &error);
    else fb_respond_empty(response, 204);
}

static bool read_overlap(fb_response *response, const fb_request_body *body, int64_t *out) {
    const json_t *member = json_object_get(body->members, "overlap");
    *out = OVERLAP_S;
    if (!member) return true;
    *out = json_integer_value(member);
    return (json_is_integer(member) && *out >= 0 && *out <= OVERLAP_MAX) ||
           fb_refuse_member(response, "bad-overlap", "/overlap",
                            "overlap is for how many seconds the old secret also signs: 0 to 31536000");
}

static void post_secret(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"secret", "overlap", NULL};
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    fb_request_body body;
    fb_store_webhook changed;
    const char *given = NULL;
    char secret[FB_SECRET_MAX + 1];
    int64_t overlap = 0;
    if (!fb_body_read(request, response, known, &body)) return;
    if (read_secret(response, &body, &given) && read_overlap(response, &body, &overlap)) {
        fb_status status = given ? FB_OK : fb_hook_secret_make(secret, &error);
        if (!given) given = secret;
        if (!status)
            status = fb_store_rotate_secret(app->store, fb_request_param(request, "webhook"), given, overlap * 1000, &by,
                                            &changed, &error);
        if (status) fb_respond_error(response, &error);
        else respond_webhook(response, 200, &changed, given);
    }
    fb_request_body_free(&body);
}

/* ---- GET ----------------------------------------------------------------------------------------------------------------- */

static void get_webhooks(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_webhooks list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_list_webhooks(app->store, &page, &list, &error)) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list.count; i++) write_webhook(&list.items[i], NULL, &answer);
    fb_respond_items_take(response, &answer, list.next_token);
    FB_STORE_FREE(&list);
}

static void get_webhook(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_webhook webhook;
    if (fb_store_get_webhook(app->store, fb_request_param(request, "webhook"), &webhook, &error))
        fb_respond_error(response, &error);
    else respond_webhook(response, 200, &webhook, NULL);
}

/* ---- deliveries ---------------------------------------------------------------------------------------------------------- */

static bool read_state(const fb_request *request, fb_response *response, const char **state) {
    *state = fb_request_query(request, "state");
    return !*state || !strcmp(*state, "pending") || !strcmp(*state, "delivered") || !strcmp(*state, "parked") ||
           fb_refuse_parameter(response, "state", "bad-parameter", "a delivery is pending, delivered or parked");
}

static void get_deliveries(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    const char *state;
    fb_store_page page;
    fb_store_deliveries list;
    if (!fb_page_read(request, response, &page) || !read_state(request, response, &state)) return;
    if (fb_store_list_deliveries(app->store, fb_request_param(request, "webhook"), state, &page, &list, &error)) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list.count; i++) write_delivery(&list.items[i], &answer);
    fb_respond_items_take(response, &answer, list.next_token);
    FB_STORE_FREE(&list);
}

static void get_delivery(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_delivery delivery;
    if (fb_store_get_delivery(app->store, fb_request_param(request, "webhook"), fb_request_param(request, "delivery"),
                              &delivery, &error))
        fb_respond_error(response, &error);
    else respond_delivery(response, 200, &delivery);
}

static void post_redelivery(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    fb_store_delivery delivery;
    if (fb_store_redeliver(app->store, fb_request_param(request, "webhook"), fb_request_param(request, "delivery"), &by,
                           &delivery, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    respond_delivery(response, 202, &delivery);
    wake(app);
}

static void post_test(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    const char *webhook = fb_request_param(request, "webhook");
    fb_store_delivery delivery;
    if (fb_store_test_webhook(app->store, webhook, &by, &delivery, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    fb_response_header_format(response, "Location", "/v1/webhooks/%s/deliveries/%s", webhook, delivery.id);
    respond_delivery(response, 202, &delivery);
    wake(app);
}

const fb_route fb_webhook_routes[] = {
    {.method = "POST",
     .pattern = "/v1/webhooks",
     .handler = post_webhook,
     .scope = FB_SCOPE_HOOKS,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "GET", .pattern = "/v1/webhooks", .handler = get_webhooks, .scope = FB_SCOPE_HOOKS, .query = "limit,page_token"},
    {.method = "GET", .pattern = "/v1/webhooks/{webhook}", .handler = get_webhook, .scope = FB_SCOPE_HOOKS, .query = ""},
    {.method = "PATCH",
     .pattern = "/v1/webhooks/{webhook}",
     .handler = patch_webhook,
     .scope = FB_SCOPE_HOOKS,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "DELETE", .pattern = "/v1/webhooks/{webhook}", .handler = delete_webhook, .scope = FB_SCOPE_HOOKS, .query = ""},
    {.method = "POST",
     .pattern = "/v1/webhooks/{webhook}/secret",
     .handler = post_secret,
     .scope = FB_SCOPE_HOOKS,
     .body = FB_BODY_OPTIONAL,
     .query = ""},
    {.method = "POST", .pattern = "/v1/webhooks/{webhook}/test", .handler = post_test, .scope = FB_SCOPE_HOOKS, .query = ""},
    {.method = "GET",
     .pattern = "/v1/webhooks/{webhook}/deliveries",
     .handler = get_deliveries,
     .scope = FB_SCOPE_HOOKS,
     .query = "state,limit,page_token"},
    {.method = "GET",
     .pattern = "/v1/webhooks/{webhook}/deliveries/{delivery}",
     .handler = get_delivery,
     .scope = FB_SCOPE_HOOKS,
     .query = ""},
    {.method = "POST",
     .pattern = "/v1/webhooks/{webhook}/deliveries/{delivery}/redeliver",
     .handler = post_redelivery,
     .scope = FB_SCOPE_HOOKS,
     .query = ""},
    {0},
};
