/* One pass on one fixture, and what undoing it gives. */
#ifndef FB_TESTS_PASS_TRIAL_H
#define FB_TESTS_PASS_TRIAL_H

#include "core/compose/run.h"
#include "tests/unit/memory_blobs.h"

/* Those whose regions are evaluated in no time. */
#define TRIAL_FIXTURES 9
extern const char *const trial_fixtures[TRIAL_FIXTURES];

typedef struct trial {
    const char *pass, *fixture;
    fb_composition composition;
    memory_blobs blobs; /* the fixture's weights, where they are bound */
    fb_graph *before;
    fb_run run;
    size_t applied;
} trial;

/* `pass` as in a list of passes. */
void trial_begin(trial *t, const char *pass, const char *fixture, bool with_weights);
void trial_end(trial *t);

/* Fails the test unless it went well. */
void trial_check(const trial *t, fb_status status, const fb_error *error);
/* Without the passes the run is the source, whatever they did. */
void trial_check_undone(const trial *t);
/* In a list that spaces separate. */
bool trial_has_word(const char *list, const char *word);

#endif
