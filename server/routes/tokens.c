/* /v1/tokens: who may ask. */
#include "core/base/timestamp.h"
#include "core/json/json.h"
#include "server/auth/auth.h"
#include "server/graphs/app.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

#include <string.h>

static void put_time_or_null(fb_buffer *out, const char *name, int64_t time) {
    if (time) fb_put_time(out, name, time);
    else fb_put_text_or_null(out, name, NULL);
}

/* `secret` is NULL but for a token that has just been made. */
static void write_token(const fb_app *app, const fb_store_token *token, const char *secret, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", token->name);
    fb_put_text(out, "scope", token->scope);
    if (secret) fb_put_text(out, "token", secret);
    fb_put_time(out, "created", token->created);
    put_time_or_null(out, "expires", token->expires);
    put_time_or_null(out, "revoked", token->revoked);
    put_time_or_null(out, "last_used", fb_auth_last_use(app->auth, token));
    fb_buffer_char(out, '}');
}

/* Frees the token. */
static void respond_token(const fb_app *app, fb_response *response, int status, fb_store_token *token, const char *secret) {
    fb_buffer answer = {0};
    write_token(app, token, secret, &answer);
    fb_respond_json_buffer_take(response, status, &answer);
    if (status == 201) fb_response_header_format(response, "Location", "/v1/tokens/%s", token->name);
    FB_STORE_FREE(token);
}

/* ---- POST --------------------------------------------------------------------------------------------------------------- */

static bool check_name(fb_response *response, const char *name) {
    static const char *const taken[] = {FB_ANONYMOUS, FB_LOCAL, FB_STORE_SERVICE};
    if (!fb_check_body_name(response, "/name", name)) return false;
    for (size_t i = 0; name && i < sizeof taken / sizeof *taken; i++)
        if (strcmp(name, taken[i]) == 0)
            return fb_refuse_member(response, "reserved-name", "/name", "the audit means something else by that name");
    return true;
}

static bool read_token(fb_response *response, const fb_request_body *body, fb_store_token *out) {
    const char *expires;
    fb_scope scope;
    if (!fb_body_text(response, body, "name", FB_REFERENCE_MAX, &out->name) || !check_name(response, out->name)) return false;
    if (!fb_body_text(response, body, "scope", FB_REFERENCE_MAX, &out->scope)) return false;
    if (!out->scope)
        return fb_refuse_member(response, "missing-member", "", "a token needs a scope: read, write, hooks or admin");
    if (!fb_scope_parse(out->scope, &scope))
        return fb_refuse_member(response, "unknown-scope", "/scope", "a scope is read, write, hooks or admin");
    if (!fb_body_text(response, body, "expires", FB_REFERENCE_MAX, &expires)) return false;
    if (expires && (!fb_timestamp_read(expires, &out->expires) || !out->expires))
        return fb_refuse_member(response, "bad-time", "/expires", "a time is written as 2026-12-31T23:59:59Z");
    return true;
}

/* The first token locks out everybody else: it is made by someone who can read the data folder, not by anyone who reaches the
 * port. */
static bool check_first(const fb_request *request, fb_response *response) {
    if (strcmp(request->principal, FB_ANONYMOUS) != 0) return true;
    fb_respond_problem(
        response, 403, "first-token",
        "the first token is not made over the network. Stop the service and run foldback token create --scope admin "
        "--data with its data folder");
    return false;
}

/* Takes no Idempotency-Key: the answer, which holds the secret, would have to be stored. */
static void post_token(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"name", "scope", "expires", NULL};
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    fb_request_body body;
    fb_store_token wanted = {0}, made;
    char secret[FB_TOKEN_LENGTH + 1];
    if (!check_first(request, response) || !fb_body_read(request, response, known, &body)) return;
    if (read_token(response, &body, &wanted)) {
        if (fb_auth_create(app->auth, &wanted, &by, secret, &made, &error)) fb_respond_error(response, &error);
        else respond_token(app, response, 201, &made, secret);
    }
    fb_request_body_free(&body);
}

/* ---- the others --------------------------------------------------------------------------------------------------------- */

static void get_tokens(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_tokens list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_list_tokens(app->store, &page, &list, &error)) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list.count; i++) write_token(app, &list.items[i], NULL, &answer);
    fb_respond_items_take(response, &answer, list.next_token);
    FB_STORE_FREE(&list);
}

static void get_token(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_token token;
    if (!fb_check_path_name(request, response, "token")) return;
    if (fb_store_get_token(app->store, fb_request_param(request, "token"), &token, &error)) fb_respond_error(response, &error);
    else respond_token(app, response, 200, &token, NULL);
}

static void delete_token(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    fb_store_token token;
    if (!fb_check_path_name(request, response, "token")) return;
    if (fb_auth_revoke(app->auth, fb_request_param(request, "token"), &by, &token, &error)) fb_respond_error(response, &error);
    else respond_token(app, response, 200, &token, NULL);
}

/* ---- GET /v1/access ------------------------------------------------------------------------------------------------------ */

static bool may(const fb_request *request, fb_scope scope) {
    const fb_app *app = request->context;
    return !strcmp(request->principal, FB_LOCAL) || fb_auth_still_admits(app->auth, request->principal, scope);
}

/* So that a page need not offer what would be refused. */
static void get_access(const fb_request *request, fb_response *response) {
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "principal", request->principal);
    fb_put_text(&answer, "scope",
                may(request, FB_SCOPE_ADMIN)   ? "admin"
                : may(request, FB_SCOPE_WRITE) ? "write"
                : may(request, FB_SCOPE_HOOKS) ? "hooks"
                                               : "read");
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, 200, &answer);
}

const fb_route fb_token_routes[] = {
    {.method = "GET", .pattern = "/v1/access", .handler = get_access, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "POST",
     .pattern = "/v1/tokens",
     .handler = post_token,
     .scope = FB_SCOPE_ADMIN,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "GET", .pattern = "/v1/tokens", .handler = get_tokens, .scope = FB_SCOPE_ADMIN, .query = "limit,page_token"},
    {.method = "GET", .pattern = "/v1/tokens/{token}", .handler = get_token, .scope = FB_SCOPE_ADMIN, .query = ""},
    {.method = "DELETE", .pattern = "/v1/tokens/{token}", .handler = delete_token, .scope = FB_SCOPE_ADMIN, .query = ""},
    {0},
};
