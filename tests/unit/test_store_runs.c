/* Runs in the store: they come back whole, and are found by every filter and in pages. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/store_fixture.h"

static char folder[512];
static fb_store *store;
static fb_error error;

static int64_t test_time;
static int64_t test_now(void) {
    return test_time;
}

static void setup(void) {
    test_time = 1700000000000;
    error = (fb_error){0};
    snprintf(folder, sizeof folder, "%s", new_folder());
    store = open_store(folder, &(fb_store_config){.now_ms = test_now});
}

static void teardown(void) {
    fb_store_close(store);
    remove_folder(folder);
}

static void reopen(void) {
    fb_store_close(store);
    store = open_store(folder, &(fb_store_config){.now_ms = test_now});
}

START_TEST(a_run_comes_back) {
    made_graph source, result;
    make_graph(&source, 1, 0);
    make_graph(&result, 2, 0);
    fb_store_label labels[] = {{"team", "search"}, {"env", "prod"}};
    fb_store_run run = make_run(store, &source, &result);
    run.note = "a note";
    run.labels = labels;
    run.label_count = 2;
    put_run(store, &run, &source, &result);
    fb_store_run undo = make_run(store, &result, &source);
    undo.kind = "reverse";
    undo.of_run = run.id;
    undo.is_exact = true;
    put_run(store, &undo, &result, &source);
    reopen();
    ck_assert_double_eq(metric(store, "runs"), 2);

    fb_store_run back;
    check_ok(fb_store_get_run(store, run.id, &back, &error), &error);
    ck_assert_str_eq(back.id, run.id);
    ck_assert_int_eq(back.created, 1700000000000);
    ck_assert_str_eq(back.kind, "optimize");
    ck_assert_str_eq(back.source, source.id);
    ck_assert_str_eq(back.result, result.id);
    ck_assert_ptr_null(back.of_run);
    ck_assert_str_eq(back.signature, "composition");
    ck_assert(!back.is_exact && back.is_reversible && back.preserves_computation);
    ck_assert_str_eq(back.lint, "passed");
    ck_assert_str_eq(back.note, "a note");
    ck_assert_str_eq(back.request, run.request);
    ck_assert_str_eq(back.report, run.report);
    ck_assert_uint_eq(back.pass_count, 2);
    ck_assert_str_eq(back.passes[0].name, "MergeLinears");
    ck_assert_str_eq(back.passes[0].signature, "s1");
    ck_assert_uint_eq(back.passes[0].version, 1);
    ck_assert_uint_eq(back.passes[0].applied, 2);
    ck_assert_uint_eq(back.passes[0].refused, 1);
    ck_assert_str_eq(back.passes[1].name, "FuseBiasInLinear");
    ck_assert_uint_eq(back.label_count, 2);
    ck_assert_str_eq(back.labels[0].key, "env");
    ck_assert_str_eq(back.labels[1].value, "search");
    FB_STORE_FREE(&back);
    check_ok(fb_store_get_run(store, undo.id, &back, &error), &error);
    ck_assert_str_eq(back.of_run, run.id);
    ck_assert(back.is_exact);
    ck_assert_ptr_null(back.note);
    FB_STORE_FREE(&back);

    check_error(fb_store_get_run(store, "run_none", &back, &error), &error, FB_NOT_FOUND, "unknown-run");
    check_error(fb_store_put_run(store, &run, NULL, 0, NULL, &error), &error, FB_CONFLICT, "run-exists");
    fb_store_run lost = make_run(store, &source, &result);
    lost.of_run = "run_none";
    check_error(fb_store_put_run(store, &lost, NULL, 0, NULL, &error), &error, FB_NOT_FOUND, "unknown-run");
    ck_assert_double_eq(metric(store, "runs"), 2);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

START_TEST(a_run_that_fails_stores_nothing) {
    made_graph source, result;
    make_graph(&source, 1, 0);
    make_graph(&result, 2, 0);
    fb_store_run run = make_run(store, &source, &result);
    check_error(fb_store_put_run(store, &run, &result.graph, 1, NULL, &error), &error, FB_NOT_FOUND, "unknown-graph");
    fb_store_summary summary;
    check_error(fb_store_get_graph(store, result.id, &summary, &error), &error, FB_NOT_FOUND, "unknown-graph");
    ck_assert_double_eq(metric(store, "graphs"), 0);
    ck_assert_double_eq(metric(store, "failed_writes_total"), 1);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

static size_t count_runs(const fb_store_run_filter *filter) {
    fb_store_runs list;
    check_ok(fb_store_list_runs(store, filter, NULL, false, &list, &error), &error);
    size_t count = list.count;
    for (size_t i = 0; i < count; i++) {
        ck_assert_ptr_null(list.items[i].report);
        ck_assert_uint_eq(list.items[i].pass_count, strcmp(list.items[i].kind, "rollback") == 0 ? 1 : 2);
    }
    FB_STORE_FREE(&list);
    return count;
}

START_TEST(runs_are_found_by_every_filter) {
    made_graph graphs[6];
    for (unsigned i = 0; i < 6; i++) make_graph(&graphs[i], i, 0);
    static const fb_store_pass one_pass[] = {{.name = "DeepCopy", .version = 1, .signature = "s3"}};
    fb_store_label labels[] = {{"env", "prod"}, {"team", "a"}};
    fb_store_run first = {0};
    for (unsigned i = 0; i < 12; i++) { /* results 1 to 5; every fourth a rollback of the first; labels by i % 2 and i % 3 */
        fb_store_run run = make_run(store, &graphs[0], &graphs[1 + i % 5]);
        if (i == 0) first = run;
        if (i % 4 == 3) {
            run.kind = "rollback";
            run.of_run = first.id;
            run.signature = "another";
            run.passes = one_pass;
            run.pass_count = 1;
        }
        labels[0].value = i % 2 ? "prod" : "test";
        run.labels = labels;
        run.label_count = i % 3 ? 2 : 1;
        put_run(store, &run, &graphs[0], &graphs[1 + i % 5]);
    }
    typedef fb_store_run_filter f;
    ck_assert_uint_eq(count_runs(NULL), 12);
    ck_assert_uint_eq(count_runs(&(f){.source = graphs[0].id}), 12);
    ck_assert_uint_eq(count_runs(&(f){.source = graphs[1].id}), 0);
    ck_assert_uint_eq(count_runs(&(f){.source = "sha256:none"}), 0);
    ck_assert_uint_eq(count_runs(&(f){.result = graphs[1].id}), 3);
    ck_assert_uint_eq(count_runs(&(f){.result = graphs[3].id}), 2);
    ck_assert_uint_eq(count_runs(&(f){.kind = "rollback"}), 3);
    ck_assert_uint_eq(count_runs(&(f){.kind = "optimize", .result = graphs[4].id}), 1);
    ck_assert_uint_eq(count_runs(&(f){.of_run = first.id}), 3);
    ck_assert_uint_eq(count_runs(&(f){.composition = "another"}), 3);
    ck_assert_uint_eq(count_runs(&(f){.composition = "another", .kind = "optimize"}), 0);
    ck_assert_uint_eq(count_runs(&(f){.pass = "FuseBiasInLinear"}), 9);
    ck_assert_uint_eq(count_runs(&(f){.pass = "DeepCopy"}), 3);
    ck_assert_uint_eq(count_runs(&(f){.signatures = (const char *[]){"s2"}, .signature_count = 1}), 9);
    ck_assert_uint_eq(count_runs(&(f){.signatures = (const char *[]){"s1", "s2", "none"}, .signature_count = 3}), 9);
    ck_assert_uint_eq(count_runs(&(f){.signatures = (const char *[]){"s3", "s2"}, .signature_count = 2}), 12);
    ck_assert_uint_eq(count_runs(&(f){.signatures = (const char *[]){"s3", "s2"}, .signature_count = 2, .pass = "DeepCopy"}),
                      3);
    ck_assert_uint_eq(count_runs(&(f){.labels = (fb_store_label[]){{"env", "prod"}}, .label_count = 1}), 6);
    ck_assert_uint_eq(count_runs(&(f){.labels = (fb_store_label[]){{"team", NULL}}, .label_count = 1}), 8);
    ck_assert_uint_eq(count_runs(&(f){.labels = (fb_store_label[]){{"team", "a"}, {"env", "prod"}}, .label_count = 2}), 4);
    ck_assert_uint_eq(count_runs(&(f){.labels = (fb_store_label[]){{"env", "prod"}}, .label_count = 1, .kind = "rollback"}), 3);
    fb_store_runs list;
    check_error(fb_store_list_runs(store, &(f){.label_count = 17}, NULL, false, &list, &error), &error, FB_TOO_LARGE,
                "too-many-filters");
    for (unsigned i = 0; i < 6; i++) free_graph(&graphs[i]);
}
END_TEST

START_TEST(runs_are_listed_in_pages_while_more_come) {
    made_graph source, result;
    make_graph(&source, 1, 0);
    make_graph(&result, 2, 0);
    char ids[10][FB_RUN_ID_LENGTH + 1];
    for (int i = 0; i < 10; i++) {
        fb_store_run run = make_run(store, &source, &result);
        put_run(store, &run, &source, &result);
        memcpy(ids[i], run.id, sizeof ids[i]);
    }
    fb_store_run_filter filter = {.pass = "MergeLinears", .kind = "optimize"};
    fb_store_page page = {.limit = 4};
    char token[FB_PAGE_TOKEN_LENGTH + 1] = "";
    int left = 10;
    do {
        fb_store_runs list;
        check_ok(fb_store_list_runs(store, &filter, &page, true, &list, &error), &error);
        for (size_t i = 0; i < list.count; i++) {
            ck_assert_str_eq(list.items[i].id, ids[--left]);
            ck_assert_ptr_nonnull(list.items[i].report);
        }
        memcpy(token, list.next_token, sizeof token);
        page.token = token;
        FB_STORE_FREE(&list);
        fb_store_run more = make_run(store, &source, &result);
        put_run(store, &more, &source, &result);
    } while (token[0]);
    ck_assert_int_eq(left, 0);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("runs");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, a_run_comes_back);
    tcase_add_test(tests, a_run_that_fails_stores_nothing);
    tcase_add_test(tests, runs_are_found_by_every_filter);
    tcase_add_test(tests, runs_are_listed_in_pages_while_more_come);
    return run_tests("store_runs", tests);
}
