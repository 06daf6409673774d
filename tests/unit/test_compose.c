/* Compositions: signatures, rules, selection; already-transformed; what changes nothing. */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/composition.h"
#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/json/json.h"
#include "core/passes/passes.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

typedef enum origin { A_STORE, A_CLIENT } origin;

static fb_status read_from(origin from, const char *text, fb_composition *out, fb_error *error) {
    json_t *list = json_loads(text, JSON_DECODE_ANY, NULL);
    ck_assert_msg(list != NULL, "the test's JSON: %s", text);
    *error = (fb_error){0};
    fb_status status = from == A_CLIENT ? fb_composition_read_request(NULL, "", list, "/passes", NULL, out, error)
                                        : fb_composition_read(list, "/passes", NULL, out, error);
    json_decref(list);
    return status;
}

static fb_status read_list(const char *text, fb_composition *out, fb_error *error) {
    return read_from(A_STORE, text, out, error);
}

static fb_composition composition_of(const char *text) {
    fb_composition composition;
    fb_error error;
    ck_assert_msg(read_list(text, &composition, &error) == FB_OK, "%s: %s", text, error.message);
    return composition;
}

static fb_run run_on(const fb_graph *graph, const char *list) {
    fb_composition composition = composition_of(list);
    fb_run run;
    fb_error error = {0};
    fb_status status = fb_composition_run(&composition, graph, FB_LINT_EACH, NULL, &run, &error);
    ck_assert_msg(status == FB_OK, "%s: %s: %s", list, error.code, error.message);
    fb_composition_free(&composition);
    return run;
}

/* ---- signatures ---------------------------------------------------------------------------------------------------------- */

/* Computed with Python's hashlib: sha256('{"params":{},"pass":"MergeLinears","version":1}').hexdigest()[:32]; the folds of
 * BatchNorms and ChangeTrueDivToMulByInverse are version 2. */
START_TEST(test_signatures_of_passes) {
    static const char *const expected[][2] = {
        {"MergeLinears", "b7e7e446c42ce08d52a07df4212c1a13"},
        {"FuseBiasInLinear", "f640350a8ba64f665c9bdb20bf66710c"},
        {"ChangeTrueDivToMulByInverse", "e231b3baefc08a1572e917e0c46b7a43"},
        {"FuseBatchNorm2dInConv2d", "07bd9dd7c0db6111a72885af16bfe40c"},
        {"FuseBatchNorm1dInLinear", "6e41ecf230e8a71f889186d5d9b0441b"},
        {"FuseBatchNorm", "779124cd9fed551e570879c433567584"},
        {"DeepCopy", "7057037431a1240285ac63bb6a197a0c"},
        {"LintAndRecompile", "3b1f9c0f6cd5f9a53e4a2e79486833a4"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char list[80];
        snprintf(list, sizeof list, "[\"%s\"]", expected[i][0]);
        fb_composition composition = composition_of(list);
        ck_assert_str_eq(composition.calls[0].signature, expected[i][1]);
        fb_composition_free(&composition);
    }
}
END_TEST

/* Distinct for distinct parameters, whatever a hash table or a comparison of numbers would make of them. */
START_TEST(test_signatures_of_parameters) {
    static const char *const expected[][2] = {
        {"{\"a\": -1}", "a0a401b6647452a8d6e9c851083ce21f"},     {"{\"a\": -2}", "36075ad1c1ca30397dd06cfe5110def6"},
        {"{\"a\": 1}", "357b6ffee463155ab63683613007fb7b"},      {"{\"a\": 1.0}", "0ddaf896bf149d8ac0081c2d70471a59"},
        {"{\"a\": true}", "9bbe62a0d224cf42eed95d06a81f9d54"},   {"{\"a\": [1, 2]}", "f6cd9b48cef9f81865313974bd9f44b4"},
        {"{\"a\": [2, 1]}", "662e5c9da59432f4884aed7456946188"}, {"{\"a\": \"1\"}", "120789e57143e5e08e6325d860f30cc6"},
        {"{\"a\": null}", "5e55c1ad92469d99fd296f13a58f8c62"},   {"{}", "fc91d63b0cd82da48d9cb5aabc594a2a"},
    };
    enum { COUNT = sizeof expected / sizeof *expected };
    fb_signature signatures[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        json_t *params = json_loads(expected[i][0], 0, NULL);
        fb_buffer canonical = {0};
        ck_assert_int_eq(fb_free_json_canonical(params, &canonical), FB_OK);
        ck_assert(fb_pass_signature("P", 1, NULL, fb_buffer_text(&canonical), NULL, signatures[i]));
        ck_assert_str_eq(signatures[i], expected[i][1]);
        for (size_t k = 0; k < i; k++) ck_assert_str_ne(signatures[i], signatures[k]);
        fb_buffer_free(&canonical);
        json_decref(params);
    }
    fb_signature other;
    ck_assert(fb_pass_signature("P", 2, NULL, "{}", NULL, other));
    ck_assert_str_ne(other, signatures[COUNT - 1]);
}
END_TEST

START_TEST(test_order_of_parameters_is_nothing) {
    json_t *one = json_loads("{\"b\": 1, \"a\": {\"d\": 2, \"c\": 3}}", 0, NULL);
    json_t *two = json_loads("{\"a\": {\"c\": 3, \"d\": 2}, \"b\": 1}", 0, NULL);
    fb_buffer first = {0}, second = {0};
    ck_assert_int_eq(fb_free_json_canonical(one, &first), FB_OK);
    ck_assert_int_eq(fb_free_json_canonical(two, &second), FB_OK);
    ck_assert_str_eq(fb_buffer_text(&first), fb_buffer_text(&second));
    fb_buffer_free(&first);
    fb_buffer_free(&second);
    json_decref(one);
    json_decref(two);
}
END_TEST

static void ck_signature(const char *list, const char *expected) {
    fb_composition composition = composition_of(list);
    ck_assert_str_eq(composition.signature, expected);
    fb_composition_free(&composition);
}

START_TEST(test_signatures_of_compositions) {
    const char *both = "630d3a8dc91be123867f5541f5bd5c0f", *one = "3744ae796e24dfb73d6ab544fa3ccb24";
    ck_signature("[\"MergeLinears\"]", one);
    ck_signature("[[[\"MergeLinears\"]]]", one);
    ck_signature("[\"MergeLinears\", \"FuseBiasInLinear\"]", both);
    ck_signature("[[\"MergeLinears\"], [[\"FuseBiasInLinear\"]]]", both);
    ck_signature("[{\"name\": \"MergeLinears\", \"params\": {}, \"version\": 1}, \"FuseBiasInLinear\", []]", both);
    ck_signature("[{\"name\": \"MergeLinears\", \"version\": 1.0}, \"FuseBiasInLinear\"]", both);
    fb_composition turned = composition_of("[\"FuseBiasInLinear\", \"MergeLinears\"]");
    ck_assert_str_ne(turned.signature, both);
    fb_composition_free(&turned);
}
END_TEST

/* ---- rules --------------------------------------------------------------------------------------------------------------- */

static void ck_rules(const char *list, size_t count, bool reversible) {
    fb_composition composition = composition_of(list);
    ck_assert_uint_eq(composition.count, count);
    ck_assert_msg(composition.reversible == reversible, "%s", list);
    ck_assert(composition.preserves_computation);
    fb_composition_free(&composition);
}

START_TEST(test_reversible_iff_every_pass_is) {
    ck_rules("[\"MergeLinears\"]", 1, true);
    ck_rules("[\"FuseBatchNorm2dInConv2d\"]", 1, false);
    ck_rules("[\"FuseBatchNorm1dInLinear\"]", 1, false);
    ck_rules("[\"MergeLinears\", \"FuseBiasInLinear\", \"ChangeTrueDivToMulByInverse\", \"DeepCopy\", \"LintAndRecompile\"]", 5,
             true);
    ck_rules("[\"MergeLinears\", [\"DeepCopy\", [\"FuseBatchNorm1dInLinear\"]], \"FuseBiasInLinear\"]", 4, false);
}
END_TEST

START_TEST(test_lists_that_are_refused) {
    static const char *const cases[][3] = {
        {"[]", "no-passes", "/passes"},
        {"[[], [[]]]", "no-passes", "/passes"},
        {"\"MergeLinears\"", "wrong-type", "/passes"},
        {"[1]", "wrong-type", "/passes/0"},
        {"[\"MergeLinears\", null]", "wrong-type", "/passes/1"},
        {"[\"mergelinears\"]", "unknown-pass", "/passes/0"},
        {"[\"DeepCopy\", [\"DeepCopy\", \"Nope\"]]", "unknown-pass", "/passes/1/1"},
        {"[{\"name\": \"Nope\"}]", "unknown-pass", "/passes/0/name"},
        {"[{}]", "missing-member", "/passes/0"},
        {"[{\"name\": 1}]", "wrong-type", "/passes/0/name"},
        {"[{\"name\": \"DeepCopy\", \"params\": []}]", "wrong-type", "/passes/0/params"},
        {"[{\"name\": \"DeepCopy\", \"params\": {\"x\": 1}}]", "unknown-parameter", "/passes/0/params/x"},
        {"[{\"name\": \"DeepCopy\", \"version\": 2}]", "unknown-version", "/passes/0"},
        {"[{\"name\": \"DeepCopy\", \"version\": 0}]", "wrong-type", "/passes/0/version"},
        {"[{\"name\": \"DeepCopy\", \"version\": 1.5}]", "wrong-type", "/passes/0/version"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fb_composition composition = {0};
        fb_error error;
        ck_assert_msg(read_list(cases[i][0], &composition, &error) == FB_INVALID, "%s was accepted", cases[i][0]);
        ck_assert_msg(strcmp(error.code, cases[i][1]) == 0, "%s: %s", cases[i][0], error.code);
        /* The position may point further in, to the member at fault. */
        ck_assert_msg(strncmp(error.pointer, cases[i][2], strlen(cases[i][2])) == 0, "%s: %s", cases[i][0], error.pointer);
        ck_assert_ptr_null(composition.calls);
    }
}
END_TEST

START_TEST(test_too_many_and_too_deep) {
    fb_buffer list = {0};
    fb_error error;
    fb_composition composition;
    for (int extra = 0; extra <= 1; extra++) {
        list.size = 0;
        for (int i = 0; i < FB_MAX_PASSES + extra; i++) fb_buffer_string(&list, i ? ",\"cleanup\"" : "[[\"DeepCopy\"]");
        fb_buffer_char(&list, ']');
        fb_status status = read_from(A_CLIENT, fb_buffer_text(&list), &composition, &error);
        ck_assert_int_eq(status, extra ? FB_INVALID : FB_OK);
        if (!extra) ck_assert_uint_gt(composition.count, FB_MAX_PASSES);
        if (!extra) fb_composition_free(&composition);
        if (extra) ck_assert_str_eq(error.code, "too-many-passes");
        if (extra) ck_assert_str_eq(error.pointer, "/passes/100");
        /* What a store has is read whatever its length: rounds are written there one by one. */
        ck_assert_int_eq(read_list(fb_buffer_text(&list), &composition, &error), FB_OK);
        fb_composition_free(&composition);
    }
    list.size = 0;
    for (int i = 0; i < 80; i++) fb_buffer_char(&list, '[');
    for (int i = 0; i < 80; i++) fb_buffer_char(&list, ']');
    ck_assert_int_eq(read_list(fb_buffer_text(&list), &composition, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "nesting-too-deep");
    fb_buffer_free(&list);
}
END_TEST

START_TEST(test_written_and_read_again) {
    fb_composition composition = composition_of("[\"MergeLinears\", [{\"name\": \"FuseBiasInLinear\", \"params\": {}}]]");
    fb_buffer text = {0};
    fb_composition_write(&composition, &text);
    ck_assert_str_eq(fb_buffer_text(&text), "[{\"name\":\"MergeLinears\",\"version\":1,\"params\":{}},"
                                            "{\"name\":\"FuseBiasInLinear\",\"version\":1,\"params\":{}}]");
    fb_composition again = composition_of(fb_buffer_text(&text));
    ck_assert_str_eq(composition.signature, again.signature);
    fb_composition_free(&composition);
    fb_composition_free(&again);
    fb_buffer_free(&text);
}
END_TEST

/* ---- runs ---------------------------------------------------------------------------------------------------------------- */

static fb_graph *two_linears(void) {
    char *text = document_of(
        "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\",\"meta\":{\"shape\":[2,4],\"dtype\":\"float32\"}},"
        "{\"name\":\"q\",\"op\":\"call_module\",\"target\":\"q\",\"args\":[{\"$node\":\"x\"}]},"
        "{\"name\":\"k\",\"op\":\"call_module\",\"target\":\"k\",\"args\":[{\"$node\":\"x\"}]},"
        "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[[{\"$node\":\"q\"},{\"$node\":\"k\"}]]}",
        "{\"path\":\"\",\"type\":\"torch.nn.Module\"},"
        "{\"path\":\"q\",\"type\":\"torch.nn.Linear\",\"parameters\":{\"weight\":\"q.weight\",\"bias\":null},"
        "\"config\":{\"in_features\":4,\"out_features\":3,\"bias\":false}},"
        "{\"path\":\"k\",\"type\":\"torch.nn.Linear\",\"parameters\":{\"weight\":\"k.weight\",\"bias\":null},"
        "\"config\":{\"in_features\":4,\"out_features\":3,\"bias\":false}}",
        "{\"name\":\"q.weight\",\"dtype\":\"float32\",\"shape\":[3,4]},"
        "{\"name\":\"k.weight\",\"dtype\":\"float32\",\"shape\":[3,4]}");
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    return graph;
}

START_TEST(test_second_run_refuses_what_the_first_made) {
    fb_graph *graph = two_linears();
    fb_run first = run_on(graph, "[\"MergeLinears\"]"), second = run_on(first.result, "[\"MergeLinears\"]");
    char one[FB_ID_LENGTH + 1], two[FB_ID_LENGTH + 1];
    ck_assert_uint_eq(first.passes[0].applied, 1);
    ck_assert_uint_eq(first.passes[0].node_count, 1);
    ck_assert_str_eq(first.passes[0].nodes[0], "q_k_merged");
    ck_assert_uint_eq(second.passes[0].applied, 0);
    ck_assert_uint_eq(second.passes[0].refused_count, 1);
    ck_assert_str_eq(second.passes[0].refused->reason, "already-transformed");
    ck_assert(fb_document_id(first.result, one) && fb_document_id(second.result, two));
    ck_assert_str_eq(one, two);
    fb_run_free(&first);
    fb_run_free(&second);
    fb_graph_free(graph);
}
END_TEST

/* A graph that no pass changed keeps its id; every pass at once, in both orders, on fixtures that have nothing for them. */
START_TEST(test_unchanged_graph_keeps_its_id) {
    fb_graph *graph = two_linears();
    char before[FB_ID_LENGTH + 1], after[FB_ID_LENGTH + 1];
    fb_run run = run_on(graph, "[\"FuseBatchNorm1dInLinear\", \"FuseBatchNorm2dInConv2d\", \"ChangeTrueDivToMulByInverse\", "
                               "\"FuseBiasInLinear\", \"DeepCopy\", \"LintAndRecompile\"]");
    ck_assert(fb_document_id(graph, before) && fb_document_id(run.result, after));
    ck_assert_str_eq(before, after);
    ck_assert_ptr_nonnull(run.passes[4].detail);
    ck_assert_ptr_nonnull(run.passes[5].detail);
    fb_run_free(&run);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_report_as_json) {
    fb_graph *graph = two_linears();
    fb_run run = run_on(graph, "[\"MergeLinears\", \"MergeLinears\", \"DeepCopy\"]");
    fb_buffer text = {0};
    fb_run_report(&run, &(fb_work){0}, &text);
    ck_assert_ptr_nonnull(strstr(fb_buffer_text(&text), "\"name\":\"MergeLinears\",\"version\":1,\"params\":{},\"signature\":"
                                                        "\"b7e7e446c42ce08d52a07df4212c1a13\",\"reversible\":true,"
                                                        "\"exactness\":\"moves\",\"applied\":1,\"nodes\":[\"q_k_merged\"],"));
    ck_assert_ptr_nonnull(strstr(fb_buffer_text(&text), "\"inserted\":[\"q_k_merged\""));
    json_t *report = json_loads(fb_buffer_text(&text), JSON_REJECT_DUPLICATES, NULL);
    ck_assert_uint_eq(json_array_size(report), 3);
    ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(report, 0), "refused")), 0);
    const json_t *refused = json_object_get(json_array_get(report, 1), "refused");
    ck_assert_uint_eq(json_array_size(refused), 1);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(refused, 0), "reason")), "already-transformed");
    ck_assert_uint_gt(strlen(json_string_value(json_object_get(json_array_get(refused, 0), "detail"))), 10);
    ck_assert_ptr_nonnull(json_object_get(json_array_get(report, 2), "detail"));
    json_decref(report);
    fb_buffer_free(&text);
    fb_run_free(&run);
    fb_graph_free(graph);
}
END_TEST

/* ---- presets ------------------------------------------------------------------------------------------------------------- */

/* A copy, detach_ of it (of integers, which have no gradient to stop), and tanh of that. */
static fb_graph *detached_copy(void) {
    char *text = document_of(
        "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\",\"meta\":{\"shape\":[2,4],\"dtype\":\"int64\"}},"
        "{\"name\":\"a\",\"op\":\"call_function\",\"target\":\"torch.ops.aten.lift_fresh_copy.default\",\"args\":[{\"$node\":"
        "\"x\"}]},"
        "{\"name\":\"b\",\"op\":\"call_function\",\"target\":\"torch.ops.aten.detach_.default\",\"args\":[{\"$node\":\"a\"}]},"
        "{\"name\":\"c\",\"op\":\"call_function\",\"target\":\"torch.ops.aten.tanh.default\",\"args\":[{\"$node\":\"b\"}]},"
        "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"c\"}]}",
        NULL, "");
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    return graph;
}

START_TEST(test_presets_expand_to_rounds) {
    ck_rules("[\"cleanup\"]", 12, true);
    ck_rules("[[\"cleanup\"], \"DeepCopy\", {\"name\": \"cleanup\"}]", 25, true);
    for (size_t i = 0; fb_preset_at(i); i++) {
        char list[80];
        snprintf(list, sizeof list, "[\"%s\"]", fb_preset_at(i)->name);
        fb_composition composition = composition_of(list);
        ck_assert_uint_eq(composition.count % (size_t)fb_preset_at(i)->rounds, 0);
        ck_assert_ptr_null(fb_pass_find(fb_preset_at(i)->name));
        fb_composition_free(&composition);
    }
}
END_TEST

/* A second round finds the copy that detach_ was in the way of, and a third one nothing, so it is no part of the run. */
START_TEST(test_presets_end_where_nothing_changes) {
    fb_graph *graph = detached_copy();
    fb_composition composition = composition_of("[\"DeepCopy\", \"cleanup\", \"DeepCopy\"]");
    fb_run run;
    fb_error error = {0};
    fb_buffer list = {0};
    char one[FB_ID_LENGTH + 1], two[FB_ID_LENGTH + 1];
    ck_assert_int_eq(fb_composition_run(&composition, graph, FB_LINT_EACH, NULL, &run, &error), FB_OK);
    static const char *const names[] = {"DeepCopy",          "RemoveNoOps", "EliminateCommonSubexpressions",
                                        "EliminateDeadCode", "RemoveNoOps", "EliminateCommonSubexpressions",
                                        "EliminateDeadCode", "DeepCopy"};
    ck_assert_uint_eq(run.count, sizeof names / sizeof *names);
    for (size_t i = 0; i < run.count; i++) ck_assert_str_eq(run.passes[i].pass->name, names[i]);
    ck_assert_uint_eq(run.passes[4].applied, 1);
    ck_assert_int_eq(fb_composition_settle(&composition, &run, &error), FB_OK);
    ck_assert_uint_eq(composition.count, run.count);
    fb_composition_write(&composition, &list);
    fb_composition again = composition_of(fb_buffer_text(&list));
    ck_assert_str_eq(again.signature, composition.signature);
    fb_run second = run_on(graph, fb_buffer_text(&list));
    ck_assert_uint_eq(second.count, run.count);
    ck_assert(fb_document_id(run.result, one) && fb_document_id(second.result, two));
    ck_assert_str_eq(one, two);
    fb_composition_free(&again);
    fb_composition_free(&composition);
    fb_run_free(&run);
    fb_run_free(&second);
    fb_buffer_free(&list);
    fb_graph_free(graph);
}
END_TEST

/* Nor does it leave anything in the report of what comes behind the preset. */
START_TEST(test_rounds_that_do_nothing_report_nothing) {
    char *text =
        document_of("{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\",\"meta\":{\"shape\":[2,3],\"dtype\":\"float32\"}},"
                    "{\"name\":\"dead\",\"op\":\"call_function\",\"target\":\"torch.tanh\",\"args\":[{\"$node\":\"x\"}]},"
                    "{\"name\":\"check\",\"op\":\"call_function\",\"target\":\"torch._assert\",\"args\":[true,\"\"]},"
                    "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"x\"}]}",
                    NULL, "");
    fb_graph *graph = graph_of(text, strlen(text));
    fb_run run = run_on(graph, "[\"cleanup\", \"MergeLinears\"]");
    ck_assert_uint_eq(run.count, 4);
    ck_assert_uint_eq(run.passes[0].refused_count, 1); /* the assertion */
    ck_assert_uint_eq(run.passes[3].refused_count, 0);
    ck_assert_ptr_null(run.passes[3].refused);
    fb_run_free(&run);
    fb_graph_free(graph);
    free(text);
}
END_TEST

START_TEST(test_parameters_fit_their_schema) {
    static const char *const cases[][4] = {
        {"{\"asserts\": 1}", "wrong-type", "/passes/0/params/asserts", "RemoveNoOps takes true or false as \"asserts\""},
        {"{\"asserts\": \"true\"}", "wrong-type", "/passes/0/params/asserts", "RemoveNoOps takes true or false as \"asserts\""},
        {"{\"asserts\": null}", "wrong-type", "/passes/0/params/asserts", "RemoveNoOps takes true or false as \"asserts\""},
        {"{\"a/b\": true}", "unknown-parameter", "/passes/0/params/a~1b", "RemoveNoOps has no parameter \"a/b\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char list[120];
        snprintf(list, sizeof list, "[{\"name\": \"RemoveNoOps\", \"params\": %s}]", cases[i][0]);
        fb_composition composition = {0};
        fb_error error;
        ck_assert_int_eq(read_list(list, &composition, &error), FB_INVALID);
        ck_assert_str_eq(error.code, cases[i][1]);
        ck_assert_str_eq(error.pointer, cases[i][2]);
        ck_assert_str_eq(error.message, cases[i][3]);
    }
    fb_composition composition = composition_of("[{\"name\": \"RemoveNoOps\", \"params\": {\"asserts\": true}}]");
    ck_assert_str_eq(composition.calls[0].params, "{\"asserts\":true}");
    fb_composition_free(&composition);
}
END_TEST

int main(void) {
    TCase *rules = tcase_create("rules");
    tcase_add_test(rules, test_signatures_of_passes);
    tcase_add_test(rules, test_signatures_of_parameters);
    tcase_add_test(rules, test_order_of_parameters_is_nothing);
    tcase_add_test(rules, test_signatures_of_compositions);
    tcase_add_test(rules, test_reversible_iff_every_pass_is);
    tcase_add_test(rules, test_lists_that_are_refused);
    tcase_add_test(rules, test_too_many_and_too_deep);
    tcase_add_test(rules, test_written_and_read_again);
    tcase_add_test(rules, test_second_run_refuses_what_the_first_made);
    tcase_add_test(rules, test_unchanged_graph_keeps_its_id);
    tcase_add_test(rules, test_report_as_json);
    tcase_add_test(rules, test_presets_expand_to_rounds);
    tcase_add_test(rules, test_presets_end_where_nothing_changes);
    tcase_add_test(rules, test_rounds_that_do_nothing_report_nothing);
    tcase_add_test(rules, test_parameters_fit_their_schema);
    tcase_set_timeout(rules, 600);
    return run_tests("compose", rules);
}
