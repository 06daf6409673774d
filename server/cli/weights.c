/* foldback weights, bind. */
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

/* ---- weights ------------------------------------------------------------------------------------------------------------ */

static int write_weights(fb_cli *cli) {
    const char *output = cli->values.output;
    if (output && strcmp(output, "-") != 0 && fb_output_check(cli, output)) return FB_EXIT_FAILED;
    fb_reference graph = fb_reference_read(cli->arguments.items[0]);
    fb_address address = {0};
    int result = fb_reference_graph_address(cli, &graph, "/weights", &address);
    if (result) return result;
    const fb_text_list *names = &cli->values.names;
    for (size_t i = 0; i < names->count; i++) fb_address_query(&address, "names", names->items[i]);
    fb_address_query(&address, "tied", cli->values.tied);
    return fb_download(cli, &address, NULL);
}

/* ---- bind --------------------------------------------------------------------------------------------------------------- */

int fb_request_weights(fb_cli *cli, fb_buffer *out) {
    const fb_text_list *words = &cli->values.weights;
    fb_blob_files files = {0};
    if (!words->count) return FB_EXIT_DONE;
    int result = fb_blob_files_read(cli, words->items, words->count, &files);
    for (size_t i = 0; i < files.count && !result && cli->values.dry_run; i++) {
        if (files.items[i].path)
            result =
                fb_complain(FB_EXIT_USAGE, "--dry-run stores no weights either; foldback upload %s first, and give its digest",
                            files.items[i].path);
    }
    if (!result) result = fb_blob_files_send(cli, &files);
    fb_put_name(out, "weights");
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < files.count; i++) {
        fb_put_comma(out);
        fb_buffer_json_string(out, files.items[i].digest, FB_ID_LENGTH);
    }
    fb_buffer_char(out, ']');
    fb_blob_files_free(&files);
    if (!result) result = fb_request_text(out, "as", cli->values.reads_as);
    return result ? result : fb_request_text(out, "prefix", cli->values.prefix);
}

/* "3: a, b, c"; what does not fit is cut off by three dots. */
static void join(const json_t *names, char *out, size_t space) {
    const json_t *name;
    size_t i, used = (size_t)snprintf(out, space, "%zu", json_array_size(names));
    json_array_foreach(names, i, name) {
        int added = snprintf(out + used, space - used, "%s%s", i ? ", " : ": ", json_string_value(name));
        if (added < 0 || used + (size_t)added >= space) {
            strcpy(out + space - sizeof "…", "…");
            return;
        }
        used += (size_t)added;
    }
}

void fb_print_binding(fb_cli *cli, const json_t *weights) {
    char bound[24], missing[300], extra[300];
    if (!json_is_object(weights)) return;
    snprintf(bound, sizeof bound, "%lld", (long long)json_integer_value(json_object_get(weights, "bound")));
    join(json_object_get(weights, "missing"), missing, sizeof missing);
    join(json_object_get(weights, "extra"), extra, sizeof extra);
    fb_print_facts(cli, (const fb_fact[]){{"tensors bound", bound}, {"missing", missing}, {"extra", extra}, {0}});
}

static int make_request(fb_cli *cli, fb_call *call) {
    fb_reference reference = fb_reference_read(cli->arguments.items[0]);
    fb_graph *graph;
    int result = fb_reference_graph(cli, &reference, &graph);
    if (result) return result;
    fb_document_write(graph, &call->body);
    fb_graph_free(graph);
    fb_address_path(&call->address, "/v1/graphs");
    if (cli->values.is_strict) fb_address_query(&call->address, "strict", "true");
    fb_address_query(&call->address, "as", cli->values.reads_as);
    fb_address_query(&call->address, "prefix", cli->values.prefix);
    return call->body.failed ? fb_cli_no_memory() : FB_EXIT_DONE;
}

static int write_bound(fb_cli *cli, const char *id) {
    fb_reference graph = fb_reference_read(id);
    fb_buffer bytes = {0};
    int result = fb_reference_bytes(cli, &graph, &bytes);
    if (!result) result = fb_file_write(cli->values.output, bytes.data, bytes.size);
    fb_buffer_free(&bytes);
    return result;
}

static int print_bound(fb_cli *cli, const json_t *answer) {
    if (cli->is_json) return fb_cli_print_json(answer);
    fb_print_facts(cli, (const fb_fact[]){{"graph", fb_text_of(answer, "id")}, {"name", fb_text_of(answer, "name")}, {0}});
    fb_print_binding(cli, json_object_get(answer, "weights"));
    return FB_EXIT_DONE;
}

static int bind_weights(fb_cli *cli) {
    const char *output = cli->values.output;
    fb_call call = {.method = "POST"};
    fb_blob_files files = {0};
    json_t *answer = NULL;
    int result = fb_blob_files_read(cli, (const char *const *)cli->arguments.items + 1, cli->arguments.count - 1, &files);
    if (!result) result = make_request(cli, &call);
    if (!result) result = fb_blob_files_send(cli, &files);
    for (size_t i = 0; i < files.count && !result; i++) fb_address_query(&call.address, "weights", files.items[i].digest);
    if (!result) result = fb_cli_call_json(cli, &call, &answer, NULL);
    else fb_call_free(&call);
    if (!result && output) result = write_bound(cli, fb_text_of(answer, "id"));
    if (!result && !(output && strcmp(output, "-") == 0)) result = print_bound(cli, answer);
    json_decref(answer);
    fb_blob_files_free(&files);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option bind_options[] = {
    FLAG("strict", 0, "refuse if tensors are missing or extra", is_strict), READS_AS, PREFIX, OUTPUT, STORE, JSON, END,
};

static const fb_option weights_options[] = {
    GOES_TO,
    FORCE,
    NAMES("names", 0, "NAME,NAME", "these tensors only, by an owner's path; may be repeated", names),
    TEXT("tied", 0, "first|each", "write a tensor of several modules once, or for each; default: as uploaded", tied),
    STORE,
    END,
};

const fb_verb fb_weights_verbs[] = {
    {.name = "bind",
     .arguments = "GRAPH FILE...",
     .summary = "binds a graph to the weights in safetensors files",
     .description =
         GRAPH_NAMES "Stores the resulting graph. Uploads the files that the store lacks; name one that it has by its digest,\n"
                     "sha256:…. A model.safetensors.index.json brings its shards with it. Dtypes and shapes must agree;\n"
                     "tensors that are missing or extra are listed.\n",
     .options = bind_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = bind_weights},
    {.name = "weights",
     .arguments = "GRAPH",
     .summary = "writes a graph's weights as one safetensors file",
     .description = GRAPH_NAMES
     "Recipes are evaluated on the way. The store must have the graph, and the bytes that its tensors are\n"
     "made from: see foldback bind. Until the file is whole it is called FILE.xxxxxxxx.part; after an interruption\n"
     "the same command resumes from there.\n",
     .options = weights_options,
     .folder = FB_FOLDER_FOR_FILES,
     .run = write_weights},
    {0},
};
