/* The store: what is put comes back, also after reopening; lists, deletion, answers. Threads and faults: test_store_faults.c.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/ulid.h"
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

static void check_error(fb_status status, fb_status expected, const char *code) {
    ck_assert_int_eq(status, expected);
    ck_assert_int_eq(error.status, expected);
    ck_assert_str_eq(error.code, code);
    ck_assert_str_ne(error.message, "");
    error = (fb_error){0};
}

static void check_ok(fb_status status) {
    ck_assert_msg(status == FB_OK, "%s: %s", error.code, error.message);
}

/* ---- graphs ---- */

START_TEST(a_graph_comes_back) {
    made_graph made;
    make_graph(&made, 7, 5000);
    bool is_new = false;
    check_ok(fb_store_put_graph(store, &made.graph, NULL, &is_new, &error));
    ck_assert(is_new);
    check_ok(fb_store_put_graph(store, &made.graph, NULL, &is_new, &error));
    ck_assert(!is_new);
    ck_assert_double_eq(metric(store, "graphs"), 1);
    for (int round = 0; round < 2; round++) {
        char *document = NULL;
        size_t size = 0;
        check_ok(fb_store_get_document(store, made.id, &document, &size, &error));
        ck_assert_uint_eq(size, made.graph.size);
        ck_assert_mem_eq(document, made.document, size);
        ck_assert_int_eq(document[size], '\0');
        free(document);
        fb_store_summary summary;
        check_ok(fb_store_get_graph(store, made.id, &summary, &error));
        ck_assert_str_eq(summary.id, made.id);
        ck_assert_str_eq(summary.structure, made.structure);
        ck_assert_str_eq(summary.name, "model 1");
        ck_assert_uint_eq(summary.node_count, 7);
        ck_assert_uint_eq(summary.size, made.graph.size);
        ck_assert_int_eq(summary.created, 1700000000000);
        fb_store_summary_free(&summary);
        reopen();
    }
    ck_assert_double_eq(metric(store, "graphs"), 1);
    free_graph(&made);
}
END_TEST

START_TEST(unknown_graphs_are_not_found) {
    char *document = NULL;
    size_t size = 0, count = 0;
    uint32_t *nodes = NULL;
    fb_store_summary summary;
    fb_store_signatures signatures;
    check_error(fb_store_get_document(store, "sha256:0", &document, &size, &error), FB_NOT_FOUND, "unknown-graph");
    check_error(fb_store_get_graph(store, "sha256:0", &summary, &error), FB_NOT_FOUND, "unknown-graph");
    check_error(fb_store_delete_graph(store, "sha256:0", NULL, &error), FB_NOT_FOUND, "unknown-graph");
    check_error(fb_store_graph_signatures(store, "sha256:0", &signatures, &error), FB_NOT_FOUND, "unknown-graph");
    check_error(fb_store_marked_nodes(store, "sha256:0", "s1", 0, 0, &nodes, &count, &error), FB_NOT_FOUND, "unknown-graph");
}
END_TEST

START_TEST(an_empty_document_comes_back) {
    made_graph made;
    make_graph(&made, 1, 0);
    made.graph.document = "";
    made.graph.size = 0;
    check_ok(fb_store_put_graph(store, &made.graph, NULL, NULL, &error));
    char *document = NULL;
    size_t size = 9;
    check_ok(fb_store_get_document(store, made.id, &document, &size, &error));
    ck_assert_uint_eq(size, 0);
    free(document);
    free_graph(&made);
}
END_TEST

START_TEST(marks_are_found_by_signature) {
    made_graph made;
    make_graph(&made, 1, 0);
    check_ok(fb_store_put_graph(store, &made.graph, NULL, NULL, &error));
    uint32_t *nodes = NULL;
    size_t count = 0;
    check_ok(fb_store_marked_nodes(store, made.id, "s1", 0, 0, &nodes, &count, &error));
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(nodes[0], 1);
    ck_assert_uint_eq(nodes[1], 4);
    free(nodes);
    check_ok(fb_store_marked_nodes(store, made.id, "s1", 2, 0, &nodes, &count, &error));
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(nodes[0], 4);
    free(nodes);
    check_ok(fb_store_marked_nodes(store, made.id, "s1", 0, 1, &nodes, &count, &error));
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(nodes[0], 1);
    free(nodes);
    check_ok(fb_store_marked_nodes(store, made.id, "no such", 0, 0, &nodes, &count, &error));
    ck_assert_uint_eq(count, 0);
    ck_assert_ptr_null(nodes);

    fb_store_signatures signatures;
    check_ok(fb_store_graph_signatures(store, made.id, &signatures, &error));
    ck_assert_uint_eq(signatures.count, 2);
    ck_assert_str_eq(signatures.items[0].signature, "s1");
    ck_assert_uint_eq(signatures.items[0].nodes, 2);
    ck_assert_str_eq(signatures.items[1].signature, "s2");
    ck_assert_uint_eq(signatures.items[1].nodes, 1);
    fb_store_signatures_free(&signatures);
    free_graph(&made);
}
END_TEST

static void put_graphs(unsigned from, unsigned to) {
    for (unsigned number = from; number < to; number++) {
        made_graph made;
        make_graph(&made, number, 0);
        check_ok(fb_store_put_graph(store, &made.graph, NULL, NULL, &error));
        free_graph(&made);
    }
}

START_TEST(graphs_are_listed_in_pages_while_more_come) {
    put_graphs(0, 25);
    fb_store_page page = {.limit = 10};
    char token[FB_PAGE_TOKEN_LENGTH + 1] = "";
    unsigned expected = 25, pages = 0;
    do {
        fb_store_summaries list;
        check_ok(fb_store_list_graphs(store, NULL, NULL, &page, &list, &error));
        for (size_t i = 0; i < list.count; i++) ck_assert_uint_eq(list.items[i].node_count, --expected);
        snprintf(token, sizeof token, "%s", list.next_token);
        page.token = token;
        fb_store_summaries_free(&list);
        put_graphs(100 + 10 * pages, 110 + 10 * pages);
        pages++;
    } while (token[0]);
    ck_assert_uint_eq(expected, 0);
    ck_assert_uint_eq(pages, 3);
}
END_TEST

START_TEST(graphs_are_filtered_by_structure_and_name) {
    put_graphs(0, 9);
    made_graph made;
    make_graph(&made, 1, 0);
    fb_store_summaries list;
    check_ok(fb_store_list_graphs(store, made.structure, NULL, NULL, &list, &error));
    ck_assert_uint_eq(list.count, 3);
    ck_assert_uint_eq(list.items[0].node_count, 7);
    ck_assert_str_eq(list.next_token, "");
    fb_store_summaries_free(&list);
    check_ok(fb_store_list_graphs(store, made.structure, "model 1", NULL, &list, &error));
    ck_assert_uint_eq(list.count, 3);
    fb_store_summaries_free(&list);
    check_ok(fb_store_list_graphs(store, made.structure, "model 2", NULL, &list, &error));
    ck_assert_uint_eq(list.count, 0);
    fb_store_summaries_free(&list);
    check_ok(fb_store_list_graphs(store, NULL, "model 2", &(fb_store_page){.limit = 2}, &list, &error));
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_ne(list.next_token, "");
    fb_store_page page = {.token = list.next_token};
    fb_store_summaries rest;
    check_error(fb_store_list_graphs(store, NULL, "model 1", &page, &rest, &error), FB_INVALID, "bad-page-token");
    check_ok(fb_store_list_graphs(store, NULL, "model 2", &page, &rest, &error));
    ck_assert_uint_eq(rest.count, 1);
    fb_store_summaries_free(&rest);
    fb_store_summaries_free(&list);
    page.token = "0000000000000001ffffffff";
    check_error(fb_store_list_graphs(store, NULL, NULL, &page, &rest, &error), FB_INVALID, "bad-page-token");
    page.token = "nonsense";
    check_error(fb_store_list_graphs(store, NULL, NULL, &page, &rest, &error), FB_INVALID, "bad-page-token");
    free_graph(&made);
}
END_TEST

START_TEST(a_graph_in_use_is_not_deleted) {
    made_graph source, result;
    make_graph(&source, 1, 0);
    make_graph(&result, 2, 0);
    fb_store_run last = {0};
    for (int i = 0; i < 12; i++) {
        last = make_run(store, &source, &result);
        put_run(store, &last, &source, &result);
    }
    fb_store_users users = {0};
    check_error(fb_store_delete_graph(store, result.id, &users, &error), FB_CONFLICT, "graph-in-use");
    ck_assert_uint_eq(users.count, FB_USERS_MAX);
    ck_assert_uint_eq(users.total, 12);
    ck_assert_str_eq(users.runs[0], last.id);
    check_error(fb_store_delete_graph(store, source.id, NULL, &error), FB_CONFLICT, "graph-in-use");
    put_graphs(3, 4);
    made_graph free_one;
    make_graph(&free_one, 3, 0);
    check_ok(fb_store_delete_graph(store, free_one.id, &users, &error));
    ck_assert_uint_eq(users.total, 0);
    ck_assert_double_eq(metric(store, "graphs"), 2);
    fb_store_summary summary;
    check_error(fb_store_get_graph(store, free_one.id, &summary, &error), FB_NOT_FOUND, "unknown-graph");
    bool is_new = false;
    check_ok(fb_store_put_graph(store, &free_one.graph, NULL, &is_new, &error));
    ck_assert(is_new);
    free_graph(&free_one);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

/* ---- runs ---- */

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
    check_ok(fb_store_get_run(store, run.id, &back, &error));
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
    fb_store_run_free(&back);
    check_ok(fb_store_get_run(store, undo.id, &back, &error));
    ck_assert_str_eq(back.of_run, run.id);
    ck_assert(back.is_exact);
    ck_assert_ptr_null(back.note);
    fb_store_run_free(&back);

    check_error(fb_store_get_run(store, "run_none", &back, &error), FB_NOT_FOUND, "unknown-run");
    check_error(fb_store_put_run(store, &run, NULL, 0, NULL, &error), FB_CONFLICT, "run-exists");
    fb_store_run lost = make_run(store, &source, &result);
    lost.of_run = "run_none";
    check_error(fb_store_put_run(store, &lost, NULL, 0, NULL, &error), FB_NOT_FOUND, "unknown-run");
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
    check_error(fb_store_put_run(store, &run, &result.graph, 1, NULL, &error), FB_NOT_FOUND, "unknown-graph");
    fb_store_summary summary;
    check_error(fb_store_get_graph(store, result.id, &summary, &error), FB_NOT_FOUND, "unknown-graph");
    ck_assert_double_eq(metric(store, "graphs"), 0);
    ck_assert_double_eq(metric(store, "failed_writes_total"), 1);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

static size_t count_runs(const fb_store_run_filter *filter) {
    fb_store_runs list;
    check_ok(fb_store_list_runs(store, filter, NULL, false, &list, &error));
    size_t count = list.count;
    for (size_t i = 0; i < count; i++) {
        ck_assert_ptr_null(list.items[i].report);
        ck_assert_uint_eq(list.items[i].pass_count, strcmp(list.items[i].kind, "rollback") == 0 ? 1 : 2);
    }
    fb_store_runs_free(&list);
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
    check_error(fb_store_list_runs(store, &(f){.label_count = 17}, NULL, false, &list, &error), FB_TOO_LARGE,
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
        check_ok(fb_store_list_runs(store, &filter, &page, true, &list, &error));
        for (size_t i = 0; i < list.count; i++) {
            ck_assert_str_eq(list.items[i].id, ids[--left]);
            ck_assert_ptr_nonnull(list.items[i].report);
        }
        memcpy(token, list.next_token, sizeof token);
        page.token = token;
        fb_store_runs_free(&list);
        fb_store_run more = make_run(store, &source, &result);
        put_run(store, &more, &source, &result);
    } while (token[0]);
    ck_assert_int_eq(left, 0);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

START_TEST(ulids_ascend) {
    fb_ulid_source source = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    char last[FB_ULID_LENGTH + 1] = "", next[FB_ULID_LENGTH + 1];
    for (int i = 0; i < 10000; i++) {
        int64_t now = i % 7 == 0 ? 1469918176385 - i : 1469918176385 + i / 10; /* the clock also goes back */
        check_ok(fb_ulid_next(&source, now, next, &error));
        ck_assert_uint_eq(strlen(next), FB_ULID_LENGTH);
        ck_assert_uint_eq(strspn(next, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"), FB_ULID_LENGTH);
        ck_assert_int_gt(strcmp(next, last), 0);
        if (i == 0) ck_assert_int_eq(strncmp(next, "01ARYZ6S41", 10), 0); /* the specification's example */
        memcpy(last, next, sizeof last);
    }
    fb_ulid_source full = {.mutex = PTHREAD_MUTEX_INITIALIZER, .last_ms = 1469918176385};
    memset(full.random, 0xff, sizeof full.random);
    check_ok(fb_ulid_next(&full, 0, next, &error));
    ck_assert_str_eq(next, "01ARYZ6S420000000000000000");
}
END_TEST

/* ---- answers ---- */

static fb_store_answer make_answer(void) {
    return (fb_store_answer){.scope = "POST /v1/graphs",
                             .key = "k1",
                             .request_digest = "d1",
                             .status = 201,
                             .location = "/v1/graphs/x",
                             .body = "{\"id\":\"x\"}",
                             .body_size = 10};
}

START_TEST(a_repeated_request_is_answered_from_the_store) {
    made_graph made;
    make_graph(&made, 1, 0);
    fb_store_answer answer = make_answer(), back;
    fb_store_repeat repeat;
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d1", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d1", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_STILL_RUNNING);
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d2", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_ANOTHER_REQUEST);
    check_ok(fb_store_begin_request(store, "POST /v1/optimize", "k1", "d1", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    fb_store_end_request(store, "POST /v1/optimize", "k1");
    check_ok(fb_store_put_graph(store, &made.graph, &answer, NULL, &error));
    fb_store_end_request(store, answer.scope, "k1");
    reopen();
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d1", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_REPEATED);
    ck_assert_str_eq(back.scope, answer.scope);
    ck_assert_str_eq(back.key, "k1");
    ck_assert_str_eq(back.request_digest, "d1");
    ck_assert_int_eq(back.status, 201);
    ck_assert_str_eq(back.location, "/v1/graphs/x");
    ck_assert_uint_eq(back.body_size, 10);
    ck_assert_str_eq(back.body, "{\"id\":\"x\"}");
    fb_store_answer_free(&back);
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d2", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_ANOTHER_REQUEST);
    free_graph(&made);
}
END_TEST

START_TEST(an_answer_of_a_failed_write_is_not_kept) {
    made_graph source, result;
    make_graph(&source, 1, 0);
    make_graph(&result, 2, 0);
    fb_store_answer answer = make_answer(), back;
    fb_store_repeat repeat;
    fb_store_run run = make_run(store, &source, &result);
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d1", &repeat, &back, &error));
    check_error(fb_store_put_run(store, &run, &result.graph, 1, &answer, &error), FB_NOT_FOUND, "unknown-graph");
    fb_store_end_request(store, answer.scope, "k1");
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d1", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    answer.body = NULL;
    answer.location = NULL;
    check_ok(fb_store_put_run(store, &run, (fb_store_graph[]){source.graph, result.graph}, 2, &answer, &error));
    fb_store_end_request(store, answer.scope, "k1");
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d1", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_REPEATED);
    ck_assert_ptr_null(back.body);
    ck_assert_ptr_null(back.location);
    fb_store_answer_free(&back);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

START_TEST(an_answer_is_forgotten_after_a_day) {
    made_graph made;
    make_graph(&made, 1, 0);
    fb_store_answer answer = make_answer(), back;
    fb_store_repeat repeat;
    check_ok(fb_store_put_graph(store, &made.graph, &answer, NULL, &error));
    test_time += 24 * 3600 * 1000 - 1;
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d1", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_REPEATED);
    fb_store_answer_free(&back);
    test_time += 1;
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d2", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    answer.request_digest = "d2"; /* takes the place of the old one, which has not been cleaned up */
    check_ok(fb_store_put_graph(store, &made.graph, &answer, NULL, &error));
    fb_store_end_request(store, answer.scope, "k1");
    check_ok(fb_store_begin_request(store, answer.scope, "k1", "d2", &repeat, &back, &error));
    ck_assert_int_eq(repeat, FB_REPEATED);
    fb_store_answer_free(&back);
    free_graph(&made);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("store");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_graph_comes_back);
    tcase_add_test(tests, unknown_graphs_are_not_found);
    tcase_add_test(tests, an_empty_document_comes_back);
    tcase_add_test(tests, marks_are_found_by_signature);
    tcase_add_test(tests, graphs_are_listed_in_pages_while_more_come);
    tcase_add_test(tests, graphs_are_filtered_by_structure_and_name);
    tcase_add_test(tests, a_graph_in_use_is_not_deleted);
    tcase_add_test(tests, a_run_comes_back);
    tcase_add_test(tests, a_run_that_fails_stores_nothing);
    tcase_add_test(tests, runs_are_found_by_every_filter);
    tcase_add_test(tests, runs_are_listed_in_pages_while_more_come);
    tcase_add_test(tests, ulids_ascend);
    tcase_add_test(tests, a_repeated_request_is_answered_from_the_store);
    tcase_add_test(tests, an_answer_of_a_failed_write_is_not_kept);
    tcase_add_test(tests, an_answer_is_forgotten_after_a_day);
    Suite *suite = suite_create("store");
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
