#include "server/routes/routes.h"

#include "server/routes/run_request.h"

#define VERSIONS "/v1/models/{model}/versions"
#define ALIASES "/v1/models/{model}/aliases"

const fb_route fb_routes[] = {
    {.method = "GET", .pattern = "/", .handler = fb_get_index, .query = "", .is_inline = true},
    {.method = "GET",
     .pattern = "/openapi.yaml",
     .handler = fb_get_openapi,
     .query = "",
     .produces = "application/yaml",
     .is_inline = true},
    {.method = "GET", .pattern = "/livez", .handler = fb_get_live, .is_inline = true},
    {.method = "GET", .pattern = "/readyz", .handler = fb_get_ready},
    {.method = "GET", .pattern = "/metrics", .handler = fb_get_metrics, .produces = "text/plain"},

    {.method = "GET", .pattern = "/v1/passes", .handler = fb_get_passes, .query = ""},
    {.method = "GET", .pattern = "/v1/passes/{name}", .handler = fb_get_pass, .query = ""},

    {.method = "POST", .pattern = "/v1/graphs", .handler = fb_post_graph, .body = FB_BODY_REQUIRED, .query = ""},
    {.method = "GET", .pattern = "/v1/graphs", .handler = fb_get_graphs, .query = "structure,name,limit,page_token"},
    {.method = "GET", .pattern = "/v1/graphs/{id}", .handler = fb_get_graph, .query = ""},
    {.method = "DELETE", .pattern = "/v1/graphs/{id}", .handler = fb_delete_graph, .query = ""},
    {.method = "GET", .pattern = "/v1/graphs/{id}/code", .handler = fb_get_code, .query = "", .produces = "text/x-python"},
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/nodes",
     .handler = fb_get_nodes,
     .query = "signature,pass,op,target,limit,page_token"},
    {.method = "GET", .pattern = "/v1/graphs/{id}/diff", .handler = fb_get_diff, .query = "base"},
    {.method = "GET", .pattern = "/v1/graphs/{id}/lineage", .handler = fb_get_lineage, .query = "limit"},

    {.method = "POST",
     .pattern = "/v1/optimize",
     .handler = fb_post_optimize,
     .body = FB_BODY_REQUIRED,
     .query = FB_OPTIMIZE_QUERY},
    {.method = "POST", .pattern = "/v1/reverse", .handler = fb_post_reverse, .body = FB_BODY_REQUIRED, .query = FB_RUN_QUERY},

    {.method = "POST", .pattern = "/v1/runs", .handler = fb_post_run, .body = FB_BODY_REQUIRED, .query = FB_RECORD_QUERY},
    {.method = "GET",
     .pattern = "/v1/runs",
     .handler = fb_get_runs,
     .query = "source,result,of_run,kind,pass,signature,label,limit,page_token"},
    {.method = "GET", .pattern = "/v1/runs/{run}", .handler = fb_get_run, .query = "include"},
    {.method = "GET", .pattern = "/v1/runs/{run}/edits", .handler = fb_get_run_edits, .query = ""},
    {.method = "POST",
     .pattern = "/v1/runs/{run}/reverse",
     .handler = fb_post_reverse_run,
     .body = FB_BODY_OPTIONAL,
     .query = FB_RUN_QUERY},
    {.method = "POST",
     .pattern = "/v1/runs/{run}/rollback",
     .handler = fb_post_rollback_run,
     .body = FB_BODY_OPTIONAL,
     .query = FB_RUN_QUERY},

    {.method = "GET", .pattern = "/v1/models", .handler = fb_get_models, .query = "limit,page_token"},
    {.method = "GET", .pattern = "/v1/models/{model}", .handler = fb_get_model, .query = ""},
    {.method = "GET", .pattern = VERSIONS, .handler = fb_get_versions, .query = "limit,page_token"},
    {.method = "PUT", .pattern = VERSIONS "/{version}", .handler = fb_put_version, .body = FB_BODY_REQUIRED, .query = ""},
    {.method = "GET", .pattern = VERSIONS "/{version}", .handler = fb_get_version, .query = ""},
    {.method = "DELETE", .pattern = VERSIONS "/{version}", .handler = fb_delete_version, .query = ""},
    {.method = "GET", .pattern = VERSIONS "/{version}/graph", .handler = fb_get_version_graph, .query = ""},
    {.method = "GET", .pattern = ALIASES, .handler = fb_get_aliases, .query = "limit,page_token"},
    {.method = "PUT", .pattern = ALIASES "/{alias}", .handler = fb_put_alias, .body = FB_BODY_REQUIRED, .query = ""},
    {.method = "GET", .pattern = ALIASES "/{alias}", .handler = fb_get_alias, .query = ""},
    {.method = "DELETE", .pattern = ALIASES "/{alias}", .handler = fb_delete_alias, .query = ""},
    {.method = "GET", .pattern = ALIASES "/{alias}/graph", .handler = fb_get_alias_graph, .query = ""},
    {.method = "GET", .pattern = ALIASES "/{alias}/history", .handler = fb_get_alias_history, .query = "limit,page_token"},
    {.method = "POST",
     .pattern = ALIASES "/{alias}/rollback",
     .handler = fb_post_alias_rollback,
     .body = FB_BODY_OPTIONAL,
     .query = ""},
};

const size_t fb_route_count = sizeof fb_routes / sizeof *fb_routes;
