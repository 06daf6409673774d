/* foldback events: follows the events of aliases, versions and runs, or of a job. */
#include <string.h>
#include <time.h>

#include "server/cli/cli.h"
#include "server/cli/options.h"

#define PAUSE_SECONDS 2 /* before the stream is asked for again */

typedef struct follower {
    fb_cli *cli;
    fb_address address;
    fb_buffer line, data; /* of the event under way */
    char event[32], last_id[80];
    bool is_job, has_begun, has_ended; /* begun: the service has answered once; ended: the job, or the output has no reader */
    bool has_succeeded;
} follower;

/* ---- one event ---------------------------------------------------------------------------------------------------------- */

static void print_alias_event(const json_t *entry) {
    const char *when = fb_text_of(entry, "when"), *from = fb_text_of(entry, "from"), *to = fb_text_of(entry, "to");
    const char *who = fb_text_of(entry, "who"), *why = fb_text_of(entry, "why");
    printf("%.10s %.8s  %-8s  ", when, strlen(when) > 11 ? when + 11 : "", fb_text_of(entry, "action"));
    fb_screen_text(stdout, fb_text_of(entry, "model"));
    putchar('@');
    fb_screen_text(stdout, fb_text_of(entry, "alias"));
    printf("  %s%s%s", from, *from && *to ? " → " : "", to);
    if (*who || *why) fputs("  ", stdout);
    fb_screen_text(stdout, who);
    if (*who && *why) fputs(": ", stdout);
    fb_screen_text(stdout, why);
    putchar('\n');
}

static void print_version_event(const json_t *version) {
    const char *when = fb_text_of(version, "created"), *note = fb_text_of(version, "note");
    printf("%.10s %.8s  version   ", when, strlen(when) > 11 ? when + 11 : "");
    fb_screen_text(stdout, fb_text_of(version, "model"));
    putchar(':');
    fb_screen_text(stdout, fb_text_of(version, "version"));
    printf("  %.19s%s", fb_text_of(version, "graph"), *note ? "  " : "");
    fb_screen_text(stdout, note);
    putchar('\n');
}

static void print_run_event(const json_t *run) {
    const char *when = fb_text_of(run, "created");
    printf("%.10s %.8s  %-8s  %s  %.19s → %.19s ", when, strlen(when) > 11 ? when + 11 : "", fb_text_of(run, "kind"),
           fb_text_of(run, "id"), fb_text_of(run, "source"), fb_text_of(run, "result"));
    size_t i;
    const json_t *pass;
    json_array_foreach(json_object_get(run, "passes"), i, pass) {
        putchar(' ');
        fb_screen_text(stdout, fb_text_of(pass, "name"));
    }
    putchar('\n');
}

static void print_job_event(const char *event, const json_t *job) {
    const json_t *progress = json_object_get(job, "progress");
    printf("%-9s", event);
    if (progress)
        printf("  %lld of %lld  ", (long long)json_integer_value(json_object_get(progress, "done")),
               (long long)json_integer_value(json_object_get(progress, "total")));
    fb_screen_text(stdout, fb_text_of(progress, "name"));
    putchar('\n');
}

static void tell(follower *f) {
    const char *text = fb_buffer_text(&f->data);
    json_t *data = text ? json_loads(text, 0, NULL) : NULL;
    const char *state = fb_text_of(data, "state");
    if (f->cli->is_json && f->cli->values.types) printf("{\"type\":\"%s\",\"data\":%s}\n", f->event, text ? text : "null");
    else if (f->cli->is_json) puts(text ? text : "");
    else if (f->is_job) print_job_event(f->event, data);
    else if (strcmp(f->event, "version") == 0) print_version_event(data);
    else if (strcmp(f->event, "run") == 0) print_run_event(data);
    else print_alias_event(data);
    f->has_succeeded = f->is_job && strcmp(state, "succeeded") == 0;
    f->has_ended |= f->has_succeeded || strcmp(state, "failed") == 0 || strcmp(state, "cancelled") == 0;
    f->has_ended |= fflush(stdout) != 0;
    json_decref(data);
}

/* ---- the stream: WHATWG HTML, 9.2 --------------------------------------------------------------------------------------- */

static void take_field(follower *f, const char *line) {
    const char *colon = strchr(line, ':'), *value = colon ? colon + 1 : "";
    size_t name = colon ? (size_t)(colon - line) : strlen(line);
    value += *value == ' ';
    if (name == 2 && strncmp(line, "id", 2) == 0) snprintf(f->last_id, sizeof f->last_id, "%s", value);
    else if (name == 5 && strncmp(line, "event", 5) == 0) snprintf(f->event, sizeof f->event, "%s", value);
    else if (name == 4 && strncmp(line, "data", 4) == 0) {
        if (f->data.size) fb_buffer_char(&f->data, '\n');
        fb_buffer_string(&f->data, value);
    }
}

static void take_line(follower *f) {
    const char *line = fb_buffer_text(&f->line);
    if (line && *line) {
        take_field(f, line);
    } else {
        if (f->data.size) tell(f);
        f->data.size = 0;
        *f->event = '\0';
    }
    f->line.size = 0;
}

static bool take(void *context, const fb_answer *answer, const char *bytes, size_t size) {
    follower *f = context;
    (void)answer;
    f->has_begun = true;
    for (size_t i = 0; i < size && !f->has_ended; i++) {
        if (bytes[i] == '\n') take_line(f);
        else if (bytes[i] != '\r') fb_buffer_char(&f->line, bytes[i]);
    }
    return !f->has_ended && !f->line.failed && !f->data.failed;
}

/* Until the stream ends. */
static int follow_once(follower *f) {
    char header[112];
    fb_receiver receiver = {.take = take, .context = f};
    fb_call call = {.method = "GET", .receiver = &receiver};
    fb_answer answer;
    fb_error error = {0};
    fb_buffer_append(&call.address.text, f->address.text.data, f->address.text.size);
    snprintf(header, sizeof header, "Last-Event-ID: %s", f->last_id);
    if (*f->last_id) call.header = header;
    f->line.size = f->data.size = 0;
    fb_status status = fb_client_call(f->cli->client, &call, &answer, &error);
    if (status == FB_NO_MEMORY || f->line.failed || f->data.failed) return fb_answer_free(&answer), fb_cli_no_memory();
    if (!status && answer.status / 100 != 2) return fb_cli_refused(f->cli, &answer);
    fb_answer_free(&answer);
    return status && !f->has_begun ? fb_cli_error(&error) : FB_EXIT_DONE;
}

static void pause_before_next(void) {
    nanosleep(&(struct timespec){.tv_sec = PAUSE_SECONDS}, NULL);
}

static int follow(follower *f) {
    int result;
    while (!(result = follow_once(f)) && !f->has_ended) {
        if (!f->cli->is_json) fb_complain(0, "the stream has ended; asking for what comes next");
        pause_before_next();
    }
    return result || !f->is_job || f->has_succeeded ? result : FB_EXIT_FAILED;
}

/* ---- what is followed --------------------------------------------------------------------------------------------------- */

static void address_events(follower *f, const char *what) {
    char model[FB_NAME_MAX + 1];
    const char *at = what ? strchr(what, '@') : NULL;
    fb_address_path(&f->address, "/v1/events");
    if (what) snprintf(model, sizeof model, "%.*s", at ? (int)(at - what) : (int)strlen(what), what);
    fb_address_query(&f->address, "types", f->cli->values.types);
    fb_address_query(&f->address, "model", what && *model ? model : NULL);
    fb_address_query(&f->address, "alias", at ? at + 1 : NULL);
    fb_address_query(&f->address, "since", f->cli->values.since);
}

static int follow_events(fb_cli *cli) {
    const char *what = cli->arguments.count ? cli->arguments.items[0] : NULL;
    follower f = {.cli = cli, .is_job = what && strncmp(what, "job_", 4) == 0};
    if (!cli->values.server)
        return fb_complain(FB_EXIT_USAGE, "events: name a running service with --server URL. In a data folder that no service "
                                          "holds nothing happens; foldback history lists what has");
    if (f.is_job && (cli->values.since || cli->values.types))
        return fb_complain(FB_EXIT_USAGE, "events: --since and --type are not for a job");
    int result = fb_cli_open(cli);
    if (result) return result;
    if (f.is_job) {
        fb_address_path(&f.address, "/v1/jobs");
        fb_address_segment(&f.address, what);
        fb_address_path(&f.address, "/events");
    } else {
        address_events(&f, what);
    }
    result = f.address.text.failed ? fb_cli_no_memory() : follow(&f);
    fb_buffer_free(&f.address.text);
    fb_buffer_free(&f.line);
    fb_buffer_free(&f.data);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option events_options[] = {
    TEXT("type", 0, "LIST", "of these types: alias, version, run, separated by commas (alias)", types),
    TEXT("since", 0, "ID", "begin after the event with this id; 0 = all events", since),
    TEXT("server", 0, "URL", "the service ($FOLDBACK_SERVER)", server),
    CREDENTIALS,
    FLAG("json", 0, "print a line of JSON for each event, also on a terminal", wants_json),
    END,
};

const fb_verb fb_event_verbs[] = {
    {.name = "events",
     .arguments = "[MODEL|MODEL@ALIAS|JOB]",
     .summary = "follows the events of aliases, versions and runs, or of a job",
     .description =
         "Prints a line for each event until Ctrl-C, or until the job has ended: exit status 0 if it has succeeded. If\n"
         "the connection is lost, connects again and leaves no event out.\n",
     .options = events_options,
     .folder = FB_FOLDER_UNUSED,
     .run = follow_events},
    {0},
};
