#include "tests/unit/models_fixture.h"

#include <stdio.h>
#include <string.h>

struct models_fixture fixture;

static int64_t test_now(void) {
    return 1700000000000;
}

static void tell(void *context, unsigned what) {
    if (what & FB_ALIAS_CHANGED) atomic_fetch_add((atomic_int *)context, 1);
}

static const fb_store_config config = {.now_ms = test_now, .happened = tell, .happened_context = &fixture.told};

void open_models_store(void) {
    fixture.store = open_store(fixture.folder, &config);
}

void open_models(void) {
    fixture.error = (fb_error){0};
    fixture.told = 0;
    snprintf(fixture.folder, sizeof fixture.folder, "%s", new_folder());
    open_models_store();
    for (unsigned i = 0; i < 4; i++) make_graph(&fixture.graphs[i], i, 100);
}

void close_models(void) {
    for (unsigned i = 0; i < 4; i++) free_graph(&fixture.graphs[i]);
    fb_store_close(fixture.store);
    remove_folder(fixture.folder);
}

void reopen_models(void) {
    fb_store_close(fixture.store);
    open_models_store();
}

fb_status put_version(const char *name, unsigned graph) {
    bool is_new = false;
    fb_store_version stored;
    fb_store_new_version version = {.model = "bert", .name = name, .document = &fixture.graphs[graph].graph};
    fb_status status = fb_store_put_version(fixture.store, &version, &is_new, &stored, &fixture.error);
    if (!status) FB_STORE_FREE(&stored);
    return status;
}

void put_versions(void) {
    const char *const names[] = {"v0", "v1", "v2", "v3"};
    for (unsigned i = 0; i < 4; i++) check_ok(put_version(names[i], i), &fixture.error);
}

fb_store_alias_change change_if(fb_alias_condition condition, int64_t expected) {
    return (fb_store_alias_change){
        .model = "bert", .alias = "live", .condition = condition, .expected = expected, .who = "ann", .why = "test"};
}

int64_t entry_number(fb_status status, fb_store_alias_entry *entry) {
    if (status) return 0;
    int64_t number = entry->number;
    FB_STORE_FREE(entry);
    return number;
}

int64_t set_live(const char *version, fb_alias_condition condition, int64_t expected) {
    fb_store_alias_entry entry;
    fb_store_alias_change change = change_if(condition, expected);
    return entry_number(fb_store_set_alias(fixture.store, &change, version, &entry, &fixture.error), &entry);
}

int64_t roll_back_live(const char *to) {
    fb_store_alias_entry entry;
    fb_store_alias_change change = change_if(FB_ALIAS_EXISTS, 0);
    return entry_number(fb_store_roll_back_alias(fixture.store, &change, to, NULL, &entry, &fixture.error), &entry);
}

void check_live(const char *expected) {
    fb_store_alias_entry entry;
    check_ok(fb_store_get_alias(fixture.store, "bert", "live", &entry, &fixture.error), &fixture.error);
    ck_assert_str_eq(entry.to, expected);
    FB_STORE_FREE(&entry);
}

void check_failed(fb_status status, const char *code) {
    ck_assert_str_eq(fixture.error.code, code);
    check_error(fixture.error.status, &fixture.error, status, code);
}

fb_status take_passes_out(unsigned result, const char *name, bool is_fixed, int64_t expected, fb_store_alias_entry *out,
                          const fb_store_answer *answer) {
    fb_store_run run = make_run(fixture.store, &fixture.graphs[1], &fixture.graphs[result]);
    run.kind = "rollback";
    fb_store_partial_rollback partial = {
        .run = &run, .graphs = &fixture.graphs[result].graph, .graph_count = 1, .name = name, .is_name_fixed = is_fixed};
    fb_store_alias_change change = change_if(FB_ALIAS_IS_AT, expected);
    return fb_store_roll_back_passes(fixture.store, &change, &partial, answer, out, &fixture.error);
}
