#include "server/routes/page.h"

#include <string.h>

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

bool fb_refuse_parameter(fb_response *response, const char *name, const char *code, const char *detail) {
    fb_respond_problem(response, 422, code, "%s", detail);
    fb_problem_member_take(response, "parameter", json_string(name));
    return false;
}
