/* Short ids: the beginning of an id, as tables print it, stands for the id if only one begins so. */
#ifndef FB_ROUTES_SHORT_ID_H
#define FB_ROUTES_SHORT_ID_H

#include "server/http/http.h"

/* fb_http_config.expand; `context` is the fb_app. `name` says what `value` is the id of: id, graph, source, result and base of
 * a graph, run and of_run of a run, job of a job, digest and weights of a blob, structure and signature of these; others are
 * left alone. At least 8 digits after "sha256:", "run_" or "job_"; "sha256:" may be missing, and "…" or "..." at the end is
 * ignored. 409 "ambiguous-id" with candidates; nothing is written when none begins so. */
bool fb_expand_id(void *context, fb_response *response, const char *name, const char *value, char expanded[FB_EXPANDED_SIZE]);

/* The same for a text in a body: `*value` becomes `space` where that holds another id. */
bool fb_expand_member(const fb_request *request, fb_response *response, const char *name, const char *pointer,
                      const char **value, char space[FB_EXPANDED_SIZE]);

#endif
