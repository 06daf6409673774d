#include "server/routes/body_members.h"

#include <stdio.h>

bool fb_refuse_member(fb_response *response, const char *code, const char *pointer, const char *detail) {
    fb_respond_problem(response, 422, code, "%s", detail);
    fb_problem_pointer(response, pointer);
    return false;
}

bool fb_body_read(const fb_request *request, fb_response *response, const char *const *known, fb_request_body *out) {
    fb_error error = {0};
    fb_status status = fb_request_body_read(request, known, out, &error);
    if (status) fb_respond_error(response, &error);
    return !status;
}

size_t fb_count_characters(const char *text) {
    size_t count = 0;
    for (; *text; text++) count += ((unsigned char)*text & 0xC0U) != 0x80U;
    return count;
}

bool fb_body_text(fb_response *response, const fb_request_body *body, const char *name, size_t max, const char **out) {
    const json_t *member = json_object_get(body->members, name);
    *out = json_string_value(member);
    if (!member || (*out && fb_count_characters(*out) <= max)) return true;
    char code[40], pointer[40], detail[80];
    snprintf(code, sizeof code, "%s-too-long", name);
    snprintf(pointer, sizeof pointer, "/%s", name);
    snprintf(detail, sizeof detail, *out ? "%s has %zu characters at most" : "%s is a string", name, max);
    return fb_refuse_member(response, *out ? code : "wrong-type", pointer, detail);
}
