/* foldback model, register, delete. */
#include <string.h>

#include "server/cli/cli.h"

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

int fb_cli_model_list(fb_cli *cli) {
    static const char *const headings[] = {"MODEL", ">VERSIONS", ">ALIASES", "CREATED"};
    fb_address address = {0};
    fb_address_path(&address, "/v1/models");
    return fb_list_show(cli, &address, headings, 4, model_row);
}

int fb_cli_models(fb_cli *cli) {
    return cli->arguments.count ? fb_cli_model_show(cli) : fb_cli_model_list(cli);
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

int fb_cli_register(fb_cli *cli) {
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

/* ---- delete ------------------------------------------------------------------------------------------------------------- */

int fb_cli_delete(fb_cli *cli) {
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
