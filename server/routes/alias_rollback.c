/* POST /v1/models/{model}/aliases/{alias}/rollback: to a version from before, or to what is deployed without some passes. */
#include <string.h>

#include "server/history/undo.h"
#include "server/routes/actor.h"
#include "server/routes/alias_answer.h"
#include "server/routes/alias_change.h"
#include "server/routes/body_members.h"
#include "server/routes/graph_input.h"
#include "server/routes/name.h"
#include "server/routes/routes.h"
#include "server/routes/run_answer.h"

typedef struct rollback {
    fb_store_alias_change change;
    const char *to, *as;  /* or NULL */
    const json_t *passes; /* or NULL */
    fb_repeat *repeat;
} rollback;

/* What is stored with the change, for a repeated request. NULL when there is nothing to store. */
static const fb_store_answer *make_answer(const rollback *work, fb_buffer *location, fb_error *error, fb_status *status) {
    fb_buffer_printf(location, "/v1/models/%s/aliases/%s", work->change.model, work->change.alias);
    const char *text = fb_buffer_text(location);
    if (!text) *status = fb_fail_memory(error);
    return text ? fb_repeat_answer(work->repeat, 200, text, NULL, 0) : NULL;
}

static void respond(fb_response *response, fb_status status, const fb_error *error, fb_store_alias_entry *entry) {
    if (status) {
        fb_respond_alias_error(response, error, "/version");
        return;
    }
    fb_respond_alias(response, 200, entry);
    fb_store_alias_entry_free(entry);
}

/* ---- a version ---------------------------------------------------------------------------------------------------------- */

static void roll_back(const fb_request *request, fb_response *response, const rollback *work) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_entry entry;
    fb_buffer location = {0};
    fb_status status = FB_OK;
    const fb_store_answer *answer = make_answer(work, &location, &error, &status);
    if (!status) status = fb_store_roll_back_alias(app->store, &work->change, work->to, answer, &entry, &error);
    respond(response, status, &error, &entry);
    fb_buffer_free(&location);
}

/* ---- passes ------------------------------------------------------------------------------------------------------------- */

static bool is_named_before(const fb_store_run *run, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (strcmp(run->passes[i].name, run->passes[index].name) == 0) return true;
    }
    return false;
}

/* "v3-without-MergeLinears". An external pass may have any name: what a version's name cannot hold becomes a hyphen. */
static void write_name(const char *version, const fb_store_run *run, fb_buffer *out) {
    fb_buffer_printf(out, "%s-without", version);
    for (size_t i = 0; i < run->pass_count; i++) {
        if (is_named_before(run, i)) continue;
        fb_buffer_char(out, '-');
        for (const char *at = run->passes[i].name; *at; at++) {
            const char one[] = {'x', *at, '\0'};
            fb_buffer_char(out, fb_is_name(one) ? *at : '-');
        }
    }
}

static fb_status store_rollback(const fb_request *request, const rollback *work, const char *version, fb_undone *undone,
                                fb_store_alias_entry *entry, fb_error *error) {
    fb_app *app = request->context;
    fb_new_run *made = &undone->made;
    fb_new_graphs new;
    made->run.by = fb_actor_of(request);
    fb_buffer location = {0}, name = {0};
    fb_status status = fb_new_graphs_make(app, fb_request_watch(request), made, false, &new, error);
    if (!status) status = fb_store_new_run(app->store, &made->run, error);
    write_name(version, &made->run, &name);
    fb_store_partial_rollback partial = {.run = &made->run,
                                         .graphs = new.graphs,
                                         .graph_count = new.count,
                                         .name = work->as ? work->as : fb_buffer_text(&name),
                                         .is_name_fixed = work->as != NULL};
    if (!status && !partial.name) status = fb_fail_memory(error);
    const fb_store_answer *answer = status ? NULL : make_answer(work, &location, error, &status);
    if (!status) status = fb_store_roll_back_passes(app->store, &work->change, &partial, answer, entry, error);
    fb_new_graphs_free(app, made, !status, &new);
    fb_buffer_free(&location);
    fb_buffer_free(&name);
    return status;
}

/* What is worked out here is of the version that the alias has now: the change is made only if it has it still. */
static void roll_back_passes(const fb_request *request, fb_response *response, rollback *work) {
    fb_app *app = request->context;
    fb_store_alias_change *change = &work->change;
    fb_error error = {0};
    fb_store_alias_entry present, entry;
    fb_undone undone;
    fb_undo_refusal refusal = {0};
    if (fb_store_get_alias(app->store, change->model, change->alias, &present, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    if (change->condition == FB_ALIAS_EXISTS) change->expected = present.number;
    change->condition = FB_ALIAS_IS_AT;
    if (present.number != change->expected) {
        fb_respond_alias_moved(response, change, present.number); /* since If-Match was looked at */
    } else if (fb_undo_deployed(app, fb_request_watch(request), present.to_graph, present.run, work->passes, "/passes", &undone,
                                &refusal, &error)) {
        fb_respond_undo_refusal(response, &refusal, &error);
    } else {
        fb_status status = store_rollback(request, work, present.to, &undone, &entry, &error);
        respond(response, status, &error, &entry);
        fb_undone_free(&undone);
    }
    fb_store_alias_entry_free(&present);
}

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static bool read_rollback(fb_response *response, const fb_request_body *body, rollback *work) {
    work->passes = json_object_get(body->members, "passes");
    if (!fb_alias_change_read(response, body, &work->change) ||
        !fb_body_text(response, body, "version", FB_REFERENCE_MAX, &work->to) ||
        !fb_body_text(response, body, "as", FB_REFERENCE_MAX, &work->as) || !fb_check_body_name(response, "/as", work->as))
        return false;
    if (work->to && work->passes)
        return fb_refuse_member(response, "version-and-passes", "/version",
                                "a rollback is to a version or of passes: give one of them");
    if (work->as && !work->passes)
        return fb_refuse_member(response, "unexpected-name", "/as", "only a rollback of passes makes a new version");
    return true;
}

void fb_post_alias_rollback(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"version", "passes", "as", "who", "why", NULL};
    fb_repeat repeat;
    fb_request_body body;
    if (!fb_repeat_begin(request, response, &repeat)) return;
    rollback work = {.repeat = &repeat};
    if (fb_alias_change_begin(request, response, FB_ALIAS_ROLL_BACK, &work.change) &&
        fb_body_read(request, response, known, &body)) {
        if (read_rollback(response, &body, &work)) {
            if (work.passes) roll_back_passes(request, response, &work);
            else roll_back(request, response, &work);
        }
        fb_request_body_free(&body);
    }
    fb_repeat_end(&repeat);
}
