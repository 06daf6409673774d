/* foldback upload, download, missing, blob list. */
#include <inttypes.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/options.h"

/* ---- there and back ----------------------------------------------------------------------------------------------------- */

/* {"items": [{"file", "digest", "size", "sent"}, …]} */
static int print_files_json(const fb_blob_files *files) {
    json_t *items = json_array();
    for (size_t i = 0; i < files->count; i++) {
        const fb_blob_file *one = &files->items[i];
        json_array_append_new(items, json_pack("{ss, ss, sI, sb}", "file", one->path, "digest", one->digest, "size",
                                               (json_int_t)one->size, "sent", one->is_missing));
    }
    json_t *answer = json_pack("{so}", "items", items);
    int result = fb_cli_print_json(answer);
    json_decref(answer);
    return result;
}

static void print_files(fb_cli *cli, const fb_blob_files *files) {
    static const char *const headings[] = {"DIGEST", ">SIZE", "SENT", "FILE"};
    fb_screen_table table = {.columns = 4, .headings = headings};
    for (size_t i = 0; i < files->count; i++) {
        const fb_blob_file *one = &files->items[i];
        fb_table_cell(&table, "%s", one->digest);
        fb_table_cell(&table, "%s", fb_readable_size(one->size).text);
        fb_table_cell(&table, "%s", one->is_missing ? "yes" : "it was there");
        fb_table_cell(&table, "%s", one->path);
    }
    fb_cli_table(cli, &table);
}

static int upload(fb_cli *cli) {
    const fb_arguments *words = &cli->arguments;
    fb_blob_files files = {0};
    for (size_t i = 0; i < words->count; i++) {
        if (fb_reference_read(words->items[i]).kind == FB_REFERS_TO_GRAPH)
            return fb_complain(FB_EXIT_USAGE, "upload: %s is a digest, not a file", words->items[i]);
    }
    int result = fb_blob_files_read(cli, (const char *const *)words->items, words->count, &files);
    if (!result) result = fb_blob_files_send(cli, &files);
    if (!result && cli->is_json) result = print_files_json(&files);
    else if (!result) print_files(cli, &files);
    fb_blob_files_free(&files);
    return result;
}

static int download(fb_cli *cli) {
    const char *digest = cli->arguments.items[0];
    fb_address address = {0};
    char whole[FB_ID_LENGTH + 1];
    if (fb_reference_read(digest).kind != FB_REFERS_TO_GRAPH)
        return fb_complain(FB_EXIT_USAGE, "download: %s is not a digest (sha256:…)", digest);
    int result = fb_whole_id(cli, "/v1/blobs", digest, whole);
    if (result) return result;
    fb_address_path(&address, "/v1/blobs");
    fb_address_segment(&address, whole);
    return fb_download(cli, &address, whole);
}

/* ---- missing ------------------------------------------------------------------------------------------------------------ */

static void print_missing(fb_cli *cli, const fb_blob_files *files) {
    fb_screen_table table = {.columns = 2};
    for (size_t i = 0; i < files->count; i++) {
        const fb_blob_file *one = &files->items[i];
        if (!one->is_missing) continue;
        fb_table_cell(&table, "%s", one->digest);
        fb_table_cell(&table, "%s", one->path ? one->path : "");
    }
    if (table.count) fb_cli_table(cli, &table);
    else puts("none");
}

static int print_missing_json(const fb_blob_files *files) {
    json_t *missing = json_array();
    for (size_t i = 0; i < files->count; i++) {
        if (files->items[i].is_missing) json_array_append_new(missing, json_string(files->items[i].digest));
    }
    json_t *answer = json_pack("{so}", "missing", missing);
    int result = fb_cli_print_json(answer);
    json_decref(answer);
    return result;
}

static int list_missing(fb_cli *cli) {
    fb_blob_files files = {0};
    int result = fb_blob_files_read(cli, (const char *const *)cli->arguments.items, cli->arguments.count, &files);
    if (!result) result = fb_blob_files_ask(cli, &files);
    if (!result && cli->is_json) result = print_missing_json(&files);
    else if (!result) print_missing(cli, &files);
    fb_blob_files_free(&files);
    return result;
}

/* ---- list -------------------------------------------------------------------------------------------------------------- */

static void blob_row(const json_t *blob, fb_screen_table *table) {
    fb_table_text(table, blob, "digest");
    fb_table_size(table, blob, "size");
    fb_table_number(table, blob, "graphs");
    fb_table_time(table, blob, "created");
    fb_table_time(table, blob, "used");
}

static int list_blobs(fb_cli *cli) {
    static const char *const headings[] = {"BLOB", ">SIZE", ">GRAPHS", "CREATED", "USED"};
    fb_address address = {0};
    fb_address_path(&address, "/v1/blobs");
    return fb_list_show(cli, &address, headings, 5, blob_row);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option download_options[] = {GOES_TO, STORE, END};

const fb_verb fb_blob_verbs[] = {
    {.name = "upload",
     .arguments = "FILE...",
     .summary = "uploads files as blobs, except those that the store has",
     .description = "What no graph needs is removed after a day: see foldback gc.\n",
     .options = fb_plain_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = upload},
    {.name = "download",
     .arguments = "DIGEST",
     .summary = "writes a blob to a file, and checks its digest",
     .options = download_options,
     .run = download},
    {.name = "missing",
     .arguments = "FILE|DIGEST...",
     .summary = "lists which of these blobs the store lacks",
     .options = fb_plain_options,
     .run = list_missing},
    {.name = "blob list",
     .arguments = "",
     .summary = "lists the blobs of the store",
     .options = fb_list_options,
     .run = list_blobs},
    {.name = "blobs", .now = "blob list", .arguments = "", .options = fb_list_options, .run = list_blobs},
    {0},
};
