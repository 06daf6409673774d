/* foldback layout list, show, put, apply, undo. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/sha256.h"
#include "core/bind/bind.h"
#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/layouts/layout.h"
#include "core/weights/safetensors.h"
#include "core/weights/weights_file.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

/* ---- list, show, put ---------------------------------------------------------------------------------------------------- */

static void layout_row(const json_t *layout, fb_screen_table *table) {
    fb_table_text(table, layout, "name");
    fb_table_number(table, layout, "version");
    fb_table_text(table, layout, "description");
}

static int list_layouts(fb_cli *cli) {
    static const char *const headings[] = {"LAYOUT", ">VERSION", "WHAT IT DOES"};
    fb_address address = {0};
    fb_address_path(&address, "/v1/layouts");
    if (cli->arguments.count) {
        fb_address_segment(&address, cli->arguments.items[0]);
        fb_address_segment(&address, "versions");
    }
    return fb_list_show(cli, &address, headings, 3, layout_row);
}

/* NAME or NAME:VERSION. */
static void address_layout(const char *what, fb_address *out) {
    const char *colon = strchr(what, ':');
    char name[300];
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - what) : (int)strlen(what), what);
    fb_address_path(out, "/v1/layouts");
    fb_address_segment(out, name);
    if (!colon) return;
    fb_address_segment(out, "versions");
    fb_address_segment(out, colon + 1);
}

/* As JSON or as facts, and frees what is in the call. */
static int answer_layout(fb_cli *cli, fb_call *call, bool wants_document) {
    json_t *layout;
    char version[24];
    if (cli->is_json) return fb_cli_relay(cli, call);
    int result = fb_cli_call_json(cli, call, &layout, NULL);
    if (result) return result;
    snprintf(version, sizeof version, "%lld", (long long)json_integer_value(json_object_get(layout, "version")));
    fb_print_facts(cli, (const fb_fact[]){{"layout", fb_text_of(layout, "name")},
                                          {"version", version},
                                          {"description", fb_text_of(layout, "description")},
                                          {"created", fb_told_time(fb_text_of(layout, "created")).text},
                                          {0}});
    char *text = wants_document ? json_dumps(json_object_get(layout, "layout"), JSON_INDENT(2)) : NULL;
    if (text) {
        fputs("\n", stdout);
        fb_screen_lines(stdout, text);
        fputs("\n", stdout);
    }
    free(text);
    json_decref(layout);
    return FB_EXIT_DONE;
}

static int show_layout(fb_cli *cli) {
    fb_call call = {.method = "GET"};
    address_layout(cli->arguments.items[0], &call.address);
    return answer_layout(cli, &call, true);
}

static int put_layout(fb_cli *cli) {
    fb_call call = {.method = "PUT"};
    const char *path = cli->arguments.items[0];
    int result = fb_file_read(path, &call.body);
    if (result) return result;
    json_t *layout = json_loadb(call.body.data, call.body.size, 0, NULL);
    const char *name = fb_text_of(layout, "name");
    if (!*name) result = fb_complain(FB_EXIT_FAILED, "%s is not a layout: JSON with a name and rows", path);
    fb_address_path(&call.address, "/v1/layouts");
    fb_address_segment(&call.address, name);
    json_decref(layout);
    if (!result) return answer_layout(cli, &call, false);
    fb_call_free(&call);
    return result;
}

/* ---- what apply and undo have in common --------------------------------------------------------------------------------- */

/* Sends a body, which it steals. */
static int post_text(fb_cli *cli, const char *path, fb_buffer *body, json_t **out) {
    fb_call call = {.method = "POST", .body = *body};
    *body = (fb_buffer){0};
    fb_address_path(&call.address, path);
    if (!call.body.failed) return fb_cli_call_json(cli, &call, out, NULL);
    fb_call_free(&call);
    return fb_cli_no_memory();
}

static void put_json(fb_buffer *out, const json_t *json) {
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    out->failed |= !text;
    if (text) fb_buffer_string(out, text);
    free(text);
}

/* Sends JSON, which it steals. */
static int post(fb_cli *cli, const char *path, json_t *body, json_t **out) {
    fb_buffer text = {0};
    put_json(&text, body);
    json_decref(body);
    return post_text(cli, path, &text, out);
}

static json_t *list_digests(const fb_blob_files *files) {
    json_t *list = json_array();
    for (size_t i = 0; i < files->count; i++) json_array_append_new(list, json_string(files->items[i].digest));
    return list;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Makes the files a checkpoint of the store: its graph's id, to be freed. */
static int store_checkpoint(fb_cli *cli, fb_blob_files *files, const char *path, char **id) {
    json_t *answer;
    int result = fb_blob_files_send(cli, files);
    if (!result)
        result = post(cli, "/v1/checkpoints", json_pack("{s:o, s:s}", "weights", list_digests(files), "name", name_of(path)),
                      &answer);
    if (result) return result;
    *id = strdup(fb_text_of(answer, "id"));
    json_decref(answer);
    return *id ? FB_EXIT_DONE : fb_cli_no_memory();
}

static int write_result(fb_cli *cli, fb_gguf_conversion *conversion, const json_t *run) {
    fb_address address = {0};
    const char *graph = fb_text_of(run, "result");
    fb_address_path(&address, "/v1/graphs");
    fb_address_segment(&address, graph);
    fb_address_path(&address, "/weights");
    int result =
        cli->values.shard_size ? fb_download_shards(cli, &address, cli->values.shard_size) : fb_download(cli, &address, NULL);
    if (!result) result = fb_gguf_finish(cli, conversion, graph);
    if (result) fb_complain(0, "%s is stored; foldback weights %s writes its file", fb_text_of(run, "id"), graph);
    return result;
}

/* On a terminal: what stays in the store, which has all that an undo needs. */
static void print_kept(fb_cli *cli, const fb_blob_files *files) {
    uint64_t size = 0;
    for (size_t i = 0; i < files->count; i++) size += files->items[i].size;
    if (cli->is_json || cli->values.dry_run || !size) return;
    char text[400];
    snprintf(
        text, sizeof text,
        "The store keeps %s of what was read, so that this can be undone. It goes with the run: foldback gc --keep-runs-days "
        "DAYS removes older ones. Or work in a folder of its own, --data DIR, and remove that.\n",
        fb_readable_size(size).text);
    putchar('\n');
    fb_screen_paragraphs(stdout, text, fb_screen_width(stdout));
}

static int need_output(const fb_cli *cli) {
    const char *output = cli->values.output;
    if (!output && !cli->values.dry_run)
        return fb_complain(FB_EXIT_USAGE, "%s: name the file to write with --output FILE", cli->verb->name);
    if (output && cli->values.shard_size && !fb_can_be_sharded(output))
        return fb_complain(FB_EXIT_USAGE, "%s: with --shard-size, --output ends in .safetensors", cli->verb->name);
    if (!output || cli->values.dry_run || strcmp(output, "-") == 0) return FB_EXIT_DONE;
    return fb_output_check(cli, output);
}

/* ---- a dry run stores nothing: the files are read where they are -------------------------------------------------------- */

static fb_status map_file(const fb_blob_file *one, fb_blob_bytes *out, fb_error *error) {
    int file = open(one->path, O_RDONLY | O_CLOEXEC);
    void *bytes = file >= 0 && one->size ? mmap(NULL, (size_t)one->size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    int failure = errno;
    if (file >= 0) close(file);
    if (bytes == MAP_FAILED)
        return fb_fail(error, FB_IO, "file-failed", NULL, "cannot read %s: %s", one->path, strerror(failure));
    *out = (fb_blob_bytes){.bytes = bytes, .size = one->size};
    return FB_OK;
}

static fb_status open_file(void *context, const char *blob, fb_blob_bytes *out, fb_error *error) {
    const fb_blob_files *files = context;
    for (size_t i = 0; i < files->count; i++) {
        const fb_blob_file *one = &files->items[i];
        if (one->path && strcmp(one->digest, blob) == 0) return map_file(one, out, error);
    }
    return fb_fail(error, FB_NOT_FOUND, "blob-missing", NULL, "with --dry-run give files, not %s", blob);
}

static void close_file(void *context, fb_blob_bytes *bytes) {
    (void)context;
    munmap((void *)(uintptr_t)bytes->bytes, (size_t)bytes->size);
}

static fb_status make_checkpoint(const fb_blob_files *files, const char *path, fb_buffer *graph, fb_error *error) {
    fb_blobs blobs = {.context = (void *)(uintptr_t)files, .open = open_file, .close = close_file};
    const char **digests = calloc(files->count + 1, sizeof *digests);
    for (size_t i = 0; digests && i < files->count; i++) digests[i] = files->items[i].digest;
    fb_status status =
        digests ? fb_checkpoint_write(digests, files->count, name_of(path), &blobs, graph, error) : fb_fail_memory(error);
    free(digests);
    return status;
}

static int read_checkpoint(const fb_blob_files *files, const char *path, fb_buffer *graph) {
    fb_error error = {0};
    fb_status status = make_checkpoint(files, path, graph, &error);
    return status ? fb_complain(FB_EXIT_FAILED, "%s: %s", path, error.message) : FB_EXIT_DONE;
}

/* ---- the layout in this process: what it does follows from the headers alone ----------------------------------------------
 */

/* Nothing is read but headers: so files are known by their paths. */
static int name_files(fb_blob_files *files) {
    for (size_t i = 0; i < files->count; i++) {
        fb_blob_file *one = &files->items[i];
        if (!fb_sha256_id(one->path, strlen(one->path), one->digest)) return fb_cli_no_memory();
    }
    return FB_EXIT_DONE;
}

/* `context` is the document of the layout. */
static fb_status find_layout(void *context, const char *name, int version, const fb_pass **out, fb_error *error) {
    const json_t *document = context;
    *out = NULL;
    return strcmp(fb_text_of(document, "name"), name) == 0 ? fb_layout_read(document, "", version, out, error) : FB_OK;
}

/* `composition` has the passes, which the run points to. */
static fb_status run_layout(const json_t *stored, json_t *params, const fb_buffer *document, fb_composition *composition,
                            fb_run *run, fb_error *error) {
    fb_pass_library library = {.context = json_object_get(stored, "layout"), .find = find_layout};
    fb_errors errors = {.limit = 1};
    fb_graph *source = NULL;
    json_t *list = json_pack("[{s:O, s:O, s:O}]", "name", json_object_get(stored, "name"), "version",
                             json_object_get(stored, "version"), "params", params);
    fb_status status = list ? fb_document_read(document->data, document->size, NULL, "", &source, &errors) : FB_NO_MEMORY;
    if (status) fb_fail(error, status, "bad-checkpoint", NULL, "%s", errors.count ? errors.items[0].message : "memory is out");
    if (!status) status = fb_composition_read(list, "", &library, composition, error);
    if (!status) status = fb_composition_run(composition, source, FB_LINT_NONE, NULL, run, error);
    fb_graph_free(source);
    fb_errors_free(&errors);
    json_decref(list);
    return status;
}

/* ---- apply -------------------------------------------------------------------------------------------------------------- */

/* "heads=32" */
static int set_parameters(const fb_text_list *given, json_t *params) {
    for (size_t i = 0; i < given->count; i++) {
        const char *equals = strchr(given->items[i], '=');
        char *end = NULL, name[80];
        long long value = equals ? strtoll(equals + 1, &end, 10) : 0;
        if (!equals || !equals[1] || *end || (size_t)(equals - given->items[i]) >= sizeof name)
            return fb_complain(FB_EXIT_USAGE, "--set %s: write a parameter and a whole number, heads=32", given->items[i]);
        snprintf(name, sizeof name, "%.*s", (int)(equals - given->items[i]), given->items[i]);
        if (json_object_set_new(params, name, json_integer(value))) return fb_cli_no_memory();
    }
    return FB_EXIT_DONE;
}

/* A layout for some architectures is not applied to another one. */
static int check_architecture(const json_t *stored, const char *is) {
    const json_t *known = json_object_get(json_object_get(stored, "layout"), "architectures"), *one;
    fb_buffer names = {0};
    size_t i;
    bool fits = !known || !*is;
    json_array_foreach(known, i, one) {
        fits |= strcmp(json_string_value(one), is) == 0;
        fb_buffer_printf(&names, "%s%s", i ? ", " : "", json_string_value(one));
    }
    const char *text = fb_buffer_text(&names);
    int result = fits ? FB_EXIT_DONE
                      : fb_complain(FB_EXIT_FAILED, "%s is for %s, and this is %s: its rows may be in another order",
                                    fb_text_of(stored, "name"), text ? text : "", is);
    fb_buffer_free(&names);
    return result;
}

/* `gguf`: what the metadata of GGUF files says; NULL: none is read. */
static int read_config(const char *path, const json_t *gguf, const json_t *stored, const fb_pass *layout, json_t *params) {
    json_error_t failure;
    fb_error error = {0};
    json_t *config = path ? json_load_file(path, 0, &failure) : json_object();
    if (!config) return fb_complain(FB_EXIT_FAILED, "cannot read %s: %s", path, failure.text);
    json_t *text = json_object_get(config, "text_config"); /* of models that see as well */
    fb_status status = fb_layout_configure(layout, config, params, &error);
    if (!status && json_is_object(text)) status = fb_layout_configure(layout, text, params, &error);
    if (!status && gguf) status = fb_layout_configure(layout, gguf, params, &error);
    int result = status ? fb_cli_error(&error) : check_architecture(stored, fb_text_of(config, "model_type"));
    if (!result) result = check_architecture(stored, fb_text_of(gguf, FB_GGUF_ARCHITECTURE));
    json_decref(config);
    return result;
}

/* Complains of parameters that the layout requires and that were not given. */
static int check_parameters(const json_t *stored, const json_t *params) {
    const json_t *needed;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(stored, "parameters"), "required"), i, needed) {
        if (json_object_get(params, json_string_value(needed))) continue;
        return fb_complain(FB_EXIT_USAGE, "%s needs %s: give the model's --config config.json, or --set %s=…",
                           fb_text_of(stored, "name"), json_string_value(needed), json_string_value(needed));
    }
    return FB_EXIT_DONE;
}

/* The layout as the service has it, and its parameters; both the caller's. */
static int prepare(fb_cli *cli, const json_t *gguf, json_t **stored, json_t **params) {
    fb_call call = {.method = "GET"};
    fb_error error = {0};
    const fb_pass *layout = NULL;
    address_layout(cli->arguments.items[0], &call.address);
    int result = fb_cli_call_json(cli, &call, stored, NULL);
    if (result) return result;
    *params = json_object();
    if (fb_layout_read(json_object_get(*stored, "layout"), "", 1, &layout, &error)) result = fb_cli_error(&error);
    if (!result) result = set_parameters(&cli->values.settings, *params);
    if (!result) result = read_config(cli->values.config, gguf, *stored, layout, *params);
    if (!result) result = check_parameters(*stored, *params);
    fb_pass_free(layout);
    return result;
}

/* "{*block}q_proj.weight, {*block}k_proj.weight" */
static void join_names(const json_t *names, bool is_source, fb_buffer *out) {
    const char *name;
    json_t *value;
    size_t count = 0;
    json_object_foreach((json_t *)(uintptr_t)names, name, value) {
        const char *pattern = json_string_value(value);
        if (!pattern) pattern = fb_text_of(value, "name");
        fb_buffer_printf(out, "%s%s", count++ ? ", " : "", is_source ? pattern : name);
    }
}

static void print_rows(fb_cli *cli, const json_t *layout, const json_t *report) {
    static const char *const headings[] = {"FROM", "TO", ">APPLIED", ">REFUSED", "CAN BE UNDONE"};
    fb_screen_table table = {.columns = 5, .headings = headings};
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(layout, "rows"), i, row) {
        const json_t *told = json_array_get(json_object_get(report, "rows"), i);
        fb_buffer from = {0}, to = {0};
        join_names(json_object_get(row, "from"), true, &from);
        join_names(json_object_get(row, "to"), false, &to);
        fb_table_cell(&table, "%s", fb_buffer_text(&from) ? fb_buffer_text(&from) : "");
        fb_table_cell(&table, "%s", fb_buffer_text(&to) ? fb_buffer_text(&to) : "");
        fb_table_number(&table, told, "applied");
        fb_table_number(&table, told, "refused");
        fb_table_cell(&table, "%s", json_integer_value(json_object_get(told, "applied")) ? fb_yes_no(told, "reversible") : "");
        fb_buffer_free(&from);
        fb_buffer_free(&to);
    }
    fb_cli_table(cli, &table);
    printf("%lld tensors stay as they are\n", (long long)json_integer_value(json_object_get(report, "kept")));
}

/* A file that is converted in part is of no use: a refusal leaves none. */
static int check_run(const fb_cli *cli, const json_t *pass) {
    const json_t *refusal, *row;
    size_t i, shown = 0, refused = 0;
    bool is_strict = cli->values.is_strict, fits = json_integer_value(json_object_get(pass, "applied")) > 0;
    json_array_foreach(json_object_get(pass, "refused"), i, refusal) {
        bool is_unmatched = strcmp(fb_text_of(refusal, "reason"), "unmatched") == 0;
        if (is_unmatched && !fits && !is_strict) fb_complain(0, "%s", fb_text_of(refusal, "detail"));
        if (is_unmatched && !is_strict) continue;
        refused++;
        if (shown++ < 20) fb_complain(0, "%s: %s", fb_text_of(refusal, "reason"), fb_text_of(refusal, "detail"));
    }
    if (refused) return fb_complain(FB_EXIT_FAILED, "%zu refused; nothing was written", refused);
    if (!fits) return fb_complain(FB_EXIT_FAILED, "the layout fits no tensor of this checkpoint; nothing was written");
    json_array_foreach(json_object_get(json_object_get(pass, "layout"), "rows"), i, row) {
        if (is_strict && json_is_false(json_object_get(row, "reversible")))
            return fb_complain(FB_EXIT_FAILED, "row %zu leaves numbers out and could not be undone; nothing was written", i);
    }
    return FB_EXIT_DONE;
}

/* `graph`: JSON, an id or a document, which may be large and is sent as it is. */
static int request_run(fb_cli *cli, const json_t *stored, json_t *params, const fb_buffer *graph, bool is_dry, json_t **run) {
    fb_buffer body = {0};
    json_t *pass = json_pack("{s:O, s:O, s:O}", "name", json_object_get(stored, "name"), "version",
                             json_object_get(stored, "version"), "params", params);
    fb_buffer_printf(&body, "{\"options\":{\"dry_run\":%s},\"passes\":[", is_dry ? "true" : "false");
    put_json(&body, pass);
    fb_buffer_string(&body, "],\"graph\":");
    fb_buffer_append(&body, graph->data, graph->size);
    fb_buffer_char(&body, '}');
    json_decref(pass);
    return post_text(cli, "/v1/optimize", &body, run);
}

static void print_applied(fb_cli *cli, const json_t *stored, const json_t *run) {
    const json_t *pass = json_array_get(json_object_get(run, "passes"), 0);
    const char *id = fb_text_of(run, "id");
    if (cli->values.output && strcmp(cli->values.output, "-") == 0) return;
    if (cli->is_json) {
        fb_cli_print_json(run);
    } else {
        fb_print_facts(cli, (const fb_fact[]){{"run", *id ? id : "none: nothing was stored"}, {0}});
        putchar('\n');
        print_rows(cli, json_object_get(stored, "layout"), json_object_get(pass, "layout"));
    }
}

/* `run` is the dry one, which this steals. */
static int finish_apply(fb_cli *cli, fb_gguf_conversion *conversion, const json_t *stored, json_t *params,
                        const fb_buffer *graph, fb_ahead *ahead, json_t *run) {
    int result = check_run(cli, json_array_get(json_object_get(run, "passes"), 0));
    if (result || cli->values.dry_run) {
        print_applied(cli, stored, run);
        json_decref(run);
        return result;
    }
    json_decref(run);
    result = request_run(cli, stored, params, graph, false, &run);
    if (result) return result;
    if (!ahead || !fb_ahead_finish(cli, ahead, fb_text_of(run, "result"))) result = write_result(cli, conversion, run);
    else result = fb_gguf_finish(cli, conversion, fb_text_of(run, "result"));
    if (!result) print_applied(cli, stored, run);
    json_decref(run);
    return result;
}

static bool are_here(const fb_blob_files *files) {
    bool are_paths = true;
    for (size_t i = 0; i < files->count; i++) are_paths &= files->items[i].path != NULL;
    return are_paths;
}

/* Begins to write the result before the files are hashed, where that can be done. NULL otherwise, and where the layout is going
 * to be refused. */
static fb_ahead *begin_ahead(fb_cli *cli, const json_t *stored, json_t *params, const fb_blob_files *given, const char *path) {
    const char *output = cli->values.output;
    fb_blob_files files = {.items = calloc(given->count + 1, sizeof *files.items), .count = given->count};
    fb_composition composition = {0};
    fb_run run = {0};
    fb_buffer graph = {0};
    fb_error error = {0};
    fb_ahead *ahead = NULL;
    bool ok = files.items && !cli->values.shard_size && strcmp(output, "-") != 0 && are_here(given) && !fb_cli_open(cli) &&
              fb_client_is_local(cli->client);
    if (ok) memcpy(files.items, given->items, given->count * sizeof *files.items);
    ok = ok && !name_files(&files) && !make_checkpoint(&files, path, &graph, &error) &&
         !run_layout(stored, params, &graph, &composition, &run, &error);
    if (ok && run.passes[0].applied) {
        ahead = fb_ahead_begin_take(output, &files, run.result);
        run.result = NULL;
    }
    fb_run_free(&run);
    fb_composition_free(&composition);
    fb_buffer_free(&graph);
    free(files.items);
    return ahead;
}

static int apply_layout(fb_cli *cli) {
    const char *const *words = (const char *const *)cli->arguments.items + 1;
    bool is_dry = cli->values.dry_run;
    json_t *stored = NULL, *params = NULL, *run = NULL;
    fb_buffer graph = {0};
    fb_blob_files files = {0};
    fb_ahead *ahead = NULL;
    char *id = NULL;
    fb_gguf_conversion conversion = {0};
    int result = need_output(cli);
    if (!result) result = fb_blob_files_read(cli, words, cli->arguments.count - 1, &files);
    if (!result) result = fb_blob_files_check_shards(&files);
    if (!result) result = fb_gguf_begin(cli, &files, &conversion);
    if (!result) result = prepare(cli, conversion.config, &stored, &params);
    if (!result && is_dry) result = fb_blob_files_digest(&files);
    if (!result && is_dry) result = read_checkpoint(&files, words[0], &graph);
    if (!result && !is_dry) ahead = begin_ahead(cli, stored, params, &files, words[0]);
    if (!result && !is_dry) result = store_checkpoint(cli, &files, words[0], &id);
    if (!result && !is_dry) fb_buffer_printf(&graph, "\"%s\"", id);
    if (graph.failed) result = fb_cli_no_memory();
    /* A refusal must not leave a run: so it is tried first. */
    if (!result) result = request_run(cli, stored, params, &graph, true, &run);
    if (!result) result = finish_apply(cli, &conversion, stored, params, &graph, ahead, run);
    if (!result) print_kept(cli, &files);
    fb_ahead_free(ahead);
    fb_gguf_end(cli, &conversion);
    free(id);
    json_decref(stored);
    json_decref(params);
    fb_buffer_free(&graph);
    fb_blob_files_free(&files);
    return result;
}

/* ---- plan ---------------------------------------------------------------------------------------------------------------- */

/* The plan of a run, with what it is of; the caller's. */
static int plan_run(const json_t *stored, json_t *params, const fb_run *run, const json_t *report, json_t **out) {
    fb_buffer text = {0};
    fb_error error = {0};
    const json_t *row;
    bool is_reversible = true;
    size_t i;
    if (fb_layout_plan_write(run->result, &text, &error)) {
        fb_buffer_free(&text);
        return fb_cli_error(&error);
    }
    json_array_foreach(json_object_get(json_object_get(report, "layout"), "rows"), i, row) is_reversible &=
        json_is_true(json_object_get(row, "reversible"));
    json_t *rest = json_loadb(text.data, text.size, 0, NULL);
    *out = json_pack("{s:s, s:O, s:O, s:O, s:b}", "format", "foldback.layout-plan/1", "layout", json_object_get(stored, "name"),
                     "version", json_object_get(stored, "version"), "params", params, "reversible", is_reversible);
    bool ok = rest && *out && !json_object_update(*out, rest);
    json_decref(rest);
    fb_buffer_free(&text);
    return ok ? FB_EXIT_DONE : fb_cli_no_memory();
}

static int plan_layout(fb_cli *cli) {
    const char *const *words = (const char *const *)cli->arguments.items + 1;
    json_t *stored = NULL, *params = NULL, *plan = NULL, *reports = NULL;
    fb_buffer graph = {0}, text = {0};
    fb_blob_files files = {0};
    fb_composition composition = {0};
    fb_run run = {0};
    fb_work work = {0};
    fb_error error = {0};
    int result = prepare(cli, NULL, &stored, &params);
    if (!result) result = fb_blob_files_read(cli, words, cli->arguments.count - 1, &files);
    if (!result) result = fb_blob_files_check_shards(&files);
    for (size_t i = 0; i < files.count && !result; i++)
        if (!files.items[i].path) result = fb_complain(FB_EXIT_USAGE, "layout plan: give files, not %s", files.items[i].digest);
    if (!result) result = name_files(&files);
    if (!result) result = read_checkpoint(&files, words[0], &graph);
    if (!result && run_layout(stored, params, &graph, &composition, &run, &error)) result = fb_cli_error(&error);
    if (!result && !fb_run_report(&run, &work, &text)) result = fb_cli_no_memory();
    if (!result && !(reports = json_loadb(text.data, text.size, 0, NULL))) result = fb_cli_no_memory();
    if (!result) result = check_run(cli, json_array_get(reports, 0));
    if (!result) result = plan_run(stored, params, &run, json_array_get(reports, 0), &plan);
    if (!result && cli->values.is_python) fb_layout_plan_python(plan);
    else if (!result && cli->is_json) fb_cli_print_json(plan);
    else if (!result) fb_layout_plan_show(plan);
    json_decref(plan);
    json_decref(reports);
    json_decref(stored);
    json_decref(params);
    fb_run_free(&run);
    fb_composition_free(&composition);
    fb_buffer_free(&graph);
    fb_buffer_free(&text);
    fb_blob_files_free(&files);
    return result;
}

/* ---- undo --------------------------------------------------------------------------------------------------------------- */

/* The graph whose weights files say that they hold, "" when they say nothing. */
typedef struct claim {
    char graph[FB_ID_LENGTH + 1];
    const char *file; /* that says so; borrowed */
} claim;

static int hear(claim *heard, const char *file, const json_t *metadata) {
    const char *said = json_string_value(json_object_get(metadata, FB_WEIGHTS_GRAPH));
    if (!said) return FB_EXIT_DONE;
    if (*heard->graph && strcmp(heard->graph, said) != 0)
        return fb_complain(
            FB_EXIT_FAILED,
            "%s says that it is graph %.19s…, and %s that it is %.19s…; give the files of one graph, or name the "
            "run, --run run_…",
            heard->file, heard->graph, file, said);
    fb_copy_text(heard->graph, sizeof heard->graph, said);
    heard->file = file;
    return FB_EXIT_DONE;
}

static int hear_file(const fb_blob_file *one, claim *heard) {
    fb_blob_bytes bytes;
    fb_error error = {0};
    fb_safetensors header;
    if (fb_is_index_name(one->path)) return FB_EXIT_DONE;
    if (map_file(one, &bytes, &error)) return fb_cli_error(&error);
    int result = FB_EXIT_DONE;
    if (fb_safetensors_read(bytes.bytes, bytes.size, &header, &error)) {
        result = fb_complain(FB_EXIT_FAILED, "%s: %s", one->path, error.message);
    } else {
        result = hear(heard, one->path, header.metadata);
        fb_safetensors_free(&header);
    }
    close_file(NULL, &bytes);
    return result;
}

/* Bytes first to last of a blob; fewer where it ends. */
static int get_range(fb_cli *cli, const char *digest, uint64_t first, uint64_t last, fb_answer *answer) {
    char range[80];
    fb_call call = {.method = "GET", .header = range};
    snprintf(range, sizeof range, "Range: bytes=%llu-%llu", (unsigned long long)first, (unsigned long long)last);
    fb_address_path(&call.address, "/v1/blobs");
    fb_address_segment(&call.address, digest);
    return fb_cli_call(cli, &call, answer);
}

/* The same of a file that only the store has. An index of shards says nothing, and its text is too large a number. */
static int hear_blob(fb_cli *cli, const char *digest, claim *heard) {
    fb_answer answer;
    uint64_t size = 0;
    int result = get_range(cli, digest, 0, 7, &answer);
    if (result) return result;
    for (size_t i = 0; i < answer.body.size && i < 8; i++) size |= (uint64_t)(unsigned char)answer.body.data[i] << (8 * i);
    if (answer.body.size < 8) size = 0;
    fb_answer_free(&answer);
    if (!size || size > FB_SAFETENSORS_MAX_HEADER) return FB_EXIT_DONE;
    result = get_range(cli, digest, 8, 7 + size, &answer);
    if (result) return result;
    json_t *header = json_loadb(answer.body.data, answer.body.size, 0, NULL);
    fb_answer_free(&answer);
    result = hear(heard, digest, json_object_get(header, "__metadata__"));
    json_decref(header);
    return result;
}

static int hear_files(fb_cli *cli, const fb_blob_files *files, claim *heard) {
    int result = FB_EXIT_DONE;
    for (const fb_blob_file *one = files->items; one < files->items + files->count && !result; one++)
        result = one->path ? hear_file(one, heard) : hear_blob(cli, one->digest, heard);
    return result;
}

/* The files that a checkpoint of the store was made of. */
static int hear_checkpoint(fb_cli *cli, const char *graph, claim *heard) {
    fb_address address = {0};
    json_t *document, *tensor;
    json_t *seen = json_object();
    size_t i;
    fb_address_path(&address, "/v1/graphs");
    fb_address_segment(&address, graph);
    int result = fb_cli_get(cli, &address, &document, NULL);
    if (result) document = NULL;
    json_array_foreach(json_object_get(document, "tensors"), i, tensor) {
        const char *blob = json_string_value(json_object_get(tensor, "blob"));
        if (result || !blob || json_object_get(seen, blob)) continue;
        result = json_object_set_new(seen, blob, json_true()) ? fb_cli_no_memory() : hear_blob(cli, blob, heard);
    }
    heard->file = graph;
    json_decref(document);
    json_decref(seen);
    return result;
}

#define RUN_ID_MAX FB_ID_LENGTH /* shorter than a graph's */

/* The run that undoing everything newest of the graph would undo, tried without storing anything; "" where no run made it. */
static int find_maker(fb_cli *cli, const char *graph, char run[RUN_ID_MAX + 1]) {
    fb_call call = {.method = "POST"};
    fb_answer answer;
    fb_address_path(&call.address, "/v1/reverse");
    fb_buffer_printf(&call.body, "{\"graph\":\"%s\",\"options\":{\"dry_run\":true}}", graph);
    int result = fb_cli_try(cli, &call, &answer);
    if (result) return result;
    json_t *undone = json_loadb(answer.body.data, answer.body.size, 0, NULL);
    bool is_unrelated = answer.status == 409 && !strcmp(fb_text_of(undone, "code"), "unrelated-graph");
    if (answer.status / 100 != 2 && !is_unrelated) {
        json_decref(undone);
        return fb_cli_refused(cli, &answer);
    }
    fb_answer_free(&answer);
    if (!is_unrelated) fb_copy_text(run, RUN_ID_MAX + 1, fb_text_of(undone, "of_run"));
    if (!is_unrelated && !json_object_get(json_array_get(json_object_get(undone, "passes"), 0), "layout"))
        result = fb_complain(FB_EXIT_FAILED, "%s made graph %.19s…, and is not one of layout apply: foldback reverse undoes it",
                             run, graph);
    json_decref(undone);
    return result;
}

/* The graph that an undo of trained weights put together again, as it was before the training; "" where none made this one. */
static int find_put_back(fb_cli *cli, const char *graph, char before[FB_ID_LENGTH + 1]) {
    fb_address address = {0};
    fb_list list;
    json_t *undo, *run;
    size_t i;
    fb_address_path(&address, "/v1/runs");
    fb_address_query(&address, "result", graph);
    fb_address_query(&address, "kind", "reverse");
    int result = fb_list_get(cli, &address, &list);
    if (result) return result;
    json_array_foreach(list.items, i, undo) {
        fb_address of = {0};
        fb_address_path(&of, "/v1/runs");
        fb_address_segment(&of, fb_text_of(undo, "of_run"));
        if (!result && !(result = fb_cli_get(cli, &of, &run, NULL))) {
            const char *source = fb_text_of(run, "source");
            if (*before && strcmp(before, source) != 0)
                result = fb_complain(FB_EXIT_FAILED, "different runs may have made graph %.19s…: name one, --run run_…", graph);
            fb_copy_text(before, FB_ID_LENGTH + 1, source);
            json_decref(run);
        } else {
            fb_buffer_free(&of.text);
        }
    }
    json_decref(list.items);
    return result;
}

#define GENERATIONS_MAX 100

/* The run whose result the graph is; or, where it is what an undo put back or a checkpoint of files that were made by another
 * one, theirs. "": none. */
static int find_run(fb_cli *cli, const char *graph, char run[RUN_ID_MAX + 1]) {
    claim at = {0};
    int result = FB_EXIT_DONE;
    fb_copy_text(at.graph, sizeof at.graph, graph);
    for (int i = 0; i < GENERATIONS_MAX && *at.graph && !result; i++) {
        claim before = {0};
        result = find_maker(cli, at.graph, run);
        if (result || *run) return result;
        result = find_put_back(cli, at.graph, before.graph);
        bool is_as_before = !strcmp(before.graph, at.graph); /* an exact undo gave the checkpoint itself */
        if (is_as_before) *before.graph = '\0';
        if (!result && !*before.graph) result = hear_checkpoint(cli, at.graph, &before);
        at = before;
    }
    return result;
}

/* The run to undo: as given, or as the files say. */
static int need_run(fb_cli *cli, const fb_blob_files *files, char run[RUN_ID_MAX + 1]) {
    claim heard = {0};
    const char *path = cli->arguments.items[0];
    int result = hear_files(cli, files, &heard);
    if (result) return result;
    if (!*heard.graph)
        return fb_complain(FB_EXIT_USAGE,
                           "%s does not say what made it (another program has written it): name the run, --run run_…", path);
    result = find_run(cli, heard.graph, run);
    if (!result && !*run)
        result =
            fb_complain(FB_EXIT_FAILED,
                        "%s says that it is graph %.19s…, in which no layout of this store is left to undo. Otherwise name "
                        "the run, --run run_…",
                        path, heard.graph);
    return result;
}

/* Owner's path -> {"shape", "dtype"} of every tensor of a graph of the store; the caller's. */
static int list_tensors(fb_cli *cli, const char *graph, json_t **out) {
    fb_address address = {0};
    json_t *document, *item, *name, *by_name = json_object();
    const char *attribute;
    size_t i;
    fb_address_path(&address, "/v1/graphs");
    fb_address_segment(&address, graph);
    int result = fb_cli_get(cli, &address, &document, NULL);
    if (result) {
        json_decref(by_name);
        return result;
    }
    *out = json_object();
    json_array_foreach(json_object_get(document, "tensors"), i, item) json_object_set_new(
        by_name, fb_text_of(item, "name"),
        json_pack("{s:O, s:O}", "shape", json_object_get(item, "shape"), "dtype", json_object_get(item, "dtype")));
    json_array_foreach(json_object_get(document, "modules"), i, item) {
        json_object_foreach(json_object_get(item, "parameters"), attribute, name) {
            fb_buffer path = {0};
            const char *module = fb_text_of(item, "path");
            fb_buffer_printf(&path, "%s%s%s", module, *module ? "." : "", attribute);
            json_t *tensor = json_object_get(by_name, json_string_value(name));
            if (!fb_buffer_text(&path) || (tensor && json_object_set(*out, fb_buffer_text(&path), tensor)))
                result = fb_cli_no_memory();
            fb_buffer_free(&path);
        }
    }
    json_decref(document);
    json_decref(by_name);
    return result;
}

static size_t complain_missing(const json_t *those, const json_t *these, const char *what) {
    const char *name;
    json_t *tensor;
    size_t count = 0;
    json_object_foreach((json_t *)(uintptr_t)those, name, tensor) {
        if (json_equal(tensor, json_object_get(these, name))) continue;
        if (count++ < 20) fb_complain(0, "%s %s", name, what);
    }
    return count;
}

/* With --strict a file has the tensors that the run made, of their shapes and dtypes, and no others. */
static int check_whole(fb_cli *cli, const char *run_id, const char *graph) {
    fb_address address = {0};
    json_t *run = NULL, *made = NULL, *given = NULL;
    if (!cli->values.is_strict) return FB_EXIT_DONE;
    fb_address_path(&address, "/v1/runs");
    fb_address_segment(&address, run_id);
    int result = fb_cli_get(cli, &address, &run, NULL);
    if (!result) result = list_tensors(cli, fb_text_of(run, "result"), &made);
    if (!result) result = list_tensors(cli, graph, &given);
    size_t differ = result ? 0
                           : complain_missing(made, given, "was made by the run, and is not in the file as it was made") +
                                 complain_missing(given, made, "is in the file, and was not made by the run as it is");
    if (differ) result = fb_complain(FB_EXIT_FAILED, "%zu tensors differ; nothing was written", differ);
    json_decref(run);
    json_decref(made);
    json_decref(given);
    return result;
}

static void print_undone(fb_cli *cli, const json_t *undone) {
    if (strcmp(cli->values.output, "-") == 0) return;
    if (cli->is_json) fb_cli_print_json(undone);
    else
        fb_print_facts(cli,
                       (const fb_fact[]){{"run", fb_text_of(undone, "id")}, {"undoes", fb_text_of(undone, "of_run")}, {0}});
}

static int undo_layout(fb_cli *cli) {
    const char *const *words = (const char *const *)cli->arguments.items;
    const char *run = cli->values.run;
    char found[RUN_ID_MAX + 1] = "", *id = NULL;
    json_t *undone = NULL;
    fb_blob_files files = {0};
    fb_address address = {0};
    fb_gguf_conversion conversion = {0};
    int result = need_output(cli);
    if (!result) result = fb_blob_files_read(cli, words, cli->arguments.count, &files);
    if (!result) result = fb_blob_files_check_shards(&files);
    if (!result) result = fb_gguf_begin(cli, &files, &conversion);
    if (!result && !run) result = need_run(cli, &files, found);
    if (!run) run = found;
    if (!result) result = store_checkpoint(cli, &files, words[0], &id);
    if (!result) result = check_whole(cli, run, id);
    if (!result) {
        fb_address_path(&address, "/v1/runs");
        fb_address_segment(&address, run);
        fb_address_path(&address, "/reverse");
        const char *path = fb_buffer_text(&address.text);
        result = path ? post(cli, path, json_pack("{s:s}", "graph", id), &undone) : fb_cli_no_memory();
        fb_buffer_free(&address.text);
    }
    if (!result) result = write_result(cli, &conversion, undone);
    if (!result) print_undone(cli, undone);
    if (!result && strcmp(cli->values.output, "-") != 0) print_kept(cli, &files);
    fb_gguf_end(cli, &conversion);
    json_decref(undone);
    free(id);
    fb_blob_files_free(&files);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

#define SHARD_SIZE                                                                                                             \
    {                                                                                                                          \
        "shard-size", 0, "BYTES", "write shards of up to this size, and their index: 5GB", FB_OPTION_BYTES, AT(shard_size), 1, \
            UINT64_MAX                                                                                                         \
    }
#define METADATA TEXT("metadata", 0, "FILE", "with --output X.gguf: a GGUF file whose metadata it gets", metadata)
static const fb_option layout_apply_options[] = {
    TEXT("output", 'o', "FILE", "write the safetensors file there; - is standard output", output),
    SHARD_SIZE,
    FORCE,
    TEXT("config", 0, "FILE", "the model's config.json, from which the layout's parameters follow", config),
    METADATA,
    LIST("set", 0, "NAME=N", "a parameter of the layout: heads=32; may be repeated", settings),
    FLAG("strict", 0, "also refuse when a row matches nothing, or could not be undone", is_strict),
    DRY_RUN,
    STORE,
    JSON,
    END,
};

static const fb_option layout_plan_options[] = {
    TEXT("config", 0, "FILE", "the model's config.json, from which the layout's parameters follow", config),
    LIST("set", 0, "NAME=N", "a parameter of the layout: heads=32; may be repeated", settings),
    FLAG("strict", 0, "also refuse when a row matches nothing, or could not be undone", is_strict),
    FLAG("python", 0, "write a Python module with apply and undo, for PyTorch", is_python),
    STORE,
    JSON,
    END,
};

static const fb_option layout_undo_options[] = {
    TEXT("output", 'o', "FILE", "write the safetensors file there; - is standard output", output),
    SHARD_SIZE,
    FORCE,
    TEXT("run", 0, "RUN", "the run of layout apply, if the file does not name it", run),
    METADATA,
    FLAG("strict", 0, "refuse a file that has other tensors than layout apply made", is_strict),
    STORE,
    JSON,
    END,
};

const fb_verb fb_layout_verbs[] = {
    {.name = "layout list",
     .arguments = "[LAYOUT]",
     .summary = "lists the layouts of checkpoints, or the versions of one",
     .options = fb_list_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = list_layouts},
    {.name = "layout show",
     .arguments = "LAYOUT[:VERSION]",
     .summary = "shows a layout",
     .options = fb_plain_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = show_layout},
    {.name = "layout put",
     .arguments = "FILE",
     .summary = "stores a custom layout",
     .description = "A layout is JSON: parameters and rows. The same name again makes the next version.\n",
     .options = fb_plain_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = put_layout},
    {.name = "layout apply",
     .arguments = "LAYOUT[:VERSION] FILE...",
     .summary = "rearranges the tensors of a checkpoint",
     .description =
         "The files are safetensors files, all shards of a checkpoint, its model.safetensors.index.json, a folder with one\n"
         "of these, or a GGUF file. Shows what each row of the layout did. If anything is refused, writes no file.\n",
     .options = layout_apply_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = apply_layout},
    {.name = "layout plan",
     .arguments = "LAYOUT[:VERSION] FILE...",
     .summary = "shows what layout apply would copy where",
     .description =
         "Reads the headers of the files alone. A trainer can run the plan on its own tensors: foldback.layouts.run in\n"
         "Python, or the module that --python writes.\n",
     .options = layout_plan_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = plan_layout},
    {.name = "layout undo",
     .arguments = "FILE...",
     .summary = "puts the tensors of a checkpoint back, also after training",
     .description = "The files are those that layout apply takes, and say which run of it made them. If another program has\n"
                    "rewritten them, name the run with --run; foldback run list shows the runs.\n",
     .options = layout_undo_options,
     .run = undo_layout},
    {0},
};
