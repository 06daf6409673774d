/* /v1/transformations: rules, which are passes given as data. */
#include <stdlib.h>
#include <string.h>

#include "core/compose/composition.h"
#include "core/json/members.h"
#include "server/graphs/graphs.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

static void write_rule(const fb_store_rule *stored, const fb_pass *pass, fb_buffer *out) {
    fb_signature signature;
    out->failed |= !fb_rule_signature(pass->name, pass->version, pass->digest, "{}", signature);
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", stored->name);
    fb_put_int(out, "version", stored->version);
    fb_put_text(out, "description", pass->summary);
    fb_put_bool(out, "reversible", pass->reversible);
    fb_put_bool(out, "preserves_computation", pass->preserves_computation);
    fb_put_text(out, "exactness", fb_exactness_name(pass->exactness));
    fb_put_text(out, "signature", out->failed ? "" : signature);
    fb_put_text(out, "digest", stored->digest);
    fb_put_time(out, "created", stored->created);
    fb_put_name(out, "rule");
    fb_buffer_string(out, stored->document);
    fb_buffer_char(out, '}');
}

static fb_status write_stored(const fb_store_rule *stored, fb_buffer *out, fb_error *error) {
    fb_rule *rule = NULL;
    fb_status status = fb_stored_rule_read(stored, &rule, error);
    if (!status) write_rule(stored, fb_rule_pass(rule), out);
    fb_rule_free(rule);
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
    fb_buffer answer = {0};
    fb_error error = {0};
    fb_status status = FB_OK;
    fb_buffer_string(&answer, "{\"items\":[");
    for (size_t i = 0; i < list->count && !status; i++) status = write_stored(&list->items[i], &answer, &error);
    fb_buffer_char(&answer, ']');
    if (*list->next_token) fb_put_text(&answer, "next_page_token", list->next_token);
    fb_buffer_char(&answer, '}');
    fb_store_rules_free(list);
    if (!status) {
        fb_respond_json_buffer_take(response, 200, &answer);
        return;
    }
    fb_buffer_free(&answer);
    fb_respond_error(response, &error);
}

/* ---- POST --------------------------------------------------------------------------------------------------------------- */

static void store_rule(const fb_request *request, fb_response *response, const fb_rule *rule) {
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    const fb_pass *pass = fb_rule_pass(rule);
    fb_error error = {0};
    fb_store_rule stored;
    bool is_new = false;
    if (fb_store_put_rule(app->store, pass->name, pass->digest, fb_rule_document(rule), &by, &is_new, &stored, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    respond_stored(response, is_new ? 201 : 200, &stored);
    if (is_new)
        fb_response_header_format(response, "Location", "/v1/transformations/%s/versions/%u", stored.name, stored.version);
    fb_store_rule_free(&stored);
}

void fb_post_transformation(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"name",      "description",           "pattern", "conditions", "replacement",
                                        "exactness", "preserves_computation", "once",    NULL};
    fb_request_body body;
    fb_error error = {0};
    fb_rule *rule = NULL;
    if (!fb_body_read(request, response, known, &body)) return;
    if (fb_rule_read(body.members, "", 1, &rule, &error) || fb_rule_check(rule, &error)) {
        fb_respond_request_error(response, &error);
    } else {
        const char *name = fb_rule_pass(rule)->name;
        bool is_taken = fb_pass_find(name) || fb_preset_find(name);
        if (is_taken) fb_refuse_member(response, "name-taken-by-pass", "/name", "a pass of this service has that name");
        else store_rule(request, response, rule);
    }
    fb_rule_free(rule);
    fb_request_body_free(&body);
}

/* ---- GET ---------------------------------------------------------------------------------------------------------------- */

void fb_get_transformations(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_rules list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_list_rules(app->store, &page, &list, &error)) fb_respond_page_error(response, &error);
    else respond_list(response, &list);
}

void fb_get_transformation_versions(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_rules list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_list_rule_versions(app->store, fb_request_param(request, "name"), &page, &list, &error))
        fb_respond_page_error(response, &error);
    else respond_list(response, &list);
}

static void respond_version(const fb_request *request, fb_response *response, uint32_t version) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_rule stored;
    if (fb_store_get_rule(app->store, fb_request_param(request, "name"), version, &stored, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    respond_stored(response, 200, &stored);
    fb_store_rule_free(&stored);
}

void fb_get_transformation(const fb_request *request, fb_response *response) {
    respond_version(request, response, 0);
}

void fb_get_transformation_version(const fb_request *request, fb_response *response) {
    const char *text = fb_request_param(request, "version");
    char *end;
    unsigned long version = strtoul(text, &end, 10);
    bool is_number = *text >= '1' && *text <= '9' && !*end && strlen(text) < 10;
    if (is_number) respond_version(request, response, (uint32_t)version);
    else fb_respond_problem(response, 404, "unknown-version", "versions are numbered from 1; there is no \"%.20s\"", text);
}
