/* Which passes of a history are to be undone. */
#include <stdlib.h>
#include <string.h>

#include "server/history/undo.h"

#define REACH_MAX 100 /* runs that a name is looked for in */

static bool is_of(const fb_past_step *step, const char *run_id) {
    return !strcmp(step->of->run.id, run_id);
}

static const char *name_of(const fb_past_step *step) {
    return step->of->run.passes[step->position].name;
}

/* The newest step of that name: of one run, or of any. */
static const fb_past_step *find_step(const fb_history *history, const char *name, const char *run_id) {
    for (size_t i = history->step_count; i-- > 0;) {
        const fb_past_step *step = &history->steps[i];
        if (!strcmp(name_of(step), name) && (!run_id || is_of(step, run_id))) return step;
    }
    return NULL;
}

static fb_status select_name(const fb_app *app, const fb_watch *watch, fb_undo_task *task, const char *name,
                             const char *pointer, fb_error *error) {
    fb_history *history = &task->history;
    const fb_past_step *found = find_step(history, name, task->run_id);
    bool goes_on = task->reaches_back;
    for (int i = 0; !found && goes_on && i < REACH_MAX; i++) {
        found = find_step(history, name, NULL);
        fb_status status = found ? FB_OK : fb_history_extend(app, watch, history, &goes_on, error);
        if (status) return status;
    }
    if (!found) {
        char brief[84];
        fb_copy_text(brief, sizeof brief, name);
        return fb_fail(error, FB_INVALID, "unknown-pass", pointer, "no pass \"%s\" of %s is in the graph (any more)", brief,
                       task->reaches_back ? "the runs that made it" : task->run_id);
    }
    const fb_past_run *of = found->of;
    for (size_t i = 0; i < history->step_count; i++) {
        fb_past_step *step = &history->steps[i];
        if (step->of == of && !strcmp(name_of(step), name)) step->is_undone = true;
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
                              const char *pointer, fb_error *error) {
    if (json_is_string(entry)) return select_name(app, watch, task, json_string_value(entry), pointer, error);
    if (json_is_number(entry)) return select_position(task, json_number_value(entry), pointer, error);
    return fb_fail(error, FB_INVALID, "wrong-type", pointer, "a pass is given by its name or its position");
}

fb_status fb_undo_select(const fb_app *app, const fb_watch *watch, fb_undo_task *task, fb_error *error) {
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
        fb_status status =
            text ? select_entry(app, watch, task, json_array_get(task->passes, i), text, error) : fb_fail_memory(error);
        fb_buffer_free(&at);
        if (status) return status;
    }
    return FB_OK;
}
