/* /v1/models/{model}/aliases: names that move from version to version. */
#include "core/json/members.h"
#include "server/app.h"
#include "server/routes/alias_answer.h"
#include "server/routes/alias_change.h"
#include "server/routes/body_members.h"
#include "server/routes/graph_answer.h"
#include "server/routes/page.h"
#include "server/routes/routes.h"

/* ---- changes ------------------------------------------------------------------------------------------------------------ */

static void set_alias(const fb_request *request, fb_response *response, const fb_store_alias_change *change,
                      const char *version) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_entry entry;
    if (fb_store_set_alias(app->store, change, version, &entry, &error)) {
        fb_respond_alias_error(response, &error, "/version");
        return;
    }
    bool is_new = change->condition == FB_ALIAS_IS_FREE;
    fb_respond_alias(response, is_new ? 201 : 200, &entry);
    if (is_new) fb_response_header_format(response, "Location", "/v1/models/%s/aliases/%s", entry.model, entry.alias);
    fb_store_alias_entry_free(&entry);
}

void fb_put_alias(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"version", "who", "why", NULL};
    fb_store_alias_change change;
    fb_request_body body;
    const char *version = NULL;
    if (!fb_alias_change_begin(request, response, FB_ALIAS_SET, &change)) return;
    if (!fb_body_read(request, response, known, &body)) return;
    if (fb_alias_change_read(response, &body, &change) &&
        fb_body_text(response, &body, "version", FB_REFERENCE_MAX, &version)) {
        if (version) set_alias(request, response, &change, version);
        else fb_refuse_member(response, "missing-member", "/version", "the request needs a version");
    }
    fb_request_body_free(&body);
}

void fb_delete_alias(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_change change;
    if (!fb_alias_change_begin(request, response, FB_ALIAS_DELETE, &change)) return;
    if (fb_store_delete_alias(app->store, &change, &error)) fb_respond_alias_error(response, &error, "");
    else fb_respond_empty(response, 204);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static bool find_alias(const fb_request *request, fb_response *response, fb_store_alias_entry *out) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_status status =
        fb_store_get_alias(app->store, fb_request_param(request, "model"), fb_request_param(request, "alias"), out, &error);
    if (status) fb_respond_error(response, &error);
    return !status;
}

void fb_get_alias(const fb_request *request, fb_response *response) {
    fb_store_alias_entry entry;
    if (!find_alias(request, response, &entry)) return;
    fb_respond_alias(response, 200, &entry);
    fb_store_alias_entry_free(&entry);
}

void fb_get_alias_graph(const fb_request *request, fb_response *response) {
    fb_store_alias_entry entry;
    if (!find_alias(request, response, &entry)) return;
    if (fb_respond_graph(request, response, entry.to_graph)) {
        fb_response_header_format(response, "Content-Location", "/v1/graphs/%s", entry.to_graph);
        fb_response_header(response, "Foldback-Version", entry.to);
    }
    fb_store_alias_entry_free(&entry);
}

static void write_history_item(const fb_store_alias_entry *entry, fb_buffer *out) {
    fb_alias_entry_write(entry, false, out);
}

static void respond_list(fb_response *response, fb_store_alias_entries *list,
                         void (*write)(const fb_store_alias_entry *entry, fb_buffer *out)) {
    fb_buffer answer = {0};
    fb_buffer_string(&answer, "{\"items\":[");
    for (size_t i = 0; i < list->count; i++) {
        fb_put_comma(&answer);
        write(&list->items[i], &answer);
    }
    fb_buffer_char(&answer, ']');
    if (*list->next_token) fb_put_text(&answer, "next_page_token", list->next_token);
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, 200, &answer);
    fb_store_alias_entries_free(list);
}

void fb_get_aliases(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_alias_entries list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_list_aliases(app->store, fb_request_param(request, "model"), &page, &list, &error))
        fb_respond_page_error(response, &error);
    else respond_list(response, &list, fb_alias_write);
}

void fb_get_alias_history(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_alias_entries list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_alias_history(app->store, fb_request_param(request, "model"), fb_request_param(request, "alias"), &page, &list,
                               &error))
        fb_respond_page_error(response, &error);
    else respond_list(response, &list, write_history_item);
}
