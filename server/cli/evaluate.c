/* foldback evaluate, compare. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
    if (!result && values->inputs) result = fb_sent_inputs_open(values->inputs, &inputs);
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

int fb_request_inputs(fb_cli *cli, fb_buffer *out) {
    const char *words[] = {cli->values.inputs};
    fb_blob_files files = {0};
    if (!words[0]) return FB_EXIT_DONE;
    int result = fb_blob_files_read(cli, words, 1, &files);
    if (!result) result = fb_blob_files_send(cli, &files);
    if (!result) fb_put_text(out, "inputs", files.items[0].digest);
    fb_blob_files_free(&files);
    return result;
}

static int put_samples(const char *text, fb_buffer *out) {
    if (!text) return FB_EXIT_DONE;
    size_t length = strlen(text);
    if (!length || length > 4 || strspn(text, "0123456789") != length || *text == '0')
        return fb_complain(FB_EXIT_USAGE, "--samples %s: give a number from 1 to 1000", text);
    fb_put_name(out, "samples");
    fb_buffer_string(out, text);
    return FB_EXIT_DONE;
}

int fb_request_tolerance(const char *text, fb_buffer *out) {
    if (!text) return FB_EXIT_DONE;
    char *rest;
    double number = strtod(text, &rest);
    if (rest == text || *rest || !(number >= 0) || isinf(number))
        return fb_complain(FB_EXIT_USAGE, "--tolerance %s: give a number, 0 or greater", text);
    fb_put_name(out, "tolerance");
    fb_buffer_printf(out, "{\"relative\":%.17g}", number);
    return FB_EXIT_DONE;
}

int fb_request_judging(fb_cli *cli, fb_buffer *out) {
    const fb_cli_values *values = &cli->values;
    int result = fb_request_seed(out, values->seed);
    if (!result) result = put_samples(values->samples, out);
    if (!result) result = fb_request_tolerance(values->tolerance, out);
    if (values->random_weights) fb_put_bool(out, "random_weights", true);
    return result ? result : fb_request_inputs(cli, out);
}

static int make_request(fb_cli *cli, const fb_reference graphs[2], fb_buffer *out) {
    fb_request_begin(out);
    int result = fb_request_graph(cli, out, "a", &graphs[0]);
    if (!result) result = fb_request_graph(cli, out, "b", &graphs[1]);
    if (!result) result = fb_request_judging(cli, out);
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

/* False for outputs of two shapes, and for one that was not computed: a difference of numbers has a place. */
static bool has_numbers(const json_t *output) {
    const char *verdict = fb_text_of(output, "verdict");
    if (strcmp(verdict, "differs") != 0) return strcmp(verdict, "not-evaluated") != 0;
    return json_is_integer(json_object_get(json_object_get(output, "counterexample"), "index"));
}

static void put_deviations(fb_screen_table *table, const json_t *output) {
    static const struct {
        const char *of, *name;
    } columns[] = {{NULL, "max_absolute"},
                   {NULL, "max_relative"},
                   {NULL, "max_ulp"},
                   {"a_against_float64", "max_absolute"},
                   {"b_against_float64", "max_absolute"}};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const json_t *of = columns[i].of ? json_object_get(output, columns[i].of) : output;
        if (has_numbers(output)) fb_table_deviation(table, of, columns[i].name);
        else fb_table_cell(table, "-");
    }
}

static void print_outputs(fb_cli *cli, const json_t *outputs) {
    static const char *const headings[] = {"OUTPUT",    "DTYPE", "VERDICT",    ">SAMPLES",  ">ABSOLUTE",
                                           ">RELATIVE", ">ULP",  ">A-FLOAT64", ">B-FLOAT64"};
    fb_screen_table table = {.columns = 9, .headings = headings};
    const json_t *output;
    size_t i;
    json_array_foreach(outputs, i, output) {
        const char *dtype = fb_text_of(output, "dtype");
        fb_table_cell(&table, "%s", fb_text_of(output, "name"));
        fb_table_cell(&table, "%s", *dtype ? dtype : "-");
        fb_table_cell(&table, "%s", fb_text_of(output, "verdict"));
        fb_table_cell(&table, "%lld", (long long)json_integer_value(json_object_get(output, "samples")));
        put_deviations(&table, output);
    }
    fb_cli_table(cli, &table);
}

/* Why, below the table: one line each. */
static void print_reasons(const json_t *items) {
    const json_t *one;
    size_t i;
    json_array_foreach(items, i, one) {
        const char *detail = fb_text_of(one, "detail"), *reason = fb_text_of(one, "reason");
        const json_t *example = json_object_get(one, "counterexample"), *index = json_object_get(example, "index");
        if (!*reason && !json_is_object(example)) continue;
        printf("\n%s: ", fb_text_of(one, "name"));
        fb_screen_text(stdout, *detail ? detail : *reason ? reason : "a and b are apart");
        if (json_is_object(example))
            printf("; seed %lld, sample %lld", (long long)json_integer_value(json_object_get(example, "seed")),
                   (long long)json_integer_value(json_object_get(example, "sample")));
        if (!json_is_integer(index)) continue;
        printf(", element %lld: ", (long long)json_integer_value(index));
        for (int k = 0; k < 2; k++) {
            const json_t *value = json_object_get(example, k ? "b" : "a");
            if (json_is_string(value)) printf("%s", json_string_value(value));
            else printf("%.9g", json_number_value(value));
            if (!k) fputs(" in a, ", stdout);
        }
        fputs(" in b", stdout);
    }
    putchar('\n');
}

void fb_print_compared(fb_cli *cli, const json_t *answer) {
    const json_t *first = json_object_get(answer, "first_node");
    putchar('\n');
    print_outputs(cli, json_object_get(answer, "outputs"));
    if (!json_is_true(json_object_get(answer, "passes"))) {
        print_reasons(json_object_get(answer, "outputs"));
        print_reasons(json_object_get(answer, "inputs"));
    }
    if (!json_is_object(first)) return;
    fputs("\nthe first node that differs: ", stdout);
    fb_screen_text(stdout, fb_text_of(first, "name"));
    putchar('\n');
}

/* 0: same, moved or evaluated; 1: differs; 2: nothing is known. */
static int status_of(const json_t *answer) {
    bool passes = json_is_true(json_object_get(answer, "passes"));
    return passes ? FB_EXIT_DONE : strcmp(fb_text_of(answer, "verdict"), "differs") == 0 ? FB_EXIT_FAILED : FB_EXIT_USAGE;
}

static int print_comparison(fb_cli *cli, const json_t *answer) {
    int status = status_of(answer);
    if (cli->is_json) {
        int result = fb_cli_print_json(answer);
        return result ? FB_EXIT_USAGE : status;
    }
    printf("%s\n", fb_text_of(answer, "verdict"));
    fb_print_compared(cli, answer);
    return status;
}

/* The part of a multipart body that begins behind `from`: its content, without its headers. */
static bool next_part(const fb_buffer *body, const char *line, const char **from, const char **part, size_t *size) {
    const char *end = body->data + body->size, *start = memmem(*from, (size_t)(end - *from), "\r\n\r\n", 4);
    const char *stop = start ? memmem(start + 4, (size_t)(end - start - 4), line, strlen(line)) : NULL;
    if (!stop) return false;
    *part = start + 4;
    *size = (size_t)(stop - *part);
    *from = stop + strlen(line);
    return true;
}

/* The answer, and beside it the inputs of a counterexample, which are written to --output. */
static int take_parts(fb_cli *cli, fb_call *call, json_t **out) {
    fb_answer answer;
    call->header = "Accept: multipart/mixed";
    int result = fb_cli_call(cli, call, &answer);
    if (result) return result;
    const char *data = answer.body.data, *stop = data ? strstr(data, "\r\n") : NULL, *from = stop, *part;
    size_t size;
    fb_buffer line = {0};
    fb_buffer_string(&line, "\r\n");
    fb_buffer_append(&line, data, stop ? (size_t)(stop - data) : 0);
    bool is_known = stop && fb_buffer_text(&line) && next_part(&answer.body, line.data, &from, &part, &size);
    *out = is_known ? json_loadb(part, size, 0, NULL) : NULL;
    if (!*out) result = fb_complain(FB_EXIT_USAGE, "the answer is not in parts: is this foldback?");
    else if (next_part(&answer.body, line.data, &from, &part, &size)) result = fb_file_write(cli->values.output, part, size);
    fb_buffer_free(&line);
    fb_answer_free(&answer);
    if (result) json_decref(*out);
    return result;
}

/* Any trouble is "nothing is known": 1 says that they differ. */
static int compare(fb_cli *cli) {
    fb_reference graphs[2];
    fb_call call = {.method = "POST"};
    json_t *answer;
    for (int i = 0; i < 2; i++) graphs[i] = fb_reference_read(cli->arguments.items[i]);
    if (!needs_store(cli, graphs)) cli->folder = FB_FOLDER_UNUSED;
    fb_address_path(&call.address, "/v1/compare");
    if (make_request(cli, graphs, &call.body)) {
        fb_call_free(&call);
        return FB_EXIT_USAGE;
    }
    int asked = cli->values.output ? take_parts(cli, &call, &answer) : fb_cli_call_json(cli, &call, &answer, NULL);
    if (asked) return FB_EXIT_USAGE;
    const char *page = cli->values.html;
    bool is_page_alone = page && strcmp(page, "-") == 0;
    if (page && fb_write_comparison_page(page, graphs[0].text, graphs[1].text, answer)) asked = FB_EXIT_USAGE;
    int result = is_page_alone ? status_of(answer) : print_comparison(cli, answer);
    if (asked) result = asked;
    json_decref(answer);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option evaluate_options[] = {
    TEXT("inputs", 0, "FILE", "safetensors, .npz or a folder of .npy; without it, inputs are random", inputs),
    TEXT("output", 'o', "FILE", "write the outputs there, as safetensors; - is standard output", output),
    TEXT("precision", 0, "recorded|float64", "as recorded, or float64 throughout (recorded)", precision),
    SEED,
    RANDOM_WEIGHTS,
    STORE,
    END,
};

static const fb_option compare_options[] = {
    COMPARED_ON,
    COMPARED_BY,
    TEXT("output", 'o', "FILE", "write the inputs of the first counterexample there, as safetensors", output),
    TEXT("html", 0, "FILE", "write a page about it there; with -, print it and nothing else", html),
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
     .folder = FB_FOLDER_FOR_FILES,
     .run = evaluate},
    {.name = "compare",
     .arguments = "GRAPH GRAPH",
     .summary = "says if graph B computes what graph A does, whoever made them",
     .description = GRAPH_NAMES "What is equal by content is proved; the rest is evaluated on several inputs.\n"
                                "Exit status 0 if all outputs are the same, 1 if one differs, 2 if that is not known.\n",
     .options = compare_options,
     .folder = FB_FOLDER_FOR_FILES,
     .run = compare},
    {0},
};
