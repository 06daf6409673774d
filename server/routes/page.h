/* Lists: ?limit= and ?page_token= in, "items" and "next_page_token" out. */
#ifndef FB_ROUTES_PAGE_H
#define FB_ROUTES_PAGE_H

#include "server/http/http.h"
#include "server/store/store.h"

/* False when the parameters are wrong, and then this has responded. */
bool fb_page_read(const fb_request *request, fb_response *response, fb_store_page *page);
/* As fb_respond_error, but an error of the page token names its parameter. */
void fb_respond_page_error(fb_response *response, const fb_error *error);
/* 422 with the parameter's name; returns false. */
bool fb_refuse_parameter(fb_response *response, const char *name, const char *code, const char *detail);
/* Whether ?pass= is a pass of ours, or an external one that some run applied; otherwise this responds. */
bool fb_check_pass_parameter(const fb_request *request, fb_response *response, const char *name);

#endif
