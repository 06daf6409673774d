/* POST /v1/compare: two graphs on the same inputs. */
#include <string.h>

#include "core/evaluator/evaluator.h"
#include "core/json/json.h"
#include "core/validation/run_validation.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

typedef struct comparison {
    fb_request_body body;
    const char *inputs; /* the digest of a file, or NULL */
    uint64_t seed;
    bool random_weights, has_tolerance;
    fb_tolerance tolerance;
    fb_graph_input a, b;
    fb_array_file file;
} comparison;

/* ---- the request ------------------------------------------------------------------------------------------------------- */

static fb_status read_members(comparison *work, fb_error *error) {
    const json_t *members = work->body.members;
    const json_t *seed = json_object_get(members, "seed"), *inputs = json_object_get(members, "inputs");
    const json_t *tolerance = json_object_get(members, "tolerance"), *random = json_object_get(members, "random_weights");
    fb_status status = seed ? fb_read_seed(seed, "/seed", &work->seed, error) : FB_OK;
    if (!status && tolerance) status = fb_read_tolerance(tolerance, "/tolerance", &work->tolerance, error);
    work->has_tolerance = tolerance != NULL;
    if (!status && random && !json_is_boolean(random))
        status = fb_fail(error, FB_INVALID, "wrong-type", "/random_weights", "random_weights is true or false");
    work->random_weights = json_is_true(random);
    work->inputs = json_string_value(inputs);
    if (!status && inputs && !work->inputs)
        status = fb_fail(error, FB_INVALID, "wrong-type", "/inputs", "inputs is the digest of a safetensors file");
    if (!status && work->inputs && !fb_is_sha256_id(work->inputs))
        status =
            fb_fail(error, FB_INVALID, "bad-digest", "/inputs",
                    "a file is named by sha256: and the 64 lower-case hex digits of its digest, not \"%.80s\"", work->inputs);
    return status;
}

static bool read_inputs(const fb_request *request, fb_response *response, comparison *work, const fb_evaluating *evaluating) {
    const fb_app *app = request->context;
    const fb_blobs *blobs = &evaluating->blobs;
    fb_error error = {0};
    fb_blob_bytes bytes;
    if (!work->inputs) return true;
    fb_status status = !app->store ? FB_NOT_FOUND : blobs->open(blobs->context, work->inputs, &bytes, &error);
    if (status == FB_NOT_FOUND) {
        fb_respond_problem(response, 409, "blob-missing", "there is no blob %s here; upload it first", work->inputs);
        fb_problem_member_take(response, "blobs", json_pack("[s]", work->inputs));
        return false;
    }
    if (!status) {
        status =
            fb_array_file_read(bytes.bytes, bytes.size, app->evaluation.memory, fb_request_watch(request), &work->file, &error);
        blobs->close(blobs->context, &bytes);
    }
    if (status) {
        error.pointer[0] = '\0';
        fb_respond_error_at(response, "/inputs", &error);
        return false;
    }
    return fb_check_inputs(response, &work->file, work->a.shared->graph, work->b.shared->graph);
}

/* ---- the answer -------------------------------------------------------------------------------------------------------- */

static void put_difference(fb_buffer *out, const char *name, const fb_difference *difference) {
    fb_put_name(out, name);
    fb_buffer_char(out, '{');
    fb_write_difference(difference, out);
    fb_buffer_char(out, '}');
}

static void put_output(fb_buffer *out, const fb_output_comparison *output) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", output->name);
    fb_put_text(out, "dtype", fb_dtype_name(output->dtype));
    fb_put_comma(out);
    fb_write_difference(&output->between, out);
    put_difference(out, "a_against_float64", &output->a_exact);
    put_difference(out, "b_against_float64", &output->b_exact);
    fb_put_bool(out, "passes", output->passes);
    fb_buffer_char(out, '}');
}

static void answer(fb_response *response, const fb_comparison *found) {
    fb_buffer out = {0};
    fb_buffer_char(&out, '{');
    fb_put_bool(&out, "passes", found->passes);
    fb_put_name(&out, "outputs");
    fb_buffer_char(&out, '[');
    for (size_t i = 0; i < found->count; i++) put_output(&out, &found->outputs[i]);
    fb_buffer_char(&out, ']');
    fb_put_name(&out, "first_node");
    if (*found->first_node) {
        fb_buffer_char(&out, '{');
        fb_put_text(&out, "name", found->first_node);
        fb_put_comma(&out);
        fb_write_difference(&found->first_difference, &out);
        fb_buffer_char(&out, '}');
    } else {
        fb_buffer_string(&out, "null");
    }
    fb_buffer_char(&out, '}');
    fb_respond_json_buffer_take(response, 200, &out);
}

static void compare(const fb_request *request, fb_response *response, comparison *work, fb_evaluating *evaluating) {
    fb_error error = {0};
    fb_comparison found;
    if (!read_inputs(request, response, work, evaluating)) return;
    const fb_graph *a = work->a.shared->graph, *b = work->b.shared->graph;
    fb_comparison_inputs inputs = {.items = work->file.items, .count = work->file.count};
    evaluating->options.seed = work->seed;
    evaluating->options.random_weights = work->random_weights;
    const fb_tolerance *tolerance = work->has_tolerance ? &work->tolerance : NULL;
    if (fb_compare_graphs(a, b, &inputs, &evaluating->options, tolerance, &found, &error)) {
        fb_respond_evaluation_error(response, &error, a, b);
        return;
    }
    answer(response, &found);
    fb_comparison_free(&found);
}

static void post_compare(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"a", "b", "seed", "inputs", "tolerance", "random_weights", NULL};
    comparison work = {0};
    fb_error error = {0};
    fb_evaluating evaluating;
    if (!fb_body_read(request, response, known, &work.body)) return;
    if (read_members(&work, &error)) {
        fb_respond_error(response, &error);
    } else if (fb_graph_input_pair(request, response, &work.body, 0, "a", &work.a) &&
               fb_graph_input_pair(request, response, &work.body, 1, "b", &work.b) &&
               fb_evaluating_begin(request, response, &evaluating)) {
        compare(request, response, &work, &evaluating);
        fb_evaluating_end(&evaluating);
    }
    fb_array_file_free(&work.file);
    fb_graph_input_free(&work.a);
    fb_graph_input_free(&work.b);
    fb_request_body_free(&work.body);
}

const fb_route fb_compare_routes[] = {
    {.method = "POST",
     .pattern = "/v1/compare",
     .handler = post_compare,
     .defer = fb_defer_request,
     .scope = FB_SCOPE_READ,
     .body = FB_BODY_REQUIRED,
     .query = ""},
    {0},
};
