/* GET /v1/runs/{run}/attestation: how the run's result was made, as an in-toto statement with a provenance of SLSA's kind,
 * signed.
 *
 * What it says can be made again from ids alone: passes, applied to a source, give the result. Of a run that undid passes these
 * are the passes that were left. A run that foldback cannot make again (an external one, or an undo that was merged into an
 * edited graph) says so: its "replay" is null. */
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/graphs/graphs.h"
#include "server/history/undo.h"
#include "server/provenance/provenance.h"
#include "server/routes/routes.h"
#include "server/store/blobs.h"
#include "server/store/events.h"

typedef struct attested {
    const fb_store_run *run;
    json_t *request;    /* the run's */
    json_t *passes;     /* that give the result, in order; NULL: it cannot be made again */
    const char *source; /* of these */
} attested;

/* ---- what gives the result ----------------------------------------------------------------------------------------------- */

/* The pass of a step of an undo: as the run of before was asked for it. NULL: that one was not made by foldback. */
static fb_status find_pass(fb_store *store, const json_t *step, json_t **pass, fb_error *error) {
    fb_store_run run;
    const char *id = json_string_value(json_object_get(step, "run"));
    fb_status status =
        id ? fb_store_get_run(store, id, &run, error) : fb_fail(error, FB_IO, "store-corrupt", NULL, "a step without a run");
    if (status) return status;
    json_t *request = NULL;
    status = fb_load_stored_json(run.request, &request);
    size_t position = (size_t)json_integer_value(json_object_get(step, "position"));
    *pass = strcmp(run.kind, "optimize") == 0 ? json_incref(json_array_get(request, position)) : NULL;
    json_decref(request);
    FB_STORE_FREE(&run);
    return status ? fb_fail(error, status, status == FB_NO_MEMORY ? "out-of-memory" : "store-corrupt", NULL,
                            "a run's request cannot be read")
                  : FB_OK;
}

static fb_status list_steps(fb_store *store, attested *of, fb_error *error) {
    size_t i;
    const json_t *step;
    of->passes = json_array();
    if (!of->passes) return fb_fail_memory(error);
    json_array_foreach(json_object_get(of->request, "steps"), i, step) {
        json_t *pass = NULL;
        fb_status status = find_pass(store, step, &pass, error);
        if (status) return status;
        if (!pass) {
            json_decref(of->passes);
            of->passes = NULL;
            return FB_OK;
        }
        if (json_array_append_new(of->passes, pass)) return fb_fail_memory(error);
    }
    return FB_OK;
}

static fb_status find_passes(fb_store *store, attested *of, fb_error *error) {
    const fb_store_run *run = of->run;
    of->source = run->source;
    if (fb_load_stored_json(run->request, &of->request)) return fb_fail_memory(error);
    if (strcmp(run->kind, "optimize") == 0) of->passes = json_incref(of->request);
    const char *origin = json_string_value(json_object_get(of->request, "source"));
    if (fb_run_is_undoable(run) || !run->is_exact || !origin) return FB_OK;
    fb_status status = list_steps(store, of, error);
    if (of->passes) of->source = origin;
    return status;
}

/* ---- the statement ------------------------------------------------------------------------------------------------------- */

static void put_digest(fb_buffer *out, const char *name, const char *id) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", name);
    fb_put_name(out, "digest");
    fb_buffer_char(out, '{');
    fb_put_text(out, "sha256", id + strlen("sha256:"));
    fb_buffer_string(out, "}}");
}

/* A graph, and the files that its tensors are in. */
static fb_status put_graph(const fb_app *app, const fb_watch *watch, const char *name, const char *id, fb_buffer *out,
                           fb_error *error) {
    fb_shared_graph *shared = NULL;
    const char **blobs = NULL;
    size_t count = 0;
    put_digest(out, name, id);
    fb_status status = fb_load_graph(app, watch, id, &shared, error);
    if (!status) status = fb_list_blobs(shared->graph, &blobs, &count, error);
    for (size_t i = 0; i < count && !status; i++) put_digest(out, "file", blobs[i]);
    free(blobs);
    fb_share_release(shared);
    return status;
}

static void put_made(const attested *of, fb_buffer *out) {
    const fb_store_run *run = of->run;
    fb_put_name(out, "externalParameters");
    fb_buffer_char(out, '{');
    fb_put_text(out, "kind", run->kind);
    fb_put_name(out, "passes");
    fb_run_passes_write(run, true, NULL, out);
    if (run->of_run) fb_put_text(out, "ofRun", run->of_run);
    fb_put_name(out, "replay");
    if (of->passes) {
        fb_buffer_char(out, '{');
        fb_put_text(out, "source", of->source);
        fb_put_json(out, "passes", of->passes);
        fb_buffer_char(out, '}');
    } else {
        fb_buffer_string(out, "null");
    }
    fb_buffer_char(out, '}');
}

static fb_status write_statement(const fb_app *app, const fb_watch *watch, const attested *of, fb_buffer *out,
                                 fb_error *error) {
    const fb_store_run *run = of->run;
    fb_buffer_char(out, '{');
    fb_put_text(out, "_type", "https://in-toto.io/Statement/v1");
    fb_put_name(out, "subject");
    fb_buffer_char(out, '[');
    fb_status status = put_graph(app, watch, "result", run->result, out, error);
    if (status) return status;
    fb_buffer_char(out, ']');
    fb_put_text(out, "predicateType", "https://slsa.dev/provenance/v1");
    fb_put_name(out, "predicate");
    fb_buffer_char(out, '{');
    fb_put_name(out, "buildDefinition");
    fb_buffer_char(out, '{');
    fb_put_text(out, "buildType", FB_BUILD_TYPE);
    put_made(of, out);
    fb_put_name(out, "resolvedDependencies");
    fb_buffer_char(out, '[');
    status = put_graph(app, watch, "source", of->source, out, error);
    if (status) return status;
    if (strcmp(of->source, run->source) != 0) put_digest(out, "at-hand", run->source);
    fb_buffer_string(out, "]}");
    fb_put_name(out, "runDetails");
    fb_buffer_string(out, "{\"builder\":{\"id\":\"urn:foldback:service\",\"version\":{\"foldback\":\"" FB_VERSION
                          "\"}},\"metadata\":{");
    fb_put_text(out, "invocationId", run->id);
    fb_put_time(out, "finishedOn", run->created);
    fb_buffer_string(out, "}}}}");
    return fb_buffer_text(out) ? FB_OK : fb_fail_memory(error);
}

static fb_status attest(const fb_request *request, const char *id, fb_buffer *out, fb_error *error) {
    const fb_app *app = request->context;
    if (!app->signing_key)
        return fb_fail(error, FB_CONFLICT, "no-signing-key", NULL,
                       "this service signs nothing: foldback key create makes a key, and serve --signing-key takes it");
    fb_store_run run;
    fb_status status = fb_store_get_run(app->store, id, &run, error);
    if (status) return status;
    attested of = {.run = &run};
    fb_buffer statement = {0};
    status = find_passes(app->store, &of, error);
    if (!status) status = write_statement(app, fb_request_watch(request), &of, &statement, error);
    if (!status) status = fb_envelope_sign(app->signing_key, statement.data, statement.size, out, error);
    fb_buffer_free(&statement);
    json_decref(of.passes);
    json_decref(of.request);
    FB_STORE_FREE(&run);
    return status;
}

static void get_attestation(const fb_request *request, fb_response *response) {
    fb_error error = {0};
    fb_buffer answer = {0};
    if (!attest(request, fb_request_param(request, "run"), &answer, &error)) {
        fb_respond_json_buffer_take(response, 200, &answer);
        return;
    }
    fb_buffer_free(&answer);
    fb_respond_error(response, &error);
}

const fb_route fb_attestation_routes[] = {
    {.method = "GET", .pattern = "/v1/runs/{run}/attestation", .handler = get_attestation, .scope = FB_SCOPE_READ, .query = ""},
    {0},
};
