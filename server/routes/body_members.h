/* Requests whose body is a small object of texts. */
#ifndef FB_ROUTES_BODY_MEMBERS_H
#define FB_ROUTES_BODY_MEMBERS_H

#include "server/http/http.h"
#include "server/routes/request_body.h"

#define FB_NOTE_MAX 10000     /* characters of what explains something to people */
#define FB_REFERENCE_MAX 1000 /* characters of what names something: nothing has a name that long */

/* As fb_request_body_read, but on failure this responds and returns false. */
bool fb_body_read(const fb_request *request, fb_response *response, const char *const *known, fb_request_body *out);

/* A string of `max` characters at most; NULL when the member is not there. When it is something else this responds and returns
 * false. The text lives as long as the body. */
bool fb_body_text(fb_response *response, const fb_request_body *body, const char *name, size_t max, const char **out);

/* Of a text in UTF-8. */
size_t fb_count_characters(const char *text);

/* 422 with a pointer; returns false. */
bool fb_refuse_member(fb_response *response, const char *code, const char *pointer, const char *detail);

#endif
