/* Runs: do their passes, done again, give what they gave? */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "server/check/internal.h"
#include "server/graphs/stored_graph.h"
#include "server/history/history.h"
#include "server/store/check.h"

/* A run that is being looked at. */
typedef struct looking {
    const fb_app *app;
    fb_check *check;
    const fb_store_run *run;
    char subject[FB_RUN_ID_LENGTH + 8];
} looking;

static fb_status met_damage(const looking *at, const fb_error *met, fb_error *error) {
    return fb_check_met(at->check, "run-damaged", at->subject, met, error);
}

/* ---- its rows ----------------------------------------------------------------------------------------------------------- */

/* The composition's signature is that of its passes', and the report tells of these passes. */
static fb_status check_rows(const looking *at, fb_error *error) {
    const fb_store_run *run = at->run;
    const char **signatures = calloc(run->pass_count + 1, sizeof *signatures);
    json_t *report = json_loads(run->report, 0, NULL);
    fb_signature signature;
    for (size_t i = 0; signatures && i < run->pass_count; i++) signatures[i] = run->passes[i].signature;
    bool is_computed = signatures && fb_composition_signature(signatures, run->pass_count, signature);
    free(signatures);
    if (is_computed && strcmp(signature, run->signature) != 0)
        fb_check_found(at->check, "run-damaged", at->subject, "the signature of its passes is %s, not %s", signature,
                       run->signature);
    bool is_told = json_array_size(report) == run->pass_count;
    for (size_t i = 0; i < run->pass_count && is_told; i++) {
        const char *told = json_string_value(json_object_get(json_array_get(report, i), "signature"));
        is_told = told && strcmp(told, run->passes[i].signature) == 0;
    }
    json_decref(report);
    if (!is_told) fb_check_found(at->check, "run-damaged", at->subject, "its report is not of its passes");
    return is_computed ? FB_OK : fb_fail_memory(error);
}

static void check_calls(const looking *at, const fb_composition *composition) {
    const fb_store_run *run = at->run;
    bool is_same = composition->count == run->pass_count;
    for (size_t i = 0; i < run->pass_count && is_same; i++) {
        is_same = strcmp(composition->calls[i].pass->name, run->passes[i].name) == 0 &&
                  strcmp(composition->calls[i].signature, run->passes[i].signature) == 0;
    }
    if (!is_same)
        fb_check_found(at->check, "run-damaged", at->subject, "the passes that it asked for are not those of its rows");
}

/* ---- its result --------------------------------------------------------------------------------------------------------- */

/* What a merge makes of tensors depends on which of their bytes were here then: where it differs by that, it is only not
 * counted.
 */
static bool reads_blobs(const fb_graph *ours) {
    for (fb_tensor t = ours ? fb_first_tensor(ours) : (fb_tensor){0}; t.id; t = fb_tensor_at(ours, t)->next)
        if (fb_tensor_at(ours, t)->blob.id) return true;
    return false;
}

static fb_status compare(const looking *at, const fb_graph *made, const fb_graph *ours, fb_error *error) {
    char id[FB_ID_LENGTH + 1];
    if (!fb_document_id(made, id)) return fb_fail_memory(error);
    if (strcmp(id, at->run->result) != 0 && reads_blobs(ours)) return FB_OK;
    at->check->replayed++;
    if (strcmp(id, at->run->result) != 0)
        fb_check_found(at->check, "run-differs", at->subject, "done again it gives %s, not %s", id, at->run->result);
    return FB_OK;
}

static fb_status replay_composition(const looking *at, const fb_composition *composition, fb_error *error) {
    fb_shared_graph *source = NULL;
    fb_run made = {0};
    fb_status status = fb_load_graph(at->app, NULL, at->run->source, &source, error);
    check_calls(at, composition);
    if (!status) status = fb_composition_run(composition, source->graph, FB_LINT_NONE, &made, error);
    if (!status) status = compare(at, made.result, NULL, error);
    fb_run_free(&made);
    fb_share_release(source);
    return status;
}

static fb_status replay_steps(const looking *at, const fb_history *history, const fb_graph *ours, fb_error *error) {
    fb_graph *made = NULL;
    fb_conflicts conflicts = {0};
    bool is_exact;
    fb_status status = fb_history_replay(at->app, NULL, history, ours, &made, &is_exact, &conflicts, error);
    fb_conflicts_free(&conflicts);
    if (!status) status = compare(at, made, ours, error);
    fb_graph_free(made);
    return status;
}

/* The first version wrote down what was left over as a list of passes, for the source of the run that was undone. */
static fb_status replay_list(const looking *at, const json_t *list, fb_error *error) {
    fb_store_run undone = {0};
    fb_composition composition = {0};
    fb_shared_graph *source = NULL;
    fb_run made = {0};
    if (!at->run->of_run) return fb_fail(error, FB_IO, "store-corrupt", NULL, "it undoes nothing");
    fb_status status = fb_store_get_run(at->app->store, at->run->of_run, &undone, error);
    if (!status) status = fb_load_graph(at->app, NULL, undone.source, &source, error);
    if (!status && json_array_size(list)) status = fb_composition_read(list, "", &composition, error);
    if (!status && composition.count) status = fb_composition_run(&composition, source->graph, FB_LINT_NONE, &made, error);
    if (!status) status = compare(at, made.result ? made.result : source->graph, NULL, error);
    fb_run_free(&made);
    fb_composition_free(&composition);
    fb_share_release(source);
    fb_store_run_free(&undone);
    return status;
}

static fb_status replay_undo(const looking *at, fb_error *error) {
    fb_history history;
    bool is_known = false;
    fb_shared_graph *ours = NULL;
    json_t *list = json_loads(at->run->request, 0, NULL);
    if (json_is_array(list)) {
        fb_status listed = replay_list(at, list, error);
        json_decref(list);
        return listed;
    }
    json_decref(list);
    fb_status status = fb_history_of_undo(at->app, NULL, at->run, &history, &is_known, error);
    if (!status && is_known && !at->run->is_exact) status = fb_load_graph(at->app, NULL, at->run->source, &ours, error);
    if (!status && is_known) status = replay_steps(at, &history, ours ? ours->graph : NULL, error);
    fb_share_release(ours);
    fb_history_free(&history);
    return status;
}

/* What was recorded is what its merge gives; a composition of this service is run as it was. */
static fb_status replay_own(const looking *at, fb_error *error) {
    fb_history history = {0};
    fb_status status = fb_history_add(at->app, NULL, &history, at->run->id, false, error);
    const fb_past_run *past = history.run_count ? history.runs[0] : NULL;
    if (!status && past->composition.count) status = replay_composition(at, &past->composition, error);
    else if (!status) status = replay_steps(at, &history, NULL, error);
    fb_history_free(&history);
    return status;
}

static fb_status check_run(const fb_app *app, fb_check *check, const char *id, fb_error *error) {
    looking at = {.app = app, .check = check};
    fb_store_run run;
    fb_error met = {0};
    snprintf(at.subject, sizeof at.subject, "run %.*s", FB_RUN_ID_LENGTH, id);
    if (fb_store_get_run(app->store, id, &run, &met)) return met_damage(&at, &met, error);
    at.run = &run;
    fb_status status = check_rows(&at, error);
    if (!status && (fb_run_is_undoable(&run) ? replay_own : replay_undo)(&at, &met)) status = met_damage(&at, &met, error);
    fb_store_run_free(&run);
    return status;
}

fb_status fb_check_runs(const fb_app *app, fb_check *check, fb_error *error) {
    fb_store_texts ids;
    fb_error met = {0};
    if (fb_store_list_texts(app->store, FB_STORED_RUNS, &ids, &met))
        return fb_check_met(check, "database-damaged", "the list of runs", &met, error);
    fb_status status = FB_OK;
    const char *id = ids.texts.data;
    for (size_t i = 0; i < ids.count && !status; i++, id += strlen(id) + 1) {
        status = check_run(app, check, id, error);
        fb_check_progress(check, "runs", ++check->runs, ids.count);
    }
    fb_buffer_free(&ids.texts);
    return status;
}
