/* foldback transformation put, list, show. */
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/options.h"

static void number_of(const json_t *rule, char text[24]) {
    snprintf(text, 24, "%lld", (long long)json_integer_value(json_object_get(rule, "version")));
}

static void print_rule(fb_cli *cli, const json_t *rule) {
    char version[24];
    number_of(rule, version);
    fb_print_facts(cli, (const fb_fact[]){{"transformation", fb_text_of(rule, "name")},
                                          {"version", version},
                                          {"description", fb_text_of(rule, "description")},
                                          {"exactness", fb_text_of(rule, "exactness")},
                                          {"reversible", fb_yes_no(rule, "reversible")},
                                          {"preserves computation", fb_yes_no(rule, "preserves_computation")},
                                          {"signature", fb_text_of(rule, "signature")},
                                          {"created", fb_told_time(fb_text_of(rule, "created")).text},
                                          {0}});
}

/* As JSON or as facts, and frees what is in the call. */
static int answer_rule(fb_cli *cli, fb_call *call, bool wants_document) {
    json_t *rule;
    if (cli->is_json) return fb_cli_relay(cli, call);
    int result = fb_cli_call_json(cli, call, &rule, NULL);
    if (result) return result;
    print_rule(cli, rule);
    char *text = wants_document ? json_dumps(json_object_get(rule, "rule"), JSON_INDENT(2)) : NULL;
    if (text) {
        fputs("\n", stdout);
        fb_screen_lines(stdout, text);
        fputs("\n", stdout);
    }
    free(text);
    json_decref(rule);
    return FB_EXIT_DONE;
}

static int put_rule(fb_cli *cli) {
    fb_call call = {.method = "POST"};
    fb_address_path(&call.address, "/v1/transformations");
    int result = fb_file_read(cli->arguments.items[0], &call.body);
    if (!result) return answer_rule(cli, &call, false);
    fb_call_free(&call);
    return result;
}

static void rule_row(const json_t *rule, fb_screen_table *table) {
    fb_table_text(table, rule, "name");
    fb_table_number(table, rule, "version");
    fb_table_text(table, rule, "exactness");
    fb_table_time(table, rule, "created");
    fb_table_text(table, rule, "description");
}

static int list_rules(fb_cli *cli) {
    const char *name = cli->arguments.count ? cli->arguments.items[0] : NULL;
    static const char *const headings[] = {"TRANSFORMATION", ">VERSION", "EXACTNESS", "CREATED", "WHAT IT DOES"};
    fb_address address = {0};
    fb_address_path(&address, "/v1/transformations");
    if (name) {
        fb_address_segment(&address, name);
        fb_address_segment(&address, "versions");
    }
    return fb_list_show(cli, &address, headings, 5, rule_row);
}

/* NAME or NAME:VERSION. */
static int show_rule(fb_cli *cli) {
    const char *what = cli->arguments.items[0];
    const char *colon = strchr(what, ':');
    fb_call call = {.method = "GET"};
    char name[300];
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - what) : (int)strlen(what), what);
    fb_address_path(&call.address, "/v1/transformations");
    fb_address_segment(&call.address, name);
    if (colon) {
        fb_address_segment(&call.address, "versions");
        fb_address_segment(&call.address, colon + 1);
    }
    return answer_rule(cli, &call, true);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

const fb_verb fb_transformation_verbs[] = {
    {.name = "transformation list",
     .arguments = "[RULE]",
     .summary = "lists the rules, or the versions of one",
     .options = fb_list_options,
     .run = list_rules},
    {.name = "transformation show",
     .arguments = "RULE[:VERSION]",
     .summary = "shows a rule",
     .options = fb_plain_options,
     .run = show_rule},
    {.name = "transformation put",
     .arguments = "FILE",
     .summary = "stores a rule as a custom pass",
     .description = "A rule is JSON: a pattern, conditions and a replacement. The same name again makes the next version.\n",
     .options = fb_plain_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = put_rule},
    {.name = "transformation ls",
     .now = "transformation list",
     .arguments = "[RULE]",
     .options = fb_list_options,
     .run = list_rules},
    {0},
};
