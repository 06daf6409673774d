/* An undo: which steps of a history go, the graph without them, and the run that says so. */
#include "server/history/undo.h"

#include <stdlib.h>
#include <string.h>

#include "core/compose/undo.h"
#include "core/json/json.h"
#include "core/json/scan.h"

#define REACH_MAX 100 /* runs that a name is looked for in */

/* ---- which steps are asked for ------------------------------------------------------------------------------------------- */

static bool is_of(const fb_past_step *step, const char *run_id) {
    return !strcmp(step->of->run.id, run_id);
}

static const fb_store_pass *pass_of(const fb_past_step *step) {
    return &step->of->run.passes[step->position];
}

/* By its own name, or by that of the preset that it was a part of. */
static bool is_called(const fb_past_step *step, const char *name) {
    const char *preset = pass_of(step)->preset;
    return !strcmp(pass_of(step)->name, name) || (preset && !strcmp(preset, name));
}

/* The newest step of that name: of one run, or of any. */
static const fb_past_step *find_step(const fb_history *history, const char *name, const char *run_id) {
    for (size_t i = history->step_count; i-- > 0;) {
        const fb_past_step *step = &history->steps[i];
        if (is_called(step, name) && (!run_id || is_of(step, run_id))) return step;
    }
    return NULL;
}

static void add_name(json_t **names, const char *name) {
    const json_t *one;
    size_t i;
    json_array_foreach(*names, i, one) {
        if (!strcmp(json_string_value(one), name)) return;
    }
    fb_list_add_take(names, json_string(name));
}

/* The names that could have been given go into the refusal. */
static fb_status fail_unknown(const fb_undo_task *task, const char *name, const char *pointer, fb_undo_refusal *refusal,
                              fb_error *error) {
    char brief[84];
    fb_copy_text(brief, sizeof brief, name);
    refusal->names = json_array();
    for (size_t i = 0; i < task->history.step_count; i++) {
        const fb_past_step *step = &task->history.steps[i];
        if (!task->reaches_back && !is_of(step, task->run_id)) continue;
        if (pass_of(step)->preset) add_name(&refusal->names, pass_of(step)->preset);
        add_name(&refusal->names, pass_of(step)->name);
    }
    return fb_fail(error, FB_INVALID, "unknown-pass", pointer, "no pass \"%s\" of %s is in the graph (any more)", brief,
                   task->reaches_back ? "the runs that made it" : task->run_id);
}

static fb_status select_name(const fb_app *app, const fb_watch *watch, fb_undo_task *task, const char *name,
                             const char *pointer, fb_undo_refusal *refusal, fb_error *error) {
    fb_history *history = &task->history;
    const fb_past_step *found = find_step(history, name, task->run_id);
    bool goes_on = task->reaches_back;
    for (int i = 0; !found && goes_on && i < REACH_MAX; i++) {
        found = find_step(history, name, NULL);
        fb_status status = found ? FB_OK : fb_history_extend(app, watch, history, &goes_on, error);
        if (status) return status;
    }
    if (!found) return fail_unknown(task, name, pointer, refusal, error);
    const fb_past_run *of = found->of;
    for (size_t i = 0; i < history->step_count; i++) {
        fb_past_step *step = &history->steps[i];
        if (step->of == of && is_called(step, name)) step->is_undone = true;
    }
    return FB_OK;
}

static fb_status select_position(fb_undo_task *task, double position, const char *pointer, fb_error *error) {
    const fb_history *history = &task->history;
    size_t count = 0;
    for (size_t i = 0; i < history->step_count; i++) {
        if (is_of(&history->steps[i], task->run_id)) count = history->steps[i].of->run.pass_count;
    }
    if (!count)
        return fb_fail(error, FB_INVALID, "unknown-pass", pointer, "nothing of %s is in the graph any more", task->run_id);
    if (!(position >= 0 && position < (double)count && position == (double)(size_t)position)) {
        return fb_fail(error, FB_INVALID, "bad-position", pointer, "positions in %s are the integers from 0 to %zu",
                       task->run_id, count - 1);
    }
    for (size_t i = 0; i < history->step_count; i++) {
        fb_past_step *step = &history->steps[i];
        if (!is_of(step, task->run_id) || step->position != (size_t)position) continue;
        step->is_undone = true;
        return FB_OK;
    }
    return fb_fail(error, FB_INVALID, "unknown-pass", pointer, "pass %zu of %s is not in the graph any more", (size_t)position,
                   task->run_id);
}

static fb_status select_entry(const fb_app *app, const fb_watch *watch, fb_undo_task *task, const json_t *entry,
                              const char *pointer, fb_undo_refusal *refusal, fb_error *error) {
    if (json_is_string(entry)) return select_name(app, watch, task, json_string_value(entry), pointer, refusal, error);
    if (json_is_number(entry)) return select_position(task, json_number_value(entry), pointer, error);
    return fb_fail(error, FB_INVALID, "wrong-type", pointer, "a pass is given by its name or its position");
}

/* Marks the steps of task->history that are to be undone, and makes the history longer where names reach back. FB_INVALID
 * unknown-pass, bad-position, wrong-type, no-passes. */
static fb_status select_steps(const fb_app *app, const fb_watch *watch, fb_undo_task *task, fb_undo_refusal *refusal,
                              fb_error *error) {
    const char *pointer = task->passes_pointer;
    if (!task->passes) {
        for (size_t i = 0; i < task->history.step_count; i++)
            task->history.steps[i].is_undone = is_of(&task->history.steps[i], task->run_id);
        return FB_OK;
    }
    if (!json_is_array(task->passes))
        return fb_fail(error, FB_INVALID, "wrong-type", pointer, "passes is an array of names and positions");
    if (!json_array_size(task->passes)) return fb_fail(error, FB_INVALID, "no-passes", pointer, "the list of passes is empty");
    for (size_t i = 0; i < json_array_size(task->passes); i++) {
        fb_buffer at = {0};
        fb_buffer_printf(&at, "%s/%zu", pointer, i);
        const char *text = fb_buffer_text(&at);
        fb_status status = text ? select_entry(app, watch, task, json_array_get(task->passes, i), text, refusal, error)
                                : fb_fail_memory(error);
        fb_buffer_free(&at);
        if (status) return status;
    }
    return FB_OK;
}

/* An undoing under way, and then what a worked out run refers to. */
typedef struct fb_undoing {
    fb_undo_kind kind;
    const fb_watch *watch;
    fb_history history;
    char graph_id[FB_ID_LENGTH + 1]; /* of the graph at hand */
    fb_graph_input at_hand, result;  /* borrowed; owned */
    size_t count;                    /* undone passes */
    const fb_past_run *newest;       /* of the runs that they are of */
    bool is_exact;
    fb_signature signature; /* of the undone passes */
    fb_buffer requested, request, report;
    fb_store_pass *passes;
} undoing;

static void free_undoing(undoing *work) {
    if (!work) return;
    fb_history_free(&work->history);
    fb_graph_input_free(&work->result);
    fb_buffer_free(&work->requested);
    fb_buffer_free(&work->request);
    fb_buffer_free(&work->report);
    free(work->passes);
    free(work);
}

void fb_undone_free(fb_undone *undone) {
    free_undoing(undone->work);
    *undone = (fb_undone){0};
}

void fb_undo_refusal_free(fb_undo_refusal *refusal) {
    fb_conflicts_free(&refusal->conflicts);
    json_decref(refusal->names);
    free(refusal->irreversible);
    free_undoing(refusal->work);
    *refusal = (fb_undo_refusal){0};
}

/* ---- which passes ------------------------------------------------------------------------------------------------------- */

static bool is_reversible(const fb_past_step *step) {
    const fb_pass_call *call = fb_past_call(step);
    return call ? call->pass->reversible : step->of->run.is_reversible;
}

static bool preserves_computation(const fb_past_step *step) {
    const fb_pass_call *call = fb_past_call(step);
    return call ? call->pass->preserves_computation : step->of->run.preserves_computation;
}

static bool is_listed(const fb_undo_refusal *refusal, const char *name) {
    for (size_t i = 0; i < refusal->irreversible_count; i++) {
        if (!strcmp(refusal->irreversible[i], name)) return true;
    }
    return false;
}

static fb_status check_reversible(const undoing *work, fb_undo_refusal *refusal, fb_error *error) {
    refusal->irreversible = calloc(work->count, sizeof *refusal->irreversible);
    if (!refusal->irreversible) return fb_fail_memory(error);
    for (size_t i = 0; i < work->history.step_count; i++) {
        const fb_past_step *step = &work->history.steps[i];
        const char *name = pass_of(step)->name;
        if (step->is_undone && !is_reversible(step) && !is_listed(refusal, name))
            refusal->irreversible[refusal->irreversible_count++] = name;
    }
    if (!refusal->irreversible_count) {
        free(refusal->irreversible);
        refusal->irreversible = NULL;
        return FB_OK;
    }
    fb_copy_text(refusal->run_id, sizeof refusal->run_id, work->newest->run.id);
    return fb_fail(error, FB_CONFLICT, "irreversible", "",
                   "not every pass can be reversed; POST to the rollback link undoes any of them exactly, from the store");
}

static void count_undone(undoing *work) {
    for (size_t i = 0; i < work->history.step_count; i++) {
        if (!work->history.steps[i].is_undone) continue;
        work->count++;
        work->newest = work->history.steps[i].of;
    }
}

/* ---- the graph without them --------------------------------------------------------------------------------------------- */

static fb_status make_result(const fb_app *app, undoing *work, const fb_graph *ours, fb_conflicts *conflicts, fb_error *error) {
    fb_graph *made = NULL;
    fb_status status = fb_history_replay(app, work->watch, &work->history, ours, &made, &work->is_exact, conflicts, error);
    return status ? status : fb_graph_input_take(made, work->watch, &work->result, error);
}

static fb_status replay(const fb_app *app, undoing *work, fb_conflicts *conflicts, fb_error *error) {
    bool is_changed = strcmp(work->graph_id, work->history.result) != 0;
    if (!is_changed && work->count == work->history.step_count) { /* what is left is the source */
        work->is_exact = true;
        return FB_OK;
    }
    fb_status status = make_result(app, work, is_changed ? work->at_hand.shared->graph : NULL, conflicts, error);
    if (status != FB_CONFLICT || !conflicts->count) return status;
    *error = (fb_error){0}; /* the conflicts say more */
    return fb_fail(error, FB_CONFLICT, "conflict", "",
                   "the graph has changed where the passes would be undone; nothing was stored");
}

/* ---- the new run -------------------------------------------------------------------------------------------------------- */

typedef struct report_copy {
    undoing *work;
    const fb_past_run *of;
} report_copy;

/* Copies the reports of the undone passes from their run's report into the new one's, byte for byte. */
static bool copy_report(void *context, size_t index, const char *text, size_t size) {
    const report_copy *copy = context;
    const fb_history *history = &copy->work->history;
    for (size_t i = 0; i < history->step_count; i++) {
        const fb_past_step *step = &history->steps[i];
        if (step->of != copy->of || step->position != index || !step->is_undone) continue;
        fb_put_comma(&copy->work->report);
        fb_buffer_append(&copy->work->report, text, size);
    }
    return true;
}

static fb_status copy_reports(undoing *work, fb_error *error) {
    const fb_past_run *last = NULL;
    fb_buffer_char(&work->report, '[');
    for (size_t i = 0; i < work->history.step_count; i++) { /* the steps of one run are neighbours */
        report_copy copy = {.work = work, .of = work->history.steps[i].of};
        const char *report = copy.of->run.report;
        if (copy.of == last) continue;
        last = copy.of;
        if (!fb_each_item(report, strlen(report), copy_report, &copy))
            return fb_fail(error, FB_IO, "store-corrupt", "", "the report of run %s cannot be read", copy.of->run.id);
    }
    fb_buffer_char(&work->report, ']');
    return fb_buffer_text(&work->report) ? FB_OK : fb_fail_memory(error);
}

static fb_status list_passes(undoing *work, fb_error *error) {
    work->passes = calloc(work->count + 1, sizeof *work->passes);
    const char **signatures = calloc(work->count + 1, sizeof *signatures);
    bool ok = work->passes && signatures;
    for (size_t i = 0, j = 0; ok && i < work->history.step_count; i++) {
        const fb_past_step *step = &work->history.steps[i];
        if (!step->is_undone) continue;
        work->passes[j] = *pass_of(step);
        signatures[j++] = pass_of(step)->signature;
    }
    ok = ok && fb_composition_signature(signatures, work->count, work->signature);
    free(signatures);
    return ok ? FB_OK : fb_fail_memory(error);
}

/* The names and positions that were given, as names; without any, what that run had been asked for, if that is known. */
static fb_status write_requested(undoing *work, const fb_undo_task *task, fb_error *error) {
    const fb_past_run *run = work->newest;
    for (size_t i = 0; i < work->history.step_count; i++) {
        if (is_of(&work->history.steps[i], task->run_id)) run = work->history.steps[i].of;
    }
    fb_buffer *out = &work->requested;
    if (!task->passes) {
        if (run->run.requested) fb_buffer_string(out, run->run.requested);
    } else {
        for (size_t i = 0; i < json_array_size(task->passes); i++) {
            const json_t *entry = json_array_get(task->passes, i);
            const char *name = json_string_value(entry);
            if (!name) name = run->run.passes[(size_t)json_number_value(entry)].name;
            fb_buffer_char(out, i ? ',' : '[');
            fb_buffer_json_string(out, name, strlen(name));
        }
        fb_buffer_char(out, ']');
    }
    return out->failed || (out->size && !fb_buffer_text(out)) ? fb_fail_memory(error) : FB_OK;
}

static void describe(undoing *work, fb_new_run *made) {
    bool is_replayed = work->result.shared != NULL;
    *made = (fb_new_run){.source = &work->at_hand, .result = &work->result};
    made->run = (fb_store_run){.kind = work->kind == FB_UNDO_REVERSE ? "reverse" : "rollback",
                               .source = work->graph_id,
                               .result = is_replayed ? work->result.shared->id : work->history.source,
                               .of_run = work->newest->run.id,
                               .signature = work->signature,
                               .is_exact = work->is_exact,
                               .is_reversible = false,
                               .preserves_computation = true,
                               .lint = is_replayed ? "passed" : "skipped",
                               .requested = work->requested.data,
                               .request = work->request.data,
                               .report = work->report.data,
                               .passes = work->passes,
                               .pass_count = work->count};
    for (size_t i = 0; i < work->history.step_count; i++) {
        const fb_past_step *step = &work->history.steps[i];
        made->run.preserves_computation &= !step->is_undone || preserves_computation(step);
    }
}

static void write_step(const fb_past_step *step, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "run", step->of->run.id);
    fb_put_int(out, "position", (int64_t)step->position);
}

static void write_undone(const fb_history *history, fb_buffer *out) {
    int64_t left = 0;
    fb_put_text(out, "result", history->result);
    fb_put_name(out, "undone");
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < history->step_count; i++) {
        if (!history->steps[i].is_undone) {
            left++;
            continue;
        }
        write_step(&history->steps[i], out);
        fb_put_int(out, "after", left);
        fb_buffer_char(out, '}');
    }
    fb_buffer_char(out, ']');
}

/* For fb_store_run.request of an undo: JSON that says what is left over; unless it is exact, also what it takes to merge again.
 */
static fb_status history_write_rest(const fb_history *history, bool is_exact, fb_buffer *out, fb_error *error) {
    const char **signatures = calloc(history->step_count + 1, sizeof *signatures);
    if (!signatures) return fb_fail_memory(error);
    size_t count = 0;
    fb_buffer_char(out, '{');
    fb_put_text(out, "source", history->source);
    fb_put_name(out, "steps");
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < history->step_count; i++) {
        const fb_past_step *step = &history->steps[i];
        if (step->is_undone) continue;
        signatures[count++] = step->of->run.passes[step->position].signature;
        write_step(step, out);
        fb_buffer_char(out, '}');
    }
    fb_buffer_char(out, ']');
    if (!is_exact) write_undone(history, out);
    fb_signature signature;
    bool ok = fb_composition_signature(signatures, count, signature);
    free(signatures);
    fb_put_text(out, "signature", signature);
    fb_buffer_char(out, '}');
    return ok && fb_buffer_text(out) ? FB_OK : fb_fail_memory(error);
}

static fb_status work_out(const fb_app *app, undoing *work, const fb_undo_task *task, fb_undo_refusal *refusal,
                          fb_error *error) {
    count_undone(work);
    if (!work->count)
        return fb_fail(error, FB_CONFLICT, "nothing-to-undo", "", "nothing of %s is in the graph any more", task->run_id);
    fb_status status = work->kind == FB_UNDO_ROLLBACK ? FB_OK : check_reversible(work, refusal, error);
    if (!status) status = replay(app, work, &refusal->conflicts, error);
    if (!status) status = list_passes(work, error);
    if (!status) status = copy_reports(work, error);
    if (!status) status = write_requested(work, task, error);
    return status ? status : history_write_rest(&work->history, work->is_exact, &work->request, error);
}

fb_status fb_undo_work_out(const fb_app *app, const fb_watch *watch, fb_undo_task *task, fb_undone *out,
                           fb_undo_refusal *refusal, fb_error *error) {
    undoing *work = calloc(1, sizeof *work);
    fb_status status = work ? select_steps(app, watch, task, refusal, error) : fb_fail_memory(error);
    if (status) {
        fb_history_free(&task->history);
        free(work);
        return status;
    }
    *work = (undoing){.kind = task->kind, .watch = watch, .history = task->history};
    task->history = (fb_history){0};
    if (task->at_hand) work->at_hand = *task->at_hand;
    fb_copy_text(work->graph_id, sizeof work->graph_id, task->graph_id);
    status = work_out(app, work, task, refusal, error);
    if (status) {
        refusal->work = work;
        return status;
    }
    describe(work, &out->made);
    out->work = work;
    return FB_OK;
}

/* ---- what is deployed --------------------------------------------------------------------------------------------------- */

/* The newest run that made a graph by steps that are known. */
typedef struct maker {
    char run_id[FB_RUN_ID_LENGTH + 1]; /* "" where there is none */
    bool is_merged;                    /* an undo merged the graph */
} maker;

static fb_status look_at_maker(void *context, const fb_store_run *run, bool *goes_on) {
    maker *found = context;
    json_t *request = NULL;
    if (fb_run_origin(run, &request)) memcpy(found->run_id, run->id, sizeof found->run_id);
    found->is_merged |= !fb_run_is_undoable(run) && !run->is_exact;
    json_decref(request);
    *goes_on = !*found->run_id;
    return FB_OK;
}

/* Finds the history of the graph, and the run whose passes positions mean; no steps when that is not known: because an undo
 * merged it, or because no run made it. */
static fb_status find_history_of_deployed(const fb_app *app, const fb_watch *watch, const char *graph_id, const char *run_id,
                                          fb_undo_task *task, bool *is_merged, fb_error *error) {
    fb_store_run run = {0};
    maker found = {0};
    json_t *request = NULL;
    fb_status status = run_id ? fb_store_get_run(app->store, run_id, &run, error) : FB_OK;
    bool is_known = !status && run_id && (fb_run_origin(&run, &request) || fb_run_is_undoable(&run));
    json_decref(request);
    if (!status && !is_known) { /* an undo that merged, or that changed nothing: perhaps the graph is known otherwise */
        FB_STORE_FREE(&run);
        status = fb_each_run(app, &(fb_store_run_filter){.result = graph_id}, look_at_maker, &found, error);
        *is_merged = found.is_merged;
        if (status || !*found.run_id) return status;
        status = fb_store_get_run(app->store, found.run_id, &run, error);
    }
    if (!status) status = fb_history_add(app, watch, &task->history, run.id, false, error);
    if (!status) snprintf(task->run_id, sizeof task->run_id, "%s", fb_run_is_undoable(&run) ? run.id : run.of_run);
    FB_STORE_FREE(&run);
    return status;
}

fb_status fb_undo_deployed(const fb_app *app, const fb_watch *watch, const char *graph_id, const char *run_id,
                           const json_t *passes, const char *passes_pointer, fb_undone *out, fb_undo_refusal *refusal,
                           fb_error *error) {
    fb_store_summary summary = {0};
    bool is_merged = false;
    fb_undo_task task = {.kind = FB_UNDO_ROLLBACK,
                         .reaches_back = true,
                         .passes = passes,
                         .passes_pointer = passes_pointer,
                         .graph_id = graph_id};
    fb_status status = fb_store_get_graph(app->store, graph_id, &summary, error);
    FB_STORE_FREE(&summary);
    if (!status) status = find_history_of_deployed(app, watch, graph_id, run_id, &task, &is_merged, error);
    if (!status && task.history.step_count) return fb_undo_work_out(app, watch, &task, out, refusal, error);
    fb_history_free(&task.history);
    if (status) return status;
    return fb_fail(error, FB_CONFLICT, "nothing-to-undo", "", "%s",
                   is_merged
                       ? "no known run made this graph: it has changed since. POST it to the reverse link of the run to undo"
                       : "no run made this graph, so there are no passes to undo");
}
