/* The store's models: aliases go back, and versions without some passes take their places. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/models_fixture.h"

START_TEST(rolling_back_goes_down_a_stack) {
    put_versions();
    set_live("v1", FB_ALIAS_IS_FREE, 0);
    set_live("v2", FB_ALIAS_EXISTS, 0);
    set_live("v3", FB_ALIAS_EXISTS, 0);
    ck_assert_int_ne(roll_back_live(NULL), 0);
    check_live("v2");
    ck_assert_int_ne(roll_back_live(NULL), 0);
    check_live("v1");
    ck_assert_int_eq(roll_back_live(NULL), 0);
    check_failed(FB_CONFLICT, "nothing-to-roll-back");
    check_live("v1");
    set_live("v3", FB_ALIAS_EXISTS, 0);
    set_live("v0", FB_ALIAS_EXISTS, 0);
    ck_assert_int_ne(roll_back_live(NULL), 0);
    check_live("v3");
    ck_assert_int_ne(roll_back_live(NULL), 0);
    check_live("v1");
    ck_assert_int_eq(roll_back_live(NULL), 0);
    check_failed(FB_CONFLICT, "nothing-to-roll-back");
}
END_TEST

START_TEST(rolling_back_to_a_version_goes_down_to_it) {
    put_versions();
    int64_t first = set_live("v1", FB_ALIAS_IS_FREE, 0);
    set_live("v2", FB_ALIAS_EXISTS, 0);
    set_live("v1", FB_ALIAS_EXISTS, 0);
    set_live("v3", FB_ALIAS_EXISTS, 0);
    ck_assert_int_eq(roll_back_live("v9"), 0);
    check_failed(FB_NOT_FOUND, "unknown-version");
    ck_assert_int_eq(roll_back_live("v0"), 0);
    check_failed(FB_CONFLICT, "never-deployed");
    ck_assert_int_eq(roll_back_live("v3"), first + 3); /* it has it */
    ck_assert_int_ne(roll_back_live("v2"), 0);
    check_live("v2");
    ck_assert_int_ne(roll_back_live("v1"), 0); /* the first one, not the one that was rolled back */
    check_live("v1");
    ck_assert_int_eq(roll_back_live(NULL), 0);
    check_failed(FB_CONFLICT, "nothing-to-roll-back");
    ck_assert_int_ne(roll_back_live("v3"), 0); /* by its name what was rolled back can be had again */
    check_live("v3");
    ck_assert_int_ne(roll_back_live(NULL), 0);
    check_live("v1");
    ck_assert_int_eq(roll_back_live(NULL), 0); /* v2 is below it, and was rolled back from */
    check_failed(FB_CONFLICT, "nothing-to-roll-back");
}
END_TEST

/* What an alias had in a life before may have been deleted meanwhile. */
START_TEST(a_deleted_version_is_passed_over) {
    put_versions();
    set_live("v1", FB_ALIAS_IS_FREE, 0);
    set_live("v0", FB_ALIAS_EXISTS, 0);
    set_live("v2", FB_ALIAS_EXISTS, 0);
    fb_store_alias_change change = change_if(FB_ALIAS_EXISTS, 0);
    check_ok(fb_store_delete_alias(fixture.store, &change, &fixture.error), &fixture.error);
    check_ok(fb_store_delete_version(fixture.store, "bert", "v0", NULL, &fixture.error), &fixture.error);
    set_live("v3", FB_ALIAS_IS_FREE, 0);
    check_ok(put_version("v0", 3), &fixture.error); /* another one of that name */
    ck_assert_int_eq(roll_back_live("v0"), 0);
    check_failed(FB_CONFLICT, "never-deployed");
    ck_assert_int_ne(roll_back_live("v2"), 0);
    ck_assert_int_ne(roll_back_live(NULL), 0);
    check_live("v1");
}
END_TEST

START_TEST(passes_come_out_in_one_step) {
    check_ok(put_version("v0", 0), &fixture.error);
    check_ok(put_version("v1", 1), &fixture.error);
    set_live("v0", FB_ALIAS_IS_FREE, 0);
    int64_t at = set_live("v1", FB_ALIAS_EXISTS, 0);
    fb_store_alias_entry entry;
    fb_store_run run;
    check_error(take_passes_out(2, "v1-without-a", false, at - 1, &entry, NULL), &fixture.error, FB_CONFLICT, "alias-moved");
    check_error(take_passes_out(2, "v0", true, at, &entry, NULL), &fixture.error, FB_CONFLICT, "version-exists");
    ck_assert_double_eq(metric(fixture.store, "graphs"), 2); /* nothing of it was stored */
    ck_assert_double_eq(metric(fixture.store, "runs"), 0);
    check_ok(take_passes_out(2, "v1-without-a", false, at, &entry, NULL), &fixture.error);
    ck_assert_str_eq(entry.to, "v1-without-a");
    ck_assert_str_eq(entry.to_graph, fixture.graphs[2].id);
    ck_assert_str_eq(entry.from, "v1");
    ck_assert_str_eq(entry.action, "rollback");
    check_ok(fb_store_get_run(fixture.store, entry.run, &run, &fixture.error), &fixture.error);
    ck_assert_str_eq(run.result, fixture.graphs[2].id);
    FB_STORE_FREE(&run);
    at = entry.number;
    FB_STORE_FREE(&entry);

    char longest[FB_NAME_MAX + 1], cut[FB_NAME_MAX + 1];
    memset(longest, 'n', FB_NAME_MAX);
    longest[FB_NAME_MAX] = '\0';
    snprintf(cut, sizeof cut, "%.*s-2", FB_NAME_MAX - 2, longest);
    const char *const wanted[] = {"v1-without-a", "v1-without-a", longest, longest};
    const char *const got[] = {"v1-without-a-2", "v1-without-a-3", longest, cut};
    for (size_t i = 0; i < 4; i++) {
        check_ok(take_passes_out(2, wanted[i], false, at, &entry, NULL), &fixture.error);
        ck_assert_str_eq(entry.to, got[i]);
        at = entry.number;
        FB_STORE_FREE(&entry);
    }
    for (size_t i = 0; i < 5; i++) ck_assert_int_ne(roll_back_live(NULL), 0); /* each was put on top */
    check_live("v1");
    ck_assert_int_ne(roll_back_live(NULL), 0);
    check_live("v0");
}
END_TEST

START_TEST(the_answer_names_the_entry) {
    check_ok(put_version("v1", 1), &fixture.error);
    int64_t at = set_live("v1", FB_ALIAS_IS_FREE, 0);
    fb_store_answer answer = {.key = {"ann", "POST x", "k"}, .request_digest = "d", .status = 200, .location = "/x"}, stored;
    fb_store_alias_entry entry;
    fb_store_repeat repeat;
    check_ok(take_passes_out(2, "v2", true, at, &entry, &answer), &fixture.error);
    check_ok(
        fb_store_begin_request(fixture.store, &(fb_store_key){"ann", "POST x", "k"}, "d", &repeat, &stored, &fixture.error),
        &fixture.error);
    ck_assert_int_eq(repeat, FB_REPEATED);
    ck_assert_int_eq(strtoll(stored.body, NULL, 10), entry.number);
    FB_STORE_FREE(&stored);
    int64_t number = entry.number;
    FB_STORE_FREE(&entry);
    check_ok(fb_store_get_alias_entry(fixture.store, number, &entry, &fixture.error), &fixture.error);
    ck_assert_str_eq(entry.to, "v2");
    FB_STORE_FREE(&entry);
    check_error(fb_store_get_alias_entry(fixture.store, number + 1, &entry, &fixture.error), &fixture.error, FB_NOT_FOUND,
                "unknown-alias");
}
END_TEST

/* However many there are: none of them is a version to go back to. */
START_TEST(all_that_was_taken_back_is_skipped) {
    char name[16];
    put_versions();
    set_live("v0", FB_ALIAS_IS_FREE, 0);
    for (int i = 0; i < 1100; i++) {
        snprintf(name, sizeof name, "n%d", i);
        check_ok(put_version(name, 1), &fixture.error);
        set_live(name, FB_ALIAS_EXISTS, 0);
    }
    set_live("v0", FB_ALIAS_EXISTS, 0);
    ck_assert_int_eq(roll_back_live(NULL), 0);
    ck_assert_str_eq(fixture.error.code, "nothing-to-roll-back");
    fb_store_rollback_plan plan;
    fixture.error = (fb_error){0};
    check_ok(fb_store_plan_rollback(fixture.store, "bert", "live", &plan, &fixture.error), &fixture.error);
    ck_assert_ptr_null(plan.to);
    ck_assert_uint_eq(plan.withdrawn_count, 1000); /* the answer's limit */
    ck_assert_str_eq(plan.withdrawn[0], "n1099");
    FB_STORE_FREE(&plan);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("rollback");
    tcase_add_checked_fixture(tests, open_models, close_models);
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, rolling_back_goes_down_a_stack);
    tcase_add_test(tests, rolling_back_to_a_version_goes_down_to_it);
    tcase_add_test(tests, a_deleted_version_is_passed_over);
    tcase_add_test(tests, passes_come_out_in_one_step);
    tcase_add_test(tests, the_answer_names_the_entry);
    tcase_add_test(tests, all_that_was_taken_back_is_skipped);
    return run_tests("store_rollback", tests);
}
