/* The service within this process: the store, what the routes share, and the HTTP layer. `foldback serve` listens with it; the
 * other verbs talk to it without a network. */
#ifndef FB_SERVICE_SERVICE_H
#define FB_SERVICE_SERVICE_H

#include "server/graphs/app.h"
#include "server/http/http.h"
#include "server/webhooks/webhooks.h"

typedef struct fb_service_config {
    fb_http_config http;
    fb_document_limits limits;                /* max_bytes is the HTTP layer's body_limit */
    const char *metrics_listen;               /* where /metrics is served without a token; NULL = nowhere */
    bool is_open;                             /* may listen beyond this machine without tokens */
    const struct fb_signing_key *signing_key; /* of attestations; the caller's; or NULL */
    const char *only_token;  /* a client with it may do everything, as the owner of the data folder may; other clients may do
                              * nothing, and the store's tokens are ignored. NULL = these count */
    const char *data;        /* the data folder; NULL: no store, for routes that need none */
    const char *database;    /* the URL of a server that has the rows; NULL: the one that the folder uses already, if any */
    fb_bucket_config bucket; /* where large blobs are instead */
    size_t cache_bytes;      /* for decoded graphs */
    fb_evaluation_bounds evaluation;
    fb_jobs_config jobs; /* without threads it does none; heartbeat_ms is the one below */
    fb_webhooks_config webhooks;
    unsigned heartbeat_ms;              /* of event streams */
    uint64_t gc_interval_ms;            /* between collections of garbage; 0 = only when asked */
    int64_t gc_grace_ms;                /* how long what nothing refers to stays */
    uint64_t keep_runs_days, keep_runs; /* retention of runs; 0 = for ever, all of them */
    uint64_t keep_audit_days;           /* of the audit's entries */
    bool requires_validation;           /* runs that are not validated are refused, and versions of such */
} fb_service_config;

fb_service_config fb_service_config_default(void);

typedef struct fb_service {
    fb_app app;
    struct fb_collector *collector; /* of garbage */
    fb_route *routes;               /* of `http` */
    fb_http_server *http, *metrics; /* `metrics` NULL without a listener of its own */
} fb_service;

/* FB_INVALID "bad-address" when it has none to listen on. Beyond this machine it listens for those who have a token alone:
 * FB_INVALID "no-tokens" when none exists yet. `app` is NULL
 * as long as the data folder does not exist. */
fb_status fb_service_check_reach(const fb_service_config *config, const fb_app *app, fb_error *error);
/* The most descriptors that the service has open at once, so that every connection that it takes is answered. */
typedef struct fb_service_descriptors {
    unsigned connections;
    unsigned store;   /* the database, for each of `readers` and the writer */
    unsigned readers; /* connections to the database that read */
    unsigned others;  /* of threads, and of the files that they have open */
} fb_service_descriptors;

fb_service_descriptors fb_service_count_descriptors(const fb_service_config *config);

/* Opens the store and starts the server. On failure nothing is left open. FB_BUSY "store-locked": another process holds the
 * data folder; FB_INVALID "no-tokens": it would listen beyond this machine for everybody; else the errors of fb_store_open and
 * fb_http_start. `service` stays where it is until it is stopped. */
fb_status fb_service_start(const fb_service_config *config, fb_service *service, fb_error *error);
/* As fb_http_stop; then closes the store. */
bool fb_service_stop(fb_service *service, unsigned timeout_ms);

#endif
