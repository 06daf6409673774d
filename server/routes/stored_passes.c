/* /v1/transformations and /v1/layouts: passes given as data. */
#include <stdlib.h>
#include <string.h>

#include "core/compose/composition.h"
#include "core/json/json.h"
#include "core/layouts/layout.h"
#include "core/passes/passes.h"
#include "core/rules/rule.h"
#include "server/graphs/graphs.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

static void write_pass(const fb_store_rule *stored, const fb_pass *pass, fb_buffer *out) {
    bool is_layout = stored->kind == FB_STORED_LAYOUT;
    fb_signature signature;
    out->failed |= !fb_pass_signature(pass->name, pass->version, pass->digest, "{}", NULL, signature);
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", stored->name);
    fb_put_int(out, "version", stored->version);
    fb_put_text(out, "description", pass->summary);
    fb_put_bool(out, "reversible", pass->reversible);
    fb_put_bool(out, "preserves_computation", pass->preserves_computation);
    fb_put_text(out, "exactness", fb_exactness_name(pass->exactness));
    if (!is_layout) fb_put_text(out, "signature", out->failed ? "" : signature);
    fb_put_text(out, "digest", stored->digest);
    fb_put_time(out, "created", stored->created);
    if (is_layout) {
        fb_put_name(out, "parameters");
        fb_buffer_string(out, pass->parameters);
    }
    fb_put_name(out, is_layout ? "layout" : "rule");
    fb_buffer_string(out, stored->document);
    fb_buffer_char(out, '}');
}

static fb_status write_stored(const fb_store_rule *stored, fb_buffer *out, fb_error *error) {
    const fb_pass *pass = NULL;
    fb_status status = fb_stored_pass_read(stored, &pass, error);
    if (!status) write_pass(stored, pass, out);
    fb_pass_free(pass);
    return status;
}

static void respond_stored(fb_response *response, int http_status, const fb_store_rule *stored) {
    fb_buffer answer = {0};
    fb_error error = {0};
    if (!write_stored(stored, &answer, &error)) {
        fb_respond_json_buffer_take(response, http_status, &answer);
        return;
    }
    fb_buffer_free(&answer);
    fb_respond_error(response, &error);
}

/* Frees the list. */
static void respond_list(fb_response *response, fb_store_rules *list) {
    fb_buffer answer = fb_items_begin();
    fb_error error = {0};
    fb_status status = FB_OK;
    for (size_t i = 0; i < list->count && !status; i++) status = write_stored(&list->items[i], &answer, &error);
    if (!status) {
        fb_respond_items_take(response, &answer, list->next_token);
    } else {
        fb_buffer_free(&answer);
        fb_respond_error(response, &error);
    }
    FB_STORE_FREE(list);
}

/* ---- storing ------------------------------------------------------------------------------------------------------------ */

static void store_pass(const fb_request *request, fb_response *response, fb_stored_kind kind, const fb_pass *pass,
                       const char *document) {
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error error = {0};
    fb_store_rule stored;
    bool is_new = false;
    if (fb_pass_find(pass->name) || fb_preset_find(pass->name) || fb_layout_is_shipped(pass->name)) {
        fb_refuse_member(response, "name-taken-by-pass", "/name", "a pass of this service has that name");
        return;
    }
    if (fb_store_put_rule(app->store, kind, pass->name, pass->digest, document, &by, &is_new, &stored, &error)) {
        fb_respond_request_error(response, &error);
        return;
    }
    respond_stored(response, is_new ? 201 : 200, &stored);
    if (is_new)
        fb_response_header_format(response, "Location", "/v1/%s/%s/versions/%u",
                                  kind == FB_STORED_LAYOUT ? "layouts" : "transformations", stored.name, stored.version);
    FB_STORE_FREE(&stored);
}

static void post_transformation(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"name",      "description",           "pattern", "conditions", "replacement",
                                        "exactness", "preserves_computation", "once",    NULL};
    fb_request_body body;
    fb_error error = {0};
    fb_rule *rule = NULL;
    if (!fb_body_read(request, response, known, &body)) return;
    if (fb_rule_read(body.members, "", 1, &rule, &error) || fb_rule_check(rule, &error))
        fb_respond_request_error(response, &error);
    else store_pass(request, response, FB_STORED_RULE, fb_rule_pass(rule), fb_rule_document(rule));
    fb_rule_free(rule);
    fb_request_body_free(&body);
}

static void put_layout(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"name", "description", "parameters", "rows", NULL};
    fb_request_body body;
    fb_error error = {0};
    const fb_pass *layout = NULL;
    if (!fb_body_read(request, response, known, &body)) return;
    if (fb_layout_read(body.members, "", 1, &layout, &error)) fb_respond_request_error(response, &error);
    else if (strcmp(layout->name, fb_request_param(request, "name")) != 0)
        fb_refuse_member(response, "bad-name", "/name", "the layout has another name than the path");
    else store_pass(request, response, FB_STORED_LAYOUT, layout, fb_layout_document(layout));
    fb_pass_free(layout);
    fb_request_body_free(&body);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

/* Stores the layouts that come with the service when they are first looked for: the named one, or without a name all. */
static fb_status prepare(const fb_app *app, fb_stored_kind kind, const char *name, fb_error *error) {
    return kind == FB_STORED_LAYOUT ? fb_keep_shipped_layouts(app, name, error) : FB_OK;
}

static void respond_all(const fb_request *request, fb_response *response, fb_stored_kind kind) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_rules list;
    if (!fb_page_read(request, response, &page)) return;
    if (prepare(app, kind, NULL, &error) || fb_store_list_rules(app->store, kind, &page, &list, &error))
        fb_respond_page_error(response, &error);
    else respond_list(response, &list);
}

static void respond_versions(const fb_request *request, fb_response *response, fb_stored_kind kind) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_rules list;
    if (!fb_page_read(request, response, &page)) return;
    if (prepare(app, kind, fb_request_param(request, "name"), &error) ||
        fb_store_list_rule_versions(app->store, kind, fb_request_param(request, "name"), &page, &list, &error))
        fb_respond_page_error(response, &error);
    else respond_list(response, &list);
}

static void respond_version(const fb_request *request, fb_response *response, fb_stored_kind kind, uint32_t version) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_rule stored;
    if (prepare(app, kind, fb_request_param(request, "name"), &error) ||
        fb_store_get_rule(app->store, kind, fb_request_param(request, "name"), version, &stored, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    respond_stored(response, 200, &stored);
    FB_STORE_FREE(&stored);
}

static void respond_numbered(const fb_request *request, fb_response *response, fb_stored_kind kind) {
    const char *text = fb_request_param(request, "version");
    char *end;
    unsigned long version = strtoul(text, &end, 10);
    bool is_number = *text >= '1' && *text <= '9' && !*end && strlen(text) < 10;
    if (is_number) respond_version(request, response, kind, (uint32_t)version);
    else fb_respond_problem(response, 404, "unknown-version", "versions are numbered from 1; there is no \"%.20s\"", text);
}

static void get_transformations(const fb_request *request, fb_response *response) {
    respond_all(request, response, FB_STORED_RULE);
}

static void get_transformation(const fb_request *request, fb_response *response) {
    respond_version(request, response, FB_STORED_RULE, 0);
}

static void get_transformation_versions(const fb_request *request, fb_response *response) {
    respond_versions(request, response, FB_STORED_RULE);
}

static void get_transformation_version(const fb_request *request, fb_response *response) {
    respond_numbered(request, response, FB_STORED_RULE);
}

static void get_layouts(const fb_request *request, fb_response *response) {
    respond_all(request, response, FB_STORED_LAYOUT);
}

static void get_layout(const fb_request *request, fb_response *response) {
    respond_version(request, response, FB_STORED_LAYOUT, 0);
}

static void get_layout_versions(const fb_request *request, fb_response *response) {
    respond_versions(request, response, FB_STORED_LAYOUT);
}

static void get_layout_version(const fb_request *request, fb_response *response) {
    respond_numbered(request, response, FB_STORED_LAYOUT);
}

const fb_route fb_stored_pass_routes[] = {
    {.method = "POST",
     .pattern = "/v1/transformations",
     .handler = post_transformation,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/transformations",
     .handler = get_transformations,
     .scope = FB_SCOPE_READ,
     .query = "limit,page_token"},
    {.method = "GET",
     .pattern = "/v1/transformations/{name}",
     .handler = get_transformation,
     .scope = FB_SCOPE_READ,
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/transformations/{name}/versions",
     .handler = get_transformation_versions,
     .scope = FB_SCOPE_READ,
     .query = "limit,page_token"},
    {.method = "GET",
     .pattern = "/v1/transformations/{name}/versions/{version}",
     .handler = get_transformation_version,
     .scope = FB_SCOPE_READ,
     .query = ""},
    {.method = "PUT",
     .pattern = "/v1/layouts/{name}",
     .handler = put_layout,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "GET", .pattern = "/v1/layouts", .handler = get_layouts, .scope = FB_SCOPE_READ, .query = "limit,page_token"},
    {.method = "GET", .pattern = "/v1/layouts/{name}", .handler = get_layout, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "GET",
     .pattern = "/v1/layouts/{name}/versions",
     .handler = get_layout_versions,
     .scope = FB_SCOPE_READ,
     .query = "limit,page_token"},
    {.method = "GET",
     .pattern = "/v1/layouts/{name}/versions/{version}",
     .handler = get_layout_version,
     .scope = FB_SCOPE_READ,
     .query = ""},
    {0},
};
