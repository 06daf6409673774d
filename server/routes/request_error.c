/* Errors of what a request says. */
#include "server/routes/input.h"

void fb_respond_request_error(fb_response *response, const fb_error *error) {
    if (error->pointer[0] != '?') {
        fb_respond_error(response, error);
        if (error->status == FB_INVALID) fb_problem_pointer(response, error->pointer); /* "" is the body's root */
        return;
    }
    fb_error without = *error;
    without.pointer[0] = '\0';
    fb_respond_error(response, &without);
    const char *name = error->pointer + 1;
    fb_problem_member_take(response, "parameter", json_stringn(name, strcspn(name, "=")));
}
