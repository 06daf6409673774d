/* The store's models: versions that never change, aliases that move under conditions, a history that only grows, events, and
 * every allocation that may fail. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/internal.h"
#include "tests/unit/chaos.h"
#include "tests/unit/store_fixture.h"

static char folder[512];
static fb_store *store;
static fb_error error;
static made_graph graphs[4];
static atomic_int told; /* how often alias_changed was called */

static int64_t test_now(void) {
    return 1700000000000;
}

static void tell(void *context) {
    atomic_fetch_add((atomic_int *)context, 1);
}

static const fb_store_config config = {.now_ms = test_now, .alias_changed = tell, .alias_context = &told};

static void setup(void) {
    error = (fb_error){0};
    told = 0;
    snprintf(folder, sizeof folder, "%s", new_folder());
    store = open_store(folder, &config);
    for (unsigned i = 0; i < 4; i++) make_graph(&graphs[i], i, 100);
}

static void teardown(void) {
    for (unsigned i = 0; i < 4; i++) free_graph(&graphs[i]);
    fb_store_close(store);
    remove_folder(folder);
}

static void reopen(void) {
    fb_store_close(store);
    store = open_store(folder, &config);
}

/* ---- shorter ways to say it ---- */

static fb_status put(const char *name, unsigned graph) {
    bool is_new = false;
    fb_store_version stored;
    fb_store_new_version version = {.model = "bert", .name = name, .document = &graphs[graph].graph};
    fb_status status = fb_store_put_version(store, &version, &is_new, &stored, &error);
    if (!status) fb_store_version_free(&stored);
    return status;
}

static void put_versions(void) {
    const char *const names[] = {"v0", "v1", "v2", "v3"};
    for (unsigned i = 0; i < 4; i++) check_ok(put(names[i], i), &error);
}

static fb_store_alias_change change_if(fb_alias_condition condition, int64_t expected) {
    return (fb_store_alias_change){
        .model = "bert", .alias = "live", .condition = condition, .expected = expected, .who = "ann", .why = "test"};
}

/* Each returns the number of the alias' last entry, 0 after a failure. */

static int64_t finish(fb_status status, fb_store_alias_entry *entry) {
    if (status) return 0;
    int64_t number = entry->number;
    fb_store_alias_entry_free(entry);
    return number;
}

static int64_t set(const char *version, fb_alias_condition condition, int64_t expected) {
    fb_store_alias_entry entry;
    fb_store_alias_change change = change_if(condition, expected);
    return finish(fb_store_set_alias(store, &change, version, &entry, &error), &entry);
}

static int64_t roll_back(const char *to) {
    fb_store_alias_entry entry;
    fb_store_alias_change change = change_if(FB_ALIAS_EXISTS, 0);
    return finish(fb_store_roll_back_alias(store, &change, to, NULL, &entry, &error), &entry);
}

static void check_version(const char *expected) {
    fb_store_alias_entry entry;
    check_ok(fb_store_get_alias(store, "bert", "live", &entry, &error), &error);
    ck_assert_str_eq(entry.to, expected);
    fb_store_alias_entry_free(&entry);
}

static void check_failed(fb_status status, const char *code) {
    ck_assert_str_eq(error.code, code);
    check_error(error.status, &error, status, code);
}

/* ---- names, versions ---- */

START_TEST(names_are_plain) {
    const char *const good[] = {"a", "A-1_b.c", "...", "1"}, *const bad[] = {"", ".", "..", "a/b", "a b", "\xc3\xa4", "a\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) ck_assert(fb_is_name(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) ck_assert(!fb_is_name(bad[i]));
    char longest[FB_NAME_MAX + 2];
    memset(longest, 'n', sizeof longest);
    longest[FB_NAME_MAX + 1] = '\0';
    ck_assert(!fb_is_name(longest));
    longest[FB_NAME_MAX] = '\0';
    ck_assert(fb_is_name(longest));
}
END_TEST

START_TEST(a_version_comes_back_and_never_changes) {
    fb_store_run run = make_run(store, &graphs[0], &graphs[1]);
    put_run(store, &run, &graphs[0], &graphs[1]);
    fb_store_new_version version = {.model = "bert", .name = "v1", .run = run.id, .note = "first"};
    fb_store_version stored;
    bool is_new = false;
    check_ok(fb_store_put_version(store, &version, &is_new, &stored, &error), &error);
    ck_assert(is_new);
    for (int round = 0; round < 2; round++) {
        ck_assert_str_eq(stored.model, "bert");
        ck_assert_str_eq(stored.name, "v1");
        ck_assert_str_eq(stored.graph, graphs[1].id);
        ck_assert_str_eq(stored.run, run.id);
        ck_assert_str_eq(stored.note, "first");
        ck_assert_int_eq(stored.created, 1700000000000);
        fb_store_version_free(&stored);
        reopen();
        check_ok(fb_store_get_version(store, "bert", "v1", &stored, &error), &error);
    }
    fb_store_version_free(&stored);

    version = (fb_store_new_version){.model = "bert", .name = "v1", .graph = graphs[1].id}; /* the same graph */
    check_ok(fb_store_put_version(store, &version, &is_new, &stored, &error), &error);
    ck_assert(!is_new);
    ck_assert_str_eq(stored.run, run.id);
    fb_store_version_free(&stored);
    ck_assert_int_ne(put("v1", 2), FB_OK);
    check_failed(FB_CONFLICT, "version-exists");
    ck_assert_double_eq(metric(store, "graphs"), 2); /* the refused one was not stored */
    version.graph = graphs[3].id;
    check_error(fb_store_put_version(store, &version, &is_new, &stored, &error), &error, FB_NOT_FOUND, "unknown-graph");
    version = (fb_store_new_version){.model = "new", .name = "v1", .run = "run_0"};
    check_error(fb_store_put_version(store, &version, &is_new, &stored, &error), &error, FB_NOT_FOUND, "unknown-run");
    check_error(fb_store_get_version(store, "new", "v1", &stored, &error), &error, FB_NOT_FOUND, "unknown-model");
    check_error(fb_store_get_version(store, "bert", "v9", &stored, &error), &error, FB_NOT_FOUND, "unknown-version");
}
END_TEST

START_TEST(lists_are_paged) {
    put_versions();
    fb_store_versions versions;
    fb_store_models models;
    fb_store_model model;
    char token[FB_PAGE_TOKEN_LENGTH + 1] = "";
    const char *const expected[] = {"v3", "v2", "v1", "v0"};
    for (size_t i = 0; i < 4; i++) {
        fb_store_page page = {.limit = 1, .token = *token ? token : NULL};
        check_ok(fb_store_list_versions(store, "bert", &page, &versions, &error), &error);
        ck_assert_uint_eq(versions.count, 1);
        ck_assert_str_eq(versions.items[0].name, expected[i]);
        memcpy(token, versions.next_token, sizeof token);
        fb_store_versions_free(&versions);
    }
    ck_assert_str_eq(token, "");
    check_error(fb_store_list_versions(store, "none", NULL, &versions, &error), &error, FB_NOT_FOUND, "unknown-model");
    ck_assert_int_ne(set("v1", FB_ALIAS_IS_FREE, 0), 0);
    check_ok(fb_store_list_models(store, NULL, &models, &error), &error);
    ck_assert_uint_eq(models.count, 1);
    ck_assert_str_eq(models.items[0].name, "bert");
    fb_store_models_free(&models);
    check_ok(fb_store_get_model(store, "bert", &model, &error), &error);
    ck_assert_uint_eq(model.versions, 4);
    ck_assert_uint_eq(model.aliases, 1);
    fb_store_model_free(&model);
    check_error(fb_store_get_model(store, "none", &model, &error), &error, FB_NOT_FOUND, "unknown-model");
}
END_TEST

START_TEST(what_is_needed_is_not_deleted) {
    fb_store_users users;
    put_versions();
    check_error(fb_store_delete_graph(store, graphs[0].id, &users, &error), &error, FB_CONFLICT, "graph-in-use");
    ck_assert_uint_eq(users.version_count, 1);
    ck_assert_str_eq(users.versions[0], "bert/v0");
    int64_t first = set("v0", FB_ALIAS_IS_FREE, 0), second = set("v1", FB_ALIAS_IS_AT, first);
    ck_assert_int_gt(second, first);
    check_error(fb_store_delete_version(store, "bert", "v1", &error), &error, FB_CONFLICT, "version-in-use");
    check_error(fb_store_delete_version(store, "bert", "v0", &error), &error, FB_CONFLICT, "version-in-use");
    check_ok(fb_store_delete_version(store, "bert", "v2", &error), &error);
    check_error(fb_store_delete_version(store, "bert", "v2", &error), &error, FB_NOT_FOUND, "unknown-version");
    fb_store_alias_change change = change_if(FB_ALIAS_IS_AT, second);
    check_ok(fb_store_delete_alias(store, &change, &error), &error);
    check_ok(fb_store_delete_version(store, "bert", "v0", &error), &error);
    check_ok(fb_store_delete_graph(store, graphs[0].id, &users, &error), &error);
    fb_store_alias_entries history; /* it still says what there was */
    check_ok(fb_store_alias_history(store, "bert", "live", NULL, &history, &error), &error);
    ck_assert_uint_eq(history.count, 3);
    ck_assert_str_eq(history.items[1].from, "v0");
    ck_assert_str_eq(history.items[1].from_graph, graphs[0].id);
    fb_store_alias_entries_free(&history);
}
END_TEST

/* ---- aliases ---- */

START_TEST(an_alias_moves_only_from_where_it_is) {
    put_versions();
    ck_assert_int_eq(set("v0", FB_ALIAS_EXISTS, 0), 0);
    check_failed(FB_CONFLICT, "alias-moved");
    int64_t first = set("v0", FB_ALIAS_IS_FREE, 0);
    ck_assert_int_gt(first, 0);
    ck_assert_int_eq(set("v1", FB_ALIAS_IS_FREE, 0), 0);
    check_failed(FB_CONFLICT, "alias-exists");
    ck_assert_int_eq(set("v1", FB_ALIAS_IS_AT, first + 1), 0);
    check_failed(FB_CONFLICT, "alias-moved");
    ck_assert_int_eq(set("v9", FB_ALIAS_IS_AT, first), 0);
    check_failed(FB_NOT_FOUND, "unknown-version");
    ck_assert_int_eq(told, 1);
    int64_t second = set("v1", FB_ALIAS_IS_AT, first);
    ck_assert_int_gt(second, first);
    ck_assert_int_eq(set("v1", FB_ALIAS_IS_AT, second), second); /* it has it */
    ck_assert_int_eq(told, 2);
    ck_assert_int_eq(set("v2", FB_ALIAS_IS_AT, first), 0);
    check_failed(FB_CONFLICT, "alias-moved");
    reopen();
    check_version("v1");

    fb_store_alias_change change = change_if(FB_ALIAS_IS_AT, first);
    check_error(fb_store_delete_alias(store, &change, &error), &error, FB_CONFLICT, "alias-moved");
    change.expected = second;
    check_ok(fb_store_delete_alias(store, &change, &error), &error);
    ck_assert_int_eq(told, 3);
    fb_store_alias_entry entry;
    check_error(fb_store_get_alias(store, "bert", "live", &entry, &error), &error, FB_NOT_FOUND, "unknown-alias");
    check_error(fb_store_delete_alias(store, &change, &error), &error, FB_CONFLICT, "alias-moved");
    ck_assert_int_eq(set("v1", FB_ALIAS_EXISTS, 0), 0);
    check_failed(FB_CONFLICT, "alias-moved");
    ck_assert_int_gt(set("v1", FB_ALIAS_IS_FREE, 0), second + 1);
    ck_assert_int_eq(roll_back(NULL), 0); /* it is a new one */
    check_failed(FB_CONFLICT, "nothing-to-roll-back");
}
END_TEST

START_TEST(the_history_says_who_when_why_from_and_to) {
    put_versions();
    int64_t first = set("v0", FB_ALIAS_IS_FREE, 0);
    set("v1", FB_ALIAS_EXISTS, 0);
    roll_back(NULL);
    fb_store_alias_change change = change_if(FB_ALIAS_EXISTS, 0);
    check_ok(fb_store_delete_alias(store, &change, &error), &error);
    fb_store_alias_entries list;
    check_ok(fb_store_alias_history(store, "bert", "live", NULL, &list, &error), &error);
    static const char *const expected[][3] = {
        {"delete", "v0", NULL}, {"rollback", "v1", "v0"}, {"deploy", "v0", "v1"}, {"create", NULL, "v0"}};
    ck_assert_uint_eq(list.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const fb_store_alias_entry *entry = &list.items[i];
        ck_assert_int_eq(entry->number, first + 3 - (int64_t)i);
        ck_assert_str_eq(entry->model, "bert");
        ck_assert_str_eq(entry->alias, "live");
        ck_assert_str_eq(entry->who, "ann");
        ck_assert_str_eq(entry->why, "test");
        ck_assert_int_eq(entry->at, 1700000000000);
        ck_assert_str_eq(entry->action, expected[i][0]);
        ck_assert_pstr_eq(entry->from, expected[i][1]);
        ck_assert_pstr_eq(entry->to, expected[i][2]);
        ck_assert_pstr_eq(entry->to_graph, !entry->to ? NULL : graphs[entry->to[1] - '0'].id);
    }
    fb_store_alias_entries_free(&list);
    check_error(fb_store_alias_history(store, "bert", "none", NULL, &list, &error), &error, FB_NOT_FOUND, "unknown-alias");
}
END_TEST

START_TEST(nobody_changes_the_history) {
    put_versions();
    set("v0", FB_ALIAS_IS_FREE, 0);
    fb_store_close(store);
    sqlite3 *database;
    char path[600];
    snprintf(path, sizeof path, "%s/foldback.sqlite", folder);
    ck_assert_int_eq(sqlite3_open(path, &database), SQLITE_OK);
    const char *const statements[] = {"UPDATE alias_entries SET who = 'eve'", "DELETE FROM alias_entries",
                                      "INSERT OR REPLACE INTO alias_entries (number, alias, at, action) VALUES (1, 1, 0, 'x')"};
    for (size_t i = 0; i < 3; i++) {
        char *message = NULL;
        ck_assert_int_eq(sqlite3_exec(database, statements[i], NULL, NULL, &message), SQLITE_CONSTRAINT);
        sqlite3_free(message);
    }
    sqlite3_close(database);
    store = open_store(folder, &config);
}
END_TEST

static void run_sql(const char *sql) {
    sqlite3 *database;
    char path[600];
    snprintf(path, sizeof path, "%s/foldback.sqlite", folder);
    ck_assert_int_eq(sqlite3_open(path, &database), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(database, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(database));
    sqlite3_close(database);
}

START_TEST(a_store_from_before_models_gets_them) {
    fb_store_run run = make_run(store, &graphs[0], &graphs[1]);
    put_run(store, &run, &graphs[0], &graphs[1]);
    fb_store_close(store);
    run_sql("DROP TABLE unread_graphs; DROP TABLE tensor_digests; DROP TABLE graph_blobs; DROP TABLE blobs; "
            "DROP TABLE alias_entries; DROP TABLE aliases; DROP TABLE versions; DROP TABLE models; PRAGMA user_version = 1");
    store = open_store(folder, &config);
    check_ok(put("v1", 1), &error);
    ck_assert_int_ne(set("v1", FB_ALIAS_IS_FREE, 0), 0);
    fb_store_run stored;
    check_ok(fb_store_get_run(store, run.id, &stored, &error), &error);
    fb_store_run_free(&stored);
}
END_TEST

/* ---- rollback ---- */

START_TEST(rolling_back_goes_down_a_stack) {
    put_versions();
    set("v1", FB_ALIAS_IS_FREE, 0);
    set("v2", FB_ALIAS_EXISTS, 0);
    set("v3", FB_ALIAS_EXISTS, 0);
    ck_assert_int_ne(roll_back(NULL), 0);
    check_version("v2");
    ck_assert_int_ne(roll_back(NULL), 0);
    check_version("v1");
    ck_assert_int_eq(roll_back(NULL), 0);
    check_failed(FB_CONFLICT, "nothing-to-roll-back");
    check_version("v1");
    set("v3", FB_ALIAS_EXISTS, 0);
    set("v0", FB_ALIAS_EXISTS, 0);
    ck_assert_int_ne(roll_back(NULL), 0);
    check_version("v3");
    ck_assert_int_ne(roll_back(NULL), 0);
    check_version("v1");
    ck_assert_int_eq(roll_back(NULL), 0);
    check_failed(FB_CONFLICT, "nothing-to-roll-back");
}
END_TEST

START_TEST(rolling_back_to_a_version_goes_down_to_it) {
    put_versions();
    int64_t first = set("v1", FB_ALIAS_IS_FREE, 0);
    set("v2", FB_ALIAS_EXISTS, 0);
    set("v1", FB_ALIAS_EXISTS, 0);
    set("v3", FB_ALIAS_EXISTS, 0);
    ck_assert_int_eq(roll_back("v9"), 0);
    check_failed(FB_NOT_FOUND, "unknown-version");
    ck_assert_int_eq(roll_back("v0"), 0);
    check_failed(FB_CONFLICT, "never-deployed");
    ck_assert_int_eq(roll_back("v3"), first + 3); /* it has it */
    ck_assert_int_ne(roll_back("v2"), 0);
    check_version("v2");
    ck_assert_int_ne(roll_back("v1"), 0); /* the first one, not the one that was rolled back */
    check_version("v1");
    ck_assert_int_eq(roll_back(NULL), 0);
    check_failed(FB_CONFLICT, "nothing-to-roll-back");
    ck_assert_int_ne(roll_back("v3"), 0); /* by its name what was rolled back can be had again */
    check_version("v3");
    ck_assert_int_ne(roll_back(NULL), 0);
    check_version("v1");
    ck_assert_int_ne(roll_back(NULL), 0);
    check_version("v2");
}
END_TEST

/* What an alias had in a life before may have been deleted meanwhile. */
START_TEST(a_deleted_version_is_passed_over) {
    put_versions();
    set("v1", FB_ALIAS_IS_FREE, 0);
    set("v0", FB_ALIAS_EXISTS, 0);
    set("v2", FB_ALIAS_EXISTS, 0);
    fb_store_alias_change change = change_if(FB_ALIAS_EXISTS, 0);
    check_ok(fb_store_delete_alias(store, &change, &error), &error);
    check_ok(fb_store_delete_version(store, "bert", "v0", &error), &error);
    set("v3", FB_ALIAS_IS_FREE, 0);
    check_ok(put("v0", 3), &error); /* another one of that name */
    ck_assert_int_eq(roll_back("v0"), 0);
    check_failed(FB_CONFLICT, "never-deployed");
    ck_assert_int_ne(roll_back("v2"), 0);
    ck_assert_int_ne(roll_back(NULL), 0);
    check_version("v1");
}
END_TEST

/* A run that undoes passes of version v1 (graph 1), with graph `result` as what is left. */
static fb_status take_passes_out(unsigned result, const char *name, bool is_fixed, int64_t expected, fb_store_alias_entry *out,
                                 const fb_store_answer *answer) {
    fb_store_run run = make_run(store, &graphs[1], &graphs[result]);
    run.kind = "rollback";
    fb_store_partial_rollback partial = {
        .run = &run, .graphs = &graphs[result].graph, .graph_count = 1, .name = name, .is_name_fixed = is_fixed};
    fb_store_alias_change change = change_if(FB_ALIAS_IS_AT, expected);
    return fb_store_roll_back_passes(store, &change, &partial, answer, out, &error);
}

START_TEST(passes_come_out_in_one_step) {
    check_ok(put("v0", 0), &error);
    check_ok(put("v1", 1), &error);
    set("v0", FB_ALIAS_IS_FREE, 0);
    int64_t at = set("v1", FB_ALIAS_EXISTS, 0);
    fb_store_alias_entry entry;
    fb_store_run run;
    check_error(take_passes_out(2, "v1-without-a", false, at - 1, &entry, NULL), &error, FB_CONFLICT, "alias-moved");
    check_error(take_passes_out(2, "v0", true, at, &entry, NULL), &error, FB_CONFLICT, "version-exists");
    ck_assert_double_eq(metric(store, "graphs"), 2); /* nothing of it was stored */
    ck_assert_double_eq(metric(store, "runs"), 0);
    check_ok(take_passes_out(2, "v1-without-a", false, at, &entry, NULL), &error);
    ck_assert_str_eq(entry.to, "v1-without-a");
    ck_assert_str_eq(entry.to_graph, graphs[2].id);
    ck_assert_str_eq(entry.from, "v1");
    ck_assert_str_eq(entry.action, "rollback");
    check_ok(fb_store_get_run(store, entry.run, &run, &error), &error);
    ck_assert_str_eq(run.result, graphs[2].id);
    fb_store_run_free(&run);
    at = entry.number;
    fb_store_alias_entry_free(&entry);

    char longest[FB_NAME_MAX + 1], cut[FB_NAME_MAX + 1];
    memset(longest, 'n', FB_NAME_MAX);
    longest[FB_NAME_MAX] = '\0';
    snprintf(cut, sizeof cut, "%.*s-2", FB_NAME_MAX - 2, longest);
    const char *const wanted[] = {"v1-without-a", "v1-without-a", longest, longest};
    const char *const got[] = {"v1-without-a-2", "v1-without-a-3", longest, cut};
    for (size_t i = 0; i < 4; i++) {
        check_ok(take_passes_out(2, wanted[i], false, at, &entry, NULL), &error);
        ck_assert_str_eq(entry.to, got[i]);
        at = entry.number;
        fb_store_alias_entry_free(&entry);
    }
    for (size_t i = 0; i < 5; i++) ck_assert_int_ne(roll_back(NULL), 0); /* each was put on top */
    check_version("v1");
    ck_assert_int_ne(roll_back(NULL), 0);
    check_version("v0");
}
END_TEST

START_TEST(the_answer_names_the_entry) {
    check_ok(put("v1", 1), &error);
    int64_t at = set("v1", FB_ALIAS_IS_FREE, 0);
    fb_store_answer answer = {.scope = "POST x", .key = "k", .request_digest = "d", .status = 200, .location = "/x"}, stored;
    fb_store_alias_entry entry;
    fb_store_repeat repeat;
    check_ok(take_passes_out(2, "v2", true, at, &entry, &answer), &error);
    check_ok(fb_store_begin_request(store, "POST x", "k", "d", &repeat, &stored, &error), &error);
    ck_assert_int_eq(repeat, FB_REPEATED);
    ck_assert_int_eq(strtoll(stored.body, NULL, 10), entry.number);
    fb_store_answer_free(&stored);
    int64_t number = entry.number;
    fb_store_alias_entry_free(&entry);
    check_ok(fb_store_get_alias_entry(store, number, &entry, &error), &error);
    ck_assert_str_eq(entry.to, "v2");
    fb_store_alias_entry_free(&entry);
    check_error(fb_store_get_alias_entry(store, number + 1, &entry, &error), &error, FB_NOT_FOUND, "unknown-alias");
}
END_TEST

/* ---- events ---- */

static void check_events(int64_t after, const char *model, const char *alias, size_t limit, int64_t seen, size_t count,
                         const int64_t *numbers) {
    fb_store_alias_entries list;
    check_ok(fb_store_alias_events(store, after, model, alias, limit, &list, &error), &error);
    ck_assert_uint_eq(list.count, count);
    for (size_t i = 0; i < count; i++) ck_assert_int_eq(list.items[i].number, numbers[i]);
    ck_assert_int_eq(list.seen, seen);
    fb_store_alias_entries_free(&list);
}

START_TEST(events_are_the_entries_after_one) {
    int64_t last = 99;
    check_ok(fb_store_last_alias_event(store, &last, &error), &error);
    ck_assert_int_eq(last, 0);
    check_events(0, NULL, NULL, 0, 0, 0, NULL);
    put_versions();
    int64_t number[5];
    fb_store_alias_entry entry;
    number[0] = set("v0", FB_ALIAS_IS_FREE, 0);
    fb_store_alias_change other = change_if(FB_ALIAS_IS_FREE, 0);
    other.alias = "test";
    number[1] = finish(fb_store_set_alias(store, &other, "v1", &entry, &error), &entry);
    number[2] = set("v2", FB_ALIAS_EXISTS, 0);
    number[3] = set("v3", FB_ALIAS_EXISTS, 0);
    other.condition = FB_ALIAS_EXISTS;
    number[4] = finish(fb_store_set_alias(store, &other, "v2", &entry, &error), &entry);
    check_ok(fb_store_last_alias_event(store, &last, &error), &error);
    ck_assert_int_eq(last, number[4]);
    check_events(0, NULL, NULL, 0, number[4], 5, number);
    check_events(0, NULL, NULL, 2, number[1], 2, number);
    check_events(number[1], "bert", NULL, 0, number[4], 3, number + 2);
    check_events(0, "bert", "test", 0, number[4], 2, (int64_t[]){number[1], number[4]});
    check_events(0, NULL, "live", 2, number[2], 2, (int64_t[]){number[0], number[2]});
    check_events(number[3], NULL, "live", 0, number[4], 0, NULL);
    check_events(0, "none", NULL, 0, number[4], 0, NULL);
    check_events(number[4] + 7, NULL, NULL, 0, number[4] + 7, 0, NULL);
}
END_TEST

/* ---- many at once ---- */

#define WRITERS 16
#define MOVES 25

/* Moves the alias MOVES times, each time from where it found it. */
static void *move_often(void *argument) {
    (void)argument;
    fb_store_alias_entry entry;
    for (size_t moved = 0; moved < MOVES;) {
        fb_error failure = {0};
        if (fb_store_get_alias(store, "bert", "live", &entry, &failure)) return (void *)1;
        fb_store_alias_change change = change_if(FB_ALIAS_IS_AT, entry.number);
        bool has_first = strcmp(entry.to, "v0") == 0;
        fb_store_alias_entry_free(&entry);
        fb_status status = fb_store_set_alias(store, &change, has_first ? "v1" : "v0", &entry, &failure);
        if (!status) moved++, fb_store_alias_entry_free(&entry);
        else if (status != FB_CONFLICT) return (void *)1;
    }
    return NULL;
}

START_TEST(no_update_is_lost) {
    pthread_t threads[WRITERS];
    put_versions();
    set("v0", FB_ALIAS_IS_FREE, 0);
    for (size_t i = 0; i < WRITERS; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, move_often, NULL), 0);
    for (size_t i = 0; i < WRITERS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    fb_store_alias_entries list;
    check_ok(fb_store_alias_history(store, "bert", "live", &(fb_store_page){.limit = FB_PAGE_MAX}, &list, &error), &error);
    ck_assert_uint_eq(list.count, 1 + WRITERS * MOVES);
    for (size_t i = 0; i + 1 < list.count; i++) {
        ck_assert_str_eq(list.items[i].from, list.items[i + 1].to);
        ck_assert_str_ne(list.items[i].from, list.items[i].to);
    }
    check_version(list.items[0].to);
    fb_store_alias_entries_free(&list);
}
END_TEST

/* ---- memory ---- */

/* Everything that reads; the first failure. */
static fb_status read_everything(fb_error *failure) {
    fb_store_models models = {0};
    fb_store_versions versions = {0};
    fb_store_alias_entries aliases = {0}, history = {0}, events = {0};
    fb_status status = fb_store_list_models(store, NULL, &models, failure);
    if (!status) status = fb_store_list_versions(store, "bert", NULL, &versions, failure);
    if (!status) status = fb_store_list_aliases(store, "bert", NULL, &aliases, failure);
    if (!status) status = fb_store_alias_history(store, "bert", "live", NULL, &history, failure);
    if (!status) status = fb_store_alias_events(store, 0, "bert", NULL, 0, &events, failure);
    fb_store_models_free(&models);
    fb_store_versions_free(&versions);
    fb_store_alias_entries_free(&aliases);
    fb_store_alias_entries_free(&history);
    fb_store_alias_entries_free(&events);
    return status;
}

START_TEST(readers_survive_every_allocation_that_fails) {
    put_versions();
    set("v0", FB_ALIAS_IS_FREE, 0);
    set("v1", FB_ALIAS_EXISTS, 0);
    long k = 0;
    for (bool has_failed = true; has_failed; k++) {
        fb_error failure = {0};
        chaos_fail_after(k);
        fb_status status = read_everything(&failure);
        has_failed = chaos_off();
        if (status) ck_assert_int_eq(status, FB_NO_MEMORY);
        else ck_assert(!has_failed);
    }
    ck_assert_int_gt(k, 20);
}
END_TEST

/* On the writer's thread: one allocation, after `count` others, will fail there. */
static fb_status arm(fb_connection *connection, void *argument, fb_totals *added, fb_error *failure) {
    (void)connection, (void)added, (void)failure;
    chaos_fail_once(*(const long *)argument);
    return FB_OK;
}

static fb_status disarm(fb_connection *connection, void *argument, fb_totals *added, fb_error *failure) {
    (void)connection, (void)added, (void)failure;
    *(bool *)argument = chaos_off();
    return FB_OK;
}

/* A new version, deployed, and one without some passes; counts the entries that were made. */
static fb_status change_everything(long k, int64_t *entries) {
    char name[32], without[64];
    snprintf(name, sizeof name, "n%ld", k);
    snprintf(without, sizeof without, "n%ld-without", k);
    fb_store_alias_entry entry;
    fb_status status = put(name, 1);
    int64_t at = status ? 0 : set(name, FB_ALIAS_EXISTS, 0);
    if (!at) return error.status;
    ++*entries;
    fb_store_answer answer = {.scope = "POST x", .key = name, .request_digest = "d", .status = 200};
    status = take_passes_out(2, without, true, at, &entry, &answer);
    if (status) return status;
    ++*entries;
    fb_store_alias_entry_free(&entry);
    if (!roll_back(NULL)) return error.status;
    ++*entries;
    return FB_OK;
}

START_TEST(a_change_is_made_or_not_whatever_allocation_fails) {
    put_versions();
    int64_t entries = set("v0", FB_ALIAS_IS_FREE, 0), last = 0;
    long k = 0, failed = 0;
    for (bool has_failed = true; has_failed; k++) {
        fb_writer_run(&store->writer, arm, &k, NULL); /* may itself fail to commit */
        fb_status status = change_everything(k, &entries);
        while (fb_writer_run(&store->writer, disarm, &has_failed, NULL)) continue; /* it may be what meets the failure */
        if (status) ck_assert_int_eq(status, FB_NO_MEMORY);
        failed += status != FB_OK;
        error = (fb_error){0};
        check_ok(fb_store_last_alias_event(store, &last, &error), &error);
        fb_store_alias_entries list;
        check_ok(fb_store_alias_events(store, 0, NULL, NULL, FB_PAGE_MAX, &list, &error), &error);
        ck_assert_int_eq((int64_t)list.count, entries);
        check_version(list.items[list.count - 1].to);
        fb_store_alias_entries_free(&list);
        ck_assert_int_eq(told, entries);
    }
    ck_assert_int_gt(failed, 10);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("models");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, names_are_plain);
    tcase_add_test(tests, a_version_comes_back_and_never_changes);
    tcase_add_test(tests, lists_are_paged);
    tcase_add_test(tests, what_is_needed_is_not_deleted);
    tcase_add_test(tests, an_alias_moves_only_from_where_it_is);
    tcase_add_test(tests, the_history_says_who_when_why_from_and_to);
    tcase_add_test(tests, nobody_changes_the_history);
    tcase_add_test(tests, a_store_from_before_models_gets_them);
    tcase_add_test(tests, rolling_back_goes_down_a_stack);
    tcase_add_test(tests, rolling_back_to_a_version_goes_down_to_it);
    tcase_add_test(tests, a_deleted_version_is_passed_over);
    tcase_add_test(tests, passes_come_out_in_one_step);
    tcase_add_test(tests, the_answer_names_the_entry);
    tcase_add_test(tests, events_are_the_entries_after_one);
    tcase_add_test(tests, no_update_is_lost);
    tcase_add_test(tests, readers_survive_every_allocation_that_fails);
    tcase_add_test(tests, a_change_is_made_or_not_whatever_allocation_fails);
    return run_tests("store_models", tests);
}
