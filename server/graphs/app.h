/* State that the routes share: made by service.c before the first request, and there until the last one has been answered. */
#ifndef FB_GRAPHS_APP_H
#define FB_GRAPHS_APP_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/document/document.h"
#include "server/auth/auth.h"
#include "server/jobs/jobs.h"
#include "server/metrics/metrics.h"
#include "server/store/retention.h"
#include "server/store/store.h"

/* Limits of one evaluation of a graph, and of their number. */
typedef struct fb_evaluation_bounds {
    size_t memory; /* bytes of all its values at once */
    unsigned timeout_ms;
    unsigned most; /* at once */
} fb_evaluation_bounds;

/* A document that a command has read and verified, for the service in its process, which need not do so again. */
typedef struct fb_handed_graph {
    fb_buffer document; /* canonical, as a request has it */
    fb_graph *graph;    /* NULL: none, or it was taken */
} fb_handed_graph;

typedef struct fb_app {
    fb_store *store; /* NULL for a command that needs no data folder */
    fb_auth *auth;
    struct fb_cache *cache;
    struct fb_drawn_cache *drawn;
    fb_pass_counts *counts;
    struct fb_event_hub *events;
    fb_jobs *jobs;                /* NULL: it does none */
    struct fb_webhooks *webhooks; /* NULL: it delivers nothing */
    fb_document_limits limits;
    fb_evaluation_bounds evaluation;
    bool requires_validation; /* fb_service_config's */
    atomic_uint evaluations;  /* under way */
    pthread_mutex_t ready_mutex;
    bool is_ready;       /* all of this is there */
    int64_t gc_grace_ms; /* unless a request for gc says otherwise; so also the next */
    fb_retention retention;
    const char *only_token;                   /* fb_service_config's */
    const struct fb_signing_key *signing_key; /* fb_service_config's */
    fb_handed_graph *handed;                  /* by the one command that asks, one request at a time; or NULL */
    struct fb_http_server *http;              /* that requests come to, for those that come to the metrics' own listener */
} fb_app;

#endif
