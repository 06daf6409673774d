/* What the tests of the store's models share: a store, graphs for versions of the model "bert", and its alias "live". */
#ifndef FB_TESTS_MODELS_FIXTURE_H
#define FB_TESTS_MODELS_FIXTURE_H

#include <stdatomic.h>

#include "server/store/events.h"
#include "server/store/models.h"
#include "tests/unit/store_fixture.h"

extern struct models_fixture {
    char folder[512];
    fb_store *store;
    fb_error error; /* of the last call */
    made_graph graphs[4];
    atomic_int told; /* how often an alias has changed */
} fixture;

void open_models(void);
void close_models(void);
void reopen_models(void);
void open_models_store(void); /* when a test has closed it */

/* A version with one of the graphs; put_versions puts v0 to v3 with graphs 0 to 3. */
fb_status put_version(const char *name, unsigned graph);
void put_versions(void);

/* A change of the alias by ann, because of a test. */
fb_store_alias_change change_if(fb_alias_condition condition, int64_t expected);

/* Each returns the number of the alias' last entry, 0 after a failure. */
int64_t entry_number(fb_status status, fb_store_alias_entry *entry); /* frees the entry */
int64_t set_live(const char *version, fb_alias_condition condition, int64_t expected);
int64_t roll_back_live(const char *to);

/* A run that undoes passes of version v1 (graph 1), with graph `result` as what is left. */
fb_status take_passes_out(unsigned result, const char *name, bool is_fixed, int64_t expected, fb_store_alias_entry *out,
                          const fb_store_answer *answer);

/* Fail the test unless the alias is at that version, or fixture.error is that. */
void check_live(const char *expected);
void check_failed(fb_status status, const char *code);

#endif
