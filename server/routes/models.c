/* /v1/models and /v1/models/{model}. */
#include "server/store/models.h"

#include <string.h>

#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

static void write_model(const fb_store_model *model, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", model->name);
    fb_put_time(out, "created", model->created);
    fb_put_text(out, "naming", model->naming);
    fb_put_int(out, "versions", (int64_t)model->versions);
    fb_put_int(out, "aliases", (int64_t)model->aliases);
    fb_buffer_char(out, '}');
}

static void get_models(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_models list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_list_models(app->store, &page, &list, &error)) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list.count; i++) write_model(&list.items[i], &answer);
    fb_respond_items_take(response, &answer, list.next_token);
    FB_STORE_FREE(&list);
}

static void get_model(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_model model;
    if (fb_store_get_model(app->store, fb_request_param(request, "model"), &model, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    fb_buffer answer = {0};
    write_model(&model, &answer);
    fb_respond_json_buffer_take(response, 200, &answer);
    FB_STORE_FREE(&model);
}

/* How the versions are named that the service makes itself: by a rollback of passes. */
static void put_model(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"naming", NULL};
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    fb_request_body body;
    fb_store_model model;
    const char *naming;
    bool is_new = false;
    if (!fb_check_path_name(request, response, "model") || !fb_body_read(request, response, known, &body)) return;
    if (!fb_body_text(response, &body, "naming", FB_REFERENCE_MAX, &naming)) {
        /* it has responded */
    } else if (!naming || (strcmp(naming, "words") != 0 && strcmp(naming, "integer") != 0)) {
        fb_refuse_member(response, naming ? "unknown-naming" : "missing-member", naming ? "/naming" : "",
                         "naming is words (2-without-MergeLinears) or integer (the next number)");
    } else if (fb_store_put_model(app->store, fb_request_param(request, "model"), naming, &by, &is_new, &model, &error)) {
        fb_respond_error(response, &error);
    } else {
        fb_buffer answer = {0};
        write_model(&model, &answer);
        fb_respond_json_buffer_take(response, is_new ? 201 : 200, &answer);
        if (is_new) fb_response_header_format(response, "Location", "/v1/models/%s", model.name);
        FB_STORE_FREE(&model);
    }
    fb_request_body_free(&body);
}

const fb_route fb_model_routes[] = {
    {.method = "GET", .pattern = "/v1/models", .handler = get_models, .scope = FB_SCOPE_READ, .query = "limit,page_token"},
    {.method = "GET", .pattern = "/v1/models/{model}", .handler = get_model, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "PUT",
     .pattern = "/v1/models/{model}",
     .handler = put_model,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {0},
};
