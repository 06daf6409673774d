#include "server/routes/input.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "server/database/ulid.h"
#include "server/graphs/app.h"

typedef struct form {
    const char *prefix, *characters;
    size_t most;          /* digits of a whole id */
    bool has_bare_digits; /* the prefix may be left out */
} form;

static const form forms[] = {
    [FB_SHORT_GRAPH] = {"sha256:", FB_ID_DIGITS, 64, true}, [FB_SHORT_STRUCTURE] = {"sha256:", FB_ID_DIGITS, 64, true},
    [FB_SHORT_RUN] = {"run_", FB_ULID_DIGITS, 26, false},   [FB_SHORT_JOB] = {"job_", FB_ULID_DIGITS, 26, false},
    [FB_SHORT_BLOB] = {"sha256:", FB_ID_DIGITS, 64, true},  [FB_SHORT_SIGNATURE] = {"", FB_ID_DIGITS, 32, true},
};

static const struct {
    const char *name;
    fb_short_kind kind;
} parameters[] = {
    {"id", FB_SHORT_GRAPH},    {"graph", FB_SHORT_GRAPH},  {"source", FB_SHORT_GRAPH},        {"result", FB_SHORT_GRAPH},
    {"base", FB_SHORT_GRAPH},  {"run", FB_SHORT_RUN},      {"of_run", FB_SHORT_RUN},          {"job", FB_SHORT_JOB},
    {"digest", FB_SHORT_BLOB}, {"weights", FB_SHORT_BLOB}, {"structure", FB_SHORT_STRUCTURE}, {"signature", FB_SHORT_SIGNATURE},
};

/* False: this is a whole id, or not the beginning of one. */
static bool read_prefix(const form *how, const char *value, char prefix[FB_EXPANDED_SIZE]) {
    size_t length = strlen(how->prefix);
    bool has_prefix = strncmp(value, how->prefix, length) == 0;
    if (!has_prefix && !how->has_bare_digits) return false;
    const char *digits = has_prefix ? value + length : value;
    size_t count = strspn(digits, how->characters);
    const char *end = digits + count;
    bool is_whole = has_prefix && count == how->most && !*end;
    if (is_whole || count < FB_SHORT_LEAST || count > how->most || (*end && strcmp(end, "…") && strcmp(end, "...")))
        return false;
    snprintf(prefix, FB_EXPANDED_SIZE, "%s%.*s", how->prefix, (int)count, digits);
    return true;
}

static bool refuse(fb_response *response, const char *value, const fb_short_matches *matches) {
    json_t *candidates = json_array();
    for (size_t i = 0; i < matches->count; i++) fb_list_add_take(&candidates, json_string(matches->ids[i]));
    fb_respond_problem(response, 409, "ambiguous-id", "%s%zu ids begin with %.80s; give more digits, or the whole id",
                       matches->count == FB_SHORT_MATCHES ? "at least " : "", matches->count, value);
    fb_problem_member_take(response, "candidates", candidates);
    return false;
}

bool fb_expand_id(void *context, fb_response *response, const char *name, const char *value, char expanded[FB_EXPANDED_SIZE]) {
    const fb_app *app = context;
    size_t i = 0, count = sizeof parameters / sizeof *parameters;
    char prefix[FB_EXPANDED_SIZE];
    while (i < count && strcmp(parameters[i].name, name) != 0) i++;
    if (i == count || !app->store || !read_prefix(&forms[parameters[i].kind], value, prefix)) return true;
    fb_short_matches matches;
    fb_error error = {0};
    if (fb_store_find_short(app->store, parameters[i].kind, prefix, &matches, &error)) {
        fb_respond_error(response, &error);
        return false;
    }
    if (matches.count > 1) return refuse(response, value, &matches);
    if (matches.count) strcpy(expanded, matches.ids[0]);
    return true;
}

bool fb_expand_member(const fb_request *request, fb_response *response, const char *name, const char *pointer,
                      const char **value, char space[FB_EXPANDED_SIZE]) {
    *space = '\0';
    if (!*value) return true;
    bool is_clear = fb_expand_id(request->context, response, name, *value, space);
    if (!is_clear) fb_problem_pointer(response, pointer);
    if (*space) *value = space;
    return is_clear;
}
