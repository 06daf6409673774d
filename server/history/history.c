/* The steps that led to a graph: read from the store, and done again. */
#include "server/history/history.h"

#include <stdlib.h>
#include <string.h>

#include "core/compose/composition.h"
#include "core/compose/undo.h"
#include "core/json/json.h"
#include "server/graphs/graphs.h"

/* ---- doing the steps again ----------------------------------------------------------------------------------------------- */

static fb_undo_step step_of(const fb_history *history, size_t i) {
    const fb_past_step *step = &history->steps[i];
    fb_undo_step out = {.call = fb_past_call(step), .is_undone = step->is_undone};
    out.begins_run = i && step->of != step[-1].of;
    out.knew_numbers = fb_run_knew_numbers(&step->of->run);
    if (!out.call) out.before = step->of->before->graph;
    if (!out.call) out.after = step->of->after->graph;
    return out;
}

fb_status fb_history_replay(const fb_app *app, const fb_watch *watch, const fb_history *history, const fb_graph *ours,
                            fb_graph **out, bool *is_exact, fb_conflicts *conflicts, fb_error *error) {
    fb_shared_graph *source = NULL, *result = NULL;
    fb_undo_step *steps = calloc(history->step_count + 1, sizeof *steps);
    fb_status status = steps ? fb_load_graph(app, watch, history->source, &source, error) : fb_fail_memory(error);
    if (!status && ours) status = fb_load_graph(app, watch, history->result, &result, error);
    for (size_t i = 0; i < history->step_count && !status; i++) steps[i] = step_of(history, i);
    if (!status) {
        fb_checked_source checked = {app->store, watch};
        fb_blobs blobs = fb_checked_blob_source(&checked);
        fb_undo_plan plan = {.source = source->graph,
                             .steps = steps,
                             .step_count = history->step_count,
                             .result = result ? result->graph : NULL,
                             .ours = ours,
                             .watch = watch,
                             .blobs = &blobs};
        status = fb_undo(&plan, out, is_exact, conflicts, error);
    }
    free(steps);
    fb_share_release(source);
    fb_share_release(result);
    return status;
}

/* ---- what an undo left over ---------------------------------------------------------------------------------------------
 * {"source": "sha256:…", "signature": of the passes that are left, "steps": [{"run": "run_…", "position": 0}, …]}, and when it
 * was merged: "result": "sha256:…" of the graph that was changed since, "undone": steps, with "after": how many of those that
 * are left go before */

bool fb_run_is_undoable(const fb_store_run *run) {
    return !strcmp(run->kind, "optimize") || !strcmp(run->kind, "external");
}

bool fb_run_knew_numbers(const fb_store_run *run) {
    return strstr(run->report, "\"reason\":\"" FB_TENSOR_OVERFLOWS "\"") != NULL;
}

const char *fb_run_origin(const fb_store_run *run, json_t **request) {
    *request = NULL;
    if (!strcmp(run->source, run->result)) return NULL;
    if (fb_run_is_undoable(run)) return run->source;
    if (!run->is_exact) return NULL;
    *request = fb_load_json(run->request);
    const char *source = json_string_value(json_object_get(*request, "source"));
    return source && strcmp(source, run->result) ? source : NULL;
}

const fb_pass_call *fb_past_call(const fb_past_step *step) {
    return step->of->composition.count ? &step->of->composition.calls[step->position] : NULL;
}

/* ---- runs --------------------------------------------------------------------------------------------------------------- */

static void free_past_run(fb_past_run *past) {
    FB_STORE_FREE(&past->run);
    fb_composition_free(&past->composition);
    fb_share_release(past->before);
    fb_share_release(past->after);
    free(past);
}

void fb_history_free(fb_history *history) {
    for (size_t i = 0; i < history->run_count; i++) free_past_run(history->runs[i]);
    free(history->runs);
    free(history->steps);
    *history = (fb_history){0};
}

static fb_status read_composition(const fb_app *app, fb_past_run *past, fb_error *error) {
    fb_pass_library library = fb_pass_library_of(app);
    json_t *list;
    fb_error found = {0};
    fb_status status = fb_load_stored_json(past->run.request, &list);
    if (!status) status = fb_composition_read(list, "", &library, &past->composition, &found);
    json_decref(list);
    if (status == FB_NO_MEMORY) return fb_fail_memory(error);
    if (!status && past->composition.count == past->run.pass_count) return FB_OK;
    return fb_fail(error, FB_IO, "store-corrupt", "", "the passes of run %s cannot be read: %s", past->run.id, found.message);
}

static fb_status read_run(const fb_app *app, const fb_watch *watch, const char *id, fb_past_run *past, fb_error *error) {
    fb_status status = fb_store_get_run(app->store, id, &past->run, error);
    if (status) return status;
    if (!strcmp(past->run.kind, "optimize")) return read_composition(app, past, error);
    if (strcmp(past->run.kind, "external") != 0) return FB_OK;
    status = fb_load_graph(app, watch, past->run.source, &past->before, error);
    return status ? status : fb_load_graph(app, watch, past->run.result, &past->after, error);
}

/* The run, decoded, from the history or the store; the history owns it. */
static fb_status find_run(const fb_app *app, const fb_watch *watch, fb_history *history, const char *id, fb_past_run **out,
                          fb_error *error) {
    for (size_t i = 0; i < history->run_count; i++) {
        if (strcmp(history->runs[i]->run.id, id) != 0) continue;
        *out = history->runs[i];
        return FB_OK;
    }
    fb_past_run **runs = realloc(history->runs, (history->run_count + 1) * sizeof *runs);
    if (!runs) return fb_fail_memory(error);
    history->runs = runs;
    fb_past_run *past = calloc(1, sizeof *past);
    if (!past) return fb_fail_memory(error);
    runs[history->run_count++] = past;
    *out = past;
    return read_run(app, watch, id, past, error);
}

/* ---- steps -------------------------------------------------------------------------------------------------------------- */

/* Room for `count` steps, at the front or the end. */
static fb_status make_room(fb_history *history, size_t count, bool at_front, fb_past_step **out, fb_error *error) {
    if (history->step_count && history->step_count + count > FB_HISTORY_MAX) /* one run can always be undone */
        return fb_fail(error, FB_CONFLICT, "history-too-long", "", "more than %d passes made this graph", FB_HISTORY_MAX);
    fb_past_step *steps = realloc(history->steps, (history->step_count + count + 1) * sizeof *steps);
    if (!steps) return fb_fail_memory(error);
    if (at_front) memmove(steps + count, steps, history->step_count * sizeof *steps);
    history->steps = steps;
    *out = at_front ? steps : steps + history->step_count;
    history->step_count += count;
    memset(*out, 0, count * sizeof *steps);
    return FB_OK;
}

static fb_status fail_rest(const fb_store_run *undo, fb_error *error) {
    return fb_fail(error, FB_IO, "store-corrupt", "", "what run %s left over cannot be read", undo->id);
}

static fb_status add_steps(const fb_app *app, const fb_watch *watch, fb_history *history, const fb_store_run *undo,
                           const json_t *list, bool at_front, fb_error *error) {
    size_t count = json_array_size(list);
    fb_past_step *steps = NULL;
    fb_status status = make_room(history, count, at_front, &steps, error);
    for (size_t i = 0; i < count && !status; i++) {
        const json_t *entry = json_array_get(list, i);
        const char *id = json_string_value(json_object_get(entry, "run"));
        size_t position = (size_t)json_integer_value(json_object_get(entry, "position"));
        fb_past_run *of = NULL;
        status = id ? find_run(app, watch, history, id, &of, error) : fail_rest(undo, error);
        if (!status && (!fb_run_is_undoable(&of->run) || position >= of->run.pass_count)) status = fail_rest(undo, error);
        steps[i] = (fb_past_step){.of = of, .position = position};
    }
    return status;
}

static fb_status add_own(fb_history *history, const fb_past_run *past, bool at_front, fb_error *error) {
    fb_past_step *steps = NULL;
    fb_status status = make_room(history, past->run.pass_count, at_front, &steps, error);
    for (size_t i = 0; i < past->run.pass_count && !status; i++) steps[i] = (fb_past_step){.of = past, .position = i};
    return status;
}

fb_status fb_history_add(const fb_app *app, const fb_watch *watch, fb_history *history, const char *run_id, bool at_front,
                         fb_error *error) {
    fb_past_run *past = NULL;
    json_t *request = NULL;
    bool is_first = !*history->source;
    fb_status status = find_run(app, watch, history, run_id, &past, error);
    if (status) return status;
    const char *origin = fb_run_origin(&past->run, &request);
    if (fb_run_is_undoable(&past->run)) {
        origin = past->run.source;
        status = add_own(history, past, at_front, error);
    } else {
        const json_t *steps = json_object_get(request, "steps");
        status = origin ? add_steps(app, watch, history, &past->run, steps, at_front, error) : fail_rest(&past->run, error);
    }
    if (!status && (is_first || at_front)) memcpy(history->source, origin, sizeof history->source);
    if (!status && (is_first || !at_front)) memcpy(history->result, past->run.result, sizeof history->result);
    json_decref(request);
    return status;
}

/* ---- of a stored undo --------------------------------------------------------------------------------------------------- */

/* Steps that are left and steps that are undone, in one list and in their order; the latter have a member "after". */
static json_t *put_in_order(const json_t *left, const json_t *undone) {
    json_t *all = json_array();
    size_t next = 0;
    for (size_t i = 0; i <= json_array_size(left); i++) {
        for (; next < json_array_size(undone); next++) {
            json_t *step = json_array_get(undone, next);
            if (json_integer_value(json_object_get(step, "after")) > (json_int_t)i) break;
            json_array_append(all, step);
        }
        if (i < json_array_size(left)) json_array_append(all, json_array_get(left, i));
    }
    return all;
}

static fb_status add_all(const fb_app *app, const fb_watch *watch, fb_history *history, const fb_store_run *run,
                         const json_t *request, fb_error *error) {
    json_t *all = put_in_order(json_object_get(request, "steps"), json_object_get(request, "undone"));
    fb_status status = all ? add_steps(app, watch, history, run, all, false, error) : fb_fail_memory(error);
    for (size_t i = 0; i < history->step_count && !status; i++)
        history->steps[i].is_undone = json_object_get(json_array_get(all, i), "after") != NULL;
    json_decref(all);
    return status;
}

fb_status fb_history_of_undo(const fb_app *app, const fb_watch *watch, const fb_store_run *run, fb_history *out, bool *is_known,
                             fb_error *error) {
    *out = (fb_history){0};
    json_t *request;
    if (fb_load_stored_json(run->request, &request) == FB_NO_MEMORY) return fb_fail_memory(error);
    const char *source = json_string_value(json_object_get(request, "source"));
    const char *result = run->is_exact ? run->result : json_string_value(json_object_get(request, "result"));
    fb_status status = source ? FB_OK : fail_rest(run, error);
    *is_known = !status && result;
    if (*is_known) {
        snprintf(out->source, sizeof out->source, "%s", source);
        snprintf(out->result, sizeof out->result, "%s", result);
        status = add_all(app, watch, out, run, request, error);
    }
    json_decref(request);
    return status;
}
