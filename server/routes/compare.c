/* POST /v1/compare: two graphs on the same inputs. */
#include <string.h>

#include "core/json/json.h"
#include "server/routes/judging.h"
#include "server/routes/routes.h"

typedef struct comparison {
    fb_request_body body;
    fb_judging_request asked;
    fb_graph_input a, b;
} comparison;

static void compare(const fb_request *request, fb_response *response, comparison *work, fb_evaluating *evaluating) {
    fb_error error = {0};
    fb_judgement found;
    bool is_one = !strcmp(work->a.shared->id, work->b.shared->id);
    const fb_graph *a = work->a.shared->graph, *b = is_one ? a : work->b.shared->graph;
    if (!fb_judging_read_inputs(request, response, &work->asked, evaluating, a, b)) return;
    fb_judging judging = fb_judging_of(&work->asked, evaluating);
    if (fb_judge_graphs(a, b, &judging, &found, &error)) {
        fb_respond_evaluation_error(response, &error, a, b);
        return;
    }
    fb_buffer out = {0};
    fb_buffer_char(&out, '{');
    fb_judgement_write(&found, work->asked.seed, &out);
    fb_buffer_char(&out, '}');
    fb_respond_json_buffer_take(response, 200, &out);
    fb_judgement_free(&found);
}

static void post_compare(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"a", "b", FB_JUDGING_MEMBERS, NULL};
    comparison work = {0};
    fb_error error = {0};
    fb_evaluating evaluating;
    if (!fb_body_read(request, response, known, &work.body)) return;
    if (fb_judging_read(work.body.members, &work.asked, &error)) {
        fb_respond_error(response, &error);
    } else if (fb_graph_input_pair(request, response, &work.body, 0, "a", &work.a) &&
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
     .query = ""},
    {0},
};
