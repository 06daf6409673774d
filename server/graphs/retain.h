/* Retention as the service does it: the store's of runs and of the audit, and the cache lets go of graphs that went. */
#ifndef FB_GRAPHS_RETAIN_H
#define FB_GRAPHS_RETAIN_H

#include "server/app.h"

/* `by` NULL: the service itself; `watch` may be NULL. As fb_store_retain and
 * fb_store_trim_audit. */
fb_status fb_retain(const fb_app *app, const fb_retention *limits, bool is_dry, const fb_store_actor *by, const fb_watch *watch,
                    fb_removed *out, fb_error *error);

#endif
