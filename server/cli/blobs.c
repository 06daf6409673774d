/* foldback upload, download, missing, blobs, gc. */
#include <inttypes.h>
#include <string.h>

#include "core/json/members.h"
#include "server/cli/cli.h"

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

int fb_cli_upload(fb_cli *cli) {
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

int fb_cli_download(fb_cli *cli) {
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

int fb_cli_missing(fb_cli *cli) {
    fb_blob_files files = {0};
    int result = fb_blob_files_read(cli, (const char *const *)cli->arguments.items, cli->arguments.count, &files);
    if (!result) result = fb_blob_files_ask(cli, &files);
    if (!result && cli->is_json) result = print_missing_json(&files);
    else if (!result) print_missing(cli, &files);
    fb_blob_files_free(&files);
    return result;
}

/* ---- blobs, gc ---------------------------------------------------------------------------------------------------------- */

static void blob_row(const json_t *blob, fb_screen_table *table) {
    fb_table_text(table, blob, "digest");
    fb_table_size(table, blob, "size");
    fb_table_number(table, blob, "graphs");
    fb_table_time(table, blob, "created");
    fb_table_time(table, blob, "used");
}

int fb_cli_blobs(fb_cli *cli) {
    static const char *const headings[] = {"BLOB", ">SIZE", ">GRAPHS", "CREATED", "USED"};
    fb_address address = {0};
    fb_address_path(&address, "/v1/blobs");
    return fb_list_show(cli, &address, headings, 5, blob_row);
}

typedef struct number_text {
    char text[24];
} number_text;

static number_text number_of(const json_t *object, const char *name) {
    number_text out;
    snprintf(out.text, sizeof out.text, "%lld", (long long)json_integer_value(json_object_get(object, name)));
    return out;
}

static fb_short_text size_of(const json_t *object, const char *name) {
    return fb_readable_size((uint64_t)json_integer_value(json_object_get(object, name)));
}

int fb_cli_gc(fb_cli *cli) {
    fb_call call = {.method = "POST"};
    json_t *found;
    fb_address_path(&call.address, "/v1/gc");
    fb_buffer_char(&call.body, '{');
    fb_put_bool(&call.body, "dry_run", cli->values.dry_run);
    if (cli->values.grace != FB_GRACE_UNSET) fb_put_int(&call.body, "grace_seconds", cli->values.grace);
    if (cli->values.keep_runs_days) fb_put_int(&call.body, "keep_runs_days", cli->values.keep_runs_days);
    if (cli->values.keep_runs) fb_put_int(&call.body, "keep_runs", cli->values.keep_runs);
    if (cli->values.keep_audit_days) fb_put_int(&call.body, "keep_audit_days", cli->values.keep_audit_days);
    fb_buffer_char(&call.body, '}');
    if (cli->is_json) return fb_cli_relay(cli, &call);
    int result = fb_cli_call_json(cli, &call, &found, NULL);
    if (result) return result;
    fb_print_facts(
        cli, (const fb_fact[]){{cli->values.dry_run ? "runs that would go" : "runs removed", number_of(found, "runs").text},
                               {"graphs that only they needed", number_of(found, "graphs").text},
                               {"runs kept", number_of(found, "kept_runs").text},
                               {cli->values.dry_run ? "audit entries that would go" : "audit entries removed",
                                number_of(found, "audit_entries").text},
                               {cli->values.dry_run ? "blobs that would go" : "blobs removed", number_of(found, "blobs").text},
                               {"size of the blobs", size_of(found, "bytes").text},
                               {"uploads given up", number_of(found, "uploads").text},
                               {"files without a blob", number_of(found, "files").text},
                               {"blobs kept", number_of(found, "kept").text},
                               {"size of those kept", size_of(found, "kept_bytes").text},
                               {0}});
    json_decref(found);
    return FB_EXIT_DONE;
}
