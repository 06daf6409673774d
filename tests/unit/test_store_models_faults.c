/* The store's models while memory runs out: every allocation may fail. */
#include <stdio.h>

#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/models.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "tests/unit/chaos.h"
#include "tests/unit/models_fixture.h"

/* Everything that reads; the first failure. */
static fb_status read_everything(fb_error *failure) {
    fb_store_models models = {0};
    fb_store_versions versions = {0};
    fb_store_alias_entries aliases = {0}, history = {0};
    fb_store_events events = {0};
    const fb_event_wish all_kinds = {.kinds = (1U << FB_EVENT_KINDS) - 1};
    fb_status status = fb_store_list_models(fixture.store, NULL, &models, failure);
    if (!status) status = fb_store_list_versions(fixture.store, "bert", NULL, &versions, failure);
    if (!status) status = fb_store_list_aliases(fixture.store, "bert", NULL, &aliases, failure);
    if (!status) status = fb_store_alias_history(fixture.store, "bert", "live", NULL, &history, failure);
    if (!status) status = fb_store_events_after(fixture.store, &all_kinds, &(fb_event_place){0}, 0, &events, failure);
    FB_STORE_FREE(&models);
    FB_STORE_FREE(&versions);
    FB_STORE_FREE(&aliases);
    FB_STORE_FREE(&history);
    FB_STORE_FREE(&events);
    return status;
}

START_TEST(readers_survive_every_allocation_that_fails) {
    put_versions();
    set_live("v0", FB_ALIAS_IS_FREE, 0);
    set_live("v1", FB_ALIAS_EXISTS, 0);
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
    fb_status status = put_version(name, 1);
    int64_t at = status ? 0 : set_live(name, FB_ALIAS_EXISTS, 0);
    if (!at) return fixture.error.status;
    ++*entries;
    fb_store_answer answer = {.key = {"ann", "POST x", name}, .request_digest = "d", .status = 200};
    status = take_passes_out(2, without, true, at, &entry, &answer);
    if (status) return status;
    ++*entries;
    FB_STORE_FREE(&entry);
    if (!roll_back_live(NULL)) return fixture.error.status;
    ++*entries;
    return FB_OK;
}

START_TEST(a_change_is_made_or_not_whatever_allocation_fails) {
    put_versions();
    int64_t entries = set_live("v0", FB_ALIAS_IS_FREE, 0);
    long k = 0, failed = 0;
    /* The history that a rollback reads grows with each change, and with it the allocations: so the steps grow, too. */
    for (bool has_failed = true; has_failed; k += 1 + k / 64) {
        fb_writer_run(&fixture.store->writer, arm, &k, NULL); /* may itself fail to commit */
        fb_status status = change_everything(k, &entries);
        while (fb_writer_run(&fixture.store->writer, disarm, &has_failed, NULL))
            continue; /* it may be what meets the failure */
        if (status) ck_assert_int_eq(status, FB_NO_MEMORY);
        failed += status != FB_OK;
        fixture.error = (fb_error){0};
        fb_event_place last, unused;
        check_ok(fb_store_last_event(fixture.store, &last, &unused, &fixture.error), &fixture.error);
        ck_assert_int_eq(last.of[FB_EVENT_ALIAS], entries);
        fb_store_alias_entry entry;
        check_ok(fb_store_get_alias_entry(fixture.store, entries, &entry, &fixture.error), &fixture.error);
        check_live(entry.to);
        FB_STORE_FREE(&entry);
        ck_assert_int_eq(fixture.told, entries);
    }
    ck_assert_int_gt(failed, 10);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("models_faults");
    tcase_add_checked_fixture(tests, open_models, close_models);
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, readers_survive_every_allocation_that_fails);
    tcase_add_test(tests, a_change_is_made_or_not_whatever_allocation_fails);
    return run_tests("store_models_faults", tests);
}
