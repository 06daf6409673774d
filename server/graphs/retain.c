#include "server/graphs/graphs.h"

#include "server/store/audit.h"

static void forget(void *context, const char *id) {
    fb_cache_drop(context, id);
}

fb_status fb_retain(const fb_app *app, const fb_retention *limits, bool is_dry, const fb_store_actor *by, const fb_watch *watch,
                    fb_removed *out, fb_error *error) {
    fb_retaining how = {
        .limits = *limits, .is_dry = is_dry, .by = by, .watch = watch, .graph_gone = forget, .context = app->cache};
    fb_status status = fb_store_retain(app->store, &how, out, error);
    if (status) return status;
    return fb_store_trim_audit(app->store, limits->audit_age_ms, is_dry, by, watch, &out->audit_entries, error);
}
