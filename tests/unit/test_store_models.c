/* The store's models: versions that never change, aliases that move under conditions, a history that only grows, events. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "server/store/models.h"
#include "server/store/store.h"
#include "tests/unit/models_fixture.h"

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
    fb_store_run run = make_run(fixture.store, &fixture.graphs[0], &fixture.graphs[1]);
    put_run(fixture.store, &run, &fixture.graphs[0], &fixture.graphs[1]);
    fb_store_new_version version = {.model = "bert", .name = "v1", .run = run.id, .note = "first"};
    fb_store_version stored;
    bool is_new = false;
    check_ok(fb_store_put_version(fixture.store, &version, &is_new, &stored, &fixture.error), &fixture.error);
    ck_assert(is_new);
    for (int round = 0; round < 2; round++) {
        ck_assert_str_eq(stored.model, "bert");
        ck_assert_str_eq(stored.name, "v1");
        ck_assert_str_eq(stored.graph, fixture.graphs[1].id);
        ck_assert_str_eq(stored.run, run.id);
        ck_assert_str_eq(stored.note, "first");
        ck_assert_int_eq(stored.created, 1700000000000);
        FB_STORE_FREE(&stored);
        reopen_models();
        check_ok(fb_store_get_version(fixture.store, "bert", "v1", &stored, &fixture.error), &fixture.error);
    }
    FB_STORE_FREE(&stored);

    version = (fb_store_new_version){.model = "bert", .name = "v1", .graph = fixture.graphs[1].id}; /* the same graph */
    check_ok(fb_store_put_version(fixture.store, &version, &is_new, &stored, &fixture.error), &fixture.error);
    ck_assert(!is_new);
    ck_assert_str_eq(stored.run, run.id);
    FB_STORE_FREE(&stored);
    ck_assert_int_ne(put_version("v1", 2), FB_OK);
    check_failed(FB_CONFLICT, "version-exists");
    ck_assert_double_eq(metric(fixture.store, "graphs"), 2); /* the refused one was not stored */
    version.graph = fixture.graphs[3].id;
    check_error(fb_store_put_version(fixture.store, &version, &is_new, &stored, &fixture.error), &fixture.error, FB_NOT_FOUND,
                "unknown-graph");
    version = (fb_store_new_version){.model = "new", .name = "v1", .run = "run_0"};
    check_error(fb_store_put_version(fixture.store, &version, &is_new, &stored, &fixture.error), &fixture.error, FB_NOT_FOUND,
                "unknown-run");
    check_error(fb_store_get_version(fixture.store, "new", "v1", &stored, &fixture.error), &fixture.error, FB_NOT_FOUND,
                "unknown-model");
    check_error(fb_store_get_version(fixture.store, "bert", "v9", &stored, &fixture.error), &fixture.error, FB_NOT_FOUND,
                "unknown-version");
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
        check_ok(fb_store_list_versions(fixture.store, "bert", &page, &versions, &fixture.error), &fixture.error);
        ck_assert_uint_eq(versions.count, 1);
        ck_assert_str_eq(versions.items[0].name, expected[i]);
        memcpy(token, versions.next_token, sizeof token);
        FB_STORE_FREE(&versions);
    }
    ck_assert_str_eq(token, "");
    check_error(fb_store_list_versions(fixture.store, "none", NULL, &versions, &fixture.error), &fixture.error, FB_NOT_FOUND,
                "unknown-model");
    ck_assert_int_ne(set_live("v1", FB_ALIAS_IS_FREE, 0), 0);
    check_ok(fb_store_list_models(fixture.store, NULL, &models, &fixture.error), &fixture.error);
    ck_assert_uint_eq(models.count, 1);
    ck_assert_str_eq(models.items[0].name, "bert");
    FB_STORE_FREE(&models);
    check_ok(fb_store_get_model(fixture.store, "bert", &model, &fixture.error), &fixture.error);
    ck_assert_uint_eq(model.versions, 4);
    ck_assert_uint_eq(model.aliases, 1);
    FB_STORE_FREE(&model);
    check_error(fb_store_get_model(fixture.store, "none", &model, &fixture.error), &fixture.error, FB_NOT_FOUND,
                "unknown-model");
}
END_TEST

START_TEST(what_is_needed_is_not_deleted) {
    fb_store_users users;
    put_versions();
    check_error(fb_store_delete_graph(fixture.store, fixture.graphs[0].id, NULL, &users, &fixture.error), &fixture.error,
                FB_CONFLICT, "graph-in-use");
    ck_assert_uint_eq(users.version_count, 1);
    ck_assert_str_eq(users.versions[0], "bert/v0");
    int64_t first = set_live("v0", FB_ALIAS_IS_FREE, 0), second = set_live("v1", FB_ALIAS_IS_AT, first);
    ck_assert_int_gt(second, first);
    check_error(fb_store_delete_version(fixture.store, "bert", "v1", NULL, &fixture.error), &fixture.error, FB_CONFLICT,
                "version-in-use");
    check_error(fb_store_delete_version(fixture.store, "bert", "v0", NULL, &fixture.error), &fixture.error, FB_CONFLICT,
                "version-in-use");
    check_ok(fb_store_delete_version(fixture.store, "bert", "v2", NULL, &fixture.error), &fixture.error);
    check_error(fb_store_delete_version(fixture.store, "bert", "v2", NULL, &fixture.error), &fixture.error, FB_NOT_FOUND,
                "unknown-version");
    fb_store_alias_change change = change_if(FB_ALIAS_IS_AT, second);
    check_ok(fb_store_delete_alias(fixture.store, &change, &fixture.error), &fixture.error);
    check_ok(fb_store_delete_version(fixture.store, "bert", "v0", NULL, &fixture.error), &fixture.error);
    check_ok(fb_store_delete_graph(fixture.store, fixture.graphs[0].id, NULL, &users, &fixture.error), &fixture.error);
    fb_store_alias_entries history; /* it still says what there was */
    check_ok(fb_store_alias_history(fixture.store, "bert", "live", NULL, &history, &fixture.error), &fixture.error);
    ck_assert_uint_eq(history.count, 3);
    ck_assert_str_eq(history.items[1].from, "v0");
    ck_assert_str_eq(history.items[1].from_graph, fixture.graphs[0].id);
    FB_STORE_FREE(&history);
}
END_TEST

/* ---- aliases ---- */

START_TEST(an_alias_moves_only_from_where_it_is) {
    put_versions();
    ck_assert_int_eq(set_live("v0", FB_ALIAS_EXISTS, 0), 0);
    check_failed(FB_CONFLICT, "alias-moved");
    int64_t first = set_live("v0", FB_ALIAS_IS_FREE, 0);
    ck_assert_int_gt(first, 0);
    ck_assert_int_eq(set_live("v1", FB_ALIAS_IS_FREE, 0), 0);
    check_failed(FB_CONFLICT, "alias-exists");
    ck_assert_int_eq(set_live("v1", FB_ALIAS_IS_AT, first + 1), 0);
    check_failed(FB_CONFLICT, "alias-moved");
    ck_assert_int_eq(set_live("v9", FB_ALIAS_IS_AT, first), 0);
    check_failed(FB_NOT_FOUND, "unknown-version");
    ck_assert_int_eq(fixture.told, 1);
    int64_t second = set_live("v1", FB_ALIAS_IS_AT, first);
    ck_assert_int_gt(second, first);
    ck_assert_int_eq(set_live("v1", FB_ALIAS_IS_AT, second), second); /* it has it */
    ck_assert_int_eq(fixture.told, 2);
    ck_assert_int_eq(set_live("v2", FB_ALIAS_IS_AT, first), 0);
    check_failed(FB_CONFLICT, "alias-moved");
    reopen_models();
    check_live("v1");

    fb_store_alias_change change = change_if(FB_ALIAS_IS_AT, first);
    check_error(fb_store_delete_alias(fixture.store, &change, &fixture.error), &fixture.error, FB_CONFLICT, "alias-moved");
    change.expected = second;
    check_ok(fb_store_delete_alias(fixture.store, &change, &fixture.error), &fixture.error);
    ck_assert_int_eq(fixture.told, 3);
    fb_store_alias_entry entry;
    check_error(fb_store_get_alias(fixture.store, "bert", "live", &entry, &fixture.error), &fixture.error, FB_NOT_FOUND,
                "unknown-alias");
    check_error(fb_store_delete_alias(fixture.store, &change, &fixture.error), &fixture.error, FB_CONFLICT, "alias-moved");
    ck_assert_int_eq(set_live("v1", FB_ALIAS_EXISTS, 0), 0);
    check_failed(FB_CONFLICT, "alias-moved");
    ck_assert_int_gt(set_live("v1", FB_ALIAS_IS_FREE, 0), second + 1);
    ck_assert_int_eq(roll_back_live(NULL), 0); /* it is a new one */
    check_failed(FB_CONFLICT, "nothing-to-roll-back");
}
END_TEST

START_TEST(the_history_says_who_when_why_from_and_to) {
    put_versions();
    int64_t first = set_live("v0", FB_ALIAS_IS_FREE, 0);
    set_live("v1", FB_ALIAS_EXISTS, 0);
    roll_back_live(NULL);
    fb_store_alias_change change = change_if(FB_ALIAS_EXISTS, 0);
    check_ok(fb_store_delete_alias(fixture.store, &change, &fixture.error), &fixture.error);
    fb_store_alias_entries list;
    check_ok(fb_store_alias_history(fixture.store, "bert", "live", NULL, &list, &fixture.error), &fixture.error);
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
        ck_assert_pstr_eq(entry->to_graph, !entry->to ? NULL : fixture.graphs[entry->to[1] - '0'].id);
    }
    FB_STORE_FREE(&list);
    check_error(fb_store_alias_history(fixture.store, "bert", "none", NULL, &list, &fixture.error), &fixture.error,
                FB_NOT_FOUND, "unknown-alias");
}
END_TEST

START_TEST(nobody_changes_the_history) {
    put_versions();
    set_live("v0", FB_ALIAS_IS_FREE, 0);
    fb_store_close(fixture.store);
    sqlite3 *database;
    char path[600];
    snprintf(path, sizeof path, "%s/foldback.sqlite", fixture.folder);
    ck_assert_int_eq(sqlite3_open(path, &database), SQLITE_OK);
    const char *const statements[] = {"UPDATE alias_entries SET who = 'eve'", "DELETE FROM alias_entries",
                                      "INSERT OR REPLACE INTO alias_entries (number, alias, at, action) VALUES (1, 1, 0, 'x')"};
    for (size_t i = 0; i < 3; i++) {
        char *message = NULL;
        ck_assert_int_eq(sqlite3_exec(database, statements[i], NULL, NULL, &message), SQLITE_CONSTRAINT);
        sqlite3_free(message);
    }
    sqlite3_close(database);
    open_models_store();
}
END_TEST

static void run_sql(const char *sql) {
    sqlite3 *database;
    char path[600];
    snprintf(path, sizeof path, "%s/foldback.sqlite", fixture.folder);
    ck_assert_int_eq(sqlite3_open(path, &database), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(database, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(database));
    sqlite3_close(database);
}

START_TEST(a_store_from_before_models_gets_them) {
    fb_store_run run = make_run(fixture.store, &fixture.graphs[0], &fixture.graphs[1]);
    put_run(fixture.store, &run, &fixture.graphs[0], &fixture.graphs[1]);
    fb_store_close(fixture.store);
    run_sql("DROP INDEX node_signatures_signature; ALTER TABLE node_signatures DROP COLUMN name; "
            "DROP TABLE webhook_deliveries; DROP TABLE webhooks; DROP TABLE claims; DROP TABLE requests; DROP TABLE replicas; "
            "DROP TABLE notes; DROP TABLE job_references; DROP "
            "TABLE unread_jobs; DROP TABLE jobs; DROP TABLE pins; DROP TABLE tokens; DROP "
            "TABLE audit; DROP TABLE audit_trim; DROP TABLE rules; DROP TABLE "
            "unread_graphs; DROP TABLE tensor_digests; DROP "
            "TABLE graph_blobs; DROP TABLE collected; DROP TABLE blobs; "
            "DROP TABLE alias_entries; DROP TABLE aliases; DROP TABLE versions; DROP TABLE models; ALTER TABLE runs DROP "
            "COLUMN validation; ALTER TABLE runs DROP COLUMN requested; DROP INDEX run_passes_preset; "
            "ALTER TABLE run_passes DROP COLUMN preset; PRAGMA user_version = 1");
    open_models_store();
    check_ok(put_version("v1", 1), &fixture.error);
    ck_assert_int_ne(set_live("v1", FB_ALIAS_IS_FREE, 0), 0);
    fb_store_run stored;
    check_ok(fb_store_get_run(fixture.store, run.id, &stored, &fixture.error), &fixture.error);
    FB_STORE_FREE(&stored);
}
END_TEST

/* ---- events ---- */

static fb_event_wish aliases_of(const char *model, const char *alias) {
    return (fb_event_wish){.kinds = 1U << FB_EVENT_ALIAS, .model = model, .alias = alias};
}

static void check_events(int64_t after, const char *model, const char *alias, size_t limit, int64_t seen, size_t count,
                         const int64_t *numbers) {
    fb_store_events list;
    const fb_event_wish wish = aliases_of(model, alias);
    const fb_event_place place = {.of[FB_EVENT_ALIAS] = after};
    check_ok(fb_store_events_after(fixture.store, &wish, &place, limit, &list, &fixture.error), &fixture.error);
    ck_assert_uint_eq(list.count, count);
    for (size_t i = 0; i < count; i++) ck_assert_int_eq(list.items[i].number, numbers[i]);
    ck_assert_int_eq(list.seen.of[FB_EVENT_ALIAS], seen);
    FB_STORE_FREE(&list);
}

static fb_event_place last_event(fb_event_place *highest) {
    fb_event_place last;
    check_ok(fb_store_last_event(fixture.store, &last, highest, &fixture.error), &fixture.error);
    return last;
}

START_TEST(events_are_what_comes_after_one) {
    fb_event_place highest;
    ck_assert_int_eq(last_event(&highest).of[FB_EVENT_ALIAS], 0);
    ck_assert_int_eq(highest.of[FB_EVENT_RUN], 0);
    check_events(0, NULL, NULL, 0, 0, 0, NULL);
    put_versions();
    int64_t number[5];
    fb_store_alias_entry entry;
    number[0] = set_live("v0", FB_ALIAS_IS_FREE, 0);
    fb_store_alias_change other = change_if(FB_ALIAS_IS_FREE, 0);
    other.alias = "test";
    number[1] = entry_number(fb_store_set_alias(fixture.store, &other, "v1", &entry, &fixture.error), &entry);
    number[2] = set_live("v2", FB_ALIAS_EXISTS, 0);
    number[3] = set_live("v3", FB_ALIAS_EXISTS, 0);
    other.condition = FB_ALIAS_EXISTS;
    number[4] = entry_number(fb_store_set_alias(fixture.store, &other, "v2", &entry, &fixture.error), &entry);
    ck_assert_int_eq(last_event(&highest).of[FB_EVENT_ALIAS], number[4]);
    ck_assert_int_eq(highest.of[FB_EVENT_ALIAS], number[4]);
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

/* Of several kinds, page by page: each comes once, each kind in its order, and what an alias names before the alias. */
START_TEST(events_of_all_kinds_in_pages) {
    put_versions();
    set_live("v0", FB_ALIAS_IS_FREE, 0);
    set_live("v1", FB_ALIAS_EXISTS, 0);
    const fb_event_wish wish = {.kinds = (1U << FB_EVENT_KINDS) - 1};
    for (size_t limit = 1; limit < 9; limit++) {
        fb_event_place place = {0}, unused, last = last_event(&unused);
        fb_store_events page;
        size_t count[FB_EVENT_KINDS] = {0};
        do {
            fb_event_place before = place;
            check_ok(fb_store_events_after(fixture.store, &wish, &place, limit, &page, &fixture.error), &fixture.error);
            for (size_t i = 0; i < page.count; i++) {
                const fb_store_event *event = &page.items[i];
                ck_assert_int_gt(event->number, before.of[event->kind]);
                before.of[event->kind] = event->number;
                count[event->kind]++;
                ck_assert(event->kind == FB_EVENT_RUN || strcmp(event->model, "bert") == 0);
                if (event->kind == FB_EVENT_ALIAS) ck_assert_uint_ge(count[FB_EVENT_VERSION], count[FB_EVENT_ALIAS]);
            }
            ck_assert_uint_le(page.count, limit);
            place = page.seen;
            FB_STORE_FREE(&page);
        } while (memcmp(&place, &last, sizeof place) != 0);
        ck_assert_uint_eq(count[FB_EVENT_VERSION], 4);
        ck_assert_uint_eq(count[FB_EVENT_ALIAS], 2);
        ck_assert_uint_eq(count[FB_EVENT_RUN], (size_t)last.of[FB_EVENT_RUN]);
    }
}
END_TEST

/* What is gone is left out, and is not taken for something that never was. */
START_TEST(the_last_version_is_deleted) {
    put_versions();
    fb_event_place before, after, highest;
    before = last_event(&highest);
    check_ok(fb_store_delete_version(fixture.store, "bert", "v3", NULL, &fixture.error), &fixture.error);
    after = last_event(&highest);
    ck_assert_int_lt(after.of[FB_EVENT_VERSION], before.of[FB_EVENT_VERSION]);
    ck_assert_int_eq(highest.of[FB_EVENT_VERSION], before.of[FB_EVENT_VERSION]);
    const fb_event_wish wish = {.kinds = 1U << FB_EVENT_VERSION};
    fb_store_events list;
    check_ok(fb_store_events_after(fixture.store, &wish, &before, 0, &list, &fixture.error), &fixture.error);
    ck_assert_uint_eq(list.count, 0);
    ck_assert_int_eq(list.seen.of[FB_EVENT_VERSION], before.of[FB_EVENT_VERSION]);
    FB_STORE_FREE(&list);
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
        if (fb_store_get_alias(fixture.store, "bert", "live", &entry, &failure)) return (void *)1;
        fb_store_alias_change change = change_if(FB_ALIAS_IS_AT, entry.number);
        bool has_first = strcmp(entry.to, "v0") == 0;
        FB_STORE_FREE(&entry);
        fb_status status = fb_store_set_alias(fixture.store, &change, has_first ? "v1" : "v0", &entry, &failure);
        if (status && status != FB_CONFLICT) return (void *)1;
        if (status) continue;
        moved++;
        FB_STORE_FREE(&entry);
    }
    return NULL;
}

START_TEST(no_update_is_lost) {
    pthread_t threads[WRITERS];
    put_versions();
    set_live("v0", FB_ALIAS_IS_FREE, 0);
    for (size_t i = 0; i < WRITERS; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, move_often, NULL), 0);
    for (size_t i = 0; i < WRITERS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    fb_store_alias_entries list;
    check_ok(
        fb_store_alias_history(fixture.store, "bert", "live", &(fb_store_page){.limit = FB_PAGE_MAX}, &list, &fixture.error),
        &fixture.error);
    ck_assert_uint_eq(list.count, 1 + WRITERS * MOVES);
    for (size_t i = 0; i + 1 < list.count; i++) {
        ck_assert_str_eq(list.items[i].from, list.items[i + 1].to);
        ck_assert_str_ne(list.items[i].from, list.items[i].to);
    }
    check_live(list.items[0].to);
    FB_STORE_FREE(&list);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("models");
    tcase_add_checked_fixture(tests, open_models, close_models);
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, names_are_plain);
    tcase_add_test(tests, a_version_comes_back_and_never_changes);
    tcase_add_test(tests, lists_are_paged);
    tcase_add_test(tests, what_is_needed_is_not_deleted);
    tcase_add_test(tests, an_alias_moves_only_from_where_it_is);
    tcase_add_test(tests, the_history_says_who_when_why_from_and_to);
    tcase_add_test(tests, nobody_changes_the_history);
    tcase_add_test(tests, a_store_from_before_models_gets_them);
    tcase_add_test(tests, events_are_what_comes_after_one);
    tcase_add_test(tests, events_of_all_kinds_in_pages);
    tcase_add_test(tests, the_last_version_is_deleted);
    tcase_add_test(tests, no_update_is_lost);
    return run_tests("store_models", tests);
}
