/* foldback deploy, history, and rollback of an alias. */
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"

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

/* Who does it: --who, or the user of this machine. */
static int put_who_and_why(const fb_cli_values *values, fb_buffer *out) {
    const char *user = getenv("USER");
    int result = fb_request_text(out, "who", values->who ? values->who : user && *user ? user : NULL);
    return result ? result : fb_request_text(out, "why", values->why);
}

/* `call` has everything but who and why, and the end. */
static int change_alias(fb_cli *cli, fb_call *call) {
    const char *output = cli->values.output;
    bool is_silent = output && strcmp(output, "-") == 0;
    json_t *alias;
    int result = put_who_and_why(&cli->values, &call->body);
    if (!result) result = fb_request_end(&call->body);
    if (result) {
        fb_call_free(call);
        return result;
    }
    if (cli->is_json && !is_silent) return fb_cli_relay(cli, call);
    result = fb_cli_call_json(cli, call, &alias, NULL);
    if (result) return result;
    if (!is_silent) fb_print_alias(cli, alias);
    json_decref(alias);
    return FB_EXIT_DONE;
}

/* ---- deploy ------------------------------------------------------------------------------------------------------------- */

/* The header that makes the change conditional on what the alias is now: nobody's change in between is lost. */
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

int fb_cli_deploy(fb_cli *cli) {
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

int fb_rollback_alias(fb_cli *cli, const fb_reference *alias) {
    const fb_cli_values *values = &cli->values;
    if (values->note || values->labels.count || values->dry_run)
        return fb_complain(FB_EXIT_USAGE, "rollback: --note, --label and --dry-run are for a run; say --why");
    fb_reference to;
    const char *version;
    int result = read_version(cli, alias, values->to, &to, &version);
    if (result) return result;
    fb_call call = {.method = "POST"};
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

int fb_cli_history(fb_cli *cli) {
    static const char *const headings[] = {">ID", "WHEN", "ACTION", "FROM", "TO", "WHO", "WHY"};
    fb_reference alias;
    fb_address address = {0};
    int result = read_alias(cli, &alias);
    if (result) return result;
    fb_reference_address(&alias, &address);
    fb_address_path(&address, "/history");
    return fb_list_show(cli, &address, headings, 7, entry_row);
}
