/* Every route of the service. */
#ifndef FB_ROUTES_ROUTES_H
#define FB_ROUTES_ROUTES_H

#include "server/http/http.h"

/* All of them in one table, for fb_http_start; the context of its handlers is a fb_app. The caller frees it; NULL without
 * memory. */
fb_route *fb_routes_join(size_t *count);
/* Routes of the listener that only monitoring uses. */
extern const fb_route fb_metrics_routes[]; /* health.c */
extern const size_t fb_metrics_route_count;

/* Routes of each resource, in its file; a table ends with a row without a method. */
extern const fb_route fb_index_routes[], fb_health_routes[], fb_pass_routes[], fb_stored_pass_routes[], fb_graph_routes[],
    fb_archive_routes[], fb_node_routes[], fb_tensor_routes[], fb_weights_routes[], fb_evaluate_routes[], fb_compare_routes[],
    fb_bisect_routes[], fb_edits_routes[], fb_optimize_routes[], fb_reverse_routes[], fb_external_run_routes[], fb_run_routes[],
    fb_pin_routes[], fb_model_routes[], fb_version_routes[], fb_alias_routes[], fb_blob_routes[], fb_upload_routes[],
    fb_gc_routes[], fb_token_routes[], fb_audit_routes[], fb_job_routes[], fb_event_routes[], fb_picture_routes[],
    fb_ui_routes[], fb_webhook_routes[], fb_attestation_routes[];

/* fb_route.defer: makes the request a job, where that is preferred. */
bool fb_defer_request(const fb_request *request, fb_response *response, bool is_preferred); /* jobs.c */

#endif
