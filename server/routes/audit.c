/* GET /v1/audit: who did what. */
#include "server/store/audit.h"

#include "core/base/timestamp.h"
#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

static void write_entry(const fb_audit_entry *entry, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_int(out, "id", entry->number);
    fb_put_time(out, "when", entry->at);
    fb_put_text(out, "who", entry->who);
    fb_put_text_or_null(out, "request", entry->request);
    fb_put_text(out, "action", entry->action);
    fb_put_text(out, "object", entry->object);
    fb_put_text(out, "outcome", entry->outcome);
    fb_buffer_char(out, '}');
}

static bool read_time(const fb_request *request, fb_response *response, const char *name, int64_t *time) {
    const char *text = fb_request_query(request, name);
    return !text || fb_timestamp_read(text, time) ||
           fb_refuse_parameter(response, name, "bad-time", "a time is written as 2026-12-31T23:59:59Z, or 2026-12-31");
}

static void get_audit(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_audit_entries list;
    fb_audit_filter filter = {.who = fb_request_query(request, "who"),
                              .action = fb_request_query(request, "action"),
                              .object = fb_request_query(request, "object")};
    if (!fb_page_read(request, response, &page) || !read_time(request, response, "since", &filter.since) ||
        !read_time(request, response, "until", &filter.until))
        return;
    if (fb_store_list_audit(app->store, &filter, &page, &list, &error)) {
        fb_respond_page_error(response, &error);
        return;
    }
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list.count; i++) write_entry(&list.items[i], &answer);
    fb_respond_items_take(response, &answer, list.next_token);
    FB_STORE_FREE(&list);
}

const fb_route fb_audit_routes[] = {
    {.method = "GET",
     .pattern = "/v1/audit",
     .handler = get_audit,
     .scope = FB_SCOPE_ADMIN,
     .query = "who,action,object,since,until,limit,page_token"},
    {0},
};
