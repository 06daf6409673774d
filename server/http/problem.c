/* Errors as RFC 9457 problem documents. */
#include "server/http/internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A JSON string of any bytes: what is not UTF-8 (a text cut in the middle of a character) becomes '?'. NULL = no memory. */
static json_t *lossy_string(const char *text) {
    size_t size = strlen(text);
    if (fb_text_is_utf8(text, size)) return json_stringn_nocheck(text, size);
    char *copy = strdup(text);
    if (!copy) return NULL;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)copy[i] >= 0x80) copy[i] = '?';
    json_t *string = json_stringn_nocheck(copy, size);
    free(copy);
    return string;
}

static void set(fb_response *response, json_t *object, const char *name, json_t *value) {
    if (!value || json_object_set_new(object, name, value)) response->failed = true;
}

static void respond(fb_response *response, int status, const char *code, const char *detail) {
    fb_response_clear(response);
    response->status = status;
    response->problem = json_object();
    if (!response->problem) {
        response->failed = true;
        return;
    }
    char title[64];
    snprintf(title, sizeof title, "%s", code);
    for (char *p = title; *p; p++)
        if (*p == '-') *p = ' ';
    if (title[0] >= 'a' && title[0] <= 'z') title[0] = (char)(title[0] - 'a' + 'A');
    set(response, response->problem, "type", json_sprintf("/problems/%s", code));
    set(response, response->problem, "title", lossy_string(title));
    set(response, response->problem, "status", json_integer(status));
    set(response, response->problem, "detail", lossy_string(detail));
    set(response, response->problem, "code", lossy_string(code));
}

void fb_respond_problem(fb_response *response, int status, const char *code, const char *detail, ...) {
    char text[1024];
    va_list args;
    va_start(args, detail);
    vsnprintf(text, sizeof text, detail, args);
    va_end(args);
    respond(response, status, code, text);
}

void fb_problem_pointer(fb_response *response, const char *pointer) {
    if (response->problem) set(response, response->problem, "pointer", lossy_string(pointer));
}

void fb_problem_node(fb_response *response, const char *node) {
    if (!response->problem) return;
    json_t *nodes = json_object_get(response->problem, "nodes");
    if (!nodes) {
        nodes = json_array();
        set(response, response->problem, "nodes", nodes);
        nodes = json_object_get(response->problem, "nodes");
    }
    if (nodes && json_array_append_new(nodes, lossy_string(node))) response->failed = true;
}

void fb_problem_member_take(fb_response *response, const char *name, json_t *value) {
    if (response->problem) set(response, response->problem, name, value);
    else json_decref(value);
}

const json_t *fb_problem_members(const fb_response *response) {
    return response->problem;
}

static int http_status(fb_status status) {
    switch (status) {
    case FB_SYNTAX: return 400;
    case FB_INVALID: return 422;
    case FB_TOO_LARGE: return 413;
    case FB_NOT_FOUND: return 404;
    case FB_CONFLICT: return 409;
    case FB_NO_SPACE: return 507;
    case FB_BUSY:
    case FB_NO_MEMORY: return 503;
    case FB_OK:
    case FB_IO: break;
    }
    return 500;
}

static const char *default_code(int status) {
    switch (status) {
    case 400: return "bad-request";
    case 404: return "not-found";
    case 409: return "conflict";
    case 413: return "too-large";
    case 422: return "invalid";
    case 503: return "overloaded";
    case 507: return "disk-full";
    default: return "internal-error";
    }
}

static json_t *joined_pointer(const char *prefix, const char *pointer) {
    char text[FB_POINTER_MAX * 2];
    snprintf(text, sizeof text, "%s%s", prefix, pointer);
    return lossy_string(text);
}

void fb_respond_error_at(fb_response *response, const char *prefix, const fb_error *error) {
    int status = http_status(error->status);
    respond(response, status, error->code[0] ? error->code : default_code(status), error->message);
    bool is_clients_fault = status < 500;
    bool is_in_body = error->status == FB_SYNTAX || error->pointer[0] || prefix[0]; /* "" is the body's root */
    if (is_clients_fault && is_in_body) fb_problem_member_take(response, "pointer", joined_pointer(prefix, error->pointer));
    if (error->node[0]) fb_problem_node(response, error->node);
    bool is_hopeless = !strcmp(error->code, "deadline-exceeded"); /* it would take as long again */
    if (status == 503 && !is_hopeless) fb_response_header(response, "Retry-After", error->status == FB_NO_MEMORY ? "5" : "1");
}

void fb_respond_error(fb_response *response, const fb_error *error) {
    fb_respond_error_at(response, "", error);
}

bool fb_respond_no_memory(fb_response *response) {
    fb_error error = {0};
    fb_fail_memory(&error);
    fb_respond_error(response, &error);
    return false;
}

void fb_respond_errors(fb_response *response, const char *prefix, const fb_errors *errors) {
    if (errors->out_of_memory && !errors->count) {
        response->failed = true;
        return;
    }
    if (!errors->count) {
        respond(response, 422, default_code(422), "the document is not valid");
        return;
    }
    fb_respond_error_at(response, prefix, &errors->items[0]);
    if (!response->problem) return;
    fb_problem_member_take(response, "pointer", joined_pointer(prefix, errors->items[0].pointer));
    json_t *list = json_array();
    for (size_t i = 0; i < errors->count; i++) {
        const fb_error *error = &errors->items[i];
        json_t *item = json_object();
        if (!item) {
            response->failed = true;
            break;
        }
        set(response, item, "pointer", joined_pointer(prefix, error->pointer));
        set(response, item, "code", lossy_string(error->code));
        set(response, item, "detail", lossy_string(error->message));
        if (error->node[0]) set(response, item, "node", lossy_string(error->node));
        if (json_array_append_new(list, item)) response->failed = true;
    }
    fb_problem_member_take(response, "errors", list);
    if (errors->total > errors->count) fb_problem_member_take(response, "total", json_integer((json_int_t)errors->total));
}
