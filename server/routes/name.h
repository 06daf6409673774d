/* Names that a request gives to a model, a version or an alias. */
#ifndef FB_ROUTES_NAME_H
#define FB_ROUTES_NAME_H

#include "server/http/http.h"

/* Whether the path's parameter is a name; otherwise this responds. */
bool fb_check_path_name(const fb_request *request, fb_response *response, const char *parameter);
/* The same for a member of the body; NULL is fine. */
bool fb_check_body_name(fb_response *response, const char *pointer, const char *name);

#endif
