/* foldback optimize, reverse, rollback. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/compose/composition.h"
#include "core/json/json.h"
#include "core/json/scan.h"
#include "core/passes/passes.h"
#include "core/validation/task.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static int put_bound(const char *text, const char *option, const char *name, fb_buffer *out) {
    char *rest;
    double number = strtod(text, &rest);
    if (rest == text || *rest || !isfinite(number)) return fb_complain(FB_EXIT_USAGE, "%s %s: give a number", option, text);
    fb_put_name(out, name);
    fb_buffer_printf(out, "%.17g", number);
    return FB_EXIT_DONE;
}

/* "validate" by the measure of a task, from --inputs, --metric and a bound. */
static int put_task(fb_cli *cli, fb_buffer *out) {
    const fb_cli_values *values = &cli->values;
    fb_metric metric;
    if (!values->metric || !values->inputs)
        return fb_complain(FB_EXIT_USAGE,
                           "--metric and --inputs belong together: a measure, and the inputs that it is taken on");
    if (values->validate)
        return fb_complain(FB_EXIT_USAGE, "--validate compares after each pass, --metric judges the result: give one of them");
    if (!fb_metric_find(values->metric, &metric))
        return fb_complain(FB_EXIT_USAGE, "--metric %s: give one of " FB_METRIC_NAMES, values->metric);
    bool grows = fb_metric_grows(metric);
    const char *bound = grows ? values->at_least : values->tolerance, *option = grows ? "--at-least" : "--tolerance";
    if (!bound || (grows ? values->tolerance : values->at_least))
        return fb_complain(FB_EXIT_USAGE, "--metric %s needs %s, how %s it must be", values->metric, option,
                           grows ? "large" : "small");
    fb_put_name(out, "validate");
    fb_buffer_char(out, '{');
    fb_put_text(out, "metric", values->metric);
    int result = put_bound(bound, option, grows ? "at_least" : "at_most", out);
    if (!result && values->mask) fb_put_text(out, "mask", values->mask);
    if (!result) result = fb_request_inputs(cli, out);
    fb_buffer_char(out, '}');
    return result;
}

static int put_options(fb_cli *cli, fb_buffer *out) {
    const fb_cli_values *values = &cli->values;
    bool has_task = values->metric || values->inputs || values->at_least || values->mask;
    fb_put_name(out, "options");
    fb_buffer_char(out, '{');
    int result = fb_request_text(out, "lint", values->lint);
    if (!result) result = fb_request_text(out, "validate", values->validate);
    if (!result && has_task) result = put_task(cli, out);
    else if (!result) result = fb_request_tolerance(values->tolerance, out);
    if (!result) result = fb_request_seed(out, values->seed);
    if (!result && values->assume) {
        fb_put_name(out, "assume");
        fb_buffer_char(out, '{');
        result = fb_request_text(out, "dtype", values->assume);
        fb_buffer_char(out, '}');
    }
    if (values->dry_run) fb_put_bool(out, "dry_run", true);
    if (values->output && !fb_is_archive_name(values->output)) {
        fb_put_name(out, "include");
        fb_buffer_string(out, "[\"graph\"]");
    }
    fb_buffer_char(out, '}');
    return result;
}

static int make_request(fb_cli *cli, bool undoes, const fb_reference *graph, fb_buffer *out) {
    const fb_cli_values *values = &cli->values;
    fb_request_begin(out);
    int result = fb_request_passes(out, &values->passes, undoes);
    if (!result) result = put_options(cli, out);
    if (!result) result = fb_request_text(out, "note", values->note);
    if (!result) result = fb_request_labels(out, &values->labels);
    if (!result && graph) result = fb_request_graph(cli, out, "graph", graph);
    if (!result) result = fb_request_weights(cli, out);
    return result ? result : fb_request_end(out);
}

/* ---- the answer --------------------------------------------------------------------------------------------------------- */

bool fb_cut_member(fb_buffer *text, const char *name, fb_buffer *value) {
    fb_scan scan;
    size_t index = SIZE_MAX;
    bool is_cut = false;
    fb_scan_init(&scan, text->data, text->size, 2000);
    bool is_inside = fb_scan_enter(&scan, '{');
    for (const char *start = scan.at; is_inside && !is_cut && fb_scan_more(&scan, '}', &index); start = scan.at) {
        const fb_json *key = fb_scan_key(&scan);
        bool is_it = key && fb_json_is(key, name);
        const char *from = scan.at;
        if (!key || !fb_scan_value(&scan)) break;
        if (!is_it) continue;
        fb_buffer_append(value, from, (size_t)(scan.at - from));
        memmove((char *)(uintptr_t)start, scan.at, (size_t)(scan.end - scan.at));
        text->size -= (size_t)(scan.at - start);
        is_cut = true;
    }
    fb_scan_free(&scan);
    return is_cut && !value->failed;
}

/* An ONNX model has files, an archive of torch.export has none; a result without either is refused by what downloads it.
 * *files: those of a model, where it is to be one; else NULL. To list them the service writes the model. */
static int check_kind(fb_cli *cli, const char *result, json_t **files_found) {
    bool is_onnx_name = fb_is_onnx_name(cli->values.output);
    fb_call files = {.method = "GET"}, archive = {.method = "HEAD"};
    fb_answer answer = {0};
    for (int i = 0; i < 2; i++) {
        fb_call *call = i ? &archive : &files;
        fb_address_path(&call->address, "/v1/graphs");
        fb_address_segment(&call->address, result);
        fb_address_path(&call->address, i ? "/archive" : "/archive/files");
        int failed = fb_cli_try(cli, call, &answer);
        if (failed) return failed;
        if (answer.status == 200 && i == 0 && is_onnx_name)
            *files_found = json_loadb(answer.body.data, answer.body.size, 0, NULL);
        fb_buffer_free(&answer.body);
        if (answer.status == 200 && (i == 0) != is_onnx_name)
            return fb_complain(FB_EXIT_USAGE, "the result is %s: give it a name that ends in %s, not %s",
                               i ? "an archive of torch.export" : "an ONNX model", i ? ".pt2" : ".onnx", cli->values.output);
        if (answer.status == 200 || !is_onnx_name) break;
    }
    return FB_EXIT_DONE;
}

/* The archive of the result. */
static int write_archive(fb_cli *cli, const fb_buffer *answer) {
    fb_address address = {0};
    json_t *run = json_loadb(answer->data, answer->size, 0, NULL);
    const char *result = fb_text_of(run, "result");
    bool is_known = *result != '\0';
    json_t *files = NULL;
    int done = is_known ? check_kind(cli, result, &files) : FB_EXIT_DONE;
    if (done || (is_known && fb_is_onnx_name(cli->values.output))) {
        if (!done) done = fb_onnx_download(cli, result, files);
        json_decref(files);
        json_decref(run);
        return done;
    }
    fb_address_path(&address, "/v1/graphs");
    fb_address_segment(&address, result);
    fb_address_path(&address, "/archive");
    json_decref(run);
    if (is_known) return fb_download(cli, &address, NULL);
    fb_buffer_free(&address.text);
    return fb_complain(FB_EXIT_FAILED, "the answer has no result in it: with --dry-run there is no archive");
}

static int write_graph(fb_cli *cli, const char *path, fb_buffer *answer) {
    if (fb_is_archive_name(path)) return write_archive(cli, answer);
    fb_buffer graph = {0};
    int result = FB_EXIT_DONE;
    if (!fb_cut_member(answer, "graph", &graph)) result = fb_complain(FB_EXIT_FAILED, "the answer has no graph in it");
    else result = fb_file_write(path, graph.data, graph.size);
    fb_buffer_free(&graph);
    return result;
}

void fb_quote_word(const char *word, fb_buffer *out) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%+=,-";
    bool is_plain = word[strspn(word, plain)] == '\0';
    if (!is_plain) fb_buffer_char(out, '\'');
    for (; *word; word++) {
        if (*word == '\'') fb_buffer_string(out, "'\\''");
        else fb_buffer_char(out, *word);
    }
    if (!is_plain) fb_buffer_char(out, '\'');
}

/* The option to type for the same store: " --data DIR" when it was given so. */
static void spell_place(const fb_cli *cli, fb_buffer *out) {
    const char *usual = fb_variable("FOLDBACK_SERVER"), *server = cli->values.server;
    bool is_usual = server ? usual && strcmp(server, usual) == 0 : strcmp(cli->values.data, fb_usual_data()) == 0;
    if (is_usual) return;
    fb_buffer_string(out, server ? " --server " : " --data ");
    fb_quote_word(server ? server : cli->values.data, out);
}

/* Suggests commands for a run; its id is long enough to be typed again. */
static void print_next_steps(fb_cli *cli, const json_t *run) {
    fb_buffer told = {0};
    const char *id = fb_text_of(run, "id");
    bool is_changed = strcmp(fb_text_of(run, "source"), fb_text_of(run, "result")) != 0;
    if (!*id || !is_changed) return;
    spell_place(cli, &told);
    const char *place = fb_buffer_text(&told);
    if (!place) place = "";
    const char *undo = json_is_true(json_object_get(run, "reversible")) ? "reverse" : "rollback";
    fb_screen_table table = {.columns = 2, .keeps_first = true};
    fb_table_cell(&table, "foldback diff %.16s%s", id, place);
    fb_table_cell(&table, "shows what changed");
    fb_table_cell(&table, "foldback %s %.16s%s", undo, id, place);
    fb_table_cell(&table, "undoes it");
    fb_table_cell(&table, "foldback register MODEL:VERSION %.16s%s", id, place);
    fb_table_cell(&table, "gives the result a name, to deploy it");
    puts("\nNext:");
    fb_cli_table(cli, &table);
    fb_buffer_free(&told);
}

static int print_answer(fb_cli *cli, const fb_buffer *answer, bool is_written) {
    if (cli->is_json) {
        fwrite(answer->data, 1, answer->size, stdout);
        putchar('\n');
        return FB_EXIT_DONE;
    }
    json_t *run = json_loadb(answer->data, answer->size, 0, NULL);
    if (!run) return fb_complain(FB_EXIT_FAILED, "the answer is not JSON: is this foldback?");
    bool is_job = strncmp(fb_text_of(run, "id"), "job_", 4) == 0; /* and not what was asked for */
    if (is_job) fb_print_job(cli, run);
    else fb_print_run(cli, run);
    if (cli->values.output && is_written) printf("\nwritten to %s\n", cli->values.output);
    if (strcmp(fb_text_of(run, "kind"), "optimize") == 0) print_next_steps(cli, run);
    json_decref(run);
    return FB_EXIT_DONE;
}

/* A request whose answer is a run: writes its result to --output, and prints the run unless that is standard output. */
static int run_call(fb_cli *cli, fb_call *call) {
    const char *output = cli->values.output;
    fb_answer answer;
    int result = fb_cli_call(cli, call, &answer);
    if (result) return result;
    if (output) result = write_graph(cli, output, &answer.body);
    bool is_silent = output && strcmp(output, "-") == 0;
    /* The run is stored even if the file was not written. */
    int printed = is_silent ? FB_EXIT_DONE : print_answer(cli, &answer.body, !result);
    fb_answer_free(&answer);
    return result ? result : printed;
}

/* `call` has its method and address. */
static int do_run(fb_cli *cli, fb_call *call, bool undoes, const fb_reference *graph) {
    const fb_cli_values *values = &cli->values;
    if (values->is_async && values->output) {
        fb_call_free(call);
        return fb_complain(FB_EXIT_USAGE, "%s: with --async there is nothing to write to --output yet", cli->verb->name);
    }
    if (values->is_async) call->header = "Prefer: respond-async";
    int result = make_request(cli, undoes, graph, &call->body);
    if (!result) return run_call(cli, call);
    fb_call_free(call);
    return result;
}

/* ---- verbs -------------------------------------------------------------------------------------------------------------- */

/* True if a pass may be a rule of the store. */
static bool may_name_rules(const fb_cli_values *values) {
    struct stat folder;
    for (size_t i = 0; i < values->passes.count; i++) {
        const char *name = values->passes.items[i];
        if (!fb_pass_find(name) && !fb_preset_find(name)) return stat(values->data, &folder) == 0;
    }
    return false;
}

static int optimize(fb_cli *cli) {
    fb_reference graph = fb_reference_read(cli->arguments.items[0]);
    fb_call call = {.method = "POST"};
    if (!cli->values.passes.count)
        return fb_complain(FB_EXIT_USAGE, "optimize: which passes? Name them with --pass; foldback pass list lists them");
    bool needs_store =
        !cli->values.dry_run || fb_reference_needs_store(&graph) || cli->values.weights.count || may_name_rules(&cli->values);
    if (!needs_store) cli->folder = FB_FOLDER_UNUSED;
    fb_address_path(&call.address, "/v1/optimize");
    return do_run(cli, &call, false, &graph);
}

static void address_run(fb_call *call, const char *run, const char *verb) {
    fb_address_path(&call->address, "/v1/runs");
    fb_address_segment(&call->address, run);
    fb_address_segment(&call->address, verb);
}

static int reverse(fb_cli *cli) {
    fb_reference what = fb_reference_read(cli->arguments.items[0]);
    const char *run = cli->values.run;
    fb_call call = {.method = "POST"};
    if (!run && what.kind == FB_REFERS_TO_RUN) {
        address_run(&call, what.text, "reverse");
        return do_run(cli, &call, true, NULL);
    }
    if (run) address_run(&call, run, "reverse");
    else fb_address_path(&call.address, "/v1/reverse");
    return do_run(cli, &call, true, &what);
}

static int roll_back(fb_cli *cli) {
    fb_reference what = fb_reference_read(cli->arguments.items[0]);
    fb_call call = {.method = "POST"};
    if (what.kind == FB_REFERS_TO_ALIAS) return fb_rollback_alias(cli, &what);
    if (what.kind != FB_REFERS_TO_RUN)
        return fb_complain(FB_EXIT_USAGE, "rollback: %s is neither a run (run_…) nor MODEL@ALIAS", what.text);
    if (cli->values.from || cli->values.to || cli->values.as || cli->values.who || cli->values.why)
        return fb_complain(FB_EXIT_USAGE, "rollback: --from, --to, --as, --who and --why are for MODEL@ALIAS");
    address_run(&call, what.text, "rollback");
    return do_run(cli, &call, true, NULL);
}

/* ---- what is printed of a run -------------------------------------------------------------------------------------------- */

/* Neither applied nor refused anything, and has nothing to say. */
static bool is_idle(const json_t *pass) {
    return json_is_integer(json_object_get(pass, "applied")) && !json_integer_value(json_object_get(pass, "applied")) &&
           !json_array_size(json_object_get(pass, "refused")) && !json_object_get(pass, "detail");
}

/* Of a preset, which asks for it whatever the graph is: it does not know the operators of ONNX. */
static bool is_foreign(const json_t *pass) {
    const json_t *refused = json_object_get(pass, "refused");
    return json_object_get(pass, "preset") && json_array_size(refused) == 1 &&
           strcmp(fb_text_of(json_array_get(refused, 0), "reason"), "other-dialect") == 0;
}

static void print_passes(fb_cli *cli, const json_t *passes) {
    static const char *const headings[] = {"PASS", "EXACTNESS", "REVERSIBLE", ">APPLIED", ">REFUSED"};
    fb_screen_table table = {.columns = 5, .headings = headings};
    const json_t *pass;
    size_t i, foreign = 0;
    json_array_foreach(passes, i, pass) {
        foreign += is_foreign(pass);
        if (is_idle(pass) || is_foreign(pass)) continue;
        fb_table_cell(&table, "%s", fb_text_of(pass, "name"));
        fb_table_cell(&table, "%s", fb_text_of(pass, "exactness"));
        fb_table_cell(&table, "%s", fb_yes_no(pass, "reversible"));
        fb_table_cell(&table, "%lld", (long long)json_integer_value(json_object_get(pass, "applied")));
        fb_table_cell(&table, "%zu", json_array_size(json_object_get(pass, "refused")));
    }
    size_t idle = json_array_size(passes) - table.count / table.columns;
    if (table.count) fb_cli_table(cli, &table);
    if (idle) printf("%zu pass%s changed nothing", idle, idle == 1 ? "" : "es");
    if (foreign) printf("; %zu of them know%s only PyTorch's operators", foreign, foreign == 1 ? "s" : "");
    if (idle) putchar('\n');
}

/* The loss to expect of weights that were rounded, from their own errors. */
static void print_expected_loss(fb_cli *cli, const json_t *passes) {
    static const char *const headings[] = {"ROUNDED",        ">WEIGHTS",        ">UNKNOWN",
                                           ">LARGEST ERROR", ">EXPECTED ERROR", ">1 - COSINE"};
    fb_screen_table table = {.columns = 6, .headings = headings};
    const json_t *pass, *tensor;
    size_t i, k;
    json_array_foreach(passes, i, pass) {
        const json_t *loss = json_object_get(pass, "expected_loss"), *tensors = json_object_get(loss, "tensors");
        double largest = 0;
        if (!loss) continue;
        json_array_foreach(tensors, k, tensor) {
            double error = json_number_value(json_object_get(tensor, "relative_error"));
            if (error > largest) largest = error;
        }
        fb_table_cell(&table, "%s", fb_text_of(pass, "name"));
        fb_table_cell(&table, "%zu", json_array_size(tensors));
        fb_table_number(&table, loss, "unknown");
        fb_table_cell(&table, "%.3g", largest);
        fb_table_cell(&table, "%.3g", json_number_value(json_object_get(loss, "relative_error")));
        fb_table_cell(&table, "%.3g", json_number_value(json_object_get(loss, "cosine_distance")));
    }
    if (table.count) putchar('\n');
    if (table.count) fb_cli_table(cli, &table);
}

/* How far the graphs before and after each pass are apart, and what of it is not known. */
static void print_validation(fb_cli *cli, const json_t *passes) {
    static const char *const headings[] = {"VALIDATED", ">COMPARED", ">NOT", ">ABSOLUTE", ">RELATIVE", ">ULP"};
    fb_screen_table table = {.columns = 6, .headings = headings};
    const json_t *pass;
    size_t i;
    json_array_foreach(passes, i, pass) {
        const json_t *found = json_object_get(pass, "validation"), *compared = json_object_get(found, "regions");
        size_t unknown = json_array_size(json_object_get(found, "not_evaluated"));
        if (!found || is_idle(pass)) continue;
        if (!compared) compared = json_object_get(found, "outputs");
        fb_table_cell(&table, "%s", fb_text_of(pass, "name"));
        long long equal = (long long)json_integer_value(json_object_get(found, "equal_regions"));
        if (equal) fb_table_cell(&table, "%lld (%lld equal)", (long long)json_integer_value(compared), equal);
        else fb_table_cell(&table, "%lld", (long long)json_integer_value(compared));
        fb_table_cell(&table, "%zu", unknown);
        fb_table_deviation(&table, found, "max_absolute");
        fb_table_deviation(&table, found, "max_relative");
        fb_table_deviation(&table, found, "max_ulp");
    }
    if (table.count) putchar('\n');
    if (table.count) fb_cli_table(cli, &table);
}

static void put_measured(fb_screen_table *table, const json_t *number) {
    if (json_is_number(number)) fb_table_cell(table, "%.6g", json_number_value(number));
    else fb_table_cell(table, "-");
}

/* The outputs by the measure of a task. */
static void print_measured(fb_cli *cli, const json_t *validation) {
    const char *headings[] = {"OUTPUT", NULL, ">BEFORE"};
    char measure[40];
    fb_screen_table table = {.columns = 3, .headings = headings};
    const json_t *output;
    size_t i;
    if (!json_object_get(validation, "metric")) return;
    snprintf(measure, sizeof measure, ">%s", fb_text_of(validation, "metric"));
    headings[1] = measure;
    json_array_foreach(json_object_get(validation, "outputs"), i, output) {
        fb_table_cell(&table, "%s", fb_text_of(output, "name"));
        put_measured(&table, json_object_get(output, "value"));
        put_measured(&table, json_object_get(output, "before"));
    }
    putchar('\n');
    fb_cli_table(cli, &table);
}

/* "a, b, c", or the first ones of many: "a, b, … (31 in all)". */
static void join_names(const json_t *names, char *out, size_t space) {
    const json_t *name;
    size_t i, used = 0, room = space - sizeof ", … (4294967295 in all)";
    *out = '\0';
    json_array_foreach(names, i, name) {
        int added = snprintf(out + used, room - used, "%s%s", i ? ", " : "", json_string_value(name));
        if (added < 0 || used + (size_t)added >= room) {
            snprintf(out + used, space - used, "%s… (%zu in all)", i ? ", " : "", json_array_size(names));
            return;
        }
        used += (size_t)added;
    }
}

static void print_refusals(fb_cli *cli, const json_t *passes) {
    static const char *const headings[] = {"REFUSED BY", "REASON", "NODES", "WHY"};
    fb_screen_table table = {.columns = 4, .headings = headings};
    const json_t *pass, *refusal;
    size_t i, j;
    json_array_foreach(passes, i, pass) {
        if (is_foreign(pass)) continue;
        json_array_foreach(json_object_get(pass, "refused"), j, refusal) {
            char nodes[240];
            join_names(json_object_get(refusal, "nodes"), nodes, sizeof nodes);
            fb_table_cell(&table, "%s", fb_text_of(pass, "name"));
            fb_table_cell(&table, "%s", fb_text_of(refusal, "reason"));
            fb_table_cell(&table, "%s", nodes);
            fb_table_cell(&table, "%s", fb_text_of(refusal, "detail"));
        }
    }
    if (table.count) putchar('\n');
    if (table.count) fb_cli_table(cli, &table);
}

static void join_labels(const json_t *run, char *out, size_t space) {
    json_t *labels = json_object_get(run, "labels"), *value;
    const char *key;
    size_t used = 0;
    *out = '\0';
    json_object_foreach(labels, key, value) {
        int added = snprintf(out + used, space - used, "%s%s=%s", used ? ", " : "", key, json_string_value(value));
        if (added < 0 || used + (size_t)added >= space) return;
        used += (size_t)added;
    }
}

void fb_print_run(fb_cli *cli, const json_t *run) {
    const char *source = fb_text_of(run, "source"), *result = fb_text_of(run, "result"), *id = fb_text_of(run, "id");
    bool is_undo = strcmp(fb_text_of(run, "kind"), "reverse") == 0 || strcmp(fb_text_of(run, "kind"), "rollback") == 0;
    const json_t *passes = json_object_get(run, "passes");
    char labels[400], requested[400], nodes[80];
    join_labels(run, labels, sizeof labels);
    fb_run_requested(run, requested, sizeof requested);
    long long before = fb_run_nodes(run, "before"), after = fb_run_nodes(run, "after");
    if (before == after) snprintf(nodes, sizeof nodes, "%lld", after);
    else snprintf(nodes, sizeof nodes, "%lld → %lld (%+lld)", before, after, after - before);
    fb_print_facts(cli, (const fb_fact[]){{"run", *id ? id : "none: nothing was stored"},
                                          {"kind", fb_text_of(run, "kind")},
                                          {"passes", requested},
                                          {"of run", fb_text_of(run, "of_run")},
                                          {"graph", fb_text_of(run, "name")},
                                          {"nodes", nodes},
                                          {"source", source},
                                          {"result", strcmp(source, result) ? result : "the source, unchanged"},
                                          {"exact", is_undo ? fb_yes_no(run, "exact") : ""},
                                          {"created", fb_told_time(fb_text_of(run, "created")).text},
                                          {"note", fb_text_of(run, "note")},
                                          {"labels", labels},
                                          {0}});
    fb_print_binding(cli, json_object_get(run, "weights"));
    putchar('\n');
    print_passes(cli, passes);
    print_expected_loss(cli, passes);
    print_validation(cli, passes);
    print_measured(cli, json_object_get(run, "validation"));
    if (!is_undo) print_refusals(cli, passes); /* else those of the run that is undone */
}

/* ---- record ------------------------------------------------------------------------------------------------------------- */

static int make_record(fb_cli *cli, fb_buffer *out) {
    const fb_cli_values *values = &cli->values;
    fb_reference source = fb_reference_read(cli->arguments.items[0]), made = fb_reference_read(cli->arguments.items[1]);
    fb_request_begin(out);
    fb_put_int(out, "version", values->version);
    if (values->is_irreversible) fb_put_bool(out, "reversible", false);
    if (values->preserves_computation) fb_put_bool(out, "preserves_computation", true);
    int result = fb_request_text(out, "name", values->name);
    if (!result) result = fb_request_object(out, "params", values->params);
    if (!result) result = fb_request_text(out, "note", values->note);
    if (!result) result = fb_request_labels(out, &values->labels);
    if (!result) result = fb_request_graph(cli, out, "source", &source);
    if (!result) result = fb_request_graph(cli, out, "result", &made);
    return result ? result : fb_request_end(out);
}

static int record(fb_cli *cli) {
    fb_call call = {.method = "POST"};
    if (!cli->values.name) return fb_complain(FB_EXIT_USAGE, "record needs the name of the pass: --name NAME");
    if (cli->values.preserves_computation && cli->values.changes_computation)
        return fb_complain(FB_EXIT_USAGE, "record: --preserves-computation or --changes-computation, not both");
    fb_address_path(&call.address, "/v1/runs");
    int result = make_record(cli, &call.body);
    if (!result) return run_call(cli, &call);
    fb_call_free(&call);
    return result;
}

/* ---- list -------------------------------------------------------------------------------------------------------------- */

static int list_runs(fb_cli *cli) {
    const fb_cli_values *values = &cli->values;
    fb_address address = {0};
    fb_address_path(&address, "/v1/runs");
    fb_address_query(&address, "kind", values->kind);
    fb_address_query(&address, "source", values->source);
    fb_address_query(&address, "result", values->result);
    fb_address_query(&address, "of_run", values->run);
    fb_address_query(&address, "pass", values->pass);
    fb_address_query(&address, "signature", values->signature);
    for (size_t i = 0; i < values->labels.count; i++) fb_address_query(&address, "label", values->labels.items[i]);
    return fb_list_show(cli, &address, fb_run_headings, FB_RUN_COLUMNS, fb_run_row);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option optimize_options[] = {
    NAMES("pass", 'p', "PASS,PASS", "the passes to apply, by name, in order; may be repeated", passes),
    WEIGHTS,
    READS_AS,
    PREFIX,
    OUTPUT,
    TEXT("lint", 0, "end|each|none", "when to verify: at the end, after each pass, or not (end)", lint),
    TEXT("validate", 0, "off|rewrites|graph", "what must compute the same after each pass (off)", validate),
    TEXT("tolerance", 0, "T", "how far it may be off, relative to the largest magnitude (by dtype)", tolerance),
    TEXT("inputs", 0, "FILE", "judge the result on these: safetensors, .npz or a folder of .npy; see --metric", inputs),
    TEXT("metric", 0, "METRIC", "by top1, cosine, mse or max-relative: to the graph before, or to output.0 of the file",
         metric),
    TEXT("at-least", 0, "X", "how large top1 or cosine must be; --tolerance is for the others", at_least),
    TEXT("mask", 0, "NAME", "positions where this array of the file is 0 do not count", mask),
    TEXT("assume", 0, "DTYPE", "record dtypes that follow from weights; an input without a dtype gets this one", assume),
    SEED,
    NOTE,
    LABEL,
    DRY_RUN,
    ASYNC,
    STORE,
    JSON,
    END,
};

static const fb_option reverse_options[] = {
    UNDONE, TEXT("run", 0, "RUN", "the run to undo, if the graph does not name it", run),
    OUTPUT, NOTE,
    LABEL,  DRY_RUN,
    ASYNC,  STORE,
    JSON,   END,
};

static const fb_option rollback_options[] = {
    UNDONE,
    TEXT("to", 0, "VERSION", "for an alias: go back to this version, not to the one before", to),
    TEXT("from", 0, "VERSION", "for an alias: only if it is at this version now", from),
    FLAG("yes", 'y', "for an alias: do not ask before --to brings back a version that was taken back", yes),
    TEXT("as", 0, "VERSION", "for an alias, with --pass: the name of the new version", as),
    OUTPUT,
    WHO,
    WHY,
    NOTE,
    LABEL,
    DRY_RUN,
    ASYNC,
    STORE,
    JSON,
    END,
};

static const fb_option record_options[] = {
    TEXT("name", 0, "NAME", "what the pass is called", name),
    TEXT("params", 0, "JSON", "its parameters, an object", params),
    {"version", 0, "N", "its version (1)", FB_OPTION_COUNT, AT(version), 1, INT32_MAX},
    FLAG("irreversible", 0, "it cannot be reversed, only rolled back", is_irreversible),
    FLAG("preserves-computation", 0, "its result computes the same", preserves_computation),
    FLAG("changes-computation", 0, "its result may compute something else (default)", changes_computation),
    NOTE,
    LABEL,
    STORE,
    JSON,
    END,
};

static const fb_option runs_options[] = {
    TEXT("kind", 0, "optimize|reverse|rollback|external", "runs of this kind", kind),
    TEXT("source", 0, "ID", "runs that started from this graph", source),
    TEXT("result", 0, "ID", "runs that made this graph", result),
    TEXT("of-run", 0, "RUN", "runs that undid this one", run),
    TEXT("pass", 'p', "PASS", "runs with this pass", pass),
    TEXT("signature", 0, "HEX", "runs with this signature, of all passes or of one", signature),
    LIST("label", 0, "KEY[=VALUE]", "runs with this label; may be repeated", labels),
    LIMIT,
    STORE,
    JSON,
    END,
};

const fb_verb fb_run_verbs[] = {
    {.name = "optimize",
     .arguments = "GRAPH",
     .summary = "applies passes to a graph; stores graph, result and run",
     .description = GRAPH_NAMES "A pass with parameters: --pass '{\"name\": …, \"params\": {…}}'.\n",
     .options = optimize_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = optimize},
    {.name = "reverse",
     .arguments = "GRAPH|RUN",
     .summary = "undoes passes, and keeps what changed in the graph since",
     .description = GRAPH_NAMES "Every pass to undo must be reversible. If later changes conflict with the undo, lists the "
                                "conflicts and stores nothing.\n",
     .options = reverse_options,
     .run = reverse},
    {.name = "rollback",
     .arguments = "RUN|MODEL@ALIAS",
     .summary = "restores the graph from before a run, or the version before",
     .description =
         "Undoes any pass, reversible or not. A run: gives its source, or with --pass the source with only the other passes\n"
         "applied. An alias: goes back to the version before, or to --to VERSION; with --pass it goes to a new version, which\n"
         "is the deployed one without these passes. A version that the alias was taken back from, by a rollback or by "
         "deploying\n"
         "an earlier one again, is skipped without --to.\n",
     .options = rollback_options,
     .run = roll_back},
    {.name = "record",
     .arguments = "SOURCE RESULT",
     .summary = "records a change that your own code made, so that it can be undone",
     .description = GRAPH_NAMES,
     .options = record_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = record},
    {.name = "run list", .arguments = "", .summary = "lists the runs", .options = runs_options, .run = list_runs},
    {.name = "run show", .arguments = "RUN", .summary = "shows a run", .options = fb_plain_options, .run = fb_cli_show},
    {.name = "runs", .now = "run list", .arguments = "", .options = runs_options, .run = list_runs},
    {0},
};
