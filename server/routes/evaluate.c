/* POST /v1/graphs/{id}/evaluate: what a graph computes. */
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/evaluator.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

typedef struct question {
    bool has_file; /* the body is a safetensors file of inputs */
    fb_precision precision;
    uint64_t seed;
    bool random_weights;
} question;

/* ---- the request ------------------------------------------------------------------------------------------------------- */

/* A safetensors file begins with the size of its header, a number below 2^56: its eighth byte is 0, which no JSON has. A body
 * that is neither is taken for what its type says. */
static bool is_file(const fb_request *request) {
    bool is_binary = request->body_size >= 8 && request->body[7] == 0;
    bool is_json = request->body[0] == '{' || !strncasecmp(request->content_type, "application/json", 16);
    return request->body_size && (is_binary || !is_json);
}

static bool read_precision(const char *text, fb_precision *out) {
    *out = !strcmp(text, "float64") ? FB_PRECISION_DOUBLE : FB_PRECISION_RECORDED;
    return *out == FB_PRECISION_DOUBLE || !strcmp(text, "recorded");
}

static bool read_query(const fb_request *request, fb_response *response, question *out) {
    const char *precision = fb_request_query(request, "precision");
    int64_t seed = 0;
    if (precision && !read_precision(precision, &out->precision))
        return fb_refuse_parameter(response, "precision", "bad-parameter", "precision is recorded or float64");
    if (!fb_request_query_int(request, response, "seed", 0, INT64_MAX, 0, &seed)) return false;
    out->seed = (uint64_t)seed;
    return fb_request_query_bool(request, response, "random_weights", false, &out->random_weights);
}

static bool read_members(const fb_request *request, fb_response *response, const json_t *members, question *out) {
    fb_error error = {0};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)members, name, value) {
        char pointer[40];
        snprintf(pointer, sizeof pointer, "/%.30s", name);
        if (fb_request_query(request, name))
            return fb_refuse_member(response, "given-twice", pointer, "this is in the body and in the query as well");
    }
    const json_t *seed = json_object_get(members, "seed"), *random = json_object_get(members, "random_weights");
    const json_t *precision = json_object_get(members, "precision");
    if (seed && fb_read_seed(seed, "/seed", &out->seed, &error)) {
        fb_respond_error(response, &error);
        return false;
    }
    if (random && !json_is_boolean(random))
        return fb_refuse_member(response, "wrong-type", "/random_weights", "random_weights is true or false");
    if (random) out->random_weights = json_is_true(random);
    if (precision && (!json_is_string(precision) || !read_precision(json_string_value(precision), &out->precision)))
        return fb_refuse_member(response, "wrong-type", "/precision", "precision is \"recorded\" or \"float64\"");
    return true;
}

static bool read_question(const fb_request *request, fb_response *response, question *out) {
    static const char *const known[] = {"seed", "random_weights", "precision", NULL};
    fb_request_body body;
    *out = (question){.has_file = is_file(request)};
    if (!read_query(request, response, out)) return false;
    if (out->has_file) return true;
    if (!fb_body_read(request, response, known, &body)) return false;
    bool ok = read_members(request, response, body.members, out);
    fb_request_body_free(&body);
    return ok;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------------- */

/* In float64 what was computed with more than the recorded digits is given with them. */
static fb_status widen(fb_array **arrays, size_t count, fb_error *error) {
    for (size_t i = 0; i < count; i++) {
        fb_array *wide;
        if (!fb_dtype_is_floating(arrays[i]->dtype)) continue;
        fb_status status = fb_array_cast(arrays[i], FB_FLOAT64, &wide, error);
        if (status) return status;
        fb_array_drop(arrays[i]);
        arrays[i] = wide;
    }
    return FB_OK;
}

static fb_status write_outputs(const question *asked, const fb_object *output, fb_buffer *out, fb_error *error) {
    fb_array **arrays = NULL;
    size_t count = 0;
    fb_status status = fb_flatten_output(output, &arrays, &count, error);
    if (status) return status;
    if (asked->precision == FB_PRECISION_DOUBLE) status = widen(arrays, count, error);
    if (!status) status = fb_outputs_write(arrays, count, out, error);
    for (size_t i = 0; i < count; i++) fb_array_drop(arrays[i]);
    free(arrays);
    return status;
}

/* ---- evaluating -------------------------------------------------------------------------------------------------------- */

static void evaluate(fb_response *response, const question *asked, const fb_graph *graph, const fb_array_file *file,
                     fb_evaluating *evaluating) {
    fb_array_memory memory;
    fb_error error = {0};
    fb_object output;
    fb_buffer answer = {0};
    fb_eval_inputs given = {.graph = graph,
                            .memory = &memory,
                            .items = file->items,
                            .count = file->count,
                            .is_drawn = !asked->has_file,
                            .seed = asked->seed};
    fb_eval_hooks hooks = {.context = &given, .given = fb_give_input};
    evaluating->options.precision = asked->precision;
    evaluating->options.seed = asked->seed;
    evaluating->options.random_weights = asked->random_weights;
    fb_status status = fb_evaluate_graph(graph, &evaluating->options, &hooks, &memory, &output, &error);
    if (!status) {
        status = write_outputs(asked, &output, &answer, &error);
        fb_object_drop(&output);
    }
    if (status) {
        fb_respond_evaluation_error(response, &error, graph, NULL);
        fb_buffer_free(&answer);
    } else {
        fb_respond_buffer_take(response, 200, "application/octet-stream", &answer);
        fb_response_identity(response);
    }
}

static void post_evaluate(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    question asked;
    fb_error error = {0};
    fb_shared_graph *shared;
    fb_evaluating evaluating;
    fb_array_file file = {0};
    if (!read_question(request, response, &asked)) return;
    if (fb_load_graph(app, fb_request_watch(request), fb_request_param(request, "id"), &shared, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    const unsigned char *bytes = (const unsigned char *)request->body;
    fb_status status = FB_OK;
    if (asked.has_file)
        status = fb_array_file_read(bytes, request->body_size, app->evaluation.memory, false, fb_request_watch(request), &file,
                                    &error);
    if (status) {
        fb_respond_error(response, &error);
    } else if (fb_check_inputs(response, &file, shared->graph, NULL) && fb_evaluating_begin(request, response, &evaluating)) {
        evaluate(response, &asked, shared->graph, &file, &evaluating);
        fb_evaluating_end(&evaluating);
    }
    fb_array_file_free(&file);
    fb_share_release(shared);
}

const fb_route fb_evaluate_routes[] = {
    {.method = "POST",
     .pattern = "/v1/graphs/{id}/evaluate",
     .handler = post_evaluate,
     .defer = fb_defer_request,
     .scope = FB_SCOPE_READ,
     .body = FB_BODY_OPTIONAL,
     .consumes = "*",
     .produces = "application/octet-stream",
     .query = "precision,seed,random_weights"},
    {0},
};
