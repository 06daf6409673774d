/* /v1/models/{model}/aliases: names that move from version to version. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/history/undo.h"
#include "server/http/http.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"
#include "server/store/events.h"

/* With its quotes, as If-Match takes it. */
static void print_tag(const fb_store_alias_entry *entry, char tag[24]) {
    snprintf(tag, 24, "\"%" PRId64 "\"", entry->number);
}

/* Appends the alias whose last entry this is. */
static void alias_write(const fb_store_alias_entry *entry, fb_buffer *out) {
    char tag[24];
    print_tag(entry, tag);
    fb_buffer_char(out, '{');
    fb_put_text(out, "model", entry->model);
    fb_put_text(out, "alias", entry->alias);
    fb_put_text(out, "version", entry->to);
    fb_put_text(out, "graph", entry->to_graph);
    fb_put_text_or_null(out, "run", entry->run);
    fb_put_text_or_null(out, "from", entry->from);
    fb_put_time(out, "updated", entry->at);
    if (entry->who) fb_put_text(out, "who", entry->who);
    if (entry->why) fb_put_text(out, "why", entry->why);
    fb_put_text(out, "etag", tag);
    fb_buffer_char(out, '}');
}

/* Responds with the alias and its ETag. */
static void respond_alias(fb_response *response, int status, const fb_store_alias_entry *entry) {
    fb_buffer answer = {0};
    char tag[24];
    snprintf(tag, sizeof tag, "%" PRId64, entry->number);
    alias_write(entry, &answer);
    fb_respond_json_buffer_take(response, status, &answer);
    fb_response_etag(response, tag);
    fb_response_changed(response, entry->at);
    fb_response_identity(response); /* the tag of a compressed answer would be a weak one, which no If-Match matches */
}

/* As it was after the entry with that number, in decimal digits: what a repeated request is answered. */
void fb_respond_stored_alias(const fb_request *request, fb_response *response, int status, const char *number) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_entry entry;
    if (fb_store_get_alias_entry(app->store, strtoll(number, NULL, 10), &entry, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    respond_alias(response, status, &entry);
    FB_STORE_FREE(&entry);
}

/* ---- what requests that change an alias have in common ------------------------------------------------------------------- */

#define WHO_MAX 200 /* characters */

typedef enum alias_request {
    FB_ALIAS_SET,       /* needs If-Match, or If-None-Match: * */
    FB_ALIAS_DELETE,    /* needs If-Match */
    FB_ALIAS_ROLL_BACK, /* needs nothing, but an alias that exists */
} alias_request;

/* fb_respond_error, but a condition that does not hold is 412, and an unknown version has `version_pointer`. */
static void respond_alias_error(fb_response *response, const fb_error *error, const char *version_pointer) {
    if (!strcmp(error->code, "alias-moved") || !strcmp(error->code, "alias-exists"))
        fb_respond_problem(response, 412, error->code, "%s", error->message);
    else fb_respond_error_at(response, strcmp(error->code, "unknown-version") == 0 ? version_pointer : "", error);
}

/* Reads "who" and "why"; they live as long as the body. */
static bool alias_change_read(fb_response *response, const fb_request_body *body, fb_store_alias_change *out) {
    const char *who = NULL;
    bool ok = fb_body_text(response, body, "who", WHO_MAX, &who) && fb_body_text(response, body, "why", FB_NOTE_MAX, &out->why);
    if (who) out->who = who;
    return ok;
}

/* ---- If-Match ----------------------------------------------------------------------------------------------------------- */

static bool respond_bad_precondition(fb_response *response, const char *detail) {
    fb_respond_problem(response, 400, "bad-precondition", "%s", detail);
    return false;
}

/* The alias as it is now; when it does not exist, that is a condition that does not hold, if there is one. */
static bool find_present(const fb_request *request, fb_response *response, const fb_store_alias_change *change,
                         bool is_condition, int64_t *number) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_entry entry;
    fb_status status = fb_store_get_alias(app->store, change->model, change->alias, &entry, &error);
    if (is_condition && strcmp(error.code, "unknown-alias") == 0)
        fb_respond_problem(response, 412, "alias-moved", "%s", error.message);
    else if (status) fb_respond_error(response, &error);
    if (status) return false;
    *number = entry.number;
    FB_STORE_FREE(&entry);
    return true;
}

/* 412 alias-moved; `number` is the alias' place in the history now. */
static void respond_alias_moved(fb_response *response, const fb_store_alias_change *change, int64_t number) {
    fb_respond_problem(response, 412, "alias-moved", "alias %s of model %s has changed since: its ETag is \"%" PRId64 "\" now",
                       change->alias, change->model, number);
}

static bool match(const fb_request *request, fb_response *response, const char *list, fb_store_alias_change *out) {
    char tag[24];
    bool is_there = false;
    if (strcmp(list, "*") == 0) return true;
    if (!fb_tags_have(list, "", &is_there))
        return respond_bad_precondition(response, "If-Match is a list of entity tags in double quotes, or *");
    if (!find_present(request, response, out, true, &out->expected)) return false;
    out->condition = FB_ALIAS_IS_AT;
    snprintf(tag, sizeof tag, "%" PRId64, out->expected);
    fb_tags_have(list, tag, &is_there);
    if (!is_there) respond_alias_moved(response, out, out->expected);
    return is_there;
}

/* Names of the path, and the condition that the headers make. If-Match is compared strongly, with the alias as it is now; the
 * condition then holds the alias there until the change is made. On failure this responds and returns false: 400
 * bad-precondition, 404, 412 alias-moved, 422 bad-name, 428 precondition-required. */
static bool alias_change_begin(const fb_request *request, fb_response *response, alias_request kind,
                               fb_store_alias_change *out) {
    const char *if_match = fb_request_header(request, "If-Match"), *if_none_match = fb_request_header(request, "If-None-Match");
    *out = (fb_store_alias_change){
        .model = fb_request_param(request, "model"), .alias = fb_request_param(request, "alias"), .by = fb_actor_of(request)};
    bool has_token = strcmp(out->by.who, FB_ANONYMOUS) && strcmp(out->by.who, FB_LOCAL);
    if (has_token) out->who = out->by.who; /* unless the body says who */
    if (!fb_check_path_name(request, response, "model") || !fb_check_path_name(request, response, "alias")) return false;
    if (if_none_match && (kind != FB_ALIAS_SET || if_match || strcmp(if_none_match, "*") != 0))
        return respond_bad_precondition(response, kind == FB_ALIAS_SET
                                                      ? "give If-Match with the alias' ETag, or If-None-Match: * to create it"
                                                      : "If-None-Match means nothing here");
    if (if_none_match) out->condition = FB_ALIAS_IS_FREE;
    if (if_match) return match(request, response, if_match, out);
    if (kind == FB_ALIAS_ROLL_BACK) return find_present(request, response, out, false, &out->expected);
    if (if_none_match) return true;
    fb_respond_problem(response, 428, "precondition-required",
                       kind == FB_ALIAS_SET
                           ? "say If-Match with the ETag that the alias had when you looked, or If-None-Match: * "
                             "to create it: so that no change of others is lost"
                           : "say If-Match with the ETag that the alias had when you looked");
    return false;
}

/* ---- rollback: to a version from before, or to what is deployed without some passes -------------------------------------- */

typedef struct rollback {
    fb_store_alias_change change;
    const char *to, *as;  /* or NULL */
    const json_t *passes; /* or NULL */
    fb_repeat *repeat;
} rollback;

/* The answer that is stored with the change, for a repeated request. NULL when none is stored. */
static const fb_store_answer *make_answer(const rollback *work, fb_buffer *location, fb_error *error, fb_status *status) {
    fb_buffer_printf(location, "/v1/models/%s/aliases/%s", work->change.model, work->change.alias);
    const char *text = fb_buffer_text(location);
    if (!text) *status = fb_fail_memory(error);
    return text ? fb_repeat_answer(work->repeat, 200, text, NULL, 0) : NULL;
}

static json_t *list_withdrawn(const fb_store_rollback_plan *plan) {
    json_t *list = json_array();
    for (size_t i = 0; i < plan->withdrawn_count; i++) fb_list_add_take(&list, json_string(plan->withdrawn[i]));
    return list;
}

/* The versions that can be named. */
static void add_versions(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_rollback_plan plan;
    if (fb_store_plan_rollback(app->store, fb_request_param(request, "model"), fb_request_param(request, "alias"), &plan,
                               &error))
        return;
    if (plan.withdrawn_count) fb_problem_member_take(response, "versions", list_withdrawn(&plan));
    FB_STORE_FREE(&plan);
}

static void respond(const fb_request *request, fb_response *response, fb_status status, const fb_error *error,
                    fb_store_alias_entry *entry) {
    if (status) {
        respond_alias_error(response, error, "/version");
        if (!strcmp(error->code, "nothing-to-roll-back")) add_versions(request, response);
        return;
    }
    respond_alias(response, 200, entry);
    FB_STORE_FREE(entry);
}

/* To a version. */

static void roll_back(const fb_request *request, fb_response *response, const rollback *work) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_entry entry;
    fb_buffer location = {0};
    fb_status status = FB_OK;
    const fb_store_answer *answer = make_answer(work, &location, &error, &status);
    if (!status) status = fb_store_roll_back_alias(app->store, &work->change, work->to, answer, &entry, &error);
    respond(request, response, status, &error, &entry);
    fb_buffer_free(&location);
}

/* True if an earlier pass has the name. */

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

/* Rolls passes back from the alias's present version: the change is made only if the alias still has it. */
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
        respond_alias_moved(response, change, present.number); /* since If-Match was looked at */
    } else if (fb_undo_deployed(app, fb_request_watch(request), present.to_graph, present.run, work->passes, "/passes", &undone,
                                &refusal, &error)) {
        fb_respond_undo_refusal(response, &refusal, &error);
    } else {
        fb_status status = store_rollback(request, work, present.to, &undone, &entry, &error);
        respond(request, response, status, &error, &entry);
        fb_undone_free(&undone);
    }
    FB_STORE_FREE(&present);
}

/* The request. */

static bool read_rollback(fb_response *response, const fb_request_body *body, rollback *work) {
    work->passes = json_object_get(body->members, "passes");
    if (!alias_change_read(response, body, &work->change) ||
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

static void post_alias_rollback(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"version", "passes", "as", "who", "why", NULL};
    fb_repeat repeat;
    fb_request_body body;
    if (!fb_repeat_begin(request, response, &repeat)) return;
    rollback work = {.repeat = &repeat};
    if (alias_change_begin(request, response, FB_ALIAS_ROLL_BACK, &work.change) &&
        fb_body_read(request, response, known, &body)) {
        if (read_rollback(response, &body, &work)) {
            if (work.passes) roll_back_passes(request, response, &work);
            else roll_back(request, response, &work);
        }
        fb_request_body_free(&body);
    }
    fb_repeat_end(&repeat);
}

/* ---- changes ------------------------------------------------------------------------------------------------------------ */

static void set_alias(const fb_request *request, fb_response *response, const fb_store_alias_change *change,
                      const char *version) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_entry entry;
    if (fb_store_set_alias(app->store, change, version, &entry, &error)) {
        respond_alias_error(response, &error, "/version");
        return;
    }
    bool is_new = change->condition == FB_ALIAS_IS_FREE;
    respond_alias(response, is_new ? 201 : 200, &entry);
    if (is_new) fb_response_header_format(response, "Location", "/v1/models/%s/aliases/%s", entry.model, entry.alias);
    FB_STORE_FREE(&entry);
}

static void put_alias(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"version", "who", "why", NULL};
    fb_store_alias_change change;
    fb_request_body body;
    const char *version = NULL;
    if (!alias_change_begin(request, response, FB_ALIAS_SET, &change)) return;
    if (!fb_body_read(request, response, known, &body)) return;
    if (alias_change_read(response, &body, &change) && fb_body_text(response, &body, "version", FB_REFERENCE_MAX, &version)) {
        if (version) set_alias(request, response, &change, version);
        else fb_refuse_member(response, "missing-member", "/version", "the request needs a version");
    }
    fb_request_body_free(&body);
}

static void delete_alias(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_change change;
    if (!alias_change_begin(request, response, FB_ALIAS_DELETE, &change)) return;
    if (fb_store_delete_alias(app->store, &change, &error)) respond_alias_error(response, &error, "");
    else fb_respond_empty(response, 204);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static bool find_alias(const fb_request *request, fb_response *response, fb_store_alias_entry *out) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_status status =
        fb_store_get_alias(app->store, fb_request_param(request, "model"), fb_request_param(request, "alias"), out, &error);
    if (status) fb_respond_error(response, &error);
    return !status;
}

static void get_alias(const fb_request *request, fb_response *response) {
    fb_store_alias_entry entry;
    if (!find_alias(request, response, &entry)) return;
    respond_alias(response, 200, &entry);
    FB_STORE_FREE(&entry);
}

/* Answers with the move that POST would make. */
static void get_alias_rollback(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const char *model = fb_request_param(request, "model"), *alias = fb_request_param(request, "alias");
    fb_error error = {0};
    fb_store_rollback_plan plan;
    char tag[24];
    if (fb_store_plan_rollback(app->store, model, alias, &plan, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    print_tag(&plan.present, tag);
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "from", plan.present.to);
    fb_put_text_or_null(&answer, "to", plan.to);
    json_t *list = list_withdrawn(&plan);
    fb_put_json(&answer, "withdrawn", list);
    json_decref(list);
    fb_put_text(&answer, "etag", tag);
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, 200, &answer);
    FB_STORE_FREE(&plan);
}

static void get_alias_graph(const fb_request *request, fb_response *response) {
    fb_store_alias_entry entry;
    if (!find_alias(request, response, &entry)) return;
    if (fb_respond_graph(request, response, entry.to_graph)) {
        fb_response_changed(response, entry.at);
        fb_response_header_format(response, "Content-Location", "/v1/graphs/%s", entry.to_graph);
        fb_response_header(response, "Foldback-Version", entry.to);
    }
    FB_STORE_FREE(&entry);
}

static void get_alias_archive(const fb_request *request, fb_response *response) {
    fb_store_alias_entry entry;
    if (!find_alias(request, response, &entry)) return;
    if (fb_respond_archive(request, response, entry.to_graph)) {
        fb_response_changed(response, entry.at);
        fb_response_header_format(response, "Content-Location", "/v1/graphs/%s/archive", entry.to_graph);
        fb_response_header(response, "Foldback-Version", entry.to);
    }
    FB_STORE_FREE(&entry);
}

static void write_history_item(const fb_store_alias_entry *entry, fb_buffer *out) {
    fb_alias_entry_write(entry, false, out);
}

static void respond_list(fb_response *response, fb_store_alias_entries *list,
                         void (*write)(const fb_store_alias_entry *entry, fb_buffer *out)) {
    fb_buffer answer = fb_items_begin();
    for (size_t i = 0; i < list->count; i++) {
        fb_put_comma(&answer);
        write(&list->items[i], &answer);
    }
    fb_respond_items_take(response, &answer, list->next_token);
    FB_STORE_FREE(list);
}

static void get_aliases(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_alias_entries list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_list_aliases(app->store, fb_request_param(request, "model"), &page, &list, &error))
        fb_respond_page_error(response, &error);
    else respond_list(response, &list, alias_write);
}

static void get_alias_history(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_page page;
    fb_store_alias_entries list;
    if (!fb_page_read(request, response, &page)) return;
    if (fb_store_alias_history(app->store, fb_request_param(request, "model"), fb_request_param(request, "alias"), &page, &list,
                               &error))
        fb_respond_page_error(response, &error);
    else respond_list(response, &list, write_history_item);
}

const fb_route fb_alias_routes[] = {
    {.method = "GET",
     .pattern = "/v1/models/{model}/aliases",
     .handler = get_aliases,
     .scope = FB_SCOPE_READ,
     .query = "limit,page_token"},
    {.method = "PUT",
     .pattern = "/v1/models/{model}/aliases/{alias}",
     .handler = put_alias,
     .checks_conditions = true,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/models/{model}/aliases/{alias}",
     .handler = get_alias,
     .scope = FB_SCOPE_READ,
     .query = ""},
    {.method = "DELETE",
     .pattern = "/v1/models/{model}/aliases/{alias}",
     .handler = delete_alias,
     .checks_conditions = true,
     .scope = FB_SCOPE_WRITE,
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/models/{model}/aliases/{alias}/graph",
     .handler = get_alias_graph,
     .scope = FB_SCOPE_READ,
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/models/{model}/aliases/{alias}/archive",
     .handler = get_alias_archive,
     .scope = FB_SCOPE_READ,
     .produces = "application/octet-stream",
     .query = ""},
    {.method = "GET",
     .pattern = "/v1/models/{model}/aliases/{alias}/history",
     .handler = get_alias_history,
     .scope = FB_SCOPE_READ,
     .query = "limit,page_token"},
    {.method = "GET",
     .pattern = "/v1/models/{model}/aliases/{alias}/rollback",
     .handler = get_alias_rollback,
     .scope = FB_SCOPE_READ,
     .query = ""},
    {.method = "POST",
     .pattern = "/v1/models/{model}/aliases/{alias}/rollback",
     .handler = post_alias_rollback,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .query = ""},
    {0},
};
