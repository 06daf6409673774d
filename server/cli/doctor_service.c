/* Facts that `foldback doctor --server` reads from a service. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/cli/doctor.h"

#define PATIENCE_MS 10000

/* A GET; false when the service was not reached, which is said on standard error. */
static bool ask(fb_cli *cli, const char *path, fb_answer *answer) {
    fb_call call = {.method = "GET"};
    fb_address_path(&call.address, path);
    return fb_cli_try(cli, &call, answer) == FB_EXIT_DONE;
}

static json_t *json_of(const fb_answer *answer) {
    return json_loadb(answer->body.data ? answer->body.data : "", answer->body.size, 0, NULL);
}

static void tell_version(fb_diagnosis *diagnosis, const fb_answer *answer) {
    json_t *index = json_of(answer);
    const char *version = fb_text_of(index, "version");
    bool is_foldback = strcmp(fb_text_of(index, "name"), "foldback") == 0;
    if (is_foldback) fb_fact_text(diagnosis, "version", version);
    if (!is_foldback)
        fb_diagnosis_find(diagnosis, FB_FAULT, "not-foldback", "check the address, and what a proxy before the service does",
                          "what answers there (status %d) is not foldback", answer->status);
    else if (strcmp(version, FB_VERSION) != 0)
        fb_diagnosis_find(diagnosis, FB_WARNING, "other-version", "use the command of the service's version",
                          "the service has version %s, and this command version " FB_VERSION, version);
    json_decref(index);
}

static void tell_readiness(fb_diagnosis *diagnosis, const fb_answer *answer) {
    json_t *said = json_of(answer);
    if (answer->status == 200) {
        fb_fact_text(diagnosis, "ready", "yes");
    } else {
        const char *code = fb_text_of(said, "code"), *detail = fb_text_of(said, "detail");
        fb_fact_text(diagnosis, "ready", "no");
        fb_diagnosis_find(diagnosis, FB_FAULT, *code ? code : "not-ready",
                          "see this code in docs/operations.md; on the machine of the service, foldback doctor --data DIR",
                          "the service is not ready (status %d): %s", answer->status, detail);
    }
    json_decref(said);
}

/* Reports a page that needs a token. */
static void tell_refusal(fb_diagnosis *diagnosis, const char *what, int status) {
    fb_diagnosis_find(diagnosis, FB_WARNING, "not-allowed", "send a token that may: --token-file FILE, or FOLDBACK_TOKEN",
                      "the service does not show its %s to us (status %d)", what, status);
}

/* ---- metrics ------------------------------------------------------------------------------------------------------------ */

/* The sum of the series of a name whose labels contain `label`; "" for all. */
static double total_of(const char *text, const char *name, const char *label) {
    double total = 0;
    size_t length = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        const char *end = line + strcspn(line, "\n"), *value = end;
        if (strncmp(line, name, length) != 0 || (line[length] != '{' && line[length] != ' ')) continue;
        while (value > line && value[-1] != ' ') value--;
        if (*label && !memmem(line, (size_t)(value - line), label, strlen(label))) continue;
        total += strtod(value, NULL);
    }
    return total;
}

static const struct shown {
    const char *fact, *metric, *label;
} shown[] = {
    {"requests", "foldback_http_requests_total", ""},
    {"requests_that_failed", "foldback_http_requests_total", "status=\"5"},
    {"requests_rejected", "foldback_http_rejected_total", ""},
    {"connections", "foldback_http_connections", ""},
    {"descriptors", "process_max_fds", ""},
    {"descriptors_open", "process_open_fds", ""},
    {"memory_bytes", "process_resident_memory_bytes", ""},
    {"graphs", "foldback_store_graphs", ""},
    {"runs", "foldback_store_runs", ""},
    {"blob_bytes", "foldback_store_blob_bytes", ""},
    {"database_bytes", "foldback_store_database_bytes", ""},
    {"log_bytes", "foldback_store_wal_bytes", ""},
    {"writes_that_failed", "foldback_store_failed_writes_total", ""},
    {"jobs_waiting", "foldback_jobs", "queued"},
    {"jobs_that_failed", "foldback_jobs_finished_total", "failed"},
};

/* Metrics that should be 0, or small. */
static const struct suspect {
    const char *metric, *label;
    double most;
    const char *code, *cure, *detail;
} suspects[] = {
    {"foldback_store_failed_writes_total", "", 0, "writes-failed", "the service's log says why; check the disk and /readyz",
     "writes to the store that failed since the service started"},
    {"foldback_store_failed_checkpoints_total", "", 0, "checkpoints-failed", "the service's log says why; check the disk",
     "attempts to empty the database's log that failed since the service started"},
    {"foldback_store_wal_bytes", "", 256e6, "log-large",
     "end readers that hang, such as a backup that never ended; a restart of the service empties the log",
     "bytes of the database's log: a reader keeps it from being emptied"},
    {"foldback_http_rejected_total", "queue-full", 0, "overloaded", "more --workers, or fewer clients at once",
     "requests rejected because the queue was full"},
    {"foldback_http_rejected_total", "body-memory", 0, "overloaded",
     "a larger --max-body-memory, or fewer large bodies at once", "requests rejected because bodies took all memory for them"},
    {"foldback_http_rejected_total", "address", 0, "connections-refused",
     "behind a proxy, --max-connections-per-address 0 and a limit in the proxy", "connections of one address beyond its limit"},
};

static void tell_metrics(fb_diagnosis *diagnosis, const char *text) {
    double open = total_of(text, "process_open_fds", ""), most = total_of(text, "process_max_fds", "");
    double start = total_of(text, "process_start_time_seconds", "");
    if (start > 0) fb_fact_time(diagnosis, "started", (int64_t)(start * 1000));
    for (const struct shown *one = shown; one < shown + sizeof shown / sizeof *shown; one++)
        fb_fact_number(diagnosis, one->fact, (int64_t)total_of(text, one->metric, one->label));
    for (const struct suspect *one = suspects; one < suspects + sizeof suspects / sizeof *suspects; one++) {
        double value = total_of(text, one->metric, one->label);
        if (value > one->most) fb_diagnosis_find(diagnosis, FB_WARNING, one->code, one->cure, "%.0f %s", value, one->detail);
    }
    if (most > 0 && open > most * 0.9)
        fb_diagnosis_find(diagnosis, FB_WARNING, "few-descriptors",
                          "LimitNOFILE=65536 of systemd, or a smaller --max-connections",
                          "the service has %.0f of %.0f file descriptors open", open, most);
}

/* ---- jobs --------------------------------------------------------------------------------------------------------------- */

static void tell_jobs(fb_diagnosis *diagnosis, const fb_answer *answer) {
    json_t *list = json_of(answer), *job;
    size_t i;
    json_array_foreach(json_object_get(list, "items"), i, job) {
        char text[300];
        snprintf(text, sizeof text, "%s %s: status %d", fb_text_of(job, "method"), fb_text_of(job, "target"),
                 (int)json_integer_value(json_object_get(job, "status")));
        fb_fact_text(diagnosis, fb_text_of(job, "id"), text);
    }
    json_decref(list);
}

int fb_diagnose_service(fb_diagnosis *diagnosis, fb_cli *cli) {
    static const char *const paths[] = {"/", "/readyz", "/metrics", "/v1/jobs?state=failed&limit=5"};
    fb_diagnosis_section(diagnosis, "service");
    fb_fact_url(diagnosis, "address", cli->values.server);
    cli->values.patience_ms = PATIENCE_MS;
    for (int i = 0; i < 4; i++) {
        fb_answer answer;
        if (!ask(cli, paths[i], &answer)) {
            fb_diagnosis_find(diagnosis, FB_FAULT, "unreachable",
                              "check the address and the network; on the machine of the service, foldback doctor --data DIR",
                              "the service does not answer at %s", paths[i]);
            return FB_EXIT_DONE;
        }
        const char *text = fb_buffer_text(&answer.body);
        if (i == 0) tell_version(diagnosis, &answer);
        else if (i == 1) tell_readiness(diagnosis, &answer);
        else if (answer.status != 200) tell_refusal(diagnosis, i == 2 ? "metrics" : "jobs", answer.status);
        else if (i == 2 && text) tell_metrics(diagnosis, text);
        else if (i == 3) tell_jobs(diagnosis, &answer);
        fb_answer_free(&answer);
    }
    return FB_EXIT_DONE;
}
