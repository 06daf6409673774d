
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/weights/blas.h"
#include "server/cli/cli.h"
#include "server/cli/sandbox.h"
#include "server/libraries/curl.h"
#include "server/libraries/pq.h"
#include "server/metrics/metrics.h"
#include "server/provenance/provenance.h"
#include "server/service/service.h"

/* The values of the options of `foldback serve`. */

typedef struct serve_values {
    fb_service_config service;             /* without the access log, which is opened later */
    const char *access_log;                /* a file, "-" for stderr, or "off" */
    const char *sandbox;                   /* "auto", "on" or "off" */
    const char *blobs_redirect;            /* "on" or "off" */
    const char *tls_certificate, *tls_key; /* files, or NULL */
    const char *signing_key;               /* a file, or NULL */
    fb_text_list allowed_hosts;
    fb_text_list cors_origins;
    fb_text_list told_networks;
    unsigned stop_timeout_ms;
    bool wants_help;
} serve_values;

#define AT(member) FB_OPTION_AT(serve_values, member)

static const fb_option serve_options[] = {
    {"listen", 0, "ADDRESS:PORT", "where to listen, or unix:PATH; port 0 picks a free one (127.0.0.1:8080)", FB_OPTION_TEXT,
     AT(service.http.listen), 0, 0},
    {"metrics-listen", 0, "ADDRESS:PORT", "serve /metrics, /livez and /readyz there without a token (off)", FB_OPTION_TEXT,
     AT(service.metrics_listen), 0, 0},
    {"insecure-listen", 0, NULL, "allow an address beyond this machine even without tokens", FB_OPTION_FLAG,
     AT(service.is_open), 0, 0},
    {"allow-host", 0, "NAME", "without tokens, also answer to this name in Host, not only to localhost; may be repeated",
     FB_OPTION_LIST, AT(allowed_hosts), 0, 0},
    {"cors-origin", 0, "ORIGIN", "let pages of this origin use the service: https://registry.example; may be repeated",
     FB_OPTION_LIST, AT(cors_origins), 0, 0},
    {"tls-certificate", 0, "FILE", "speak TLS with this certificate, or chain, in PEM", FB_OPTION_TEXT, AT(tls_certificate), 0,
     0},
    {"tls-key", 0, "FILE", "its private key, in PEM", FB_OPTION_TEXT, AT(tls_key), 0, 0},
    {"rate-limit", 0, "N", "requests a second of one token, or without one of one address; 0 = unlimited (0)", FB_OPTION_COUNT,
     AT(service.http.rate_limit), 0, 1000000},
    {"data", 0, "DIR", "the data folder; also $FOLDBACK_DATA (./.foldback)", FB_OPTION_TEXT, AT(service.data), 0, 0},
    {"store", 0, "postgresql://USER@HOST/DB", "keep everything but blobs in this database; see docs/scale.md (the data folder)",
     FB_OPTION_TEXT, AT(service.database), 0, 0},
    {"blobs", 0, "s3://BUCKET/PREFIX", "keep large blobs in this bucket; see docs/scale.md (the data folder)", FB_OPTION_TEXT,
     AT(service.bucket.url), 0, 0},
    {"blobs-endpoint", 0, "URL", "where the bucket is (https://s3.REGION.amazonaws.com)", FB_OPTION_TEXT,
     AT(service.bucket.endpoint), 0, 0},
    {"blobs-public-endpoint", 0, "URL", "the same as clients reach it, for --blobs-redirect (the endpoint)", FB_OPTION_TEXT,
     AT(service.bucket.public_endpoint), 0, 0},
    {"blobs-region", 0, "REGION", "the bucket's region; also $AWS_REGION (us-east-1)", FB_OPTION_TEXT,
     AT(service.bucket.region), 0, 0},
    {"blobs-redirect", 0, "on|off", "send who downloads a blob to the bucket, with a signed URL (off)", FB_OPTION_TEXT,
     AT(blobs_redirect), 0, 0},
    {"blobs-cache", 0, "BYTES", "fetched blobs that stay in the data folder (16G)", FB_OPTION_BYTES,
     AT(service.bucket.cache_bytes), 1, UINT64_MAX},
    {"access-log", 0, "FILE|-|off", "JSON lines, one a request; - is standard error (-)", FB_OPTION_TEXT, AT(access_log), 0, 0},
    {"max-body", 0, "BYTES", "largest body after decompression (1G)", FB_OPTION_BYTES, AT(service.http.body_limit), 1024,
     (uint64_t)4 << 30},
    {"max-body-ratio", 0, "N", "decompressed to compressed size, beyond the first 16M; 0 = unlimited (200)", FB_OPTION_COUNT,
     AT(service.http.body_ratio), 0, 1 << 20},
    {"max-body-memory", 0, "BYTES", "all bodies held at once (4G)", FB_OPTION_BYTES, AT(service.http.body_memory_limit), 1024,
     UINT64_MAX},
    {"max-nodes", 0, "N", "most nodes of a graph (2000000)", FB_OPTION_COUNT, AT(service.limits.max_nodes), 1, UINT32_MAX},
    {"max-nesting", 0, "N", "arrays and objects open at once in a graph (64)", FB_OPTION_COUNT, AT(service.limits.max_nesting),
     8, 1000},
    {"workers", 0, "N", "requests at work at once (64)", FB_OPTION_COUNT, AT(service.http.worker_threads), 1, 1024},
    {"io-threads", 0, "N", "threads that read and write sockets (2)", FB_OPTION_COUNT, AT(service.http.io_threads), 1, 64},
    {"max-queue", 0, "N", "requests that wait for a worker (256)", FB_OPTION_COUNT, AT(service.http.queue_limit), 1, 1 << 20},
    {"max-connections", 0, "N", "open connections (1024)", FB_OPTION_COUNT, AT(service.http.connection_limit), 1, 1 << 20},
    {"max-connections-per-address", 0, "N", "of one address; 0 = unlimited (half of --max-connections)", FB_OPTION_COUNT,
     AT(service.http.connection_limit_per_address), 0, 1 << 20},
    {"max-streams", 0, "N", "open event streams, at most half of the connections (256)", FB_OPTION_COUNT,
     AT(service.http.stream_limit), 0, 1 << 20},
    {"webhooks", 0, NULL, "deliver to webhooks: POST /v1/webhooks makes them (off)", FB_OPTION_FLAG, AT(service.webhooks.is_on),
     0, 0},
    {"webhook-allow", 0, "CIDR", "also deliver to this private network, such as 10.0.0.0/8; may be repeated", FB_OPTION_LIST,
     AT(told_networks), 0, 0},
    {"webhook-allow-http", 0, NULL, "allow http:// in the URLs of webhooks, not only https://", FB_OPTION_FLAG,
     AT(service.webhooks.allows_http), 0, 0},
    {"webhook-ca-file", 0, "FILE", "trust these certificates (PEM) of receivers, not the system's", FB_OPTION_TEXT,
     AT(service.webhooks.ca_file), 0, 0},
    {"webhook-timeout", 0, "SECONDS", "for one attempt to deliver (15)", FB_OPTION_SECONDS, AT(service.webhooks.timeout_ms), 1,
     600},
    {"webhook-pause", 0, "SECONDS", "before the second attempt; doubles each time, up to an hour (5)", FB_OPTION_SECONDS,
     AT(service.webhooks.first_pause_ms), 1, 3600},
    {"webhook-lifetime", 0, "SECONDS", "how long a message is tried; then it is parked (86400)", FB_OPTION_SECONDS,
     AT(service.webhooks.lifetime_ms), 1, 31536000},
    {"signing-key", 0, "FILE", "sign attestations of runs with this key, which foldback key create makes", FB_OPTION_TEXT,
     AT(signing_key), 0, 0},
    {"heartbeat", 0, "SECONDS", "between signs of life on an event stream (15)", FB_OPTION_SECONDS, AT(service.heartbeat_ms), 1,
     86400},
    {"cache", 0, "BYTES", "memory for decoded graphs (512M)", FB_OPTION_BYTES, AT(service.cache_bytes), 0, UINT64_MAX},
    {"evaluation-memory", 0, "BYTES", "what one evaluation of a graph may hold at once (1G)", FB_OPTION_BYTES,
     AT(service.evaluation.memory), 1024, UINT64_MAX},
    {"evaluation-timeout", 0, "SECONDS", "how long one evaluation may take (60)", FB_OPTION_SECONDS,
     AT(service.evaluation.timeout_ms), 1, 86400},
    {"max-evaluations", 0, "N", "graphs that are evaluated at once (8)", FB_OPTION_COUNT, AT(service.evaluation.most), 1, 1024},
    {"require-validation", 0, NULL, "refuse runs that are not validated, and versions made by such", FB_OPTION_FLAG,
     AT(service.requires_validation), 0, 0},
    {"header-timeout", 0, "SECONDS", "to the end of a request's headers (10)", FB_OPTION_SECONDS,
     AT(service.http.header_timeout_ms), 1, 86400},
    {"idle-timeout", 0, "SECONDS", "between requests on a connection (60)", FB_OPTION_SECONDS, AT(service.http.idle_timeout_ms),
     1, 86400},
    {"body-timeout", 0, "SECONDS", "for a body, before the minimum rate counts (30)", FB_OPTION_SECONDS,
     AT(service.http.body_timeout_ms), 1, 86400},
    {"minimum-rate", 0, "BYTES", "of a body or an answer, per second (64K)", FB_OPTION_BYTES, AT(service.http.minimum_rate), 1,
     1 << 30},
    {"request-timeout", 0, "SECONDS", "for the work of one request, once it is whole (120)", FB_OPTION_SECONDS,
     AT(service.http.request_timeout_ms), 1, 86400},
    {"job-threads", 0, "N", "jobs at work at once (2)", FB_OPTION_COUNT, AT(service.jobs.threads), 1, 256},
    {"job-limit", 0, "N", "jobs that wait (1000)", FB_OPTION_COUNT, AT(service.jobs.limit), 1, 1000000},
    {"job-timeout", 0, "SECONDS", "for the work of one job (3600)", FB_OPTION_SECONDS, AT(service.jobs.timeout_ms), 1, 604800},
    {"job-lifetime", 0, "SECONDS", "how long finished jobs are kept (86400)", FB_OPTION_SECONDS, AT(service.jobs.lifetime_ms),
     1, 315360000},
    {"stop-timeout", 0, "SECONDS", "for running requests when the service is stopped (30)", FB_OPTION_SECONDS,
     AT(stop_timeout_ms), 0, 86400},
    {"gc-interval", 0, "SECONDS", "between collections of garbage; 0 is never (3600)", FB_OPTION_SECONDS,
     AT(service.gc_interval_ms), 0, 315360000},
    {"gc-grace", 0, "SECONDS", "how long to keep blobs that no graph refers to, and uploads that nobody continues (86400)",
     FB_OPTION_SECONDS, AT(service.gc_grace_ms), 0, 315360000},
    {"keep-runs-days", 0, "DAYS", "remove older runs that nothing needs; 0 is never (0)", FB_OPTION_COUNT,
     AT(service.keep_runs_days), 0, 36500},
    {"keep-runs", 0, "N", "remove runs beyond the newest N that nothing needs; 0 is never (0)", FB_OPTION_COUNT,
     AT(service.keep_runs), 0, UINT32_MAX},
    {"keep-audit-days", 0, "DAYS", "remove older entries of the audit; 0 is never (0)", FB_OPTION_COUNT,
     AT(service.keep_audit_days), 0, 36500},
    {"sandbox", 0, "auto|on|off",
     "restrict the service with Landlock and seccomp: as far as this machine can, fully or not start, or not at all (auto)",
     FB_OPTION_TEXT, AT(sandbox), 0, 0},
    {"help", 'h', NULL, "this text", FB_OPTION_FLAG, AT(wants_help), 0, 0},
    {0},
};

static serve_values serve_values_default(void) {
    serve_values values = {.service = fb_service_config_default(),
                           .access_log = "-",
                           .sandbox = "auto",
                           .blobs_redirect = "off",
                           .stop_timeout_ms = 30000};
    values.service.database = fb_variable("FOLDBACK_STORE");
    values.service.gc_interval_ms = 3600000;
    values.service.jobs.threads = 2;
    return values;
}

/* ---- signals ------------------------------------------------------------------------------------------------------------ */

/* Every thread inherits this: the signals wait until wait_for_signal takes them. */
static sigset_t block_signals(void) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    return stop;
}

/* Checks that the service works: every I/O thread answers a request, and the store reads and writes. */
static fb_status check_health(fb_service *service, unsigned timeout_ms, fb_error *error) {
    fb_status status = fb_http_probe(service->http, "/livez", timeout_ms, error);
    return status ? status : fb_store_health(service->app.store, error);
}

/* ---- systemd, by sd_notify(3) and sd_watchdog_enabled(3): libsystemd would load six libraries more at every start ---- */

/* Tells the service manager a state, such as "READY=1". Without one it does nothing. */
static void notify_systemd(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    if (!length || length >= sizeof address.sun_path) return;
    memcpy(address.sun_path, path, length);
    if (*path == '@') address.sun_path[0] = '\0'; /* an abstract name, which no zero ends */
    int socket_of_manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_of_manager < 0) return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*path != '@'));
    sendto(socket_of_manager, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address, size);
    close(socket_of_manager);
}

/* The interval in microseconds within which WATCHDOG=1 must be sent again and again; 0 = it is not expected. */
static uint64_t watchdog_interval(void) {
    const char *interval = getenv("WATCHDOG_USEC"), *process = getenv("WATCHDOG_PID");
    if (!interval || (process && strtoull(process, NULL, 10) != (unsigned long long)getpid())) return 0;
    char *end = NULL;
    unsigned long long microseconds = strtoull(interval, &end, 10);
    return *interval >= '0' && *interval <= '9' && !*end && microseconds < UINT64_MAX ? microseconds : 0;
}

#define MOST_PATIENCE_MS 5000U /* with one request of the watchdog */
#define TRIM_INTERVAL_MS 60000
#define RETRY_MS 1000U /* after one that failed; it takes part of the time until the process is ended */

typedef struct watchdog {
    unsigned interval_ms, patience_ms; /* 0 = there is none */
    bool was_well;
} watchdog;

static watchdog find_watchdog(void) {
    uint64_t microseconds = watchdog_interval();
    if (!microseconds) return (watchdog){0};
    uint64_t half = microseconds / 2000;
    unsigned interval = half > 86400000 ? 86400000 : half < 1 ? 1 : (unsigned)half;
    unsigned patience = interval / 2 < MOST_PATIENCE_MS ? interval / 2 + 1 : MOST_PATIENCE_MS;
    return (watchdog){.interval_ms = interval, .patience_ms = patience, .was_well = true};
}

/* Tells systemd's watchdog that the service works, when it does. Returns in how many milliseconds to notify it again. */
static unsigned feed(watchdog *dog, fb_service *service) {
    fb_error error = {0};
    bool is_well = !check_health(service, dog->patience_ms, &error);
    if (is_well) notify_systemd("WATCHDOG=1");
    else if (dog->was_well) fb_complain(0, "the watchdog is not told that the service works: %s", error.message);
    dog->was_well = is_well;
    return is_well || dog->interval_ms < RETRY_MS ? dog->interval_ms : RETRY_MS;
}

/* Looks after the service until a signal comes. Afterwards the next one ends the process as signals do by default: what was
 * answered is on disk already. */
static void wait_for_signal(const sigset_t *stop, fb_service *service) {
    watchdog dog = find_watchdog();
    int64_t next_trim = fb_monotonic_ms() + TRIM_INTERVAL_MS,
            next_feed = dog.interval_ms ? fb_monotonic_ms() + dog.interval_ms : INT64_MAX;
    for (;;) {
        int64_t next = next_trim < next_feed ? next_trim : next_feed, left = next - fb_monotonic_ms();
        if (left < 0) left = 0;
        struct timespec wait = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};
        if (sigtimedwait(stop, NULL, &wait) >= 0) break;
        if (fb_monotonic_ms() >= next_feed) next_feed = fb_monotonic_ms() + feed(&dog, service);
        if (fb_monotonic_ms() < next_trim) continue;
        fb_allocator_trim();
        next_trim = fb_monotonic_ms() + TRIM_INTERVAL_MS;
    }
    pthread_sigmask(SIG_UNBLOCK, stop, NULL);
}

/* ---- start -------------------------------------------------------------------------------------------------------------- */

static unsigned open_descriptors(void) {
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return 0;
    for (const struct dirent *entry; (entry = readdir(folder));) count += *entry->d_name != '.';
    closedir(folder);
    return count ? count - 1 : 0; /* the folder itself */
}

/* Raises the limit as far as it goes. With fewer descriptors than connections and files of the store the service would listen
 * and not answer, so it does not start. */
static int claim_descriptors(const fb_service_config *config) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files)) return FB_EXIT_DONE;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
    fb_service_descriptors needed = fb_service_count_descriptors(config);
    unsigned others = needed.store + needed.others + open_descriptors();
    if (files.rlim_cur == RLIM_INFINITY || files.rlim_cur >= (rlim_t)needed.connections + others) return FB_EXIT_DONE;
    char advice[80] = "";
    if (files.rlim_cur > others)
        snprintf(advice, sizeof advice, ", or say --max-connections %llu", (unsigned long long)files.rlim_cur - others);
    return fb_complain(
        FB_EXIT_FAILED,
        "%u file descriptors are needed (%u for connections, %u for the store with %u readers, %u for threads and files) "
        "and only %llu may be opened. Raise the limit (ulimit -n, or LimitNOFILE of systemd)%s",
        needed.connections + others, needed.connections, needed.store, needed.readers, others - needed.store,
        (unsigned long long)files.rlim_cur, advice);
}

static bool open_access_log(const char *name, FILE **out) {
    *out = NULL;
    if (strcmp(name, "off") == 0) return true;
    *out = strcmp(name, "-") == 0 ? stderr : fopen(name, "ae");
    if (!*out) return false;
    if (*out != stderr) setvbuf(*out, NULL, _IOLBF, 0);
    return true;
}

static void close_access_log(FILE *log) {
    if (log && log != stderr) fclose(log);
}

#define MOST_PATHS 8

/* Files that are read for each request to the bucket or to a webhook, and for each connection to the database; malloc'ed, ended
 * by NULL. */
typedef struct credential_paths {
    char *items[MOST_PATHS + 1];
    size_t count;
} credential_paths;

static void add_path(credential_paths *out, const char *path, const char *rest) {
    char *text = path && *path ? malloc(strlen(path) + strlen(rest) + 1) : NULL;
    if (!text) return;
    assert(out->count < MOST_PATHS);
    strcpy(stpcpy(text, path), rest);
    out->items[out->count++] = text;
}

static void find_credential_paths(const serve_values *values, bool has_bucket, bool is_on_server, credential_paths *out) {
    const char *home = getenv("HOME");
    char *file = strdup(has_bucket && getenv("AWS_SHARED_CREDENTIALS_FILE") ? getenv("AWS_SHARED_CREDENTIALS_FILE") : "");
    if (file && *file) add_path(out, dirname(file), ""); /* the file is replaced to renew them */
    free(file);
    if (has_bucket) add_path(out, getenv("AWS_CA_BUNDLE"), "");
    add_path(out, values->service.webhooks.ca_file, "");
    if (!is_on_server) return;
    add_path(out, getenv("PGPASSFILE"), "");
    add_path(out, getenv("PGSSLROOTCERT"), "");
    add_path(out, home, "/.pgpass");
    add_path(out, home, "/.postgresql");
    add_path(out, "/etc/passwd", ""); /* whose name the user is, where the URL has none */
}

/* The data folder is made before the sandbox is entered, which allows what there is. `lock` is held until the service listens.
 */
static fb_status start(const serve_values *values, fb_sandbox_mode sandbox, fb_service *service, fb_error *error) {
    const char *data = values->service.data, *listen = values->service.http.listen;
    char *database = values->service.database ? NULL : fb_store_url(data);
    bool is_on_server = values->service.database || database;
    free(database);
    int lock = -1;
    fb_status status = access(data, F_OK) ? fb_service_check_reach(&values->service, NULL, error) : FB_OK;
    if (!status) status = fb_http_clear_address(listen, &lock, error);
    if (!status) status = fb_store_make_folder(data, error);
    bool has_bucket = values->service.bucket.url || fb_store_has_bucket(data);
    credential_paths paths = {0};
    find_credential_paths(values, has_bucket || is_on_server, is_on_server, &paths);
    bool may_connect = has_bucket || is_on_server || values->service.webhooks.is_on;
    char *socket = fb_http_is_path(listen) ? strdup(strchr(listen, ':') + 1) : NULL;
    const char *sockets = socket ? dirname(socket) : NULL;
    /* Not by the first who needs one: the sandbox may hide it, and OpenBLAS does not check for memory while it is loaded. */
    if (!status) status = fb_blas_load(&(fb_blas){0}, error);
    if (!status && (has_bucket || values->service.webhooks.is_on)) status = fb_curl_load(error);
    if (!status && is_on_server) status = fb_pq_load(error);
    if (!status) status = fb_sandbox_enter(sandbox, data, (const char *const *)paths.items, sockets, may_connect, error);
    free(socket);
    for (char **path = paths.items; *path; path++) free(*path);
    if (!status) status = fb_service_start(&values->service, service, error);
    if (lock >= 0) close(lock);
    return status;
}

static int exit_status(const fb_error *error) {
    if (strcmp(error->code, "store-locked") == 0) return FB_EXIT_FOLDER_IN_USE;
    bool is_misused = strcmp(error->code, "no-tokens") == 0 || strcmp(error->code, "bad-address") == 0 ||
                      strcmp(error->code, "bad-blobs") == 0 || strcmp(error->code, "bad-store") == 0;
    return is_misused ? FB_EXIT_USAGE : FB_EXIT_FAILED;
}

/* Warns of messages that wait in the outbox without --webhooks: they stay there. */
static void warn_of_webhooks(const serve_values *values, fb_store *store) {
    uint64_t pending = 0, parked = 0;
    int64_t oldest = 0;
    if (values->service.webhooks.is_on || fb_store_count_deliveries(store, &pending, &parked, &oldest, NULL) || !pending)
        return;
    fb_complain(0, "%llu messages wait for webhooks, and are not delivered without --webhooks", (unsigned long long)pending);
}

static int serve(const serve_values *values, fb_sandbox_mode sandbox, const sigset_t *stop) {
    fb_service service;
    fb_error error = {0};
    fb_error bucket = {0};
    if (start(values, sandbox, &service, &error)) return fb_complain(exit_status(&error), "%s", error.message);
    if (fb_store_bucket_health(service.app.store, &bucket))
        fb_complain(0, "the bucket does not answer yet: %s", bucket.message);
    warn_of_webhooks(values, service.app.store);
    if (!values->service.http.tls_key && !fb_http_is_loopback(values->service.http.listen))
        fb_complain(0, "tokens and graphs are sent in the clear: --tls-certificate and --tls-key, or a proxy, encrypt them");
    printf("listening on %s\n", fb_http_url(service.http));
    if (service.metrics) printf("metrics on %s/metrics\n", fb_http_url(service.metrics));
    fflush(stdout);
    notify_systemd("READY=1");
    wait_for_signal(stop, &service);
    notify_systemd("STOPPING=1");
    if (!fb_service_stop(&service, values->stop_timeout_ms))
        fb_complain(0, "stopped; some requests took too long and were cut off");
    return FB_EXIT_DONE;
}

/* Certificate and key as one needs the other; `key` and `certificate` are the texts, to be freed. */
static int read_tls(serve_values *values, fb_buffer *certificate, fb_buffer *key) {
    if (!values->tls_certificate != !values->tls_key)
        return fb_complain(FB_EXIT_USAGE, "--tls-certificate and --tls-key are given together");
    if (!values->tls_key) return FB_EXIT_DONE;
    int result = fb_file_read(values->tls_certificate, certificate);
    if (!result) result = fb_file_read(values->tls_key, key);
    if (result) return result;
    values->service.http.tls_certificate = fb_buffer_text(certificate);
    values->service.http.tls_key = fb_buffer_text(key);
    return values->service.http.tls_certificate && values->service.http.tls_key ? FB_EXIT_DONE
                                                                                : fb_complain(FB_EXIT_FAILED, "out of memory");
}

static int read_hosts(serve_values *values) {
    fb_text_list *hosts = &values->allowed_hosts;
    for (size_t i = 0; i < hosts->count; i++)
        if (!fb_http_is_host_name(hosts->items[i]))
            return fb_complain(FB_EXIT_USAGE, "--allow-host %s: write a name or an address, without http:// and without a port",
                               hosts->items[i]);
    values->service.http.allowed_hosts = hosts->items;
    values->service.http.allowed_host_count = hosts->count;
    return FB_EXIT_DONE;
}

static int read_origins(serve_values *values) {
    fb_text_list *origins = &values->cors_origins;
    for (size_t i = 0; i < origins->count; i++)
        if (!fb_cors_is_origin(origins->items[i]))
            return fb_complain(
                FB_EXIT_USAGE,
                "--cors-origin %s: write an origin as browsers do, https://registry.example, without a path; * is "
                "not allowed",
                origins->items[i]);
    values->service.http.cors_origins = origins->items;
    values->service.http.cors_origin_count = origins->count;
    return FB_EXIT_DONE;
}

/* `networks` is the caller's to free, and holds what the configuration refers to. */
static int read_webhooks(serve_values *values, fb_network **networks) {
    const fb_text_list *list = &values->told_networks;
    fb_webhooks_config *webhooks = &values->service.webhooks;
    if (!webhooks->is_on && (list->count || webhooks->allows_http || webhooks->ca_file))
        return fb_complain(FB_EXIT_USAGE, "--webhook-allow, --webhook-allow-http and --webhook-ca-file go with --webhooks");
    if (webhooks->ca_file && access(webhooks->ca_file, R_OK))
        return fb_complain(FB_EXIT_FAILED, "cannot read %s: %s", webhooks->ca_file, strerror(errno));
    *networks = calloc(list->count + 1, sizeof **networks);
    if (!*networks) return fb_complain(FB_EXIT_FAILED, "out of memory");
    for (size_t i = 0; i < list->count; i++)
        if (!fb_network_read(list->items[i], &(*networks)[i]))
            return fb_complain(FB_EXIT_USAGE,
                               "--webhook-allow %s: write an address or a network, such as 10.0.0.0/8 or fd00::/8",
                               list->items[i]);
    webhooks->allowed = *networks;
    webhooks->allowed_count = list->count;
    return FB_EXIT_DONE;
}

static int read_redirect(serve_values *values) {
    fb_bucket_config *bucket = &values->service.bucket;
    bucket->redirects = strcmp(values->blobs_redirect, "on") == 0;
    if (!bucket->redirects && strcmp(values->blobs_redirect, "off") != 0)
        return fb_complain(FB_EXIT_USAGE, "--blobs-redirect is on or off, not %s", values->blobs_redirect);
    if (!bucket->url && (bucket->endpoint || bucket->region))
        return fb_complain(FB_EXIT_USAGE, "--blobs-endpoint and --blobs-region go with --blobs");
    return FB_EXIT_DONE;
}

static int check_and_serve(serve_values *values) {
    fb_sandbox_mode sandbox;
    fb_buffer certificate = {0}, key = {0};
    fb_network *networks = NULL;
    struct fb_signing_key *signing_key = NULL;
    if (!fb_sandbox_mode_of(values->sandbox, &sandbox))
        return fb_complain(FB_EXIT_USAGE, "--sandbox is auto, on or off, not %s", values->sandbox);
    FILE **log = &values->service.http.access_log;
    if (!open_access_log(values->access_log, log))
        return fb_complain(FB_EXIT_FAILED, "cannot open the access log %s: %s", values->access_log, strerror(errno));
    fb_allocator_tune();
    sigset_t stop = block_signals();
    int result = read_hosts(values);
    if (!result) result = read_redirect(values);
    if (!result) result = read_origins(values);
    if (!result) result = read_webhooks(values, &networks);
    if (!result) result = read_tls(values, &certificate, &key);
    if (!result && values->signing_key) result = fb_signing_key_load(values->signing_key, true, &signing_key);
    values->service.signing_key = signing_key;
    if (!result) result = claim_descriptors(&values->service);
    if (!result) result = serve(values, sandbox, &stop);
    if (key.data) explicit_bzero(key.data, key.size);
    fb_buffer_free(&certificate);
    fb_buffer_free(&key);
    free(networks);
    fb_signing_key_free(signing_key);
    close_access_log(*log);
    return result;
}

static int run_service(const fb_verb *verb, int argc, char **argv) {
    serve_values values = serve_values_default();
    values.service.data = fb_usual_data();
    fb_arguments none = {0};
    int result;
    if (fb_verb_read(verb, argc, argv, &values, &none, &result)) result = check_and_serve(&values);
    fb_options_free(verb->options, &values);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

const fb_verb fb_serve_verbs[] = {
    {.name = "serve",
     .arguments = "",
     .summary = "runs the HTTP service",
     .description =
         "Serves the HTTP API until SIGTERM or SIGINT, then finishes the running requests and exits; a second signal ends it\n"
         "at once. When it is ready it prints: listening on http://127.0.0.1:8080; with --metrics-listen also:\n"
         "metrics on http://127.0.0.1:9464/metrics\n\n"
         "BYTES take the suffixes K, M and G, which are powers of 1024, and KB, MB and GB, which are powers of 1000.\n",
     .options = serve_options,
     .start = run_service},
    {0},
};
