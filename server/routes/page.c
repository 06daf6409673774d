#include "server/routes/input.h"

#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "core/passes/passes.h"
#include "server/graphs/app.h"
#include "server/store/rules.h"

bool fb_page_read(const fb_request *request, fb_response *response, fb_store_page *page) {
    int64_t limit;
    if (!fb_request_query_int(request, response, "limit", 1, FB_PAGE_MAX, FB_PAGE_DEFAULT, &limit)) return false;
    *page = (fb_store_page){.limit = (size_t)limit, .token = fb_request_query(request, "page_token")};
    return true;
}

void fb_respond_page_error(fb_response *response, const fb_error *error) {
    fb_respond_error(response, error);
    if (strcmp(error->code, "bad-page-token") == 0) fb_problem_member_take(response, "parameter", json_string("page_token"));
}

fb_buffer fb_items_begin(void) {
    fb_buffer out = {0};
    fb_buffer_string(&out, "{\"items\":[");
    return out;
}

void fb_items_end(fb_buffer *out, const char *next_token) {
    fb_buffer_char(out, ']');
    if (*next_token) fb_put_text(out, "next_page_token", next_token);
    fb_buffer_char(out, '}');
}

void fb_respond_items_take(fb_response *response, fb_buffer *answer, const char *next_token) {
    fb_items_end(answer, next_token);
    fb_respond_json_buffer_take(response, 200, answer);
}

bool fb_refuse_parameter(fb_response *response, const char *name, const char *code, const char *detail) {
    fb_respond_problem(response, 422, code, "%s", detail);
    fb_problem_member_take(response, "parameter", json_string(name));
    return false;
}

bool fb_check_pass_parameter(const fb_request *request, fb_response *response, const char *name) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_runs runs;
    fb_store_rule rule;
    if (fb_pass_find(name)) return true;
    if (!fb_store_get_rule(app->store, FB_STORED_ANY, name, 0, &rule, &error)) {
        FB_STORE_FREE(&rule);
        return true;
    }
    error = (fb_error){0};
    if (fb_store_list_runs(app->store, &(fb_store_run_filter){.pass = name}, &(fb_store_page){.limit = 1}, false, &runs,
                           &error)) {
        fb_respond_error(response, &error);
        return false;
    }
    bool is_known = runs.count > 0;
    FB_STORE_FREE(&runs);
    if (is_known) return true;
    char detail[200];
    snprintf(detail, sizeof detail,
             "there is no pass named \"%.80s\", and no run of an external one; GET /v1/passes lists ours", name);
    return fb_refuse_parameter(response, "pass", "unknown-pass", detail);
}
