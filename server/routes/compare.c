/* POST /v1/compare: two graphs on the same inputs. */
#include <math.h>
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
    size_t samples; /* 0 = as many as usual */
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
    const json_t *samples = json_object_get(members, "samples");
    double count = json_number_value(samples);
    bool is_count = json_is_number(samples) && count >= 1 && count <= FB_MOST_SAMPLES && count == floor(count);
    if (!status && samples && !is_count)
        status = fb_fail(error, FB_INVALID, "wrong-type", "/samples", "samples is an integer from 1 to %d", FB_MOST_SAMPLES);
    if (is_count) work->samples = (size_t)count;
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

/* Of an output of which nothing is known the numbers are null. */
static void put_numbers(fb_buffer *out, const fb_judged *one) {
    static const fb_difference nothing = {.absolute = HUGE_VAL, .relative = HUGE_VAL, .ulp = HUGE_VAL};
    bool is_proved = one->verdict <= FB_VERDICT_MOVED, is_known = is_proved || (one->samples && one->index >= 0);
    fb_put_comma(out);
    fb_write_difference(is_known ? &one->between : &nothing, out);
    put_difference(out, "a_against_float64", is_known ? &one->a_exact : &nothing);
    put_difference(out, "b_against_float64", is_known ? &one->b_exact : &nothing);
}

static void put_number(fb_buffer *out, const char *name, double number) {
    fb_put_name(out, name);
    if (isfinite(number)) fb_buffer_printf(out, "%.17g", number);
    else fb_buffer_string(out, isnan(number) ? "\"nan\"" : number > 0 ? "\"inf\"" : "\"-inf\"");
}

static void put_counterexample(fb_buffer *out, const fb_judged *one, uint64_t seed) {
    fb_put_name(out, "counterexample");
    if (!one->has_counterexample) {
        fb_buffer_string(out, "null");
        return;
    }
    fb_buffer_char(out, '{');
    fb_put_int(out, "seed", (int64_t)seed);
    fb_put_int(out, "sample", (int64_t)one->sample);
    fb_put_name(out, "index");
    if (one->index < 0) {
        fb_buffer_string(out, "null");
    } else {
        fb_buffer_int(out, one->index);
        put_number(out, "a", one->a);
        put_number(out, "b", one->b);
    }
    fb_buffer_char(out, '}');
}

static void put_judged(fb_buffer *out, const fb_judged *one, const comparison *work, bool is_output) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", one->name);
    fb_put_text_or_null(out, "dtype", one->dtype ? fb_dtype_name(one->dtype) : NULL);
    fb_put_text(out, "verdict", fb_verdict_name(one->verdict));
    fb_put_text_or_null(out, "reason", one->reason);
    if (one->detail) fb_put_text(out, "detail", one->detail);
    if (one->node) fb_put_text(out, "node", one->node);
    if (one->target) fb_put_text(out, "target", one->target);
    if (is_output) {
        put_numbers(out, one);
        fb_put_int(out, "samples", (int64_t)one->samples);
        put_counterexample(out, one, work->seed);
        fb_put_bool(out, "passes", one->verdict <= FB_VERDICT_EVALUATED);
    }
    fb_buffer_char(out, '}');
}

static void put_all(fb_buffer *out, const char *name, const fb_judged *items, size_t count, const comparison *work,
                    bool are_outputs) {
    fb_put_name(out, name);
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < count; i++) put_judged(out, &items[i], work, are_outputs);
    fb_buffer_char(out, ']');
}

static void answer(fb_response *response, const fb_judgement *found, const comparison *work) {
    fb_buffer out = {0};
    fb_buffer_char(&out, '{');
    fb_put_text(&out, "verdict", fb_verdict_name(found->verdict));
    fb_put_bool(&out, "passes", found->verdict <= FB_VERDICT_EVALUATED);
    fb_put_int(&out, "seed", (int64_t)work->seed);
    fb_put_int(&out, "samples", (int64_t)found->samples);
    put_all(&out, "outputs", found->outputs, found->count, work, true);
    put_all(&out, "inputs", found->inputs, found->input_count, work, false);
    fb_put_text(&out, "writes", fb_verdict_name(found->writes));
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
    fb_judgement found;
    if (!read_inputs(request, response, work, evaluating)) return;
    bool is_one = !strcmp(work->a.shared->id, work->b.shared->id);
    const fb_graph *a = work->a.shared->graph, *b = is_one ? a : work->b.shared->graph;
    evaluating->options.seed = work->seed;
    evaluating->options.random_weights = work->random_weights;
    fb_judging judging = {.items = work->file.items,
                          .count = work->file.count,
                          .samples = work->samples,
                          .options = &evaluating->options,
                          .tolerance = work->has_tolerance ? &work->tolerance : NULL};
    if (fb_judge_graphs(a, b, &judging, &found, &error)) {
        fb_respond_evaluation_error(response, &error, a, b);
        return;
    }
    answer(response, &found, work);
    fb_judgement_free(&found);
}

static void post_compare(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"a", "b", "seed", "samples", "inputs", "tolerance", "random_weights", NULL};
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
