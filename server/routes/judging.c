/* A verdict on two graphs: what is asked for besides the graphs, and the answer. */
#include <math.h>
#include <string.h>

#include "core/json/json.h"
#include "server/routes/input.h"
#include "server/routes/judging.h"

/* ---- the request ------------------------------------------------------------------------------------------------------- */

fb_status fb_judging_read(const json_t *members, fb_judging_request *work, fb_error *error) {
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

bool fb_judging_open_inputs(const fb_request *request, fb_response *response, const char *digest, const char *pointer,
                            bool has_outputs, const fb_evaluating *evaluating, fb_array_file *out) {
    const fb_app *app = request->context;
    const fb_blobs *blobs = &evaluating->blobs;
    fb_error error = {0};
    fb_blob_bytes bytes;
    fb_status status = !app->store ? FB_NOT_FOUND : blobs->open(blobs->context, digest, &bytes, &error);
    if (status == FB_NOT_FOUND) {
        fb_respond_problem(response, 409, "blob-missing", "there is no blob %s here; upload it first", digest);
        fb_problem_member_take(response, "blobs", json_pack("[s]", digest));
        return false;
    }
    if (!status) {
        status = fb_array_file_read(bytes.bytes, bytes.size, app->evaluation.memory, has_outputs, fb_request_watch(request),
                                    out, &error);
        blobs->close(blobs->context, &bytes);
    }
    if (status) {
        error.pointer[0] = '\0';
        fb_respond_error_at(response, pointer, &error);
    }
    return !status;
}

bool fb_judging_read_inputs(const fb_request *request, fb_response *response, fb_judging_request *work,
                            const fb_evaluating *evaluating, const fb_graph *a, const fb_graph *b) {
    return !work->inputs ||
           (fb_judging_open_inputs(request, response, work->inputs, "/inputs", false, evaluating, &work->file) &&
            fb_check_inputs(response, &work->file, a, b));
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

void fb_counterexample_write(const fb_judged *one, uint64_t seed, const char *kept, fb_buffer *out) {
    fb_put_name(out, "counterexample");
    if (!one->has_counterexample) {
        fb_buffer_string(out, "null");
        return;
    }
    fb_buffer_char(out, '{');
    fb_put_int(out, "seed", (int64_t)seed);
    fb_put_int(out, "sample", (int64_t)one->sample);
    if (kept) fb_put_text(out, "inputs", kept);
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

static void put_judged(fb_buffer *out, const fb_judged *one, uint64_t seed, const char *kept, bool is_output) {
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
        fb_put_name(out, "given_by");
        fb_buffer_char(out, '{');
        fb_put_text_or_null(out, "a", one->given_by[0]);
        fb_put_text_or_null(out, "b", one->given_by[1]);
        fb_buffer_char(out, '}');
        put_numbers(out, one);
        fb_put_int(out, "samples", (int64_t)one->samples);
        fb_counterexample_write(one, seed, kept, out);
        fb_put_bool(out, "passes", one->verdict <= FB_VERDICT_EVALUATED);
    }
    fb_buffer_char(out, '}');
}

static void put_all(fb_buffer *out, const char *name, const fb_judgement *found, bool are_outputs, uint64_t seed,
                    const char *kept) {
    const fb_judged *items = are_outputs ? found->outputs : found->inputs;
    size_t count = are_outputs ? found->count : found->input_count;
    fb_put_name(out, name);
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < count; i++)
        put_judged(out, &items[i], seed, items[i].sample == found->drawn_sample ? kept : NULL, are_outputs);
    fb_buffer_char(out, ']');
}

void fb_judgement_write(const fb_judgement *found, uint64_t seed, const char *kept, fb_buffer *out) {
    fb_put_text(out, "verdict", fb_verdict_name(found->verdict));
    fb_put_bool(out, "passes", found->verdict <= FB_VERDICT_EVALUATED);
    fb_put_int(out, "seed", (int64_t)seed);
    fb_put_int(out, "samples", (int64_t)found->samples);
    fb_put_name(out, "regions");
    if (found->regions) fb_buffer_printf(out, "{\"count\":%zu,\"nodes\":%zu}", found->regions, found->nodes);
    else fb_buffer_string(out, "null");
    put_all(out, "outputs", found, true, seed, kept);
    put_all(out, "inputs", found, false, seed, kept);
    fb_put_text(out, "writes", fb_verdict_name(found->writes));
    fb_put_name(out, "first_node");
    if (*found->first_node) {
        fb_buffer_char(out, '{');
        fb_put_text(out, "name", found->first_node);
        fb_put_comma(out);
        fb_write_difference(&found->first_difference, out);
        fb_buffer_char(out, '}');
    } else {
        fb_buffer_string(out, "null");
    }
}

fb_judging fb_judging_of(const fb_judging_request *work, fb_evaluating *evaluating) {
    evaluating->options.seed = work->seed;
    evaluating->options.random_weights = work->random_weights;
    return (fb_judging){.items = work->file.items,
                        .count = work->file.count,
                        .samples = work->samples,
                        .options = &evaluating->options,
                        .tolerance = work->has_tolerance ? &work->tolerance : NULL};
}
