/* What the requests that change an alias have in common: their preconditions, who and why, and their errors. */
#ifndef FB_ROUTES_ALIAS_CHANGE_H
#define FB_ROUTES_ALIAS_CHANGE_H

#include "server/http/http.h"
#include "server/routes/request_body.h"
#include "server/store/models.h"

typedef enum fb_alias_request {
    FB_ALIAS_SET,       /* needs If-Match, or If-None-Match: * */
    FB_ALIAS_DELETE,    /* needs If-Match */
    FB_ALIAS_ROLL_BACK, /* needs nothing, but an alias that exists */
} fb_alias_request;

/* Names of the path, and the condition that the headers make. If-Match is compared strongly, with the alias as it is now; the
 * condition then holds the alias there until the change is made. On failure this responds and returns false: 400
 * bad-precondition, 404, 412 alias-moved, 422 bad-name, 428 precondition-required. */
bool fb_alias_change_begin(const fb_request *request, fb_response *response, fb_alias_request kind, fb_store_alias_change *out);

/* Reads "who" and "why"; they live as long as the body. */
bool fb_alias_change_read(fb_response *response, const fb_request_body *body, fb_store_alias_change *out);

/* 412 alias-moved; `number` is the alias' place in the history now. */
void fb_respond_alias_moved(fb_response *response, const fb_store_alias_change *change, int64_t number);

/* fb_respond_error, but a condition that does not hold is 412, and an unknown version has `version_pointer`. */
void fb_respond_alias_error(fb_response *response, const fb_error *error, const char *version_pointer);

#endif
