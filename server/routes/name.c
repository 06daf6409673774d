#include "server/routes/name.h"

#include "server/store/models.h"

static void respond_bad_name(fb_response *response) {
    fb_respond_problem(response, 422, "bad-name",
                       "a name has 1 to %d characters: letters, digits, '.', '_' and '-'; not . or ..", FB_NAME_MAX);
}

bool fb_check_path_name(const fb_request *request, fb_response *response, const char *parameter) {
    if (fb_is_name(fb_request_param(request, parameter))) return true;
    respond_bad_name(response);
    fb_problem_member_take(response, "parameter", json_string(parameter));
    return false;
}

bool fb_check_body_name(fb_response *response, const char *pointer, const char *name) {
    if (!name || fb_is_name(name)) return true;
    respond_bad_name(response);
    fb_problem_pointer(response, pointer);
    return false;
}
