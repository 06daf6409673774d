/* What every golden case holds besides its report and its result: undoing, signatures, numbers, and the traps. */
#ifndef FB_TESTS_GOLDEN_H
#define FB_TESTS_GOLDEN_H

#include "core/compose/run.h"
#include "core/diff/text.h"
#include "core/document/document.h"

#define GOLDEN_FOLDER "build/golden"  /* the cases, as make golden writes them: one folder for all kinds of builds */
#define GOLDEN_SOURCES "tests/golden" /* what is committed of them */

typedef struct golden {
    char *name;       /* "MergeLinears/trap-18-no-bias" */
    char *hand_made;  /* the path of its file, if it was written by hand */
    fb_span expected; /* otherwise: its section of expected.diff, if it has one */
    fb_graph *before;
    char before_id[FB_ID_LENGTH + 1];
    fb_composition passes;
    bool update;
} golden;

/* The path of a file in the case's folder; what is in it, or NULL when it has none. The caller's to free. */
char *golden_path(const golden *g, const char *file);
char *golden_file(const golden *g, const char *file, size_t *size);
void ck_id(const golden *g, const fb_graph *graph, const char *expected, const char *what);

/* Each pass alone is undone, and all of them: what comes back is the run without them. Where they are reversible, all of them
 * are undone on a result that was changed since, too: then nothing is left to tell but the change. Settles the composition. */
void ck_golden_undone(golden *g, const fb_run *run);

/* Each match alone, and all but it: what is left of the pass has its names, and computes the same where `preserves` says so. Of
 * a composition that is settled. */
void ck_golden_matches(const golden *g, bool preserves);

/* signatures.json: those of the passes and of the whole list. Passes that differ in any way have different ones. */
void ck_golden_signatures(const golden *g, const fb_run *run);

/* numbers.json: the bytes of some tensors of the result, in hexadecimal digits, by the module's path and the attribute's name.
 */
void ck_golden_numbers(const golden *g, const fb_graph *result);

/* Of each of the forty traps there is a case "trap-NN-…". */
void ck_every_trap(const golden *cases, size_t count);

#endif
