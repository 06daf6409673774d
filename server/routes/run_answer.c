#include "server/routes/run_answer.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/code.h"
#include "server/routes/json_members.h"

/* ---- as JSON ------------------------------------------------------------------------------------------------------------ */

static void write_labels(const fb_store_run *run, fb_buffer *out) {
    fb_put_name(out, "labels");
    fb_buffer_char(out, '{');
    for (size_t i = 0; i < run->label_count; i++) fb_put_text(out, run->labels[i].key, run->labels[i].value);
    fb_buffer_char(out, '}');
}

static void write_short_passes(const fb_store_run *run, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < run->pass_count; i++) {
        const fb_store_pass *pass = &run->passes[i];
        fb_put_comma(out);
        fb_buffer_char(out, '{');
        fb_put_text(out, "name", pass->name);
        fb_put_int(out, "version", pass->version);
        fb_put_text(out, "signature", pass->signature);
        fb_put_int(out, "applied", pass->applied);
        fb_put_int(out, "refusals", pass->refused);
        fb_buffer_char(out, '}');
    }
    fb_buffer_char(out, ']');
}

static void write_extras(const fb_run_extras *extras, fb_buffer *out) {
    if (extras->document) {
        fb_put_name(out, "graph");
        fb_buffer_append(out, extras->document, extras->size);
    }
    if (extras->code_of) {
        fb_buffer code = {0};
        fb_code_write(extras->code_of, &code);
        out->failed |= code.failed;
        fb_put_name(out, "code");
        fb_buffer_json_string(out, code.data ? code.data : "", code.size);
        fb_buffer_free(&code);
    }
}

void fb_run_write(const fb_store_run *run, const fb_run_extras *extras, fb_buffer *out) {
    bool is_stored = run->id[0] != '\0';
    fb_buffer_char(out, '{');
    fb_put_name(out, "id");
    if (is_stored) fb_buffer_json_string(out, run->id, strlen(run->id));
    else fb_buffer_string(out, "null");
    fb_put_text(out, "kind", run->kind);
    if (run->of_run) fb_put_text(out, "of_run", run->of_run);
    fb_put_text(out, "source", run->source);
    fb_put_text(out, "result", run->result);
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
    fb_put_name(out, "passes");
    if (run->report) fb_buffer_string(out, run->report);
    else write_short_passes(run, out);
    if (extras) write_extras(extras, out);
    fb_buffer_char(out, '}');
}

/* ---- a new run ---------------------------------------------------------------------------------------------------------- */

static const char *name_included(const fb_run_request *asked) {
    if (asked->includes_graph) return asked->includes_code ? "graph code" : "graph";
    return asked->includes_code ? "code" : "";
}

static fb_status store_run(fb_app *app, const fb_run_request *asked, fb_new_run *made, const char *location, fb_repeat *repeat,
                           fb_error *error) {
    const fb_graph_input *inputs[2] = {made->source, made->result};
    fb_graph_row rows[2] = {0};
    fb_store_graph graphs[2];
    size_t count = 0;
    bool is_same = strcmp(made->run.source, made->run.result) == 0;
    fb_status status = FB_OK;
    for (size_t i = 0; i < 2 && !status; i++) {
        if (!inputs[i]->document.size || (i == 1 && is_same)) continue;
        status = fb_graph_row_make(inputs[i], &rows[count], error);
        graphs[count] = rows[count].graph;
        count++;
    }
    uint64_t ticket = fb_cache_ticket(app->cache);
    const char *included = name_included(asked);
    const fb_store_answer *answer = fb_repeat_answer(repeat, 201, location, included, strlen(included));
    if (!status) status = fb_store_put_run(app->store, &made->run, graphs, count, answer, error);
    for (size_t i = 0; i < 2; i++) {
        if (!status && inputs[i]->shared) fb_cache_put(app->cache, inputs[i]->shared, ticket);
        fb_graph_row_free(&rows[i]);
    }
    return status;
}

/* The result's document and code, as far as they were asked for and are not at hand. */
static fb_status find_extras(const fb_app *app, const char *included, const char *result, fb_run_extras *extras,
                             char **document, fb_shared_graph **shared, fb_error *error) {
    fb_status status = FB_OK;
    if (strstr(included, "graph") && !extras->document) {
        status = fb_store_get_document(app->store, result, document, &extras->size, error);
        extras->document = *document;
    }
    if (!status && strstr(included, "code") && !extras->code_of) {
        status = fb_load_graph(app, result, shared, error);
        if (!status) extras->code_of = (*shared)->graph;
    }
    return status;
}

void fb_respond_new_run(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_new_run *made,
                        fb_repeat *repeat) {
    fb_app *app = request->context;
    fb_error error = {0};
    fb_status status = asked->dry_run ? FB_OK : fb_store_new_run(app->store, &made->run, &error);
    char location[64];
    snprintf(location, sizeof location, "/v1/runs/%s", made->run.id);

    fb_run_extras extras = {0};
    if (asked->includes_graph && made->result->document.size) {
        extras.document = made->result->document.data;
        extras.size = made->result->document.size;
    }
    if (asked->includes_code && made->result->shared) extras.code_of = made->result->shared->graph;
    char *document = NULL;
    fb_shared_graph *shared = NULL;
    if (!status) status = find_extras(app, name_included(asked), made->run.result, &extras, &document, &shared, &error);
    fb_buffer answer = {0};
    if (!status) fb_run_write(&made->run, &extras, &answer); /* before it is stored: what is stored must be answered */
    if (!status && answer.failed) status = fb_fail_memory(&error);
    if (!status && !asked->dry_run) status = store_run(app, asked, made, location, repeat, &error);
    if (status) {
        fb_respond_error(response, &error);
        fb_buffer_free(&answer);
    } else {
        fb_respond_json_buffer_take(response, asked->dry_run ? 200 : 201, &answer);
        if (!asked->dry_run) fb_response_header(response, "Location", location);
    }
    free(document);
    fb_share_release(shared);
}

void fb_respond_stored_run(const fb_request *request, fb_response *response, int status_code, const char *id,
                           const char *included) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_run run;
    fb_status status = fb_store_get_run(app->store, id, &run, &error);
    if (status) {
        fb_respond_error(response, &error);
        return;
    }
    fb_run_extras extras = {0};
    char *document = NULL;
    fb_shared_graph *shared = NULL;
    status = find_extras(app, included, run.result, &extras, &document, &shared, &error);
    fb_buffer answer = {0};
    if (status) {
        fb_respond_error(response, &error);
    } else {
        fb_run_write(&run, &extras, &answer);
        fb_respond_json_buffer_take(response, status_code, &answer);
        if (status_code == 201) fb_response_header_format(response, "Location", "/v1/runs/%s", run.id);
    }
    free(document);
    fb_share_release(shared);
    fb_store_run_free(&run);
}
