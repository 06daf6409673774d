#include "server/routes/answer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/diff/diff.h"
#include "core/graph/code.h"
#include "core/json/json.h"
#include "server/routes/input.h"
#include "server/store/events.h"

#define ONNX "onnx"

/* ---- as JSON ------------------------------------------------------------------------------------------------------------ */

static void write_labels(const fb_store_run *run, fb_buffer *out) {
    fb_put_name(out, "labels");
    fb_buffer_char(out, '{');
    for (size_t i = 0; i < run->label_count; i++) fb_put_text(out, run->labels[i].key, run->labels[i].value);
    fb_buffer_char(out, '}');
}

/* Puts what was written around the document, which moves within its buffer: it may be as large as all else in memory. */
static void wrap(fb_buffer *document, size_t at, fb_buffer *out) {
    size_t size = document->size;
    if (out->failed || !fb_buffer_reserve(document, out->size)) {
        out->failed = true;
        return;
    }
    memmove(document->data + at, document->data, size);
    memcpy(document->data, out->data, at);
    memcpy(document->data + at + size, out->data + at, out->size - at);
    document->size += out->size;
    fb_buffer_free(out);
    *out = *document;
    *document = (fb_buffer){0};
}

static void write_extras(fb_run_extras *extras, fb_work *work, fb_buffer *out) {
    if (extras->document) {
        fb_put_name(out, "graph");
        extras->document_at = out->size;
    }
    if (extras->code_of) {
        fb_buffer code = {0};
        fb_code_write(extras->code_of, FB_MAIN_PROGRAM, work, &code);
        out->failed |= code.failed;
        fb_put_name(out, "code");
        fb_buffer_json_string(out, code.data ? code.data : "", code.size);
        fb_buffer_free(&code);
    }
    if (extras->edits_to) {
        fb_diff diff;
        fb_put_name(out, "edits");
        if (fb_diff_make(extras->edits_from, extras->edits_to, work, &diff, NULL)) {
            out->failed = true;
        } else {
            out->failed |= !fb_diff_write(&diff, work, out);
            fb_diff_free(&diff);
        }
    }
    if (extras->weights) fb_put_json(out, "weights", extras->weights);
    if (extras->archive) fb_put_text(out, "archive", extras->archive);
    if (extras->is_onnx) fb_put_text(out, "dialect", ONNX);
}

bool fb_run_write(const fb_store_run *run, fb_run_extras *extras, fb_work *work, fb_buffer *out) {
    bool is_stored = run->id[0] != '\0';
    fb_buffer_char(out, '{');
    fb_put_name(out, "id");
    if (is_stored) fb_buffer_json_string(out, run->id, strlen(run->id));
    else fb_buffer_string(out, "null");
    fb_put_text(out, "kind", run->kind);
    if (run->of_run) fb_put_text(out, "of_run", run->of_run);
    if (run->requested) {
        fb_put_name(out, "requested");
        fb_buffer_string(out, run->requested);
    }
    fb_put_text(out, "source", run->source);
    fb_put_text(out, "result", run->result);
    fb_put_text(out, "name", run->name);
    if (run->model) fb_put_text(out, "model", run->model);
    if (run->model) fb_put_text(out, "version", run->version);
    fb_put_name(out, "nodes");
    fb_buffer_printf(out, "{\"before\":%" PRIu32 ",\"after\":%" PRIu32 "}", run->nodes_before, run->nodes_after);
    fb_put_text(out, "signature", run->signature);
    fb_put_bool(out, "exact", run->is_exact);
    fb_put_bool(out, "reversible", run->is_reversible);
    fb_put_bool(out, "preserves_computation", run->preserves_computation);
    fb_put_text(out, "lint", run->lint);
    if (is_stored) {
        fb_put_time(out, "created", run->created);
    } else {
        fb_put_name(out, "created");
        fb_buffer_string(out, "null");
    }
    if (run->note) fb_put_text(out, "note", run->note);
    if (run->label_count) write_labels(run, out);
    if (run->validation) {
        fb_put_name(out, "validation");
        fb_buffer_string(out, run->validation);
    }
    fb_put_name(out, "passes");
    if (run->report) fb_buffer_string(out, run->report);
    else fb_run_passes_write(run, true, "refusals", out);
    if (extras) write_extras(extras, work, out);
    fb_buffer_char(out, '}');
    if (extras && extras->document) wrap(extras->document, extras->document_at, out);
    return !out->failed && !work->stopped.status;
}

/* ---- what is included --------------------------------------------------------------------------------------------------- */

/* The extras of an answer, and what of them had to be loaded. */
typedef struct included {
    fb_run_extras extras;
    fb_buffer document;
    fb_shared_graph *source, *result;
} included;

static void free_included(included *what) {
    fb_buffer_free(&what->document);
    fb_share_release(what->source);
    fb_share_release(what->result);
}

/* The graph that is at hand, or else the one in the store. */
static fb_status hold(const fb_app *app, const fb_watch *watch, const fb_graph_input *at_hand, const char *id,
                      fb_shared_graph **out, fb_error *error) {
    if (!at_hand || !at_hand->shared) return fb_load_graph(app, watch, id, out, error);
    *out = fb_share_hold(at_hand->shared);
    return FB_OK;
}

/* `source` and `result` are the graphs as far as they are at hand; NULL for a stored run. */
static fb_status include(const fb_app *app, const fb_watch *watch, unsigned includes, const fb_store_run *run,
                         const fb_graph_input *source, fb_graph_input *result, included *out, fb_error *error) {
    fb_run_extras *extras = &out->extras;
    fb_status status = FB_OK;
    if (includes & FB_INCLUDE_GRAPH && result && result->document.size) {
        extras->document = &result->document;
    } else if (includes & FB_INCLUDE_GRAPH) {
        status = fb_store_get_document(app->store, run->result, &out->document.data, &out->document.size, error);
        out->document.capacity = out->document.size;
        extras->document = &out->document;
    }
    if (!status && includes & (FB_INCLUDE_CODE | FB_INCLUDE_EDITS))
        status = hold(app, watch, result, run->result, &out->result, error);
    if (!status && includes & FB_INCLUDE_EDITS) status = hold(app, watch, source, run->source, &out->source, error);
    if (status) return status;
    if (includes & FB_INCLUDE_CODE) extras->code_of = out->result->graph;
    if (includes & FB_INCLUDE_EDITS) {
        extras->edits_from = out->source->graph;
        extras->edits_to = out->result->graph;
    }
    return FB_OK;
}

/* ---- a new run ---------------------------------------------------------------------------------------------------------- */

/* The nodes of a graph that is at hand, or else in the store; and its name, which the caller frees. */
static fb_status summarise(const fb_app *app, const fb_graph_input *at_hand, const char *id, uint32_t *nodes, char **name,
                           fb_error *error) {
    fb_store_summary summary = {0};
    const fb_graph *graph = at_hand->shared ? at_hand->shared->graph : NULL;
    fb_status status = graph ? FB_OK : fb_store_get_graph(app->store, id, &summary, error);
    if (status) return status;
    *nodes = graph ? (uint32_t)fb_node_count(graph) : (uint32_t)summary.node_count;
    if (name && !(*name = strdup(graph ? fb_graph_name(graph) : summary.name))) status = fb_fail_memory(error);
    FB_STORE_FREE(&summary);
    return status;
}

static fb_status put_run(fb_app *app, const fb_watch *watch, const fb_new_run *made, bool trusts_cache,
                         const fb_store_answer *answer, fb_error *error) {
    fb_new_graphs new;
    fb_status status = fb_new_graphs_make(app, watch, made, trusts_cache, &new, error);
    if (!status) status = fb_store_put_run(app->store, &made->run, new.graphs, new.count, answer, error);
    fb_new_graphs_free(app, made, !status, &new);
    return status;
}

static fb_status store_run(const fb_request *request, const fb_run_request *asked, fb_new_run *made, const char *location,
                           fb_repeat *repeat, fb_error *error) {
    fb_app *app = request->context;
    fb_buffer names = {0};
    fb_includes_write(asked->includes, &names);
    /* Parts that the run itself does not record: weights, archive and dialect, each on a line of its own. */
    if (made->weights || made->archive) fb_buffer_char(&names, '\n');
    if (made->weights) fb_write_json(&names, made->weights);
    if (made->archive) fb_buffer_printf(&names, "\n%s%s", made->archive, made->is_onnx ? "\n" ONNX : "");
    const char *text = fb_buffer_text(&names);
    const fb_store_answer *answer = fb_repeat_answer(repeat, 201, location, text, names.size);
    made->run.by = fb_actor_of(request);
    fb_status status = text ? FB_OK : fb_fail_memory(error);
    const fb_watch *watch = fb_request_watch(request);
    if (!status) status = fb_watch_check(watch, error);
    if (!status) status = put_run(app, watch, made, true, answer, error);
    if (status == FB_NOT_FOUND) {
        *error = (fb_error){0};
        status = put_run(app, watch, made, false, answer, error);
    }
    fb_buffer_free(&names);
    return status;
}

void fb_respond_new_run(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_new_run *made,
                        fb_repeat *repeat) {
    fb_app *app = request->context;
    fb_error error = {0};
    fb_status status = asked->dry_run ? FB_OK : fb_store_new_run(app->store, &made->run, &error);
    char location[64], *name = NULL;
    snprintf(location, sizeof location, "/v1/runs/%s", made->run.id);
    if (!status) status = summarise(app, made->source, made->run.source, &made->run.nodes_before, &name, &error);
    if (!status) status = summarise(app, made->result, made->run.result, &made->run.nodes_after, NULL, &error);
    made->run.name = name;

    included what = {.extras.weights = made->weights, .extras.archive = made->archive, .extras.is_onnx = made->is_onnx};
    if (!status)
        status =
            include(app, fb_request_watch(request), asked->includes, &made->run, made->source, made->result, &what, &error);
    fb_buffer answer = {0};
    fb_work work = {.watch = fb_request_watch(request)};
    fb_graph_input result = *made->result;
    fb_new_run stored = *made;
    stored.result = &result;
    /* Before it is stored: what is stored must be answered. */
    if (!status && !fb_run_write(&made->run, &what.extras, &work, &answer)) status = fb_work_failed(&work, &error);
    if (!status && what.extras.document == &made->result->document)
        result.document = (fb_buffer){.data = answer.data + what.extras.document_at, .size = result.document.size};
    if (!status && !asked->dry_run) status = store_run(request, asked, &stored, location, repeat, &error);
    if (status) {
        fb_respond_not_stored(request, response, made->source, &error);
        fb_buffer_free(&answer);
    } else {
        fb_respond_json_buffer_take(response, asked->dry_run ? 200 : 201, &answer);
        if (!asked->dry_run) fb_response_header(response, "Location", location);
    }
    free(name);
    free_included(&what);
}

static void respond_stored(const fb_request *request, fb_response *response, int status_code, const char *id, unsigned includes,
                           const json_t *weights, const char *archive, bool is_onnx) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_run run;
    fb_status status = fb_store_get_run(app->store, id, &run, &error);
    if (status) {
        fb_respond_error(response, &error);
        return;
    }
    included what = {.extras.weights = weights, .extras.archive = archive, .extras.is_onnx = is_onnx};
    status = include(app, fb_request_watch(request), includes, &run, NULL, NULL, &what, &error);
    fb_work work = {.watch = fb_request_watch(request)};
    fb_buffer answer = {0};
    if (!status && !fb_run_write(&run, &what.extras, &work, &answer)) status = fb_work_failed(&work, &error);
    if (status) {
        fb_respond_error(response, &error);
        fb_buffer_free(&answer);
    } else {
        fb_respond_json_buffer_take(response, status_code, &answer);
        if (status_code == 201) fb_response_header_format(response, "Location", "/v1/runs/%s", run.id);
    }
    free_included(&what);
    FB_STORE_FREE(&run);
}

void fb_respond_stored_run(const fb_request *request, fb_response *response, const char *id, unsigned includes) {
    respond_stored(request, response, 200, id, includes, NULL, NULL, false);
}

void fb_respond_run_again(const fb_request *request, fb_response *response, int status, const char *id, const char *body) {
    size_t line = strcspn(body, "\n");
    const char *second = body[line] ? body + line + 1 : "";
    size_t length = strcspn(second, "\n");
    json_error_t failure;
    json_t *weights = length ? fb_load_json_bytes(second, length, 0, &failure) : NULL;
    if (length && !weights) {
        fb_respond_no_memory(response);
        return;
    }
    char archive[FB_ID_LENGTH + 1] = "";
    const char *third = second[length] ? second + length + 1 : "", *end = third + strcspn(third, "\n");
    snprintf(archive, sizeof archive, "%.*s", (int)(end - third), third);
    respond_stored(request, response, status, id, fb_includes_read(body, line), weights, *archive ? archive : NULL,
                   strcmp(end, "\n" ONNX) == 0);
    json_decref(weights);
}

/* ---- an undo that was refused ------------------------------------------------------------------------------------------- */

static json_t *list_conflicts(const fb_conflicts *conflicts) {
    json_t *list = json_array();
    for (size_t i = 0; i < conflicts->count; i++) {
        const fb_conflict *one = &conflicts->items[i];
        fb_list_add_take(&list, json_pack("{s:s, s:s, s:s, s:s}", "code", one->code, "kind", fb_conflict_kind_name(one->kind),
                                          "name", one->name, "detail", one->detail));
    }
    return list;
}

static json_t *list_names(const fb_undo_refusal *refusal) {
    json_t *list = json_array();
    for (size_t i = 0; i < refusal->irreversible_count; i++) fb_list_add_take(&list, json_string(refusal->irreversible[i]));
    return list;
}

void fb_respond_undo_refusal(fb_response *response, fb_undo_refusal *refusal, const fb_error *error) {
    fb_respond_request_error(response, error);
    if (refusal->conflicts.count) fb_problem_member_take(response, "conflicts", list_conflicts(&refusal->conflicts));
    if (refusal->irreversible_count) {
        fb_problem_member_take(response, "passes", list_names(refusal));
        fb_problem_member_take(response, "rollback", json_sprintf("/v1/runs/%s/rollback", refusal->run_id));
    }
    if (refusal->names) fb_problem_member_take(response, "passes", json_incref(refusal->names));
    fb_undo_refusal_free(refusal);
}
