#include "server/service/service.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/sha256.h"
#include "server/events/event_hub.h"
#include "server/graphs/drawn.h"
#include "server/graphs/graphs.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"
#include "server/store/blobs.h"

/* ---- collects garbage every so often, on a thread of its own: old runs, then blobs --------------------------------------- */

#define JUMP_MS 3600000 /* of the clock: more than it is ever set right by */

typedef struct fb_collector {
    const fb_app *app;
    uint64_t interval_ms;
    int64_t started_ms; /* what the clock said when the machine's uptime was 0 */
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    atomic_bool is_stopping;
} fb_collector;

/* With the mutex. False when it is to stop. */
static bool wait_for_next(fb_collector *collector) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t nanoseconds = (uint64_t)until.tv_nsec + collector->interval_ms % 1000 * 1000000;
    until.tv_sec += (time_t)(collector->interval_ms / 1000 + nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    int failure = 0;
    while (!collector->is_stopping && !failure)
        failure = pthread_cond_timedwait(&collector->stopped, &collector->mutex, &until);
    return !collector->is_stopping;
}

/* The clock's time, less the time that has passed since the machine was started: it changes when the clock is set. */
static int64_t clock_start_ms(void) {
    struct timespec clock, uptime;
    clock_gettime(CLOCK_REALTIME, &clock);
    clock_gettime(CLOCK_BOOTTIME, &uptime);
    return (int64_t)(clock.tv_sec - uptime.tv_sec) * 1000 + (clock.tv_nsec - uptime.tv_nsec) / 1000000;
}

static fb_status check(void *context, fb_error *error) {
    fb_collector *collector = context;
    return atomic_load(&collector->is_stopping) ? fb_fail(error, FB_BUSY, "stopping", NULL, "the service is stopping") : FB_OK;
}

static void complain(const char *what, const fb_error *error) {
    if (strcmp(error->code, "stopping") != 0) fprintf(stderr, "foldback: %s: %s\n", what, error->message);
}

static void collect(fb_collector *collector) {
    const fb_app *app = collector->app;
    fb_error error = {0};
    fb_garbage found;
    fb_removed removed;
    fb_retention limits = app->retention;
    const fb_watch watch = {.context = collector, .check = check};
    if (llabs(clock_start_ms() - collector->started_ms) > JUMP_MS) limits.age_ms = limits.audit_age_ms = 0;
    if (fb_retain(app, &limits, false, NULL, &watch, &removed, &error)) complain("retention", &error);
    error = (fb_error){0};
    if (fb_store_collect(app->store, app->gc_grace_ms, false, NULL, &watch, &found, &error)) complain("gc", &error);
}

static void *work(void *argument) {
    fb_collector *collector = argument;
    pthread_mutex_lock(&collector->mutex);
    while (wait_for_next(collector)) {
        pthread_mutex_unlock(&collector->mutex);
        if (fb_store_leads(collector->app->store)) collect(collector);
        pthread_mutex_lock(&collector->mutex);
    }
    pthread_mutex_unlock(&collector->mutex);
    return NULL;
}

static void free_collector(fb_collector *collector) {
    pthread_cond_destroy(&collector->stopped);
    pthread_mutex_destroy(&collector->mutex);
    free(collector);
}

/* The first time when `interval_ms` have passed. It reports errors on stderr, and tries again next time. When the clock jumped
 * since the start, runs are not removed for their age: they may look older than they are. */
static fb_status start_collector(const fb_app *app, uint64_t interval_ms, fb_collector **out, fb_error *error) {
    fb_collector *collector = calloc(1, sizeof *collector);
    if (!collector) return fb_fail_memory(error);
    collector->app = app;
    collector->started_ms = clock_start_ms();
    collector->interval_ms = interval_ms;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&collector->mutex, NULL);
    pthread_cond_init(&collector->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failure = pthread_create(&collector->thread, NULL, work, collector);
    if (failure) {
        free_collector(collector);
        return fb_fail(error, FB_IO, "no-thread", NULL, "cannot start a thread: %s", strerror(failure));
    }
    *out = collector;
    return FB_OK;
}

/* Ends a collection that runs, and waits for that. NULL does nothing. */
static void stop_collector(fb_collector *collector) {
    if (!collector) return;
    pthread_mutex_lock(&collector->mutex);
    collector->is_stopping = true;
    pthread_cond_signal(&collector->stopped);
    pthread_mutex_unlock(&collector->mutex);
    pthread_join(collector->thread, NULL);
    free_collector(collector);
}

/* ---- the service --------------------------------------------------------------------------------------------------------- */

fb_service_config fb_service_config_default(void) {
    return (fb_service_config){.http = fb_http_config_default(),
                               .data = "./.foldback",
                               .cache_bytes = (size_t)512 << 20,
                               .evaluation = {.memory = (size_t)1 << 30, .timeout_ms = 60000, .most = 8},
                               .webhooks = {.timeout_ms = 15000, .first_pause_ms = 5000, .lifetime_ms = 86400000},
                               .jobs = {.limit = 1000, .timeout_ms = 3600000, .lifetime_ms = 86400000},
                               .heartbeat_ms = 15000,
                               .gc_grace_ms = 86400000};
}

#define MOST_READERS 8U

static unsigned readers_of(const fb_service_config *config) {
    return config->http.worker_threads < MOST_READERS ? config->http.worker_threads : MOST_READERS;
}

/* Something happened in the store. */
static void tell(void *context, unsigned what) {
    fb_app *app = context;
    if (what & (FB_ALIAS_CHANGED | FB_VERSION_CREATED | FB_RUN_FINISHED)) fb_event_hub_notify(app->events);
    if (app->webhooks) fb_webhooks_notify(app->webhooks);
}

/* Jobs look by themselves. */
static void others_changed(void *context) {
    fb_app *app = context;
    pthread_mutex_lock(&app->ready_mutex);
    if (app->is_ready) fb_event_hub_notify(app->events);
    if (app->is_ready) fb_auth_refresh(app->auth);
    if (app->is_ready && app->webhooks) fb_webhooks_notify(app->webhooks);
    pthread_mutex_unlock(&app->ready_mutex);
}

static void set_ready(fb_app *app, bool is_ready) {
    pthread_mutex_lock(&app->ready_mutex);
    app->is_ready = is_ready;
    pthread_mutex_unlock(&app->ready_mutex);
}

static fb_status open_app(const fb_service_config *config, fb_app *app, fb_error *error) {
    *app = (fb_app){.ready_mutex = PTHREAD_MUTEX_INITIALIZER,
                    .limits = config->limits,
                    .evaluation = config->evaluation,
                    .requires_validation = config->requires_validation,
                    .gc_grace_ms = config->gc_grace_ms,
                    .retention = {.age_ms = (int64_t)config->keep_runs_days * 86400000,
                                  .count = config->keep_runs,
                                  .audit_age_ms = (int64_t)config->keep_audit_days * 86400000},
                    .cache = fb_cache_new(config->cache_bytes),
                    .drawn = fb_drawn_cache_new(),
                    .counts = fb_pass_counts_new(),
                    .events = fb_event_hub_new(config->heartbeat_ms)};
    app->limits.max_bytes = config->http.body_limit;
    if (!app->cache || !app->drawn || !app->counts || !app->events) return fb_fail_memory(error);
    if (!config->data) return FB_OK;
    fb_store_config store = {.database = config->database,
                             .readers = readers_of(config),
                             .bucket = config->bucket,
                             .happened = tell,
                             .happened_context = app,
                             .others_changed = others_changed,
                             .others_context = app};
    fb_status status = fb_store_open(config->data, &store, &app->store, error);
    if (!status) status = fb_auth_open(app->store, &app->auth, error);
    return status ? status : fb_event_hub_start(app->events, app->store, error);
}

/* Before requests come; its threads start when they can be made. */
static fb_status open_jobs(const fb_service_config *config, fb_app *app, fb_error *error) {
    fb_jobs_config jobs = config->jobs;
    jobs.heartbeat_ms = config->heartbeat_ms;
    return jobs.threads && app->store ? fb_jobs_new(&jobs, app->store, &app->jobs, error) : FB_OK;
}

static void close_service(fb_service *service) {
    fb_app *app = &service->app;
    stop_collector(service->collector);
    fb_webhooks_stop(app->webhooks);
    fb_event_hub_free(app->events);
    fb_jobs_free(app->jobs);
    fb_auth_close(app->auth);
    fb_store_close(app->store); /* checkpoints */
    fb_drawn_cache_free(app->drawn);
    fb_cache_free(app->cache);
    fb_pass_counts_free(app->counts);
    free(service->routes);
}

/* ---- fb_doorkeeper ------------------------------------------------------------------------------------------------------ */

static fb_grant admit(void *context, const char *token, fb_scope needed, char principal[FB_PRINCIPAL_MAX + 1]) {
    const fb_app *app = context;
    return fb_auth_admit(app->auth, token, needed, principal);
}

static bool still_admits(void *context, const char *principal, fb_scope needed) {
    const fb_app *app = context;
    return fb_auth_still_admits(app->auth, principal, needed);
}

static bool admits_all(void *context) {
    const fb_app *app = context;
    return !fb_auth_is_needed(app->auth);
}

/* ---- start and stop ----------------------------------------------------------------------------------------------------- */

fb_status fb_service_check_reach(const fb_service_config *config, const fb_app *app, fb_error *error) {
    const char *listen = config->http.listen;
    fb_status status = listen ? fb_http_check_address(listen, error) : FB_OK;
    if (!status && config->metrics_listen && fb_http_is_path(config->metrics_listen))
        status = fb_fail(error, FB_INVALID, "bad-address", NULL, "--metrics-listen %s: Prometheus needs an address with a port",
                         config->metrics_listen);
    if (status || !listen || config->is_open || fb_http_is_loopback(listen) ||
        (app && app->auth && fb_auth_is_needed(app->auth)))
        return status;
    return fb_fail(error, FB_INVALID, "no-tokens", NULL,
                   "%s is not a loopback address; to listen beyond this machine make a token first (foldback token "
                   "create --scope admin), or say --insecure-listen, knowing that everybody may do everything",
                   listen);
}

#define METRICS_CONNECTIONS 256

fb_service_descriptors fb_service_count_descriptors(const fb_service_config *config) {
    const unsigned of_store = 3 /* lock, folder, shared memory */, of_database = 2 /* the file and its log */;
    const unsigned
        of_worker = config->bucket.url ? 2 + 5 /* connections to it, and a file of the cache */ : 2 /* a file and its folder */,
        spare = 8 /* /proc for /metrics, libraries */, of_webhooks = config->webhooks.is_on ? FB_WEBHOOK_DESCRIPTORS : 0,
        of_metrics = config->metrics_listen ? METRICS_CONNECTIONS : 0;
    unsigned readers = readers_of(config), workers = config->http.worker_threads + config->jobs.threads;
    return (fb_service_descriptors){.connections = config->http.connection_limit,
                                    .store = of_store + of_database * (readers + 1),
                                    .readers = readers,
                                    .others = fb_http_descriptors(&config->http) + of_worker * workers + of_webhooks +
                                              of_metrics + spare};
}

/* One person at this machine is served, by a secret that lives as long as the service. */
static fb_grant admit_only(void *context, const char *token, fb_scope needed, char principal[FB_PRINCIPAL_MAX + 1]) {
    (void)needed;
    const fb_app *app = context;
    if (!token) return FB_TOKEN_MISSING;
    size_t size = strlen(app->only_token);
    if (strlen(token) != size || CRYPTO_memcmp(token, app->only_token, size) != 0) return FB_TOKEN_UNKNOWN;
    fb_copy_text(principal, FB_PRINCIPAL_MAX + 1, FB_LOCAL);
    return FB_GRANTED;
}

static bool admits_on(void *context, const char *principal, fb_scope needed) {
    (void)context, (void)needed;
    return !strcmp(principal, FB_LOCAL);
}

static fb_status start_http(const fb_service_config *config, fb_service *service, fb_error *error) {
    fb_http_config http = config->http;
    if (service->app.auth)
        http.doorkeeper = (fb_doorkeeper){.admit = admit, .still_admits = still_admits, .admits_all = admits_all};
    if (config->only_token) http.doorkeeper = (fb_doorkeeper){.admit = admit_only, .still_admits = admits_on};
    service->app.only_token = config->only_token;
    service->app.signing_key = config->signing_key;
    http.allows_addresses = config->is_open;
    http.expand = fb_expand_id;
    http.explain = fb_suggest_name;
    size_t count;
    service->routes = fb_routes_join(&count);
    if (!service->routes) return fb_fail_memory(error);
    return fb_http_start(&http, service->routes, count, &service->app, &service->http, error);
}

/* Small, so that it takes nothing from the service, and answers also when all of that is busy. */
static fb_status start_metrics(const fb_service_config *config, fb_service *service, fb_error *error) {
    fb_http_config http = fb_http_config_default();
    http.listen = config->metrics_listen;
    http.io_threads = 1;
    http.worker_threads = 2;
    http.queue_limit = 16;
    http.connection_limit = METRICS_CONNECTIONS;
    http.header_timeout_ms = 1000; /* who asks is a program: one that sends half a request holds no place for long */
    http.idle_timeout_ms = http.body_timeout_ms = 5000;
    http.request_timeout_ms = 10000;
    http.body_limit = http.body_memory_limit = 1024;
    http.access_log = NULL;
    service->app.http = service->http;
    return fb_http_start(&http, fb_metrics_routes, fb_metrics_route_count, &service->app, &service->metrics, error);
}

fb_status fb_service_start(const fb_service_config *config, fb_service *service, fb_error *error) {
    *service = (fb_service){0};
    fb_status status = open_app(config, &service->app, error);
    char unused[FB_ID_LENGTH + 1]; /* libcrypto 3.0 crashes when memory runs out while it sets itself up: so now, not later */
    if (!status && !fb_sha256_id("", 0, unused)) status = fb_fail_memory(error);
    if (!status && config->gc_interval_ms)
        status = start_collector(&service->app, config->gc_interval_ms, &service->collector, error);
    if (!status) status = fb_service_check_reach(config, &service->app, error);
    if (!status) status = open_jobs(config, &service->app, error);
    if (!status && config->webhooks.is_on)
        status = fb_webhooks_start(&config->webhooks, service->app.store, &service->app.webhooks, error);
    if (!status) status = start_http(config, service, error);
    if (!status && service->app.jobs) status = fb_jobs_start(service->app.jobs, service->http, error);
    if (!status && config->metrics_listen) status = start_metrics(config, service, error);
    if (!status) set_ready(&service->app, true);
    if (status) {
        fb_jobs_stop(service->app.jobs);
        fb_http_stop(service->http, 0);
        close_service(service);
    }
    return status;
}

bool fb_service_stop(fb_service *service, unsigned timeout_ms) {
    set_ready(&service->app, false);
    fb_http_stop(service->metrics, 1000);
    fb_jobs_stop(service->app.jobs);
    bool is_clean = fb_http_stop(service->http, timeout_ms);
    close_service(service);
    return is_clean;
}
