#include "server/routes/undo.h"

#include <stdlib.h>
#include <string.h>

#include "server/routes/json_members.h"
#include "server/routes/run_answer.h"

typedef struct undoing {
    const fb_store_run *run;
    fb_composition composition;
    bool *selected; /* the calls to undo */
    size_t count;   /* of them */
    fb_composition rest;
    fb_graph_input source, result;
    fb_signature signature; /* of the undone passes */
    fb_buffer request, report;
    fb_store_pass *passes;
} undoing;

bool fb_check_undoable(const fb_store_run *run, fb_response *response) {
    if (strcmp(run->kind, "optimize") == 0) return true;
    fb_respond_problem(response, 409, "not-an-optimize-run", "%s is a %s; only what an optimize run did can be undone%s%s",
                       run->id, run->kind,
                       run->of_run ? ". To have those passes again, optimize again; the run that it undid is " : "",
                       run->of_run ? run->of_run : "");
    if (run->of_run) fb_problem_member_take(response, "of_run", json_string(run->of_run));
    return false;
}

/* ---- which passes ------------------------------------------------------------------------------------------------------- */

static fb_status read_composition(undoing *work, fb_error *error) {
    json_t *list = json_loads(work->run->request, JSON_REJECT_DUPLICATES, NULL);
    fb_error found = {0};
    fb_status status = list ? fb_composition_read(list, "", &work->composition, &found) : FB_SYNTAX;
    json_decref(list);
    if (status == FB_NO_MEMORY) return fb_fail_memory(error);
    bool is_whole = !status && work->composition.count == work->run->pass_count;
    return is_whole ? FB_OK
                    : fb_fail(error, FB_IO, "store-corrupt", "", "the passes of run %s cannot be read: %s", work->run->id,
                              found.message);
}

static fb_status select_passes(undoing *work, const fb_run_request *asked, fb_error *error) {
    work->selected = calloc(work->composition.count, sizeof *work->selected);
    if (!work->selected) return fb_fail_memory(error);
    fb_status status = FB_OK;
    if (asked->passes)
        status = fb_composition_select(&work->composition, asked->passes, asked->passes_pointer, work->selected, error);
    for (size_t i = 0; i < work->composition.count; i++) {
        if (!asked->passes) work->selected[i] = true;
        work->count += work->selected[i];
    }
    return status;
}

static bool is_named_before(const undoing *work, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (work->selected[i] && work->composition.calls[i].pass == work->composition.calls[index].pass) return true;
    }
    return false;
}

static bool check_reversible(const undoing *work, fb_response *response) {
    json_t *names = json_array();
    for (size_t i = 0; i < work->composition.count; i++) {
        const fb_pass *pass = work->composition.calls[i].pass;
        if (work->selected[i] && !pass->reversible && !is_named_before(work, i))
            json_array_append_new(names, json_string(pass->name));
    }
    bool ok = names && json_array_size(names) == 0;
    if (ok) {
        json_decref(names);
        return true;
    }
    fb_respond_problem(response, 409, "irreversible",
                       "not every pass can be reversed; POST to the rollback link returns any of them exactly, from the store");
    fb_problem_member_take(response, "passes", names);
    fb_problem_member_take(response, "rollback", json_sprintf("/v1/runs/%s/rollback", work->run->id));
    return false;
}

/* ---- the graph without them --------------------------------------------------------------------------------------------- */

static fb_status replay(const fb_app *app, undoing *work, fb_error *error) {
    fb_run run;
    fb_status status = fb_load_graph(app, work->run->source, &work->source.shared, error);
    if (!status) status = fb_composition_run(&work->rest, work->source.shared->graph, FB_LINT_END, &run, error);
    if (status) return status;
    fb_graph *result = run.result;
    run.result = NULL;
    fb_run_free(&run);
    return fb_graph_input_take(result, &work->result, error);
}

/* ---- the new run -------------------------------------------------------------------------------------------------------- */

/* What the undone passes had done goes from the run's report into the new one's, byte for byte. */
static bool copy_report(void *context, size_t index, const char *text, size_t size) {
    undoing *work = context;
    if (index >= work->composition.count) return false;
    if (!work->selected[index]) return true;
    fb_put_comma(&work->report);
    fb_buffer_append(&work->report, text, size);
    return true;
}

static fb_status describe(undoing *work, fb_error *error) {
    work->passes = calloc(work->count + 1, sizeof *work->passes);
    const char **signatures = calloc(work->count + 1, sizeof *signatures);
    fb_status status = work->passes && signatures ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0, j = 0; i < work->composition.count && !status; i++) {
        if (!work->selected[i]) continue;
        signatures[j] = work->composition.calls[i].signature;
        work->passes[j++] = work->run->passes[i];
    }
    if (!status && !fb_composition_signature(signatures, work->count, work->signature)) status = fb_fail_memory(error);
    free(signatures);
    if (status) return status;
    fb_composition_write(&work->rest, &work->request);
    fb_buffer_char(&work->report, '[');
    if (!fb_each_item(work->run->report, strlen(work->run->report), copy_report, work))
        return fb_fail(error, FB_IO, "store-corrupt", "", "the report of run %s cannot be read", work->run->id);
    fb_buffer_char(&work->report, ']');
    return fb_buffer_text(&work->report) && fb_buffer_text(&work->request) ? FB_OK : fb_fail_memory(error);
}

static void answer(const fb_request *request, fb_response *response, const fb_run_request *asked, undoing *work,
                   fb_undo_kind kind, fb_repeat *repeat) {
    bool is_replayed = work->result.shared != NULL;
    fb_new_run made = {.source = &(fb_graph_input){0}, .result = &work->result};
    made.run = (fb_store_run){.kind = kind == FB_UNDO_REVERSE ? "reverse" : "rollback",
                              .source = work->run->result,
                              .result = is_replayed ? work->result.shared->id : work->run->source,
                              .of_run = work->run->id,
                              .signature = work->signature,
                              .is_exact = true,
                              .is_reversible = false,
                              .preserves_computation = true,
                              .lint = is_replayed ? "passed" : "skipped",
                              .note = asked->note,
                              .request = work->request.data,
                              .report = work->report.data,
                              .passes = work->passes,
                              .pass_count = work->count,
                              .labels = asked->labels,
                              .label_count = asked->label_count};
    for (size_t i = 0; i < work->composition.count; i++)
        made.run.preserves_computation &= !work->selected[i] || work->composition.calls[i].pass->preserves_computation;
    fb_respond_new_run(request, response, asked, &made, repeat);
}

static void undo(const fb_request *request, fb_response *response, const fb_run_request *asked, undoing *work,
                 fb_undo_kind kind, fb_repeat *repeat) {
    fb_error error = {0};
    fb_status status = read_composition(work, &error);
    if (!status) status = select_passes(work, asked, &error);
    if (!status && kind == FB_UNDO_REVERSE && !check_reversible(work, response)) return;
    if (!status) status = fb_composition_without(&work->composition, work->selected, &work->rest, &error);
    if (!status && work->rest.count) status = replay(request->context, work, &error);
    if (!status) status = describe(work, &error);
    if (status) fb_respond_request_error(response, &error);
    else answer(request, response, asked, work, kind, repeat);
}

void fb_undo_run(const fb_request *request, fb_response *response, const fb_run_request *asked, const fb_store_run *run,
                 fb_undo_kind kind, fb_repeat *repeat) {
    undoing work = {.run = run};
    undo(request, response, asked, &work, kind, repeat);
    fb_graph_input_free(&work.result);
    fb_graph_input_free(&work.source);
    fb_composition_free(&work.rest);
    fb_composition_free(&work.composition);
    fb_buffer_free(&work.report);
    fb_buffer_free(&work.request);
    free(work.selected);
    free(work.passes);
}
