/* POST /v1/optimize: a graph and a list of passes in, a run out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/float.h"
#include "core/json/json.h"
#include "server/graphs/graphs.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/judging.h"
#include "server/routes/routes.h"

typedef struct optimization {
    fb_run_request asked;
    fb_composition composition;
    fb_graph_input source, result;
    fb_run run;
    fb_run_validation validation;
    char validation_text[100]; /* for the answer; "" = the run is not validated, or by a task */
    fb_buffer task_text;       /* the same of a task */
    fb_array_file task_file;
    fb_buffer request, report;
    fb_store_pass *passes;
    json_t *told;               /* of weights that were bound */
    fb_request_archive archive; /* that the source is read from */
} optimization;

static fb_status check_members(const fb_run_request *asked, bool is_archive, fb_error *error) {
    if (is_archive && asked->graph_id)
        return fb_fail(error, FB_INVALID, "contradictory-source", "/graph", "the request has both an archive and a graph");
    if (!asked->body.graph && !asked->graph_id && !is_archive)
        return fb_fail(error, FB_INVALID, "missing-member", "/graph", "the request needs a graph: a document or an id");
    if (asked->passes) return FB_OK;
    if (asked->body.is_document || is_archive)
        return fb_fail(error, FB_INVALID, "no-passes", "?pass=", "which passes? Name them in the query: ?pass=MergeLinears");
    return fb_fail(error, FB_INVALID, "missing-member", "/passes", "the request needs a list of passes");
}

static fb_status list_passes(optimization *work, fb_error *error) {
    work->passes = calloc(work->run.count + 1, sizeof *work->passes);
    if (!work->passes) return fb_fail_memory(error);
    for (size_t i = 0; i < work->run.count; i++) {
        const fb_pass_report *report = &work->run.passes[i];
        work->passes[i] = (fb_store_pass){.name = report->pass->name,
                                          .preset = report->preset,
                                          .version = (uint32_t)report->pass->version,
                                          .signature = report->signature,
                                          .applied = (uint32_t)report->applied,
                                          .refused = (uint32_t)report->refused_count};
    }
    return FB_OK;
}

static fb_status finish_run(fb_app *app, const fb_watch *watch, optimization *work, fb_error *error) {
    fb_work meter = {.watch = watch};
    fb_status status = fb_composition_settle(&work->composition, &work->run, error);
    if (status) return status;
    fb_pass_counts_add(app->counts, &work->run);
    fb_graph *result = work->run.result;
    size_t most = app->limits.max_nodes ? app->limits.max_nodes : FB_MAX_NODES_DEFAULT;
    if (fb_node_count(result) > most)
        return fb_fail(error, FB_TOO_LARGE, "too-many-nodes", "", "the result would have %zu nodes; at most %zu are taken",
                       fb_node_count(result), most);
    work->run.result = NULL;
    status = fb_graph_input_take(result, watch, &work->result, error);
    if (!status) status = list_passes(work, error);
    if (!status && !fb_run_report(&work->run, &meter, &work->report)) status = fb_work_failed(&meter, error);
    fb_arena_free(&work->run.arena); /* what the passes did is in the report now */
    fb_composition_write(&work->composition, &work->request);
    if (!status && (!fb_buffer_text(&work->report) || !fb_buffer_text(&work->request))) status = fb_fail_memory(error);
    return status;
}

/* ---- validation -------------------------------------------------------------------------------------------------------- */

/* The pass whose result differs, where, and by how much. */
static void respond_failed(fb_response *response, const fb_run_validation *validation, const fb_error *error) {
    const char *const *nodes = (const char *const *)(const void *)validation->failed_nodes.data;
    const fb_buffer *numbers = &validation->failed_numbers;
    fb_buffer text = {0};
    fb_respond_error(response, error);
    fb_problem_member_take(
        response, "pass",
        json_pack("{s:s, s:I}", "name", validation->failed->name, "position", (json_int_t)validation->failed_position));
    for (size_t i = 0; i < validation->failed_nodes.size / sizeof *nodes; i++) fb_problem_node(response, nodes[i]);
    fb_buffer_char(&text, '[');
    fb_buffer_append(&text, numbers->data, numbers->size);
    fb_buffer_char(&text, ']');
    const char *list = fb_buffer_text(&text);
    fb_problem_member_take(response, validation->mode == FB_VALIDATE_GRAPH ? "outputs" : "regions",
                           list ? fb_load_json(list) : NULL);
    fb_buffer_free(&text);
}

static fb_status run_validated(const fb_request *request, fb_response *response, optimization *work, const fb_blobs *blobs,
                               fb_error *error) {
    fb_evaluating evaluating;
    fb_run_validation *validation = &work->validation;
    const fb_graph *source = work->source.shared->graph;
    fb_run_watcher watcher = fb_validation_watcher(validation);
    watcher.watch = fb_request_watch(request);
    watcher.blobs = blobs;
    watcher.names_matches = work->asked.names_matches;
    if (!fb_evaluating_begin(request, response, &evaluating)) return FB_BUSY;
    evaluating.options.seed = work->asked.seed;
    validation->mode = work->asked.validate;
    validation->options = &evaluating.options;
    validation->tolerance = work->asked.has_tolerance ? &work->asked.tolerance : NULL;
    fb_status status = fb_composition_run(&work->composition, source, work->asked.lint, &watcher, &work->run, error);
    fb_evaluating_end(&evaluating);
    if (validation->failed) respond_failed(response, validation, error);
    else if (status) fb_respond_evaluation_error(response, error, source, NULL);
    else
        snprintf(work->validation_text, sizeof work->validation_text, "{\"mode\":\"%s\",\"passes\":%s,\"complete\":%s}",
                 fb_validation_mode_name(validation->mode),
                 validation->compared || !validation->is_incomplete ? "true" : "null",
                 validation->is_incomplete ? "false" : "true");
    return status;
}

static void put_measured(fb_buffer *out, const char *name, double number) {
    char text[FB_FLOAT_MAX] = "null";
    if (isfinite(number)) fb_float_repr(number, text);
    fb_put_name(out, name);
    fb_buffer_string(out, text);
}

static void write_outputs(const fb_task_result *found, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < found->count; i++) {
        char name[40];
        snprintf(name, sizeof name, "output.%zu", i);
        fb_put_comma(out);
        fb_buffer_char(out, '{');
        fb_put_text(out, "name", name);
        put_measured(out, "value", found->outputs[i].value);
        put_measured(out, "before", found->outputs[i].before);
        fb_put_bool(out, "passes", found->outputs[i].passes);
        fb_buffer_char(out, '}');
    }
    fb_buffer_char(out, ']');
}

static void write_task(const fb_run_request *asked, const fb_task_result *found, fb_buffer *out) {
    fb_buffer_char(out, '{');
    fb_put_text(out, "mode", "task");
    fb_put_bool(out, "passes", found->passes);
    fb_put_bool(out, "complete", true);
    fb_put_text(out, "inputs", asked->task.inputs);
    fb_put_text(out, "metric", fb_metric_name(asked->task.metric));
    put_measured(out, fb_metric_grows(asked->task.metric) ? "at_least" : "at_most", asked->task.bound);
    if (asked->task.mask) fb_put_text(out, "mask", asked->task.mask);
    fb_put_name(out, "outputs");
    write_outputs(found, out);
    fb_buffer_char(out, '}');
}

static void respond_task_failed(fb_response *response, const fb_run_request *asked, const fb_task_result *found) {
    size_t worst = 0;
    while (worst + 1 < found->count && found->outputs[worst].passes) worst++;
    fb_buffer text = {0};
    bool grows = fb_metric_grows(asked->task.metric);
    fb_respond_problem(response, 422, "validation-failed", "%s of output.%zu is %.6g; at %s %.6g is asked for",
                       fb_metric_name(asked->task.metric), worst, found->outputs[worst].value, grows ? "least" : "most",
                       asked->task.bound);
    write_outputs(found, &text);
    const char *list = fb_buffer_text(&text);
    fb_problem_member_take(response, "measured", list ? fb_load_json(list) : NULL);
    fb_buffer_free(&text);
}

/* Checks the members of the file besides the inputs, and that each input is one of the graph's. */
static bool check_task(fb_response *response, const optimization *work) {
    const fb_array_file *file = &work->task_file;
    const char *mask = work->asked.task.mask;
    bool has_mask = !mask;
    fb_array_file one = {.count = 1};
    for (size_t i = 0; i < file->count; i++) {
        bool is_mask = mask && !strcmp(file->items[i].name, mask);
        has_mask |= is_mask;
        one.items = &file->items[i];
        if (is_mask || fb_is_expected_name(file->items[i].name)) continue;
        if (!fb_check_inputs(response, &one, work->source.shared->graph, NULL)) return false;
    }
    if (has_mask) return true;
    fb_error error = {0};
    fb_fail(&error, FB_INVALID, "unknown-input", NULL, "the file has no array \"%.80s\"", mask);
    fb_respond_error_at(response, "/options/validate/mask", &error);
    return false;
}

/* Judges the run's result by the task that the request has. On failure it has responded. */
static bool judge_task(const fb_request *request, fb_response *response, optimization *work) {
    const fb_run_request *asked = &work->asked;
    const fb_graph *source = work->source.shared->graph;
    fb_evaluating evaluating;
    fb_task_result found = {0};
    fb_error error = {0};
    if (!fb_evaluating_begin(request, response, &evaluating)) return false;
    bool is_done = fb_judging_open_inputs(request, response, asked->task.inputs, "/options/validate/inputs", true, &evaluating,
                                          &work->task_file) &&
                   check_task(response, work);
    if (is_done) {
        fb_task task = {.items = work->task_file.items,
                        .count = work->task_file.count,
                        .mask = asked->task.mask,
                        .metric = asked->task.metric,
                        .bound = asked->task.bound};
        fb_status status = fb_task_measure(source, work->run.result, &task, &evaluating.options, &found, &error);
        if (status) fb_respond_evaluation_error(response, &error, source, work->run.result);
        else if (!found.passes) respond_task_failed(response, asked, &found);
        else write_task(asked, &found, &work->task_text);
        is_done = !status && found.passes;
    }
    free(found.outputs);
    fb_evaluating_end(&evaluating);
    return is_done;
}

/* On failure it has responded. */
static bool run_passes(const fb_request *request, fb_response *response, optimization *work) {
    const fb_app *app = request->context;
    fb_checked_source checked = {app->store, fb_request_watch(request)};
    fb_blobs blobs = fb_checked_blob_source(&checked);
    fb_error error = {0};
    fb_status status;
    if (work->asked.validate) {
        if (run_validated(request, response, work, &blobs, &error)) return false;
        bool is_judged = work->validation.compared || !work->validation.is_incomplete || work->asked.task.inputs;
        status = is_judged || work->asked.dry_run || !app->requires_validation
                     ? FB_OK
                     : fb_fail(&error, FB_INVALID, FB_VALIDATION_REQUIRED, "",
                               "nothing of what the passes did could be compared: judge it by inputs and a metric");
    } else {
        fb_run_watcher watcher = {
            .watch = fb_request_watch(request), .blobs = &blobs, .names_matches = work->asked.names_matches};
        status =
            fb_composition_run(&work->composition, work->source.shared->graph, work->asked.lint, &watcher, &work->run, &error);
    }
    if (!status && work->asked.task.inputs && !judge_task(request, response, work)) return false;
    if (!status) status = finish_run(request->context, fb_request_watch(request), work, &error);
    if (status) fb_respond_error(response, &error);
    return !status;
}

/* ---- the answer --------------------------------------------------------------------------------------------------------- */

static void answer(const fb_request *request, fb_response *response, optimization *work, fb_repeat *repeat) {
    fb_composition *composition = &work->composition;
    fb_new_run made = {.source = &work->source,
                       .result = &work->result,
                       .weights = work->told,
                       .archive = *work->archive.digest ? work->archive.digest : NULL,
                       .is_onnx = *work->archive.digest && fb_graph_is_onnx(work->source.shared->graph)};
    made.run = (fb_store_run){.kind = "optimize",
                              .source = work->source.shared->id,
                              .result = work->result.shared->id,
                              .signature = composition->signature,
                              .is_reversible = composition->reversible,
                              .preserves_computation = composition->preserves_computation,
                              .lint = work->asked.lint == FB_LINT_NONE ? "skipped" : "passed",
                              .note = work->asked.note,
                              .requested = fb_buffer_text(&composition->requested),
                              .request = work->request.data,
                              .report = work->report.data,
                              .validation = work->task_text.size     ? fb_buffer_text(&work->task_text)
                                            : *work->validation_text ? work->validation_text
                                                                     : NULL,
                              .passes = work->passes,
                              .pass_count = work->run.count,
                              .labels = work->asked.labels,
                              .label_count = work->asked.label_count};
    fb_respond_new_run(request, response, &work->asked, &made, repeat);
}

static fb_status check_validation(const fb_request *request, const fb_run_request *asked, fb_error *error) {
    const fb_app *app = request->context;
    if (!app->requires_validation || asked->dry_run || asked->validate || asked->task.inputs) return FB_OK;
    bool is_query = *asked->passes_pointer == '?';
    return fb_fail(error, FB_INVALID, FB_VALIDATION_REQUIRED, is_query ? "?validate=" : "/options/validate",
                   "this service takes no run that is not validated: give validate=rewrites or graph, or inputs and a metric");
}

/* On failure it has responded. Of a request with an archive everything is in the query. */
static bool read_asked(const fb_request *request, fb_response *response, bool is_archive, optimization *work) {
    fb_error error = {0};
    fb_request bodiless = *request;
    if (is_archive) bodiless.body = "", bodiless.body_size = 0;
    fb_status status = fb_run_request_read(&bodiless, FB_TAKES_GRAPH | FB_TAKES_LINT | FB_TAKES_WEIGHTS | FB_TAKES_VALIDATION,
                                           &work->asked, &error);
    if (!status) status = check_members(&work->asked, is_archive, &error);
    fb_pass_library library = fb_pass_library_of(request->context);
    if (!status)
        status = fb_composition_read_request(work->asked.assume, work->asked.assume_pointer, work->asked.passes,
                                             work->asked.passes_pointer, &library, &work->composition, &error);
    if (!status) status = check_validation(request, &work->asked, &error);
    if (status) fb_respond_request_error(response, &error);
    return !status;
}

static bool find_source(const fb_request *request, fb_response *response, optimization *work) {
    if (*work->archive.digest) return fb_archive_read(request, response, &work->archive, &work->source);
    return fb_graph_input_find(request, response, &work->asked, &work->source);
}

static void optimize(const fb_request *request, fb_response *response, optimization *work, fb_repeat *repeat) {
    if (!*work->archive.digest && !read_asked(request, response, false, work)) return;
    if (!find_source(request, response, work)) return;
    fb_request_forget_body(request);
    const fb_run_request *asked = &work->asked;
    fb_weights_asked weights = {asked->weights, asked->weights_pointer, asked->is_strict, asked->binding};
    if (!fb_bind_weights(request, response, &weights, &work->source, &work->told)) return;
    if (!asked->dry_run) fb_graph_input_pack(request->context, &work->source);
    if (run_passes(request, response, work)) answer(request, response, work, repeat);
}

static void post_optimize(const fb_request *request, fb_response *response) {
    fb_repeat repeat;
    fb_request bare;
    optimization work = {0};
    /* Before its archive becomes a blob: nothing is stored of a request that is wrong. */
    bool is_wrong = fb_is_archive_request(request) && !read_asked(request, response, true, &work);
    if (is_wrong) {
        fb_archive_drop(request);
    } else if (fb_archive_take(request, response, &bare, &work.archive) && fb_repeat_begin(&bare, response, &repeat)) {
        optimize(&bare, response, &work, &repeat);
        fb_repeat_end(&repeat);
    }
    fb_archive_settle(request, response, &work.archive);
    free(work.passes);
    json_decref(work.told);
    fb_array_file_free(&work.task_file);
    fb_buffer_free(&work.task_text);
    fb_buffer_free(&work.report);
    fb_buffer_free(&work.request);
    fb_run_validation_free(&work.validation);
    fb_run_free(&work.run);
    fb_graph_input_free(&work.result);
    fb_graph_input_free(&work.source);
    fb_composition_free(&work.composition);
    fb_run_request_free(&work.asked);
}

const fb_route fb_optimize_routes[] = {
    {.method = "POST",
     .pattern = "/v1/optimize",
     .handler = post_optimize,
     .defer = fb_defer_request,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .instead_of_body = "archive",
     .sink = &fb_archive_sink,
     .sink_types = FB_ARCHIVE_TYPES,
     .query = FB_OPTIMIZE_QUERY "," FB_ARCHIVE_QUERY},
    {0},
};
