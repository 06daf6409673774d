/* Tokens in memory, beside threads that make and revoke them; secrets; moments; rates. */
#include "tests/unit/checks.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "core/base/timestamp.h"
#include "server/auth/auth.h"
#include "server/http/internal.h"
#include "tests/unit/store_fixture.h"

/* ---- moments ------------------------------------------------------------------------------------------------------------ */

START_TEST(moments_are_read) {
    static const struct {
        const char *text;
        int64_t milliseconds;
    } good[] = {
        {"1970-01-01", 0},
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-02", 86400000},
        {"2000-02-29T12:30:45.678Z", 951827445678},
        {"2000-02-29t12:30:45.678z", 951827445678},
        {"2000-02-29 12:30:45.678901234Z", 951827445678},
        {"2000-02-29T12:30:45.6Z", 951827445600},
        {"2000-02-29T13:30:45+01:00", 951827445000},
        {"2000-02-29T07:00:45-05:30", 951827445000},
        {"2016-12-31T23:59:60Z", 1483228800000}, /* a leap second is the next one */
        {"2026-03-01", 1772323200000},
        {"2100-03-01", 4107542400000}, /* no leap year */
        {"9999-12-31T23:59:59.999Z", 253402300799999},
        {"1970-01-01T01:00:00+01:00", 0},
    };
    static const char *const bad[] = {
        "",
        "now",
        "1969-12-31",
        "1970-01-01T00:00:00+00:01",
        "2000-13-01",
        "2000-00-01",
        "2001-02-29",
        "2000-01-32",
        "2000-01-00",
        "2000-1-1",
        "2000-01-01T",
        "2000-01-01T00:00Z",
        "20000101",
        "2000-01-01T00:00:00",
        "2000-01-01T24:00:00Z",
        "2000-01-01T00:60:00Z",
        "2000-01-01T00:00:61Z",
        "2000-01-01T00:00:00.Z",
        "2000-01-01T00:00:00Zx",
        "2000-01-01T00:00:00+1:00",
        "2000-01-01T00:00:00+24:00",
        "2000-01-01x",
        "-2000-01-01",
        "2000-01-01T00:00:00+01:60",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t found = -1;
        ck_assert_msg(fb_timestamp_read(good[i].text, &found), "%s", good[i].text);
        ck_assert_msg(found == good[i].milliseconds, "%s: %lld", good[i].text, (long long)found);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t found = -1;
        ck_assert_msg(!fb_timestamp_read(bad[i], &found) && found == -1, "%s", bad[i]);
    }
}
END_TEST

/* ---- secrets ------------------------------------------------------------------------------------------------------------ */

START_TEST(secrets_are_random_and_well_formed) {
    enum { count = 2000 };
    static char secrets[count][FB_TOKEN_LENGTH + 1];
    unsigned seen[256] = {0};
    for (size_t i = 0; i < count; i++) {
        char digest[FB_ID_LENGTH + 1];
        ck_assert_int_eq(fb_secret_make(secrets[i], NULL), FB_OK);
        ck_assert_uint_eq(strlen(secrets[i]), FB_TOKEN_LENGTH);
        ck_assert(fb_secret_digest(secrets[i], digest) == FB_OK && fb_is_sha256_id(digest));
        for (size_t at = 4; at < FB_TOKEN_LENGTH; at++) seen[(unsigned char)secrets[i][at]]++;
        for (size_t j = 0; j < i; j++) ck_assert_str_ne(secrets[i], secrets[j]);
    }
    unsigned characters = 0;
    for (size_t c = 0; c < 256; c++) { /* 86,000 characters: 1,344 of each of the 64, but for the last place */
        characters += seen[c] > 0;
        ck_assert(!seen[c] || (seen[c] > 1000 && seen[c] < 1700));
    }
    ck_assert_uint_eq(characters, 64);
}
END_TEST

START_TEST(what_is_no_secret_has_no_digest) {
    static const char *const bad[] = {
        "",
        "fbt_",
        "fbt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",   /* one short */
        "fbt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", /* one long */
        "FBT_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "fbt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "fbt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA ",
        "fbt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\xc3\xa9",
    };
    char digest[FB_ID_LENGTH + 1];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(fb_secret_digest(bad[i], digest) == FB_INVALID, "%s", bad[i]);
    ck_assert_int_eq(fb_secret_digest("fbt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", digest), FB_OK);
}
END_TEST

/* ---- who may ask -------------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 20, ASKERS = 3 };

typedef struct work {
    fb_auth *auth;
    const char *steady; /* a token that stays */
    atomic_bool is_over;
    atomic_uint wrong, asked;
} work;

static void *ask(void *argument) {
    work *w = argument;
    while (!atomic_load(&w->is_over)) {
        char principal[FB_PRINCIPAL_MAX + 1] = FB_ANONYMOUS;
        if (fb_auth_admit(w->auth, w->steady, FB_SCOPE_WRITE, principal) != FB_GRANTED || strcmp(principal, "steady") != 0)
            w->wrong++;
        if (fb_auth_admit(w->auth, w->steady, FB_SCOPE_ADMIN, principal) != FB_SCOPE_TOO_SMALL) w->wrong++;
        if (fb_auth_admit(w->auth, "fbt_", FB_SCOPE_READ, principal) != FB_TOKEN_UNKNOWN) w->wrong++;
        if (!fb_auth_still_admits(w->auth, "steady", FB_SCOPE_READ)) w->wrong++;
        w->asked++;
    }
    return NULL;
}

static fb_grant admit(fb_auth *auth, const char *token, fb_scope needed) {
    char principal[FB_PRINCIPAL_MAX + 1] = FB_ANONYMOUS;
    return fb_auth_admit(auth, token, needed, principal);
}

START_TEST(tokens_come_and_go_while_others_ask) {
    char folder[600];
    snprintf(folder, sizeof folder, "%s", new_folder());
    fb_store *store = open_store(folder, NULL);
    fb_error error = {0};
    fb_store_token made;
    char secret[FB_TOKEN_LENGTH + 1], steady[FB_TOKEN_LENGTH + 1], principal[FB_PRINCIPAL_MAX + 1];
    work w = {.steady = steady};
    check_ok(fb_auth_open(store, &w.auth, &error), &error);
    ck_assert(!fb_auth_is_needed(w.auth));
    ck_assert_int_eq(admit(w.auth, NULL, FB_SCOPE_ADMIN), FB_GRANTED);
    check_ok(fb_auth_create(w.auth, &(fb_store_token){.name = "steady", .scope = "write"}, NULL, steady, &made, &error),
             &error);
    FB_STORE_FREE(&made);
    ck_assert(fb_auth_is_needed(w.auth));
    ck_assert_int_eq(fb_auth_admit(w.auth, NULL, FB_SCOPE_READ, principal), FB_TOKEN_MISSING);

    pthread_t threads[ASKERS];
    for (size_t i = 0; i < ASKERS; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, ask, &w), 0);
    for (int i = 0; i < ROUNDS; i++) {
        check_ok(fb_auth_create(w.auth, &(fb_store_token){.scope = "read"}, NULL, secret, &made, &error), &error);
        ck_assert_int_eq(admit(w.auth, secret, FB_SCOPE_READ), FB_GRANTED);
        ck_assert_int_gt(fb_auth_last_use(w.auth, &made), 0);
        fb_store_token revoked;
        check_ok(fb_auth_revoke(w.auth, made.name, NULL, &revoked, &error), &error);
        ck_assert_int_eq(admit(w.auth, secret, FB_SCOPE_READ), FB_TOKEN_REVOKED);
        ck_assert(!fb_auth_still_admits(w.auth, made.name, FB_SCOPE_READ));
        FB_STORE_FREE(&revoked);
        FB_STORE_FREE(&made);
    }
    while (!atomic_load(&w.asked)) sched_yield();
    atomic_store(&w.is_over, true);
    for (size_t i = 0; i < ASKERS; i++) pthread_join(threads[i], NULL);
    ck_assert_uint_eq(w.wrong, 0);
    fb_auth_close(w.auth);

    /* and all of it is there again */
    check_ok(fb_auth_open(store, &w.auth, &error), &error);
    ck_assert_int_eq(admit(w.auth, steady, FB_SCOPE_WRITE), FB_GRANTED);
    ck_assert_int_eq(admit(w.auth, secret, FB_SCOPE_READ), FB_TOKEN_REVOKED);
    fb_auth_close(w.auth);
    fb_store_close(store);
    remove_folder(folder);
}
END_TEST

/* ---- rates -------------------------------------------------------------------------------------------------------------- */

#define SECOND ((int64_t)1000000000)

/* How many of `count` questions at one moment are let in. */
static unsigned let_in(fb_rates *rates, uint64_t key, int64_t now, unsigned count) {
    unsigned passed = 0;
    for (unsigned i = 0; i < count; i++) passed += fb_rate_take(rates, key, now) == 0;
    return passed;
}

START_TEST(a_rate_is_kept_and_waiting_helps) {
    fb_rates rates;
    int64_t now = 1000 * SECOND;
    ck_assert_int_eq(fb_rates_init(&rates, 10, NULL), FB_OK);
    ck_assert_uint_eq(let_in(&rates, 1, now, 100), 10);
    ck_assert_uint_eq(let_in(&rates, 2, now, 100), 10); /* another one */
    int64_t wait = fb_rate_take(&rates, 1, now);
    ck_assert_int_eq(wait, SECOND / 10);
    ck_assert_int_gt(fb_rate_take(&rates, 1, now + wait - 1), 0);
    ck_assert_uint_eq(let_in(&rates, 1, now + wait, 100), 1);
    ck_assert_uint_eq(let_in(&rates, 1, now + 3600 * SECOND, 100), 10); /* what was not asked is not saved up */
    unsigned passed = 0;
    for (int i = 0; i < 10000; i++) passed += let_in(&rates, 3, now + i * (SECOND / 1000), 1); /* ten seconds */
    ck_assert_uint_ge(passed, 10 * 10);
    ck_assert_uint_le(passed, 10 * 10 + 10);
    fb_rates_free(&rates);
}
END_TEST

START_TEST(no_rate_is_no_limit_and_many_askers_take_no_memory) {
    fb_rates rates;
    ck_assert_int_eq(fb_rates_init(&rates, 0, NULL), FB_OK);
    ck_assert_uint_eq(let_in(&rates, 1, SECOND, 1000), 1000);
    fb_rates_free(&rates);
    ck_assert_int_eq(fb_rates_init(&rates, 1, NULL), FB_OK);
    for (uint64_t asker = 1; asker < 200000; asker++) {
        uint64_t key = fb_rate_key(&rates, &asker, sizeof asker);
        ck_assert_int_eq(fb_rate_take(&rates, key, SECOND), 0);
        ck_assert_int_gt(fb_rate_take(&rates, key, SECOND), 0);
    }
    fb_rates_free(&rates);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("access");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, moments_are_read);
    tcase_add_test(tests, secrets_are_random_and_well_formed);
    tcase_add_test(tests, what_is_no_secret_has_no_digest);
    tcase_add_test(tests, tokens_come_and_go_while_others_ask);
    tcase_add_test(tests, a_rate_is_kept_and_waiting_helps);
    tcase_add_test(tests, no_rate_is_no_limit_and_many_askers_take_no_memory);
    return run_tests("access", tests);
}
