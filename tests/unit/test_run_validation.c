/* Validated runs: what a wrong pass, one that is meant to change the computation, and one that cannot be told give; and that
 * memory may run out anywhere. */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/view.h"
#include "core/compose/run.h"
#include "core/validation/run_validation.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

#define META "\"meta\": {\"shape\": [2, 3], \"dtype\": \"float32\"}"
#define NODE(name, target, args)                                                                                               \
    "{\"name\": \"" name "\", \"op\": \"call_function\", \"target\": \"" target "\", \"args\": [" args "], " META "}"
#define X "{\"name\": \"x\", \"op\": \"placeholder\", \"target\": \"x\", " META "}"
#define OUTPUT(of) "{\"name\": \"output\", \"op\": \"output\", \"target\": \"output\", \"args\": [{\"$node\": \"" of "\"}]}"
#define DIVISION X ", " NODE("half", "operator.truediv", "{\"$node\": \"x\"}, 2") ", "

/* ---- passes that are no good -------------------------------------------------------------------------------------------- */

static void match_division(fb_matcher *matcher, fb_node node) {
    fb_division division;
    if (fb_division_at(matcher->graph, node, &division)) fb_match_found(matcher, &node, 1);
}

/* Divides by 4 whatever it was. */
static void divide_by_four(fb_rewrite *rewrite, const fb_match *match) {
    fb_set_argument(rewrite, match->nodes[0], "other", fb_make_float(fb_rewrite_graph(rewrite), 4));
    fb_mark(rewrite, match->nodes[0]);
}

/* Divides by 2.0 instead of 2: the same. */
static void divide_by_two(fb_rewrite *rewrite, const fb_match *match) {
    fb_set_argument(rewrite, match->nodes[0], "other", fb_make_float(fb_rewrite_graph(rewrite), 2));
    fb_mark(rewrite, match->nodes[0]);
}

/* Multiplies a matrix by a number; calls an overload that PyTorch lacks; calls somebody's own function. */
static void multiply_by_no_matrix(fb_rewrite *rewrite, const fb_match *match) {
    fb_set_argument(rewrite, match->nodes[0], "other", fb_make_float(fb_rewrite_graph(rewrite), 2));
    fb_set_target(rewrite, match->nodes[0], FB_CALL_FUNCTION, "torch.mm");
    fb_mark(rewrite, match->nodes[0]);
}
static void call_what_is_not_there(fb_rewrite *rewrite, const fb_match *match) {
    fb_set_target(rewrite, match->nodes[0], FB_CALL_FUNCTION, "torch.ops.aten.div.t");
    fb_mark(rewrite, match->nodes[0]);
}
static void call_a_function_of_ones_own(fb_rewrite *rewrite, const fb_match *match) {
    fb_set_target(rewrite, match->nodes[0], FB_CALL_FUNCTION, "my.own.function");
    fb_mark(rewrite, match->nodes[0]);
}

#define PASS(edits, how, preserves)                                                                                            \
    {                                                                                                                          \
        .name = "Example", .version = 1, .summary = "", .parameters = FB_NO_PARAMETERS, .exactness = (how),                    \
        .reversible = true, .preserves_computation = (preserves), .match = match_division, .edit = (edits),                    \
    }
static const fb_pass wrong = PASS(divide_by_four, FB_ROUNDS, true);
static const fb_pass changing = PASS(divide_by_four, FB_CHANGES, false);
static const fb_pass breaking[] = {PASS(multiply_by_no_matrix, FB_ROUNDS, true), PASS(call_what_is_not_there, FB_MOVES, true)};
static const fb_pass unknown = PASS(call_a_function_of_ones_own, FB_MOVES, true);
static const fb_pass right = PASS(divide_by_two, FB_MOVES, true);

/* ---- a run -------------------------------------------------------------------------------------------------------------- */

typedef struct trial {
    fb_run_validation validation;
    fb_run run;
    fb_error error;
    fb_status status;
} trial;

static const fb_eval_options options = {.seed = 1};

static void run_pass(trial *t, const fb_graph *graph, const fb_pass *pass, fb_validation_mode mode) {
    static char params[] = "{}";
    fb_pass_call call = {.pass = pass, .params = params, .signature = "0123456789abcdef0123456789abcdef"};
    fb_composition composition = {.calls = &call, .count = 1};
    *t = (trial){.validation = {.mode = mode, .options = &options}};
    fb_run_watcher watcher = fb_validation_watcher(&t->validation);
    t->status = fb_composition_run(&composition, graph, FB_LINT_END, &watcher, &t->run, &t->error);
}

static void end(trial *t) {
    if (!t->status) fb_run_free(&t->run);
    fb_run_validation_free(&t->validation);
}

static fb_graph *graph_with(const char *nodes) {
    char *text = document_of(nodes, NULL, "");
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    return graph;
}

static const char *validation_of(const trial *t) {
    ck_assert_msg(t->status == FB_OK, "%s: %s", t->error.code, t->error.message);
    return t->run.passes[0].validation;
}

START_TEST(a_wrong_pass_fails) {
    fb_validation_mode mode = _i ? FB_VALIDATE_GRAPH : FB_VALIDATE_REWRITES;
    fb_graph *graph = graph_with(DIVISION NODE("relu", "torch.relu", "{\"$node\": \"half\"}") ", " OUTPUT("relu"));
    trial t;
    run_pass(&t, graph, &wrong, mode);
    ck_assert_int_eq(t.status, FB_INVALID);
    ck_assert_str_eq(t.error.code, "validation-failed");
    ck_assert_ptr_eq(t.validation.failed, &wrong);
    ck_assert_uint_eq(t.validation.failed_position, 0);
    ck_assert_uint_eq(t.validation.failed_nodes.size, sizeof(char *));
    ck_assert_str_eq(*(const char **)(void *)t.validation.failed_nodes.data, "half");
    ck_assert_ptr_nonnull(strstr(fb_buffer_text(&t.validation.failed_numbers), "\"max_relative\":"));
    end(&t);
    fb_graph_free(graph);
}
END_TEST

START_TEST(a_result_that_fails_where_the_source_ran_has_failed) {
    fb_validation_mode mode = _i % 2 ? FB_VALIDATE_GRAPH : FB_VALIDATE_REWRITES;
    fb_graph *graph = graph_with(DIVISION OUTPUT("half"));
    trial t;
    run_pass(&t, graph, &breaking[_i / 2], mode);
    ck_assert_int_eq(t.status, FB_INVALID);
    ck_assert_str_eq(t.error.code, "validation-failed");
    ck_assert_msg(strstr(t.error.message, "cannot be evaluated, of one that could: half ("), "%s", t.error.message);
    ck_assert_uint_eq(t.validation.failed_nodes.size, sizeof(char *));
    ck_assert_str_eq(*(const char **)(void *)t.validation.failed_nodes.data, "half");
    end(&t);
    fb_graph_free(graph);
}
END_TEST

START_TEST(a_function_that_is_not_pytorchs_says_nothing) {
    fb_graph *graph = graph_with(DIVISION OUTPUT("half"));
    trial t;
    run_pass(&t, graph, &unknown, _i ? FB_VALIDATE_GRAPH : FB_VALIDATE_REWRITES);
    ck_assert_ptr_nonnull(strstr(validation_of(&t), "\"code\":\"unsupported-operator\""));
    ck_assert(t.validation.is_incomplete);
    end(&t);
    fb_graph_free(graph);
}
END_TEST

START_TEST(a_right_one_passes) {
    fb_validation_mode mode = _i ? FB_VALIDATE_GRAPH : FB_VALIDATE_REWRITES;
    fb_graph *graph = graph_with(DIVISION OUTPUT("half"));
    trial t;
    run_pass(&t, graph, &right, mode);
    ck_assert_int_eq(strncmp(validation_of(&t), _i ? "{\"outputs\":1," : "{\"regions\":1,", 13), 0);
    ck_assert_ptr_nonnull(strstr(validation_of(&t), "\"max_absolute\":0.0"));
    ck_assert(!t.validation.is_incomplete);
    end(&t);
    fb_graph_free(graph);
}
END_TEST

START_TEST(a_pass_that_changes_is_not_held_to_it) {
    fb_validation_mode mode = _i ? FB_VALIDATE_GRAPH : FB_VALIDATE_REWRITES;
    fb_graph *graph = graph_with(DIVISION OUTPUT("half"));
    trial t;
    run_pass(&t, graph, &changing, mode);
    json_t *found = json_loads(validation_of(&t), 0, NULL), *one = json_array_get(json_object_get(found, "not_evaluated"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(one, "code")), "not-compared");
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(one, "nodes"), 0)), "half");
    ck_assert(t.validation.is_incomplete);
    json_decref(found);
    end(&t);
    fb_graph_free(graph);
}
END_TEST

START_TEST(a_tolerance_of_ones_own) {
    static const fb_tolerance generous = {.relative = 1};
    fb_graph *graph = graph_with(DIVISION OUTPUT("half"));
    static char params[] = "{}";
    fb_pass_call call = {.pass = &wrong, .params = params, .signature = "0123456789abcdef0123456789abcdef"};
    fb_composition composition = {.calls = &call, .count = 1};
    fb_run_validation validation = {.mode = FB_VALIDATE_REWRITES, .options = &options, .tolerance = &generous};
    fb_run_watcher watcher = fb_validation_watcher(&validation);
    fb_run run;
    ck_assert_int_eq(fb_composition_run(&composition, graph, FB_LINT_END, &watcher, &run, NULL), FB_OK);
    fb_run_free(&run);
    fb_run_validation_free(&validation);
    fb_graph_free(graph);
}
END_TEST

static fb_status always_stopped(void *context, fb_error *error) {
    (void)context;
    return fb_fail(error, FB_BUSY, "cancelled", NULL, "it was cancelled");
}

START_TEST(a_cancelled_run_ends) {
    fb_watch watch = {.check = always_stopped};
    fb_eval_options stopped = {.watch = &watch};
    fb_graph *graph = graph_with(DIVISION OUTPUT("half"));
    static char params[] = "{}";
    fb_pass_call call = {.pass = &right, .params = params, .signature = "0123456789abcdef0123456789abcdef"};
    fb_composition composition = {.calls = &call, .count = 1};
    fb_run_validation validation = {.mode = _i ? FB_VALIDATE_GRAPH : FB_VALIDATE_REWRITES, .options = &stopped};
    fb_run_watcher watcher = fb_validation_watcher(&validation);
    fb_run run;
    fb_error error = {0};
    ck_assert_int_eq(fb_composition_run(&composition, graph, FB_LINT_END, &watcher, &run, &error), FB_BUSY);
    ck_assert_str_eq(error.code, "cancelled");
    fb_run_validation_free(&validation);
    fb_graph_free(graph);
}
END_TEST

/* The allocations that fail: all from the k-th on, or it alone. */
static void (*const failures[])(long) = {chaos_fail_after, chaos_fail_once};

START_TEST(memory_may_run_out) {
    const fb_pass *passes[] = {&right, &wrong, &changing};
    fb_graph *graph = graph_with(DIVISION NODE("secret", "my.own.function", "{\"$node\": \"half\"}") ", " OUTPUT("secret"));
    for (size_t i = 0; i < 12; i++) {
        const fb_pass *pass = passes[i % 3];
        fb_validation_mode mode = i / 3 % 2 ? FB_VALIDATE_GRAPH : FB_VALIDATE_REWRITES;
        trial expected, t;
        run_pass(&expected, graph, pass, mode);
        for (long k = 0;; k++) {
            failures[i / 6](k);
            run_pass(&t, graph, pass, mode);
            bool has_failed = chaos_off();
            ck_assert_msg(t.status == expected.status || (has_failed && t.status == FB_NO_MEMORY),
                          "case %zu: %s at allocation %ld", i, t.error.code, k);
            end(&t);
            if (!has_failed) break;
        }
        end(&expected);
    }
    fb_graph_free(graph);
}
END_TEST

int main(void) {
    TCase *test = tcase_create("run validation");
    tcase_add_loop_test(test, a_wrong_pass_fails, 0, 2);
    tcase_add_loop_test(test, a_result_that_fails_where_the_source_ran_has_failed, 0, 4);
    tcase_add_loop_test(test, a_function_that_is_not_pytorchs_says_nothing, 0, 2);
    tcase_add_loop_test(test, a_right_one_passes, 0, 2);
    tcase_add_loop_test(test, a_pass_that_changes_is_not_held_to_it, 0, 2);
    tcase_add_test(test, a_tolerance_of_ones_own);
    tcase_add_loop_test(test, a_cancelled_run_ends, 0, 2);
    tcase_add_test(test, memory_may_run_out);
    return run_tests("run validation", test);
}
