/* What tests on random graphs share: a case with its seed, reading, running, comparing; and the loop over the cases.
 *
 * FOLDBACK_RANDOM_CASES (default 10000) and FOLDBACK_RANDOM_SEED (default 1) choose the cases; a failure names the seed of its
 * case, and FOLDBACK_RANDOM_CASES=1 FOLDBACK_RANDOM_SEED=<it> runs that one alone. With FOLDBACK_RANDOM_ALL set the cases go on
 * behind one that failed; every failure is printed, and the test fails at its end. */
#ifndef FB_TESTS_RANDOM_CASE_H
#define FB_TESTS_RANDOM_CASE_H

#include "tests/unit/checks.h"
#include <inttypes.h>
#include <jansson.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "tests/unit/generator.h"

typedef struct random_case {
    uint64_t seed;
    fb_buffer document, passes;
    fb_graph *source;
    char source_id[FB_ID_LENGTH + 1];
    fb_composition composition;
} random_case;

/* Ends the case: the test fails now, or at its end. */
_Noreturn void fail_case(const random_case *c, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define CK(c, condition, ...)                                                                                                  \
    do {                                                                                                                       \
        if (!(condition)) fail_case((c), __FILE__, __LINE__, __VA_ARGS__);                                                     \
    } while (0)

/* Reads document and passes, which are there. */
void read_case(random_case *c);
void free_case(random_case *c);

/* These fail the test when they cannot do their work; `what` says in the message which graph it was. */
fb_graph *read_graph(const random_case *c, const fb_buffer *document, const char *what);
fb_composition read_passes(const random_case *c, const fb_buffer *list);
fb_run run_passes(const random_case *c, const fb_composition *composition, const fb_graph *source);
/* The source run through the composition without the selected passes. */
fb_graph *run_without(const random_case *c, const bool *selected);
void id_of(const random_case *c, const fb_graph *graph, char id[FB_ID_LENGTH + 1]);
/* Written and read again it is the same graph. */
void check_round_trip(const random_case *c, const fb_graph *graph, const char *what);

/* The document as a tree, to be changed, and the graph that it makes then; NULL when it is not valid. */
json_t *json_of(const random_case *c, const fb_graph *graph);
fb_graph *graph_of_json(const json_t *document);

/* A setting from the environment. */
uint64_t random_setting(const char *name, uint64_t fallback);
/* Calls run_case with every seed; gives how many there were. What a failed case had allocated is lost. */
uint64_t run_random_cases(void (*run_case)(uint64_t seed));
/* main() of a program with this one test. With FOLDBACK_RANDOM_PRINT set it prints the document of the first case instead. */
int random_main(const char *name, const TTest *test);

#endif
