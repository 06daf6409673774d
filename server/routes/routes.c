#include "server/routes/routes.h"

#include <stdlib.h>
#include <string.h>

static const fb_route *const tables[] = {
    fb_index_routes,       fb_health_routes, fb_pass_routes,     fb_stored_pass_routes, fb_graph_routes,
    fb_archive_routes,     fb_node_routes,   fb_tensor_routes,   fb_weights_routes,     fb_evaluate_routes,
    fb_compare_routes,     fb_edits_routes,  fb_optimize_routes, fb_reverse_routes,     fb_external_run_routes,
    fb_run_routes,         fb_pin_routes,    fb_model_routes,    fb_version_routes,     fb_alias_routes,
    fb_blob_routes,        fb_upload_routes, fb_gc_routes,       fb_token_routes,       fb_audit_routes,
    fb_job_routes,         fb_event_routes,  fb_picture_routes,  fb_ui_routes,          fb_webhook_routes,
    fb_attestation_routes, fb_bisect_routes,
};

enum { TABLES = sizeof tables / sizeof *tables };

fb_route *fb_routes_join(size_t *count) {
    size_t counts[TABLES], total = 0;
    for (size_t i = 0; i < TABLES; i++) {
        for (counts[i] = 0; tables[i][counts[i]].method; counts[i]++) total++;
    }
    fb_route *routes = calloc(total, sizeof *routes), *end = routes;
    for (size_t i = 0; routes && i < TABLES; end += counts[i++]) memcpy(end, tables[i], counts[i] * sizeof *end);
    *count = total;
    return routes;
}
