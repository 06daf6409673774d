/* foldback bisect. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/compose/bisect.h"
#include "core/json/json.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

/* ---- by the service ------------------------------------------------------------------------------------------------------ */

static int put_output(const char *text, fb_buffer *out) {
    if (!text) return FB_EXIT_DONE;
    if (!*text || strlen(text) > 9 || strspn(text, "0123456789") != strlen(text))
        return fb_complain(FB_EXIT_USAGE, "--output %s: give the number of an output, counted from 0", text);
    fb_put_name(out, "output");
    fb_buffer_printf(out, "%ld", strtol(text, NULL, 10));
    return FB_EXIT_DONE;
}

static int ask_service(fb_cli *cli, const char *run, json_t **answer) {
    fb_call call = {.method = "POST"};
    fb_request_begin(&call.body);
    int result = put_output(cli->values.output, &call.body);
    if (!result && cli->values.against) {
        fb_reference against = fb_reference_read(cli->values.against);
        result = fb_request_graph(cli, &call.body, "against", &against);
    }
    if (!result) result = fb_request_judging(cli, &call.body);
    if (!result) result = fb_request_end(&call.body);
    if (result) {
        fb_call_free(&call);
        return result;
    }
    fb_address_path(&call.address, "/v1/runs");
    fb_address_segment(&call.address, run);
    fb_address_path(&call.address, "/bisect");
    return fb_cli_call_json(cli, &call, answer, NULL);
}

/* ---- by a command -------------------------------------------------------------------------------------------------------- */

/* A run that a command judges part by part: each is a dry run of the service, whose result is a file for the command. */
typedef struct trial {
    fb_cli *cli;
    const char *command;
    json_t *run, *whole; /* as it is stored; and a dry run of it, with the names of its matches */
    char folder[200], file[260];
    int result;            /* of what went wrong, and was said */
    fb_match_names *names; /* by position */
    size_t count;
} trial;

/* A pass of the run as a request names it; `only` NULL: with the matches that the run chose. */
static json_t *pass_of(const json_t *pass, const fb_match_names *only) {
    static const char *const members[] = {"name", "version", "params", "only", "except"};
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        json_t *value = json_object_get(pass, members[i]);
        if (value && !(only && i > 2)) json_object_set(out, members[i], value);
    }
    if (!only) return out;
    json_t *list = json_array();
    for (size_t i = 0; i < only->count; i++) json_array_append_new(list, json_string(only->items[i]));
    json_object_set_new(out, "only", list);
    return out;
}

/* A dry run of a part; *absent: a match is not there. */
static int run_dry(trial *t, const fb_run_part *part, fb_buffer *document, bool *absent, json_t **out) {
    json_t *passes = json_array(), *known = json_object_get(t->run, "passes");
    for (size_t i = 0; i < part->passes; i++)
        json_array_append_new(passes,
                              pass_of(json_array_get(known, i), part->only && part->only[i].items ? &part->only[i] : NULL));
    json_t *request =
        json_pack("{s:O,s:o,s:{s:b,s:b,s:o}}", "graph", json_object_get(t->run, "source"), "passes", passes, "options",
                  "dry_run", 1, "matches", 1, "include", document ? json_pack("[s]", "graph") : json_array());
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    fb_call call = {.method = "POST"};
    fb_answer answer;
    json_decref(request);
    if (!text) return fb_cli_no_memory();
    fb_address_path(&call.address, "/v1/optimize");
    fb_buffer_string(&call.body, text);
    free(text);
    int result = fb_cli_try(t->cli, &call, &answer);
    if (result) return result;
    bool is_cut = !document || answer.status / 100 != 2 || fb_cut_member(&answer.body, "graph", document);
    json_t *found = json_loadb(answer.body.data ? answer.body.data : "", answer.body.size, 0, NULL);
    const char *code = fb_text_of(found, "code");
    *absent = strcmp(code, "unknown-match") == 0 || strcmp(code, "matches-depend") == 0;
    if (answer.status / 100 != 2 && !*absent) {
        json_decref(found);
        return fb_cli_refused(t->cli, &answer);
    }
    fb_answer_free(&answer);
    *out = found;
    return found && is_cut ? FB_EXIT_DONE : fb_complain(FB_EXIT_USAGE, "the answer is not JSON: is this foldback?");
}

/* Writes the part's graph to the file. Without passes it is the source. */
static int write_part(trial *t, const fb_run_part *part, bool *absent) {
    fb_buffer bytes = {0};
    json_t *found = NULL;
    *absent = false;
    int result;
    if (!part->passes) {
        fb_reference source = fb_reference_read(fb_text_of(t->run, "source"));
        result = fb_reference_bytes(t->cli, &source, &bytes);
    } else {
        result = run_dry(t, part, &bytes, absent, &found);
    }
    json_decref(found);
    if (!result && !*absent) result = fb_file_write(t->file, bytes.data, bytes.size);
    fb_buffer_free(&bytes);
    return result;
}

/* The command with the file behind it: 0 good, 125 unknown, 1 to 127 bad; anything else ends the search. */
static int run_command(trial *t, fb_outcome *out) {
    fb_buffer line = {0};
    fb_buffer_printf(&line, "%s \"$1\"", t->command);
    const char *text = fb_buffer_text(&line);
    fflush(stdout);
    pid_t child = text ? fork() : -1;
    if (child == 0) {
        dup2(2, 1); /* the answer alone goes to standard output */
        execl("/bin/sh", "sh", "-c", text, "foldback", t->file, (char *)NULL);
        _exit(127);
    }
    fb_buffer_free(&line);
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    int code = child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    if (code > 127) return fb_complain(FB_EXIT_USAGE, "bisect: the command ended with status %d, so the search ends", code);
    *out = code == 0 ? FB_OUTCOME_GOOD : code == 125 ? FB_OUTCOME_UNKNOWN : FB_OUTCOME_BAD;
    return FB_EXIT_DONE;
}

static fb_status judge(void *context, const fb_run_part *part, fb_outcome *out, fb_error *error) {
    trial *t = context;
    bool absent = false;
    t->result = write_part(t, part, &absent);
    *out = FB_OUTCOME_ABSENT;
    if (!t->result && !absent) t->result = run_command(t, out);
    return t->result ? fb_fail(error, FB_IO, "command-failed", NULL, "the search was ended") : FB_OK;
}

static fb_status list(void *context, size_t position, fb_match_names *out, fb_error *error) {
    trial *t = context;
    const json_t *matches = json_object_get(json_array_get(json_object_get(t->whole, "passes"), position), "matches"), *one;
    size_t i;
    const char **items = calloc(json_array_size(matches) + 1, sizeof *items);
    if (!items) return fb_fail_memory(error);
    json_array_foreach((json_t *)(uintptr_t)matches, i, one) items[i] = json_string_value(one);
    free((void *)(uintptr_t)t->names[position].items);
    t->names[position] = *out = (fb_match_names){items, json_array_size(matches)};
    return FB_OK;
}

static json_t *shown_pass(const trial *t, size_t position) {
    const json_t *pass = json_array_get(json_object_get(t->run, "passes"), position);
    return json_pack("{s:O,s:O,s:I}", "name", json_object_get(pass, "name"), "version", json_object_get(pass, "version"),
                     "position", (json_int_t)position);
}

/* The run's passes without the match. */
static json_t *rest_of(const trial *t, const fb_found_match *match) {
    json_t *passes = json_array(), *known = json_object_get(t->run, "passes");
    for (size_t i = 0; i < t->count; i++) {
        json_t *pass = pass_of(json_array_get(known, i), NULL), *except = json_object_get(pass, "except");
        if (i == match->position) {
            except = except ? json_deep_copy(except) : json_array();
            json_array_append_new(except, json_string(match->name));
            json_object_set_new(pass, "except", except);
        }
        json_array_append_new(passes, pass);
    }
    return json_pack("{s:O,s:o}", "graph", json_object_get(t->run, "source"), "passes", passes);
}

/* The members that the service's answer has of what was found. */
static json_t *answer_of(const trial *t, const fb_bisected *found) {
    static const char *const names[] = {"passes", "differs", "not-evaluated", "not-evaluated"};
    json_t *matches = json_array(), *out;
    for (size_t i = 0; i < found->count; i++) {
        const char *name = found->matches[i].name;
        json_array_append_new(matches, json_pack("{s:o,s:s?,s:o}", "pass", shown_pass(t, found->matches[i].position), "match",
                                                 name, "nodes", name ? json_pack("[s]", name) : json_array()));
    }
    const json_t *first = json_array_get(matches, 0);
    bool has_rest = found->count && found->matches[0].name;
    bool is_unclear = found->count && found->first < found->matches[0].position;
    out = json_pack("{s:O,s:s,s:b,s:O?,s:O?,s:O?,s:b,s:b}", "run", json_object_get(t->run, "id"), "verdict",
                    names[found->outcome], "found", found->count > 0, "pass", json_object_get(first, "pass"), "match",
                    json_object_get(first, "match"), "nodes", json_object_get(first, "nodes"), "is_smallest",
                    found->is_smallest, "source_differs", found->is_source_bad);
    json_object_set_new(out, "matches", matches);
    json_object_set_new(out, "unclear_from", is_unclear ? json_integer((json_int_t)found->first) : json_null());
    json_object_set_new(out, "rest",
                        has_rest
                            ? json_pack("{s:s,s:o}", "verdict", names[found->rest], "request", rest_of(t, &found->matches[0]))
                            : json_null());
    json_object_set_new(out, "steps",
                        json_pack("{s:I,s:I,s:I}", "passes", (json_int_t)found->pass_steps, "matches",
                                  (json_int_t)found->match_steps, "all", (json_int_t)found->steps));
    return out;
}

static int search(trial *t, json_t **answer) {
    const json_t *passes = json_object_get(t->run, "passes"), *pass;
    bool *is_active = calloc(t->count + 1, sizeof *is_active), absent;
    const fb_bisect_oracle oracle = {t, judge, list};
    fb_bisected found;
    fb_error error = {0};
    size_t i;
    t->names = calloc(t->count + 1, sizeof *t->names);
    if (!is_active || !t->names) return free(is_active), fb_cli_no_memory();
    json_array_foreach((json_t *)(uintptr_t)passes, i, pass) is_active[i] =
        json_integer_value(json_object_get(pass, "applied")) > 0;
    int result = run_dry(t, &(fb_run_part){.passes = t->count}, NULL, &absent, &t->whole);
    if (!result && fb_bisect(&oracle, is_active, t->count, true, &found, &error)) {
        result = t->result ? t->result : fb_cli_error(&error);
    } else if (!result) {
        *answer = answer_of(t, &found);
        fb_bisected_free(&found);
    }
    free(is_active);
    for (i = 0; i < t->count; i++) free((void *)(uintptr_t)t->names[i].items);
    free(t->names);
    return result;
}

static int ask_command(fb_cli *cli, const char *run, json_t **answer) {
    trial t = {.cli = cli, .command = cli->values.exec};
    fb_address address = {0};
    const char *folder = fb_variable("TMPDIR");
    fb_address_path(&address, "/v1/runs");
    fb_address_segment(&address, run);
    int result = fb_cli_get(cli, &address, &t.run, NULL);
    if (result) return result;
    t.count = json_array_size(json_object_get(t.run, "passes"));
    snprintf(t.folder, sizeof t.folder, "%.180s/foldback-XXXXXX", folder ? folder : "/tmp");
    if (strcmp(fb_text_of(t.run, "kind"), "optimize") != 0) {
        result = fb_complain(FB_EXIT_USAGE, "bisect: %s is of the kind %s; only an optimize run has matches", run,
                             fb_text_of(t.run, "kind"));
    } else if (!mkdtemp(t.folder)) {
        result = fb_complain(FB_EXIT_USAGE, "%s: %s", t.folder, strerror(errno));
    } else {
        snprintf(t.file, sizeof t.file, "%s/graph.json", t.folder);
        result = search(&t, answer);
        unlink(t.file);
        rmdir(t.folder);
    }
    json_decref(t.run);
    json_decref(t.whole);
    return result;
}

/* ---- the answer ---------------------------------------------------------------------------------------------------------- */

static void print_matches(fb_cli *cli, const json_t *matches) {
    static const char *const headings[] = {"PASS", "MATCH", ">POSITION"};
    fb_screen_table table = {.columns = 3, .headings = headings};
    const json_t *one;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)matches, i, one) {
        const json_t *pass = json_object_get(one, "pass");
        const char *match = fb_text_of(one, "match");
        fb_table_cell(&table, "%s", fb_text_of(pass, "name"));
        fb_table_cell(&table, "%s", *match ? match : "(all)");
        fb_table_number(&table, pass, "position");
    }
    fb_cli_table(cli, &table);
}

/* The passes as options of foldback optimize. */
static void print_rest(const json_t *rest) {
    const json_t *request = json_object_get(rest, "request"), *passes = json_object_get(request, "passes"), *pass;
    size_t i;
    if (!json_is_object(rest)) return;
    bool is_right = strcmp(fb_text_of(rest, "verdict"), "passes") == 0;
    printf("\nWithout it the run %s. To keep the rest:\n  foldback optimize %s",
           is_right                                              ? "is right"
           : strcmp(fb_text_of(rest, "verdict"), "differs") == 0 ? "still differs"
                                                                 : "cannot be judged",
           fb_text_of(request, "graph"));
    json_array_foreach((json_t *)(uintptr_t)passes, i, pass) {
        bool is_plain = !json_object_size(json_object_get(pass, "params")) && !json_object_get(pass, "only") &&
                        !json_object_get(pass, "except");
        char *text = is_plain ? NULL : json_dumps(pass, JSON_COMPACT);
        fb_buffer word = {0};
        fb_quote_word(text ? text : fb_text_of(pass, "name"), &word);
        printf(" --pass %s", fb_buffer_text(&word));
        fb_buffer_free(&word);
        free(text);
    }
    putchar('\n');
}

static int print_answer(fb_cli *cli, const json_t *answer) {
    bool is_found = json_is_true(json_object_get(answer, "found"));
    const char *verdict = fb_text_of(answer, "verdict");
    bool is_right = !is_found && strcmp(verdict, "differs") != 0 && strcmp(verdict, "not-evaluated") != 0;
    int status = is_found ? FB_EXIT_FAILED : is_right ? FB_EXIT_DONE : FB_EXIT_USAGE;
    if (cli->is_json) return fb_cli_print_json(answer) ? FB_EXIT_USAGE : status;
    printf("%s\n", verdict);
    if (json_is_true(json_object_get(answer, "source_differs"))) puts("the source differs already, so nothing was searched");
    if (is_right) puts("the result computes what it is compared with, so nothing was searched");
    if (!is_found && json_object_get(answer, "outputs")) fb_print_compared(cli, answer);
    if (!is_found) return status;
    putchar('\n');
    print_matches(cli, json_object_get(answer, "matches"));
    if (json_array_size(json_object_get(answer, "matches")) > 1) puts("\nThey make the result differ together.");
    if (json_is_integer(json_object_get(answer, "unclear_from")))
        printf("\nThe passes from position %lld on could not be told apart from it.\n",
               (long long)json_integer_value(json_object_get(answer, "unclear_from")));
    if (json_object_get(answer, "outputs")) fb_print_compared(cli, answer);
    print_rest(json_object_get(answer, "rest"));
    return status;
}

/* Any trouble is "cannot tell". */
static int bisect(fb_cli *cli) {
    fb_reference run = fb_reference_read(cli->arguments.items[0]);
    json_t *answer = NULL;
    if (run.kind != FB_REFERS_TO_RUN) return fb_complain(FB_EXIT_USAGE, "bisect: %s is not a run (run_…)", run.text);
    int result = cli->values.exec ? ask_command(cli, run.text, &answer) : ask_service(cli, run.text, &answer);
    if (result) return FB_EXIT_USAGE;
    result = print_answer(cli, answer);
    json_decref(answer);
    return result;
}

static const fb_option bisect_options[] = {
    COMPARED_ON,
    TEXT("output", 0, "K", "only this output counts, from 0", output),
    TEXT("against", 0, "GRAPH", "compare with this graph, not with the run's source", against),
    TEXT("exec", 0, "CMD", "judge by a command that gets a graph's file: 0 right, 125 unknown, 1 to 127 wrong", exec),
    COMPARED_BY,
    STORE,
    JSON,
    END,
};

const fb_verb fb_bisect_verbs[] = {
    {.name = "bisect",
     .arguments = "RUN",
     .summary = "finds the match of a pass that makes a run's result differ",
     .description = "It judges parts of the run by halves, as foldback compare judges two graphs, or by a command of yours.\n"
                    "Exit status 1 if something is found, 0 if the result is right, 2 if that is not known.\n",
     .options = bisect_options,
     .run = bisect},
    {0},
};
