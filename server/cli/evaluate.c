/* foldback evaluate, compare. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json/json.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

/* ---- evaluate ----------------------------------------------------------------------------------------------------------- */

static int write_outputs(fb_cli *cli, fb_call *call) {
    fb_answer answer;
    int result = fb_cli_call(cli, call, &answer);
    if (result) return result;
    result = fb_file_write(cli->values.output, answer.body.data, answer.body.size);
    fb_answer_free(&answer);
    return result;
}

static int evaluate(fb_cli *cli) {
    const fb_cli_values *values = &cli->values;
    fb_reference graph = fb_reference_read(cli->arguments.items[0]);
    fb_call call = {.method = "POST"};
    fb_sent_file inputs = {.file = -1};
    if (!values->output)
        return fb_complain(FB_EXIT_USAGE, "evaluate: name the file for the outputs with -o FILE; - is standard output");
    int result = fb_reference_graph_address(cli, &graph, "/evaluate", &call.address);
    if (!result && values->inputs) result = fb_sent_file_open(values->inputs, &inputs);
    if (result) {
        fb_call_free(&call);
        return result;
    }
    if (values->inputs) call.file = &inputs;
    fb_address_query(&call.address, "seed", values->seed);
    fb_address_query(&call.address, "precision", values->precision);
    if (values->random_weights) fb_address_query(&call.address, "random_weights", "true");
    result = write_outputs(cli, &call);
    if (inputs.file >= 0) close(inputs.file);
    return result;
}

/* ---- compare: the request ----------------------------------------------------------------------------------------------- */

/* "inputs" from --inputs: the file is sent first, so this comes after all that is checked here. */
static int put_inputs(fb_cli *cli, fb_buffer *out) {
    const char *words[] = {cli->values.inputs};
    fb_blob_files files = {0};
    if (!words[0]) return FB_EXIT_DONE;
    int result = fb_blob_files_read(cli, words, 1, &files);
    if (!result) result = fb_blob_files_send(cli, &files);
    if (!result) fb_put_text(out, "inputs", files.items[0].digest);
    fb_blob_files_free(&files);
    return result;
}

static int make_request(fb_cli *cli, const fb_reference graphs[2], fb_buffer *out) {
    const fb_cli_values *values = &cli->values;
    fb_request_begin(out);
    int result = fb_request_seed(out, values->seed);
    if (values->random_weights) fb_put_bool(out, "random_weights", true);
    if (!result) result = fb_request_graph(cli, out, "a", &graphs[0]);
    if (!result) result = fb_request_graph(cli, out, "b", &graphs[1]);
    if (!result) result = put_inputs(cli, out);
    return result ? result : fb_request_end(out);
}

/* Two files of documents need no store, unless there is one that may have their weights. */
static bool needs_store(const fb_cli *cli, const fb_reference graphs[2]) {
    struct stat folder;
    bool need = fb_reference_needs_store(&graphs[0]) || fb_reference_needs_store(&graphs[1]);
    return need || cli->values.inputs || stat(cli->values.data, &folder) == 0;
}

/* ---- compare: the answer ------------------------------------------------------------------------------------------------ */

void fb_table_deviation(fb_screen_table *table, const json_t *difference, const char *name) {
    const json_t *value = json_object_get(difference, name);
    if (json_is_number(value)) fb_table_cell(table, "%.3g", json_number_value(value));
    else fb_table_cell(table, "not finite");
}

static void print_outputs(fb_cli *cli, const json_t *outputs) {
    static const char *const headings[] = {"OUTPUT",    "DTYPE", "SAME",       ">ABSOLUTE",
                                           ">RELATIVE", ">ULP",  ">A-FLOAT64", ">B-FLOAT64"};
    fb_screen_table table = {.columns = 8, .headings = headings};
    const json_t *output;
    size_t i;
    json_array_foreach(outputs, i, output) {
        fb_table_cell(&table, "%s", fb_text_of(output, "name"));
        fb_table_cell(&table, "%s", fb_text_of(output, "dtype"));
        fb_table_cell(&table, "%s", fb_yes_no(output, "passes"));
        fb_table_deviation(&table, output, "max_absolute");
        fb_table_deviation(&table, output, "max_relative");
        fb_table_deviation(&table, output, "max_ulp");
        fb_table_deviation(&table, json_object_get(output, "a_against_float64"), "max_absolute");
        fb_table_deviation(&table, json_object_get(output, "b_against_float64"), "max_absolute");
    }
    fb_cli_table(cli, &table);
}

static int print_comparison(fb_cli *cli, const json_t *answer) {
    bool passes = json_is_true(json_object_get(answer, "passes"));
    const json_t *first = json_object_get(answer, "first_node");
    if (cli->is_json) {
        int result = fb_cli_print_json(answer);
        return result || passes ? result : FB_EXIT_FAILED;
    }
    print_outputs(cli, json_object_get(answer, "outputs"));
    if (json_is_object(first)) {
        fputs("\nthe first node that differs: ", stdout);
        fb_screen_text(stdout, fb_text_of(first, "name"));
        putchar('\n');
    }
    return passes ? FB_EXIT_DONE : FB_EXIT_FAILED;
}

static int compare(fb_cli *cli) {
    fb_reference graphs[2];
    fb_call call = {.method = "POST"};
    json_t *answer;
    for (int i = 0; i < 2; i++) graphs[i] = fb_reference_read(cli->arguments.items[i]);
    if (!needs_store(cli, graphs)) cli->folder = FB_FOLDER_UNUSED;
    fb_address_path(&call.address, "/v1/compare");
    int result = make_request(cli, graphs, &call.body);
    if (result) {
        fb_call_free(&call);
        return result;
    }
    result = fb_cli_call_json(cli, &call, &answer, NULL);
    if (result) return result;
    result = print_comparison(cli, answer);
    json_decref(answer);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option evaluate_options[] = {
    TEXT("inputs", 0, "FILE", "a safetensors file; without it, inputs are random, of the recorded shapes", inputs),
    TEXT("output", 'o', "FILE", "write the outputs there, as safetensors; - is standard output", output),
    TEXT("precision", 0, "recorded|float64", "as recorded, or float64 throughout (recorded)", precision),
    SEED,
    RANDOM_WEIGHTS,
    STORE,
    END,
};

static const fb_option compare_options[] = {
    TEXT("inputs", 0, "FILE", "a safetensors file or sha256:…; inputs it lacks are random, of the recorded shapes", inputs),
    SEED,
    RANDOM_WEIGHTS,
    STORE,
    JSON,
    END,
};

const fb_verb fb_evaluate_verbs[] = {
    {.name = "evaluate",
     .arguments = "GRAPH",
     .summary = "evaluates a graph on your inputs, or on random ones",
     .description = GRAPH_NAMES "The store must have it, and the bytes of its weights: see foldback bind.\n",
     .options = evaluate_options,
     .run = evaluate},
    {.name = "compare",
     .arguments = "GRAPH GRAPH",
     .summary = "evaluates two graphs on the same inputs, and compares the outputs",
     .description = GRAPH_NAMES "Exit status 1 if they differ by more than rounding explains.\n",
     .options = compare_options,
     .run = compare},
    {0},
};
