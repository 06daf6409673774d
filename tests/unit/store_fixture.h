/* What the tests of the store share: a folder, graphs and runs to put into it. */
#ifndef FB_TESTS_STORE_FIXTURE_H
#define FB_TESTS_STORE_FIXTURE_H

#include "tests/unit/checks.h"

#include "server/store/store.h"
#include "tests/unit/run_tests.h"

/* A new empty folder's path, until the next call. */
const char *new_folder(void);
void remove_folder(const char *folder);

/* Opens and fails the test when that fails. `config` may be NULL. */
fb_store *open_store(const char *folder, const fb_store_config *config);

/* A graph with content of its own: `number` decides id and document; `structure` and name are derived from number % 3. */
typedef struct made_graph {
    fb_store_graph graph;
    fb_store_mark marks[3]; /* nodes 1 and 4 carry signature "s1", node 4 also "s2" */
    char id[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1], name[32];
    char *document;
} made_graph;

/* `filler` random characters, which do not compress, make the document larger. Free with free_graph. */
void make_graph(made_graph *made, unsigned number, size_t filler);
void free_graph(made_graph *made);

/* An optimize run from one graph to another, with the passes MergeLinears (signature s1) and FuseBiasInLinear (s2). Its texts
 * are constants. */
fb_store_run make_run(fb_store *store, const made_graph *source, const made_graph *result);

/* Puts both graphs and the run; fails the test when that fails. */
void put_run(fb_store *store, const fb_store_run *run, const made_graph *source, const made_graph *result);

/* Fail the test unless the call went well, or failed as it should; the latter clears the error for the next call. */
void check_ok(fb_status status, const fb_error *error);
void check_error(fb_status status, fb_error *error, fb_status expected, const char *code);

/* The value of one of the store's metrics. */
double metric(fb_store *store, const char *name);

#endif
