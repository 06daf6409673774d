/* foldback pass: lists the passes and presets, and describes one. */
#include <stdlib.h>

#include "server/cli/cli.h"
#include "server/cli/options.h"

/* ---- passes ------------------------------------------------------------------------------------------------------------- */

static const char *const pass_headings[] = {"PASS", "EXACTNESS", "REVERSIBLE", "WHAT IT DOES"};

static void pass_row(const json_t *pass, fb_screen_table *table) {
    fb_table_text(table, pass, "name");
    fb_table_text(table, pass, "exactness");
    fb_table_cell(table, "%s", fb_yes_no(pass, "reversible"));
    fb_table_text(table, pass, "summary");
}

static void print_parameters(fb_cli *cli, const json_t *properties) {
    static const char *const headings[] = {"PARAMETER", "TYPE", "DEFAULT", "WHAT IT IS"};
    fb_screen_table table = {.columns = 4, .headings = headings};
    const char *name;
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)properties, name, one) {
        const json_t *usual = json_object_get(one, "default");
        char *value = usual ? json_dumps(usual, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        fb_table_cell(&table, "%s", name);
        fb_table_text(&table, one, "type");
        fb_table_cell(&table, "%s", value ? value : "");
        fb_table_text(&table, one, "description");
        free(value);
    }
    if (table.count) putchar('\n');
    if (table.count) fb_cli_table(cli, &table);
}

/* The picture and what belongs to it, as the pass's file has them; its first line is the summary. */
static void print_pass(fb_cli *cli, const json_t *pass) {
    char version[24];
    const char *text = fb_text_of(pass, "documentation");
    int width = fb_screen_width(stdout);
    if (*text) fb_screen_paragraphs(stdout, text, width > 100 ? 100 : width);
    snprintf(version, sizeof version, "%lld", (long long)json_integer_value(json_object_get(pass, "version")));
    fb_print_facts(cli, (const fb_fact[]){{"pass", fb_text_of(pass, "name")},
                                          {"version", version},
                                          {"summary", *text ? "" : fb_text_of(pass, "summary")},
                                          {"exactness", fb_text_of(pass, "exactness")},
                                          {"gain", fb_text_of(pass, "gain")},
                                          {"reversible", fb_yes_no(pass, "reversible")},
                                          {"preserves computation", fb_yes_no(pass, "preserves_computation")},
                                          {"signature", fb_text_of(pass, "signature")},
                                          {0}});
    print_parameters(cli, json_object_get(json_object_get(pass, "parameters"), "properties"));
}

/* The passes of a preset, as it would be written out; malloc'ed, NULL when memory is out. */
static char *preset_passes(const json_t *preset) {
    const json_t *pass;
    size_t i;
    fb_buffer names = {0};
    json_array_foreach(json_object_get(preset, "passes"), i, pass) {
        fb_buffer_printf(&names, "%s%s", i ? ", " : "",
                         json_is_string(pass) ? json_string_value(pass) : fb_text_of(pass, "name"));
    }
    return fb_buffer_take(&names, NULL);
}

static void print_preset(fb_cli *cli, const json_t *preset) {
    char rounds[32], *passes = preset_passes(preset);
    snprintf(rounds, sizeof rounds, "%lld at most", (long long)json_integer_value(json_object_get(preset, "rounds")));
    fb_print_facts(cli, (const fb_fact[]){{"preset", fb_text_of(preset, "name")},
                                          {"summary", fb_text_of(preset, "summary")},
                                          {"passes", passes ? passes : ""},
                                          {"rounds", rounds},
                                          {0}});
    free(passes);
}

static int show_pass(fb_cli *cli) {
    const char *name = cli->arguments.items[0];
    fb_call call = {.method = "GET"};
    json_t *pass;
    fb_address_path(&call.address, "/v1/passes");
    fb_address_segment(&call.address, name);
    if (cli->is_json) return fb_cli_relay(cli, &call);
    int result = fb_cli_call_json(cli, &call, &pass, NULL);
    if (result) return result;
    if (json_object_get(pass, "rounds")) print_preset(cli, pass);
    else print_pass(cli, pass);
    json_decref(pass);
    return FB_EXIT_DONE;
}

static const char *const preset_headings[] = {"PRESET", "ROUNDS", "PASSES"};

static void preset_row(const json_t *preset, fb_screen_table *table) {
    char *passes = preset_passes(preset);
    fb_table_text(table, preset, "name");
    fb_table_number(table, preset, "rounds");
    fb_table_cell(table, "%s", passes ? passes : "");
    free(passes);
}

static int list_passes(fb_cli *cli) {
    fb_address address = {0};
    json_t *answer;
    fb_address_path(&address, "/v1/passes"); /* the only list without pages */
    int result = fb_cli_get(cli, &address, &answer, NULL);
    if (result) return result;
    if (cli->is_json) {
        result = fb_cli_print_json(answer);
    } else {
        fb_list_print_table(cli, json_object_get(answer, "items"), pass_headings, 4, pass_row);
        fb_list_print_table(cli, json_object_get(answer, "presets"), preset_headings, 3, preset_row);
    }
    json_decref(answer);
    return result;
}

static int list_or_show(fb_cli *cli) {
    return cli->arguments.count ? show_pass(cli) : list_passes(cli);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

const fb_verb fb_pass_verbs[] = {
    {.name = "pass list",
     .arguments = "",
     .summary = "lists the passes and presets",
     .options = fb_plain_options,
     .folder = FB_FOLDER_UNUSED,
     .run = list_passes},
    {.name = "pass show",
     .arguments = "PASS",
     .summary = "describes a pass or a preset",
     .options = fb_plain_options,
     .folder = FB_FOLDER_UNUSED,
     .run = show_pass},
    {.name = "passes",
     .now = "pass list and pass show",
     .arguments = "[PASS]",
     .options = fb_plain_options,
     .folder = FB_FOLDER_UNUSED,
     .run = list_or_show},
    {0},
};
