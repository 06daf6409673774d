/* foldback model, register, deploy, history, delete, and rollback of an alias. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/cli/options.h"

/* ---- models ------------------------------------------------------------------------------------------------------------- */

static void model_row(const json_t *model, fb_screen_table *table) {
    fb_table_text(table, model, "name");
    fb_table_number(table, model, "versions");
    fb_table_number(table, model, "aliases");
    fb_table_time(table, model, "created");
}

static void version_row(const json_t *version, fb_screen_table *table) {
    fb_table_text(table, version, "version");
    fb_table_short_id(table, fb_text_of(version, "graph"));
    fb_table_text(table, version, "run");
    fb_table_time(table, version, "created");
    fb_table_text(table, version, "note");
}

static void alias_row(const json_t *alias, fb_screen_table *table) {
    fb_table_text(table, alias, "alias");
    fb_table_text(table, alias, "version");
    fb_table_time(table, alias, "updated");
    fb_table_text(table, alias, "who");
    fb_table_text(table, alias, "why");
}

static int get_part(fb_cli *cli, const char *model, const char *part, fb_list *out) {
    fb_address address = {0};
    fb_address_path(&address, "/v1/models");
    fb_address_segment(&address, model);
    fb_address_segment(&address, part);
    return fb_list_get(cli, &address, out);
}

static int print_model(fb_cli *cli, const char *model, const json_t *versions, const json_t *aliases) {
    static const char *const version_headings[] = {"VERSION", "GRAPH", "RUN", "CREATED", "NOTE"};
    static const char *const alias_headings[] = {"ALIAS", "VERSION", "SINCE", "WHO", "WHY"};
    if (cli->is_json) {
        json_t *answer = json_pack("{sssOsO}", "name", model, "versions", versions, "aliases", aliases);
        int result = fb_cli_print_json(answer);
        json_decref(answer);
        return result;
    }
    fb_list_print_table(cli, versions, version_headings, 5, version_row);
    if (json_array_size(aliases)) putchar('\n');
    if (json_array_size(aliases)) fb_list_print_table(cli, aliases, alias_headings, 5, alias_row);
    return FB_EXIT_DONE;
}

int fb_cli_model_show(fb_cli *cli) {
    const char *model = cli->arguments.items[0];
    fb_list versions, aliases;
    fb_reference part = fb_reference_read(model);
    if (part.kind == FB_REFERS_TO_VERSION || part.kind == FB_REFERS_TO_ALIAS) return fb_cli_show(cli);
    int result = get_part(cli, model, "versions", &versions);
    if (result) return result;
    result = get_part(cli, model, "aliases", &aliases);
    if (!result) {
        result = print_model(cli, model, versions.items, aliases.items);
        if (versions.has_more || aliases.has_more) fb_complain(0, "there are more than %u; see --limit", cli->values.limit);
        json_decref(aliases.items);
    }
    json_decref(versions.items);
    return result;
}

static int list_models(fb_cli *cli) {
    static const char *const headings[] = {"MODEL", ">VERSIONS", ">ALIASES", "CREATED"};
    fb_address address = {0};
    fb_address_path(&address, "/v1/models");
    return fb_list_show(cli, &address, headings, 4, model_row);
}

static int list_or_show(fb_cli *cli) {
    return cli->arguments.count ? fb_cli_model_show(cli) : list_models(cli);
}

/* ---- register ----------------------------------------------------------------------------------------------------------- */

void fb_print_version(fb_cli *cli, const json_t *version) {
    fb_print_facts(cli, (const fb_fact[]){{"model", fb_text_of(version, "model")},
                                          {"version", fb_text_of(version, "version")},
                                          {"graph", fb_text_of(version, "graph")},
                                          {"run", fb_text_of(version, "run")},
                                          {"created", fb_told_time(fb_text_of(version, "created")).text},
                                          {"note", fb_text_of(version, "note")},
                                          {0}});
}

static int register_version(fb_cli *cli) {
    fb_reference version = fb_reference_read_stored(cli->arguments.items[0]);
    fb_reference graph = fb_reference_read(cli->arguments.items[1]);
    if (version.kind != FB_REFERS_TO_VERSION)
        return fb_complain(FB_EXIT_USAGE, "register: %s is not a MODEL:VERSION; it takes %s", version.text,
                           cli->verb->arguments);
    fb_call call = {.method = "PUT"};
    json_t *made;
    fb_request_begin(&call.body);
    int result = fb_request_text(&call.body, "note", cli->values.note);
    if (!result && graph.kind == FB_REFERS_TO_RUN) result = fb_request_text(&call.body, "run", graph.text);
    else if (!result) result = fb_request_graph(cli, &call.body, "graph", &graph);
    if (!result) result = fb_request_end(&call.body);
    if (result) {
        fb_call_free(&call);
        return result;
    }
    fb_reference_address(&version, &call.address);
    if (cli->is_json) return fb_cli_relay(cli, &call);
    result = fb_cli_call_json(cli, &call, &made, NULL);
    if (result) return result;
    fb_print_version(cli, made);
    json_decref(made);
    return FB_EXIT_DONE;
}

/* ---- deploy, history, rollback of an alias ----------------------------------------------------------------------------- */

void fb_print_alias(fb_cli *cli, const json_t *alias) {
    fb_print_facts(cli, (const fb_fact[]){{"model", fb_text_of(alias, "model")},
                                          {"alias", fb_text_of(alias, "alias")},
                                          {"version", fb_text_of(alias, "version")},
                                          {"graph", fb_text_of(alias, "graph")},
                                          {"run", fb_text_of(alias, "run")},
                                          {"updated", fb_told_time(fb_text_of(alias, "updated")).text},
                                          {"who", fb_text_of(alias, "who")},
                                          {"why", fb_text_of(alias, "why")},
                                          {0}});
}

static int read_alias(fb_cli *cli, fb_reference *out) {
    *out = fb_reference_read(cli->arguments.items[0]);
    if (out->kind == FB_REFERS_TO_ALIAS) return FB_EXIT_DONE;
    return fb_complain(FB_EXIT_USAGE, "%s: %s is not a MODEL@ALIAS", cli->verb->name, out->text);
}

/* The version's own name, which may have been given with its model. NULL stays NULL. */
static int read_version(fb_cli *cli, const fb_reference *alias, const char *given, fb_reference *out, const char **version) {
    *version = given;
    if (!given) return FB_EXIT_DONE;
    *out = fb_reference_read_stored(given);
    if (out->kind != FB_REFERS_TO_VERSION) return FB_EXIT_DONE;
    *version = out->part;
    if (strcmp(out->model, alias->model) == 0) return FB_EXIT_DONE;
    return fb_complain(FB_EXIT_USAGE, "%s: %s is not a version of %s", cli->verb->name, given, alias->model);
}

/* The person who does it: --who; the service knows the name of a token; else the user of this machine. */
static int put_who_and_why(fb_cli *cli, fb_buffer *out) {
    const char *user = cli->has_token ? NULL : getenv("USER"), *who = cli->values.who;
    int result = fb_request_text(out, "who", who ? who : user && *user ? user : NULL);
    return result ? result : fb_request_text(out, "why", cli->values.why);
}

/* `call` has everything but who and why, and the end. */
static int change_alias(fb_cli *cli, fb_call *call) {
    const char *output = cli->values.output;
    bool is_silent = output && strcmp(output, "-") == 0;
    json_t *alias;
    int result = put_who_and_why(cli, &call->body);
    if (!result) result = fb_request_end(&call->body);
    if (result) {
        fb_call_free(call);
        return result;
    }
    if (cli->is_json && !is_silent) return fb_cli_relay(cli, call);
    result = fb_cli_call_json(cli, call, &alias, NULL);
    if (result) return result;
    if (!is_silent) fb_print_alias(cli, alias);
    if (!is_silent && *fb_text_of(alias, "from"))
        printf("\n%s@%s: %s → %s\n", fb_text_of(alias, "model"), fb_text_of(alias, "alias"), fb_text_of(alias, "from"),
               fb_text_of(alias, "version"));
    json_decref(alias);
    return FB_EXIT_DONE;
}

/* ---- deploy ------------------------------------------------------------------------------------------------------------- */

/* The header that makes the change conditional on what the alias is now: no change in between is lost. */
static int find_condition(fb_cli *cli, const fb_reference *alias, const char *from, char *header, size_t space) {
    fb_call call = {.method = "GET"};
    fb_answer answer;
    fb_reference_address(alias, &call.address);
    int result = fb_cli_try(cli, &call, &answer);
    if (result) return result;
    bool is_new = answer.status == 404;
    if (!is_new && answer.status != 200) return fb_cli_refused(cli, &answer);
    json_t *now = is_new ? NULL : json_loadb(answer.body.data, answer.body.size, 0, NULL);
    const char *version = fb_text_of(now, "version");
    if (from && strcmp(from, version) != 0)
        result = fb_complain(FB_EXIT_FAILED, "%s is at %s, not at %s", alias->text, is_new ? "no version" : version, from);
    if (is_new) snprintf(header, space, "If-None-Match: *");
    else snprintf(header, space, "If-Match: %s", answer.etag);
    json_decref(now);
    fb_answer_free(&answer);
    return result;
}

static int deploy(fb_cli *cli) {
    fb_reference alias, old, new;
    const char *from, *version;
    char condition[190];
    fb_call call = {.method = "PUT", .header = condition};
    int result = read_alias(cli, &alias);
    if (!result) result = read_version(cli, &alias, cli->arguments.items[1], &new, &version);
    if (!result) result = read_version(cli, &alias, cli->values.from, &old, &from);
    if (!result) result = find_condition(cli, &alias, from, condition, sizeof condition);
    if (result) return result;
    fb_request_begin(&call.body);
    fb_reference_address(&alias, &call.address);
    result = fb_request_text(&call.body, "version", version);
    if (!result) return change_alias(cli, &call);
    fb_call_free(&call);
    return result;
}

/* ---- rollback ----------------------------------------------------------------------------------------------------------- */

static int write_deployed(fb_cli *cli, const fb_reference *alias) {
    fb_buffer bytes = {0};
    int result = fb_reference_bytes(cli, alias, &bytes);
    if (!result) result = fb_file_write(cli->values.output, bytes.data, bytes.size);
    fb_buffer_free(&bytes);
    return result;
}

static bool is_listed(const json_t *names, const char *name) {
    const json_t *one;
    size_t i;
    json_array_foreach(names, i, one) {
        if (json_is_string(one) && strcmp(json_string_value(one), name) == 0) return true;
    }
    return false;
}

/* Asks on the terminal; anything but a word that begins with y is a no. */
static bool agrees(const char *question) {
    char answer[16];
    fprintf(stderr, "%s [y/N] ", question);
    return fgets(answer, sizeof answer, stdin) && (*answer == 'y' || *answer == 'Y');
}

/* Says what is about to happen, asks where that brings back what was taken back, and makes it conditional on what the alias is
 * now. */
static int prepare_rollback(fb_cli *cli, const fb_reference *alias, const char *from, const char *to, char *header,
                            size_t space) {
    fb_address address = {0};
    json_t *plan;
    fb_reference_address(alias, &address);
    fb_address_path(&address, "/rollback");
    int result = fb_cli_get(cli, &address, &plan, NULL);
    if (result) return result;
    const char *now = fb_text_of(plan, "from"), *next = to ? to : fb_text_of(plan, "to");
    bool is_partial = cli->values.passes.count > 0, is_asked = isatty(STDIN_FILENO) && !cli->values.yes;
    char question[3 * FB_NAME_MAX];
    snprintf(question, sizeof question, "%s was taken back from %s before. Is it to be %s again?", alias->text, next, next);
    snprintf(header, space, "If-Match: %s", fb_text_of(plan, "etag"));
    if (from && strcmp(from, now) != 0) result = fb_complain(FB_EXIT_FAILED, "%s is at %s, not at %s", alias->text, now, from);
    else if (!is_partial && *next && !cli->is_json) fprintf(stderr, "%s: %s → %s\n", alias->text, now, next);
    if (!result && to && is_asked && is_listed(json_object_get(plan, "withdrawn"), to) && !agrees(question))
        result = fb_complain(FB_EXIT_FAILED, "nothing was changed");
    json_decref(plan);
    return result;
}

int fb_rollback_alias(fb_cli *cli, const fb_reference *alias) {
    const fb_cli_values *values = &cli->values;
    if (values->note || values->labels.count || values->dry_run)
        return fb_complain(FB_EXIT_USAGE, "rollback: --note, --label and --dry-run are for a run; say --why");
    fb_reference to, old;
    const char *version, *from;
    char condition[190];
    int result = read_version(cli, alias, values->to, &to, &version);
    if (!result) result = read_version(cli, alias, values->from, &old, &from);
    if (!result) result = prepare_rollback(cli, alias, from, version, condition, sizeof condition);
    if (result) return result;
    fb_call call = {.method = "POST", .header = condition};
    fb_request_begin(&call.body);
    fb_reference_address(alias, &call.address);
    fb_address_path(&call.address, "/rollback");
    result = fb_request_text(&call.body, "version", version);
    if (!result) result = fb_request_passes(&call.body, &values->passes, true);
    if (!result) result = fb_request_text(&call.body, "as", values->as);
    if (!result) result = change_alias(cli, &call);
    else fb_call_free(&call);
    return result || !values->output ? result : write_deployed(cli, alias);
}

/* ---- history ------------------------------------------------------------------------------------------------------------ */

static void entry_row(const json_t *entry, fb_screen_table *table) {
    fb_table_number(table, entry, "id");
    fb_table_time(table, entry, "when");
    fb_table_text(table, entry, "action");
    fb_table_text(table, entry, "from");
    fb_table_text(table, entry, "to");
    fb_table_text(table, entry, "who");
    fb_table_text(table, entry, "why");
}

static int list_history(fb_cli *cli) {
    static const char *const headings[] = {">ID", "WHEN", "ACTION", "FROM", "TO", "WHO", "WHY"};
    fb_reference alias;
    fb_address address = {0};
    int result = read_alias(cli, &alias);
    if (result) return result;
    fb_reference_address(&alias, &address);
    fb_address_path(&address, "/history");
    return fb_list_show(cli, &address, headings, 7, entry_row);
}

/* ---- delete ------------------------------------------------------------------------------------------------------------- */

static int delete_thing(fb_cli *cli) {
    fb_reference what = fb_reference_read_stored(cli->arguments.items[0]);
    fb_call call = {.method = "DELETE"};
    char etag[170], condition[190];
    fb_answer answer;
    if (what.kind == FB_REFERS_TO_FILE || what.kind == FB_REFERS_TO_RUN)
        return fb_complain(FB_EXIT_USAGE, "delete: a graph's id, MODEL:VERSION or MODEL@ALIAS, not %s; runs stay", what.text);
    if (what.kind == FB_REFERS_TO_ALIAS) {
        fb_address address = {0};
        json_t *alias;
        fb_reference_address(&what, &address);
        int result = fb_cli_get(cli, &address, &alias, etag);
        if (result) return result;
        json_decref(alias);
        snprintf(condition, sizeof condition, "If-Match: %s", etag);
        call.header = condition;
    }
    fb_reference_address(&what, &call.address);
    int result = fb_cli_call(cli, &call, &answer);
    if (!result) fb_answer_free(&answer);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option register_options[] = {NOTE, STORE, JSON, END};

static const fb_option deploy_options[] = {
    TEXT("from", 0, "VERSION", "only if the alias is at this version now", from), WHO, WHY, STORE, JSON, END,
};

const fb_verb fb_model_verbs[] = {
    {.name = "register",
     .arguments = "MODEL:VERSION GRAPH",
     .summary = "stores a graph, or a run's result, as a version of a model",
     .description = GRAPH_NAMES "A version never changes.\n",
     .options = register_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = register_version},
    {.name = "deploy",
     .arguments = "MODEL@ALIAS VERSION",
     .summary = "points an alias at a version",
     .description = "Refused if somebody else moves the alias at the same time.\n",
     .options = deploy_options,
     .run = deploy},
    {.name = "history",
     .arguments = "MODEL@ALIAS",
     .summary = "lists the versions an alias pointed at: when, by whom, why",
     .options = fb_list_options,
     .run = list_history},
    {.name = "delete",
     .arguments = "THING",
     .summary = "deletes a graph, a version or an alias that nothing needs",
     .description = "A thing is sha256:…, MODEL:VERSION or MODEL@ALIAS. Runs and histories stay.\n",
     .options = fb_store_options,
     .run = delete_thing},
    {.name = "model list", .arguments = "", .summary = "lists the models", .options = fb_list_options, .run = list_models},
    {.name = "model show",
     .arguments = "MODEL",
     .summary = "lists the versions and aliases of a model",
     .options = fb_list_options,
     .run = fb_cli_model_show},
    {.name = "models",
     .now = "model list and model show",
     .arguments = "[MODEL]",
     .options = fb_list_options,
     .run = list_or_show},
    {0},
};
