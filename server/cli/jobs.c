/* foldback job list, show, cancel, wait, result; what --async prints. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/cli/cli.h"
#include "server/cli/options.h"

static void describe_progress(const json_t *job, char *out, size_t space) {
    const json_t *progress = json_object_get(job, "progress");
    *out = '\0';
    if (progress)
        snprintf(out, space, "%lld of %lld", (long long)json_integer_value(json_object_get(progress, "done")),
                 (long long)json_integer_value(json_object_get(progress, "total")));
}

static void describe_status(const json_t *job, char *out, size_t space) {
    const json_t *status = json_object_get(job, "status");
    *out = '\0';
    if (status) snprintf(out, space, "%lld", (long long)json_integer_value(status));
}

void fb_print_job(fb_cli *cli, const json_t *job) {
    char progress[64], status[24];
    describe_progress(job, progress, sizeof progress);
    describe_status(job, status, sizeof status);
    fb_print_facts(cli, (const fb_fact[]){{"job", fb_text_of(job, "id")},
                                          {"state", fb_text_of(job, "state")},
                                          {"request", fb_text_of(job, "target")},
                                          {"who", fb_text_of(job, "principal")},
                                          {"created", fb_told_time(fb_text_of(job, "created")).text},
                                          {"started", fb_told_time(fb_text_of(job, "started")).text},
                                          {"finished", fb_told_time(fb_text_of(job, "finished")).text},
                                          {"progress", progress},
                                          {"at", fb_text_of(json_object_get(job, "progress"), "name")},
                                          {"status", status},
                                          {"location", fb_text_of(job, "location")},
                                          {0}});
}

static void job_row(const json_t *job, fb_screen_table *table) {
    char progress[64];
    describe_progress(job, progress, sizeof progress);
    fb_table_text(table, job, "id");
    fb_table_text(table, job, "state");
    fb_table_text(table, job, "target");
    fb_table_time(table, job, "created");
    fb_table_cell(table, "%s", progress);
}

static int list_jobs(fb_cli *cli) {
    static const char *const headings[] = {"JOB", "STATE", "REQUEST", "CREATED", "PROGRESS"};
    fb_address address = {0};
    fb_address_path(&address, "/v1/jobs");
    fb_address_query(&address, "state", cli->values.state);
    return fb_list_show(cli, &address, headings, 5, job_row);
}

static void address_job(fb_call *call, const char *id) {
    fb_address_path(&call->address, "/v1/jobs");
    fb_address_segment(&call->address, id);
}

static int print(fb_cli *cli, const json_t *job) {
    if (cli->is_json) return fb_cli_print_json(job);
    fb_print_job(cli, job);
    return FB_EXIT_DONE;
}

static int ask(fb_cli *cli, const char *method, const char *id, json_t **job) {
    fb_call call = {.method = method};
    address_job(&call, id);
    return fb_cli_call_json(cli, &call, job, NULL);
}

static int show(fb_cli *cli, const char *method, const char *id) {
    json_t *job;
    int result = ask(cli, method, id, &job);
    if (result) return result;
    result = print(cli, job);
    json_decref(job);
    return result;
}

static bool has_ended(const json_t *job) {
    const char *state = fb_text_of(job, "state");
    return strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

static int show_job(fb_cli *cli) {
    return show(cli, "GET", cli->arguments.items[0]);
}

static int cancel_job(fb_cli *cli) {
    return show(cli, "DELETE", cli->arguments.items[0]);
}

/* Until it has ended; then the exit status says how. */
static int wait_for_job(fb_cli *cli) {
    const char *id = cli->arguments.items[0];
    struct timespec pause = {.tv_nsec = 100000000}; /* longer and longer, a second at most */
    json_t *job;
    int result;
    while (!(result = ask(cli, "GET", id, &job)) && !has_ended(job)) {
        json_decref(job);
        nanosleep(&pause, NULL);
        pause.tv_nsec += pause.tv_nsec < 900000000 ? 100000000 : 0;
    }
    if (result) return result;
    bool has_succeeded = strcmp(fb_text_of(job, "state"), "succeeded") == 0;
    result = print(cli, job);
    json_decref(job);
    return !result && !has_succeeded ? FB_EXIT_FAILED : result;
}

static int print_result(fb_cli *cli) {
    fb_call call = {.method = "GET"};
    address_job(&call, cli->arguments.items[0]);
    fb_address_segment(&call.address, "result");
    return fb_cli_relay(cli, &call);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option job_list_options[] = {
    TEXT("state", 0, "STATE", "only jobs in this state: queued, running, succeeded, failed or cancelled", state),
    LIMIT,
    STORE,
    JSON,
    END,
};

const fb_verb fb_job_verbs[] = {
    {.name = "job list",
     .arguments = "",
     .summary = "lists the jobs of a service",
     .description = "See --async of optimize, reverse and rollback.\n",
     .options = job_list_options,
     .run = list_jobs},
    {.name = "job show", .arguments = "JOB", .summary = "shows a job", .options = fb_plain_options, .run = show_job},
    {.name = "job wait",
     .arguments = "JOB",
     .summary = "waits until a job has ended",
     .description = "Exit status 0 if it has succeeded.\n",
     .options = fb_plain_options,
     .run = wait_for_job},
    {.name = "job result",
     .arguments = "JOB",
     .summary = "prints the result of a job",
     .options = fb_plain_options,
     .run = print_result},
    {.name = "job cancel", .arguments = "JOB", .summary = "cancels a job", .options = fb_plain_options, .run = cancel_job},
    {0},
};
