/* /v1/runs/{run}/pin: runs that retention keeps. */
#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"
#include "server/store/retention.h"

static void respond_pin(fb_response *response, int status, fb_store_pin *pin) {
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "run", pin->run);
    if (pin->note) fb_put_text(&answer, "note", pin->note);
    fb_put_time(&answer, "created", pin->created);
    fb_buffer_char(&answer, '}');
    FB_STORE_FREE(pin);
    fb_respond_json_buffer_take(response, status, &answer);
}

static void get_pin(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_pin pin;
    if (fb_store_get_pin(app->store, fb_request_param(request, "run"), &pin, &error)) fb_respond_error(response, &error);
    else respond_pin(response, 200, &pin);
}

static void put_pin(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"note", NULL};
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_request_body body;
    fb_store_pin pin;
    fb_store_actor by = fb_actor_of(request);
    const char *note = NULL;
    bool is_new = false;
    if (!fb_body_read(request, response, known, &body)) return;
    if (fb_body_text(response, &body, "note", FB_NOTE_MAX, &note)) {
        if (fb_store_put_pin(app->store, fb_request_param(request, "run"), note, &by, &is_new, &pin, &error))
            fb_respond_error(response, &error);
        else respond_pin(response, is_new ? 201 : 200, &pin);
    }
    fb_request_body_free(&body);
}

static void delete_pin(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_actor by = fb_actor_of(request);
    if (fb_store_delete_pin(app->store, fb_request_param(request, "run"), &by, &error)) fb_respond_error(response, &error);
    else fb_respond_empty(response, 204);
}

const fb_route fb_pin_routes[] = {
    {.method = "GET", .pattern = "/v1/runs/{run}/pin", .handler = get_pin, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "PUT",
     .pattern = "/v1/runs/{run}/pin",
     .handler = put_pin,
     .scope = FB_SCOPE_ADMIN,
     .body = FB_BODY_OPTIONAL,
     .query = ""},
    {.method = "DELETE", .pattern = "/v1/runs/{run}/pin", .handler = delete_pin, .scope = FB_SCOPE_ADMIN, .query = ""},
    {0},
};
