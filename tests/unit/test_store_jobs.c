/* Jobs in the store: from queued to finished, over restarts, and the answers of what they did. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/jobs.h"
#include "tests/unit/store_fixture.h"

static int64_t clock_ms = 1000000;

static int64_t now(void) {
    return clock_ms;
}

static const fb_store_config config = {.now_ms = now};

static fb_store_job put_job(fb_store *store, const char *body) {
    fb_store_job job = {.principal = "ann", .request = "r1", .method = "POST", .target = "/v1/gc?x=1", .content_type = "a/b"};
    fb_error error = {0};
    clock_ms++;
    check_ok(fb_store_new_job(store, &job, &error), &error);
    check_ok(fb_store_put_job(store, &job, body, strlen(body), NULL, &error), &error);
    return job;
}

static fb_store_job get_job(fb_store *store, const char *id) {
    fb_store_job job;
    fb_error error = {0};
    check_ok(fb_store_get_job(store, id, &job, &error), &error);
    return job;
}

static fb_job_state state_of(fb_store *store, const char *id) {
    fb_store_job job = get_job(store, id);
    fb_job_state state = job.state;
    FB_STORE_FREE(&job);
    return state;
}

static uint32_t start(fb_store *store, const char *id, bool *is_unwanted) {
    uint32_t attempts = 0;
    fb_error error = {0};
    check_ok(fb_store_start_job(store, id, &attempts, is_unwanted, &error), &error);
    return attempts;
}

static void finish(fb_store *store, const char *id, const fb_store_job_end *end) {
    fb_error error = {0};
    check_ok(fb_store_finish_job(store, id, end, &error), &error);
}

static void check_bytes(fb_store *store, const char *id, const char *body, const char *result) {
    char *bytes;
    size_t size;
    fb_error error = {0};
    check_ok(fb_store_get_job_body(store, id, &bytes, &size, &error), &error);
    ck_assert_str_eq(bytes, body);
    ck_assert_uint_eq(size, strlen(body));
    free(bytes);
    check_ok(fb_store_get_job_result(store, id, &bytes, &size, &error), &error);
    ck_assert_str_eq(bytes, result);
    ck_assert_uint_eq(size, strlen(result));
    free(bytes);
}

START_TEST(a_life) {
    const char *folder = new_folder();
    fb_store *store = open_store(folder, &config);
    fb_store_job made = put_job(store, "{\"dry_run\":true}");
    bool is_unwanted = true;
    check_bytes(store, made.id, "{\"dry_run\":true}", "");
    ck_assert_uint_eq(start(store, made.id, &is_unwanted), 1);
    ck_assert(!is_unwanted && state_of(store, made.id) == FB_JOB_RUNNING);
    clock_ms += 5;
    finish(store, made.id,
           &(fb_store_job_end){.state = FB_JOB_SUCCEEDED,
                               .progress = "{}",
                               .events = "id: 1\n\n",
                               .status = 201,
                               .result_type = "application/json",
                               .location = "/v1/runs/x",
                               .result = "[1]",
                               .result_size = 3});
    fb_store_job job = get_job(store, made.id);
    ck_assert_int_eq(job.state, FB_JOB_SUCCEEDED);
    ck_assert_str_eq(job.principal, "ann");
    ck_assert_str_eq(job.request, "r1");
    ck_assert_str_eq(job.method, "POST");
    ck_assert_str_eq(job.target, "/v1/gc?x=1");
    ck_assert_str_eq(job.content_type, "a/b");
    ck_assert_str_eq(job.progress, "{}");
    ck_assert_str_eq(job.events, "id: 1\n\n");
    ck_assert_str_eq(job.location, "/v1/runs/x");
    ck_assert_int_eq(job.status, 201);
    ck_assert_int_eq(job.created, made.created);
    ck_assert_int_eq(job.finished, clock_ms);
    ck_assert_uint_eq(job.result_size, 3);
    FB_STORE_FREE(&job);
    check_bytes(store, made.id, "", "[1]"); /* the request is not kept */
    fb_store_close(store);
    remove_folder(folder);
}
END_TEST

START_TEST(what_was_not_finished_is_found_again) {
    const char *folder = new_folder();
    fb_store *store = open_store(folder, &config);
    fb_store_job jobs[4];
    fb_error error = {0};
    bool is_unwanted;
    for (size_t i = 0; i < 4; i++) jobs[i] = put_job(store, "body");
    start(store, jobs[1].id, &is_unwanted);
    start(store, jobs[2].id, &is_unwanted);
    check_ok(fb_store_requeue_job(store, jobs[2].id, &error), &error); /* that one was told to stop */
    finish(store, jobs[0].id, &(fb_store_job_end){.state = FB_JOB_CANCELLED});
    check_ok(fb_store_cancel_job(store, jobs[3].id, NULL, &error), &error);
    fb_store_close(store);

    store = open_store(folder, &config);
    fb_store_jobs found;
    check_ok(fb_store_unfinished_jobs(store, &found, &error), &error);
    ck_assert_uint_eq(found.count, 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_str_eq(found.items[i].id, jobs[i + 1].id);
        ck_assert_int_eq(found.items[i].state, FB_JOB_QUEUED);
        ck_assert_uint_eq(found.items[i].interruptions, i == 0);
        ck_assert(found.items[i].is_unwanted == (i == 2));
    }
    FB_STORE_FREE(&found);
    ck_assert_uint_eq(start(store, jobs[1].id, &is_unwanted), 2);
    start(store, jobs[3].id, &is_unwanted);
    ck_assert(is_unwanted);
    fb_store_close(store);
    remove_folder(folder);
}
END_TEST

START_TEST(cancelling_and_what_is_not_there) {
    const char *folder = new_folder();
    fb_store *store = open_store(folder, &config);
    fb_store_job job = put_job(store, "");
    fb_store_job none;
    char *bytes;
    size_t size;
    fb_error error = {0};
    finish(store, job.id, &(fb_store_job_end){.state = FB_JOB_CANCELLED});
    check_error(fb_store_cancel_job(store, job.id, NULL, &error), &error, FB_CONFLICT, "job-finished");
    check_error(fb_store_cancel_job(store, "job_x", NULL, &error), &error, FB_NOT_FOUND, "unknown-job");
    check_error(fb_store_get_job(store, "job_x", &none, &error), &error, FB_NOT_FOUND, "unknown-job");
    check_error(fb_store_get_job_body(store, "job_x", &bytes, &size, &error), &error, FB_NOT_FOUND, "unknown-job");
    check_error(fb_store_get_job_result(store, "job_x", &bytes, &size, &error), &error, FB_NOT_FOUND, "unknown-job");
    fb_store_close(store);
    remove_folder(folder);
}
END_TEST

START_TEST(lists_and_what_has_lived_long_enough) {
    const char *folder = new_folder();
    fb_store *store = open_store(folder, &config);
    fb_store_job jobs[5];
    fb_store_jobs list;
    fb_error error = {0};
    for (size_t i = 0; i < 5; i++) {
        jobs[i] = put_job(store, "x");
        if (i < 3)
            finish(store, jobs[i].id,
                   &(fb_store_job_end){.state = FB_JOB_FAILED, .status = 404, .result = "", .result_type = ""});
    }
    check_ok(fb_store_list_jobs(store, -1, &(fb_store_page){.limit = 3}, &list, &error), &error);
    ck_assert_uint_eq(list.count, 3);
    ck_assert_str_eq(list.items[0].id, jobs[4].id);
    char token[FB_PAGE_TOKEN_LENGTH + 1];
    memcpy(token, list.next_token, sizeof token);
    FB_STORE_FREE(&list);
    check_ok(fb_store_list_jobs(store, -1, &(fb_store_page){.token = token}, &list, &error), &error);
    ck_assert_uint_eq(list.count, 2);
    FB_STORE_FREE(&list);
    check_error(fb_store_list_jobs(store, FB_JOB_FAILED, &(fb_store_page){.token = token}, &list, &error), &error, FB_INVALID,
                "bad-page-token");
    size_t count = 9;
    fb_store_job second = get_job(store, jobs[1].id);
    check_ok(fb_store_collect_jobs(store, second.finished, &count, &error), &error);
    FB_STORE_FREE(&second);
    ck_assert_uint_eq(count, 2);
    check_ok(fb_store_list_jobs(store, FB_JOB_FAILED, NULL, &list, &error), &error);
    ck_assert_uint_eq(list.count, 1);
    ck_assert_str_eq(list.items[0].id, jobs[2].id);
    FB_STORE_FREE(&list);
    fb_store_close(store);
    remove_folder(folder);
}
END_TEST

/* What an unfinished job has done is known for as long as it takes; a client's own key is not. */
START_TEST(answers_of_jobs_outlive_others) {
    const char *folder = new_folder();
    fb_store *store = open_store(folder, &config);
    fb_store_job job = put_job(store, "x");
    char key[64];
    snprintf(key, sizeof key, "%s/7", job.id);
    const struct {
        const char *scope, *key;
        fb_store_repeat expected;
    } rows[] = {{FB_JOB_SCOPE, key, FB_REPEATED}, {"POST /v1/optimize", "k", FB_FIRST_REQUEST}};
    fb_error error = {0};
    for (size_t i = 0; i < 2; i++) {
        made_graph graph;
        make_graph(&graph, (unsigned)i, 0);
        fb_store_answer answer = {
            .key = {"ann", rows[i].scope, rows[i].key}, .request_digest = "d", .status = 201, .body = "b", .body_size = 1};
        check_ok(fb_store_put_graph(store, &graph.graph, &answer, NULL, &error), &error);
        free_graph(&graph);
    }
    clock_ms += 100LL * 86400 * 1000;
    for (size_t i = 0; i < 2; i++) {
        fb_store_repeat what;
        fb_store_answer answer = {0};
        check_ok(fb_store_begin_request(store, &(fb_store_key){"ann", rows[i].scope, rows[i].key}, "d", &what, &answer, &error),
                 &error);
        ck_assert_int_eq(what, rows[i].expected);
        if (what == FB_FIRST_REQUEST) fb_store_end_request(store, &(fb_store_key){"ann", rows[i].scope, rows[i].key});
        else FB_STORE_FREE(&answer);
    }
    fb_store_close(store);
    remove_folder(folder);
}
END_TEST

/* ---- what they name ---- */

static int64_t ask(const char *folder, const char *sql) {
    sqlite3 *database;
    sqlite3_stmt *query;
    char path[600];
    snprintf(path, sizeof path, "%s/foldback.sqlite", folder);
    ck_assert_int_eq(sqlite3_open(path, &database), SQLITE_OK);
    ck_assert_int_eq(sqlite3_prepare_v2(database, sql, -1, &query, NULL), SQLITE_OK);
    int64_t answer = sqlite3_step(query) == SQLITE_ROW ? sqlite3_column_int64(query, 0) : 0;
    ck_assert_int_eq(sqlite3_finalize(query), SQLITE_OK);
    sqlite3_close(database);
    return answer;
}

START_TEST(what_they_name_is_noted_until_they_end) {
    static const char count[] = "SELECT count(*) FROM job_references";
    const char *folder = new_folder();
    fb_store *store = open_store(folder, &config);
    made_graph made[2];
    char body[800];
    for (unsigned i = 0; i < 2; i++) {
        make_graph(&made[i], i, 10);
        ck_assert_int_eq(fb_store_put_graph(store, &made[i].graph, NULL, NULL, NULL), FB_OK);
    }
    fb_store_run run = make_run(store, &made[0], &made[1]);
    put_run(store, &run, &made[0], &made[1]);
    char ids[120];
    bool is_missing[] = {true, true, true, true};
    fb_error error = {0};
    snprintf(ids, sizeof ids, "[\"%s\",null,\"run_00000000000000000000000000\",\"%s\"]", run.id, run.id);
    ck_assert_int_eq(fb_store_missing_runs(store, ids, 4, is_missing, &error), FB_OK);
    ck_assert(!is_missing[0] && !is_missing[1] && is_missing[2] && !is_missing[3]);
    /* both graphs, one of them twice, the run; what is not here, what is too short, and the beginning of one at the end */
    snprintf(body, sizeof body, "[\"%s\",\"%s\",\"%s\",\"sha256:%064d\",\"%.70s\",\"%s\",\"run_%026d\",\"run_\",\"%.40s",
             made[0].id, made[1].id, made[0].id, 7, made[1].id, run.id, 7, made[1].id);
    fb_store_job job = put_job(store, body);
    ck_assert_int_eq(ask(folder, count), 3);
    put_job(store, "{}");
    ck_assert_int_eq(ask(folder, count), 3);
    fb_store_close(store);
    ask(folder, "DELETE FROM job_references");
    ask(folder, "INSERT INTO unread_jobs SELECT key FROM jobs"); /* as if an earlier version had stored them */
    store = open_store(folder, &config);
    ck_assert_int_eq(ask(folder, count), 3);
    ck_assert_int_eq(ask(folder, "SELECT count(*) FROM unread_jobs"), 0);
    fb_store_close(store);
    ask(folder, "INSERT INTO unread_jobs SELECT key FROM jobs");
    ask(folder, "DELETE FROM job_references");
    ask(folder, "UPDATE jobs SET body = x'0102'");
    store = open_store(folder, &config); /* a damaged request names nothing */
    ck_assert_int_eq(ask(folder, count), 0);
    fb_store_job again = put_job(store, body);
    ck_assert_int_eq(ask(folder, count), 3);
    finish(store, job.id, &(fb_store_job_end){.state = FB_JOB_CANCELLED});
    ck_assert_int_eq(ask(folder, count), 3);
    finish(store, again.id, &(fb_store_job_end){.state = FB_JOB_CANCELLED});
    ck_assert_int_eq(ask(folder, count), 0);
    fb_store_close(store);
    for (unsigned i = 0; i < 2; i++) free_graph(&made[i]);
    remove_folder(folder);
}
END_TEST

/* ---- cancelled ---- */

/* What was acknowledged is true of its end, whatever the job comes to meanwhile; and it stores nothing more. */
START_TEST(what_is_to_be_cancelled_ends_so) {
    const char *folder = new_folder();
    fb_store *store = open_store(folder, &config);
    fb_store_job job = put_job(store, "x");
    fb_store_actor ann = {.who = "ann", .request = "r2"};
    made_graph graph;
    fb_error error = {0};
    bool is_unwanted;
    make_graph(&graph, 1, 0);
    start(store, job.id, &is_unwanted);
    for (int i = 0; i < 2; i++) check_ok(fb_store_cancel_job(store, job.id, &ann, &error), &error);
    fb_store_answer answer = {.key = {"", FB_JOB_SCOPE, job.id}, .request_digest = "d", .status = 201};
    check_error(fb_store_put_graph(store, &graph.graph, &answer, NULL, &error), &error, FB_BUSY, "cancelled");
    ck_assert_int_eq(ask(folder, "SELECT count(*) FROM graphs"), 0);
    for (int state = FB_JOB_SUCCEEDED; state <= FB_JOB_FAILED; state++) {
        fb_store_job_end end = {.state = (fb_job_state)state, .status = 503};
        check_error(fb_store_finish_job(store, job.id, &end, &error), &error, FB_CONFLICT, "job-unwanted");
    }
    ck_assert_int_eq(state_of(store, job.id), FB_JOB_RUNNING);
    finish(store, job.id, &(fb_store_job_end){.state = FB_JOB_CANCELLED});
    ck_assert_int_eq(state_of(store, job.id), FB_JOB_CANCELLED);
    ck_assert_int_eq(ask(folder, "SELECT count(*) FROM audit WHERE action = 'job-cancel' AND who = 'ann'"), 1);
    fb_store_close(store);
    free_graph(&graph);
    remove_folder(folder);
}
END_TEST

/* A job whose request has stored its answer is done: it is too late. One of many requests goes on to the next. */
START_TEST(what_is_done_is_not_cancelled) {
    const char *folder = new_folder();
    fb_store *store = open_store(folder, &config);
    fb_error error = {0};
    bool is_unwanted;
    char part[64];
    for (unsigned i = 0; i < 2; i++) {
        fb_store_job job = put_job(store, "x");
        made_graph graph;
        make_graph(&graph, i, 0);
        start(store, job.id, &is_unwanted);
        snprintf(part, sizeof part, i ? "%s/0" : "%s", job.id);
        fb_store_answer answer = {.key = {"", FB_JOB_SCOPE, part}, .request_digest = "d", .status = 201};
        check_ok(fb_store_put_graph(store, &graph.graph, &answer, NULL, &error), &error);
        free_graph(&graph);
        if (i) check_ok(fb_store_cancel_job(store, job.id, NULL, &error), &error);
        else check_error(fb_store_cancel_job(store, job.id, NULL, &error), &error, FB_CONFLICT, "job-finished");
        ck_assert_int_eq(ask(folder, "SELECT count(*) FROM answers"), 1);
        finish(store, job.id, &(fb_store_job_end){.state = i ? FB_JOB_CANCELLED : FB_JOB_SUCCEEDED, .status = 201});
        ck_assert_int_eq(ask(folder, "SELECT count(*) FROM answers"), 0); /* so that they keep no runs */
    }
    fb_store_close(store);
    remove_folder(folder);
}
END_TEST

/* A job that gets on between the ends of the process is not why it ends. */
START_TEST(interruptions_count_from_the_last_step) {
    const char *folder = new_folder();
    fb_store_job job;
    fb_error error = {0};
    char part[64];
    for (unsigned i = 0; i < 4; i++) {
        fb_store *store = open_store(folder, &config);
        fb_store_jobs found;
        bool is_unwanted;
        if (!i) job = put_job(store, "x");
        check_ok(fb_store_unfinished_jobs(store, &found, &error), &error);
        ck_assert_uint_eq(found.items[0].interruptions, i == 3 ? 1 : i);
        FB_STORE_FREE(&found);
        start(store, job.id, &is_unwanted);
        if (i == 2) {
            made_graph graph;
            make_graph(&graph, i, 0);
            snprintf(part, sizeof part, "%s/7", job.id);
            fb_store_answer answer = {.key = {"", FB_JOB_SCOPE, part}, .request_digest = "d", .status = 201};
            check_ok(fb_store_put_graph(store, &graph.graph, &answer, NULL, &error), &error);
            free_graph(&graph);
        }
        fb_store_close(store);
    }
    remove_folder(folder);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("jobs");
    tcase_add_test(tests, a_life);
    tcase_add_test(tests, what_was_not_finished_is_found_again);
    tcase_add_test(tests, cancelling_and_what_is_not_there);
    tcase_add_test(tests, lists_and_what_has_lived_long_enough);
    tcase_add_test(tests, answers_of_jobs_outlive_others);
    tcase_add_test(tests, what_they_name_is_noted_until_they_end);
    tcase_add_test(tests, what_is_to_be_cancelled_ends_so);
    tcase_add_test(tests, what_is_done_is_not_cancelled);
    tcase_add_test(tests, interruptions_count_from_the_last_step);
    return run_tests("store jobs", tests);
}
