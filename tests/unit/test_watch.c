/* Work that is stopped: at each of the times that it asks in turn. It ends with what it was told, and has changed nothing. */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/undo.h"
#include "core/document/document.h"
#include "core/validation/validation.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

/* Says stop when it is asked for the `left`-th time from now on; negative: never. */
typedef struct stopper {
    long left, asked;
    char begun[200]; /* "name 0/2 " for each part */
} stopper;

static fb_status check(void *context, fb_error *error) {
    stopper *s = context;
    s->asked++;
    if (s->left < 0 || s->left-- > 0) return FB_OK;
    s->left = 0; /* for good */
    return fb_fail(error, FB_BUSY, "cancelled", NULL, "nobody wants it any more");
}

static void begins(void *context, const char *name, size_t done, size_t total) {
    stopper *s = context;
    size_t used = strlen(s->begun);
    snprintf(s->begun + used, sizeof s->begun - used, "%s %zu/%zu ", name, done, total);
}

#define TYPE "\"meta\":{\"shape\":[2,4],\"dtype\":\"float32\"}"

enum { LAYERS = 1000 };

/* A chain of divisions and Linears, of one module. */
static char *chain(size_t *size) {
    fb_buffer nodes = {0};
    fb_buffer_string(&nodes, "{\"op\":\"placeholder\",\"name\":\"x\",\"target\":\"x\"," TYPE "}");
    char last[32] = "x";
    for (int i = 0; i < LAYERS; i++) {
        fb_buffer_printf(&nodes, ",{\"op\":\"call_function\",\"name\":\"div_%d\",\"target\":\"operator.truediv\",", i);
        fb_buffer_printf(&nodes, "\"args\":[{\"$node\":\"%s\"},4.0]," TYPE "}", last);
        fb_buffer_printf(
            &nodes, ",{\"op\":\"call_module\",\"name\":\"fc_%d\",\"target\":\"fc\",\"args\":[{\"$node\":\"div_%d\"}]," TYPE "}",
            i, i);
        snprintf(last, sizeof last, "fc_%d", i);
    }
    fb_buffer_printf(&nodes, ",{\"op\":\"output\",\"name\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"%s\"}]}",
                     last);
    char *text = document_of(fb_buffer_text(&nodes),
                             "{\"path\":\"\",\"type\":\"torch.nn.Module\"},{\"path\":\"fc\",\"type\":\"torch.nn.Linear\","
                             "\"config\":{\"in_features\":4,\"out_features\":4,\"bias\":true},"
                             "\"parameters\":{\"weight\":\"w\",\"bias\":\"b\"}}",
                             "{\"name\":\"w\",\"dtype\":\"float32\",\"shape\":[4,4]},"
                             "{\"name\":\"b\",\"dtype\":\"float32\",\"shape\":[4]}");
    fb_buffer_free(&nodes);
    *size = strlen(text);
    return text;
}

static fb_graph *read_chain(void) {
    size_t size;
    char *text = chain(&size);
    fb_graph *graph = graph_of(text, size);
    free(text);
    return graph;
}

static fb_composition composition_of(const char *text) {
    json_t *list = json_loads(text, 0, NULL);
    fb_composition composition = {0};
    ck_assert_int_eq(fb_composition_read(list, "", NULL, &composition, NULL), FB_OK);
    json_decref(list);
    return composition;
}

/* Does the work once unhindered, and then stops it at each time that it had asked at. */
static void stop_everywhere(fb_status (*work)(const fb_watch *, void *, fb_error *), void *argument, long at_least) {
    stopper s = {.left = -1};
    fb_watch watch = {.context = &s, .check = check};
    fb_error error = {0};
    ck_assert_int_eq(work(&watch, argument, &error), FB_OK);
    long asked = s.asked;
    ck_assert_msg(asked >= at_least, "asked %ld times", asked);
    for (long k = 0; k < asked; k++) {
        s = (stopper){.left = k};
        error = (fb_error){0};
        ck_assert_msg(work(&watch, argument, &error) == FB_BUSY && !strcmp(error.code, "cancelled"), "at %ld of %ld: %s", k,
                      asked, error.code);
    }
}

static fb_status read_it(const fb_watch *watch, void *argument, fb_error *error) {
    size_t size;
    char *text = chain(&size);
    fb_document_limits limits = {.watch = watch};
    fb_errors errors = {0};
    fb_graph *graph = NULL;
    (void)argument;
    fb_status status = fb_document_read(text, size, &limits, "", &graph, &errors);
    if (status) {
        ck_assert_uint_eq(errors.count, 1);
        *error = errors.items[0];
    }
    fb_graph_free(graph);
    fb_errors_free(&errors);
    free(text);
    return status;
}

START_TEST(a_document_is_not_read_on) {
    stop_everywhere(read_it, NULL, 2 * LAYERS / 256);
}
END_TEST

typedef struct running {
    const fb_graph *source;
    const fb_composition *composition;
} running;

static fb_status run_it(const fb_watch *watch, void *argument, fb_error *error) {
    const running *r = argument;
    fb_run run;
    fb_run_watcher watcher = {.watch = watch};
    fb_status status = fb_composition_run(r->composition, r->source, FB_LINT_END, &watcher, &run, error);
    if (status) return status;
    ck_assert_uint_gt(run.passes[0].applied, 0);
    fb_run_free(&run);
    return FB_OK;
}

static const char *const compositions[] = {
    "[\"ChangeTrueDivToMulByInverse\"]",
    "[\"FuseBiasInLinear\"]", /* one match that edits every call */
    "[{\"name\":\"ConvertPrecision\",\"params\":{\"to\":\"bfloat16\"}}]",
    "[\"ChangeTrueDivToMulByInverse\",\"FuseBiasInLinear\",\"EliminateDeadCode\",\"EliminateCommonSubexpressions\"]",
};

START_TEST(a_run_is_not_gone_on_with) {
    fb_graph *source = read_chain();
    char before[FB_ID_LENGTH + 1], after[FB_ID_LENGTH + 1];
    fb_composition composition = composition_of(compositions[_i]);
    fb_document_id(source, before);
    stop_everywhere(run_it, &(running){source, &composition}, 11); /* 8 of them before the edit */
    ck_assert(fb_document_id(source, after));
    ck_assert_str_eq(before, after);
    fb_composition_free(&composition);
    fb_graph_free(source);
}
END_TEST

START_TEST(who_watches_is_told_which_pass_begins) {
    fb_graph *source = read_chain();
    fb_composition composition = composition_of("[\"ChangeTrueDivToMulByInverse\",\"MergeLinears\"]");
    stopper s = {.left = -1};
    fb_watch watch = {.context = &s, .begins = begins};
    ck_assert_int_eq(run_it(&watch, &(running){source, &composition}, NULL), FB_OK);
    ck_assert_str_eq(s.begun, "ChangeTrueDivToMulByInverse 0/2 MergeLinears 1/2 ");
    fb_composition_free(&composition);
    fb_graph_free(source);
}
END_TEST

static const char identity[] =
    "{\"op\":\"placeholder\",\"name\":\"x\",\"target\":\"x\"," TYPE "},"
    "{\"op\":\"call_function\",\"name\":\"y\",\"target\":\"torch.relu\",\"args\":[{\"$node\":\"x\"}]," TYPE "},"
    "{\"op\":\"call_function\",\"name\":\"z\",\"target\":\"operator.mul\",\"args\":[{\"$node\":\"y\"},1]," TYPE "},"
    "{\"op\":\"output\",\"name\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"z\"}]}";

/* The first pass of a round applies something, and then none: the second round ends where it would say what the first said. */
START_TEST(a_preset_ends_where_a_round_of_passes_was_idle) {
    char *text = document_of(identity, NULL, "");
    fb_graph *graph = graph_of(text, strlen(text));
    fb_composition composition = composition_of("[\"cleanup\"]");
    stopper s = {.left = -1};
    fb_watch watch = {.context = &s, .begins = begins};
    fb_run_watcher watcher = {.watch = &watch};
    fb_run run;
    ck_assert_int_eq(fb_composition_run(&composition, graph, FB_LINT_NONE, &watcher, &run, NULL), FB_OK);
    ck_assert_str_eq(s.begun, "RemoveNoOps 0/12 EliminateCommonSubexpressions 1/12 EliminateDeadCode 2/12 RemoveNoOps 3/12 ");
    ck_assert_uint_eq(run.passes[0].applied, 1);
    ck_assert_uint_eq(run.count, 3);
    fb_run_free(&run);
    fb_composition_free(&composition);
    fb_graph_free(graph);
    free(text);
}
END_TEST

static fb_status undo_it(const fb_watch *watch, void *argument, fb_error *error) {
    fb_undo_plan *plan = argument;
    fb_graph *out = NULL;
    fb_conflicts conflicts = {0};
    bool is_exact = false;
    plan->watch = watch;
    fb_status status = fb_undo(plan, &out, &is_exact, &conflicts, error);
    ck_assert_uint_eq(conflicts.count, 0);
    if (!status) fb_graph_free(out);
    fb_conflicts_free(&conflicts);
    return status;
}

START_TEST(an_undo_that_merges_is_not_gone_on_with) {
    fb_graph *source = read_chain();
    fb_composition composition = composition_of("[\"ChangeTrueDivToMulByInverse\"]");
    fb_run run;
    ck_assert_int_eq(fb_composition_run(&composition, source, FB_LINT_END, NULL, &run, NULL), FB_OK);
    fb_buffer text = {0};
    fb_document_write(run.result, &text);
    char *shape = strstr(fb_buffer_text(&text), "[2,4]");
    ck_assert_ptr_nonnull(shape);
    shape[1] = '3'; /* what became of the result since */
    fb_graph *ours = graph_of(text.data, text.size);
    fb_undo_step step = {.call = &composition.calls[0], .is_undone = true};
    fb_undo_plan plan = {.source = source, .steps = &step, .step_count = 1, .result = run.result, .ours = ours};
    stop_everywhere(undo_it, &plan, 40);
    fb_graph_free(ours);
    fb_buffer_free(&text);
    fb_run_free(&run);
    fb_composition_free(&composition);
    fb_graph_free(source);
}
END_TEST

/* Of a product of matrices that is made in parts, a row of a later part, less the same row made alone. */
static const char product[] = "{\"op\":\"placeholder\",\"name\":\"x\",\"target\":\"x\","
                              "\"meta\":{\"shape\":[1400,1024],\"dtype\":\"float32\"}},"
                              "{\"op\":\"placeholder\",\"name\":\"y\",\"target\":\"y\","
                              "\"meta\":{\"shape\":[1024,1024],\"dtype\":\"float32\"}},"
                              "{\"op\":\"call_function\",\"name\":\"whole\",\"target\":\"torch.matmul\","
                              "\"args\":[{\"$node\":\"x\"},{\"$node\":\"y\"}]},"
                              "{\"op\":\"call_function\",\"name\":\"row\",\"target\":\"torch.select\","
                              "\"args\":[{\"$node\":\"x\"},0,1333]},"
                              "{\"op\":\"call_function\",\"name\":\"alone\",\"target\":\"torch.matmul\","
                              "\"args\":[{\"$node\":\"row\"},{\"$node\":\"y\"}]},"
                              "{\"op\":\"call_function\",\"name\":\"part\",\"target\":\"torch.select\","
                              "\"args\":[{\"$node\":\"whole\"},0,1333]},"
                              "{\"op\":\"call_function\",\"name\":\"less\",\"target\":\"torch.sub\","
                              "\"args\":[{\"$node\":\"part\"},{\"$node\":\"alone\"}]},"
                              "{\"op\":\"output\",\"name\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"less\"}]}";

static fb_status evaluate_it(const fb_watch *watch, void *argument, fb_error *error) {
    const fb_graph *graph = argument;
    fb_array_memory memory;
    fb_object output;
    fb_eval_inputs given = {.graph = graph, .memory = &memory, .is_drawn = true, .seed = 3};
    fb_eval_hooks hooks = {.context = &given, .given = fb_give_input};
    fb_eval_options options = {.watch = watch};
    fb_status status = fb_evaluate_graph(graph, &options, &hooks, &memory, &output, error);
    if (status) return status;
    double largest = fb_largest_magnitude(output.array);
    ck_assert_msg(largest < 1e-3, "%g", largest);
    fb_object_drop(&output);
    return FB_OK;
}

START_TEST(an_evaluation_is_not_gone_on_with) {
    char *text = document_of(product, NULL, "");
    fb_graph *graph = graph_of(text, strlen(text));
    stop_everywhere(evaluate_it, graph, 10); /* once before each node, and within the product */
    fb_graph_free(graph);
    free(text);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("watch");
    tcase_add_test(tests, a_document_is_not_read_on);
    tcase_add_loop_test(tests, a_run_is_not_gone_on_with, 0, sizeof compositions / sizeof *compositions);
    tcase_add_test(tests, who_watches_is_told_which_pass_begins);
    tcase_add_test(tests, a_preset_ends_where_a_round_of_passes_was_idle);
    tcase_add_test(tests, an_undo_that_merges_is_not_gone_on_with);
    tcase_add_test(tests, an_evaluation_is_not_gone_on_with);
    tcase_set_timeout(tests, 600);
    return run_tests("watch", tests);
}
