/* foldback show: one thing of the store, in words or as a picture. */
#include <string.h>
#include <unistd.h>

#include "core/picture/picture.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

static void print_runs(fb_cli *cli, const char *title, const json_t *runs) {
    printf("\n%s\n", title);
    if (!json_array_size(runs)) puts("none");
    else fb_list_print_table(cli, runs, fb_run_headings, FB_RUN_COLUMNS, fb_run_row);
}

static void print_lineage(fb_cli *cli, const json_t *lineage) {
    const json_t *size = json_object_get(lineage, "bytes");
    char nodes[24];
    snprintf(nodes, sizeof nodes, "%lld", (long long)json_integer_value(json_object_get(lineage, "nodes")));
    fb_print_facts(cli, (const fb_fact[]){{"graph", fb_text_of(lineage, "id")},
                                          {"name", fb_text_of(lineage, "name")},
                                          {"nodes", nodes},
                                          {"document", fb_readable_size((uint64_t)json_integer_value(size)).text},
                                          {0}});
    print_runs(cli, "Made by:", json_object_get(json_object_get(lineage, "made_by"), "items"));
    print_runs(cli, "Used by:", json_object_get(json_object_get(lineage, "used_by"), "items"));
}

static void print_thing(fb_cli *cli, const fb_reference *what, const json_t *found) {
    switch (what->kind) {
    case FB_REFERS_TO_RUN: fb_print_run(cli, found); break;
    case FB_REFERS_TO_ALIAS: fb_print_alias(cli, found); break;
    case FB_REFERS_TO_VERSION: fb_print_version(cli, found); break;
    default: print_lineage(cli, found);
    }
}

/* A plain word that is not a file. */
static bool may_be_model(const fb_reference *what) {
    return what->kind == FB_REFERS_TO_FILE && !strchr(what->text, '/') && !strchr(what->text, '.') &&
           strcmp(what->text, "-") != 0 && access(what->text, F_OK) != 0;
}

/* ---- as a picture -------------------------------------------------------------------------------------------------------- */

static int write_svg(fb_cli *cli, fb_buffer *svg) {
    const char *text = fb_buffer_text(svg), *file = cli->values.output;
    int result = text ? fb_file_write(file ? file : "-", text, svg->size) : fb_cli_no_memory();
    fb_buffer_free(svg);
    return result;
}

/* Draws the changes of a run, which the service knows. */
static int draw_run(fb_cli *cli, const fb_reference *what) {
    fb_call call = {.method = "GET", .header = "Accept: image/svg+xml"};
    fb_answer answer;
    fb_reference_address(what, &call.address);
    fb_address_path(&call.address, "/layout");
    for (size_t i = 0; i < cli->values.open.count; i++) fb_address_query(&call.address, "open", cli->values.open.items[i]);
    int result = fb_cli_call(cli, &call, &answer);
    if (result) return result;
    fb_buffer svg = answer.body;
    answer.body = (fb_buffer){0};
    fb_answer_free(&answer);
    return write_svg(cli, &svg);
}

static int draw_graph(fb_cli *cli, const fb_reference *what) {
    fb_graph *graph;
    fb_picture picture;
    fb_error error = {0};
    fb_buffer svg = {0};
    int result = fb_reference_graph(cli, what, &graph);
    if (result) return result;
    fb_picture_options options = {
        .open = cli->values.open.items, .open_count = cli->values.open.count, .depth = FB_PICTURE_DEPTH_USUAL};
    if (fb_picture_make(NULL, graph, &options, &(fb_work){0}, &picture, &error)) result = fb_cli_error(&error);
    else fb_picture_write_svg(&picture, &svg);
    fb_picture_free(&picture);
    fb_graph_free(graph);
    return result ? result : write_svg(cli, &svg);
}

int fb_cli_show(fb_cli *cli) {
    fb_reference what = fb_reference_read(cli->arguments.items[0]);
    if (cli->values.wants_svg) return what.kind == FB_REFERS_TO_RUN ? draw_run(cli, &what) : draw_graph(cli, &what);
    if (may_be_model(&what)) return fb_cli_model_show(cli);
    fb_call call = {.method = "GET"};
    char id[FB_ID_LENGTH + 1];
    json_t *found;
    int result = FB_EXIT_DONE;
    if (what.kind == FB_REFERS_TO_FILE) {
        result = fb_reference_id(cli, &what, id);
        what = fb_reference_read(id);
    }
    if (result) return result;
    fb_reference_address(&what, &call.address);
    if (what.kind == FB_REFERS_TO_GRAPH) fb_address_path(&call.address, "/lineage");
    if (cli->is_json) return fb_cli_relay(cli, &call);
    result = fb_cli_call_json(cli, &call, &found, NULL);
    if (result) return result;
    print_thing(cli, &what, found);
    json_decref(found);
    return FB_EXIT_DONE;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option show_options[] = {
    FLAG("svg", 0, "a picture of the graph, or of what a run changed, as SVG", wants_svg),
    LIST("open", 0, "MODULE", "with --svg: open this module, such as encoder.layer.3; may be repeated", open),
    TEXT("output", 'o', "FILE", "with --svg: write it there (standard output)", output),
    LIMIT,
    STORE,
    JSON,
    END,
};

const fb_verb fb_show_verbs[] = {
    {.name = "show",
     .arguments = "THING",
     .summary = "shows a run, a graph, a model, a version or an alias",
     .description = "A thing is run_…, sha256:…, a file, MODEL, MODEL:VERSION or MODEL@ALIAS.\n",
     .options = show_options,
     .folder = FB_FOLDER_FOR_FILES,
     .run = fb_cli_show},
    {0},
};
