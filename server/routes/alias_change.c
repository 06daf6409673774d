#include "server/routes/alias_change.h"

#include <inttypes.h>
#include <string.h>

#include "server/app.h"
#include "server/routes/actor.h"
#include "server/routes/body_members.h"
#include "server/routes/name.h"

#define WHO_MAX 200 /* characters */

void fb_respond_alias_error(fb_response *response, const fb_error *error, const char *version_pointer) {
    if (!strcmp(error->code, "alias-moved") || !strcmp(error->code, "alias-exists"))
        fb_respond_problem(response, 412, error->code, "%s", error->message);
    else fb_respond_error_at(response, strcmp(error->code, "unknown-version") == 0 ? version_pointer : "", error);
}

bool fb_alias_change_read(fb_response *response, const fb_request_body *body, fb_store_alias_change *out) {
    return fb_body_text(response, body, "who", WHO_MAX, &out->who) &&
           fb_body_text(response, body, "why", FB_NOTE_MAX, &out->why);
}

/* ---- If-Match ----------------------------------------------------------------------------------------------------------- */

/* A list of entity tags (RFC 9110, 8.8.3); false when it is none. *is_there: a strong one of them is `tag`. */
static bool find_tag(const char *list, const char *tag, bool *is_there) {
    const char *at = list + strspn(list, " \t,");
    *is_there = false;
    if (!*at) return false;
    while (*at) {
        bool is_weak = strncmp(at, "W/", 2) == 0;
        if (is_weak) at += 2;
        if (*at++ != '"') return false;
        size_t length = strcspn(at, "\" \t");
        if (at[length] != '"') return false;
        *is_there |= !is_weak && length == strlen(tag) && memcmp(at, tag, length) == 0;
        at += length + 1;
        at += strspn(at, " \t");
        if (*at && *at != ',') return false;
        at += strspn(at, " \t,");
    }
    return true;
}

static bool respond_bad_precondition(fb_response *response, const char *detail) {
    fb_respond_problem(response, 400, "bad-precondition", "%s", detail);
    return false;
}

/* The alias as it is now; when it does not exist, that is a condition that does not hold, if there is one. */
static bool find_alias(const fb_request *request, fb_response *response, const fb_store_alias_change *change, bool is_condition,
                       int64_t *number) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_entry entry;
    fb_status status = fb_store_get_alias(app->store, change->model, change->alias, &entry, &error);
    if (is_condition && strcmp(error.code, "unknown-alias") == 0)
        fb_respond_problem(response, 412, "alias-moved", "%s", error.message);
    else if (status) fb_respond_error(response, &error);
    if (status) return false;
    *number = entry.number;
    fb_store_alias_entry_free(&entry);
    return true;
}

void fb_respond_alias_moved(fb_response *response, const fb_store_alias_change *change, int64_t number) {
    fb_respond_problem(response, 412, "alias-moved", "alias %s of model %s has changed since: its ETag is \"%" PRId64 "\" now",
                       change->alias, change->model, number);
}

static bool match(const fb_request *request, fb_response *response, const char *list, fb_store_alias_change *out) {
    char tag[24];
    bool is_there = false;
    if (strcmp(list, "*") == 0) return true;
    if (!find_tag(list, "", &is_there))
        return respond_bad_precondition(response, "If-Match is a list of entity tags in double quotes, or *");
    if (!find_alias(request, response, out, true, &out->expected)) return false;
    out->condition = FB_ALIAS_IS_AT;
    snprintf(tag, sizeof tag, "%" PRId64, out->expected);
    find_tag(list, tag, &is_there);
    if (!is_there) fb_respond_alias_moved(response, out, out->expected);
    return is_there;
}

bool fb_alias_change_begin(const fb_request *request, fb_response *response, fb_alias_request kind,
                           fb_store_alias_change *out) {
    const char *if_match = fb_request_header(request, "If-Match"), *if_none_match = fb_request_header(request, "If-None-Match");
    *out = (fb_store_alias_change){
        .model = fb_request_param(request, "model"), .alias = fb_request_param(request, "alias"), .by = fb_actor_of(request)};
    if (!fb_check_path_name(request, response, "model") || !fb_check_path_name(request, response, "alias")) return false;
    if (if_none_match && (kind != FB_ALIAS_SET || if_match || strcmp(if_none_match, "*") != 0))
        return respond_bad_precondition(response, kind == FB_ALIAS_SET
                                                      ? "give If-Match with the alias' ETag, or If-None-Match: * to create it"
                                                      : "If-None-Match means nothing here");
    if (if_none_match) out->condition = FB_ALIAS_IS_FREE;
    if (if_match) return match(request, response, if_match, out);
    if (kind == FB_ALIAS_ROLL_BACK) return find_alias(request, response, out, false, &out->expected);
    if (if_none_match) return true;
    fb_respond_problem(response, 428, "precondition-required",
                       kind == FB_ALIAS_SET
                           ? "say If-Match with the ETag that the alias had when you looked, or If-None-Match: * "
                             "to create it: so that no change of others is lost"
                           : "say If-Match with the ETag that the alias had when you looked");
    return false;
}
