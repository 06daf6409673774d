#include "server/routes/input.h"

#include <stdlib.h>
#include <string.h>

#include "core/bind/bind.h"
#include "server/graphs/graphs.h"
#include "server/history/history.h"

fb_status fb_weights_check(const json_t *files, const char *pointer, fb_error *error) {
    if (!json_is_array(files))
        return fb_fail(error, FB_INVALID, "wrong-type", pointer, "weights is an array of digests of safetensors files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *file = json_string_value(json_array_get(files, i));
        char at[64];
        snprintf(at, sizeof at, "%s/%zu", pointer, i);
        if (!file) return fb_fail(error, FB_INVALID, "wrong-type", at, "weights is an array of digests of safetensors files");
        if (!fb_is_sha256_id(file))
            return fb_fail(error, FB_INVALID, "bad-digest", at,
                           "a file is named by sha256: and the 64 lower-case hex digits of its digest, not \"%.80s\"", file);
    }
    return FB_OK;
}

fb_status fb_weights_reading_read(const json_t *as, const char *pointer, fb_weights_reading *out, fb_error *error) {
    const char *name = json_string_value(as);
    if (!name) return fb_fail(error, FB_INVALID, "wrong-type", pointer, "as is a string: source, finished or original");
    *out = fb_weights_reading_find(name);
    if (*out) return FB_OK;
    return fb_fail(error, FB_INVALID, "unknown-option-value", pointer,
                   "files are read as source (the weights before the passes), finished (those after them) or original "
                   "(those before the first of several runs), not as \"%.80s\"",
                   name);
}

/* ---- what goes wrong ---------------------------------------------------------------------------------------------------- */

static void respond_missing(fb_response *response, json_t *missing) {
    fb_respond_problem(response, 409, "blob-missing", "there is no blob %s here%s; upload it first",
                       json_string_value(json_array_get(missing, 0)), json_array_size(missing) > 1 ? ", nor others" : "");
    fb_problem_member_take(response, "blobs", missing);
}

static void respond_mismatch(fb_response *response, const fb_binding *binding) {
    char hint[300] = "";
    if (binding->prefix)
        snprintf(hint, sizeof hint, "; %zu names fit with the prefix \"%.200s\": pass it as prefix", binding->prefix_count,
                 binding->prefix);
    if (binding->fits_nothing)
        fb_respond_problem(response, 422, "weights-mismatch", "no name in the files is one of the graph%s", hint);
    else
        fb_respond_problem(response, 422, "weights-mismatch",
                           "the files do not fit the graph: of its tensors %zu mismatch and %zu are missing, %zu of the files "
                           "are extra%s",
                           json_array_size(binding->mismatching), json_array_size(binding->missing),
                           json_array_size(binding->extra), hint);
    if (binding->prefix) fb_problem_member_take(response, "prefix", json_string(binding->prefix));
    fb_problem_member_take(response, "missing", json_incref(binding->missing));
    fb_problem_member_take(response, "extra", json_incref(binding->extra));
    fb_problem_member_take(response, "mismatching", json_incref(binding->mismatching));
}

/* An error of one of the files, whose pointer begins with "/weights/1": that is its place in a body. */
static void respond_bad_file(fb_response *response, const fb_weights_asked *asked, const char *const *files, fb_error *error) {
    if (error->status == FB_NOT_FOUND) { /* it went while this ran */
        size_t index = strncmp(error->pointer, "/weights/", 9) == 0 ? strtoul(error->pointer + 9, NULL, 10) : SIZE_MAX;
        bool is_known = index < json_array_size(asked->files);
        respond_missing(response, is_known ? json_pack("[s]", files[index]) : json_copy((json_t *)(uintptr_t)asked->files));
        return;
    }
    if (error->status == FB_INVALID && asked->pointer[0] == '?')
        snprintf(error->pointer, sizeof error->pointer, "%s", asked->pointer);
    fb_respond_request_error(response, error);
}

/* ---- binding ------------------------------------------------------------------------------------------------------------ */

static const char **list_files(const json_t *files) {
    const char **list = calloc(json_array_size(files) + 1, sizeof *list);
    for (size_t i = 0; list && i < json_array_size(files); i++) list[i] = json_string_value(json_array_get(files, i));
    return list;
}

/* All of the files that are not here; NULL when all are. */
static fb_status find_missing(fb_store *store, const char *const *files, size_t count, json_t **missing, fb_error *error) {
    bool *is_missing = calloc(count + 1, sizeof *is_missing);
    fb_status status = is_missing ? fb_blobs_missing(store, files, count, is_missing, error) : fb_fail_memory(error);
    for (size_t i = 0; i < count && !status; i++) {
        if (!is_missing[i]) continue;
        if (!*missing) *missing = json_array();
        if (json_array_append_new(*missing, json_string(files[i]))) status = fb_fail_memory(error);
    }
    free(is_missing);
    return status;
}

/* The source is the original where no graph is between that and this one: then no file is of one. */
static fb_status find_source(const fb_app *app, const fb_watch *watch, const char *graph_id, fb_bind_options *options,
                             fb_error *error) {
    bool is_original = false;
    if (options->as != FB_WEIGHTS_SOURCE) return FB_OK;
    fb_status status = fb_history_begins_at_original(app, watch, graph_id, &is_original, error);
    if (is_original) options->as = FB_WEIGHTS_ORIGINAL;
    return status;
}

/* The bound copy of the graph takes the place of the one that came. */
static fb_status bind_copy(const fb_app *app, const fb_watch *watch, const char *const *files, size_t count,
                           fb_graph_input *input, const fb_weights_asked *asked, fb_binding *binding, bool *fits,
                           fb_error *error) {
    fb_blobs blobs = fb_blob_source(app->store);
    fb_work work = {.watch = watch};
    fb_bind_options options = asked->options;
    fb_graph *graph = fb_graph_copy(input->shared->graph, &work);
    fb_status status = graph ? find_source(app, watch, input->shared->id, &options, error) : fb_work_failed(&work, error);
    if (!status) status = fb_bind(graph, files, count, &blobs, &options, binding, error);
    *fits = !status && !json_array_size(binding->mismatching) && !binding->fits_nothing &&
            !(asked->is_strict && (json_array_size(binding->missing) || json_array_size(binding->extra)));
    if (!*fits) {
        fb_graph_free(graph);
        return status;
    }
    fb_graph_input bound;
    status = fb_graph_input_take(graph, watch, &bound, error);
    if (status) return status;
    fb_graph_input_free(input);
    *input = bound;
    return FB_OK;
}

void fb_respond_not_stored(const fb_request *request, fb_response *response, const fb_graph_input *graph,
                           const fb_error *error) {
    const fb_app *app = request->context;
    json_t *missing = NULL;
    const char **blobs = NULL;
    size_t count = 0;
    bool has_gone = !strcmp(error->code, "blob-missing") && !fb_list_blobs(graph->shared->graph, &blobs, &count, NULL) &&
                    !find_missing(app->store, blobs, count, &missing, NULL);
    fb_respond_error(response, error);
    if (has_gone && missing) fb_problem_member_take(response, "blobs", missing);
    else json_decref(missing);
    free(blobs);
}

static bool bind_files(const fb_request *request, fb_response *response, const fb_weights_asked *asked,
                       const char *const *files, fb_graph_input *input, json_t **told) {
    const fb_app *app = request->context;
    size_t count = json_array_size(asked->files);
    fb_error error = {0};
    json_t *missing = NULL;
    fb_binding binding = {0};
    bool fits = false;
    fb_status status = find_missing(app->store, files, count, &missing, &error);
    if (!status && missing) {
        respond_missing(response, missing);
        return false;
    }
    json_decref(missing);
    if (!status) status = bind_copy(app, fb_request_watch(request), files, count, input, asked, &binding, &fits, &error);
    if (status) respond_bad_file(response, asked, files, &error);
    else if (!fits) respond_mismatch(response, &binding);
    else
        *told = json_pack("{s:I, s:O, s:O}", "bound", (json_int_t)binding.bound, "missing", binding.missing, "extra",
                          binding.extra);
    fb_binding_free(&binding);
    if (!status && fits && !*told) fb_respond_no_memory(response);
    return *told != NULL;
}

bool fb_bind_weights(const fb_request *request, fb_response *response, const fb_weights_asked *asked, fb_graph_input *graph,
                     json_t **told) {
    *told = NULL;
    if (!asked->files) return true;
    const char **files = list_files(asked->files);
    if (!files) return fb_respond_no_memory(response);
    bool ok = bind_files(request, response, asked, files, graph, told);
    free(files);
    return ok;
}

/* ---- checkpoints -------------------------------------------------------------------------------------------------------- */

bool fb_checkpoint_read(const fb_request *request, fb_response *response, const json_t *weights, const char *name,
                        fb_graph_input *out) {
    const fb_app *app = request->context;
    const fb_weights_asked asked = {.files = weights, .pointer = "/weights"};
    fb_blobs blobs = fb_blob_source(app->store);
    fb_error error = {0};
    fb_buffer document = {0};
    json_t *missing = NULL;
    size_t count = json_array_size(weights);
    if (!weights)
        return fb_refuse_member(response, "missing-member", "/weights", "the digests of safetensors files are needed here");
    fb_status status = fb_weights_check(weights, "/weights", &error);
    if (!status && !count)
        status = fb_fail(&error, FB_INVALID, "bad-checkpoint", "/weights", "a checkpoint has at least one file");
    const char **files = status ? NULL : list_files(weights);
    if (!status && !files) status = fb_fail_memory(&error);
    if (!status) status = find_missing(app->store, files, count, &missing, &error);
    if (!status && !missing) status = fb_checkpoint_write(files, count, name, &blobs, &document, &error);
    bool is_read = false;
    if (!status && missing) respond_missing(response, missing);
    else if (status) respond_bad_file(response, &asked, files, &error);
    else is_read = fb_graph_input_read(request, response, document.data, document.size, "", out);
    if (status) json_decref(missing);
    free(files);
    fb_buffer_free(&document);
    return is_read;
}
