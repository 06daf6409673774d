#include "server/cli/serve_options.h"

#include "server/cli/serve.h"

#define AT(member) FB_OPTION_AT(fb_serve_values, member)

const fb_option fb_serve_options[] = {
    {"listen", 0, "ADDRESS:PORT", "where to listen; port 0 picks a free one (127.0.0.1:8080)", FB_OPTION_TEXT,
     AT(service.http.listen), 0, 0},
    {"metrics-listen", 0, "ADDRESS:PORT", "serve /metrics, /livez and /readyz there without a token (off)", FB_OPTION_TEXT,
     AT(service.metrics_listen), 0, 0},
    {"insecure-listen", 0, NULL, "allow an address beyond this machine although there are no tokens", FB_OPTION_FLAG,
     AT(service.is_open), 0, 0},
    {"allow-host", 0, "NAME", "without tokens, answer to this name in Host, too, not only to localhost; may be repeated",
     FB_OPTION_LIST, AT(allowed_hosts), 0, 0},
    {"tls-certificate", 0, "FILE", "speak TLS with this certificate, or chain, in PEM", FB_OPTION_TEXT, AT(tls_certificate), 0,
     0},
    {"tls-key", 0, "FILE", "its private key, in PEM", FB_OPTION_TEXT, AT(tls_key), 0, 0},
    {"rate-limit", 0, "N", "requests a second of one token, or without one of one address; 0 is any (0)", FB_OPTION_COUNT,
     AT(service.http.rate_limit), 0, 1000000},
    {"data", 0, "DIR", "the data folder; also $FOLDBACK_DATA (./.foldback)", FB_OPTION_TEXT, AT(service.data), 0, 0},
    {"access-log", 0, "FILE|-|off", "JSON lines, one a request; - is standard error (-)", FB_OPTION_TEXT, AT(access_log), 0, 0},
    {"max-body", 0, "BYTES", "largest body after decompression (1G)", FB_OPTION_BYTES, AT(service.http.body_limit), 1024,
     (uint64_t)4 << 30},
    {"max-body-ratio", 0, "N", "decompressed to compressed size, beyond the first 16M; 0 is no limit (200)", FB_OPTION_COUNT,
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
    {"max-connections-per-address", 0, "N", "of one address; 0 is no limit (half of --max-connections)", FB_OPTION_COUNT,
     AT(service.http.connection_limit_per_address), 0, 1 << 20},
    {"max-streams", 0, "N", "open event streams, at most half of the connections (256)", FB_OPTION_COUNT,
     AT(service.http.stream_limit), 0, 1 << 20},
    {"heartbeat", 0, "SECONDS", "between signs of life on an event stream (15)", FB_OPTION_SECONDS, AT(service.heartbeat_ms), 1,
     86400},
    {"cache", 0, "BYTES", "memory for decoded graphs (512M)", FB_OPTION_BYTES, AT(service.cache_bytes), 0, UINT64_MAX},
    {"evaluation-memory", 0, "BYTES", "what one evaluation of a graph may hold at once (1G)", FB_OPTION_BYTES,
     AT(service.evaluation.memory), 1024, UINT64_MAX},
    {"evaluation-timeout", 0, "SECONDS", "how long one evaluation may take (60)", FB_OPTION_SECONDS,
     AT(service.evaluation.timeout_ms), 1, 86400},
    {"max-evaluations", 0, "N", "graphs that are evaluated at once (8)", FB_OPTION_COUNT, AT(service.evaluation.most), 1, 1024},
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
    {"gc-grace", 0, "SECONDS", "how long blobs stay that no graph refers to, and uploads that nobody goes on with (86400)",
     FB_OPTION_SECONDS, AT(service.gc_grace_ms), 0, 315360000},
    {"keep-runs-days", 0, "DAYS", "remove older runs that nothing needs; 0 is never (0)", FB_OPTION_COUNT,
     AT(service.keep_runs_days), 0, 36500},
    {"keep-runs", 0, "N", "remove runs beyond the newest N that nothing needs; 0 is never (0)", FB_OPTION_COUNT,
     AT(service.keep_runs), 0, UINT32_MAX},
    {"keep-audit-days", 0, "DAYS", "remove older entries of the audit; 0 is never (0)", FB_OPTION_COUNT,
     AT(service.keep_audit_days), 0, 36500},
    {"sandbox", 0, "auto|on|off",
     "give up what the service does not need, by Landlock and seccomp: what there is of them, all or it does not start, or not "
     "(auto)",
     FB_OPTION_TEXT, AT(sandbox), 0, 0},
    {"help", 'h', NULL, "this text", FB_OPTION_FLAG, AT(wants_help), 0, 0},
    {0},
};

fb_serve_values fb_serve_values_default(void) {
    fb_serve_values values = {
        .service = fb_service_config_default(), .access_log = "-", .sandbox = "auto", .stop_timeout_ms = 30000};
    values.service.gc_interval_ms = 3600000;
    values.service.jobs.threads = 2;
    return values;
}
