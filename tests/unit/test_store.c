/* The store: what is put comes back, also after reopening; lists, deletion, answers. Threads and faults: test_store_faults.c.
 */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/database/ulid.h"
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

/* ---- graphs ---- */

START_TEST(a_graph_comes_back) {
    made_graph made;
    make_graph(&made, 7, 5000);
    bool is_new = false;
    check_ok(fb_store_put_graph(store, &made.graph, NULL, &is_new, &error), &error);
    ck_assert(is_new);
    check_ok(fb_store_put_graph(store, &made.graph, NULL, &is_new, &error), &error);
    ck_assert(!is_new);
    ck_assert_double_eq(metric(store, "graphs"), 1);
    for (int round = 0; round < 2; round++) {
        char *document = NULL;
        size_t size = 0;
        check_ok(fb_store_get_document(store, made.id, &document, &size, &error), &error);
        ck_assert_uint_eq(size, made.graph.size);
        ck_assert_mem_eq(document, made.document, size);
        ck_assert_int_eq(document[size], '\0');
        free(document);
        fb_store_summary summary;
        check_ok(fb_store_get_graph(store, made.id, &summary, &error), &error);
        ck_assert_str_eq(summary.id, made.id);
        ck_assert_str_eq(summary.structure, made.structure);
        ck_assert_str_eq(summary.name, "model 1");
        ck_assert_uint_eq(summary.node_count, 7);
        ck_assert_uint_eq(summary.size, made.graph.size);
        ck_assert_int_eq(summary.created, 1700000000000);
        FB_STORE_FREE(&summary);
        reopen();
    }
    ck_assert_double_eq(metric(store, "graphs"), 1);
    free_graph(&made);
}
END_TEST

START_TEST(unknown_graphs_are_not_found) {
    char *document = NULL;
    size_t size = 0;
    fb_store_summary summary;
    fb_store_signatures signatures;
    check_error(fb_store_get_document(store, "sha256:0", &document, &size, &error), &error, FB_NOT_FOUND, "unknown-graph");
    check_error(fb_store_get_graph(store, "sha256:0", &summary, &error), &error, FB_NOT_FOUND, "unknown-graph");
    check_error(fb_store_delete_graph(store, "sha256:0", NULL, NULL, &error), &error, FB_NOT_FOUND, "unknown-graph");
    check_error(fb_store_graph_signatures(store, "sha256:0", &signatures, &error), &error, FB_NOT_FOUND, "unknown-graph");
}
END_TEST

START_TEST(an_empty_document_comes_back) {
    made_graph made;
    make_graph(&made, 1, 0);
    made.graph.document = "";
    made.graph.size = 0;
    check_ok(fb_store_put_graph(store, &made.graph, NULL, NULL, &error), &error);
    char *document = NULL;
    size_t size = 9;
    check_ok(fb_store_get_document(store, made.id, &document, &size, &error), &error);
    ck_assert_uint_eq(size, 0);
    free(document);
    free_graph(&made);
}
END_TEST

START_TEST(marks_are_counted_by_signature) {
    made_graph made;
    make_graph(&made, 1, 0);
    check_ok(fb_store_put_graph(store, &made.graph, NULL, NULL, &error), &error);
    fb_store_signatures signatures;
    check_ok(fb_store_graph_signatures(store, made.id, &signatures, &error), &error);
    ck_assert_uint_eq(signatures.count, 2);
    ck_assert_str_eq(signatures.items[0].signature, "s1");
    ck_assert_uint_eq(signatures.items[0].nodes, 2);
    ck_assert_str_eq(signatures.items[1].signature, "s2");
    ck_assert_uint_eq(signatures.items[1].nodes, 1);
    FB_STORE_FREE(&signatures);
    free_graph(&made);
}
END_TEST

static void put_graphs(unsigned from, unsigned to) {
    for (unsigned number = from; number < to; number++) {
        made_graph made;
        make_graph(&made, number, 0);
        check_ok(fb_store_put_graph(store, &made.graph, NULL, NULL, &error), &error);
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
        check_ok(fb_store_list_graphs(store, NULL, NULL, &page, &list, &error), &error);
        for (size_t i = 0; i < list.count; i++) ck_assert_uint_eq(list.items[i].node_count, --expected);
        snprintf(token, sizeof token, "%s", list.next_token);
        page.token = token;
        FB_STORE_FREE(&list);
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
    check_ok(fb_store_list_graphs(store, made.structure, NULL, NULL, &list, &error), &error);
    ck_assert_uint_eq(list.count, 3);
    ck_assert_uint_eq(list.items[0].node_count, 7);
    ck_assert_str_eq(list.next_token, "");
    FB_STORE_FREE(&list);
    check_ok(fb_store_list_graphs(store, made.structure, "model 1", NULL, &list, &error), &error);
    ck_assert_uint_eq(list.count, 3);
    FB_STORE_FREE(&list);
    check_ok(fb_store_list_graphs(store, made.structure, "model 2", NULL, &list, &error), &error);
    ck_assert_uint_eq(list.count, 0);
    FB_STORE_FREE(&list);
    check_ok(fb_store_list_graphs(store, NULL, "model 2", &(fb_store_page){.limit = 2}, &list, &error), &error);
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_ne(list.next_token, "");
    fb_store_page page = {.token = list.next_token};
    fb_store_summaries rest;
    check_error(fb_store_list_graphs(store, NULL, "model 1", &page, &rest, &error), &error, FB_INVALID, "bad-page-token");
    check_ok(fb_store_list_graphs(store, NULL, "model 2", &page, &rest, &error), &error);
    ck_assert_uint_eq(rest.count, 1);
    FB_STORE_FREE(&rest);
    FB_STORE_FREE(&list);
    page.token = "0000000000000001ffffffff";
    check_error(fb_store_list_graphs(store, NULL, NULL, &page, &rest, &error), &error, FB_INVALID, "bad-page-token");
    page.token = "nonsense";
    check_error(fb_store_list_graphs(store, NULL, NULL, &page, &rest, &error), &error, FB_INVALID, "bad-page-token");
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
    check_error(fb_store_delete_graph(store, result.id, NULL, &users, &error), &error, FB_CONFLICT, "graph-in-use");
    ck_assert_uint_eq(users.count, FB_USERS_MAX);
    ck_assert_uint_eq(users.total, 12);
    ck_assert_str_eq(users.runs[0], last.id);
    check_error(fb_store_delete_graph(store, source.id, NULL, NULL, &error), &error, FB_CONFLICT, "graph-in-use");
    put_graphs(3, 4);
    made_graph free_one;
    make_graph(&free_one, 3, 0);
    check_ok(fb_store_delete_graph(store, free_one.id, NULL, &users, &error), &error);
    ck_assert_uint_eq(users.total, 0);
    ck_assert_double_eq(metric(store, "graphs"), 2);
    fb_store_summary summary;
    check_error(fb_store_get_graph(store, free_one.id, &summary, &error), &error, FB_NOT_FOUND, "unknown-graph");
    bool is_new = false;
    check_ok(fb_store_put_graph(store, &free_one.graph, NULL, &is_new, &error), &error);
    ck_assert(is_new);
    free_graph(&free_one);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

START_TEST(ulids_ascend) {
    fb_ulid_source source = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    char last[FB_ULID_LENGTH + 1] = "", next[FB_ULID_LENGTH + 1];
    for (int i = 0; i < 10000; i++) {
        int64_t now = i % 7 == 0 ? 1469918176385 - i : 1469918176385 + i / 10; /* the clock also goes back */
        check_ok(fb_ulid_next(&source, now, next, &error), &error);
        ck_assert_uint_eq(strlen(next), FB_ULID_LENGTH);
        ck_assert_uint_eq(strspn(next, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"), FB_ULID_LENGTH);
        ck_assert_int_gt(strcmp(next, last), 0);
        if (i == 0) ck_assert_int_eq(strncmp(next, "01ARYZ6S41", 10), 0); /* the specification's example */
        memcpy(last, next, sizeof last);
    }
    fb_ulid_source full = {.mutex = PTHREAD_MUTEX_INITIALIZER, .last_ms = 1469918176385};
    memset(full.random, 0xff, sizeof full.random);
    check_ok(fb_ulid_next(&full, 0, next, &error), &error);
    ck_assert_str_eq(next, "01ARYZ6S420000000000000000");
}
END_TEST

/* ---- answers ---- */

static fb_store_answer make_answer(void) {
    return (fb_store_answer){.key = {"ann", "POST /v1/graphs", "k1"},
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
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d1", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d1", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_STILL_RUNNING);
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d2", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_ANOTHER_REQUEST);
    check_ok(fb_store_begin_request(store, &(fb_store_key){"bob", answer.key.scope, "k1"}, "d1", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST); /* another's key is another key */
    fb_store_end_request(store, &(fb_store_key){"bob", answer.key.scope, "k1"});
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", "POST /v1/optimize", "k1"}, "d1", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    fb_store_end_request(store, &(fb_store_key){"ann", "POST /v1/optimize", "k1"});
    check_ok(fb_store_put_graph(store, &made.graph, &answer, NULL, &error), &error);
    fb_store_end_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"});
    reopen();
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d1", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_REPEATED);
    fb_store_answer others;
    check_ok(fb_store_begin_request(store, &(fb_store_key){"bob", answer.key.scope, "k1"}, "d1", &repeat, &others, &error),
             &error);
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    fb_store_end_request(store, &(fb_store_key){"bob", answer.key.scope, "k1"});
    ck_assert_str_eq(back.request_digest, "d1");
    ck_assert_int_eq(back.status, 201);
    ck_assert_str_eq(back.location, "/v1/graphs/x");
    ck_assert_uint_eq(back.body_size, 10);
    ck_assert_str_eq(back.body, "{\"id\":\"x\"}");
    FB_STORE_FREE(&back);
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d2", &repeat, &back, &error),
             &error);
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
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d1", &repeat, &back, &error),
             &error);
    check_error(fb_store_put_run(store, &run, &result.graph, 1, &answer, &error), &error, FB_NOT_FOUND, "unknown-graph");
    fb_store_end_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"});
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d1", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    answer.body = NULL;
    answer.location = NULL;
    check_ok(fb_store_put_run(store, &run, (fb_store_graph[]){source.graph, result.graph}, 2, &answer, &error), &error);
    fb_store_end_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"});
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d1", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_REPEATED);
    ck_assert_ptr_null(back.body);
    ck_assert_ptr_null(back.location);
    FB_STORE_FREE(&back);
    free_graph(&source);
    free_graph(&result);
}
END_TEST

START_TEST(an_answer_is_forgotten_after_a_day) {
    made_graph made;
    make_graph(&made, 1, 0);
    fb_store_answer answer = make_answer(), back;
    fb_store_repeat repeat;
    check_ok(fb_store_put_graph(store, &made.graph, &answer, NULL, &error), &error);
    test_time += 24 * 3600 * 1000 - 1;
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d1", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_REPEATED);
    FB_STORE_FREE(&back);
    test_time += 1;
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d2", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_FIRST_REQUEST);
    answer.request_digest = "d2"; /* takes the place of the old one, which has not been cleaned up */
    check_ok(fb_store_put_graph(store, &made.graph, &answer, NULL, &error), &error);
    fb_store_end_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"});
    check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", answer.key.scope, "k1"}, "d2", &repeat, &back, &error),
             &error);
    ck_assert_int_eq(repeat, FB_REPEATED);
    FB_STORE_FREE(&back);
    free_graph(&made);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("store");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, a_graph_comes_back);
    tcase_add_test(tests, unknown_graphs_are_not_found);
    tcase_add_test(tests, an_empty_document_comes_back);
    tcase_add_test(tests, marks_are_counted_by_signature);
    tcase_add_test(tests, graphs_are_listed_in_pages_while_more_come);
    tcase_add_test(tests, graphs_are_filtered_by_structure_and_name);
    tcase_add_test(tests, a_graph_in_use_is_not_deleted);
    tcase_add_test(tests, ulids_ascend);
    tcase_add_test(tests, a_repeated_request_is_answered_from_the_store);
    tcase_add_test(tests, an_answer_of_a_failed_write_is_not_kept);
    tcase_add_test(tests, an_answer_is_forgotten_after_a_day);
    return run_tests("store", tests);
}
