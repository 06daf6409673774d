/* GET /v1/models and /v1/models/{model}. */
#include "server/store/models.h"
#include "core/json/members.h"
#include "server/app.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

static void write_model(const fb_store_model *model, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", model->name);
    fb_put_time(out, "created", model->created);
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
    fb_buffer answer = {0};
    fb_buffer_string(&answer, "{\"items\":[");
    for (size_t i = 0; i < list.count; i++) write_model(&list.items[i], &answer);
    fb_buffer_char(&answer, ']');
    if (*list.next_token) fb_put_text(&answer, "next_page_token", list.next_token);
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, 200, &answer);
    fb_store_models_free(&list);
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
    fb_store_model_free(&model);
}

const fb_route fb_model_routes[] = {
    {.method = "GET", .pattern = "/v1/models", .handler = get_models, .scope = FB_SCOPE_READ, .query = "limit,page_token"},
    {.method = "GET", .pattern = "/v1/models/{model}", .handler = get_model, .scope = FB_SCOPE_READ, .query = ""},
    {0},
};
