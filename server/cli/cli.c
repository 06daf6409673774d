#include "server/cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_LIMIT 50

/* ---- reporting ---------------------------------------------------------------------------------------------------------- */

const char *fb_yes_no(const json_t *object, const char *name) {
    return json_is_true(json_object_get(object, name)) ? "yes" : "no";
}

void fb_cli_table(fb_cli *cli, fb_screen_table *table) {
    if (!fb_table_print(table, cli->has_colour, stdout)) cli->is_short = true;
}

int fb_cli_print_json(const json_t *value) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return fb_cli_no_memory();
    puts(text);
    free(text);
    return FB_EXIT_DONE;
}

/* ---- requests ----------------------------------------------------------------------------------------------------------- */

/* The first line of --token-file, or $FOLDBACK_TOKEN. The token itself cannot be given as an option: a list of this machine's
 * processes shows their options. */
static int read_token(const fb_cli_values *values, fb_buffer *out, const char **token) {
    *token = fb_variable("FOLDBACK_TOKEN");
    if (values->token_file) {
        int result = fb_file_read(values->token_file, out);
        if (result) return result;
        *token = fb_buffer_text(out);
        if (!*token) return fb_cli_no_memory();
        out->data[strcspn(*token, "\r\n \t")] = '\0';
    }
    for (const char *at = *token; at && *at; at++)
        if (*at <= ' ' || *at > '~') return fb_complain(FB_EXIT_USAGE, "the token has characters that no token has");
    return FB_EXIT_DONE;
}

static int open_remote(fb_cli *cli, fb_error *error) {
    fb_buffer text = {0};
    fb_credentials credentials = {.ca_file = cli->values.ca_file, .patience_ms = cli->values.patience_ms};
    int result = read_token(&cli->values, &text, &credentials.token);
    cli->has_token = credentials.token && *credentials.token;
    if (!result && fb_client_new_remote(cli->values.server, &credentials, &cli->client, error)) result = fb_cli_error(error);
    fb_buffer_free(&text);
    return result;
}

static bool all_are_files(const fb_cli *cli) {
    bool all = true;
    for (size_t i = 0; i < cli->arguments.count; i++)
        all &= fb_reference_read(cli->arguments.items[i]).kind == FB_REFERS_TO_FILE;
    return all;
}

static int make_own_folder(fb_cli *cli) {
    int result = fb_own_folder_make(&cli->own_folder);
    if (!result) cli->values.data = cli->own_folder.path;
    return result;
}

/* The data folder is not there. */
static int find_folder(fb_cli *cli) {
    if (cli->folder == FB_FOLDER_IS_MADE || cli->folder == FB_FOLDER_UNUSED) return FB_EXIT_DONE;
    if (cli->folder == FB_FOLDER_FOR_FILES && !cli->has_place && all_are_files(cli)) return make_own_folder(cli);
    return fb_complain(FB_EXIT_FAILED, "there is no data folder %s; name one with --data, or a service with --server",
                       cli->values.data);
}

int fb_cli_open(fb_cli *cli) {
    fb_error error = {0};
    const fb_cli_values *values = &cli->values;
    struct stat folder;
    if (cli->client) return FB_EXIT_DONE;
    int result = !values->server && stat(values->data, &folder) && errno == ENOENT ? find_folder(cli) : FB_EXIT_DONE;
    if (result) return result;
    if (values->server) return open_remote(cli, &error);
    if (fb_client_new_local(cli->folder == FB_FOLDER_UNUSED ? NULL : values->data, &cli->client, &error))
        return fb_cli_error(&error);
    fb_client_hand(cli->client, &cli->handed);
    return FB_EXIT_DONE;
}

int fb_cli_refused(fb_cli *cli, fb_answer *answer) {
    json_t *problem = strstr(answer->media_type, "json") ? json_loadb(answer->body.data, answer->body.size, 0, NULL) : NULL;
    if (json_is_object(problem) && *fb_text_of(problem, "detail")) fb_problem_print(cli, problem);
    else fb_complain(0, "the answer has the status %d and is not one of foldback", answer->status);
    json_decref(problem);
    fb_answer_free(answer);
    return FB_EXIT_FAILED;
}

int fb_cli_try(fb_cli *cli, fb_call *call, fb_answer *answer) {
    fb_error error = {0};
    int result = fb_cli_open(cli);
    if (result) {
        fb_call_free(call);
        return result;
    }
    if (!fb_client_call(cli->client, call, answer, &error)) return FB_EXIT_DONE;
    fb_answer_free(answer);
    return fb_cli_error(&error);
}

int fb_cli_call(fb_cli *cli, fb_call *call, fb_answer *answer) {
    int result = fb_cli_try(cli, call, answer);
    return result || answer->status / 100 == 2 ? result : fb_cli_refused(cli, answer);
}

int fb_cli_relay(fb_cli *cli, fb_call *call) {
    fb_answer answer;
    int result = fb_cli_call(cli, call, &answer);
    if (result) return result;
    fwrite(answer.body.data, 1, answer.body.size, stdout);
    putchar('\n');
    fb_answer_free(&answer);
    return FB_EXIT_DONE;
}

int fb_cli_call_json(fb_cli *cli, fb_call *call, json_t **out, char *etag) {
    fb_answer answer;
    int result = fb_cli_call(cli, call, &answer);
    if (result) return result;
    *out = json_loadb(answer.body.data, answer.body.size, 0, NULL);
    if (etag) strcpy(etag, answer.etag);
    fb_answer_free(&answer);
    return *out ? FB_EXIT_DONE : fb_complain(FB_EXIT_FAILED, "the answer is not JSON: is this foldback?");
}

int fb_cli_get(fb_cli *cli, fb_address *address, json_t **out, char *etag) {
    fb_call call = {.method = "GET", .address = *address};
    return fb_cli_call_json(cli, &call, out, etag);
}

/* ---- start to end ------------------------------------------------------------------------------------------------------- */

int fb_cli_find_place(fb_cli *cli) {
    const fb_verb *verb = cli->verb;
    fb_cli_values *values = &cli->values;
    if (values->data && values->server) return fb_complain(FB_EXIT_USAGE, "--data or --server, not both");
    const char *server = fb_variable("FOLDBACK_SERVER"), *data = fb_variable("FOLDBACK_DATA");
    bool is_open = !values->data && !values->server;
    if (is_open && server && data && fb_verb_takes(verb, "data") && fb_verb_takes(verb, "server"))
        return fb_complain(FB_EXIT_USAGE, "FOLDBACK_DATA and FOLDBACK_SERVER are both set: say --data DIR or --server URL");
    if (is_open && fb_verb_takes(verb, "server")) values->server = server;
    cli->has_place = values->data || data;
    if (!values->data) values->data = fb_usual_data();
    return FB_EXIT_DONE;
}

/* Flushes the output: a failure to write counts, but is not reported when the reader has seen enough. */
static int finish_output(int result) {
    bool failed = ferror(stdout) | fflush(stdout);
    if (!failed) return result;
    return errno == EPIPE ? FB_EXIT_FAILED : fb_complain(FB_EXIT_FAILED, "cannot write the output: %s", strerror(errno));
}

static int run(fb_cli *cli) {
    int result = fb_cli_find_place(cli);
    if (!result) result = cli->verb->run(cli);
    fb_client_free(cli->client);
    fb_graph_free(cli->handed.graph);
    fb_buffer_free(&cli->handed.document);
    fb_own_folder_remove(&cli->own_folder);
    return result;
}

int fb_cli_start(const fb_verb *verb, int argc, char **argv) {
    fb_cli cli = {.verb = verb,
                  .folder = verb->folder,
                  .values = {.limit = DEFAULT_LIMIT, .version = 1, .grace = FB_GRACE_UNSET, .overlap = FB_GRACE_UNSET}};
    int result;
    signal(SIGPIPE, SIG_IGN);
    if (fb_verb_read(verb, argc, argv, &cli.values, &cli.arguments, &result)) {
        cli.is_json = cli.values.wants_json || !isatty(STDOUT_FILENO);
        cli.has_colour = fb_screen_has_colour(stdout);
        result = finish_output(run(&cli));
        if (!result && cli.is_short) result = fb_cli_no_memory();
    }
    fb_options_free(verb->options, &cli.values);
    return result;
}
