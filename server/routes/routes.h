/* Every route of the service. */
#ifndef FB_ROUTES_ROUTES_H
#define FB_ROUTES_ROUTES_H

#include "server/http/http.h"

/* The table, for fb_http_start; the context of its handlers is a fb_app. */
extern const fb_route fb_routes[];
extern const size_t fb_route_count;
/* Those of the listener that only monitoring uses. */
extern const fb_route fb_metrics_routes[]; /* health.c */
extern const size_t fb_metrics_route_count;

fb_handler fb_get_index, fb_get_openapi, fb_get_docs;                                                   /* index.c */
fb_handler fb_get_live, fb_get_ready, fb_get_metrics;                                                   /* health.c */
fb_handler fb_get_passes, fb_get_pass;                                                                  /* passes.c */
fb_handler fb_post_transformation, fb_get_transformations, fb_get_transformation;                       /* stored_passes.c */
fb_handler fb_get_transformation_versions, fb_get_transformation_version;                               /* stored_passes.c */
fb_handler fb_put_layout, fb_get_layouts, fb_get_layout, fb_get_layout_versions, fb_get_layout_version; /* stored_passes.c */
fb_handler fb_post_checkpoint;                                                                          /* graphs.c */
fb_handler fb_get_archive;                                                                              /* archives.c */
fb_handler fb_post_graph, fb_get_graphs, fb_get_graph, fb_delete_graph, fb_get_code;                    /* graphs.c */
fb_handler fb_post_run;                                                                                 /* external.c */
fb_handler fb_get_diff, fb_get_run_edits;                                                               /* edits.c */
fb_handler fb_get_nodes;                                                                                /* nodes.c */
fb_handler fb_get_lineage, fb_get_runs, fb_get_run;                                                     /* runs.c */
fb_handler fb_post_optimize;                                                                            /* optimize.c */
fb_handler fb_post_reverse_run, fb_post_rollback_run, fb_post_reverse;                                  /* reverse.c */
fb_handler fb_get_models, fb_get_model;                                                                 /* models.c */
fb_handler fb_get_versions, fb_put_version, fb_get_version, fb_get_version_graph, fb_get_version_archive,
    fb_delete_version;                                                                      /* versions.c */
fb_handler fb_get_aliases, fb_put_alias, fb_get_alias, fb_delete_alias;                     /* aliases.c */
fb_handler fb_get_alias_graph, fb_get_alias_archive, fb_get_alias_history;                  /* aliases.c */
fb_handler fb_post_token, fb_get_tokens, fb_get_token, fb_delete_token;                     /* tokens.c */
fb_handler fb_get_audit;                                                                    /* audit.c */
fb_handler fb_get_events;                                                                   /* events.c */
fb_handler fb_post_alias_rollback;                                                          /* aliases.c */
fb_handler fb_get_blobs, fb_put_blob, fb_get_blob, fb_post_missing_blobs;                   /* blobs.c */
fb_handler fb_post_upload, fb_get_upload, fb_patch_upload, fb_put_upload, fb_delete_upload; /* uploads.c */
fb_handler fb_post_gc;                                                                      /* gc.c */
fb_handler fb_get_pin, fb_put_pin, fb_delete_pin;                                           /* pins.c */
fb_handler fb_get_weights, fb_post_materialize;                                             /* weights.c */
fb_handler fb_post_evaluate, fb_post_compare;                                               /* evaluate.c, compare.c */
fb_handler fb_post_job, fb_get_jobs, fb_get_job, fb_get_job_result, fb_get_job_events, fb_delete_job; /* jobs.c */
fb_handler fb_get_tensors, fb_get_tensor;                                                             /* tensors.c */

/* fb_route.defer: makes the request a job. */
bool fb_defer_request(const fb_request *request, fb_response *response); /* jobs.c */

extern const fb_sink fb_blob_sink, fb_new_upload_sink, fb_part_sink, fb_last_part_sink; /* blobs.c, uploads.c */

#endif
