/* POST /v1/compare: two graphs on the same inputs. */
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "server/routes/answer.h"
#include "server/routes/judging.h"
#include "server/routes/routes.h"

typedef struct comparison {
    fb_request_body body;
    fb_judging_request asked;
    fb_graph_input a, b;
    bool is_kept, is_mixed; /* the inputs of a counterexample: as a blob, beside the answer */
} comparison;

static bool holds(const fb_buffer *buffer, const char *text) {
    return buffer->size && memmem(buffer->data, buffer->size, text, strlen(text));
}

/* The answer and the inputs of the first counterexample as parts of one body (RFC 2046, 5.1), between lines that neither has.
 */
static void respond_parts(fb_response *response, const fb_buffer *json, const fb_buffer *inputs) {
    char boundary[40], type[80];
    unsigned number = 0;
    do snprintf(boundary, sizeof boundary, "foldback-part-%u", number++);
    while (holds(json, boundary) || holds(inputs, boundary));
    fb_buffer out = {0};
    fb_buffer_printf(&out, "--%s\r\nContent-Type: application/json\r\n\r\n", boundary);
    fb_buffer_append(&out, json->data, json->size);
    if (inputs->size) {
        fb_buffer_printf(&out,
                         "\r\n--%s\r\nContent-Type: application/octet-stream\r\n"
                         "Content-Disposition: attachment; filename=\"inputs.safetensors\"\r\n\r\n",
                         boundary);
        fb_buffer_append(&out, inputs->data, inputs->size);
    }
    fb_buffer_printf(&out, "\r\n--%s--\r\n", boundary);
    out.failed |= json->failed;
    snprintf(type, sizeof type, "multipart/mixed; boundary=%s", boundary);
    fb_respond_buffer_take(response, 200, type, &out);
    fb_response_identity(response);
}

/* Makes the inputs of the first counterexample a blob. */
static bool keep_inputs(const fb_request *request, fb_response *response, const fb_buffer *inputs,
                        char digest[FB_ID_LENGTH + 1]) {
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_upload *upload = NULL;
    fb_error error = {0};
    bool is_new;
    fb_status status = fb_upload_new(app->store, false, &upload, &error);
    if (!status) status = fb_upload_write(upload, inputs->data, inputs->size, &error);
    if (!status) status = fb_upload_finish(upload, NULL, &by, digest, &is_new, &error);
    fb_upload_close(upload, status != FB_OK);
    if (status) fb_respond_error(response, &error);
    return !status;
}

static void answer(const fb_request *request, fb_response *response, const fb_judgement *found, const comparison *work) {
    char digest[FB_ID_LENGTH + 1] = "";
    fb_buffer out = {0};
    if (work->is_kept && found->drawn.size && !keep_inputs(request, response, &found->drawn, digest)) return;
    fb_buffer_char(&out, '{');
    fb_judgement_write(found, work->asked.seed, *digest ? digest : NULL, &out);
    fb_buffer_char(&out, '}');
    if (work->is_mixed) {
        respond_parts(response, &out, &found->drawn);
        fb_buffer_free(&out);
    } else {
        fb_respond_json_buffer_take(response, 200, &out);
    }
}

static void compare(const fb_request *request, fb_response *response, comparison *work, fb_evaluating *evaluating) {
    fb_error error = {0};
    fb_judgement found;
    bool is_one = !strcmp(work->a.shared->id, work->b.shared->id);
    const fb_graph *a = work->a.shared->graph, *b = is_one ? a : work->b.shared->graph;
    if (!fb_judging_read_inputs(request, response, &work->asked, evaluating, a, b)) return;
    fb_judging judging = fb_judging_of(&work->asked, evaluating);
    judging.keeps_inputs = work->is_kept || work->is_mixed;
    if (fb_judge_graphs(a, b, &judging, &found, &error)) {
        fb_respond_evaluation_error(response, &error, a, b);
        return;
    }
    answer(request, response, &found, work);
    fb_judgement_free(&found);
}

/* Only what is kept needs a token that may write. */
static bool read_kept(const fb_request *request, fb_response *response, comparison *work) {
    const fb_app *app = request->context;
    const json_t *kept = json_object_get(work->body.members, "keep");
    work->is_kept = json_is_true(kept);
    work->is_mixed = fb_request_accepts(request, "multipart/mixed") > fb_request_accepts(request, "application/json");
    if (kept && !json_is_boolean(kept)) return fb_refuse_member(response, "wrong-type", "/keep", "keep is true or false");
    if (work->is_kept && !app->store)
        return fb_refuse_member(response, "no-store", "/keep", "there is no store to keep them in");
    return !work->is_kept || fb_request_may(request, FB_SCOPE_WRITE);
}

static void post_compare(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"a", "b", "keep", FB_JUDGING_MEMBERS, NULL};
    comparison work = {0};
    fb_error error = {0};
    fb_evaluating evaluating;
    if (!fb_body_read(request, response, known, &work.body)) return;
    if (fb_judging_read(work.body.members, &work.asked, &error)) {
        fb_respond_error(response, &error);
    } else if (read_kept(request, response, &work) && fb_graph_input_pair(request, response, &work.body, 0, "a", &work.a) &&
               fb_graph_input_pair(request, response, &work.body, 1, "b", &work.b) &&
               fb_evaluating_begin(request, response, &evaluating)) {
        compare(request, response, &work, &evaluating);
        fb_evaluating_end(&evaluating);
    }
    fb_array_file_free(&work.asked.file);
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
     .produces = "application/json,multipart/mixed",
     .query = ""},
    {0},
};
